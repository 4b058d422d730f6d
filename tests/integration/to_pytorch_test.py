#!/usr/bin/env python3
"""From PyTorch to ffexec and back: networks are exported, imported, trained for two iterations, and their checkpoints
loaded by PyTorch under its own names, where the loss is that of ffexec. Usage: to_pytorch_test.py BUILD_DIRECTORY.
Exits 77 (skipped) without PyTorch or in a build without ONNX import."""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    import torch.nn as nn
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))
import onnx_comparison as comparison  # noqa: E402
import onnx_networks as networks  # noqa: E402
from safetensors_file import read_safetensors, write_safetensors  # noqa: E402
from to_pytorch import read_safetensors as read, to_pytorch  # noqa: E402

BUILD = None


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.attention = nn.MultiheadAttention(channels, 2, batch_first=True)
        self.fc = nn.Linear(channels, channels)

    def forward(self, x):
        y = self.norm(x)
        return self.fc(x + self.attention(y, y, y, need_weights=False)[0])


class Images(nn.Module):
    """Running statistics, a class token, positions, attention whose projections are one tensor in PyTorch too."""

    def __init__(self):
        super().__init__()
        self.patches, self.bn = nn.Conv2d(3, 16, 4, 4), nn.BatchNorm2d(16)
        self.cls, self.positions = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16))
        self.blocks = nn.ModuleList([Block(16), Block(16)])
        self.head = nn.Linear(16, 5)

    def forward(self, image):
        x = self.bn(self.patches(image)).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class SeparateProjections(nn.Module):
    """Three layers in PyTorch, one operator here; a table of positions that is longer than the sequence."""

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(50, 24), nn.Embedding(16, 24)
        self.q, self.k, self.v = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.scores = nn.Linear(24, 50)

    def forward(self, token):
        x = self.embed(token) + self.position(torch.arange(token.shape[1]))
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, 2, 12).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = (q @ k.transpose(2, 3) / 12 ** 0.5).softmax(-1) @ v
        return self.scores(x + y.transpose(1, 2).reshape(batch, length, 24))


def train(case, folder, base):
    """Two iterations, and the first loss after them. Returns it, the state for PyTorch, and the graph."""
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    ffsearch, ffexec = os.path.join(BUILD, "ffsearch"), os.path.join(BUILD, "ffexec")
    case.model.train()
    comparison.export(case, copy.deepcopy(case.model), path("model.onnx"))
    pathlib.Path(path("names.txt")).write_text("".join(f"{name}\n" for name, p in case.model.named_parameters()
                                                       if p.requires_grad))
    comparison.run(ffsearch, "import", path("model.onnx"), "--batch", 4, "--loss", "cross-entropy", "--like",
                   path("names.txt"), "--out", path("graph.json"), "--weights", path("w.safetensors"))
    comparison.run(ffsearch, "--graph", path("graph.json"), "--topo",
                   os.path.join(comparison.REPOSITORY, "topologies", "local-cpu-1.json"), "--cost", "analytic",
                   "--quiet", "--out", path("s.json"), "--algorithm", "data-parallel")
    os.makedirs(path("data"), exist_ok=True)
    for name, value in [*case.inputs.items(), ("label", case.label)]:
        numpy.save(path(f"data/{name}.npy"), value.numpy().astype(numpy.float32 if value.is_floating_point()
                                                                  else numpy.int32))
    executing = [ffexec, "--strategy", path("s.json"), "--data", path("data"), "--lr", 0.1, "--json", "--load"]
    comparison.run(*executing, path("w.safetensors"), "--iterations", 2, "--save", path("trained.safetensors"))
    loss = json.loads(comparison.run(*executing, path("trained.safetensors"), "--iterations", 1))["losses"][0]
    torch.save(case.model.state_dict(), path("base.pt"))
    command = [sys.executable, SCRIPTS / "to_pytorch.py", path("trained.safetensors"), "--out",
               path("state.safetensors")]  # the checkpoint has the table of names itself
    comparison.run(*command, *(["--base", path("base.pt")] if base else []))
    return loss, read(path("state.safetensors"))[0], json.loads(pathlib.Path(path("graph.json")).read_text())


class ToPytorchTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def check(self, model, inputs, label, base=True):
        case = comparison.Case(type(model).__name__, model, inputs, label)
        with tempfile.TemporaryDirectory() as folder:
            loss, state, graph = train(case, folder, base)
            trained = read_safetensors(os.path.join(folder, "trained.safetensors"))
        before = copy.deepcopy(model)
        model.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in state.items()}, strict=True)
        for name, parameter in model.named_parameters():
            self.assertEqual(state[name].shape, tuple(parameter.shape))
        found = comparison.loss_of(case, model, case.inputs.values()).item()
        self.assertLess(abs(found - loss), 1e-5 * loss)
        self.assertGreater(abs(comparison.loss_of(case, before, case.inputs.values()).item() - loss), 1e-3 * loss)
        return state, trained, {op["name"]: op for op in graph["operators"]}

    def test_images(self):
        for base in (True, False):
            with self.subTest(base=base):
                state, trained, operators = self.check(Images(), {"image": torch.randn(4, 3, 16, 16)},
                                                       torch.randint(0, 5, (4,)), base)
                for block in ("blocks.0", "blocks.1"):
                    self.assertEqual(operators[f"{block}.attention"]["type"], "multi_head_attention")
                    numpy.testing.assert_array_equal(state[f"{block}.attention.in_proj_weight"],
                                                     trained[f"{block}.attention.weight"].reshape(48, 16))
                numpy.testing.assert_array_equal(state["bn.running_var"], trained["bn.running_variance"])
                self.assertTrue((state["bn.running_var"] != 1).all())

    def test_separate_projections(self):
        model = SeparateProjections()
        initial = model.position.weight.detach().numpy().copy()
        state, trained, operators = self.check(model, {"token": torch.randint(0, 50, (4, 9))},
                                               torch.randint(0, 50, (4, 9)))
        [attention] = [op["name"] for op in operators.values() if op["type"] == "multi_head_attention"]
        for number, name in enumerate("qkv"):
            numpy.testing.assert_array_equal(state[f"{name}.weight"], trained[f"{attention}.weight"][number])
        numpy.testing.assert_array_equal(state["position.weight"][9:], initial[9:])  # which the graph does not have
        self.assertTrue((state["position.weight"][:9] != initial[:9]).any(1).all())

    def test_rows_that_the_graph_lacks_need_a_base(self):
        case = comparison.Case("separate", SeparateProjections(), {"token": torch.randint(0, 50, (4, 9))},
                               torch.randint(0, 50, (4, 9)))
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(RuntimeError) as raised:
                train(case, folder, base=False)
        self.assertIn("to_pytorch: position.weight: the graph has 216 of its 384 elements; give the model's "
                      "state_dict() as base for the others\n", str(raised.exception))

    def test_tied_weights_and_transposed_ones(self):
        state, _, _ = self.check(networks.Gpt(50, 24, 2, 9, 2), {"token": torch.randint(0, 50, (4, 9))},
                                 torch.randint(0, 50, (4, 9)))
        tied = [name for name, values in state.items() if values.shape == (50, 24)]
        for name in tied[1:]:
            numpy.testing.assert_array_equal(state[name], state[tied[0]])

    def test_two_biases_that_are_one_here(self):
        for base in (True, False):
            with self.subTest(base=base):
                self.check(networks.LstmLanguageModel(50, 16, 2), {"token": torch.randint(0, 50, (4, 9))},
                           torch.randint(0, 50, (4, 9)), base)

    def test_one_of_two_biases_is_held_still(self):
        for kept in ("bias_hh", "bias_ih"):
            model = networks.LstmLanguageModel(50, 16, 2, bidirectional=True)
            initial = {}
            for name, parameter in model.named_parameters():
                if kept in name:
                    parameter.requires_grad_(False)
                    initial[name] = parameter.detach().numpy().copy()
            with self.subTest(kept=kept):
                state, _, _ = self.check(model, {"token": torch.randint(0, 50, (4, 9))}, torch.randint(0, 50, (4, 9)))
                self.assertEqual(len(initial), 4)
                for name, values in initial.items():
                    numpy.testing.assert_array_equal(state[name], values)

    def test_an_encoder(self):
        self.check(networks.Encoder(50, 24, 2, 2, 5), {"token": torch.randint(0, 50, (4, 9))},
                   torch.randint(0, 5, (4,)))

    def test_wrong_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = lambda name: os.path.join(folder, name)  # noqa: E731
            write_safetensors(path("a.safetensors"), {"x": numpy.zeros((2,), numpy.float32)})
            pathlib.Path(path("text")).write_text("not a safetensors file")
            for checkpoint, weights, message in (
                    ("a.safetensors", "a.safetensors",
                     "a.safetensors: has no table of names; `ffsearch import --weights` writes one, and `ffexec "
                     "--load` and `--save` pass it on"),
                    ("text", "a.safetensors", "text: is not a safetensors file"),
                    ("none", "a.safetensors", "none: No such file or directory")):
                done = subprocess.run([sys.executable, SCRIPTS / "to_pytorch.py", path(checkpoint), "--weights",
                                       path(weights), "--out", path("o")], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout, done.stderr),
                                 (1, "", f"to_pytorch: {path(message)}\n"))
                self.assertFalse(os.path.exists(path("o")))

    def test_as_a_function(self):
        case = comparison.Case("images", Images(), {"image": torch.randn(4, 3, 16, 16)}, torch.randint(0, 5, (4,)))
        with tempfile.TemporaryDirectory() as folder:
            _, state, _ = train(case, folder, base=True)
            again = to_pytorch(*(os.path.join(folder, name)
                                 for name in ("trained.safetensors", "w.safetensors", "base.pt")))
        self.assertEqual(set(again), set(state))
        for name, values in again.items():
            numpy.testing.assert_array_equal(values, state[name])


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    probe = subprocess.run([os.path.join(BUILD, "ffsearch"), "import", "/dev/null", "--batch", "1", "--out", "x"],
                           capture_output=True, text=True, check=False)
    if "without ONNX import" in probe.stderr:
        print("skipped: this build has no ONNX import")
        sys.exit(77)
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
