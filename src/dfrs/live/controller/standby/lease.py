"""The lease of the controller that leads, and how a standby sees that nobody holds it any more.

The leader counts up a row of `meta` every `BEAT_S`, and holds an advisory lock as long as its connection lives. A
standby compares no clocks: it measures, by its own, for how long the row has stayed as it is. Without the lock, as
after kill -9, `GRACE_S` are enough; with it, as when the leader is stopped or cut off, it takes `TAKE_OVER_S`. The
leader does nothing more `LEASE_S` after the last beat that came through, which is less.

The lease only says when to take over. That the old leader writes nothing afterwards is the doing of the row that names
the writer: see `dfrs.live.controller.database`.
"""

import json
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

BEAT_S = 0.5
"""Between two beats."""
LEASE_S, TAKE_OVER_S = 3.0, 4.0
"""After so long without a beat the leader does nothing more, and a standby takes over."""
GRACE_S = 1.5
"""The same where nobody holds the leader's lock: a leader that lost its connection alone has it again by then."""
LEADER = "leader"
"""Key in `meta` of the lease."""
_STATEMENT_MS, _WAIT_MS = 2000, 10_000
_LOCKS = 0x64667273
"""First half of the keys of all advisory locks here; the second is one of the next three."""
_LEADS, _STANDS_BY, _TAKES_OVER = 1, 2, 3
_HELD = (
    "FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = :locks AND objid = :which AND objsubid = 2 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)

log = structlog.get_logger(__name__)


def clock() -> float:
    """Seconds that pass while this process, or the whole machine, is stopped, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What the leader says of itself."""

    owner: str
    beat: int = 0
    now_s: float | None = None
    """The core's time; None: not known yet."""
    url: str = ""
    """Where users and agents find it; "" if that is not known."""
    ended: bool = False
    """It has stopped in good order: whoever waits need wait no longer."""

    def text(self) -> str:
        """As `of` reads it."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str | None) -> "Lease | None":
        """None without a text, or where it is none of this version's."""
        try:
            return None if text is None else Lease(**json.loads(text))
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at the database shows."""

    writer: str | None
    """Who wrote last, and how often."""
    leader: str | None
    """The lease as it stands there."""
    held: bool
    """Whether a session holds the leader's lock."""


class LeaseWatch:
    """A standby's judgement whether anybody leads, from what it sees and the times at which it saw that."""

    def __init__(self) -> None:
        self._mark: tuple[str | None, str | None] | None = None
        self._since_s = 0.0
        self._moved = False

    @property
    def since_s(self) -> float | None:
        """When the present state came about; None where it was there at the first look: then it may be old."""
        return self._since_s if self._moved else None

    def is_vacant(self, seen: Seen, now_s: float) -> bool:
        """Whether nobody leads. `now_s`: a time after the look, on any clock that only goes on."""
        mark = seen.writer, seen.leader
        if mark != self._mark:
            self._moved = self._mark is not None
            self._mark, self._since_s = mark, now_s
        lease = Lease.of(seen.leader)
        if seen.writer is None or (lease is not None and lease.ended):
            return True
        return now_s - self._since_s >= (TAKE_OVER_S if seen.held or lease is None else GRACE_S)

    def forget(self) -> None:
        """Begin anew: for a while nothing could be seen."""
        self._mark = None


def lease_engine(url: sa.URL, name: str) -> Engine:
    """Connections that fail soon where they fail, of sessions with that name."""
    options = f"-c statement_timeout={_STATEMENT_MS}"
    return sa.create_engine(
        url,
        poolclass=sa.NullPool,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        connect_args={
            "connect_timeout": 2,
            "tcp_user_timeout": _STATEMENT_MS,
            "options": options,
            "application_name": name,
        },
    )


def session_name(owner: str) -> str:
    """Of all sessions of a controller, by which a later one ends them."""
    return f"dfrs {owner}"


def look(connection: Connection) -> Seen:
    """Raises SQLAlchemyError."""
    if connection.execute(sa.text("SELECT to_regclass('meta')")).scalar() is None:
        return Seen(writer=None, leader=None, held=False)
    found = connection.execute(
        sa.text(
            f"SELECT (SELECT value FROM meta WHERE key = 'writer') AS writer, "  # noqa: S608 - of constants
            f"(SELECT value FROM meta WHERE key = :leader) AS leader, EXISTS (SELECT 1 {_HELD}) AS held"
        ),
        {"leader": LEADER, "locks": _LOCKS, "which": _LEADS},
    ).one()
    return Seen(writer=found.writer, leader=found.leader, held=found.held)


def stand_by(connection: Connection) -> None:
    """Be counted among those that wait, as long as this connection lives. Raises SQLAlchemyError."""
    connection.execute(sa.text("SELECT pg_advisory_lock_shared(:locks, :which)"), _key(_STANDS_BY))


def end_sessions(connection: Connection, owner: str) -> None:
    """End those of a controller that is replaced: one that was stopped in a transaction keeps its rows locked.

    Where this account may not, the rows are waited for. Raises SQLAlchemyError.
    """
    if not owner:
        return
    connection.execute(
        sa.text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND usename = current_user AND pid <> pg_backend_pid() AND application_name = :name"
        ),
        {"name": session_name(owner)},
    )


@contextmanager
def taking_over(engine: Engine) -> Generator[Connection]:
    """Be the only one that does so, with a connection of `lease_engine`. Raises SQLAlchemyError."""
    with engine.connect() as connection:
        connection.execute(sa.text(f"SET statement_timeout = {_WAIT_MS}"))
        connection.execute(sa.text("SELECT pg_advisory_lock(:locks, :which)"), _key(_TAKES_OVER))
        yield connection


def _key(which: int) -> dict[str, int]:
    return {"locks": _LOCKS, "which": which}


class LeaseKeeper:
    """Keeps the leader's lease, in a thread and on a connection of its own.

    `now_s`: the core's time, once that is known.
    """

    def __init__(self, engine: Engine, lease: Lease) -> None:
        self.now_s: Callable[[], float | None] = lambda: lease.now_s
        self.replaced = False
        """Another controller has the lease."""
        self.standbys = 0
        """Others that wait, at the last beat."""
        self.stood_by = False
        """Whether there ever was one: only then may silence mean that another leads."""
        self._engine = engine
        self._lease = lease
        self._connection: Connection | None = None
        self._locked = False
        self._confirmed_s = clock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="dfrs-lease", daemon=True)

    def start(self) -> None:
        """Beat from now on."""
        self._confirmed_s = clock()
        self._thread.start()

    @property
    def good(self) -> bool:
        """Whether nobody else can lead by now."""
        return not self.replaced and clock() - self._confirmed_s < LEASE_S

    def stop(self, *, ended: bool = True) -> None:
        """Beat no more; `ended`: and say that the next may take over. Takes some seconds where nobody answers."""
        self._lease = replace(self._lease, ended=ended)
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(2 * _STATEMENT_MS / 1000)

    def _keep(self) -> None:
        trouble = False
        while not self.replaced:
            last = self._end.is_set()
            begin_s = clock()
            try:
                self._beat()
            except SQLAlchemyError as error:
                self._disconnect()
                if not trouble:
                    log.warning("the lease cannot be renewed", problem=" ".join(str(error).split())[:200])
                trouble = True
            else:
                trouble = False
                self._confirmed_s = begin_s
            if last:
                break
            self._end.wait(BEAT_S)
        self._disconnect()

    def _beat(self) -> None:
        if self._connection is None:
            self._connection = self._engine.connect()
        connection = self._connection
        if not self._locked:
            # Until the session of the one before is gone, it is not to be had.
            locking = sa.text("SELECT pg_try_advisory_lock(:locks, :which)")
            self._locked = bool(connection.execute(locking, _key(_LEADS)).scalar())
        self._lease = replace(self._lease, beat=self._lease.beat + 1, now_s=self.now_s())
        marked = connection.execute(
            sa.text("UPDATE meta SET value = :text WHERE key = :leader AND value LIKE :ours"),
            {"text": self._lease.text(), "leader": LEADER, "ours": f'{{"owner": "{self._lease.owner}"%'},
        )
        self.replaced = marked.rowcount != 1
        others = connection.execute(sa.text(f"SELECT count(*) {_HELD}"), _key(_STANDS_BY)).scalar()
        self.standbys = others or 0
        self.stood_by |= self.standbys > 0

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection, self._locked = None, False
