"""The log of users' commands on jobs: each one with its answer, in the order they came ([Kumar2011] section III-C)."""

from collections.abc import Mapping

import numpy as np

from dfrs.engine.events import Change
from dfrs.model.elastic import LEAST_S, Answer, Answers, CommandKind
from dfrs.model.instance import Floats, Ints

_COLUMNS = {
    "time_s": "f8",
    "job_id": "i8",
    "kind": "i8",
    "amount": "f8",
    "answer": "i8",
    "change_s": "f8",
    "change_tasks": "i8",
}


def change_time(job: np.void, command: Change) -> tuple[Answer, float]:
    """Change a job's record by a command ET or RT: its answer, and by how much the processing time is to change.

    By the estimate, where there is one; what becomes of the processing time is known to who runs the job.
    """
    estimate_s = float(job["estimate_s"])
    change_s = command.amount if command.kind is CommandKind.ET else -command.amount
    least_s = max(min(estimate_s, LEAST_S), float(job["virtual_s"]))
    job["estimate_s"] = after_s = max(estimate_s + change_s, min(least_s, estimate_s))
    return (Answer.CUT if after_s > estimate_s + change_s else Answer.GRANTED), change_s


class AnswerLog:
    """Grows by one row a command."""

    def __init__(self) -> None:
        self._rows: list[list[float]] = []

    def add(self, time_s: float, command: Change, answer: Answer, change_s: float, change_tasks: int) -> None:
        """What became of a command."""
        self._rows.append([time_s, command.job_id, command.kind, command.amount, answer, change_s, change_tasks])

    @property
    def last(self) -> Answer:
        """The answer to the last command."""
        return Answer(int(self._rows[-1][4]))

    def settle(self, change_s: float) -> None:
        """The last command changed the processing time by so much: whoever runs the job knows it, the core does not."""
        row = self._rows[-1]
        row[5] = change_s
        row[4] = Answer.CUT if row[2] == CommandKind.RT and change_s > -row[3] else Answer.GRANTED

    def answers(self) -> Answers:
        """All rows so far, as a copy."""
        return Answers(**self.state())  # type: ignore[arg-type]

    def state(self) -> dict[str, Floats | Ints]:
        """Everything, as arrays, for `restore`."""
        return {name: np.array([row[k] for row in self._rows], kind) for k, (name, kind) in enumerate(_COLUMNS.items())}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        self._rows = [list(row) for row in zip(*(state[name].tolist() for name in _COLUMNS), strict=True)]
