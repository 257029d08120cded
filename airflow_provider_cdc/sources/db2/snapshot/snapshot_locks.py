"""The moment that a snapshot is of: with locks, until the capture agent has published everything from before them; without, as the agent is."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError, SourceBusy
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.db2.asn.agent_marker_signals import mark_at, write_mark
from airflow_provider_cdc.sources.db2.asn.agent_progress import AgentProgress, read_agent_progress
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.config_enums import IsolationMode
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error
from airflow_provider_cdc.sources.db2.error_translation import LOCKED, UNDEFINED
from airflow_provider_cdc.sources.db2.position import lsn_text
from airflow_provider_cdc.sources.relational.sql_quoting import quote_table

log = logging.getLogger(__name__)

_MODES: Final = {IsolationMode.EXCLUSIVE: "EXCLUSIVE", IsolationMode.REPEATABLE_READ: "SHARE"}
_READS: Final = {
    IsolationMode.EXCLUSIVE: "CS",
    IsolationMode.REPEATABLE_READ: "CS",
    IsolationMode.READ_COMMITTED: "CS",
    IsolationMode.READ_UNCOMMITTED: "UR",
}
_POLL_S: Final = 0.05
_LONGEST_POLL_S: Final = 0.5
_SHOW_S: Final = 10.0
_MOST_SECONDS: Final = 32_767


def is_locking(mode: IsolationMode) -> bool:
    """Check whether a snapshot locks its tables, and so is of one moment."""
    return mode in _MODES


def resolve_isolation_level(mode: IsolationMode) -> str:
    """Return the isolation with which a snapshot's queries read."""
    return _READS[mode]


def set_lock_timeout(connection: Db2Connection, timeout_ms: int) -> None:
    """Let the connection's statements wait so long for a lock; 0 = not at all, -1 = for ever. Db2 counts whole seconds."""
    seconds = min(math.ceil(timeout_ms / 1000), _MOST_SECONDS)
    connection.execute(
        f"SET CURRENT LOCK TIMEOUT {'WAIT' if timeout_ms < 0 else 'NOT WAIT' if not timeout_ms else seconds}"
    )


def lock_tables(connection: Db2Connection, tables: Iterable[TableId], mode: IsolationMode) -> None:
    """Lock tables until the connection's transaction ends, in an order that is always the same; a table that was dropped meanwhile is no error."""
    for table in sorted(tables, key=str):
        try:
            connection.execute(f"LOCK TABLE {quote_table(table)} IN {_MODES[mode]} MODE")
        except Db2Error as e:
            if e.code not in UNDEFINED:
                raise
            log.info("%s is not locked, because it no longer exists.", table)


def try_share_locks(connection: Db2Connection, tables: Iterable[TableId], mode: IsolationMode) -> bool:
    """Have another connection hold the locks, too; ``False``: no other connection may hold them, or writers wait already."""
    if mode is not IsolationMode.REPEATABLE_READ:
        return False
    set_lock_timeout(connection, 0)
    try:
        lock_tables(connection, tables, mode)
    except Db2Error as e:
        if e.code not in LOCKED:
            raise
        connection.rollback()
        log.info("Writers already wait for the snapshot's tables: fewer connections read them.")
        return False
    return True


def wait_for_agent(connection: Db2Connection, config: Db2Config) -> tuple[AgentProgress, int]:
    """Wait until the agent has published everything committed before the call.

    :param connection: a connection without locks, as this commits on it
    :return: the agent's progress, and the mark that it has published
    :raises SourceBusy: the agent has not published it within ``snapshot.agent.timeout.ms``
    :raises PrerequisiteError: the agent does not move at all, or the account may not write marks
    """
    mark = write_mark(connection, config)
    began, first, pause = time.monotonic(), read_agent_progress(connection, config.capture_schema), _POLL_S
    now, shown = first, began
    while not now.lsn or mark_at(connection, config, now.lsn) < mark:
        connection.rollback()
        waited = time.monotonic() - began
        if waited * 1000 > config.snapshot_agent_timeout_ms:
            raise agent_too_slow(config, waited, moved=now.lsn != first.lsn)
        if time.monotonic() - shown > _SHOW_S:
            shown = time.monotonic()
            log.info(
                "The capture agent has published changes up to LSN %s: the snapshot waits for it.", lsn_text(now.lsn)
            )
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_POLL_S)
        now = read_agent_progress(connection, config.capture_schema)
    connection.rollback()
    log.info(
        "The capture agent has published all changes that were committed before the locks; the wait took %.2f s.",
        time.monotonic() - began,
    )
    return now, mark


def agent_too_slow(config: Db2Config, waited_s: float, *, moved: bool) -> PrerequisiteError | SourceBusy:
    """Return the error of an agent that has not published a mark in time.

    :param moved: it has published other changes meanwhile
    """
    schema, safe = config.asn_capture_schema, "Nothing was read, and no lock is held; the offset is untouched."
    if moved:
        return SourceBusy(
            f"The capture agent is behind: after {waited_s:,.0f} s it has not published all changes that "
            "were committed before the locks.",
            where=f"{schema}.IBMSNAP_REGISTER",
            safe=safe,
            remedy=f"raise snapshot.agent.timeout.ms, or lower COMMIT_INTERVAL and SLEEP_INTERVAL in {schema}.IBMSNAP_CAPPARMS, and let the agent catch up first",
        )
    return PrerequisiteError(
        f"The capture agent does not run: it has published nothing for {waited_s:,.0f} s, not even the signal that capture wrote for it.",
        where=f"{schema}.IBMSNAP_REGISTER",
        safe=safe,
        remedy=f"VALUES {schema}.ASNCDCSERVICES('start','asncdc'), or start asncap capture_schema={schema} "
        f"capture_server={config.database_dbname} on the server; if it runs but sleeps for longer, raise "
        "snapshot.agent.timeout.ms",
    )
