"""What a policy does about placements: on a submission, on a completion, at a wake ([Stillwell2010] 5.2.1 to 5.2.4)."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from dfrs.kernels import admission, loads, repack
from dfrs.model import tolerances
from dfrs.model.decisions import Snapshot
from dfrs.model.instance import Bools, Ints
from dfrs.policies.fractional.objective import YIELDS, Objective

MARGIN = tolerances.CAPACITY / 2
"""How far memory may pass a node's capacity here; the rest of the tolerance is for those who add in another order."""


class Priority(IntEnum):
    """Which job matters more ([Stillwell2010] 5.2.3); each times the job's weight, ties to the earlier submission."""

    VIRTUAL = loads.VIRTUAL
    """1 / virtual time."""
    FLOW_VIRTUAL = loads.FLOW_VIRTUAL
    """Flow time / virtual time."""
    FLOW_VIRTUAL_SQUARED = loads.FLOW_VIRTUAL_SQUARED
    """Flow time / virtual time squared: what the documents use."""


class Mode(IntEnum):
    """What a submitted job for which there is no room may do to others ([Stillwell2010] section 5.2.3)."""

    GREEDY = admission.GREEDY
    """Nothing: it waits."""
    GREEDY_P = admission.GREEDY_P
    """Pause those of lowest priority."""
    GREEDY_PM = admission.GREEDY_PM
    """The same, but move them instead where there is room elsewhere."""


class PinKind(IntEnum):
    """By which age a running job keeps its nodes ([Stillwell2010] section 5.2.4)."""

    NONE = repack.NO_PIN
    FLOW = repack.PIN_FLOW
    """MFT."""
    VIRTUAL = repack.PIN_VIRTUAL
    """MVT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Running jobs younger than `seconds` are not moved by MCB; it may pause them."""

    kind: PinKind = PinKind.NONE
    seconds: float = 0.0


MOVABLE = Pin()
"""All may be moved."""


class PolicyAction(Protocol):
    """Changes placements."""

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """Edit `slots`, which start as the snapshot's, and say why in `reasons` (R,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Greedy, GreedyP or GreedyPM for the job just submitted."""

    mode: Mode
    priority: Priority = Priority.FLOW_VIRTUAL_SQUARED

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As `dfrs.kernels.admission.admit`."""
        admission.admit(
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            snapshot.capacity,
            snapshot.open,
            snapshot.subject,
            self.mode.value,
            snapshot.now_s,
            self.priority.value,
            MARGIN,
            slots,
            reasons,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Readmit:
    """Greedy for all waiting and paused jobs, by decreasing priority."""

    priority: Priority = Priority.FLOW_VIRTUAL_SQUARED

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As `dfrs.kernels.admission.readmit`."""
        admission.readmit(
            snapshot.jobs,
            snapshot.first,
            snapshot.capacity,
            snapshot.open,
            snapshot.now_s,
            self.priority.value,
            MARGIN,
            slots,
            reasons,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repack:
    """MCB, or with a `StretchObjective` MCB-stretch: everything anew by VP_CPMAX."""

    objective: Objective = YIELDS
    priority: Priority = Priority.FLOW_VIRTUAL_SQUARED
    pin: Pin = MOVABLE

    def __call__(self, snapshot: Snapshot, slots: Ints, reasons: Ints, /) -> None:
        """As `dfrs.kernels.repack.repack`."""
        order, pinned = order_and_pinned(snapshot, self.priority, self.pin)
        base, slope = self.objective(snapshot)
        repack.repack(
            snapshot.jobs,
            snapshot.first,
            snapshot.task_nodes,
            snapshot.capacity,
            snapshot.open,
            order,
            pinned,
            base,
            slope,
            self.objective.search,
            MARGIN,
            slots,
            reasons,
        )


def order_and_pinned(snapshot: Snapshot, priority: Priority, pin: Pin) -> tuple[Ints, Bools]:
    """(R,) rows by decreasing priority, and (R,) which may not be moved."""
    rows = len(snapshot.jobs)
    order, pinned = np.empty(rows, np.int64), np.empty(rows, np.bool_)
    loads.by_priority(snapshot.jobs, snapshot.now_s, priority.value, order)
    repack.find_pinned(snapshot.jobs, snapshot.now_s, pin.kind.value, pin.seconds, pinned)
    repack.pin_stranded(
        snapshot.jobs, snapshot.first, snapshot.task_nodes, snapshot.capacity, snapshot.open, MARGIN, pinned
    )
    return order, pinned
