#!/usr/bin/python3
"""Limits of the machine and of time: memory, threads, file sizes, budgets, signals. Usage: limits_test.py BUILD_DIR"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
TOPOLOGY = ROOT / "topologies/p100-4x4.json"
LIMIT_S = 300
OUT_OF_MEMORY = ("ffsearch: out of memory: this problem needs more than this process may have (ulimit -v, control "
                 "group); fewer --threads, --chains or devices need less\n")


def run(*command, cwd, limits=()):
    def limit():
        for kind, value in limits:
            resource.setrlimit(kind, (value, value))

    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S,
                          check=False, preexec_fn=limit)
    return done.returncode, done.stdout, done.stderr


class Limits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def search(self, *flags, graph="lenet", topology=TOPOLOGY, limits=()):
        return run(BUILD / "ffsearch", "--graph", ROOT / f"graphs/{graph}.json", "--topo", topology, "--cost",
                   "analytic", "--out", self.work / "s.json", "--quiet", *flags, cwd=self.work, limits=limits)

    # Some of these limits are enough and some are not: a result, or the message, and never a crash.
    def test_out_of_memory_is_one_message(self):
        refused = 0
        for megabytes in (100, 200, 300, 450):
            with self.subTest(megabytes):
                code, stdout, stderr = self.search(
                    "--algorithm", "data-parallel", graph="gshard-moe-128e-36l",
                    topology=ROOT / "topologies/tpu-v3-2048.json", limits=[(resource.RLIMIT_AS, megabytes << 20)])
                self.assertEqual((code, stdout, stderr), (3, "", OUT_OF_MEMORY))
                self.assertEqual(list(self.work.iterdir()), [])
                refused += 1
        self.assertEqual(refused, 4)

    # Settings, and the strategy that chains start from, take all of it.
    def test_a_transformer_has_a_plan_however_short_the_budget(self):
        for budget in ("1ms", "300ms", "1s", "2s"):
            with self.subTest(budget=budget):
                code, _, stderr = self.search("--budget", budget, "--precision", "bf16", "--batch", 32,
                                              graph="gpt-3.6b", topology=ROOT / "topologies/dgx-a100-1.json")
                self.assertEqual(code, 0, stderr)
                self.assertTrue((self.work / "s.json").exists())

    # 15,000 micro-batches of 1,024 devices: half a terabyte.
    def test_what_needs_more_memory_than_the_machine_has_is_not_simulated(self):
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 300e9:
            self.skipTest("this machine has the memory")
        settings = "tp=8,pp=16,micro_batch=1,sharding=optimizer"
        flags = ("--graph", ROOT / "graphs/gpt-175b.json", "--topo", ROOT / "topologies/dgx-a100-128.json", "--cost",
                 "analytic", "--precision", "bf16", "--batch", 8 * 15000)
        for command in (("simulate", "--settings", settings, "--trace", "t.json"),
                        ("--settings", settings)):
            is_search = command[0] != "simulate"
            done = run(BUILD / "ffsearch", *(() if is_search else command), *flags,
                       *(("--micro-batches", 15000, "--sharding", "optimizer", "--recompute", "none", "--budget", "1s",
                          "--schedule", "1f1b", "--out", "s.json") if is_search else ()), cwd=self.work)
            code, _, stderr = done
            self.assertEqual(code, 3, stderr)
            self.assertIn("a simulation of these devices and micro-batches needs about ", stderr)
            self.assertEqual(stderr.count("\n"), 1, stderr)
            self.assertEqual(list(self.work.iterdir()), [])

    # 64 threads do not fit; fewer do the work, with the same result.
    def test_fewer_threads_do_the_work_where_no_more_start(self):
        flags = ["--proposals", 300, "--chains", 8]
        self.assertEqual(self.search("--threads", 1, *flags), (0, "", ""))
        expected = json.loads((self.work / "s.json").read_text())["provenance"]["chain_hash"]
        for threads in (8, 64):
            with self.subTest(threads):
                code, stdout, stderr = self.search("--threads", threads, *flags,
                                                   limits=[(resource.RLIMIT_AS, 300_000 << 10)])
                self.assertEqual(stdout, "")
                self.assertIn((code, stderr), [(0, ""), (3, OUT_OF_MEMORY)])
                if code == 0:
                    found = json.loads((self.work / "s.json").read_text())["provenance"]["chain_hash"]
                    self.assertEqual(found, expected)

    def test_threads_that_find_no_memory_give_one_message(self):
        for megabytes in (240, 260, 280, 300):  # several threads find none at the same time
            with self.subTest(megabytes):
                code, stdout, stderr = self.search("--threads", 64, "--proposals", 1000, "--chains", 64,
                                                   limits=[(resource.RLIMIT_AS, megabytes << 20)])
                self.assertEqual(stdout, "")
                self.assertIn((code, stderr), [(0, ""), (3, OUT_OF_MEMORY)])

    def test_a_file_beyond_the_limit_of_file_sizes_leaves_nothing(self):
        code, stdout, stderr = self.search("--algorithm", "data-parallel", graph="vgg16",
                                           limits=[(resource.RLIMIT_FSIZE, 1024)])
        self.assertEqual((code, stdout), (3, ""))
        self.assertEqual(stderr, f"ffsearch: {self.work}/s.json: cannot write: File too large; nothing was changed\n")
        self.assertEqual(list(self.work.iterdir()), [])

    def test_plans_are_printed_before_the_best_one_is_written(self):
        command = [BUILD / "ffsearch", "plan", "--graph", ROOT / "graphs/gpt2-small.json", "--topo",
                   ROOT / "topologies/dgx-a100-1.json", "--cost", "analytic", "--settings", "tp=4,pp=2", "--top", 1]
        plans = run(*command, cwd=self.work)[1].splitlines()[:2]
        self.assertIn("tp=4,pp=2", plans[1])
        code, stdout, stderr = run(*command, "--out", "s.json", cwd=self.work, limits=[(resource.RLIMIT_FSIZE, 1024)])
        self.assertEqual((code, stdout.splitlines()[:2]), (3, plans))
        self.assertEqual(stderr, "ffsearch: s.json: cannot write: File too large; nothing was changed\n")
        self.assertEqual(list(self.work.iterdir()), [])

    def test_an_empty_name_is_no_file(self):
        for flag in ("--out", "--trace", "--report", "--html"):
            with self.subTest(flag):
                code, stdout, stderr = self.search(flag, "")
                self.assertEqual((code, stdout), (2, ""))
                self.assertIn(f"{flag}: found \"\", expected a file name\n", stderr)

    def test_numbers_beyond_all_limits_have_a_place(self):
        text = TOPOLOGY.read_text()
        model = json.loads(text)["device_models"]["p100"]
        path = self.work / "topology.json"
        launch = f"\"launch_us\": {model['launch_us']}"
        self.assertIn(launch, text)
        path.write_text(text.replace(launch, "\"launch_us\": 1e999"))
        line = next(number for number, found in enumerate(path.read_text().splitlines(), 1) if "1e999" in found)
        column = path.read_text().splitlines()[line - 1].index("1e999") + 1
        self.assertEqual(self.search(topology=path), (1, "", f"ffsearch: {path}: line {line}, column {column}: found "
                                                      "1e999, expected a number of at most 1.79769e+308 in size\n"))
        for number, found in ((2**63, str(2**63)), (2**65, "3.6893488147419103e+19")):
            path.write_text(text.replace(str(model["memory_bytes"]), str(number)))
            self.assertEqual(self.search(topology=path),
                             (1, "", f"ffsearch: {path}: /device_models/p100/memory_bytes: found {found}, expected an "
                              "integer from 0 to 9223372036854775807\n"))


class Budgets(unittest.TestCase):
    # Exit codes and results alone: times depend on what else the machine does.
    def test_results_are_written_at_the_end_of_a_budget_and_behind_a_signal(self):
        for algorithm in ("mcmc", "optcnn", "sub-cluster"):
            with self.subTest(algorithm):
                done = subprocess.run([ROOT / "scripts/budget_table.py", "--build", BUILD, "--operators", "1", "60",
                                       "--devices", "1", "6", "--budget", "0.5", "--signal-after", "1", "--algorithm",
                                       algorithm, "--json"], capture_output=True, text=True, timeout=LIMIT_S,
                                      check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                rows = json.loads(done.stdout)
                self.assertEqual([(row["operators"], row["devices"]) for row in rows],
                                 [(1, 1), (1, 6), (60, 1), (60, 6)])
                for row in rows:
                    self.assertEqual(row["budget"]["code"], 0)
                    signalled = row["signal"]["after_signal_s"] is not None
                    self.assertEqual(row["signal"]["code"], 130 if signalled else 0)
                    self.assertTrue(row["budget"]["written"] and row["signal"]["written"])


if __name__ == "__main__":
    unittest.main()
