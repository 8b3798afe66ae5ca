"""Which node an agent's token admits."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_COLUMNS = {
    "local": sa.Boolean,
    "node": sa.String(64),
    "host": sa.String(64),
    "cpus": sa.Float,
    "memory_bytes": sa.BigInteger,
}


def upgrade() -> None:
    """Add them; tokens that are there are bound to none yet."""
    for name, kind in _COLUMNS.items():
        op.add_column("tokens", sa.Column(name, kind))


def downgrade() -> None:
    """Drop them."""
    for name in _COLUMNS:
        op.drop_column("tokens", name)
