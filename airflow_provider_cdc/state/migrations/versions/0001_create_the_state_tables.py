"""Create the state tables.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
moment = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "cdc_connector",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("source", sa.String(50), nullable=False),
        sa.Column("changelog", sa.Text, nullable=False),
        sa.Column("changelog_options", sa.JSON, nullable=False),
        sa.Column("properties", sa.JSON, nullable=False),
        sa.Column("connections", sa.JSON, nullable=False),
        sa.Column("updated_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("connector", name="cdc_connector_pkey"),
    )
    op.create_table(
        "cdc_lease",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("owner", sa.String(500), nullable=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("connector", name="cdc_lease_pkey"),
    )
    op.create_table(
        "cdc_offset",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("offset", sa.JSON, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("source", sa.String(50), nullable=False),
        sa.Column("updated_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("connector", name="cdc_offset_pkey"),
    )
    op.create_table(
        "cdc_offset_history",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("offset", sa.JSON, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.String(250), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cdc_offset_history_pkey"),
    )
    op.create_index(
        "idx_cdc_offset_history_connector_version", "cdc_offset_history", ["connector", "version"], unique=True
    )
    op.create_table(
        "cdc_batch",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("batch", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("manifest", sa.Text, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("events", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("topics", sa.JSON, nullable=False),
        sa.Column("position", sa.JSON, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("connector", "batch", name="cdc_batch_pkey"),
    )
    op.create_table(
        "cdc_schema_history",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cdc_schema_history_pkey"),
    )
    op.create_index("idx_cdc_schema_history_connector_seq", "cdc_schema_history", ["connector", "seq"])


def downgrade() -> None:
    for table in (
        "cdc_schema_history", "cdc_batch", "cdc_offset_history", "cdc_offset", "cdc_lease", "cdc_connector",
    ):  # fmt: skip
        op.drop_table(table)
