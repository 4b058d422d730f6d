#!/usr/bin/python3
"""ffsearch explain and diff, and the HTML report: what they say is checked with fresh simulations, an XML parser, and a
browser where one is installed. Usage: explain_test.py BUILD_DIR"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
PROBLEMS = {"alexnet": "p100-4x4", "rnnlm-2step": "k80-2x4"}
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
SECTIONS = ["The plan", "The critical path", "Timeline", "What each device does", "Memory", "Communication",
            "Effect of each decision", "Why not another plan?", "Where the numbers come from"]


def ffsearch(*words):
    return subprocess.run([str(BUILD / "ffsearch"), *map(str, words)], capture_output=True, text=True, timeout=300,
                          check=False)


class Explain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)
        for graph, topology in PROBLEMS.items():
            done = ffsearch("--graph", ROOT / f"graphs/{graph}.json", "--topo", ROOT / f"topologies/{topology}.json",
                            "--cost", "analytic", "--proposals", "1000", "--out", cls.work / f"{graph}.json", "--html",
                            cls.work / f"{graph}.html")
            assert done.returncode == 0, done.stderr
        cls.plain = cls.work / "plain.json"
        done = ffsearch("--graph", ROOT / "graphs/alexnet.json", "--topo", ROOT / "topologies/p100-4x4.json", "--cost",
                        "analytic", "--algorithm", "data-parallel", "--out", cls.plain)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def json_of(self, *words):
        done = ffsearch(*words, "--cost", "analytic", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def simulated(self, strategy):
        path = self.work / "changed.json"
        path.write_text(json.dumps(strategy))
        return self.json_of("simulate", "--strategy", path)["predicted_us"]

    def test_what_undoing_costs_is_what_simulate_says(self):
        for graph in PROBLEMS:
            with self.subTest(graph):
                self.check_what_undoing_costs(self.work / f"{graph}.json", 6)

    def test_what_undoing_costs_in_large_plans(self):
        for graph, topology, batch, proposals in (("nmt", "k80-16x4", 64, 100), ("gpt-1.7b", "dgx-a100-2", 1, 50)):
            with self.subTest(graph):
                path = self.work / f"large-{graph}.json"
                done = ffsearch("--graph", ROOT / f"graphs/{graph}.json", "--topo",
                                ROOT / f"topologies/{topology}.json", "--batch-per-device", batch, "--cost",
                                "analytic", "--proposals", proposals, "--init", "random", "--chains", 1, "--out", path)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.check_what_undoing_costs(path, 3)

    def check_what_undoing_costs(self, path, count):
        result = self.json_of("explain", "--strategy", path)
        strategy = json.loads(path.read_text())
        self.assertGreater(len(result["decisions"]), 0)
        changes = [decision["change_us"] for decision in result["decisions"]]
        self.assertEqual(changes, sorted(changes, reverse=True))
        for decision in result["decisions"][:count]:
            rest = expand(strategy, result_operators(strategy))
            for name in decision["operators"]:
                rest[name] = decision["data_parallel"]
            changed = {**strategy, "configurations": rest}
            changed.pop("issue_order", None)
            predicted = self.simulated(changed)
            self.assertAlmostEqual(predicted, decision["predicted_us"], places=3)
            self.assertAlmostEqual(predicted - result["predicted_fifo_us"], decision["change_us"], places=3)

    def test_the_pieces_of_the_critical_path_add_up(self):
        result = self.json_of("explain", "--strategy", self.work / "alexnet.json")
        pieces = result["critical_path"]["pieces"]
        self.assertAlmostEqual(sum(piece["us"] for piece in pieces), result["predicted_us"], places=3)
        begin = 0
        for piece in pieces:
            self.assertAlmostEqual(piece["begin_us"], begin, places=3)
            begin += piece["us"]

    def test_slower_shared_memory_is_not_faster(self):
        """There is no way around the copies of ranks on one host, whatever else joins them."""
        for nodes in ((), ("--nodes", 2, "--network-gb-per-s", 1)):
            with self.subTest(nodes=nodes):
                topology, plan = self.work / "ranks.json", self.work / "ranks-plan.json"
                done = ffsearch("topology", "--cpu-ranks", 2, *nodes, "--out", topology)
                self.assertEqual(done.returncode, 0, done.stderr)
                done = ffsearch("--graph", ROOT / "graphs/alexnet.json", "--topo", topology, "--batch-per-device", 4,
                                "--cost", "analytic", "--algorithm", "data-parallel", "--out", plan)
                self.assertEqual(done.returncode, 0, done.stderr)
                kind = self.json_of("explain", "--strategy", plan, "--what-if", "link cpu-cpu bandwidth x0.1")
                self.assertGreater(kind["what_if"][0]["change_us"], 0)

    def test_what_if(self):
        result = self.json_of("explain", "--strategy", self.plain, "--what-if", "link network bandwidth x2",
                              "--what-if", "memory x2", "--what-if", "batch 128", "--what-if", "device 3 x0.5")
        self.assertEqual([answer["what_if"] for answer in result["what_if"]],
                         ["link network bandwidth x2", "memory x2", "batch 128", "device 3 x0.5"])
        faster, memory, batch, slower = [answer["change_us"] for answer in result["what_if"]]
        self.assertTrue(faster < 0 and memory == 0 and batch < 0 and slower > 0)
        done = ffsearch("explain", "--strategy", self.plain, "--what-if", "a faster machine")
        self.assertEqual(done.returncode, 1)
        self.assertIn('ffsearch: --what-if "a faster machine": not understood; the forms are:\n  link KIND',
                      done.stderr)

    def test_edit(self):
        edited = self.work / "edited.json"
        before = self.json_of("simulate", "--strategy", self.work / "alexnet.json")["predicted_us"]
        result = self.json_of("edit", "--strategy", self.work / "alexnet.json", "fc*: sample 4 x channel 2 on 0-7",
                              "fc[7-8]: channel 4 on devices 12-15", "--out", edited)
        self.assertAlmostEqual(result["before_us"], before, places=3)
        self.assertAlmostEqual(result["change_us"], result["predicted_us"] - before, places=3)
        self.assertEqual(result["issue_order"], "derived")
        after = {name: change["after"] for change in result["changes"] for name in change["operators"]}
        whole = expand(json.loads(edited.read_text()), result_operators(json.loads(edited.read_text())))
        for name, split in (("fc6", {"sample": 4, "channel": 2}), ("fc7", {"channel": 4}), ("fc8", {"channel": 4})):
            self.assertEqual(after[name]["degrees"], split)
            self.assertEqual(whole[name]["degrees"], split)
        self.assertAlmostEqual(self.json_of("simulate", "--strategy", edited)["predicted_us"], result["predicted_us"],
                               places=3)
        # An edit that changes nothing keeps the order of the file.
        again = self.json_of("edit", "--strategy", edited, "fc6: sample 4 x channel 2 on 0-7")
        self.assertEqual((again["changes"], again["change_us"]), ([], 0))
        done = ffsearch("edit", "--strategy", edited, "fc6: whole on 3", "--cost", "analytic")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\n  fc6 +sample 4 x channel 2 on devices 0-7  ->  whole on device 3\n"
                                      r"predicted iteration  .* before, .* after .*\(.* %\)\n")
        for edit, message in (("fc6: sampel 4 on 0-3", "fc6 (linear); did you mean \"sample\"?"),
                              ("fc6: sample 4 on 0-2", "has 3 devices, expected 4: one for each task of fc6"),
                              ("fc91: whole on 0", "unknown operator \"fc91\""), ("fc6", "expected OPERATORS: SPLIT")):
            done = ffsearch("edit", "--strategy", edited, edit, "--cost", "analytic", "--out", self.work / "none.json")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f'ffsearch: edit "{edit}": ', done.stderr)
            self.assertIn(message, done.stderr)
            self.assertFalse((self.work / "none.json").exists())
        done = ffsearch("edit", "--strategy", edited)
        self.assertEqual(done.returncode, 2)

    def test_the_report_of_many_devices_has_equal_ones_in_one_row(self):
        page = self.work / "many.html"
        done = ffsearch("--graph", ROOT / "graphs/alexnet.json", "--topo", ROOT / "topologies/p100-16x4.json",
                        "--cost", "analytic", "--algorithm", "data-parallel", "--out", self.work / "many.json",
                        "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = page.read_text()
        section = text[text.index("What each device does"):text.index("<h2>Memory")]
        self.assertIn(" devices: ", section)
        self.assertIn("are one row", section)
        rows = [int(count) for count in re.findall(r">([0-9]+) devices: ", section)]
        self.assertLess(len(rows), 16)

    def test_tf32_changes_analytic_costs_or_is_refused(self):
        problem = ("--graph", ROOT / "graphs/alexnet.json", "--algorithm", "data-parallel", "--cost", "analytic",
                   "--out", self.work / "tf32.json")
        times = {}
        for precision in ("fp32", "tf32"):
            done = ffsearch(*problem, "--topo", ROOT / "topologies/dgx-a100-1.json", "--precision", precision, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            times[precision] = json.loads(done.stdout)["compute_us"]
        self.assertLess(times["tf32"], times["fp32"])
        done = ffsearch(*problem, "--topo", ROOT / "topologies/p100-1x4.json", "--precision", "tf32")
        self.assertEqual(done.returncode, 1)
        self.assertIn('--precision tf32: device model "p100" has no "peak_tf32_tflops"', done.stderr)

    def test_an_issue_order_that_does_not_fit_is_said(self):
        strategy = json.loads((self.work / "alexnet.json").read_text())
        self.assertNotEqual(strategy.get("issue_order", []), [])
        rest = expand(strategy, result_operators(strategy))
        rest["fc6"] = {"degrees": {}, "devices": [0]}
        odd = self.work / "odd-order.json"
        odd.write_text(json.dumps({**strategy, "configurations": rest}))
        note = "the issue order does not fit the configurations; using the default order\n"
        for words in (("simulate", "--strategy", odd), ("explain", "--strategy", odd), ("diff", self.plain, odd)):
            done = ffsearch(*words, "--cost", "analytic")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, f"ffsearch: note: {odd}: {note}")
        for words in (("simulate", "--strategy", self.work / "alexnet.json"),
                      ("explain", "--strategy", self.work / "alexnet.json")):
            self.assertEqual(ffsearch(*words, "--cost", "analytic").stderr, "")

    def test_simulate_keeps_how_a_strategy_was_found(self):
        found = json.loads((self.work / "alexnet.json").read_text())["provenance"]
        again = self.work / "again.json"
        keys = ("algorithm", "note", "seed", "proposals", "chain_hash")
        done = ffsearch("simulate", "--strategy", self.work / "alexnet.json", "--cost", "analytic", "--out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = json.loads(again.read_text())["provenance"]
        self.assertGreater(written["proposals"], 0)
        self.assertEqual([written[key] for key in keys], [found[key] for key in keys])
        done = ffsearch("simulate", "--strategy", again, "--cost", "analytic", "--sharding", "optimizer", "--out",
                        again)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = json.loads(again.read_text())["provenance"]
        self.assertEqual(written["note"], found["note"] + "; then simulated with --sharding optimizer")
        # By hand: what the search did says nothing about these configurations.
        strategy = json.loads((self.work / "alexnet.json").read_text())
        rest = expand(strategy, result_operators(strategy))
        rest["fc6"] = {"degrees": {}, "devices": [0]}
        strategy["provenance"]["ticket"] = "A-7"
        again.write_text(json.dumps({**strategy, "configurations": rest}))
        done = ffsearch("simulate", "--strategy", again, "--cost", "analytic", "--out", again)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = json.loads(again.read_text())["provenance"]
        self.assertEqual((written["algorithm"], written["proposals"], written["ticket"]), ("simulate", 0, "A-7"))

    def test_summary_of_what_auto_chose_and_of_idle_devices(self):
        problem = ("--graph", ROOT / "graphs/lenet.json", "--topo", ROOT / "topologies/p100-1x4.json", "--cost",
                   "analytic", "--out", self.work / "auto.json")
        done = ffsearch(*problem, "--proposals", 50, "--micro-batches", "auto", "--sharding", "auto", "--recompute",
                        "auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\nmicro-batches +[0-9]+ of [0-9]+ samples, chosen by auto\n"
                                      r"sharding +none, chosen by auto\nrecompute +none, chosen by auto\n")
        self.assertNotIn("\ndevices ", done.stdout)
        done = ffsearch("edit", "--strategy", self.work / "auto.json", "*: sample 2 on node0.gpu[0-1]", "--cost",
                        "analytic", "--out", self.work / "two.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = ffsearch("simulate", "--strategy", self.work / "two.json", "--cost", "analytic")
        self.assertIn("\ndevices              2 of 4 used; the others are idle\n", done.stdout)

    def test_diff(self):
        result = self.json_of("diff", self.plain, self.work / "alexnet.json")
        changes = [abs(difference["change_us"]) for difference in result["differences"]]
        self.assertGreater(len(changes), 0)
        self.assertEqual(changes, sorted(changes, reverse=True))
        self.assertLess(result["b"]["predicted_us"], result["a"]["predicted_us"])
        done = ffsearch("diff", self.plain, self.work / "rnnlm-2step.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot be compared with", done.stderr)
        self.assertIn("batch_size is", done.stderr)
        self.assertIn("the number of operators is", done.stderr)

    def test_a_part_of_the_micro_batches(self):
        plans = {}
        for name, micro_batches, batch in (("whole", 16, 256), ("part", 4, 64), ("other", 8, 256)):
            plans[name] = self.work / f"pipeline-{name}.json"
            done = ffsearch("--graph", ROOT / "graphs/alexnet.json", "--topo", ROOT / "topologies/p100-4x4.json",
                            "--batch", batch, "--micro-batches", micro_batches, "--cost", "analytic", "--algorithm",
                            "expert", "--out", plans[name])
            self.assertEqual(done.returncode, 0, done.stderr)
        result = self.json_of("explain", "--strategy", plans["whole"], "--micro-batches", 4)
        self.assertEqual((result["explained_micro_batches"], result["micro_batches"]), (4, 16))
        part = self.json_of("explain", "--strategy", plans["part"])
        self.assertEqual(result["predicted_fifo_us"], part["predicted_fifo_us"])
        text = ffsearch("explain", "--strategy", plans["whole"], "--cost", "analytic", "--micro-batches", 4).stdout
        self.assertIn("\nexplained            an iteration with 4 of 16 micro-batches, in 1F1B order.", text)
        self.assertNotIn("explained_micro_batches", self.json_of("explain", "--strategy", plans["whole"]))
        result = self.json_of("diff", plans["whole"], plans["whole"], "--micro-batches", 4)
        self.assertEqual((result["explained_micro_batches"], result["differences"]), (4, []))
        for words, message in (
                (["explain", "--strategy", plans["whole"], "--micro-batches", 17],
                 f"--micro-batches 17: {plans['whole']} has 16"),
                (["explain", "--strategy", plans["whole"], "--micro-batches", 4, "--what-if", "batch 128"],
                 "--what-if \"batch 128\": of this plan only 4 of 16 micro-batches are simulated; "),
                (["diff", plans["whole"], plans["other"], "--micro-batches", 4],
                 "by a part of their micro-batches: it has 8 instead of 16")):
            done = ffsearch(*words, "--cost", "analytic")
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_the_report_is_one_well_formed_file_with_every_section(self):
        for graph in PROBLEMS:
            with self.subTest(graph):
                text = (self.work / f"{graph}.html").read_text()
                self.assertLess(len(text), 2_000_000)
                page = xml.etree.ElementTree.fromstring(text.split("\n", 1)[1])
                self.assertEqual([heading.text for heading in page.iter("h2")], SECTIONS)
                self.assertIsNone(re.search(r'(?:src|href)=|url\(|<script|@import', text))
                for number in re.findall(r' (?:width|height|x|y|x1|x2|y1|y2)="([^"]*)"', text):
                    self.assertRegex(number, r"^-?[0-9.]+$")  # no "nan"
                charts = list(page.iter("{http://www.w3.org/2000/svg}svg"))
                self.assertGreaterEqual(len(charts), 7)
                for chart in charts:  # each has an axis with its unit
                    words = " ".join(mark.text or "" for mark in chart.iter("{http://www.w3.org/2000/svg}text"))
                    self.assertRegex(words, r" in ms| in GB| in MB|device \(number\)")

    def test_names_of_the_report_are_escaped(self):
        graph = json.loads((ROOT / "graphs/lenet.json").read_text())
        graph["name"] = "<b>&\"lenet\""
        (self.work / "odd.json").write_text(json.dumps(graph))
        done = ffsearch("--graph", self.work / "odd.json", "--topo", ROOT / "topologies/p100-1x4.json", "--cost",
                        "analytic", "--algorithm", "data-parallel", "--out", self.work / "odd-s.json", "--html",
                        self.work / "odd.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = xml.etree.ElementTree.fromstring((self.work / "odd.html").read_text().split("\n", 1)[1])
        self.assertEqual(next(page.iter("h1")).text, '<b>&"lenet" on p100-1x4')

    def test_simulate_and_compare_write_reports(self):
        done = ffsearch("simulate", "--strategy", self.plain, "--cost", "analytic", "--html", self.work / "s.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = ffsearch("compare", "--graph", ROOT / "graphs/lenet.json", "--topo",
                        ROOT / "topologies/local-cpu-2.json", "--cost", "analytic", "--proposals", "50", "--html",
                        self.work / "c.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("s.html", "c.html"):
            page = xml.etree.ElementTree.fromstring((self.work / name).read_text().split("\n", 1)[1])
            self.assertEqual([heading.text for heading in page.iter("h2")], SECTIONS)
        done = ffsearch("simulate", "--strategy", self.plain, "--html", self.plain)
        self.assertEqual(done.returncode, 1)

    def test_a_trace_of_ffexec_stands_beside_the_prediction(self):
        """With made-up events: every computing task of the strategy takes 1 ms."""
        path, trace, page = self.work / "two.json", self.work / "trace.json", self.work / "two.html"
        done = ffsearch("--graph", ROOT / "graphs/lenet.json", "--topo", ROOT / "topologies/local-cpu-2.json", "--cost",
                        "analytic", "--algorithm", "data-parallel", "--out", path, "--trace", trace)
        self.assertEqual(done.returncode, 0, done.stderr)
        names = [(event["name"], event["tid"]) for event in json.loads(trace.read_text())["traceEvents"]
                 if event["ph"] == "X" and event["pid"] == 0 and event["cat"] in ("forward", "backward", "update")]
        events = [{"name": name, "cat": "update" if "/update/" in name else "compute", "ph": "X", "pid": rank, "tid": 0,
                   "ts": 1000.0 * number, "dur": 1000.0} for number, (name, rank) in enumerate(names)]
        trace.write_text(json.dumps({"traceEvents": events}))
        words = ("simulate", "--strategy", path, "--cost", "analytic", "--html", page, "--measured", trace)
        done = ffsearch(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = page.read_text()
        xml.etree.ElementTree.fromstring(text.split("\n", 1)[1])
        self.assertIn("Predicted and measured", text)
        self.assertIn(f"measured {len(events)}.000 ms", text)
        for broken, message in (({"traceEvents": events[1:]}, "has no task " + names[0][0]),
                                ({"traceEvents": []}, "has no tasks"),
                                ({"traceEvents": [{**events[0], "pid": 2}]}, "is of rank 2, the strategy has 2"),
                                ({"traceEvents": [{**events[0], "cat": "forward"}]}, "nothing that ffexec does")):
            trace.write_text(json.dumps(broken))
            page.unlink(missing_ok=True)
            done = ffsearch(*words)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(message, done.stderr)
            self.assertFalse(page.exists())
        done = ffsearch("simulate", "--strategy", path, "--measured", trace)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--html", done.stderr)

    def test_a_plan_beside_another_job(self):
        words = ("--graph", ROOT / "graphs/lenet.json", "--topo", ROOT / "topologies/p100-1x4.json", "--cost",
                 "analytic", "--proposals", "300")
        job, beside = self.work / "job.json", self.work / "beside.json"
        done = ffsearch(*words, "--algorithm", "data-parallel", "--out", job)
        self.assertEqual(done.returncode, 0, done.stderr)
        alone = json.loads(job.read_text())
        done = ffsearch(*words, "--background", job, "--out", beside, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result, written = json.loads(done.stdout), json.loads(beside.read_text())
        self.assertEqual([effect["strategy"] for effect in result["background"]], [str(job)])
        for effect in result["background"]:
            self.assertAlmostEqual(effect["without_us"], alone["provenance"]["predicted_us"], places=3)
            self.assertGreater(effect["co_located_us"], effect["without_us"])
        self.assertEqual(written["topology"], alone["topology"])  # of which ffexec runs all
        self.assertEqual(written["provenance"]["background"], [str(job)])
        for command in (("simulate", "--strategy", beside, "--cost", "analytic"), ("compare", *words[:-1], "30")):
            done = ffsearch(*command, "--background", job)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"in background +\S+job.json: .*, co-located .* \(slowdown [0-9.]+\)")
        done = ffsearch(*words, "--background", self.plain, "--out", beside)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is for 16 devices, the topology has 4", done.stderr)

    @unittest.skipUnless(BROWSER, "no chromium is installed: the report is not drawn")
    def test_a_browser_draws_the_report(self):
        picture = self.work / "report.png"
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1100,3200",
                               f"--user-data-dir={self.work / 'browser'}", f"--screenshot={picture}",
                               (self.work / "alexnet.html").as_uri()], capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertTrue(picture.exists(), done.stderr)
        self.assertGreater(picture.stat().st_size, 50_000)  # an empty page is smaller


def result_operators(strategy):
    return [operator["name"] for operator in strategy["graph"]["operators"]]


def expand(strategy, names):
    """The configurations of a strategy file by operator, as old files have them."""
    def matches(pattern):
        parts = re.split(r"\[([0-9,-]+)\]", pattern)
        texts = [parts[0]]
        for ranges, rest in zip(parts[1::2], parts[2::2]):
            numbers = []
            for piece in ranges.split(","):
                first, _, last = piece.partition("-")
                numbers.extend(range(int(first), int(last or first) + 1))
            texts = [text + str(number) + rest for text in texts for number in numbers]
        return texts
    result = {}
    for entry in sorted(strategy["configurations"], key=lambda entry: entry["operators"] != "*"):
        patterns = entry["operators"]
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            for name in names if pattern == "*" else matches(pattern):
                result[name] = {key: value for key, value in entry.items() if key != "operators"}
    return {name: result[name] for name in names}


if __name__ == "__main__":
    unittest.main(verbosity=2)
