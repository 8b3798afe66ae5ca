"""Runs cells into a store: what is there is not run again, what is done is never lost.

Cells go to workers in pieces of one case each, long enough that handing them out costs little, short enough that the
workers end together. Results are written every few seconds.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    """Of so many cells: how many were there already, were run now, and failed (of all)."""

    cells: int
    kept: int
    run: int
    failed: int


class CampaignEngine:
    """Runs cells by `runner` into `store`; with `keep_runs` the runs themselves are kept too."""

    def __init__(
        self, store: Store, runner: Runner, advance: Advance = lambda _: None, *, keep_runs: bool = False
    ) -> None:
        self.store = store
        self.runner = runner
        self.advance = advance
        self.keep_runs = keep_runs
        self._spent: dict[str, tuple[float, int]] = {}
        """Seconds and number of the cells run so far, by entry."""
        self._ran = 0

    def run(self, cells: Sequence[PlannedRun], *, retry_failed: bool = False) -> Tally:
        """Run what has no result yet; with `retry_failed` what failed, and that alone.

        Raises InputError where results cannot be written, and what a runner raises; what is done by then is kept.
        """
        unique = list({cell.key: cell for cell in cells}.values())
        kinds = {cell.kind.name: cell.kind for cell in unique}
        for kind in kinds.values():
            # What a full disk did not take before.
            self.store.flush(kind)
        known = {name: self.store.known(kind) for name, kind in kinds.items()}
        wanted = [cell for cell in unique if self._wanted(cell, known[cell.kind.name], retry_failed)]
        kept = sum(cell.key in known[cell.kind.name] for cell in unique) - sum(
            cell.key in known[cell.kind.name] for cell in wanted
        )
        self._ran = 0
        self.advance(len(unique) - len(wanted))
        for kind in kinds.values():
            for alone in (False, True):
                mine = [cell for cell in wanted if cell.kind is kind and cell.alone is alone]
                if mine:
                    self._run(kind, mine, InProcess() if alone else self.runner, retry_failed)
        failed = sum(known[cell.kind.name].get(cell.key, False) for cell in unique)
        return Tally(cells=len(unique), kept=kept, run=self._ran, failed=failed)

    def _wanted(self, cell: PlannedRun, known: dict[str, bool], retry_failed: bool) -> bool:
        failed = known.get(cell.key)
        if retry_failed:
            return failed is True
        lacks_run = self.keep_runs and failed is False and not (self.store.runs(cell.kind) / cell.key).is_dir()
        return failed is None or lacks_run

    def _run(self, kind: RunKind, cells: list[PlannedRun], runner: Runner, retry_failed: bool) -> None:
        runner.start(cells)
        left = deque(cells)
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
                for cell in lost:
                    self._isolated(cell, runner)
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
        """Claimed cells. Those that another process has go to `others`."""
        while left:
            claimed: list[PlannedRun] = []
            aim_s, spent_s = self._aim_s(len(left), runner.workers), 0.0
            while left and (not claimed or (spent_s < aim_s and left[0].case == claimed[0].case)):
                cell = left.popleft()
                if self.store.claim(cell):
                    claimed.append(cell)
                    spent_s += self._expected_s(cell, aim_s)
                else:
                    others.append(cell)
            known = self.store.known(kind)
            mine: list[PlannedRun] = []
            for cell in claimed:
                if self._wanted(cell, known, retry_failed):
                    mine.append(cell)
                else:
                    self.store.release(cell.key)
                    self.advance(1)
            if mine:
                yield self._work(mine)

    def _work(self, cells: list[PlannedRun]) -> Work:
        kind = cells[0].kind
        keep = self.store.runs(kind) if self.keep_runs else None
        return Work(cells=tuple(cells), source=source_digest(kind.code), keep=keep)

    def _expected_s(self, cell: PlannedRun, aim_s: float) -> float:
        spent_s, count = self._spent.get(cell.entry.name, (0.0, 0))
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
            lost += done.work.cells
            return 0.0
        took_s = 0.0
        self.store.add(kind, done.rows)
        for cell, row in zip(done.work.cells, done.rows, strict=True):
            if isinstance(seconds := row["cell_s"], float):
                spent_s, count = self._spent.get(cell.entry.name, (0.0, 0))
                self._spent[cell.entry.name] = (spent_s + seconds, count + 1)
                took_s += seconds
        self._ran += len(done.rows)
        self.advance(len(done.rows))
        return took_s

    def _isolated(self, cell: PlannedRun, runner: Runner) -> None:
        """Run a cell whose worker ended with nothing beside it: if that ends again, it is the cell's fault."""
        for done in runner.map([self._work([cell])]):
            rows = done.rows or [failure(cell, "the process that ran it ended: was there too little memory?")]
            self.store.add(cell.kind, rows)
            self._ran += 1
            self.advance(1)
