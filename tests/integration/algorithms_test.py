#!/usr/bin/python3
"""Every algorithm of ffsearch: its strategy for LeNet on two CPU ranks is executed and verified (of exhaustive search,
for LeNet cut short: the proof for the whole of it takes half a minute). Usage: algorithms_test.py BUILD_DIR"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
REST = ["--topo", ROOT / "topologies/local-cpu-2.json", "--cost", "analytic", "--proposals", "500"]
PROBLEM = ["--graph", ROOT / "graphs/lenet.json", *REST]
BASELINES = ["data-parallel", "single-device", "model-parallel", "expert", "optcnn", "sub-cluster"]


def run(*command, cwd=None):
    return subprocess.run([str(word) for word in command], cwd=cwd, env=mpi_environment(), capture_output=True,
                          text=True, timeout=300, check=False)


class Algorithms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.work = pathlib.Path(cls.folder.name)
        graph = json.loads((ROOT / "graphs/lenet.json").read_text())
        graph["operators"] = [op for op in graph["operators"]
                              if op["name"] not in ("conv2", "tanh2", "pool2", "fc2", "tanh4")]
        for op in graph["operators"]:
            op["inputs"] = [{"pool2": "pool1", "tanh4": "tanh3"}.get(name, name) for name in op["inputs"]]
        (cls.work / "short.json").write_text(json.dumps(graph))
        cls.short = ["--graph", cls.work / "short.json", *REST]
        done = run(BUILD / "ffsearch", "compare", *cls.short, "--json")
        assert done.returncode == 0, done.stderr
        everything = json.loads(done.stdout)["algorithms"]
        cls.compared = {name: result for name, result in everything.items() if "not_applicable" not in result}
        cls.not_applicable = {name: result["not_applicable"] for name, result in everything.items()
                              if "not_applicable" in result}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def search(self, *flags, problem=None):
        done = run(BUILD / "ffsearch", *(problem or PROBLEM), "--out", self.work / "s.json", "--json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_compare_has_every_algorithm_with_the_same_fields(self):
        self.assertLessEqual({*BASELINES, "placement", "mcmc"}, set(self.compared))
        for name, result in self.compared.items():
            with self.subTest(name):
                self.assertEqual(result["algorithm"], name)
                for key in ["predicted_us", "compute_us", "total_s"]:
                    self.assertGreater(result[key], 0)
                self.assertGreaterEqual(result["predicted_us"], result["lower_bound_us"])
                if name in BASELINES:
                    self.assertGreaterEqual(result["predicted_us"], self.compared["mcmc"]["predicted_us"])
                for key in ["transfer_bytes", "synchronization_bytes", "memory_bytes", "note"]:
                    self.assertIn(key, result)
                self.assertEqual(len(result["memory_bytes"]), 2)
        self.assertEqual(self.compared["single-device"]["transfer_bytes"], 0)
        self.assertEqual(self.compared["single-device"]["synchronization_bytes"], 0)

    def test_what_is_for_other_networks_says_so(self):
        self.assertEqual(self.not_applicable, {
            "pipeline": "pipeline: no layer of lenet has several steps; this is a strategy for unrolled recurrent "
                        "networks, and with --micro-batches for any",
            "megatron": "megatron: lenet has no multi_head_attention; this is a strategy for transformers",
            "gshard": "gshard: lenet has no experts; this is a strategy for mixtures of experts"})

    def test_compare_prints_a_line_for_each(self):
        done = run(BUILD / "ffsearch", "compare", *self.short)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in {*self.compared, *self.not_applicable}:
            # figures, note
            self.assertEqual(sum(line.startswith(name + " ") for line in done.stdout.splitlines()), 2, done.stdout)

    def test_every_strategy_is_executed(self):
        for name in self.compared:
            with self.subTest(name):
                found = self.search("--algorithm", name, problem=self.short if name == "exhaustive" else PROBLEM)
                self.assertEqual(found["algorithm"], name)
                provenance = json.loads((self.work / "s.json").read_text())["provenance"]
                self.assertEqual(provenance["algorithm"], name)
                self.assertEqual(provenance["note"], found["note"])
                done = run("mpirun", "-n", "2", BUILD / "ffexec", "--strategy", self.work / "s.json", "--iterations",
                           "3", "--lr", "0.01", "--verify", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                trained = json.loads(done.stdout)
                self.assertLess(trained["verified"]["max_relative_error"], 1e-3)
                self.assertAlmostEqual(trained["predicted_us"], found["predicted_us"], places=2)

    def test_parameters_with_owners(self):
        found = self.search("--synchronization", "parameter-server")
        self.assertEqual(json.loads((self.work / "s.json").read_text())["synchronization"], "parameter-server")
        self.assertEqual(self.search("--synchronization", "parameter-server", "--simulator", "full")["chain_hash"],
                         found["chain_hash"])
        self.assertNotEqual(self.search()["chain_hash"], found["chain_hash"])
        parallel = self.search("--algorithm", "data-parallel", "--synchronization", "parameter-server")
        self.assertLessEqual(found["predicted_us"], parallel["predicted_us"])
        self.assertEqual(found["baselines"]["data-parallel"], parallel["predicted_fifo_us"])
        done = run("mpirun", "-n", "2", BUILD / "ffexec", "--strategy", self.work / "s.json", "--iterations", "3",
                   "--lr", "0.01", "--verify", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(json.loads(done.stdout)["verified"]["max_relative_error"], 1e-3)

    def test_the_result_is_never_slower_than_a_baseline(self):
        found = self.search()
        self.assertEqual(sorted(found["baselines"]), sorted(BASELINES))
        self.assertEqual(found["predicted_us"], min(found["predicted_us"], *found["baselines"].values()))

    def test_init(self):
        self.assertEqual(list(self.search("--init", "data-parallel", "--chains", 1)["baselines"]), ["data-parallel"])
        self.assertEqual(sorted(self.search("--init", "expert,random")["baselines"]), ["data-parallel", "expert"])

    def annotated(self, *flags):
        """GShard's example of docs/annotations.md, on moe-tiny, for two devices."""
        text = (ROOT / "docs/annotations.md").read_text().replace('": 4}', '": 2}')
        (self.work / "a.json").write_text(re.search(r"^```json\n(.*?)^```", text, re.DOTALL | re.MULTILINE).group(1))
        problem = ["--graph", ROOT / "graphs/moe-tiny.json", *REST, "--annotations", self.work / "a.json"]
        found = self.search(*flags, problem=problem)
        strategy = json.loads((self.work / "s.json").read_text())
        origins = {}
        for given in strategy["configurations"]:
            names = given["operators"] if isinstance(given["operators"], list) else [given["operators"]]
            origins.update((name, (given["origin"], given["degrees"])) for name in names)
        return found, origins

    def test_annotations_are_completed_kept_and_trained(self):
        for flags in (["--algorithm", "propagate"], ["--algorithm", "mcmc"], ["--algorithm", "data-parallel"]):
            with self.subTest(flags):
                found, origins = self.annotated(*flags)
                self.assertEqual(origins["layer2.norm2"], ("annotated", {"sample": 2}))
                self.assertEqual(origins["layer2.expand"], ("annotated", {"expert": 2}))
                self.assertEqual(found["origins"]["annotated"], 2)
                if flags[1] == "propagate":
                    self.assertEqual(origins["layer2.contract"], ("propagated", {"expert": 2}))
                    self.assertEqual(found["origins"], {"annotated": 2, "propagated": 24, "searched": 0})
                else:
                    self.assertEqual(sum(found["origins"].values()), 26)
                done = run("mpirun", "-n", "2", BUILD / "ffexec", "--strategy", self.work / "s.json", "--iterations",
                           "3", "--lr", "0.01", "--verify", "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLess(json.loads(done.stdout)["verified"]["max_relative_error"], 1e-3)

    def test_annotated_searches_decide_alike_with_either_simulator(self):
        delta, full = (self.annotated("--simulator", simulator)[0] for simulator in ("delta", "full"))
        self.assertEqual(delta["chain_hash"], full["chain_hash"])
        self.assertIn("propagate", delta["baselines"])
        self.assertNotIn("sub-cluster", delta["baselines"])

    def test_without_annotations_nothing_is_stated(self):
        self.assertNotIn("origins", self.search())
        self.assertNotIn("origin", (self.work / "s.json").read_text().replace("\"original", ""))

    def test_check_local(self):
        found = self.search("--check-local")["local_optimum"]
        self.assertTrue(found["proven"])
        self.assertGreater(found["neighbours"], 100)
        self.assertIn("every assignment of devices", found["neighbourhood"])
        found = self.search("--check-local", "--init", "random", "--beta", 0)
        self.assertGreater(found["local_optimum"]["improvements"], 0)
        self.assertEqual(found["note"], "found from random, and then by changes of one operator")

    def test_proposals_end_an_exhaustive_search(self):
        problem = ["--graph", ROOT / "graphs/lenet.json", "--topo", ROOT / "topologies/p100-1x4.json"]
        first, second = (self.search("--algorithm", "exhaustive", "--proposals", 100, problem=problem)
                         for _ in range(2))
        self.assertEqual(first["note"], second["note"])
        first, second = first["exhaustive"], second["exhaustive"]
        self.assertEqual(first, second)
        self.assertEqual((first["nodes"], first["interrupted"]), (100, True))

    def test_a_bound_that_is_not_known_is_not_printed(self):
        self.search()
        for cost, known in (("analytic", True), ("auto", False)):
            done = run(BUILD / "ffsearch", "simulate", "--strategy", self.work / "s.json", "--cost", cost)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("lower bound" in done.stdout, known)
            self.assertNotIn("inf", done.stdout)

    def test_mixed_proposals_decide_alike_with_either_simulator(self):
        delta, full = (self.search("--proposals-from", "mixed", "--simulator", simulator)
                       for simulator in ("delta", "full"))
        self.assertEqual(delta["chain_hash"], full["chain_hash"])

    def test_a_search_says_why_it_ended(self):
        problem = ["--graph", ROOT / "graphs/lenet.json", "--topo", ROOT / "topologies/p100-1x4.json", "--cost",
                   "analytic"]
        found = self.search(problem=problem)
        self.assertEqual(found["ended"], "nothing better for half of the time")
        self.assertLess(found["total_s"], 60)  # well below a second where nothing else runs
        done = run(BUILD / "ffsearch", *problem, "--proposals", 10, "--out", self.work / "s.json")
        self.assertRegex(done.stdout, "; ended: (all proposals made|nothing better for half of the proposals)\n")
        found = self.search("--proposals", 3000, "--schedule", "fifo", problem=problem)
        self.assertEqual(found["improvements"][-1]["predicted_us"], found["predicted_us"])

    def test_a_plan_in_an_order_of_its_own_is_simulated_in_it(self):
        problem = ["--graph", ROOT / "graphs/inception_v3.json", "--topo", ROOT / "topologies/p100-4x4.json", "--cost",
                   "analytic", "--batch-per-device", 64, "--algorithm", "data-parallel"]
        times = {}
        for order in ("fifo", "critical-path", "latest-start", "auto"):
            found = self.search("--schedule", order, problem=problem)
            done = run(BUILD / "ffsearch", "simulate", "--strategy", self.work / "s.json", "--cost", "analytic",
                       "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            again = json.loads(done.stdout)
            times[order] = found["predicted_us"]
            self.assertEqual(found["predicted_fifo_us"], times["fifo"])
            for key in ("predicted_us", "predicted_fifo_us", "fifo_order", "memory_bytes"):
                self.assertEqual(again[key], found[key], f"{order}: {key}")
        self.assertLess(times["auto"], times["fifo"])
        self.assertLessEqual(times["auto"], min(times["critical-path"], times["latest-start"]))

    def test_wrong_flags(self):
        for flags, message in [(["--algorithm", "mcmcm"], "--algorithm"), (["--init", "placement"], "--init"),
                               (["--proposals-from", "x"], "--proposals-from"),
                               (["--algorithm", "expert", "--check-local"], "goes with --algorithm mcmc or placement")]:
            done = run(BUILD / "ffsearch", *PROBLEM, "--out", self.work / "none.json", *flags)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)
        done = run(BUILD / "ffsearch", *PROBLEM, "--out", self.work / "none.json", "--algorithm", "placement", "--init",
                   "data-parallel")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr,
                         "ffsearch: --init: \"data-parallel\" splits operators, which placement does not\n")
        self.assertFalse((self.work / "none.json").exists())


if __name__ == "__main__":
    unittest.main()
