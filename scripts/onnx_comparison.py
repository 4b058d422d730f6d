"""Exports networks with PyTorch, imports them with ffsearch, trains one iteration with ffexec and with PyTorch, and
compares loss and gradients. Used by tests/integration/onnx_import_test.py and by onnx_models.py, which prints the
table of docs/results/onnx.md."""
import copy
import dataclasses
import json
import os
import pathlib
import subprocess
import time
import typing
import warnings

import numpy
import torch
import torch.nn.functional as F

from mpi_environment import mpi_environment
from safetensors_file import read_safetensors

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENVIRONMENT = mpi_environment()


@dataclasses.dataclass
class Case:
    name: str
    model: torch.nn.Module
    inputs: dict  # name -> tensor; the sample is the first axis
    label: torch.Tensor
    loss_weights: tuple = (1,)
    dynamic: typing.Optional[dict] = None  # as torch.onnx.export's dynamic_axes
    arguments: tuple = ()  # of ffsearch import
    like: bool = True  # give it the names of PyTorch's parameters
    exporting: dict = dataclasses.field(default_factory=dict)  # arguments of torch.onnx.export
    untied: tuple = ()  # parameters that PyTorch holds still (docs/onnx.md: the second bias of an LSTM)


class ProgramError(RuntimeError):
    """A program that ended with an error: its name and first argument, and what it printed."""

    def __init__(self, command, output):
        super().__init__(f"{' '.join(str(part) for part in command)}\n{output}")
        self.program, self.output = [os.path.basename(str(part)) for part in command[:2]], output


def run(*command):
    result = subprocess.run([str(part) for part in command], env=ENVIRONMENT, capture_output=True, text=True,
                            timeout=1200)
    if result.returncode != 0:
        raise ProgramError(command, result.stdout + result.stderr)
    return result.stdout


def export(case, model, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, **case.exporting}
        torch.onnx.export(model, tuple(case.inputs.values()), path, input_names=list(case.inputs),
                          dynamic_axes=case.dynamic, **arguments)


def outputs_of(outputs):
    """As a tuple; of torchvision's segmentation a dictionary, of its networks with auxiliary heads a named tuple."""
    if isinstance(outputs, torch.Tensor):
        return (outputs,)
    return tuple(outputs.values()) if isinstance(outputs, dict) else tuple(outputs)


def scores_of(output):
    """With the classes last: of images and videos they are the second axis."""
    return output.movedim(1, -1) if output.dim() >= 4 else output


def loss_of(case, model, inputs):
    total = 0
    for output, weight in zip(outputs_of(model(*inputs)), case.loss_weights):
        scores = scores_of(output)
        total = total + weight * F.cross_entropy(scores.reshape(-1, scores.shape[-1]), case.label.flatten())
    return total


def step_in_pytorch(case, learning_rate, dtype=torch.float64):
    """Loss, and the model after one step, computed with 64 bits: what rounding adds is ffexec's alone. Without oneDNN,
    whose 32 bits are wrong for gradients of conv1d in Debian's PyTorch 1.13."""
    model = copy.deepcopy(case.model).to(dtype)
    inputs = [value.to(dtype) if value.is_floating_point() else value for value in case.inputs.values()]
    with torch.backends.mkldnn.flags(enabled=False):
        loss = loss_of(case, model, inputs)
        loss.backward()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.grad is not None and name not in case.untied:
                parameter -= learning_rate * parameter.grad
    return loss.item(), model.float()


def errors(initial, found, expected):
    """(of all gradients together, by the 2-norm; of the worst tensor, by its largest element, where tensors whose
    gradient is a thousandth of the largest one count as if it were that)"""
    changes = {name: (found[name].astype(float) - initial[name], expected[name].astype(float) - initial[name])
               for name in initial
               if not name.endswith((".running_mean", ".running_variance")) and numpy.isfinite(initial[name]).all()}
    difference = sum(float(((ours - theirs) ** 2).sum()) for ours, theirs in changes.values())
    length = sum(float((theirs ** 2).sum()) for _, theirs in changes.values())
    floor = 1e-3 * max(float(numpy.abs(theirs).max()) for _, theirs in changes.values())
    worst, where = max((float(numpy.abs(ours - theirs).max()) / max(float(numpy.abs(theirs).max()), floor), name)
                       for name, (ours, theirs) in changes.items())
    return (difference / length) ** 0.5, worst, where


def splits_something(path):
    with open(path) as file:
        configurations = json.load(file)["configurations"]
    entries = configurations.values() if isinstance(configurations, dict) else configurations
    return any(degree > 1 for entry in entries for degree in entry.get("degrees", {}).values())


def compare(case, build, folder, ranks=(1, 2), learning_rate=1.0, search=("--proposals", "200", "--seed", "3")):
    """A dictionary with what the import said, its time, and by number of ranks the relative errors of loss and
    gradients."""
    path = lambda name: os.path.join(folder, name)  # noqa: E731
    ffsearch, ffexec = os.path.join(build, "ffsearch"), os.path.join(build, "ffexec")
    batch = next(iter(case.inputs.values())).shape[0]
    case.model.train()
    for name, parameter in case.model.named_parameters():
        parameter.requires_grad_(name not in case.untied)
    export(case, copy.deepcopy(case.model), path("model.onnx"))
    begin = time.monotonic()
    names = "".join(f"{name}\n" for name, _ in case.model.named_parameters())
    pathlib.Path(path("names.txt")).write_text(names)
    like = ["--like", path("names.txt")] if case.like else []
    weights = ["--loss-weights", ",".join(map(str, case.loss_weights))] if len(case.loss_weights) > 1 else []
    importing = [ffsearch, "import", path("model.onnx"), "--batch", batch, "--loss", "cross-entropy", *weights,
                 *like, *case.arguments, "--json", "--out", path("graph.json"), "--weights"]
    result = {"import": json.loads(run(*importing, path("initial.safetensors"))),
              "import_s": time.monotonic() - begin, "ranks": {}}
    loss, trained = step_in_pytorch(case, learning_rate)
    trained.train()
    export(case, trained, path("model.onnx"))
    run(*importing, path("expected.safetensors"))
    initial, expected = read_safetensors(path("initial.safetensors")), read_safetensors(path("expected.safetensors"))
    # Where PyTorch's own 32 bits are as far away: an activation that is zero but for rounding.
    export(case, step_in_pytorch(case, learning_rate, torch.float32)[1].train(), path("model.onnx"))
    run(*importing, path("single.safetensors"))
    result["pytorch_gradients"] = errors(initial, read_safetensors(path("single.safetensors")), expected)[0]
    os.makedirs(path("data"), exist_ok=True)
    for name, value in case.inputs.items():
        numpy.save(path(f"data/{name}.npy"), value.numpy().astype(numpy.float32 if value.is_floating_point()
                                                                  else numpy.int32))
    # Positions of images are one axis of the labels.
    with open(path("graph.json")) as file:
        shapes = {value["name"]: value["shape"] for value in json.load(file)["inputs"]}
    numpy.save(path("data/label.npy"),
               case.label.numpy().astype(numpy.int32).reshape(len(case.label), *shapes["label"][1:]))
    for count in ranks:
        topology = os.path.join(REPOSITORY, "topologies", f"local-cpu-{count}.json")
        # A small network is fastest on one device: then two ranks also run data parallelism.
        plans = [("data-parallel", ("--algorithm", "data-parallel"))]
        if count > 1:
            plans.insert(0, ("searched", search))
        for plan, arguments in plans:
            run(ffsearch, "--graph", path("graph.json"), "--topo", topology, "--cost", "analytic", "--quiet", "--out",
                path("strategy.json"), *arguments)
            output = json.loads(run(
                "mpirun", "--bind-to", "none", "-n", count, ffexec, "--strategy", path("strategy.json"), "--data",
                path("data"), "--load", path("initial.safetensors"), "--save", path("trained.safetensors"),
                "--iterations", 1, "--lr", learning_rate, "--momentum", 0, "--json"))
            overall, worst, where = errors(initial, read_safetensors(path("trained.safetensors")), expected)
            result["ranks"]["1 rank" if count == 1 else f"{count} ranks, {plan}"] = {
                "loss": abs(output["losses"][0] - loss) / abs(loss), "gradients": overall, "worst": worst,
                "where": where}
            if plan == "searched" and splits_something(path("strategy.json")):
                break
    return result
