"""Events as some Debezium has written them, and connectors that read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.connectors import Connector

Row = dict[str, Any]
TOPIC = "shop.inventory.orders"


def node(name: str, type_: str, semantic: str | None = None, *, optional: bool = True, **more: Any) -> Row:
    """The schema of a field."""
    found = {"type": type_, "optional": optional, "field": name}
    return found | ({"name": semantic, "version": 1} if semantic else {}) | more


class Topic:
    """Makes records of a topic, with the schemas of the JSON converter or without.

    :param fields: of a row; ``None``: without schemas
    :param key: names of the key's fields
    """

    def __init__(self, fields: list[Row] | None = None, key: tuple[str, ...] = ("id",), name: str = TOPIC) -> None:
        self.name, self._fields, self._key = name, fields, key

    def event(self, op: str, before: Row | None, after: Row | None, **more: Any) -> Row:
        """A change event."""
        _, namespace, table = self.name.split(".")
        source = {
            "version": "3.5.0.Final",
            "connector": "mysql",
            "name": "shop",
            "ts_ms": 1_700_000_000_000,
            "db": namespace,
            "table": table,
        }
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_500}
        return self._record(self._keyed(before if op == "d" else after), value, more)

    def flat(self, key: Row | None, value: Row | None, **more: Any) -> Row:
        """A flat row."""
        return self._record(key, value, more, flat=True)

    def end(self, key: Row) -> Row:
        """The record that follows a delete."""
        return {"topic": self.name, "key": self._with(self._key_schema(), key), "value": None}

    def _keyed(self, row: Row | None) -> Row | None:
        return {name: row[name] for name in self._key} if row is not None and self._key else None

    def _record(self, key: Any, value: Row | None, more: Row, *, flat: bool = False) -> Row:
        schema = None if self._fields is None else self._flat() if flat else self._envelope()
        key = None if key is None else self._with(self._key_schema(), key)
        return {"topic": self.name, "key": key, "value": None if value is None else self._with(schema, value), **more}

    def _with(self, schema: Row | None, payload: Any) -> Any:
        return payload if schema is None else {"schema": schema, "payload": payload}

    def _key_schema(self) -> Row | None:
        if self._fields is None:
            return None
        fields = [{**f, "optional": False} for f in self._fields if f["field"] in self._key]
        return {"type": "struct", "fields": fields, "optional": False, "name": f"{self.name}.Key"}

    def _flat(self) -> Row:
        return {"type": "struct", "fields": self._fields, "optional": True, "name": f"{self.name}.Value"}

    def _envelope(self) -> Row:
        source = {
            "type": "struct",
            "fields": [node("name", "string")],
            "name": "io.debezium.connector.mysql.Source",
            "field": "source",
        }
        images = [{**self._flat(), "field": name} for name in ("before", "after")]
        return {"type": "struct", "fields": [*images, source, node("op", "string")], "name": f"{self.name}.Envelope"}


def write(file: Path, records: Iterable[Any], *, mode: str = "a") -> None:
    """Write lines to a file."""
    file.parent.mkdir(exist_ok=True, parents=True)
    with file.open(mode) as opened:
        opened.writelines(json.dumps(record) + "\n" for record in records)


def connector(folder: Path, properties: Mapping[str, Any] | None = None, **more: Any) -> Connector:
    """A connector that reads the files in ``in`` below a folder."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    base = {"topic.prefix": "shop", "events.path": str(folder / "in"), "poll.interval.ms": 10}
    return Connector(folder / "connector", "debezium", {**base, **(properties or {}), **named})
