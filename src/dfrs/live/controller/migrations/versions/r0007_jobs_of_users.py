"""Jobs of a user and a state in the order of their numbers."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """The index that begins with the owner takes the place of the one that has nothing else."""
    op.create_index("ix_jobs_owner_state_id", "jobs", ["owner", "state", "id"])
    op.drop_index("ix_jobs_owner", "jobs")


def downgrade() -> None:
    """With the one before."""
    op.create_index("ix_jobs_owner", "jobs", ["owner"])
    op.drop_index("ix_jobs_owner_state_id", "jobs")
