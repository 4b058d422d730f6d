#!/usr/bin/python3
"""Loss over wall-clock time: one network, real data, two hosts, data-parallel and with the plan that the search finds.

    scripts/training_curves.py [--build DIR] [--gb-per-s 0.125] [--epochs 2] [--out docs/results/training-curves]

RNNLM at an eighth of its width (20 steps, 1000 words) on the license texts of Debian (scripts/text_data.py), on the
cluster of two hosts that scripts/emulated_cluster.sh makes (root only): calibrate, search, train. Prints the table of
docs/results/training-curves.md, and with --out draws OUT.png (needs matplotlib). The same seed gives both the same
losses but for rounding; what differs is when they are reached."""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from mpi_environment import mpi_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS, VOCABULARY, BATCH, RATE = 20, 1000, 16, 1.0
SMOOTHED = 25  # iterations that a point of the curve is the mean of
PLANS = {"data-parallel": ["--algorithm", "data-parallel"], "found": ["--seed", "1", "--budget", "20s"]}


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=mpi_environment(),
                          check=False)
    if done.returncode == 77:
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def train(command):
    """The result, and [(seconds since the first iteration began, iteration)] from the lines of progress."""
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=mpi_environment()) as process:
        seen = []
        for line in process.stderr:
            if found := re.match(r"iteration (\d+) of", line):
                seen.append((time.monotonic(), int(found[1])))
        result = process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"exit {process.returncode}")
    result = json.loads(result)
    begin = seen[0][0] - seen[0][1] * result["measured_us"] / 1e6
    return result, [(0, 0)] + [(when - begin, iteration) for when, iteration in seen]


def curve(losses, seen):
    """[(seconds, mean loss of the last iterations)] of each iteration; times between two that were seen are even."""
    points = []
    for (begin_s, begin), (end_s, end) in zip(seen, seen[1:]):
        for iteration in range(begin + 1, end + 1):
            when = begin_s + (end_s - begin_s) * (iteration - begin) / (end - begin)
            points.append((when, statistics.mean(losses[max(0, iteration - SMOOTHED):iteration])))
    return points


def first_below(points, loss):
    return next((when for when, value in points if value <= loss), None)


def draw(curves, path, rate):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
    sys.path.insert(0, str(ROOT / "scripts/reproduction"))
    import style
    style.apply(pyplot)
    figure, axes = pyplot.subplots(figsize=(style.WIDTH, 4.5))
    for (name, points), line in zip(curves.items(), style.LINES):
        axes.plot([when for when, _ in points], [loss for _, loss in points], linestyle=line, label=name)
    axes.set_xlabel("seconds")
    axes.set_ylabel("loss")
    axes.set_title(f"RNNLM on two hosts at {rate * 8:g} Gb/s")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description="Loss over wall-clock time, data-parallel and as found.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--gb-per-s", type=float, default=0.125, help="of the link between the hosts")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, help="draws OUT.png")
    arguments = parser.parse_args()
    cluster = [ROOT / "scripts/emulated_cluster.sh", "--hosts", "2", "--gb-per-s", arguments.gb_per_s, "--", "mpirun",
               arguments.build / "ffexec"]
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        run(ROOT / "scripts/text_data.py", work / "data", "--steps", STEPS, "--vocabulary", VOCABULARY)
        run(sys.executable, ROOT / "scripts/generate_graphs.py", "rnnlm", "--width", "0.125", "--steps", STEPS,
            "--vocabulary", VOCABULARY, "--batch", BATCH, "--out", work)
        graph = next(work.glob("*.json"))
        topology = work / "topology" / "cluster.json"
        topology.parent.mkdir()
        run(*cluster, "--calibrate", "--out", topology)
        curves, rows = {}, []
        for plan, options in PLANS.items():
            strategy = work / f"{plan}.strategy"
            run(arguments.build / "ffsearch", "--graph", graph, "--topo", topology, "--out", strategy, "--quiet",
                *options)
            result, seen = train([*cluster, "--strategy", strategy, "--data", work / "data/train", "--epochs",
                                  arguments.epochs, "--lr", RATE, "--momentum", "0.9", "--seed", "1", "--json"])
            curves[plan] = curve(result["losses"], seen)
            rows.append((plan, result["predicted_us"] / 1e3, result["measured_us"] / 1e3, curves[plan][-1]))
    target = max(row[3][1] for row in rows)
    print("| plan | predicted ms | measured ms | seconds in all | loss at the end | seconds to a loss of "
          f"{target:.3f} |\n" + "|---" * 6 + "|")
    for plan, predicted, measured, (seconds, loss) in rows:
        print(f"| {plan} | {predicted:.2f} | {measured:.2f} | {seconds:.1f} | {loss:.4f} | "
              f"{first_below(curves[plan], target):.1f} |")
    if arguments.out:
        draw(curves, arguments.out.with_suffix(".png"), arguments.gb_per_s)


if __name__ == "__main__":
    main()
