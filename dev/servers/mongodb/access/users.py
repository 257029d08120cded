"""Users and their roles, as a deployment keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from dev.servers.mongodb.access import roles
from dev.servers.mongodb.access.roles import Privilege
from dev.servers.mongodb.storage.node import Node
from dev.servers.mongodb.storage.versioned_collections import Collection, new_uuid
from dev.servers.mongodb.values.documents import Document


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
