"""The reproductions of the paper: a found strategy slower than a baseline is reported, and strategies are drawn as they
are. Argument: build folder."""

import pathlib
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts/reproduction"))
sys.dont_write_bytecode = True

from cases import parts_of  # noqa: E402
from common import Settings, assert_no_slower  # noqa: E402
from figure10 import order  # noqa: E402
from figure6 import over_fewer_devices, slower_than_on_fewer  # noqa: E402
from ratios import BEGIN, END, RESULTS, Verdicts, section  # noqa: E402
from strategy_file import by_operator, numbers  # noqa: E402


def test_slower_than_a_baseline(build):
    with tempfile.TemporaryDirectory() as work:
        settings = Settings(build, work, 1, True, 1)
        result = settings.search("alexnet", "p100", 2, "--proposals", 200)
    assert_no_slower([result])
    assert result["throughput"] == 512e6 / result["predicted_us"], result
    result["predicted_us"] = 1.001 * min(result["baselines"].values())
    try:
        assert_no_slower([result])
    except AssertionError as error:
        assert "alexnet on 2 p100: mcmc" in str(error) and "is slower than" in str(error), error
    else:
        raise SystemExit("a strategy slower than a baseline was accepted")


def test_parts():
    down, across, cells = parts_of({"degrees": {"sample": 2, "channel": 3, "height": 2}, "devices": list(range(12))})
    assert (down, across) == (4, 3)
    # Tasks are row-major: task 7 is sample 1, channel 0, height 1.
    assert cells[7] == (3, 0, 7), cells[7]
    assert {(row, column) for row, column, _ in cells} == {(row, column) for row in range(4) for column in range(3)}


def test_configurations_by_operator():
    for text, expected in (("7", [7]), ("0-3", [0, 1, 2, 3]), ("6-0:2", [6, 4, 2, 0]), ("0-1 x2,5", [0, 1, 0, 1, 5]),
                           ("0-1 + 0-8:4 each x2", [0, 0, 4, 4, 8, 8, 1, 1, 5, 5, 9, 9])):
        assert numbers(text) == expected, text
    samples, whole = {"degrees": {"sample": 2}, "devices": [0, 1]}, {"degrees": {}, "devices": [3]}
    strategy = {"graph": {"operators": [{"name": name} for name in ("a1.x", "a2.x", "b", "a3.x", "a4.x")]},
                "configurations": [{"operators": "*", "degrees": {"sample": 2}, "devices": "0-1"},
                                   {"operators": ["a[1-3:2].x", "b"], "degrees": {}, "devices": [3]}]}
    assert by_operator(strategy) == {"a1.x": whole, "a2.x": samples, "b": whole, "a3.x": whole, "a4.x": samples}


def test_verdicts():
    verdicts = Verdicts()
    texts = [verdicts.text(ratio, 1.3, 3.3) for ratio in (1.294, 1.296, 3.304, 3.306, 120.4)]
    assert texts == ["1.29", "**1.30**", "**3.30**", "3.31", "120"], texts
    assert verdicts.sum() == "2 of 5 (1 below, 2 above)", verdicts.sum()


def test_the_page_has_the_ratios_of_the_data():
    text = (RESULTS / "reproduction.md").read_text()
    assert f"{BEGIN}\n{section()}\n{END}" in text, "run scripts/reproduce.sh ratios"


def test_order():
    def entry(algorithm, predicted, measured):
        return {"network": "n", "algorithm": algorithm, "predicted_us": predicted, "measured_us": measured}
    steady = [entry("a", 100, [100, 101, 99]), entry("b", 200, [150, 151, 149]), entry("c", 300, [120, 121, 119])]
    assert order(steady) == (3, 0, ["n: b and c"]), order(steady)
    assert order([entry("a", 100, [100, 150, 50]), entry("b", 50, [101, 160, 40])])[0] == 0


def test_slower_than_on_fewer_devices():
    cells = [{"network": network, "model": model, "devices": devices, "statistics": "local", "predicted_us": time_us}
             for network, model, devices, time_us in [("nmt", "k80", 1, 100), ("nmt", "k80", 2, 50),
                                                      ("nmt", "k80", 4, 60), ("nmt", "k80", 8, 40),
                                                      ("nmt", "p100", 1, 10), ("nmt", "p100", 2, 10),
                                                      ("rnnlm", "k80", 4, 1)]]
    assert over_fewer_devices(cells[0], cells) is None and over_fewer_devices(cells[6], cells) is None
    assert over_fewer_devices(cells[2], cells) == (1.2, 2)
    assert over_fewer_devices(cells[3], cells) == (0.8, 2)
    text = slower_than_on_fewer({"cells": cells})
    assert text.startswith("In 1 of 4 cells") and text.endswith(": NMT on 4 K80 (1.20 times the time on 2).\n"), text


test_slower_than_a_baseline(sys.argv[1])
test_slower_than_on_fewer_devices()
test_configurations_by_operator()
test_parts()
test_order()
test_verdicts()
test_the_page_has_the_ratios_of_the_data()
