"""``field.exclude.list`` and ``field.renames``: which fields of which collections (Debezium MongoDB connector, "Connector properties").

    >>> parse_excluded_fields("shop.orders.card, *.*.secret.key")
    [FieldRule(database='shop', collection='orders', path=('card',), new_name=None), FieldRule(database='*', collection='*', path=('secret', 'key'), new_name=None)]

This module is imported at DAG parse: it must stay light.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_cdc.core.model.table_schema import TableId


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A rule for a field of some collections.

    :param database: pattern in which ``*`` stands for any text; ``collection`` likewise
    :param path: names of the field and of those that it is in, from the document's top
    :param new_name: name of the last of them; ``None``: the field is left out
    """

    database: str
    collection: str
    path: tuple[str, ...]
    new_name: str | None = None

    def matches_table(self, table: TableId) -> bool:
        """Check whether the rule is about a collection."""
        return _like(self.database, table.namespace) and _like(self.collection, table.name)


def parse_excluded_fields(text: str) -> list[FieldRule]:
    """Parse the rules of ``field.exclude.list``.

    :raises ValueError: it has another form
    """
    return [FieldRule(*_parts(entry, entry)) for entry in _entries(text)]


def parse_renamed_fields(text: str) -> list[FieldRule]:
    """Parse the rules of ``field.renames``, in their order.

    :raises ValueError: it has another form
    """
    rules = []
    for entry in _entries(text):
        path, colon, new = entry.rpartition(":")
        if not colon or not new or "." in new:
            raise ValueError(f"{entry!r} does not have the format database.collection.field:newName")
        rules.append(FieldRule(*_parts(path, entry), new))
    return rules


def parts_of(name: str) -> tuple[str, str]:
    """Database and collection of ``database.collection``: a collection's name may have dots."""
    database, _, collection = name.partition(".")
    return database, collection


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _parts(path: str, entry: str) -> tuple[str, str, tuple[str, ...]]:
    parts = path.split(".")
    if len(parts) < 3 or not all(parts):
        raise ValueError(f"{entry!r} does not have the format database.collection.field")
    if parts[2] == "_id" and len(parts) == 3:
        raise ValueError(f"{entry!r} is the key of the document, which every event contains")
    return parts[0], parts[1], tuple(parts[2:])


def _like(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None
