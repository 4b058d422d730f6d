"""What PyTorch's exporter lacks, or writes as a loop, in terms of ONNX operators: losses, bags of embeddings."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator

# The graph that is written, a value of it.
_Writer = Any
_Value = Any


def _constant(g: _Writer, value: float) -> _Value:
    import torch  # pylint: disable=import-outside-toplevel
    return g.op("Constant", value_t=torch.tensor(float(value)))


def _reduced(g: _Writer, loss: _Value, reduction: int) -> _Value:
    return loss if reduction == 0 else g.op("ReduceMean" if reduction == 1 else "ReduceSum", loss, keepdims_i=0)


def _is_none(value: _Value) -> bool:
    return value is None or value.node().mustBeNone()


def _weighted(g: _Writer, loss: _Value, weight: _Value) -> _Value:
    return loss if _is_none(weight) else g.op("Mul", loss, weight)


def _mse_loss(g: _Writer, x: _Value, y: _Value, reduction: int) -> _Value:
    return _reduced(g, g.op("Pow", g.op("Sub", x, y), _constant(g, 2)), reduction)


def _l1_loss(g: _Writer, x: _Value, y: _Value, reduction: int) -> _Value:
    return _reduced(g, g.op("Abs", g.op("Sub", x, y)), reduction)


def _huber(g: _Writer, x: _Value, y: _Value, border: float, factor: float) -> _Value:
    """factor (min(d, border)² / 2 + border (d - min(d, border))) of d = |x - y|."""
    distance = g.op("Abs", g.op("Sub", x, y))
    near = g.op("Min", distance, _constant(g, border))
    square = g.op("Mul", g.op("Mul", near, near), _constant(g, 0.5 * factor))
    return g.op("Add", square, g.op("Mul", g.op("Sub", distance, near), _constant(g, border * factor)))


def _smooth_l1_loss(g: _Writer, x: _Value, y: _Value, reduction: int, beta: float) -> _Value:
    return _l1_loss(g, x, y, reduction) if beta == 0 else _reduced(g, _huber(g, x, y, beta, 1 / beta), reduction)


def _huber_loss(g: _Writer, x: _Value, y: _Value, reduction: int, delta: float) -> _Value:
    return _reduced(g, _huber(g, x, y, delta, 1), reduction)


def _binary_cross_entropy(g: _Writer, p: _Value, y: _Value, weight: _Value, reduction: int) -> _Value:
    """As PyTorch, which takes no logarithm for less than -100."""
    one = _constant(g, 1)
    least = _constant(g, -100)
    hit = g.op("Mul", y, g.op("Max", g.op("Log", p), least))
    miss = g.op("Mul", g.op("Sub", one, y), g.op("Max", g.op("Log", g.op("Sub", one, p)), least))
    return _reduced(g, _weighted(g, g.op("Neg", g.op("Add", hit, miss)), weight), reduction)


def _soft_margin_loss(g: _Writer, x: _Value, y: _Value, reduction: int) -> _Value:
    return _reduced(g, g.op("Softplus", g.op("Neg", g.op("Mul", x, y))), reduction)


def _cross_entropy_loss(g: _Writer, x: _Value, y: _Value, weight: _Value, reduction: int, ignored: int,
                        smoothing: float) -> _Value:
    if smoothing == 0:
        inputs = [x, y] if _is_none(weight) else [x, y, weight]
        names = {0: "none", 1: "mean", 2: "sum"}
        return g.op("SoftmaxCrossEntropyLoss", *inputs, reduction_s=names[reduction], ignore_index_i=ignored)
    if not _is_none(weight) or ignored >= 0 or reduction != 1:
        raise RuntimeError("cross-entropy with label_smoothing is exported without weights and ignore_index, with "
                           "reduction mean")
    # Without an ignored label: PyTorch's -100 would count in the second mean, and so is an error in training.
    hit = g.op("Mul", g.op("SoftmaxCrossEntropyLoss", x, y, reduction_s="mean"), _constant(g, 1 - smoothing))
    mean = g.op("ReduceMean", g.op("LogSoftmax", x, axis_i=1), keepdims_i=0)
    return g.op("Sub", hit, g.op("Mul", mean, _constant(g, smoothing)))


def _embedding_bag(before: Callable[..., Any]) -> Callable[..., Any]:
    """F.embedding_bag of bags of one size as rows and their sum, mean or largest."""
    import torch  # pylint: disable=import-outside-toplevel

    def embedding_bag(input: Any, weight: Any, offsets: Any = None,  # pylint: disable=redefined-builtin
                      max_norm: Any = None, norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
                      sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False,
                      padding_idx: Any = None) -> Any:
        if input.dim() != 2 or max_norm is not None or scale_grad_by_freq or padding_idx is not None:
            return before(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse,
                          per_sample_weights, include_last_offset, padding_idx)
        rows = torch.nn.functional.embedding(input, weight)
        if per_sample_weights is not None:
            rows = rows * per_sample_weights.unsqueeze(-1)
        return {"sum": rows.sum, "mean": rows.mean, "max": rows.amax}[mode](1)

    return embedding_bag


@contextlib.contextmanager
def exported() -> Iterator[None]:
    """PyTorch's exporter knows these losses and bags inside."""
    import torch  # pylint: disable=import-outside-toplevel
    try:
        from torch.onnx import symbolic_helper as helper  # pylint: disable=import-outside-toplevel
        register, unregister = torch.onnx.register_custom_op_symbolic, torch.onnx.unregister_custom_op_symbolic
    except (ImportError, AttributeError):  # an exporter that has other means
        yield
        return
    functions: Dict[str, Callable[..., _Value]] = {
        "mse_loss": helper.parse_args("v", "v", "i")(_mse_loss),
        "l1_loss": helper.parse_args("v", "v", "i")(_l1_loss),
        "smooth_l1_loss": helper.parse_args("v", "v", "i", "f")(_smooth_l1_loss),
        "huber_loss": helper.parse_args("v", "v", "i", "f")(_huber_loss),
        "binary_cross_entropy": helper.parse_args("v", "v", "v", "i")(_binary_cross_entropy),
        "soft_margin_loss": helper.parse_args("v", "v", "i")(_soft_margin_loss),
        "cross_entropy_loss": helper.parse_args("v", "v", "v", "i", "i", "f")(_cross_entropy_loss),
    }
    opset = 12  # SoftmaxCrossEntropyLoss is known since
    for name, function in functions.items():
        register(f"aten::{name}", function, opset)
    bag = torch.nn.functional.embedding_bag
    torch.nn.functional.embedding_bag = _embedding_bag(bag)
    try:
        yield
    finally:
        torch.nn.functional.embedding_bag = bag
        for name in functions:
            unregister(f"aten::{name}", opset)
