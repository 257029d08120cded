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
long = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
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
        sa.Column("acquired_at", moment, nullable=True),
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
    op.create_index("idx_cdc_schema_history_connector_id", "cdc_schema_history", ["connector", "id"])
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
        sa.Column("desired_state", sa.String(20), nullable=False),
        sa.Column("restarts", sa.BigInteger, nullable=False),
        sa.Column("requested_by", sa.String(250), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("changed_at", moment, nullable=True),
        sa.Column("run_ended_at", moment, nullable=True),
        sa.Column("last_error", long, nullable=True),
        sa.Column("last_error_at", moment, nullable=True),
        sa.Column("metrics", sa.JSON, nullable=True),
        sa.Column("failure", sa.JSON, nullable=True),
        sa.PrimaryKeyConstraint("connector", name="cdc_control_pkey"),
    )
    op.create_table(
        "cdc_target",
        sa.Column("connector", sa.String(250), nullable=False),
        sa.Column("place", sa.String(64), nullable=False),
        sa.Column("target", sa.String(50), nullable=False),
        sa.Column("location", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("failure", sa.JSON, nullable=True),
        sa.Column("error", long, nullable=True),
        sa.Column("began_at", moment, nullable=False),
        sa.Column("ended_at", moment, nullable=True),
        sa.PrimaryKeyConstraint("connector", "place", name="cdc_target_pkey"),
    )
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
    for table in (
        "cdc_metric_history",
        "cdc_metric",
        "cdc_target",
        "cdc_control",
        "cdc_notification",
        "cdc_signal",
        "cdc_schema_base",
        "cdc_schema_history",
        "cdc_batch",
        "cdc_offset_table",
        "cdc_offset_history",
        "cdc_offset",
        "cdc_lease",
        "cdc_connector",
    ):
        op.drop_table(table)
