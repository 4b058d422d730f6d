"""Plans: searched, predicted, explained, changed, compared, saved, and trained with."""

from __future__ import annotations

import html
import json
import pathlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import programs
from .errors import FfsearchError, InputError
from .files import JsonFile, PathLike, copy_file, write_whole
from .graph import Graph
from .programs import Folder, Progress
from .results import (Change, Diff, Explanation, Export, Prediction, SearchStatistics, SettingsSearch)
from .topology import Topology, device_names

if TYPE_CHECKING:
    from .training import TrainingRun

# Which kernel times a prediction uses: a plan keeps them for its later predictions.
COST_FLAGS = ("cost", "profile")


class Plan(JsonFile):
    """A parallelization strategy for one graph on one topology (docs/formats.md, `ffstrategy/1`). Plans do not change:
    what changes one makes another.

    Attributes:
        weights: safetensors file with the parameters' initial values, or None.
        statistics: how the plan was found, or None if it was loaded or edited.
        changes: what the edit changed that made this plan; otherwise empty.
        interrupted: True if Ctrl-C ended the search; the plan is the best one until then.
        notes: what the program noted.
    """

    FORMAT = "ffstrategy/1"

    def __init__(self, path: pathlib.Path, folder: Folder, source: str, *, costs: Mapping[str, Any],
                 weights: Optional[pathlib.Path] = None, owner: Any = None,
                 prediction: Optional[Mapping[str, Any]] = None):
        super().__init__(path, folder, source)
        self._costs = dict(costs)
        self.owner = owner  # keeps the weights
        self.weights = weights
        self.statistics: Optional[SearchStatistics] = None
        self.changes: Tuple[Change, ...] = ()
        self.interrupted = False
        self.notes: Tuple[str, ...] = ()
        self._prediction = Prediction.of(prediction, self.batch) if prediction else None
        self._baselines_us: Optional[Dict[str, float]] = dict(prediction["baselines"]) if prediction else None

    @classmethod
    def load(cls, path: PathLike, weights: Union[None, PathLike, Graph] = None, **costs: Any) -> "Plan":
        """A strategy file.

        Args:
            path: the strategy file.
            weights: safetensors file with the parameters' initial values, or the graph that has them.
            costs: cost="auto", "measure", "profile" or "analytic", and profile=PATH: kernel times of predictions.
        """
        _expect_costs(costs)
        values = weights.weights if isinstance(weights, Graph) else pathlib.Path(weights) if weights else None
        return cls._read(path, costs=costs, weights=values, owner=weights)

    def save(self, path: PathLike, trace: Optional[PathLike] = None) -> None:
        """Writes the strategy file, for `mpirun ffexec --strategy`.

        Args:
            path: the strategy file.
            trace: the simulated iteration as a trace for Chrome or Perfetto.
        """
        super().save(path)
        if trace is not None:
            self.simulate(trace=trace)

    @property
    def name(self) -> str:
        """Name of the network."""
        return str(self.data["graph"]["name"])

    @property
    def graph(self) -> Graph:
        """The graph that the plan is for, with the parameters' initial values if the plan has them."""
        folder = Folder()
        path = folder / "graph.json"
        write_whole(path, json.dumps(self.data["graph"]))
        graph = Graph(path, folder, f"graph of {self.source}", self.weights)
        graph.owner = self
        return graph

    @property
    def topology(self) -> Topology:
        """The topology that the plan is for."""
        folder = Folder()
        path = folder / "topology.json"
        write_whole(path, json.dumps(self.data["topology"]))
        return Topology(path, folder, f"topology of {self.source}")

    @property
    def batch(self) -> int:
        """Samples per iteration, over all devices."""
        return int(self.data["graph"]["batch_size"])

    @property
    def devices(self) -> Tuple[str, ...]:
        """Names of the devices. Rank r of a training run is device r."""
        return device_names(self.data["topology"])

    @property
    def prediction(self) -> Prediction:
        """All that is predicted. A plan that was loaded or edited is simulated when this is first asked for."""
        if self._prediction is None:
            self._prediction = self.simulate()
        return self._prediction

    @property
    def predicted_ms(self) -> float:
        """Predicted time of one training iteration, in milliseconds."""
        return self.prediction.predicted_ms

    @property
    def samples_per_s(self) -> float:
        """Predicted samples per second."""
        return self.prediction.samples_per_s

    @property
    def memory_bytes(self) -> Tuple[int, ...]:
        """Bytes that are needed, by device."""
        return self.prediction.memory_bytes

    @property
    def baselines(self) -> Dict[str, float]:
        """Predicted iteration time in ms of each heuristic baseline that the search evaluated, in FIFO order. A plan
        that was loaded or edited has "data-parallel" alone."""
        if self._baselines_us is None:
            self._baselines_us = self.prediction.raw["baselines"]
        return {name: us / 1000 for name, us in self._baselines_us.items()}

    def simulate(self, topology: Optional[Topology] = None, **flags: Any) -> Prediction:
        """Predicts the iteration time anew.

        Args:
            topology: another topology with as many devices.
            flags: flags of `ffsearch simulate`, such as sharding="optimizer", trace="trace.json", cost="analytic".
        """
        done = self._run("simulate", "--strategy", self.path, *programs.flags_of({**self._costs, **flags}), "--json",
                         *(["--topo", topology.path] if topology else []), others=[topology])
        return Prediction.of(done.json(), self.batch)

    def explain(self, what_if: Union[str, Sequence[str]] = (), limit: int = 10, **flags: Any) -> Explanation:
        """Why the plan takes as long as it does: critical path, decisions, memory.

        Args:
            what_if: changes of machine or batch to predict, such as "link network bandwidth x2", "batch 128",
                "device 3 x0.5", "memory x2".
            limit: lines of each table of the text.
            flags: more flags of `ffsearch explain`.
        """
        questions = (what_if,) if isinstance(what_if, str) else tuple(what_if)
        arguments = ("explain", "--strategy", self.path, *programs.flags_of(
            {**self._costs, "what_if": questions, **flags}))
        data = self._run(*arguments, "--json").json()
        return Explanation.of(data, lambda: self._run(*arguments, "--limit", limit).output)

    def edit(self, *edits: str, **flags: Any) -> "Plan":
        """The plan with other configurations; `changes` says which.

        Args:
            edits: lines such as "layer*.attention: sample 4 x head 2", "fc1, fc2: channel 2 on 0-1",
                "fc1: whole on device 3" (docs/reference.md, "ffsearch edit"). Without devices ("on ...") the parts go
                to the first devices, one each.
            flags: cost flags.
        """
        folder = Folder()
        path = folder / self.path.name
        data = self._run("edit", "--strategy", self.path, *(_with_devices(edit) for edit in edits), "--out", path,
                         *programs.flags_of({**self._costs, **flags}), "--json").json()
        plan = Plan(path, folder, f"edited {self.source}", costs=self._costs, weights=self.weights, owner=self)
        plan.changes = tuple(Change.of(each) for each in data["changes"])
        return plan

    def diff(self, other: "Plan", limit: int = 10, **flags: Any) -> Diff:
        """How another plan of the same graph differs, and which differences matter.

        Args:
            other: the other plan.
            limit: lines of each table of the text.
            flags: cost flags.
        """
        arguments = ("diff", self.path, other.path, *programs.flags_of({**self._costs, **flags}))
        return Diff.of(self._run(*arguments, "--json", others=[other]).json(),
                       lambda: self._run(*arguments, "--limit", limit, others=[other]).output)

    def export(self, framework: str, **flags: Any) -> Export:
        """The nearest settings of a training framework; for transformers.

        Args:
            framework: "megatron", "torchtitan" or "deepspeed".
            flags: cost flags.
        """
        return Export.of(self._run("export", "--strategy", self.path, "--for", framework,
                                   *programs.flags_of({**self._costs, **flags}), "--json").json())

    def train(self, data: Any = None, **arguments: Any) -> "TrainingRun":
        """Trains with the plan: `mpirun -n RANKS ffexec`. Arguments as `ffsearch.train` has them after the plan."""
        from .training import train  # pylint: disable=import-outside-toplevel
        return train(self, data, **arguments)

    def summary(self, **flags: Any) -> str:
        """The plan as text: predicted time, memory, and one line for each group of operators."""
        return self._run("simulate", "--strategy", self.path, *programs.flags_of({**self._costs, **flags})).output

    def html(self, path: Optional[PathLike] = None, measured: Optional[PathLike] = None, **flags: Any) -> str:
        """The report of the plan: one HTML page without scripts (docs/explanations.md, "The report").

        Args:
            path: file to write.
            measured: trace of a training run (`Plan.train(trace=...)`), shown next to the prediction.
            flags: cost flags.
        """
        folder = Folder()
        page = folder / "plan.html"
        self._run("simulate", "--strategy", self.path, "--html", page, "--quiet",
                  *programs.flags_of({**self._costs, "measured": measured, **flags}))
        if path is not None:
            copy_file(page, path)
        return page.read_text(encoding="utf-8")

    def _run(self, *arguments: Any, others: Sequence[Optional[JsonFile]] = ()) -> programs.Finished:
        shown = dict(self._shown)
        for other in others:
            if other is not None:
                shown.update(other._shown)  # pylint: disable=protected-access
        return programs.ffsearch(*arguments, shown=shown)

    def __repr__(self) -> str:
        count = len(self.devices)
        text = f"<Plan {self.name} on {self.data['topology']['name']} ({count} device{'s' if count != 1 else ''})"
        if self._prediction:
            text += f": {self.predicted_ms:.3f} ms"
            if "data-parallel" in self.baselines:
                text += f", data parallelism {self.baselines['data-parallel']:.3f} ms"
        return text + (", interrupted>" if self.interrupted else ">")

    def _repr_html_(self) -> str:
        try:
            page = self.html()
        except FfsearchError as error:
            return f"<pre>{html.escape(repr(self))}\n{html.escape(error.message)}</pre>"
        return (f'<iframe srcdoc="{html.escape(page)}" title="{html.escape(self.name)}" '
                'style="width:100%;height:640px;border:1px solid #ddd"></iframe>')


def _with_devices(edit: str) -> str:
    """An edit without devices gets the first ones: one for each part."""
    operators, colon, split = edit.partition(":")
    words = split.split()
    if not colon or "on" in words or "whole" in words or "(" in split:
        return edit
    parts = 1
    for word in words:
        parts *= int(word) if word.isdigit() else 1
    return f"{operators}:{split.rstrip()} on 0-{parts - 1}" if parts > 1 else edit


def _expect_costs(costs: Mapping[str, Any]) -> None:
    for name in costs:
        if name not in COST_FLAGS:
            raise InputError(f'unknown argument "{name}"; known: {", ".join(COST_FLAGS)}')


def _as_file(value: Any, folder: Folder, name: str) -> Any:
    """A dictionary as the file that the program reads."""
    if not isinstance(value, Mapping):
        return value
    write_whole(folder / name, json.dumps(value))
    return folder / name


def _problem(graph: Graph, topology: Topology) -> "tuple[List[Any], Dict[str, str]]":
    for value, kind, made in ((graph, Graph, "from_torch"), (topology, Topology, "Topology.detect")):
        if not isinstance(value, kind):
            raise InputError(f"found a {type(value).__name__} where a {kind.__name__} is expected; {made} makes one")
    shown = {**graph._shown, **topology._shown}  # pylint: disable=protected-access
    return ["--graph", graph.path, "--topo", topology.path], shown


def _measured(graph: Graph, topology: Topology, flags: Mapping[str, Any],
              progress: Progress) -> "tuple[Optional[pathlib.Path], Tuple[str, ...]]":
    """A profile with the kernels that a search could ask for, measured on this machine, so that all later predictions
    have the same times; and notes. None: other costs were asked for, or this machine does not have the devices."""
    if flags.get("cost") not in (None, "auto") or flags.get("profile") is not None:
        return None, ()
    models = topology.data.get("device_models", {})
    if len(models) != 1:
        return None, ()
    key = json.dumps([models, flags.get("precision")], sort_keys=True)
    folder = graph.profiles.setdefault(key, Folder())
    chosen = {name: flags.get(name) for name in ("batch", "batch_per_device", "precision")}
    arguments, shown = _problem(graph, topology)
    try:
        done = programs.ffsearch("profile", *arguments, "--out", folder / "profile.json", *programs.flags_of(chosen),
                                 progress=progress, shown=shown)
    except FfsearchError:
        return None, ()  # the search has the same reason, or uses the analytic model
    if done.interrupted:
        raise KeyboardInterrupt
    return folder / "profile.json", done.notes


def search(graph: Graph, topology: Topology, *, budget: Union[None, str, float] = None,
           proposals: Optional[int] = None, seed: Optional[int] = None, algorithm: Optional[str] = None,
           batch: Optional[int] = None, progress: Progress = False, **flags: Any) -> Plan:
    """Searches for a plan with a short predicted iteration time.

    Ctrl-C ends the search with the best plan so far, whose `interrupted` is True. A second Ctrl-C ends it without one.

    If this machine has the devices, the kernels are measured first, once for each graph, and the plan keeps their
    times for its later predictions. Otherwise they come from the analytic model. `cost` and `profile` decide otherwise.

    Args:
        graph: the network.
        topology: the devices.
        budget: time limit, such as "30s" or seconds. Default: until nothing better is to be expected.
        proposals: number of proposals instead, for results that do not depend on the machine's speed.
        seed: seed of all random choices.
        algorithm: "mcmc" (the default), or another one (docs/algorithms.md).
        batch: samples per iteration, instead of the graph's.
        progress: True shows a progress line on stderr; a function is called with each line's text.
        flags: all other flags of `ffsearch`, with _ for -: micro_batches="auto", recompute=["layer*.ffn*"],
            sharding="optimizer", precision="bf16", cost="analytic", profile="profiles", annotations={...}.

    Raises:
        InputError: a file or flag is wrong; MachineError: the machine is at fault.
        KeyboardInterrupt: Ctrl-C before there was any plan.
    """
    folder = Folder()
    path = folder / f"{graph.name if isinstance(graph, Graph) else 'plan'}.json"
    arguments, shown = _problem(graph, topology)
    shown[str(folder.path) + "/"] = ""
    flags = {name: _as_file(value, folder, f"{name}.json") for name, value in flags.items()}
    own = {"budget": budget, "proposals": proposals, "seed": seed, "algorithm": algorithm, "batch": batch}
    measured, notes = _measured(graph, topology, {**own, **flags}, progress)
    if measured is not None:
        flags["profile"] = measured
    done = programs.ffsearch(*arguments, "--out", path, *programs.flags_of({**own, **flags}), "--json",
                             progress=progress, shown=shown)
    if not path.exists():
        raise KeyboardInterrupt
    costs = {name: flags[name] for name in COST_FLAGS if name in flags}
    found = done.json() if done.output.strip() else None
    plan = Plan(path, folder, f"plan of {graph.name}", costs=costs, weights=graph.weights, owner=graph,
                prediction=found)
    plan.interrupted, plan.notes = done.interrupted, notes + done.notes
    plan.statistics = SearchStatistics.of(found) if found else None
    return plan


def compare(graph: Graph, topology: Topology, *, progress: Progress = False,
            **flags: Any) -> Dict[str, Union[Prediction, str]]:
    """Runs each algorithm on one problem.

    Returns:
        By algorithm: its prediction, or the reason why it cannot be used.

    Args:
        graph: the network.
        topology: the devices.
        progress: as in `search`.
        flags: flags of `ffsearch compare`, such as budget="5s", cost="analytic".
    """
    arguments, shown = _problem(graph, topology)
    done = programs.ffsearch("compare", *arguments, *programs.flags_of(flags), "--json", progress=progress, shown=shown)
    batch = int(flags.get("batch") or 0) or graph.batch
    if flags.get("batch_per_device"):
        batch = int(flags["batch_per_device"]) * len(topology.devices)
    return {name: data["not_applicable"] if "not_applicable" in data else Prediction.of(data, batch)
            for name, data in done.json()["algorithms"].items()}


def plan_settings(graph: Graph, topology: Topology, *, settings: Union[None, str, Mapping[str, Any]] = None,
                  top: int = 10, budget: Union[None, str, float] = None, framework: Optional[str] = None,
                  progress: Progress = False, **flags: Any) -> SettingsSearch:
    """The best settings of a transformer on many devices: tensor, pipeline and data parallelism, micro-batches,
    sharding, recomputation (`ffsearch plan`).

    Args:
        graph: a transformer.
        topology: the devices.
        settings: what every plan has: {"tp": 8, "recompute": "full"} or "tp=8,recompute=full".
        top: number of plans to find.
        budget: time limit, such as "5m" or seconds.
        framework: "megatron", "torchtitan" or "deepspeed": also writes the best plan's arguments for it. In bf16, with
            analytic costs, times are predicted with its conventions.
        progress: as in `search`.
        flags: more flags of `ffsearch plan`, such as precision="bf16", optimizer="adamw", batch=1024,
            out="strategy.json".
    """
    arguments, shown = _problem(graph, topology)
    text = settings if settings is None or isinstance(settings, str) else ",".join(
        f"{key}={value}" for key, value in settings.items())
    own = {"settings": text or None, "top": top, "budget": budget, "for": framework}
    return SettingsSearch.of(programs.ffsearch("plan", *arguments, *programs.flags_of({**own, **flags}), "--json",
                                               progress=progress, shown=shown).json())


def profile(graph: Graph, topology: Topology, path: PathLike, *, progress: Progress = False, **flags: Any) -> None:
    """Measures each kernel that a search could ask for on this machine, into a profile file for profile=PATH.

    Args:
        graph: the network.
        topology: the devices.
        path: profile file; entries that it has are kept.
        progress: as in `search`.
        flags: more flags of `ffsearch profile`.
    """
    arguments, shown = _problem(graph, topology)
    programs.ffsearch("profile", *arguments, "--out", path, *programs.flags_of(flags), progress=progress, shown=shown)
