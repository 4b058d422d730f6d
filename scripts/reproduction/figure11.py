"""Figure 11: the best strategy found over the time of the search, with full and delta simulation, and
with the paper's proposals and this program's own."""

import style
from common import NETWORKS, SEED, SYNCHRONIZATION, markdown_table, prepare, synchronization_option

DEFAULT_BUDGET_S = 60
CELLS = (("nmt", 16), ("rnntc", 64), ("inception_v3", 64))  # the paper has the first
SEARCHES = {  # by what is drawn: flags of ffsearch
    "full, paper's proposals": ("--simulator", "full", "--proposals-from", "paper", "--chains", 1),
    "delta, paper's proposals": ("--proposals-from", "paper", "--chains", 1),
    "delta, mixed": ("--proposals-from", "mixed", "--chains", 2),
    "delta, structured": ("--proposals-from", "structured"),
    "default": ()}


def run(settings):
    cells = CELLS[:1] if settings.quick else CELLS
    prepare(settings, sorted({network for network, _ in cells}), sorted({("p100", count) for _, count in cells}))

    def search(item):
        (network, count), name = item
        start = () if name == "default" else ("--init", "data-parallel")
        result = settings.search(network, "p100", count, *start, "--budget", f"{settings.budget}s", "--threads", 1,
                                 *SEARCHES[name])
        # What the chains start from is there when they begin.
        found = [(0, min([result["baselines"]["data-parallel"], *result["baselines"].values()] if name == "default"
                         else [result["baselines"]["data-parallel"]]))]
        for improvement in result["improvements"]:
            if improvement["predicted_us"] < found[-1][1]:
                found.append((improvement["after_s"], improvement["predicted_us"]))
        return {"network": network, "devices": count, "search": name, "found": found, "ended_s": result["elapsed_s"],
                "proposals": result["proposals"], "predicted_us": result["predicted_us"],
                "lower_bound_us": result["lower_bound_us"]}

    results = settings.each(search, [(cell, name) for cell in cells for name in SEARCHES])
    return {"budget_s": settings.budget, "seed": SEED, "cells": results}


def keys(data):
    return list(dict.fromkeys((cell["network"], cell["devices"]) for cell in data["cells"]))


def draw(data, pyplot):
    figure, axes = pyplot.subplots(len(keys(data)), 1, figsize=(style.WIDTH, 3.6 * len(keys(data)) + 0.8),
                                   squeeze=False)
    for axis, key in zip(axes[:, 0], keys(data)):
        cells = [cell for cell in data["cells"] if (cell["network"], cell["devices"]) == key]
        for number, cell in enumerate(cells):
            steps = [*cell["found"], (cell["ended_s"], cell["found"][-1][1])]
            # Lines that come later are thinner, so that one that lies on another one leaves it to be seen.
            axis.step([max(seconds, 0.05) for seconds, _ in steps], [us / 1e3 for _, us in steps], where="post",
                      linewidth=6 - number, linestyle=style.LINES[number % 2], color=(*style.COLOURS[3:0:-1],
                                                                                     "#7a5c99", "#1b2a49")[number],
                      label=cell["search"])
            axis.plot(steps[-1][0], steps[-1][1] / 1e3, "|", color="black", markersize=12)
        axis.set_xscale("log")
        axis.set_title(f"{NETWORKS[key[0]]}, {key[1]} P100")
        axis.set_ylabel("best strategy so far,\npredicted ms")
    axes[-1][0].set_xlabel("seconds of search; a bar is where the search ended")
    style.legend_above(figure, axes[0][0], 3)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / figure.get_figheight()))
    return figure


def table(data):
    rows = []
    for cell in data["cells"]:
        first, last = cell["found"][0][1], cell["found"][-1]
        rows.append([NETWORKS[cell["network"]], cell["devices"], cell["search"], f"{first / 1e3:.2f}",
                     f"{last[1] / 1e3:.2f}", f"{last[0]:.1f}", f"{cell['ended_s']:.1f}", f"{cell['proposals']:,}",
                     f"{cell['lower_bound_us'] / 1e3:.2f}"])
    return f"""# Figure 11: the best strategy over the time of the search

Written by `scripts/reproduce.sh figure11{synchronization_option(data)} --budget {data['budget_s']:g}`.
Costs are analytic for P100, 4 per node; {data['budget_s']:g} s per search, one seed, one thread, on two cores shared
with other programs. All start from data parallelism alone, but for the last, which is what `ffsearch` does
without flags: heuristic baselines first, then fewer nodes, then all. Tasks run in FIFO order. A search ends when half
of its time
passed without a better strategy.{SYNCHRONIZATION[data['synchronization']]}

![the best strategy over time](figure11.png)

""" + markdown_table(["network", "GPUs", "search", "starts at ms", "found ms", "after s", "ended s", "proposals",
                      "bound ms"], rows)
