#!/usr/bin/python3
"""Proposals per second of the search, delta against full simulation. Called by bench_search.sh."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Proposals per second of FlexFlow's published stand-alone simulator (2018), g++ 12 -O3 -march=native, one core, from
# data parallelism, analytic costs, 4 GPUs a node; it simulates in full, one task an operator part, and adds parameter
# synchronization serially at the end.
REFERENCE = {
    "alexnet": {4: 54764, 8: 11052, 16: 2969, 32: 787, 64: 187},
    "resnet101": {4: 6301, 8: 2363, 16: 756, 32: 211, 64: 53},
    "inception_v3": {4: 4374, 8: 1417, 16: 466, 32: 130, 64: 36},
    "nmt": {4: 1080, 8: 420, 16: 141, 32: 38.9, 64: 10.3},
}
NETWORKS = ["alexnet", "resnet101", "inception_v3", "nmt", "rnnlm", "rnntc"]


def topology(devices, work):
    """P100s, 4 a node, without a limit of memory: the reference has none."""
    path = work / f"p100-{devices // 4}x4.json"
    value = json.loads((REPOSITORY / "topologies/p100-4x4.json").read_text())
    value["name"] = path.stem
    value["nodes"]["count"] = devices // 4
    for model in value["device_models"].values():
        model.pop("memory_bytes", None)
    value.pop("$schema", None)
    path.write_text(json.dumps(value))
    return path


def search(build, graph, topo, batch, simulator, init, proposals, threads=1, seed=1):
    """(result, peak memory in MB) of a search."""
    command = [build / "ffsearch", "--graph", graph, "--topo", topo, "--batch-per-device", batch, "--cost", "analytic",
               "--seed", seed, "--chains", 1, "--threads", threads,
               "--init", init, "--proposals-from", "paper", "--proposals", 2 * proposals, "--simulator", simulator,
               "--json", "--out", os.devnull]
    # Twice as many as wanted: a chain stops when half of its proposals passed without a better strategy.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.execv(command[0], [str(word) for word in command])
    os.close(write)
    with os.fdopen(read) as output:
        text = output.read()
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))}: failed")
    return json.loads(text), usage.ru_maxrss / 1e3


def marginal_rate(result, start_up_s):
    """Proposals per second, without what it takes to begin a chain."""
    return result["proposals"] / max(1e-9, result["elapsed_s"] - start_up_s)


def start_up(build, graph, topo, batch, init):
    """Seconds until a chain has begun: one that ends with its first proposal."""
    return search(build, graph, topo, batch, "delta", init, 1)[0]["elapsed_s"]


def measure(build, network, devices, init, work, delta_proposals, full_proposals):
    graph, topo = REPOSITORY / f"graphs/{network}.json", topology(devices, work)
    batch = 256 if network == "alexnet" else 64
    delta, memory = search(build, graph, topo, batch, "delta", init, delta_proposals)
    full, _ = search(build, graph, topo, batch, "full", init, full_proposals)
    same, _ = search(build, graph, topo, batch, "delta", init, full_proposals)
    start_s = start_up(build, graph, topo, batch, init)
    rate, full_rate = marginal_rate(delta, start_s), full["proposals_per_s"]
    rejected = [*delta["rejected_by"].values(), delta["rejected_during_simulation"]]
    reference = REFERENCE.get(network, {}).get(devices)
    return [network, len(json.loads(graph.read_text())["operators"]), devices, delta["tasks"], f"{rate:,.0f}",
            f"{full_rate:,.1f}", f"{rate / full_rate:,.1f}",
            f"{1e3 * start_s:,.0f}", f"{delta['proposal_us']['median']:,.0f}", f"{delta['proposal_us']['p99']:,.0f}",
            *(f"{100 * count / delta['proposals']:.0f}" for count in rejected), f"{memory:,.0f}",
            "equal" if full["chain_hash"] == same["chain_hash"] else "DIFFERENT",
            f"{reference:,}" if reference else "", f"{rate / reference:,.1f}" if reference else ""]


def grow(arguments, emit, work):
    emit("\nOne chain from data parallelism, delta simulation, one thread:\n")
    emit("| network | GPUs | tasks | proposals | ms a proposal | times the row before | start-up ms | peak MB |")
    emit("|---|---|---|---|---|---|---|---|")
    for network in arguments.networks:
        before = None
        for devices in arguments.growth or [64, 256, 1024, 4096]:
            graph = REPOSITORY / f"graphs/{network}.json"
            result, memory = search(arguments.build.resolve(), graph, topology(devices, work), 64, "delta",
                                    "data-parallel", arguments.proposals)
            start_s = start_up(arguments.build.resolve(), graph, topology(devices, work), 64, "data-parallel")
            ms = 1e3 / marginal_rate(result, start_s)
            emit(f"| {network} | {devices} | {result['tasks']:,} | {result['proposals']} | {ms:,.3f} | "
                 f"{f'{ms / before:.1f}' if before else ''} | {1e3 * start_s:,.0f} | {memory:,.0f} |")
            before = ms


def compare(arguments, variants, emit, work):
    """Two variants, name -> (build, threads), in turn, so that whatever else the machine does meets both."""
    own, other = variants
    emit(f"\nProposals a second without start-up, {arguments.rounds} rounds of {own} and {other} in turn, median and "
         "range of ratios:\n")
    emit("Where results differ the chains take different ways, and a proposal can mean more work or less: so many "
         "tasks taken by the simulator (events), and the time for each.\n")
    emit(f"| network | GPUs | from | accepted % | {own} /s | {other} /s | ratio | over the rounds | results | "
         "events a proposal, of both | time an event, ratio | start-up ms, of both |")
    emit("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for init in arguments.init:
        for network in arguments.networks:
            for devices in arguments.devices:
                graph, topo = REPOSITORY / f"graphs/{network}.json", topology(devices, work)
                batch = 256 if network == "alexnet" else 64
                rates, starts, results, events = {}, {}, set(), {}
                for _ in range(arguments.rounds):
                    for name, (build, threads) in variants.items():
                        result, _ = search(build, graph, topo, batch, "delta", init, arguments.proposals, threads)
                        starts.setdefault(name, []).append(start_up(build, graph, topo, batch, init))
                        rates.setdefault(name, []).append(marginal_rate(result, starts[name][-1]))
                        events[name] = result["events"] / result["proposals"]
                        results.add(result["chain_hash"])
                ratios = [ours / others for ours, others in zip(rates[own], rates[other])]
                per_event = events[other] / events[own] / statistics.median(ratios)
                start_ms = [1e3 * statistics.median(starts[name]) for name in variants]
                emit(f"| {network} | {devices} | {init} | {100 * result['accepted'] / result['proposals']:.1f} | "
                     f"{statistics.median(rates[own]):,.0f} | {statistics.median(rates[other]):,.0f} | "
                     f"{statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} | "
                     f"{'equal' if len(results) == 1 else 'DIFFERENT'} | {events[own]:,.0f} {events[other]:,.0f} | "
                     f"{per_event:.2f} | {start_ms[0]:,.0f} {start_ms[1]:,.0f} |")


# Proposals per second without start-up; a proposal's time; rejected, in per cent of the proposals: before simulation by
# the bounds on work, paths, synchronization and transfers, and during simulation.
HEADER = ["network", "operators", "GPUs", "tasks", "delta /s", "full /s", "delta / full", "start-up ms", "median us",
          "99th us", "% by work", "paths", "synchronization", "transfers", "during", "peak MB", "chain_hash",
          "reference /s", "delta / reference"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--devices", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--init", nargs="+", default=["data-parallel", "random"])
    parser.add_argument("--proposals", type=int, default=4000, help="with delta simulation")
    parser.add_argument("--full-proposals", type=int, default=40)
    parser.add_argument("--growth", nargs="*", type=int, metavar="GPUS",
                        help="instead: time a proposal and memory at so many GPUs (default 64 256 1024 4096)")
    parser.add_argument("--against", type=pathlib.Path, metavar="BUILD",
                        help="instead: this build and that one in turn, the ratio of their proposals per second")
    parser.add_argument("--threads", type=int, metavar="N", help="instead: N threads and one in turn, likewise")
    parser.add_argument("--rounds", type=int, default=5, help="with --against and --threads")
    parser.add_argument("--out", type=pathlib.Path, help="write the tables as Markdown")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    lines = []

    def emit(line):
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        if arguments.growth is not None:
            grow(arguments, emit, pathlib.Path(folder))
        elif arguments.against:
            compare(arguments, {"this build": (build, 1), "other build": (arguments.against.resolve(), 1)}, emit,
                    pathlib.Path(folder))
        elif arguments.threads:
            compare(arguments, {f"{arguments.threads} threads": (build, arguments.threads), "one thread": (build, 1)},
                    emit, pathlib.Path(folder))
        tables = [] if arguments.growth is not None or arguments.against or arguments.threads else arguments.init
        for init in tables:
            emit(f"\nOne chain from {init}, one thread:\n")
            emit("| " + " | ".join(HEADER) + " |")
            emit("|" + "---|" * len(HEADER))
            for network in arguments.networks:
                for devices in arguments.devices:
                    emit("| " + " | ".join(map(str, measure(build, network, devices, init, pathlib.Path(folder),
                                                             arguments.proposals, arguments.full_proposals))) + " |")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
