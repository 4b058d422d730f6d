"""Figure 6: throughput of data parallelism, the experts' strategies and mcmc on 1 to 16 P100 and 1 to 64 K80 GPUs."""

import sys

from common import NETWORKS, NORMALIZED, assert_no_slower, conditions, markdown_table, options, prepare, times

CLUSTERS = {"p100": (1, 2, 4, 8, 16), "k80": (1, 2, 4, 8, 16, 32, 64)}
DEFAULT_BUDGET_S = 6
ALGORITHMS = {"data-parallel": "data parallelism", "expert": "expert", "mcmc": "mcmc"}


def budget_s(settings, devices):
    """More devices make proposals slower: 1, 1.7 and 2.7 times the budget up to 8, on 16, and on more devices."""
    return settings.budget * (1 if devices <= 8 else 1.7 if devices == 16 else 2.7)


def run(settings):
    clusters = {"p100": (1, 4), "k80": (1, 4)} if settings.quick else CLUSTERS
    prepare(settings, NETWORKS, [(model, devices) for model, sizes in clusters.items() for devices in sizes])
    cells = [(network, model, devices, statistics) for statistics in ("local", "global") for network in NETWORKS
             if statistics == "local" or (network in NORMALIZED and settings.batch == "device"
                                          and settings.synchronization == "all-reduce")
             for model, sizes in clusters.items() for devices in sizes]

    def search(cell):
        network, model, devices, statistics = cell
        limit = ("--proposals", 1000) if devices == 1 else ("--budget", f"{budget_s(settings, devices)}s")
        return settings.search(network, model, devices, "--threads", 1, *limit, statistics=statistics)

    results = settings.each(search, cells)
    assert_no_slower(results)
    data = {"budget_s": settings.budget, "cells": results}
    if settings.batch == "total":
        print("  " + slower_than_on_fewer(data), file=sys.stderr)
    return data


def speedup(cell, baseline):
    return cell["baselines"][baseline] / cell["predicted_us"]


def throughput(cell, algorithm):
    return cell["throughput"] * (1 if algorithm == "mcmc" else cell["predicted_us"] / cell["baselines"][algorithm])


def over_fewer_devices(cell, cells):
    """Its time over the shortest on fewer devices of the kind, and how many those are; None on the fewest. The larger
    cluster can run that strategy too, so that more than 1 is a search that missed it. Meaningful where all cells have
    the same batch."""
    fewer = [other for other in cells if other["devices"] < cell["devices"]
             and all(other[key] == cell[key] for key in ("network", "model", "statistics"))]
    if not fewer:
        return None
    best = min(fewer, key=lambda other: other["predicted_us"])
    return cell["predicted_us"] / best["predicted_us"], best["devices"]


def slower_than_on_fewer(data):
    """A line for the page and a line for each cell whose strategy is slower than one found on fewer devices."""
    compared = [(cell, over_fewer_devices(cell, data["cells"])) for cell in data["cells"]]
    compared = [(cell, ratio) for cell, ratio in compared if ratio]
    slower = [f"{NETWORKS[cell['network']]} on {cell['devices']} {cell['model'].upper()} ({times(ratio)} times the "
              f"time on {devices})"
              for cell, (ratio, devices) in compared if ratio > 1]
    return (f"In {len(slower)} of {len(compared)} cells the found strategy is slower than one found on fewer devices "
            f"of the kind, although the larger cluster can run that one too"
            + (": " + "; ".join(slower) if slower else "") + ".\n")


def draw(data, pyplot):
    cells = [cell for cell in data["cells"] if cell["statistics"] == "local"]
    figure, axes = pyplot.subplots(4, 3, figsize=(11, 12))
    for column, network in enumerate(NETWORKS):
        for row, model in enumerate(CLUSTERS):
            axis = axes[2 * (column // 3) + row][column % 3]
            line = [cell for cell in cells if cell["network"] == network and cell["model"] == model]
            devices = [cell["devices"] for cell in line]
            for (algorithm, label), marker in zip(ALGORITHMS.items(), "sxo"):
                axis.plot(devices, [throughput(cell, algorithm) / cell["devices"] for cell in line], marker=marker,
                          markersize=4, label=label)
            axis.axhline(throughput(line[0], "data-parallel"), color="grey", linestyle="--", linewidth=1,
                         label="one device, ideal")
            axis.set_xscale("log", base=2)
            axis.set_xticks(devices, devices)
            axis.set_ylim(0, 1.1 * max(throughput(cell, "mcmc") / cell["devices"] for cell in line))
            axis.set_title(f"{NETWORKS[network]}, {model.upper()}", fontsize=10)
            axis.set_xlabel("devices", fontsize=8)
            axis.set_ylabel("samples/s per device", fontsize=8)
    axes[0][0].legend(fontsize=7)
    return figure


def ratio_range(cells, baseline):
    ratios = [speedup(cell, baseline) for cell in cells]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def fewer_text(ratio):
    return "" if ratio is None else times(ratio[0]) + (f", slower than on {ratio[1]}" if ratio[0] > 1 else "")


def table(data):
    rows, summary = [], []
    for statistics in ("local", "global"):
        for network in NETWORKS:
            cells = [cell for cell in data["cells"] if cell["network"] == network and cell["statistics"] == statistics
                     and cell["devices"] > 1]
            if not cells:
                continue
            name = NETWORKS[network] + (", global statistics" if statistics == "global" else "")
            paper = "about 1" if network == "resnet101" else "1.3 to 3.3"
            better = [min(speedup(cell, "data-parallel"), speedup(cell, "expert")) for cell in cells]
            bounds = [cell["baselines"]["data-parallel"] / cell["lower_bound_us"] for cell in cells]
            summary.append([name, ratio_range(cells, "data-parallel"), ratio_range(cells, "expert"),
                            f"{min(better):.2f} to {max(better):.2f}", f"{min(bounds):.2f} to {max(bounds):.2f}",
                            paper])
            for cell in cells:
                rows.append([name, f"{cell['devices']} {cell['model'].upper()}",
                             *(f"{throughput(cell, a):,.0f}" for a in ALGORITHMS),
                             times(speedup(cell, "data-parallel")), times(speedup(cell, "expert")),
                             times(cell["predicted_us"] / cell["lower_bound_us"]),
                             *([] if data["batch"] == "device"
                               else [fewer_text(over_fewer_devices(cell, data["cells"]))]),
                             f"{cell['memory_bytes'] / 1e9:.1f}", cell["proposals"]])
    full = max(data["cells"], key=lambda cell: cell["memory_bytes"])
    whole = ", and once with those of the whole batch" if any(cell["statistics"] == "global"
                                                              for cell in data["cells"]) else ""
    return f"""# Figure 6: throughput of six networks

Written by `scripts/reproduce.sh figure6 {options(data)} --budget {data['budget_s']:g}`. {conditions(data)}
Search: {data['budget_s']:g} s a cell up to 8 devices, 1.7 times that on 16, 2.7 times on 32 and 64, one thread; a
search ends early when half of its share has passed without a better strategy. Batch normalization with the statistics
of each part, as the paper's runtime{whole}. The largest memory is {full['memory_bytes'] / 1e9:.1f} GB per device
({NETWORKS[full['network']]}, {full['devices']} {full['model'].upper()}): a real P100 has 16 GB, a K80 12 GB.

![throughput](figure6.png)

Speed-ups of the found strategies; the paper states ranges in its text and draws the rest. No strategy is faster than
the lower bound, so that data parallelism's time over it is the most that any search could gain.

""" + markdown_table(["network", "over data parallelism", "over expert", "over the better of the two",
                      "data-parallel time / lower bound", "paper, over the baselines"], summary) + f"""
In every cell the found strategy is at least as fast as every baseline ({", ".join(data["cells"][0]["baselines"])});
the script fails otherwise.
{slower_than_on_fewer(data) if data["batch"] == "total" else ""}
""" + markdown_table(["network", "devices", "data-parallel samples/s", "expert", "mcmc", "mcmc / data-parallel",
                      "mcmc / expert",
                      "time / lower bound", *([] if data["batch"] == "device" else ["time / least on fewer devices"]),
                      "GB per device", "proposals"], rows)
