#!/usr/bin/env python3
"""Writes a checkpoint of ffexec with the names and shapes of the PyTorch model that `ffsearch import` has read.

  to_pytorch.py trained.safetensors --weights w.safetensors --out state.safetensors [--base model.pt]

trained.safetensors is what `ffexec --save` wrote. w.safetensors is what `ffsearch import --weights` wrote: its metadata
have the table of names. The base is the model's state_dict() before training, a safetensors file or one of torch.save.
What the graph does not have comes from it: buffers, rows of a table that the graph does not read, tied parameters. In
PyTorch: model.load_state_dict(safetensors.torch.load_file("state.safetensors")), or without a file
model.load_state_dict({name: torch.from_numpy(values) for name, values in to_pytorch(...).items()}).

Needs numpy, and torch for a base of torch.save. Exit codes: 0, 1 (a file is at fault), 2 (the command line is)."""
import argparse
import json
import os
import struct
import sys
import tempfile

import numpy

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
         "BOOL": "?"}


class WrongInput(Exception):
    pass


def read(path):
    """Tensors by name, and the metadata."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        begin = 8 + struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:begin])
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, entry in header.items():
            first, end = entry["data_offsets"]
            if entry["dtype"] == "BF16":  # the upper half of a 32-bit float
                wide = numpy.frombuffer(content[begin + first:begin + end], "<u2").astype("<u4") << 16
                tensors[name] = wide.view("<f4").reshape(entry["shape"])
            else:
                tensors[name] = numpy.frombuffer(content[begin + first:begin + end],
                                                 TYPES[entry["dtype"]]).reshape(entry["shape"])
        return tensors, metadata
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise WrongInput(f"{path}: is not a safetensors file") from None


def read_base(path):
    try:
        with open(path, "rb") as file:
            beginning = file.read(9)
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}") from None
    if beginning[8:9] == b"{":
        return read(path)[0]
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise WrongInput(f"{path}: is not a safetensors file; reading one of torch.save needs PyTorch") from None
    try:
        state = torch.load(path, map_location="cpu")
        return {name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
                for name, value in state.items()}
    except Exception:  # pylint: disable=broad-except
        raise WrongInput(f"{path}: is neither a safetensors file nor a state_dict() of torch.save") from None


def write(path, tensors):
    """The file appears whole or not at all."""
    names = {numpy.dtype(layout): name for name, layout in TYPES.items()}
    header, offset = {}, 0
    for name, values in tensors.items():
        header[name] = {"dtype": names[values.dtype], "shape": list(values.shape),
                        "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for values in tensors.values():
                file.write(values.tobytes())
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise WrongInput(f"{path}: {error.strerror}") from None


def assemble(name, entry, trained, initial, checkpoint):
    """The tensor's elements out of the graph's parameters; all others stay what `initial` has."""
    shape = entry["shape"]
    values = numpy.zeros(shape, numpy.float32) if initial is None else initial.astype(numpy.float32).reshape(shape)
    flat, written = values.reshape(-1), numpy.zeros(values.size, bool)
    for piece in entry["pieces"]:
        if piece["parameter"] not in trained:
            raise WrongInput(f"{checkpoint}: lacks the parameter \"{piece['parameter']}\"")
        source = trained[piece["parameter"]]
        block = tuple(slice(begin, begin + size) for begin, size in zip(piece["begin"], piece["size"]))
        if len(block) != source.ndim or source[block].shape != tuple(piece["size"]):
            raise WrongInput(f"{checkpoint}: \"{piece['parameter']}\" has shape {list(source.shape)}, which the table "
                             "of names does not expect: are the checkpoint and --weights of the same import?")
        index = numpy.full((), piece["offset"])
        for axis, (size, stride) in enumerate(zip(piece["size"], piece["strides"])):
            along = [1] * source.ndim
            along[axis] = size
            index = index + (numpy.arange(size) * stride).reshape(along)
        flat[index.reshape(-1)] = source[block].reshape(-1)
        written[index.reshape(-1)] = True
    if initial is None and not written.all():
        raise WrongInput(f"{name}: the graph has {int(written.sum())} of its {values.size} elements; give --base with "
                         "the model's state_dict() for the others")
    return values


def to_pytorch(checkpoint, weights, base=None, note=lambda text: None):
    """Arrays by PyTorch's names. All arguments but the last are paths."""
    trained = read(checkpoint)[0]
    metadata = read(weights)[1]
    if "pytorch" not in metadata:
        raise WrongInput(f"{weights}: has no table of names; `ffsearch import --weights` writes one")
    table = json.loads(metadata["pytorch"])
    state = read_base(base) if base else {}
    result = {}
    for name, entry in table["tensors"].items():
        initial = state.get(name)
        if initial is not None and initial.size != numpy.prod(entry["shape"], dtype=int):
            raise WrongInput(f"{base}: \"{name}\" has shape {list(initial.shape)}, the imported model has "
                             f"{entry['shape']}")
        result[name] = assemble(name, entry, trained, initial, checkpoint)
    for name, first in table["summands"].items():  # the graph has the sum of the two
        result[name] = numpy.zeros_like(result[first])
        if name in state:
            result[name] = state[name].astype(numpy.float32)
            result[first] = result[first] - result[name]
    unnamed = [name for name in result if "::" in name or "/" in name]
    if unnamed:
        note(f"{unnamed[0]} and {len(unnamed) - 1} more are names of the exporter, not of PyTorch: export with "
             "do_constant_folding=False")
    tied = {}
    for name, values in state.items():
        if name in result:
            continue
        twins = [other for other in table["tensors"] if other in state and state[other].shape == values.shape and
                 values.dtype.kind == "f" and numpy.array_equal(state[other], values) and
                 (values != values.reshape(-1)[:1]).any()]
        tied[name] = result[twins[0]] if twins else values
        if twins:
            note(f"{name} equals {twins[0]} in {base}, so that it is taken to be tied to it")
    result.update(tied)
    left = [name for name in table["constants"] if name not in result]
    if left and not base:
        note(f"{len(left)} constants are not in the checkpoint, such as {left[0]}; --base adds those that PyTorch has")
    return {name: numpy.ascontiguousarray(values).reshape(values.shape) for name, values in result.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="what ffexec --save wrote")
    parser.add_argument("--weights", required=True, help="what ffsearch import --weights wrote")
    parser.add_argument("--base", help="state_dict() of the model: a safetensors file or one of torch.save")
    parser.add_argument("--out", required=True, help="safetensors file to write")
    arguments = parser.parse_args()
    try:
        state = to_pytorch(arguments.checkpoint, arguments.weights, arguments.base,
                           lambda text: print(f"to_pytorch: note: {text}", file=sys.stderr))
        write(arguments.out, state)
    except WrongInput as error:
        print(f"to_pytorch: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {len(state)} tensors, for load_state_dict()")
    return 0


if __name__ == "__main__":
    sys.exit(main())
