"""Training with a plan: data in memory becomes files, mpirun starts a rank for each device, the result comes back."""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import programs
from .errors import InputError
from .files import PathLike
from .graph import Graph, GraphInput
from .plan import Plan
from .programs import Folder, Progress


@dataclass(frozen=True)
class Evaluation:
    """What a trained network reaches on evaluation data.

    Attributes:
        loss: mean loss.
        top1: fraction of labels with the largest score.
    """

    loss: float
    top1: float


@dataclass(frozen=True)
class TrainingRun:
    """What a training run gave.

    Attributes:
        losses: loss of each iteration, before its update; None if it was infinite or not a number.
        measured_ms: median iteration time without warm-up.
        predicted_ms: what the plan predicted, or None.
        checkpoint: safetensors file with the trained parameters, for `to_torch`, and to go on from (`start=`). In a
            temporary folder that this object owns, if no `save` was given.
        iterations: number of iterations.
        ranks: number of ranks.
        epoch_losses: mean loss of each epoch, with `epochs`.
        evaluation: with `evaluate`: loss and accuracy after the last iteration; otherwise None.
        memory_bytes: bytes allocated, by rank.
        max_relative_error: with `verify=True`: largest difference from the same run on one device; otherwise None.
        interrupted: True if Ctrl-C ended the training; the checkpoint has what was trained until then.
        notes: what the program noted.
        raw: all fields, as the program prints them (docs/json-output.md, "Train").
    """

    losses: Tuple[Optional[float], ...]
    measured_ms: float
    predicted_ms: Optional[float]
    checkpoint: pathlib.Path
    iterations: int
    ranks: int
    epoch_losses: Tuple[float, ...]
    evaluation: Optional[Evaluation]
    memory_bytes: Tuple[int, ...]
    max_relative_error: Optional[float]
    interrupted: bool
    notes: Tuple[str, ...]
    raw: Dict[str, Any] = field(repr=False)
    owner: Any = field(default=None, repr=False, compare=False)  # keeps the checkpoint

    def __repr__(self) -> str:
        losses = f"loss {self.losses[0]:.5g} first, {self.losses[-1]:.5g} last, " if self.losses and all(
            loss is not None for loss in (self.losses[0], self.losses[-1])) else ""
        predicted = f", {self.predicted_ms:.3f} ms predicted" if self.predicted_ms is not None else ""
        return (f"<TrainingRun {self.iterations} iterations on {self.ranks} rank{'s' if self.ranks != 1 else ''}: "
                f"{losses}{self.measured_ms:.3f} ms measured{predicted}{', interrupted' if self.interrupted else ''}>")


def _array(value: Any, each: GraphInput) -> Any:
    import numpy  # pylint: disable=import-outside-toplevel
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    values = numpy.asarray(value)
    kinds = {"f32": "f", "i32": "iu"}[each.dtype]
    if values.dtype == bool or values.dtype == numpy.uint8 or (each.dtype == "f32" and values.dtype.kind in "iu"):
        values = values.astype(numpy.float32 if each.dtype == "f32" else numpy.int32)
    if values.dtype.kind not in kinds:
        raise InputError(f'data of "{each.name}": found {values.dtype}, expected '
                         + ("numbers with a fraction (f32)" if each.dtype == "f32" else "whole numbers (i32)"))
    if values.ndim != len(each.shape) or values.shape[1:] != each.shape[1:]:
        sizes = ", ".join(["samples", *map(str, each.shape[1:])])
        raise InputError(f'data of "{each.name}": found shape {list(values.shape)}, expected [{sizes}]')
    if each.dtype == "i32" and values.size and not -2**31 <= int(values.min()) <= int(values.max()) < 2**31:
        raise InputError(f'data of "{each.name}": numbers are beyond 32 bits')
    return numpy.ascontiguousarray(values, numpy.float32 if each.dtype == "f32" else numpy.int32)


def _by_name(data: Any, inputs: Sequence[GraphInput]) -> Dict[str, Any]:
    names = [each.name for each in inputs]
    listed = ", ".join(names)
    if isinstance(data, Mapping):
        unknown = [name for name in data if name not in names]
        missing = [name for name in names if name not in data]
        if unknown or missing:
            raise InputError(f'data: there is {"no input" if unknown else "no array for"} '
                             f'"{(unknown or missing)[0]}"; the graph\'s inputs are {listed}')
        return dict(data)
    if isinstance(data, (tuple, list)):
        arrays: List[Any] = list(data)
    elif hasattr(data, "tensors"):  # torch.utils.data.TensorDataset
        arrays = list(data.tensors)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not hasattr(data, "shape"):
        arrays = _columns(data)
    else:
        raise InputError(f"data: found a {type(data).__name__}; expected a dictionary of arrays by the names of the "
                         f"graph's inputs ({listed}), a tuple of arrays in this order, a dataset of such samples, or "
                         "a folder of .npy files")
    if len(arrays) != len(names):
        raise InputError(f"data: found {len(arrays)} arrays, expected {len(names)}: {listed}")
    return dict(zip(names, arrays))


def _columns(dataset: Any) -> List[Any]:
    """The samples of a dataset, one array for each of their parts."""
    import numpy  # pylint: disable=import-outside-toplevel
    samples = [dataset[i] for i in range(len(dataset))]
    return [numpy.stack([numpy.asarray(sample[part]) for sample in samples]) for part in range(len(samples[0]))] \
        if samples else []


def data_by_name(data: Any, graph: Graph) -> Dict[str, Any]:
    """Arrays by the names of the graph's inputs, of the types and shapes that the graph has."""
    arrays = _by_name(data, graph.inputs)
    return {each.name: _array(arrays[each.name], each) for each in graph.inputs}


def write_data(data: Any, graph: Graph, folder: PathLike) -> None:
    """Writes data as ffexec reads it: one `.npy` file for each input of the graph.

    Args:
        data: a dictionary of arrays or tensors by the names of the graph's inputs; a tuple of them in the order of
            `graph.inputs`; a dataset of torch.utils.data whose samples are such tuples. The first axis is the sample.
        graph: the graph whose inputs they are.
        folder: the folder to write; made if it is not there.
    """
    try:
        import numpy  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise InputError("data in memory need numpy (package python3-numpy); a folder of .npy files does not") from None
    converted = data_by_name(data, graph)
    counts = {name: len(values) for name, values in converted.items()}
    if len(set(counts.values())) > 1:
        raise InputError("data: arrays have different numbers of samples: " +
                         ", ".join(f"{name} {count}" for name, count in counts.items()))
    try:
        os.makedirs(folder, exist_ok=True)
        for name, values in converted.items():
            numpy.save(pathlib.Path(folder) / f"{name}.npy", values)
    except OSError as error:
        raise InputError(f"{os.fspath(folder)}: {error.strerror}") from None


def _data_folder(data: Any, plan: Plan, own: Folder, name: str) -> Optional[PathLike]:
    if data is None or isinstance(data, (str, os.PathLike)):
        return data
    write_data(data, plan.graph, own / name)
    return own / name


def train(plan: Plan, data: Any = None, *, iterations: Optional[int] = None, epochs: Optional[int] = None,
          ranks: Optional[int] = None, lr: Optional[float] = None, optimizer: Optional[str] = None,
          momentum: Optional[float] = None, weight_decay: Optional[float] = None, clip_norm: Optional[float] = None,
          seed: Optional[int] = None, start: Union[None, bool, PathLike, TrainingRun] = None,
          save: Optional[PathLike] = None, evaluate: Any = None, verify: bool = False, progress: Progress = False,
          mpirun: Sequence[str] = ("mpirun",), **flags: Any) -> TrainingRun:
    """Trains with a plan: `mpirun -n RANKS ffexec`, one rank for each device of the plan.

    Ctrl-C ends the training after the current iteration; the result's `interrupted` is True, and its checkpoint has
    what was trained until then. A second Ctrl-C ends it without a result.

    Args:
        plan: the plan.
        data: a dictionary of arrays or tensors by the names of the graph's inputs, a tuple of them in the order of
            `Graph.inputs`, a dataset of torch.utils.data whose samples are such tuples, or a folder of `.npy` files.
            The first axis is the sample. None: synthetic data.
        iterations: training iterations; default 10 without `epochs`.
        epochs: passes over the data, instead.
        ranks: number of ranks; default, and the only number that the plan is for: one for each of its devices.
        lr, optimizer, momentum, weight_decay, clip_norm: settings of the optimizer ("sgd", "adam", "adamw"), instead
            of the plan's.
        seed: seed of the samples' order, of dropout, and of initial parameters if there are none.
        start: checkpoint or training run to go on from; default: the weights that the plan has, if any. False: random
            parameters.
        save: checkpoint file to write; default: one in a temporary folder.
        evaluate: evaluation data, like `data`.
        verify: repeats the run on one device and compares; a difference is an error.
        progress: True shows ffexec's lines on stderr; a function is called with each.
        mpirun: the launcher and its flags, such as ("mpirun", "--hostfile", "hosts").
        flags: more flags of `ffexec`, such as trace="trace.json", backend="cpu", save_every=100, precision="bf16".

    Raises:
        InputError: data, plan or a flag is wrong; MachineError: a rank was lost, memory ran out.
        KeyboardInterrupt: Ctrl-C before the first iteration.
    """
    if not isinstance(plan, Plan):
        raise InputError(f"found a {type(plan).__name__} where a Plan is expected; search makes one")
    count = len(plan.devices)
    if ranks not in (None, count):
        raise InputError(f"the plan is for {count} devices ({', '.join(plan.devices[:4])}"
                         f"{' ...' if count > 4 else ''}), not for {ranks} ranks: search on a topology of {ranks}")
    folder = Folder()
    checkpoint = pathlib.Path(save).absolute() if save is not None else folder / "trained.safetensors"
    if start is None or start is True:
        start = plan.weights
    elif start is False:
        start = None
    own = {"iterations": iterations, "epochs": epochs, "lr": lr, "optimizer": optimizer, "momentum": momentum,
           "weight_decay": weight_decay, "clip_norm": clip_norm, "seed": seed, "verify": verify,
           "load": start.checkpoint if isinstance(start, TrainingRun) else start, "save": checkpoint,
           "data": _data_folder(data, plan, folder, "data"), "eval": _data_folder(evaluate, plan, folder, "evaluation")}
    shown = {**plan._shown, str(folder / "data"): "data",  # pylint: disable=protected-access
             str(folder / "evaluation"): "evaluation data"}
    done = programs.ffexec(count, "--strategy", plan.path, *programs.flags_of({**own, **flags}), "--json",
                           mpirun=mpirun, progress=progress, shown=shown)
    if done.interrupted and not _is_json(done.output):
        raise KeyboardInterrupt
    return _run_of(done, count, checkpoint, folder)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def _run_of(done: programs.Finished, ranks: int, checkpoint: pathlib.Path, folder: Folder) -> TrainingRun:
    data = done.json()
    evaluation = data.get("eval")
    predicted = data.get("predicted_us")
    return TrainingRun(
        tuple(data["losses"]), data["measured_us"] / 1000, predicted / 1000 if predicted is not None else None,
        checkpoint, data["iterations"], ranks, tuple(data.get("epoch_losses") or ()),
        Evaluation(evaluation["loss"], evaluation["top1"]) if evaluation else None, tuple(data["memory_bytes"]),
        (data.get("verified") or {}).get("max_relative_error"), bool(data.get("interrupted")), done.notes, data, folder)
