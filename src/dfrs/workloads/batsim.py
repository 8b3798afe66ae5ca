"""Workloads of Batsim, a simulator of schedulers, in its JSON format: `jobs`, `profiles` and `nb_res`.

A profile says what a job does. dfrs knows how long a job runs only if its profile is a delay, or a sequence of such:
what other profiles (floating-point operations, messages) take depends on a platform that is simulated. A file with a
job of such a profile is refused as a whole. Both the names of profile types since Batsim 5 and the older ones are read.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dfrs.model.errors import InputError
from dfrs.workloads.swf import COLUMNS, Swf
from dfrs.workloads.trace_warnings import TraceReport

DELAY = ("delay", "DelayProfile")
SEQUENCE = ("composed", "sequence", "SequentialCompositionProfile")
DEEPEST = 50
"""Sequences in sequences."""
MOST = 2**31
"""Resources of a job, and repetitions."""


def read_batsim(path: Path) -> Swf:
    """The jobs of a file as a trace: resources as processors, walltimes as requested times.

    Jobs keep their identifiers where all are whole numbers, and are numbered from 1 otherwise. Raises InputError,
    naming job, field, value and rule, where the file is not such a workload.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read as JSON: {reason}") from None
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise InputError(f"{path}: jobs: must be a list: is this a workload of Batsim?")
    profiles = document.get("profiles")
    if not isinstance(profiles, dict):
        raise InputError(f"{path}: profiles: must be an object: is this a workload of Batsim?")
    times = _Profiles(profiles)
    jobs = [_job(f"{path}: jobs[{k}]", job, times) for k, job in enumerate(document["jobs"])]
    if not jobs:
        raise InputError(f"{path}: jobs: must not be empty")
    names = [job.name for job in jobs]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"{path}: jobs: id = {name!r}: must be unique")
    header: list[str] = []
    if document.get("nb_res") is not None:
        header.append(f" MaxProcs: {_whole(f'{path}: nb_res', document['nb_res'])}")
    rest = {label: np.full(len(jobs), -1) for label in COLUMNS}
    known = {
        "job_id": np.array(_numbers(names)),
        "submit_s": np.array([job.submit_s for job in jobs]),
        "run_s": np.array([job.run_s for job in jobs]),
        "processors": np.array([job.resources for job in jobs]),
        "requested_processors": np.array([job.resources for job in jobs]),
        "requested_s": np.array([job.walltime_s for job in jobs]),
        "status": np.ones(len(jobs)),
    }
    report = TraceReport(source=str(path), lines=len(jobs))
    return Swf(**(rest | known), comments=tuple(header), name=path.stem, report=report)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    name: str
    submit_s: float
    resources: int
    walltime_s: float
    """-1 where there is none."""
    run_s: float


def _job(where: str, job: object, profiles: "_Profiles") -> _Job:
    if not isinstance(job, dict):
        raise InputError(f"{where}: must be an object")
    name, profile = job.get("id"), job.get("profile")
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise InputError(f"{where}: id = {name!r}: must be text or a whole number")
    where = f"{where} (id {name})"
    if not isinstance(profile, str):
        raise InputError(f"{where}: profile = {profile!r}: must be text")
    walltime = job.get("walltime")
    return _Job(
        name=str(name),
        submit_s=_number(f"{where}: subtime", job.get("subtime")),
        resources=_whole(f"{where}: res", job.get("res")),
        # Older files have -1 where there is no limit.
        walltime_s=-1.0 if walltime is None or walltime == -1 else _number(f"{where}: walltime", walltime),
        run_s=profiles.seconds(where, profile),
    )


class _Profiles:
    """How long jobs of each profile run; each is looked at once."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._known: dict[str, float] = {}

    def seconds(self, where: str, name: str, within: tuple[str, ...] = ()) -> float:
        """Of the profile of that name, which is a part of the sequences `within`."""
        if name not in self._known:
            self._known[name] = self._seconds(f"{where}: profile {name}", where, name, within)
        return self._known[name]

    def _seconds(self, here: str, where: str, name: str, within: tuple[str, ...]) -> float:
        profile = self._given.get(name)
        if not isinstance(profile, dict):
            raise InputError(f"{here}: there is no such profile")
        kind = profile.get("type")
        if isinstance(kind, str) and kind in DELAY:
            return _number(f"{here}: delay", profile.get("delay"))
        if not isinstance(kind, str) or kind not in SEQUENCE:
            raise InputError(f"{here}: type = {kind!r}: must be a delay or a sequence of delays: its time is not known")
        parts = profile.get("seq")
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise InputError(f"{here}: seq: must be a list of names")
        if name in within or len(within) == DEEPEST:
            raise InputError(f"{here}: seq: must not contain itself, nor sequences in more than {DEEPEST} others")
        repeat = _whole(f"{here}: repeat", profile.get("repeat", profile.get("nb", 1)))
        each = math.fsum(self.seconds(where, part, (*within, name)) for part in parts)
        return _number(f"{here}: time", repeat * each)


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        raise InputError(f"{where} = {value!r}: must be a number from 0 to 1e12")
    return float(value)


def _whole(where: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < MOST:
        raise InputError(f"{where} = {value!r}: must be a whole number above 0")
    return value


def _numbers(names: list[str]) -> list[int]:
    if all(len(name) < 16 and name.isascii() and name.isdigit() and str(int(name)) == name for name in names):
        return [int(name) for name in names]
    return list(range(1, len(names) + 1))
