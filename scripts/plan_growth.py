#!/usr/bin/env python3
"""How long ffsearch takes for large transformers: one evaluation of settings, and a search for plans, by number of
devices; or all settings of a grid, evaluated once each, against the plan that the search finds; or searches for one
plan against searches for eight, of networks, clusters and batches drawn at random: the best plans should be equal.

    scripts/plan_growth.py [--build DIR] [--graph NAME] [--preset NAME] [--nodes 8,32,128] [--settings TEXT]
                           [--batch-per-node N] [--no-plan]
    scripts/plan_growth.py --grid [--build DIR] [--graph NAME] [--preset NAME] [--nodes 8] [--batch N] [--rows FILE]
    scripts/plan_growth.py --tops CASES [--seed N] [--build DIR]

Prints tables of docs/results/planning.md. Times are CPU seconds of the process; one thread computes. A grid has
thousands of settings: --rows keeps each evaluated one, and a grid that was stopped goes on from there."""

import argparse
import itertools
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(*command):
    """JSON (None for exit code 1), CPU seconds, and the message."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode not in (0, 1):
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout) if done.returncode == 0 else None, seconds, done.stderr.strip()


def powers(most):
    return [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most]


class Problem:
    def __init__(self, arguments, nodes, work):
        self.program = pathlib.Path(arguments.build).resolve() / "ffsearch"
        self.topology = work / f"{nodes}.json"
        made, _, message = run(self.program, "topology", "--preset", arguments.preset, "--nodes", nodes, "--out",
                               self.topology, "--json")
        if made is None:
            sys.exit(message)
        self.devices = nodes * 8
        samples = arguments.batch_per_node * nodes if arguments.batch_per_node else arguments.batch
        batch = ["--batch", samples] if samples else []
        self.flags = ["--graph", ROOT / f"graphs/{arguments.graph}.json", "--topo", self.topology, *batch,
                      "--precision", "bf16", "--optimizer", "adamw", "--cost", "analytic", "--json"]

    def evaluated(self, settings):
        return run(self.program, "simulate", *self.flags, "--settings", settings)

    def planned(self, *flags):
        return run(self.program, "plan", *self.flags, *flags)


def growth(arguments, work):
    print("| devices | evaluation | CPU | best plan | predicted | CPU | settings | simulated |\n" + "|---" * 8 + "|")
    for nodes in (int(number) for number in arguments.nodes.split(",")):
        problem = Problem(arguments, nodes, work)
        one, seconds, message = problem.evaluated(arguments.settings)
        cells = [f"{one['predicted_us'] / 1e6:.2f} s" if one else message, f"{seconds:.1f} s"]
        if not arguments.no_plan:
            found, seconds, message = problem.planned()
            best = found["plans"][0] if found else None
            cells += [f"`{best['settings']}`", f"{best['predicted_us'] / 1e6:.2f} s", f"{seconds:.0f} s",
                      f"{found['settings']:,}", f"{found['simulated']}"] if best else [message, "", f"{seconds:.0f} s"]
        print(f"| {problem.devices:,} | " + " | ".join(cells) + " |", flush=True)


def grid_settings(devices):
    """Every tp, pp, vp, micro-batch, sharding and recomputation of that many devices, as people say them."""
    for tensor in powers(8):
        for stages in powers(devices // tensor):
            for size, sharding, recompute, chunks in itertools.product(
                    powers(64), ("none", "optimizer", "gradients", "parameters"), ("none", "full"),
                    (1, 2, 3, 4, 6) if stages > 1 else (1,)):
                yield (f"tp={tensor},pp={stages},vp={chunks},micro_batch={size},sharding={sharding},"
                       f"recompute={recompute}")


def grid(arguments, work):
    """All settings, each evaluated by the search's own prediction of given settings, against what the search finds."""
    problem = Problem(arguments, int(arguments.nodes), work)
    found, searched, message = problem.planned("--top", 1)
    if found is None:
        sys.exit(message)
    path = arguments.rows or work / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {row["settings"] for row in rows}
    with path.open("a") as kept:
        for settings in grid_settings(problem.devices):
            if settings in known:
                continue
            one, seconds, message = problem.planned("--top", 1, "--settings", settings)
            plan = one["plans"][0] if one else {}
            rows.append({"settings": settings, "seconds": round(seconds, 2), "plan": plan.get("settings"),
                         "predicted_us": plan.get("predicted_us"), "message": message})
            print(json.dumps(rows[-1]), file=kept, flush=True)
    fit = [row for row in rows if row["plan"]]
    best = min(fit, key=lambda row: row["predicted_us"])
    plan = found["plans"][0]
    spent = sum(row["seconds"] for row in rows)
    print(f"| grid | search |\n|---|---|\n| {len(rows):,} settings, {len(fit):,} fit | {found['settings']:,} settings, "
          f"{found['simulated']} simulated |\n| {spent:,.0f} s | {searched:.0f} s |\n| `{best['plan']}` | "
          f"`{plan['settings']}` |\n| {best['predicted_us'] / 1e6:.3f} s | {plan['predicted_us'] / 1e6:.3f} s |")


def tops(arguments, work):
    print("| network | batch | GPUs | for | one plan | slower than of eight | CPU | of eight | below estimates |\n" +
          "|---" * 9 + "|")
    drawn = random.Random(arguments.seed)
    for _ in range(arguments.tops):
        arguments.graph = drawn.choice(("gpt2-small", "gpt-1.7b", "gpt-3.6b", "gpt-7.5b", "moe-tiny"))
        arguments.preset = drawn.choice(("dgx-a100-80gb", "dgx-h100"))
        arguments.batch = 2 ** drawn.randint(4, 9)
        framework = drawn.choice(("", "megatron", "torchtitan", "deepspeed"))
        for_framework = ("--for", framework) if framework else ()
        problem = Problem(arguments, drawn.choice((1, 2, 4, 8)), work)
        one, seconds, message = problem.planned("--top", 1, *for_framework)
        eight, seconds_of_eight, _ = problem.planned("--top", 8, *for_framework)
        cells = [arguments.graph, str(arguments.batch), f"{problem.devices} {arguments.preset}", framework]
        if one and eight:
            best, best_of_eight = (found["plans"][0]["predicted_us"] for found in (one, eight))
            below = max(found["most_below_estimate"] for found in (one, eight))
            cells += [f"{best / 1e3:.3f} ms", f"{100 * (best / best_of_eight - 1):.2f} %", f"{seconds:.1f} s",
                      f"{seconds_of_eight:.1f} s", f"{100 * below:.1f} %"]
        else:
            cells += [message]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/release")
    parser.add_argument("--graph", default="gpt-175b")
    parser.add_argument("--preset", default="dgx-a100-80gb")
    parser.add_argument("--nodes", default="8")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--batch-per-node", type=int, help="so that each data-parallel group has as many samples")
    parser.add_argument("--settings", default="tp=8,pp=8,micro_batch=1,sharding=optimizer,recompute=full")
    parser.add_argument("--no-plan", action="store_true", help="evaluations alone")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--tops", type=int, default=0, metavar="CASES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=pathlib.Path, help="keeps evaluated settings of a grid (JSON lines)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (tops if arguments.tops else grid if arguments.grid else growth)(arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
