#!/usr/bin/env python3
"""What ffsearch import makes of float initializers that it could train wrongly without a word: masks and tables that
are buffers, parameters that arithmetic changes, one parameter in two places. Each network is exported by PyTorch; it
is either refused with a message, or one iteration of ffexec agrees with PyTorch's. Usage: onnx_initializers_test.py
BUILD_DIRECTORY. Exits 77 (skipped) without PyTorch or in a build without ONNX import."""
import copy
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import onnx_comparison as comparison  # noqa: E402

BUILD = None
TOLERANCE = 1e-4
LENGTH, CHANNELS, CLASSES = 6, 8, 5


class Network(nn.Module):
    """Positions of a sequence, each classified; subclasses say what is between."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CLASSES)

    def forward(self, x):
        return self.last(self.between(torch.tanh(self.first(x))))


class Masked(Network):
    """A causal mask as a buffer of floats."""

    def __init__(self, hidden):
        super().__init__()
        self.query, self.key = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), hidden).triu(1))

    def between(self, x):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(CHANNELS)
        return (scores + self.mask).softmax(-1) @ x


class Sines(Network):
    """Vaswani et al.'s table of positions, as a buffer that is longer than the sequence."""

    def __init__(self):
        super().__init__()
        angle = torch.arange(20).unsqueeze(1) * torch.exp(torch.arange(0, CHANNELS, 2) * -(math.log(1e4) / CHANNELS))
        table = torch.zeros(1, 20, CHANNELS)
        table[0, :, 0::2], table[0, :, 1::2] = torch.sin(angle), torch.cos(angle)
        self.register_buffer("table", table)

    def between(self, x):
        return x + self.table[:, :x.shape[1]]


class RelativePositions(Network):
    """T5's bias: a row of a table for each distance of two positions."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(2 * LENGTH - 1, 2)

    def between(self, x):
        at = torch.arange(LENGTH)
        bias = self.bias(at[None, :] - at[:, None] + LENGTH - 1).permute(2, 0, 1)
        heads = x.view(-1, LENGTH, 2, CHANNELS // 2).transpose(1, 2)
        scores = heads @ heads.transpose(2, 3) + bias
        return (scores.softmax(-1) @ heads).transpose(1, 2).reshape(-1, LENGTH, CHANNELS)


class ClassToken(Network):
    """A row before the sequence, which is cut off again."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, CHANNELS))

    def between(self, x):
        return torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1)[:, 1:]


class LookedUp(Network):
    """Rows of a table by constant indices, each once."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(LENGTH + 3, CHANNELS)

    def between(self, x):
        return x + self.table(torch.arange(LENGTH).flip(0) + 2)


class TokenTypes(Network):
    """BERT's: all positions have the same row."""

    def __init__(self):
        super().__init__()
        self.types = nn.Embedding(2, CHANNELS)

    def between(self, x):
        return x + self.types(torch.zeros(x.shape[:2], dtype=torch.long))


class Joined(Network):
    """One table of two parameters."""

    def __init__(self):
        super().__init__()
        self.begin, self.rest = nn.Parameter(torch.randn(1, CHANNELS)), nn.Parameter(torch.randn(LENGTH - 1, CHANNELS))

    def between(self, x):
        return x + torch.cat((self.begin, self.rest))


class Function(Network):
    """Whatever is given, of this network's parameters `a` and `b`."""

    def __init__(self, function, a, b=None):
        super().__init__()
        self.function, self.a = function, nn.Parameter(a)
        if b is not None:
            self.b = nn.Parameter(b)

    def between(self, x):
        return self.function(self, x)


class Sequence(Network):
    """A module."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def between(self, x):
        y = self.module(x)
        return y[0] if isinstance(y, tuple) else y


class Tied(nn.Module):
    """Tokens and their scores by one table; biases that begin as zeros, and normalizations that begin alike."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, CHANNELS)
        self.one, self.two = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.norm1, self.norm2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        nn.init.zeros_(self.one.bias)
        nn.init.zeros_(self.two.bias)

    def forward(self, token):
        x = self.norm1(torch.tanh(self.one(self.table(token))))
        return F.linear(self.norm2(torch.tanh(self.two(x))), self.table.weight)


class InitializersTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.data = {"x": torch.randn(4, LENGTH, CHANNELS)}, torch.randint(0, CLASSES, (4, LENGTH))
        self.tokens = {"token": torch.randint(0, 11, (4, LENGTH))}, torch.randint(0, 11, (4, LENGTH))

    def path(self, name):
        return os.path.join(self.temporary.name, name)

    def agrees(self, model, data=None, **settings):
        """What the import says of initializers, where one iteration agrees with PyTorch's."""
        case = comparison.Case(type(model).__name__, model, *(data or self.data), **{"like": False, **settings})
        result = comparison.compare(case, BUILD, self.temporary.name, ranks=(1,))
        found = result["ranks"]["1 rank"]
        self.assertLess(found["loss"], TOLERANCE)
        self.assertLess(found["gradients"], TOLERANCE)
        self.assertLess(found["worst"], 10 * TOLERANCE, found["where"])
        return result["import"]["initializers"]

    def run_import(self, model, *arguments, data=None, **exporting):
        case = comparison.Case("", model.train(), *(data or self.data), exporting=exporting)
        comparison.export(case, copy.deepcopy(model), self.path("model.onnx"))
        names = "".join(f"{name}\n" for name, _ in model.named_parameters())
        pathlib.Path(self.path("names.txt")).write_text(names)
        return subprocess.run([os.path.join(BUILD, "ffsearch"), "import", self.path("model.onnx"), "--batch", "4",
                               "--out", self.path("graph.json"), "--loss", "cross-entropy", *arguments],
                              capture_output=True, text=True, timeout=100)

    def assert_refused(self, message, model, *arguments, **settings):
        result = self.run_import(model, *arguments, **settings)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.strip(), f"ffsearch: {self.path('model.onnx')}: {message}")
        self.assertFalse(os.path.exists(self.path("graph.json")))

    def constants(self, initializers):
        return {each["name"]: each["reason"] for each in initializers["constant"]}

    def like(self):
        return "--like", self.path("names.txt")

    # Buffers that were trained.

    def test_masks(self):
        for hidden in (-math.inf, -1e9):
            with self.subTest(hidden):
                self.assertEqual(self.constants(self.agrees(Masked(hidden))),
                                 {"mask": "masks, of 0 and very negative numbers"})

    def test_table_of_sines(self):
        self.assertEqual(self.constants(self.agrees(Sines())), {"table": "tables of sines and cosines"})

    def test_constants_of_normalizations(self):
        self.agrees(Sequence(nn.BatchNorm1d(LENGTH, affine=False)))

    def test_lstm_without_bias(self):
        lstm = Sequence(nn.LSTM(CHANNELS, CHANNELS, bias=False, batch_first=True))
        self.assert_refused('LSTM "/module/LSTM": the bias of lstm is always trained, but here it is a constant or '
                            'left out', lstm)

    def test_frozen_weight(self):
        self.agrees(Sequence(nn.Identity()), arguments=("--frozen", "first.weight", "--trained", "first.bias"),
                    untied=("first.weight",))

    def test_frozen_class_token(self):
        token = ClassToken()
        self.assert_refused('no initializer is named "token.weight"; did you mean "token"?', token, "--frozen",
                            "token.weight")
        self.agrees(token, arguments=("--frozen", "token"), untied=("token",))

    # Parameters that were frozen.

    def test_relative_positions(self):
        self.agrees(RelativePositions(), like=True)
        with open(self.path("graph.json")) as file:
            [bias] = [op for op in json.load(file)["operators"] if op["type"] == "relative_bias"]
        self.assertEqual(bias["attributes"]["buckets"], 2 * LENGTH - 1)
        self.assertEqual(bias["attributes"]["directions"], "signed")

    def test_constants_need_their_values(self):
        """With others than the model's, another function would be trained."""
        self.agrees(Masked(-1e9))
        plan = ["--topo", os.path.join(comparison.REPOSITORY, "topologies", "local-cpu-1.json"), "--cost", "analytic",
                "--algorithm", "data-parallel", "--quiet", "--out", self.path("one.json")]
        comparison.run(os.path.join(BUILD, "ffsearch"), "--graph", self.path("graph.json"), *plan)
        run = [os.path.join(BUILD, "ffexec"), "--strategy", self.path("one.json"), "--iterations", "1"]
        done = subprocess.run(run, capture_output=True, text=True, env=comparison.ENVIRONMENT, check=False)
        with open(self.path("graph.json")) as file:
            graph = json.load(file)
        [constant] = [op for op in graph["operators"] if op.get("attributes", {}).get("trained") is False]
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"{self.path('one.json')}: the graph does not have the values of 1 constant: "
                      f"{constant['name']}.weight\ngive --load FILE with the checkpoint that has them: ffsearch import "
                      "writes it with --weights FILE; or \"initial\" in the attributes of these operators\n",
                      done.stderr)
        constant["attributes"]["initial"] = 0
        with open(self.path("said.json"), "w") as file:
            json.dump(graph, file)
        comparison.run(os.path.join(BUILD, "ffsearch"), "--graph", self.path("said.json"), *plan)
        comparison.run(*run)

    def test_looked_up_rows(self):
        self.agrees(LookedUp())
        self.agrees(TokenTypes())

    def test_joined_parameters(self):
        self.agrees(Joined(), like=True)

    def test_learned_numbers(self):
        self.agrees(Function(lambda self, x: x - self.a, torch.tensor([0.5])), like=True)
        self.agrees(Function(lambda self, x: x * self.a, torch.tensor(2.0)), like=True)
        self.agrees(Function(lambda self, x: x * torch.exp(self.a) + (1 + self.b), torch.tensor(0.3),
                             torch.zeros(CHANNELS)), like=True)

    def test_learned_epsilon(self):
        def norm(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.a) * self.b
        model = Function(norm, torch.tensor([1e-3]), torch.ones(CHANNELS))
        self.agrees(model, like=True)
        self.agrees(model, arguments=("--frozen", "a"), untied=("a",))

    # Parameters that arithmetic changes.

    def test_scaled_weight(self):
        """A value of a product."""
        self.agrees(Function(lambda self, x: F.linear(x, self.a * 0.5), torch.randn(CHANNELS, CHANNELS)), like=True)

    def test_dropped_parameter(self):
        model = Function(lambda self, x: x + F.dropout(self.a, 0.5), torch.randn(LENGTH, CHANNELS))
        self.assert_refused('Dropout "/Dropout": its input 0 is a constant, expected something that depends on the '
                            'samples', model, *self.like())

    def test_very_low_numbers_without_softmax(self):
        """A mask is added to the scores of a softmax; elsewhere the number takes their place, without a gradient."""
        hidden = torch.ones(LENGTH, CHANNELS).triu(1).bool()
        self.agrees(Function(lambda self, x: torch.tanh(F.linear(x, self.a).masked_fill(hidden, -2e4) * 1e-4),
                             torch.randn(CHANNELS, CHANNELS)))
        rows = torch.arange(LENGTH).unsqueeze(1) < 2
        self.agrees(Function(lambda self, x: F.linear(x, self.a).masked_fill(rows, -1e4).softmax(-1),
                             torch.randn(CHANNELS, CHANNELS)))

    def test_transposed_weight(self):
        self.agrees(Function(lambda self, x: F.linear(x, self.a.t().contiguous()), torch.randn(CHANNELS, CHANNELS)))

    # One parameter in two places, and two in one.

    def test_overlapping_parts(self):
        """A value for both."""
        self.agrees(Function(lambda self, x: torch.cat((x[:, :2] + self.a[:2], x[:, 2:] + self.a[1:LENGTH - 1]), 1),
                             torch.randn(LENGTH, CHANNELS)), like=True)

    def test_disjoint_parts(self):
        self.agrees(Function(lambda self, x: torch.cat((x[:, :2] + self.a[:2], x[:, 2:] + self.a[2:]), 1),
                             torch.randn(LENGTH, CHANNELS)), like=True)

    def test_two_biases_of_one_weight(self):
        model = Function(lambda self, x: F.linear(torch.tanh(F.linear(x, self.first.weight, self.a)), self.first.weight,
                                                  self.b), torch.zeros(CHANNELS), torch.zeros(CHANNELS))
        result = self.run_import(model, *self.like())
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn('shares a weight with "first", but has a bias of its own', result.stderr)

    def test_one_projection_for_keys_and_values(self):
        def attention(self, x):
            query, both = F.linear(x, self.a), F.linear(x, self.b)
            heads = [y.view(-1, LENGTH, 2, CHANNELS // 2).transpose(1, 2) for y in (query, both, both)]
            scores = heads[0] @ heads[1].transpose(2, 3) / math.sqrt(CHANNELS // 2)
            return (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(-1, LENGTH, CHANNELS)
        self.agrees(Function(attention, torch.randn(CHANNELS, CHANNELS), torch.randn(CHANNELS, CHANNELS)))

    def test_projection_that_is_read_twice(self):
        def attention(self, x):
            query, key, value = F.linear(x, self.a).chunk(3, -1)
            heads = [y.view(-1, LENGTH, 2, CHANNELS // 2).transpose(1, 2) for y in (query, key, value)]
            scores = heads[0] @ heads[1].transpose(2, 3) / math.sqrt(CHANNELS // 2)
            return (scores.softmax(-1) @ heads[2]).transpose(1, 2).reshape(-1, LENGTH, CHANNELS) + value
        self.agrees(Function(attention, torch.randn(3 * CHANNELS, CHANNELS)))

    def test_parameters_merged_by_the_exporter(self):
        for like in (False, True):
            with self.subTest(like):
                said = self.agrees(Tied(), self.tokens, like=like,
                                   exporting={"training": torch.onnx.TrainingMode.EVAL})
                self.assertEqual({each["name"] for each in said["trained"] if "merged_with" in each},
                                 {"two.bias", "norm1.bias", "norm2.bias", "norm2.weight"})

    def test_parameter_split_by_the_exporter(self):
        result = self.run_import(Tied(), data=self.tokens, do_constant_folding=True)
        self.assertRegex(result.stderr, r'the initializer "onnx::MatMul_\d+" \[8, 11\] is "table.weight" \[11, 8\] '
                                        'transposed: PyTorch\'s exporter has made two of one parameter')
        result = self.run_import(Tied(), *self.like(), data=self.tokens, do_constant_folding=True)
        self.assertIn('lacks 2 parameters that ' + self.path("names.txt") + ' has: "one.weight", "two.weight"',
                      result.stderr)

    # The flags.

    def test_undecided(self):
        model = Function(lambda self, x: x * self.a, torch.ones(CHANNELS))
        self.assert_refused('does not say whether 1 initializer is trained; no layer reads it as a weight:\n'
                            '  "a" [8], first read by Mul "/Mul"\n'
                            '--trained NAME,... or --frozen NAME,... decides (* matches any characters), or --like '
                            'FILE with the names of PyTorch\'s parameters', model)
        self.agrees(model, arguments=("--trained", "a"))
        said = self.agrees(model, arguments=("--frozen", "a"), untied=("a",))
        self.assertEqual(self.constants(said), {"a": "--frozen"})

    def test_like_safetensors(self):
        header = json.dumps({"__metadata__": {}, **{
            name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
            for name in ("first.weight", "first.bias", "last.weight", "last.bias")}}).encode()
        pathlib.Path(self.path("like")).write_bytes(len(header).to_bytes(8, "little") + header)
        model = Function(lambda self, x: x * self.a, torch.ones(CHANNELS))
        result = self.run_import(model, "--like", self.path("like"), "--json")
        self.assertEqual(self.constants(json.loads(result.stdout)["initializers"]),
                         {"a": "not in " + self.path("like")})

    def test_like_state(self):
        model = Sequence(nn.BatchNorm1d(LENGTH))
        pathlib.Path(self.path("state")).write_text("\n".join(
            name for name in model.state_dict() if not name.endswith("num_batches_tracked")))
        self.assert_refused('the initializer "module.running_mean" [6] is trained by choice, but BatchNormalization '
                            '"/module/BatchNormalization" keeps its running statistics there; --like is to have the '
                            'names of named_parameters(), not of state_dict()', model, "--like", self.path("state"))

    def test_like_state_with_a_mask(self):
        pathlib.Path(self.path("state")).write_text("\n".join(Masked(-1e9).state_dict()))
        self.assert_refused('the initializer "mask" [6, 6] is in ' + self.path("state") + ', but has the numbers of a '
                            'mask; --like is to have the names of named_parameters(), not of state_dict(); --trained '
                            'trains it all the same', Masked(-1e9), "--like", self.path("state"))

    def test_wrong_choices(self):
        model = Function(lambda self, x: x * self.a, torch.ones(CHANNELS))
        self.assert_refused('no initializer is named "b"; did you mean "a"?', model, "--trained", "b")
        self.assert_refused('the initializer "a" [8] is in --trained and in --frozen', model, "--trained", "*",
                            "--frozen", "a")
        pathlib.Path(self.path("empty")).write_text("\n")
        result = self.run_import(model, "--like", self.path("empty"))
        self.assertEqual(result.stderr, f"ffsearch: {self.path('empty')}: has no names of parameters\n")

    def test_summary(self):
        result = self.run_import(Masked(-math.inf))
        self.assertIn("initializers of floats: 8 trained, 1 constant\n"
                      "  constant, masks, of 0 and very negative numbers: mask [6, 6]\n", result.stdout)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    probe = subprocess.run([os.path.join(BUILD, "ffsearch"), "import", "/dev/null", "--batch", "1", "--out", "x"],
                           capture_output=True, text=True)
    if "without ONNX import" in probe.stderr:
        print("skipped: this build has no ONNX import")
        sys.exit(77)
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
