"""`dfrs rebalance --apply` and `--watch`: carry a plan out on libvirt hosts, once or again and again."""

import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

import typer

from dfrs.cli.console import err, out, print_json
from dfrs.cli.quantities import show_seconds
from dfrs.model.errors import DfrsError
from dfrs.rebalancing.mover import Execution, Migration, Mover, Stop, carry_out
from dfrs.rebalancing.solve import cpu_shares, migrations

if TYPE_CHECKING:
    from dfrs.placement.budget import Budget
    from dfrs.placement.plan import Plan
    from dfrs.rebalancing.virsh_mover import VirshMover
    from dfrs.rebalancing.watch import Watcher
    from dfrs.workloads.clusters.state import ClusterState


FAILED, INTERRUPTED = 1, 130


def apply_moves(moves: Sequence[Migration], mover: Mover, *, quiet: bool) -> Execution:
    """Carry moves out, with a line for each on standard output unless `quiet`.

    Ctrl-C begins nothing more and waits for what runs; once more, and each time after, that is aborted. Where a line
    cannot be written the moves go on; how they ended is then told on standard error, and that error raised.
    """
    begun: dict[Migration, float] = {}
    lost: list[OSError | SystemExit] = []

    def told(what: str, move: Migration, why: str) -> None:
        if what == "begins":
            begun[move] = time.monotonic()
        if quiet or lost or what == "begins":
            return
        took = f" in {show_seconds(time.monotonic() - begun[move])}" if move in begun else ""
        words = {"done": f"moved{took}", "skipped": "is there already", "failed": f"failed{took}: {why}"}
        try:
            out.print(f"{move.machine}: {move.source} to {move.target}: {words[what]}", markup=False, soft_wrap=True)
        except (OSError, SystemExit) as error:
            # Amid a plan machines may be where they are not to stay: it goes on to its end, untold.
            lost.append(error)

    stop = Stop()
    with _interrupts(stop):
        execution = carry_out(moves, mover, stop=stop, told=told)
    if lost:
        with told_anyhow(execution):
            raise lost[0]
    return execution


@contextmanager
def told_anyhow(execution: Execution | None) -> Generator[None]:
    """For what tells of an execution on standard output: where that fails it is told on standard error."""
    from dfrs.cli.rebalancing.view import show_execution

    try:
        yield
    except (OSError, SystemExit):
        if execution is not None:
            show_execution(execution, err)
        raise


@contextmanager
def _interrupts(stop: Stop) -> Generator[None]:
    def asked(_number: int, _frame: FrameType | None) -> None:
        again = stop.ask() > 1
        waiting = "waiting for the migrations that run; Ctrl-C again aborts them"
        # The same Ctrl-C may have ended whoever reads this.
        with suppress(OSError, SystemExit):
            err.print("aborting the migrations that run" if again else waiting, style="yellow")

    before = signal.signal(signal.SIGINT, asked)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def tell_left(lines: Sequence[str]) -> None:
    """Say on standard error what is left to do: standard output is a script or a document, which nobody may read."""
    for line in lines:
        err.print(f"dfrs: {line}", markup=False, soft_wrap=True)


def raise_for(plan: "Plan", execution: Execution | None) -> None:
    """End with the status of a failure where an execution did not complete, or the plan leaves machines behind."""
    if execution is not None and not execution.complete:
        raise typer.Exit(INTERRUPTED if execution.failure == "interrupted" else FAILED)
    if not plan.complete:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Looks at a cluster again and again, and acts where it pays."""

    read: "Callable[[], ClusterState]"
    watcher: "Watcher"
    budget: "Budget"
    every_s: float
    times: int | None
    """How often; None: until interrupted."""
    mover: "Callable[[ClusterState], VirshMover] | None"
    """Without one, plans are only shown."""
    as_json: bool
    shares: bool = False
    """Whether CPU shares are set after moves."""

    def run(self) -> None:
        """Look, decide, act, wait. A look that fails is told and does not end it.

        Raises typer.Exit after Ctrl-C, and at the end if a plan left machines behind or was not carried out to its end.
        """
        looked, complete = 0, True
        while self.times is None or looked < self.times:
            began = time.monotonic()
            try:
                complete = self._look() and complete
            except DfrsError as error:
                if looked == 0:
                    raise
                err.print(f"dfrs: {error}", markup=False, soft_wrap=True)
            looked += 1
            if self.times is None or looked < self.times:
                time.sleep(max(0.0, began + self.every_s - time.monotonic()))
        if not complete:
            raise typer.Exit(FAILED)

    def _look(self) -> bool:
        """Look, decide, act; False where a plan leaves machines behind or was not carried out to its end."""
        from dfrs.cli.rebalancing.view import rebalancing_document, show_execution, show_rebalancing

        state = self.read()
        verdict = self.watcher.decide(state.instance, state.present, time.monotonic())
        # What is promised, and the shares with which it is kept, are of the demand that the plan is made for.
        state = replace(state, instance=verdict.instance)
        found = verdict.rebalancing
        if not self.as_json:
            now = "requirements do not fit" if verdict.now_yield is None else f"minimum yield {verdict.now_yield:.4f}"
            at = time.strftime("%H:%M:%S")
            out.print(f"{at} {verdict.kind}: {now}; {verdict.why}", markup=False, soft_wrap=True)
            if found is not None:
                show_rebalancing(state, found, self.budget, title=False)
        mover = self.mover(state) if self.mover else None
        execution = None
        if mover is not None and found is not None and found.plan is not None:
            execution = apply_moves(migrations(state.instance, found.plan), mover, quiet=self.as_json)
        with told_anyhow(execution):
            if self.as_json:
                document: dict[str, object] = {"time": time.time(), "kind": verdict.kind, "why": verdict.why}
                document |= {"minimum_yield_now": verdict.now_yield}
                if found is not None:
                    document["rebalancing"] = rebalancing_document(state, found, self.budget, execution)
                print_json(document)
            elif execution is not None:
                show_execution(execution)
        if execution is not None and execution.failure == "interrupted":
            raise typer.Exit(INTERRUPTED)
        if self.shares and mover and found and execution and execution.complete:
            # What was moved is told before: a host that does not answer now must not hide it.
            mover.set_shares(cpu_shares(state.instance, found))
        planned = found is None or found.plan is None or found.plan.complete
        return planned and (execution is None or execution.complete)
