#!/usr/bin/python3
"""Delta simulation checked on the networks of graphs/: searches under --simulator checked, which compares every answer
of delta simulation with slower simulations (docs/simulator.md). Prints a line for each search, and at the end what was
checked, by network; exit code 1 if an answer was wrong.

  scripts/checked_sweep.py                           every cell, 10 s of processor time each: an hour
  scripts/checked_sweep.py --cells alexnet/ --cpu-seconds 60
  scripts/checked_sweep.py --seconds 150             cells drawn by the seed until the time is used up
  scripts/checked_sweep.py --settings                with micro-batches, bf16 and AdamW, drawn by the seed

A cell is a network, a topology and a batch. It is searched several times, with a seed, chains, proposals and a way of
synchronization drawn anew. The first search is short; the next is eight times as long as the last, while the
processor time of the cell allows it. So networks with short simulations have most of the proposals, whatever else the
machine does.
"""

import argparse
import collections
import datetime
import itertools
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TOPOLOGIES = ["p100-1x4", "k80-2x4", "p100-4x4", "dgx-a100-2", "p100-16x4"]  # the fewest devices first
BATCHES = [16, 64, 256]  # per device
SYNCHRONIZATIONS = ["all-reduce", "all-reduce", "all-reduce", "parameter-server"]
PROPOSALS_FROM = ["structured", "mixed", "paper"]
SETTINGS = [("--micro-batches", [1, 2, 4]), ("--precision", ["fp32", "bf16"]), ("--optimizer", ["sgd", "adamw"]),
            ("--schedule", ["auto", "fifo", "1f1b"])]
HAVE_BF16 = ("dgx-",)  # topologies whose device models give a rate
FIRST_PROPOSALS, MOST_PROPOSALS, GROWTH = 200, 2000000, 8
CHECKED = ("rejections", "predictions", "timelines")


def all_cells():
    """Topologies with few devices first, and of each the small networks."""
    networks = sorted((REPOSITORY / "graphs").glob("*.json"), key=lambda path: path.stat().st_size)
    return [(network.stem, topology, batch) for topology, network, batch in
            itertools.product(TOPOLOGIES, networks, BATCHES)]


def command_of(options, cell, draw, proposals, seconds):
    network, topology, batch = cell
    settings = []
    for flag, values in SETTINGS if options.settings else []:
        value = draw.choice(values)
        if value != "bf16" or topology.startswith(HAVE_BF16):
            settings += [flag, value]
    return [options.build / "ffsearch", "--graph", REPOSITORY / f"graphs/{network}.json",
            "--topo", REPOSITORY / f"topologies/{topology}.json", "--batch-per-device", batch, "--cost", "analytic",
            "--seed", draw.randrange(1, 1 << 31), "--threads", 1, "--chains", draw.choice([1, 3, 6]),
            "--proposals-from", draw.choice(PROPOSALS_FROM), "--synchronization", draw.choice(SYNCHRONIZATIONS),
            "--proposals", proposals, *settings, "--budget", f"{seconds:.0f}s", "--simulator", "checked", "--out",
            os.devnull, "--json"]


def flags_text(command):
    words = [str(word) for word in command]
    return " ".join(words[words.index("--seed"):words.index("--simulator")])


class TooLong(Exception):
    """The search was ended: it needs more processor time or memory than a cell has."""


def run(command, folder, cpu_seconds, memory_gb):
    """The search's result. Raises ValueError with what the program says."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds) + 1, int(cpu_seconds) + 1))
        if memory_gb:
            resource.setrlimit(resource.RLIMIT_AS, (int(memory_gb * 2**30),) * 2)

    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, preexec_fn=limit,
                          check=False)
    if done.returncode < 0 or "out of memory" in done.stderr:
        raise TooLong
    if done.returncode != 0:
        raise ValueError(f"exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Sums:
    """What was searched and checked, by network."""

    def __init__(self):
        self.of = collections.defaultdict(collections.Counter)

    def add(self, network, **counts):
        self.of[network].update(counts)

    def total(self):
        return sum(self.of.values(), collections.Counter())

    def print(self):
        print(f"{'network':22} {'cells':>5} {'searches':>8} {'proposals':>10} {'rejections':>10} {'predictions':>11} "
              f"{'timelines':>9} {'too long':>8} {'wrong':>5}")
        for network, its in [*sorted(self.of.items()), ("all", self.total())]:
            print(f"{network:22} {its['cells']:5} {its['searches']:8} {its['proposals']:10} {its['rejections']:10} "
                  f"{its['predictions']:11} {its['timelines']:9} {its['too_long']:8} {its['wrong']:5}")


def search_cell(options, cell, draw, folder, sums, left_s):
    """Searches of growing length. False where there was no answer, as the first one takes too long."""
    name, network = "/".join(map(str, cell)), cell[0]
    proposals, answered, cpu_left = FIRST_PROPOSALS, False, options.cpu_seconds
    while True:
        command = command_of(options, cell, draw, proposals, max(1, min(left_s(), options.cell_seconds)))
        before = time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        try:
            result = run(command, folder, min(3 * options.cpu_seconds, 10 + left_s()), options.memory_gb)
        except TooLong:
            print(f"{name}  too long  {flags_text(command)}", flush=True)
            return answered
        except ValueError as error:
            sums.add(network, wrong=1)
            print(f"{name}  WRONG  {flags_text(command)}\n  {error}", flush=True)
            return True
        cpu = time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
        checks = {key: result["checks"][key] for key in CHECKED}
        sums.add(network, searches=1, proposals=result["proposals"], **checks)
        print(f"{name}  {result['proposals']} proposals, {checks['rejections']} rejections, {cpu:.1f} s  "
              f"{flags_text(command)}", flush=True)
        answered = answered or result["proposals"] > 0
        cpu_left -= cpu
        grown = min(MOST_PROPOSALS, GROWTH * proposals)
        # As long as the last one for each proposal, unless it ended early.
        affordable = int(cpu_left / cpu * proposals)
        if result["proposals"] == 0 or affordable < GROWTH * FIRST_PROPOSALS or left_s() < 1:
            return answered
        proposals = min(grown, affordable)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--cpu-seconds", type=float, default=10, help="processor time of a cell")
    parser.add_argument("--seconds", type=float, help="draw cells until so much time has passed")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="default: the day")
    parser.add_argument("--cells", action="append", help="only those whose network/topology/batch contains this; may "
                        "repeat")
    parser.add_argument("--cell-seconds", type=float, default=600, help="the budget of a search")
    parser.add_argument("--memory-gb", type=float, help="end searches that need more")
    parser.add_argument("--settings", action="store_true", help="draw micro-batches, precision, optimizer and schedule")
    options = parser.parse_args()
    options.build = options.build.resolve()
    draw = random.Random(options.seed)
    cells = [cell for cell in all_cells()
             if not options.cells or any(wanted in "/".join(map(str, cell)) for wanted in options.cells)]
    if options.seconds:
        draw.shuffle(cells)
    print(f"seed {options.seed}, {len(cells)} cells", flush=True)
    end = time.monotonic() + options.seconds if options.seconds else float("inf")
    sums = Sums()
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            if end - time.monotonic() < 1:
                break
            answered = search_cell(options, cell, draw, folder, sums, lambda: end - time.monotonic())
            sums.add(cell[0], cells=1, too_long=0 if answered else 1)
    sums.print()
    sys.exit(1 if sums.total()["wrong"] or not sums.total()["searches"] else 0)


if __name__ == "__main__":
    main()
