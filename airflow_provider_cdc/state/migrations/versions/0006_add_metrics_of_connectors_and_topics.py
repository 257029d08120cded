"""Add the metrics of connectors and their topics, with a short history.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
moment = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "cdc_metric",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("series", sa.String(64), nullable=False),
        sa.Column("producer", sa.String(250), nullable=False),
        sa.Column("topic", sa.Text, nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("at", moment, nullable=False),
        sa.PrimaryKeyConstraint("connector", "series", name="cdc_metric_pkey"),
    )
    op.create_table(
        "cdc_metric_history",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("series", sa.String(64), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cdc_metric_history_pkey"),
    )
    op.create_index(
        "idx_cdc_metric_history_connector_series_number", "cdc_metric_history", ["connector", "series", "number"]
    )


def downgrade() -> None:
    op.drop_table("cdc_metric_history")
    op.drop_table("cdc_metric")
