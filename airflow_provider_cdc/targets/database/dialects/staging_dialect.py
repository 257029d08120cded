"""Dialects of databases that many workers can write to at once: by staging tables, from which one transaction takes the rows."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect, execute_sql, fields_of
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseColumn, DatabaseTargetTable

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_BYTES = 8 << 20
"""So many bytes of rows, as Arrow has them, are made texts at once, which are several times larger."""


class StagingDialect(TargetDialect):
    """A dialect that knows staging tables: real ones, in the schema of the connection, whose columns are some of a target table's, without any constraint."""

    @abc.abstractmethod
    def create_staging_table(
        self, connection: sa.Connection, table: DatabaseTargetTable, name: str, rows: pa.Table
    ) -> None:
        """Make a staging table with some rows, by the fastest way that the driver has.

        :param name: of the staging table; there is none of this name
        """

    @abc.abstractmethod
    def write_staged(
        self, connection: sa.Connection, table: DatabaseTargetTable, name: str, columns: Sequence[str], *, unique: bool
    ) -> None:
        """Insert the rows of a staging table whose key is not there, and change those whose key is; as :meth:`TargetDialect.upsert`.

        :param columns: of the staging table
        """

    @abc.abstractmethod
    def delete_staged(self, connection: sa.Connection, table: DatabaseTargetTable, name: str) -> None:
        """Delete the rows whose keys a staging table has."""

    @abc.abstractmethod
    def drop_staging_table(self, connection: sa.Connection, name: str) -> None:
        """Drop a staging table, if it is there. Who still writes it is waited for only for seconds."""

    def list_staging_tables(self, connection: sa.Connection, prefix: str) -> list[str]:
        """Names of the tables that begin with a text."""
        return [name for name in sa.inspect(connection).get_table_names() if name.lower().startswith(prefix)]

    def staged_rows(self, connection: sa.Connection, name: str) -> int:
        """Count the rows of a staging table."""
        result = connection.exec_driver_sql(f"SELECT COUNT(*) FROM {self.quote_name(name)}")
        return int(result.scalar_one())

    def stage_type(self, field: DatabaseColumn) -> str:
        """Return the type of a column of a staging table."""
        return self.build_column_type(field)

    def _make_stage(
        self, connection: sa.Connection, table: DatabaseTargetTable, rows: pa.Table, head: str, tail: str = ""
    ) -> None:
        columns = ", ".join(f"{self.quote_name(f.name)} {self.stage_type(f)}" for f in fields_of(table, rows))
        execute_sql(connection, f"{head} ({columns}){tail}")


def split_rows(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in parts of about :data:`SLICE_BYTES`."""
    step = max(1, rows.num_rows * SLICE_BYTES // max(rows.nbytes, 1))
    for at in range(0, rows.num_rows, step):
        yield rows.slice(at, step)
