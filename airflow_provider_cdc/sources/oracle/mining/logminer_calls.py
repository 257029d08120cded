"""Calls of ``DBMS_LOGMNR``: add logs, start LogMiner with a range and a dictionary, end it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import CdcError, PrerequisiteError
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import MiningStrategy
from airflow_provider_cdc.sources.oracle.connect import Connection, code_of, fetch_rows, translate_driver_errors
from airflow_provider_cdc.sources.oracle.mining.log_switch_errors import LogsMoved, LogSwitchGuard
from airflow_provider_cdc.sources.oracle.mining.redo_log_collector import RedoLogFile

_NO_SESSION: Final = 1307

_NEW = "BEGIN SYS.DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :name, OPTIONS => DBMS_LOGMNR.NEW); END;"
"""Also removes the logs of a session that was never started."""
_ADD = "BEGIN SYS.DBMS_LOGMNR.ADD_LOGFILE(LOGFILENAME => :name, OPTIONS => DBMS_LOGMNR.ADDFILE); END;"
_REMOVE = "BEGIN SYS.DBMS_LOGMNR.REMOVE_LOGFILE(LOGFILENAME => :name); END;"
_END = "BEGIN SYS.DBMS_LOGMNR.END_LOGMNR(); END;"
_START = "BEGIN SYS.DBMS_LOGMNR.START_LOGMNR(STARTSCN => :low, ENDSCN => :high, {more}OPTIONS => {options}); END;"
_MINED = "SELECT FILENAME, THREAD_ID, THREAD_SQN, STATUS FROM V$LOGMNR_LOGS"
_FOUND = "SELECT FILENAME, THREAD_ID, THREAD_SQN, LOW_SCN, NEXT_SCN, TYPE, STATUS FROM V$LOGMNR_LOGS"
_NEVER: Final = 2**48 - 1
"""``NEXT_SCN`` of a current log is this or more, depending on the release."""
_NOT_IN_LIST = 4
"""``V$LOGMNR_LOGS.STATUS`` of a row that stands for missing logs."""
_OPTIONS: Final = {
    MiningStrategy.ONLINE_CATALOG: ("DICT_FROM_ONLINE_CATALOG",),
    MiningStrategy.HYBRID: ("DICT_FROM_ONLINE_CATALOG",),
    MiningStrategy.REDO_LOG_CATALOG: ("DICT_FROM_REDO_LOGS", "DDL_DICT_TRACKING"),
}


def add_logs(connection: Connection, config: OracleConfig, files: Sequence[RedoLogFile]) -> None:
    """Add the logs of a new session.

    :raises LogsMoved: a log file is not at its path any more
    """
    with LogSwitchGuard(config, f"{len(files)} logs"), connection.cursor() as cursor:
        for index, file in enumerate(files):
            cursor.execute(_ADD if index else _NEW, name=file.name)


def start_logminer(
    connection: Connection,
    config: OracleConfig,
    needed: Sequence[RedoLogFile],
    surplus: Sequence[RedoLogFile],
    low: int,
    end: int,
) -> None:
    """Start LogMiner for a range of SCNs.

    :param needed: logs of the session that contain the range
    :param surplus: logs of the session to remove, since no later range needs them
    :raises LogsMoved: a log file is not at its path any more
    :raises PrerequisiteError: the dictionary file cannot be read
    """
    with LogSwitchGuard(config, f"SCN {low} to {end}"), connection.cursor() as cursor:
        for file in surplus:
            cursor.execute(_REMOVE, name=file.name)
        _start(cursor, config, low, end)
        _check(connection, needed)


def find_logs(connection: Connection, config: OracleConfig, low: int, end: int) -> tuple[RedoLogFile, ...]:
    """Start LogMiner for a range of SCNs in a pluggable database, where it finds the logs by itself; returns these.

    :raises LogsMoved: it does not find all of them
    """
    with LogSwitchGuard(config, f"SCN {low} to {end}"), connection.cursor() as cursor:
        _start(cursor, config, low, end)
        rows = fetch_rows(connection, _FOUND)
    if missing := [str(row[0]) for row in rows if row[6] == _NOT_IN_LIST]:
        raise LogsMoved(missing[0])
    files = [
        RedoLogFile(str(name), int(thread), int(sequence), int(first), None if following is None or int(following) >= _NEVER else int(following),
                kind == "ARCHIVED")
        for name, thread, sequence, first, following, kind, _ in rows
    ]  # fmt: skip
    return tuple(sorted(files, key=lambda file: (file.thread, file.sequence)))


def end_logminer(connection: Connection, config: OracleConfig) -> None:
    """End the session, if there is one."""
    try:
        with translate_driver_errors(config), connection.cursor() as cursor:
            cursor.execute(_END)
    except CdcError as e:
        cause = e.__cause__
        if not (isinstance(cause, oracledb.Error) and code_of(cause) == _NO_SESSION):
            raise


def start_statement(config: OracleConfig) -> str:
    """Return the call that starts LogMiner.

    It has the bind variables ``:low``, ``:high`` and, with a dictionary file, ``:file``.
    """
    more = "DICTFILENAME => :file, " if config.log_mining_path_dictionary else ""
    names = () if more else _OPTIONS[config.log_mining_strategy]
    options = " + ".join(f"DBMS_LOGMNR.{name}" for name in (*names, "NO_ROWID_IN_STMT"))
    return _START.format(more=more, options=options)


def _start(cursor: oracledb.Cursor, config: OracleConfig, low: int, end: int) -> None:
    path = config.log_mining_path_dictionary
    try:
        cursor.execute(start_statement(config), low=low, high=end, **({"file": path} if path else {}))
    except oracledb.DatabaseError as e:
        if not path or path not in str(e):
            raise
        raise PrerequisiteError(
            f"LogMiner cannot read the dictionary file of log.mining.path.dictionary: {e}",
            where=path,
            safe="The offset is untouched.",
            remedy="write the file on the server (EXECUTE DBMS_LOGMNR_D.BUILD('<file>', '<directory>', OPTIONS => "
            "DBMS_LOGMNR_D.STORE_IN_FLAT_FILE)), or remove the property",
        ) from e


def _check(connection: Connection, needed: Sequence[RedoLogFile]) -> None:
    """Check that LogMiner has the intended logs, not other logs that reuse their file names.

    :raises LogsMoved: it has not
    """
    mined = fetch_rows(connection, _MINED)
    missing = [str(name) for name, _, _, status in mined if status == _NOT_IN_LIST]
    taken = {(int(thread), int(sequence)) for _, thread, sequence, status in mined if status != _NOT_IN_LIST}
    other = {(log_file.thread, log_file.sequence) for log_file in needed} - taken
    if missing or other:
        raise LogsMoved(missing[0] if missing else f"LogMiner has different logs with these names than {sorted(other)}")
