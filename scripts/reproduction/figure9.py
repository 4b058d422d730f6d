"""Figure 9: mcmc against learned placement (ColocRL) on 4 K80, and against OptCNN on 16 P100."""

import style
from common import NETWORKS, assert_no_slower, conditions, markdown_table, options, prepare, times

DEFAULT_BUDGET_S = 20
PLACED = ("inception_v3", "nmt")
LINEAR = ("alexnet", "resnet101")  # linear operator graphs, by the paper


def run(settings):
    networks = ["alexnet", "nmt"] if settings.quick else list(NETWORKS)
    devices = 4 if settings.quick else 16
    prepare(settings, {*networks, *PLACED}, [("k80", 4), ("p100", devices)])
    budget = ("--budget", f"{settings.budget}s", "--threads", 1)
    jobs = [(network, "k80", 4, algorithm) for network in PLACED for algorithm in ("reinforce", "mcmc")]
    jobs += [(network, "p100", devices, algorithm) for network in networks for algorithm in ("optcnn", "mcmc")]
    results = settings.each(lambda job: settings.search(*job[:3], "--algorithm", job[3], *budget), jobs)
    assert_no_slower([result for result in results if result["algorithm"] == "mcmc"])
    return {"budget_s": settings.budget, "devices": devices, "results": results}


def pairs(data, model, rival):
    """(network, the rival's result, mcmc's result) of one half of the figure."""
    of = {(result["network"], result["algorithm"]): result for result in data["results"] if result["model"] == model}
    return [(network, result, of[network, "mcmc"]) for (network, algorithm), result in of.items() if algorithm == rival]


def draw(data, pyplot):
    figure, axes = pyplot.subplots(1, 2, figsize=(style.WIDTH, 3.8), gridspec_kw={"width_ratios": (1, 2.2)},
                                   sharey=True)
    for axis, model, rival, title in ((axes[0], "k80", "reinforce", "4 K80"),
                                      (axes[1], "p100", "optcnn", f"{data['devices']} P100")):
        entries = pairs(data, model, rival)
        number = 1 if rival == "reinforce" else 3
        style.bars(axis, [x - 0.2 for x in range(len(entries))],
                   [other["throughput"] / mcmc["throughput"] for _, other, mcmc in entries], number,
                   "learned placement" if rival == "reinforce" else rival, 0.4, times)
        style.bars(axis, [x + 0.2 for x in range(len(entries))], [1] * len(entries), 0, "mcmc", 0.4)
        axis.set_xticks(range(len(entries)), [NETWORKS[network].replace("-", "-\n") for network, _, _ in entries])
        axis.set_title(title)
        axis.grid(axis="x", visible=False)
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, -0.42), ncols=2)
    axes[0].set_ylim(0, 1.12)
    axes[0].set_ylabel("predicted samples/s,\nmcmc = 1")
    figure.tight_layout()
    return figure


def rows(data, model, rival, paper):
    for network, other, mcmc in pairs(data, model, rival):
        yield [NETWORKS[network], f"{other['throughput']:,.0f}", f"{mcmc['throughput']:,.0f}",
               times(mcmc["throughput"] / other["throughput"]), paper(network),
               f"{other['note']}; {other['total_s']:.1f} s", f"{mcmc['proposals']} proposals; {mcmc['total_s']:.1f} s"]


def table(data):
    header = ["network", "samples/s", "mcmc samples/s", "speed-up", "paper", "how", "mcmc"]
    return f"""# Figure 9: against ColocRL and OptCNN

Written by `scripts/reproduce.sh figure9 {options(data)} --budget {data['budget_s']:g}`: {data['budget_s']:g} s
for each search, one thread. {conditions(data)}

![comparison](figure9.png)

## Learned placement (`--algorithm reinforce`) on 4 K80

The paper ran the placements that ColocRL's authors report; ours are learned with the simulator as the environment.

""" + markdown_table(header, rows(data, "k80", "reinforce", lambda network: "3.4 to 3.8")) + f"""
## OptCNN on {data['devices']} P100

""" + markdown_table(header, rows(data, "p100", "optcnn", lambda network: "same strategy" if network in LINEAR
                                  else "1.2 to 1.6"))
