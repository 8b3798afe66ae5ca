"""Why a node was drained."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add it; nothing was said of nodes that are drained."""
    op.add_column("nodes", sa.Column("drain_reason", sa.Text))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("nodes", "drain_reason")
