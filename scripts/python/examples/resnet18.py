#!/usr/bin/env python3
"""torchvision's ResNet-18 on two CPU ranks: imported, planned, trained, and loaded into PyTorch again. Needs PyTorch,
torchvision and the package (`pip install scripts/python`). Data are random images.

  resnet18.py [--ranks 2] [--budget 20s] [--iterations 20] [--size 64] [--batch 16] [--cost auto]"""
import argparse

import torch
import torchvision

import ffsearch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="CPU ranks of this machine")
    parser.add_argument("--budget", default="20s", help="search time")
    parser.add_argument("--iterations", type=int, default=20, help="training iterations")
    parser.add_argument("--size", type=int, default=64, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=16, help="samples per iteration")
    parser.add_argument("--cost", default="auto", help="kernel times: auto measures them; analytic")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=10)
    images = torch.randn(4 * arguments.batch, 3, arguments.size, arguments.size)
    labels = torch.randint(0, 10, (len(images),))

    graph = ffsearch.from_torch(model, images[:2], batch=arguments.batch,
                                optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
    topology = ffsearch.Topology.detect(cpu_ranks=arguments.ranks)
    plan = ffsearch.search(graph, topology, budget=arguments.budget, cost=arguments.cost, progress=True)
    print(plan.summary())
    plan.html("resnet18.html")
    run = plan.train((images, labels), iterations=arguments.iterations, progress=True)
    print(f"{run.measured_ms:.1f} ms measured, {run.predicted_ms:.1f} ms predicted; why this plan: resnet18.html")
    ffsearch.to_torch(run, model)
    torch.save(model.state_dict(), "resnet18.pt")
    print("trained weights: resnet18.pt")


if __name__ == "__main__":
    main()
