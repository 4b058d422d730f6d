#!/usr/bin/env python3
"""Trains small networks with ffexec and with PyTorch, from the same parameters on the same data, and compares
losses and parameters. Usage: pytorch_test.py BUILD_DIRECTORY. Exits 77 (skipped) without PyTorch."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    from torch.utils.checkpoint import checkpoint
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import pytorch_networks as networks  # noqa: E402
from mpi_environment import mpi_environment  # noqa: E402
from safetensors_file import read_safetensors, write_safetensors  # noqa: E402

BUILD = None
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVIRONMENT = mpi_environment()
ITERATIONS, MOMENTUM, WEIGHT_DECAY = 10, 0.9, 1e-4
TOLERANCE = 1e-3  # of a loss; of a tensor's largest value
UPDATE_TOLERANCE = 1e-2  # of the largest change that training made to a tensor


def torch_optimizer(described, trained):
    """PyTorch's optimizer and schedule for the key "optimizer" of a graph file."""
    settings = {"lr": described["learning_rate"], "weight_decay": described["weight_decay"]}
    if described["type"] == "sgd":
        optimizer = torch.optim.SGD(trained, momentum=described["momentum"], **settings)
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[described["type"]]
        optimizer = kind(trained, betas=described["betas"], eps=described["epsilon"], **settings)
    schedule = described["schedule"]
    warmup, end = schedule["warmup_iterations"], schedule["iterations"]
    least = schedule["minimum"] / described["learning_rate"]

    def factor(iteration):
        if iteration < warmup:
            return (iteration + 1) / warmup
        return least + (1 - least) * (1 + math.cos(math.pi * min(1, (iteration - warmup) / (end - warmup)))) / 2

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train_in_pytorch(network, micro_batches=1, recompute=False):
    """(losses, loss of an evaluation behind them, parameters), computed with 64 bits: what rounding adds is ffexec's
    alone. In so many micro-batches, whose gradients autograd adds up; recompute: by torch.utils.checkpoint."""
    torch.manual_seed(0)
    parameters = {name: torch.tensor(values, dtype=torch.float64, requires_grad=not name.endswith(networks.RUNNING))
                  for name, values in network.parameters.items()}
    data = {name: torch.tensor(values, dtype=torch.int64 if values.dtype == numpy.int32 else torch.float64)
            for name, values in network.data.items()}
    trained = [p for p in parameters.values() if p.requires_grad]
    described = network.graph.get("optimizer")
    optimizer, schedule = torch_optimizer(described, trained) if described else (
        torch.optim.SGD(trained, lr=network.learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY), None)
    losses = []
    pieces = [{name: values.chunk(micro_batches)[k] for name, values in data.items()} for k in range(micro_batches)]
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss = 0
        for piece in pieces:
            of_piece = checkpoint(network.loss, parameters, piece, True, use_reentrant=False) if recompute else (
                network.loss(parameters, piece, True))
            (of_piece / micro_batches).backward()
            loss += of_piece.detach() / micro_batches
        if described and "clip_norm" in described:
            torch.nn.utils.clip_grad_norm_(trained, described["clip_norm"])
        optimizer.step()
        if schedule:
            schedule.step()
        losses.append(loss.item())
    with torch.no_grad():
        evaluation = network.loss(parameters, data, False).item()
    return losses, evaluation, {name: values.detach().numpy() for name, values in parameters.items()}


def train_with_autocast(network):
    """Losses of PyTorch's mixed precision: fp32 parameters, products in bf16."""
    parameters = {name: torch.tensor(values, requires_grad=not name.endswith(networks.RUNNING))
                  for name, values in network.parameters.items()}
    data = {name: torch.tensor(values, dtype=torch.int64 if values.dtype == numpy.int32 else torch.float32)
            for name, values in network.data.items()}
    optimizer = torch.optim.SGD([p for p in parameters.values() if p.requires_grad], lr=network.learning_rate,
                                momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = network.loss(parameters, data, True).float()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mixed(network, strategy):
    """The strategy with each operator split as the network says; the issue order and the prediction do not hold any
    longer."""
    configurations = {}
    for operator in network.graph["operators"]:
        degrees, devices = network.split(operator["name"])
        configurations[operator["name"]] = {"degrees": degrees, "devices": devices}
    return {"format": "ffstrategy/1", "graph": strategy["graph"], "topology": strategy["topology"],
            "configurations": configurations}


class PytorchTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)

    def path(self, name):
        return os.path.join(self.temporary.name, name)

    def run_program(self, *command):
        result = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
        self.assertEqual(result.returncode, 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}")
        return result.stdout

    def search(self, ranks, *arguments):
        path = self.path(f"searched-{ranks}.json")
        self.run_program(os.path.join(BUILD, "ffsearch"), "--graph", self.path("graph.json"), "--topo",
                         os.path.join(REPOSITORY, "topologies", f"local-cpu-{ranks}.json"), "--cost", "analytic",
                         "--quiet", "--out", path, *arguments)
        return path

    def assert_close(self, what, found, expected, scale, tolerance):
        worst = float(numpy.max(numpy.abs(numpy.asarray(found, numpy.float64) - expected)))
        self.assertLessEqual(worst, tolerance * scale,
                             f"{what}: differs by {worst:.3g}, by {worst / scale:.2g} of {scale:.3g}")
        return worst / scale

    def compare(self, network, label, ranks, strategy, expected):
        losses, evaluation, parameters = expected
        saved = self.path("trained.safetensors")
        result = json.loads(self.run_program(
            "mpirun", "--bind-to", "none", "-n", str(ranks), os.path.join(BUILD, "ffexec"), "--strategy", strategy,
            "--data", self.path("data"),
            "--eval", self.path("data"), "--load", self.path("initial.safetensors"), "--save", saved, "--iterations",
            str(ITERATIONS),
            *([] if "optimizer" in network.graph else
              ["--lr", str(network.learning_rate), "--momentum", str(MOMENTUM), "--weight-decay", str(WEIGHT_DECAY)]),
            "--json"))
        self.assertEqual(len(result["losses"]), ITERATIONS)
        worst_loss = max(self.assert_close(f"{label}: loss {i}", result["losses"][i], losses[i], losses[i], TOLERANCE)
                         for i in range(ITERATIONS))
        self.assert_close(f"{label}: evaluation", result["eval"]["loss"], evaluation, evaluation, TOLERANCE)
        trained = read_safetensors(saved)
        self.assertEqual({name for name in trained if not name.endswith((".velocity", ".exp_avg", ".exp_avg_sq"))},
                         set(parameters))
        worst_value = worst_update = 0
        for name, values in parameters.items():
            self.assertEqual(trained[name].shape, values.shape, name)
            worst_value = max(worst_value, self.assert_close(f"{label}: {name}", trained[name], values,
                                                             numpy.max(numpy.abs(values)), TOLERANCE))
            # A wrong gradient of a parameter that hardly moves would pass the comparison of values.
            update = numpy.max(numpy.abs(values - network.parameters[name]))
            worst_update = max(worst_update, self.assert_close(f"{label}: update of {name}", trained[name], values,
                                                               update, UPDATE_TOLERANCE))
        worst = (worst_loss, worst_value, worst_update)
        print(f"{network.graph['name']}, {label}: loss {losses[0]:.4f} to {losses[-1]:.4f}; largest relative "
              f"differences: "
              f"losses {worst_loss:.1e}, parameters {worst_value:.1e}, their updates {worst_update:.1e}", flush=True)
        return losses, worst

    def check(self, network, *plans):
        with open(self.path("graph.json"), "w") as file:
            json.dump(network.graph, file)
        write_safetensors(self.path("initial.safetensors"), network.parameters)
        os.mkdir(self.path("data"))
        for name, values in network.data.items():
            numpy.save(self.path(f"data/{name}.npy"), values)
        expected = train_in_pytorch(network)
        self.assertLess(expected[0][-1], 0.95 * expected[0][0], "the network learns nothing: a poor test")
        self.compare(network, "1 rank", 1, self.search(1, "--algorithm", "data-parallel"), expected)
        searched = self.search(2, "--proposals", "200", "--seed", "3")
        self.compare(network, "2 ranks, searched", 2, searched, expected)
        with open(searched) as file:
            strategy = mixed(network, json.load(file))
        with open(self.path("mixed.json"), "w") as file:
            json.dump(strategy, file)
        self.compare(network, "2 ranks, mixed", 2, self.path("mixed.json"), expected)
        for plan, ranks in plans:
            self.compare(network, f"{ranks} ranks, {plan}", ranks, self.search(ranks, "--algorithm", plan), expected)

    def test_image_classifier(self):
        self.check(networks.image_classifier())

    def test_bf16(self):
        """Each run's losses differ from those in 64 bits by what its roundings add up to. ffexec and PyTorch's autocast
        round the same tensors to 8 bits of mantissa, not in the same places: autocast keeps what normalizations and
        additions compute in more places, ffexec rounds every operator's output. So a difference of ffexec may be a few
        times autocast's; where autocast's happens to be small, one rounding of the loss counts."""
        rounding, times = 2.0 ** -8, 4
        for network in (networks.image_classifier(), networks.transformer(), networks.language_model()):
            name = network.graph["name"]
            with self.subTest(name):
                self.temporary = tempfile.TemporaryDirectory()
                self.addCleanup(self.temporary.cleanup)
                with open(self.path("graph.json"), "w") as file:
                    json.dump(network.graph, file)
                write_safetensors(self.path("initial.safetensors"), network.parameters)
                os.mkdir(self.path("data"))
                for tensor, values in network.data.items():
                    numpy.save(self.path(f"data/{tensor}.npy"), values)
                exact = numpy.array(train_in_pytorch(network)[0])
                autocast = numpy.array(train_with_autocast(network))
                allowed = times * numpy.maximum.accumulate(numpy.abs(autocast - exact)) + rounding * exact
                for ranks, plan in ((1, ["--algorithm", "data-parallel"]), (2, ["--algorithm", "data-parallel"]),
                                    (2, ["--proposals", "200", "--seed", "3"]),
                                    (4, ["--algorithm", "model-parallel"])):
                    with open(os.path.join(REPOSITORY, "topologies", f"local-cpu-{ranks}.json")) as file:
                        topology = json.load(file)
                    for model in topology["device_models"].values():
                        model["peak_bf16_tflops"] = model["peak_tflops"]
                    with open(self.path("topology.json"), "w") as file:
                        json.dump(topology, file)
                    self.run_program(os.path.join(BUILD, "ffsearch"), "--graph", self.path("graph.json"), "--topo",
                                     self.path("topology.json"), "--cost", "analytic", "--quiet", "--precision",
                                     "bf16", "--out", self.path("s.json"), *plan)
                    done = json.loads(self.run_program(
                        "mpirun", "--bind-to", "none", "-n", str(ranks), os.path.join(BUILD, "ffexec"), "--strategy",
                        self.path("s.json"), "--data", self.path("data"), "--load", self.path("initial.safetensors"),
                        "--iterations", str(ITERATIONS), "--lr", str(network.learning_rate), "--momentum",
                        str(MOMENTUM), "--weight-decay", str(WEIGHT_DECAY), "--json"))
                    self.assertEqual(done["precision"], "bf16")
                    difference = numpy.abs(numpy.array(done["losses"]) - exact)
                    print(f"{name}, bf16, {ranks} ranks, {' '.join(plan)}: difference from 64 bits, ffexec "
                          f"{max(difference):.1e}, autocast {max(abs(autocast - exact)):.1e}, loss {exact[0]:.3f} to "
                          f"{exact[-1]:.3f}", flush=True)
                    self.assertGreater(max(difference), 1e-6, "nothing was rounded")
                    self.assertTrue((difference <= allowed).all(), f"{difference} exceeds {allowed}")

    # Epsilon is larger than PyTorch's default: at first Adam's steps are nearly the signs of gradients, and those of
    # gradients that are but rounding are those of the rounding.
    def test_optimizers(self):
        for kind, rest in (("adamw", {"betas": [0.9, 0.95], "epsilon": 1e-3, "weight_decay": 0.1}),
                           ("adam", {"betas": [0.8, 0.99], "epsilon": 1e-3, "weight_decay": 1e-3}),
                           ("sgd", {"momentum": 0.9, "weight_decay": 1e-3})):
            with self.subTest(kind):
                self.temporary = tempfile.TemporaryDirectory()
                self.addCleanup(self.temporary.cleanup)
                network = networks.transformer()
                network.graph["optimizer"] = {
                    "type": kind, "learning_rate": 0.2 if kind == "sgd" else 0.02, "clip_norm": 0.5,
                    "schedule": {"warmup_iterations": 3, "iterations": 9, "minimum": 0.001}, **rest}
                self.check(network)

    def test_language_model(self):
        self.check(networks.language_model())

    def test_transformer(self):
        self.check(networks.transformer(), ("megatron", 2), ("megatron", 4))

    def test_llama(self):
        self.check(networks.llama(), ("megatron", 2))

    def test_mixture_of_experts(self):
        self.check(networks.mixture_of_experts(), ("gshard", 2), ("gshard", 4))


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
