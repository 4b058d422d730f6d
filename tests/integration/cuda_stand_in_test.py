#!/usr/bin/env python3
"""ffexec and ffsearch with the CUDA backend on processors (FF_CUDA_STAND_IN): networks of graphs/ with one, two and
four ranks, over NCCL and over MPI, verified and compared with the CPU backend's losses.

    cuda_stand_in_test.py BUILD_DIRECTORY [TEST...]        as a test: small networks, a few iterations
    cuda_stand_in_test.py BUILD_DIRECTORY --losses         prints the losses of five networks, side by side
"""
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from cases_of_today import cases_of_today  # noqa: E402
from mpi_environment import mpi_environment  # noqa: E402

BUILD = None
NETWORKS = {"lenet": 4, "llama-tiny": 2, "moe-tiny": 4, "rnnlm-2step": 2, "dlrm": 4}  # batch


def run(command, devices=4):
    environment = {**mpi_environment(), "OMP_NUM_THREADS": "1", "FF_CUDA_STAND_IN_DEVICES": str(devices),
                   "FF_CUDA_STAND_IN_MEMORY_MB": "8192"}
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment)


def graph_of(folder, network):
    """dlrm has smaller tables here: with its own, it needs 10 GB of memory."""
    text = (ROOT / f"graphs/{network}.json").read_text(encoding="utf-8")
    path = pathlib.Path(folder) / "graph.json"
    path.write_text(re.sub(r'"vocabulary": *100000\b', '"vocabulary": 5000', text), encoding="utf-8")
    return path


def plan(folder, network, ranks, algorithm="data-parallel", *options):
    out = pathlib.Path(folder) / f"{network}-{ranks}.json"
    done = run([BUILD / "ffsearch", "--graph", graph_of(folder, network), "--topo",
                ROOT / f"topologies/local-cpu-{ranks}.json", "--batch", NETWORKS[network] * ranks, "--cost", "analytic",
                "--algorithm", algorithm, "--out", out, "--quiet", *options])
    assert done.returncode == 0, done.stderr
    return out


def train(strategy, ranks, *options, devices=4, iterations=4, optimizer=("--lr", "0.01", "--momentum", "0.9")):
    start = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks] if ranks > 1 else []
    return run([*start, BUILD / "ffexec", "--strategy", strategy, "--json", "--iterations", iterations, *optimizer,
                *options], devices)


class LossesTest(unittest.TestCase):
    def check(self, network, ranks, *options, devices=4, algorithm="data-parallel", planned=(), both=(),
              tolerance=1e-3, **training):
        """What ffexec reports; the CPU backend has the same losses."""
        with tempfile.TemporaryDirectory() as folder:
            strategy = plan(folder, network, ranks, algorithm, *planned)
            done = train(strategy, ranks, "--backend", "cuda", *options, *both, devices=devices, **training)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            result = json.loads(done.stdout)
            expected = json.loads(train(strategy, ranks, "--backend", "cpu", *both, **training).stdout)
        self.assertEqual(result["backend"], "cuda")
        for ours, theirs in zip(result["losses"], expected["losses"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=tolerance * abs(theirs))
        return result


class ProgramsTest(LossesTest):
    def test_bf16(self):
        """Sums in another order are rounded otherwise: a rounding of 2^-8 in each of four iterations."""
        for network, ranks, algorithm, transport in cases_of_today((
                ("lenet", 1, "data-parallel", "auto"), ("lenet", 2, "data-parallel", "nccl"),
                ("llama-tiny", 4, "model-parallel", "nccl"), ("llama-tiny", 2, "model-parallel", "mpi")), 2):
            with self.subTest(network=network, ranks=ranks, transport=transport):
                result = self.check(network, ranks, "--transport", transport, "--verify", algorithm=algorithm,
                                    both=("--precision", "bf16"), tolerance=4 / 256)
                self.assertEqual(result["precision"], "bf16")

    def test_one_rank_and_its_graph(self):
        result = self.check("lenet", 1, "--verify")
        self.assertTrue(result["cuda_graph"])
        self.assertEqual(result["warm_up_iterations"], 3)  # the third one is recorded

    def test_one_rank_without_a_graph(self):
        result = self.check("moe-tiny", 1, "--verify", "--no-cuda-graph")
        self.assertFalse(result["cuda_graph"])
        self.assertEqual(result["warm_up_iterations"], 2)

    def test_three_iterations_are_not_recorded(self):
        """The third one would be measured while it is recorded."""
        result = self.check("lenet", 1, iterations=3)
        self.assertFalse(result["cuda_graph"])
        self.assertEqual(result["warm_up_iterations"], 2)

    def test_nccl(self):
        result = self.check("lenet", 2, "--transport", "nccl", "--verify")
        self.assertEqual(result["transport"], "nccl")
        self.assertTrue(result["cuda_graph"])

    def test_nccl_model_parallel(self):
        self.check("llama-tiny", 4, "--transport", "nccl", "--verify", algorithm="model-parallel")

    def test_ranks_that_share_a_device(self):
        result = self.check("lenet", 2, "--transport", "mpi", "--share-gpu", "--verify", devices=1)
        self.assertEqual(result["transport"], "staging")

    def test_nothing_says_that_a_gpu_was_used(self):
        with tempfile.TemporaryDirectory() as folder:
            strategy = plan(folder, "lenet", 1)
            done = run([BUILD / "ffexec", "--strategy", strategy, "--iterations", 2, "--backend", "cuda"])
        self.assertIn("device      CUDA stand-in on the CPU, fp32", done.stdout)
        self.assertNotIn("NVIDIA", done.stdout)

    def test_a_limit_of_addresses_is_named(self):
        """The stand-in reserves more addresses than ulimit -v often allows."""
        with tempfile.TemporaryDirectory() as folder:
            command = [BUILD / "ffexec", "--strategy", plan(folder, "lenet", 1), "--backend", "cuda"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (100 << 30, 100 << 30)))
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr, "CUDA stand-in: cannot reserve 256 GiB of addresses: Cannot allocate memory; it "
                                      "needs 1.4 TiB of them in each process (ulimit -v, vm.overcommit_memory)\n")

    def test_profile(self):
        """ffsearch measures kernels of a device by its name."""
        with tempfile.TemporaryDirectory() as folder:
            topology = json.loads((ROOT / "topologies/h200-1.json").read_text(encoding="utf-8"))
            text = json.dumps(topology).replace('"h200"', '"stand-in"')
            (pathlib.Path(folder) / "t.json").write_text(text, encoding="utf-8")
            done = run([BUILD / "ffsearch", "profile", "--graph", ROOT / "graphs/lenet.json", "--batch", 4, "--topo",
                        f"{folder}/t.json", "--out", f"{folder}/p.json", "--quiet"])
            self.assertEqual(done.returncode, 0, done.stderr)
            profile = json.loads((pathlib.Path(folder) / "p.json").read_text(encoding="utf-8"))
        self.assertGreater(len(profile["entries"]), 5)
        self.assertIn("CUDA stand-in on the CPU", json.dumps(profile))


    def test_calibration(self):
        """Rates and links of GPUs, over both transports; ffsearch plans for the topology."""
        for ranks, transport, devices in ((2, "nccl", 2), (2, "mpi", 1)):
            with self.subTest(transport=transport), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "topology.json"
                done = run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks, BUILD / "ffexec",
                            "--calibrate", "--backend", "cuda", "--transport", transport, "--share-gpu", "--out", path],
                           devices)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("rank0 and rank1: messages ", done.stdout)
                self.assertNotIn("CPU overhead", done.stdout)
                topology = json.loads(path.read_text(encoding="utf-8"))
                self.assertEqual({device["kind"] for device in topology["devices"]}, {"gpu"})
                self.assertEqual(len(topology["links"]), 1)
                self.assertFalse(topology["links"][0]["blocks_devices"])
                for rate in ("bandwidth_gb_per_s", "all_reduce_gb_per_s"):
                    self.assertGreater(topology["links"][0][rate], 0)
                model = topology["device_models"]["cuda stand-in on the cpu"]
                for rate in ("peak_tflops", "memory_gb_per_s", "launch_us"):
                    self.assertGreater(model[rate], 0)
                self.assertEqual(model["memory_bytes"], (8192 << 20) * devices // ranks)
                done = run([BUILD / "ffsearch", "--graph", ROOT / "graphs/lenet.json", "--topo", path, "--cost",
                            "analytic", "--algorithm", "data-parallel", "--out", f"{folder}/s.json", "--quiet"])
                self.assertEqual(done.returncode, 0, done.stderr)


class PlansTest(LossesTest):
    def test_optimizers_shards_and_micro_batches(self):
        """Plans of every kind of sharded state, with Adam and AdamW, clipped and not, recomputed, in bf16, and in a
        pipeline whose stages are replicated."""
        adamw, adam, shards = ("--optimizer", "adamw"), ("--optimizer", "adam"), "--sharding"
        clip = ("--clip-norm", "0.1")
        for network, ranks, algorithm, planned, trained in cases_of_today((
                ("lenet", 1, "data-parallel", adam, clip),
                ("llama-tiny", 2, "data-parallel", (*adamw, shards, "optimizer"), clip),
                ("llama-tiny", 2, "data-parallel", (*adam, shards, "gradients", "--micro-batches", 2), ()),
                ("llama-tiny", 2, "data-parallel", (*adamw, shards, "parameters", "--recompute", "full"), clip),
                ("moe-tiny", 2, "gshard", (*adamw, shards, "optimizer"), ()),
                ("llama-tiny", 2, "pipeline", (*adamw, "--micro-batches", 2, "--schedule", "1f1b"), clip),
                ("llama-tiny", 2, "data-parallel", (*adamw, shards, "gradients"), ("--precision", "bf16"))), 2):
            with self.subTest(network=network, ranks=ranks, algorithm=algorithm, planned=planned, trained=trained):
                bf16 = "bf16" in trained
                result = self.check(network, ranks, "--verify", algorithm=algorithm, planned=planned, both=trained,
                                    iterations=3, optimizer=("--lr", "0.001"), tolerance=4 / 256 if bf16 else 1e-3)
                self.assertTrue(result["verified"]["passed"])
                if ranks > 1:
                    self.assertEqual(result["transport"], "nccl")

    def test_a_pipeline_of_replicated_stages(self):
        """1F1B on four ranks, two for each stage, which share the state of AdamW."""
        with tempfile.TemporaryDirectory() as folder:
            strategy = pathlib.Path(folder) / "s.json"
            done = run([BUILD / "ffsearch", "simulate", "--graph", ROOT / "graphs/llama-tiny.json", "--topo",
                        ROOT / "topologies/local-cpu-4.json", "--batch", 8, "--cost", "analytic", "--optimizer",
                        "adamw", "--settings", "pp=2,dp=2,micro_batch=1,sharding=optimizer", "--out", strategy])
            self.assertEqual(done.returncode, 0, done.stderr)
            settings = ("--lr", "0.001", "--clip-norm", "0.1")
            ours, theirs = (train(strategy, 4, "--backend", backend, "--verify", iterations=3, optimizer=settings)
                            for backend in ("cuda", "cpu"))
            for done in (ours, theirs):
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            for loss, expected in zip(*(json.loads(done.stdout)["losses"] for done in (ours, theirs)), strict=True):
                self.assertAlmostEqual(loss, expected, delta=1e-3 * expected)


def print_losses():
    print("| network | batch | CPU | CUDA, stand-in |\n|---|---|---|---|")
    for network, batch in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            strategy = plan(folder, network, 1)
            rows = []
            for backend in ("cpu", "cuda"):
                done = train(strategy, 1, "--backend", backend)
                rows.append(" ".join(f"{loss:.6f}" for loss in json.loads(done.stdout)["losses"])
                            if done.returncode == 0 else done.stderr.strip()[-300:])
        print(f"| {network} | {batch} | {rows[0]} | {rows[1]} |", flush=True)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    if sys.argv[1:] == ["--losses"]:
        print_losses()
    else:
        unittest.main()
