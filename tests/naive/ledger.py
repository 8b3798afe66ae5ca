"""The account of jobs as a list of dicts, each with its list of nodes."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Rows = list[dict[str, Any]]
WAITING, RUNNING = 0, 1


def advance(jobs: Rows, then_s: float, now_s: float) -> Rows:
    def gained(job: dict[str, Any]) -> float:
        return job["yield_"] * job["speed"] * max(0.0, now_s - max(then_s, job["ready_s"]))

    return [
        job | {"virtual_s": job["virtual_s"] + gained(job)}
        if job["state"] == RUNNING and job["ready_s"] < now_s
        else job
        for job in jobs
    ]


def row_of(jobs: Rows, job_id: int) -> int:
    return next((r for r, job in enumerate(jobs) if job["id"] == job_id), -1)


def row_of_serial(jobs: Rows, serial: int) -> int:
    return next((r for r, job in enumerate(jobs) if job["serial"] == serial), -1)


def added(asked: dict[str, Any], serial: int, now_s: float) -> dict[str, Any]:
    counts = dict.fromkeys(("pauses", "migrations", "policy_state", "changes", "extensions"), 0)
    times = {"submit_s": now_s, "since_s": now_s, "start_s": math.nan, "ready_s": math.inf, "virtual_s": 0.0}
    return asked | counts | times | {"serial": serial, "state": WAITING, "yield_": 0.0, "speed": 1.0}


def set_column(jobs: Rows, column: str, values: dict[int, float]) -> Rows:
    return [job | {column: values.get(job["serial"], job[column])} for job in jobs]


def lose_node(jobs: Rows, at: Sequence[list[int]], node: int) -> tuple[Rows, list[list[int]], list[int]]:
    lost = [r for r, nodes in enumerate(at) if node in nodes]
    anew = {"state": WAITING, "yield_": 0.0}
    return (
        [job | anew if r in lost else job for r, job in enumerate(jobs)],
        [[-1] * len(nodes) if r in lost else nodes for r, nodes in enumerate(at)],
        lost,
    )


class ExactIntegral:
    """Virtual time of one job in exact fractions: told each change of its yield and of when it makes progress."""

    def __init__(self, now_s: float) -> None:
        self.total, self.then, self.rate, self.ready = Fraction(0), Fraction(now_s), Fraction(0), None

    def up_to(self, now_s: float) -> Fraction:
        now = Fraction(now_s)
        if self.ready is not None and now > max(self.then, self.ready):
            self.total += self.rate * (now - max(self.then, self.ready))
        self.then = now
        return self.total
