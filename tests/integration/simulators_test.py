#!/usr/bin/python3
"""Chains of 10,000 proposals on networks that users run: delta simulation on 1, 2 and 4 threads gives the chain of full
simulation, and delta simulation with every answer checked too. Networks and seed change with the day; it is printed.
Usage: simulators_test.py BUILD_DIR"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from cases_of_today import cases_of_today, test_day  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
SEED = test_day()
# A chain stops where half of its proposals passed without a better strategy, so that it makes 5,000 at least.
PROPOSALS = 10000
# Chains that start from settings (docs/algorithms.md#transformers) are in 1F1B order, or with gradients reduced after
# backward: they are always simulated in full.
WITHOUT_SETTINGS = ("--init", "best,data-parallel,random", "--micro-batches", 1, "--sharding", "none", "--recompute",
                    "none")


class Simulators(unittest.TestCase):
    def search(self, network, simulator, threads):
        command = [BUILD / "ffsearch", "--graph", ROOT / f"graphs/{network}.json",
                   "--topo", ROOT / "topologies/p100-1x4.json", "--batch-per-device", 64, "--cost", "analytic",
                   "--seed", SEED, "--proposals", PROPOSALS, "--chains", 4, "--threads", threads,
                   "--simulator", simulator, "--out", os.devnull, "--json",
                   *(WITHOUT_SETTINGS if network.startswith("gpt") else ())]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True,
                                  timeout=1200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def check(self, network):
        judge = self.search(network, "full", 2)
        self.assertGreaterEqual(judge["proposals"], PROPOSALS // 4)
        for simulator, threads in (("delta", 1), ("delta", 2), ("delta", 4), ("checked", 2)):
            with self.subTest(simulator=simulator, threads=threads, seed=SEED):
                found = self.search(network, simulator, threads)
                for key in ("chain_hash", "proposals", "accepted", "predicted_us"):
                    self.assertEqual(found[key], judge[key], key)
                if simulator == "checked":
                    self.assertGreater(found["checks"]["rejections"], 0)

    def test_networks(self):
        for network in cases_of_today(("alexnet", "vgg16", "resnet50", "rnnlm", "gpt2-small"), 2):
            with self.subTest(network):
                self.check(network)


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(verbosity=2)
