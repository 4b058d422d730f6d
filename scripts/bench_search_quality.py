#!/usr/bin/python3
"""What the search finds, and how soon: networks x topologies x seeds x budgets, median, best and worst over the seeds.

  scripts/bench_search_quality.py --seeds 3 --budgets 5 30 --against OTHER_BUILD --out table.md
  scripts/bench_search_quality.py --cells nmt:k80-16x4 --budgets default --flags --beta=500 --against-flags --beta=2000

With --against or --against-flags two settings run in turn, so that whatever else the machine does meets both. The
budget "default" is none: the search then ends when nothing better is to be expected."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
CELLS = [f"{network}:{topology}" for network in ("nmt", "rnnlm", "rnntc", "inception_v3")
         for topology in ("k80-16x4", "dgx-a100-8")] + \
        [f"{network}:p100-{nodes}x4" for network in ("alexnet", "resnet101", "inception_v3", "nmt", "rnnlm", "rnntc")
         for nodes in (1, 4, 16)]


def search(build, cell, budget, seed, flags, batch):
    network, topology = cell.split(":")
    command = [build / "ffsearch", "--graph", REPOSITORY / f"graphs/{network}.json", "--topo",
               REPOSITORY / f"topologies/{topology}.json", "--cost", "analytic", "--seed", seed, "--json", "--out",
               os.devnull, *flags]
    command += [] if any(flag.startswith("--threads") for flag in flags) else ["--threads", 1]
    command += ["--batch", batch] if batch else ["--batch-per-device", 256 if network == "alexnet" else 64]
    command += [] if budget == "default" else ["--budget", f"{budget}s"]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def seconds_until(result, us):
    """When the search had a strategy of at most so many microseconds, with what came before its chains; None: never.

    Heuristic baselines are there when the chains begin."""
    before = result["total_s"] - result["elapsed_s"]
    if min(result["baselines"].values()) <= us:
        return before
    for found in result.get("improvements", []):
        if found["predicted_us"] <= us:
            return before + found["after_s"]
    return before + result["best_found_s"] if result["predicted_us"] <= us else None


def row(cell, budget, name, results, best_us):
    found = sorted(result["predicted_us"] / 1e3 for result in results)
    until = [seconds_until(result, 1.01 * best_us) for result in results]
    reached = sorted(seconds for seconds in until if seconds is not None)
    middle = f"{statistics.median(reached):.1f}" if reached else ""
    return [cell, budget, name, f"{statistics.median(found):.2f}", f"{found[0]:.2f}", f"{found[-1]:.2f}",
            f"{min(results[0]['baselines'].values()) / 1e3:.2f}", f"{results[0]['lower_bound_us'] / 1e3:.2f}",
            f"{middle} ({len(reached)} of {len(results)})",
            f"{statistics.median(result['total_s'] for result in results):.1f}",
            f"{statistics.median(result['proposals'] for result in results):,.0f}"]


HEADER = ["cell", "budget s", "", "median ms", "best", "worst", "best baseline", "bound",
          "s until within 1 % of the best known", "ended after s", "proposals"]


def read_best(path):
    return json.loads(path.read_text()) if path and path.exists() else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="NETWORK:TOPOLOGY")
    parser.add_argument("--budgets", nargs="+", default=["5", "30"], help="seconds, or default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, help="so many samples in all, instead of 64 (AlexNet 256) per device")
    parser.add_argument("--flags", nargs="*", default=[], help="further flags of ffsearch, each as --flag=value")
    parser.add_argument("--against", type=pathlib.Path, metavar="BUILD", help="another build, in turn")
    parser.add_argument("--against-flags", nargs="*", help="other flags, in turn")
    parser.add_argument("--names", nargs=2, default=["this", "other"], help="of the two in the table")
    parser.add_argument("--best", type=pathlib.Path, help="file with the best known of each cell, read and kept")
    parser.add_argument("--out", type=pathlib.Path, help="also write the table here")
    arguments = parser.parse_args()
    settings = [(arguments.names[0], arguments.build, arguments.flags)]
    if arguments.against or arguments.against_flags is not None:
        other_flags = arguments.flags if arguments.against_flags is None else arguments.against_flags
        settings.append((arguments.names[1], arguments.against or arguments.build, other_flags))
    best, lines = read_best(arguments.best), []

    def emit(cells):
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)

    emit(HEADER)
    emit(["---"] * len(HEADER))
    for cell in arguments.cells:
        rows = {}
        for budget in arguments.budgets:
            for seed in range(1, arguments.seeds + 1):
                for name, build, flags in settings:
                    rows.setdefault((budget, name), []).append(
                        search(build, cell, budget, seed, flags, arguments.batch))
        key = f"{cell}:{arguments.batch}" if arguments.batch else cell
        best[key] = min([best.get(key, float("inf"))] + [one["predicted_us"] for some in rows.values() for one in some])
        for (budget, name), results in rows.items():
            emit(row(cell, budget, name, results, best[key]))
        if arguments.best:
            arguments.best.write_text(json.dumps(best, indent=1) + "\n")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
