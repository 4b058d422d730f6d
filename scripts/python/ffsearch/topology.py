"""Device topologies: which devices there are, and which links join them."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from . import programs
from .files import JsonFile, PathLike, installed_file
from .programs import Folder


def device_names(data: Mapping[str, Any]) -> Tuple[str, ...]:
    """Names of the devices of a topology file."""
    nodes = data.get("nodes")
    if not nodes:
        return tuple(str(device["name"]) for device in data.get("devices", ()))
    prefix = nodes.get("name", "node")
    return tuple(f"{prefix}{node}.{device['name']}" for node in range(nodes["count"]) for device in nodes["devices"])


class Topology(JsonFile):
    """Devices and the links between them (docs/formats.md, `fftopology/1`)."""

    FORMAT = "fftopology/1"

    @classmethod
    def load(cls, path: PathLike) -> "Topology":
        """A topology file."""
        return cls._read(path)

    @classmethod
    def named(cls, name: str) -> "Topology":
        """One of the topologies that are installed with the programs, such as "local-cpu-2" or "dgx-h100-8"."""
        return cls.load(installed_file("topologies", name))

    @classmethod
    def preset(cls, name: str, nodes: int = 1, **flags: Any) -> "Topology":
        """Machines that are sold: "dgx-a100-40gb", "dgx-a100-80gb", "dgx-a800", "dgx-h100", "dgx-h800" or
        "hgx-h200".

        Args:
            name: name of the preset.
            nodes: number of machines.
            flags: more flags of `ffsearch topology`, such as gpus_per_node=4 or network_gb_per_s=25 (1e9 bytes/s).
        """
        return cls._made("--preset", name, "--nodes", nodes, *programs.flags_of(flags))

    @classmethod
    def detect(cls, cpu_ranks: Optional[int] = None, nodes: int = 1, **flags: Any) -> "Topology":
        """This machine, as `ffsearch topology` finds it.

        Args:
            cpu_ranks: devices of a machine without GPUs; default: one per NUMA node.
            nodes: number of such machines, joined by a network.
            flags: more flags of `ffsearch topology`, such as network_gb_per_s=12.5 (1e9 bytes/s).
        """
        return cls._made("--nodes", nodes, *programs.flags_of({"cpu_ranks": cpu_ranks, **flags}))

    @classmethod
    def calibrate(cls, ranks: int, mpirun: Sequence[str] = ("mpirun",)) -> "Topology":
        """CPU ranks and the links between them, measured by `mpirun -n RANKS ffexec --calibrate`; takes seconds.

        Args:
            ranks: number of ranks.
            mpirun: the launcher and its flags, such as ("mpirun", "--hostfile", "hosts").
        """
        folder = Folder()
        path = folder / "topology.json"
        programs.ffexec(ranks, "--calibrate", "--json", "--out", path, mpirun=mpirun)
        return cls(path, folder, "measured topology")

    @classmethod
    def _made(cls, *arguments: Any) -> "Topology":
        folder = Folder()
        path = folder / "topology.json"
        programs.ffsearch("topology", "--quiet", "--out", path, *arguments)
        return cls(path, folder, "topology of " + ("a preset" if "--preset" in arguments else "this machine"))

    @property
    def devices(self) -> Tuple[str, ...]:
        """Names of the devices; rank r of a training run is device r."""
        return device_names(self.data)

    def __repr__(self) -> str:
        count = len(self.devices)
        return f"<Topology {self.name}: {count} device{'s' if count != 1 else ''}>"
