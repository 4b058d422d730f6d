"""Section 8.3: proven optima of small networks, mcmc against them, and local optimality of what mcmc returns on the six
networks."""

from common import NETWORKS, REPOSITORY, assert_no_slower, markdown_table, prepare

DEFAULT_BUDGET_S = 60
SMALL = {"lenet": ("LeNet", "0.8 h"), "rnnlm-2step": ("RNNLM, 2 steps", "18 h")}
DEVICES = (2, 4, 8)


def small(settings, network):
    """Exhaustive search on 4 P100, and three seeds of mcmc with one second each: with its usual starts, and from random
    strategies alone."""
    topology = settings.topology("p100", 4)
    problem = ("--graph", REPOSITORY / f"graphs/{network}.json", "--topo", topology)
    proofs = {assignments: settings.ffsearch(*problem, "--algorithm", "exhaustive", "--assignments", assignments,
                                             "--budget", f"{settings.budget}s",
                                             "--seed", 1, "--out", settings.work / f"{network}-{assignments}.json")
              for assignments in ("consecutive", "all")}
    searches = {starts: [settings.ffsearch(*problem, "--budget", "1s", "--seed", seed, "--threads", 1, *options,
                                           "--schedule", "fifo",
                                           "--out", settings.work / f"{network}-mcmc.json")
                         for seed in (1, 2, 3)]
                for starts, options in (("usual starts", ()), ("random starts", ("--init", "random")))}
    return {"network": network, "proofs": proofs, "mcmc": searches}


def run(settings):
    networks = ["alexnet", "rnntc"] if settings.quick else list(NETWORKS)
    devices = DEVICES[:1] if settings.quick else DEVICES
    prepare(settings, networks, [("p100", count) for count in (*devices, 4)])
    proven = settings.each(lambda network: small(settings, network), list(SMALL))
    share_s = settings.budget / 2
    cells = [(network, count) for count in devices for network in networks]

    def check(cell):
        result = settings.search(cell[0], "p100", cell[1], "--budget", f"{settings.budget / 20}s", "--threads", 1,
                                 "--check-local", interrupt_after=share_s)
        return result

    local = settings.each(check, cells)
    assert_no_slower(local)
    return {"budget_s": settings.budget, "share_s": share_s, "small": proven, "local": local}


def small_rows(data):
    for entry in data["small"]:
        name, paper = SMALL[entry["network"]]
        for assignments, proof in entry["proofs"].items():
            state = proof["exhaustive"]
            outcome = "proven optimum" if state["proven"] else (
                f"not proven: at least {state['proven_lower_bound_us']:.1f} us, gap {100 * state['gap']:.1f} %")
            yield [name, f"{assignments}: 10^{state['log10_strategies']:.1f}", f"{proof['predicted_us']:.3f}", outcome,
                   f"{proof['total_s']:.1f}", paper]


def mcmc_rows(data):
    for entry in data["small"]:
        best = entry["proofs"]["all"]["predicted_us"]
        for starts, results in entry["mcmc"].items():
            worst = max(result["predicted_us"] for result in results)
            yield [SMALL[entry["network"]][0], starts, *(f"{result['predicted_us']:.3f}" for result in results),
                   f"{100 * (worst / best - 1):.2f} %", f"{max(result['best_found_s'] for result in results):.2f}"]


def local_rows(data):
    for result in data["local"]:
        state = result.get("local_optimum")
        if state is None:
            outcome = ["not begun within its share", "", "", ""]
        else:
            checked = f": {state['operators']} operators done" if "operators" in state else ""
            outcome = ["yes" if state["proven"] else "not finished" + checked, ("" if state["proven"] else "at least ")
                       + str(state["neighbours"]), state["evaluated"], state["improvements"]]
        yield [NETWORKS[result["network"]], result["devices"], f"{result['predicted_us'] / 1e3:.3f}", *outcome,
               f"{result['total_s']:.1f}"]


def table(data):
    return f"""# Optima: proven, and local

Written by `scripts/reproduce.sh optimal --budget {data['budget_s']:g}`. Costs are analytic for P100: nothing ran on
one. Batch normalization with the statistics of each part.

## Proven on 4 P100

Exhaustive search with {data['budget_s']:g} s. The space: every operator's degrees divide the 4 devices, with a product
of at most 4; its parts lie on any devices (all), or part p on device first + p (consecutive). Symmetric strategies are
counted each.

""" + markdown_table(["network", "space", "best us", "outcome", "seconds", "paper's time"], small_rows(data)) + """
mcmc with 1 s on one thread. Its usual starts are data parallelism and the best of the heuristic baselines; LeNet's
optimum is one device, which is among them, so that only random starts say something about the search.

""" + markdown_table(["network", "starts", "seed 1, us", "seed 2", "seed 3", "worst over exhaustive's best",
                      "found after at most s"], mcmc_rows(data)) + f"""
## Local optima

mcmc with {data['budget_s'] / 20:g} s, then `--check-local`: every strategy that differs in one operator (see
[algorithms](../algorithms.md) for which assignments). A cell is interrupted after {data['share_s']:g} s: then its
strategy stands, but not the proof ("not finished"). An improvement is a step that the check itself took: 0 means that
the search's own result was locally optimal. The paper reports local optimality for all six networks on 2, 4 and 8
devices.

""" + markdown_table(["network", "P100", "ms", "locally optimal", "neighbours", "evaluated", "improvements", "seconds"],
                     local_rows(data))
