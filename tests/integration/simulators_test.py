#!/usr/bin/python3
"""Chains of 10,000 proposals on networks that users run: delta simulation on 1, 2 and 4 threads gives the chain of full
simulation, and delta simulation with every answer checked too. The seed changes with the day and is printed.
Usage: simulators_test.py BUILD_DIR"""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
SEED = datetime.date.today().toordinal()
# A chain stops where half of its proposals passed without a better strategy, so that it makes 5,000 at least.
PROPOSALS = 10000


class Simulators(unittest.TestCase):
    def search(self, network, simulator, threads):
        command = [BUILD / "ffsearch", "--graph", ROOT / f"graphs/{network}.json",
                   "--topo", ROOT / "topologies/p100-1x4.json", "--batch-per-device", 64, "--cost", "analytic",
                   "--seed", SEED, "--proposals", PROPOSALS, "--chains", 4, "--threads", threads,
                   "--simulator", simulator, "--out", os.devnull, "--json"]
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

    def test_alexnet(self):
        self.check("alexnet")

    def test_vgg16(self):
        self.check("vgg16")

    def test_resnet50(self):
        self.check("resnet50")

    def test_rnnlm(self):
        self.check("rnnlm")

    def test_gpt2(self):
        self.check("gpt2-small")


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(verbosity=2)
