#!/usr/bin/python3
"""Recomputation: predicted and trained on two ranks. Losses and parameters are the same to the last bit, the memory is
what was predicted, and names of operators that cannot be recomputed are one message each.
Usage: recomputation_test.py BUILD_DIR"""

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


class Recomputation(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)

    def run_program(self, *command):
        return subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=600, check=False, env=mpi_environment())

    def search(self, *flags, network="llama-tiny", topology="local-cpu-2", batch=16):
        done = self.run_program(BUILD / "ffsearch", "--graph", ROOT / f"graphs/{network}.json", "--topo",
                                ROOT / f"topologies/{topology}.json", "--batch", batch, "--cost", "analytic", "--json",
                                "--out", "s.json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def train(self):
        done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--iterations", 3,
                                "--save", "m", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), (self.work / "m").read_bytes()

    def test_training_is_the_same_to_the_last_bit_and_memory_is_as_predicted(self):
        for network, plan in (("llama-tiny", ["--algorithm", "data-parallel"]),
                              ("llama-tiny", ["--algorithm", "pipeline", "--micro-batches", 4]),
                              ("llama-tiny", ["--algorithm", "megatron"]),
                              ("moe-tiny", ["--algorithm", "gshard"])):
            with self.subTest(network=network, plan=plan):
                results = {}
                for recompute in ("none", "full", "*"):
                    found = self.search(*plan, "--recompute", recompute, network=network)
                    self.assertEqual(found["recompute"] == [], recompute == "none")
                    again = json.loads(self.run_program(BUILD / "ffsearch", "simulate", "--strategy", "s.json",
                                                        "--cost", "analytic", "--json").stdout)
                    self.assertEqual(again["predicted_us"], found["predicted_us"])
                    trained, parameters = self.train()
                    self.assertEqual(trained["memory_bytes"], found["memory_bytes"])
                    results[recompute] = trained["losses"], parameters, found["predicted_us"]
                for recompute in ("full", "*"):
                    self.assertEqual(results[recompute][:2], results["none"][:2])
                    self.assertGreater(results[recompute][2], results["none"][2])

    def test_memory_is_saved(self):
        flags = ["--algorithm", "data-parallel"]
        plain, full = (max(device["bytes"] if isinstance(device, dict) else device
                           for device in self.search(*flags, "--recompute", recompute, network="gpt2-small",
                                                     topology="p100-1x4", batch=64)["memory_bytes"])
                       for recompute in ("none", "full"))
        self.assertLess(full, 0.65 * plain)
        # 20 GB do not fit into 16.
        found = self.search(*flags, "--recompute", "auto", network="gpt2-small", topology="p100-1x4", batch=64)
        self.assertNotEqual(found["recompute"], [])
        self.assertTrue(found["fits_memory"])
        self.assertEqual(self.search(*flags, "--recompute", "auto")["recompute"], [])
        self.search(*flags, network="gpt2-small", topology="p100-1x4", batch=64)
        explained = self.run_program(BUILD / "ffsearch", "explain", "--strategy", "s.json", "--cost", "analytic",
                                     "--json")
        self.assertTrue(any(remedy["what"].startswith("--recompute full")
                            for remedy in json.loads(explained.stdout)["memory"]["remedies"]), explained.stdout)

    def test_a_strategy_with_other_operators_recomputed(self):
        self.search("--algorithm", "data-parallel")
        done = self.run_program(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--recompute", "full", "--out",
                                "t.json", "--cost", "analytic")
        self.assertEqual(done.returncode, 0, done.stderr)
        recompute = json.loads((self.work / "t.json").read_text())["recompute"]
        self.assertNotEqual(recompute, [])
        done = self.run_program(BUILD / "ffsearch", "diff", "s.json", "t.json", "--cost", "analytic", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        difference = json.loads(done.stdout)
        self.assertEqual(difference["settings"],
                         ["recompute is " + json.dumps(recompute, separators=(",", ":")) + " instead of []"])
        self.assertEqual(difference["differences"], [])
        self.assertLess(difference["a"]["predicted_us"], difference["b"]["predicted_us"])

    def test_chains_are_the_same_whatever_the_simulator(self):
        chains = [self.search("--proposals", 200, "--seed", 5, "--recompute", "full", "--simulator", simulator,
                              "--threads", threads)["chain_hash"]
                  for simulator, threads in (("full", 1), ("delta", 1), ("delta", 2))]
        self.assertEqual(len(set(chains)), 1, chains)

    def test_what_cannot_be_recomputed(self):
        graph = ROOT / "graphs/resnet50.json"
        for pattern, message in (("loss", "operator \"loss\" cannot be recomputed: a loss has no output that backward "
                                  "waits for"),
                                 ("lss", "no operator is called \"lss\"; did you mean \"loss\"?"),
                                 ("lss*", "no operator matches \"lss*\"; did you mean \"loss\"?")):
            done = self.run_program(BUILD / "ffsearch", "--graph", graph, "--topo",
                                    ROOT / "topologies/local-cpu-2.json", "--cost", "analytic", "--recompute", pattern)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (1, "", f"ffsearch: --recompute: {message}\n"))
        self.search("--algorithm", "data-parallel")
        content = json.loads((self.work / "s.json").read_text())
        content["recompute"] = ["loss"]
        (self.work / "s.json").write_text(json.dumps(content))
        done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("s.json: /recompute: operator \"loss\" cannot be recomputed", done.stderr)


if __name__ == "__main__":
    unittest.main()
