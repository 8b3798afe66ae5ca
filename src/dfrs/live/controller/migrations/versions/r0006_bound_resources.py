"""How many of each named resource an agent's token admits."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add it; nodes that were admitted before are admitted with what they offer when they next come."""
    op.add_column("tokens", sa.Column("resources", sa.Text))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("tokens", "resources")
