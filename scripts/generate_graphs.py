#!/usr/bin/python3
"""Writes operator graphs (ffgraph/1) of well-known networks.

    scripts/generate_graphs.py                          every network into graphs/
    scripts/generate_graphs.py vgg16 --width 0.25       a quarter of the channels: graphs/vgg16-w0.25.json
    scripts/generate_graphs.py alexnet --batch 64 --out elsewhere/

Adding a network: one function below with the decorator @network(batch=...).
"""

import argparse
import json
import os
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = {}  # name -> (function, default batch size), in the order of this file


def readable_json(value, indent=0):
    """JSON text in which small things stand on one line: one operator, device or link a line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value:
        return line
    children = value.values() if isinstance(value, dict) else value
    nested = any(isinstance(child, (dict, list)) and child for child in children)
    # The file's top level and lists of objects are spread out; what is small is not.
    spread = indent == 0 or (isinstance(value, list) and any(isinstance(child, dict) for child in value))
    if not spread and len(line) < (200 if nested else 160):
        return line
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(key)}: {readable_json(child, indent + 1)}" for key, child in value.items()]
    else:
        items = [pad + readable_json(child, indent + 1) for child in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(items) + "\n" + " " * indent + closing


def write_json(path, value):
    """Writes beside and renames, so that the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    temporary.write_text(readable_json(value) + "\n", encoding="utf-8")
    os.replace(temporary, path)


class GraphBuilder:
    """Collects operators; each method returns the name of the tensor it adds, for use as the next one's input."""

    def __init__(self, name, batch, width=1.0):
        self.name = name
        self.batch = batch
        self.width = width
        self.description = ""
        self.inputs = []
        self.operators = []

    def scaled(self, channels, multiple=1):
        """The number of channels at this builder's width: a multiple of `multiple`, at least one of it."""
        return max(multiple, round(channels * self.width / multiple) * multiple)

    def input(self, name, shape=(), dtype="f32"):
        self.inputs.append({"name": name, "shape": ["batch", *shape], "dtype": dtype})
        return name

    def add(self, kind, name, inputs, **attributes):
        """An operator of any type. Attributes that are None are left out: they keep their default."""
        operator = {"name": name, "type": kind, "inputs": [inputs] if isinstance(inputs, str) else list(inputs)}
        attributes = {key: value for key, value in attributes.items() if value is not None}
        if attributes:
            operator["attributes"] = attributes
        self.operators.append(operator)
        return name

    def conv2d(self, name, x, channels, kernel, stride=1, padding=0, groups=1, activation="relu"):
        return self.add("conv2d", name, x, out_channels=self.scaled(channels, 2 * groups), kernel=[kernel, kernel],
                        stride=[stride, stride] if stride != 1 else None,
                        padding=[padding, padding] if padding else None,
                        groups=groups if groups != 1 else None, activation=activation)

    def pool(self, method, name, x, kernel, stride=None):
        return self.add("pool2d", name, x, method=method, kernel=[kernel, kernel],
                        stride=[stride, stride] if stride not in (None, kernel) else None)

    def max_pool(self, name, x, kernel, stride=None):
        return self.pool("max", name, x, kernel, stride)

    def average_pool(self, name, x, kernel, stride=None):
        return self.pool("average", name, x, kernel, stride)

    def linear(self, name, x, features, activation="relu", hidden=True):
        """hidden=False keeps the number of features at any width: class scores."""
        return self.add("linear", name, x, out_features=self.scaled(features) if hidden else features,
                        activation=activation)

    def classifier(self, name, x, classes, label):
        """Class scores, and the loss that trains them."""
        scores = self.linear(name, x, classes, activation=None, hidden=False)
        return self.add("softmax_cross_entropy", "loss", [scores, label])

    def graph(self):
        name = self.name if self.width == 1 else f"{self.name}-w{self.width:g}"
        return {"$schema": "../docs/schema/ffgraph.json", "format": "ffgraph/1", "name": name,
                "description": self.description, "batch_size": self.batch, "inputs": self.inputs,
                "operators": self.operators}


def network(batch):
    def register(function):
        NETWORKS[function.__name__] = (function, batch)
        return function
    return register


@network(batch=64)
def lenet(g):
    g.description = ("LeNet-5 for 28x28 grey images (LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition), "
                     "with its tanh units and average subsampling; padding instead of 32x32 images, all channels connected, and a "
                     "linear last layer in place of radial basis functions: 61,706 parameters.")
    x = g.input("image", (1, 28, 28))
    label = g.input("label", dtype="i32")
    x = g.conv2d("conv1", x, 6, 5, padding=2, activation=None)
    x = g.add("tanh", "tanh1", x)
    x = g.average_pool("pool1", x, 2)
    x = g.conv2d("conv2", x, 16, 5, activation=None)
    x = g.add("tanh", "tanh2", x)
    x = g.average_pool("pool2", x, 2)
    x = g.add("flatten", "flatten", x)
    x = g.linear("fc1", x, 120, activation=None)
    x = g.add("tanh", "tanh3", x)
    x = g.linear("fc2", x, 84, activation=None)
    x = g.add("tanh", "tanh4", x)
    g.classifier("fc3", x, 10, label)


@network(batch=256)
def alexnet(g):
    g.description = ("AlexNet (Krizhevsky, Sutskever, Hinton 2012, ImageNet Classification with Deep Convolutional Neural Networks): "
                     "its two towers as two groups in conv2, conv4 and conv5; 60,965,224 parameters. The paper's response "
                     "normalization does not divide by its 5 channels: its alpha of 1e-4 is 5e-4 here.")
    x = g.input("image", (3, 227, 227))
    label = g.input("label", dtype="i32")
    normalize = {"size": 5, "alpha": 5e-4, "beta": 0.75, "bias": 2}
    x = g.conv2d("conv1", x, 96, 11, stride=4)
    x = g.add("local_response_normalization", "norm1", x, **normalize)
    x = g.max_pool("pool1", x, 3, stride=2)
    x = g.conv2d("conv2", x, 256, 5, padding=2, groups=2)
    x = g.add("local_response_normalization", "norm2", x, **normalize)
    x = g.max_pool("pool2", x, 3, stride=2)
    x = g.conv2d("conv3", x, 384, 3, padding=1)
    x = g.conv2d("conv4", x, 384, 3, padding=1, groups=2)
    x = g.conv2d("conv5", x, 256, 3, padding=1, groups=2)
    x = g.max_pool("pool5", x, 3, stride=2)
    x = g.add("flatten", "flatten", x)
    for layer in ("6", "7"):
        x = g.linear("fc" + layer, x, 4096)
        x = g.add("dropout", "dropout" + layer, x, rate=0.5)
    g.classifier("fc8", x, 1000, label)


@network(batch=64)
def vgg16(g):
    g.description = ("VGG-16 (Simonyan, Zisserman 2014, arXiv 1409.1556, table 1, configuration D) for ImageNet; "
                     "138,357,544 parameters.")
    x = g.input("image", (3, 224, 224))
    label = g.input("label", dtype="i32")
    for block, (channels, layers) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], start=1):
        for layer in range(1, layers + 1):
            x = g.conv2d(f"conv{block}_{layer}", x, channels, 3, padding=1)
        x = g.max_pool(f"pool{block}", x, 2)
    x = g.add("flatten", "flatten", x)
    for layer in ("6", "7"):
        x = g.linear("fc" + layer, x, 4096)
        x = g.add("dropout", "dropout" + layer, x, rate=0.5)
    g.classifier("fc8", x, 1000, label)


def build(name, batch=None, width=1.0):
    """The graph of a network as a dict."""
    function, default_batch = NETWORKS[name]
    builder = GraphBuilder(name, batch or default_batch, width)
    function(builder)
    if width != 1:
        builder.description = f"{width:g} times as wide as: " + builder.description
    return builder.graph()


def main():
    parser = argparse.ArgumentParser(description="Writes operator graphs (ffgraph/1) of well-known networks.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="any of: " + ", ".join(NETWORKS) + "; default: all")
    parser.add_argument("--batch", type=int, help="batch size; default: the network's own")
    parser.add_argument("--width", type=float, default=1.0, help="multiplies channels and hidden features, not classes; default: 1")
    parser.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "graphs", metavar="DIR", help="default: graphs/")
    arguments = parser.parse_args()
    for name in arguments.networks:
        if name not in NETWORKS:
            parser.error(f'no network is named "{name}"; known: ' + ", ".join(NETWORKS))
    if arguments.batch is not None and arguments.batch < 1:
        parser.error("--batch: expected at least 1")
    if not arguments.width > 0:
        parser.error("--width: expected a number above 0")
    for name in arguments.networks or NETWORKS:
        graph = build(name, arguments.batch, arguments.width)
        path = arguments.out / (graph["name"] + ".json")
        write_json(path, graph)
        print(path)


if __name__ == "__main__":
    main()
