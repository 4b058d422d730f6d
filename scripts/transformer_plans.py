#!/usr/bin/python3
"""Plans for Megatron-LM's GPT models on DGX A100s, by the analytic model: found, megatron, data parallelism, lower bound.

scripts/transformer_plans.py [--build DIR] [--budget SECONDS]    prints docs/results/transformers.md
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["gpt-1.7b", "gpt-3.6b", "gpt-7.5b", "gpt-18.4b"]
TOPOLOGIES = {"dgx-a100-2": 16, "dgx-a100-8": 64}  # one sample a device


def plan(build, model, topology, batch, *flags):
    command = [build / "ffsearch", "--graph", REPOSITORY / f"graphs/{model}.json", "--topo",
               REPOSITORY / f"topologies/{topology}.json", "--batch", str(batch), "--cost", "analytic", "--seed", "1",
               "--json", "--out", os.devnull, *flags]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def cell(result):
    fits = "" if result["fits_memory"] else ", does not fit"
    return f"{result['predicted_us'] / 1e3:.0f} ms ({max(result['memory_bytes']) / 1e9:.0f} GB{fits})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--budget", type=int, default=30)
    options = parser.parse_args()
    print("<!-- printed by scripts/transformer_plans.py -->\n")
    print("| network | machine | batch | found | megatron | data parallelism | lower bound | found against the best that "
          "fits of the other two |")
    print("|---|---|---|---|---|---|---|---|")
    for topology, batch in TOPOLOGIES.items():
        for model in MODELS:
            results = [plan(options.build, model, topology, batch, "--algorithm", algorithm)
                       for algorithm in ("megatron", "data-parallel")]
            found = plan(options.build, model, topology, batch, "--algorithm", "mcmc", "--budget",
                         f"{options.budget}s")
            fitting = [result["predicted_us"] for result in results if result["fits_memory"]]
            against = f"{min(fitting) / found['predicted_us']:.2f} times as fast" if fitting else "neither fits"
            print(f"| {model} | {topology} | {batch} | {cell(found)} | {cell(results[0])} | {cell(results[1])} "
                  f"| {found['lower_bound_us'] / 1e3:.0f} ms | {against} |", flush=True)


if __name__ == "__main__":
    main()
