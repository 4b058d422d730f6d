"""From PyTorch and back. The only part of the package that imports torch, when it is called."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import FfsearchError, InputError
from .files import PathLike
from .graph import Graph
from .onnx_functions import exported as functions_exported
from .programs import Folder

if TYPE_CHECKING:
    import torch

    from .training import TrainingRun


def _torch() -> Any:
    try:
        import torch  # pylint: disable=import-outside-toplevel,redefined-outer-name
    except ImportError:
        raise InputError("PyTorch is not installed: from_torch and to_torch need it; Graph.from_onnx reads files that "
                         "were exported elsewhere") from None
    return torch


# Inputs.

def _named_inputs(forward: Callable[..., Any], example: Any) -> Dict[str, Any]:
    """The example's tensors by the names of forward's arguments."""
    torch = _torch()
    if isinstance(example, torch.Tensor):
        example = (example,)
    if isinstance(example, Mapping):
        named = dict(example)
    else:
        parameters = [each for each in inspect.signature(forward).parameters.values()
                      if each.kind != inspect.Parameter.KEYWORD_ONLY]
        names: List[str] = []
        for each in parameters:
            if each.kind == inspect.Parameter.VAR_POSITIONAL:
                names += [f"{each.name}{i}" for i in range(len(example) - len(names))]
            elif each.kind != inspect.Parameter.VAR_KEYWORD:
                names.append(each.name)
        if len(example) > len(names):
            raise InputError(f"example_inputs: found {len(example)} tensors, but forward takes {len(names)}: "
                             + ", ".join(names))
        named = dict(zip(names, example))
    for name, value in named.items():
        if not isinstance(value, torch.Tensor):
            raise InputError(f'example_inputs: "{name}" is a {type(value).__name__}, expected a tensor; bind other '
                             "arguments in a module of your own")
        if value.dim() == 0:
            raise InputError(f'example_inputs: "{name}" has no axis; the first axis of each input is the sample')
    return named


def _common_batch(tensors: Mapping[str, Any]) -> int:
    sizes = {name: value.shape[0] for name, value in tensors.items()}
    if not sizes:
        raise InputError("example_inputs: is empty")
    if len(set(sizes.values())) > 1:
        raise InputError("the first axis of each input is the sample, but the examples have different sizes there: "
                         + ", ".join(f"{name} {size}" for name, size in sizes.items()))
    return int(next(iter(sizes.values())))


# Losses.

def _is_plain_cross_entropy(loss: Any) -> bool:
    torch = _torch()
    if loss is torch.nn.functional.cross_entropy:
        return True
    return (type(loss) is torch.nn.CrossEntropyLoss and loss.weight is None  # pylint: disable=unidiomatic-typecheck
            and loss.ignore_index == -100 and loss.reduction == "mean" and not getattr(loss, "label_smoothing", 0))


def _select(outputs: Any, output: Union[None, str, int, Callable[[Any], Any]]) -> Any:
    if output is None:
        return outputs
    if callable(output):
        return output(outputs)
    if isinstance(output, str) and not isinstance(outputs, Mapping):
        return getattr(outputs, output)
    return outputs[output]


def _tensors_of(outputs: Any, model: Any) -> Tuple[Any, ...]:
    torch = _torch()
    found = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
    if not isinstance(found, (tuple, list)) or not all(isinstance(each, torch.Tensor) for each in found):
        raise InputError(f"{type(model).__name__} returns a {type(outputs).__name__}, expected a tensor or a tuple of "
                         'tensors; output="logits" (a name, an index or a function) picks what the loss reads')
    return tuple(found)


# The model while it is exported.

class _Buffers:
    """Running statistics and other buffers, which forward() may change. Put back through numpy, which the tracer does
    not see, as the exporter writes what they are after the trace."""

    def __init__(self, model: Any):
        self.views = [value.detach().numpy() for value in model.buffers() if value.numel()]
        self.values = [view.copy() for view in self.views]

    def restore(self) -> None:
        for view, values in zip(self.views, self.values):
            view[...] = values


@contextlib.contextmanager
def _as_it_was(model: Any) -> Iterator[_Buffers]:
    """Afterwards buffers, training flags and random numbers are what they were."""
    torch = _torch()
    modes = {name: module.training for name, module in model.named_modules()}
    buffers = _Buffers(model)
    try:
        with torch.random.fork_rng(devices=[]):
            yield buffers
    finally:
        for name, module in model.named_modules():
            module.training = modes[name]
        buffers.restore()


@contextlib.contextmanager
def _forward_replaced(model: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """Names of parameters and modules stay those of the model itself, which a module around it would change."""
    before = model.__dict__.get("forward")
    model.forward = forward
    try:
        yield
    finally:
        if before is None:
            del model.forward
        else:
            model.forward = before


def _expect_one_mode(model: Any) -> None:
    """Modules that were set to eval() by themselves would train after the export."""
    torch = _torch()
    kinds = (torch.nn.modules.batchnorm._NormBase, torch.nn.modules.dropout._DropoutNd)  # pylint: disable=W0212
    fixed = [name for name, module in model.named_modules() if isinstance(module, kinds) and not module.training]
    if model.training and fixed:
        raise InputError(f"{len(fixed)} modules are in eval mode while the model is in training mode, such as "
                         f'"{fixed[0]}": they would be trained. Call model.train() for all, or replace these modules')


def _gradients_of(model: Any, run: Callable[[], Any]) -> List[str]:
    """Names of the parameters that get a gradient, in order."""
    torch = _torch()
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not named:
        raise InputError(f"{type(model).__name__} has no parameter with requires_grad")
    total = sum(each.double().sum() for each in run() if each.is_floating_point() and each.requires_grad)
    if not isinstance(total, torch.Tensor):
        raise InputError(f"{type(model).__name__}: no output depends on a parameter")
    gradients = torch.autograd.grad(total, [parameter for _, parameter in named], allow_unused=True)
    return [name for (name, _), gradient in zip(named, gradients) if gradient is not None]


def _export(model: Any, inputs: Mapping[str, Any], path: os.PathLike, dynamic: bool, opset: Optional[int]) -> List[str]:
    """Writes the ONNX file; returns what the tracer warned of."""
    torch = _torch()
    options: Dict[str, Any] = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:  # newer versions have two exporters
        options["dynamo"] = False
    if opset is not None:
        options["opset_version"] = opset
    if dynamic:
        options["dynamic_axes"] = {name: {0: "batch"} for name in inputs}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with functions_exported():
                torch.onnx.export(model, tuple(inputs.values()), str(path), input_names=list(inputs), **options)
        except FfsearchError:
            raise
        except Exception as error:  # pylint: disable=broad-except
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            raise InputError(f"PyTorch cannot export {type(model).__name__}: {lines[0]}") from error
    own = os.path.dirname(torch.__file__)  # what PyTorch's own functions ask for is not the user's matter
    texts = [f"PyTorch's tracer: {str(each.message).splitlines()[0]} ({each.filename}:{each.lineno})"
             for each in caught if issubclass(each.category, torch.jit.TracerWarning)
             and not each.filename.startswith(own)]
    return list(dict.fromkeys(texts))


def from_torch(model: "torch.nn.Module", example_inputs: Any, *,
               loss: Union[None, str, Callable[..., Any]] = "cross-entropy", targets: Any = None,
               batch: Optional[int] = None, output: Union[None, str, int, Callable[[Any], Any]] = None,
               optimizer: Any = None, name: Optional[str] = None, dynamic: bool = True, opset: Optional[int] = None,
               **flags: Any) -> Graph:
    """A PyTorch model as a graph, with its parameters.

    The model is exported to ONNX as it is trained (batch statistics, dropout), and imported. What is trained is exactly
    what gets a gradient in PyTorch. The model itself does not change.

    Args:
        model: the model, on the CPU.
        example_inputs: a tensor, a tuple of tensors for forward's arguments, or a dictionary of them by name. The first
            axis of each is the sample.
        loss: "cross-entropy" adds it to each output: classes are the last axis, for images [batch, classes, height,
            width] the second one; labels are a new input "label". nn.CrossEntropyLoss() is the same. Another module or
            function loss(output, target) is exported with the model; it needs `targets`. None: an output without axes
            is the model's own loss; if there is none, the graph has no loss.
        targets: example of the loss's targets: a tensor, which becomes the input "label", or a dictionary by name.
        batch: samples per iteration, over all devices; default: that of the example.
        output: what of the model's outputs the loss reads: a key, an attribute ("logits"), an index or a function.
        optimizer: "sgd", "adam", "adamw", an optimizer of torch.optim, or a dictionary (`Graph.with_optimizer`).
        name: the graph's name; default: that of the model's class.
        dynamic: False exports the batch of the example as a constant; then `batch` must be that.
        opset: operator set of the ONNX file; default: PyTorch's.
        flags: more flags of `ffsearch import`, such as loss_weights=[1, 0.4], frozen=["mask"].

    Raises:
        InputError: PyTorch cannot export the model, or the import does not know what it has.
    """
    torch = _torch()
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model: found a {type(model).__name__}, expected a torch.nn.Module")
    forward = model.forward
    inputs = _named_inputs(forward, example_inputs)
    inside = loss is not None and not isinstance(loss, str) and not _is_plain_cross_entropy(loss)
    labels = _labels(loss, targets, inside)
    sizes = _common_batch({**inputs, **labels})
    if not dynamic and batch not in (None, sizes):
        raise InputError(f"dynamic=False: the example has {sizes} samples, so that batch={batch} is not possible")
    if any(each.device.type != "cpu" for each in [*model.parameters(), *model.buffers()]):
        raise InputError(f"{type(model).__name__} is not on the CPU: model.cpu(), or a copy of it")
    shapes: List[Tuple[int, ...]] = []
    restored: List[_Buffers] = []

    def traced(*tensors: Any) -> Tuple[Any, ...]:
        found = _tensors_of(_select(forward(**dict(zip(inputs, tensors))), output), model)
        shapes[:] = [tuple(each.shape) for each in found]
        if inside:
            assert callable(loss)
            found = (loss(found[0] if len(found) == 1 else found, *tensors[len(inputs):]),)
        for buffers in restored:
            buffers.restore()
        return found

    folder = Folder()
    path = folder / f"{name or type(model).__name__.lower()}.onnx"
    _expect_one_mode(model)
    everything = {**inputs, **labels}
    with _as_it_was(model) as buffers, _forward_replaced(model, traced):
        restored.append(buffers)
        model.train()
        trained = _gradients_of(model, lambda: model(*everything.values()))
        if loss is not None and not isinstance(loss, str) and not inside:
            _expect_classes_last(shapes)
        try:
            notes = _export(model, everything, path, dynamic, opset)
        except InputError as error:
            raise _with_reason(error, model, loss, inside) from error.__cause__
    unused = [each for each, parameter in model.named_parameters() if parameter.requires_grad and each not in trained]
    if unused:
        notes.append(f"no gradient reaches {len(unused)} parameters, which are not trained: " + ", ".join(unused[:5])
                     + (" ..." if len(unused) > 5 else ""))
    (folder / "names").write_text("".join(f"{each}\n" for each in trained), encoding="utf-8")
    own = {"loss": None if inside or loss is None else loss if isinstance(loss, str) else "cross-entropy",
           "like": folder / "names"}
    shown = {str(path): path.stem, str(folder / "names"): "named_parameters()"}
    try:
        graph = Graph._imported(  # pylint: disable=protected-access
            path, path.stem, batch or sizes, {**own, **flags}, True, shown, tuple(notes))
    except InputError as error:
        raise _with_reason(error, model, loss, inside) from None
    graph.torch_loss = _loss_in_torch(loss, output, inside, list(inputs), flags.get("loss_weights"))
    return graph if optimizer is None else graph.with_optimizer(optimizer)


def _with_reason(error: InputError, model: Any, loss: Any, inside: bool) -> InputError:
    """The error, with what may be its reason."""
    if any(isinstance(each, _torch().nn.EmbeddingBag) for each in model.modules()):
        error = InputError(error.message + "\nPyTorch exports nn.EmbeddingBag as a loop, but for bags of one size, "
                           "[batch, size], without padding_idx.", error.exit_code, error.command)
    if not inside:
        return error
    name = getattr(loss, "__name__", type(loss).__name__)
    return InputError(f"{error.message}\nThe loss {name} was exported with the model; docs/onnx.md says which losses "
                      "are known to the import.", error.exit_code, error.command)


def _loss_in_torch(loss: Any, output: Any, inside: bool, names: List[str],
                   loss_weights: Optional[Sequence[float]]) -> Optional[Callable[[Any, Dict[str, Any]], Any]]:
    """(model, data by name) -> the loss that the graph has, computed by PyTorch."""
    if loss is None:
        return None

    def compute(model: Any, data: Dict[str, Any]) -> Any:
        torch = _torch()
        outputs = _tensors_of(_select(model(**{name: data[name] for name in names}), output), model)
        labels = [value for name, value in data.items() if name not in names]
        if inside:
            return loss(outputs[0] if len(outputs) == 1 else outputs, *labels)
        total = 0
        for each, weight in zip(outputs, loss_weights or [1] * len(outputs)):
            scores = each.movedim(1, -1) if each.dim() == 4 else each
            total = total + weight * torch.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]),
                                                                       labels[0].long().flatten())
        return total

    return compute


def _labels(loss: Any, targets: Any, inside: bool) -> Dict[str, Any]:
    if not inside:
        if targets is not None:
            raise InputError(f"targets: are for a loss that is a function; with loss={loss!r} the graph has an input "
                             '"label"' if loss is not None else "targets: are for a loss that is a function")
        return {}
    if targets is None:
        name = getattr(loss, "__name__", type(loss).__name__)
        raise InputError(f"loss: {name} is exported with the model, and needs an example of its targets: targets=...")
    return dict(targets) if isinstance(targets, Mapping) else {"label": targets}


def _expect_classes_last(shapes: Sequence[Tuple[int, ...]]) -> None:
    for shape in shapes:
        if len(shape) == 3:
            raise InputError(f"loss: the model's output has three axes {list(shape)}. PyTorch's cross-entropy takes "
                             'the second one as the classes, ffsearch the last one: give loss="cross-entropy" if the '
                             "last axis has the classes, otherwise swap the two in the model")


# Optimizers.

def optimizer_settings(optimizer: Any) -> Dict[str, Any]:
    """An optimizer of torch.optim as the key `optimizer` of graph files.

    Args:
        optimizer: an SGD, Adam or AdamW whose parameters all have the same settings.
    """
    torch = _torch()
    kinds = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
    if type(optimizer) not in kinds:
        raise InputError(f"optimizer: found {type(optimizer).__name__}, expected SGD, Adam or AdamW of torch.optim, or "
                         "a dictionary")
    kind = kinds[type(optimizer)]
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    names = ("lr", "weight_decay") + (("momentum",) if kind == "sgd" else ("betas", "eps"))
    for key in names:
        if any(group[key] != groups[0][key] for group in groups):
            raise InputError(f"optimizer: its groups of parameters differ in {key}: " +
                             ", ".join(str(group[key]) for group in groups) + "; ffexec has one for all")
    for key in ("nesterov", "maximize", "amsgrad"):
        if any(group.get(key) for group in groups):
            raise InputError(f"optimizer: {key} is not supported")
    if any(group.get("dampening") for group in groups):
        raise InputError("optimizer: dampening is not supported")
    first = groups[0]
    settings = {"type": kind, "learning_rate": float(first["lr"]), "weight_decay": float(first["weight_decay"])}
    if kind == "sgd":
        return {**settings, "momentum": float(first["momentum"])}
    return {**settings, "betas": [float(each) for each in first["betas"]], "epsilon": float(first["eps"])}


# Back.

def _arrays(model: Any) -> Dict[str, Any]:
    torch = _torch()
    return {name: (value.float() if value.dtype in (torch.bfloat16, torch.float16) else value).detach().cpu().numpy()
            for name, value in model.state_dict().items()}


def to_torch(checkpoint: Union[PathLike, "TrainingRun"], model: "torch.nn.Module",
             weights: Optional[PathLike] = None) -> "torch.nn.Module":
    """Loads what was trained into the PyTorch model, with load_state_dict(strict=True).

    Args:
        checkpoint: a training run, or a file that `Plan.train` or `ffexec --save` wrote.
        model: the model that was imported, or another instance of it. It is changed. What was not trained keeps its
            values: parameters without gradient, buffers other than running statistics.
        weights: what `ffsearch import --weights` wrote, for a checkpoint that has no table of names.

    Returns:
        The model.

    Raises:
        InputError: the checkpoint is not one of this model.
    """
    torch = _torch()
    from .checkpoints import state_of  # pylint: disable=import-outside-toplevel
    path = checkpoint if isinstance(checkpoint, (str, os.PathLike)) else checkpoint.checkpoint
    state = state_of(path, weights, _arrays(model))
    current = model.state_dict()
    try:
        model.load_state_dict({name: torch.from_numpy(values.copy()).to(current[name].dtype) if name in current
                               else torch.from_numpy(values.copy()) for name, values in state.items()}, strict=True)
    except RuntimeError as error:
        raise InputError(f"{os.fspath(path)}: does not fit {type(model).__name__}: {error}") from None
    return model

