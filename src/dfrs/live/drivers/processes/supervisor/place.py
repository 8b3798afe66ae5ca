"""Where a task's processes are."""

import contextlib
import signal
import time
from collections.abc import Iterable

from .files import numbers_in, read_text, write_control
from .system import NO_START, descendants, identity, parents, send, stat_fields, walk


class Place:
    """Where a task's processes are, and how to stop and end them all: in control groups, or below its supervisor.

    Made from the entries `procs`, `freeze`, `freeze_on`, `freeze_off`, `frozen`, `frozen_mark`, `kill` of `owner`, the
    number of the supervisor if it lives, and the identity of the task's first process.
    """

    def __init__(self, entries: dict[str, str], supervisor: int | None, main: str) -> None:
        self.entries, self.supervisor, self.main = entries, supervisor, main

    def members(self) -> list[int]:
        """Its processes."""
        if procs := self.entries.get("procs"):
            return numbers_in(procs)
        return self._session() if self.supervisor is None else descendants(self.supervisor)

    def _session(self) -> list[int]:
        """What is left of the session of a task whose supervisor was killed."""
        leader, _, rest = self.main.partition(" ")
        boot = rest.partition(" ")[2]
        # While anything is left of a session, no other process gets its leader's number.
        if not leader or identity(int(leader)) not in (self.main, f"{leader} {NO_START} {boot}"):
            return []
        return [pid for pid in parents() if (fields := stat_fields(pid)) and fields[3] == leader]

    def frozen(self) -> bool:
        """Whether nothing of it runs, because it was paused."""
        if path := self.entries.get("frozen"):
            return self.entries["frozen_mark"] in read_text(path)
        return self._stopped(self._session() if self.supervisor is None else walk(self.supervisor))

    @staticmethod
    def _stopped(pids: Iterable[int]) -> bool:
        """Whether there are any, and all are stopped. Looks no further than the first that runs."""
        # After vfork a parent waits, deaf to signals, until its child runs a program, which a stopped one never does.
        waiting, excused = set[int](), set[int]()
        for pid in pids:
            state, parent, *_ = stat_fields(pid) or ("X", "0")
            if state in "Tt":
                excused.add(int(parent))
            elif state == "D":
                waiting.add(pid)
            elif state not in "ZX":
                return False
        return bool(excused) and waiting <= excused

    def freeze(self, timeout_s: float) -> bool:
        """Pause all of it; whether that was confirmed in time."""
        until = time.monotonic() + timeout_s
        if path := self.entries.get("freeze"):
            # Once is not enough: version 1 passes over a parent that is just about to wait after vfork, for ever.
            write_control(path, self.entries["freeze_on"])
            while not self.frozen():
                if time.monotonic() > until:
                    return False
                time.sleep(0.0005)
                write_control(path, self.entries["freeze_on"])
            return True
        while members := self.members():
            send(members, signal.SIGSTOP)
            # A list of processes is not of one moment, and misses a child that was forked while it was made. Once all
            # that it has are stopped, the next one misses none.
            if self._stopped(self.members()) and self._stopped(self.members()):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return True

    def thaw(self) -> None:
        """Let all of it go on."""
        if path := self.entries.get("freeze"):
            write_control(path, self.entries["freeze_off"])
        else:
            send(self.members(), signal.SIGCONT)

    def kill(self, timeout_s: float = 2.0) -> bool:
        """Kill all of it, whatever it forks; whether nothing was left in time."""
        until = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError):
                if path := self.entries.get("kill"):
                    write_control(path, "1")
                else:
                    self.freeze(0.2)
            with contextlib.suppress(OSError):
                send(self.members(), signal.SIGKILL)
            # In version 1 what is frozen does not end.
            with contextlib.suppress(OSError):
                self.thaw()
            if not self.members():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
