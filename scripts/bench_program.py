#!/usr/bin/python3
"""Time and memory of one rank from a strategy file to its program, by number of devices.

    scripts/bench_program.py [--build build/release] [--devices 16 128 1024 2048] [--only NETWORK ...] [--rounds 5]
                             [--out FILE]

Networks: "moe", GShard's transformer of 12 layers with an expert per device in every second layer, the experts split
over the devices and all else by sample; "alexnet" and "resnet50" by sample alone. The batch grows with the devices, so
that a rank's own work stays the same. Prints a table; the lowest times of the rounds.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = ("moe", "alexnet", "resnet50")
DEVICES_PER_NODE = 8


def topology(devices):
    nodes = json.loads((REPOSITORY / "topologies/dgx-h100-128.json").read_text())
    nodes["name"] = f"dgx-h100-{devices}-devices"
    nodes["nodes"]["count"] = devices // DEVICES_PER_NODE
    return nodes


def graph(network, devices):
    name = {"moe": "gshard-moe-128e-12l"}.get(network, network)
    result = json.loads((REPOSITORY / f"graphs/{name}.json").read_text())
    result["batch_size"] = 4 * devices
    for operator in result["operators"]:
        if operator["name"].endswith(".gate"):
            operator["attributes"]["out_features"] = devices
        if "group_samples" in operator.get("attributes", {}):
            operator["attributes"]["group_samples"] = 2
    return result


def strategy(network, devices):
    everywhere = f"0-{devices - 1}"
    read = graph(network, devices)
    experts = [one["name"] for one in read["operators"] if one["type"] == "expert_linear"]
    configurations = [{"operators": "*", "degrees": {"sample": devices}, "devices": everywhere}]
    if experts:
        configurations.insert(0, {"operators": experts, "degrees": {"expert": devices}, "devices": everywhere})
    return {"format": "ffstrategy/1", "configurations": configurations, "graph": read, "topology": topology(devices)}


def measure(build, path, rounds):
    results = [json.loads(subprocess.run([build / "tests/bench_program", path], check=True, capture_output=True,
                                         text=True).stdout) for _ in range(rounds)]
    best = dict(results[0])
    for key in ("reading_ms", "deriving_ms"):
        best[key] = min(result[key] for result in results)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--devices", type=int, nargs="+", default=[16, 128, 1024, 2048], metavar="N")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    lines = ["| network | devices | reading ms | deriving ms | after reading MB | peak MB | tasks | steps |",
             "|" + "---|" * 8]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for network in arguments.only:
            for devices in arguments.devices:
                path = pathlib.Path(folder) / f"{network}-{devices}.json"
                path.write_text(json.dumps(strategy(network, devices)))
                one = measure(arguments.build.resolve(), path, arguments.rounds)
                lines.append(f"| {network} | {devices} | {one['reading_ms']:.1f} | {one['deriving_ms']:.1f} | "
                             f"{one['reading_mb']:.0f} | {one['peak_mb']:.0f} | {one['tasks']} | {one['steps']} |")
                print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
