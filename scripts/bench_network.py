#!/usr/bin/env python3
"""What ffexec's ranks move between CPUs, against the limit of the link, with and without computing meanwhile: through
shared memory, and on emulated clusters (scripts/emulated_cluster.sh; root only, skipped elsewhere).

    scripts/bench_network.py [--build DIR] [--before DIR] [--rounds N] [--largest-mib N] [--only NAME]

--before: another build, of an older version; the two take turns, and the table has their ratios. Prints the tables of
docs/results/network.md."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from mpi_environment import mpi_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED_MEMORY = "2 ranks in shared memory"
# Name, hosts, ranks of each, rate of a link in GB/s.
CLUSTERS = [("2 hosts, 1 Gb/s", 2, 1, 0.125), ("2 hosts, 10 Gb/s", 2, 1, 1.25),
            ("2 hosts of 2 ranks, 1 Gb/s", 2, 2, 0.125)]
# Of an Ethernet frame of 1514 bytes, TCP with timestamps leaves so many; what comes before and after frames on a cable
# is not emulated.
PAYLOAD = 1448 / 1514


def command(build, rounds, largest):
    return [str(build / "tests/bench_transport"), str(rounds), str(largest)]


def measure(name, build, rounds, largest):
    """{(what, bytes): {"alone_us", "computing_us", "together_us"}}, or None where there are no clusters."""
    if name == SHARED_MEMORY:
        full = ["mpirun", "-n", "2", *command(build, rounds, largest)]
        environment = mpi_environment()
    else:
        _, hosts, ranks, rate = next(cluster for cluster in CLUSTERS if cluster[0] == name)
        full = [str(ROOT / "scripts/emulated_cluster.sh"), "--hosts", str(hosts), "--ranks-per-host", str(ranks),
                "--gb-per-s", str(rate), "--", "mpirun", *command(build, rounds, largest)]
        environment = dict(os.environ)
    result = subprocess.run(full, env=environment, capture_output=True, text=True, check=False)
    if result.returncode == 77:
        print(result.stderr.strip())
        return None
    if result.returncode != 0:
        sys.exit(f"bench_network.py: {' '.join(full)}: {result.stderr.strip()}")
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {(line["what"], line["bytes"]): line for line in lines}


def limit_us(name, what, bytes_):
    """The least time that the link takes; None in shared memory."""
    if name == SHARED_MEMORY:
        return None
    _, hosts, ranks, rate = next(cluster for cluster in CLUSTERS if cluster[0] == name)
    # Each host's ranks send so much, or take part in an all-reduce that crosses each link with 2 (hosts - 1) / hosts.
    crossing = 2 * (hosts - 1) / hosts if what == "all-reduce" else ranks
    return bytes_ * crossing / (rate * PAYLOAD) * 1e-3


def median_of(runs, key, field):
    return statistics.median(run[key][field] for run in runs)


def size_text(bytes_):
    return f"{bytes_ >> 20} MiB" if bytes_ >= 1 << 20 else f"{bytes_ >> 10} KiB"


def table(name, builds, turns, rounds, largest):
    runs = {label: [] for label in builds}
    for _ in range(turns):
        for label, build in builds.items():
            run = measure(name, build, rounds, largest)
            if run is None:
                return
            runs[label].append(run)
    print(f"\n{name}\n")
    head, rule = "| what | size |", "|---|---|"
    for label in builds:
        head += f" {label}: ms | GB/s | of the limit | with kernels, over the longer of both |"
        rule += "---|---|---|---|"
    if len(builds) > 1:
        head, rule = head + " before / now, alone | with kernels |", rule + "---|---|"
    print(head + "\n" + rule)
    for key in runs[next(iter(runs))][0]:
        what, bytes_ = key
        row = f"| {what} | {size_text(bytes_)} |"
        alone, together = {}, {}
        for label in builds:
            alone[label] = median_of(runs[label], key, "alone_us")
            together[label] = median_of(runs[label], key, "together_us")
            longer = max(alone[label], median_of(runs[label], key, "computing_us"))
            limit = limit_us(name, what, bytes_)
            row += (f" {alone[label] / 1e3:.2f} | {bytes_ / alone[label] / 1e3:.3f} |"
                    f" {f'{limit / alone[label] * 100:.0f} %' if limit else '-'} | {together[label] / longer:.2f} |")
        if len(builds) > 1:
            before, now = builds
            row += f" {alone[before] / alone[now]:.2f} | {together[before] / together[now]:.2f} |"
        print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of each measurement in a turn")
    parser.add_argument("--turns", type=int, default=3, help="how often each build runs")
    parser.add_argument("--largest-mib", type=int, default=16)
    parser.add_argument("--only", help="part of the name of a network")
    arguments = parser.parse_args()
    builds = {"now": arguments.build.resolve()}
    if arguments.before:
        builds = {"before": arguments.before.resolve(), **builds}
    for name in [SHARED_MEMORY, *(cluster[0] for cluster in CLUSTERS)]:
        if not arguments.only or arguments.only in name:
            table(name, builds, arguments.turns, arguments.rounds, arguments.largest_mib)


if __name__ == "__main__":
    main()
