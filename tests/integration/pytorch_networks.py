"""Small networks, each as an operator graph (ffgraph/1) and as plain PyTorch functions, with initial parameters,
data and a mixed strategy for two devices. Used by pytorch_test.py."""
import dataclasses
import typing

import numpy
import torch
import torch.nn.functional as F

from generate_graphs import build

# Not trained: updated by the forward pass.
RUNNING = (".running_mean", ".running_variance")


@dataclasses.dataclass
class Network:
    graph: dict
    parameters: dict  # GROUP.PARAMETER -> initial values
    data: dict  # graph input -> array whose first axis is the sample; one batch
    loss: typing.Callable  # (parameters, data, training) -> PyTorch scalar; parameters and data are dicts of tensors
    split: typing.Callable  # operator name -> (degrees, devices) of the mixed strategy
    learning_rate: float = 0.05


def operator(name, kind, inputs, group=None, **attributes):
    result = {"name": name, "type": kind, "inputs": [inputs] if isinstance(inputs, str) else list(inputs)}
    if attributes:
        result["attributes"] = attributes
    if group:
        result["parameters"] = group
    return result


class Initial:
    """Collects random initial parameters; all are random, so that none is right by chance."""

    def __init__(self, seed):
        self.random = numpy.random.RandomState(seed)
        self.parameters = {}

    def normal(self, name, shape, deviation, mean=0.0):
        self.parameters[name] = (mean + deviation * self.random.standard_normal(shape)).astype(numpy.float32)

    def layer(self, name, out, *inputs, bias=True):
        """A linear or convolution layer: weight [out, *inputs], bias [out]."""
        self.normal(f"{name}.weight", (out, *inputs), float(numpy.prod(inputs)) ** -0.5)
        if bias:
            self.normal(f"{name}.bias", (out,), 0.1)

    def normalization(self, name, features, running=False):
        self.normal(f"{name}.weight", (features,), 0.2, mean=1)
        self.normal(f"{name}.bias", (features,), 0.2)
        if running:
            self.normal(f"{name}.running_mean", (features,), 0.3)
            self.normal(f"{name}.running_variance", (features,), 0.1, mean=1)


def image_classifier():
    """Two convolutions with batch normalization and a residual connection, global average pooling."""
    batch, channels, classes = 8, 8, 5
    graph = {
        "format": "ffgraph/1", "name": "residual", "batch_size": batch,
        "inputs": [{"name": "image", "shape": ["batch", 3, 10, 10], "dtype": "f32"},
                   {"name": "label", "shape": ["batch"], "dtype": "i32"}],
        "operators": [
            operator("conv1", "conv2d", "image", out_channels=channels, kernel=3, padding=1, bias=False),
            operator("norm1", "batch_norm", "conv1", activation="relu"),
            operator("conv2", "conv2d", "norm1", out_channels=channels, kernel=3, padding=1, bias=False),
            operator("norm2", "batch_norm", "conv2", momentum=0.2, epsilon=0.001),
            operator("sum", "add", ["norm2", "norm1"]),
            operator("relu", "relu", "sum"),
            operator("pool", "pool2d", "relu", kernel=2),
            operator("mean", "mean", "pool"),
            operator("fc", "linear", "mean", out_features=classes),
            operator("loss", "softmax_cross_entropy", ["fc", "label"])]}
    initial = Initial(1)
    initial.layer("conv1", channels, 3, 3, 3, bias=False)
    initial.normalization("norm1", channels, running=True)
    initial.layer("conv2", channels, channels, 3, 3, bias=False)
    initial.normalization("norm2", channels, running=True)
    initial.layer("fc", classes, channels)
    data = {"image": initial.random.standard_normal((batch, 3, 10, 10)).astype(numpy.float32),
            "label": (numpy.arange(batch) % classes).astype(numpy.int32)}

    def loss(p, data, training):
        def batch_norm(x, name, momentum, epsilon):
            return F.batch_norm(x, p[f"{name}.running_mean"], p[f"{name}.running_variance"], p[f"{name}.weight"],
                                p[f"{name}.bias"], training, momentum, epsilon)
        first = F.relu(batch_norm(F.conv2d(data["image"], p["conv1.weight"], padding=1), "norm1", 0.1, 1e-5))
        second = batch_norm(F.conv2d(first, p["conv2.weight"], padding=1), "norm2", 0.2, 1e-3)
        x = F.max_pool2d(F.relu(second + first), 2).mean((2, 3))
        return F.cross_entropy(F.linear(x, p["fc.weight"], p["fc.bias"]), data["label"])

    splits = {"conv1": ({"channel": 2}, [1, 0]), "norm1": ({"sample": 2}, [0, 1]), "conv2": ({"height": 2}, [0, 1]),
              "norm2": ({"channel": 2, "height": 2}, [0, 1, 1, 0]), "sum": ({"channel": 2}, [0, 1]), "relu": ({}, [1]),
              "pool": ({"sample": 2}, [0, 1]), "mean": ({"channel": 2}, [0, 1]), "fc": ({"channel": 2}, [1, 0]),
              "loss": ({"sample": 2}, [0, 1])}
    return Network(graph, initial.parameters, data, loss, splits.__getitem__)


def language_model():
    """Two LSTM layers, unrolled; the operators of all steps share their parameters."""
    batch, steps, vocabulary, channels, hidden = 6, 6, 23, 8, (12, 10)
    operators = []
    for t in range(steps):
        operators.append(operator(f"embed.t{t}", "embedding", f"token:{t}", "embed", vocabulary=vocabulary,
                                  channels=channels))
        x = f"embed.t{t}"
        for layer in (1, 2):
            states = [f"lstm{layer}.t{t - 1}:h", f"lstm{layer}.t{t - 1}:c"] if t else []
            operators.append(operator(f"lstm{layer}.t{t}", "lstm", [x, *states], f"lstm{layer}",
                                      hidden=hidden[layer - 1]))
            x = f"lstm{layer}.t{t}"
        operators.append(operator(f"scores.t{t}", "linear", x, "scores", out_features=vocabulary))
        operators.append(operator(f"loss.t{t}", "softmax_cross_entropy", [f"scores.t{t}", f"label:{t}"],
                                  weight=1 / steps))
    graph = {"format": "ffgraph/1", "name": "language-model", "batch_size": batch,
             "inputs": [{"name": name, "shape": ["batch"], "dtype": "i32", "steps": steps}
                        for name in ("token", "label")],
             "operators": operators}
    initial = Initial(2)
    initial.normal("embed.weight", (vocabulary, channels), 0.5)
    for layer, size in ((1, channels), (2, hidden[0])):
        units = hidden[layer - 1]
        initial.normal(f"lstm{layer}.weight", (4, units, size), size ** -0.5)
        initial.normal(f"lstm{layer}.recurrent", (4, units, units), units ** -0.5)
        initial.normal(f"lstm{layer}.bias", (4, units), 0.2)
    initial.layer("scores", vocabulary, hidden[1])
    data = {name: initial.random.randint(0, vocabulary, (batch, steps)).astype(numpy.int32)
            for name in ("token", "label")}

    def loss(p, data, training):
        states = [(torch.zeros(batch, units, dtype=p["embed.weight"].dtype),) * 2 for units in hidden]
        total = 0
        for t in range(steps):
            x = F.embedding(data["token"][:, t], p["embed.weight"])
            for layer in (1, 2):
                h, c = states[layer - 1]
                weight, recurrent, bias = (p[f"lstm{layer}.{name}"].flatten(0, 1)
                                           for name in ("weight", "recurrent", "bias"))
                i, f, g, o = (F.linear(x, weight, bias) + F.linear(h, recurrent)).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                x = torch.sigmoid(o) * torch.tanh(c)
                states[layer - 1] = x, c
            total = total + F.cross_entropy(F.linear(x, p["scores.weight"], p["scores.bias"]),
                                            data["label"][:, t]) / steps
        return total

    def split(name):
        kind, step = name.split(".t")
        even = int(step) % 2 == 0
        return {"embed": ({"channel": 2}, [0, 1]) if even else ({"sample": 2}, [1, 0]),
                "lstm1": ({"hidden": 2}, [0, 1]) if even else ({"sample": 2}, [0, 1]),
                "lstm2": ({"hidden": 3}, [0, 1, 1]) if int(step) < 3 else ({"hidden": 2, "sample": 2}, [0, 1, 1, 0]),
                "scores": ({"channel": 2}, [1, 0]), "loss": ({}, [1])}[kind]

    return Network(graph, initial.parameters, data, loss, split, learning_rate=0.5)


def transformer():
    """Two layers, causal, normalization before each block; the last layer shares the embedding's table."""
    batch, length, vocabulary, channels, heads, layers = 6, 7, 29, 16, 4, 2
    operators = [operator("embed", "embedding", "token", vocabulary=vocabulary, channels=channels),
                 operator("positions", "position_embedding", "embed")]
    x = "positions"
    for i in range(layers):
        operators += [
            operator(f"{i}.norm1", "layer_norm", x),
            operator(f"{i}.attention", "multi_head_attention", f"{i}.norm1", heads=heads, causal=True),
            operator(f"{i}.project", "linear", f"{i}.attention", out_features=channels),
            operator(f"{i}.sum1", "add", [x, f"{i}.project"]),
            operator(f"{i}.norm2", "layer_norm", f"{i}.sum1"),
            operator(f"{i}.wide", "linear", f"{i}.norm2", out_features=4 * channels),
            operator(f"{i}.gelu", "gelu", f"{i}.wide"), operator(f"{i}.narrow", "linear", f"{i}.gelu",
                                                                 out_features=channels),
            operator(f"{i}.sum2", "add", [f"{i}.sum1", f"{i}.narrow"])]
        x = f"{i}.sum2"
    operators += [operator("norm", "layer_norm", x), operator("scores", "linear", "norm", "embed",
                                                              out_features=vocabulary, bias=False),
                  operator("loss", "softmax_cross_entropy", ["scores", "label"])]
    graph = {"format": "ffgraph/1", "name": "transformer", "batch_size": batch,
             "inputs": [{"name": name, "shape": ["batch", length], "dtype": "i32"} for name in ("token", "label")],
             "operators": operators}
    initial = Initial(3)
    initial.normal("embed.weight", (vocabulary, channels), 0.3)
    initial.normal("positions.weight", (length, channels), 0.3)
    for i in range(layers):
        initial.normalization(f"{i}.norm1", channels)
        initial.normal(f"{i}.attention.weight", (3, channels, channels), channels ** -0.5)
        initial.normal(f"{i}.attention.bias", (3, channels), 0.1)
        initial.layer(f"{i}.project", channels, channels)
        initial.normalization(f"{i}.norm2", channels)
        initial.layer(f"{i}.wide", 4 * channels, channels)
        initial.layer(f"{i}.narrow", channels, 4 * channels)
    initial.normalization("norm", channels)
    data = {name: initial.random.randint(0, vocabulary, (batch, length)).astype(numpy.int32)
            for name in ("token", "label")}

    def loss(p, data, training):
        def linear(x, name):
            return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

        def norm(x, name):
            return F.layer_norm(x, (channels,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)

        def attention(x, name):
            query, key, value = (F.linear(x, weight, bias).unflatten(2, (heads, channels // heads)).transpose(1, 2)
                                 for weight, bias in zip(p[f"{name}.weight"], p[f"{name}.bias"]))
            scores = query @ key.transpose(2, 3) / (channels // heads) ** 0.5
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            return (scores.masked_fill(later, float("-inf")).softmax(3) @ value).transpose(1, 2).flatten(2)

        x = F.embedding(data["token"], p["embed.weight"]) + p["positions.weight"]
        for i in range(layers):
            x = x + linear(attention(norm(x, f"{i}.norm1"), f"{i}.attention"), f"{i}.project")
            x = x + linear(F.gelu(linear(norm(x, f"{i}.norm2"), f"{i}.wide")), f"{i}.narrow")
        scores = F.linear(norm(x, "norm"), p["embed.weight"])
        return F.cross_entropy(scores.flatten(0, 1), data["label"].flatten())

    splits = {"embed": ({"channel": 2}, [0, 1]), "positions": ({"length": 2}, [0, 1]), "norm": ({}, [1]),
              "scores": ({"channel": 3}, [1, 0, 1]), "loss": ({"length": 2}, [0, 1]),
              "0.norm1": ({"sample": 2}, [0, 1]), "0.attention": ({"head": 3}, [0, 1, 1]),
              "0.project": ({"channel": 2}, [0, 1]),
              "0.sum1": ({}, [1]), "0.norm2": ({"length": 2}, [1, 0]), "0.wide": ({"channel": 2}, [0, 1]),
              "0.gelu": ({"length": 3}, [0, 1, 0]),
              "0.narrow": ({"sample": 2}, [0, 1]), "0.sum2": ({"channel": 2}, [0, 1]),
              "1.norm1": ({"sample": 2, "length": 2}, [0, 1, 1, 0]),
              "1.attention": ({"sample": 2, "head": 2}, [0, 1, 1, 0]),
              "1.project": ({"length": 2}, [0, 1]), "1.sum1": ({"length": 2}, [0, 1]), "1.norm2": ({}, [0]),
              "1.wide": ({"sample": 2, "channel": 2}, [0, 1, 0, 1]),
              "1.gelu": ({"channel": 2}, [1, 0]), "1.narrow": ({"channel": 2}, [0, 1]),
              "1.sum2": ({"sample": 2}, [1, 0])}
    return Network(graph, initial.parameters, data, loss, splits.__getitem__)


def llama():
    """llama-tiny with fewer positions and tokens, in PyTorch as Hugging Face's transformers compute it."""
    batch, length, vocabulary = 6, 7, 29
    graph = build("llama-tiny", batch, steps=length, vocabulary=vocabulary)
    attributes = {operator["name"]: operator.get("attributes", {}) for operator in graph["operators"]}
    channels, wide = attributes["tokens"]["channels"], attributes["layer1.gate"]["out_features"]
    attention = attributes["layer1.attention"]
    heads, key_heads, head = attention["heads"], attention["key_value_heads"], channels // attention["heads"]
    attributes["layer2.attention"]["rotary_channels"] = head // 2  # of the first layer all
    layers = [f"layer{i}" for i in (1, 2)]
    initial = Initial(4)
    initial.normal("tokens.weight", (vocabulary, channels), 0.3)
    for layer in layers:
        initial.normal(f"{layer}.norm1.weight", (channels,), 0.2, mean=1)
        initial.normal(f"{layer}.attention.query", (channels, channels), channels ** -0.5)
        initial.normal(f"{layer}.attention.key_value", (2, key_heads * head, channels), channels ** -0.5)
        initial.layer(f"{layer}.projection", channels, channels, bias=False)
        initial.normal(f"{layer}.norm2.weight", (channels,), 0.2, mean=1)
        initial.layer(f"{layer}.gate", wide, channels, bias=False)
        initial.layer(f"{layer}.up", wide, channels, bias=False)
        initial.layer(f"{layer}.down", channels, wide, bias=False)
    initial.normal("norm.weight", (channels,), 0.2, mean=1)
    initial.layer("output", vocabulary, channels, bias=False)
    data = {name: initial.random.randint(0, vocabulary, (batch, length)).astype(numpy.int32)
            for name in ("token", "label")}

    def loss(p, data, training):
        def linear(x, name):
            return F.linear(x, p[f"{name}.weight"])

        def norm(x, name):
            return p[f"{name}.weight"] * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

        def rotate(x, count):
            frequencies = attention["rotary_base"] ** -(torch.arange(0, count, 2, dtype=torch.float64) / count)
            angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies).repeat(1, 2)
            turned, rest = x[..., :count], x[..., count:]
            first, second = turned.chunk(2, -1)
            return torch.cat((turned * angles.cos() + torch.cat((-second, first), -1) * angles.sin(), rest), -1)

        def attend(x, name):
            query = F.linear(x, p[f"{name}.query"]).unflatten(2, (heads, head)).transpose(1, 2)
            key, value = (F.linear(x, weight).unflatten(2, (key_heads, head)).transpose(1, 2)
                          .repeat_interleave(heads // key_heads, 1) for weight in p[f"{name}.key_value"])
            count = attributes[name].get("rotary_channels", head)
            scores = rotate(query, count) @ rotate(key, count).transpose(2, 3) / head ** 0.5
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            return (scores.masked_fill(later, float("-inf")).softmax(3) @ value).transpose(1, 2).flatten(2)

        x = F.embedding(data["token"], p["tokens.weight"])
        for layer in layers:
            x = x + linear(attend(norm(x, f"{layer}.norm1"), f"{layer}.attention"), f"{layer}.projection")
            y = norm(x, f"{layer}.norm2")
            x = x + linear(F.silu(linear(y, f"{layer}.gate")) * linear(y, f"{layer}.up"), f"{layer}.down")
        return F.cross_entropy(linear(norm(x, "norm"), "output").flatten(0, 1), data["label"].flatten())

    splits = {"tokens": ({"channel": 2}, [0, 1]), "norm": ({"sample": 2, "length": 2}, [0, 1, 1, 0]),
              "output": ({"channel": 3}, [1, 0, 1]), "loss": ({"length": 2}, [0, 1]),
              "layer1.norm1": ({"length": 2}, [1, 0]), "layer1.attention": ({"head": 2}, [0, 1]),
              "layer1.projection": ({"channel": 2}, [1, 0]), "layer1.add1": ({"sample": 2}, [0, 1]),
              "layer1.norm2": ({"sample": 2}, [0, 1]), "layer1.gate": ({"channel": 2}, [0, 1]),
              "layer1.silu": ({"channel": 2}, [0, 1]), "layer1.up": ({"channel": 2}, [0, 1]),
              "layer1.mul": ({"channel": 2}, [0, 1]), "layer1.down": ({"length": 2}, [0, 1]),
              "layer1.add2": ({}, [1]), "layer2.norm1": ({}, [0]),
              "layer2.attention": ({"sample": 2, "head": 2}, [1, 0, 0, 1]),
              "layer2.projection": ({"sample": 2}, [0, 1]), "layer2.add1": ({"channel": 2}, [0, 1]),
              "layer2.norm2": ({"length": 3}, [0, 1, 0]), "layer2.gate": ({"sample": 2}, [1, 0]),
              "layer2.silu": ({"length": 2}, [0, 1]), "layer2.up": ({"length": 2, "channel": 2}, [0, 1, 1, 0]),
              "layer2.mul": ({"sample": 3}, [0, 1, 0]), "layer2.down": ({"channel": 2}, [0, 1]),
              "layer2.add2": ({"length": 2}, [1, 0])}
    return Network(graph, initial.parameters, data, loss, splits.__getitem__)


def mixture_of_experts():
    """Attention, then a layer of experts of which each token takes one, and one of which it takes two; with places for
    fewer tokens than come, and the loss that balances the experts."""
    batch, length, vocabulary, channels, heads, hidden, experts = 6, 8, 23, 16, 2, 24, 4
    # Each sample is a group of its own, since ffexec shuffles the samples: it makes no difference which come together.
    top_k, capacity, weight = (1, 2), (2, 4), 0.5
    factors = (1, 0.82)  # capacities: 1 * 1 * 8 / 4 = 2 and 0.82 * 2 * 8 / 4 = 3.28, rounded up
    operators = [operator("embed", "embedding", "token", vocabulary=vocabulary, channels=channels),
                 operator("norm", "layer_norm", "embed"),
                 operator("attention", "multi_head_attention", "norm", heads=heads, causal=True),
                 operator("sum", "add", ["embed", "attention"])]
    x = "sum"
    for i in range(2):
        operators += [
            operator(f"{i}.norm", "layer_norm", x),
            operator(f"{i}.gate", "linear", f"{i}.norm", out_features=experts, bias=False),
            operator(f"{i}.gating", "top_k_gating", f"{i}.gate", top_k=top_k[i], capacity_factor=factors[i],
                     random_routing=False),
            operator(f"{i}.balance", "load_balancing_loss", f"{i}.gate", weight=weight),
            operator(f"{i}.dispatch", "dispatch", [f"{i}.norm", f"{i}.gating"]),
            operator(f"{i}.expand", "expert_linear", f"{i}.dispatch", out_features=hidden, activation="relu"),
            operator(f"{i}.contract", "expert_linear", f"{i}.expand", out_features=channels),
            operator(f"{i}.combine", "combine", [f"{i}.contract", f"{i}.gating", f"{i}.gating:weight"]),
            operator(f"{i}.sum", "add", [x, f"{i}.combine"])]
        x = f"{i}.sum"
    operators += [operator("scores", "linear", x, out_features=vocabulary),
                  operator("loss", "softmax_cross_entropy", ["scores", "label"])]
    graph = {"format": "ffgraph/1", "name": "mixture-of-experts", "batch_size": batch,
             "inputs": [{"name": name, "shape": ["batch", length], "dtype": "i32"} for name in ("token", "label")],
             "operators": operators}
    initial = Initial(4)
    initial.normal("embed.weight", (vocabulary, channels), 0.5)
    initial.normalization("norm", channels)
    initial.normal("attention.weight", (3, channels, channels), channels ** -0.5)
    initial.normal("attention.bias", (3, channels), 0.1)
    for i in range(2):
        initial.normalization(f"{i}.norm", channels)
        initial.layer(f"{i}.gate", experts, channels, bias=False)
        initial.normal(f"{i}.expand.weight", (experts, hidden, channels), channels ** -0.5)
        initial.normal(f"{i}.expand.bias", (experts, hidden), 0.1)
        initial.normal(f"{i}.contract.weight", (experts, channels, hidden), hidden ** -0.5)
        initial.normal(f"{i}.contract.bias", (experts, channels), 0.1)
    initial.layer("scores", vocabulary, channels)
    data = {name: initial.random.randint(0, vocabulary, (batch, length)).astype(numpy.int32)
            for name in ("token", "label")}

    def places(chosen, capacity):
        """[token, choice] experts of a group -> is there a place? First choices come first."""
        taken, fits = [0] * experts, torch.zeros(chosen.shape, dtype=torch.float64)
        for choice in range(chosen.shape[1]):
            for token in range(chosen.shape[0]):
                expert = int(chosen[token, choice])
                fits[token, choice] = float(taken[expert] < capacity)
                taken[expert] += 1
        return fits

    def mixture(p, x, i):
        """(result, loss of uneven use) of tokens [groups, tokens, channels]; all experts for all tokens, then masked"""
        logits = F.linear(x, p[f"{i}.gate.weight"])
        gates = logits.softmax(2)
        chosen = logits.topk(top_k[i], 2).indices
        weights = gates.gather(2, chosen)
        if top_k[i] == 2:
            weights = weights / weights.sum(2, keepdim=True)
        weights = weights * torch.stack([places(group, capacity[i]) for group in chosen])
        assert (weights == 0).any(), "no expert overflows: a poor test"
        h = F.relu(torch.einsum("gti,eoi->gteo", x, p[f"{i}.expand.weight"]) + p[f"{i}.expand.bias"])
        y = torch.einsum("gtei,eoi->gteo", h, p[f"{i}.contract.weight"]) + p[f"{i}.contract.bias"]
        of_expert = torch.zeros_like(gates).scatter_add(2, chosen, weights)
        share = F.one_hot(chosen[:, :, 0], experts).double().mean(1)
        return torch.einsum("gte,gteo->gto", of_expert, y), (share * gates.mean(1)).sum(1).mean() / experts

    def loss(p, data, training):
        def norm(x, name):
            return F.layer_norm(x, (channels,), p[f"{name}.weight"], p[f"{name}.bias"], 1e-5)

        x = F.embedding(data["token"], p["embed.weight"])
        query, key, value = (F.linear(norm(x, "norm"), weight, bias).unflatten(2, (heads, channels // heads))
                             .transpose(1, 2) for weight, bias in zip(p["attention.weight"], p["attention.bias"]))
        scores = query @ key.transpose(2, 3) / (channels // heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = x + (scores.masked_fill(later, float("-inf")).softmax(3) @ value).transpose(1, 2).flatten(2)
        uneven = 0
        for i in range(2):
            y, of_layer = mixture(p, norm(x, f"{i}.norm"), i)
            x, uneven = x + y, uneven + weight * of_layer
        scores = F.linear(x, p["scores.weight"], p["scores.bias"])
        return F.cross_entropy(scores.flatten(0, 1), data["label"].flatten()) + uneven

    splits = {"embed": ({"sample": 2}, [0, 1]), "norm": ({"length": 2}, [0, 1]), "attention": ({"head": 2}, [0, 1]),
              "sum": ({"sample": 2}, [0, 1]), "scores": ({"channel": 2}, [0, 1]), "loss": ({"sample": 2}, [0, 1])}
    layer = {"norm": ({"sample": 2}, [0, 1]), "gate": ({"sample": 2}, [1, 0]), "gating": ({"sample": 2}, [0, 1]),
             "balance": ({"sample": 3}, [0, 1, 1]), "dispatch": ({"sample": 2}, [0, 1]),
             "expand": ({"expert": 2}, [0, 1]), "contract": ({"expert": 2}, [0, 1]),
             "combine": ({"sample": 3}, [0, 1, 0]), "sum": ({"sample": 2}, [0, 1])}
    others = {"gating": ({}, [1]), "dispatch": ({"sample": 3, "channel": 2}, [0, 1, 1, 0, 0, 1]),
              "expand": ({"expert": 3, "channel": 2}, [0, 1, 1, 0, 1, 0]),
              "contract": ({"sample": 2, "expert": 2}, [0, 1, 1, 0]), "combine": ({"channel": 2}, [0, 1])}
    splits.update({f"0.{name}": split for name, split in layer.items()})
    splits.update({f"1.{name}": split for name, split in {**layer, **others}.items()})
    return Network(graph, initial.parameters, data, loss, splits.__getitem__, learning_rate=0.2)
