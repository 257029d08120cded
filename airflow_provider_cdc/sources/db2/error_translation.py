"""Translates errors of the database and of the driver into errors of this project, with the safe state and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    NotGranted,
    PrerequisiteError,
    SourceBusy,
    SourceUnavailable,
    UnreadableValue,
)
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.error_meanings import (
    AGAIN,
    RETRY,
    UNTOUCHED,
    ErrorMeaning,
    mask_secrets,
    meaning_per_code,
)

_CODE = re.compile(r"SQLCODE=(-?\d+)")
_STATE = re.compile(r"SQLSTATE=(\w{5})")
_NUMBER = re.compile(r"\bSQL(\d{4,5})([NCWE])\b")
_DRIVER: Final = -99_999
"""SQLCODE of errors of the driver itself."""

UNDEFINED: Final = frozenset({-204})
"""There is no such table."""
FORBIDDEN: Final = frozenset({-551, -552, -727})
"""The account may not do that."""
NO_COLUMN: Final = frozenset({-205, -206})
LOCKED: Final = frozenset({-911, -913})
"""A deadlock, or a lock that was not granted in time."""


class Db2Error(Exception):
    """Error that the driver reports.

    :param message: its message, with ``SQLSTATE=`` and ``SQLCODE=``
    :ivar code: SQLCODE: negative for errors; 0 = none is known
    :ivar state: SQLSTATE; empty = none is known
    """

    def __init__(self, message: str, sql: str = "") -> None:
        super().__init__(message)
        self.message, self.sql = " ".join(message.split()), sql
        self.code, self.state = code_of(message), (m[1] if (m := _STATE.search(message)) else "")

    def shows_nothing(self, config: Db2Config) -> bool:
        """Check whether the text is free of secrets."""
        return without_secrets(self.message, config) == self.message


class ReadingCancelled(Db2Error):
    """The connection was closed, or its reading was ended."""

    def __init__(self) -> None:
        super().__init__("The connection was closed. SQLSTATE=08003 SQLCODE=-99999")


def code_of(message: str) -> int:
    """Parse the SQLCODE in a message.

    >>> code_of('[IBM][CLI Driver] SQL0204N  "X" is an undefined name.  SQLSTATE=42704 SQLCODE=-204')
    -204
    >>> code_of('[IBM][CLI Driver] SQL30081N  A communication error has been detected. SQLSTATE=08001')
    -30081
    """
    match = _CODE.search(message)
    if match and int(match[1]) != _DRIVER:
        return int(match[1])
    number = _NUMBER.search(message)
    if number:
        return int(number[1]) if number[2] == "W" else -int(number[1])
    return int(match[1]) if match else 0


_DENIED = ErrorMeaning(
    AccessDenied,
    "The database rejected user {user}",
    UNTOUCHED,
    "correct the login and password of the Airflow connection. If the message mentions it: renew the password or "
    "unlock the account; GRANT CONNECT ON DATABASE TO USER {user}; if it names an authentication method, set "
    "database.authentication",
)
_RIGHTS = ErrorMeaning(
    NotGranted,
    "User {user} may not access an object that capture needs, or the object does not exist",
    UNTOUCHED,
    "run the connection check, which names each missing privilege; for captured tables: GRANT SELECT ON TABLE <table> TO USER {user}; for "
    "the agent's tables: GRANT SELECT ON TABLE {control}.<table> TO USER {user}",
)
_LOST = ErrorMeaning(
    SourceUnavailable,
    "The database does not answer or closed the connection",
    AGAIN,
    "check that the instance is up (db2start) and reachable from this worker; " + RETRY,
)
_BUSY = ErrorMeaning(
    SourceBusy,
    "Another session holds a lock, or the database was busy for too long",
    AGAIN,
    "let long transactions end, or raise snapshot.lock.timeout.ms; " + RETRY,
)
_RESOURCES = ErrorMeaning(
    SourceUnavailable,
    "The database has no resources left for this statement or connection",
    AGAIN,
    ("raise the limit that the message names (locks: LOCKLIST; connections: MAXAPPLS; log: LOGPRIMARY, LOGSECOND); ")
    + RETRY,
)
_DATABASE = ErrorMeaning(
    ConfigError,
    "The database {database} is unknown",
    UNTOUCHED,
    "correct database.dbname; db2 list db directory on the server shows the names",
)
_PENDING = ErrorMeaning(
    PrerequisiteError,
    "The database or the table is in a state that does not allow reads",
    UNTOUCHED,
    "take the action that the message names: BACKUP DATABASE after switching to archived logs, REORG TABLE "
    "after ALTER TABLE, SET INTEGRITY after LOAD",
)
_CERTIFICATE = ErrorMeaning(
    PrerequisiteError,
    "The secure connection could not be established",
    "No password was sent, and nothing was read; the offset is untouched.",
    "name the certificate that signed the server's certificate in database.ssl.ca, and connect to the instance's "
    "TLS port (SSL_SVCENAME) by the host name in the certificate",
)
_VALUE = ErrorMeaning(
    UnreadableValue,
    "The database cannot return a value in the requested format",
    "No rows of this table were written.",
    "exclude the column with column.exclude.list",
)

_MEANINGS: list[tuple[Iterable[int], ErrorMeaning]] = [
    ((-30082, -1060, -1046, -1403), _DENIED),
    ((-204, -551, -552, -567, -727, -440, -443, -5193), _RIGHTS),
    ((-1224, -30081, -30080, -1032, -1039, -1035, -1015, -1119, -900, -1001, -1034, -1072, -1131, -1229, -1337, -30108, -20157), _LOST),
    ((-911, -912, -913, -918, -952), _BUSY),
    ((-954, -955, -956, -964, -968, -973, -289, -1040, -1226, -930, -101), _RESOURCES),
    ((-1013, -30061, -1031), _DATABASE),
    ((-668, -1116, -1117, -1118, -290, -1477, -20054), _PENDING),
    ((-1042, -901), _LOST),
    ((-20429, -1109), _CERTIFICATE),
    ((-802, -420, -180, -181, -302, -304, -406, -413, -1585, -20240), _VALUE),
]  # fmt: skip
_OF_CODE: Final = meaning_per_code(_MEANINGS)


def build_cdc_error(e: Db2Error, config: Db2Config, where: str = "") -> CdcError:
    """Return the error of this project for an error of the driver, without the password.

    :param where: table, LSN or statement; by default the server's address
    """
    message = without_secrets(e.message, config)
    meaning = _meaning(e)
    names = {"user": config.database_user, "database": config.database_dbname, "control": config.asn_capture_schema}
    return meaning.build_error(message, where or f"{config.server_address}/{config.database_dbname}", **names)


def _meaning(e: Db2Error) -> ErrorMeaning:
    if "GSKit" in e.message or "SSL Handshake" in e.message or "SQL10013N" in e.message:
        return _CERTIFICATE
    if (meaning := _OF_CODE.get(e.code)) is not None:
        return meaning
    if e.state.startswith("08") or e.state == "40003" or e.code in (0, _DRIVER):
        return _LOST
    if e.state.startswith("57") or e.state == "40001":
        return _RESOURCES
    if e.state.startswith("42") and e.state in ("42501", "42502", "42704"):
        return _RIGHTS
    if e.state.startswith("22"):
        return _VALUE
    return ErrorMeaning(
        PrerequisiteError,
        "The database rejected a statement",
        AGAIN,
        "look up the code (db2 ? <code>), fix the cause, and run again",
    )


def without_secrets(text: str, config: Db2Config) -> str:
    """``text`` with ``***`` instead of the password."""
    return mask_secrets(text, config.database_password)
