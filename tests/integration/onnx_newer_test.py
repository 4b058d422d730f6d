#!/usr/bin/env python3
"""Operator sets 18 to 23, as newer exporters of PyTorch write them: files that are made here operator by
operator, and what ffexec computes of them compared with numpy. Usage: onnx_newer_test.py BUILD_DIRECTORY. Exits 77
(skipped) without python3-onnx or in a build without ONNX import."""
import math
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import numpy
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    print("skipped: python3-onnx is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
import onnx_import_test as common  # noqa: E402

RANDOM = numpy.random.default_rng(7)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(numpy.float32)


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    return numpy.vectorize(math.erf)(x.astype(numpy.float64))


class NewerTest(common.OnnxTest):
    def save(self, nodes, inputs, constants, opset):
        values = [helper.make_tensor_value_info(
            name, TensorProto.FLOAT if value.dtype.kind == "f" else TensorProto.BOOL if value.dtype.kind == "b"
            else TensorProto.INT64, ["batch", *value.shape[1:]]) for name, value in inputs.items()]
        graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                                  [numpy_helper.from_array(numpy.asarray(value), name)
                                   for name, value in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        pathlib.Path(self.path("model.onnx")).write_bytes(model.SerializeToString())

    def check(self, nodes, inputs, constants, expected, opset, arguments=(), operators=()):
        self.save(nodes, inputs, constants, opset)
        batch = len(next(iter(inputs.values())))
        result = self.import_model(self.path("model.onnx"), batch, "--loss", "cross-entropy",
                                   *(arguments or self.frozen(constants)))
        self.assertEqual(result.returncode, 0, result.stderr)
        text = pathlib.Path(self.path("graph.json")).read_text()
        for operator in operators:
            self.assertIn(f'"type":"{operator}"', text)
        scores = numpy.moveaxis(expected, 1, -1) if expected.ndim >= 4 else expected
        label = RANDOM.integers(0, scores.shape[-1], scores.shape[:-1])
        flat = scores.reshape(-1, scores.shape[-1]).astype(numpy.float64)
        logarithm = numpy.log(numpy.exp(flat - flat.max(1, keepdims=True)).sum(1)) + flat.max(1)
        loss = float((logarithm - flat[numpy.arange(len(flat)), label.reshape(-1)]).mean())
        values = {name: value.astype(numpy.float32 if value.dtype.kind == "f" else numpy.int32)
                  for name, value in inputs.items()}
        found = self.loss(values, label.reshape(batch, -1).astype(numpy.int32) if scores.ndim > 2
                          else label.astype(numpy.int32))
        self.assertAlmostEqual(found, loss, delta=2e-5 * max(1, abs(loss)))

    @staticmethod
    def frozen(constants):
        return ("--frozen", "*") if any(numpy.asarray(value).dtype.kind == "f" for value in constants.values()) else ()

    def refused(self, nodes, inputs, constants, opset, message):
        self.save(nodes, inputs, constants, opset)
        result = self.import_model(self.path("model.onnx"), 2, *self.frozen(constants))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(message, result.stderr)

    def test_axes_as_inputs(self):
        """Reductions of operator set 18; without axes they are the identity where the node says so."""
        x, axes = normal(2, 3, 4), {"a": numpy.array([-1])}
        for op, reduce in (("ReduceMean", numpy.mean), ("ReduceMax", numpy.max), ("ReduceMin", numpy.min),
                           ("ReduceSum", numpy.sum)):
            with self.subTest(op):
                self.check([helper.make_node(op, ["x", "a"], ["m"], keepdims=1), helper.make_node("Sub", ["x", "m"], [
                    "y"])], {"x": x}, axes, x - reduce(x, -1, keepdims=True), 18)
        self.check([helper.make_node("ReduceMean", ["x", "a"], ["y"], keepdims=0)], {"x": x}, {"a": numpy.array([1])},
                   x.mean(1), 18)
        self.check([helper.make_node("ReduceSum", ["x"], ["y"], noop_with_empty_axes=1)], {"x": x}, {}, x, 18)
        self.check([helper.make_node("ReduceMax", ["x", "a"], ["y"], noop_with_empty_axes=1)], {"x": x},
                   {"a": numpy.array([], numpy.int64)}, x, 18)

    def test_normalizations_in_parts(self):
        """Means over the last axis, which is an input; those without keepdims are another function where they fit."""
        x, w, b = normal(2, 3, 4), normal(4), normal(4)
        constants = {"a": numpy.array([-1]), "e": numpy.float32(1e-5), "two": numpy.float32(2), "w": w, "b": b}
        nodes = [helper.make_node("ReduceMean", ["x", "a"], ["m"]), helper.make_node("Sub", ["x", "m"], ["d"]),
                 helper.make_node("Pow", ["d", "two"], ["s"]), helper.make_node("ReduceMean", ["s", "a"], ["v"]),
                 helper.make_node("Add", ["v", "e"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["r"]),
                 helper.make_node("Div", ["d", "r"], ["n"]), helper.make_node("Mul", ["n", "w"], ["nw"]),
                 helper.make_node("Add", ["nw", "b"], ["y"])]
        d = x - x.mean(-1, keepdims=True)
        normalized = d / numpy.sqrt((d ** 2).mean(-1, keepdims=True) + 1e-5)
        self.check(nodes, {"x": x}, constants, normalized * w + b, 18, operators=["layer_norm"],
                   arguments=("--trained", "w,b", "--frozen", "e,two"))
        square = normal(3, 4, 4)  # [batch, 4, 4] - [batch, 4] without keepdims: rows and columns change places
        one = [helper.make_node("ReduceMean", ["x", "a"], ["m"], keepdims=0),
               helper.make_node("Unsqueeze", ["m", "first"], ["mm"]), helper.make_node("Sub", ["x", "mm"], ["y"])]
        self.check(one, {"x": square}, {"a": numpy.array([-1]), "first": numpy.array([1])},
                   square - square.mean(-1)[:, None], 18)

    def test_split_into_unequal_parts(self):
        x = normal(2, 7)
        self.check([helper.make_node("Split", ["x"], ["a", "b", "c"], axis=1, num_outputs=3),
                    helper.make_node("Concat", ["c", "a", "b"], ["y"], axis=1)], {"x": x}, {},
                   numpy.concatenate([x[:, 6:], x[:, :3], x[:, 3:6]], 1), 18)

    def test_group_normalization(self):
        """Scales of groups in operator set 18, of channels in 21."""
        x = normal(2, 6, 3, 2)
        grouped = x.reshape(2, 3, -1)
        normalized = ((grouped - grouped.mean(-1, keepdims=True)) / numpy.sqrt(
            grouped.var(-1, keepdims=True) + 1e-3)).reshape(x.shape)
        for opset, size in ((18, 3), (21, 6)):
            w, b = normal(size), normal(size)
            wide = lambda v: numpy.repeat(v, 6 // size)[:, None, None]  # noqa: E731
            for arguments in ((), ("--trained", "w,b")):
                self.check([helper.make_node("GroupNormalization", ["x", "w", "b"], ["y"], num_groups=3, epsilon=1e-3)],
                           {"x": x}, {"w": w, "b": b}, normalized * wide(w) + wide(b), opset, arguments)

    def test_functions(self):
        x = normal(2, 9)
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
        for op, attributes, expected, opset in (
                ("Gelu", {}, x / 2 * (1 + erf(x / math.sqrt(2))), 20),
                ("Gelu", {"approximate": "tanh"}, x / 2 * (1 + numpy.tanh(inner)), 20),
                ("Mish", {}, x * numpy.tanh(numpy.log1p(numpy.exp(x))), 18),
                ("HardSwish", {}, x * numpy.clip(x / 6 + 0.5, 0, 1), 22),
                ("HardSigmoid", {}, numpy.clip(0.2 * x + 0.5, 0, 1), 22),
                ("Swish", {"alpha": 1.5}, x / (1 + numpy.exp(-1.5 * x)), 24),
                ("Elu", {"alpha": 0.5}, numpy.where(x > 0, x, 0.5 * (numpy.exp(x) - 1)), 22),
                ("Celu", {"alpha": 2.0}, numpy.maximum(0, x) + numpy.minimum(0, 2 * (numpy.exp(x / 2) - 1)), 18)):
            with self.subTest(op):
                self.check([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": x}, {}, expected, opset)
        hard = [helper.make_node("HardSigmoid", ["x"], ["h"]), helper.make_node("Mul", ["x", "h"], ["y"])]
        self.check(hard, {"x": x}, {}, x * numpy.clip(0.2 * x + 0.5, 0, 1), 22)  # other slopes than HardSwish's

    def test_root_mean_squares(self):
        x, w = normal(2, 3, 4), normal(4)
        expected = x / numpy.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-6) * w
        node = helper.make_node("RMSNormalization", ["x", "w"], ["y"], epsilon=1e-6)
        self.check([node], {"x": x}, {"w": w}, expected, 23, ("--trained", "w"), ["rms_norm"])
        one = [helper.make_node("Add", ["one", "w"], ["v"]), helper.make_node("RMSNormalization", ["x", "v"], ["y"],
                                                                              epsilon=1e-6)]
        self.check(one, {"x": x}, {"w": w - 1, "one": numpy.float32(1)}, expected, 23,
                   ("--trained", "w", "--frozen", "one"), ["rms_norm"])

    def attention(self, q, k, v, scale, masks=()):
        group = q.shape[1] // k.shape[1]
        k, v = numpy.repeat(k, group, 1), numpy.repeat(v, group, 1)
        scores = q @ k.swapaxes(2, 3) * scale
        for mask in masks:
            scores = scores + mask
        return softmax(scores) @ v

    def test_attention(self):
        """With heads on an axis and without one, heads that share keys, masks of both kinds, causal."""
        q, k, v = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)
        inputs = {"q": q, "k": k, "v": v}
        plain = [helper.make_node("Attention", ["q", "k", "v"], ["y"])]
        self.check(plain, inputs, {}, self.attention(q, k, v, 8 ** -0.5), 23)
        mask = normal(3, 5)
        self.check([helper.make_node("Attention", ["q", "k", "v", "m"], ["y"], scale=0.3)], inputs, {"m": mask},
                   self.attention(q, k, v, 0.3, [mask]), 23)
        allowed = RANDOM.random((2, 1, 3, 5)) < 0.6
        allowed[..., 0] = True
        hidden = numpy.where(allowed, 0, -1e30)
        self.check([helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])], {**inputs, "m": allowed}, {},
                   self.attention(q, k, v, 8 ** -0.5, [hidden]), 23)
        self.check([helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])], inputs, {"m": allowed[:1]},
                   self.attention(q, k, v, 8 ** -0.5, [hidden[:1]]), 23)
        flat = lambda x: numpy.ascontiguousarray(x.swapaxes(1, 2)).reshape(2, x.shape[2], -1)  # noqa: E731
        k, v = normal(2, 2, 3, 8), normal(2, 2, 3, 6)
        causal = numpy.where(numpy.tri(3) > 0, 0, -1e30)
        self.check([helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1, q_num_heads=4, kv_num_heads=2)],
                   {"q": flat(q), "k": flat(k), "v": flat(v)}, {},
                   flat(self.attention(q, k, v, 8 ** -0.5, [causal])), 23)
        self.refused([helper.make_node("Attention", ["q", "k", "v"], ["y"], softcap=2.0)], inputs, {}, 23,
                     "has the attribute softcap, which is not understood")
        self.refused([helper.make_node("Attention", ["q", "k", "v", "", "k", "v"], ["y"])], inputs, {}, 23,
                     "has past keys and values, or lengths, which are not understood")

    def test_attention_with_projections(self):
        """One operator of ours, with its heads."""
        x, w = normal(2, 5, 8), {name: normal(8, 8) / 3 for name in ("wq", "wk", "wv")}
        nodes = [helper.make_node("MatMul", ["x", "w" + name], [name]) for name in "qkv"]
        nodes.append(helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1, q_num_heads=2, kv_num_heads=2))
        heads = lambda y: y.reshape(2, 5, 2, 4).swapaxes(1, 2)  # noqa: E731
        causal = numpy.where(numpy.tri(5) > 0, 0, -1e30)
        y = self.attention(*(heads(x @ w["w" + name]) for name in "qkv"), 0.5, [causal])
        self.check(nodes, {"x": x}, w, y.swapaxes(1, 2).reshape(2, 5, 8), 23, ("--trained", "w*"),
                   ["multi_head_attention"])

    def test_hidden_rows(self):
        """PyTorch makes zeros of the rows of a softmax of which a mask hides everything."""
        x, mask = normal(2, 3, 4), numpy.ones((2, 3, 4), bool)
        mask[0, 1], mask[1, :, 2] = False, False
        nodes = [helper.make_node("Where", ["m", "zero", "low"], ["a"]), helper.make_node("Add", ["x", "a"], ["s"]),
                 helper.make_node("Softmax", ["s"], ["p"], axis=-1), helper.make_node("IsNaN", ["p"], ["n"]),
                 helper.make_node("Where", ["n", "zero", "p"], ["y"])]
        with numpy.errstate(invalid="ignore"):
            scores = numpy.where(mask, x, -numpy.inf)
            expected = numpy.nan_to_num(numpy.exp(scores - x.max(-1, keepdims=True)))
            expected = numpy.nan_to_num(expected / expected.sum(-1, keepdims=True))
        self.check(nodes, {"x": x, "m": mask}, {"zero": numpy.float32(0), "low": numpy.float32(-numpy.inf)}, expected,
                   20)

    def test_rotary_positions(self):
        """Halves and neighbours, all channels and a part, tables by position and looked up."""
        angles = numpy.arange(7)[:, None] * 100.0 ** (-numpy.arange(3) / 3)[None]
        cosine, sine = numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)
        ids = numpy.array([[2, 3, 4, 6], [2, 3, 4, 6]])
        x = normal(2, 3, 4, 8)  # [batch, heads, length, channels]
        c, s = cosine[ids][:, None], sine[ids][:, None]
        for interleaved in (0, 1):
            a, b = (x[..., 0:6:2], x[..., 1:6:2]) if interleaved else (x[..., :3], x[..., 3:6])
            left, right = a * c - b * s, a * s + b * c
            turned = numpy.stack([left, right], -1).reshape(2, 3, 4, 6) if interleaved else numpy.concatenate(
                [left, right], -1)
            expected = numpy.concatenate([turned, x[..., 6:]], -1)
            node = helper.make_node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"], interleaved=interleaved,
                                    rotary_embedding_dim=6, num_heads=3)
            self.check([node], {"x": x}, {"c": cosine, "s": sine, "p": ids}, expected, 23)
            flat = lambda y: numpy.ascontiguousarray(y.swapaxes(1, 2)).reshape(2, 4, -1)  # noqa: E731
            self.check([node], {"x": flat(x)}, {"c": cosine, "s": sine, "p": ids}, flat(expected), 23)
        node = helper.make_node("RotaryEmbedding", ["x", "c", "s"], ["y"])
        x = normal(2, 3, 4, 6)
        turned = numpy.concatenate([x[..., :3] * c - x[..., 3:] * s, x[..., :3] * s + x[..., 3:] * c], -1)
        self.check([node], {"x": x}, {"c": cosine[ids], "s": sine[ids]}, turned, 23)

    def test_pads_of_some_axes(self):
        x, w = normal(2, 3, 5, 4), normal(2, 3, 3, 3)
        constants = {"p": numpy.array([1, 0, 2, 1]), "a": numpy.array([3, 2]), "w": w}  # first the width's
        padded = numpy.pad(x, ((0, 0), (0, 0), (0, 1), (1, 2)))
        expected = numpy.zeros((2, 2, 4, 5))
        for i in range(4):
            for j in range(5):
                expected[:, :, i, j] = numpy.einsum("bcyx,ocyx->bo", padded[:, :, i:i + 3, j:j + 3], w)
        self.check([helper.make_node("Pad", ["x", "p", "", "a"], ["q"]), helper.make_node("Conv", ["q", "w"], ["y"])],
                   {"x": x}, constants, expected, 18, ("--trained", "w"))

    def test_resize(self):
        """Sizes of some axes; the ratio that is kept is refused."""
        x = normal(2, 3, 2, 2)
        node = lambda **attributes: [helper.make_node("Resize", ["x", "", "", "s"], ["y"], axes=[2, 3],  # noqa: E731
                                                      mode="nearest", coordinate_transformation_mode="asymmetric",
                                                      nearest_mode="floor", **attributes)]
        self.check(node(), {"x": x}, {"s": numpy.array([4, 6])}, x.repeat(2, 2).repeat(3, 3), 18)
        self.refused(node(keep_aspect_ratio_policy="not_smaller"), {"x": x}, {"s": numpy.array([4, 6])}, 18,
                     "keeps the ratio of its sizes (keep_aspect_ratio_policy), which is not understood")
        self.refused([helper.make_node("Resize", ["x", "", "f"], ["y"], mode="linear", antialias=1)], {"x": x},
                     {"f": numpy.array([1, 1, 0.5, 0.5], numpy.float32)}, 18, "which is not understood")

    def test_types_like_others(self):
        x = normal(2, 3, 4)
        nodes = [helper.make_node("Shape", ["x"], ["shape"], start=2),
                 helper.make_node("CastLike", ["shape", "x"], ["f"]),
                 helper.make_node("Sqrt", ["f"], ["r"]), helper.make_node("Div", ["x", "r"], ["y"])]
        self.check(nodes, {"x": x}, {}, x / 2, 18)

    def test_triangles(self):
        x = normal(2, 4, 4)
        self.check([helper.make_node("Trilu", ["x", "k"], ["y"], upper=0)], {"x": x}, {"k": numpy.array(-1)},
                   numpy.tril(x, -1), 18)

    def test_first_output_left_out(self):
        """A recurrent layer of which the last state alone has a name, as tf2onnx writes it."""
        x, w, r = normal(2, 3, 4), normal(1, 5, 4), normal(1, 5, 5)
        h = numpy.zeros((2, 5))
        for step in range(3):
            h = numpy.tanh(x[:, step] @ w[0].T + h @ r[0].T)
        for again in (False, True):  # two such layers, which have different names here
            nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
                     helper.make_node("RNN", ["t", "w", "r"], ["", "h"], hidden_size=5),
                     helper.make_node("RNN", ["t", "w", "r"], ["", "g"], hidden_size=5),
                     helper.make_node("Add", ["h", "g" if again else "h"], ["s"]),
                     helper.make_node("Squeeze", ["s", "first"], ["y"])]
            self.check(nodes, {"x": x}, {"w": w, "r": r, "first": numpy.array([0])}, 2 * h, 14, ("--trained", "w,r"))

    def test_learned_mixtures(self):
        """What a softmax makes of a parameter (weights of layers), and products with what is computed of parameters."""
        x, a, w = normal(2, 3, 4), normal(4), normal(4, 4)
        nodes = [helper.make_node("Softmax", ["a"], ["s"], axis=0), helper.make_node("Mul", ["x", "s"], ["m"]),
                 helper.make_node("Mul", ["w", "half"], ["h"]), helper.make_node("MatMul", ["m", "h"], ["y"])]
        self.check(nodes, {"x": x}, {"a": a, "w": w, "half": numpy.float32(0.5)}, (x * softmax(a)) @ (w / 2), 18,
                   ("--trained", "a,w", "--frozen", "half"))


if __name__ == "__main__":
    common.BUILD = os.path.abspath(sys.argv.pop(1))
    probe = subprocess.run([os.path.join(common.BUILD, "ffsearch"), "import", "/dev/null", "--batch", "1", "--out",
                            "x"], capture_output=True, text=True)
    if "without ONNX import" in probe.stderr:
        print("skipped: this build has no ONNX import")
        sys.exit(77)
    unittest.main(verbosity=2)
