"""An imported model against PyTorch: one training step of each."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict

from .errors import InputError
from .graph import Graph
from .plan import search
from .programs import Folder
from .topology import Topology
from .training import data_by_name, train

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TorchComparison:
    """One training step here and in PyTorch, which computes it in 64 bits.

    Attributes:
        loss: loss of ffexec.
        torch_loss: loss of PyTorch.
        loss_error: relative difference of the two.
        gradient_error: relative difference of all gradients together, by the 2-norm.
        torch_gradient_error: the same of PyTorch's own 32 bits: what rounding alone makes.
        worst_parameter: the parameter with the largest difference.
        worst_error: that difference, relative to the largest element of its gradient, or to a thousandth of the largest
            element of all gradients if that is more.
    """

    loss: float
    torch_loss: float
    loss_error: float
    gradient_error: float
    torch_gradient_error: float
    worst_parameter: str
    worst_error: float


def _one_device() -> Topology:
    folder = Folder()
    path = folder / "topology.json"
    path.write_text(json.dumps({
        "format": "fftopology/1", "name": "one-rank",
        "device_models": {"cpu": {"peak_tflops": 0.1, "memory_gb_per_s": 10, "launch_us": 1}},
        "devices": [{"name": "cpu0", "kind": "cpu", "model": "cpu", "node": "local"}], "links": []}), encoding="utf-8")
    return Topology(path, folder, "one rank")


def _gradients(graph: Graph, model: Any, data: Dict[str, Any], bits: int) -> "tuple[float, Dict[str, Any]]":
    """Loss and gradients of PyTorch."""
    import torch  # pylint: disable=import-outside-toplevel,redefined-outer-name
    assert graph.torch_loss
    kind = torch.float64 if bits == 64 else torch.float32
    wide = copy.deepcopy(model).to(kind).train()
    tensors = {name: torch.as_tensor(value) for name, value in data.items()}
    loss = graph.torch_loss(wide, {name: value.to(kind) if value.is_floating_point() else value.long()
                                   for name, value in tensors.items()})
    loss.backward()
    return float(loss.item()), {name: parameter.grad.double().numpy() for name, parameter in wide.named_parameters()
                                if parameter.requires_grad and parameter.grad is not None}


def check(graph: Graph, model: "torch.nn.Module", data: Any) -> TorchComparison:
    """Compares one training step of the imported model on one CPU rank with PyTorch's: loss and all gradients.

    Rounding gives differences of about 1e-6, and more where PyTorch's own 32 bits differ as much from its 64
    (`torch_gradient_error`). If the graph's differ far more, it is not the model: please report it.

    Args:
        graph: what `from_torch` made of the model.
        model: the model. Dropout must be off (p=0), since masks differ.
        data: one batch, as in `Plan.train`.
    """
    import numpy  # pylint: disable=import-outside-toplevel
    from .checkpoints import read_safetensors, read_table  # pylint: disable=import-outside-toplevel
    from .pytorch import to_torch  # pylint: disable=import-outside-toplevel
    if graph.torch_loss is None or graph.weights is None:
        raise InputError("check: needs a graph that from_torch made, with a loss")
    if any(each["type"] == "dropout" for each in graph.data["operators"]):
        raise InputError("check: the graph has dropout, whose masks differ from PyTorch's; compare with p=0")
    if graph.batch != len(next(iter(data_by_name(data, graph).values()))):
        raise InputError(f"check: expected one batch, {graph.batch} samples")
    before = to_torch(graph.weights, copy.deepcopy(model))
    torch_loss, expected = _gradients(graph, before, data_by_name(data, graph), 64)
    rounded = _gradients(graph, before, data_by_name(data, graph), 32)[1]
    plan = search(graph, _one_device(), algorithm="data-parallel", cost="analytic")
    run = train(plan, data, iterations=1, optimizer="sgd", lr=1, momentum=0, weight_decay=0, clip_norm=0)
    after = dict(to_torch(run, copy.deepcopy(before)).named_parameters())
    table = read_table(graph.weights, read_safetensors(graph.weights)[1], None)
    largest = max(float(numpy.abs(values).max()) for values in expected.values())
    difference = length = rounding = 0.0
    worst, where = 0.0, ""
    for name, parameter in before.named_parameters():
        if name not in expected or name in table["summands"]:  # their sum with another parameter is compared
            continue
        found = parameter.detach().double().numpy() - after[name].detach().double().numpy()
        error = numpy.abs(found - expected[name])
        difference += float((error ** 2).sum())
        length += float((expected[name] ** 2).sum())
        rounding += float(((rounded[name] - expected[name]) ** 2).sum())
        relative = float(error.max()) / max(float(numpy.abs(expected[name]).max()), 1e-3 * largest)
        if relative > worst or not where:
            worst, where = relative, name
    loss = run.losses[0] if run.losses[0] is not None else float("nan")
    return TorchComparison(loss, torch_loss, abs(loss - torch_loss) / abs(torch_loss), (difference / length) ** 0.5,
                           (rounding / length) ** 0.5, where, worst)
