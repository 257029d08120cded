"""A stand-in for a database of documents, as small as one can be: no schemas, nested values, updates that say what they changed.

It is for tests of what core does with sources whose rows are documents (``Source.STRUCTURED``, ``TableSchema.documents``). A *shelf* is a list of
committed transactions in this process; its folders hold sheets, and each sheet is a JSON object with a ``_id``: a number, or a text. Numbers come
before texts, an order that the texts of the keys do not have.

>>> shelf = DocumentDatabase("s")
>>> shelf.commit(("c", "box.letters", {"_id": 1, "to": {"name": "Ann"}}))
>>> shelf.sheets("box.letters", shelf.end)
[{'_id': 1, 'to': {'name': 'Ann'}}]
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from pydantic import Field

from airflow_provider_cdc.core.config.base_configuration import PropertyEffect
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES, Patterns
from airflow_provider_cdc.core.errors import ConfigError, QueryRejected
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.log_items import (
    CREATE,
    DELETE,
    READ,
    UPDATE,
    BlockTransactions,
    Heartbeat,
    LogBlock,
    LogItem,
    RowBlock,
    SchemaChange,
)
from airflow_provider_cdc.core.model.table_schema import (
    Column,
    DocumentSchema,
    EventColumn,
    TableChange,
    TableId,
    TableSchema,
    arrow_type,
    row_struct,
)
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange
from airflow_provider_cdc.core.spi.source import (
    CapturedTableSchemas,
    Finding,
    SnapshotChunk,
    SnapshotSession,
    Source,
    any_table,
)
from airflow_provider_cdc.sources import SOURCES, SourceClassPaths

Sheet = dict[str, Any]
Change = tuple[Any, ...]
"""``("c", folder, sheet)``, ``("u", folder, id, changed)``, ``("d", folder, id)``, ``("drop", folder)``."""

SHELVES: dict[str, DocumentDatabase] = {}
_JSON = {"type": "string", "optional": True, "name": "io.debezium.data.Json", "version": 1}
CHANGED = EventColumn(
    name="whatChanged",
    type="struct<removed: list<item: string>, changed: string, cut: list<item: struct<field: string, size: int32>>>",
    described={
        "type": "struct",
        "optional": True,
        "name": "shelf.what.changed",
        "fields": [
            {"type": "array", "items": {"type": "string", "optional": False}, "optional": True, "field": "removed"},
            _JSON | {"field": "changed"},
            {
                "type": "array",
                "items": {
                    "type": "struct",
                    "optional": False,
                    "fields": [
                        {"type": "string", "optional": False, "field": "field"},
                        {"type": "int32", "optional": False, "field": "size"},
                    ],
                },
                "optional": True,
                "field": "cut",
            },
        ],
    },
)
DOCUMENTS = DocumentSchema(
    body="sheet",
    key_fields={"_id": "id"},
    table_field="folder",
    source_schema="shelf.Source",
    columns=(CHANGED,),
    fields=("before", "after", "whatChanged", "source", "op", "ts_ms", "transaction"),
)


def schema(folder: TableId) -> TableSchema:
    """The structure of every folder."""
    columns = (
        Column(name="_id", type="string", nullable=False),
        Column(name="sheet", type="string", semantic="io.debezium.data.Json"),
    )
    return TableSchema(id=folder, columns=columns, key=("_id",), documents=DOCUMENTS)


def folder_id(name: str) -> TableId:
    namespace, _, folder = name.partition(".")
    return TableId(namespace=namespace, name=folder)


def text(value: Any) -> str:
    return json.dumps(value)


def _place_of(id_: Any) -> tuple[bool, Any]:
    return isinstance(id_, str), id_


class DocumentDatabase:
    """The database: its log, and what that adds up to.

    :ivar asked: conditions of snapshots and chunks, as they came
    :ivar on_read: called before a chunk is read
    """

    def __init__(self, name: str) -> None:
        self.name, self.log = name, list[tuple[int, tuple[Change, ...]]]()
        self.asked: list[str] = []
        self.on_read: Callable[[], None] = lambda: None
        SHELVES[name] = self

    @property
    def end(self) -> int:
        return len(self.log)

    def commit(self, *changes: Change) -> None:
        self.log.append((time.time_ns() // 1000, changes))

    def folders(self, end: int) -> dict[str, dict[Any, Sheet]]:
        found: dict[str, dict[Any, Sheet]] = {}
        for _, changes in self.log[:end]:
            for change in changes:
                apply(found, change)
        return found

    def sheets(self, folder: str, end: int) -> list[Sheet]:
        return sorted(self.folders(end).get(folder, {}).values(), key=lambda s: _place_of(s["_id"]))


def apply(folders: dict[str, dict[Any, Sheet]], change: Change) -> tuple[Sheet | None, Sheet | None]:
    """Make a change; returns the sheet before and after it."""
    op, name, *rest = change
    if op == "drop":
        folders.pop(name, None)
        return None, None
    folder = folders.setdefault(name, {})
    if op == "c":
        folder[rest[0]["_id"]] = rest[0]
        return None, rest[0]
    before = folder[rest[0]]
    if op == "d":
        del folder[rest[0]]
        return before, None
    folder[rest[0]] = {**before, **rest[1]}
    return before, folder[rest[0]]


@dataclass(frozen=True, slots=True)
class ShelfPosition:
    """Behind so many transactions."""

    entry: int

    def to_json(self) -> dict[str, Any]:
        return {"entry": self.entry}

    def has_reached(self, other: ShelfPosition) -> bool:
        return self.entry >= other.entry

    def __str__(self) -> str:
        return f"entry {self.entry}"


class ShelfConfig(ConnectorConfig):
    """The configuration of a capture from a shelf: the shelf and its folders."""

    shelf: str = Field(alias="shelf", description="Name of a shelf of this process.")
    folder_include_list: Patterns = Field((), alias="folder.include.list", description="Folders to capture.")
    folder_exclude_list: Patterns = Field((), alias="folder.exclude.list", description="Folders to leave out.")
    whole_sheets: bool = Field(True, alias="whole.sheets", description="Updates come with the sheet, before and after.")

    LISTS: ClassVar[Mapping[str, PropertyEffect]] = {
        "folder.include.list": PropertyEffect.TABLES,
        "folder.exclude.list": PropertyEffect.TABLES,
    }
    TABLES: ClassVar[tuple[str, str]] = ("folder.include.list", "folder.exclude.list")

    @classmethod
    def exclusive_pairs(cls) -> list[tuple[str, str]]:
        return [("folder_include_list", "folder_exclude_list")]

    def table_lists(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.folder_include_list, self.folder_exclude_list


class ShelfSource(Source):
    """Captures from a :class:`DocumentDatabase`."""

    Config: ClassVar[type[ConnectorConfig]] = ShelfConfig
    STRUCTURED: ClassVar[bool] = False
    connector = "shelf"

    def __init__(self, config: ShelfConfig) -> None:
        self._config, self._shelf = config, SHELVES[config.shelf]

    def check_prerequisites(self) -> list[Finding]:
        return []

    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        found = map(folder_id, self._shelf.folders(self._shelf.end))
        return {table: schema(table) for table in found if needed(table)}

    def current_position(self) -> ShelfPosition:
        return ShelfPosition(self._shelf.end)

    def oldest_position(self) -> ShelfPosition:
        return ShelfPosition(0)

    def verify_position(self, position: Any) -> None:
        assert position.entry <= self._shelf.end

    def parse_position(self, document: dict[str, Any]) -> ShelfPosition:
        return ShelfPosition(**document)

    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        return _Session(self._shelf, tables, selects)

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        return _Chunks(self._shelf, signals)

    def signal_of(self, row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        sheet = json.loads(row["sheet"])
        data = sheet.get("data")
        return sheet["_id"], sheet.get("type"), data if data is None or isinstance(data, str) else json.dumps(data)

    def stream_log(
        self, start: Any, tables: CapturedTableSchemas, *, until: Any, patience: Callable[[], float] | None = None
    ) -> Iterator[LogItem]:
        at, folders = start.entry, self._shelf.folders(start.entry)
        while until is None or at < until.entry:
            if at == self._shelf.end:
                time.sleep(self._config.poll_interval_ms / 1000 if patience is None else patience())
                yield Heartbeat(ShelfPosition(at))
                continue
            ts_us, changes = self._shelf.log[at]
            at += 1
            yield from self._items(at, ts_us, changes, folders, tables)

    def execute_statement(self, statement: str) -> None:
        raise ConfigError("A shelf runs no statements.")

    @property
    def source_fields(self) -> list[pa.Field]:
        return [pa.field("entry", pa.int64(), nullable=False)]

    def close(self) -> None:
        """Nothing is open."""

    def _items(
        self,
        at: int,
        ts_us: int,
        changes: Sequence[Change],
        folders: dict[str, dict[Any, Sheet]],
        tables: CapturedTableSchemas,
    ) -> Iterator[LogItem]:
        made: dict[str, list[tuple[int, Change, Sheet | None, Sheet | None]]] = {}
        order = 0
        for change in changes:
            before, after = apply(folders, change)
            id_ = folder_id(change[1])
            if not tables.is_captured(id_):
                continue
            if change[0] == "drop":
                dropped = TableChange(type="DROP", id=id_)
                yield SchemaChange("", id_.database_name, [dropped], ShelfPosition(at), ts_us, {"entry": at})
                continue
            made.setdefault(change[1], []).append((order, change, before, after))
            order += 1
        blocks = [self._block(folder_id(name), rows, at, ts_us) for name, rows in made.items()]
        yield LogBlock(blocks, BlockTransactions(pa.array([f"tx-{at}"]), np.array([ts_us])), ShelfPosition(at))

    def _block(
        self, id_: TableId, rows: Sequence[tuple[int, Change, Sheet | None, Sheet | None]], at: int, ts_us: int
    ) -> RowBlock:
        type_, n, whole = row_struct(schema(id_)), len(rows), self._config.whole_sheets
        letters = {"c": CREATE, "u": UPDATE, "d": DELETE}
        lacking = np.zeros((2, n), np.bool_)
        lacking[1] = [not whole and change[0] != "c" for _, change, _, _ in rows]
        shown = [None if c[0] != "u" else {"removed": None, "changed": text(c[3]), "cut": []} for _, c, _, _ in rows]
        return RowBlock(
            table=schema(id_),
            op=np.array([letters[change[0]] for _, change, _, _ in rows], np.int8),
            before=pa.array([_image(b, lacking[1, i]) for i, (_, _, b, _) in enumerate(rows)], type_),
            after=pa.array([_image(a, lacking[1, i]) for i, (_, _, _, a) in enumerate(rows)], type_),
            order=np.array([order for order, *_ in rows], np.int64),
            transaction=np.zeros(n, np.int32),
            ts_us=np.full(n, ts_us, np.int64),
            source={"entry": pa.array([at] * n, pa.int64())},
            unavailable_before=lacking,
            unavailable_after=lacking,
            beside={"whatChanged": pa.array(shown, arrow_type(CHANGED.type))},
        )


def _image(sheet: Sheet | None, lacks: bool = False) -> dict[str, Any] | None:
    return None if sheet is None else {"_id": text(sheet["_id"]), "sheet": None if lacks else text(sheet)}


def read(id_: TableId, sheets: Sequence[Sheet], entry: int) -> RowBlock:
    n = len(sheets)
    return RowBlock(
        table=schema(id_),
        op=np.full(n, READ, np.int8),
        before=None,
        after=pa.array([_image(sheet) for sheet in sheets], row_struct(schema(id_))),
        order=np.arange(n),
        transaction=None,
        ts_us=np.full(n, time.time_ns() // 1000, np.int64),
        source={"entry": pa.array([entry] * n, pa.int64())},
    )


def _make_condition(condition: str | None, shelf: DocumentDatabase) -> Callable[[Sheet], bool]:
    """A condition is a sheet with the values that are wanted."""
    if condition is None:
        return lambda sheet: True
    shelf.asked.append(condition)
    try:
        expected = json.loads(condition)
    except ValueError:
        raise QueryRejected(f"This is no condition of a shelf: {condition}") from None
    return lambda sheet: expected.items() <= sheet.items()


class _Session(SnapshotSession):
    def __init__(self, shelf: DocumentDatabase, tables: Sequence[TableId], selects: Mapping[TableId, str]) -> None:
        self.position = ShelfPosition(shelf.end)
        self._shelf, self._selects, there = shelf, selects, shelf.folders(shelf.end)
        self.schemas = {t: schema(t) for t in tables if str(t) in there}
        self.ddl, self.ts_us, self.source = {}, time.time_ns() // 1000, {"entry": shelf.end}

    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        return [SnapshotChunk(table)]

    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        fits = _make_condition(self._selects.get(chunk.table), self._shelf)
        found = self._shelf.sheets(str(chunk.table), self.position.entry)
        if kept := [sheet for sheet in found if fits(sheet)]:
            yield read(chunk.table, kept, self.position.entry)

    def close(self) -> None:
        """Nothing is held."""


class _Chunks(ChunkReader):
    """Chunks in the shelf's own order. Their keys are what only it understands: a text with the kind of the ``_id`` before it."""

    def __init__(self, shelf: DocumentDatabase, signals: TableId | None) -> None:
        self._shelf, self._signals = shelf, signals

    def read_table_schema(self, table: TableId) -> TableSchema | None:
        return schema(table) if str(table) in self._shelf.folders(self._shelf.end) else None

    def read_last_key(self, rows: KeyRange) -> Key | None:
        found = self._sheets(rows)
        return _own_key(found[-1]["_id"]) if found else None

    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        self._shelf.on_read()
        end, found = self._shelf.end, self._sheets(rows)
        at = None if self._signals is not None else ShelfPosition(end)
        kept = found[:limit]
        block = [read(rows.table.id, kept, end)] if kept else []
        last = _own_key(kept[-1]["_id"]) if kept else None
        return ChunkRows(block, last, at, at, complete=len(found) <= limit, source={"entry": end})

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        return [_own_key(json.loads(key[0])) for key in keys]

    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        self._shelf.commit(("c", str(self._signals), {"_id": id_, "type": type_, "data": data}))

    def delete_signal_row(self, id_: str) -> None:
        self._shelf.commit(("d", str(self._signals), id_))

    def end_of_log(self) -> ShelfPosition:
        return ShelfPosition(self._shelf.end)

    def close(self) -> None:
        """Nothing is open."""

    def _sheets(self, rows: KeyRange) -> list[Sheet]:
        fits = _make_condition(rows.condition, self._shelf)
        after, upto, first, end = (
            None if k is None else _place_of(_id(k)) for k in (rows.after, rows.upto, rows.first, rows.end)
        )
        keys = None if rows.keys is None else [_id(key) for key in rows.keys]
        return [
            sheet
            for sheet in self._shelf.sheets(str(rows.table.id), self._shelf.end)
            for place in (_place_of(sheet["_id"]),)
            if (after is None or place > after)
            and (upto is None or place <= upto)
            and (first is None or place >= first)
            and (end is None or place <= end)
            and (keys is None or sheet["_id"] in keys)
            and fits(sheet)
        ]


def _own_key(id_: Any) -> Key:
    return [f"{'text' if isinstance(id_, str) else 'number'}:{id_}"]


def _id(key: Key) -> Any:
    kind, _, value = key[0].partition(":")
    return value if kind == "text" else int(value)


@contextlib.contextmanager
def register_document_source() -> Iterator[None]:
    """Shelves are a kind of source meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "shelf", SourceClassPaths(f"{__name__}:ShelfSource", f"{__name__}:ShelfConfig"))
        yield
