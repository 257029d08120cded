"""Questions to the dictionary about objects that LogMiner does not name, or names as they are called now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_cdc.core.schema import TableId, TableSchema
from airflow_provider_cdc.sources.oracle.constants import is_constant
from airflow_provider_cdc.sources.oracle.dictionary import Dictionary
from airflow_provider_cdc.sources.oracle.redo.storage import Storage
from airflow_provider_cdc.sources.oracle.reselect import row_at


@dataclass(frozen=True, slots=True)
class Stored:
    """The columns that a table's rows have now.

    :param plain: they are those of its structure, in its order: none is hidden or unused, none was ever invisible
    """

    names: frozenset[str]
    plain: bool


class Lookups(Protocol):
    """What a stream asks when a row has numbers instead of names."""

    def objects(self) -> dict[int, TableId]:
        """All tables that there are now, by object id."""

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        """Whether the dictionary of that SCN can be read, and what it calls an object, if it has it."""

    def stored(self, table: TableId) -> Stored | None:
        """The stored columns of a table, ``None`` when there is none."""

    def storage(self) -> Storage:
        """What the stored form of values depends on."""

    def constant(self, text: str) -> str | None:
        """Value of an expression that has one for ever; ``None`` for others."""

    def row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        """A row as it was at an SCN, one element; ``None`` when it cannot be told."""


class NoLookups:
    """Without a dictionary nothing can be told."""

    def objects(self) -> dict[int, TableId]:
        return {}

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        return False, None

    def stored(self, table: TableId) -> Stored | None:
        return None

    def storage(self) -> Storage:
        return Storage()

    def constant(self, text: str) -> str | None:
        return None

    def row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        return None


class DictionaryLookups:
    """Asks the database.

    :param ask: runs a question on a dictionary that is connected
    """

    def __init__(self, ask: Callable[[Callable[[Dictionary], Any]], Any]) -> None:
        self._ask = ask
        self._storage: Storage | None = None

    def objects(self) -> dict[int, TableId]:
        found: dict[int, TableId] = self._ask(lambda d: d.objects())
        return found

    def object_at(self, number: int, scn: int) -> tuple[bool, TableId | None]:
        found: tuple[bool, TableId | None] = self._ask(lambda d: d.object_at(number, scn))
        return found

    def stored(self, table: TableId) -> Stored | None:
        found: list[tuple[str, bool, bool]] = self._ask(lambda d: d.stored(table))
        if not found:
            return None
        return Stored(frozenset(name for name, _, _ in found), all(own and ordered for _, own, ordered in found))

    def storage(self) -> Storage:
        if self._storage is None:
            self._storage = Storage(*self._ask(lambda d: d.formats()))
        return self._storage

    def constant(self, text: str) -> str | None:
        if not is_constant(text):
            return None
        found: str | None = self._ask(lambda d: d.constant(text))
        return found

    def row(self, schema: TableSchema, row_id: str, scn: int) -> pa.StructArray | None:
        return self._ask(lambda d: row_at(d.connection, d.config, schema, row_id, scn))
