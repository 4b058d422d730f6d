#!/usr/bin/python3
"""Every network, scaled down where it is large, planned and trained on one and on two CPU ranks of this machine.

    scripts/networks_on_cpu.py [--build build/release] [--only NETWORK ...] [--out docs/results/networks-on-cpu.md]

For each network: a search for topologies/p100-4x4.json at full size, a strategy for one rank and a searched one for two
ranks, one verified iteration on two ranks, then predicted against measured iteration time and memory. Kernels are
measured on this machine, one thread a rank.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from mpi_environment import mpi_environment  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
RECURRENT = ["--width", "0.125", "--steps", "10", "--batch", "16", "--vocabulary", "1000"]
TRANSFORMER = ["--width", "0.1667", "--layers", "2", "--steps", "64", "--batch", "8", "--vocabulary", "1000"]
VARIANTS = {  # how a network is scaled down
    "lenet": [],
    "alexnet": ["--width", "0.5", "--batch", "8"],
    "vgg16": ["--width", "0.25", "--batch", "4"],
    "resnet50": ["--width", "0.25", "--image", "112", "--batch", "8"],
    "resnet101": ["--width", "0.25", "--image", "112", "--batch", "4"],
    "inception_v3": ["--width", "0.25", "--image", "171", "--batch", "4"],
    "rnntc": ["--width", "0.125", "--steps", "10", "--batch", "16"],
    "rnnlm": RECURRENT,
    "rnnlm-2step": ["--width", "0.125", "--batch", "16", "--vocabulary", "1000"],
    "nmt": RECURRENT,
    "bert-base": TRANSFORMER,
    "gpt2-small": TRANSFORMER,
    "llama-tiny": [],
    "dlrm": ["--batch", "256", "--vocabulary", "1000"],
}


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=mpi_environment(), cwd=REPOSITORY)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Machine:
    """This machine's one-rank and two-rank topologies."""

    def __init__(self, build, work):
        self.search, self.execute, self.work = build / "ffsearch", build / "ffexec", work
        self.topologies = {}
        for ranks in (1, 2):
            path = work / f"topology-{ranks}.json"
            run("mpirun", "-n", ranks, self.execute, "--calibrate", "--out", path)
            topology = json.loads(path.read_text())
            for model in topology["device_models"].values():
                model["cores"] = 1  # one thread a rank, however many ranks there are
            path.write_text(json.dumps(topology))
            self.topologies[ranks] = path

    def train(self, ranks, strategy, *options):
        return json.loads(run("mpirun", "-n", ranks, self.execute, "--strategy", strategy, "--momentum", "0.9", "--lr",
                              "0.001", "--json", *options))

    def plan(self, graph, ranks):
        strategy = self.work / f"strategy-{ranks}.json"
        run(self.search, "--graph", graph, "--topo", self.topologies[ranks], "--cost", "auto", "--seed", 1,
            "--proposals", 1 if ranks == 1 else 400,
             "--out", strategy, "--quiet")
        return strategy


def examine(machine, network):
    full = json.loads(run(machine.search, "--graph", REPOSITORY / f"graphs/{network}.json", "--topo",
                          "topologies/p100-4x4.json", "--cost", "analytic",
                          "--seed", 1, "--proposals", 200, "--out", machine.work / "full.json", "--json"))
    folder = machine.work / network
    run(sys.executable, "scripts/generate_graphs.py", network, *VARIANTS[network], "--out", folder)
    graph = next(folder.glob("*.json"))
    results = {ranks: machine.train(ranks, machine.plan(graph, ranks), "--iterations", 30) for ranks in (1, 2)}
    verified = machine.train(2, machine.work / "strategy-2.json", "--iterations", 1,
                             "--verify")["verified"]["max_relative_error"]
    predictions = {ranks: json.loads(run(machine.search, "simulate", "--strategy",
                                         machine.work / f"strategy-{ranks}.json", "--cost", "analytic", "--json"))
                   for ranks in (1, 2)}
    memory = max(abs(predicted / measured - 1) for ranks in (1, 2)
                 for predicted, measured in zip(predictions[ranks]["memory_bytes"], results[ranks]["memory_bytes"])
                 if measured)
    ms = {(ranks, kind): results[ranks][kind + "_us"] / 1e3 for ranks in (1, 2) for kind in ("predicted", "measured")}
    speedup = {kind: ms[1, kind] / ms[2, kind] for kind in ("predicted", "measured")}
    return (f"| {graph.stem} | {full['baselines']['data-parallel'] / 1e3:.1f} | {full['predicted_us'] / 1e3:.1f} | "
            f"{verified:.1e} | {100 * memory:.1f} % | "
            f"{ms[1, 'predicted']:.2f} | {ms[1, 'measured']:.2f} | {ms[2, 'predicted']:.2f} | {ms[2, 'measured']:.2f} "
            f"| "
            f"{speedup['predicted']:.2f} | {speedup['measured']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="NETWORK")
    parser.add_argument("--out", type=pathlib.Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    lines = ["| network | 16 P100: data-parallel ms | 200 proposals ms | verify | memory | 1 rank predicted ms | "
             "measured | 2 ranks predicted ms | measured | "
             "speed-up predicted | measured |", "|" + "---|" * 11]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(arguments.build.resolve(), pathlib.Path(folder))
        for network in arguments.only:
            lines.append(examine(machine, network))
            print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text(f"""# Every network on this machine's CPU

Results, for readers who want to know whether the committed networks train. After reading you know how each network
agrees with one device on CPU ranks, and its predicted and measured times.

Written by `scripts/networks_on_cpu.py`. Networks are scaled down as their names say (w: width, s: steps, i: image, l:
layers, v: vocabulary, b: batch; see [networks](../networks.md)); the two columns of 16 P100 are of the full network
with analytic costs, 64 samples or the network's own batch in all.

- **verify**: largest relative difference of loss and parameters between two ranks with the searched strategy and one
device, one iteration.
- **memory**: largest difference between predicted and allocated bytes, over the ranks of both runs.
- **speed-up**: one rank's time over two ranks'.

""" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
