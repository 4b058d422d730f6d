"""Section 8.4: the strategies found for Inception-v3 and NMT on 4 P100, drawn after the paper's figures 12 and 13."""

import json

import style
from common import NETWORKS, assert_no_slower, conditions, markdown_table, options, prepare
from strategy_file import by_operator

DEFAULT_BUDGET_S = 40
CASES = ("inception_v3", "nmt")
PAPER = {"inception_v3": "75 % and 12 % less", "nmt": ""}
DOWN = ("sample", "height", "width", "length")  # dimensions that split a box vertically; the others horizontally


def run(settings):
    networks = CASES[1:] if settings.quick else CASES
    prepare(settings, networks, [("p100", 4)])

    def case(network):
        out = settings.work / f"case-{network}.json"
        found = settings.search(network, "p100", 4, "--budget", f"{settings.budget}s", "--threads", 1, out=out)
        baseline = settings.search(network, "p100", 4, "--algorithm", "data-parallel")
        return {"network": network, "mcmc": found, "data-parallel": baseline,
                "configurations": by_operator(json.loads(out.read_text()))}

    cases = settings.each(case, networks)
    assert_no_slower([entry["mcmc"] for entry in cases])
    return {"budget_s": settings.budget, "cases": cases}


def place(name, rows):
    """Row and column of an operator's box: layers by step for unrolled networks ("layer.t3"), else modules
    ("mixed5b.3x3") by order."""
    layer, _, rest = name.partition(".")
    if not rest or rest == "norm":
        layer, rest = "stem and head", ""
    row = rows.setdefault(layer, [])
    row.append(name)
    return list(rows).index(layer), int(rest[1:]) if rest[:1] == "t" and rest[1:].isdigit() else len(row) - 1


def parts_of(configuration):
    """Vertical and horizontal number of parts, and for each part (row, column, device); the last dimension varies
    fastest."""
    degrees = configuration["degrees"]
    down, across = 1, 1
    for dimension, degree in degrees.items():
        down, across = (down * degree, across) if dimension in DOWN else (down, across * degree)
    cells = []
    for part, device in enumerate(configuration["devices"]):
        index, row, column, row_scale, column_scale = part, 0, 0, 1, 1
        for dimension, degree in reversed(degrees.items()):
            index, digit = divmod(index, degree)
            if dimension in DOWN:
                row, row_scale = row + digit * row_scale, row_scale * degree
            else:
                column, column_scale = column + digit * column_scale, column_scale * degree
        cells.append((row, column, device))
    return down, across, cells


def draw(data, pyplot):
    layouts = []
    for entry in data["cases"]:
        rows = {}
        layouts.append((entry, {name: place(name, rows) for name in entry["configurations"]}, rows))
    heights = [len(rows) for _, _, rows in layouts]
    figure, axes = pyplot.subplots(len(layouts), 1, figsize=(style.WIDTH, 1.6 + 0.42 * sum(heights)),
                                   gridspec_kw={"height_ratios": heights}, squeeze=False)
    for (entry, places, rows), axis in zip(layouts, axes[:, 0]):
        for name, (row, column) in places.items():
            down, across, cells = parts_of(entry["configurations"][name])
            width, height = 0.86 / across, 0.8 / down
            for y, x, device in cells:
                axis.add_patch(pyplot.Rectangle((column + x * width, row + y * height), width, height,
                                                facecolor=style.COLOURS[device], edgecolor="white", linewidth=0.4))
        axis.set_xlim(-0.2, 1 + max(column for _, column in places.values()))
        axis.set_ylim(len(rows), -0.1)
        axis.set_yticks([row + 0.4 for row in range(len(rows))], list(rows))
        axis.set_xticks([])
        axis.grid(visible=False)
        boxes = "a column per step" if entry["network"] == "nmt" else "a box per operator, a row per module"
        axis.set_title(f"{NETWORKS[entry['network']]} on 4 P100: {boxes}")
    devices = [pyplot.Rectangle((0, 0), 1, 1, facecolor=colour) for colour in style.COLOURS[:4]]
    figure.legend(devices, [f"device {device}" for device in range(4)], loc="upper center", ncols=4,
                  title="Within a box: rows are parts by sample, height and width; columns are parts by channel.")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.7 / figure.get_figheight()))
    return figure


def layer_rows(entry):
    """One line for each layer: which degrees its operators have, the most frequent first."""
    rows = {}
    for name in entry["configurations"]:
        place(name, rows)
    for layer, names in rows.items():
        counts = {}
        for name in names:
            configuration = entry["configurations"][name]
            split = ", ".join(f"{dimension} {degree}" for dimension, degree in configuration["degrees"].items()
                              if degree > 1) or "whole"
            devices = len(set(configuration["devices"]))
            text = f"{split} on {devices} device" + ("s" if devices > 1 else "")
            counts[text] = counts.get(text, 0) + 1
        ranked = sorted(counts.items(), key=lambda item: -item[1])
        text = "; ".join(f"{count} × {what}"
                         for what, count in ranked[:4]) + (f"; {len(ranked) - 4} more kinds" if len(ranked) > 4 else "")
        yield [NETWORKS[entry["network"]], layer, len(names), text]


def table(data):
    rows = []
    for entry in data["cases"]:
        found, baseline = entry["mcmc"], entry["data-parallel"]
        less = [f"{100 * (1 - found[key] / baseline[key]):.1f} %" for key in ("synchronization_bytes", "predicted_us")]
        rows.append([NETWORKS[entry["network"]], f"{baseline['synchronization_bytes'] / 1e6:.1f}",
                     f"{found['synchronization_bytes'] / 1e6:.1f}", less[0],
                     f"{found['transfer_bytes'] / 1e6:.1f}", f"{baseline['predicted_us'] / 1e3:.3f}",
                     f"{found['predicted_us'] / 1e3:.3f}", less[1],
                     f"{found['lower_bound_us'] / 1e3:.3f}", PAPER[entry["network"]]])
    return f"""# Cases: Inception-v3 and NMT on 4 P100

Written by `scripts/reproduce.sh cases {options(data)} --budget {data['budget_s']:g}`: {data['budget_s']:g} s of
mcmc, one thread. {conditions(data)}

![strategies](cases.png)

""" + markdown_table(["network", "data-parallel: synchronization MB", "mcmc: synchronization MB", "less",
                      "mcmc: transfers MB", "data-parallel ms", "mcmc ms", "less", "lower bound ms",
                      "paper: synchronization and time"], rows) + "\n" + markdown_table(
                          ["network", "layer", "operators", "configurations"],
                          [row for entry in data["cases"] for row in layer_rows(entry)])
