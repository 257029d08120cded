"""Rights of a connection: the commands that it may run, and the content of its lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dev.servers.mongodb.access import roles
from dev.servers.mongodb.access.roles import Privilege
from dev.servers.mongodb.commands import outputs
from dev.servers.mongodb.query import joins
from dev.servers.mongodb.storage.versioned_collections import Collection
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context
    from dev.servers.mongodb.operation.registry import Command

ON_COLLECTION = {
    "find": "find", "count": "find", "distinct": "find", "aggregate": "find", "insert": "insert", "update": "update", "delete": "remove", "create": "createCollection",
    "drop": "dropCollection", "collMod": "collMod", "createIndexes": "createIndex", "dropIndexes": "dropIndex", "listIndexes": "listIndexes", "collStats": "collStats",
    "convertToCapped": "convertToCapped", "findAndModify": "update", "splitVector": "splitVector",
}  # fmt: skip
ON_DATABASE = {
    "dropDatabase": "dropDatabase", "dbStats": "dbStats", "createUser": "createUser", "dropUser": "dropUser", "updateUser": "changePassword",
    "createRole": "createRole", "dropRole": "dropRole", "grantRolesToUser": "grantRole", "revokeRolesFromUser": "revokeRole", "usersInfo": "viewUser",
    "rolesInfo": "viewRole",
}  # fmt: skip
ON_CLUSTER = {
    "serverStatus": "serverStatus", "replSetGetStatus": "replSetGetStatus", "replSetGetConfig": "replSetGetConfig", "getParameter": "getParameter",
    "setParameter": "setParameter", "getClusterParameter": "getClusterParameter", "setClusterParameter": "setClusterParameter", "hostInfo": "hostInfo",
    "getCmdLineOpts": "getCmdLineOpts", "getLog": "getLog", "getShardMap": "getShardMap", "fsync": "fsync", "configureFailPoint": "setParameter",
    "replSetStepDown": "replSetStateChange", "replSetFreeze": "replSetStateChange", "replSetReconfig": "replSetConfigure",
}  # fmt: skip


def _is_unrestricted(context: Context) -> bool:
    """Check whether no one is asked: without authentication, and while there is no user yet."""
    if not context.server.node.settings.auth or context.connection is None or context.connection.trusted:
        return True
    return context.connection.user is None and not context.server.users.documents()


def check(context: Context, expected: Command) -> None:
    """Raise unless the connection may run the command."""
    if expected.open_to_all or _is_unrestricted(context):
        return
    user = context.connection.user if context.connection else None
    if user is None:
        raise MongoError(13, f"Command {expected.name} requires authentication")
    given = context.server.users.privileges(user)
    if not _is_allowed(context, expected.name, given):
        raise MongoError(13, f"not authorized on {context.db} to execute command {{ {expected.name}: ... }}")


def _is_allowed(context: Context, name: str, given: list[Privilege]) -> bool:
    body, db = context.body, context.db
    if name in ON_CLUSTER:
        return any(privilege.covers_cluster(ON_CLUSTER[name]) for privilege in given)
    if name == "aggregate":
        return _may_aggregate(body, db, given)
    if name in ON_DATABASE:
        return _is_covered(given, ON_DATABASE[name], db, None)
    if name == "listCollections":
        named = bool(body.get("nameOnly") and body.get("authorizedCollections"))
        return _is_covered(given, "listCollections", db, None) or (
            named and any(_applies_to_database(privilege, db) for privilege in given)
        )
    if name == "renameCollection":
        source, target = (body[part].partition(".") for part in ("renameCollection", "to"))
        return _is_covered(
            given, "renameCollectionSameDB" if source[0] == target[0] else "dropCollection", source[0], source[2]
        ) and _is_covered(given, "insert", target[0], target[2])
    if name == "bulkWrite":
        actions = {"insert": "insert", "update": "update", "delete": "remove"}
        spaces = [space["ns"].partition(".") for space in body["nsInfo"]]
        return all(
            _is_covered(given, actions[next(iter(op))], spaces[op[next(iter(op))]][0], spaces[op[next(iter(op))]][2])
            for op in body["ops"]
        )
    if name in ON_COLLECTION:
        target = body[context.name]
        if name == "splitVector":
            db, _, target = target.partition(".")
        return _is_covered(given, ON_COLLECTION[name], db, target) or (
            name == "create" and _is_covered(given, "insert", db, target)
        )
    return True


def _may_aggregate(body: Document, db: str, given: list[Privilege]) -> bool:
    pipeline, target = body.get("pipeline") or [], body["aggregate"]
    first = pipeline[0] if pipeline and isinstance(pipeline[0], dict) else {}
    collection = target if isinstance(target, str) else None
    if "$changeStream" in first:
        if isinstance(first["$changeStream"], dict) and first["$changeStream"].get("allChangesForCluster"):
            return all(any(privilege.covers_all(action) for privilege in given) for action in ("find", "changeStream"))
        return all(_is_covered(given, action, db, collection) for action in ("find", "changeStream"))
    if "$collStats" in first:
        return _is_covered(given, "collStats", db, collection)
    names = [collection, *joins.list_read_collections(pipeline)]
    writes = [stage for stage in pipeline if isinstance(stage, dict) and not outputs.NAMES.isdisjoint(stage)]
    return all(_is_covered(given, "find", db, name) for name in names) and all(
        _is_covered(given, action, *outputs.target_of(stage, db))
        for stage in writes
        for action in outputs.actions(stage)
    )


def may_see(context: Context, collection: Collection) -> bool:
    """Check whether a list of collections shows this one."""
    if not context.body.get("authorizedCollections") or _is_unrestricted(context):
        return True
    user = context.connection.user if context.connection else None
    return user is not None and any(
        privilege.covers(action, collection.db, collection.name)
        for privilege in context.server.users.privileges(user)
        for action in privilege.actions
    )


def may_list(context: Context, db: str) -> bool:
    """Check whether a list of databases shows this one: all with ``listDatabases``, else those of which something may be read."""
    if _is_unrestricted(context):
        return True
    user = context.connection.user if context.connection else None
    given = context.server.users.privileges(user) if user else []
    if any(privilege.covers_cluster("listDatabases") for privilege in given) and not context.body.get(
        "authorizedDatabases"
    ):
        return True
    return any(_applies_to_database(privilege, db) for privilege in given)


def _applies_to_database(privilege: Privilege, db: str) -> bool:
    """Check whether a privilege gives anything on a database."""
    if privilege.cluster:
        return False
    return privilege.db == db or (
        privilege.db is None and (db not in ("local", "config") or roles.EVERYTHING in privilege.actions)
    )


def _is_covered(given: list[Privilege], action: str, db: str, collection: Any) -> bool:
    return any(privilege.covers(action, db, collection if isinstance(collection, str) else None) for privilege in given)
