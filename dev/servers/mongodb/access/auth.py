"""Authentication: SCRAM-SHA-256 and SCRAM-SHA-1 (RFC 5802, 7677), X.509, and TLS itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import ssl
from dataclasses import dataclass, field
from typing import Any

from bson.binary import Binary

from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError

ITERATIONS = {"SCRAM-SHA-1": 10000, "SCRAM-SHA-256": 15000}
HASHES = {"SCRAM-SHA-1": "sha1", "SCRAM-SHA-256": "sha256"}
OIDS = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}


def credentials(user: str, password: str, mechanisms: list[str] | None = None) -> Document:
    """Compute the credentials that the server stores for a password, for each mechanism."""
    return {
        mechanism: _credential(mechanism, user, password)
        for mechanism in mechanisms or ["SCRAM-SHA-1", "SCRAM-SHA-256"]
    }


def _credential(mechanism: str, user: str, password: str) -> Document:
    name = HASHES[mechanism]
    secret = password
    if mechanism == "SCRAM-SHA-1":
        secret = hashlib.md5(f"{user}:mongo:{password}".encode()).hexdigest()
    salt = os.urandom(16 if name == "sha1" else 28)
    salted = hashlib.pbkdf2_hmac(name, secret.encode(), salt, ITERATIONS[mechanism])
    client, server = (hmac.digest(salted, text, name) for text in (b"Client Key", b"Server Key"))
    return {
        "iterationCount": ITERATIONS[mechanism],
        "salt": base64.b64encode(salt).decode(),
        "storedKey": base64.b64encode(hashlib.new(name, client).digest()).decode(),
        "serverKey": base64.b64encode(server).decode(),
    }


def authentication_error() -> MongoError:
    """The one answer to every authentication that fails."""
    return MongoError(18, "Authentication failed.")


@dataclass
class Conversation:
    """A SCRAM conversation between its messages."""

    mechanism: str
    user: Document
    db: str
    skip_empty: bool
    first: str = ""
    nonce: str = ""
    stage: str = "first"
    parts: Document = field(default_factory=dict)

    def begin(self, payload: bytes) -> bytes:
        """The answer to the client's first message."""
        self.first = payload.decode().partition(",,")[2]
        fields = dict(item.split("=", 1) for item in self.first.split(","))
        self.nonce = fields["r"] + base64.b64encode(os.urandom(24)).decode()
        self.parts = self.user["credentials"].get(self.mechanism, {})
        if not self.parts:
            raise authentication_error()
        self.stage = "final"
        self.server_first = f"r={self.nonce},s={self.parts['salt']},i={self.parts['iterationCount']}"
        return self.server_first.encode()

    server_first: str = ""

    def finish(self, payload: bytes) -> bytes:
        """The answer to the client's proof. Raises when it is wrong."""
        name = HASHES[self.mechanism]
        without, _, proof = payload.decode().rpartition(",p=")
        fields = dict(item.split("=", 1) for item in without.split(","))
        message = f"{self.first},{self.server_first},{without}".encode()
        stored = base64.b64decode(self.parts["storedKey"])
        signature = hmac.digest(stored, message, name)
        client = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True))
        if fields.get("r") != self.nonce or not hmac.compare_digest(hashlib.new(name, client).digest(), stored):
            raise authentication_error()
        self.stage = "done"
        return b"v=" + base64.b64encode(hmac.digest(base64.b64decode(self.parts["serverKey"]), message, name))


def name_in(payload: bytes) -> str:
    """The user's name in a client's first message."""
    first = payload.decode().partition(",,")[2]
    fields = dict(item.split("=", 1) for item in first.split(","))
    return fields["n"].replace("=2C", ",").replace("=3D", "=")


def reply(payload: bytes, *, done: bool) -> Document:
    """A message of the conversation as a reply."""
    return {"conversationId": 1, "done": done, "payload": Binary(payload, 0), "ok": 1.0}


def subject(peer: Any) -> str:
    """The subject of a certificate as X.509 users are named (RFC 2253: the last part first)."""
    parts = [f"{OIDS.get(name, name)}={value}" for part in peer["subject"] for name, value in part]
    return ",".join(reversed(parts))


def tls_context(options: dict[str, Any]) -> ssl.SSLContext:
    """TLS as ``certificate``, ``key``, ``ca`` and ``require_client`` say."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options["certificate"], options.get("key"))
    if options.get("ca"):
        context.load_verify_locations(options["ca"])
        context.verify_mode = ssl.CERT_REQUIRED if options.get("require_client") else ssl.CERT_OPTIONAL
    return context
