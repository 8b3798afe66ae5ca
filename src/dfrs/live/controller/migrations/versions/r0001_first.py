"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "meta",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("time_s", sa.Float, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "checkpoints",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("arrays", sa.LargeBinary, nullable=False),
        sa.Column("shell", sa.Text, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("request", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.String(64), nullable=False, index=True),
        sa.Column("array_index", sa.Integer),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("told", sa.Boolean, nullable=False),
        sa.Column("held", sa.Boolean, nullable=False),
        sa.Column("started_at", sa.Float),
        sa.Column("outcome", sa.Text),
        sa.Column("ended_at", sa.Float, index=True),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("final", sa.Text),
    )
    op.create_table(
        "nodes",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("island", sa.Integer, nullable=False),
        sa.Column("condition", sa.String(8), nullable=False),
        sa.Column("drained", sa.Boolean, nullable=False),
        sa.Column("hello", sa.Text, nullable=False),
    )
    op.create_table(
        "happenings",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("job", sa.BigInteger, index=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "points",
        sa.Column("time", sa.Float, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("role", sa.String(8), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("tokens", "points", "happenings", "nodes", "jobs", "requests", "checkpoints", "events", "meta"):
        op.drop_table(name)
