"""Add signals, notifications and what people want of connectors.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

big = sa.BigInteger().with_variant(sa.Integer, "sqlite")
long = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
moment = sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def upgrade() -> None:
    op.add_column("cdc_lease", sa.Column("taken_at", moment, nullable=True), schema=_schema())
    op.create_table(
        "cdc_signal",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("signal_id", sa.String(500), nullable=False),
        sa.Column("type", sa.String(250), nullable=False),
        sa.Column("data", long, nullable=True),
        sa.Column("channel", sa.String(50), nullable=False),
        sa.Column("origin", sa.String(250), nullable=True),
        sa.Column("sent_by", sa.String(250), nullable=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("message", long, nullable=False),
        sa.Column("progress", sa.JSON, nullable=True),
        sa.Column("received_at", moment, nullable=False),
        sa.Column("running_at", moment, nullable=True),
        sa.Column("ended_at", moment, nullable=True),
        sa.PrimaryKeyConstraint("id", name="cdc_signal_pkey"),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_cdc_signal_connector_id", "cdc_signal", ["connector", "id"])
    op.create_index("idx_cdc_signal_connector_origin", "cdc_signal", ["connector", "origin"], unique=True)
    op.create_table(
        "cdc_notification",
        sa.Column("id", big, autoincrement=True, nullable=False),
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("notification_id", sa.String(500), nullable=False),
        sa.Column("aggregate_type", sa.String(250), nullable=False),
        sa.Column("type", sa.String(250), nullable=False),
        sa.Column("additional_data", sa.JSON, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="cdc_notification_pkey"),
        sqlite_autoincrement=True,
    )
    op.create_index("idx_cdc_notification_connector_id", "cdc_notification", ["connector", "id"])
    op.create_table(
        "cdc_control",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("wanted", sa.String(20), nullable=False),
        sa.Column("restarts", sa.BigInteger, nullable=False),
        sa.Column("asked_by", sa.String(250), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("since", moment, nullable=True),
        sa.Column("run_ended_at", moment, nullable=True),
        sa.Column("last_error", long, nullable=True),
        sa.Column("last_error_at", moment, nullable=True),
        sa.PrimaryKeyConstraint("connector", name="cdc_control_pkey"),
    )


def downgrade() -> None:
    for table in ("cdc_control", "cdc_notification", "cdc_signal"):
        op.drop_table(table)
    with op.batch_alter_table("cdc_lease", schema=_schema()) as lease:
        lease.drop_column("taken_at")


def _schema() -> str | None:
    """Return the schema of Airflow's tables.

    Unlike new tables, tables that are changed are not found there by themselves.
    """
    return op.get_context().version_table_schema
