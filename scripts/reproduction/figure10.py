"""Figure 10: predicted against executed iteration time, here on two CPU ranks of this machine: a strategy of each
algorithm."""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys

import style
from common import REPOSITORY, SEED, generate, markdown_table

sys.path.insert(0, str(REPOSITORY / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402
from networks_on_cpu import VARIANTS  # noqa: E402

DEFAULT_BUDGET_S = 3
NETWORKS = ("lenet", "alexnet", "inception_v3", "rnnlm", "nmt", "bert-base")
ALGORITHMS = ("data-parallel", "single-device", "model-parallel", "expert", "optcnn", "placement", "reinforce",
              "exhaustive", "mcmc")
ONLY = {"exhaustive": ("lenet",)}  # the others are too large for it
ITERATIONS = {"lenet": 100, "alexnet": 6, "inception_v3": 8, "rnnlm": 12, "nmt": 16, "bert-base": 12}
ROUNDS = 5
RANKS = 2


def run_program(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=mpi_environment(), cwd=REPOSITORY)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def execute(settings, *arguments):
    return run_program("mpirun", "-n", RANKS, settings.build / "ffexec", *arguments)


def calibrated(settings):
    path = settings.work / "topology.json"
    execute(settings, "--calibrate", "--out", path)
    topology = json.loads(path.read_text())
    for model in topology["device_models"].values():
        model["cores"] = 1  # one thread per rank
    path.write_text(json.dumps(topology))
    return path


def measure(settings, network, topology):
    """Plans with every algorithm, then trains with all plans in turn, ROUNDS times."""
    folder = settings.work / network
    generate("generate_graphs.py", network, *VARIANTS[network], "--out", folder)
    graph, profile = next(folder.glob("*.json")), settings.work / f"{network}-profile.json"
    problem = ("--graph", graph, "--topo", topology)
    run_program(settings.build / "ffsearch", "profile", *problem, "--out", profile, "--quiet")
    entries = []
    for algorithm in ALGORITHMS:
        if network not in ONLY.get(algorithm, (network,)):
            continue
        strategy = settings.work / f"{network}-{algorithm}.json"
        result = json.loads(run_program(settings.build / "ffsearch", *problem, "--profile", profile, "--algorithm",
                                        algorithm,
                                        "--budget", f"{settings.budget}s", "--seed", SEED, "--threads", 1, "--out",
                                        strategy, "--json"))
        entries.append({"network": graph.stem, "algorithm": algorithm, "predicted_us": result["predicted_us"],
                        "strategy": str(strategy), "measured_us": []})
    for _ in range(2 if settings.quick else ROUNDS):
        for entry in entries:
            result = json.loads(execute(settings, "--strategy", entry["strategy"], "--iterations", ITERATIONS[network],
                                        "--momentum", "0.9", "--lr", "0.001", "--json"))
            entry["measured_us"].append(result["measured_us"])
    for entry in entries:
        entry["strategy"] = pathlib.Path(entry["strategy"]).name
        print(f"  {entry['network']} {entry['algorithm']}: {entry['predicted_us']:.0f} us, measured "
              f"{middle(entry):.0f}", file=sys.stderr, flush=True)
    return entries


def run(settings):
    topology = calibrated(settings)
    networks = NETWORKS[:1] if settings.quick else NETWORKS
    return {"budget_s": settings.budget,
            "entries": [entry for network in networks for entry in measure(settings, network, topology)]}


def middle(entry):
    return statistics.median(entry["measured_us"])


def spread(entry):
    """Half of the middle half of the rounds' times: the quartiles lie about this far from the median."""
    lower, _, upper = statistics.quantiles(entry["measured_us"], n=4, method="inclusive")
    return (upper - lower) / 2


def order(entries):
    """Pairs of strategies of one network whose measured times differ by more than both spreads: how many, and which are
    predicted the other way round. Pairs with predicted times within 1 % count as predicted equal, neither right nor
    wrong."""
    compared, equal, wrong = 0, 0, []
    for one, other in itertools.combinations(entries, 2):
        if one["network"] != other["network"] or abs(middle(one) - middle(other)) <= spread(one) + spread(other):
            continue
        compared += 1
        if abs(one["predicted_us"] / other["predicted_us"] - 1) < 0.01:
            equal += 1
        elif (one["predicted_us"] < other["predicted_us"]) != (middle(one) < middle(other)):
            wrong.append(f"{one['network']}: {one['algorithm']} and {other['algorithm']}")
    return compared, equal, wrong


def draw(data, pyplot):
    figure, axis = pyplot.subplots(figsize=(style.WIDTH, 6.5))
    networks = dict.fromkeys(entry["network"] for entry in data["entries"])
    colours = (*style.COLOURS[:4], "#7a5c99", "#7f8c8d")
    for network, marker, colour in zip(networks, style.MARKERS, colours):
        entries = [entry for entry in data["entries"] if entry["network"] == network]
        axis.errorbar([middle(entry) / 1e3 for entry in entries], [entry["predicted_us"] / 1e3 for entry in entries],
                      xerr=[spread(entry) / 1e3 for entry in entries], marker=marker, color=colour, linestyle="",
                      markersize=7, label=network)
    ends = [min(min(middle(e), e["predicted_us"]) for e in data["entries"]) / 1e3,
            max(max(middle(e), e["predicted_us"]) for e in data["entries"]) / 1e3]
    axis.plot(ends, ends, "--", color="grey", linewidth=1, label="equal")
    axis.fill_between(ends, [0.7 * end for end in ends], [1.3 * end for end in ends], color="grey", alpha=0.15,
                      label="within 30 %")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("measured iteration, ms; bars: half of the interquartile range of the rounds")
    axis.set_ylabel("predicted iteration, ms")
    axis.legend()
    figure.tight_layout()
    return figure


def table(data):
    rows = [[entry["network"], entry["algorithm"], f"{entry['predicted_us'] / 1e3:.3f}", f"{middle(entry) / 1e3:.3f}",
             f"{spread(entry) / 1e3:.3f}",
             f"{min(entry['measured_us']) / 1e3:.3f}", f"{100 * (entry['predicted_us'] / middle(entry) - 1):+.1f} %"]
            for entry in data["entries"]]
    compared, equal, wrong = order(data["entries"])
    within = sum(abs(entry["predicted_us"] / middle(entry) - 1) <= 0.3 for entry in data["entries"])
    return f"""# Figure 10: predicted and executed on two CPU ranks

Written by `scripts/reproduce.sh figure10 --budget {data['budget_s']:g}`: a strategy of each algorithm
({data['budget_s']:g} s of search each), planned with kernels and links measured on this machine, executed by two ranks
of one thread. Measured: the median over {len(data['entries'][0]['measured_us'])} rounds, in which all strategies take
turns; spread: half of the middle half of the rounds. Other programs on the machine lengthen measured times and the
measured kernels alike. Networks are scaled down as their names say.

![predicted against measured](figure10.png)

- {within} of {len(data['entries'])} strategies lie within 30 % of the prediction (the paper: all).
- Order: {compared} pairs differ by more than the spreads. {compared - equal - len(wrong)} are predicted in that order,
{equal} as equal (within 1 %),
  {len(wrong)} the other way round{': ' + '; '.join(wrong) if wrong else ''} (the paper: none).

""" + markdown_table(["network", "strategy", "predicted ms", "measured ms", "spread ms", "fastest round ms",
                      "difference"], rows)
