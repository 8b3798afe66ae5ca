"""How jobs of Slurm's queue become jobs of the controller."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import structlog
from pydantic import ValidationError

from dfrs.live.backends.slurm.jobs_seen import JobsSeen
from dfrs.live.backends.slurm.marks import refusal
from dfrs.live.backends.slurm.needs import request_of, user_of
from dfrs.live.backends.slurm.port import Slurm
from dfrs.live.backends.slurm.records import SlurmJob
from dfrs.live.backends.slurm.scontrol import SlurmRefusedError
from dfrs.live.controller.control import Control
from dfrs.live.errors import TooManyError, UnavailableError
from dfrs.model.errors import InputError

TOGETHER = 100
"""Jobs that are written in one transaction or a few."""
MOST_REFUSED = 20
"""Jobs with a reservation that are told so after one look at Slurm."""
ADMIT_S = 2.0
"""After so long the next look at Slurm comes before more are taken in."""

log = structlog.get_logger("dfrs.slurm")


class Admission:
    """Takes in jobs that are held, and could start as far as Slurm is concerned."""

    def __init__(self, control: Control, slurm: Slurm, seen: JobsSeen) -> None:
        self._control = control
        self._slurm = slurm
        self._seen = seen
        self._refused: dict[str, str] = {}
        """Why jobs cannot be taken in, as their users were told; of reasons with numbers that change, the kind."""
        self._windows: dict[str, int] = {}
        """Of arrays: Slurm lists it with those tasks only that nobody has touched."""

    async def look(self, whole_bytes: int) -> None:
        """Take in what is new; a job that names no memory gets `whole_bytes`."""
        rows = self._seen.rows
        self._refused = {name: why for name, why in self._refused.items() if name in rows}
        await self._hold_released()
        reserved = (row for row in self._unknown() if row.held and row.reservation and row.id not in self._refused)
        why = "--reservation={}: dfrs starts jobs outside of reservations only"
        await self._refuse_all((row.id, "", why.format(row.reservation)) for row in islice(reserved, MOST_REFUSED))
        new, end_s = self._eligible(), asyncio.get_running_loop().time() + ADMIT_S
        for k in range(0, len(new), TOGETHER):
            if asyncio.get_running_loop().time() > end_s:
                return
            rows = new[k : k + TOGETHER]
            told = await asyncio.gather(*(self._admit(row, whole_bytes) for row in rows))
            await self._refuse_all((row.id, *each) for row, each in zip(rows, told, strict=True) if each is not None)

    def _eligible(self) -> Sequence[SlurmJob]:
        rows, now_s = self._seen.rows.values(), self._control.settings.clock()
        there = Counter(row.array for row in rows if row.array and self._takes_place(row))
        listed = {row.array for row in rows}
        self._windows = {array: window for array, window in self._windows.items() if array in listed}
        # Tasks that were touched say nothing of it; where the others say none, it was lifted.
        self._windows |= {row.array: row.window for row in rows if row.number == 0}
        found: list[SlurmJob] = []
        for row in sorted((row for row in self._unknown() if row.held), key=_in_queue):
            if row.dependency or row.reservation or row.eligible_s > now_s:
                continue
            window = self._windows.get(row.array, 0)
            if window:
                # Slurm would let no more of them run.
                if there[row.array] >= window:
                    continue
                there[row.array] += 1
            found.append(row)
        return found

    def _takes_place(self, row: SlurmJob) -> bool:
        """Whether a task takes one of the places of its array: not as long as it waits, and its user holds it."""
        job = self._control.jobs.get(self._control.arrived.get(row.id, 0))
        return job is not None and not (row.pending and job.held)

    def _unknown(self) -> Iterator[SlurmJob]:
        """Jobs in Slurm's queue that the controller does not know."""
        arrived, ending = self._control.arrived, self._seen.ending
        rows = self._seen.rows.values()
        return (row for row in rows if row.pending and row.id not in arrived and row.id not in ending)

    async def _hold_released(self) -> None:
        """What somebody released before it was taken in is held again: it starts when and where that is decided."""
        names = [row.id for row in self._unknown() if not row.held][:TOGETHER]
        if not names or not self._control.leads:
            return
        log.info("jobs that were not taken in yet are held again", jobs=names)
        try:
            await self._slurm.hold(names)
        except (SlurmRefusedError, UnavailableError) as error:
            # Some may have started meanwhile: the next look says which.
            log.warning("jobs cannot be held", why=str(error))
            return
        for name in names:
            self._seen.change(name, held=True)

    async def _admit(self, row: SlurmJob, whole_bytes: int) -> tuple[str, str] | None:
        """None, or why it cannot be: kind and text. The text of a quota changes with every look, its kind does not."""
        try:
            await self._control.submit(request_of(row, whole_bytes), user_of(row), row.id)
        except TooManyError as error:
            return "quota", str(error)
        except InputError as error:
            return "", str(error)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            return "", f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except UnavailableError as error:
            log.warning("a job cannot be taken in", job=row.id, why=str(error))
        return None

    async def _refuse_all(self, refused: Iterable[tuple[str, str, str]]) -> None:
        """Jobs, kinds and reasons: they stay held, and say why; with every look they are tried again."""
        if not self._control.leads:
            return
        by_text: dict[str, list[str]] = {}
        for name, kind, why in refused:
            if self._refused.get(name) != (kind or why):
                self._refused[name] = kind or why
                by_text.setdefault(why, []).append(name)
        for why, names in by_text.items():
            log.warning("jobs cannot be scheduled", jobs=names, why=why)
            try:
                await self._slurm.explain(names, refusal(why))
            except (SlurmRefusedError, UnavailableError) as error:
                log.warning("a reason cannot be written", jobs=names, why=str(error))


def _in_queue(row: SlurmJob) -> tuple[float, int, int]:
    """Jobs in the order in which they were submitted: squeue has those that wait the other way round, as a rule."""
    job, _, task = row.id.partition("_")
    return row.submit_s, int(job), int(task or 0)
