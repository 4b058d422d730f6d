"""Figure 7: NMT on 64 K80 GPUs: iteration time, bytes moved and compute time of data parallelism, expert and mcmc."""

import style
from common import assert_no_slower, conditions, markdown_table, options, prepare

DEFAULT_BUDGET_S = 150
ALGORITHMS = ("data-parallel", "expert", "mcmc")


def run(settings):
    devices = 8 if settings.quick else 64
    prepare(settings, ["nmt"], [("k80", devices)])
    results = {name: settings.search("nmt", "k80", devices, "--algorithm", name) for name in ALGORITHMS[:2]}
    results["mcmc"] = settings.search("nmt", "k80", devices, "--budget", f"{settings.budget}s", "--threads",
                                      settings.workers)
    assert_no_slower([results["mcmc"]])
    return {"budget_s": settings.budget, "devices": devices, "algorithms": results}


def measures(result):
    """Iteration time in ms, bytes moved in GB, compute time over all devices in s."""
    return result["predicted_us"] / 1e3, (result["transfer_bytes"]
                                          + result["synchronization_bytes"]) / 1e9, result["compute_us"] / 1e6


def draw(data, pyplot):
    figure, axes = pyplot.subplots(1, 3, figsize=(style.WIDTH, 3.4))
    titles = ("predicted iteration, ms", "bytes moved, GB", "compute time,\nsum over devices, s")
    for column, (axis, title) in enumerate(zip(axes, titles)):
        values = [measures(data["algorithms"][name])[column] for name in ALGORITHMS]
        for number, value in enumerate(values):
            style.bars(axis, [number], [value], number, ALGORITHMS[number], 0.7,
                       lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
        axis.set_title(title)
        axis.set_xticks(range(len(ALGORITHMS)), [name.replace("-", "-\n") for name in ALGORITHMS])
        axis.set_ylim(0, 1.15 * max(values))
        axis.grid(axis="x", visible=False)
    figure.tight_layout()
    return figure


def table(data):
    found = measures(data["algorithms"]["mcmc"])
    rows = []
    for name in ALGORITHMS:
        result = data["algorithms"][name]
        ms, gigabytes, seconds = measures(result)
        rows.append([name, f"{ms:.1f}", f"{result['transfer_bytes'] / 1e9:.2f}",
                     f"{result['synchronization_bytes'] / 1e9:.2f}", f"{seconds:.2f}",
                     f"{ms / found[0]:.2f}", f"{gigabytes / found[1]:.2f}", f"{seconds / found[2]:.2f}"])
    rows.append(["paper, text", "", "", "", "", "1.7 to 2.4", "2 to 5.5",
                 "1.25 over data parallelism (20 % less), about 1 over expert"])
    mcmc = data["algorithms"]["mcmc"]
    return f"""# Figure 7: NMT on {data['devices']} K80

Written by `scripts/reproduce.sh figure7 {options(data)} --budget {data['budget_s']:g}`. {conditions(data)} The
search took {mcmc['total_s']:.0f} s and {mcmc['proposals']} proposals; its strategy was found after
{mcmc['best_found_s']:.0f} s. No strategy can take less than {mcmc['lower_bound_us'] / 1e3:.1f} ms.

![NMT](figure7.png)

""" + markdown_table(["strategy", "iteration ms", "transfers GB", "synchronization GB", "compute s", "time / mcmc",
                      "bytes / mcmc", "compute / mcmc"], rows)
