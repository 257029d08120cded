"""Replays a change log and objects to every step that a correct one cannot take.

A create must meet an absent key, an update and a delete must find exactly the row that their ``before`` says, sequence numbers
must be dense. Code that loses, repeats, reorders or garbles an event is found at that event, not at the end.

A table continues under its new name. After a statement that changes rows without saying how, a row is what its next event says it was,
until the table is emptied and read again.

A value that an event leaves out (``unavailable``) stays as it was, also where the row gets another key; what a create or a read
leaves out is NULL.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.capture.unlogged_rewrite_check import rewrite_reason
from airflow_provider_cdc.core.model.batch_manifest import Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import TableChange, TableSchema

Row = dict[str, Any]


class IllegalEvent(AssertionError):
    """The change log says something that cannot have happened."""


@dataclass
class Table:
    """A table as far as the change log shows: by key, or as a bag where it has none."""

    schema: TableSchema
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    bag: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    """Keys of which there was an event."""
    stale: set[tuple[Any, ...]] = field(default_factory=set)
    """Keys of which there may have been events in a gap."""
    untold: dict[tuple[Any, ...], set[str]] = field(default_factory=dict)
    """Columns of rows from before the connector whose values no event has had yet: they count as NULL until one has."""
    passing: dict[tuple[Any, ...], list[Row]] = field(default_factory=dict)
    """Rows that have come to a key and leave it within the same transaction."""
    rewritten: bool = False
    """A statement has changed rows since the table was last read, and no one knows how."""

    def doubt(self) -> None:
        """Any row may be another one now."""
        self.stale, self.seen, self.rewritten = set(self.rows), set(), True

    def all(self) -> list[Row]:
        """The rows, in the order of their values."""
        if not self.schema.key:
            rows = [dict(zip(self.schema.column_names, values, strict=True)) for values in self.bag.elements()]
        else:
            rows = [dict(row) for row in self.rows.values()]  # later schema changes change them in place
        return sorted(rows, key=repr)


class Replay:
    """The state after all batches so far; :meth:`advance` takes in new ones.

    :ivar partial: tables held rows before the connector began, which only incremental snapshots have read
    """

    def __init__(self, changelog: ChangeLog, connector: str, *, partial: bool = False) -> None:
        self._changelog, self._connector, self.partial, self._prefix = changelog, connector, partial, connector
        self.tables: dict[str, Table] = {}
        self.seq = 0
        self.batch = 0
        self.operations: Counter[str] = Counter()
        self._gone: dict[str, tuple[int, Row]] = {}
        self._left: dict[tuple[str, tuple[Any, ...]], Row] = {}
        """Topic and key → the row that the last delete has ended, of those that say something of the key."""
        self.transactions: dict[str, list[int]] = {}
        """Transaction id → ``total_order`` of its events, with ``provide.transaction.metadata``."""

    def advance(self) -> Replay:
        """Replay the batches that were not yet."""
        for manifest in self._changelog.read_manifests(self._connector, after=self.batch):
            self._prefix = manifest.config.get("topic.prefix", self._connector)
            if manifest.first_seq != self.seq + 1:
                raise IllegalEvent(f"batch {manifest.batch} begins at seq {manifest.first_seq} after {self.seq}")
            unused = manifest.unused_numbers
            for seq, item in _items(self._changelog, manifest):
                unused -= seq - self.seq - 1
                if seq <= self.seq or unused < 0:
                    raise IllegalEvent(f"seq {seq} follows {self.seq} in batch {manifest.batch}")
                self._next(item)
                self.seq = seq
                if isinstance(item, SchemaChangeRecord):
                    self._rename(item, manifest)
                    for change in item.changes:
                        self._change(change, item, manifest)
                else:
                    self._event(item, manifest)
            if self.seq != manifest.last_seq or unused:
                raise IllegalEvent(f"batch {manifest.batch} ends at {self.seq}, its manifest says {manifest.last_seq}")
            self.batch = manifest.batch
        return self

    def gap(self) -> Replay:
        """Changes to all keys were lost from here on: until a table is emptied, its next event says what there was of a key."""
        self.advance()
        for table in self.tables.values():
            table.stale, table.seen = set(table.rows), set()
        self.partial = True
        return self

    def plant(self, topic: str, *rows: Row) -> None:
        """Rows are wrong from here on, as in a target that someone has changed; the next event of each says what there is."""
        table = self.advance().tables[topic]
        for row in rows:
            key = tuple(row[k] for k in table.schema.key)
            table.rows[key] = row
            table.stale.add(key)
            table.seen.discard(key)
        self.partial = True

    def lose(self, topic: str, *keys: tuple[Any, ...]) -> None:
        """Rows are missing from here on, as in a target that someone has changed."""
        table = self.advance().tables[topic]
        for key in keys:
            table.rows.pop(key, None)
            table.stale.discard(key)
            table.seen.discard(key)
        self.partial = True

    def rows(self, topic: str) -> list[Row]:
        return self.tables[topic].all() if topic in self.tables else []

    def _next(self, item: Row | SchemaChangeRecord) -> None:
        """Called before each step, for those who want to look at the tables in between."""

    # -- one step -----------------------------------------------------------------------------------------------------

    def _event(self, event: Row, manifest: Manifest) -> None:
        topic = event["topic"]
        schema = manifest.schemas[topic][str(event["schema_version"])]
        table = self.tables.setdefault(topic, Table(schema))
        table.schema = schema
        op, before, after = event["op"], event["before"], event["after"]
        self.operations[op] += 1
        if event.get("transaction") is not None:
            self.transactions.setdefault(event["transaction"]["id"], []).append(event["transaction"]["total_order"])
        self._shape(event, schema)
        if op == "t":
            table.rows.clear()
            table.seen.clear()
            table.stale.clear()
            table.untold.clear()
            table.bag.clear()
            table.rewritten = False
        elif not schema.key:
            self._bag(table, event, before, after)
        elif event["passing"]:
            self._passing(table, event, tuple(event["key"][k] for k in schema.key), before, after)
        else:
            key = tuple(event["key"][k] for k in schema.key)
            self._keyed(table, event, key, before, after)

    def _passing(self, table: Table, event: Row, key: tuple[Any, ...], before: Row | None, after: Row | None) -> None:
        """A row that comes to a key and leaves it within one transaction, beside the one that may have it all the time."""
        rows, lacking = table.passing.setdefault(key, []), event["unavailable"] or []
        there = None
        if before is not None:
            not_told = {*(lacking if event["op"] == "d" else event["unavailable_before"] or [])}
            there = next(
                (row for row in rows if _equal(_mask_columns(row, not_told), _mask_columns(before, not_told))), None
            )
            if there is None:
                raise IllegalEvent(
                    f"{event['op']} of {key} in {event['topic']}, which did not come there: {event['seq']}"
                )
            rows.remove(there)
        if after is not None:
            rows.append(after | {c: self._before(event, table, there)[c] for c in lacking})
        elif there is not None:
            self._gone[event["topic"]] = event["seq"], there

    def _keyed(self, table: Table, event: Row, key: tuple[Any, ...], before: Row | None, after: Row | None) -> None:
        there, op = table.rows.get(key), event["op"]
        untold = table.untold.pop(key, set())
        if key in table.stale:
            table.stale.remove(key)
            there = None
        if op == "d" and event["source"]["snapshot"] == "incremental":
            self._looked_up(table, event, key, there)
            return
        if op == "r" and event["source"]["snapshot"] == "incremental":
            self._chunk_row(table, event, key, there, after, untold)
        elif op in ("u", "d") and there is None and (self.partial or table.rewritten) and key not in table.seen:
            there, untold = before, {*(event["unavailable_before"] or [])}  # of a row from before the connector
        table.seen.add(key)
        if (op == "c" and there is not None) or (
            op == "r" and there is not None and event["source"]["snapshot"] != "incremental"
        ):
            raise IllegalEvent(f"{op} of {key} in {event['topic']}, which is there already: {event['seq']}")
        if op in ("u", "d") and there is None:
            raise IllegalEvent(f"{op} of {key} in {event['topic']}, which is not there: {event['seq']}")
        lacking = event["unavailable"] or []
        not_told = lacking if op == "d" else event["unavailable_before"] or []
        if op in ("u", "d") and not _equal(
            _mask_columns(before, {*not_told} | untold), _mask_columns(there, {*not_told} | untold)
        ):
            raise IllegalEvent(
                f"{op} of {key} in {event['topic']} at {event['seq']}: before is {before}, there is {there}"
            )
        if any(
            image is not None and image[c] is not None
            for image, names in ((before, not_told), (after, lacking if after else []))
            for c in names
        ):
            raise IllegalEvent(
                f"{op} of {key} in {event['topic']} at {event['seq']} has a value that is said to be unavailable"
            )
        if op == "d":
            self._gone[event["topic"]] = event["seq"], table.rows.pop(key, there)
            self._left[event["topic"], key] = self._gone[event["topic"]][1]
        else:
            assert after is not None
            table.rows[key] = after | {c: self._before(event, table, there)[c] for c in lacking}
            if untold := untold & {*lacking}:
                table.untold[key] = untold

    def _chunk_row(
        self, table: Table, event: Row, key: tuple[Any, ...], there: Row | None, after: Row | None, untold: set[str]
    ) -> None:
        """A row of an incremental snapshot is never out of date: it says what is there, or is of a key that was never seen."""
        lacking = {*(event["unavailable"] or [])} | untold
        if there is not None and not _equal(_mask_columns(after, lacking), _mask_columns(there, lacking)):
            raise IllegalEvent(
                f"stale r of {key} in {event['topic']} at {event['seq']}: it says {after}, there is {there}"
            )
        if there is None and key in table.seen:
            raise IllegalEvent(
                f"r of {key} in {event['topic']} at {event['seq']} brings back a row that is gone: {after}"
            )

    def _looked_up(self, table: Table, event: Row, key: tuple[Any, ...], there: Row | None) -> None:
        """A key that was looked up and had no row never had one since the last event of it."""
        if there is not None:
            raise IllegalEvent(
                f"d of {key} in {event['topic']} at {event['seq']}, which was looked up and is there: {there}"
            )
        known, lacking = (
            dict(zip(table.schema.key, key, strict=True)),
            {*table.schema.column_names} - {*table.schema.key},
        )
        if (
            event["before"] != dict.fromkeys(table.schema.column_names) | known
            or {*(event["unavailable"] or [])} != lacking
        ):
            raise IllegalEvent(f"d of {key} in {event['topic']} at {event['seq']} tells more than its key: {event}")
        table.rows.pop(key, None)
        table.seen.add(key)

    def _before(self, event: Row, table: Table, there: Row | None) -> Row:
        """The row as it was before an event, with NULL for what begins with it."""
        if there is not None:
            return there
        if event["previous_key"] is None:
            return dict.fromkeys(table.schema.column_names)
        if event["passing"] and self._gone[event["topic"]][0] == event["seq"] - 1:
            return self._gone[event["topic"]][1]
        row = self._left.get((event["topic"], tuple(event["previous_key"].values())))
        if row is None:
            raise IllegalEvent(
                f"the row of {event['previous_key']} in {event['topic']} did not end before {event['seq']}"
            )
        return row

    def _bag(self, table: Table, event: Row, before: Row | None, after: Row | None) -> None:
        if before is not None:
            image = tuple(_plain_value(before[n]) for n in table.schema.column_names)
            if table.bag[image] <= 0 and not table.rewritten:
                raise IllegalEvent(f"{event['op']} of a row that is not in {event['topic']}: {before}")
            table.bag[image] = max(table.bag[image] - 1, 0)
        if after is not None:
            table.bag[tuple(_plain_value(after[n]) for n in table.schema.column_names)] += 1

    def _shape(self, event: Row, schema: TableSchema) -> None:
        """Images are there as the operation says, and have the schema's columns."""
        expected = {"r": (False, True), "c": (False, True), "u": (True, True), "d": (True, False), "t": (False, False)}
        images = (event["before"] is not None, event["after"] is not None)
        if images != expected[event["op"]]:
            raise IllegalEvent(f"{event['op']} with images {images} at {event['seq']}")

    def _rename(self, record: SchemaChangeRecord, manifest: Manifest) -> None:
        """Rows go with their tables, all at once: names may be swapped. What is not captured under its new name is out of sight."""
        renamed = [c for c in record.changes if c.previous_id not in (None, c.id)]
        moved = [(self._topic(c.previous_id), self._topic(c.id)) for c in renamed]
        rows = [self.tables.pop(old, None) for old, _ in moved]
        for (_, new), table in zip(moved, rows, strict=True):
            self.tables.pop(new, None)
            if table is not None and new in manifest.schemas:
                self.tables[new] = table

    def _topic(self, table: Any) -> str:
        known = next((t for t in self.tables if t.endswith(f".{table}")), None)
        return known or f"{self._prefix}.{table}"

    def _change(self, change: TableChange, record: SchemaChangeRecord, manifest: Manifest) -> None:
        """Apply a schema change to the existing rows, as a target would."""
        topic = next((t for t in manifest.schemas if t.endswith(f".{change.id}")), None)
        if topic is None or change.table is None:
            return
        if topic not in self.tables:
            if change.type == "CREATE" and change.exact:
                return
            self.tables[topic] = Table(
                manifest.schemas[topic][str(change.table.version)], rewritten=not record.snapshot
            )
            return
        table = self.tables[topic]
        old = table.schema
        renamed = change.previous_id not in (None, change.id)
        text = change.model_copy(update={"exact": change.exact or renamed})
        if not record.snapshot and rewrite_reason(old, text):
            table.doubt()
        table.schema = manifest.schemas[topic][str(change.table.version)]
        for row in table.rows.values():
            _alter(row, old, table.schema, change)
        bag: Counter[tuple[Any, ...]] = Counter()
        for image, count in table.bag.items():
            row = dict(zip(old.column_names, image, strict=True))
            _alter(row, old, table.schema, change)
            bag[tuple(row.values())] += count
        table.bag = bag


def _alter(row: Row, old: TableSchema, new: TableSchema, change: TableChange) -> None:
    values = dict(row)
    row.clear()
    for column in new.columns:
        origin = change.renamed.get(column.name, column.name)
        if column.name in change.added or origin not in values:
            row[column.name] = _cast_text(change.added.get(column.name), column.type)
        else:
            row[column.name] = _rescale_decimal(values[origin], column.type)


def _rescale_decimal(value: Any, type_: str) -> Any:
    """A decimal with the digits of its column after a change of type."""
    if isinstance(value, Decimal) and type_.startswith("decimal"):
        return value.quantize(Decimal(1).scaleb(-int(type_.rstrip(")").split(",")[1])), context=Context(prec=76))
    return value


def _cast_text(text: str | None, type_: str) -> Any:
    if text is None:
        return None
    if type_ == "bool":
        return {"0": False, "1": True}[text]
    if type_.startswith("int"):
        return int(text)
    if type_.startswith("decimal"):
        return Decimal(text)
    if type_.startswith("timestamp"):
        return dt.datetime.fromisoformat(text)
    if type_.startswith("date"):
        return dt.date.fromisoformat(text)
    return float(text) if type_ in ("double", "float") else text


def _plain_value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else tuple(value.items()) if isinstance(value, dict) else value


def _mask_columns(row: Row | None, columns: Collection[str]) -> Row | None:
    return None if row is None else {c: v for c, v in row.items() if c not in columns}


def _equal(a: Row | None, b: Row | None) -> bool:
    """Equal rows; NaN equals NaN."""
    return a == b or repr(a) == repr(b)


def _items(changelog: ChangeLog, manifest: Manifest) -> Iterator[tuple[int, Row | SchemaChangeRecord]]:
    """Events and schema changes of a batch by seq."""
    items: list[tuple[int, Row | SchemaChangeRecord]] = [(r.seq, r) for r in manifest.schema_changes]
    for file in manifest.files:
        with changelog.open_file(manifest.connector, file) as f:
            table = pq.ParquetFile(f, pre_buffer=False).read(use_threads=False)
        if table.num_rows != file.rows:
            raise IllegalEvent(f"{file.path} has {table.num_rows} rows, its manifest says {file.rows}")
        for row in table.to_pylist():
            row["topic"], row["passing"] = file.topic, file.passing
            items.append((row["seq"], row))
    return iter(sorted(items, key=lambda item: item[0]))
