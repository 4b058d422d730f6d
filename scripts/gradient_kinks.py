#!/usr/bin/env python3
"""Why the gradients of a network with relu, in 32 bits, may be far from those in 64 bits: torchvision's ResNet-18,
imported, one step on one rank, by seed.

  gradient_kinks.py [--build DIRECTORY] [SEED ...]

A relu that is entered at zero but for rounding passes its gradient on or not, by chance. For each seed the script
prints how far ffexec's gradients and those of PyTorch's 32 bits are from PyTorch's 64 bits. Where either is far, it
computes the 64 bits again with the decisions of those relus turned, one after the other, that are entered nearest to
zero: if rounding turned exactly these, the distance falls to that of the other seeds."""
import argparse
import copy
import os
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[1]
FAR = 5e-5


class Turned(torch.autograd.Function):
    """relu, but for elements whose gradient is decided the other way."""

    @staticmethod
    def forward(ctx, value, elements):
        mask = value > 0
        for element in elements:
            mask.view(-1)[element] ^= True
        ctx.save_for_backward(mask)
        return value.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


def gradients(model, image, label, kind=torch.float64, turned=()):
    """The gradients, and the inputs of relus that are nearest to zero: (distance, relu, element), in deviations."""
    model = copy.deepcopy(model).to(kind).train()
    nearest, calls = [], []

    def relu(value):
        number = len(calls)
        calls.append(number)
        distances = (value.detach().abs() / value.detach().std()).flatten()
        nearest.extend((float(distances[i]), number, int(i)) for i in distances.topk(3, largest=False).indices)
        return Turned.apply(value, [element for call, element in turned if call == number])

    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.forward = relu
    F.cross_entropy(model(image.to(kind)), label).backward()
    return torch.cat([each.grad.double().flatten() for each in model.parameters()]), sorted(nearest)


def distance(found, expected):
    return float((found - expected).norm() / expected.norm())


def measure(ffsearch, seed):
    torch.manual_seed(seed)
    model = torchvision.models.resnet18(weights=None, num_classes=10)
    image, label = torch.randn(2, 3, 64, 64), torch.randint(0, 10, (2,))
    graph = ffsearch.from_torch(model, image)
    plan = ffsearch.search(graph, ffsearch.Topology.named("local-cpu-1"), algorithm="data-parallel", cost="analytic")
    run = plan.train((image, label), iterations=1, optimizer="sgd", lr=1, momentum=0, weight_decay=0)
    after = list(ffsearch.to_torch(run, copy.deepcopy(model)).parameters())
    ours = torch.cat([(a.detach().double() - b.detach().double()).flatten() for a, b in zip(model.parameters(), after)])
    exact, nearest = gradients(model, image, label)
    narrow = gradients(model, image, label, torch.float32)[0]
    print(f"seed {seed}: ffexec {distance(ours, exact):.1e}, PyTorch's 32 bits {distance(narrow, exact):.1e}",
          flush=True)
    for name, found in (("ffexec", ours), ("PyTorch's 32 bits", narrow)):
        turned, reference = [], exact
        for near, call, element in nearest[:12]:
            if distance(found, reference) < FAR:
                break
            again = gradients(model, image, label, turned=[*turned, (call, element)])[0]
            if distance(found, again) < distance(found, reference):
                turned.append((call, element))
                reference = again
                print(f"  with element {element} of relu {call} turned, which is entered at {near:.1e} of the "
                      f"deviation: {name} {distance(found, reference):.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build" / "dev"))
    parser.add_argument("seeds", nargs="*", type=int, default=list(range(12)))
    options = parser.parse_args()
    os.environ["FFSEARCH_BIN"] = os.path.abspath(options.build)
    sys.path.insert(0, str(ROOT / "scripts" / "python"))
    import ffsearch  # pylint: disable=import-outside-toplevel
    torch.set_num_threads(1)
    for seed in options.seeds:
        measure(ffsearch, seed)


if __name__ == "__main__":
    main()
