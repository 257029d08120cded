"""Classifies the errors with which a server ends a binlog dump.

Servers have one error code for all of them (1236, ``ER_MASTER_FATAL_ERROR_READING_BINLOG``). Only the text distinguishes a lost position
from a damaged log, an event that is too large, or a server without memory. The difference matters: after a lost position the tables may
be read again (``position.lost.mode``), which would mend none of the other errors, but would be repeated in each run.

The texts are those of MySQL 8.0 to 9.7 (``sql/rpl_binlog_sender.cc``, ``sql/binlog.cc``) and MariaDB 10.5 to 11.8 (``sql/sql_repl.cc``).
"""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_cdc.core.errors import (
    CdcError,
    PositionLost,
    PrerequisiteError,
    SourceLogDamaged,
    SourceUnavailable,
)
from airflow_provider_cdc.sources.error_meanings import ErrorMeaning

_SAFE: Final = "Nothing is lost: the position is in the log, and everything before it is captured."
_LARGEST: Final = 1 << 30


_LOST = ErrorMeaning(
    PositionLost,
    "The binary log no longer contains the saved position",
    safe="Everything before the position is captured. Later changes that the server has purged are missing from the "
    "log; the tables still contain their result.",
    remedy="set snapshot.mode=when_needed to snapshot all tables again and continue from there; keep the log "
    "(binlog_expire_logs_seconds) longer than the longest pause between two captures",
)
_BEHIND = ErrorMeaning(
    PositionLost,
    "The server's log ends before the captured position, or is another log",
    safe="Everything before the position is captured, including changes that the server no longer has. Nothing "
    "was read from this log.",
    remedy="find out whether the server was restored to an earlier state, lost the end of its log in a crash "
    "(sync_binlog=1 prevents that), or is a replica that is behind; if another server has the transactions, "
    "connect to that server, otherwise set snapshot.mode=when_needed to snapshot all tables again in their "
    "current state",
)
_TOO_LARGE = ErrorMeaning(
    PrerequisiteError,
    "The server does not send an event of its log that exceeds its max_allowed_packet",
    safe=_SAFE,
    remedy=f"SET GLOBAL max_allowed_packet = {_LARGEST}, and run again; if it already has this value, the event's length "
    "is wrong: the file is damaged on the server (check it with mysqlbinlog --verify-binlog-checksum); set "
    "snapshot.mode=always for one run to snapshot the tables again",
)
_CLOSED = ErrorMeaning(
    PrerequisiteError,
    "The server currently writes no binary log",
    safe="Everything before the position is captured. Changes made while the server writes no log are not in any log.",
    remedy="enable the log (log_bin), or check the server's error log for the reason why the server closed it (a full "
    "disk, with binlog_error_action=IGNORE_ERROR), and restart the server; then snapshot the tables again with "
    "snapshot.mode=always for one run",
)
_ENCRYPTED = ErrorMeaning(
    PrerequisiteError,
    "The server cannot decrypt its own log",
    safe=_SAFE,
    remedy="give the server the key with which the file was written (its keyring or encryption plugin), and run again",
)
_WITHOUT_GTIDS = ErrorMeaning(
    PrerequisiteError,
    "The log contains transactions with and without GTIDs, and cannot be read by GTID across them",
    safe=_SAFE,
    remedy="gtid_mode was changed before all transactions were captured: set it back by one step (to ON_PERMISSIVE if it "
    "is ON now, or to OFF_PERMISSIVE), run the capture, and set it forward again; or snapshot the tables again "
    "with snapshot.mode=always for one run",
)
_IN_TROUBLE = ErrorMeaning(
    SourceUnavailable,
    "The server stopped reading its log",
    safe="Changes that were not committed to the change log are captured again by the next run.",
    remedy="a retry resumes where this run stopped; if the error repeats, check the server's error log, its memory "
    "and its disk",
)
_DAMAGED = ErrorMeaning(
    SourceLogDamaged,
    "The server cannot continue reading its own log",
    safe="Everything before this point is captured; no later change was written.",
    remedy="run the capture again; if the error persists, the log file is damaged on the server or missing from its disk (check it "
    "with mysqlbinlog --verify-binlog-checksum); restore the file, connect to a replica that has it, or snapshot "
    "the tables again with snapshot.mode=always for one run",
)
_UNKNOWN = ErrorMeaning(
    PrerequisiteError,
    "The server stopped sending its log, for an unknown reason",
    safe="Everything before the position is captured.",
    remedy="check the server's error log, fix the cause, and run again; if the log cannot be read from the position, "
    "snapshot the tables again with snapshot.mode=always for one run",
)


def _texts(*texts: str) -> re.Pattern[str]:
    return re.compile("|".join(texts), re.IGNORECASE)


# the first match counts
_MEANINGS: Final[tuple[tuple[re.Pattern[str], ErrorMeaning], ...]] = (
    (
        _texts(
            "could not find first log file name", "purged required binary logs", "required binlog files have been purged",
            "gtid state not found in binlog$",
        ),
        _LOST,
    ),
    (
        _texts(
            "has more GTIDs than", "from position (> file size|< 4)", "from impossible position", "which is not in the master's binlog",
            "slave has probably diverged", "is missing the GTID", "requested incorrect position",
        ),
        _BEHIND,
    ),
    (_texts("exceeded max_allowed_packet"), _TOO_LARGE),
    (_texts("decrypt"), _ENCRYPTED),
    (_texts("binary log is not open"), _CLOSED),
    (_texts("cannot replicate (anonymous|GTID-)"), _WITHOUT_GTIDS),
    (_texts("corrupt"), _DAMAGED),
    (
        _texts(
            "memory", "my_net_write", "net_flush", "flush_net", "net error", "could not find next log", "I/O error reading log event$",
            "hook", "could not load|failed to load replication slave GTID state",
        ),
        _IN_TROUBLE,
    ),
    (
        _texts(
            "bogus data", "truncated in the middle", "crc check", "format.descript", "I/O error", "error reading", "failed to read",
            "could not (open|read|start|determine)", "failed to (open|determine|replace)", "duplicate", "unknown error reading",
        ),
        _DAMAGED,
    ),
)  # fmt: skip


def position_lost(message: str, where: str) -> CdcError:
    """Return the error for a position that is not in the log any more."""
    return _LOST.build_error(message, where)


def another_log(why: str, where: str) -> CdcError:
    """Return the error for a log that was begun again, with transactions that have the GTIDs of captured ones."""
    return PositionLost(
        f"The server's log is not the log of the position, although its GTIDs match: {why}.",
        where=where,
        safe="Everything before the position is captured. Nothing was read from this log; its changes are in the "
        "tables.",
        remedy="find out whether the server was reset (RESET BINARY LOGS AND GTIDS, RESET MASTER), or restored from a "
        "backup and written to; set snapshot.mode=when_needed to snapshot all tables again in their current state",
    )


def dump_error(message: str, where: str) -> CdcError:
    """Return the error for the server's message at the end of a dump.

    >>> type(dump_error("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source", "binlog.000003:4")).__name__
    'PrerequisiteError'
    """
    why = message.partition("; the first event ")[0]  # log positions follow
    for texts, meaning in _MEANINGS:
        if texts.search(why):
            return meaning.build_error(message, where)
    return _UNKNOWN.build_error(message, where)
