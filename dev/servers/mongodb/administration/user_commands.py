"""The commands that make and change users and roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bson.binary import Binary

from dev.servers.mongodb.access import auth, roles
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.storage.versioned_collections import new_uuid
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


def _roles(context: Context, given: list[Any]) -> list[Document]:
    out = []
    for role in given:
        entry = {"role": role, "db": context.db} if isinstance(role, str) else dict(role)
        if (
            roles.builtin(entry["role"], entry["db"]) is None
            and context.server.users.find(entry["role"], entry["db"], "roles") is None
        ):
            raise MongoError(31, f"Could not find role: {entry['role']}@{entry['db']}")
        out.append(entry)
    return out


@command(
    "createUser",
    "pwd",
    "roles",
    "mechanisms",
    "customData",
    "authenticationRestrictions",
    "digestPassword",
    "passwordDigestor",
)
def create_user(context: Context, body: Document) -> Document:
    """Make a user."""
    context.must_write()
    name, db = body["createUser"], context.db
    if context.server.users.find(name, db):
        raise MongoError(51003, f'User "{name}@{db}" already exists')
    if db == "$external":
        secret: Document = {"external": True}
    else:
        secret = auth.credentials(name, body["pwd"], body.get("mechanisms"))
    document = {
        "_id": f"{db}.{name}",
        "userId": Binary(new_uuid(), 4),
        "user": name,
        "db": db,
        "credentials": secret,
        "roles": _roles(context, body["roles"]),
    }
    context.server.users.save(document)
    return {"ok": 1.0}


@command("updateUser", "pwd", "roles", "mechanisms", "customData", "authenticationRestrictions", "digestPassword")
def update_user(context: Context, body: Document) -> Document:
    """Change a user's password or roles."""
    context.must_write()
    found = _user(context, body["updateUser"])
    changed = dict(found)
    if "pwd" in body:
        changed["credentials"] = auth.credentials(found["user"], body["pwd"], body.get("mechanisms"))
    if "roles" in body:
        changed["roles"] = _roles(context, body["roles"])
    context.server.users.save(changed)
    return {"ok": 1.0}


def _user(context: Context, name: str) -> Document:
    found = context.server.users.find(name, context.db)
    if found is None:
        raise MongoError(11, f"User '{name}@{context.db}' not found")
    return found


@command("dropUser")
def drop_user(context: Context, body: Document) -> Document:
    """Delete a user."""
    context.must_write()
    context.server.users.remove(_user(context, body["dropUser"]))
    return {"ok": 1.0}


@command("grantRolesToUser", "roles")
def grant_roles(context: Context, body: Document) -> Document:
    """Give a user more roles."""
    found = _user(context, body["grantRolesToUser"])
    new = [role for role in _roles(context, body["roles"]) if role not in found["roles"]]
    context.server.users.save({**found, "roles": [*found["roles"], *new]})
    return {"ok": 1.0}


@command("revokeRolesFromUser", "roles")
def revoke_roles(context: Context, body: Document) -> Document:
    """Take roles from a user."""
    found, gone = _user(context, body["revokeRolesFromUser"]), _roles(context, body["roles"])
    context.server.users.save({**found, "roles": [role for role in found["roles"] if role not in gone]})
    return {"ok": 1.0}


@command("createRole", "privileges", "roles", "authenticationRestrictions")
def create_role(context: Context, body: Document) -> Document:
    """Make a role."""
    context.must_write()
    name, db = body["createRole"], context.db
    if context.server.users.find(name, db, "roles") or roles.builtin(name, db):
        raise MongoError(51002, f'Role "{name}@{db}" already exists')
    for privilege in body["privileges"]:
        roles.of_document(privilege)
    document = {
        "_id": f"{db}.{name}",
        "role": name,
        "db": db,
        "privileges": body["privileges"],
        "roles": _roles(context, body["roles"]),
    }
    context.server.users.save(document, "roles")
    return {"ok": 1.0}


@command("dropRole")
def drop_role(context: Context, body: Document) -> Document:
    """Delete a role."""
    found = context.server.users.find(body["dropRole"], context.db, "roles")
    if found is None:
        raise MongoError(31, f"Role '{body['dropRole']}@{context.db}' not found")
    context.server.users.remove(found, "roles")
    return {"ok": 1.0}


@command("usersInfo", "showCredentials", "showPrivileges", "showCustomData", "filter")
def users_info(context: Context, body: Document) -> Document:
    """Return the known facts about users."""
    expected = body["usersInfo"]
    names = expected if isinstance(expected, list) else [expected]
    out = []
    for document in context.server.users.documents():
        if expected == 1 and document["db"] != context.db:
            continue
        if expected != 1 and not any(
            document["user"] == (name if isinstance(name, str) else name["user"])
            and document["db"] == (context.db if isinstance(name, str) else name["db"])
            for name in names
        ):
            continue
        shown = {name: value for name, value in document.items() if name != "credentials"}
        out.append({**shown, "mechanisms": list(document["credentials"])})
    return {"users": out, "ok": 1.0}
