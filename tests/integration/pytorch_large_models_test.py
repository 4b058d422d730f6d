#!/usr/bin/env python3
"""What large models are trained with, beside PyTorch: ten iterations from the same parameters on the same data with
AdamW, clipping, warm-up and cosine schedule; micro-batches beside PyTorch's accumulation, recomputation beside
torch.utils.checkpoint, sharded state on two and four ranks, and all of them at once. (bf16 beside autocast:
pytorch_test.py.) PyTorch computes with 64 bits, ffexec with 32.
Usage: pytorch_large_models_test.py BUILD_DIRECTORY [--table]; --table prints the rows of
docs/results/large-models.md. Exits 77 (skipped) without PyTorch."""
import json
import os
import sys
import tempfile
import unittest

import pytorch_test  # which exits where there is no PyTorch
import numpy
import torch
import pytorch_networks as networks
from pytorch_test import write_safetensors

TABLE = False
OPTIMIZER = {"type": "adamw", "betas": [0.9, 0.95], "epsilon": 1e-3, "weight_decay": 0.1, "learning_rate": 0.02,
             "clip_norm": 0.5, "schedule": {"warmup_iterations": 3, "iterations": 9, "minimum": 0.001}}
# What PyTorch does, and what plans do: (in words, ranks, flags of ffsearch).
ADAMW, ACCUMULATION, CHECKPOINT, BOTH = (1, False), (3, False), (1, True), (3, True)
STAGES = (("ZeRO-1", "optimizer"), ("ZeRO-2", "gradients"), ("ZeRO-3", "parameters"))
PLANS = (
    [(ADAMW, "one device", 1, ["--algorithm", "data-parallel"]),
     (ADAMW, "data parallelism", 2, ["--algorithm", "data-parallel"]),
     (ADAMW, "searched", 4, ["--proposals", "200", "--seed", "3"]),
     (ACCUMULATION, "3 micro-batches", 1, ["--algorithm", "data-parallel", "--micro-batches", "3"]),
     (ACCUMULATION, "3 micro-batches, pipeline, 1F1B", 2,
      ["--algorithm", "pipeline", "--micro-batches", "3", "--schedule", "1f1b"]),
     (CHECKPOINT, "recomputation", 1, ["--algorithm", "data-parallel", "--recompute", "full"]),
     (CHECKPOINT, "recomputation of all operators", 2, ["--algorithm", "data-parallel", "--recompute", "*"])] +
    [(ADAMW, name, ranks, ["--algorithm", "data-parallel", "--sharding", word])
     for name, word in STAGES for ranks in (2, 4)] +
    [(ADAMW, "ZeRO-3 of layers, ZeRO-1 of the rest", 2,
      ["--algorithm", "data-parallel", "--sharding", "[0-1].*=parameters,*=optimizer"]),
     (BOTH, "3 micro-batches, pipeline, 1F1B, recomputation, ZeRO-3", 4,
      ["--algorithm", "pipeline", "--micro-batches", "3", "--schedule", "1f1b", "--recompute", "full", "--sharding",
       "parameters"])])


class LargeModels(unittest.TestCase):
    path, run_program, search = (getattr(pytorch_test.PytorchTest, name) for name in ("path", "run_program", "search"))
    assert_close, compare = pytorch_test.PytorchTest.assert_close, pytorch_test.PytorchTest.compare

    def test_plans_train_as_pytorch_does(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        network = networks.transformer()
        network.graph["optimizer"] = OPTIMIZER
        with open(self.path("graph.json"), "w") as file:
            json.dump(network.graph, file)
        write_safetensors(self.path("initial.safetensors"), network.parameters)
        os.mkdir(self.path("data"))
        for name, values in network.data.items():
            numpy.save(self.path(f"data/{name}.npy"), values)
        expected = {way: pytorch_test.train_in_pytorch(network, *way)
                    for way in (ADAMW, ACCUMULATION, CHECKPOINT, BOTH)}
        self.assertLess(expected[ADAMW][0][-1], 0.95 * expected[ADAMW][0][0], "the network learns nothing: a poor test")
        in_pytorch = {ADAMW: "AdamW, clipping, schedule", ACCUMULATION: "accumulation", CHECKPOINT: "checkpoint",
                      BOTH: "accumulation, checkpoint"}
        rows = []
        for way, words, ranks, flags in PLANS:
            with self.subTest(words, ranks=ranks):
                strategy = self.search(ranks, *flags)
                self.check_plan(strategy, flags)
                losses, worst = self.compare(network, f"{ranks} ranks, {words}", ranks, strategy, expected[way])
                rows.append(f"| {words} | {ranks} | {in_pytorch[way]} | {losses[-1]:.6f} | "
                            f"{expected[way][0][-1]:.6f} | " +
                            " | ".join(f"{difference:.1e}" for difference in worst) + " |")
        if TABLE:
            print("\n" + "\n".join(rows))

    def check_plan(self, strategy, flags):
        """That the plan has what its flags ask for: a flag that does nothing would pass every comparison."""
        with open(strategy) as file:
            plan = json.load(file)
        self.assertEqual(plan.get("micro_batches", 1), 3 if "--micro-batches" in flags else 1)
        self.assertEqual("recompute" in plan, "--recompute" in flags)
        self.assertEqual("sharding" in plan, "--sharding" in flags)
        if "pipeline" in flags:
            devices = {device for one in plan["configurations"] for device in one["devices"]} if isinstance(
                plan["configurations"], list) else {d for one in plan["configurations"].values()
                                                    for d in one["devices"]}
            self.assertGreater(len(devices), 1)


if __name__ == "__main__":
    pytorch_test.BUILD = os.path.abspath(sys.argv.pop(1))
    TABLE = "--table" in sys.argv
    if TABLE:
        sys.argv.remove("--table")
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
