#!/usr/bin/python3
"""How well budgets and the first SIGTERM are kept, as a table over sizes. For developers of ffsearch.

Generates chains of linear layers and topologies of devices at one switch per node, and runs ffsearch on each size
twice: with --budget, and with a SIGTERM after some seconds. Times are of the wall clock, from the start of the process;
on a busy machine the processor time says more. Usage:

  scripts/budget_table.py --build build/release --operators 1 100 20000 --devices 1 64 16384
"""

import argparse
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def chain(operators):
    """A chain of linear layers with 16 features, batch 8, and a loss."""
    layers = [{"name": f"layer{i}", "type": "linear", "inputs": [f"layer{i - 1}" if i else "x"],
               "attributes": {"out_features": 16}} for i in range(operators)]
    loss = {"name": "loss", "type": "softmax_cross_entropy", "inputs": [layers[-1]["name"], "label"]}
    inputs = [{"name": "x", "shape": ["batch", 16], "dtype": "f32"}, {"name": "label", "shape": ["batch"],
                                                                     "dtype": "i32"}]
    return {"format": "ffgraph/1", "name": f"chain-{operators}", "batch_size": 8, "inputs": inputs,
            "operators": layers + [loss]}


def cluster(devices):
    """Nodes of up to 8 GPUs, joined by one network switch."""
    of_node = next(size for size in (8, 4, 2, 1) if devices % size == 0)
    names = [f"gpu{i}" for i in range(of_node)]
    return {"format": "fftopology/1", "name": f"cluster-{devices}",
            "device_models": {"gpu": {"peak_tflops": 10, "memory_gb_per_s": 700, "launch_us": 5}},
            "nodes": {"count": devices // of_node, "name": "node",
                      "devices": [{"name": name, "kind": "gpu", "model": "gpu"} for name in names],
                      "switches": ["switch"],
                      "links": [{"between": [name, "switch"], "bandwidth_gb_per_s": 20, "latency_us": 1}
                                for name in names],
                      "network": {"name": "network", "attach": ["switch"],
                                  "link": {"bandwidth_gb_per_s": 10, "latency_us": 3}}}}


def run(command, signal_after_s, limit_s):
    """Exit code, elapsed seconds, seconds after the signal (None without one), processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        signalled = None
        try:
            process.wait(signal_after_s or limit_s)
        except subprocess.TimeoutExpired:
            signalled = time.monotonic()
            process.send_signal(signal.SIGTERM if signal_after_s else signal.SIGKILL)
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                process.kill()
        code = process.wait()
    end = time.monotonic()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"code": code, "elapsed_s": end - begin, "after_signal_s": end - signalled if signalled else None,
            "processor_s": processor_s}


def measure(arguments, folder, operators, devices):
    graph, topology, out = folder / "graph.json", folder / "topology.json", folder / "strategy.json"
    graph.write_text(json.dumps(chain(operators)))
    topology.write_text(json.dumps(cluster(devices)))
    command = [str(arguments.build / "ffsearch"), "--graph", str(graph), "--topo", str(topology), "--cost", "analytic",
               "--algorithm", arguments.algorithm, "--quiet", "--out", str(out)]
    runs = {}
    for kind, flags, signal_after_s in (("budget", ["--budget", f"{arguments.budget}s"], None),
                                        ("signal", ["--budget", "1h"], arguments.signal_after)):
        out.unlink(missing_ok=True)
        runs[kind] = {**run(command + flags, signal_after_s, arguments.limit), "written": out.exists()}
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--operators", type=int, nargs="+", default=[1, 100, 1250, 5000, 20000])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 4, 64, 1024, 16384])
    parser.add_argument("--algorithm", default="mcmc")
    parser.add_argument("--budget", type=float, default=5, help="seconds")
    parser.add_argument("--signal-after", type=float, default=2, help="seconds")
    parser.add_argument("--limit", type=float, default=120, help="seconds until a run is killed")
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of the table")
    arguments = parser.parse_args()
    if not os.access(arguments.build / "ffsearch", os.X_OK):
        sys.exit(f"{arguments.build}/ffsearch: is not there; build it first, or give --build")
    rows = []
    if not arguments.json:
        print(f"{arguments.algorithm}, budget {arguments.budget:g} s; SIGTERM after {arguments.signal_after:g} s\n"
              f"{'operators':>9} {'devices':>8} {'elapsed':>9} {'processor':>10} {'exit':>5} "
              f"{'ended after the signal':>23} {'exit':>5} {'written':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for operators in arguments.operators:
            for devices in arguments.devices:
                runs = measure(arguments, pathlib.Path(folder), operators, devices)
                rows.append({"operators": operators, "devices": devices, **runs})
                if arguments.json:
                    continue
                budget, stopped = runs["budget"], runs["signal"]
                after = stopped["after_signal_s"]
                print(f"{operators:9} {devices:8} {budget['elapsed_s']:7.1f} s {budget['processor_s']:8.1f} s "
                      f"{budget['code']:5} {'no signal' if after is None else f'{after:.1f} s':>23} "
                      f"{stopped['code']:5} {'yes' if budget['written'] and stopped['written'] else 'no':>8}",
                      flush=True)
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
