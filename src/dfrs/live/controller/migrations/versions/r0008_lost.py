"""Which attempts at jobs were lost with a node."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add it; of jobs that are open now nobody knows."""
    op.add_column("jobs", sa.Column("lost", sa.Integer))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("jobs", "lost")
