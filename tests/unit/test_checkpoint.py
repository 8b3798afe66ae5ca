"""Simulations that save their state: the log once, and on a disk that is full."""

import errno
import os
from dataclasses import fields, replace

import numpy as np
import pytest

from dfrs.experiments import checkpoint, simulations
from dfrs.experiments.checkpoint import NAME, Checkpoint
from dfrs.experiments.simulations import SimulationTask, perform
from dfrs.model.errors import InputError
from dfrs.model.nodes import Condition, NodeChange
from dfrs.model.run import Penalty
from dfrs.policies.names import find_policy
from dfrs.runs.directory import FILES, read_run
from dfrs.simulator import simulation as simulator
from dfrs.simulator.simulation import Simulation, SimulationSettings
from tests.online_cases import random_workload

POLICY = "GreedyPM*/per=60/OPT=MIN/MVT=60"


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(simulations, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(simulator, "WATCHED", 1)


@pytest.fixture
def task(tmp_path):
    work = random_workload(1, jobs=40, spread_s=15.0)
    return SimulationTask(
        workload=work, policy=POLICY, settings=SimulationSettings(), directory=tmp_path / "run", bound=False
    )


def fresh(task):
    return Simulation(task.workload, find_policy(task.policy), task.policy, task.settings)


def stopped(task, jobs):
    """Ended in a moment, when so many jobs are done."""
    perform(task, watch=lambda done: done < jobs)
    return sorted(task.directory.glob("checkpoint-log-*"), key=lambda path: int(path.stem.rpartition("-")[2]))


def test_each_row_of_the_log_is_written_once(task):
    parts = stopped(task, 25)
    assert len(parts) > 5
    rows = sum(len(np.load(path)["time_s"]) for path in parts)
    assert not any("event_log_time_s" in name for name in np.load(task.directory / NAME))
    simulation = fresh(task)
    Checkpoint(task.directory, task.key).restore(simulation)
    assert len(simulation.state()["core_event_log_time_s"]) == rows == len(read_run(task.directory).events.time_s)


def test_parts_of_a_state_that_was_not_written_any_more_do_not_count(task):
    whole = fresh(task).run()
    parts = stopped(task, 10)
    (task.directory / f"checkpoint-log-{len(parts) + 1}.npz").write_bytes(b"half of it")
    run, _ = perform(task, resume=True)
    assert run.events.time_s.tolist() == whole.events.time_s.tolist()
    assert sorted(path.name for path in task.directory.iterdir()) == sorted(FILES)


def test_who_begins_anew_has_nothing_of_before(task):
    number = len(stopped(task, 25))
    assert number > len(stopped(task, 3))
    assert not (task.directory / f"checkpoint-log-{number}.npz").exists()


@pytest.mark.parametrize("content", [None, b"garbage"])
def test_a_part_that_is_lost_is_one_line(task, content):
    (first, *_) = stopped(task, 10)
    first.unlink() if content is None else first.write_bytes(content)
    with pytest.raises(InputError, match=r"log-1.npz: cannot be read: .*; remove .*checkpoint.npz to begin anew"):
        perform(task, resume=True)


def test_on_a_full_disk_a_run_goes_on_and_says_so_once(task, monkeypatch):
    def full(path, data):
        raise InputError(f"{path}: cannot write: {os.strerror(errno.ENOSPC)}")

    monkeypatch.setattr(checkpoint, "write_bytes", full)
    told = []
    run, _ = perform(task, tell=told.append)
    assert run.complete
    assert len(told) == 1
    assert "checkpoint-log-1.npz: cannot write: No space left on device; the run cannot be continued" in told[0]


def test_a_disk_that_is_full_for_a_while_costs_only_what_came_then(task, monkeypatch):
    whole, written = fresh(task).run(), checkpoint.write_bytes

    def now_and_then(path, data):
        now_and_then.count += 1
        if path.name == NAME and now_and_then.count % 3:
            raise InputError(f"{path}: cannot write: {os.strerror(errno.ENOSPC)}")
        written(path, data)

    now_and_then.count = 0
    monkeypatch.setattr(checkpoint, "write_bytes", now_and_then)
    perform(task, watch=lambda done: done < 20, tell=lambda _: None)
    monkeypatch.setattr(checkpoint, "write_bytes", written)
    saved = fresh(task)
    Checkpoint(task.directory, task.key).restore(saved)
    assert 0 < saved.done <= 20
    run, _ = perform(task, resume=True)
    assert run.events.time_s.tolist() == whole.events.time_s.tolist()


def test_a_state_without_any_row_is_continued(task):
    whole, simulation = fresh(task).run(), fresh(task)
    Checkpoint(task.directory, task.key).save(simulation)
    run, _ = perform(task, resume=True)
    assert run.events.time_s.tolist() == whole.events.time_s.tolist()


def test_the_state_of_an_earlier_form_is_one_line(task):
    task.directory.mkdir()
    np.savez(task.directory / NAME, key=np.array(task.key), **fresh(task).state())
    with pytest.raises(InputError, match=r"checkpoint.npz: cannot be read: .*parts.*; remove .*npz to begin anew"):
        perform(task, resume=True)


OTHER_SETTINGS = {
    "capacity": np.ones((2, 2)),
    "penalty": Penalty(seconds=1.0),
    "order": "submissions-first",
    "node_events": ((1.0, NodeChange(0, Condition.DOWN)),),
    "command_limit": 1,
    "pauses": "keep",
    "moves": "none",
    "hosts": ("a", "a"),
    "seed": 1,
}
NOT_OF_THE_RESULT = {"notes", "hardware"}
"""What is said of the workload, and what no task has."""


def test_with_any_other_setting_it_is_another_task(task):
    # Only jobs that stay on a host have a use for hosts.
    usual = SimulationSettings(moves="host", hosts=("a", "b"))
    assert {each.name for each in fields(SimulationSettings)} == OTHER_SETTINGS.keys() | NOT_OF_THE_RESULT
    others = [replace(usual, **{name: value}) for name, value in OTHER_SETTINGS.items()]
    others += [replace(usual, penalty=Penalty(**{each.name: 1.5})) for each in fields(Penalty)]
    keys = [replace(task, settings=settings).key for settings in (usual, *others)]
    assert len(set(keys)) == len(keys)
