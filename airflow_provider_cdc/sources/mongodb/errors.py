"""Translates errors of the database and of the driver into errors of this project, with the safe state and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import pymongo.errors as driver

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    NotGranted,
    PositionLost,
    PrerequisiteError,
    QueryRejected,
    SourceUnavailable,
)
from airflow_provider_cdc.sources.error_meanings import (
    AGAIN,
    RETRY,
    UNTOUCHED,
    ErrorMeaning,
    mask_secrets,
    meaning_per_code,
)
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig

HISTORY_LOST: Final = 286
FATAL: Final = 280
TOO_LARGE: Final = 10334
NO_IMAGE: Final = 47
INVALID_TOKEN: Final = 260
CURSOR_GONE: Final = frozenset({43, 237, 222, 234, 136})
"""The cursor is gone, and a stream may be opened again behind the last event. A capped position that is lost is found out by that."""
SNAPSHOT_TOO_OLD: Final = frozenset({239, 246})
"""The server no longer has the state of that moment, or never shows it."""
SNAPSHOT_UNAVAILABLE: Final = 246
"""Also of capped collections before 8.0 (SERVER-47574)."""
NOTHING_BETWEEN: Final = frozenset({51175, 6137401})
"""The bounds of a query are equal, or the wrong way round: the server has no empty ranges."""
NO_COLLECTION: Final = 26
ATLAS: Final = 8000
"""The proxies of Atlas's small clusters say all that they refuse by this code."""
NOT_SHOWN: Final = frozenset({13, 20, ATLAS})
"""The oplog is not shown: for lack of a right, or as a router (``mongos``) has no ``local`` database."""
NOT_SUPPORTED: Final = frozenset({40573, 59, 76, 72, 9})

_RESUMABLE: Final = frozenset(
    {
        6, 7, 43, 63, 89, 91, 133, 134, 136, 150, 189, 202, 222, 234, 237, 262, 317, 358, 384, 9001, 10058, 10107, 11600, 11601, 11602,
        13388, 13435, 13436, 40671, 50,
    }
)  # fmt: skip
"""Codes after which a stream continues behind its last event: elections, shutdowns, networks, killed cursors, routing tables."""

_USERINFO = re.compile(r"(?<=://)[^/@\s]*@")


_DENIED = ErrorMeaning(
    AccessDenied,
    "The database rejected user {user}",
    UNTOUCHED,
    "correct login and password of the Airflow connection; the user must be defined in the database {authsource} "
    "(schema of the connection), and may need another authMechanism in the connection string",
)
_RIGHTS = ErrorMeaning(
    NotGranted,
    "User {user} lacks a privilege that capture needs",
    UNTOUCHED,
    'run the connection check, which names each missing privilege; for a stream on the deployment: db.getSiblingDB("admin").grantRolesToUser'
    '("{user}", ["readAnyDatabase"])',
)
_NO_SERVER = ErrorMeaning(
    SourceUnavailable,
    "No available member was found, or the connection was lost",
    AGAIN,
    (
        "check that the members are up and reachable from this worker, by the host names in rs.conf(), and that "
        "a majority of them is up; "
    )
    + RETRY,
)
_LOST = ErrorMeaning(
    PositionLost,
    "The oplog no longer holds the position",
    "Everything up to the position is captured; the offset is untouched.",
    "set position.lost.mode or snapshot.mode=when_needed to snapshot all collections again, and make the oplog "
    "larger: db.adminCommand({{replSetResizeOplog: 1, minRetentionHours: 48}})",
)
_UNKNOWN_TOKEN = ErrorMeaning(
    PositionLost,
    "The change stream does not contain the event of the position: the event was rolled back, or belongs to "
    "another deployment",
    "Everything up to the position is captured; the offset is untouched.",
    "correct the connection if it points to another deployment; otherwise set snapshot.mode=when_needed to "
    "snapshot all collections again",
)
_STANDALONE = ErrorMeaning(
    PrerequisiteError,
    "The server has no oplog: it is a standalone server",
    UNTOUCHED,
    "convert it to a replica set with one member: set replication.replSetName: rs0 in mongod.conf, restart "
    "mongod, run rs.initiate() in mongosh, and add replicaSet=rs0 to the connection string",
)
_LARGE = ErrorMeaning(
    PrerequisiteError,
    "A change exceeds the event size limit of 16 MB",
    AGAIN,
    "set cursor.oversize.handling.mode=split (MongoDB 6.0.9 and newer), or skip with cursor.oversize.skip.threshold; a capture.mode without pre-images makes events smaller",
)
_IMAGE = ErrorMeaning(
    PrerequisiteError,
    "An event has no image of its document, although capture.mode requires one: images were not recorded "
    "when the event was written, or have expired",
    "Everything before this event is captured.",
    "to continue, set capture.mode.full.update.type=lookup or a capture.mode without pre-images; to record images "
    "for later events: db.runCommand({{collMod: <collection>, changeStreamPreAndPostImages: {{enabled: true}}}})",
)
_QUERY = ErrorMeaning(
    QueryRejected,
    "The database rejected a query",
    UNTOUCHED,
    "correct the filter (snapshot.collection.filter.overrides, additional-conditions) or the stages (cursor.pipeline)",
)
_SMALL_CLUSTER = ErrorMeaning(
    PrerequisiteError,
    "Atlas rejected a command: its free and flex clusters do not support all commands",
    UNTOUCHED,
    "capture from a dedicated cluster (M10 or larger)",
)
_NOT_ENCRYPTED = ErrorMeaning(
    SourceUnavailable,
    "The server closed an unencrypted connection",
    AGAIN,
    "if the server requires TLS, set mongodb.ssl.enabled=true in the Airflow connection, or tls=true in its "
    "connection string; otherwise check that the members are up and reachable from this worker; " + RETRY,
)
_CERTIFICATE = ErrorMeaning(
    PrerequisiteError,
    "The secure connection could not be established",
    "No password was sent, and nothing was read; the offset is untouched.",
    "name the trusted certificates in mongodb.ssl.ca and the client's certificate in mongodb.ssl.certificate, and "
    "connect by the host name in the server's certificate",
)

_MEANINGS: list[tuple[Iterable[int], ErrorMeaning]] = [
    ((18, 11, 31), _DENIED),
    ((13,), _RIGHTS),
    (_RESUMABLE, _NO_SERVER),
    ((HISTORY_LOST,), _LOST),
    ((FATAL, INVALID_TOKEN, 50811, 40647, 50788), _UNKNOWN_TOKEN),
    ((40573, 76), _STANDALONE),
    ((TOO_LARGE,), _LARGE),
    ((NO_IMAGE,), _IMAGE),
    ((2, 9, 14, 15, 16, 40324, 40323, 17287, 40352, 51091), _QUERY),
]  # fmt: skip
_OF_CODE: Final = meaning_per_code(_MEANINGS)


def is_resumable(e: driver.PyMongoError) -> bool:
    """Check whether a stream that ended with this error may be opened again behind its last event.

    The server labels only some of these errors, so the code counts, too.
    """
    if e.has_error_label("NonResumableChangeStreamError"):
        return False
    if e.has_error_label("ResumableChangeStreamError"):
        return True
    if isinstance(e, driver.OperationFailure):
        return e.code in _RESUMABLE
    return isinstance(e, driver.ConnectionFailure) and not _of_certificates(e)


def code_of(e: driver.PyMongoError) -> int:
    """Return the server's error code; 0 = none is known."""
    if isinstance(e, driver.NotPrimaryError):
        return int(e.details.get("code", 0)) if isinstance(e.details, Mapping) else 0
    return int(e.code or 0) if isinstance(e, driver.OperationFailure) else 0


def translate_error(e: driver.PyMongoError, config: MongoDbConfig, where: str = "") -> CdcError:
    """Translate an error of the driver to the error of this project, without secrets.

    :param where: collection, position or command; by default the addresses of the deployment
    """
    meaning = _meaning(e)
    if meaning is _NO_SERVER and "connection closed" in str(e) and not config.has_tls:
        meaning = _NOT_ENCRYPTED
    names = {"user": config.mongodb_user or "(none)", "authsource": config.mongodb_authsource}
    return meaning.build_error(without_secrets(message_of(e), config), where or config.display_address, **names)


def without_image(table: object, position: object) -> PrerequisiteError:
    """Return the error of an event that has no image of its document; it stops its collection alone."""
    error = PrerequisiteError(
        f"An event of {table} has no image of its document, which capture.mode requires: images were not "
        "recorded when the event was written, or have expired.",
        where=str(position),
        safe="Everything of this collection before the event is captured, and capture of other collections continues.",
        remedy=f'record images from now on: db.runCommand({{collMod: "{getattr(table, "name", table)}", '
        "changeStreamPreAndPostImages: {enabled: true}}) in the collection's database, and snapshot the "
        "collection again; or set capture.mode=change_streams_update_full and capture.mode.full.update.type=lookup",
    )
    error.table = str(table)
    return error


def message_of(e: driver.PyMongoError) -> str:
    """Return the message, in one line, without the commands that some errors repeat."""
    details = getattr(e, "details", None)
    text = (
        str(details.get("errmsg") or e) if isinstance(details, Mapping) else str(e)
    )  # of cursors, bytes that are a mapping
    text = re.sub(r"to execute command \{ (\w+):.*", r"to execute \1", " ".join(text.split()))
    code = code_of(e)
    return f"{text[:500]} (code {code})" if code else text[:500]


def without_secrets(text: str, config: MongoDbConfig) -> str:
    """``text`` with ``***`` instead of passwords."""
    return _USERINFO.sub("***@", mask_secrets(text, config.mongodb_password, config.mongodb_ssl_certificate_password))


def _meaning(e: driver.PyMongoError) -> ErrorMeaning:
    if (meaning := _OF_CODE.get(code_of(e))) is not None:
        return meaning
    if code_of(e) == ATLAS:
        denied, refused = ("auth" in str(e).lower(), "not allowed to do action" in str(e))
        return _RIGHTS if refused else _DENIED if denied else _SMALL_CLUSTER
    if _of_certificates(e):
        return _CERTIFICATE
    if isinstance(e, driver.ConfigurationError | driver.InvalidURI):
        return ErrorMeaning(
            ConfigError,
            "The connection string is invalid",
            UNTOUCHED,
            "correct the connection string of the Airflow connection",
        )
    if isinstance(e, driver.ConnectionFailure):
        return _NO_SERVER
    return ErrorMeaning(
        PrerequisiteError,
        "The database rejected a command",
        AGAIN,
        "fix the cause that the message names, and run again",
    )


def _of_certificates(e: driver.PyMongoError) -> bool:
    text = str(e)
    return "SSL handshake failed" in text or "certificate verify failed" in text or "CERTIFICATE" in text
