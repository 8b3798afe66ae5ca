"""The tables of a controller's database, and the few statements that write them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
)

metadata = MetaData()

meta = Table("meta", metadata, Column("key", String(64), primary_key=True), Column("value", Text, nullable=False))
"""Single values: epoch, reference node, who may write."""

events = Table(
    "events",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("time_s", Float, nullable=False),
    Column("event", Text, nullable=False),
    Column("digest", String(64), nullable=False),
)
"""All that the core was ever told, in order. `event` is JSON as `engine.codec` writes it, or of kind "restart"."""

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("arrays", LargeBinary, nullable=False),
    Column("shell", Text, nullable=False),
)
"""State after the event of that number: arrays of core and discovery (npz), and of the shell (JSON)."""

requests = Table(
    "requests",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)
"""What users asked for; an array's jobs share one, with the first job's id."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("request", BigInteger, nullable=False),
    Column("owner", String(64), nullable=False),
    Column("array_index", Integer),
    Column("submitted_at", Float, nullable=False),
    Column("registered", Boolean, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("started_at", Float),
    Column("outcome", Text),
    Column("ended_at", Float, index=True),
    Column("state", String(16), nullable=False),
    Column("final", Text),
    Column("changes", Text),
    Column("lost", Integer),
    # Of each state in the order in which users see them, of all users and of one.
    Index("ix_jobs_state_id", "state", "id"),
    Index("ix_jobs_owner_state_id", "owner", "state", "id"),
)
"""`registered`: the core knows it. `outcome` is JSON: how it ends, decided before its tasks are gone. `state` is "open"
until it has ended; then `final` is the job as users see it. `changes` is JSON: fields of its request that its user has
changed. `lost`: the first attempt that was lost with a node, if it was queued again then."""

nodes = Table(
    "nodes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(64), nullable=False),
    Column("island", Integer, nullable=False),
    Column("condition", String(8), nullable=False),
    Column("drained", Boolean, nullable=False),
    Column("hello", Text, nullable=False),
    Column("drain_reason", Text),
)
"""Nodes by their index in the core; `hello` is the last one without tasks. Of a name the highest number counts."""

activity = Table(
    "activity",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("job", BigInteger, index=True),
    Column("body", Text, nullable=False),
)

points = Table(
    "points",
    metadata,
    Column("time", Float, primary_key=True),
    Column("body", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("owner", String(64), nullable=False),
    Column("role", String(8), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("revoked", Boolean, nullable=False),
    Column("local", Boolean),
    Column("node", String(64)),
    Column("host", String(64)),
    Column("cpus", Float),
    Column("memory_bytes", BigInteger),
    Column("resources", Text),
)
"""From `local` on: of agents, see `admissions`. `resources` is JSON: how many of each."""
BINDING = ("node", "host", "cpus", "memory_bytes", "resources")
"""What is recorded of the node to which a token is bound."""

ADD_EVENT = events.insert()
SET_DIGEST = events.update().where(events.c.sequence == bindparam("b_sequence")).values(digest=bindparam("b_digest"))
ADD_CHECKPOINT = checkpoints.insert()
DROP_CHECKPOINTS = checkpoints.delete().where(checkpoints.c.sequence < bindparam("b_before"))
ADD_REQUEST = requests.insert()
ADD_JOB = jobs.insert()
SET_JOB = (
    jobs.update()
    .where(jobs.c.id == bindparam("b_id"))
    .values(
        {
            name: bindparam(f"b_{name}")
            for name in ("registered", "held", "started_at", "outcome", "ended_at", "state", "final")
        }
    )
)
SET_CHANGES = jobs.update().where(jobs.c.id == bindparam("b_id")).values(changes=bindparam("b_changes"))
SET_LOST = jobs.update().where(jobs.c.id == bindparam("b_id")).values(lost=bindparam("b_lost"))
ADD_NODE = nodes.insert()
# One statement for what changes together: two of them in one transaction do not undo each other.
SET_CONDITION, SET_DRAINED, SET_HELLO, SET_ISLAND = (
    nodes.update().where(nodes.c.number == bindparam("b_number")).values({n: bindparam(f"b_{n}") for n in names})
    for names in (("condition",), ("drained", "drain_reason"), ("hello",), ("island",))
)
ADD_ACTIVITY = activity.insert()
ADD_POINT = points.insert()
ADD_TOKEN = tokens.insert()
REVOKE_TOKEN = tokens.update().where(tokens.c.id == bindparam("b_id")).values(revoked=True)
BIND_TOKEN = (
    tokens.update().where(tokens.c.id == bindparam("b_id")).values({name: bindparam(f"b_{name}") for name in BINDING})
)
ADD_META = meta.insert()
SET_META = meta.update().where(meta.c.key == bindparam("b_key")).values(value=bindparam("b_value"))
DROP_META = meta.delete().where(meta.c.key == bindparam("b_key"))
DROP_EVENTS = events.delete().where(events.c.sequence <= bindparam("b_until"))
DROP_ACTIVITY = activity.delete().where(activity.c.sequence <= bindparam("b_until"))
DROP_POINTS = points.delete().where(points.c.time <= bindparam("b_until"))
DROP_JOB = jobs.delete().where(jobs.c.id == bindparam("b_id"))
DROP_REQUEST = requests.delete().where(requests.c.id == bindparam("b_id"))
