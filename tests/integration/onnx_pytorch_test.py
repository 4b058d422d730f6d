#!/usr/bin/env python3
"""Exports small networks with PyTorch, imports them, and compares one iteration of ffexec with PyTorch's: loss and
gradients, on one rank and on two. And the four commands from a PyTorch model to a trained strategy. Usage:
onnx_pytorch_test.py BUILD_DIRECTORY. Exits 77 (skipped) without PyTorch or in a build without ONNX import."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import torch.nn as nn
except ImportError:
    print("skipped: PyTorch is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from cases_of_today import cases_of_today  # noqa: E402
import onnx_comparison as comparison  # noqa: E402
from onnx_cases import CASES  # noqa: E402
import onnx_networks as networks  # noqa: E402

BUILD = None
TOLERANCE = 1e-4
# PyTorch holds the second of an LSTM's two biases still: their sum is one parameter here.
SECOND_BIASES = ("lstm.bias_hh_l0", "lstm.bias_hh_l1", "lstm.bias_hh_l0_reverse")


class Convolutions(nn.Module):
    """Padding of all kinds, groups, squeeze-and-excitation, what AlexNet and its followers have between layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12, bias=False)
        self.squeeze, self.excite = nn.Conv2d(12, 4, 1), nn.Conv2d(4, 12, 1)
        self.wide = nn.Conv2d(12, 8, (1, 5), padding=(0, 2))
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.channels = nn.LayerNorm(8)
        self.fc = nn.Linear(8 * 4 * 4, 5)

    def forward(self, image):
        x = nn.functional.hardswish(self.norm(self.first(image)))
        x = nn.functional.relu6(self.depthwise(x)) + x
        s = nn.functional.adaptive_avg_pool2d(x, 1)
        s = nn.functional.hardsigmoid(self.excite(nn.functional.silu(self.squeeze(s))))
        x = self.wide(nn.functional.avg_pool2d(x * s, 3, 1, 1))
        x = self.channels(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = nn.functional.max_pool2d(nn.functional.leaky_relu(x * self.scale, 0.2), 2)
        return self.fc(torch.flatten(x, 1))


class Patches(nn.Module):
    """A small vision transformer: patches, a class token, learned positions."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.position = nn.Parameter(torch.randn(1, 17, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.layer(x)[:, 0])


class Functions(nn.Module):
    """Functions of one number that are made of others here."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.slopes = nn.PReLU(8)
        self.fc = nn.Linear(8 * 4 * 4, 5)

    def forward(self, image):
        x = self.slopes(self.first(image)).abs() + 0.1 * self.second(self.first(image)) ** 3
        return self.fc(torch.flatten(nn.functional.avg_pool2d(nn.functional.hardtanh(x), 4), 1))


class GroupedQueries(nn.Module):
    """Four heads of queries that share two of keys and values, repeated by expand."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.query, self.key_value = nn.Linear(24, 24), nn.Linear(24, 24)
        self.scores = nn.Linear(24, 50)

    def forward(self, token):
        x = self.embed(token)
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, 4, 6).transpose(1, 2)
        key, value = (y.view(batch, length, 2, 6).transpose(1, 2)[:, :, None].expand(batch, 2, 2, length, 6)
                      .reshape(batch, 4, length, 6) for y in self.key_value(x).chunk(2, -1))
        y = (query @ key.transpose(2, 3) / 6 ** 0.5).softmax(-1) @ value
        return self.scores(x + y.transpose(1, 2).reshape(batch, length, 24))


class MultiQuery(nn.Module):
    """Four heads of queries, one of keys and values: products of four matrices by one."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.query, self.key, self.value = nn.Linear(24, 24), nn.Linear(24, 6), nn.Linear(24, 6)
        self.scores = nn.Linear(24, 50)

    def forward(self, token):
        x = self.embed(token)
        query = self.query(x).view(*token.shape, 4, 6).transpose(1, 2)
        y = (query @ self.key(x)[:, None].transpose(2, 3) / 6 ** 0.5).softmax(-1) @ self.value(x)[:, None]
        return self.scores(x + y.transpose(1, 2).flatten(2))


class MixedRotary(networks.RotaryBeforeHeads):
    """Queries turned in halves, keys in pairs of neighbours."""

    def rotate(self, x):
        self.turns = getattr(self, "turns", 0) + 1
        self.style = "llama" if self.turns % 2 else "gptj"
        return super().rotate(x)


class Repeated(nn.Module):
    """Elements of one axis twice, weighed by their places."""

    def __init__(self, axis):
        super().__init__()
        self.axis, self.fc = axis, nn.Linear(6, 6)
        shape = [2, 3, 6]
        shape[axis - 1] *= 2
        self.register_buffer("weight", torch.rand(shape))

    def forward(self, x):
        y = torch.repeat_interleave(self.fc(x), 2, self.axis) * self.weight.to(x.dtype)
        return y[..., :6].mean(1) if self.axis != 3 else y.reshape(*y.shape[:3], 6, 2).sum(-1).mean(1)


class RunningSums(nn.Module):
    """Sums along both axes up to each place, one of them weighed by such a sum of ones."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x):
        places = torch.cumsum(torch.ones(4, dtype=x.dtype), 0)
        return torch.cumsum(self.fc(x), 1) / places[:, None] + torch.cumsum(x, 2)


class Frames(nn.Module):
    """Layers that see the frames of all samples as images: on one axis with the samples."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6)
        self.up, self.flat = nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, bias=False), nn.BatchNorm1d(4)
        self.fc = nn.Linear(4, 5)

    def forward(self, video):
        b, n = video.shape[:2]
        x = torch.relu(self.norm(self.conv(video.flatten(0, 1))))
        x = nn.functional.avg_pool2d(self.up(nn.functional.max_pool2d(x, 3, 1, 1)), 2)
        x = self.flat(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return self.fc(x.view(b, n, -1).mean(1))


class SmoothFunctions(nn.Module):
    """Elu and its kind."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(5))
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        functions = (nn.ELU(0.7), nn.SELU(), nn.Softplus(), nn.Mish(), lambda y: torch.log(torch.sigmoid(y) + 0.5))
        for layer, function in zip(self.layers, functions):
            x = function(layer(x))
        return self.fc(x)


class RelativeEncoder(nn.Module):
    """T5's encoder: one table of biases by distance, in buckets, for two layers of attention without a scale."""

    LENGTH, CHANNELS, HEADS, BUCKETS, MAX_DISTANCE = 24, 16, 4, 8, 20

    def __init__(self, causal=False):
        super().__init__()
        self.causal = causal
        self.embed = nn.Embedding(50, self.CHANNELS)
        self.bias = nn.Embedding(self.BUCKETS, self.HEADS)
        self.layers = nn.ModuleList(nn.ModuleDict({name: nn.Linear(self.CHANNELS, self.CHANNELS, bias=False)
                                                   for name in "qkvo"}) for _ in range(2))
        self.scores = nn.Linear(self.CHANNELS, 50)

    def buckets(self):
        at = torch.arange(self.LENGTH)
        distance = at[None, :] - at[:, None]
        count = self.BUCKETS if self.causal else self.BUCKETS // 2
        upper = 0 if self.causal else (distance > 0).long() * count
        distance = -distance.clamp(max=0) if self.causal else distance.abs()
        exact = count // 2
        large = exact + (torch.log(distance.float() / exact) / torch.log(torch.tensor(self.MAX_DISTANCE / exact))
                         * (count - exact)).clamp(min=-1e6).long()
        return upper + torch.where(distance < exact, distance, large.clamp(max=count - 1))

    def forward(self, token):
        x = self.embed(token)
        batch, length, channels = x.shape
        bias = self.bias(self.buckets()).permute(2, 0, 1)[None]
        bias = bias + (1 - torch.ones(token.shape)[:, None, None, :]) * torch.finfo(torch.float32).min  # hides nothing
        for layer in self.layers:
            q, k, v = (layer[name](x).view(batch, length, self.HEADS, -1).transpose(1, 2) for name in "qkv")
            y = (q @ k.transpose(2, 3) + bias).softmax(-1) @ v
            x = x + layer["o"](y.transpose(1, 2).reshape(batch, length, channels))
        return self.scores(x)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.main, self.auxiliary = nn.Linear(12, 16), nn.Linear(16, 5), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.main(x), torch.log_softmax(self.auxiliary(x), 1)


BY_HAND = ("U-Net, bilinear", "cross-stage backbone with focus", "DETR", "VAE", "style generator", "super-resolution",
           "CycleGAN generator", "GRU of two directions", "RNN language model", "BERT", "LSTM encoder and decoder",
           "additive attention, GRU cells", "T5", "Deep Speech", "DLRM", "DeepFM", "two towers", "DeepSets, maximum",
           "GCN", "GAT", "GIN", "C3D", "ConvLSTM", "TimeSformer", "RWKV", "FT-Transformer", "EGNN", "TSM",
           "Conv-TasNet", "CoAtNet", "BEiT", "capsules", "Glow", "Gemma 2", "OPT", "Mamba", "dual-path RNN",
           "temporal fusion transformer", "Graphormer", "ViViT")


class OnnxPytorchTest(unittest.TestCase):
    def check(self, model, inputs, label, **settings):
        case = comparison.Case(type(model).__name__, model, inputs, label, **settings)
        with tempfile.TemporaryDirectory() as folder:
            result = comparison.compare(case, BUILD, folder)
        for plan, found in result["ranks"].items():
            with self.subTest(ranks=plan):
                self.assertLess(found["loss"], TOLERANCE)
                self.assertLess(found["gradients"], TOLERANCE)
                self.assertLess(found["worst"], 10 * TOLERANCE, found["where"])
        print(f"{case.name}: {result['import']['nodes']} nodes, {result['import']['operators']} operators; "
              + "; ".join(f"{plan}: loss {found['loss']:.1e}, gradients {found['gradients']:.1e}"
                          for plan, found in result["ranks"].items()), flush=True)
        return result

    def images(self, model, size=16, **settings):
        return self.check(model, {"image": torch.randn(8, 3, size, size)}, torch.randint(0, 5, (8,)), **settings)

    def tokens(self, model, classes=50, each=True, **settings):
        return self.check(model, {"token": torch.randint(0, 50, (4, 9))},
                          torch.randint(0, classes, (4, 9) if each else (4,)), **settings)

    def setUp(self):
        torch.manual_seed(0)

    def test_convolutions(self):
        self.images(Convolutions())

    def test_patches(self):
        result = self.images(Patches())
        self.assertLess(result["import"]["operators"], 20)  # attention is one

    def test_two_heads(self):
        self.check(TwoHeads(), {"x": torch.randn(6, 12)}, torch.randint(0, 5, (6,)), loss_weights=(1, 0.4))

    def test_lstm(self):
        self.tokens(networks.LstmLanguageModel(50, 16, 2), untied=SECOND_BIASES)

    def test_lstm_with_tied_weights(self):
        self.tokens(networks.LstmLanguageModel(50, 16, 2, tied=True), untied=SECOND_BIASES)

    def test_lstm_of_two_directions(self):
        self.tokens(networks.LstmLanguageModel(50, 16, 1, bidirectional=True), untied=SECOND_BIASES)

    def test_gpt(self):
        self.tokens(networks.Gpt(50, 24, 3, 9, 2))

    def test_gpt_with_symbolic_sizes(self):
        self.tokens(networks.Gpt(50, 24, 3, 9, 2, gelu="tanh", tied=False),
                    dynamic={"token": {0: "batch", 1: "length"}}, arguments=("--size", "length=9"))

    def test_llama(self):
        self.tokens(networks.Llama(50, 24, 3, 9, 2), like=False)

    def test_multi_query(self):
        self.tokens(MultiQuery())

    def test_rotary_positions(self):
        """In halves, in pairs of neighbours, in a part of the channels: attention is one operator, whether the
        positions are turned before the heads go in front of them or after that."""
        for shared in (None, 2):
            with self.subTest(shared=shared):
                model = networks.RotaryBeforeHeads("llama", 50, kv=shared, length=9)
                self.assertLess(self.tokens(model)["import"]["operators"], 30)
        for style in ("neox", "gptj", "llama"):
            with self.subTest(style=style):
                model = networks.RotaryDecoder(style, 50, length=9)
                self.assertLess(self.tokens(model)["import"]["operators"], 30)
        # The repeat_interleave of the second layer is a Loop.
        shared = networks.RotaryDecoder("llama", 50, kv=2, length=9)
        self.assertLess(self.tokens(shared)["import"]["operators"], 30)

    def test_repeated_elements(self):
        """repeat_interleave along each axis of a tensor whose sizes the exporter does not know."""
        for axis in (1, 2, 3):
            with self.subTest(axis=axis):
                label = torch.randint(0, 6, (4, 6 if axis == 2 else 3))
                self.check(Repeated(axis), {"x": torch.randn(4, 2, 3, 6)}, label,
                           dynamic={"x": {0: "batch", 1: "a", 2: "b", 3: "c"}},
                           arguments=("--size", "a=2", "--size", "b=3", "--size", "c=6"))

    def test_rotary_positions_of_other_kinds(self):
        """Queries in halves and keys in pairs, or positions from 3: no attention of ours, and the same numbers."""
        self.assertGreater(self.tokens(MixedRotary("llama", 50, length=9))["import"]["operators"], 40)
        for form in (networks.RotaryBeforeHeads, networks.RotaryDecoder):
            with self.subTest(form=form.__name__):
                late = form("llama", 50, length=9)
                late.cos, late.sin = late.cos.roll(3, 2), late.sin.roll(3, 2)
                self.assertGreater(self.tokens(late)["import"]["operators"], 40)

    def test_encoder(self):
        self.tokens(networks.Encoder(50, 24, 3, 2, 5), 5, False)

    def test_encoder_sequence_first(self):
        self.tokens(networks.Encoder(50, 24, 3, 2, 5, batch_first=False, norm_first=True), 5, False)

    def test_encoder_with_mask(self):
        self.tokens(networks.Encoder(50, 24, 3, 2, 5, mask=9), 5, False, like=False)

    def test_elementwise_functions(self):
        self.images(Functions())

    def test_smooth_functions(self):
        result = self.check(SmoothFunctions(), {"x": torch.randn(6, 12)}, torch.randint(0, 5, (6,)))
        self.assertEqual(result["import"]["operators"], 15)  # 6 layers, 5 functions, affine (2), sigmoid, the loss

    def test_relative_positions(self):
        for causal in (False, True):
            with self.subTest(causal=causal):
                self.check(RelativeEncoder(causal), {"token": torch.randint(0, 50, (4, RelativeEncoder.LENGTH))},
                           torch.randint(0, 50, (4, RelativeEncoder.LENGTH)))

    def test_grouped_queries(self):
        self.tokens(GroupedQueries())

    def check_case(self, name):
        torch.manual_seed(1)
        case = CASES[name]()
        self.check(case.model, case.inputs, case.label, **{
            name: getattr(case, name) for name in ("loss_weights", "arguments", "like", "untied")})

    def test_networks_by_hand(self):
        """Half of them by the day."""
        for name in cases_of_today(BY_HAND, 2):
            with self.subTest(name):
                self.check_case(name)

    def test_frames(self):
        self.check(Frames(), {"video": torch.randn(4, 3, 3, 8, 8)}, torch.randint(0, 5, (4,)))

    def test_running_sums(self):
        self.check(RunningSums(), {"x": torch.randn(6, 4, 5)}, torch.randint(0, 5, (6, 4)))

    def test_weight_normalization(self):
        """Refused, with the function that makes a plain weight of it."""
        model, x = nn.Sequential(nn.utils.weight_norm(nn.Conv1d(3, 5, 3)), nn.Flatten()), torch.randn(4, 3, 8)
        with torch.no_grad():
            model(x)
        with self.assertRaises(RuntimeError) as refused:
            self.check(model, {"x": x}, torch.randint(0, 30, (4,)))
        self.assertIn('reads what is computed from "0.weight_g", "0.weight_v", so that another function than the '
                      "model's would be trained; torch.nn.utils.remove_weight_norm before the export makes plain "
                      "weights of them", str(refused.exception))

    def test_four_commands(self):
        """From a PyTorch model to a trained strategy that explains itself."""
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(comparison.REPOSITORY, "scripts", "from_pytorch.sh")
            text = comparison.run(script, BUILD, folder)
            losses = re.findall(r"loss (\d+\.\d+)", text)
            self.assertLess(float(losses[-1]), float(losses[0]), text)
            self.assertIn("Predicted and measured", pathlib.Path(folder, "plan.html").read_text())


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    probe = subprocess.run([os.path.join(BUILD, "ffsearch"), "import", "/dev/null", "--batch", "1", "--out", "x"],
                           capture_output=True, text=True)
    if "without ONNX import" in probe.stderr:
        print("skipped: this build has no ONNX import")
        sys.exit(77)
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
