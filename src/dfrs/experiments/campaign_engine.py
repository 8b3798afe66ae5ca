"""Executes the runs of a campaign into a store: what is there is not run again, what is done is never lost.

Runs go to workers in pieces of one scenario each, long enough that handing them out costs little, short enough that
the workers end together. Results are written every few seconds.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dfrs.experiments.planned_runs import PlannedRun, RunKind, Work, failure, source_digest
from dfrs.experiments.runners import Done, InProcess, Runner
from dfrs.experiments.store import Store

PIECE_S = 3.0
"""Aimed at length of a piece: handing one out takes a few milliseconds."""
WRITE_EVERY_S = 5.0
_ROUNDS = 4
"""Pieces that each worker still gets when the pieces begin to be shorter."""
_LOOK_AGAIN_S = 0.5

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Of all runs: how many were in the store already, were executed now, and have failed at any time."""

    runs: int
    known: int
    executed: int
    failed: int


class CampaignEngine:
    """Executes runs by `runner` into `store`; with `keep_runs` runs are saved, too, if their kind saves any."""

    def __init__(
        self, store: Store, runner: Runner, advance: Advance = lambda _: None, *, keep_runs: bool = False
    ) -> None:
        self.store = store
        self.runner = runner
        self.advance = advance
        self.keep_runs = keep_runs
        self._spent: dict[str, tuple[float, int]] = {}
        """Seconds and number of the runs executed so far, by configuration."""
        self._ran = 0

    def run(self, runs: Sequence[PlannedRun], *, retry_failed: bool = False) -> Tally:
        """Execute the runs without a result; with `retry_failed` those that failed, and only these.

        Raises InputError where results cannot be written, and what a runner raises; what is done by then stays.
        """
        unique = list({run.key: run for run in runs}.values())
        kinds = {run.kind.name: run.kind for run in unique}
        for kind in kinds.values():
            # What a full disk did not take before.
            self.store.flush(kind)
        known = {name: self.store.known(kind) for name, kind in kinds.items()}
        wanted = [run for run in unique if self._wanted(run, known[run.kind.name], retry_failed)]
        there = sum(run.key in known[run.kind.name] for run in unique) - sum(
            run.key in known[run.kind.name] for run in wanted
        )
        self._ran = 0
        self.advance(len(unique) - len(wanted))
        for kind in kinds.values():
            for alone in (False, True):
                mine = [run for run in wanted if run.kind is kind and run.alone is alone]
                if mine:
                    self._run(kind, mine, InProcess() if alone else self.runner, retry_failed)
        failed = sum(known[run.kind.name].get(run.key, False) for run in unique)
        return Tally(runs=len(unique), known=there, executed=self._ran, failed=failed)

    def _wanted(self, run: PlannedRun, known: dict[str, bool], retry_failed: bool) -> bool:
        failed = known.get(run.key)
        if retry_failed:
            return failed is True
        if failed is False and (saved_runs := self._saved_runs(run.kind)) is not None:
            return not (saved_runs / run.key).is_dir()
        return failed is None

    def _saved_runs(self, kind: RunKind) -> Path | None:
        """Where runs of this kind are to be saved, if they are."""
        return self.store.saved_runs(kind) if self.keep_runs and kind.saves else None

    def _run(self, kind: RunKind, runs: list[PlannedRun], runner: Runner, retry_failed: bool) -> None:
        runner.start(runs)
        left = deque(runs)
        try:
            while left:
                others: list[PlannedRun] = []
                lost: list[PlannedRun] = []
                written_s = time.monotonic()
                for done in runner.map(self._pieces(kind, left, others, runner, retry_failed)):
                    took_s = self._take(kind, done, lost)
                    # The next piece may be as long as this one: what there is must not wait for it.
                    if time.monotonic() - written_s + took_s > WRITE_EVERY_S:
                        self.store.flush(kind)
                        written_s = time.monotonic()
                for run in lost:
                    self._isolated(run, runner)
                    self.store.flush(kind)
                self.store.flush(kind)
                left = deque(others)
                if left:
                    time.sleep(_LOOK_AGAIN_S)
        finally:
            self.store.flush(kind)
        self.store.merge(kind)

    def _pieces(
        self, kind: RunKind, left: deque[PlannedRun], others: list[PlannedRun], runner: Runner, retry_failed: bool
    ) -> Iterator[Work]:
        """Claimed runs. Those that another process has go to `others`."""
        while left:
            claimed: list[PlannedRun] = []
            aim_s, spent_s = self._aim_s(len(left), runner.workers), 0.0
            while left and (not claimed or (spent_s < aim_s and left[0].scenario == claimed[0].scenario)):
                run = left.popleft()
                if self.store.claim(run):
                    claimed.append(run)
                    spent_s += self._expected_s(run, aim_s)
                else:
                    others.append(run)
            known = self.store.known(kind)
            mine: list[PlannedRun] = []
            for run in claimed:
                if self._wanted(run, known, retry_failed):
                    mine.append(run)
                else:
                    self.store.release(run.key)
                    self.advance(1)
            if mine:
                yield self._work(mine)

    def _work(self, runs: list[PlannedRun]) -> Work:
        kind = runs[0].kind
        return Work(runs=tuple(runs), source=source_digest(kind.code), save_in=self._saved_runs(kind))

    def _expected_s(self, run: PlannedRun, aim_s: float) -> float:
        spent_s, count = self._spent.get(run.configuration.name, (0.0, 0))
        return spent_s / count if count else aim_s

    def _aim_s(self, left: int, workers: int) -> float:
        """How long the next piece shall be: shorter towards the end, so that workers end together."""
        if not self._spent:
            return PIECE_S
        mean_s = sum(spent_s for spent_s, _ in self._spent.values()) / sum(count for _, count in self._spent.values())
        return min(PIECE_S, left * mean_s / (_ROUNDS * workers))

    def _take(self, kind: RunKind, done: Done, lost: list[PlannedRun]) -> float:
        """Keep what is done; how many seconds it took."""
        if done.rows is None:
            lost += done.work.runs
            return 0.0
        took_s = 0.0
        self.store.add(kind, done.rows)
        for run, row in zip(done.work.runs, done.rows, strict=True):
            if isinstance(seconds := row["cell_s"], float):
                spent_s, count = self._spent.get(run.configuration.name, (0.0, 0))
                self._spent[run.configuration.name] = (spent_s + seconds, count + 1)
                took_s += seconds
        self._ran += len(done.rows)
        self.advance(len(done.rows))
        return took_s

    def _isolated(self, run: PlannedRun, runner: Runner) -> None:
        """Execute alone a run whose worker ended: if that worker ends too, the run is at fault."""
        for done in runner.map([self._work([run])]):
            rows = done.rows or [failure(run, "the process that ran it ended: was there too little memory?")]
            self.store.add(run.kind, rows)
            self._ran += 1
            self.advance(1)
