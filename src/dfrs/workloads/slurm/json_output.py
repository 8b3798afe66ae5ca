"""Accounting as `sacct --json` prints it.

Slurm 21.08 and 22.05 (OpenAPI dbv0.0.37 and 0.0.38) write plain numbers, null where one is unknown or infinite. Later
versions write `{"set": true, "infinite": false, "number": 7}`, and states as lists. Times are Unix time in seconds,
limits are in minutes, memory is in MiB where it was requested and in bytes where it was measured.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from dfrs.model.errors import InputError
from dfrs.workloads.clusters.records import shown
from dfrs.workloads.slurm.records import Accounting, Record, Step
from dfrs.workloads.slurm.values import MIB

_NO_VALUES = (0xFFFFFFFE, 0xFFFFFFFF)
"""What 32 bits say where a number is unknown (NO_VAL) or infinite (INFINITE)."""


class _Part:
    """A value somewhere in the document; `part["time"]["start"]` is a null where the path leads nowhere."""

    def __init__(self, value: object, where: str) -> None:
        self.value = value
        self.where = where

    def __getitem__(self, name: str) -> "_Part":
        values = cast("Mapping[str, object]", self.value) if isinstance(self.value, Mapping) else {}
        return _Part(values.get(name), f"{self.where}.{name}")

    def each(self) -> list["_Part"]:
        """The entries of a list; none of null. Raises InputError for what is neither."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.refusal("must be a list")
        return [_Part(value, f"{self.where}[{k}]") for k, value in enumerate(cast("list[object]", self.value))]

    def number(self) -> float | None:
        """A number of at least 0; None where it is unknown or infinite. Raises InputError."""
        value = self.value
        if isinstance(value, Mapping):
            wrapped = cast("Mapping[str, object]", value)
            value = wrapped.get("number") if wrapped.get("set") and not wrapped.get("infinite") else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self.refusal("must be a number of at least 0")
        return None if value in _NO_VALUES else float(value)

    def whole(self) -> int:
        """A whole number; 0 where it is unknown. Raises InputError."""
        number = self.number() or 0.0
        if not number.is_integer():
            raise self.refusal("must be a whole number")
        return int(number)

    def instant(self) -> float | None:
        """Unix time; None where it has not come."""
        return self.number() or None

    def text(self) -> str:
        """A text, or the first of a list of them; "" for null."""
        value: object = self.value
        if isinstance(value, list):
            value = cast("list[object]", value)[0] if value else None
        return "" if value is None else str(value)

    def seconds(self) -> float:
        """Of an object with seconds and microseconds."""
        return (self["seconds"].number() or 0.0) + (self["microseconds"].number() or 0.0) / 1e6

    def of_type(self, kind: str) -> float:
        """The count of a list of trackable resources that is of this type; 0 without one."""
        return next((part["count"].number() or 0.0 for part in self.each() if part["type"].value == kind), 0.0)

    def refusal(self, rule: str) -> InputError:
        return InputError(f"{self.where} = {shown(self.value)}: {rule}")


def read_json_accounting(path: Path, document: object) -> Accounting:
    """The records of a document. Raises InputError, naming field, value and rule."""
    jobs = _Part(document, str(path))["jobs"]
    if not isinstance(jobs.value, list):
        raise InputError(f"{path}: no list jobs: must be what sacct --json prints")
    records = tuple(_record(_Part(job.value, f"{path}: jobs[{k}]")) for k, job in enumerate(jobs.each()))
    return Accounting(source=str(path), name=path.stem, unix=True, records=records)


def _record(job: _Part) -> Record:
    time, tres = job["time"], job["tres"]
    number, submit = job["job_id"].whole(), time["submission"].instant()
    if not number:
        raise job["job_id"].refusal("must be the number of a job")
    if submit is None:
        raise time["submission"].refusal("must be an instant: every job was submitted")
    start, end = time["start"].instant(), time["end"].instant()
    if start is not None and end is not None and end < start:
        # A job that was cancelled before it started has no start, or in some versions one that never came.
        if tres["allocated"].of_type("cpu"):
            raise time["end"].refusal(f"must not be before start, {start:.0f}")
        start = None
    elapsed, limit = time["elapsed"].number(), time["limit"].number()
    nodes = job["allocation_nodes"].whole() or int(tres["allocated"].of_type("node"))
    memory = tres["requested"].of_type("mem") or tres["allocated"].of_type("mem")
    return Record(
        where=job.where,
        line=0,
        name=_name(job, number),
        number=number,
        state=job["state"]["current"].text().upper(),
        user=job["user"].text(),
        submit=submit,
        eligible=time["eligible"].instant(),
        start=start,
        end=end,
        elapsed_s=elapsed if elapsed is not None else (end or 0.0) - (start or 0.0),
        cpus=int(tres["allocated"].of_type("cpu")),
        nodes=nodes,
        limit_s=None if limit is None else limit * 60.0,
        requested=memory * MIB / nodes if memory and nodes else None,
        cpu_s=time["total"].seconds(),
        gpus=_gpus(tres["allocated"].each()),
        steps=[_step(step) for step in job["steps"].each()],
    )


def _name(job: _Part, number: int) -> str:
    """As `sacct` prints it in text."""
    array, task, het = job["array"]["job_id"].whole(), job["array"]["task_id"].number(), job["het"]["job_id"].whole()
    if array and task is not None:
        return f"{array}_{task:.0f}"
    return f"{het}+{job['het']['job_offset'].whole()}" if het else str(number)


def _gpus(resources: Iterable[_Part]) -> bool:
    return any(
        part["type"].value == "gres" and part["name"].text().startswith("gpu") and part["count"].number()
        for part in resources
    )


def _step(step: _Part) -> Step:
    nodes = max(step["nodes"]["count"].whole(), 1)
    return Step(
        start=step["time"]["start"].instant(),
        end=step["time"]["end"].instant(),
        nodes=nodes,
        tasks=max(step["tasks"]["count"].whole(), nodes),
        memory=step["tres"]["requested"]["max"].of_type("mem"),
        cpu_s=step["time"]["total"].seconds(),
    )
