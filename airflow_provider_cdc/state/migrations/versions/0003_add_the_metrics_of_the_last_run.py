"""Add the metrics of a connector's last run.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("cdc_control", sa.Column("metrics", sa.JSON, nullable=True), schema=_schema())


def downgrade() -> None:
    with op.batch_alter_table("cdc_control", schema=_schema()) as control:
        control.drop_column("metrics")


def _schema() -> str | None:
    """Return the schema of Airflow's tables.

    Unlike new tables, tables that are changed are not found there by themselves.
    """
    return op.get_context().version_table_schema
