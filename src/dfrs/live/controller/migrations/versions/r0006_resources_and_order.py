"""How many of each named resource an agent's token admits; jobs of a state in the order of their numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Nodes that were admitted before are admitted with the resources that they are known to have."""
    op.add_column("tokens", sa.Column("resources", sa.Text))
    op.drop_index("ix_jobs_state", "jobs")
    op.create_index("ix_jobs_state_id", "jobs", ["state", "id"])


def downgrade() -> None:
    """Without both."""
    op.drop_index("ix_jobs_state_id", "jobs")
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.drop_column("tokens", "resources")
