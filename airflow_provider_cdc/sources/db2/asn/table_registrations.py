"""Rows of ``IBMSNAP_REGISTER``: the change table of each registered table, and from where to where it holds changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.asn.agent_progress import clock_us
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.position import lsn_sort_key

ACTIVE: Final = "A"
INACTIVE: Final = "I"
STOPPED: Final = "S"

_ALL: Final = """
SELECT r.SOURCE_OWNER, r.SOURCE_TABLE, r.CD_OWNER, r.CD_TABLE, r.CD_OLD_SYNCHPOINT, r.CD_NEW_SYNCHPOINT, r.STATE, r.STATE_INFO,
r.CHG_UPD_TO_DEL_INS, r.BEFORE_IMG_PREFIX, t.ALTER_TIME, s.ALTER_TIME, t.CREATE_TIME FROM {schema}.IBMSNAP_REGISTER r
LEFT JOIN SYSCAT.TABLES t ON t.TABSCHEMA = r.CD_OWNER AND t.TABNAME = r.CD_TABLE
LEFT JOIN SYSCAT.TABLES s ON s.TABSCHEMA = r.SOURCE_OWNER AND s.TABNAME = r.SOURCE_TABLE
WHERE r.GLOBAL_RECORD = 'N' ORDER BY r.SOURCE_OWNER, r.SOURCE_TABLE WITH CS"""
_STARTS: Final = """
SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OLD_SYNCHPOINT FROM {schema}.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'N' AND CD_OLD_SYNCHPOINT IS NOT NULL
WITH CS"""


@dataclass(frozen=True, slots=True)
class TableRegistration:
    """A registered table.

    :param change_owner: schema of the change table
    :param old: the change table holds every change after this LSN (``CD_OLD_SYNCHPOINT``); ``None`` = the agent does not fill it, as everywhere
        without an Apply program
    :param new: the last LSN that the change table has changes of (``CD_NEW_SYNCHPOINT``); ``None`` = the agent does not fill it
    :param state: ``A`` active, ``I`` inactive, ``S`` stopped after an error
    :param reason: the message number of the error after which the agent stopped (``STATE_INFO``)
    :param pairs: updates come as a delete followed by an insert (``CHG_UPD_TO_DEL_INS`` = ``Y``), otherwise as one row
    :param before_prefix: the columns of this name and a column's hold the value before the change; ``None`` = there are none
    :param altered: when the change table was made or altered last (``ALTER_TIME``); ``None`` = there is no such table
    :param source_altered: likewise, of the table itself
    :param created_us: when the change table was made, µs by the database's clock; another change table of the same name has another time
    """

    table: TableId
    change_owner: str
    change_table: str
    old: bytes | None
    new: bytes | None
    state: str
    reason: str
    pairs: bool
    before_prefix: str | None
    altered: datetime | None = None
    source_altered: datetime | None = None
    created_us: int = 0

    @property
    def change_table_name(self) -> str:
        """The change table's name, for people."""
        return f"{self.change_owner}.{self.change_table}"


def read_registrations(connection: Db2Connection, schema: str, catalog: str | None) -> dict[TableId, TableRegistration]:
    """All registered tables, in one query.

    :param schema: quoted name of the schema of the agent's control tables
    :param catalog: name of the database, as tables' ids have it
    :raises NotGranted: there is no such control table, or the account may not read it
    """
    registrations = [_registration(row, catalog) for row in connection.fetch_rows(_ALL.format(schema=schema))]
    return {registration.table: registration for registration in registrations if registration is not None}


def later_starts(connection: Db2Connection, schema: str, catalog: str | None, lsn: bytes) -> dict[TableId, bytes]:
    """Find the registered tables whose change tables do not hold everything after an LSN, each with the LSN from which it does."""
    rows = connection.fetch_rows(_STARTS.format(schema=schema))
    starts = {TableId(namespace=_text(o), name=_text(t), catalog=catalog): bytes(old) for o, t, old in rows}
    return {table: start for table, start in starts.items() if lsn_sort_key(start) > lsn_sort_key(lsn)}


def _registration(row: tuple[Any, ...], catalog: str | None) -> TableRegistration | None:
    (
        owner,
        table,
        change_owner,
        change_table,
        old,
        new,
        state,
        reason,
        pairs,
        prefix,
        altered,
        source_altered,
        created,
    ) = row
    if not _text(owner) or change_table is None:  # registrations of views and of external copies have no change table
        return None
    return TableRegistration(
        table=TableId(namespace=_text(owner), name=_text(table), catalog=catalog),
        change_owner=_text(change_owner),
        change_table=_text(change_table),
        old=None if old is None else bytes(old),
        new=None if new is None else bytes(new),
        state=_text(state) or ACTIVE,
        reason=_text(reason),
        pairs=_text(pairs) == "Y",
        before_prefix=_text(prefix) or None,
        altered=altered,
        source_altered=source_altered,
        created_us=0 if created is None else clock_us(created),
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value).rstrip()
