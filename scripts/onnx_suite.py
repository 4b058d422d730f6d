#!/usr/bin/env python3
"""Counts ONNX's own test suite (Debian: libonnx-testdata): how many of its models are imported, how many of these
compute the outputs that the suite stores, and why the others are refused. docs/results/onnx.md has the counts.

  onnx_suite.py [--build DIRECTORY] [--data DIRECTORY] [--list] [NAME ...]

A model counts as imported if `ffsearch import` takes the file as it is, with --loss cross-entropy or without a loss;
where initializers are the only question, all are frozen. For the comparison, the outputs become one number: the mean of
each output times random numbers, which are one more input; ffexec computes it, forward, on one CPU rank. A wrong
element of an output changes this number. Exits 1 if a model computes other outputs than the suite's and nothing says
so. --list prints the outcome of each model."""
import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from mpi_environment import mpi_environment

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
ENVIRONMENT = mpi_environment()
GROUPS = ("simple", "node", "pytorch-converted", "pytorch-operator")

# The first that a message fits.
REASONS = (
    ("operators that are not supported", r"has operators that are not understood"),
    ("the inputs are not samples of one batch: first axes that differ, or no axes",
     r"samples, expected as many|has no axes, expected a batch|no size for axis"),
    ("sequences, strings, optional values, other types of numbers, more than six axes",
     r"no tensor type|elements of type|is a sequence|has \d+ axes$|sparse"),
    ("weights, indices, sizes or exponents are inputs",
     r"not a constant|no constant|not constant|not one constant|cannot be found|not known before"),
    ("nothing depends on the samples: constants, shapes, random numbers",
     r"does not depend on the samples|nothing that is computed|expected something that depends|has no axis"),
    ("arithmetic of integers", r"integers|has type i32|of another type"),
    ("reductions, normalizations and products across samples, or cuts along them", r"samples"),
)


@dataclasses.dataclass
class Outcome:
    name: str
    imported: str = ""  # how: "cross-entropy", "without a loss"; "": refused
    message: str = ""
    compared: str = ""  # "equal", "different", "noted" (different, and a note says why) or why it was not compared
    error: float = 0


def read_tensor(path, value):
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    if tensor.data_type == TensorProto.BFLOAT16:
        bits = numpy.frombuffer(tensor.raw_data, numpy.uint16) if tensor.raw_data else numpy.array(tensor.int32_data)
        return (bits.astype(numpy.uint32) << 16).view(numpy.float32).reshape(list(tensor.dims))
    return numpy_helper.to_array(tensor)


def is_comparable(value):
    """Does it have numbers, which 32 bits can hold?"""
    return value.size > 0 and bool((numpy.abs(value.astype(numpy.float64)) < 1e30).all())


def run(program, *arguments):
    return subprocess.run([str(program), *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=300)


class RefusedRun(Exception):
    """What ffexec says of inputs that it does not take: indices below zero."""


class Suite:
    def __init__(self, build, folder):
        self.build, self.folder = pathlib.Path(build), pathlib.Path(folder)

    def import_model(self, path, batch, *arguments):
        """The result, and if initializers are the only question, of a second try that freezes them."""
        command = [self.build / "ffsearch", "import", path, "--batch", batch, "--out", self.folder / "graph.json",
                   "--weights", self.folder / "weights.safetensors", *arguments]
        result = run(*command)
        if "does not say whether" in result.stderr or "no initializer is named" in result.stderr:
            result = run(*command, "--frozen", "*")
        return result

    def check(self, name, path):
        outcome = Outcome(name)
        model = onnx.load(str(path / "model.onnx"))
        initializers = {tensor.name for tensor in model.graph.initializer}
        values = [value for value in model.graph.input if value.name not in initializers]
        data = path / "test_data_set_0"
        inputs = {value.name: read_tensor(data / f"input_{i}.pb", value) for i, value in enumerate(values)}
        first = next(iter(inputs.values()), None)
        batch = first.shape[0] if first is not None and first.ndim > 0 and first.shape[0] > 0 else 1
        for how, arguments in (("cross-entropy", ("--loss", "cross-entropy")), ("without a loss", ())):
            result = self.import_model(path / "model.onnx", batch, *arguments)
            if result.returncode not in (0, 1):
                raise RuntimeError(f"{name}: exit code {result.returncode}: {result.stderr}")
            if result.returncode == 0:
                outcome.imported = how
                break
            outcome.message = " ".join(result.stderr.split("model.onnx: ")[-1].split())
        else:
            return outcome
        outcome.message = ""
        notes = result.stdout + result.stderr
        outputs = [read_tensor(data / f"output_{i}.pb", value) for i, value in enumerate(model.graph.output)]
        outcome.compared, outcome.error = self.compare(model, inputs, outputs, batch)
        if outcome.compared == "different" and "note:" in notes:
            outcome.compared = "noted"
        return outcome

    def compare(self, model, inputs, outputs, batch):
        """"equal" or "different", and by how much of the outputs' norm; or why this is not known."""
        graph, random = model.graph, numpy.random.default_rng(1)
        terms, expected, norm, largest = [], 0.0, 0.0, 0.0
        inputs = dict(inputs)
        for i, (value, output) in enumerate(zip(list(graph.output), outputs)):
            if output is None or not value.name:
                return "outputs that are no tensors", 0
            if not all(is_comparable(each) for each in (output, *inputs.values())):
                return "numbers that 32 bits cannot hold, or none", 0
            name = value.name
            if output.dtype.kind != "f":
                graph.node.append(helper.make_node("Cast", [name], [f"suite.number{i}"], to=TensorProto.FLOAT))
                name = f"suite.number{i}"
            if output.ndim > 0:
                weights = random.standard_normal(output.shape).astype(numpy.float32)
                inputs[f"suite.weights{i}"] = weights
                graph.input.append(helper.make_tensor_value_info(f"suite.weights{i}", TensorProto.FLOAT, output.shape))
                graph.node.append(helper.make_node("Mul", [name, f"suite.weights{i}"], [f"suite.product{i}"]))
                graph.node.append(helper.make_node("ReduceMean", [f"suite.product{i}"], [f"suite.mean{i}"], keepdims=0))
                name = f"suite.mean{i}"
            else:
                weights = numpy.float32(1)
            product = output.astype(numpy.float64) * weights
            expected += float(product.mean())
            norm += float(numpy.sqrt((product ** 2).sum())) / product.size
            largest = max(largest, numpy.finfo(output.dtype).eps if output.dtype.kind == "f" else 0)
            terms.append(name)
        for i, term in enumerate(terms[1:], 1):
            graph.node.append(helper.make_node("Add", [terms[0], term], [f"suite.sum{i}"]))
            terms[0] = f"suite.sum{i}"
        del graph.output[:]
        graph.output.append(helper.make_tensor_value_info(terms[0], TensorProto.FLOAT, []))
        changed = self.folder / "model.onnx"
        changed.write_bytes(model.SerializeToString())
        result = self.import_model(changed, batch)
        if result.returncode != 0:
            return "the mean is refused: " + " ".join(result.stderr.split("model.onnx: ")[-1].split()), 0
        try:
            error = abs(self.loss(inputs) - expected) / max(norm, 1e-12)
        except RefusedRun as refusal:
            return f"ffexec refuses the inputs: {refusal}", 0
        return "equal" if error < max(5e-5, 4 * largest) else "different", error

    def loss(self, inputs):
        for name, value in inputs.items():
            numpy.save(self.folder / f"{name}.npy",
                       value.astype(numpy.float32 if value.dtype.kind == "f" else numpy.int32))
        plan = run(self.build / "ffsearch", "--graph", self.folder / "graph.json", "--topo",
                   REPOSITORY / "topologies" / "local-cpu-1.json", "--cost", "analytic", "--algorithm",
                   "data-parallel", "--quiet", "--out", self.folder / "strategy.json")
        if plan.returncode != 0:
            raise RuntimeError(plan.stderr)
        result = run(self.build / "ffexec", "--strategy", self.folder / "strategy.json", "--data", self.folder,
                     "--load", self.folder / "weights.safetensors", "--iterations", 1, "--json")
        if result.returncode == 1:
            raise RefusedRun(" ".join(result.stderr.split()))
        if result.returncode != 0:
            raise RuntimeError(result.stderr)
        loss = json.loads(result.stdout)["losses"][0]
        return float("nan") if loss is None else loss


def check(build, name, path):
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Suite(build, folder).check(name, path)
        except RuntimeError as error:
            return Outcome(name, "failed", str(error), "failed")


def reason(outcome):
    return next((text for text, pattern in REASONS if re.search(pattern, outcome.message)),
                "other forms of operators that are supported")


def print_counts(outcomes):
    imported = [each for each in outcomes if each.imported]
    ways = collections.Counter(each.imported for each in imported)
    print(f"{len(outcomes):,} models, {len(imported)} imported: " +
          ", ".join(f"{count} {way}" for way, count in ways.most_common()))
    compared = collections.Counter(each.compared.split(":")[0] for each in imported)
    for outcome, count in compared.most_common():
        print(f"  {count:4} {outcome}")
    print(f"{len(outcomes) - len(imported)} refused:")
    for text, count in collections.Counter(reason(each) for each in outcomes if not each.imported).most_common():
        print(f"  {count:4} {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=REPOSITORY / "build" / "dev")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/libonnx-testdata/data"))
    parser.add_argument("--list", action="store_true", help="the outcome of each model")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help="regular expressions, such as node/test_relu")
    options = parser.parse_args()
    models = {f"{group}/{path.name}": path for group in GROUPS if (options.data / group).is_dir()
              for path in sorted((options.data / group).iterdir()) if (path / "model.onnx").is_file()}
    if options.names:
        models = {name: path for name, path in models.items() if any(re.search(each, name) for each in options.names)}
    if not models:
        parser.error(f"no models in {options.data}")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(lambda item: check(options.build, *item), models.items()))
    if options.list:
        for each in outcomes:
            print(f"{each.name}: " + (f"imported, {each.imported}; {each.compared}, off by {each.error:.0e}"
                                      if each.imported else f"refused, {reason(each)}: {each.message}"))
    print_counts(outcomes)
    wrong = [each for each in outcomes if each.compared in ("different", "failed")]
    for each in wrong:
        print(f"{each.compared}: {each.name} ({each.error:.1e}) {each.message}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
