#!/usr/bin/env python3
"""Writes a GPT of many parameters as an ONNX file with external data, imports it, and prints time and peak memory of
`ffsearch import`; docs/results/onnx.md has the table. The nodes are those of PyTorch's exporter: Transpose before each
product with a weight, masks and scaled scores. The data are removed afterwards.

  onnx_large.py [--build DIRECTORY] [--folder DIRECTORY] [--layers 24] [--channels 2048]"""
import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy
from onnx import TensorProto, helper, numpy_helper

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
VOCABULARY, LENGTH = 50304, 128


class Writer:
    """Nodes, and weights that go to the external file as they come."""

    def __init__(self, folder):
        self.nodes, self.initializers, self.parameters = [], [], 0
        self.data = open(folder / "weights.bin", "wb")
        self.random = numpy.random.default_rng(1)

    def weight(self, name, *shape):
        values = self.random.standard_normal(shape, numpy.float32) * numpy.float32(0.02)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        for key, value in (("location", "weights.bin"), ("offset", self.data.tell()), ("length", values.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.data.write(values)
        self.initializers.append(tensor)
        self.parameters += values.size
        return name

    def constant(self, value):
        name = f"constant{len(self.nodes)}"
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(numpy.asarray(value))))
        return name

    def add(self, op, *inputs, **attributes):
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x, name, inside, outside):
        weight = self.add("Transpose", self.weight(f"{name}.weight", outside, inside), perm=[1, 0])
        return self.add("Add", self.add("MatMul", x, weight), self.weight(f"{name}.bias", outside))

    def norm(self, x, name, c):
        return self.add("LayerNormalization", x, self.weight(f"{name}.weight", c), self.weight(f"{name}.bias", c))

    def layer(self, x, name, c, heads):
        y = self.norm(x, f"{name}.norm1", c)
        parts = []
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            shape = self.constant([0, LENGTH, heads, c // heads])
            parts.append(self.add("Transpose", self.add("Reshape", self.linear(y, f"{name}.{part}", c, c), shape),
                                  perm=order))
        scores = self.add("Mul", self.add("MatMul", parts[0], parts[1]),
                          self.constant(numpy.float32((c // heads) ** -0.5)))
        mask = self.constant(numpy.triu(numpy.full((LENGTH, LENGTH), -1e9, numpy.float32), 1))
        scores = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        y = self.add("Transpose", self.add("MatMul", scores, parts[2]), perm=[0, 2, 1, 3])
        y = self.add("Reshape", y, self.constant([0, LENGTH, c]))
        x = self.add("Add", x, self.linear(y, f"{name}.out", c, c))
        y = self.linear(self.norm(x, f"{name}.norm2", c), f"{name}.up", c, 4 * c)
        return self.add("Add", x, self.linear(self.add("Gelu", y), f"{name}.down", 4 * c, c))


def write(folder, layers, c):
    w = Writer(folder)
    x = w.add("Gather", w.weight("embed.weight", VOCABULARY, c), "tokens")
    for i in range(layers):
        x = w.layer(x, f"layer{i}", c, c // 64)
    scores = w.linear(w.norm(x, "norm", c), "head", c, VOCABULARY)
    w.data.close()
    graph = helper.make_graph(w.nodes, "gpt", [helper.make_tensor_value_info("tokens", TensorProto.INT64,
                                                                             ["batch", LENGTH])],
                              [helper.make_tensor_value_info(scores, TensorProto.FLOAT, None)], w.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return w.parameters


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build" / "dev")
    parser.add_argument("--folder", default=None, help="where the files are written, and removed again")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--channels", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        parameters = write(folder, options.layers, options.channels)
        begin = time.monotonic()
        result = subprocess.run([options.build / "ffsearch", "import", folder / "model.onnx", "--batch", "8", "--loss",
                                 "cross-entropy", "--out", folder / "g.json", "--weights",
                                 folder / "weights.safetensors"], capture_output=True, text=True)
        elapsed = time.monotonic() - begin
        print(result.stdout + result.stderr, end="")
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = sum(os.path.getsize(folder / each) for each in ("weights.bin", "model.onnx"))
        print(f"{parameters:,} parameters, {size / 2**30:.2f} GiB of files, {elapsed:.1f} s, CPU "
              f"{usage.ru_utime + usage.ru_stime:.1f} s, peak {usage.ru_maxrss / 2**20:.2f} GiB")
        return result.returncode


if __name__ == "__main__":
    sys.exit(main())
