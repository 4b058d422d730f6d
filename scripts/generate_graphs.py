#!/usr/bin/python3
"""Writes operator graphs (ffgraph/1) of well-known networks; docs/networks.md lists them.

    scripts/generate_graphs.py                          every network into graphs/
    scripts/generate_graphs.py vgg16 --width 0.25       a quarter of the channels: graphs/vgg16-w0.25.json
    scripts/generate_graphs.py alexnet --batch 64 --out elsewhere/
    scripts/generate_graphs.py rnnlm --steps 8 --vocabulary 1000     graphs/rnnlm-s8-v1000.json

The networks are in scripts/graph_generator/.
"""

import argparse
import math
import pathlib

from graph_generator import NETWORKS, build, readable_json, write_json

__all__ = ["NETWORKS", "REPOSITORY", "build", "readable_json", "write_json"]

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description="Writes operator graphs (ffgraph/1) of well-known networks.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK",
                        help="any of: " + ", ".join(NETWORKS) + "; default: all")
    parser.add_argument("--batch", type=int, help="batch size; default: the network's own")
    parser.add_argument("--width", type=float, default=1.0,
                        help="multiplies channels and hidden features, not classes; default: 1")
    parser.add_argument("--steps", type=int, help="length of the sequences, of recurrent networks and transformers")
    parser.add_argument("--layers", type=int, help="repeated layers, of LSTMs (nmt: on each side) and transformers")
    parser.add_argument("--vocabulary", type=int, help="rows of each embedding table, and words that are predicted")
    parser.add_argument("--image", type=int, help="height and width of the images")
    parser.add_argument("--statistics", choices=["global", "local"], help="of batch normalization; default: global")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "graphs", metavar="DIR",
                        help="default: graphs/")
    arguments = parser.parse_args()
    for name in arguments.networks:
        if name not in NETWORKS:
            parser.error(f'no network is named "{name}"; known: ' + ", ".join(NETWORKS))
    for option, most in (("batch", 2**32), ("steps", 2**16), ("layers", 1000), ("vocabulary", 2**28), ("image", 2**16)):
        value = getattr(arguments, option)
        if value is not None and not 1 <= value <= most:
            parser.error(f"--{option}: expected from 1 to {most}, got {value}")
    if not (math.isfinite(arguments.width) and 0 < arguments.width <= 100):
        parser.error(f"--width: expected a number above 0, at most 100, got {arguments.width:g}")
    try:
        graphs = [build(name, arguments.batch, arguments.width, steps=arguments.steps, layers=arguments.layers,
                        vocabulary=arguments.vocabulary, image=arguments.image, statistics=arguments.statistics)
                  for name in arguments.networks or NETWORKS]
    except ValueError as error:
        parser.error(str(error))
    try:
        for graph in graphs:
            path = arguments.out / (graph["name"] + ".json")
            write_json(path, graph)
            print(path)
    except OSError as error:
        parser.error(f"--out: {error}")


if __name__ == "__main__":
    main()
