"""Rows that the database has refused, with the reason (``errors.tolerance=all``): they are kept in a table beside the others, in the same transaction."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import sqlalchemy as sa

from airflow_provider_cdc.sink.markers import TEXT
from airflow_provider_cdc.sink.tables import SinkTable

if TYPE_CHECKING:
    from airflow_provider_cdc.sink.steps import Step


class ErrorsTable:
    """The table of refused rows.

    :param of: values of the columns ``connector`` and ``sink``
    """

    def __init__(self, name: str, of: dict[str, str]) -> None:
        self._of = of
        self._table = sa.Table(
            name,
            sa.MetaData(),
            sa.Column("connector", sa.String(255), nullable=False),
            sa.Column("sink", sa.String(100), nullable=False),
            sa.Column("topic", sa.String(255), nullable=False),
            sa.Column("target", sa.String(255), nullable=False),
            sa.Column("event", sa.BigInteger, nullable=False),
            sa.Column("what", sa.String(16), nullable=False),
            sa.Column("row_json", TEXT, nullable=False),
            sa.Column("error", TEXT, nullable=False),
            sa.Column("refused_at", sa.String(32), nullable=False),
            quote=True,
        )

    def ensure(self, connection: sa.Connection) -> None:
        """Make the table, if it is not there."""
        self._table.create(connection, checkfirst=True)

    def keep(self, connection: sa.Connection, table: SinkTable, step: Step, error: str) -> None:
        """Keep the row of a step of one event."""
        (row,) = step.rows.to_pylist() or [{}]
        connection.execute(
            self._table.insert().values(
                **self._of,
                topic=table.topic,
                target=str(table.name),
                event=int(step.seq[0]),
                what=step.what,
                row_json=json.dumps(row, default=_text, ensure_ascii=False),
                error=error[:4000],
                refused_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            )
        )


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
