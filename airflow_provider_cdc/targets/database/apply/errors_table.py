"""Rows that the database has refused, with the reason (``errors.tolerance=all``): they are kept in a table beside the others, in the same transaction."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.progress.binary_collation import TRANSACTIONAL
from airflow_provider_cdc.targets.database.progress.marker_table import TEXT
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable

if TYPE_CHECKING:
    from airflow_provider_cdc.targets.database.events.event_operation_reader import TableOperation

_LONGEST, _LEAST = 60_000, 8
"""Bytes of a row that is kept, as texts of MySQL and MariaDB have room for, and characters that are left of each value if there are many."""


class ErrorsTable:
    """The table of refused rows.

    :param owner: values of the columns ``connector`` and ``sink``
    """

    def __init__(self, name: str, owner: dict[str, str]) -> None:
        self._of = owner
        self._table = sa.Table(
            name,
            sa.MetaData(),
            sa.Column("connector", sa.String(255), nullable=False),
            sa.Column("sink", sa.String(100), nullable=False),
            sa.Column("topic", sa.String(255), nullable=False),
            sa.Column("target", sa.String(255), nullable=False),
            sa.Column("event", sa.BigInteger, nullable=False),
            sa.Column("action", sa.String(16), nullable=False),
            sa.Column("row_json", TEXT, nullable=False),
            sa.Column("error", TEXT, nullable=False),
            sa.Column("refused_at", sa.String(32), nullable=False),
            quote=True,
            **TRANSACTIONAL,
        )

    def create_if_missing(self, connection: sa.Connection) -> None:
        """Make the table, if it is not there."""
        self._table.create(connection, checkfirst=True)

    def store_row(
        self, connection: sa.Connection, table: DatabaseTargetTable, step: TableOperation, error: str
    ) -> None:
        """Keep the row of a step of one event."""
        connection.execute(
            self._table.insert().values(
                **self._of,
                topic=table.topic,
                target=str(table.name),
                event=int(step.seq[0]),
                action=step.action,
                row_json=_row(step.rows),
                error=error[:4000],
                refused_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            )
        )


def _row(rows: pa.Table) -> str:
    """Format the row of a step, with long values cut if it is long: this table has to accept values that others have rejected."""
    values = {name: _value(rows[name].slice(0, 1)) for name in rows.column_names if rows.num_rows}
    whole = json.dumps(values, default=_text, ensure_ascii=False)
    if len(whole.encode()) <= _LONGEST:
        return whole
    most = max(_LONGEST // 5 // len(values), _LEAST)
    return json.dumps({name: _cut(value, most) for name, value in values.items()}, default=_text, ensure_ascii=False)


def _value(values: pa.ChunkedArray) -> object:
    """Return a value; a text for people if Python has none of the kind."""
    try:
        return values[0].as_py()
    except (ValueError, OverflowError):
        return sql_literals.format_first_value(values)


def _cut(value: object, most: int) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = _text(value[:most]) if isinstance(value, bytes) else _text(value)
    long = len(value) if isinstance(value, (str, bytes)) else len(text)
    return text if long <= most else f"{text[:most]}… ({long:,} in total)"


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
