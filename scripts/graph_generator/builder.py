"""What all networks share: readable JSON, the builder that collects operators, and the list of networks."""

import json
import os

NETWORKS = {}  # name -> (function, default batch size), in the order in which they are defined

# Sizes that a network may have, in the order of their suffixes: (what a network without it lacks, suffix, in words).
SIZES = {
    "steps": ("steps", "s{}", "{} steps"),
    "layers": ("repeated layers", "l{}", "{} layers"),
    "vocabulary": ("vocabulary", "v{}", "vocabulary {}"),
    "image": ("images", "i{}", "{0}x{0} images"),
    "statistics": ("batch normalization", "{}", "{} statistics"),
}


def readable_json(value, indent=0):
    """JSON text in which small things stand on one line: one operator, device or link a line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value:
        return line
    children = value.values() if isinstance(value, dict) else value
    nested = any(isinstance(child, (dict, list)) and child for child in children)
    # The file's top level and lists of objects are spread out; what is small is not, nor an operator, however many
    # inputs it has.
    spread = indent == 0 or (isinstance(value, list) and any(isinstance(child, dict) for child in value))
    operator = isinstance(value, dict) and "type" in value and "inputs" in value
    if not spread and (operator or len(line) < (200 if nested else 160)):
        return line
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{pad}{json.dumps(key)}: {readable_json(child, indent + 1)}" for key, child in value.items()]
    else:
        items = [pad + readable_json(child, indent + 1) for child in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(items) + "\n" + " " * indent + closing


def write_json(path, value):
    """Writes a temporary file and renames it, so that the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    temporary.write_text(readable_json(value) + "\n", encoding="utf-8")
    os.replace(temporary, path)


class GraphBuilder:
    """Collects operators; each method returns the name of the tensor it adds, for use as the next one's input."""

    def __init__(self, name, batch, width=1.0, sizes=None):
        self.name = name
        self.batch = batch
        self.width = width
        self.sizes = sizes or {}  # what was asked for, of SIZES
        self.defaults = {}  # what this network has, of SIZES
        self.description = ""
        self.inputs = []
        self.operators = []

    def scaled(self, channels, multiple=1):
        """The number of channels at this builder's width: a multiple of `multiple`, at least one of it."""
        return max(multiple, round(channels * self.width / multiple) * multiple)

    def size(self, kind, default, least=1):
        """A size of SIZES: what was asked for, or the network's own."""
        self.defaults[kind] = default
        value = self.sizes.get(kind, default)
        if kind != "statistics" and value < least:
            raise ValueError(f"--{kind}: {self.name} needs at least {least}, got {value}")
        return value

    def input(self, name, shape=(), dtype="f32", steps=None):
        """With steps, one tensor a step: NAME:0, NAME:1, ..."""
        self.inputs.append({"name": name, "shape": ["batch", *shape], "dtype": dtype,
                            **({"steps": steps} if steps else {})})
        return name

    def add(self, kind, name, inputs, parameters=None, **attributes):
        """An operator of any type. Attributes that are None are left out: they keep their default."""
        operator = {"name": name, "type": kind, "inputs": [inputs] if isinstance(inputs, str) else list(inputs)}
        attributes = {key: value for key, value in attributes.items() if value is not None}
        if attributes:
            operator["attributes"] = attributes
        if parameters is not None:
            operator["parameters"] = parameters
        self.operators.append(operator)
        return name

    def conv2d(self, name, x, channels, kernel, stride=1, padding=0, groups=1, activation="relu", bias=None):
        """kernel and padding: one number, or (height, width)."""
        kernel = list(kernel) if isinstance(kernel, tuple) else [kernel, kernel]
        padding = list(padding) if isinstance(padding, tuple) else [padding, padding]
        return self.add("conv2d", name, x, out_channels=self.scaled(channels, 2 * groups), kernel=kernel,
                        stride=[stride, stride] if stride != 1 else None, padding=padding if any(padding) else None,
                        groups=groups if groups != 1 else None, bias=bias, activation=activation)

    def batch_norm(self, name, x, activation="relu", epsilon=None):
        statistics = self.size("statistics", "global")
        return self.add("batch_norm", name, x, epsilon=epsilon, statistics=statistics if statistics != "global"
                        else None,
                        activation=activation)

    def conv_norm(self, name, x, channels, kernel, stride=1, padding=0, activation="relu", epsilon=None):
        """A convolution without bias, its batch normalization NAME.norm, and relu."""
        x = self.conv2d(name, x, channels, kernel, stride, padding, activation=None, bias=False)
        return self.batch_norm(name + ".norm", x, activation, epsilon)

    def pool(self, method, name, x, kernel, stride=None, padding=0, count_padding=None):
        return self.add("pool2d", name, x, method=method, kernel=[kernel, kernel],
                        stride=[stride, stride] if stride not in (None, kernel) else None,
                        padding=[padding, padding] if padding else None, count_padding=count_padding)

    def max_pool(self, name, x, kernel, stride=None, padding=0):
        return self.pool("max", name, x, kernel, stride, padding)

    def average_pool(self, name, x, kernel, stride=None, padding=0, count_padding=None):
        return self.pool("average", name, x, kernel, stride, padding, count_padding)

    def linear(self, name, x, features, activation="relu", hidden=True, parameters=None, bias=None):
        """hidden=False keeps the number of features at any width: class scores."""
        return self.add("linear", name, x, parameters, out_features=self.scaled(features) if hidden else features,
                        bias=bias, activation=activation)

    def classifier(self, name, x, classes, label):
        """Class scores, and the loss that trains them."""
        scores = self.linear(name, x, classes, activation=None, hidden=False)
        return self.add("softmax_cross_entropy", "loss", [scores, label])

    def graph(self):
        suffixes, changes = ([f"w{self.width:g}"], [f"{self.width:g} times as wide"]) if self.width != 1 else ([], [])
        for kind, (_, suffix, words) in SIZES.items():
            value = self.sizes.get(kind, self.defaults.get(kind))
            if value != self.defaults.get(kind):
                suffixes.append(suffix.format(value))
                changes.append(words.format(value))
        description = f"Variant ({', '.join(changes)}) of: {self.description}" if changes else self.description
        return {"$schema": "../docs/schema/ffgraph.json", "format": "ffgraph/1",
                "name": "-".join([self.name, *suffixes]),
                "description": description, "batch_size": self.batch, "inputs": self.inputs,
                "operators": self.operators}


def network(batch, name=None):
    """Registers a function that adds a network to a builder, by its own name or another one."""
    def register(function):
        NETWORKS[name or function.__name__] = (function, batch)
        return function
    return register


def build(name, batch=None, width=1.0, **sizes):
    """The graph of a network as a dict. Raises ValueError for a size of SIZES that it does not have, or that is too
    small."""
    function, default_batch = NETWORKS[name]
    builder = GraphBuilder(name, batch or default_batch, width,
                           {kind: size for kind, size in sizes.items() if size is not None})
    function(builder)
    for kind in builder.sizes:
        if kind not in builder.defaults:
            raise ValueError(f"--{kind}: {name} has no {SIZES[kind][0]}")
    return builder.graph()
