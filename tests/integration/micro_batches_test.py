#!/usr/bin/python3
"""Micro-batches: searched, predicted and trained on two ranks. The losses are those of the whole batch, the memory is
what was predicted, delta simulation gives the chain of full simulation, and wrong numbers are one message each.
Usage: micro_batches_test.py BUILD_DIR"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
sys.path.insert(0, str(ROOT / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402


class MicroBatches(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_program(self, *command):
        return subprocess.run([str(word) for word in command], cwd=self.folder.name, capture_output=True, text=True,
                              timeout=600, check=False, env=mpi_environment())

    def search(self, *flags, network="llama-tiny", topology="local-cpu-2", batch=16):
        done = self.run_program(BUILD / "ffsearch", "--graph", ROOT / f"graphs/{network}.json", "--topo",
                                ROOT / f"topologies/{topology}.json", "--batch", batch, "--cost", "analytic", "--json",
                                *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_losses_are_those_of_the_whole_batch_and_memory_is_as_predicted(self):
        losses, memory = {}, {}
        for micro_batches in (1, 2, 8):
            algorithm = "data-parallel" if micro_batches == 1 else "pipeline"
            found = self.search("--algorithm", algorithm, "--micro-batches", micro_batches, "--out", "s.json")
            with open(pathlib.Path(self.folder.name) / "s.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file).get("micro_batches", 1), micro_batches)
            again = json.loads(self.run_program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost",
                                                "analytic", "--json").stdout)
            self.assertEqual(again["predicted_us"], found["predicted_us"])
            done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--iterations", 4,
                                    "--verify", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            trained = json.loads(done.stdout)
            self.assertEqual(trained["memory_bytes"], found["memory_bytes"])
            losses[micro_batches], memory[micro_batches] = trained["losses"], max(trained["memory_bytes"])
        for micro_batches in (2, 8):
            for loss, expected in zip(losses[micro_batches], losses[1]):
                self.assertAlmostEqual(loss, expected, delta=1e-4 * expected)
        self.assertLess(memory[8], memory[2] / 2)

    def test_a_transformer_is_searched_from_the_best_settings(self):
        topology = json.loads((ROOT / "topologies/local-cpu-2.json").read_text(encoding="utf-8"))
        plain = self.search("--proposals", 200, "--micro-batches", 1, "--recompute", "none", "--sharding", "none")
        for model in topology["device_models"].values():
            model["memory_bytes"] = max(plain["memory_bytes"]) // 2
        (pathlib.Path(self.folder.name) / "small.json").write_text(json.dumps(topology), encoding="utf-8")
        command = (BUILD / "ffsearch", "--graph", ROOT / "graphs/llama-tiny.json", "--topo", "small.json", "--batch",
                   16, "--cost", "analytic", "--proposals", 200, "--json")
        decided = json.loads(self.run_program(*command, "--micro-batches", 1, "--recompute", "none", "--sharding",
                                              "none", "--out", "d.json").stdout)
        self.assertFalse(decided["fits_memory"])
        found = {}
        for threads in (1, 2):
            done = self.run_program(*command, "--threads", threads, "--out", f"{threads}.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            found[threads] = json.loads(done.stdout)
        self.assertTrue(found[1]["fits_memory"])
        self.assertIn("micro_batch=", found[1]["settings"])
        self.assertEqual(found[1]["chain_hash"], found[2]["chain_hash"])
        self.assertEqual(found[1]["predicted_us"], found[2]["predicted_us"])
        self.assertLessEqual(found[1]["predicted_us"], found[1]["baselines"]["settings"])
        done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "1.json", "--iterations", 2,
                                "--verify", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["memory_bytes"], found[1]["memory_bytes"])

    def test_a_co_located_job_has_its_micro_batches(self):
        for micro_batches in (2, 4):
            self.search("--algorithm", "pipeline", "--micro-batches", micro_batches, "--out", f"{micro_batches}.json")
        done = self.run_program(BUILD / "ffsearch", "simulate", "--strategy", "2.json", "--background", "4.json",
                                "--cost", "analytic", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        alone = json.loads(self.run_program(BUILD / "ffsearch", "simulate", "--strategy", "4.json", "--cost",
                                            "analytic", "--json").stdout)
        self.assertEqual(json.loads(done.stdout)["background"][0]["without_us"], alone["predicted_fifo_us"])

    def test_few_in_flight_take_less_memory(self):
        memory = {schedule: self.search("--algorithm", "pipeline", "--micro-batches", 8, "--schedule", schedule,
                                        "--out", "s.json")["memory_bytes"] for schedule in ("fifo", "1f1b")}
        self.assertLess(max(memory["1f1b"]), 0.7 * max(memory["fifo"]))

    def test_a_report_draws_the_pipeline(self):
        for micro_batches, flags in ((1, []), (4, []), (4, ["--recompute", "full"])):
            algorithm = "data-parallel" if micro_batches == 1 else "pipeline"
            self.search("--algorithm", algorithm, "--micro-batches", micro_batches, "--html", "r.html", *flags)
            report = (pathlib.Path(self.folder.name) / "r.html").read_text(encoding="utf-8")
            self.assertEqual("<h2>The pipeline</h2>" in report, micro_batches > 1)
            self.assertEqual(f" Settings: {micro_batches} micro-batches" in report, micro_batches > 1)
            self.assertEqual("recomputation of " in report, bool(flags))
            if micro_batches == 1:
                continue
            drawing = report.split("<h2>The pipeline</h2>")[1].split("</svg>")[0]
            # Each device's row has boxes of each micro-batch, forward and backward, and how long it is idle.
            for number in range(1, micro_batches + 1):
                self.assertGreaterEqual(drawing.count(f"<title>micro-batch {number}, "), 4, drawing)
            self.assertNotIn(f"micro-batch {micro_batches + 1},", drawing)
            self.assertEqual(drawing.count(">idle "), 2)
            self.assertEqual("recomputation" in drawing, bool(flags))

    def test_traces_say_the_micro_batch(self):
        for micro_batches, algorithm in ((1, "data-parallel"), (4, "pipeline")):
            self.search("--algorithm", algorithm, "--micro-batches", micro_batches, "--trace", "t.json")
            events = json.loads((pathlib.Path(self.folder.name) / "t.json").read_text(encoding="utf-8"))["traceEvents"]
            for kind in ("forward", "backward"):
                found = {event.get("args", {}).get("micro_batch") for event in events if event.get("cat") == kind}
                self.assertEqual(found, {None} if micro_batches == 1 else set(range(4)))

    def test_delta_simulation_gives_the_chain_of_full_simulation(self):
        chains = [self.search("--proposals", 600, "--seed", 5, "--micro-batches", 4, "--simulator", simulator,
                              network="gpt2-small", topology="p100-1x4", batch=64)["chain_hash"]
                  for simulator in ("full", "delta", "checked")]
        self.assertEqual(len(set(chains)), 1, chains)

    def test_auto_chooses_a_number(self):
        found = self.search("--micro-batches", "auto", "--proposals", 50, "--out", "s.json", network="gpt2-small",
                            topology="p100-1x4", batch=64)
        self.assertGreater(found["micro_batches"], 1)  # whole, its activations do not fit
        self.assertTrue(found["fits_memory"])

    def test_wrong_numbers(self):
        for flags, code, message in (
                (["--micro-batches", "3"], 1, "3 micro-batches: the batch of 16 samples is not divisible by them"),
                (["--micro-batches", "0"], 2, 'found "0", expected auto or a number from 1 to 1048576'),
                (["--micro-batches", "two"], 2, 'found "two", expected auto or a number from 1 to 1048576'),
                (["--task-order", "fifo"], 2, "--task-order: is now called --schedule"),
                (["--schedule", "best"], 2, '"best" is now called "auto"')):
            with self.subTest(flags=flags):
                done = self.run_program(BUILD / "ffsearch", "--graph", ROOT / "graphs/llama-tiny.json", "--topo",
                                        ROOT / "topologies/local-cpu-2.json", "--batch", 16, *flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
