#!/usr/bin/python3
"""Plans for Megatron-LM's GPT models on DGX A100s, by the analytic model.

Found, megatron, data parallelism and the lower bound, side by side.

scripts/transformer_plans.py [--build DIR] [--budget SECONDS]    prints docs/results/transformers.md
"""

import argparse
import pathlib

from ffsearch_json import ffsearch

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["gpt-1.7b", "gpt-3.6b", "gpt-7.5b", "gpt-18.4b"]
# One sample per device, and one for four: more devices than samples.
CASES = [("dgx-a100-2", 16), ("dgx-a100-2", 4), ("dgx-a100-8", 64), ("dgx-a100-8", 16)]


def plan(build, model, topology, batch, *flags):
    return ffsearch(build, REPOSITORY / f"graphs/{model}.json", REPOSITORY / f"topologies/{topology}.json", batch,
                    "--seed", "1", *flags)


def cell(result):
    fits = "" if result["fits_memory"] else ", does not fit"
    return f"{result['predicted_us'] / 1e3:.0f} ms ({max(result['memory_bytes']) / 1e9:.0f} GB{fits})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--budget", type=int, default=30)
    options = parser.parse_args()
    print("<!-- printed by scripts/transformer_plans.py -->\n")
    print("| network | machine | batch | found | megatron | data parallelism | lower bound "
          "| found against the best of the other two that fits |")
    print("|---|---|---|---|---|---|---|---|")
    for topology, batch in CASES:
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
