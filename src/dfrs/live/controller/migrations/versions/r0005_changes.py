"""What users have changed of jobs since they were submitted."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add it; nothing was changed so far."""
    op.add_column("jobs", sa.Column("changes", sa.Text))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("jobs", "changes")
