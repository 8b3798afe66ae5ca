"""The nodes of a Slurm cluster: from `scontrol show nodes` or `sinfo -N`, or so many that are equal."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from dfrs.model.errors import InputError
from dfrs.model.instance import Floats
from dfrs.model.jobs import MOST_NODES
from dfrs.workloads.files import read_text
from dfrs.workloads.slurm.values import MIB

FORMS = "what scontrol show nodes prints, or sinfo -N -o '%N|%c|%m'"

_SCONTROL = re.compile(r"(?:^|\s)(NodeName|CPUTot|RealMemory)=(\S*)")


@dataclass(frozen=True, kw_only=True, eq=False)
class SlurmNodes:
    """N nodes. The reference node has the most CPUs and the most memory that any of them has."""

    cpus: Floats
    """(N,) as Slurm counts them: cores, or hardware threads."""
    memory: Floats
    """(N,) bytes."""

    def __post_init__(self) -> None:
        if not (len(self.cpus) and self.cpus.max() > 0 and self.memory.max() > 0):
            raise InputError("the cluster: must have a node with CPUs, and one with memory")

    @classmethod
    def equal(cls, nodes: int, cpus: float, memory: float) -> Self:
        """So many nodes of that many CPUs and bytes. Raises InputError for more than a workload can have."""
        if nodes > MOST_NODES:
            raise InputError(f"nodes = {nodes}: must be at most {MOST_NODES}")
        return cls(cpus=np.full(nodes, cpus), memory=np.full(nodes, memory))

    @property
    def reference_cpus(self) -> float:
        """CPUs of the reference node."""
        return float(self.cpus.max())

    @property
    def reference_memory(self) -> float:
        """Bytes of the reference node."""
        return float(self.memory.max())

    @property
    def capacity(self) -> Floats:
        """(N, 2) CPU and memory as fractions of the reference node."""
        return np.stack([self.cpus / self.reference_cpus, self.memory / self.reference_memory], axis=1)

    def split(self) -> Self:
        """Each CPU as a node of its own, with its part of the node's memory; parts of CPUs are left out."""
        whole = np.floor(self.cpus + 1e-9).astype(np.int64)
        memory = np.repeat(self.memory / np.maximum(self.cpus, 1.0), whole)
        return type(self)(cpus=np.ones(len(memory)), memory=memory)


def read_nodes(path: Path) -> SlurmNodes:
    """The nodes of a file; each counts once, whatever its state. Raises InputError, naming line, field, value, rule."""
    text = read_text(path)
    found: dict[str, tuple[float, float]] = {}
    for line, name, cpus, memory in _scontrol(text) if "NodeName=" in text else _sinfo(path, text):
        # sinfo shows a node once for each of its partitions.
        found[name] = (_positive(path, line, name, "CPUs", cpus), _positive(path, line, name, "memory", memory) * MIB)
    if not found:
        raise InputError(f"{path}: no node: must be {FORMS}")
    return SlurmNodes(cpus=np.array([c for c, _ in found.values()]), memory=np.array([m for _, m in found.values()]))


def _scontrol(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, name, CPUs and memory in MiB of each node; "" for what is not said of it."""
    fields: dict[str, str] = {}
    begun = 0
    for number, line in enumerate(text.split("\n"), 1):
        for key, value in _SCONTROL.findall(line):
            if key == "NodeName":
                if fields:
                    yield begun, fields["NodeName"], fields.get("CPUTot", ""), fields.get("RealMemory", "")
                fields, begun = {}, number
            fields[key] = value
    if fields:
        yield begun, fields["NodeName"], fields.get("CPUTot", ""), fields.get("RealMemory", "")


def _sinfo(path: Path, text: str) -> Iterator[tuple[int, str, str, str]]:
    """The same of a table with a header; `sinfo -N -l` has a line with the date before that."""
    columns: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        cells = [cell.strip() for cell in line.split("|")] if "|" in line else line.split()
        if not columns:
            if "NODELIST" not in cells:
                continue
            columns = cells
            for name in ("CPUS", "MEMORY"):
                if name not in columns:
                    raise InputError(f"{path}:{number}: no column {name}: must be {FORMS}")
        elif cells and cells != [""]:
            named = dict(zip(columns, cells, strict=False))
            yield number, named["NODELIST"], named.get("CPUS", ""), named.get("MEMORY", "")


def _positive(path: Path, line: int, name: str, what: str, text: str) -> float:
    if any(mark in name for mark in "[],"):
        raise InputError(f"{path}:{line}: NODELIST = {name}: must be one node in each line: use sinfo -N")
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f'{path}:{line}: {what} of {name} = "{text}": must be a whole number above 0')
    return float(text)
