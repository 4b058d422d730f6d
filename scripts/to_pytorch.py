#!/usr/bin/env python3
"""Writes a checkpoint of ffexec with the names and shapes of the PyTorch model that `ffsearch import` has read.

  to_pytorch.py trained.safetensors --out state.safetensors [--weights w.safetensors] [--base model.pt]

trained.safetensors is what `ffexec --save` wrote. It has the table of names if training began with `--load` of what
`ffsearch import --weights` wrote; otherwise give that file as --weights. The base is the model's state_dict() before
training, a safetensors file or one of torch.save. What the graph does not have comes from it: buffers, rows of a table
that the graph does not read, tied parameters. In PyTorch:
model.load_state_dict(safetensors.torch.load_file("state.safetensors")). In Python, ffsearch.to_torch does all of this.

Needs numpy, and torch for a base of torch.save. Exit codes: 0, 1 (a file is at fault), 2 (the command line is)."""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))

from ffsearch.checkpoints import read_safetensors, state_of, write_safetensors  # noqa: E402
from ffsearch.errors import InputError  # noqa: E402


def read_base(path):
    try:
        with open(path, "rb") as file:
            beginning = file.read(9)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if beginning[8:9] == b"{":
        return read_safetensors(path)[0]
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        raise InputError(f"{path}: is not a safetensors file; reading one of torch.save needs PyTorch") from None
    try:
        state = torch.load(path, map_location="cpu")
        return {name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
                for name, value in state.items()}
    except Exception:  # pylint: disable=broad-except
        raise InputError(f"{path}: is neither a safetensors file nor a state_dict() of torch.save") from None


def to_pytorch(checkpoint, weights=None, base=None, note=lambda text: None):
    """Arrays by PyTorch's names. All arguments but the last are paths."""
    return state_of(checkpoint, weights, read_base(base) if base else None, note)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="what ffexec --save wrote")
    parser.add_argument("--weights", help="what ffsearch import --weights wrote; default: the checkpoint has its names")
    parser.add_argument("--base", help="state_dict() of the model: a safetensors file or one of torch.save")
    parser.add_argument("--out", required=True, help="safetensors file to write")
    arguments = parser.parse_args()
    try:
        state = to_pytorch(arguments.checkpoint, arguments.weights, arguments.base,
                           lambda text: print(f"to_pytorch: note: {text}", file=sys.stderr))
        write_safetensors(arguments.out, state)
    except InputError as error:
        print(f"to_pytorch: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {len(state)} tensors, for load_state_dict()")
    return 0


if __name__ == "__main__":
    sys.exit(main())
