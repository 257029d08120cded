"""The commands by name. A command or an option of it that is not here is refused with the server's own error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dev.servers.mongodb.values.errors import MongoError

GENERIC = frozenset(
    {
        "$db", "$clusterTime", "$readPreference", "$audit", "$client", "$configServerState", "lsid", "txnNumber", "autocommit", "startTransaction",
        "stmtId", "stmtIds", "readConcern", "writeConcern", "maxTimeMS", "comment", "apiVersion", "apiStrict", "apiDeprecationErrors",
        "$unwrappedReadPref", "databaseVersion", "shardVersion", "maxTimeMSOpOnly", "$replData", "$gleStats", "$oplogQueryData", "clientOperationKey",
        "rawData", "_standInShard", "_standInKey", "_standInAt", "help", "usesDefaultDB", "expectPrefix", "serialization_context",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command: its function, the options it knows, and its permitted users."""

    name: str
    run: Callable[..., Any]
    options: frozenset[str] | None
    write: bool = False
    admin_only: bool = False
    open_to_all: bool = False
    secondary: bool = True


COMMANDS: dict[str, Command] = {}


def command(
    name: str,
    *options: str,
    write: bool = False,
    admin_only: bool = False,
    open_to_all: bool = False,
    lax: bool = False,
) -> Callable[..., Any]:
    """Register a function as a command. ``lax`` commands take any option."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        known = None if lax else frozenset({name, *options})
        COMMANDS[name] = Command(name, run, known, write, admin_only, open_to_all)
        return run

    return register


ALIASES = {
    "isMaster": "hello",
    "ismaster": "hello",
    "findandmodify": "findAndModify",
    "buildinfo": "buildInfo",
    "count": "count",
    "dropindexes": "dropIndexes",
    "deleteIndexes": "dropIndexes",
    "listcollections": "listCollections",
    "collstats": "collStats",
    "dbstats": "dbStats",
    "createindexes": "createIndexes",
    "listindexes": "listIndexes",
    "killcursors": "killCursors",
    "getmore": "getMore",
}


def find_command(name: str, body: dict[str, Any]) -> Command:
    """The command of a name. Raises :class:`MongoError` when there is none, or it does not know an option."""
    expected = COMMANDS.get(name) or COMMANDS.get(ALIASES.get(name, ""))
    if expected is None:
        raise MongoError(59, f"no such command: '{name}'")
    if expected.options is not None:
        for option in body:
            if option not in expected.options and option not in GENERIC and option != name:
                raise MongoError(40415, f"BSON field '{expected.name}.{option}' is an unknown field.")
    return expected
