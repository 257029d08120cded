"""The ``V$`` views of logs, transactions and sessions."""

from collections.abc import Iterator
from typing import Any

from dev.servers.oracle.redo import logminer_columns, redo
from dev.servers.oracle.redo.redo import LogFile
from dev.servers.oracle.session_protocol import Session
from dev.servers.oracle.views.base import View, no_rows, view

Row = dict[str, Any]
BLOCK = 512
DESTINATIONS = ("LOG_ARCHIVE_DEST_1", "LOG_ARCHIVE_DEST_2")
STATISTICS = (
    "logons cumulative",
    "session uga memory",
    "session uga memory max",
    "session pga memory",
    "session pga memory max",
    "redo size",
)


def _yes(flag: bool) -> str:
    return "YES" if flag else "NO"


def _online(session: Session) -> Iterator[LogFile]:
    log = session.engine.redo
    return (one for one in log.logs if log.is_online(one))


def _status(session: Session, log: LogFile) -> str:
    if log.next is None:
        return "CURRENT"
    return "INACTIVE" if log.archived_at else "ACTIVE"


def _log(session: Session) -> Iterator[Row]:
    for log in _online(session):
        yield {
            "GROUP#": log.group, "THREAD#": log.thread, "SEQUENCE#": log.sequence, "BYTES": redo.MEMBER_SIZE, "BLOCKSIZE": BLOCK,
            "MEMBERS": 1, "ARCHIVED": _yes(bool(log.archived_at)), "STATUS": _status(session, log), "FIRST_CHANGE#": log.first,
            "FIRST_TIME": log.first_time, "NEXT_CHANGE#": _next_scn(log), "NEXT_TIME": log.next_time, "CON_ID": 0,
        }  # fmt: skip


def _next_scn(log: LogFile) -> int | str:
    """Return the SCN at which a log ends; as a text if it is too large for the storage's integers."""
    return str(redo.NEVER) if log.next is None else log.next


def _logfile(session: Session) -> Iterator[Row]:
    for log in _online(session):
        yield {"GROUP#": log.group, "TYPE": "ONLINE", "MEMBER": log.member, "IS_RECOVERY_DEST_FILE": "NO", "CON_ID": 0}


def _archived_logs(session: Session) -> Iterator[Row]:
    facts = session.engine.catalog.facts
    for number, log in enumerate((log for log in session.engine.redo.logs if log.archived_at), 1):
        for destination in range(1, session.database.destinations + 1):
            yield {
                "RECID": number, "NAME": None if log.deleted else log.archive, "DEST_ID": destination, "THREAD#": log.thread,
                "SEQUENCE#": log.sequence, "RESETLOGS_CHANGE#": log.resetlogs, "RESETLOGS_TIME": facts.resetlogs_time,
                "FIRST_CHANGE#": log.first, "FIRST_TIME": log.first_time, "NEXT_CHANGE#": log.next, "NEXT_TIME": log.next_time,
                "BLOCKS": redo.MEMBER_SIZE // BLOCK, "BLOCK_SIZE": BLOCK, "CREATOR": "ARCH", "REGISTRAR": "ARCH",
                "STANDBY_DEST": "NO", "ARCHIVED": "YES", "APPLIED": "NO", "DELETED": _yes(log.deleted), "STATUS": "D" if log.deleted else "A",
                "COMPLETION_TIME": log.archived_at, "DICTIONARY_BEGIN": _yes(log.dictionary_begin),
                "DICTIONARY_END": _yes(log.dictionary_end), "END_OF_REDO": "NO", "IS_RECOVERY_DEST_FILE": "NO", "CON_ID": 0,
            }  # fmt: skip


def _history(session: Session) -> Iterator[Row]:
    facts = session.engine.catalog.facts
    for number, log in enumerate((log for log in session.engine.redo.logs if log.next is not None), 1):
        yield {
            "RECID": number, "THREAD#": log.thread, "SEQUENCE#": log.sequence, "FIRST_CHANGE#": log.first,
            "FIRST_TIME": log.first_time, "NEXT_CHANGE#": log.next, "RESETLOGS_CHANGE#": log.resetlogs,
            "RESETLOGS_TIME": facts.resetlogs_time, "CON_ID": 0,
        }  # fmt: skip


def _destinations(session: Session) -> Iterator[Row]:
    for number, name in enumerate(DESTINATIONS, 1):
        used = number <= session.database.destinations
        yield {
            "DEST_ID": number, "DEST_NAME": name, "STATUS": "VALID" if used else "INACTIVE", "TYPE": "LOCAL", "TARGET": "PRIMARY",
            "DATABASE_MODE": "OPEN", "DESTINATION": "/opt/oracle/archive" if used else None, "BINDING": "OPTIONAL", "CON_ID": 0,
        }  # fmt: skip


def _threads(session: Session) -> Iterator[Row]:
    for thread in range(1, session.engine.redo.threads + 1):
        current = session.engine.redo.current(thread)
        closed = session.engine.redo.closed.get(thread)
        if session.standby and thread in session.database.closed_on_standby:
            closed = redo.FIRST_SCN
        yield {
            "THREAD#": thread, "STATUS": "OPEN" if closed is None else "CLOSED", "ENABLED": "PUBLIC", "GROUPS": redo.GROUPS, "CURRENT_GROUP#": current.group,
            "SEQUENCE#": current.sequence, "INSTANCE": f"{session.database.name}{thread}", "CHECKPOINT_CHANGE#": closed or current.first,
            "ENABLE_CHANGE#": 0, "DISABLE_CHANGE#": 0, "LAST_REDO_SEQUENCE#": current.sequence, "LAST_REDO_CHANGE#": session.engine.redo.last_redo[thread], "CON_ID": 0,
        }  # fmt: skip


def _standby_logs(session: Session) -> Iterator[Row]:
    """Show the standby's own logs: with real-time apply, they hold redo that is not archived yet. Otherwise there are none."""
    for log in session.engine.redo.logs if session.standby and session.database.real_time_apply else ():
        if not log.archived_at:
            yield {
                "GROUP#": log.group + 100, "THREAD#": log.thread, "SEQUENCE#": log.sequence, "BYTES": redo.MEMBER_SIZE, "BLOCKSIZE": BLOCK,
                "USED": BLOCK, "ARCHIVED": "NO", "STATUS": "ACTIVE", "FIRST_CHANGE#": log.first, "FIRST_TIME": log.first_time,
                "NEXT_CHANGE#": log.next, "NEXT_TIME": log.next_time, "LAST_CHANGE#": session.engine.redo.scn, "CON_ID": 0,
            }  # fmt: skip


def _mined_logs(session: Session) -> Iterator[Row]:
    facts = session.engine.catalog.facts
    for number, (name, log) in enumerate(session.miner.files.items(), 1):
        yield {
            "LOG_ID": number, "FILENAME": name, "LOW_TIME": log.first_time, "HIGH_TIME": log.next_time, "DB_ID": session.database.dbid,
            "DB_NAME": session.database.name, "RESET_SCN": facts.resetlogs_scn, "THREAD_ID": log.thread, "THREAD_SQN": log.sequence,
            "LOW_SCN": log.first, "NEXT_SCN": _next_scn(log), "DICTIONARY_BEGIN": _yes(log.dictionary_begin),
            "DICTIONARY_END": _yes(log.dictionary_end), "TYPE": "ONLINE" if name == log.member else "ARCHIVED", "BLOCKSIZE": BLOCK,
            "FILESIZE": redo.MEMBER_SIZE, "INFO": None, "STATUS": 0, "CON_ID": 0,
        }  # fmt: skip


def _parameters(session: Session) -> Iterator[Row]:
    if session.miner.parameters is not None:
        given = session.miner.parameters
        yield {
            "START_SCN": given["start"],
            "END_SCN": given["end"],
            "OPTIONS": given["options"],
            "STATUS": 0,
            "CON_ID": 0,
        }


def _own_transactions(session: Session) -> Iterator[Row]:
    """Return the transactions of the instance that the session is connected to."""
    return (row for row in _transactions(session) if row["INST_ID"] == session.thread)


def _transactions(session: Session) -> Iterator[Row]:
    """Yield the transactions of all instances in the session's container.

    From the root, users without CONTAINER_DATA see no other container, either.
    """
    inside = session.container != session.database.root or session.user.name not in ("SYS", "SYSTEM")
    for transaction in session.engine.transactions.values():
        xid = transaction.xid
        if transaction.has_start_record and (
            not inside or xid.container == session.database.container_id(session.container)
        ):
            yield {
                "INST_ID": transaction.thread,
                "ADDR": xid.raw, "XIDUSN": xid.segment, "XIDSLOT": xid.slot, "XIDSQN": xid.sequence, "STATUS": "ACTIVE",
                "START_TIME": transaction.started_at[2:].replace("-", "/"), "START_DATE": transaction.started_at,
                "START_SCN": transaction.started_scn, "START_SCNB": transaction.started_scn & 0xFFFFFFFF,
                "START_SCNW": transaction.started_scn >> 32, "XID": xid.raw, "USED_UREC": len(transaction.undo), "CON_ID": xid.container,
            }  # fmt: skip


def _sessions(session: Session) -> Iterator[Row]:
    for one in session.database.sessions():
        yield {
            "SID": one.number, "SERIAL#": one.number, "AUDSID": one.number, "USERNAME": one.user.name, "STATUS": "ACTIVE",
            "PROGRAM": "python", "MACHINE": "localhost", "OSUSER": "oracle", "SCHEMANAME": one.schema, "TYPE": "USER",
            "TADDR": one.current.xid.raw if one.current and one.current.has_start_record else None,
            "LOGON_TIME": f"{one.logged_on:%Y-%m-%d %H:%M:%S}", "CON_ID": session.database.container_id(one.container),
        }  # fmt: skip


def _statistic_names(session: Session) -> Iterator[Row]:
    for number, name in enumerate(STATISTICS):
        yield {"STATISTIC#": number, "NAME": name, "CLASS": 1, "CON_ID": 0}


def _statistics(session: Session) -> Iterator[Row]:
    for number, _ in enumerate(STATISTICS):
        yield {"SID": session.number, "STATISTIC#": number, "VALUE": 1_000_000 + number, "CON_ID": 0}


LOG_COLUMNS = "GROUP#:N THREAD#:N SEQUENCE#:N BYTES:N BLOCKSIZE:N MEMBERS:N ARCHIVED:T STATUS:T FIRST_CHANGE#:N FIRST_TIME:D NEXT_CHANGE#:N NEXT_TIME:D CON_ID:N"
ARCHIVED_COLUMNS = (
    "RECID:N NAME:T DEST_ID:N THREAD#:N SEQUENCE#:N RESETLOGS_CHANGE#:N RESETLOGS_TIME:D FIRST_CHANGE#:N FIRST_TIME:D"
    " NEXT_CHANGE#:N NEXT_TIME:D BLOCKS:N BLOCK_SIZE:N CREATOR:T REGISTRAR:T STANDBY_DEST:T ARCHIVED:T APPLIED:T DELETED:T"
    " STATUS:T COMPLETION_TIME:D DICTIONARY_BEGIN:T DICTIONARY_END:T END_OF_REDO:T IS_RECOVERY_DEST_FILE:T CON_ID:N"
)
MINED_COLUMNS = (
    "LOG_ID:N FILENAME:T LOW_TIME:D HIGH_TIME:D DB_ID:N DB_NAME:T RESET_SCN:N THREAD_ID:N THREAD_SQN:N LOW_SCN:N NEXT_SCN:N"
    " DICTIONARY_BEGIN:T DICTIONARY_END:T TYPE:T BLOCKSIZE:N FILESIZE:N INFO:T STATUS:N CON_ID:N"
)
DESTINATION_COLUMNS = (
    "DEST_ID:N DEST_NAME:T STATUS:T TYPE:T TARGET:T DATABASE_MODE:T DESTINATION:T BINDING:T ERROR:T CON_ID:N"
)

VIEWS = [
    view("V$LOG", LOG_COLUMNS, _log),
    view("V$LOGFILE", "GROUP#:N STATUS:T TYPE:T MEMBER:T IS_RECOVERY_DEST_FILE:T CON_ID:N", _logfile),
    view("V$ARCHIVED_LOG", ARCHIVED_COLUMNS, _archived_logs),
    view("V$LOG_HISTORY", "RECID:N THREAD#:N SEQUENCE#:N FIRST_CHANGE#:N FIRST_TIME:D NEXT_CHANGE#:N RESETLOGS_CHANGE#:N RESETLOGS_TIME:D CON_ID:N", _history),
    view("V$ARCHIVE_DEST_STATUS", DESTINATION_COLUMNS, _destinations),
    view("V$ARCHIVE_DEST", DESTINATION_COLUMNS, _destinations),
    view("V$THREAD", "THREAD#:N STATUS:T ENABLED:T GROUPS:N CURRENT_GROUP#:N SEQUENCE#:N INSTANCE:T CHECKPOINT_CHANGE#:N ENABLE_CHANGE#:N DISABLE_CHANGE#:N LAST_REDO_SEQUENCE#:N LAST_REDO_CHANGE#:N CON_ID:N", _threads),
    view("V$STANDBY_LOG", "GROUP#:N THREAD#:N SEQUENCE#:N BYTES:N BLOCKSIZE:N USED:N ARCHIVED:T STATUS:T FIRST_CHANGE#:N FIRST_TIME:D NEXT_CHANGE#:N NEXT_TIME:D LAST_CHANGE#:N CON_ID:N", _standby_logs),
    view("V$LOGMNR_LOGS", MINED_COLUMNS, _mined_logs),
    view("V$LOGMNR_PARAMETERS", "START_SCN:N END_SCN:N OPTIONS:N INFO:T STATUS:N CON_ID:N", _parameters),
    View("V$LOGMNR_CONTENTS", logminer_columns.COLUMNS, no_rows),
    view("GV$TRANSACTION", "INST_ID:N ADDR:R XIDUSN:N XIDSLOT:N XIDSQN:N STATUS:T START_TIME:T START_DATE:D START_SCN:N START_SCNB:N START_SCNW:N XID:R USED_UREC:N CON_ID:N", _transactions),
    view("V$TRANSACTION", "ADDR:R XIDUSN:N XIDSLOT:N XIDSQN:N STATUS:T START_TIME:T START_DATE:D START_SCN:N START_SCNB:N START_SCNW:N XID:R USED_UREC:N CON_ID:N", _own_transactions),
    view("V$SESSION", "SID:N SERIAL#:N AUDSID:N USERNAME:T STATUS:T PROGRAM:T MACHINE:T OSUSER:T SCHEMANAME:T TYPE:T TADDR:R LOGON_TIME:D CON_ID:N", _sessions),
    view("V$STATNAME", "STATISTIC#:N NAME:T CLASS:N CON_ID:N", _statistic_names),
    view("V$MYSTAT", "SID:N STATISTIC#:N VALUE:N CON_ID:N", _statistics),
]  # fmt: skip
