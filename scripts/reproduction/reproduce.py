"""Command line of scripts/reproduce.sh: runs one experiment, writes its JSON, figure and table into docs/results/, and
prints the table."""

import argparse
import importlib
import json
import sys
import tempfile

from common import REPOSITORY, RESULTS, Settings

EXPERIMENTS = ("table5", "figure6", "figure7", "figure9", "figure10", "figure11", "optimal", "cases", "ratios")


def main():
    parser = argparse.ArgumentParser(prog="scripts/reproduce.sh",
                                     description="Redoes a table or figure of the FlexFlow paper into docs/results/.")
    parser.add_argument("experiment", choices=EXPERIMENTS,
                        help="ratios: from the JSON of the others, in docs/results/reproduction.md")
    parser.add_argument("--quick", action="store_true",
                        help="few and small cells, a tenth of the time; written beside, as NAME-quick")
    parser.add_argument("--budget", type=float, metavar="SECONDS",
                        help="search time of a cell; default: the experiment's own")
    parser.add_argument("--batch", choices=("device", "total"), default="device",
                        help="64 samples (AlexNet 256) for each device, or in all: then written as NAME-total; figures "
                        "6, 7 and 9, cases")
    parser.add_argument("--synchronization", choices=("all-reduce", "parameter-server"), default="all-reduce",
                        help="ffsearch's; with parameter-server written as NAME-owner; figures 6, 7 and 9, cases, "
                        "table5")
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
    name = (arguments.experiment + ("-total" if arguments.batch == "total" else "")
            + ("-owner" if arguments.synchronization == "parameter-server" else "")
            + ("-quick" if arguments.quick else ""))
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
    text = experiment.table(data).replace(f"({arguments.experiment}.png", f"({name}.png")
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
    figure = experiment.draw(data, pyplot)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=70)
    print(f"written: {path.with_suffix('')}.json, .md, .png")


if __name__ == "__main__":
    main()
