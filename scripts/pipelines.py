#!/usr/bin/env python3
"""Pipelines of micro-batches on emulated clusters (scripts/emulated_cluster.sh; root only, skipped elsewhere):
predicted and measured time of an iteration, bubble and memory, for two and four hosts, 1 to 16 micro-batches, in FIFO
order and by 1F1B. The network is a small GPT, cut into stages of equally many layers.

    scripts/pipelines.py [--build DIR] [--hosts 2 4] [--micro-batches 1 2 4 8 16] [--seconds S]

Clusters are calibrated and kernels measured first. The bubble is idle time: measured, of the ranks in the mean;
predicted, what of all devices' time is no computation. --seconds: of training, for each plan. Prints the table of
docs/results/large-models.md."""
import argparse
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
BATCH, LENGTH = 16, 64
NETWORK = {"model_type": "gpt2", "n_layer": 8, "n_embd": 128, "n_head": 4, "n_positions": LENGTH, "vocab_size": 1000,
           "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
           "layer_norm_epsilon": 1e-5}


class Skipped(Exception):
    pass


class Cluster:
    """So many hosts of one rank each, calibrated."""

    def __init__(self, build, work, hosts, rate):
        self.build, self.work, self.hosts, self.rate = build, work, hosts, rate
        self.topology = work / f"hosts-{hosts}.json"
        self.mpirun("--calibrate", "--out", self.topology)
        topology = json.loads(self.topology.read_text())
        for model in topology["device_models"].values():
            model["cores"] = 1  # one thread a rank
        self.topology.write_text(json.dumps(topology))

    def mpirun(self, *words):
        return run([ROOT / "scripts/emulated_cluster.sh", "--hosts", self.hosts, "--gb-per-s", self.rate, "--",
                    "mpirun", self.build / "ffexec", *words], self.work)

    def ffsearch(self, *words):
        return json.loads(run([self.build / "ffsearch", *words, "--json"], self.work))

    def plan(self, micro_batches, schedule, profile):
        """(strategy file, its prediction)"""
        strategy = self.work / "strategy.json"
        costs = ["--cost", "auto", *profile]
        settings = f"pp={self.hosts},micro_batch={BATCH // micro_batches}"
        predicted = self.ffsearch("simulate", "--graph", "graph.json", "--topo", self.topology, "--settings", settings,
                                  *costs, "--out", strategy)
        if schedule == "fifo" or micro_batches == 1:
            plan = json.loads(strategy.read_text())
            plan.pop("issue_order", None)
            strategy.write_text(json.dumps(plan))
            predicted = self.ffsearch("simulate", "--strategy", strategy, *costs, "--out", strategy)
        return strategy, predicted

    def train(self, strategy, predicted, seconds):
        iterations = int(min(100, max(5, seconds * 1e6 / predicted["predicted_us"])))
        return json.loads(self.mpirun("--strategy", strategy, "--lr", 0.001, "--iterations", iterations, "--json"))


def run(command, folder):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=mpi_environment(),
                          cwd=folder, check=False)
    if done.returncode == 77:
        raise Skipped(done.stderr.strip())
    if done.returncode != 0:
        sys.exit(f"pipelines.py: {' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def profile_kernels(build, work, cluster, micro_batches):
    """Flags with a file for each device model of the cluster."""
    flags = []
    topology = json.loads(cluster.topology.read_text())
    for model in sorted({device["model"] for device in topology["devices"]}):
        for count in micro_batches:
            run([build / "ffsearch", "profile", "--graph", "graph.json", "--topo", cluster.topology, "--batch",
                 BATCH // count, "--device-model", model, "--out", f"{model}-{cluster.hosts}.json", "--quiet"], work)
        flags += ["--profile", f"{model}-{cluster.hosts}.json"]
    return flags


def row(hosts, schedule, micro_batches, predicted, measured):
    bubble = 1 - predicted["compute_us"] / (hosts * predicted["predicted_us"])
    idle = sum(share["idle"] for share in measured["shares"]) / hosts
    if measured["memory_bytes"] != predicted["memory_bytes"]:
        sys.exit(f"pipelines.py: {measured['memory_bytes']} bytes allocated, {predicted['memory_bytes']} predicted")
    ms = (predicted["predicted_us"] / 1e3, measured["measured_us"] / 1e3)
    print(f"| {hosts} | {schedule} | {micro_batches} | {ms[0]:.1f} | {ms[1]:.1f} | "
          f"{100 * (ms[0] / ms[1] - 1):+.0f} % | {100 * bubble:.0f} % | {100 * idle:.0f} % | "
          f"{max(measured['memory_bytes']) / 1e6:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--gb-per-s", type=float, default=0.125)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    options.build = options.build.resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "config.json").write_text(json.dumps(NETWORK))
        run([options.build / "ffsearch", "import", "config.json", "--sequence", LENGTH, "--batch", BATCH, "--out",
             "graph.json"], work)
        losses = set()
        print("| hosts | schedule | micro-batches | predicted ms | measured ms | error | bubble, predicted | "
              "idle, measured | memory of the fullest rank, MB |\n|" + "---|" * 9)
        try:
            for hosts in options.hosts:
                cluster = Cluster(options.build, work, hosts, options.gb_per_s)
                profile = profile_kernels(options.build, work, cluster, options.micro_batches)
                for schedule in ("fifo", "1f1b"):
                    for micro_batches in options.micro_batches:
                        if (schedule, micro_batches) == ("1f1b", 1):
                            continue  # one micro-batch has one order
                        strategy, predicted = cluster.plan(micro_batches, schedule, profile)
                        measured = cluster.train(strategy, predicted, options.seconds)
                        losses.add(f"{measured['losses'][0]:.4g}")
                        row(hosts, schedule, micro_batches, predicted, measured)
        except Skipped as reason:
            print(reason)
            sys.exit(77)
    print(f"first loss of all plans: {', '.join(sorted(losses))}; load average "
          f"{', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
