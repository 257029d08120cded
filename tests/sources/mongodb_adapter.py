"""The shared suite's view of MongoDB: a column is a field, the key is the ``_id``, a table without a key has generated ones."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from pymongo import MongoClient
from pymongo.client_session import ClientSession

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mongodb.log import raw_member_cursor
from tests.sources.suite import Adapter, Changes, Row, UndoTransaction
from tests.support.sources.mongodb.mongodb_connectors import MongoConnector, flatten_document, mongodb_connector

_NUMBERS = itertools.count(1)
IMAGES = {"changeStreamPreAndPostImages": {"enabled": True}}


class MongoAdapter(Adapter):
    """A new database.

    :param uri: connection string of the deployment
    :param properties: of each connector
    """

    kind: ClassVar[str] = "mongodb"
    changes_kinds = False
    structured = False
    table_lists: ClassVar[tuple[str, str]] = ("collection.include.list", "collection.exclude.list")
    some_lists: ClassVar[frozenset[str]] = frozenset(
        {"collection.include.list", "field.exclude.list", "skipped.operations"}
    )

    def __init__(self, client: MongoClient[Any], uri: str, purge: Any = None, **properties: Any) -> None:
        self._client, self._uri, self._purge, self._properties = client, uri, purge, properties
        self.namespace = f"suite_{time.time_ns() // 1000 % 10**9}_{next(_NUMBERS)}"
        self.database = client[self.namespace]
        self.keys: dict[str, tuple[str, ...]] = {}

    def create(self, table: str, columns: Mapping[str, str], key: tuple[str, ...] = ()) -> None:
        self.keys[table] = key
        self.database.create_collection(table, **IMAGES)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Changes]:
        with self._client.start_session() as session:
            session.start_transaction()
            try:
                yield _Changes(self, session)
            except UndoTransaction:
                session.abort_transaction()
                return
            except BaseException:
                session.abort_transaction()
                raise
            session.commit_transaction()

    def rows(self, table: str) -> list[Row]:
        found = self.database[table].find()
        return sorted(
            (flatten_document({name: _plain_value(value) for name, value in d.items()}) for d in found), key=repr
        )

    def add_column(self, table: str, name: str, kind: str, value: Any = None) -> None:
        self.database[table].update_many({}, {"$set": {name: value}})

    def drop_column(self, table: str, name: str) -> None:
        self.database[table].update_many({}, {"$unset": {name: 1}})

    def rename_column(self, table: str, old: str, new: str, kind: str) -> None:
        self.database[table].update_many({}, {"$rename": {old: new}})

    def change_column(self, table: str, name: str, kind: str) -> None:
        self.database[table].update_many({name: {"$ne": None}}, [{"$set": {name: {"$toString": f"${name}"}}}])

    def rename_table(self, old: str, new: str) -> None:
        self.database[old].rename(new)
        self.keys[new] = self.keys.pop(old)

    def drop_table(self, table: str) -> None:
        self.database[table].drop()

    def truncate(self, table: str) -> None:
        """There is no such command: a collection is dropped and made again."""
        self.database[table].drop()
        self.database.create_collection(table, **IMAGES)

    def connector(self, folder: Path, **properties: Any) -> MongoConnector:
        return mongodb_connector(
            self._uri, folder, **{"database_include_list": self.namespace, **self._properties, **properties}
        )

    def other(self) -> Adapter:
        return MongoAdapter(self._client, self._uri, self._purge, **self._properties)

    def elsewhere(self) -> None:
        """Write where nothing is captured."""
        self._client.elsewhere.notes.insert_one({})

    def purge(self) -> None:
        if self._purge is None:
            pytest.skip("the deployment of MONGODB_URI keeps its oplog")
        self._purge()

    @contextlib.contextmanager
    def small_blocks(self) -> Iterator[dict[str, Any]]:
        with patch.object(raw_member_cursor, "BATCH_DOCUMENTS", 300):
            yield {}

    def signals(self) -> str:
        self.create("signals", {}, ("id",))
        return self.collection("signals")

    def insert_signal(self, id_: str, type_: str, data: str) -> None:
        self.database.signals.insert_one({"_id": id_, "type": type_, "data": json.loads(data)})

    def condition(self, column: str, operator: str, value: int) -> str:
        names = {"=": "$eq", "<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte", "<>": "$ne"}
        return json.dumps({"_id" if column == "id" else column: {names[operator]: value}})

    def select(self, table: str, condition: str) -> str:
        return condition

    def narrowed(self, name: str, tables: str) -> tuple[Row, Row]:
        a = self.collection("a")
        scope = {"capture.scope": "database", "capture.target": self.namespace}
        given: dict[str, tuple[Row, Row]] = {
            **dict.fromkeys(scope, (scope, dict.fromkeys(scope))),
            "field.exclude.list": ({name: "*.*.note"}, {name: ""}),
            "field.renames": ({name: "*.*.note:text"}, {name: ""}),
            "snapshot.collection.filter.overrides": (
                {name: a, f"{name}.{a}": self.condition("id", ">", 3)}, {name: None, f"{name}.{a}": None}
            ),
        }  # fmt: skip
        return given[name] if name in given else super().narrowed(name, tables)

    @contextlib.contextmanager
    def spoil(self) -> Iterator[str]:  # type: ignore[override]
        """Let a collection stop recording images, which the capture mode needs; yield the command that mends it."""
        self.database.command("collMod", "a", changeStreamPreAndPostImages={"enabled": False})
        try:
            yield 'runCommand({collMod: "a", changeStreamPreAndPostImages: {enabled: true}})'
        finally:
            self.database.command("collMod", "a", **IMAGES)

    def id(self, table: str) -> TableId:
        return TableId(namespace=self.namespace, name=table)


class _Changes(Changes):
    def __init__(self, adapter: MongoAdapter, session: ClientSession) -> None:
        self._adapter, self._session = adapter, session

    def insert(self, table: str, *rows: Row) -> None:
        self._adapter.database[table].insert_many([self._document(table, row) for row in rows], session=self._session)

    def update(self, table: str, where: Row, values: Row) -> None:
        collection, key = self._adapter.database[table], self._adapter.keys[table]
        if key and set(key) & values.keys():  # an _id cannot be changed: another document takes its place
            for document in list(collection.find(self._where(table, where), session=self._session)):
                collection.delete_one({"_id": document["_id"]}, session=self._session)
                collection.insert_one(self._document(table, flatten_document(document) | values), session=self._session)
            return
        collection.update_many(self._where(table, where), {"$set": values}, session=self._session)

    def delete(self, table: str, where: Row) -> None:
        self._adapter.database[table].delete_many(self._where(table, where), session=self._session)

    def _document(self, table: str, row: Row) -> Row:
        key = self._adapter.keys[table]
        rest = {name: value for name, value in row.items() if name not in key}
        if not key:
            return rest
        return {"_id": row[key[0]] if len(key) == 1 else {name: row[name] for name in key}} | rest

    def _where(self, table: str, where: Row) -> Row:
        key = self._adapter.keys[table]
        names = {key[0]: "_id"} if len(key) == 1 else {name: f"_id.{name}" for name in key}
        return {names.get(name, name): value for name, value in where.items()}


def _plain_value(value: Any) -> Any:
    return {"$oid": str(value)} if type(value).__name__ == "ObjectId" else value
