#!/usr/bin/python3
"""The networks of scripts/generate_graphs.py: shapes, parameters and arithmetic, inferred here anew from the graph
files, against published counts and docs/networks.md; committed files against the generator; every option of the
generator. Runs no program of ours.

    networks_test.py --table      prints the counts as docs/networks.md has them
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "scripts/generate_graphs.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))

import generate_graphs  # noqa: E402
from graph_generator.builder import GraphBuilder  # noqa: E402
from graph_generator.transformers import llama  # noqa: E402

NAMES = list(generate_graphs.NETWORKS)


def pair(value):
    return tuple(value) if isinstance(value, list) else (value, value)


def windows(size, kernel, stride, padding):
    """Positions of a window on both axes."""
    out = tuple((n + 2 * p - k) // s + 1 for n, k, s, p in zip(size, kernel, stride, padding))
    assert min(out) >= 1, f"window {kernel} does not fit {size}"
    return out


class Network:
    """A graph, read: the shape of every tensor (without the batch), the shape of every trained parameter, and two
    operations a multiply-add of every product (forward, one sample)."""

    def __init__(self, graph):
        self.shapes, self.unread, self.parameters = {}, set(), {}
        self.flops = {}  # by operator
        self.batch = graph["batch_size"]
        self.routings = {}  # top_k_gating -> (experts, places for all groups)
        for entry in graph["inputs"]:
            assert entry["shape"][0] == "batch"
            steps = entry.get("steps")
            for name in [f"{entry['name']}:{t}" for t in range(steps)] if steps else [entry["name"]]:
                self.define(name, tuple(entry["shape"][1:]))
        for operator in graph["operators"]:
            self.operator = operator
            self.flops[operator["name"]] = 0
            inputs = [self.shapes[name] for name in operator["inputs"]]
            self.unread -= set(operator["inputs"])
            outputs = getattr(self, operator["type"])(inputs, **operator.get("attributes", {}))
            for output, shape in (outputs if isinstance(outputs, dict) else {"": outputs}).items():
                self.define(operator["name"] + output, shape)
        self.count = sum(math.prod(shape) for shape in self.parameters.values())
        self.gflop = sum(self.flops.values()) / 1e9

    def define(self, name, shape):
        assert name not in self.shapes, f"{name} exists twice"
        self.shapes[name] = shape
        self.unread.add(name)

    def parameter(self, name, *shape):
        name = f"{self.operator.get('parameters', self.operator['name'])}.{name}"
        assert self.parameters.setdefault(name, shape) == shape, f"{name}: {self.parameters[name]} and {shape}"

    def multiply_add(self, *sizes):
        self.flops[self.operator["name"]] += 2 * math.prod(sizes)

    # One method an operator type: shapes of the inputs and attributes -> shape of the output, or shapes by ":OUTPUT".

    def conv2d(self, inputs, out_channels, kernel, stride=1, padding=0, groups=1, bias=True, activation="none"):
        (channels, *size), = inputs
        kernel, padding = pair(kernel), pair(padding)
        assert channels % groups == 0 == out_channels % groups and padding < kernel
        out = windows(size, kernel, pair(stride), padding)
        self.parameter("weight", out_channels, channels // groups, *kernel)
        if bias:
            self.parameter("bias", out_channels)
        self.multiply_add(out_channels, channels // groups, *kernel, *out)
        return (out_channels, *out)

    def pool2d(self, inputs, kernel, method="max", stride=None, padding=0, count_padding=False):
        (channels, *size), = inputs
        assert all(2 * p <= k for p, k in zip(pair(padding), pair(kernel)))
        return (channels, *windows(size, pair(kernel), pair(stride or kernel), pair(padding)))

    def linear(self, inputs, out_features, bias=True, activation="none"):
        (*length, features), = inputs
        self.parameter("weight", out_features, features)
        if bias:
            self.parameter("bias", out_features)
        self.multiply_add(*length, features, out_features)
        return (*length, out_features)

    def same(self, inputs, **_):
        assert len(set(inputs)) == 1, inputs
        return inputs[0]

    relu = tanh = gelu = silu = add = mul = identity = dropout = local_response_normalization = same

    def batch_norm(self, inputs, epsilon=1e-5, statistics="global", activation="none"):
        (channels, *_), = inputs
        self.parameter("weight", channels)
        self.parameter("bias", channels)
        return inputs[0]

    def layer_norm(self, inputs, epsilon=1e-5):
        self.parameter("weight", inputs[0][-1])
        self.parameter("bias", inputs[0][-1])
        return inputs[0]

    def rms_norm(self, inputs, epsilon=1e-5):
        self.parameter("weight", inputs[0][-1])
        return inputs[0]

    def embedding(self, inputs, vocabulary, channels):
        self.parameter("weight", vocabulary, channels)
        return (*inputs[0], channels)

    def position_embedding(self, inputs):
        length, channels = inputs[0]
        self.parameter("weight", length, channels)
        return inputs[0]

    def lstm(self, inputs, hidden):
        (features,), *state = inputs
        assert state in ([], [(hidden,), (hidden,)]), state
        self.parameter("weight", 4, hidden, features)
        self.parameter("recurrent", 4, hidden, hidden)
        self.parameter("bias", 4, hidden)
        self.multiply_add(4, hidden, features + (hidden if state else 0))
        # The first output has two names; whoever reads one has read it.
        self.shapes[self.operator["name"]] = (hidden,)
        return {":h": (hidden,), ":c": (hidden,)}

    def attention(self, inputs, out_features):
        (features,), (length, channels) = inputs
        self.parameter("score", features, channels)
        self.parameter("combine", out_features, channels + features)
        self.multiply_add(features, channels)
        self.multiply_add(2, length, channels)
        self.multiply_add(out_features, channels + features)
        return (out_features,)

    def multi_head_attention(self, inputs, heads, key_value_heads=None, head_channels=None, causal=False,
                             rotary_base=None, rotary_channels=None, bias=True):
        (length, channels), = inputs
        assert head_channels or channels % heads == 0
        width = head_channels or channels // heads
        queries = heads * width
        if key_value_heads in (None, heads):
            projections = {"weight": (3, queries, channels)}
        else:
            assert heads % key_value_heads == 0
            projections = {"query": (queries, channels), "key_value": (2, key_value_heads * width, channels)}
        assert rotary_base is None or (rotary_channels or width) % 2 == 0
        for name, shape in projections.items():
            self.parameter(name, *shape)
            if bias:
                self.parameter("bias" if name == "weight" else name + "_bias", *shape[:-1])
            self.multiply_add(length, *shape)
        self.multiply_add(2, length, length, queries)
        return (length, queries)

    def matmul(self, inputs, transpose=False, scale=1):
        (m, k), b = inputs
        depth, n = reversed(b) if transpose else b
        assert k == depth
        self.multiply_add(m, n, k)
        return (m, n)

    def mean(self, inputs):
        shape, = inputs
        return (shape[0],) if len(shape) == 3 else (shape[1],)

    def concat(self, inputs, axis=1):
        others = {shape[:axis - 1] + shape[axis:] for shape in inputs}
        assert len(others) == 1, inputs
        first = inputs[0]
        return (*first[:axis - 1], sum(shape[axis - 1] for shape in inputs), *first[axis:])

    def stack(self, inputs):
        return (len(inputs), *self.same(inputs))

    def flatten(self, inputs):
        return (math.prod(inputs[0]),)

    def top_k_gating(self, inputs, top_k=2, capacity_factor=1, group_samples=1, random_routing=None,
                     normalize=None):
        (length, experts), = inputs
        assert self.batch % group_samples == 0 and experts >= top_k
        capacity = max(1, math.ceil(capacity_factor * top_k * group_samples * length / experts - 1e-9))
        self.routings[self.operator["name"]] = experts, self.batch // group_samples * capacity
        return {"": (length, top_k), ":weight": (length, top_k)}

    def load_balancing_loss(self, inputs, group_samples=1, weight=0.01):
        assert self.batch % group_samples == 0
        return ()

    # What experts work on has no batch: its shape is whole, and its products are shared out to the samples.

    def dispatch(self, inputs):
        (length, channels), (same_length, _) = inputs
        assert length == same_length
        return (*self.routings[self.operator["inputs"][1]], channels)

    def expert_linear(self, inputs, out_features, bias=True, activation="none"):
        (experts, rows, features), = inputs
        self.parameter("weight", experts, out_features, features)
        if bias:
            self.parameter("bias", experts, out_features)
        self.multiply_add(experts, rows, features, out_features)
        self.flops[self.operator["name"]] /= self.batch
        return (experts, rows, out_features)

    def combine(self, inputs):
        (*rows, channels), slots, weights = inputs
        assert tuple(rows) == self.routings[self.operator["inputs"][1]] and slots == weights
        return (slots[0], channels)

    def softmax_cross_entropy(self, inputs, weight=1):
        scores, labels = inputs
        assert scores[:-1] == labels
        return {"": labels, ":correct": labels}


def lstm_flops(features, hidden, steps, from_state=False):
    return 2 * 4 * hidden * (features * steps + hidden * (steps if from_state else steps - 1))


# the four matrices of attention, two of four times the width; biases and two layer_norms
TRANSFORMER_LAYER = 12 * 768**2 + 13 * 768
TORCHVISION = "torchvision"
# Megatron-LM's models: billions of parameters as published, channels, layers.
MEGATRON = {"gpt-1.7b": (1.7, 2304, 24), "gpt-3.6b": (3.6, 3072, 30), "gpt-7.5b": (7.5, 4096, 36),
            "gpt-18.4b": (18.4, 6144, 40), "gpt-175b": (174.6, 12288, 96)}
# Hugging Face: parameters of the safetensors files; channels, hidden features, layers
LLAMA3 = {"llama3-70b": (70553706496, 8192, 28672, 80), "llama3-405b": (405853388800, 16384, 53248, 126)}


def sparse_parameters(layers, experts, hidden, inner, length, vocabulary):
    """A sparse_language_model, layer by layer."""
    attention, norms = 4 * hidden * (hidden + 1), 2 * 2 * hidden
    feed_forward = 2 * hidden * inner + inner + hidden
    sparse = layers // 2
    return ((length + vocabulary) * hidden + layers * (attention + norms) + 2 * hidden
            + (layers - sparse) * feed_forward + sparse * (experts * feed_forward + hidden * experts))


def sparse_gflop(layers, experts, hidden, inner, length, vocabulary, places):
    """`places`: rows of all experts for one sample, whether or not tokens fill them."""
    attention = 4 * length * hidden**2 + 2 * length**2 * hidden
    sparse = layers // 2
    return 2 / 1e9 * (layers * attention + (layers - sparse) * 2 * length * hidden * inner
                      + sparse * (length * hidden * experts + 2 * places * hidden * inner)
                      + length * hidden * vocabulary)


# name -> (trained parameters, where from). Where the published network has more or less, the terms say what.
PARAMETERS = {
    "lenet": (156 + 2416 + 48120 + 10164 + 850, "layer by layer"),
    "alexnet": (60965224, "BVLC AlexNet of Caffe"),
    "vgg16": (138357544, TORCHVISION),
    "resnet50": (25557032, TORCHVISION),
    "resnet101": (44549160, TORCHVISION),
    "inception_v3": (23834568, TORCHVISION + ", without AuxLogits"),
    "rnntc": (10000 * 1024 + 4 * 4 * (2 * 1024**2 + 1024) + 2 * 1025, "layer by layer"),
    "rnnlm": (10000 * 2048 + 2 * 4 * (2 * 2048**2 + 2048) + 10000 * 2049, "layer by layer"),
    "rnnlm-2step": (10000 * 2048 + 2 * 4 * (2 * 2048**2 + 2048) + 10000 * 2049, "as rnnlm"),
    "nmt": (2 * 32000 * 1024 + 4 * 4 * (2 * 1024**2 + 1024) + 3 * 1024**2 + 32000 * 1025, "layer by layer"),
    # 384 positions, two token types, and a bias of the scores less.
    "bert-base": (109514298 - 384 * 768 - 2 * 768 - 30522,
                  "BertForMaskedLM of Hugging Face transformers, bert-base-uncased"),
    "gpt2-small": (124439808, "gpt2 of Hugging Face transformers"),
    # Equation 2, 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), and the last layer_norm.
    **{name: (12 * layers * hidden**2 + 13 * layers * hidden + (51200 + 2048) * hidden + 2 * hidden,
              "Narayanan et al. 2021, equation 2") for name, (_, hidden, layers) in MEGATRON.items()},
    **{name: (parameters, "Hugging Face") for name, (parameters, _, _, _) in LLAMA3.items()},
    "mixtral-8x22b": (140620634112, "Hugging Face"),
    # Two tables; in each layer attention, its projection, three matrices of the feed-forward layer, two norms; the norm
    # in front of the scores.
    "llama-tiny": (2 * 256 * 64 + 2 * (64 * (64 + 2 * 32) + 64**2 + 3 * 64 * 192 + 2 * 64) + 64, "layer by layer"),
    "moe-tiny": (sparse_parameters(2, 4, 128, 256, 20, 1000), "layer by layer"),
    **{f"gshard-moe-{experts}e-{layers}l": (sparse_parameters(layers, experts, 1024, 8192, 1024, 32000),
                                            "layer by layer")
       for experts in (128, 512, 2048) for layers in (12, 36)},
    # The benchmark's layers with 729 instead of 351 interactions and two scores, then the tables.
    "dlrm": (762177 + 378 * 512 + 257 + 26 * 100000 * 64,
             "facebookresearch/dlrm, bench/dlrm_s_criteo_terabyte.sh, layer by layer"),
}

# name -> (GFLOP forward, relative tolerance). Published ones count multiply-adds: twice that here.
GFLOP = {
    "lenet": (2 * (28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10) / 1e9, 1e-12),
    "alexnet": (2 * 0.727, 0.01),  # albanie/convnet-burden
    "vgg16": (2 * 15.47, 0.001),
    "resnet50": (2 * 4.089, 0.001),
    "resnet101": (2 * 7.801, 0.001),
    "inception_v3": (2 * 5.713, 0.001),
    "rnntc": ((4 * lstm_flops(1024, 1024, 40) + 2 * 1024 * 2) / 1e9, 1e-12),
    "rnnlm": ((2 * lstm_flops(2048, 2048, 40) + 40 * 2 * 2048 * 10000) / 1e9, 1e-12),
    "rnnlm-2step": ((2 * lstm_flops(2048, 2048, 2) + 2 * 2 * 2048 * 10000) / 1e9, 1e-12),
    "nmt": ((2 * lstm_flops(1024, 1024, 40) + 2 * lstm_flops(1024, 1024, 40, True)
             + 40 * 2 * (1024**2 + 2 * 40 * 1024 + 2 * 1024**2 + 1024 * 32000)) / 1e9, 1e-12),
    # TinyBERT (Jiao et al. 2020), table 1, for 128 tokens; the head
    "bert-base": (22.5 + 2 * 128 * (768**2 + 30522 * 768) / 1e9, 0.01),
    "gpt2-small": (1024 * 2 * (12 * (12 * 768**2 + 2 * 1024 * 768) + 50257 * 768) / 1e9, 1e-12),
    # Narayanan et al. 2021, equation 3, 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)), counts the layers twice forward
    # and twice as much backward, 4 times what is here, and the scores 3 times.
    **{name: (2048 * (24 * layers * hidden**2 * (1 + 2048 / (6 * hidden)) + 2 * 51200 * hidden) / 1e9, 1e-12)
       for name, (_, hidden, layers) in MEGATRON.items()},
    # Queries and the projection, keys and values, scores and sums, the feed-forward layer; the output
    **{name: (8192 * 2 * (layers * (2 * hidden**2 + 2 * 1024 * hidden + 2 * 8192 * hidden + 3 * hidden * wide)
                          + 128256 * hidden) / 1e9, 1e-12) for name, (_, hidden, wide, layers) in LLAMA3.items()},
    # Likewise; the choice among 8 experts, two of which work on a token.
    "mixtral-8x22b": (4096 * 2 * (56 * (2 * 6144**2 + 2 * 1024 * 6144 + 2 * 4096 * 6144 + 8 * 6144
                                        + 2 * 3 * 6144 * 16384) + 32000 * 6144) / 1e9, 1e-12),
    "llama-tiny": (64 * 2 * (2 * (64 * (64 + 2 * 32) + 64**2 + 3 * 64 * 192 + 2 * 64 * 64) + 256 * 64) / 1e9, 1e-12),
    "moe-tiny": (sparse_gflop(2, 4, 128, 256, 20, 1000, 4 * 13), 1e-12),
    # with top-2 gating and a factor of 1 two places a token
    **{f"gshard-moe-{experts}e-{layers}l": (sparse_gflop(layers, experts, 1024, 8192, 1024, 32000, 2 * 1024), 1e-12)
       for experts in (128, 512, 2048) for layers in (12, 36)},
    "dlrm": (2 * (13 * 512 + 512 * 256 + 256 * 64 + 27 * 27 * 64 + 793 * 512 + 512 * 512 + 512 * 256 + 256 * 2) / 1e9,
             1e-12),
}


def text_of(graph):
    return generate_graphs.readable_json(graph) + "\n"


def read(name):
    return json.loads((ROOT / f"graphs/{name}.json").read_text(encoding="utf-8"))


def counts(name):
    """The first columns of the table in docs/networks.md."""
    graph = read(name)
    network = Network(graph)
    return [f"`{name}`", f"{len(graph['operators']):,}", f"{network.count:,}", f"{network.gflop:.4g}",
            f"{graph['batch_size']:,}"]


def complaint(graph):
    """What the schema says against a graph, or None."""
    schema = json.loads((ROOT / "docs/schema/ffgraph.json").read_text(encoding="utf-8"))
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(graph))
    return error and "/" + "/".join(map(str, error.absolute_path)) + ": " + error.message


class Networks(unittest.TestCase):
    def test_committed_files_are_what_the_generator_writes(self):
        self.assertEqual({path.stem for path in (ROOT / "graphs").glob("*.json")}, set(NAMES))
        for name in NAMES:
            with self.subTest(name):
                self.assertEqual((ROOT / f"graphs/{name}.json").read_text(encoding="utf-8"),
                                 text_of(generate_graphs.build(name)))

    @unittest.skipUnless(jsonschema, "python3-jsonschema is not installed")
    def test_schema(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertIsNone(complaint(read(name)))

    def test_one_operator_a_line(self):
        for name in NAMES:
            with self.subTest(name):
                lines = (ROOT / f"graphs/{name}.json").read_text(encoding="utf-8").splitlines()
                self.assertEqual(sum(line.startswith('  {"name": ') for line in lines),
                                 len(read(name)["inputs"]) + len(read(name)["operators"]))

    def test_parameters(self):
        self.assertEqual(list(PARAMETERS), NAMES)
        for name, (expected, source) in PARAMETERS.items():
            with self.subTest(name, source=source):
                graph = read(name)
                self.assertEqual(Network(graph).count, expected)
                self.assertIn(f"{expected:,} parameters", graph["description"])

    def test_arithmetic(self):
        self.assertEqual(list(GFLOP), NAMES)
        for name, (expected, tolerance) in GFLOP.items():
            with self.subTest(name):
                self.assertLessEqual(abs(Network(read(name)).gflop / expected - 1), tolerance,
                                     Network(read(name)).gflop)

    def test_transformer_layers(self):
        for name in ("bert-base", "gpt2-small"):
            network = Network(read(name))
            for layer in range(1, 13):
                own = [shape for parameter, shape in network.parameters.items()
                       if parameter.startswith(f"layer{layer}.")]
                self.assertEqual(sum(map(math.prod, own)), TRANSFORMER_LAYER)

    def test_megatron_parameters(self):
        for name, (billions, _, _) in MEGATRON.items():
            self.assertLess(abs(PARAMETERS[name][0] / (billions * 1e9) - 1), 0.03, name)

    def test_published_sizes_of_llama(self):
        """Parameters of Hugging Face's LlamaForCausalLM with the published sizes."""
        for name, sizes, expected in (
                ("7B", {"hidden": 4096, "heads": 32, "key_value_heads": 32, "wide": 11008, "layers": 32}, 6738415616),
                ("70B", {"hidden": 8192, "heads": 64, "key_value_heads": 8, "wide": 28672, "layers": 80}, 68976648192)):
            with self.subTest(name):
                builder = GraphBuilder(name, batch=1)
                llama(builder, **sizes, length=2048, vocabulary=32000)
                self.assertEqual(Network(builder.graph()).count, expected)

    def test_nothing_is_left_unread(self):
        """Every graph input, and every output but those of losses and the last cell states."""
        for name in NAMES:
            with self.subTest(name):
                kinds = {operator["name"]: operator["type"] for operator in read(name)["operators"]}
                unread = {tensor for tensor in Network(read(name)).unread
                          if kinds.get(tensor.split(":")[0]) not in ("softmax_cross_entropy", "load_balancing_loss")
                          and not tensor.endswith(":c")}
                self.assertEqual(unread, set())

    def test_sparse_transformers(self):
        """GShard's table: 4 million tokens on 2048 cores, 1 million on 512 and on 128; a group is a core's tokens."""
        for experts, layers, cores, tokens in ((2048, 36, 2048, 2**22), (2048, 12, 2048, 2**22),
                                               (512, 36, 512, 2**20), (512, 12, 512, 2**20),
                                               (128, 36, 128, 2**20), (128, 12, 128, 2**20)):
            graph = read(f"gshard-moe-{experts}e-{layers}l")
            self.assertEqual(graph["batch_size"] * 1024, tokens)
            kinds = [operator["type"] for operator in graph["operators"]]
            self.assertEqual(kinds.count("multi_head_attention"), layers)
            self.assertEqual(kinds.count("dispatch"), layers // 2)
            groups = {operator["attributes"]["group_samples"] for operator in graph["operators"]
                      if operator["type"] in ("top_k_gating", "load_balancing_loss")}
            self.assertEqual([group * cores for group in groups], [graph["batch_size"]])
        # Published as about 600 billion; all but a thousandth are the experts'.
        self.assertEqual(round(Network(read("gshard-moe-2048e-36l")).count / 1e9), 619)

    def test_shared_parameters(self):
        """The steps of a layer are one group; the table of a transformer is also its output layer."""
        for name, groups in (("rnnlm", {"embedding", "lstm1", "lstm2", "output"}),
                             ("rnnlm-2step", {"embedding", "lstm1", "lstm2", "output"}),
                             ("rnntc", {"embedding", "lstm1", "lstm2", "lstm3", "lstm4"}),
                             ("nmt", {"source_embedding", "target_embedding", "encoder1", "encoder2", "decoder1",
                                      "decoder2", "attention", "output"})):
            with self.subTest(name):
                steps = 2 if name == "rnnlm-2step" else 40
                found = {}
                for operator in read(name)["operators"]:
                    if "parameters" in operator:
                        found.setdefault(operator["parameters"], []).append(operator["name"])
                self.assertEqual(found, {group: [f"{group}.t{t}" for t in range(steps)]
                                         for group in sorted(groups, key=list(found).index)})
        for name in ("bert-base", "gpt2-small", "moe-tiny", "gshard-moe-128e-12l", *MEGATRON):
            with self.subTest(name):
                shared = [operator["name"] for operator in read(name)["operators"]
                          if operator.get("parameters") == "tokens"]
                self.assertEqual(shared, ["tokens", "output"])

    def test_weights_of_the_losses(self):
        for name in NAMES:
            with self.subTest(name):
                weights = [operator.get("attributes", {}).get("weight", 1) for operator in read(name)["operators"]
                           if operator["type"] == "softmax_cross_entropy"]
                self.assertEqual(len(set(weights)), 1)
                self.assertAlmostEqual(sum(weights), 1)

    def test_table_of_the_documentation(self):
        rows = []
        for line in (ROOT / "docs/networks.md").read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if re.fullmatch(r"`[\w.-]+`", cells[0]) and len(cells) == 7:
                rows.append(cells[:5])
        self.assertEqual(rows, [counts(name) for name in NAMES])


# Arguments, and the names of the files that they make.
VARIANTS = [
    (["lenet", "--width", "0.5", "--image", "12"], ["lenet-w0.5-i12"]),
    (["alexnet", "--image", "67"], ["alexnet-i67"]),
    (["vgg16", "--width", "0.25", "--image", "32", "--batch", "8"], ["vgg16-w0.25-i32"]),
    (["resnet50", "resnet101", "--width", "0.3", "--image", "32", "--statistics", "local"],
     ["resnet50-w0.3-i32-local", "resnet101-w0.3-i32-local"]),
    (["inception_v3", "--image", "75", "--width", "0.1"], ["inception_v3-w0.1-i75"]),
    (["rnntc", "rnnlm", "nmt", "--width", "0.01", "--steps", "8", "--layers", "3", "--vocabulary", "1000"],
     [f"{name}-w0.01-s8-l3-v1000" for name in ("rnntc", "rnnlm", "nmt")]),
    (["rnntc", "rnnlm-2step", "nmt", "--steps", "1", "--layers", "1"],
     [f"{name}-s1-l1" for name in ("rnntc", "rnnlm-2step", "nmt")]),
    (["bert-base", "gpt2-small", "--width", "0.01", "--steps", "16", "--layers", "2", "--vocabulary", "50"],
     ["bert-base-w0.01-s16-l2-v50", "gpt2-small-w0.01-s16-l2-v50"]),
    (["llama-tiny", "--width", "2", "--steps", "16", "--layers", "3", "--vocabulary", "50"],
     ["llama-tiny-w2-s16-l3-v50"]),
    (["dlrm", "--width", "0.125", "--vocabulary", "1000"], ["dlrm-w0.125-v1000"]),
    (["resnet50", "--statistics", "global", "--image", "224", "--width", "1"], ["resnet50"]),
    (["gpt-1.7b", "gpt-18.4b", "--width", "0.05", "--layers", "2"], ["gpt-1.7b-w0.05-l2", "gpt-18.4b-w0.05-l2"]),
    (["--width", "0.25"], [f"{name}-w0.25" for name in NAMES]),
]

WRONG = [
    (["vgg19"], 'no network is named "vgg19"'),
    (["lenet", "--width", "0"], "--width"), (["lenet", "--width", "nan"], "--width"),
    (["lenet", "--width", "inf"], "--width"),
    (["lenet", "--batch", "0"], "--batch"), (["rnnlm", "--steps", "0"], "--steps"),
    (["rnnlm", "--steps", "two"], "--steps"),
    (["rnnlm", "--layers", "-1"], "--layers"), (["rnnlm", "--vocabulary", "0"], "--vocabulary"),
    (["resnet50", "--statistics", "sync"], "--statistics"),
    (["alexnet", "--image", "66"], "--image: alexnet needs at least 67, got 66"),
    (["inception_v3", "--image", "74"], "--image: inception_v3 needs at least 75, got 74"),
    (["vgg16", "--steps", "3"], "--steps: vgg16 has no steps"),
    (["resnet50", "--layers", "3"], "--layers: resnet50 has no repeated layers"),
    (["resnet50", "--vocabulary", "3"], "--vocabulary: resnet50 has no vocabulary"),
    (["nmt", "--image", "64"], "--image: nmt has no images"), (["dlrm", "--steps", "3"], "--steps: dlrm has no steps"),
    (["resnet50", "vgg16", "--statistics", "local"], "--statistics: vgg16 has no batch normalization"),
    (["--statistics", "local"], "--statistics: lenet has no batch normalization"),
]


def generate(*arguments):
    return subprocess.run(["/usr/bin/python3", "-B", str(GENERATOR), *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, check=False)


class Generator(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name) / "out"

    def tearDown(self):
        self.folder.cleanup()

    def test_variants(self):
        for arguments, names in VARIANTS:
            with self.subTest(" ".join(arguments)):
                done = generate(*arguments, "--out", self.out)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertEqual(done.stdout.split(), [str(self.out / f"{name}.json") for name in names])
                for name in names:
                    graph = json.loads((self.out / f"{name}.json").read_text(encoding="utf-8"))
                    self.assertEqual(graph["name"], name)
                    self.assertEqual(graph["description"].startswith("Variant ("), name not in NAMES)
                    if jsonschema:
                        self.assertIsNone(complaint(graph))
                    network = Network(graph)
                    self.assertGreater(network.gflop, 0)

    def test_what_variants_change(self):
        build = generate_graphs.build
        full, half = Network(build("rnnlm")), Network(build("rnnlm", width=0.5))
        self.assertEqual(half.parameters["lstm1.recurrent"], (4, 1024, 1024))
        self.assertEqual(half.parameters["output.weight"], (10000, 1024))
        self.assertEqual(Network(build("rnnlm", steps=8)).count, full.count)
        self.assertEqual({operator["attributes"]["weight"] for operator in build("rnnlm", steps=8)["operators"]
                          if operator["type"] == "softmax_cross_entropy"}, {1 / 8})
        heads = [operator["attributes"]["heads"] for operator in build("gpt2-small", width=0.25, layers=2)["operators"]
                 if operator["type"] == "multi_head_attention"]
        self.assertEqual(heads, [3, 3])
        self.assertEqual(Network(build("gpt2-small", width=0.25)).shapes["layer1.attention"], (1024, 192))
        self.assertEqual(Network(build("bert-base", width=0.001)).shapes["layer1.attention"], (128, 64))
        heads = [(operator["attributes"]["heads"], operator["attributes"]["key_value_heads"])
                 for width in (0.01, 2, 3) for operator in build("llama-tiny", width=width, layers=1)["operators"]
                 if operator["type"] == "multi_head_attention"]
        self.assertEqual(heads, [(2, 1), (8, 4), (12, 6)])
        self.assertEqual(Network(build("dlrm", vocabulary=10)).parameters["table25.weight"], (10, 64))
        norms = [operator for operator in build("resnet50", statistics="local")["operators"]
                 if operator["type"] == "batch_norm"]
        self.assertEqual((len(norms), {operator["attributes"]["statistics"] for operator in norms}), (53, {"local"}))
        self.assertEqual(build("resnet50", batch=4)["batch_size"], 4)

    def test_wrong_arguments(self):
        for arguments, message in WRONG:
            with self.subTest(" ".join(arguments)):
                done = generate(*arguments, "--out", self.out)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                errors = [line for line in done.stderr.splitlines() if line.startswith("generate_graphs.py: error: ")]
                self.assertEqual(len(errors), 1, done.stderr)
                self.assertIn(message, errors[0])
                self.assertNotIn("Traceback", done.stderr)
                self.assertFalse(self.out.exists())

    def test_a_folder_that_is_a_file(self):
        self.out.write_text("")
        done = generate("lenet", "--out", self.out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("generate_graphs.py: error: --out: ", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        for row in NAMES:
            print("| " + " | ".join(counts(row)) + " |")
    else:
        unittest.main()
