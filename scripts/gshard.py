#!/usr/bin/python3
"""GShard's claims (Lepikhin et al. 2020, arXiv 2006.16668) as ratios, by the analytic model.

Its transformers with experts on tori of TPU v3 cores.

scripts/gshard.py [--build DIR]    prints docs/results/gshard.md
"""

import argparse
import dataclasses
import json
import pathlib
import tempfile

from ffsearch_json import ffsearch

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Steps per second of table 1: (experts, layers) -> published.
STEPS = {(2048, 36): 0.72, (2048, 12): 2.15, (512, 36): 1.05, (512, 12): 3.28, (128, 36): 0.67, (128, 12): 2.16}
TOKENS = 1024  # a sample


@dataclasses.dataclass
class Row:
    """One network on as many cores as it has experts."""
    experts: int
    layers: int
    tokens: int  # a core
    result: dict

    def ms(self):
        return self.result["predicted_us"] / 1e3

    def compute_ms(self):
        return self.result["compute_us"] / self.experts / 1e3

    def collective_ms(self, kind):
        return self.result["collectives"].get(kind, {"us": 0})["us"] / 1e3

    def memory_gb(self):
        return max(self.result["memory_bytes"]) / 1e9


def plan(build, experts, layers, tokens):
    """A group of tokens is a core's, as in the graphs at the batch of the published table."""
    graph = json.loads((REPOSITORY / f"graphs/gshard-moe-{experts}e-{layers}l.json").read_text())
    graph.pop("$schema", None)
    for operator in graph["operators"]:
        if "group_samples" in operator.get("attributes", {}):
            operator["attributes"]["group_samples"] = tokens // TOKENS
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(graph, file)
        file.flush()
        result = ffsearch(build, file.name, REPOSITORY / f"topologies/tpu-v3-{experts}.json",
                          experts * tokens // TOKENS, "--algorithm", "gshard")
    return Row(experts, layers, tokens, result)


def print_rows(rows):
    print("| experts = cores | layers | tokens a core | iteration, ms | kernels | all-to-all | all-reduce of gradients "
          "| memory a core, GB |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.experts} | {row.layers} | {row.tokens} | {row.ms():.0f} | {row.compute_ms():.0f} "
              f"| {row.collective_ms('all-to-all'):.0f} ({row.collective_ms('all-to-all') / row.ms():.0%}) "
              f"| {row.collective_ms('synchronization'):.0f} | {row.memory_gb():.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    build = parser.parse_args().build
    table = {(e, n): plan(build, e, n, 8192 if e == 128 else 2048) for e, n in STEPS}
    equal = {n: plan(build, 128, n, 2048) for n in (12, 36)}
    print("<!-- printed by scripts/gshard.py -->\n")
    print_rows(list(table.values()) + list(equal.values()))
    print("\nSteps a second, as ratios to 2048 experts and 36 layers:\n")
    print("| experts | layers | published | predicted | published ratio | predicted ratio |")
    print("|---|---|---|---|---|---|")
    reference = table[2048, 36]
    for (experts, layers), published in STEPS.items():
        ms = table[experts, layers].ms()
        print(f"| {experts} | {layers} | {published:.2f} | {1e3 / ms:.2f} | {published / STEPS[2048, 36]:.2f} "
              f"| {reference.ms() / ms:.2f} |")
    print("\nFrom 128 to 2,048 experts at 2,048 tokens a core:\n")
    print("| layers | device time (published: 1.7 times) | all-to-all | all-reduce | memory |")
    print("|---|---|---|---|---|")
    for layers, few in equal.items():
        many = table[2048, layers]
        ratios = [many.ms() / few.ms(), many.collective_ms("all-to-all") / few.collective_ms("all-to-all"),
                  many.collective_ms("synchronization") / few.collective_ms("synchronization"),
                  many.memory_gb() / few.memory_gb()]
        print(f"| {layers} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    print("\nFrom 12 to 36 layers, memory a core: " +
          ", ".join(f"{e} experts {table[e, 36].memory_gb() / table[e, 12].memory_gb():.2f} times"
                    for e in (128, 512, 2048)) + ".")


if __name__ == "__main__":
    main()
