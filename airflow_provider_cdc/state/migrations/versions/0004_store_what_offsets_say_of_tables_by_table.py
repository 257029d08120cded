"""Store what offsets say of single tables in a row for each table.

Offsets that are there stay as they are, whole in their document; a run writes the new form.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

big = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "cdc_offset_table",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("part", sa.String(20), nullable=False),
        sa.Column("name", sa.String(1000), nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.Column("since_version", sa.BigInteger, nullable=False),
        sa.Column("until_version", sa.BigInteger, nullable=True),
        sa.PrimaryKeyConstraint("id", name="cdc_offset_table_pkey"),
    )
    op.create_index("idx_cdc_offset_table_connector_until", "cdc_offset_table", ["connector", "until_version"])


def downgrade() -> None:
    """Make the documents whole again: earlier releases know no other form."""
    from airflow_provider_cdc.state.models import OffsetHistoryRow, OffsetRow
    from airflow_provider_cdc.state.offset_table_states import MARK, whole_offsets

    if not op.get_context().as_sql:
        c = op.get_bind()
        for row in (OffsetRow, OffsetHistoryRow):
            for connector, version, document in c.execute(sa.select(row.connector, row.version, row.offset)).all():
                if MARK in document:
                    whole = whole_offsets(c, connector, {version: document})[version].to_document()
                    mine = (row.connector == connector) & (row.version == version)
                    c.execute(sa.update(row).where(mine).values(offset=whole))
    op.drop_table("cdc_offset_table")
