"""Reads the first and the last commit of change tables where the agent does not fill ``IBMSNAP_REGISTER``, by each table's index on the commit LSN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error
from airflow_provider_cdc.sources.db2.error_translation import UNDEFINED
from airflow_provider_cdc.sources.db2.position import lsn_sort_key, resized_lsn
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

TABLES_PER_QUERY: Final = 100
"""How many change tables one query reads."""


def tables_with_changes(
    connection: Db2Connection, tables: Sequence[TableRegistration], start: bytes, end: bytes
) -> set[TableId]:
    """Return the tables with changes committed after ``start``, up to and with ``end``; all tables if a change table is gone, as reading it raises the error."""
    changed: set[TableId] = set()
    for first in range(0, len(tables), TABLES_PER_QUERY):
        some = tables[first : first + TABLES_PER_QUERY]
        where = "t.IBMSNAP_COMMITSEQ > ? AND t.IBMSNAP_COMMITSEQ <= ?"
        queries = [
            f"SELECT {i} FROM SYSIBM.SYSDUMMY1 WHERE EXISTS (SELECT 1 FROM {_change_table(registration)} t WHERE {where})"
            for i, registration in enumerate(some)
        ]
        try:
            rows = connection.fetch_rows(
                " UNION ALL ".join(queries) + " WITH CS", *(resized_lsn(start, end), end) * len(some)
            )
        except Db2Error as e:
            if e.code not in UNDEFINED:
                raise
            return {registration.table for registration in tables}
        changed.update(some[int(i)].table for (i,) in rows)
    return changed


def first_commit(connection: Db2Connection, tables: Sequence[TableRegistration]) -> bytes | None:
    """Return the commit LSN of the first change in any of the change tables; ``None`` = they are empty."""
    return _extreme_commit(connection, tables, "MIN")


def last_commit(connection: Db2Connection, registration: TableRegistration) -> bytes | None:
    """Return the commit LSN of the last change in a change table; ``None`` = it is empty."""
    return _extreme_commit(connection, [registration], "MAX")


def _extreme_commit(connection: Db2Connection, tables: Sequence[TableRegistration], function: str) -> bytes | None:
    lsns: list[Any] = []
    for first in range(0, len(tables), TABLES_PER_QUERY):
        queries = [
            f"SELECT {function}(t.IBMSNAP_COMMITSEQ) FROM {_change_table(registration)} t"
            for registration in tables[first : first + TABLES_PER_QUERY]
        ]
        lsns += [lsn for (lsn,) in connection.fetch_rows(" UNION ALL ".join(queries) + " WITH CS")]
    chosen = min if function == "MIN" else max
    return chosen((bytes(lsn) for lsn in lsns if lsn is not None), key=lsn_sort_key, default=None)


def _change_table(registration: TableRegistration) -> str:
    return quote_table(TableId(namespace=registration.change_owner, name=registration.change_table))
