#!/usr/bin/env python3
"""How long ffsearch takes for large transformers: one evaluation of settings, and a search for plans, by number of
devices; or all settings of a grid, evaluated once each, against the plan that the search finds.

    scripts/plan_growth.py [--build DIR] [--graph NAME] [--preset NAME] [--nodes 8,32,128] [--settings TEXT]
                           [--batch-per-node N] [--no-plan]
    scripts/plan_growth.py --grid [--build DIR] [--graph NAME] [--preset NAME] [--nodes 8] [--batch N]

Prints tables of docs/results/planning.md. Times are CPU seconds of the process; one thread computes."""

import argparse
import json
import pathlib
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


def grid(arguments, work):
    """Every tp, pp, vp, micro-batch, sharding and recomputation that is possible, each evaluated by the search's own
    prediction of given settings."""
    problem = Problem(arguments, int(arguments.nodes), work)
    found, searched, message = problem.planned("--top", 1)
    if found is None:
        sys.exit(message)
    best, evaluated, fits, spent = None, 0, 0, 0.0
    for tensor in powers(8):
        for stages in powers(problem.devices // tensor):
            for size in powers(64):
                for sharding in ("none", "optimizer", "gradients", "parameters"):
                    for recompute in ("none", "full"):
                        for chunks in (1, 2, 3, 4, 6) if stages > 1 else (1,):
                            settings = (f"tp={tensor},pp={stages},vp={chunks},micro_batch={size},sharding={sharding},"
                                        f"recompute={recompute}")
                            one, seconds, _ = problem.planned("--top", 1, "--settings", settings)
                            spent += seconds
                            evaluated += 1
                            if one is None:
                                continue
                            fits += 1
                            plan = one["plans"][0]
                            if best is None or plan["predicted_us"] < best["predicted_us"]:
                                best = plan
    plan = found["plans"][0]
    print(f"| grid | search |\n|---|---|\n| {evaluated} settings, {fits} fit | {found['settings']} settings, "
          f"{found['simulated']} simulated |\n| {spent:.0f} s | {searched:.0f} s |\n| `{best['settings']}` | "
          f"`{plan['settings']}` |\n| {best['predicted_us'] / 1e6:.3f} s | {plan['predicted_us'] / 1e6:.3f} s |")


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
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (grid if arguments.grid else growth)(arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
