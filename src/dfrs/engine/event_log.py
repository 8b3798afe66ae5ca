"""The event log: one row for every change of a job or a node, in the order performed."""

from collections.abc import Mapping

import numpy as np

from dfrs.engine.commands import DETACH, Commands
from dfrs.kernels.columns import Log, grown, write_rows
from dfrs.model.decisions import Reason
from dfrs.model.instance import Ints
from dfrs.model.run import ROOM_FREED, Events

_COLUMNS = {"time_s": "f8", "job": "i8", "action": "i8", "yield_": "f8", "why": "i8"}
_TEXTS = {
    Reason.NONE: "",
    Reason.ROOM: "there was room at submission",
    Reason.FREED: ROOM_FREED,
    Reason.GAVE_WAY: "gave way to a submitted job",
    Reason.MOVED_FOR: "moved for a submitted job",
    Reason.PACKED: "all jobs were packed anew",
    Reason.LEFT_OUT: "no packing of all jobs; lowest priority",
    Reason.QUEUE_HEAD: "first in the queue",
    Reason.BACKFILLED: "backfilled",
    Reason.RESERVED: "its reservation began",
    Reason.NODE_LOST: "its node failed",
    Reason.FINISHED: "",
    Reason.FILLED: "fills the free nodes with others",
    Reason.ON_TIME: "its requested start",
    Reason.LATE_DEDICATED: "late: other dedicated jobs had the nodes",
    Reason.LATE_EARLIER: "late: jobs from before its submission had the nodes",
    Reason.LATE_LONGER: "late: jobs past their estimates, or extended, had the nodes",
    Reason.LATE_CLOSED: "late: too many nodes were closed",
    Reason.MADE_WAY: "made way for a dedicated job",
    Reason.RESIZED: "a command changed its size",
    Reason.LATE_CHANGED: "late: a command had changed it",
    Reason.HELD: "held",
    Reason.RELEASED: "held no longer",
    Reason.REVISED: "needs were revised",
    Reason.KEPT: "its memory could not be freed: it goes on",
    Reason.GAVE_BACK: "the memory for it could not be freed",
    Reason.NOT_MOVED: "it could not leave its nodes: it goes on there",
    Reason.BALANCED: "moved so that the least yields rise",
    Reason.LESS_LEFT: "less CPU is left of its node",
}


class EventLog:
    """Rows in growing columns; `job` is the job's serial number."""

    def __init__(self) -> None:
        self._log = {name: np.zeros(1024, kind) for name, kind in _COLUMNS.items()}
        self._first = np.zeros(1025, np.int64)
        self._nodes = np.zeros(4096, np.int64)
        self._rows = 0
        self._held = 0
        self._reasons: dict[str, int] = {text: int(reason) for reason, text in _TEXTS.items() if text}

    def __len__(self) -> int:
        return self._rows

    def reason(self, text: str) -> int:
        """The number of a reason in words."""
        return self._reasons.setdefault(text, len(Reason) + len(self._reasons))

    def append(self, time_s: float, commands: Commands) -> None:
        """One row a command; the first half of a migration within a cycle is none."""
        rows = (commands.serial, commands.action, commands.yields, commands.reason)
        self._write(time_s, rows, commands.first, commands.nodes)

    def note(
        self,
        time_s: float,
        action: int,
        serial: int,
        reason: int = 0,
        nodes: Ints | None = None,
        yield_: float = float("nan"),
    ) -> None:
        """A row that no command stands for: a job finished, was lost or resized, a node changed (`serial` -1)."""
        self._reserve(1, 0 if nodes is None else len(nodes))
        row, log = self._rows, self._log
        log["time_s"][row] = time_s
        log["job"][row] = serial
        log["action"][row] = action
        log["yield_"][row] = yield_
        log["why"][row] = reason
        if nodes is not None:
            self._nodes[self._held : self._held + len(nodes)] = nodes
            self._held += len(nodes)
        self._rows += 1
        self._first[self._rows] = self._held

    def columns(self, rows: int, nodes: int) -> Log:
        """The columns themselves, with room for so many rows more, which name so many nodes; see `extended`."""
        self._reserve(rows, nodes)
        log = self._log
        return Log(log["time_s"], log["job"], log["action"], log["yield_"], log["why"], self._first, self._nodes)

    @property
    def length(self) -> tuple[int, int]:
        """How many rows there are, and how many nodes they name."""
        return self._rows, self._held

    def extended(self, rows: int, nodes: int) -> None:
        """Rows were written to the columns: there are so many now, and they name so many nodes."""
        self._rows, self._held = rows, nodes

    def _reserve(self, rows: int, nodes: int) -> None:
        if self._rows + rows > len(self._log["time_s"]):
            for name, column in self._log.items():
                self._log[name] = grown(column, self._rows + rows)
            self._first = grown(self._first, len(self._log["time_s"]) + 1)
        self._nodes = grown(self._nodes, self._held + nodes)

    def _write(self, time_s: float, rows: tuple[Ints, Ints, np.ndarray, Ints], bounds: Ints, nodes: Ints) -> None:
        log = self.columns(len(rows[0]), len(nodes))
        self._rows, self._held = write_rows(time_s, rows, bounds, nodes, DETACH, self._rows, self._held, log)

    def jobs(self, begin: int = 0) -> Ints:
        """Serial numbers of the rows from `begin` on; -1 for what happened to nodes."""
        return self._log["job"][begin : self._rows]

    def events(self) -> Events:
        """All rows so far, as a copy."""
        texts = {number: text for text, number in self._reasons.items()}
        return Events(
            **{name: column[: self._rows].copy() for name, column in self._log.items()},
            first=self._first[: self._rows + 1].copy(),
            nodes=self._nodes[: self._held].copy(),
            reasons=tuple(texts.get(k, "") for k in range(max(len(Reason), *texts) + 1)),
        )

    def state(self) -> dict[str, np.ndarray]:
        """Everything, as arrays, for `restore`."""
        rows = {name: column[: self._rows] for name, column in self._log.items()}
        own = [text for text, number in self._reasons.items() if number >= len(Reason)]
        return rows | {
            "first": self._first[: self._rows + 1],
            "nodes": self._nodes[: self._held],
            "reasons": np.array(own, dtype=np.str_),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue where `state` was taken."""
        for name in _COLUMNS:
            self._log[name] = np.array(state[name])
        self._first = np.array(state["first"])
        self._nodes = np.array(state["nodes"])
        self._rows, self._held = len(state["time_s"]), len(state["nodes"])
        for text in state["reasons"].tolist():
            self.reason(text)
