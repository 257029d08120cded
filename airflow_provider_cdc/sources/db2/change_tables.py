"""What change tables have, where the agent does not say it in ``IBMSNAP_REGISTER``: by the index on the LSN of the commit, which each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from airflow_provider_cdc.core.model.schema import TableId
from airflow_provider_cdc.sources.db2.asn.registrations import Registration
from airflow_provider_cdc.sources.db2.connect import Connection, Db2Error
from airflow_provider_cdc.sources.db2.errors import UNDEFINED
from airflow_provider_cdc.sources.db2.position import order, sized
from airflow_provider_cdc.sources.db2.schema.sql_names import quoted

AT_ONCE: Final = 100
"""How many change tables one query asks."""


def with_changes(connection: Connection, tables: Sequence[Registration], start: bytes, end: bytes) -> set[TableId]:
    """The tables that have changes that committed after ``start``, up to and with ``end``; all of them, if a change table is gone: who reads it says so."""
    found: set[TableId] = set()
    for first in range(0, len(tables), AT_ONCE):
        some = tables[first : first + AT_ONCE]
        where = "t.IBMSNAP_COMMITSEQ > ? AND t.IBMSNAP_COMMITSEQ <= ?"
        asked = [
            f"SELECT {i} FROM SYSIBM.SYSDUMMY1 WHERE EXISTS (SELECT 1 FROM {_name(one)} t WHERE {where})"
            for i, one in enumerate(some)
        ]
        try:
            rows = connection.rows(" UNION ALL ".join(asked) + " WITH CS", *(sized(start, end), end) * len(some))
        except Db2Error as e:
            if e.code not in UNDEFINED:
                raise
            return {one.table for one in tables}
        found.update(some[int(i)].table for (i,) in rows)
    return found


def first_commit(connection: Connection, tables: Sequence[Registration]) -> bytes | None:
    """The first LSN of a commit that any of the tables has changes of; ``None`` = they are empty."""
    return _extreme(connection, tables, "MIN")


def last_commit(connection: Connection, one: Registration) -> bytes | None:
    """The last LSN of a commit that a table has changes of; ``None`` = it is empty."""
    return _extreme(connection, [one], "MAX")


def _extreme(connection: Connection, tables: Sequence[Registration], function: str) -> bytes | None:
    lsns: list[Any] = []
    for first in range(0, len(tables), AT_ONCE):
        asked = [
            f"SELECT {function}(t.IBMSNAP_COMMITSEQ) FROM {_name(one)} t" for one in tables[first : first + AT_ONCE]
        ]
        lsns += [lsn for (lsn,) in connection.rows(" UNION ALL ".join(asked) + " WITH CS")]
    chosen = min if function == "MIN" else max
    return chosen((bytes(lsn) for lsn in lsns if lsn is not None), key=order, default=None)


def _name(one: Registration) -> str:
    return quoted(TableId(namespace=one.change_owner, name=one.change_table))
