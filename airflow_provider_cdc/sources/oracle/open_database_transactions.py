"""The transactions that are open in the database (``V$TRANSACTION``)."""

from __future__ import annotations

from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import NotGranted
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import Connection, code_of, fetch_rows, fetch_scalar

_OPEN: Final = "SELECT XID, START_SCN FROM {view} WHERE START_SCN > 0"
_THREADS: Final = "SELECT COUNT(*) FROM V$THREAD WHERE STATUS = 'OPEN'"
_NO_RIGHTS: Final = {942, 1031}


def open_transactions(connection: Connection, config: OracleConfig) -> dict[bytes, int]:
    """XID → start SCN of the transactions that are open now in the container of a connection, in all instances.

    ``V$TRANSACTION`` has those of one instance, so a cluster is asked by ``GV$TRANSACTION``.

    :raises NotGranted: the user may not see them
    """
    view = "GV$TRANSACTION" if int(fetch_scalar(connection, _THREADS) or 1) > 1 else "V$TRANSACTION"
    try:
        return {bytes(xid): int(scn) for xid, scn in fetch_rows(connection, _OPEN.format(view=view))}
    except oracledb.DatabaseError as e:
        if code_of(e) not in _NO_RIGHTS:
            raise
        raise NotGranted(
            f"Open transactions cannot be read, so their changes would be lost: {e}",
            where=view,
            safe="Nothing was read; the offset is untouched.",
            remedy=f"GRANT SELECT ON {view.replace('V$', 'V_$')} TO {config.database_user}{config.grant_suffix}",
        ) from e
