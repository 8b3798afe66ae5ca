"""Views of tasks on nodes that were kept are those that are made anew, and are forgotten with their tasks."""

import numpy as np

from dfrs.live.controller import node_views
from dfrs.live.controller.node_views import TaskViews, node
from dfrs.live.controller.views import Present
from dfrs.live.drivers.base import TaskState
from dfrs.testing import make_controller
from tests.live_states import Clock, fill


def all_nodes(state, kept):
    present = Present(state)
    return [node(state, record, present, kept) for record in state.nodes]


def change(state, rng):
    """Something of one job or task is otherwise."""
    placed = [job for job in state.jobs.values() if job.tasks]
    job = placed[int(rng.integers(len(placed)))]
    task = job.tasks[int(rng.integers(len(job.tasks)))]
    kind = int(rng.integers(8))
    if kind == 0:
        task.used_cores = None if rng.random() < 0.3 else float(rng.random())
    elif kind == 1:
        job.paused = not job.paused
    elif kind == 2:
        job.yield_ = float(rng.random())
    elif kind == 3:
        job.placed = not job.placed
    elif kind == 4:
        job.request = job.request.model_copy(update={"name": f"other-{rng.integers(9)}"})
    elif kind == 5:
        job.attempt += 1
    elif kind == 7:
        more = {"memory_bytes": int(rng.integers(1, 99)) << 20, "resources": {"gpu": int(rng.integers(3))}}
        job.request = job.request.model_copy(update=more)
    elif task.at:
        where = next(iter(task.at))
        state.placement.whereabouts.drop(task, where)
        other = int(rng.integers(len(state.nodes)))
        state.placement.whereabouts.put(task, other).state = TaskState.RUNNING
        task.target = other


def test_kept_views_are_those_made_anew(tmp_path):
    controller = make_controller(tmp_path, clock=Clock())
    controller.database.close()
    state, rng = controller.state, np.random.default_rng(2)
    fill(state, rng, 60, 5)
    kept, seen = TaskViews(state), set()
    for _ in range(400):
        shown = all_nodes(state, kept)
        assert shown == all_nodes(state, TaskViews(state))
        for each in shown:
            requests = [state.jobs[task.job].request for task in each.tasks]
            held = sum(state.memory_bytes(request) for request in requests)
            assert each.memory_free_bytes == max(0, each.memory_bytes - held)
            gpus = sum(request.resources.get("gpu", 0) for request in requests)
            assert each.resources_used.get("gpu", 0) == gpus
        seen |= {task for node in shown for task in node.tasks}
        change(state, rng)
    assert len(seen) > 200


def test_views_of_tasks_that_are_gone_are_forgotten(tmp_path, monkeypatch):
    controller = make_controller(tmp_path, clock=Clock())
    controller.database.close()
    state = controller.state
    fill(state, np.random.default_rng(2), 60, 5)
    kept = TaskViews(state)
    tasks = [task for node in all_nodes(state, kept) for task in node.tasks]
    assert len(tasks) > 20
    for job in list(state.jobs.values()):
        for task in job.all_tasks:
            for number in list(task.at):
                state.placement.whereabouts.drop(task, number)
    monkeypatch.setattr(node_views, "MOST_GONE", 10)
    kept.forget_gone()
    assert not kept._kept
