"""The commands by which a connection says who it is, and asks who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dev.servers.mongodb.access import auth
from dev.servers.mongodb.access.roles import Privilege
from dev.servers.mongodb.access.users import User
from dev.servers.mongodb.operation.registry import command
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.operation.context import Context


def hello(context: Context, body: Document) -> Document:
    """Return the part of ``hello`` about authentication: a user's mechanisms, and the answer to a message sent along."""
    out: Document = {}
    if "saslSupportedMechs" in body:
        db, _, name = body["saslSupportedMechs"].partition(".")
        found = context.server.users.find(name, db)
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
        raise auth.authentication_error()
    speech = auth.Conversation(
        body["mechanism"], found, context.db, bool(body.get("options", {}).get("skipEmptyExchange"))
    )
    connection.speech = speech
    return auth.reply(speech.begin(payload), done=False)


@command("saslContinue", "conversationId", "payload", open_to_all=True)
def sasl_continue(context: Context, body: Document) -> Document:
    """Continue a SCRAM conversation."""
    connection = context.connection
    if connection is None or connection.speech is None:
        raise MongoError(17, "No SASL session state found")
    speech = connection.speech
    if speech.stage == "final":
        try:
            answer = speech.finish(bytes(body["payload"]))
        except (ValueError, KeyError):
            raise auth.authentication_error() from None
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
        raise auth.authentication_error()
    if body.get("user", subject) != subject or context.server.users.find(subject, "$external") is None:
        raise auth.authentication_error()
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
    """Return the connection's user and roles."""
    user = context.connection.user if context.connection else None
    found = context.server.users.find(user.name, user.db) if user else None
    info: Document = {
        "authenticatedUsers": [{"user": user.name, "db": user.db}] if user else [],
        "authenticatedUserRoles": found["roles"] if found else [],
    }
    if body.get("showPrivileges"):
        info["authenticatedUserPrivileges"] = [
            _format_privilege(privilege) for privilege in (context.server.users.privileges(user) if user else [])
        ]
    return {"authInfo": info, "ok": 1.0}


def _format_privilege(privilege: Privilege) -> Document:
    resource: Document = (
        {"cluster": True} if privilege.cluster else {"db": privilege.db or "", "collection": privilege.collection or ""}
    )
    return {"resource": resource, "actions": sorted(privilege.actions)}
