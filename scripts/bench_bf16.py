#!/usr/bin/env python3
"""Kernels in bf16 against fp32 on this processor, and iterations of ffexec: products of bf16 as they lie, on processors
with AVX512_BF16 or AMX, and the same by conversion to fp32 (oneDNN is told to do without those instructions).

    scripts/bench_bf16.py [--build DIR] [--width CHANNELS] [--rounds N] [--iterations N]

The network is a small GPT, with 512 channels if nothing else is said. Kernels are those of `ffsearch profile`, forward
and backward, one thread; the three ways take turns, and times are medians over the rounds. Prints the tables of
docs/results/large-models.md."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from mpi_environment import mpi_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
NETWORK = {"model_type": "gpt2", "n_layer": 2, "n_embd": 512, "n_head": 8, "n_positions": 128, "vocab_size": 8000,
           "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
           "layer_norm_epsilon": 1e-5}
BATCH, LENGTH = 4, 128
# What oneDNN may use; conversion: no bf16 instructions.
WAYS = {"fp32": ("fp32", {}), "by conversion": ("bf16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"}),
        "native": ("bf16", {})}


def run(command, folder, environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=folder, check=False,
                          env={**mpi_environment(), "OMP_NUM_THREADS": "1", **environment})
    if done.returncode != 0:
        sys.exit(f"bench_bf16.py: {' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Bench:
    def __init__(self, build, folder, width):
        self.build, self.folder = build, pathlib.Path(folder)
        (self.folder / "config.json").write_text(json.dumps({**NETWORK, "n_embd": width}))
        run([build / "ffsearch", "import", "config.json", "--sequence", LENGTH, "--batch", BATCH, "--out", "g.json"],
            folder, {})
        topology = json.loads((ROOT / "topologies/local-cpu-1.json").read_text())
        for model in topology["device_models"].values():
            model["peak_bf16_tflops"] = 2 * model["peak_tflops"]
        (self.folder / "cpu.json").write_text(json.dumps(topology))

    def kernels(self, way):
        """us by signature, without the precision in it."""
        precision, environment = WAYS[way]
        profile = self.folder / "profile.json"
        profile.unlink(missing_ok=True)
        run([self.build / "ffsearch", "profile", "--graph", "g.json", "--topo", "cpu.json", "--precision", precision,
             "--out", profile, "--quiet"], self.folder, environment)
        entries = json.loads(profile.read_text())["entries"]
        return {name.replace(" bf16", ""): entry["us"] for name, entry in entries.items()
                if not name.startswith(("copy", "update"))}

    def iteration(self, way, iterations):
        precision, environment = WAYS[way]
        run([self.build / "ffsearch", "--graph", "g.json", "--topo", "cpu.json", "--cost", "analytic", "--algorithm",
             "single-device", "--precision", precision, "--out", "s.json", "--quiet"], self.folder, environment)
        done = json.loads(run(["mpirun", "-n", 1, self.build / "ffexec", "--strategy", "s.json", "--lr", 0.001,
                               "--iterations", iterations, "--json"], self.folder, environment))
        return done["measured_us"] / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.build.resolve(), folder, options.width)
        kernels = {way: [] for way in WAYS}
        iterations = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                kernels[way].append(bench.kernels(way))
                iterations[way].append(bench.iteration(way, options.iterations))
    print("| kernel | fp32, us | bf16 by conversion | bf16 | fp32 / bf16 |\n|---|---|---|---|---|")
    for name in kernels["fp32"][0]:
        us = {way: statistics.median(round_[name] for round_ in kernels[way] if name in round_) for way in WAYS
              if any(name in round_ for round_ in kernels[way])}
        if len(us) == len(WAYS):
            print(f"| {name} | {us['fp32']:.1f} | {us['by conversion']:.1f} | {us['native']:.1f} | "
                  f"{us['fp32'] / us['native']:.2f} |")
    print("\n| iteration | ms | over the rounds |\n|---|---|---|")
    for way in WAYS:
        print(f"| {WAYS[way][0]}{'' if way == 'fp32' else ', ' + way} | {statistics.median(iterations[way]):.1f} | "
              f"{min(iterations[way]):.1f} to {max(iterations[way]):.1f} |")
    print(f"load average {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
