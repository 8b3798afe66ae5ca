"""The books of where tasks are: by task and by node, and the jobs to which something has happened since.

They say what is known and decide nothing. The controller keeps them, and whoever runs the tasks.
"""

from collections.abc import Mapping

from dfrs.live.controller.records import Observation, TaskRecord
from dfrs.live.drivers.base import TaskId


class Whereabouts:
    """Which nodes, by number, have or may have which tasks: `TaskRecord.at` seen from both sides."""

    def __init__(self) -> None:
        self.dirty: set[int] = set()
        """Jobs of which something new is known."""
        self.unsettled: set[int] = set()
        """Jobs of which nodes may have to be told something new."""
        self._tasks_on: dict[int, dict[TaskId, TaskRecord]] = {}

    def on(self, number: int) -> Mapping[TaskId, TaskRecord]:
        """Tasks that a node has or may have, as the books stand: copy them before you `put` or `drop`."""
        return self._tasks_on.get(number, {})

    def put(self, task: TaskRecord, number: int) -> Observation:
        """The node has it or may have it; what it last said of it."""
        observation = task.at.setdefault(number, Observation())
        self._tasks_on.setdefault(number, {})[task.id] = task
        return observation

    def drop(self, task: TaskRecord, number: int) -> None:
        """The node does not have it."""
        task.at.pop(number, None)
        self._tasks_on.get(number, {}).pop(task.id, None)
        self.touch(task.id.job)

    def touch(self, job: int) -> None:
        """Look at the job again, and see what its nodes have to be told."""
        self.dirty.add(job)
        self.unsettled.add(job)
