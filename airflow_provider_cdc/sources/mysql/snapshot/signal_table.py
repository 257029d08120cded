"""Writing watermarks to the signal table."""

from __future__ import annotations

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import raise_query_refused
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import quote_table, quoted_name

ENGINE = "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_COLUMNS = """
SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
ORDER BY ordinal_position LIMIT 3"""


class SignalTable:
    """Inserts and deletes rows of the signal table. Its first three columns are id, type and data, whatever their names."""

    def __init__(self, connection: Connection, config: MySqlConfig, table: TableId) -> None:
        """Read the column names of the signal table.

        :raises QueryRejected: the table does not exist, or has fewer than three columns
        """
        self._connection, self._config, self.id = connection, config, table
        self._names = column_names(connection, table)
        account = f"'{config.database_user}'@'%'"
        self._remedy = f"{signal_table_sql(table, account)}; or set read.only=true"
        if len(self._names) < 3:
            raise QueryRejected(
                f"The signal table {table} does not exist, or has fewer than three columns.",
                where=str(table),
                safe="No watermark was written; capture continues.",
                remedy=self._remedy,
            )

    def insert_row(self, id_: str, type_: str, data: str | None) -> None:
        """Insert a row and commit.

        :raises QueryRejected: the server refuses the statement
        """
        names = ", ".join(map(quoted_name, self._names))
        self._run(f"INSERT INTO {quote_table(self.id)} ({names}) VALUES (%s, %s, %s)", id_, type_, data)

    def delete_row(self, id_: str) -> None:
        """Delete the row with this id and commit.

        :raises QueryRejected: the server refuses the statement
        """
        self._run(f"DELETE FROM {quote_table(self.id)} WHERE {quoted_name(self._names[0])} = %s", id_)

    def _run(self, sql: str, *arguments: str | None) -> None:
        with raise_query_refused(self._config, str(self.id), self._remedy), self._connection.cursor() as cursor:
            cursor.execute(sql, arguments)


def column_names(connection: Connection, table: TableId) -> list[str]:
    """Names of the first three columns; empty if the table does not exist."""
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, (table.namespace, table.name))
        return [str(row[0]) for row in cursor.fetchall()]


def signal_table_sql(table: TableId, account: str) -> str:
    """Return the statements that create a signal table and grant an account the rights to write to it.

    :param account: as ``GRANT`` takes it: ``'cdc'@'%'``
    """
    return (
        f"CREATE TABLE {quote_table(table)} (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data TEXT NULL) ENGINE=InnoDB; "
        f"GRANT SELECT, INSERT, DELETE ON {quote_table(table)} TO {account}"
    )
