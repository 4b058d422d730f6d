#!/usr/bin/env python3
"""The ten best plans of ffsearch plan for a small GPT on emulated hosts, trained there: is their order kept, and how
much slower than the fastest is the plan that is predicted best (regret)?

    scripts/plan_order.py [--build DIR] [--hosts N] [--gb-per-s X] [--seconds S] [--out FILE]

Needs root (scripts/emulated_cluster.sh) and an idle machine. With fewer processors than hosts each host has an equal
share of them, from which the kernel also takes what it spends on the network: predictions are far too short then. Five
minutes with the default of 8 seconds for each plan. Prints a table of docs/results/planning.md."""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from mpi_environment import mpi_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
GPT = {"model_type": "gpt2", "n_layer": 4, "n_embd": 256, "n_head": 4, "n_positions": 128, "vocab_size": 2000,
       "embd_pdrop": 0, "resid_pdrop": 0, "attn_pdrop": 0}
BATCH = 32


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=mpi_environment(),
                          check=False)
    if done.returncode == 77:
        print(done.stderr.strip())
        sys.exit(77)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(word) for word in command)}: {done.stderr.strip()}")
    return done.stdout


def kendall(pairs):
    """Kendall's tau of (predicted, measured)."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in itertools.combinations(pairs, 2)]
    agree, differ = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    return (agree - differ) / (agree + differ) if agree + differ else float("nan")


def regret(pairs):
    """Measured time of what is predicted best over the least measured one, less 1."""
    return min(pairs)[1] / min(measured for _, measured in pairs) - 1


class Comparison:
    def __init__(self, arguments, work):
        self.build, self.work, self.seconds = pathlib.Path(arguments.build).resolve(), work, arguments.seconds
        hosts, processors = arguments.hosts, len(os.sched_getaffinity(0))
        self.cluster = [ROOT / "scripts/emulated_cluster.sh", "--hosts", hosts, "--gb-per-s", arguments.gb_per_s]
        if processors < hosts:
            for host in range(hosts):
                self.cluster += ["--cpu-share", f"{host}={processors / hosts:.2f}"]
        self.topology, self.graph = work / "topology.json", work / "graph.json"
        (work / "config.json").write_text(json.dumps(GPT), encoding="utf-8")
        run(self.build / "ffsearch", "import", work / "config.json", "--sequence", GPT["n_positions"], "--batch", BATCH,
            "--out", self.graph)
        self.mpirun("--calibrate", "--out", self.topology)
        topology = json.loads(self.topology.read_text(encoding="utf-8"))
        for model in topology["device_models"].values():
            model["cores"] = 1  # one thread a rank
        self.topology.write_text(json.dumps(topology), encoding="utf-8")

    def mpirun(self, *words):
        return run(*self.cluster, "--", "mpirun", self.build / "ffexec", *words)

    def plans(self):
        found = json.loads(run(self.build / "ffsearch", "plan", "--graph", self.graph, "--topo", self.topology,
                               "--cost", "analytic", "--top", 10, "--json"))
        return found["plans"]

    def measured(self, plan):
        """Predicted with measured kernels, and measured, in milliseconds."""
        strategy = self.work / "strategy.json"
        predicted = json.loads(run(self.build / "ffsearch", "simulate", "--graph", self.graph, "--topo", self.topology,
                                   "--settings", plan["settings"], "--cost", "measure", "--out", strategy, "--json"))
        iterations = int(min(200, max(6, self.seconds * 1e6 / predicted["predicted_us"])))
        trained = json.loads(self.mpirun("--strategy", strategy, "--lr", 0.001, "--iterations", iterations, "--json"))
        return predicted["predicted_us"] / 1e3, trained["measured_us"] / 1e3


def table(rows):
    print("| plan | planned | measured kernels | trained |\n|---|---|---|---|")
    for plan, planned, kernels, trained in rows:
        print(f"| `{plan}` | {planned:.1f} ms | {kernels:.1f} ms | {trained:.1f} ms |")
    for name, column in (("planned (analytic kernel times)", 1), ("measured kernel times", 2)):
        pairs = [(row[column], row[3]) for row in rows]
        print(f"\n{name}: Kendall's tau {kendall(pairs):.2f}, regret {100 * regret(pairs):.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build/release")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--gb-per-s", type=float, default=0.125)
    parser.add_argument("--seconds", type=float, default=8, help="training time of each plan")
    parser.add_argument("--out", help="the rows as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(arguments, pathlib.Path(folder))
        rows = []
        for plan in comparison.plans():
            rows.append((plan["settings"], plan["predicted_us"] / 1e3, *comparison.measured(plan)))
            print(f"{plan['settings']}: {rows[-1][1:]}", file=sys.stderr, flush=True)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    table(rows)


if __name__ == "__main__":
    main()
