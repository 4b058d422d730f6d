#!/usr/bin/env python3
"""Imports ONNX models that others made: the test suite that comes with ONNX (Debian: libonnx-testdata), whose models
have inputs and expected outputs. What is imported is run by ffexec, and its loss compared with that of the expected
output. And wrong files. Usage: onnx_import_test.py BUILD_DIRECTORY. Exits 77 (skipped) without python3-onnx or in a
build without ONNX import."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    print("skipped: python3-onnx is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from mpi_environment import mpi_environment  # noqa: E402

BUILD = None
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVIRONMENT = mpi_environment()
TEST_DATA = pathlib.Path("/usr/share/libonnx-testdata/data")

# Of ONNX's own test suite: each must be imported, and compute what the suite says.
MODELS = """
node/test_add node/test_averagepool_1d_default node/test_averagepool_2d_ceil
node/test_averagepool_2d_pads_count_include_pad node/test_averagepool_2d_strides node/test_concat_2d_axis_1
node/test_concat_3d_axis_1 node/test_einsum_batch_matmul node/test_flatten_axis1 node/test_flatten_axis2
node/test_globalaveragepool node/test_hardsigmoid node/test_hardswish node/test_hardswish_expanded
node/test_leakyrelu node/test_logsoftmax_axis_2 node/test_lrn node/test_matmul_3d node/test_matmul_4d
node/test_maxpool_1d_default node/test_maxpool_2d_ceil node/test_maxpool_2d_strides node/test_mul node/test_neg
node/test_reduce_mean_do_not_keepdims_random node/test_reduce_mean_keepdims_random node/test_relu node/test_sigmoid
node/test_softmax_axis_2 node/test_sub node/test_tanh node/test_transpose_all_permutations_0
node/test_transpose_all_permutations_1 node/test_unsqueeze_axis_3 pytorch-converted/test_AvgPool1d_stride
pytorch-converted/test_AvgPool2d_stride pytorch-converted/test_Conv1d pytorch-converted/test_Conv1d_dilated
pytorch-converted/test_Conv1d_groups pytorch-converted/test_Conv1d_pad2size1 pytorch-converted/test_Conv1d_stride
pytorch-converted/test_Conv2d pytorch-converted/test_Conv2d_depthwise_padded
pytorch-converted/test_Conv2d_depthwise_strided pytorch-converted/test_Conv2d_depthwise_with_multiplier
pytorch-converted/test_Conv2d_dilated pytorch-converted/test_Conv2d_groups pytorch-converted/test_Conv2d_padding
pytorch-converted/test_Conv2d_strided pytorch-converted/test_Embedding pytorch-converted/test_GLU_dim
pytorch-converted/test_LeakyReLU_with_negval pytorch-converted/test_Linear pytorch-converted/test_Linear_no_bias
pytorch-converted/test_LogSoftmax pytorch-converted/test_MaxPool1d_stride pytorch-converted/test_MaxPool2d
pytorch-converted/test_PixelShuffle pytorch-converted/test_Softmin pytorch-converted/test_ZeroPad2d
pytorch-converted/test_softmax_functional_dim3 
pytorch-operator/test_operator_clip
pytorch-operator/test_operator_flatten pytorch-operator/test_operator_reduced_mean
pytorch-operator/test_operator_reduced_mean_keepdim simple/test_single_relu_model
""".split()


class OnnxTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)

    def path(self, name):
        return os.path.join(self.temporary.name, name)

    def run_program(self, program, *arguments):
        return subprocess.run([os.path.join(BUILD, program), *map(str, arguments)], env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=100)

    def import_model(self, path, batch, *arguments):
        return self.run_program("ffsearch", "import", path, "--batch", batch, "--out", self.path("graph.json"),
                                "--weights", self.path("weights.safetensors"), *arguments)

    def loss(self, inputs, label):
        """What ffexec says of the imported graph."""
        os.makedirs(self.path("data"), exist_ok=True)
        for name, value in {**inputs, "label": label}.items():
            numpy.save(self.path(f"data/{name}.npy"), value)
        search = self.run_program("ffsearch", "--graph", self.path("graph.json"), "--topo",
                                  os.path.join(REPOSITORY, "topologies", "local-cpu-1.json"), "--cost", "analytic",
                                  "--algorithm", "data-parallel", "--quiet", "--out", self.path("strategy.json"))
        self.assertEqual(search.returncode, 0, search.stderr)
        result = self.run_program("ffexec", "--strategy", self.path("strategy.json"), "--data", self.path("data"),
                                  "--load", self.path("weights.safetensors"), "--iterations", 1, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["losses"][0]


def read_tensor(path):
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def cross_entropy(output, label):
    """Classes are the second axis of images, the last one else; all positions of a sample have its label."""
    scores = numpy.moveaxis(output.astype(numpy.float64), 1 if output.ndim == 4 else -1, -1)
    classes = scores.shape[-1]
    scores = scores.reshape(len(label), -1, classes)
    logarithm = numpy.log(numpy.exp(scores - scores.max(2, keepdims=True)).sum(2)) + scores.max(2)
    return float(numpy.mean([logarithm[i] - scores[i, :, label[i]] for i in range(len(label))]))


class TestSuiteTest(OnnxTest):
    """ONNX's own test suite."""

    def setUp(self):
        super().setUp()
        if not TEST_DATA.is_dir():
            self.skipTest("libonnx-testdata is not installed")

    def check(self, folder):
        model = onnx.load(str(folder / "model.onnx")).graph
        data = folder / "test_data_set_0"
        initializers = {tensor.name for tensor in model.initializer}
        names = [value.name for value in model.input if value.name not in initializers]
        inputs = {name: read_tensor(data / f"input_{i}.pb") for i, name in enumerate(names)}
        output = read_tensor(data / "output_0.pb")
        batch = next(iter(inputs.values())).shape[0]
        result = self.import_model(folder / "model.onnx", batch, "--loss", "cross-entropy")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("graph.json")) as file:
            shapes = {value["name"]: value["shape"] for value in json.load(file)["inputs"]}
        classes = output.shape[1 if output.ndim == 4 else -1]
        label = numpy.arange(batch) % classes
        labels = numpy.broadcast_to(label.reshape(-1, *[1] * (len(shapes["label"]) - 1)),
                                    (batch, *shapes["label"][1:])).astype(numpy.int32)
        values = {name: value.astype(numpy.float32 if value.dtype.kind == "f" else numpy.int32)
                  for name, value in inputs.items()}
        expected = cross_entropy(output, label)
        self.assertAlmostEqual(self.loss(values, labels), expected, delta=2e-5 * max(1, abs(expected)))

    def test_models(self):
        for name in MODELS:
            with self.subTest(name):
                self.check(TEST_DATA / name)


class WrongFilesTest(OnnxTest):
    """One clear message, exit code 1."""

    def save(self, nodes, inputs, outputs, initializers=(), opset=13):
        values = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs]
        graph = helper.make_graph(list(nodes), "g", values,
                                  [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
                                  list(initializers))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        with open(self.path("model.onnx"), "wb") as file:
            file.write(model.SerializeToString())

    def assert_refused(self, message, batch=2, arguments=()):
        result = self.import_model(self.path("model.onnx"), batch, *arguments)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.strip(), f"ffsearch: {self.path('model.onnx')}: {message}")
        self.assertFalse(os.path.exists(self.path("graph.json")))

    IMAGE = [("x", TensorProto.FLOAT, ["batch", 4])]

    def node(self, op, inputs, outputs, **attributes):
        return helper.make_node(op, inputs, outputs, name=f"the {op}", **attributes)

    def test_no_file(self):
        self.assertRegex(self.import_model(self.path("none.onnx"), 2).stderr, "none.onnx: cannot open")

    def test_truncated(self):
        weight = numpy_helper.from_array(numpy.ones((3, 4), numpy.float32), "w")
        self.save([self.node("Gemm", ["x", "w"], ["y"], transB=1)], self.IMAGE, ["y"], [weight])
        content = pathlib.Path(self.path("model.onnx")).read_bytes()
        for size in (len(content) - 3, len(content) // 2, 5):
            pathlib.Path(self.path("model.onnx")).write_bytes(content[:size])
            result = self.import_model(self.path("model.onnx"), 2)
            self.assertEqual(result.returncode, 1, (size, result.stdout, result.stderr))
        self.assertIn("is not an ONNX", result.stderr)

    def test_unknown_operators(self):
        self.save([self.node("Erf", ["x"], ["a"]), helper.make_node("NonZero", ["a"], ["b"], name="first"),
                   helper.make_node("NonZero", ["b"], ["c"]), helper.make_node("My", ["c"], ["y"], domain="home")],
                  self.IMAGE, ["y"])
        self.assert_refused('has operators that are not understood:\n  Erf: 1, the first is Erf "the Erf"\n'
                            '  NonZero: 2, the first is NonZero "first"\n  home.My: 1, the first is home.My "y"')

    def test_cycle(self):
        self.save([self.node("Add", ["x", "b"], ["a"]), self.node("Relu", ["a"], ["b"])], self.IMAGE, ["b"])
        self.assert_refused('Add "the Add": is part of a cycle')

    def test_unknown_value(self):
        self.save([self.node("Add", ["x", "z"], ["y"])], self.IMAGE, ["y"])
        self.assert_refused('Add "the Add" reads the value "z", which nothing writes')

    def test_wrong_type_of_attribute(self):
        self.save([self.node("Softmax", ["x"], ["y"], axis=1.5)], self.IMAGE, ["y"])
        self.assert_refused('Softmax "the Softmax": attribute axis is not an integer')

    def test_external_data(self):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
        for location, message in (("gone.bin", f'has external data in {self.path("gone.bin")}, which cannot be opened'),
                                  ("../w.bin", 'has external data at "../w.bin", expected a file below the model\'s '
                                               'folder')):
            del weight.external_data[:]
            weight.external_data.add(key="location", value=location)
            self.save([self.node("Gemm", ["x", "w"], ["y"], transB=1)], self.IMAGE, ["y"], [weight])
            self.assert_refused('initializer "w" ' + message)

    def test_external_data_is_read(self):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, 4], data_location=TensorProto.EXTERNAL)
        values = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        pathlib.Path(self.path("w.bin")).write_bytes(b"1234" + values.tobytes())
        weight.external_data.add(key="location", value="w.bin")
        weight.external_data.add(key="offset", value="4")
        self.save([self.node("Gemm", ["x", "w"], ["y"], transB=1)], self.IMAGE, ["y"], [weight])
        self.assertEqual(self.import_model(self.path("model.onnx"), 2, "--loss", "cross-entropy").returncode, 0)
        x = numpy.linspace(-1, 1, 8, dtype=numpy.float32).reshape(2, 4)
        label = numpy.array([1, 0], numpy.int32)
        self.assertAlmostEqual(self.loss({"x": x}, label), cross_entropy(x @ values.T, label), delta=1e-5)

    def test_functions(self):
        """Operators that the file defines itself, one by another; attributes of the call and names within it."""
        weight = numpy_helper.from_array(numpy.ones((4, 3), numpy.float32), "fc.weight")
        leaky = helper.make_node("LeakyRelu", ["a"], ["b"], name="leaky")
        leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
        opset = [helper.make_opsetid("", 13)]
        inner = helper.make_function("local", "Activation", ["a"], ["c"], [leaky, self.node("Neg", ["b"], ["c"])],
                                     opset, ["slope"])
        call = helper.make_node("Activation", ["h"], ["y"], name="act", domain="local", slope=0.25)
        outer = helper.make_function("local", "Layer", ["x", "w"], ["y"],
                                     [self.node("MatMul", ["x", "w"], ["h"]), call],
                                     [*opset, helper.make_opsetid("local", 1)])
        nodes = [helper.make_node("Layer", ["x", "fc.weight"], ["y"], name="first", domain="local"),
                 helper.make_node("Activation", ["y"], ["z"], name="second", domain="local", slope=0.5)]
        self.save(nodes, [("x", TensorProto.FLOAT, ["batch", 4])], ["z"], [weight])
        model = onnx.load(self.path("model.onnx"))
        model.functions.extend([outer, inner])
        model.opset_import.append(helper.make_opsetid("local", 1))
        onnx.save(model, self.path("model.onnx"))
        result = self.import_model(self.path("model.onnx"), 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("graph.json")) as file:
            operators = json.load(file)["operators"]
        self.assertEqual([(each["type"], each.get("attributes", {}).get("slope")) for each in operators],
                         [("linear", None), ("leaky_relu", 0.25), ("affine", None), ("leaky_relu", 0.5),
                          ("affine", None)])
        self.assertEqual(operators[0]["name"], "fc")
        for change, message in (
                (lambda: inner.opset_import[0].__setattr__("version", 9),
                 'the function "Activation" is of operator set 9, the model of 13'),
                (lambda: (inner.opset_import[0].__setattr__("version", 13), inner.node.append(call)),
                 'the function "Activation" calls itself, or is nested too deeply')):
            change()
            del model.functions[:]
            model.functions.extend([outer, inner])
            onnx.save(model, self.path("model.onnx"))
            result = self.import_model(self.path("model.onnx"), 2)
            self.assertEqual(result.returncode, 1)
            self.assertIn(message, result.stderr)
        overload = onnx.FunctionProto()
        overload.CopyFrom(inner)
        overload.node[0].op_type = "Elu"
        model.functions.append(overload)
        onnx.save(model, self.path("model.onnx"))
        result = self.import_model(self.path("model.onnx"), 2)
        self.assertEqual(result.returncode, 1)
        self.assertIn('defines the function "Activation" of the domain "local" more than once; overloads are not '
                      'supported', result.stderr)

    X = numpy.linspace(-1, 1, 8, dtype=numpy.float32).reshape(2, 4)

    def number(self, name, value, kind=numpy.int64):
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(numpy.array(value, kind)))

    def value(self, name, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, None)

    def assert_computes(self, expected):
        result = self.import_model(self.path("model.onnx"), 2, "--loss", "cross-entropy")
        self.assertEqual(result.returncode, 0, result.stderr)
        label = numpy.array([1, 0], numpy.int32)
        self.assertAlmostEqual(self.loss({"x": self.X}, label), cross_entropy(expected, label), delta=1e-5)

    def loop(self, condition=()):
        """h doubles in each iteration; all of them are stacked."""
        return helper.make_graph(
            [helper.make_node("Mul", ["h", "two"], ["d"]),
             *(condition or [helper.make_node("Identity", ["go"], ["on"])])],
            "body", [self.value("i", TensorProto.INT64), self.value("go", TensorProto.BOOL), self.value("h")],
            [self.value("on", TensorProto.BOOL), self.value("d"), self.value("d")])

    def test_loops(self):
        """What a loop that runs three times computes, and what it computes in each iteration."""
        before = [self.number("count", 3), self.number("two", 2, numpy.float32), self.number("first", [0])]
        after = [self.node("ReduceSum", ["all", "first"], ["sum"], keepdims=0),
                 self.node("Add", ["last", "sum"], ["y"])]
        self.save([*before, self.node("Loop", ["count", "", "x"], ["last", "all"], body=self.loop()), *after],
                  self.IMAGE, ["y"])
        self.assert_computes((8 + 2 + 4 + 8) * self.X)
        limit = [self.number("most", 2), helper.make_node("Less", ["i", "most"], ["on"])]
        self.save([*before, self.node("Loop", ["", "", "x"], ["last", "all"], body=self.loop(limit)), *after],
                  self.IMAGE, ["y"])
        self.assert_computes((8 + 2 + 4 + 8) * self.X)

    def test_loops_that_depend_on_the_samples(self):
        before = [self.number("two", 2, numpy.float32)]
        self.save([*before, helper.make_node("ReduceMax", ["x"], ["m"], axes=[1], keepdims=0),
                   helper.make_node("Cast", ["m"], ["count"], to=TensorProto.INT64),
                   self.node("Loop", ["count", "", "x"], ["y", "all"], body=self.loop())], self.IMAGE, ["y"])
        self.assert_refused('has operators that are not understood:\n  Loop: 1, the first is Loop "the Loop"')
        condition = [helper.make_node("ReduceMax", ["h"], ["m"], axes=[1], keepdims=0),
                     helper.make_node("Less", ["m", "two"], ["on"])]
        self.save([*before, self.number("count", 3),
                   self.node("Loop", ["count", "", "x"], ["y", "all"], body=self.loop(condition))], self.IMAGE, ["y"])
        self.assert_refused('Loop "the Loop": ends by a condition that is not known before the model runs')

    def test_branches(self):
        """A branch is chosen by the shape of x; both read x from outside."""
        graph = lambda op, name: helper.make_graph([helper.make_node(op, ["x"], [name])], name, [],  # noqa: E731
                                                   [self.value(name)])
        for size, expected in ((4, -self.X), (5, numpy.maximum(self.X, 0))):
            self.save([helper.make_node("Shape", ["x"], ["shape"]), self.number("one", 1), self.number("size", size),
                       helper.make_node("Gather", ["shape", "one"], ["columns"]),
                       helper.make_node("Equal", ["columns", "size"], ["condition"]),
                       self.node("If", ["condition"], ["y"], then_branch=graph("Neg", "a"),
                                 else_branch=graph("Relu", "b"))], self.IMAGE, ["y"])
            self.assert_computes(expected)

    def test_sequences(self):
        nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Add", ["x", "x"], ["d"]),
                 self.number("zero", 0), self.number("one", 1), self.number("three", 3), self.number("last", -1),
                 helper.make_node("SequenceConstruct", ["x", "n"], ["s1"]),
                 helper.make_node("SequenceInsert", ["s1", "d", "zero"], ["s2"]),  # 2 x, x, -x
                 helper.make_node("SequenceErase", ["s2", "one"], ["s3"]),
                 helper.make_node("ConcatFromSequence", ["s3"], ["joined"], axis=1),
                 helper.make_node("SplitToSequence", ["joined", "three"], ["parts"], axis=1),
                 self.node("SequenceAt", ["parts", "last"], ["y"])]
        self.save(nodes, self.IMAGE, ["y"])
        self.assert_computes(-self.X[:, 2:])
        os.remove(self.path("graph.json"))
        self.save(nodes, self.IMAGE, ["s3"])
        self.assert_refused('the output "s3" is a sequence, expected a tensor')
        nodes[5] = self.number("last", -4)
        self.save(nodes, self.IMAGE, ["y"])
        self.assert_refused('SequenceAt "the SequenceAt": has the position -4 in a sequence of 3')

    def test_dimensions(self):
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3, -4])
        self.save([self.node("Gemm", ["x", "w"], ["y"], transB=1)], self.IMAGE, ["y"], [weight])
        self.assert_refused('initializer "w" has a dimension of size -4')
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40])
        self.save([self.node("Gemm", ["x", "w"], ["y"], transB=1)], self.IMAGE, ["y"], [weight])
        self.assert_refused(f'initializer "w" has shape [{1 << 40}, {1 << 40}]')
        size = numpy_helper.from_array(numpy.array([1 << 40], numpy.int64), "size")
        self.save([self.node("ConstantOfShape", ["size"], ["c"]), self.node("Add", ["x", "c"], ["y"])], self.IMAGE,
                  ["y"], [size])
        self.assert_refused(f'ConstantOfShape "the ConstantOfShape": computes a constant of shape [{1 << 40}], which '
                            'is too large')

    def test_unbound_dimension(self):
        self.save([self.node("Relu", ["x"], ["y"])], [("x", TensorProto.FLOAT, ["batch", "length", 4])], ["y"])
        self.assert_refused('the input "x" has no size for axis 1, give --size length=N')
        self.assertEqual(self.import_model(self.path("model.onnx"), 2, "--size", "length=3").returncode, 0)

    def test_fixed_batch(self):
        shape = numpy_helper.from_array(numpy.array([4, 2, 2], numpy.int64), "shape")
        self.save([self.node("Reshape", ["x", "shape"], ["y"])], [("x", TensorProto.FLOAT, [4, 4])], ["y"], [shape])
        self.assert_refused('Reshape "the Reshape": asks for shape [4, 2, 2] of a tensor of shape [2, 4]; a model that '
                            'was exported for a fixed batch can only be imported for that one')

    def test_frozen(self):
        weight = numpy_helper.from_array(numpy.ones((3, 4), numpy.float32), "weight")
        self.save([self.node("Gemm", ["x", "weight"], ["y"], transB=1)], self.IMAGE, ["y"], [weight])
        self.assert_refused('no initializer is named "wieght"; did you mean "weight"?',
                            arguments=("--frozen", "wieght"))

    def test_names(self):
        self.save([self.node("Relu", ["x"], ["wXYZ"])], self.IMAGE, ["wXYZ"])
        content = pathlib.Path(self.path("model.onnx")).read_bytes()
        pathlib.Path(self.path("model.onnx")).write_bytes(content.replace(b"wXYZ", b"w\xf7YZ"))
        self.assert_refused("has a name that is not UTF-8")

    def operators(self, *arguments):
        result = self.import_model(self.path("model.onnx"), 2, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("graph.json")) as file:
            return [(op["type"], op.get("attributes", {})) for op in json.load(file)["operators"]]

    def test_weights_that_are_left_out(self):
        weight = numpy_helper.from_array(numpy.ones(4, numpy.float32), "weight")
        self.save([self.node("LayerNormalization", ["x", "weight"], ["y"])], self.IMAGE, ["y"], [weight], opset=17)
        (norm, attributes), (product, _) = self.operators()
        self.assertEqual((norm, attributes["affine"], product), ("layer_norm", False, "broadcast_mul"))
        constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(numpy.eye(4, dtype="float32")))
        self.save([constant, self.node("MatMul", ["x", "c"], ["y"])], self.IMAGE, ["y"])
        [(product, attributes)] = self.operators()
        self.assertEqual((product, attributes["trained"]), ("einsum", False))
        kernel = numpy_helper.from_array(numpy.ones((3, 4, 1), numpy.float32), "kernel")
        sequence = [("x", TensorProto.FLOAT, ["batch", 4, 5])]
        self.save([self.node("Conv", ["x", "kernel"], ["y"])], sequence, ["y"], [kernel])
        [(layer, attributes)] = [each for each in self.operators("--frozen", "kernel") if each[0] == "conv1d"]
        self.assertFalse(attributes["trained"])
        bias = numpy_helper.from_array(numpy.ones(3, numpy.float32), "bias")
        self.save([self.node("Conv", ["x", "kernel", "bias"], ["y"])], sequence, ["y"], [kernel, bias])
        os.remove(self.path("graph.json"))
        self.assert_refused('Conv "the Conv": the weight of conv1d is always trained, but here it is a constant or '
                            'left out ("kernel" [3, 4, 1]: --frozen)', arguments=("--frozen", "kernel"))


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    probe = subprocess.run([os.path.join(BUILD, "ffsearch"), "import", "/dev/null", "--batch", "1", "--out", "x"],
                           capture_output=True, text=True)
    if "without ONNX import" in probe.stderr:
        print("skipped: this build has no ONNX import")
        sys.exit(77)
    unittest.main(verbosity=2)
