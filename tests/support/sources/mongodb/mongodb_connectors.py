"""Connectors on a MongoDB, for tests; a real one where ``MONGODB_URI`` is set."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dev.servers.mongodb import MongoDb
from tests.support.connectors import Connector

URI = "MONGODB_URI"


def real_deployment_uri() -> str | None:
    """The connection string of a real deployment."""
    return os.environ.get(URI)


@contextlib.contextmanager
def deployment() -> Iterator[str]:
    """The connection string of a deployment: a real one where there is one, or a stand-in of one member."""
    if (real := real_deployment_uri()) is not None:
        yield real
        return
    with MongoDb() as server:
        yield server.url()


class MongoConnector(Connector):
    """A connector whose rows are read from the texts of documents."""

    def documents(self, table: str) -> list[dict[str, Any]]:
        """The documents of a collection by replaying the change log, in the order of their texts."""
        rows = super().rows(table)
        return [json.loads(row["document"]) for row in sorted(rows, key=lambda row: str(row["document"]))]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a collection, each as :func:`flatten_document` makes it."""
        return sorted((flatten_document(document) for document in self.documents(table)), key=repr)


def flatten_document(document: dict[str, Any]) -> dict[str, Any]:
    """A document as a row: its ``_id`` is the column ``id``, or several; generated ones are none."""
    rest = {name: value for name, value in document.items() if name != "_id"}
    key = document["_id"]
    if isinstance(key, dict):
        return rest if "$oid" in key else key | rest
    if not isinstance(key, (int, str)):
        return rest
    return {"id": key} | rest


def mongodb_connector(uri: str, folder: Path, **properties: Any) -> MongoConnector:
    """A connector on a deployment; properties with underscores for dots."""
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return MongoConnector(
        folder, "mongodb", {"topic.prefix": "test", "poll.interval.ms": 50, **named}, {"mongodb.connection.string": uri}
    )
