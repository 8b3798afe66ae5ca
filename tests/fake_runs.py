"""Runs that do as they are told, and leave a file for each time they are run.

In a module of its own, so that worker processes find them.
"""

import os
import signal
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from dfrs.experiments.planned_runs import PlannedRun, RunKind, code_digest
from dfrs.experiments.spec import Study
from dfrs.model.errors import InputError
from dfrs.simulator.simulation import PolicyStoppedError

SCHEMA = {"number": pl.Int64, "what": pl.String, "seed": pl.Int64, "value": pl.Float64, "run": pl.String}
DIFFERENT = ("cell_s", "run")
"""Columns that differ when a run is repeated."""


@dataclass(frozen=True, kw_only=True)
class FakeScenario:
    """`directory` takes the files that tell what was run; with a file `fixed` in it, nothing fails any more."""

    number: int
    directory: Path = field(compare=False)
    broken: bool = False

    @property
    def name(self):
        return f"fake-{self.number}" + (" broken" if self.broken else "")

    @property
    def fixed(self):
        return (self.directory / "fixed").exists()

    def columns(self):
        return {"number": self.number}


@dataclass(frozen=True, kw_only=True)
class FakeConfiguration:
    """`what` happens to the runs of the scenarios in `at`, or of all; `seconds` pass before."""

    what: str = "value"
    label: str = "configuration"
    at: tuple[int, ...] = ()
    seconds: float = 0.0

    @property
    def name(self):
        return f"{self.what} at {self.at}"

    def columns(self):
        return {"what": self.what}


@dataclass(frozen=True, kw_only=True)
class Source:
    count: int
    directory: Path
    broken: tuple[int, ...] = ()
    name: str = "fake"

    def scenarios(self):
        return tuple(
            FakeScenario(number=k, directory=self.directory, broken=k in self.broken) for k in range(self.count)
        )


class FakeStudy(Study):
    kind = property(lambda _: FAKE)


def prepare(scenario):
    if scenario.broken and not scenario.fixed:
        raise InputError(f"{scenario.name}:\nthere is no such part")
    return scenario


def run(scenario, configuration, seed, save_in):
    mark = f"{scenario.number}.{configuration.label}.{os.getpid()}.{uuid.uuid4().hex}"
    (scenario.directory / mark).touch()
    time.sleep(configuration.seconds)
    if not configuration.at or scenario.number in configuration.at:
        _happen(scenario, configuration.what)
    if save_in is not None:
        save_in.mkdir(parents=True)
    return {"status": "complete", "seed": seed, "value": scenario.number / 7, "run": mark}


def _happen(scenario, what):
    once = scenario.directory / f"once.{scenario.number}"
    if what == "value" or scenario.fixed or (what == "kill once" and once.exists()):
        return
    if what.startswith("kill"):
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    raise {
        "ValueError": ValueError("a line\nand another"),
        "MemoryError": MemoryError("12 TiB"),
        "PolicyStoppedError": PolicyStoppedError("the policy ended its run", None),
        "SystemExit": SystemExit("a policy left"),
        "mute": MuteError(),
    }[what]


class MuteError(Exception):
    """Cannot even say what it is."""

    def __str__(self):
        raise RuntimeError("no words")


def warm(configuration):
    pass


FAKE = RunKind(name="fake", schema=SCHEMA, code=("experiments/planned_runs.py",), prepare=prepare, run=run, warm=warm)


def code():
    return code_digest(FAKE.code)


def planned(directory, count, *configurations, broken=(), alone=False):
    """FakeScenario by case. `directory` is made."""
    directory.mkdir(parents=True, exist_ok=True)
    scenarios = Source(count=count, directory=directory, broken=tuple(broken)).scenarios()
    return [
        PlannedRun(kind=FAKE, scenario=scenario, configuration=configuration, alone=alone)
        for scenario in scenarios
        for configuration in configurations or (FakeConfiguration(),)
    ]


def study(directory, count, *configurations, broken=()):
    """The same runs as a study."""
    directory.mkdir(parents=True, exist_ok=True)
    source = Source(count=count, directory=directory, broken=tuple(broken))
    return FakeStudy(name="fakes", sources=(source,), configurations=configurations or (FakeConfiguration(),))


def executed(directory):
    """How often each (number, label) was run."""
    return Counter(tuple(mark.split(".")[:2]) for mark in _marks(directory))


def pids(directory):
    """Of the processes that ran anything."""
    return {int(mark.split(".")[2]) for mark in _marks(directory)}


def _marks(directory):
    return [path.name for path in directory.iterdir() if path.name.count(".") == 3]


def same(store):
    """The results, but for what is otherwise each time, in an order of their own."""
    return store.results(FAKE).drop(DIFFERENT).sort("key")
