"""DFRS-FARM: fractional sharing of a heterogeneous cluster of unequal partitions by predicted speeds.

[Stillwell2010] chapter 5 on the cluster of [Atif2011].

A job's effective yield is its yield times its predicted relative speed where it is, 1 on the hardware that suits it
best; what DFRS does for the yield is done for that. Nothing is known of a job before it was profiled: until then its
speed counts as 1 everywhere, as it does where nodes are alike.

    DFRS-FARM[/PERIOD=SECONDS][/MVT=SECONDS]

A submitted job is placed greedily; where memory leaves no room, jobs of low priority give way, as under GreedyPM. On a
completion those that wait or are paused are placed greedily. Every period all are packed anew, and the packing is taken
if it is worth its migrations. What CPU is left over then raises the lowest effective yields first.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dfrs.kernels import farm_packing, farm_placing, farm_speeds, loads, repack
from dfrs.kernels.shares import fill
from dfrs.model.decisions import MEMORY, RUNNING, Cause, JobId, Reason, Snapshot, Target, Traits
from dfrs.model.instance import Bools, Floats, Ints
from dfrs.policies.declaration import Family, Name, Number, Option
from dfrs.policies.fractional.actions import MARGIN
from dfrs.policies.fractional.objective import next_multiple

NAME = "DFRS-FARM"
PERIOD_S = 600.0
MVT_S = 60.0
"""About what a migration costs a job of four processes ([Atif2011] 8): it must have been worth its present place."""
GAIN = 0.1
"""Part by which the least effective yield, or with the same least one the average, must improve for a repacking."""
NEAR = 0.05
"""Part of the best level found that may be given up so that those that run stay."""

SPARE = 1.1 + 1e-6
"""Memory required by a profile over memory declared, up to which the declaration is right."""

RULES = np.array(
    [
        (farm_packing.WHOLE, farm_packing.FASTEST, farm_packing.LEAST_LOADED),
        (farm_packing.REGRET, farm_packing.FASTEST, farm_packing.LEAST_LOADED),
        (farm_packing.LARGEST, farm_packing.FASTEST, farm_packing.BEST_FIT),
        (farm_packing.REGRET, farm_packing.FASTEST, farm_packing.COMPLEMENT),
        (farm_packing.WHOLE, farm_packing.EMPTIEST, farm_packing.LEAST_LOADED),
        (farm_packing.LARGEST, farm_packing.EMPTIEST, farm_packing.COMPLEMENT),
    ]
)
"""What packs: any of them (`dfrs.kernels.farm_packing`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """What a snapshot says about speeds, as the kernels take it."""

    site: farm_speeds.Site
    speed: Floats
    """(R, C, 2) relative speeds, 1 for the best and where nothing is known."""
    memory: Floats
    """(R,) of a task: what it declared, or what it is known to want if that is more and some partition has it."""
    best: Floats
    """(R,) the best relative speed that a packing can give the row by itself; 0 where it must stay, or wait."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Outlook":
        """What the snapshot says."""
        view = snapshot.hardware
        site = (view.partition, view.machine, snapshot.capacity, snapshot.open)
        speed = np.empty(view.speed.shape)
        farm_speeds.relative_speeds(view.speed, speed)
        memory = snapshot.jobs["memory"].copy()
        wants = np.nan_to_num(view.required, nan=0.0)
        # What profiling says is 10 % above what was seen ([Atif2011] 6): only beyond that is a declaration wrong.
        wrong = wants > SPARE * memory
        if wrong.any():
            # No job waits for what no partition has for all of its tasks; one that runs may be on closed nodes.
            everywhere = (*site[:3], np.ones_like(snapshot.open))
            now, ever = (_best(snapshot, np.where(wrong, wants, memory), speed, s) for s in (site, everywhere))
            wrong &= np.where(snapshot.jobs["state"] == RUNNING, ever, now) > 0.0
            memory = np.where(wrong, wants, memory)
        return cls(site, speed, memory, _best(snapshot, memory, speed, site))

    def shares(self, snapshot: Snapshot, slots: Ints) -> tuple[Floats, Floats]:
        """(R,) yields that raise the least effective yield, then the next, and (R,) the effective yields they are."""
        rows = len(snapshot.jobs)
        at, yields = np.empty(rows), np.empty(rows)
        farm_speeds.speeds_at(snapshot.first, slots, self.speed, self.site, at)
        fill(snapshot.jobs, snapshot.first, slots, snapshot.capacity, np.zeros_like(at), 1.0 / at, 0.0, False, yields)
        return yields, np.where(self.thrashing(snapshot, slots), farm_speeds.SLOWEST, 1.0) * yields * at

    def has_place(self, snapshot: Snapshot) -> Bools:
        """(R,) whether a row runs, or could if nobody else were there."""
        return (self.best > 0.0) | (snapshot.jobs["state"] == RUNNING)

    def thrashing(self, snapshot: Snapshot, slots: Ints) -> Bools:
        """(R,) whether a task of a row is known to want more memory than its node has; what it gets is then in vain."""
        wanted = np.repeat(self.memory, snapshot.jobs["tasks"])
        over = (slots >= 0) & (wanted > snapshot.capacity[slots, MEMORY] + MARGIN)
        return np.add.reduceat(over.astype(np.int64), snapshot.first[:-1]) > 0


def _best(snapshot: Snapshot, memory: Floats, speed: Floats, site: farm_speeds.Site) -> Floats:
    best = np.empty(len(memory))
    farm_speeds.best_reachable(snapshot.jobs["tasks"].astype(np.int64), memory, speed, site, MARGIN, best)
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDfrs:
    """A pure function of the snapshot."""

    traits: ClassVar[Traits] = Traits(clustered=True)

    name: str = NAME
    period_s: float = PERIOD_S
    mvt_s: float = MVT_S
    """A running job with less virtual time is not moved by a packing, unless it thrashes; it may be paused."""

    def decide(self, snapshot: Snapshot, /) -> Target:
        """The target for this snapshot."""
        rows = len(snapshot.jobs)
        if not rows:
            return Target(snapshot.task_nodes.copy(), np.zeros(0))
        outlook = Outlook.of(snapshot)
        order = np.empty(rows, np.int64)
        loads.by_priority(snapshot.jobs, snapshot.now_s, loads.FLOW_VIRTUAL_SQUARED, order)
        slots, reasons = snapshot.task_nodes.copy(), np.zeros(rows, np.int64)
        why: dict[JobId, str] = {}
        if snapshot.cause is Cause.SUBMISSION and snapshot.subject >= 0:
            farm_placing.admit(
                snapshot.jobs,
                snapshot.first,
                snapshot.task_nodes,
                snapshot.subject,
                order,
                outlook.speed,
                outlook.memory,
                outlook.site,
                MARGIN,
                slots,
                reasons,
            )
        else:
            farm_placing.readmit(
                snapshot.jobs,
                snapshot.first,
                order,
                outlook.speed,
                outlook.memory,
                outlook.site,
                MARGIN,
                slots,
                reasons,
            )
        if snapshot.cause in {Cause.WAKE, Cause.NODES}:
            slots, reasons, why = self._packed(snapshot, outlook, order, slots, reasons)
        yields, _ = outlook.shares(snapshot, slots)
        return Target(slots, yields, next_multiple(snapshot.now_s, self.period_s), reasons, why)

    def _packed(
        self, snapshot: Snapshot, outlook: Outlook, order: Ints, slots: Ints, reasons: Ints
    ) -> tuple[Ints, Ints, dict[JobId, str]]:
        """All packed anew if that is worth it, else `slots`, in which those that run have stayed; reasons and words."""
        after, reasons_after = self.pack(snapshot, outlook, order)
        _, kept = outlook.shares(snapshot, slots)
        _, moved = outlook.shares(snapshot, after)
        # Who can be placed nowhere, whatever the others do, is no reason to move them.
        some = outlook.has_place(snapshot)
        if not some.any() or not _worth(kept[some], moved[some]):
            return slots, reasons, {}
        told = f"the least one {moved[some].min():.2f} instead of {kept[some].min():.2f}"
        told += f", the average {moved[some].mean():.2f} instead of {kept[some].mean():.2f}"
        names = snapshot.jobs["id"].tolist()
        why = {
            names[r]: f"effective yield {moved[r]:.2f} instead of {kept[r]:.2f}, {told}"
            for r in np.flatnonzero(_changed(snapshot, after)).tolist()
        }
        return after, reasons_after, why

    def pack(self, snapshot: Snapshot, outlook: Outlook, order: Ints) -> tuple[Ints, Ints]:
        """All packed anew as far as they may be moved: (slots, (R,) reasons); `order` is by decreasing priority."""
        jobs, rows = snapshot.jobs, len(snapshot.jobs)
        pinned, at = np.empty(rows, np.bool_), np.empty(rows)
        repack.find_pinned(jobs, snapshot.now_s, repack.PIN_VIRTUAL, self.mvt_s, pinned)
        pinned &= ~outlook.thrashing(snapshot, snapshot.task_nodes)
        # Who can be packed nowhere stays where it runs, or waits: nobody gives way to it in vain.
        chosen = outlook.has_place(snapshot)
        stuck = chosen & (outlook.best <= 0.0)
        farm_speeds.speeds_at(snapshot.first, snapshot.task_nodes, outlook.speed, outlook.site, at)
        pinned, best = pinned | stuck, np.where(stuck, at, outlook.best)
        slots, reasons = np.full(len(snapshot.task_nodes), -1, np.int64), np.zeros(rows, np.int64)
        farm_packing.search_level(
            jobs,
            snapshot.first,
            snapshot.task_nodes,
            chosen,
            pinned,
            outlook.speed,
            outlook.memory,
            best,
            order[chosen[order]],
            RULES.copy(),
            NEAR,
            outlook.site,
            MARGIN,
            slots,
        )
        repack.settle(jobs, snapshot.first, snapshot.task_nodes, chosen, pinned, len(snapshot.capacity), slots, reasons)
        return slots, np.where(_changed(snapshot, slots), reasons, Reason.NONE)


def _changed(snapshot: Snapshot, slots: Ints) -> Bools:
    """(R,) whether a row has other nodes than before."""
    differs = slots != snapshot.task_nodes
    return np.add.reduceat(differs.astype(np.int64), snapshot.first[:-1]) > 0


def _worth(kept: Floats, moved: Floats) -> bool:
    """Whether effective yields `moved` (R,) are worth the migrations that `kept` (R,) do without.

    Where both leave jobs out, those of low priority must give way in turn.
    """
    if kept.min() <= 0.0:
        return True
    if moved.min() <= 0.0:
        return False
    least = moved.min() >= (1.0 + GAIN) * kept.min()
    return bool(least or (moved.min() >= kept.min() - 1e-9 and moved.mean() >= (1.0 + GAIN) * kept.mean()))


DFRS_FARM: Family[PartitionDfrs] = Family(
    group="heterogeneous cluster",
    names=(
        Name(
            name=NAME,
            start=PartitionDfrs(),
            source="[Stillwell2010] 5, [Atif2011] 4",
            meaning="nodes shared in fractions: maximises the minimum yield, weighted by predicted speeds",
        ),
    ),
    options=(
        Option(
            key="PERIOD",
            values=Number(field="period_s", unit="seconds", letter="S", example="600"),
            of=(NAME,),
            default=f"{PERIOD_S:g}",
            source="[Stillwell2010] 5.2.4",
            meaning="all jobs are repacked every S seconds",
        ),
        Option(
            key="MVT",
            values=Number(field="mvt_s", unit="seconds", letter="S", zero=True, example="600"),
            of=(NAME,),
            default=f"{MVT_S:g}",
            source="[Stillwell2010] 5.2.4",
            meaning="repacking does not move running jobs with less than S seconds of virtual time",
        ),
    ),
    build=lambda name, policy: replace(policy, name=name),
)
"""DFRS-FARM."""
