"""The types of a database (``pg_type``), which columns and values name by their OIDs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

SYSTEM_SCHEMA: Final = "pg_catalog"
_DEEPEST: Final = 64
"""Domains over domains, after which the catalog is damaged."""

_TYPES: Final = """
SELECT t.oid::int8, t.typname, n.nspname, t.typtype::text, t.typbasetype::int8, t.typtypmod,
       CASE WHEN EXISTS (SELECT FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid) THEN t.typelem::int8 ELSE 0 END,
       t.typdelim::text, t.typsend <> 0, t.typrelid::int8
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace"""
_LABELS: Final = "SELECT enumtypid::int8, enumlabel FROM pg_enum ORDER BY enumtypid, enumsortorder"
_FIELDS: Final = """
SELECT a.attrelid::int8, a.attname, a.atttypid::int8 FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('c', 'r', 'p', 'v', 'm', 'f') AND c.relnamespace NOT IN
      (SELECT oid FROM pg_namespace WHERE nspname IN ('pg_catalog', 'information_schema', 'pg_toast'))
ORDER BY a.attrelid, a.attnum"""
_RANGES: Final = "SELECT rngtypid::int8, rngsubtype::int8, rngmultitypid::int8 FROM pg_range"


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A type.

    :param kind: ``b`` base, ``d`` domain, ``e`` enum, ``c`` composite, ``r`` range, ``m`` multirange, ``p`` pseudo
    :param base_oid: of a domain: the type that it is over
    :param base_modifier: of a domain: the modifier of that type; -1 = none
    :param element_oid: of an array its elements', of a range its bounds', of a multirange its ranges'; 0 = none
    :param delimiter: separates elements of its arrays in texts
    :param labels: members of an enum
    :param fields: of a composite: names and types
    :param has_binary_form: the server can send its values in binary form; elements and fields may be unable to
    """

    oid: int
    name: str
    namespace: str = SYSTEM_SCHEMA
    kind: str = "b"
    base_oid: int = 0
    base_modifier: int = -1
    element_oid: int = 0
    delimiter: str = ","
    labels: tuple[str, ...] = ()
    fields: tuple[tuple[str, int], ...] = ()
    has_binary_form: bool = True

    @property
    def is_array(self) -> bool:
        return self.kind == "b" and self.element_oid != 0

    @property
    def is_builtin(self) -> bool:
        return self.namespace == SYSTEM_SCHEMA


class TypeCatalog:
    """The types of a database, as they were when they were read."""

    def __init__(self, types: Iterable[PostgresType]) -> None:
        self._types = {t.oid: t for t in types}

    @classmethod
    def read(cls, connection: Connection[tuple[Any, ...]]) -> TypeCatalog:
        """Read all types of the database."""
        labels: dict[int, list[str]] = defaultdict(list)
        for oid, label in connection.execute(_LABELS):
            labels[oid].append(label)
        fields: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for relation, name, type_oid in connection.execute(_FIELDS):
            fields[relation].append((name, type_oid))
        elements: dict[int, int] = {}
        for range_oid, bound, multirange in connection.execute(_RANGES):
            elements[range_oid], elements[multirange] = bound, range_oid
        return cls(
            PostgresType(
                oid, name, namespace, kind, base, modifier, element or elements.get(oid, 0), delimiter,
                tuple(labels.get(oid, ())), tuple(fields.get(relation, ())), binary,
            )
            for oid, name, namespace, kind, base, modifier, element, delimiter, binary, relation in connection.execute(_TYPES)
        )  # fmt: skip

    def find_type(self, oid: int) -> PostgresType | None:
        """Return the type with this OID; ``None`` if it did not exist when the types were read."""
        return self._types.get(oid)

    def find_base(self, oid: int, modifier: int = -1) -> tuple[PostgresType | None, int]:
        """Return the type below all domains, and its modifier."""
        found = self._types.get(oid)
        for _ in range(_DEEPEST):
            if found is None or found.kind != "d":
                break
            modifier = found.base_modifier if modifier == -1 else modifier
            found = self._types.get(found.base_oid)
        return found, modifier

    def needs_text(self, oid: int) -> bool:
        """Check whether the server cannot send values in binary form: the type, or one at any depth of it, has no send function."""
        return self._needs_text(oid, frozenset())

    def _needs_text(self, oid: int, within: frozenset[int]) -> bool:
        found, _ = self.find_base(oid)
        if found is None or found.oid in within:
            return False
        parts = [found.element_oid] if found.element_oid else [type_oid for _, type_oid in found.fields]
        return not found.has_binary_form or any(self._needs_text(part, within | {found.oid}) for part in parts)
