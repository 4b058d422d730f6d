"""Operator graphs: the network, and its parameters if there are any."""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from . import programs
from .errors import InputError
from .files import JsonFile, PathLike, copy_file, installed_file, write_whole
from .programs import Folder


@dataclass(frozen=True)
class GraphInput:
    """A tensor that comes from the data set.

    Attributes:
        name: its name; also that of its array in `Plan.train`.
        shape: sizes; the first one is the batch.
        dtype: "f32" or "i32".
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Initializer:
    """What an initializer of the ONNX model, a parameter or a buffer, has become.

    Attributes:
        name: its name in PyTorch.
        shape: its sizes.
        trained: whether it is trained.
        reason: why it is not trained; or the parameter in whose sum it is trained; otherwise "".
    """

    name: str
    shape: Tuple[int, ...]
    trained: bool
    reason: str = ""


@dataclass(frozen=True)
class ImportSummary:
    """What `ffsearch import` says.

    Attributes:
        nodes: ONNX nodes that were read.
        operators: operators that were written.
        parameters: numbers that are trained.
        initializers: parameters and buffers of the model, and what became of each.
        elapsed_s: seconds.
    """

    nodes: int
    operators: int
    parameters: int
    initializers: Tuple[Initializer, ...]
    elapsed_s: float

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "ImportSummary":
        found = data.get("initializers", {})
        trained = [Initializer(each["name"], tuple(each["shape"]), True, each.get("summand_of", ""))
                   for each in found.get("trained", ())]
        constant = [Initializer(each["name"], tuple(each["shape"]), False, each["reason"])
                    for each in found.get("constant", ())]
        return cls(data.get("nodes", 0), data["operators"], data["parameters"], tuple(trained + constant),
                   data.get("elapsed_s", 0.0))


class Graph(JsonFile):
    """A network: its operators, and its parameters' values if it was imported with them (docs/formats.md, `ffgraph/1`).

    Attributes:
        weights: safetensors file with the values of the parameters, or None: training starts from random ones.
        summary: what the import said, or None.
        notes: what the import noted.
    """

    FORMAT = "ffgraph/1"

    def __init__(self, path: pathlib.Path, folder: Folder, source: str, weights: Optional[pathlib.Path] = None,
                 summary: Optional[ImportSummary] = None, notes: Tuple[str, ...] = ()):
        super().__init__(path, folder, source)
        self.weights, self.summary, self.notes = weights, summary, notes
        self.owner: Any = None  # what keeps the weights
        self.profiles: Dict[str, Folder] = {}  # kernel times that searches have measured, by device model
        self.torch_loss: Optional[Callable[[Any, Dict[str, Any]], Any]] = None  # of from_torch, for check()

    @classmethod
    def load(cls, path: PathLike, weights: Optional[PathLike] = None) -> "Graph":
        """A graph file.

        Args:
            path: the graph file.
            weights: safetensors file with the parameters; default: the file that `save` writes, if it is there.
        """
        beside = pathlib.Path(path).with_suffix(".safetensors")
        if weights is not None and not os.path.exists(weights):
            raise InputError(f"{os.fspath(weights)}: No such file or directory")
        found = pathlib.Path(weights) if weights is not None else beside if beside.exists() else None
        return cls._read(path, weights=found.resolve() if found else None)

    @classmethod
    def named(cls, name: str) -> "Graph":
        """One of the graphs that are installed with the programs, such as "resnet50" or "gpt2-small"."""
        return cls.load(installed_file("graphs", name))

    @classmethod
    def from_onnx(cls, path: PathLike, batch: int, **flags: Any) -> "Graph":
        """An ONNX file, with its parameters (docs/onnx.md).

        Args:
            path: the ONNX file. For a PyTorch model use `from_torch`.
            batch: samples per iteration, over all devices.
            flags: flags of `ffsearch import`, such as loss="cross-entropy", like="names.txt", frozen=["mask"].
        """
        return cls._imported(path, pathlib.Path(path).stem, batch, flags, weights=True)

    @classmethod
    def from_config(cls, path: PathLike, batch: int, sequence: int) -> "Graph":
        """A language model's `config.json` of Hugging Face, without parameters.

        Args:
            path: the configuration file.
            batch: samples per iteration, over all devices.
            sequence: tokens per sample.
        """
        return cls._imported(path, "graph", batch, {"sequence": sequence}, weights=False)

    @classmethod
    def _imported(cls, path: PathLike, name: str, batch: int, flags: Mapping[str, Any], weights: bool,
                  shown: Mapping[str, str] = {}, notes: Tuple[str, ...] = ()) -> "Graph":  # noqa: B006
        folder = Folder()
        graph, tensors = folder / f"{name}.json", folder / f"{name}.safetensors"
        arguments = programs.flags_of({"batch": batch, **flags, "out": graph, "weights": tensors if weights else None})
        done = programs.ffsearch("import", path, *arguments, "--json", shown={str(folder.path) + "/": "", **shown})
        return cls(graph, folder, f"graph of {name}", tensors if weights else None, ImportSummary.of(done.json()),
                   notes + done.notes)

    def save(self, path: PathLike, weights: Union[bool, PathLike] = True) -> None:
        """Writes the graph file, and its parameters to a second file.

        Args:
            path: the graph file.
            weights: safetensors file for the parameters; True: `path` with the suffix ".safetensors"; False: none.
        """
        super().save(path)
        if weights is not False and self.weights is not None:
            copy_file(self.weights, pathlib.Path(path).with_suffix(".safetensors") if weights is True else weights)

    @property
    def inputs(self) -> Tuple[GraphInput, ...]:
        """The tensors that come from the data set, in order. `Plan.train` needs an array for each."""
        steps = {each["name"]: each.get("steps") for each in self.data["inputs"]}
        sizes = {each["name"]: tuple(self.batch if size == "batch" else size for size in each["shape"])
                 for each in self.data["inputs"]}
        return tuple(
            GraphInput(name, sizes[name][:1] + (steps[name],) + sizes[name][1:] if steps[name] else sizes[name],
                       dtype)
            for name, dtype in ((each["name"], each["dtype"]) for each in self.data["inputs"]))

    @property
    def operators(self) -> Tuple[str, ...]:
        """Names of the operators. Edits and annotations use them."""
        return tuple(each["name"] for each in self.data["operators"])

    @property
    def batch(self) -> int:
        """Samples per iteration, over all devices."""
        return int(self.data["batch_size"])

    @property
    def optimizer(self) -> Optional[Dict[str, Any]]:
        """The key `optimizer` of the file (docs/formats.md): type, learning_rate, betas and so on; None: SGD."""
        return self.data.get("optimizer")

    def with_optimizer(self, optimizer: Any) -> "Graph":
        """The same graph with an optimizer. Plans made from it train with it, and count its state as memory.

        Args:
            optimizer: "sgd", "adam" or "adamw"; the key `optimizer` of graph files as a dictionary, which may have
                clip_norm and schedule too; or an optimizer of torch.optim, whose settings are taken.
        """
        if isinstance(optimizer, str):
            settings: Dict[str, Any] = {"type": optimizer}
        elif isinstance(optimizer, Mapping):
            settings = dict(optimizer)
        else:
            from .pytorch import optimizer_settings  # pylint: disable=import-outside-toplevel
            settings = optimizer_settings(optimizer)
        data = dict(self.data)
        data.pop("optimizer", None)
        operators = data.pop("operators")
        folder = Folder()
        path = folder / self.path.name
        write_whole(path, json.dumps({**data, "optimizer": settings, "operators": operators}))
        graph = Graph(path, folder, self.source, self.weights, self.summary, self.notes)
        graph.owner, graph.torch_loss, graph.profiles = self, self.torch_loss, self.profiles
        return graph

    def __repr__(self) -> str:
        parameters = f", {self.summary.parameters:,} parameters" if self.summary else ""
        return f"<Graph {self.name}: {len(self.operators)} operators{parameters}, batch {self.batch}>"
