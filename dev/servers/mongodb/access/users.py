"""Users and their roles: who a connection is, and whether it may run a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dev.servers.mongodb.access import auth, roles
from dev.servers.mongodb.access.roles import Privilege
from dev.servers.mongodb.commands import outputs
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.query import joins
from dev.servers.mongodb.storage.versioned_collections import Collection, new_uuid
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context
    from dev.servers.mongodb.operation.registry import Command
    from dev.servers.mongodb.storage.node import Node

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


@dataclass
class User:
    """A user who has authenticated."""

    name: str
    db: str

    @property
    def id(self) -> str:
        """The name with its database, of which sessions carry a digest."""
        return f"{self.name}@{self.db}"


class Users:
    """The users of a deployment, kept in ``admin.system.users`` as the server keeps them."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def _collection(self, name: str) -> Collection | None:
        return self._node.catalog.find(f"admin.system.{name}")

    def documents(self, name: str = "users") -> list[Document]:
        """All users, or all roles."""
        collection = self._collection(name)
        return list(collection.documents()) if collection else []

    def find(self, user: str, db: str, name: str = "users") -> Document | None:
        """A user, or a role."""
        return next((document for document in self.documents(name) if document["_id"] == f"{db}.{user}"), None)

    def save(self, document: Document, name: str = "users") -> None:
        """Write a user or a role."""
        collection = self._collection(name)
        if collection is None:
            self._node.write({"op": "c", "ns": "admin.$cmd", "ui": new_uuid(), "o": {"create": f"system.{name}"}})
            collection = self._collection(name)
        assert collection
        before = next((item for item in collection.documents() if item["_id"] == document["_id"]), None)
        place = {"ns": collection.namespace, "ui": collection.uuid}
        if before is None:
            self._node.write({"op": "i", **place, "o": document, "o2": {"_id": document["_id"]}})
        else:
            self._node.write({"op": "u", **place, "o": document, "o2": {"_id": document["_id"]}})

    def remove(self, document: Document, name: str = "users") -> None:
        """Delete a user or a role."""
        collection = self._collection(name)
        assert collection
        self._node.write({"op": "d", "ns": collection.namespace, "ui": collection.uuid, "o": {"_id": document["_id"]}})

    # rights

    def _everything(self, context: Context) -> bool:
        """Whether nobody is asked: without authentication, and while there is no user yet."""
        if not self._node.settings.auth or context.connection is None or context.connection.trusted:
            return True
        return context.connection.user is None and not self.documents()

    def privileges(self, user: User) -> list[Privilege]:
        """All that a user may do."""
        document = self.find(user.name, user.db)
        return self._of_roles(document["roles"]) if document else []

    def _of_roles(self, given: list[Document]) -> list[Privilege]:
        out: list[Privilege] = []
        for role in given:
            known = roles.builtin(role["role"], role["db"])
            if known is None:
                own = self.find(role["role"], role["db"], "roles")
                if own is None:
                    continue
                known = [*map(roles.of_document, own["privileges"]), *self._of_roles(own["roles"])]
            out += known
        return out

    def check(self, context: Context, wanted: Command) -> None:
        """Raise unless the connection may run the command."""
        if wanted.open_to_all or self._everything(context):
            return
        user = context.connection.user if context.connection else None
        if user is None:
            raise MongoError(13, f"Command {wanted.name} requires authentication")
        given = self.privileges(user)
        if not self._allowed(context, wanted.name, given):
            raise MongoError(13, f"not authorized on {context.db} to execute command {{ {wanted.name}: ... }}")

    def _allowed(self, context: Context, name: str, given: list[Privilege]) -> bool:
        body, db = context.body, context.db
        if name in ON_CLUSTER:
            return any(privilege.covers_cluster(ON_CLUSTER[name]) for privilege in given)
        if name == "aggregate":
            return self._may_aggregate(body, db, given)
        if name in ON_DATABASE:
            return _covered(given, ON_DATABASE[name], db, None)
        if name == "listCollections":
            named = bool(body.get("nameOnly") and body.get("authorizedCollections"))
            return _covered(given, "listCollections", db, None) or (
                named and any(_on(privilege, db) for privilege in given)
            )
        if name == "renameCollection":
            source, target = (body[part].partition(".") for part in ("renameCollection", "to"))
            return _covered(
                given, "renameCollectionSameDB" if source[0] == target[0] else "dropCollection", source[0], source[2]
            ) and _covered(given, "insert", target[0], target[2])
        if name == "bulkWrite":
            actions = {"insert": "insert", "update": "update", "delete": "remove"}
            spaces = [space["ns"].partition(".") for space in body["nsInfo"]]
            return all(
                _covered(given, actions[next(iter(op))], spaces[op[next(iter(op))]][0], spaces[op[next(iter(op))]][2])
                for op in body["ops"]
            )
        if name in ON_COLLECTION:
            target = body[context.name]
            if name == "splitVector":
                db, _, target = target.partition(".")
            return _covered(given, ON_COLLECTION[name], db, target) or (
                name == "create" and _covered(given, "insert", db, target)
            )
        return True

    @staticmethod
    def _may_aggregate(body: Document, db: str, given: list[Privilege]) -> bool:
        pipeline, target = body.get("pipeline") or [], body["aggregate"]
        first = pipeline[0] if pipeline and isinstance(pipeline[0], dict) else {}
        collection = target if isinstance(target, str) else None
        if "$changeStream" in first:
            if isinstance(first["$changeStream"], dict) and first["$changeStream"].get("allChangesForCluster"):
                return all(
                    any(privilege.covers_all(action) for privilege in given) for action in ("find", "changeStream")
                )
            return all(_covered(given, action, db, collection) for action in ("find", "changeStream"))
        if "$collStats" in first:
            return _covered(given, "collStats", db, collection)
        names = [collection, *joins.named(pipeline)]
        writes = [stage for stage in pipeline if isinstance(stage, dict) and not outputs.NAMES.isdisjoint(stage)]
        return all(_covered(given, "find", db, name) for name in names) and all(
            _covered(given, action, *outputs.target_of(stage, db))
            for stage in writes
            for action in outputs.actions(stage)
        )

    def may_see(self, context: Context, collection: Collection) -> bool:
        """Whether a list of collections shows this one."""
        if not context.body.get("authorizedCollections") or self._everything(context):
            return True
        user = context.connection.user if context.connection else None
        return user is not None and any(
            privilege.covers(action, collection.db, collection.name)
            for privilege in self.privileges(user)
            for action in privilege.actions
        )

    def may_list(self, context: Context, db: str) -> bool:
        """Whether a list of databases shows this one: all with ``listDatabases``, else those of which something may be read."""
        if self._everything(context):
            return True
        user = context.connection.user if context.connection else None
        given = self.privileges(user) if user else []
        if any(privilege.covers_cluster("listDatabases") for privilege in given) and not context.body.get(
            "authorizedDatabases"
        ):
            return True
        return any(_on(privilege, db) for privilege in given)

    def hello(self, context: Context, body: Document) -> Document:
        """What ``hello`` says about authentication: a user's mechanisms, and the answer to a message sent along."""
        out: Document = {}
        if "saslSupportedMechs" in body:
            db, _, name = body["saslSupportedMechs"].partition(".")
            found = self.find(name, db)
            out["saslSupportedMechs"] = list(found["credentials"]) if found else []
        ahead = body.get("speculativeAuthenticate")
        if ahead and context.connection is not None:
            try:
                context.db = ahead.get("db", "$external")
                out["speculativeAuthenticate"] = (
                    _start(context, ahead) if "saslStart" in ahead else _by_certificate(context, ahead)
                )
            except MongoError:
                context.connection.speech = None
        return out


def _on(privilege: Privilege, db: str) -> bool:
    """Whether a privilege gives anything on a database."""
    if privilege.cluster:
        return False
    return privilege.db == db or (
        privilege.db is None and (db not in ("local", "config") or roles.EVERYTHING in privilege.actions)
    )


def _covered(given: list[Privilege], action: str, db: str, collection: Any) -> bool:
    return any(privilege.covers(action, db, collection if isinstance(collection, str) else None) for privilege in given)


# authentication


@command("saslStart", "mechanism", "payload", "options", "autoAuthorize", "db", open_to_all=True)
def sasl_start(context: Context, body: Document) -> Document:
    """Begin a SCRAM conversation."""
    return _start(context, body)


def _start(context: Context, body: Document) -> Document:
    connection = context.connection
    assert connection
    if body["mechanism"] not in auth.HASHES:
        raise MongoError(334, f"Unsupported mechanism {body['mechanism']}")
    payload = bytes(body["payload"])
    found = context.server.users.find(auth.name_in(payload), context.db)
    if found is None:
        raise auth.failed()
    speech = auth.Conversation(
        body["mechanism"], found, context.db, bool(body.get("options", {}).get("skipEmptyExchange"))
    )
    connection.speech = speech
    return auth.reply(speech.begin(payload), done=False)


@command("saslContinue", "conversationId", "payload", open_to_all=True)
def sasl_continue(context: Context, body: Document) -> Document:
    """Go on with a SCRAM conversation."""
    connection = context.connection
    if connection is None or connection.speech is None:
        raise MongoError(17, "No SASL session state found")
    speech = connection.speech
    if speech.stage == "final":
        try:
            answer = speech.finish(bytes(body["payload"]))
        except (ValueError, KeyError):
            raise auth.failed() from None
        if speech.skip_empty:
            connection.user, connection.speech = User(speech.user["user"], speech.db), None
        return auth.reply(answer, done=speech.skip_empty)
    connection.user, connection.speech = User(speech.user["user"], speech.db), None
    return auth.reply(b"", done=True)


@command("authenticate", "mechanism", "user", "db", open_to_all=True)
def authenticate(context: Context, body: Document) -> Document:
    """Authenticate by the certificate of the connection."""
    return _by_certificate(context, body)


def _by_certificate(context: Context, body: Document) -> Document:
    connection = context.connection
    subject = connection.certificate_subject() if connection else None
    if body.get("mechanism") != "MONGODB-X509" or connection is None or subject is None:
        raise auth.failed()
    if body.get("user", subject) != subject or context.server.users.find(subject, "$external") is None:
        raise auth.failed()
    connection.user = User(subject, "$external")
    return {"dbname": "$external", "user": subject, "ok": 1.0}


@command("logout", open_to_all=True)
def logout(context: Context, body: Document) -> Document:
    """Forget who the connection is."""
    if context.connection:
        context.connection.user = None
    return {"ok": 1.0}


@command("connectionStatus", "showPrivileges", open_to_all=True)
def connection_status(context: Context, body: Document) -> Document:
    """Who the connection is."""
    user = context.connection.user if context.connection else None
    found = context.server.users.find(user.name, user.db) if user else None
    info: Document = {
        "authenticatedUsers": [{"user": user.name, "db": user.db}] if user else [],
        "authenticatedUserRoles": found["roles"] if found else [],
    }
    if body.get("showPrivileges"):
        info["authenticatedUserPrivileges"] = [
            _shown(privilege) for privilege in (context.server.users.privileges(user) if user else [])
        ]
    return {"authInfo": info, "ok": 1.0}


def _shown(privilege: Privilege) -> Document:
    resource: Document = (
        {"cluster": True} if privilege.cluster else {"db": privilege.db or "", "collection": privilege.collection or ""}
    )
    return {"resource": resource, "actions": sorted(privilege.actions)}
