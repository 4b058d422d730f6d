#!/usr/bin/env python3
"""Prints the table of docs/results/onnx.md: networks exported by PyTorch with random weights, imported, and one
iteration compared with PyTorch's, on one rank and on two with a found strategy.

  onnx_models.py [--build DIRECTORY] [NAME ...]

A relu that is entered at zero but for rounding lets its gradient through or not, by chance, and one such among the
thousands of activations of a late layer is a thousandth of the gradient: in PyTorch's own 32 bits against its 64 bits
as here. So the biases of batch normalizations are drawn around 3, where few activations are near zero, and the seed is
the first from 0 to 9 with which PyTorch's 32 bits agree with its 64 bits to 2e-5, else the one where they agree best.
What ffexec computes has no say in it."""
import argparse
import copy
import os
import sys
import tempfile

import torch

import onnx_comparison as comparison
from onnx_cases import CASES, KIND_OF

def rounding(case):
    """How far PyTorch's gradients by 32 bits are from those by 64 bits."""
    gradients = []
    for dtype in (torch.float64, torch.float32):
        model = copy.deepcopy(case.model).train().to(dtype)
        inputs = [value.to(dtype) if value.is_floating_point() else value for value in case.inputs.values()]
        comparison.loss_of(case, model, inputs).backward()
        gradients.append(torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None]))
    return float((gradients[1] - gradients[0]).norm() / gradients[0].norm())


def seeded(make, seed):
    torch.manual_seed(seed)
    return make()


def measure(make, build):
    """(seed, PyTorch's rounding, what compare says)."""
    errors = []
    for seed in range(10):
        errors.append(rounding(seeded(make, seed)))
        if errors[-1] <= 2e-5:
            break
    seed = errors.index(min(errors))
    with tempfile.TemporaryDirectory() as folder:
        return seed, errors[seed], comparison.compare(seeded(make, seed), build, folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(comparison.REPOSITORY, "build", "dev"))
    parser.add_argument("names", nargs="*", default=list(CASES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | nodes | operators | parameters | import, s | loss, 1 rank | gradients, 1 rank | loss, 2 ranks | "
          "gradients, 2 ranks | PyTorch's rounding (seed) |\n|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.names:
        seed, error, result = measure(CASES[name], os.path.abspath(options.build))
        one, two = result["ranks"]["1 rank"], list(result["ranks"].values())[-1]
        said = result["import"]
        print(f"| {name} | {said['nodes']} | {said['operators']} | {said['parameters']:,} | {said['elapsed_s']:.2f} | "
              f"{one['loss']:.0e} | {one['gradients']:.0e} | {two['loss']:.0e} | {two['gradients']:.0e} | {error:.0e} "
              f"({seed}) |", flush=True)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
