#!/usr/bin/python3
"""Sharded optimizer state, gradients and parameters: predicted and trained on several ranks. Losses are those without
shards within rounding, the memory is what was predicted and less than without, checkpoints go from one to the other.
Usage: sharding_test.py BUILD_DIR"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SHARDINGS = ("none", "optimizer", "gradients", "parameters")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/dev").resolve()
sys.path.insert(0, str(ROOT / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402


class Sharding(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)

    def run_program(self, *command):
        return subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=600, check=False, env=mpi_environment())

    def json_of(self, *command):
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def search(self, sharding, *flags, network="llama-tiny", topology="local-cpu-2", batch=16, out="s.json"):
        return self.json_of(BUILD / "ffsearch", "--graph", ROOT / f"graphs/{network}.json", "--topo",
                            ROOT / "topologies" / f"{topology}.json", "--batch", batch, "--cost", "analytic", "--json",
                            "--optimizer", "adamw", "--sharding", sharding, "--out", out, *flags)

    def train(self, strategy, ranks, *flags):
        return self.json_of("mpirun", "-n", ranks, BUILD / "ffexec", "--strategy", strategy, "--lr", 0.001, "--json",
                            *flags)

    def test_training_is_that_without_shards_and_memory_is_as_predicted(self):
        for network, ranks, plan in (("llama-tiny", 2, ["--algorithm", "data-parallel"]),
                                     ("llama-tiny", 2, ["--algorithm", "data-parallel", "--micro-batches", 4]),
                                     ("llama-tiny", 4, ["--algorithm", "megatron"]),
                                     ("lenet", 4, ["--proposals", 300]),
                                     ("moe-tiny", 2, ["--algorithm", "gshard", "--recompute", "full"])):
            with self.subTest(network=network, plan=plan):
                trained, memory = {}, {}
                for sharding in SHARDINGS:
                    found = self.search(sharding, *plan, network=network, topology=f"local-cpu-{ranks}")
                    self.assertEqual(found["sharding"], sharding)
                    again = self.json_of(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost", "analytic",
                                         "--json")
                    self.assertEqual(again["predicted_us"], found["predicted_us"])
                    for clip in ([], ["--clip-norm", 0.1]):
                        done = self.train("s.json", ranks, "--iterations", 4, *clip)
                        self.assertEqual(done["memory_bytes"], found["memory_bytes"])
                        trained[sharding, len(clip)] = done["losses"]
                    memory[sharding] = found["memory_bytes"]
                for clip, sharding in itertools.product((0, 2), SHARDINGS):
                    for plain, sharded in zip(trained["none", clip], trained[sharding, clip], strict=True):
                        self.assertAlmostEqual(plain, sharded, delta=2e-4 * abs(plain))
                if "data-parallel" in plan:
                    for more, less in itertools.pairwise(SHARDINGS):
                        self.assertLess(max(memory[less]), max(memory[more]))

    def test_one_device_agrees(self):
        for sharding in SHARDINGS[1:]:
            with self.subTest(sharding=sharding):
                self.search(sharding, "--algorithm", "data-parallel")
                done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--iterations", 3,
                                        "--verify")
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                self.assertIn("verified", done.stdout)

    def test_checkpoints_are_whole(self):
        self.search("none", "--algorithm", "data-parallel", out="plain.json")
        for sharding in SHARDINGS[1:]:
            self.search(sharding, "--algorithm", "data-parallel", out=f"{sharding}.json")
        expected = {sharding: self.train(f"{sharding}.json", 2, "--iterations", 6)["losses"]
                    for sharding in SHARDINGS[1:]}
        for first, second in (("optimizer", "optimizer"), ("optimizer", "plain"), ("plain", "parameters"),
                              ("gradients", "gradients"), ("gradients", "parameters"), ("parameters", "parameters"),
                              ("parameters", "plain")):
            with self.subTest(first=first, second=second):
                begun = self.train(f"{first}.json", 2, "--iterations", 3, "--save", "m")["losses"]
                ended = self.train(f"{second}.json", 2, "--iterations", 3, "--load", "m")["losses"]
                known_losses = expected[first if first == second else "optimizer"]
                for found, known in zip(begun + ended, known_losses, strict=True):
                    if first == second:
                        self.assertEqual(found, known)  # to the last bit
                    self.assertAlmostEqual(found, known, delta=2e-4 * abs(known))

    def test_auto_shards_where_memory_is_short(self):
        flags = ["--algorithm", "data-parallel"]
        self.assertEqual(self.search("auto", *flags)["sharding"], "none")
        topology = json.loads((ROOT / "topologies/local-cpu-4.json").read_text())
        needed = {sharding: max(self.search(sharding, *flags, topology="local-cpu-4")["memory_bytes"])
                  for sharding in SHARDINGS}
        for more, less in itertools.pairwise(SHARDINGS):
            self.assertLess(needed[less], needed[more])
            for model in topology["device_models"].values():
                model["memory_bytes"] = (needed[less] + needed[more]) // 2
            (self.work / "small.json").write_text(json.dumps(topology))
            found = self.search("auto", *flags, topology=self.work / "small")
            self.assertEqual((found["sharding"], found["fits_memory"]), (less, True))

    def test_simulate_with_and_without(self):
        plain = self.search("none", "--algorithm", "data-parallel")
        for sharding in SHARDINGS[1:]:
            sharded = self.json_of(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--sharding", sharding,
                                   "--cost", "analytic", "--out", "t.json", "--json")
            self.assertEqual(json.loads((self.work / "t.json").read_text())["sharding"], sharding)
            self.assertLess(max(sharded["memory_bytes"]), max(plain["memory_bytes"]))
        back = self.json_of(BUILD / "ffsearch", "simulate", "--strategy", "t.json", "--sharding", "none", "--cost",
                            "analytic", "--json")
        self.assertEqual(back["predicted_us"], plain["predicted_us"])

    def test_sharding_without_an_effect_is_noted(self):
        """Model parallelism of AlexNet gives each device weights of its own; in data parallelism all have all."""
        def said(*command):
            done = self.run_program(BUILD / "ffsearch", *command, "--cost", "analytic", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            json.loads(done.stdout)
            return done.stderr

        def note(sharding):
            return (f"ffsearch: note: sharding {sharding} has no effect: no parameter that it would split is held by "
                    "more than one device\n")

        problem = ["--graph", ROOT / "graphs/alexnet.json", "--topo", ROOT / "topologies/local-cpu-2.json"]
        search = [*problem, "--batch", 16, "--out", "s.json", "--algorithm"]
        for sharding in (*SHARDINGS[1:], "fc*=optimizer"):
            with self.subTest(sharding=sharding):
                self.assertEqual(said(*search, "model-parallel", "--sharding", sharding), note(sharding))
                self.assertEqual(said("simulate", "--strategy", "s.json"), note(sharding))
                self.assertEqual(said(*search, "data-parallel", "--sharding", sharding), "")
        said(*search, "model-parallel")
        self.assertEqual(said("simulate", "--strategy", "s.json", "--sharding", "gradients"), note("gradients"))
        for options in ([], ["--out", "t.json"]):  # for a file, all devices are simulated
            for devices, settings, expected in ((2, "pp=2", note("optimizer")), (4, "pp=2,dp=2", "")):
                self.assertEqual(said("simulate", "--graph", ROOT / "graphs/llama-tiny.json", "--topo",
                                      ROOT / f"topologies/local-cpu-{devices}.json", "--batch", 8, "--settings",
                                      f"{settings},sharding=optimizer", *options), expected)

    def test_what_cannot_be_is_one_message(self):
        for flags, message in (
                (["--sharding", "optimiser"], 'found "optimiser"; did you mean "optimizer"?'),
                (["--sharding", "optimizer", "--synchronization", "parameter-server"], "a parameter server has")):
            with self.subTest(flags=flags):
                done = self.run_program(BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo",
                                        ROOT / "topologies/local-cpu-2.json", *flags)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stderr.count("--sharding: "), 1, done.stderr)
        done = self.run_program(BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo",
                                ROOT / "topologies/local-cpu-1.json", "--sharding", "optimizer")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, 'ffsearch: --sharding: "local-cpu-1" has one device; state is split among '
                                      "several that hold the same parameters\n")


if __name__ == "__main__":
    unittest.main(verbosity=2)
