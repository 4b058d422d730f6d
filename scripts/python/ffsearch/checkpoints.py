"""Checkpoints of ffexec with the names and shapes of the PyTorch model that was imported. Needs numpy, not PyTorch.

`ffsearch import` writes a table into the metadata of its weights: which elements of which parameters of the graph each
tensor of the model is (search/import/pytorch_table.h). `ffexec --load` and `--save` pass it on, so that a checkpoint
alone is enough."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy

from .errors import InputError
from .files import PathLike

Arrays = Dict[str, "numpy.ndarray[Any, Any]"]

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
         "BOOL": "?"}


def _tensor(entry: Mapping[str, Any], data: bytes) -> Any:
    first, end = entry["data_offsets"]
    if entry["dtype"] == "BF16":  # the upper half of a 32-bit float
        wide = numpy.frombuffer(data[first:end], "<u2").astype("<u4") << 16
        return wide.view("<f4").reshape(entry["shape"])
    return numpy.frombuffer(data[first:end], TYPES[entry["dtype"]]).reshape(entry["shape"])


def read_safetensors(path: PathLike) -> Tuple[Arrays, Dict[str, str]]:
    """Tensors by name, and the metadata."""
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            content = file.read()
        begin = 8 + struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:begin])
        metadata = header.pop("__metadata__", {})
        data = memoryview(content)[begin:]
        return {each: _tensor(entry, data) for each, entry in header.items()}, metadata  # type: ignore[arg-type]
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise InputError(f"{name}: is not a safetensors file") from None


def write_safetensors(path: PathLike, tensors: Mapping[str, Any], metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes tensors by name. The file appears whole or not at all."""
    names = {numpy.dtype(layout): name for name, layout in TYPES.items()}
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, values in tensors.items():
        header[name] = {"dtype": names[values.dtype], "shape": list(values.shape),
                        "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(path)), delete=False) as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for values in tensors.values():
                file.write(values.tobytes())
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: {error.strerror}") from None


def _assemble(name: str, entry: Mapping[str, Any], trained: Arrays, initial: Any, checkpoint: str) -> Any:
    """The tensor's elements out of the graph's parameters; all others stay what `initial` has."""
    shape = entry["shape"]
    values = numpy.zeros(shape, numpy.float32) if initial is None else initial.astype(numpy.float32).reshape(shape)
    flat, written = values.reshape(-1), numpy.zeros(values.size, bool)
    for piece in entry["pieces"]:
        if piece["parameter"] not in trained:
            raise InputError(f"{checkpoint}: lacks the parameter \"{piece['parameter']}\"")
        source = trained[piece["parameter"]]
        block = tuple(slice(begin, begin + size) for begin, size in zip(piece["begin"], piece["size"]))
        if len(block) != source.ndim or source[block].shape != tuple(piece["size"]):
            raise InputError(f"{checkpoint}: \"{piece['parameter']}\" has shape {list(source.shape)}, which the table "
                             "of names does not expect: are the checkpoint and the weights of the same import?")
        index = numpy.full((), piece["offset"])
        for axis, (size, stride) in enumerate(zip(piece["size"], piece["strides"])):
            along = [1] * source.ndim
            along[axis] = size
            index = index + (numpy.arange(size) * stride).reshape(along)
        flat[index.reshape(-1)] = source[block].reshape(-1)
        written[index.reshape(-1)] = True
    if initial is None and not written.all():
        raise InputError(f"{name}: the graph has {int(written.sum())} of its {values.size} elements; give the model's "
                         "state_dict() as base for the others")
    return values


def read_table(checkpoint: PathLike, metadata: Mapping[str, str], weights: Optional[PathLike]) -> Dict[str, Any]:
    """The table of names: that of the weights if they are given, else the checkpoint's own."""
    if weights is not None:
        metadata = read_safetensors(weights)[1]
    if "pytorch" not in metadata:
        raise InputError(f"{os.fspath(checkpoint if weights is None else weights)}: has no table of names; `ffsearch "
                         "import --weights` writes one, and `ffexec --load` and `--save` pass it on")
    table: Dict[str, Any] = json.loads(metadata["pytorch"])
    return table


def _tied(table: Mapping[str, Any], state: Arrays, result: Arrays, note: Callable[[str], None]) -> Arrays:
    """Tensors of the base that the graph does not have: tied to one that it has, or as they are."""
    found: Arrays = {}
    for name, values in state.items():
        if name in result:
            continue
        twins = [other for other in table["tensors"] if other in state and state[other].shape == values.shape and
                 values.dtype.kind == "f" and numpy.array_equal(state[other], values) and
                 (values != values.reshape(-1)[:1]).any()]
        found[name] = result[twins[0]] if twins else values
        if twins:
            note(f"{name} equals {twins[0]} in the base, so that it is taken to be tied to it")
    return found


def state_of(checkpoint: PathLike, weights: Optional[PathLike] = None, base: Optional[Arrays] = None,
             note: Callable[[str], None] = lambda text: None) -> Arrays:
    """A checkpoint's arrays by the names of PyTorch's state_dict().

    Args:
        checkpoint: what `ffexec --save` or `Plan.train` wrote.
        weights: what `ffsearch import --weights` wrote; default: the checkpoint has its table of names.
        base: state_dict() of the model. What the graph does not have comes from it: buffers, rows of a table that the
            graph does not read, parameters that are not trained.
        note: called with what a reader should know.
    """
    trained, metadata = read_safetensors(checkpoint)
    table = read_table(checkpoint, metadata, weights)
    state = base or {}
    result: Arrays = {}
    for name, entry in table["tensors"].items():
        initial = state.get(name)
        if initial is not None and initial.size != numpy.prod(entry["shape"], dtype=int):
            raise InputError(f"{name}: has shape {list(initial.shape)} in the base, in the imported model "
                             f"{entry['shape']}")
        result[name] = _assemble(name, entry, trained, initial, os.fspath(checkpoint))
    for name, first in table["summands"].items():  # the graph has the sum of the two
        result[name] = numpy.zeros_like(result[first])
        if name in state:
            result[name] = state[name].astype(numpy.float32)
            result[first] = result[first] - result[name]
    unnamed: List[str] = [name for name in result if "::" in name or "/" in name]
    if unnamed:
        note(f"{unnamed[0]} and {len(unnamed) - 1} more are names of the exporter, not of PyTorch: export with "
             "do_constant_folding=False")
    result.update(_tied(table, state, result, note))
    left = [name for name in table["constants"] if name not in result]
    if left and not base:
        note(f"{len(left)} constants are not in the checkpoint, such as {left[0]}; a base adds those that PyTorch has")
    return {name: numpy.ascontiguousarray(values).reshape(values.shape) for name, values in result.items()}
