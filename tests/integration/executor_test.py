#!/usr/bin/env python3
"""Runs ffexec as its users do, under mpirun. Usage: executor_test.py BUILD_DIRECTORY (standard library only)."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402

BUILD = None
ENVIRONMENT = mpi_environment()

BATCH = 8
GRAPH = {
    "format": "ffgraph/1", "name": "tiny", "batch_size": BATCH,
    "inputs": [{"name": "image", "shape": ["batch", 1, 8, 8], "dtype": "f32"},
               {"name": "label", "shape": ["batch"], "dtype": "i32"}],
    "operators": [
        {"name": "conv", "type": "conv2d", "inputs": ["image"],
         "attributes": {"out_channels": 4, "kernel": [3, 3], "padding": [1, 1], "activation": "relu"}},
        {"name": "pool", "type": "pool2d", "inputs": ["conv"], "attributes": {"kernel": [2, 2]}},
        {"name": "flat", "type": "flatten", "inputs": ["pool"]},
        {"name": "wide", "type": "linear", "inputs": ["flat"],
         "attributes": {"out_features": 400, "activation": "relu"}},
        {"name": "fc", "type": "linear", "inputs": ["wide"], "attributes": {"out_features": 3}},
        {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]}]}
DIMENSIONS = {"conv": ["sample", "channel", "height", "width"], "pool": ["sample", "channel", "height", "width"],
              "flat": ["sample", "channel"], "wide": ["sample", "channel"], "fc": ["sample", "channel"],
              "loss": ["sample"]}


def topology(ranks):
    return {"format": "fftopology/1", "name": "cpus",
            "device_models": {"cpu": {"peak_tflops": 0.1, "memory_gb_per_s": 10, "launch_us": 1, "cores": 1}},
            "devices": [{"name": f"cpu{i}", "kind": "cpu", "model": "cpu"} for i in range(ranks)],
            "links": [{"between": [f"cpu{i}", f"cpu{j}"], "bandwidth_gb_per_s": 5, "latency_us": 1}
                      for i in range(ranks) for j in range(i)]}


def strategy(ranks, split="sample", synchronization=None):
    """Every operator split over all ranks along `split`, or by sample where it cannot be split so."""
    configurations = {}
    for name, dimensions in DIMENSIONS.items():
        axis = split if split in dimensions else "sample"
        degree = min(ranks, 3) if name == "fc" and axis == "channel" else ranks
        configurations[name] = {"degrees": {d: degree if d == axis else 1 for d in dimensions},
                                "devices": list(range(degree))}
    file = {"format": "ffstrategy/1", "graph": GRAPH, "topology": topology(ranks), "configurations": configurations}
    return {**file, "synchronization": synchronization} if synchronization else file


def npy(descr, shape, values):
    shape = "(" + ", ".join(map(str, shape)) + ",)"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = struct.pack(f"<{len(values)}{'f' if descr == '<f4' else 'i'}", *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


class ExecutorTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)

    def path(self, name):
        return os.path.join(self.temporary.name, name)

    def write_strategy(self, ranks, split="sample", synchronization=None, optimizer=None):
        path = self.path(f"s{ranks}-{split}-{synchronization}.json")
        content = strategy(ranks, split, synchronization)
        if optimizer:
            content["graph"] = {**content["graph"], "optimizer": optimizer}
        with open(path, "w") as file:
            json.dump(content, file)
        return path

    def write_data(self, name, samples):
        os.mkdir(self.path(name))
        # Learnable: the brightest third of the image is the label.
        labels = [(7 * i) % 3 for i in range(samples)]
        images = [(1.0 if p * 3 // 64 == labels[i] else 0.0) + ((i * 64 + p) * 37 % 101) / 200.0
                  for i in range(samples) for p in range(64)]
        with open(self.path(name + "/image.npy"), "wb") as file:
            file.write(npy("<f4", (samples, 1, 8, 8), images))
        with open(self.path(name + "/label.npy"), "wb") as file:
            file.write(npy("<i4", (samples,), labels))
        return self.path(name)

    def command(self, ranks, *arguments):
        launcher = ["mpirun", "--bind-to", "none", "-n", str(ranks)] if ranks else []
        return launcher + [os.path.join(BUILD, "ffexec"), *arguments]

    def run_program(self, ranks, *arguments):
        return subprocess.run(self.command(ranks, *arguments), env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=120)

    def train(self, ranks, *arguments):
        result = self.run_program(ranks, *arguments, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_every_strategy_has_the_same_losses(self):
        expected = None
        for ranks, split, synchronization in [
                (0, "sample", None), (1, "sample", None), (2, "sample", None), (2, "channel", None),
                (4, "sample", "all-reduce"), (4, "height", None), (4, "channel", None),
                (1, "sample", "parameter-server"), (2, "sample", "parameter-server"), (4, "sample", "parameter-server"),
                (4, "channel", "parameter-server")]:
            file = self.write_strategy(max(ranks, 1), split, synchronization)
            result = self.train(ranks, "--strategy", file, "--iterations", "5", "--lr", "0.02", "--momentum", "0.9",
                                "--verify")
            self.assertEqual(result["iterations"], 5)
            self.assertEqual(len(result["memory_bytes"]), max(ranks, 1))
            self.assertLess(result["verified"]["max_relative_error"], 1e-3)
            self.assertIsNone(result["predicted_us"])
            self.assertGreater(result["measured_us"], 0)
            expected = expected or result["losses"]
            for a, b in zip(result["losses"], expected):
                self.assertAlmostEqual(a, b, delta=1e-4 * abs(b))

    def test_epochs_learn_and_evaluate(self):
        data, evaluation = self.write_data("train", 50), self.write_data("eval", 21)
        results = [self.train(ranks, "--strategy", self.write_strategy(ranks), "--data", data, "--eval", evaluation,
                              "--epochs", "8", "--lr", "0.1") for ranks in (1, 2)]
        for result in results:
            self.assertEqual(result["iterations"], 8 * 6)
            self.assertEqual(len(result["epoch_losses"]), 8)
            self.assertLess(result["epoch_losses"][-1], result["epoch_losses"][0] / 2)
            self.assertGreater(result["eval"]["top1"], 0.9)
        self.assertAlmostEqual(results[0]["eval"]["loss"], results[1]["eval"]["loss"], delta=1e-3)

    def test_training_goes_on_from_a_checkpoint_with_another_strategy(self):
        one, two, four = self.write_strategy(1), self.write_strategy(2), self.write_strategy(4, "channel")
        # At 0.1 a relu unit comes to lie within rounding of 0 and goes either way: the strategies then differ by 0.8 %
        # of its bias.
        options = ["--lr", "0.02", "--momentum", "0.9"]
        through = self.train(1, "--strategy", one, "--iterations", "6", *options)["losses"]
        first = self.train(2, "--strategy", two, "--iterations", "3", "--save", self.path("half"), *options)["losses"]
        second = self.train(4, "--strategy", four, "--iterations", "3", "--load", self.path("half"), "--verify",
                            *options)["losses"]
        for a, b in zip(first + second, through):
            self.assertAlmostEqual(a, b, delta=1e-3 * abs(b))

    def test_training_goes_on_from_any_checkpoint_as_if_it_had_not_ended(self):
        # Within an epoch, with samples in another order in each: 6 batches of 50 samples are one.
        data, path = self.write_data("train", 50), self.write_strategy(2)
        options = ["--strategy", path, "--data", data, "--lr", "0.02", "--momentum", "0.9"]
        through = self.train(2, *options, "--epochs", "3", "--save", self.path("end"))
        first = self.train(2, *options, "--iterations", "11", "--save", self.path("m"), "--save-every", "4")
        self.assertEqual(first["losses"], through["losses"][:11])
        self.assertEqual(self.train(2, *options, "--iterations", "3", "--load", self.path("m"))["losses"],
                         through["losses"][11:14])
        # From the second epoch's 11th batch: the rest of this one and another.
        rest = self.train(2, *options, "--epochs", "2", "--load", self.path("m"), "--save", self.path("again"),
                          "--verify")
        self.assertEqual(rest["losses"], through["losses"][11:])
        self.assertEqual(rest["epoch_losses"][0], through["losses"][11])
        self.assertEqual(rest["epoch_losses"][1:], through["epoch_losses"][2:])
        self.assertEqual(pathlib.Path(self.path("again")).read_bytes(), pathlib.Path(self.path("end")).read_bytes())

    def test_adamw_goes_on_from_a_checkpoint_as_if_it_had_not_ended(self):
        # With clipping and a schedule, whose rates follow from the number of the iteration; and with another strategy.
        optimizer = {"type": "adamw", "learning_rate": 0.01, "clip_norm": 0.5,
                     "schedule": {"warmup_iterations": 4, "iterations": 9, "minimum": 0.001}}
        options = ["--strategy", self.write_strategy(2, optimizer=optimizer)]
        through = self.train(2, *options, "--iterations", "10", "--save", self.path("end"))
        first = self.train(2, *options, "--iterations", "6", "--save", self.path("m"))
        rest = self.train(2, *options, "--iterations", "4", "--load", self.path("m"), "--save", self.path("again"),
                          "--verify")
        self.assertEqual(first["losses"] + rest["losses"], through["losses"])
        self.assertEqual(pathlib.Path(self.path("again")).read_bytes(), pathlib.Path(self.path("end")).read_bytes())
        four = self.train(4, "--strategy", self.write_strategy(4, "channel", optimizer=optimizer), "--iterations", "4",
                          "--load", self.path("m"))
        for a, b in zip(four["losses"], rest["losses"]):
            self.assertAlmostEqual(a, b, delta=1e-3 * abs(b))
        # Flags override the file; another optimizer's state begins anew.
        process = self.run_program(2, *options, "--iterations", "1", "--load", self.path("m"), "--optimizer", "sgd",
                                 "--momentum", "0.9")
        self.assertIn("does not hold the state of sgd; it begins with zeros", process.stderr)
        self.assertIn("holds optimizer state (exp_avg, exp_avg_sq) that sgd does not use; --optimizer", process.stderr)
        process = self.run_program(2, *options, "--iterations", "1", "--load", self.path("m"))
        self.assertNotIn("optimizer state", process.stderr)
        process = self.run_program(2, *options, "--iterations", "1", "--load", self.path("m"), "--optimizer", "sgd",
                                   "--momentum", "0")
        self.assertIn("that sgd without momentum does not use", process.stderr)
        self.assertNotIn("begins with zeros", process.stderr)

    def test_checkpoints_while_training(self):
        process = self.start_long_run(2, "--save", self.path("m"), "--save-every", "50", "--momentum", "0.9")
        for _ in range(200):
            if os.path.exists(self.path("m")):
                break
            time.sleep(0.1)
        for rank in self.children(process):
            os.kill(rank, signal.SIGKILL)
        process.communicate(timeout=30)
        with open(self.path("m"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        done = int(header["__metadata__"]["iterations"])
        self.assertEqual(done % 50, 0)
        options = ["--strategy", self.write_strategy(2), "--momentum", "0.9"]
        rest = self.train(2, *options, "--iterations", "3", "--load", self.path("m"))
        through = self.train(2, *options, "--iterations", str(done + 3))
        self.assertEqual(rest["losses"], through["losses"][done:])

    def test_the_owners_momentum_is_in_a_checkpoint(self):
        options = ["--lr", "0.02", "--momentum", "0.9"]
        through = self.train(1, "--strategy", self.write_strategy(1), "--iterations", "6", *options)["losses"]
        for before, behind in (("parameter-server", "all-reduce"), ("all-reduce", "parameter-server")):
            first = self.train(2, "--strategy", self.write_strategy(2, "sample", before), "--iterations", "3",
                               "--save", self.path(before), *options)["losses"]
            second = self.train(4, "--strategy", self.write_strategy(4, "sample", behind), "--iterations", "3",
                                "--load", self.path(before), *options)["losses"]
            for a, b in zip(first + second, through):
                self.assertAlmostEqual(a, b, delta=1e-3 * abs(b))

    def test_trace(self):
        self.train(2, "--strategy", self.write_strategy(2, "channel"), "--iterations", "3", "--trace",
                   self.path("t.json"))
        with open(self.path("t.json")) as file:
            events = json.load(file)["traceEvents"]
        self.assertEqual({e["pid"] for e in events}, {0, 1})
        self.assertIn("conv/forward/0", {e["name"] for e in events})
        self.assertIn("transfer", {e.get("cat") for e in events})
        self.assertTrue(all(e["ts"] >= 0 and e["dur"] >= 0 for e in events if e["ph"] == "X"))

    def test_calibration_writes_a_topology(self):
        result = self.run_program(2, "--calibrate", "--out", self.path("topo.json"))
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("topo.json")) as file:
            found = json.load(file)
        self.assertEqual([d["name"] for d in found["devices"]], ["rank0", "rank1"])
        self.assertEqual(len(found["links"]), 1)
        self.assertTrue(found["links"][0]["blocks_devices"])
        plan = strategy(2)
        plan["topology"] = found
        for device in plan["topology"]["device_models"].values():
            self.assertGreater(device["peak_tflops"], 0)
        with open(self.path("s.json"), "w") as file:
            json.dump(plan, file)
        self.train(2, "--strategy", self.path("s.json"))

    def test_ranks_take_the_processors_that_they_may_use(self):
        processor = min(os.sched_getaffinity(0))
        pinned = ["taskset", "-c", str(processor)]
        result = subprocess.run(pinned + self.command(1, "--calibrate", "--out", self.path("one.json")),
                                env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0)
        self.assertEqual([line for line in result.stderr.splitlines() if "the machine was busy" not in line], [])
        with open(self.path("one.json")) as file:
            self.assertEqual(json.load(file)["device_models"]["cpu"]["cores"], 1)
        plan = strategy(1)
        plan["topology"]["device_models"]["cpu"]["cores"] = 2
        with open(self.path("s.json"), "w") as file:
            json.dump(plan, file)
        result = subprocess.run(pinned + self.command(1, "--strategy", self.path("s.json")), env=ENVIRONMENT,
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "note: rank 0 on .* may use 1 processor, its device model has 2 cores: it "
                                        "runs 1 thread, and takes longer than predicted")
        result = subprocess.run(pinned + self.command(2, "--strategy", self.write_strategy(2)), env=ENVIRONMENT,
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "note: 2 ranks share 1 processor on .*: they take turns, and an iteration "
                                        "takes up to 2 times as long as predicted")

    def test_a_busy_machine_is_noted_by_what_measures(self):
        pinned = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        others = [subprocess.Popen([*pinned, "sh", "-c", "while :; do :; done"]) for _ in range(2)]
        try:
            calibrated = subprocess.run(pinned + self.command(1, "--calibrate", "--out", self.path("one.json")),
                                        env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
            lenet = pathlib.Path(__file__).resolve().parents[2] / "graphs/lenet.json"
            profiled = subprocess.run([*pinned, BUILD + "/ffsearch", "profile", "--graph", lenet,
                                       "--topo", self.path("one.json"), "--out", self.path("p.json")],
                                      capture_output=True, text=True, timeout=120)
        finally:
            for other in others:
                other.kill()
                other.wait()
        for result, spread in ((calibrated, ""), (profiled, "; the middle half of the repetitions spans [0-9]+ % of "
                                                            "their median")):
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stderr, "note: .*the machine was busy while this was measured: other processes had "
                                            f"[2-9][0-9] %.* of the time of the processor{spread}; the figures will "
                                            "not hold when it is idle: measure again then\n")

    def test_what_is_no_number_is_said_once(self):
        data = self.write_data("train", 24)
        images = [0.5] * 24 * 64
        images[20 * 64 + 63] = float("nan")  # in the third batch
        with open(self.path("train/image.npy"), "wb") as file:
            file.write(npy("<f4", (24, 1, 8, 8), images))
        for ranks in (1, 2):
            result = self.run_program(ranks, "--strategy", self.write_strategy(ranks), "--data", data, "--epochs", "3")
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stderr, r"\Affexec: note: the data of iteration [1-3] has values that are infinite "
                                            r"or not numbers\n\Z")
        result = self.run_program(1, "--strategy", self.write_strategy(1), "--iterations", "6", "--lr", "1e38",
                                  "--json")
        self.assertRegex(result.stderr, "ffexec: note: the loss of iteration [2-6] is infinite or not a number: the "
                                        "learning rate may be too high\n")
        self.assertEqual(result.stderr.count("note:"), 1)
        self.assertIn(None, json.loads(result.stdout)["losses"])

    def test_the_median_leaves_out_warm_up(self):
        for iterations, said in ((1, "the first iteration, a warm-up"),
                                 (2, "median of 1 after 1 warm-up iteration"),
                                 (5, "median of 3 after 2 warm-up iterations")):
            result = self.run_program(1, "--strategy", self.write_strategy(1), "--iterations", str(iterations))
            self.assertRegex(result.stdout, rf"measured \({said}\)")

    def assert_fails(self, code, message, ranks, *arguments):
        result = self.run_program(ranks, *arguments)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count(message), 1, result.stderr)

    def test_wrong_number_of_ranks(self):
        path = self.write_strategy(2)
        self.assert_fails(1, f"ffexec: {path} is for 2 devices (cpu0, cpu1), started with 3 ranks: use mpirun -n 2\n",
                          3, "--strategy", path)
        self.assert_fails(1, f"ffexec: {path} is for 2 devices (cpu0, cpu1), started with 1 rank: use mpirun -n 2\n", 0,
                          "--strategy", path)

    def test_no_gpu(self):
        path = self.write_strategy(2)
        probe = self.run_program(2, "--strategy", path, "--backend", "cuda")
        if probe.returncode == 0 or "no GPU: " not in probe.stderr:
            self.skipTest("this machine has GPUs")
        for flag, value in (("--backend", "cuda"), ("--transport", "nccl")):
            self.assert_fails(3, "ffexec: no GPU: ", 2, "--strategy", path, flag, value)
        self.assert_fails(2, "--transport nccl: NCCL is for GPUs: use --backend cuda\n", 2, "--strategy", path,
                          "--backend", "cpu", "--transport", "nccl")

    def test_strategy_for_gpus_on_cpus(self):
        path = self.write_strategy(2)
        with open(path, encoding="utf-8") as file:
            strategy = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(strategy.replace('"kind": "cpu"', '"kind": "gpu"').replace('"kind":"cpu"', '"kind":"gpu"'))
        result = self.run_program(2, "--strategy", path, "--iterations", "1", "--share-gpu", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        backend = json.loads(result.stdout)["backend"]
        self.assertEqual(result.stderr.count("ffexec: note: the strategy is for GPUs, running on CPUs (no GPU: "),
                         backend == "cpu", result.stderr)

    def test_unreadable_inputs(self):
        path = self.write_strategy(2)
        self.assert_fails(1, "ffexec: /nowhere.json: cannot open: No such file or directory\n", 2, "--strategy",
                          "/nowhere.json")
        self.assert_fails(1, "ffexec: /nowhere: is not a directory, expected one with a .npy file for each input of "
                          "the graph\n", 2,
                          "--strategy", path, "--data", "/nowhere")
        self.assert_fails(1, "ffexec: /nowhere/m: cannot open: No such file or directory\n", 2, "--strategy", path,
                          "--load", "/nowhere/m")
        data = self.write_data("data", 16)
        with open(self.path("data/label.npy"), "wb") as file:
            file.write(npy("<i4", (16,), [0] * 15 + [9]))
        for ranks in (0, 2):
            self.assert_fails(1, "label.npy: sample 15 has the label 9, expected 0 to 2\n", ranks, "--strategy",
                              self.write_strategy(max(ranks, 1)), "--data", data, "--epochs", "1")

    def test_wrong_command_line(self):
        self.assert_fails(2, "--strategy is required", 2)
        self.assert_fails(2, "--epochs requires --data", 2, "--strategy", "s.json", "--epochs", "1")
        self.assert_fails(2, "--iterations", 2, "--strategy", "s.json", "--iterations", "0")
        self.assert_fails(2, "--save-every requires --save", 2, "--strategy", "s.json", "--save-every", "5")
        self.assert_fails(2, "--save-every", 2, "--strategy", "s.json", "--save", "m", "--save-every", "0")
        self.assert_fails(2, "--rank-timeout", 2, "--strategy", "s.json", "--rank-timeout", "1")

    def children(self, process):
        """ffexec processes below mpirun."""
        listing = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True).stdout.split("\n")[1:]
        rows = [line.split(None, 2) for line in listing if line.strip()]
        return [int(pid) for pid, parent, name in rows if int(parent) == process.pid and name == "ffexec"]

    def start_long_run(self, ranks, *arguments):
        process = subprocess.Popen(self.command(ranks, "--strategy", self.write_strategy(max(ranks, 1)), "--iterations",
                                                "100000000",
                                                *arguments), env=ENVIRONMENT, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(3)
        self.assertIsNone(process.poll())
        return process

    def test_a_killed_rank_ends_the_job(self):
        process = self.start_long_run(4)
        while len(ranks := self.children(process)) < 4:  # mpirun may be slow to start them
            self.assertIsNone(process.poll())
            time.sleep(0.2)
        os.kill(ranks[2], signal.SIGKILL)
        process.communicate(timeout=30)
        self.assertNotEqual(process.returncode, 0)

    def test_interruption_saves_what_there_is(self):
        process = self.start_long_run(0, "--json", "--save", self.path("m"))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertTrue(json.loads(out)["interrupted"])
        self.assertTrue(os.path.exists(self.path("m")))


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
