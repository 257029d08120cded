"""Translates errors of the database and of the driver into errors of this project, with the safe state and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import oracledb

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    NotGranted,
    PositionLost,
    PrerequisiteError,
    SchemaConflict,
    SourceLogDamaged,
    SourceUnavailable,
    UnreadableValue,
)
from airflow_provider_cdc.sources.error_meanings import (
    AGAIN,
    RETRY,
    UNTOUCHED,
    ErrorMeaning,
    mask_secrets,
    meaning_per_code,
)
from airflow_provider_cdc.sources.oracle.config import OracleConfig

SNAPSHOT_TOO_OLD: Final = frozenset({1555, 22924})
"""The undo does not reach back to the SCN of a flashback query or LOB."""
TABLE_CHANGED: Final = frozenset({1466, 8103, 8176})
"""The table's definition was changed after the SCN of a flashback query."""
LOG_NOT_READY: Final = frozenset({308, 310, 313, 1284, 1291, 1323, 1289})
"""A log has been switched, archived or removed since it was looked up: collect the logs again."""

_DENIED = ErrorMeaning(
    AccessDenied,
    "The database rejected user {user}",
    UNTOUCHED,
    "correct login and password of the Airflow connection. If the message mentions it, unlock the account or "
    "renew its password: ALTER USER {user} ACCOUNT UNLOCK; GRANT CREATE SESSION TO {user}{all}",
)
_RIGHTS = ErrorMeaning(
    NotGranted,
    "User {user} may not access an object that capture needs, or the object does not exist",
    UNTOUCHED,
    "run the connection check, which names each missing privilege; for tables: "
    "GRANT SELECT ANY TABLE TO {user}{all}; GRANT FLASHBACK ANY TABLE TO {user}{all}; "
    "for views of the server: GRANT SELECT_CATALOG_ROLE TO {user}{all}",
)
_LOST = ErrorMeaning(
    SourceUnavailable,
    "The database does not answer or closed the connection",
    AGAIN,
    "check that the database and the listener are up and reachable from this worker; " + RETRY,
)
_NOT_TRUSTED = ErrorMeaning(
    PrerequisiteError,
    "The database's certificate is not trusted",
    "No password was sent, and nothing was read; the offset is untouched.",
    "name the authority that signed the server's certificate in database.ssl.ca, or a folder with ewallet.pem in "
    "database.ssl.wallet; connect by the host name in the certificate (not by address), or set its distinguished "
    "name in database.ssl.server.cert.dn",
)
_UNTRUSTED: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED|DPY-(6002|6006|2018)\b")
"""In the message of another error: the server's certificate is not trusted, or a wallet is missing."""
_BUSY = ErrorMeaning(
    SourceUnavailable,
    "The database cannot provide another session or lock now",
    AGAIN,
    "raise PROCESSES, SESSIONS or the profile's SESSIONS_PER_USER, or wait; " + RETRY,
)
_MEMORY = ErrorMeaning(
    SourceUnavailable,
    "The database has not enough memory for the session",
    AGAIN,
    "raise PGA_AGGREGATE_LIMIT, set log.mining.session.max.ms so that mining sessions end before they grow, or switch "
    "logs more often; " + RETRY,
)
_SPACE = ErrorMeaning(
    PrerequisiteError,
    "The database has no space for the data that capture writes",
    AGAIN,
    "increase the user's tablespace quota: ALTER USER {user} QUOTA UNLIMITED ON <tablespace>{all}",
)
_UNDO = ErrorMeaning(
    SourceUnavailable,
    "The undo no longer reaches back to the start of the snapshot",
    "Tables that were read completely are kept; the other tables are read again at a new SCN.",
    "increase the undo retention: ALTER SYSTEM SET UNDO_RETENTION = 86400 (the undo tablespace must have room for "
    "it), raise snapshot.max.threads so that the snapshot ends sooner, or start with snapshot.mode=no_data",
)
_CHANGED = ErrorMeaning(
    SourceUnavailable,
    "The definition of a table was changed after the snapshot started",
    "Tables that were read completely are kept; the other tables are read again at a new SCN.",
    "delay DDL until the snapshot has ended; a retry reads at a new SCN, with the new definition",
)
_SCN = ErrorMeaning(
    PositionLost,
    "The SCN to resume from is not an SCN of this database",
    "Everything before the saved position is captured.",
    "if the database was restored or replaced, set snapshot.mode=when_needed to snapshot all tables again "
    "and continue from there",
)
_LOG = ErrorMeaning(
    PositionLost,
    "A required redo log no longer exists",
    "Everything before the saved position is captured. The tables still contain the result of later changes.",
    "restore the archived log (RMAN> RESTORE ARCHIVELOG FROM SCN <the position's scn>) and run again, or set "
    "snapshot.mode=when_needed to snapshot all tables again; keep archived logs longer than the longest pause "
    "between captures",
)
_DAMAGED = ErrorMeaning(
    SourceLogDamaged,
    "The database cannot read one of its redo logs",
    "Everything before the saved position is captured.",
    "restore the log from another copy (log.mining.archive.destination.name names the copy that is read), or set "
    "snapshot.mode=when_needed to snapshot all tables again",
)
_DICTIONARY = ErrorMeaning(
    PrerequisiteError,
    "LogMiner does not find its dictionary",
    "Nothing is lost: the logs are read again.",
    "set log.mining.strategy=online_catalog or hybrid, or write a dictionary: "
    "EXECUTE DBMS_LOGMNR_D.BUILD(OPTIONS => DBMS_LOGMNR_D.STORE_IN_REDO_LOGS)",
)
_SESSION = ErrorMeaning(
    SourceUnavailable, "The LogMiner session has ended", "Nothing is lost: the logs are read again.", RETRY
)
_BUSY_LOGMINER = ErrorMeaning(
    SourceUnavailable,
    "Another LogMiner session is active in the pluggable database",
    "Nothing is lost; the offset is untouched.",
    "Autonomous Database allows one session for each pluggable database: capture it with one connector only. The "
    "session of a run that was killed ends automatically, or by ALTER SYSTEM KILL SESSION; " + RETRY,
)
_SUPPLEMENTAL = ErrorMeaning(
    PrerequisiteError,
    "The database does not log the data that LogMiner needs",
    "Everything before the saved position is captured.",
    "ALTER DATABASE ADD SUPPLEMENTAL LOG DATA; then snapshot the tables again, because earlier changes are "
    "not in the log",
)
_ARCHIVE = ErrorMeaning(
    PrerequisiteError,
    "The database does not archive its redo logs",
    UNTOUCHED,
    "SHUTDOWN IMMEDIATE; STARTUP MOUNT; ALTER DATABASE ARCHIVELOG; ALTER DATABASE OPEN",
)
_READ_ONLY = ErrorMeaning(
    PrerequisiteError,
    "The database is open read-only",
    UNTOUCHED,
    "set database.hostname to the primary, and log.mining.readonly.hostname to this standby",
)
_NAME = ErrorMeaning(
    ConfigError,
    "The database or its address is unknown",
    UNTOUCHED,
    "correct database.dbname, database.pdb.name or database.url: a TNS name requires TNS_ADMIN to name the "
    "folder of tnsnames.ora",
)
_CONTAINER = ErrorMeaning(
    PrerequisiteError,
    "The pluggable database cannot be entered",
    UNTOUCHED,
    "correct database.pdb.name (SELECT NAME, OPEN_MODE FROM V$PDBS), open it (ALTER PLUGGABLE DATABASE <name> OPEN), and "
    "GRANT SET CONTAINER TO {user}{all}",
)
_REGION = ErrorMeaning(
    PrerequisiteError,
    "The database does not know a time zone",
    UNTOUCHED,
    "set TZ of the worker to a region that SELECT TZNAME FROM V$TIMEZONE_NAMES lists, or to UTC",
)
_OVERFLOW = ErrorMeaning(
    SchemaConflict,
    "An overflow table of an index-organized table cannot be read separately",
    UNTOUCHED,
    "exclude the table with table.exclude.list, and report the statement: such tables should have been "
    "excluded automatically",
)
_VALUE = ErrorMeaning(
    UnreadableValue,
    "The database cannot return a value in the requested format",
    "No rows of this table were written.",
    "exclude the column with column.exclude.list",
)
_INTERNAL = ErrorMeaning(
    SourceUnavailable,
    "The database had an internal error",
    AGAIN,
    "check its alert log; " + RETRY,
)

_MEANINGS: list[tuple[Iterable[int], ErrorMeaning]] = [
    ((1004, 1005, 1017, 1045, 28000, 28001, 28003, 28007, 28009, 28040, 28365), _DENIED),
    ((942, 1031, 1720, 4042, 6550, 38029, 41900, 903, 904), _RIGHTS),
    (
        (28, 603, 604, 1012, 1014, 1033, 1034, 1035, 1041, 1089, 1090, 1092, 1109, 1219, 2396, 2399, 3106, 3113, 3114, 3135, 3136,
         1013, 12150, 12152, 12153, 12157, 12170, 12203, 12500, 12502, 12510, 12511, 12514, 12516, 12518, 12519, 12520, 12521,
         12523, 12524, 12525, 12526, 12527, 12528, 12529, 12533, 12535, 12537, 12541, 12543, 12545, 12547, 12560, 12564, 12569,
         12570, 12571, 12583, 12592, 12599, 12606, 12608, 12609, 12611, 12612, 12618, 12637, 17002, 17008, 17410, 17800, 24756,
         25402, 25403, 25408, 25409, 30036, 56600),
        _LOST,
    ),
    ((18, 20, 54, 60, 104, 2391, 4020, 4021, 30006), _BUSY),
    ((4030, 4031, 4036, 27102), _MEMORY),
    ((1536, 1538, 1628, 1630, 1631, 1632, 1650, 1652, 1653, 1654, 1658, 1659, 1688, 1950, 19809, 257), _SPACE),
    (SNAPSHOT_TOO_OLD, _UNDO),
    (TABLE_CHANGED, _CHANGED),
    ((8180, 8181, 8186, 1281), _SCN),
    ({*LOG_NOT_READY, 1292, 1290, 1293, 1294, 19505, 27037}, _LOG),
    ((332, 333, 334, 336, 339, 341, 353, 354, 355, 356, 357, 358, 367, 368, 1344, 1345), _DAMAGED),
    ((1295, 1329, 1330, 1331, 1332, 1333, 1336, 1371), _DICTIONARY),
    ((1280, 1306, 1307, 1327, 1334, 1346, 44609), _SESSION),
    ((1353,), _BUSY_LOGMINER),
    ((1347, 1354), _SUPPLEMENTAL),
    ((1325, 258), _ARCHIVE),
    ((16000, 16224), _READ_ONLY),
    ((12154, 12162, 12504, 12505, 12546), _NAME),
    ((65011, 65019, 65023, 65024, 65040, 65046, 65054), _CONTAINER),
    ((1882,), _REGION),
    ((25191,), _OVERFLOW),
    ((932, 1406, 1411, 1427, 1722, 1801, 1841, 19011, 22835, 31011, 64464), _VALUE),
    ((600, 7445), _INTERNAL),
]  # fmt: skip
_OF_CODE: Final = meaning_per_code(_MEANINGS)

_OF_DRIVER: Final = {
    # errors of python-oracledb itself, without an ORA code
    "DPY-4000": _NAME, "DPY-4001": _DENIED, "DPY-4017": _NAME, "DPY-4018": _NAME, "DPY-4019": _NAME, "DPY-4020": _NAME,
    "DPY-4021": _NAME, "DPY-4022": _NAME, "DPY-4026": _NAME, "DPY-4027": _NAME, "DPY-6000": _LOST, "DPY-6001": _LOST,
    "DPY-6003": _NAME, "DPY-6005": _LOST, "DPY-4011": _LOST, "DPY-4024": _LOST, "DPY-1001": _LOST, "DPY-3008": _VALUE,
}  # fmt: skip

_SIMILAR = re.compile(r"Similar to ORA-(\d{5})")
_HELP = re.compile(r"\s*Help: https?://\S+")


def code_of(e: BaseException) -> int:
    """Return the ORA code of an error; 0 if it has none.

    >>> code_of(ValueError("no number"))
    0
    """
    detail = e.args[0] if isinstance(e, oracledb.Error) and e.args else None
    code = int(getattr(detail, "code", 0) or 0)
    similar = _SIMILAR.search(str(detail)) if not code else None
    return int(similar[1]) if similar else code


def translate_error(e: BaseException, config: OracleConfig, where: str = "") -> CdcError:
    """Translate an error of the driver into one of this project, without the password and credentials of a URL.

    :param where: table, SCN or host; by default the server's address
    """
    detail = e.args[0] if isinstance(e, oracledb.Error) and e.args else None
    full = str(getattr(detail, "full_code", ""))
    message = without_secrets(_HELP.sub("", str(getattr(detail, "message", None) or e)).strip(), config)
    untrusted = _NOT_TRUSTED if _UNTRUSTED.search(message) else None
    meaning = untrusted or _OF_CODE.get(code_of(e)) or _OF_DRIVER.get(full) or _other(e)
    names = {"user": config.database_user, "all": config.grant_suffix}
    return meaning.build_error(message, where or format_address(config), **names)


def _other(e: BaseException) -> ErrorMeaning:
    """Return the meaning of an unknown error: of the connection, or of a statement."""
    if isinstance(e, OSError | EOFError | oracledb.OperationalError | oracledb.InterfaceError):
        return _LOST
    return ErrorMeaning(
        PrerequisiteError,
        "The database rejected a statement",
        AGAIN,
        "look up the error code (https://docs.oracle.com/error-help/db/), fix the cause, and run again",
    )


def format_address(config: OracleConfig) -> str:
    """Address of the database, for errors."""
    return without_secrets(config.database_url or f"{config.database_hostname}:{config.database_port}", config)


_CREDENTIALS = re.compile(r"^(\s*jdbc:oracle:\w+:|)([^@()/\s]*)/((?:\"[^\"]*\"|[^()])*)@", re.IGNORECASE)

_SID = re.compile(r"([^/()@:\s]+):(\d+):([\w$#]+)")


def bare_url(url: str) -> str:
    """``database.url`` in the form of the thin driver: without the JDBC prefix and without credentials.

    >>> bare_url("jdbc:oracle:thin:scott/tiger@//db:1521/ORCL")
    '//db:1521/ORCL'
    >>> bare_url("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=db)))")
    '(DESCRIPTION=(ADDRESS=(HOST=db)))'
    """
    text = url.strip()
    if (match := _CREDENTIALS.match(text)) and not text[: match.end()].endswith("//@"):
        text = text[match.end() :]
    text = re.sub(r"^jdbc:oracle:\w+:", "", text, flags=re.IGNORECASE).removeprefix("@")
    if old := _SID.fullmatch(text):
        return f"(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST={old[1]})(PORT={old[2]}))(CONNECT_DATA=(SID={old[3]})))"
    return text


def without_secrets(text: str, config: OracleConfig) -> str:
    """``text`` with ``***`` instead of the password and of the credentials in ``database.url``."""
    if config.database_url and config.database_url in text:
        text = text.replace(config.database_url, bare_url(config.database_url))
    return mask_secrets(text, config.database_password)
