#!/usr/bin/python3
"""--precision bf16: planned, counted in memory, executed on several ranks, and combined with micro-batches,
recomputation and sharded state. Usage: bf16_test.py BUILD_DIR"""

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


class Bf16(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.work = pathlib.Path(self.folder.name)
        for ranks in (1, 2, 4):
            topology = json.loads((ROOT / f"topologies/local-cpu-{ranks}.json").read_text())
            for model in topology["device_models"].values():
                model["peak_bf16_tflops"] = 2 * model["peak_tflops"]
            (self.work / f"cpu-{ranks}.json").write_text(json.dumps(topology))

    def run_program(self, *command, **variables):
        return subprocess.run([str(word) for word in command], cwd=self.work, capture_output=True, text=True,
                              timeout=600, check=False, env=mpi_environment(**variables))

    def json_of(self, *command):
        done = self.run_program(*command)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def search(self, network, ranks, *flags, precision="bf16", batch=16, out="s.json"):
        return self.json_of(BUILD / "ffsearch", "--graph", ROOT / f"graphs/{network}.json", "--topo",
                            f"cpu-{ranks}.json", "--batch", batch, "--cost", "analytic", "--json", "--precision",
                            precision, "--out", out, *flags)

    def train(self, strategy, ranks, *flags):
        return self.json_of("mpirun", "-n", ranks, BUILD / "ffexec", "--strategy", strategy, "--lr", 0.01, "--json",
                            *flags)

    def test_plans_are_executed_and_memory_is_as_predicted(self):
        alone = {}
        for network in ("lenet", "llama-tiny", "moe-tiny", "rnnlm-2step"):
            self.search(network, 1, "--algorithm", "data-parallel")
            alone[network] = self.train("s.json", 1, "--iterations", 3)["losses"]
        for network, ranks, plan in (("lenet", 1, ["--algorithm", "data-parallel"]),
                                     ("lenet", 4, ["--proposals", 500]),
                                     ("lenet", 2, ["--algorithm", "data-parallel", "--micro-batches", 4]),
                                     ("lenet", 2, ["--synchronization", "parameter-server", "--algorithm",
                                                   "data-parallel"]),
                                     ("llama-tiny", 2, ["--algorithm", "data-parallel", "--recompute", "full"]),
                                     ("llama-tiny", 4, ["--algorithm", "megatron", "--sharding", "optimizer",
                                                        "--optimizer", "adamw"]),
                                     ("llama-tiny", 4, ["--algorithm", "data-parallel", "--micro-batches", 2,
                                                        "--recompute", "full", "--sharding", "optimizer"]),
                                     ("llama-tiny", 4, ["--algorithm", "data-parallel", "--micro-batches", 2,
                                                        "--sharding", "gradients"]),
                                     ("llama-tiny", 4, ["--algorithm", "data-parallel", "--micro-batches", 2,
                                                        "--recompute", "full", "--sharding", "parameters"]),
                                     ("moe-tiny", 2, ["--algorithm", "gshard"]),
                                     ("rnnlm-2step", 4, ["--proposals", 300])):
            with self.subTest(network=network, plan=plan):
                found = self.search(network, ranks, *plan)
                self.assertEqual(found["precision"], "bf16")
                self.assertEqual(json.loads((self.work / "s.json").read_text())["precision"], "bf16")
                again = self.json_of(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--cost", "analytic",
                                     "--json")
                self.assertEqual((again["predicted_us"], again["precision"]), (found["predicted_us"], "bf16"))
                done = self.train("s.json", ranks, "--iterations", 3)
                self.assertEqual(done["memory_bytes"], found["memory_bytes"])
                self.assertEqual(done["precision"], "bf16")
                # Two roundings of 2^-8 in each of three iterations; routing in mixtures of experts decides otherwise.
                bound = 0.1 if network == "moe-tiny" else 6 / 256
                optimizer_differs = "adamw" in plan
                for mine, reference in zip(done["losses"], alone[network], strict=True):
                    self.assertLess(abs(mine - reference), bound * abs(reference))
                    if optimizer_differs:
                        break  # the first loss does not depend on it

    def test_bytes_of_activations_are_halved_and_those_of_gradients_are_not(self):
        fp32 = self.search("lenet", 4, "--algorithm", "model-parallel", precision="fp32")
        bf16 = self.search("lenet", 4, "--algorithm", "model-parallel")
        self.assertEqual(2 * bf16["transfer_bytes"], fp32["transfer_bytes"])
        fp32 = self.search("lenet", 4, "--algorithm", "data-parallel", precision="fp32")
        bf16 = self.search("lenet", 4, "--algorithm", "data-parallel")
        self.assertEqual(bf16["synchronization_bytes"], fp32["synchronization_bytes"])

    def test_delta_simulation_equals_full_simulation(self):
        for network in ("lenet", "rnnlm-2step", "moe-tiny"):
            found = self.search(network, 4, "--proposals", 2000, "--simulator", "checked", "--init",
                                "best,data-parallel,random", "--sharding", "none",
                                "--recompute", "none", "--micro-batches", 1)
            self.assertGreater(sum(found["checks"].values()), 100, network)

    def test_verify_checkpoints_and_other_precisions(self):
        self.search("lenet", 2, "--proposals", 200)
        done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--iterations", 4,
                                "--verify", "--save", "m")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        native = "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
        products = "linear, matmul, einsum, projections of multi_head_attention, and " if native else ""
        self.assertIn(f"precision bf16: kernels of {products}embedding are native; others "
                      "compute in f32 on values of bf16, by conversion", done.stderr)
        # The other way is as good: the losses differ by roundings.
        own = self.train("s.json", 2, "--iterations", 4)["losses"]
        done = self.run_program("mpirun", "-n", 2, BUILD / "ffexec", "--strategy", "s.json", "--lr", 0.01, "--json",
                                "--iterations", 4, ONEDNN_MAX_CPU_ISA="AVX512_CORE_VNNI")
        self.assertIn("precision bf16: kernels of embedding are native", done.stderr)
        converted = json.loads(done.stdout)
        for mine, other in zip(own, converted["losses"], strict=True):
            self.assertLess(abs(mine - other), abs(other) * 8 / 256)
        # Master weights, f32: the run goes on as if it had not stopped.
        whole = self.train("s.json", 2, "--iterations", 6)["losses"]
        begun = self.train("s.json", 2, "--iterations", 3, "--save", "m")["losses"]
        self.assertEqual(begun + self.train("s.json", 2, "--iterations", 3, "--load", "m")["losses"], whole)
        header = (self.work / "m").read_bytes()
        self.assertNotIn(b'"BF16"', header[:4096])
        fp32 = self.train("s.json", 2, "--iterations", 6, "--precision", "fp32")
        self.assertEqual(fp32["precision"], "fp32")
        self.assertNotEqual(fp32["losses"], whole)
        for a, b in zip(fp32["losses"], whole, strict=True):
            self.assertLess(abs(a - b), abs(a) / 20)
        # A plan becomes one of another precision.
        self.json_of(BUILD / "ffsearch", "simulate", "--strategy", "s.json", "--precision", "fp32", "--cost",
                     "analytic", "--out", "t.json", "--json")
        self.assertNotIn("precision", json.loads((self.work / "t.json").read_text()))
        self.assertEqual(self.train("t.json", 2, "--iterations", 6)["losses"], fp32["losses"])
        difference = self.json_of(BUILD / "ffsearch", "diff", "s.json", "t.json", "--cost", "analytic", "--json")
        self.assertEqual(difference["settings"], ['precision is "fp32" instead of "bf16"'])
        self.assertLess(difference["a"]["predicted_us"], difference["b"]["predicted_us"])

    def test_profiles_name_the_type(self):
        done = self.run_program(BUILD / "ffsearch", "profile", "--graph", ROOT / "graphs/lenet.json", "--topo",
                                "cpu-1.json", "--batch", 2, "--precision", "bf16", "--out", "p.json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        kernels = [name for name in json.loads((self.work / "p.json").read_text())["entries"]
                   if not name.startswith(("copy", "update"))]
        self.assertTrue(all(" bf16" in name for name in kernels), kernels)
        self.json_of(BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo", "cpu-1.json", "--batch", 2,
                     "--precision", "bf16", "--cost", "profile", "--profile", "p.json", "--json", "--out", "s.json",
                     "--algorithm", "data-parallel")

    def test_a_plan_that_does_not_fit_is_told_of_bf16(self):
        topology = json.loads((self.work / "cpu-1.json").read_text())
        flags = ["--algorithm", "data-parallel"]
        needs = {precision: max(self.search("llama-tiny", 1, *flags, precision=precision, batch=64)["memory_bytes"])
                 for precision in ("fp32", "bf16")}
        self.assertLess(needs["bf16"], needs["fp32"])
        for model in topology["device_models"].values():
            model["memory_bytes"] = (needs["fp32"] + needs["bf16"]) // 2
        (self.work / "cpu-1.json").write_text(json.dumps(topology))
        self.search("llama-tiny", 1, *flags, precision="fp32", batch=64)
        done = self.run_program(BUILD / "ffsearch", "explain", "--strategy", "s.json", "--cost", "analytic")
        self.assertIn("--precision bf16: activations", done.stdout)

    def test_what_cannot_be_is_one_message(self):
        for flags, code, message in ((["--precision", "fp16"], 2, "--precision"),
                                     (["--precision", "bf16", "--cost", "analytic"], 1,
                                      'device model "p100" has no "peak_bf16_tflops"')):
            with self.subTest(flags=flags):
                done = self.run_program(BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo",
                                        ROOT / "topologies/p100-1x4.json", *flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(message, done.stderr)
        self.search("lenet", 1, "--algorithm", "data-parallel")
        strategy = json.loads((self.work / "s.json").read_text())
        strategy["precision"] = "bf17"
        (self.work / "s.json").write_text(json.dumps(strategy))
        for command in ((BUILD / "ffsearch", "simulate"), (BUILD / "ffexec",)):
            done = self.run_program(*command, "--strategy", "s.json")
            self.assertEqual(done.returncode, 1)
            self.assertIn('s.json: /precision: found "bf17"; did you mean "bf16"?', done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
