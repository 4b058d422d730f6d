#!/usr/bin/env python3
"""Every network on one GPU: its kernels are profiled, a strategy's iteration time is predicted from the profile, and
ffexec measures it.

    scripts/gpu_networks.py predicted --bin build/cuda --profile profiles/h200.json --out docs/results/h200-predicted.md
    scripts/gpu_networks.py smoke --bin build/cuda --profile profile.json     one small network, verified against a
    second run on one device
    scripts/gpu_networks.py model     the device model of this machine's GPU, "h100", by its name

The topology is that of the GPU's name: topologies/MODEL-1.json, whose device model is what the profile is of.

Networks come in the order of their importance, at their own batch size and then at a quarter of it; the table is
written after each of them, so that what was measured is not lost when the time is up, and one that is there is
continued. The profile keeps what it holds. --gpu-name, --topology and --backend try the script without a GPU.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = ["alexnet", "resnet50", "rnnlm", "gpt2-small", "nmt", "inception_v3", "resnet101", "vgg16", "bert-base",
            "dlrm", "rnntc", "lenet", "rnnlm-2step", "llama-tiny"]


def gpu_name():
    """By nvidia-smi, of the first GPU."""
    try:
        return run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()[0].strip()
    except (OSError, RuntimeError, IndexError) as error:
        raise RuntimeError(f"which GPU is this? nvidia-smi does not tell ({error}): name it with --gpu-name") from None


def model_of(name):
    """The device model that has a topology of one device, "h100" of "NVIDIA H100 80GB HBM3"; RuntimeError without."""
    models = sorted(path.stem[:-2] for path in (REPOSITORY / "topologies").glob("*-1.json")
                    if not path.stem.startswith(("dgx-", "local-")))  # those are of several GPUs, or of none
    words = re.findall("[a-z0-9]+", name.lower())
    for model in models:
        if model in words and "mig" not in words:
            return model
    raise RuntimeError(f'no topology for the GPU "{name}": there are those of {", ".join(models)}; write another one '
                       "with ffsearch topology, and give it with --topology")


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{(done.stderr or done.stdout).strip()} (exit {done.returncode} of "
                           f"{' '.join(map(str, command))})")
    return done.stdout


class Machine:
    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, work
        self.search, self.execute = arguments.bin / "ffsearch", arguments.bin / "ffexec"

    def plan(self, network, batch):
        """The strategy for one device, and the prediction."""
        inputs = ["--graph", REPOSITORY / f"graphs/{network}.json", "--topo", self.arguments.topology, "--batch", batch]
        inputs += ["--precision", self.arguments.precision]
        run(self.search, "profile", *inputs, "--out", self.arguments.profile, "--quiet")
        strategy = self.work / f"{network}-{batch}.json"
        return strategy, json.loads(run(self.search, *inputs, "--cost", "profile", "--profile", self.arguments.profile,
                                        "--algorithm", "data-parallel", "--out", strategy, "--json"))

    def train(self, strategy, *options):
        return json.loads(run(self.execute, "--strategy", strategy, "--backend", self.arguments.backend, "--precision",
                              self.arguments.precision, "--lr", "0.001", "--momentum", "0.9", "--json", *options))


def smoke(machine):
    strategy, _ = machine.plan("lenet", 64)
    result = machine.train(strategy, "--iterations", 5, "--verify")
    print(f"lenet: {result['measured_us']:.1f} us an iteration, verified: largest relative error "
          f"{result['verified']['max_relative_error']:.2g}")


class Table:
    def __init__(self, path):
        self.path, self.lines, self.errors, self.failed = path, [], [], []
        self.head = ["| network | batch | predicted ms | measured ms | error | memory predicted MB | used MB | CUDA "
                     "graph |", "|---|---|---|---|---|---|---|---|"]
        for line in path.read_text(encoding="utf-8").splitlines() if path and path.exists() else []:
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if len(cells) == 8 and cells[1].isdigit():
                self.lines.append(line)
                self.errors.append(float(cells[2]) / float(cells[3]) - 1)
        print("\n".join(self.head), flush=True)

    def has(self, network, batch):
        return any(line.startswith(f"| {network} | {batch} |") for line in self.lines)

    def add(self, network, batch, prediction, result):
        predicted, measured = prediction["predicted_us"], result["measured_us"]
        self.errors.append(predicted / measured - 1)
        self.lines.append(f"| {network} | {batch} | {predicted * 1e-3:.3f} | {measured * 1e-3:.3f} | "
                          f"{self.errors[-1] * 100:+.1f} % "
                          f"| {prediction['memory_bytes'][0] * 1e-6:.0f} | {result['memory_bytes'][0] * 1e-6:.0f} | "
                          f"{'yes' if result.get('cuda_graph') else 'no'} |")
        print(self.lines[-1], flush=True)
        self.write()

    def summary(self):
        failed = f"; failed: {', '.join(self.failed)}" if self.failed else ""
        if not self.errors:
            return "nothing was measured" + failed
        sizes = [abs(error) for error in self.errors]
        return (f"{len(sizes)} measured: error {100 * sum(sizes) / len(sizes):.1f} % mean, "
                f"{100 * max(sizes):.1f} % worst{failed}")

    def write(self):
        if not self.path:
            return
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text("# Predicted and measured iteration time, one device\n\nWritten by "
                             "`scripts/gpu_networks.py predicted`. " + self.summary() + ".\n\n"
                             + "\n".join(self.head + self.lines) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


def predicted(machine, arguments):
    table = Table(arguments.out)

    def stop(*_):
        print("time is up: " + table.summary(), flush=True)
        sys.exit(0 if table.errors else 1)

    signal.signal(signal.SIGTERM, stop)
    own = {network: json.loads((REPOSITORY / f"graphs/{network}.json").read_text(encoding="utf-8"))["batch_size"]
           for network in arguments.only}
    if arguments.batch:
        cases = [(network, batch) for network in arguments.only for batch in arguments.batch]
    else:
        cases = [*own.items(), *((network, max(1, batch // 4)) for network, batch in own.items())]
    begin, longest = time.monotonic(), 0.0
    for network, batch in cases:
        if table.has(network, batch):
            continue
        started = time.monotonic()
        if arguments.within and started - begin + longest > arguments.within:
            print(f"{network} {batch} and what follows: no time left", flush=True)
            break
        try:
            strategy, prediction = machine.plan(network, batch)
            table.add(network, batch, prediction, machine.train(strategy, "--iterations", arguments.iterations))
        except RuntimeError as error:
            table.failed.append(f"{network} {batch}")
            print(error, flush=True)
        longest = max(longest, time.monotonic() - started)
    print(table.summary(), flush=True)
    return 1 if table.failed or not table.errors else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["smoke", "predicted", "model"])
    parser.add_argument("--bin", type=pathlib.Path, help="folder of ffsearch and ffexec")
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--gpu-name", metavar="NAME", help="default: what nvidia-smi says")
    parser.add_argument("--topology", type=pathlib.Path, help="default: that of the GPU's name")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--batch", type=int, nargs="+", help="instead of the two of each network")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--within", type=float, metavar="SECONDS",
                        help="begin no network that would take longer, going by the longest so far")
    parser.add_argument("--out", type=pathlib.Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    if arguments.what != "model" and not (arguments.bin and arguments.profile):
        parser.error("needs --bin and --profile")
    try:
        if arguments.what == "model":
            print(model_of(arguments.gpu_name or gpu_name()))
            return 0
        if not arguments.topology:
            arguments.topology = REPOSITORY / f"topologies/{model_of(arguments.gpu_name or gpu_name())}-1.json"
    except RuntimeError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(arguments, pathlib.Path(folder))
        try:
            return predicted(machine, arguments) if arguments.what == "predicted" else smoke(machine)
        except RuntimeError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    sys.exit(main())
