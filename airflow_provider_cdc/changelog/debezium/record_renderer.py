"""Renders the change log in Debezium's JSON form: records with key, value and headers, tombstones and transaction boundaries included.

The form is that of "Change events" of the Debezium connector documents. Tombstones, headers, transaction boundaries and schema
change records exist only here: they are made from the events of the change log.

    >>> for record in DebeziumRenderer(ChangeLog("/lake/changelog"), "shop").records(after=0):
    ...     print(record.topic, record.value["op"] if record.value else None)
    shop.inventory.orders r
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_cdc import __version__
from airflow_provider_cdc.changelog.debezium.avro_names import get_setting
from airflow_provider_cdc.changelog.debezium.connect_schemas import (
    NOTIFICATION_KEY,
    NOTIFICATION_VALUE,
    TRANSACTION_KEY,
    TRANSACTION_VALUE,
    envelope_schema,
    key_schema,
    schema_change_key,
    schema_change_value,
)
from airflow_provider_cdc.changelog.debezium.debezium_records import RecordValues, record_values
from airflow_provider_cdc.changelog.debezium.debezium_values import as_integers
from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.batch_manifest import DataFile, Manifest, SchemaChangeRecord
from airflow_provider_cdc.core.model.notifications import Notification, NotificationType
from airflow_provider_cdc.core.model.source_fields import field_types
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source_block_formats import EventForm

_ROWS = 10_000
"""Events of a file that are in memory at once."""
_OPEN_FILES = 32
"""Files of a batch that are open at once. If a batch has more, files are open only while a row group is read into memory."""
_BEGINNINGS = (NotificationType.STARTED, NotificationType.IN_PROGRESS, NotificationType.RESUMED)
"""Notifications about something that begins; they come before the batch's events, all others after them."""

Row = dict[str, Any]


@dataclass(slots=True)
class DebeziumRecord:
    """A record of Debezium's stream.

    :param key: ``None`` for a table without a key and for a truncate
    :param value: ``None`` for a tombstone
    """

    topic: str
    key: Row | None
    value: Row | None
    headers: Row = field(default_factory=dict)
    key_schema: Row | None = None
    value_schema: Row | None = None

    def to_document(self, *, schemas: bool = False) -> Row:
        """Return the record as one JSON object.

        With ``schemas``, as the JSON converter writes it (``schemas.enable``).
        """
        key: Any = self.key
        value: Any = self.value
        headers = self.headers
        if schemas:
            # the headers there are hold keys
            headers = {name: {"schema": self.key_schema, "payload": old} for name, old in headers.items()}
            key = None if key is None else {"schema": self.key_schema, "payload": key}
            value = None if value is None else {"schema": self.value_schema, "payload": value}
        document: Row = {"topic": self.topic, "key": key, "value": value}
        return document | ({"headers": headers} if headers else {})


class DebeziumRenderer:
    """Renders the batches of one connector.

    :param schemas: describe keys and values, for consumers that want ``schemas.enable``
    :param form: one of the source's own, instead of the usual one
    """

    def __init__(
        self, changelog: ChangeLog, connector: str, *, schemas: bool = False, form: EventForm | None = None
    ) -> None:
        self._changelog, self._connector, self._schemas, self._form = changelog, connector, schemas, form

    def render_records(self, *, after: int = 0, until: int | None = None) -> Iterator[DebeziumRecord]:
        """Yield the records of the batches after ``after``, in the connector's order."""
        for manifest in self._changelog.read_manifests(self._connector, after=after, until=until):
            yield from self.render_batch(manifest)

    def render_batch(self, manifest: Manifest) -> Iterator[DebeziumRecord]:
        """Yield the records of one batch.

        Its notifications keep their order: leading ones that report the beginning of a snapshot come before the batch's events, all
        others after them, so that readers get a report after the events it is about.
        """
        notifications = (
            [self._notification(manifest.config, n) for n in manifest.notifications] if _sunk(manifest) else []
        )
        begun = len(list(takewhile(lambda n: n.type in _BEGINNINGS, manifest.notifications)))
        yield from notifications[:begun]
        yield from self._captured(manifest)
        yield from notifications[begun:]

    def _captured(self, manifest: Manifest) -> Iterator[DebeziumRecord]:
        """Events, boundaries and schema changes of one batch."""
        tombstones = get_setting(manifest.config, "tombstones.on.delete")
        boundaries = _TransactionBoundaries(
            manifest, (TRANSACTION_KEY, TRANSACTION_VALUE) if self._schemas else (None, None)
        )
        events = heapq.merge(*(self._events(manifest, f) for f in manifest.files), key=lambda e: e[0]["seq"])
        late = self._late(manifest)
        changes = iter(sorted(manifest.schema_changes, key=lambda c: c.seq))
        change = next(changes, None)
        for event, topic, rows, following in _with_next(events):
            while change is not None and change.seq < event["seq"]:
                if not boundaries.is_in_transaction(event):
                    yield from boundaries.render_end()
                yield from self._change(manifest, change)
                change = next(changes, None)
            yield from boundaries.render_boundaries(event, topic, rows)
            yield from self._records(event, topic, rows, following or late.get(event["seq"]), tombstones)
        yield from boundaries.render_end()
        while change is not None:
            yield from self._change(manifest, change)
            change = next(changes, None)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _events(self, manifest: Manifest, file: DataFile) -> Iterator[tuple[Row, str, RecordValues]]:
        rows: RecordValues | None = None
        for batch in self._batches(manifest, file):
            if rows is None:
                source = self._form.fields if self._form else batch.schema.field("source").type
                rows = record_values(manifest.schemas[file.topic][str(file.schema_version)], source, manifest.config)
            plain = pa.RecordBatch.from_arrays([as_integers(c) for c in batch.columns], names=batch.schema.names)
            for event in plain.to_pylist():
                event["passing"] = file.passing
                yield self._formed(event), file.topic, rows

    def _late(self, manifest: Manifest) -> dict[int, Row]:
        """Map the delete of a key change to the create that belongs to it, where that comes late.

        The delete is given by its number. Late: other events are between the two.
        """
        creates: dict[int, Row] = {}
        for topic in {file.topic for file in manifest.files if file.late}:
            files = [file for file in manifest.files if file.topic == topic and not file.passing]
            ended: dict[str, int] = {}
            for file in sorted(files, key=lambda data_file: data_file.first_seq):
                for event in self._keys(manifest, file):
                    if event["op"] == "d":
                        ended[repr(event["key"])] = event["seq"]
                    elif event["previous_key"] is not None:
                        at = ended.get(repr(event["previous_key"]))
                        if at is not None and at != event["seq"] - 1:
                            creates[at] = event
        return creates

    def _keys(self, manifest: Manifest, file: DataFile) -> Iterator[Row]:
        with self._changelog.open_file(manifest.connector, file) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(_ROWS, columns=["seq", "op", "key", "previous_key"]):
                plain = [as_integers(column) for column in batch.columns]
                yield from pa.RecordBatch.from_arrays(plain, names=batch.schema.names).to_pylist()

    def _batches(self, manifest: Manifest, file: DataFile) -> Iterator[pa.RecordBatch]:
        if len(manifest.files) <= _OPEN_FILES:
            with self._changelog.open_file(manifest.connector, file) as f:
                yield from pq.ParquetFile(f).iter_batches(batch_size=_ROWS)
            return
        group, groups = 0, 1
        while group < groups:
            with self._changelog.open_file(manifest.connector, file) as f:
                parquet = pq.ParquetFile(f)
                groups = parquet.num_row_groups
                table = parquet.read_row_group(group)
            yield from table.to_batches(max_chunksize=_ROWS)
            group += 1

    def _formed(self, event: Row) -> Row:
        if self._form is not None:
            event["source"] = self._form.source(event["source"], event["seq"])
            if not self._form.transactions:
                event["transaction"] = None
        return event

    def _records(
        self, event: Row, topic: str, rows: RecordValues, following: Row | None, tombstones: bool
    ) -> Iterator[DebeziumRecord]:
        key = rows.build_key(event.get("key"))
        value = rows.build_value(event)
        headers = self._headers(event, rows, following)
        described = (
            (
                key_schema(topic, rows.schema, rows.names),
                envelope_schema(
                    topic,
                    rows.schema,
                    self._source_schema(event["source"].get("connector", ""), rows.schema),
                    rows.source,
                    rows.names,
                ),
            )
            if self._schemas
            else (None, None)
        )
        yield DebeziumRecord(topic, key, value, headers, *described)
        if event["op"] == "d" and tombstones and key is not None:
            yield DebeziumRecord(topic, key, None, headers, described[0])

    def _headers(self, event: Row, rows: RecordValues, following: Row | None) -> Row:
        """Build the headers by which the delete and the create of a key change name each other's keys.

        A key change is a delete and a create at the same position.
        """
        if following is not None:
            return {"__debezium.newkey": rows.build_key(following["key"])}
        if event.get("previous_key") is not None:
            return {"__debezium.oldkey": rows.build_key(event["previous_key"])}
        return {}

    def _source_schema(self, connector: str, schema: TableSchema | None = None) -> str:
        if self._form is not None:
            return self._form.source_schema
        own = schema.documents.source_schema if schema is not None and schema.documents is not None else None
        return own or f"io.debezium.connector.{connector}.Source"

    # -- schema changes -----------------------------------------------------------------------------------------------

    def _change(self, manifest: Manifest, record: SchemaChangeRecord) -> Iterator[DebeziumRecord]:
        """Yield the record of a schema change (Debezium MySQL connector, "Schema change topic")."""
        if record.internal or not get_setting(manifest.config, "include.schema.changes"):
            return
        prefix = str(manifest.config.get("topic.prefix", manifest.connector))
        databases: dict[tuple[str, str | None], list[TableChange]] = {}
        for change in record.changes:
            schema = change.id.database_name, change.id.namespace if change.id.catalog else None
            databases.setdefault(schema, []).append(change)
        # the database of a statement is that of its tables, whichever the session was in
        for (database, namespace), changes in (databases or {(record.database, None): []}).items():
            source = {
                "version": __version__, "connector": manifest.source, "name": prefix, "ts_ms": record.ts_us // 1000,
                "snapshot": "true" if record.snapshot else "false", "db": database, "sequence": None,
                "ts_us": record.ts_us, "ts_ns": record.ts_us * 1000, **({"schema": namespace} if namespace else {}),
                "table": changes[0].id.name if changes else "",
                **record.source,
            }  # fmt: skip
            if self._form is not None:
                source = self._form.source(source, record.seq)
            value = {
                "source": source, "ts_ms": record.captured_us // 1000, "databaseName": database, "schemaName": namespace,
                "ddl": record.ddl, "tableChanges": _table_changes(changes),
            }  # fmt: skip
            described = self._change_schemas(manifest, source) if self._schemas else (None, None)
            yield DebeziumRecord(prefix, {"databaseName": database}, value, {}, *described)

    def _change_schemas(self, manifest: Manifest, source: Row) -> tuple[Row, Row]:
        own = manifest.source_fields if self._form is None else field_types(self._form.fields)
        value = schema_change_value(manifest.source, self._source_schema(manifest.source), source, own)
        return schema_change_key(manifest.source), value

    # -- notifications ------------------------------------------------------------------------------------------------

    def _notification(self, config: Row, notification: Notification) -> DebeziumRecord:
        """Yield the record of a notification (Debezium connector documents, "Notifications", channel ``sink``)."""
        described = (NOTIFICATION_KEY, NOTIFICATION_VALUE) if self._schemas else (None, None)
        topic = str(config["notification.sink.topic.name"])
        return DebeziumRecord(topic, {"id": notification.id}, notification.to_document(), {}, *described)


def _sunk(manifest: Manifest) -> bool:
    """Check whether notifications are rendered as records."""
    return "sink" in manifest.config.get("notification.enabled.channels", ())


class _TransactionBoundaries:
    """BEGIN and END records, where events carry transaction metadata."""

    def __init__(self, manifest: Manifest, described: tuple[Row | None, Row | None]) -> None:
        self._described = described
        config = manifest.config
        parts = config.get("topic.prefix", manifest.connector), get_setting(config, "topic.transaction")
        self._topic = str(get_setting(config, "topic.delimiter")).join(parts)
        self._id: str | None = None
        self._ts_ms = 0
        self._counts: Counter[str] = Counter()

    def is_in_transaction(self, event: Row) -> bool:
        """Check whether an event belongs to the open transaction: a table may come to be within one."""
        return self._id is not None and _id_of(event) == self._id

    def render_boundaries(self, event: Row, topic: str, rows: RecordValues) -> Iterator[DebeziumRecord]:
        id_ = _id_of(event)
        if id_ != self._id:
            yield from self.render_end()
            if id_ is not None:
                self._id, self._ts_ms = id_, event["source"]["ts_ms"]
                yield self._record("BEGIN", None, None)
        if id_ is not None:
            self._ts_ms = event["source"]["ts_ms"]
            self._counts[rows.schema.id.full_name] += 1

    def render_end(self) -> Iterator[DebeziumRecord]:
        if self._id is not None:
            collections = [{"data_collection": t, "event_count": n} for t, n in sorted(self._counts.items())]
            yield self._record("END", self._counts.total(), collections)
            self._id = None
            self._counts.clear()

    def _record(self, status: str, count: int | None, collections: list[Row] | None) -> DebeziumRecord:
        value = {
            "status": status, "id": self._id, "event_count": count, "data_collections": collections, "ts_ms": self._ts_ms,
        }  # fmt: skip
        return DebeziumRecord(self._topic, {"id": self._id}, value, {}, *self._described)


def _id_of(event: Row) -> str | None:
    transaction = event["transaction"]
    return transaction["id"] if transaction is not None else None


def _with_next(
    events: Iterator[tuple[Row, str, RecordValues]],
) -> Iterator[tuple[Row, str, RecordValues, Row | None]]:
    """Each event with the create that belongs to it, if it is the delete of a key change."""
    current = next(events, None)
    while current is not None:
        following = next(events, None)
        pair = following is not None and current[0]["op"] == "d" and _is_second(following[0], current[0])
        if following is not None and pair:
            following[0]["previous_key"] = current[0]["key"]  # of a row that has passed this key, it is the one before
        yield (*current, following[0] if following is not None and pair else None)
        current = following


def _is_second(event: Row, delete: Row) -> bool:
    """Check whether an event is the create of the key change that begins with a delete."""
    return (
        event.get("previous_key") is not None
        and event["seq"] == delete["seq"] + 1
        and (event["previous_key"] == delete["key"] or delete["passing"])
    )


def _table_changes(changes: list[TableChange]) -> list[Row]:
    """Build the table changes of a record: a renamed table is an ALTER under its new name.

    There is no DROP of its old name.
    """
    renamed = {c.previous_id for c in changes if c.previous_id is not None}
    return [_table_change(c) for c in changes if c.type != "DROP" or c.id not in renamed]


def _table_change(change: TableChange) -> Row:
    return {
        "type": change.type,
        "id": _quoted(change.id),
        "table": None if change.table is None else _table(change.table),
    }


def _quoted(table: TableId) -> str:
    parts = (table.catalog, table.namespace, table.name)
    return ".".join(f'"{part}"' for part in parts if part is not None)


def _table(schema: TableSchema) -> Row:
    return {
        "defaultCharsetName": schema.charset,
        "primaryKeyColumnNames": list(schema.key),
        "columns": [
            {
                "name": c.name, "jdbcType": c.declared.jdbc_type, "nativeType": None, "typeName": c.declared.type_name,
                "typeExpression": c.declared.type_expression, "charsetName": c.declared.charset,
                "length": c.declared.length, "scale": c.declared.scale, "position": i, "optional": c.nullable,
                "autoIncremented": c.declared.auto_incremented,
                "generated": c.declared.generated or c.declared.auto_incremented, "comment": c.declared.comment,
                "defaultValueExpression": c.declared.default, "enumValues": [_literal(v) for v in c.declared.values] or None,
            }
            for i, c in enumerate(schema.columns, 1)
        ],
        "comment": schema.comment,
        "attributes": [],
    }  # fmt: skip


def _literal(text: str) -> str:
    """Format a member of an ENUM or SET, as SQL writes it."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
