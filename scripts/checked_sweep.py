#!/usr/bin/python3
"""Delta simulation checked on the networks of graphs/: searches under --simulator checked, which compares every answer
of delta simulation with slower simulations (docs/simulator.md). Prints a line for each cell (a network, a topology, a
batch and a seed) and ends with what was checked; exit code 1 if an answer was wrong.

  scripts/checked_sweep.py                      every cell, 3,000 proposals each: hours
  scripts/checked_sweep.py --seconds 150        cells drawn by the seed until the time is used up
  scripts/checked_sweep.py --settings           with micro-batches, bf16 and AdamW, drawn by the seed
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TOPOLOGIES = ["p100-1x4", "p100-4x4", "p100-16x4", "dgx-a100-2", "k80-2x4"]
BATCHES = [16, 64, 256]  # per device
SYNCHRONIZATIONS = ["all-reduce", "all-reduce", "all-reduce", "parameter-server"]
PROPOSALS_FROM = ["structured", "mixed", "paper"]
SETTINGS = [("--micro-batches", [1, 2, 4]), ("--precision", ["fp32", "bf16"]), ("--optimizer", ["sgd", "adamw"]),
            ("--schedule", ["auto", "fifo", "1f1b"])]
HAVE_BF16 = ("dgx-",)  # topologies whose device models give a rate
# The task graphs of these have 1e5 tasks and more: a fifth of the proposals.
LARGE = ("gpt-", "gshard-", "inception", "nmt", "rnnlm", "rnntc", "resnet101")


def all_cells():
    networks = sorted(path.stem for path in (REPOSITORY / "graphs").glob("*.json"))
    return list(itertools.product(networks, TOPOLOGIES, BATCHES))


def command_of(options, cell, draw, seconds):
    network, topology, batch = cell
    settings = []
    for flag, values in SETTINGS if options.settings else []:
        value = draw.choice(values)
        if value != "bf16" or topology.startswith(HAVE_BF16):
            settings += [flag, value]
    proposals = options.proposals // 5 if network.startswith(LARGE) and topology != "p100-1x4" else options.proposals
    return [options.build / "ffsearch", "--graph", REPOSITORY / f"graphs/{network}.json",
            "--topo", REPOSITORY / f"topologies/{topology}.json", "--batch-per-device", batch, "--cost", "analytic",
            "--seed", draw.randrange(1, 1 << 31), "--threads", 1, "--chains", draw.choice([1, 3, 6]),
            "--proposals-from", draw.choice(PROPOSALS_FROM), "--synchronization", draw.choice(SYNCHRONIZATIONS),
            "--proposals", proposals, *settings, "--budget", f"{seconds:.0f}s", "--simulator", "checked", "--out",
            os.devnull, "--json"]


def flags_text(command):
    words = [str(word) for word in command]
    return " ".join(words[words.index("--seed"):words.index("--simulator")])


def run(command, folder, timeout_s):
    """The search's result; None if it had to be killed. Raises ValueError with what the program says."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True,
                              timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        raise ValueError(f"exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build/release")
    parser.add_argument("--proposals", type=int, default=3000)
    parser.add_argument("--seconds", type=float, help="draw cells until so much time has passed")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="default: the day")
    parser.add_argument("--cells", help="only those whose network/topology/batch contains this")
    parser.add_argument("--cell-seconds", type=float, default=600, help="the budget of a search")
    parser.add_argument("--settings", action="store_true", help="draw micro-batches, precision, optimizer and schedule")
    options = parser.parse_args()
    options.build = options.build.resolve()
    draw = random.Random(options.seed)
    cells = [cell for cell in all_cells() if not options.cells or options.cells in "/".join(map(str, cell))]
    if options.seconds:
        draw.shuffle(cells)
    print(f"seed {options.seed}, {len(cells)} cells", flush=True)
    begin = time.monotonic()
    sums = {"rejections": 0, "predictions": 0, "timelines": 0}
    searched = proposals = without = not_done = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for cell in cells:
            left = options.seconds - (time.monotonic() - begin) if options.seconds else options.cell_seconds
            if left < 1:
                break
            seconds = max(1, min(left, options.cell_seconds))
            command = command_of(options, cell, draw, seconds)
            name = "/".join(map(str, cell))
            try:
                result = run(command, folder, 2 * seconds + 60)
            except ValueError as error:
                wrong += 1
                print(f"{name}  WRONG  {flags_text(command)}\n  {error}", flush=True)
                continue
            if result is None:
                not_done += 1
                print(f"{name}  killed after twice its budget and a minute  {flags_text(command)}", flush=True)
                continue
            searched += 1
            without += result["proposals"] == 0
            proposals += result["proposals"]
            for key in sums:
                sums[key] += result["checks"][key]
            print(f"{name}  {result['proposals']} proposals, {result['checks']['rejections']} rejections  "
                  f"{flags_text(command)}", flush=True)
    print(f"{searched} cells searched, {without} of them without a proposal, {not_done} killed, {proposals} "
          "proposals; checked: "
          f"{sums['rejections']} rejections, {sums['predictions']} predictions, {sums['timelines']} timelines; "
          f"{wrong} cells with a wrong answer")
    sys.exit(1 if wrong or searched == 0 else 0)


if __name__ == "__main__":
    main()
