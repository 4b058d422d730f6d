#!/usr/bin/python3
"""Time of a training iteration of ffexec on this machine's CPU, of two builds in turn.

    scripts/bench_iterations.py --against BUILD [--build build/release] [--rounds 5] [--only NETWORK ...] [--out FILE]

For each network, scaled down as in networks_on_cpu.py, on one rank and on two with a searched strategy (analytic
costs): medians of the rounds, the median and range of the ratios, and whether losses and memory are equal to the last
bit.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
from networks_on_cpu import REPOSITORY, VARIANTS, run  # noqa: E402


def compare(builds, network, ranks, rounds, work):
    graph, strategy = next((work / network).glob("*.json")), work / f"{network}-{ranks}.strategy"
    run(builds[0] / "ffsearch", "--graph", graph, "--topo", f"topologies/local-cpu-{ranks}.json", "--cost", "analytic",
        "--seed", 1, "--proposals", 200, "--out", strategy, "--quiet")
    times, results = {build: [] for build in builds}, set()
    for _ in range(rounds):
        for build in builds:
            result = json.loads(run("mpirun", "-n", ranks, build / "ffexec", "--strategy", strategy, "--iterations", 20,
                                    "--seed", 1, "--momentum", 0.9, "--lr", 0.001, "--json"))
            times[build].append(result["measured_us"] / 1e3)
            results.add((tuple(result["losses"]), tuple(result["memory_bytes"])))
    ratios = [own / other for own, other in zip(times[builds[0]], times[builds[1]])]
    return (f"| {network} | {ranks} | {statistics.median(times[builds[0]]):.2f} | "
            f"{statistics.median(times[builds[1]]):.2f} | {statistics.median(ratios):.2f} | "
            f"{min(ratios):.2f} to {max(ratios):.2f} | {'equal' if len(results) == 1 else 'DIFFERENT'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--against", type=pathlib.Path, required=True, metavar="BUILD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), metavar="NETWORK")
    parser.add_argument("--out", type=pathlib.Path, help="write the table as Markdown")
    arguments = parser.parse_args()
    builds = [arguments.build.resolve(), arguments.against.resolve()]
    lines = ["| network | ranks | this build ms | other build ms | this / other | over the rounds | results |",
             "|" + "---|" * 7]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for network in arguments.only:
            run(sys.executable, "scripts/generate_graphs.py", network, *VARIANTS[network], "--out", work / network)
            for ranks in (1, 2):
                lines.append(compare(builds, network, ranks, arguments.rounds, work))
                print(lines[-1], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
