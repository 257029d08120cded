"""Add the base of the schema history.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

big = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "cdc_schema_base",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("upto", sa.BigInteger, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cdc_schema_base_pkey"),
    )
    op.create_index("idx_cdc_schema_base_connector_place", "cdc_schema_base", ["connector", "place"], unique=True)
    op.create_index("idx_cdc_schema_history_connector_id", "cdc_schema_history", ["connector", "id"])


def downgrade() -> None:
    op.drop_index("idx_cdc_schema_history_connector_id", "cdc_schema_history")
    op.drop_table("cdc_schema_base")
