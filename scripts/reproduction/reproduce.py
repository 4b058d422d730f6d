"""Command line of scripts/reproduce.sh: runs one experiment, writes its JSON, figure and table into docs/results/, and
prints the table."""

import argparse
import importlib
import itertools
import json
import re
import sys
import tempfile

import style
from common import REPOSITORY, RESULTS, Settings

sys.path.insert(0, str(REPOSITORY / "scripts"))
from wrap_markdown import wrapped  # noqa: E402

BATCHES = {"device": "64 samples per GPU", "total": "64 samples in total"}
# What a reader knows after each page.
CLAIMS = {
    "figure6": "how much faster than data parallelism and the expert's plan six networks are predicted to run "
               "on up to 64 devices. Nothing ran on a GPU.",
    "figure7": "the predicted time, bytes and compute time of NMT on 64 K80. Nothing ran on a GPU.",
    "figure9": "how the found plans compare with learned placement and OptCNN, as predicted. Nothing ran on a GPU.",
    "figure10": "how well predictions order the plans of six networks, measured on two CPU ranks.",
    "figure11": "how fast each kind of search finds its best plan. Times of plans are predictions; nothing ran "
                "on a GPU.",
    "table5": "how many proposals delta and full simulation make per second. Nothing ran on a GPU.",
    "cases": "which plans are found for two networks on 4 P100, and what they are predicted to gain. Nothing "
             "ran on a GPU.",
    "optimal": "which optima are proven, and whether found plans are locally optimal, by predicted times. "
               "Nothing ran on a GPU.",
}
DIFFERENCE = """The experiment was done several times. The paper's batch size can be read in two ways: 64 samples per
GPU (as published at MLSys) or 64 in total (as on arXiv). With the former, gradients are mostly exchanged during
computation. With the latter, computation shrinks with the number of devices and the exchange of gradients does not, so
that more can be gained. The paper does not say how gradients are synchronized: by all-reduce, or by a parameter server
as in FlexFlow's published simulator. A parameter server sends all gradients through one device, so that data
parallelism is slower and more can be gained."""
EXPERIMENTS = ("table5", "figure6", "figure7", "figure9", "figure10", "figure11", "optimal", "cases", "ratios")


def main():
    parser = argparse.ArgumentParser(prog="scripts/reproduce.sh",
                                     description="Redoes a table or figure of the FlexFlow paper into docs/results/.")
    parser.add_argument("experiment", choices=EXPERIMENTS,
                        help="ratios: from the JSON of the others, in docs/results/reproduction.md")
    parser.add_argument("--quick", action="store_true",
                        help="few and small cells, a tenth of the time; written as NAME-quick")
    parser.add_argument("--budget", type=float, metavar="SECONDS",
                        help="search time of a cell; default: the experiment's own")
    parser.add_argument("--batch", choices=("device", "total"), default="device",
                        help="64 samples (AlexNet 256) for each device, or in all: then written as NAME-total; figures "
                        "6, 7 and 9, cases")
    parser.add_argument("--synchronization", choices=("all-reduce", "parameter-server"), default="all-reduce",
                        help="ffsearch's; with parameter-server written as NAME-parameter-server; "
                        "figures 6, 7 and 9, cases, table5")
    parser.add_argument("--workers", type=int, default=2, help="searches at the same time")
    parser.add_argument("--build", default=REPOSITORY / "build/release", help="folder of ffsearch and ffexec")
    parser.add_argument("--redraw", action="store_true", help="figure and table anew from the JSON that is there")
    arguments = parser.parse_args()
    if arguments.experiment == "ratios":
        importlib.import_module("ratios").write()
        return
    try:
        import matplotlib
    except ImportError:
        sys.exit("reproduce.sh: no matplotlib; run scripts/install_dependencies.sh --plots")
    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot
    experiment = importlib.import_module(arguments.experiment)
    name = name_of(arguments.experiment, arguments.batch, arguments.synchronization, arguments.quick)
    path = RESULTS / f"{name}.json"
    if arguments.redraw:
        if not path.exists():
            sys.exit(f"reproduce.sh: --redraw: there is no {path}")
        data = json.loads(path.read_text())
        data.setdefault("batch", arguments.batch)
        data.setdefault("synchronization", arguments.synchronization)
    else:
        budget = arguments.budget or experiment.DEFAULT_BUDGET_S * (0.1 if arguments.quick else 1)
        with tempfile.TemporaryDirectory() as work:
            try:
                data = experiment.run(Settings(arguments.build, work, budget, arguments.quick, arguments.workers,
                                               arguments.batch, arguments.synchronization))
            except (AssertionError, RuntimeError, OSError) as error:
                sys.exit(f"reproduce.sh: {arguments.experiment}: {error}")
        data["batch"], data["synchronization"] = arguments.batch, arguments.synchronization
        path.write_text(json.dumps(data, indent=1) + "\n")
    drawn = hasattr(experiment, "draw")
    if drawn:
        style.apply(pyplot)
        experiment.draw(data, pyplot).savefig(RESULTS / f"{name}.png", metadata={"Software": None})
    page = RESULTS / f"{arguments.experiment}{'-quick' if arguments.quick else ''}.md"
    page.write_text(wrapped(page_of(experiment, arguments.experiment, arguments.quick)))
    print(f"written: {path.name}, {page.name}" + (f", {name}.png" if drawn else ""))


def page_of(experiment, title, quick):
    """The page of an experiment: one section for each variant whose data is there."""
    sections = []
    for batch, synchronization in itertools.product(("device", "total"), ("all-reduce", "parameter-server")):
        name = name_of(title, batch, synchronization, quick)
        path = RESULTS / f"{name}.json"
        if path.exists():
            data = {"batch": batch, "synchronization": synchronization, **json.loads(path.read_text())}
            text = experiment.table(data).replace(f"({title}.png", f"({name}.png")
            heading, text = text.split("\n", 1)
            sections.append((f"{BATCHES[batch]}, {synchronization}", text.strip("\n")))
    introduction = (f"Results, for readers of the FlexFlow paper (MLSys 2019). After reading you know {CLAIMS[title]} "
                    "[Conditions of all these pages](reproduction.md).")
    if len(sections) == 1:
        return f"{heading}\n\n{introduction}\n\n{sections[0][1]}\n"
    links = "\n".join(f"- [{name}](#{re.sub('[^a-z0-9 -]', '', name.lower()).replace(' ', '-')})"
                      for name, _ in sections)
    body = "\n\n".join(f"## {name}\n\n" + re.sub("^## ", "### ", text, flags=re.MULTILINE)
                       for name, text in sections)
    return f"{heading}\n\n{introduction}\n\n{DIFFERENCE}\n\n{links}\n\n{body}\n"


def name_of(experiment, batch, synchronization, quick):
    return (experiment + ("-total" if batch == "total" else "")
            + ("-parameter-server" if synchronization == "parameter-server" else "") + ("-quick" if quick else ""))


if __name__ == "__main__":
    main()
