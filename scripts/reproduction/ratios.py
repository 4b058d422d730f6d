"""Cell by cell: does the paper's ratio come out, with all-reduce and parameter server, for both readings of the batch?
Reads the JSON of the other experiments and writes a section of docs/results/reproduction.md."""

import itertools
import json
import re
import sys

from common import NETWORKS, REPOSITORY, RESULTS, markdown_table
from figure6 import CLUSTERS, speedup
from figure7 import measures
from figure9 import LINEAR, pairs
from table5 import DEVICES, PAPER_DELTA_S, PAPER_FULL_S, of

sys.path.insert(0, str(REPOSITORY / "scripts"))
from wrap_markdown import wrapped  # noqa: E402

BEGIN, END = "<!-- begin: scripts/reproduce.sh ratios -->\n", "<!-- end -->\n"
SETTINGS = {(batch, synchronization): f"{synchronization}, 64 {text}"
            for (batch, text), synchronization in itertools.product((("device", "per GPU"), ("total", "in total")),
                                                                    ("all-reduce", "parameter-server"))}
SPEEDUP = (1.3, 3.3)  # over the baselines, figure 6
SAME = (0.95, 1.1)  # about 1: ResNet-101 in figure 6, the linear networks in figure 9


def load(experiment, batch="device", synchronization="all-reduce"):
    name = (experiment + ("-total" if batch == "total" else "")
            + ("-parameter-server" if synchronization == "parameter-server" else ""))
    return json.loads((RESULTS / f"{name}.json").read_text())


class Verdicts:
    """Ratios as text, in bold where they are the paper's, and how many of them are."""

    def __init__(self):
        self.inside = self.below = self.above = 0

    def text(self, ratio, low, high):
        rounded = round(ratio, 2)
        inside = low <= rounded <= high
        self.inside += inside
        self.below += rounded < low
        self.above += rounded > high
        text = f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
        return f"**{text}**" if inside else text

    def sum(self):
        return f"{self.inside} of {self.inside + self.below + self.above} ({self.below} below, {self.above} above)"


def figure6():
    clusters = [(model, devices) for model, sizes in CLUSTERS.items() for devices in sizes if devices > 1]
    text = ""
    for setting, name in SETTINGS.items():
        verdicts, rows = Verdicts(), []
        cells = {(cell["network"], cell["model"], cell["devices"]): cell for cell in load("figure6", *setting)["cells"]
                 if cell["statistics"] == "local"}
        for network, title in NETWORKS.items():
            low, high = SAME if network == "resnet101" else SPEEDUP
            found = [cells[network, *cluster] for cluster in clusters]
            rows.append([title, *(verdicts.text(min(speedup(cell, "data-parallel"), speedup(cell, "expert")), low, high)
                                  for cell in found)])
        text += f"Figure 6, {name}: {verdicts.sum()} are the paper's.\n\n"
        text += markdown_table(["network", *(f"{devices} {model.upper()}" for model, devices in clusters)], rows) + "\n"
    return text


def by_setting(title, ratios):
    """One line of a table: `ratios` gives (ratio, low, high), in all settings."""
    verdicts = Verdicts()
    return [title, *(verdicts.text(*ratios(*setting)) for setting in SETTINGS)]


def figure7():
    def ratio(algorithm, measure, low, high):
        def of_setting(*setting):
            found = load("figure7", *setting)["algorithms"]
            one, best = measures(found[algorithm])[measure], measures(found["mcmc"])[measure]
            return one / best, low, high
        return of_setting

    wanted = [(0, "time", "data-parallel", 1.7, 2.4, "1.7 to 2.4"), (0, "time", "expert", 1.7, 2.4, "1.7 to 2.4"),
              (1, "bytes", "data-parallel", 2, 5.5, "2 to 5.5"), (1, "bytes", "expert", 2, 5.5, "2 to 5.5"),
              (2, "compute time", "data-parallel", 1.15, 1.35, "1.25"), (2, "compute time", "expert", *SAME, "about 1")]
    return [by_setting(f"7: {name}, {baseline} over mcmc ({text})", ratio(baseline, measure, low, high))
            for measure, name, baseline, low, high, text in wanted]


def figure9():
    def ratio(network, model, rival, low, high):
        def of_setting(*setting):
            for name, other, mcmc in pairs(load("figure9", *setting), model, rival):
                if name == network:
                    return mcmc["throughput"] / other["throughput"], low, high
            raise KeyError(network)
        return of_setting

    rows = [by_setting(f"9: {NETWORKS[network]}, over learned placement (3.4 to 3.8)",
                       ratio(network, "k80", "reinforce", 3.4, 3.8)) for network in ("inception_v3", "nmt")]
    for network, title in NETWORKS.items():
        low, high, text = (*SAME, "the same") if network in LINEAR else (1.2, 1.6, "1.2 to 1.6")
        rows.append(by_setting(f"9: {title}, over OptCNN ({text})", ratio(network, "p100", "optcnn", low, high)))
    return rows


def cases():
    def less(network, key, low, high):
        def of_setting(*setting):
            entry = next(case for case in load("cases", *setting)["cases"] if case["network"] == network)
            return 100 * (1 - entry["mcmc"][key] / entry["data-parallel"][key]), low, high
        return of_setting

    return [by_setting("cases: Inception-v3, synchronization less than data parallelism, % (75)",
                       less("inception_v3", "synchronization_bytes", 70, 80)),
            by_setting("cases: Inception-v3, time less, % (12)", less("inception_v3", "predicted_us", 10, 14))]


def table5():
    header = ["Table 5: proposals per second, delta over full",
              *(f"{NETWORKS[network]}, {devices}" for devices in DEVICES for network in NETWORKS)]
    rows = [["paper, search time", *(f"{PAPER_FULL_S[devices][network] / PAPER_DELTA_S[devices][network]:.1f}"
                                     for devices in DEVICES for network in NETWORKS)]]
    for synchronization in ("all-reduce", "parameter-server"):
        data = load("table5", "device", synchronization)
        rows.append([synchronization])
        for devices, network in itertools.product(DEVICES, NETWORKS):
            delta, full = of(data, network, devices, "delta"), of(data, network, devices, "full")
            rows[-1].append(f"{delta['proposals_per_s'] / full['proposals_per_s']:.1f}")
    return markdown_table(header, rows)


def section():
    return wrapped("Found strategy over the better of data parallelism and expert; **bold** where it is the paper's, "
                   "1.3 to 3.3, for ResNet-101 about 1 (0.95 to 1.1).\n\n" + figure6()
            + "The table has the other figures; cases are the paper's if they are within 5 and 2 points.\n\n"
            + markdown_table(["", *SETTINGS.values()], figure7() + figure9() + cases()) + "\n" + table5())


def write():
    path = RESULTS / "reproduction.md"
    text = path.read_text()
    found = re.search(re.escape(BEGIN) + ".*?" + re.escape(END), text, re.S)
    if not found:
        raise RuntimeError(f"{path} has no section between {BEGIN.strip()} and {END.strip()}")
    path.write_text(text[:found.start()] + BEGIN + "\n" + section() + "\n" + END + text[found.end():])
    print(f"written: {path}")
