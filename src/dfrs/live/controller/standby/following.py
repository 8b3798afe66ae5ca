"""A standby's copy of the core: it replays what the leader records, so that a take-over replays only the last moments.

Each round goes the way of a start, so what a take-over begins with is what a restart would have come to: the latest
checkpoint, here one in memory, and the events since. What the standby decides again is compared with what is recorded;
where it differs, the copy is thrown away and the take-over replays everything.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection

from dfrs.live.controller import checkpoint, tables
from dfrs.live.controller.checkpoint import Stored, WarmState
from dfrs.live.controller.database import Database
from dfrs.live.controller.observing import Observer
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.controller.state import State
from dfrs.live.controller.tokens import Tokens
from dfrs.live.protocol.observed import NodeFacts
from dfrs.model.decisions import Policy
from dfrs.model.needs import Discovery

FOLLOW_S = 1.0
"""Between two rounds."""

log = structlog.get_logger(__name__)


class Follower:
    """Makes the copy anew, round by round, from a database that another controller writes."""

    def __init__(
        self,
        settings: ControllerSettings,
        policy: Policy,
        discovery: Discovery | None,
        find: checkpoint.Find,
        facts: type[NodeFacts],
    ) -> None:
        self.warm: WarmState | None = None
        """The latest copy; None: there is none that is good."""
        self._settings = settings
        self._policy = policy
        self._discovery = discovery
        self._find = find
        self._facts = facts
        self._complained = ""

    def follow(self, database: Database) -> None:
        """A round, in a thread. Nothing that goes wrong is raised: a take-over finds it, too, and says so."""
        try:
            stored = database.read_whole(partial(checkpoint.load, warm=self.warm, past=False))
            if self.warm is None or stored.last_event > self.warm.sequence:
                self._advance(stored)
        except Exception as error:
            self.warm = None
            self._complain(f"{type(error).__name__}: {error}")

    def confirm(self, connection: Connection) -> WarmState | None:
        """The copy, if all that it decided is as recorded by now; to be asked once nobody else writes."""
        if self.warm is None:
            return None
        digests = dict(self.warm.missing)
        found = sa.select(tables.events.c.sequence, tables.events.c.digest)
        open_: list[tuple[int, str]] = []
        for sequence, digest in connection.execute(found.where(tables.events.c.sequence.in_(list(digests)))):
            if digest not in {"", digests[sequence]}:
                return None
            if not digest:
                open_.append((sequence, digests[sequence]))
        self.warm = replace(self.warm, missing=tuple(sorted(open_)))
        return self.warm

    def _advance(self, stored: Stored) -> None:
        deciding = _policy_of(stored)
        if deciding not in {None, self._settings.policy}:
            self.warm = None
            self._complain(f"the leader decides by another policy: {deciding}")
            return
        state = State(self._settings, self._policy, self._facts)
        observer = Observer(self._discovery, weighted=state.weighted)
        missing = checkpoint.restore(state, observer, Tokens(), stored, self._find)
        if state.mismatches:
            self.warm = None
            self._complain("decisions come out otherwise than the leader's")
            return
        before = stored.checkpoint.missing if isinstance(stored.checkpoint, WarmState) else ()
        shell = checkpoint.shell(state)
        self.warm = WarmState(
            base=stored.last_checkpoint,
            sequence=state.sequence,
            arrays=checkpoint.arrays(state.core, observer, shell),
            shell=shell,
            missing=(*before, *missing),
        )
        self._complained = ""

    def _complain(self, why: str) -> None:
        if why != self._complained:
            log.warning("cannot follow the leader: a take-over will replay more", why=why)
        self._complained = why


def _policy_of(stored: Stored) -> str | None:
    """The one that decides by the record; None where nothing says."""
    restarts: Sequence[str] = [row.event for row in stored.events if f'"event": "{checkpoint.RESTART}"' in row.event]
    if restarts:
        return json.loads(restarts[-1])["policy"]
    return None if stored.checkpoint is None else json.loads(stored.checkpoint.shell).get("policy")
