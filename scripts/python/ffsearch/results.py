"""What the programs answer, as typed values. Times are in milliseconds, sizes in bytes; `raw` has all fields of the
program's JSON under their own names and in their own units (docs/json-output.md)."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Tuple


def ms(us: Optional[float]) -> Optional[float]:
    return None if us is None else us / 1000


class Text:
    """A result that has the program's own text: str() and notebooks show it."""

    text: Callable[[], str]

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Prediction:
    """What one training iteration takes, as simulated.

    Attributes:
        predicted_ms: iteration time.
        predicted_fifo_ms: iteration time if each device runs its tasks as soon as they are ready; None where it was not
            simulated.
        samples_per_s: samples per second.
        memory_bytes: bytes needed, by device.
        fits_memory: False if a device's memory is exceeded.
        transfer_bytes: bytes per iteration between operators.
        synchronization_bytes: bytes per iteration for gradients, parameters and statistics.
        compute_ms: time of all compute tasks, summed over the devices.
        micro_batches: micro-batches per iteration.
        tasks: tasks of the task graph.
        costs: number of compute tasks by the source of their time: "profile", "measured", "analytic".
        raw: all fields, as the program prints them.
    """

    predicted_ms: float
    predicted_fifo_ms: Optional[float]
    samples_per_s: float
    memory_bytes: Tuple[int, ...]
    fits_memory: bool
    transfer_bytes: int
    synchronization_bytes: int
    compute_ms: float
    micro_batches: int
    tasks: int
    costs: Dict[str, int]
    raw: Dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, data: Mapping[str, Any], batch: int) -> "Prediction":
        return cls(data["predicted_us"] / 1000, ms(data["predicted_fifo_us"]), batch / data["predicted_us"] * 1e6,
                   tuple(data["memory_bytes"]), data["fits_memory"], data["transfer_bytes"],
                   data["synchronization_bytes"], data["compute_us"] / 1000, data["micro_batches"], data["tasks"],
                   dict(data["costs"]), dict(data))


@dataclass(frozen=True)
class SearchStatistics:
    """How a plan was found.

    Attributes:
        algorithm: name of the algorithm.
        note: what it did, such as the start of the best chain.
        seed: seed of the random choices.
        proposals: strategies that were proposed.
        accepted: how many of them were accepted.
        elapsed_s: seconds, with baselines.
        ended: why the search ended.
        lower_bound_ms: no strategy of the search space takes less.
        chain_hash: equal for equal searches.
    """

    algorithm: str
    note: str
    seed: int
    proposals: int
    accepted: int
    elapsed_s: float
    ended: str
    lower_bound_ms: float
    chain_hash: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "SearchStatistics":
        return cls(data["algorithm"], data["note"], data["seed"], data["proposals"], data["accepted"], data["total_s"],
                   data["ended"], data["lower_bound_us"] / 1000, data["chain_hash"])


@dataclass(frozen=True)
class Configuration:
    """How an operator, or a group of similar ones, is split.

    Attributes:
        degrees: number of parts by dimension, such as {"sample": 2}; a dimension that is not there is not split.
        devices: device of each part.
    """

    degrees: Dict[str, int]
    devices: Tuple[int, ...]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Configuration":
        return cls(dict(data.get("degrees", {})), tuple(data["devices"]))


@dataclass(frozen=True)
class Change:
    """A group of operators whose configuration an edit changed.

    Attributes:
        what: the group, as the plan's text names it.
        operators: its operators.
        before: its configuration before the edit.
        after: its configuration after the edit.
    """

    what: str
    operators: Tuple[str, ...]
    before: Configuration
    after: Configuration

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Change":
        return cls(data["what"], tuple(data["operators"]), Configuration.of(data["before"]),
                   Configuration.of(data["after"]))


@dataclass(frozen=True)
class PathPiece:
    """A piece of the critical path.

    Attributes:
        what: operators.
        kind: kind of task, such as "forward", "backward", "synchronization".
        link: kind of link, or "".
        begin_ms: start in the iteration.
        ms: time.
        tasks: number of tasks.
        waited_for_ms: time by what the piece waited for: "data", "device busy", "link busy".
    """

    what: str
    kind: str
    link: str
    begin_ms: float
    ms: float
    tasks: int
    waited_for_ms: Dict[str, float]


@dataclass(frozen=True)
class Decision:
    """A group of operators that differs from data parallelism.

    Attributes:
        what: the group, as the plan's text names it.
        operators: its operators.
        configuration: how it is split.
        data_parallel: how data parallelism splits it.
        predicted_ms: iteration time if this decision alone is undone.
        change_ms: by how much that is longer.
    """

    what: str
    operators: Tuple[str, ...]
    configuration: Configuration
    data_parallel: Configuration
    predicted_ms: float
    change_ms: float


@dataclass(frozen=True)
class WhatIf:
    """The same plan after a change of the machine or the batch.

    Attributes:
        what_if: the change, as it was asked for.
        predicted_ms: iteration time.
        change_ms: by how much that is longer.
        samples_per_s: samples per second.
        fits_memory: False if a device's memory is exceeded.
    """

    what_if: str
    predicted_ms: float
    change_ms: float
    samples_per_s: float
    fits_memory: bool


@dataclass(frozen=True)
class Explanation(Text):
    """Why a plan takes as long as it does (docs/explanations.md). print() shows it as text.

    Attributes:
        predicted_ms: iteration time.
        critical_path: the chain of tasks that determines the iteration time, in order.
        kinds: time in ms on the critical path by kind of task and link.
        decisions: what differs from data parallelism.
        data_parallel_ms: iteration time of data parallelism on the same devices.
        what_if: answers to what was asked.
        memory: the fullest device, and what is in its memory at the peak (docs/json-output.md, "Explain").
        raw: all fields, as the program prints them.
    """

    predicted_ms: float
    critical_path: Tuple[PathPiece, ...]
    kinds: Dict[str, float]
    decisions: Tuple[Decision, ...]
    data_parallel_ms: Optional[float]
    what_if: Tuple[WhatIf, ...]
    memory: Dict[str, Any]
    raw: Dict[str, Any] = field(repr=False)
    text: Callable[[], str] = field(repr=False, compare=False)

    @classmethod
    def of(cls, data: Mapping[str, Any], text: Callable[[], str]) -> "Explanation":
        path = data["critical_path"]
        pieces = tuple(PathPiece(each["what"], each["kind"], each.get("link", ""), each["begin_us"] / 1000,
                                 each["us"] / 1000, each["tasks"],
                                 {name: us / 1000 for name, us in each["waited_for_us"].items()})
                       for each in path["pieces"])
        decisions = tuple(Decision(each["what"], tuple(each["operators"]), Configuration.of(each["configuration"]),
                                   Configuration.of(each["data_parallel"]), each["predicted_us"] / 1000,
                                   each["change_us"] / 1000) for each in data.get("decisions", ()))
        answers = tuple(WhatIf(each["what_if"], each["predicted_us"] / 1000, each["change_us"] / 1000,
                               each["samples_per_s"], each["fits_memory"]) for each in data.get("what_if", ()))
        baseline = data.get("data_parallel") or {}
        return cls(data["predicted_us"] / 1000, pieces, {name: us / 1000 for name, us in path["kinds"].items()},
                   decisions, ms(baseline.get("predicted_us")), answers, dict(data.get("memory", {})), dict(data), text)


@dataclass(frozen=True)
class PlanDifference:
    """A group of operators that two plans split differently.

    Attributes:
        what: the group, as the plans' texts name it.
        operators: its operators.
        a: how the first plan splits it.
        b: how the second plan splits it.
        predicted_ms: iteration time of the first plan with this difference alone, in FIFO order; None where settings
            differ.
        change_ms: by how much that is longer than the first plan.
    """

    what: str
    operators: Tuple[str, ...]
    a: Configuration
    b: Configuration
    predicted_ms: Optional[float]
    change_ms: Optional[float]


@dataclass(frozen=True)
class Diff(Text):
    """How two plans differ. print() shows it as text.

    Attributes:
        a_ms: iteration time of the first plan, in its own task order.
        b_ms: iteration time of the second plan.
        settings: what differs for the network as a whole, such as "micro-batches is 4 instead of 1".
        differences: the groups of operators that differ.
        raw: all fields, as the program prints them.
    """

    a_ms: float
    b_ms: float
    settings: Tuple[str, ...]
    differences: Tuple[PlanDifference, ...]
    raw: Dict[str, Any] = field(repr=False)
    text: Callable[[], str] = field(repr=False, compare=False)

    @classmethod
    def of(cls, data: Mapping[str, Any], text: Callable[[], str]) -> "Diff":
        differences = tuple(PlanDifference(each["what"], tuple(each["operators"]), Configuration.of(each["a"]),
                                           Configuration.of(each["b"]), ms(each.get("predicted_us")),
                                           ms(each.get("change_us"))) for each in data["differences"])
        return cls(data["a"]["predicted_us"] / 1000, data["b"]["predicted_us"] / 1000, tuple(data["settings"]),
                   differences, dict(data), text)


@dataclass(frozen=True)
class Export:
    """The nearest settings of a training framework. print() shows their text.

    Attributes:
        framework: "megatron", "torchtitan" or "deepspeed".
        text: its arguments or configuration file.
        settings: the same, as `plan_settings` writes them.
        not_there: what of the plan they cannot say.
        exact: whether they say all of it.
        predicted_ms: iteration time of the plan.
        settings_predicted_ms: iteration time of what the settings mean.
    """

    framework: str
    text: str
    settings: str
    not_there: Tuple[str, ...]
    exact: bool
    predicted_ms: float
    settings_predicted_ms: float

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Export":
        return cls(data["for"], data["text"], data["settings"], tuple(data["not_there"]), data["exact"],
                   data["predicted_us"] / 1000, data["settings_predicted_us"] / 1000)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SettingsPlan:
    """One plan of a transformer, by its degrees of parallelism.

    Attributes:
        settings: such as "tp=8,pp=4,dp=2,micro_batch=1,sharding=optimizer,recompute=none".
        predicted_ms: iteration time.
        memory_bytes: bytes on the device that needs the largest share of its memory.
        memory_share: that share.
        extrapolated: True if few of its micro-batches were simulated, from which the others follow.
        exact: True if the time is that of a simulation of all; else further micro-batches were taken to last as long as
            those before them, which was so but for 0.1 %.
    """

    settings: str
    predicted_ms: float
    memory_bytes: int
    memory_share: float
    extrapolated: bool
    exact: bool

    @property
    def values(self) -> Dict[str, str]:
        """The settings by their keys."""
        return dict(pair.split("=", 1) for pair in self.settings.split(","))


@dataclass(frozen=True)
class SettingsSearch:
    """The best settings of a transformer, and how they were found.

    Attributes:
        plans: the fastest that fit into device memory, the fastest first.
        settings: number of settings in the space.
        simulated: plans that were simulated.
        exceed_memory: settings that were found to exceed device memory.
        complete: False if the budget or Ctrl-C ended the search.
        elapsed_s: seconds.
        text: the best plan's arguments for a framework, if asked for; otherwise "".
        not_there: what of the best plan that framework cannot say.
        raw: all fields, as the program prints them.
    """

    plans: Tuple[SettingsPlan, ...]
    settings: int
    simulated: int
    exceed_memory: int
    complete: bool
    elapsed_s: float
    text: str
    not_there: Tuple[str, ...]
    raw: Dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "SettingsSearch":
        plans = tuple(SettingsPlan(each["settings"], each["predicted_us"] / 1000, each["memory_bytes"],
                                   each["memory_share"], each["extrapolated"], each["exact"]) for each in data["plans"])
        return cls(plans, data["settings"], data["simulated"], data["exceed_memory"], data["complete"],
                   data["elapsed_s"], data.get("text", ""), tuple(data.get("not_there", ())), dict(data))

    @property
    def best(self) -> SettingsPlan:
        """The fastest plan."""
        return self.plans[0]
