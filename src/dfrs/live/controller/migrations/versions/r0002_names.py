"""Names as users know them: activity, attempt, registered."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Rename them."""
    op.drop_index("ix_happenings_job", "happenings")
    op.rename_table("happenings", "activity")
    op.create_index("ix_activity_job", "activity", ["job"])
    op.execute("ALTER TABLE jobs RENAME COLUMN told TO registered")
    _rename_in_ended("incarnation", "attempt")
    # Their JSON has the old names. All events are kept, and replayed once.
    op.execute("DELETE FROM checkpoints")


def downgrade() -> None:
    """Give them their old names."""
    op.execute("DELETE FROM checkpoints")
    _rename_in_ended("attempt", "incarnation")
    op.execute("ALTER TABLE jobs RENAME COLUMN registered TO told")
    op.drop_index("ix_activity_job", "activity")
    op.rename_table("activity", "happenings")
    op.create_index("ix_happenings_job", "happenings", ["job"])


def _rename_in_ended(old: str, new: str) -> None:
    connection = op.get_bind()
    jobs = sa.table("jobs", sa.column("id"), sa.column("final"))
    for name, final in connection.execute(sa.select(jobs.c.id, jobs.c.final).where(jobs.c.final.is_not(None))).all():
        body = json.loads(final)
        body[new] = body.pop(old)
        connection.execute(jobs.update().where(jobs.c.id == name).values(final=json.dumps(body)))
