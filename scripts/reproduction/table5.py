"""Table 5: how long the search takes to find its final strategy, by network, devices and start."""

from common import NETWORKS, SEED, SYNCHRONIZATION, assert_no_slower, markdown_table, prepare, synchronization_option

DEFAULT_BUDGET_S = 60
DEVICES = (4, 64)
PAPER_DELTA_S = {  # MLSys 2019, table 5, delta simulation; rows of 4 and of 64 GPUs
    4: {"alexnet": 0.04, "resnet101": 0.4, "inception_v3": 4.1, "rnntc": 7.5, "rnnlm": 9.2, "nmt": 16},
    64: {"alexnet": 5.9, "resnet101": 158, "inception_v3": 1278, "rnntc": 1489, "rnnlm": 969, "nmt": 2190}}
PAPER_FULL_S = {4: {"alexnet": 0.11, "resnet101": 1.4, "inception_v3": 14, "rnntc": 16, "rnnlm": 21, "nmt": 40},
                64: {"alexnet": 18, "resnet101": 515, "inception_v3": 8817, "rnntc": 4404, "rnnlm": 3406, "nmt": 8982}}


def run(settings):
    networks = ["alexnet", "rnntc"] if settings.quick else list(NETWORKS)
    devices = DEVICES[:1] if settings.quick else DEVICES
    prepare(settings, networks, [("p100", count) for count in devices])
    cells = [(network, count, simulator) for count in devices for simulator in ("delta", "full")
             for network in networks]

    def search(cell):
        network, count, simulator = cell
        result = settings.search(network, "p100", count, "--init", "data-parallel,random", "--budget",
                                 f"{settings.budget}s", "--threads", 2, "--simulator", simulator)
        return {**result, "simulator": simulator}

    results = settings.each(search, cells)
    assert_no_slower(results)  # of what --init names
    return {"budget_s": settings.budget, "seed": SEED, "cells": results}


def of(data, network, devices, simulator):
    return next(cell for cell in data["cells"] if (cell["network"], cell["devices"],
                                                   cell["simulator"]) == (network, devices, simulator))


def present(data):
    return [(network, devices) for devices in DEVICES
            for network in NETWORKS if any((c["network"], c["devices"]) == (network, devices) for c in data["cells"])]


def draw(data, pyplot):
    figure, axis = pyplot.subplots(figsize=(9, 3.4))
    keys = present(data)
    for offset, simulator in ((-0.2, "delta"), (0.2, "full")):
        axis.bar([x + offset for x in range(len(keys))], [of(data, *key, simulator)["proposals_per_s"] for key in keys],
                 0.4, label=f"{simulator} simulation")
    axis.set_yscale("log")
    axis.set_ylabel("proposals/s")
    axis.set_xticks(range(len(keys)), [f"{NETWORKS[network]}\n{devices} P100" for network, devices in keys], fontsize=7)
    axis.legend(fontsize=8)
    return figure


def table(data):
    rows = []
    for network, devices in present(data):
        delta, full = of(data, network, devices, "delta"), of(data, network, devices, "full")
        rows.append([devices, NETWORKS[network], f"{delta['best_found_s']:.2f}", f"{delta['elapsed_s']:.1f}",
                     f"{full['best_found_s']:.2f}", f"{full['elapsed_s']:.1f}",
                     PAPER_DELTA_S[devices][network], PAPER_FULL_S[devices][network],
                     f"{delta['proposals_per_s']:,.0f}", f"{full['proposals_per_s']:,.0f}",
                     f"{delta['proposals_per_s'] / full['proposals_per_s']:.1f}",
                     f"{PAPER_FULL_S[devices][network] / PAPER_DELTA_S[devices][network]:.1f}",
                     f"{delta['baselines']['data-parallel'] / delta['predicted_us']:.3f}",
                     f"{full['baselines']['data-parallel'] / full['predicted_us']:.3f}"])
    return f"""# Table 5: search time

Written by `scripts/reproduce.sh table5{synchronization_option(data)} --budget {data['budget_s']:g}`.
Costs are analytic for P100; the 64 P100 are 16
nodes of 4 and batch normalization uses the statistics of each part. Two chains, a thread each, one from data
parallelism and one from a random strategy, {data['budget_s']:g} s a cell: a search ends there, or when half of a
chain's share has passed without a better strategy. The paper allows 30 minutes (`--budget 1800`) and averages 10 random
starts; here one seed. Where the time of the last better strategy is near the budget, the search was cut off. Two
searches ran at a time on two cores shared with other programs.{SYNCHRONIZATION[data['synchronization']]}

![proposals per second](table5.png)

""" + markdown_table(["GPUs", "network", "delta: best found s", "ended s", "full: best found s", "ended s",
                      "paper, delta s", "paper, full s", "delta proposals/s", "full proposals/s",
                      "delta / full", "paper's speed-up", "data-parallel / found, delta", "the same, full"], rows)
