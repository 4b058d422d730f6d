"""ffsearch plans how to train a neural network on several devices, and trains it with the plan.

This package drives the programs ffsearch and ffexec from Python. docs/python.md has a tutorial and the reference.

    graph = ffsearch.from_torch(model, example_inputs)
    plan = ffsearch.search(graph, ffsearch.Topology.detect(cpu_ranks=2), budget="30s", progress=True)
    run = plan.train((images, labels), epochs=3, lr=0.1)
    ffsearch.to_torch(run, model)
"""

from .comparison import TorchComparison, check
from .errors import FfsearchError, InputError, MachineError, ProgramNotFound
from .graph import Graph, GraphInput, ImportSummary, Initializer
from .plan import Plan, compare, plan_settings, profile, search
from .programs import find_program
from .pytorch import from_torch, to_torch
from .results import (Change, Configuration, Decision, Diff, Explanation, Export, PathPiece, PlanDifference, Prediction,
                      SearchStatistics, SettingsPlan, SettingsSearch, WhatIf)
from .topology import Topology
from .training import Evaluation, TrainingRun, train, write_data

__version__ = "0.1.0"

__all__ = [
    "Change", "Configuration", "Decision", "Diff", "Evaluation", "Explanation", "Export", "FfsearchError", "Graph",
    "GraphInput", "ImportSummary", "Initializer", "InputError", "MachineError", "PathPiece", "Plan", "PlanDifference",
    "Prediction", "ProgramNotFound", "SearchStatistics", "SettingsPlan", "SettingsSearch", "Topology",
    "TorchComparison", "TrainingRun", "WhatIf", "check", "compare", "find_program", "from_torch", "plan_settings",
    "profile", "search", "to_torch", "train", "write_data",
]
