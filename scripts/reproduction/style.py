"""How all figures look. 100 pixels an inch and at most 9 inches, so that a page shows them at their own size; text of
11 points, at least 9.5. Colours differ in lightness too, and lines have markers, so that grey prints can be read."""

DPI = 100
WIDTH = 9  # inches

# Lightness 16, 44, 60, 76 and 85 of 100.
COLOURS = ("#1b2a49", "#c0392b", "#3d9bd1", "#f2b134", "#cfd8c4")
MARKERS = "osD^vX"
LINES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
HATCHES = ("", "//", "..", "xx", "\\\\")


def apply(pyplot):
    pyplot.rcParams.update({
        "figure.dpi": DPI, "savefig.dpi": DPI, "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11,
        "xtick.labelsize": 10, "ytick.labelsize": 10, "legend.fontsize": 10, "legend.frameon": False,
        "axes.prop_cycle": pyplot.cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e4e4e4", "grid.linewidth": 0.8,
        "lines.linewidth": 1.8, "lines.markersize": 6, "hatch.linewidth": 0.6})


def legend_above(figure, axis, columns, title=None):
    """One legend for all of a figure, above it."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=columns, title=title)


def bars(axis, places, values, number, label, width, text=None):
    """Bars of one series, with hatches, and values above them."""
    drawn = axis.bar(places, values, width, label=label, color=COLOURS[number], edgecolor="white",
                     hatch=HATCHES[number])
    if text:
        axis.bar_label(drawn, [text(value) for value in values], padding=2, fontsize=9.5)
    return drawn
