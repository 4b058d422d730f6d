#!/usr/bin/env python3
"""Predicted against measured time of an iteration: networks, strategies and clusters, as a user would go about it:
calibrate, search, train.

    scripts/predictions.py [--build DIR] [--only NETWORK ...] [--clusters NAME ...] [--seconds S] [--out FILE]
    scripts/predictions.py --rows FILE --plot docs/results/predictions.png     (needs matplotlib)

Clusters: "shared memory" (two ranks of this machine), and emulated ones (scripts/emulated_cluster.sh; root only,
skipped elsewhere): "1 Gb/s", "10 Gb/s" (two hosts), "2x2, 1 Gb/s" (two hosts of two ranks each), "uneven, 1 Gb/s" (one
of two hosts has half a processor). Prints docs/results/predictions.md."""

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from mpi_environment import mpi_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECURRENT = ["--width", "0.125", "--steps", "10", "--batch", "16", "--vocabulary", "1000"]
TRANSFORMER = ["--width", "0.1667", "--layers", "2", "--steps", "64", "--batch", "8", "--vocabulary", "1000"]
NETWORKS = {  # how a network is scaled down
    "lenet": [],
    "alexnet": ["--width", "0.5", "--batch", "16"],
    "vgg16": ["--width", "0.25", "--batch", "8"],
    "resnet50": ["--width", "0.25", "--image", "112", "--batch", "8"],
    "rnnlm-2step": ["--width", "0.125", "--batch", "16", "--vocabulary", "1000"],
    "rnnlm": RECURRENT,
    "rnntc": RECURRENT,
    "nmt": RECURRENT,
    "bert-base": TRANSFORMER,
    "gpt2-small": TRANSFORMER,
}
ALGORITHMS = ["data-parallel", "expert", "pipeline", "optcnn", "mcmc"]
CLUSTERS = {  # options of scripts/emulated_cluster.sh
    "shared memory": None,
    "1 Gb/s": ["--hosts", "2", "--gb-per-s", "0.125"],
    "10 Gb/s": ["--hosts", "2", "--gb-per-s", "1.25"],
    "2x2, 1 Gb/s": ["--hosts", "2", "--ranks-per-host", "2", "--gb-per-s", "0.125"],
    "uneven, 1 Gb/s": ["--hosts", "2", "--gb-per-s", "0.125", "--cpu-share", "1=0.5"],
}


class Cluster:
    def __init__(self, name, build, work):
        self.options, self.build = CLUSTERS[name], build
        self.topology = work / f"{name.replace(' ', '-').replace('/', '')}.json"
        print(f"{name}: {self.mpirun('--calibrate', '--out', self.topology).strip()}", file=sys.stderr, flush=True)
        topology = json.loads(self.topology.read_text())
        for model in topology["device_models"].values():
            model["cores"] = 1  # one thread a rank
        self.topology.write_text(json.dumps(topology))

    def mpirun(self, *words):
        if self.options is None:
            command = ["mpirun", "-n", 2, self.build / "ffexec", *words]
        else:
            command = [ROOT / "scripts/emulated_cluster.sh", *self.options, "--", "mpirun",
                       self.build / "ffexec", *words]
        return run(command)

    def train(self, strategy, seconds):
        predicted_s = json.loads(strategy.read_text())["provenance"]["predicted_us"] / 1e6
        iterations = int(min(400, max(8, seconds / predicted_s)))
        result = json.loads(self.mpirun("--strategy", strategy, "--lr", "0.001", "--iterations", iterations, "--json"))
        return result["measured_us"] / 1e3


class Skipped(Exception):
    pass


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=mpi_environment(),
                          check=False)
    if done.returncode == 77:
        raise Skipped(done.stderr.strip())
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def plan(build, graph, cluster, algorithm, profile, strategy):
    """Predicted ms; None where the algorithm does not apply. Kernels are measured once for all clusters."""
    search = ["--graph", graph, "--topo", cluster.topology, "--out", strategy, "--algorithm", algorithm, "--seed", 1]
    if algorithm == "mcmc":
        search += ["--proposals", 3000, "--budget", "10s"]
    if profile.exists():
        search += ["--profile", profile]
    done = subprocess.run([str(word) for word in [build / "ffsearch", *search, "--json"]], capture_output=True,
                          text=True, env=mpi_environment(), check=False)
    if done.returncode != 0:
        print(f"{graph.stem}, {algorithm}: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)["predicted_us"] / 1e3


def kendall_tau(pairs):
    """Of orders by prediction and by measurement; pairs that are measured within 3 % of each other have no order."""
    signs = [1 if (a[0] - b[0]) * (a[1] - b[1]) > 0 else -1 for a, b in itertools.combinations(pairs, 2)
             if abs(a[1] / b[1] - 1) > 0.03]
    return statistics.mean(signs) if signs else None


def table(rows):
    lines = ["| cluster | network | strategy | predicted ms | measured ms | error | times as fast as data parallelism, "
             "predicted | measured |", "|" + "---|" * 8]
    plain = {(row["cluster"], row["network"]): row for row in rows if row["algorithm"] == "data-parallel"}
    for row in rows:
        base = plain[row["cluster"], row["network"]]
        lines.append(f"| {row['cluster']} | {row['network']} | {row['algorithm']} | {row['predicted']:.2f} | "
                     f"{row['measured']:.2f} | {100 * (row['predicted'] / row['measured'] - 1):+.1f} % | "
                     f"{base['predicted'] / row['predicted']:.2f} | {base['measured'] / row['measured']:.2f} |")
    return "\n".join(lines)


def summary(rows):
    lines = ["| cluster | runs | mean error | worst | Kendall's tau, mean over networks |", "|" + "---|" * 5]
    for cluster in [*dict.fromkeys(row["cluster"] for row in rows), "all"]:
        own = [row for row in rows if cluster in (row["cluster"], "all")]
        errors = [abs(row["predicted"] / row["measured"] - 1) for row in own]
        taus = [kendall_tau([(row["predicted"], row["measured"]) for row in own
                             if (row["cluster"], row["network"]) == key])
                for key in dict.fromkeys((row["cluster"], row["network"]) for row in own)]
        taus = [tau for tau in taus if tau is not None]
        lines.append(f"| {cluster} | {len(own)} | {100 * statistics.mean(errors):.1f} % | {100 * max(errors):.0f} % | "
                     + (f"{statistics.mean(taus):.2f} |" if taus else "|"))
    return "\n".join(lines)


def examine(cluster_name, arguments, work, graphs):
    try:
        cluster = Cluster(cluster_name, arguments.build, work)
    except Skipped as why:
        print(f"{cluster_name}: {why}", file=sys.stderr)
        return
    for network, graph in graphs.items():
        profile = work / f"{network}-profile.json"
        if not profile.exists():
            run([arguments.build / "ffsearch", "profile", "--graph", graph, "--topo", cluster.topology, "--out",
                 profile, "--device-model", "cpu", "--quiet"])
        seen = {}
        for algorithm in ALGORITHMS:
            strategy = work / "strategy.json"
            predicted = plan(arguments.build, graph, cluster, algorithm, profile, strategy)
            if predicted is None:
                continue
            configurations = json.dumps(json.loads(strategy.read_text())["configurations"])
            if configurations in seen:  # the same plan under another name
                continue
            seen[configurations] = True
            row = {"cluster": cluster_name, "network": graph.stem, "algorithm": algorithm, "predicted": predicted,
                   "measured": cluster.train(strategy, arguments.seconds)}
            print(json.dumps(row), file=sys.stderr, flush=True)
            yield row


def draw(rows, path):
    """Predicted against measured ms, both logarithmic."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
    sys.path.insert(0, str(ROOT / "scripts/reproduction"))
    import style
    style.apply(pyplot)
    figure, axes = pyplot.subplots(figsize=(style.WIDTH, 7.5))
    clusters = dict.fromkeys(row["cluster"] for row in rows)
    for cluster, marker, colour in zip(clusters, style.MARKERS, (*style.COLOURS[:4], "#7a5c99")):
        own = [row for row in rows if row["cluster"] == cluster]
        axes.loglog([row["measured"] for row in own], [row["predicted"] for row in own], marker, color=colour,
                    label=cluster)
    ends = [min(row["measured"] for row in rows) / 1.5, max(row["measured"] for row in rows) * 1.5]
    axes.plot(ends, ends, color="black", linewidth=1, label="equal")
    axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color="black", alpha=0.12,
                      label="within 10 %")
    axes.set_xlabel("measured iteration, ms")
    axes.set_ylabel("predicted iteration, ms")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", nargs="+", choices=list(NETWORKS), default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--clusters", nargs="+", choices=list(CLUSTERS), default=list(CLUSTERS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=4, help="of training a run, about")
    parser.add_argument("--out", type=pathlib.Path, help="the rows as JSON, too")
    parser.add_argument("--rows", type=pathlib.Path, help="measures nothing: prints rows that --out wrote")
    parser.add_argument("--plot", type=pathlib.Path, help="draws the rows (PNG)")
    arguments = parser.parse_args()
    rows = json.loads(arguments.rows.read_text()) if arguments.rows else measure(arguments)
    print(summary(rows) + "\n\n" + table(rows))
    if arguments.plot:
        draw(rows, arguments.plot)


def measure(arguments):
    arguments.build = arguments.build.resolve()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        graphs = {}
        for network in arguments.only:
            run([sys.executable, ROOT / "scripts/generate_graphs.py", network, *NETWORKS[network], "--out",
                 work / network])
            graphs[network] = next((work / network).glob("*.json"))
        for cluster in arguments.clusters:
            for row in examine(cluster, arguments, work, graphs):
                rows.append(row)
                if arguments.out:
                    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    main()
