"""Records → log items: blocks of rows, schema changes, truncates.

Records that are no events of a table are left out, and reported.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import CdcError, ConfigError, UnknownLogEvent, UnreadableValue
from airflow_provider_cdc.core.model.log_items import (
    CREATE,
    DELETE,
    OPERATIONS,
    UPDATE,
    BlockTransactions,
    Heartbeat,
    LogBlock,
    LogItem,
    RowBlock,
    SchemaChange,
    Truncate,
)
from airflow_provider_cdc.core.model.table_schema import HEADER, Column, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig
from airflow_provider_cdc.sources.debezium.json_line_parser import LineParser
from airflow_provider_cdc.sources.debezium.json_values import InvalidColumnValue
from airflow_provider_cdc.sources.debezium.record_column_builder import (
    DescribedColumns,
    EventOrigin,
    ImageBuilder,
    LayoutKey,
    Row,
    TopicRows,
    build_needed_schema,
    build_schema_change,
)
from airflow_provider_cdc.sources.debezium.record_feed_interface import RecordFeed, RecordLines
from airflow_provider_cdc.sources.debezium.record_kinds import EVENTS, RecordKind, of_schema, of_value
from airflow_provider_cdc.sources.debezium.schema_columns import column_of

log = logging.getLogger(__name__)

_CODES: Final = {letter: code for code, letter in enumerate(OPERATIONS)}
_METADATA: Final = ("__deleted", "__op")
"""Fields that ExtractNewRecordState adds, and that have the operation of an event."""
_TRANSACTION: Final = "gtid", "commit_lsn"
"""Fields of the ``source`` block that name a transaction where ``txId`` does not. Rows of MySQL, too, may hold one key beside each other, if it is one of ``message.key.columns``."""
_CHANGE: Final = {
    "mysql": ("file", "pos", "row"),
    "mariadb": ("file", "pos", "row"),
    "postgresql": ("lsn",),
    "sqlserver": ("change_lsn",),
    "db2": ("change_lsn",),
    "informix": ("change_lsn",),
    "oracle": ("scn", "rs_id", "ssn"),
}
"""Connector → fields of the ``source`` block that no two changes have in common. SQL Server itself has a delete and a create of a key that changes, without headers."""
_OLD_KEY: Final = "__debezium.oldkey"
"""Header of a create: the key that the row had before."""
_SAFE: Final = "Everything before this record is captured; no part of the record was written."
_LEAVE_OUT: Final = (
    "if the record does not belong to a table, exclude its topic with table.exclude.list, topics or topics.regex"
)
_TRUNCATE: Final = _CODES["t"]


class DebeziumEventReader:
    """Reads the records of one stream.

    :param logs_skipped: whether it logs the records that it leaves out
    :ivar left_out: kind of record that is no event of a captured table → number of records
    """

    def __init__(
        self, config: DebeziumConfig, feed: RecordFeed, tables: CapturedTableSchemas, *, logs_skipped: bool = True
    ) -> None:
        self._config, self._feed, self._tables, self._logs_skipped = config, feed, tables, logs_skipped
        self._filters = Filters(config)
        self._lines = LineParser()
        self._shapes: dict[str, RecordKind] = {}
        self._described: dict[tuple[str, LayoutKey], DescribedColumns] = {}
        self._arrays: dict[tuple[str, LayoutKey], ImageBuilder] = {}
        self._owners: dict[TableId, str] = {}
        self._deleted: dict[str, Any] = {}
        """Topic → key of the delete that was its last event."""
        self._open: dict[str, TopicRows] = {}
        self._order = 0
        self._reported: set[tuple[str, str]] = set()
        self.left_out: Counter[str] = Counter()

    def read_items(self, piece: RecordLines) -> Iterator[LogItem]:
        """Yield the items of a piece.

        :raises UnknownLogEvent: a record is neither an event nor anything else that is known
        :raises UnreadableValue: a value is not one of its column
        """
        self._piece = piece
        captured: dict[str, TableId | None] = {}
        for line, record in enumerate(self._lines.parse_lines(piece.lines, piece.describe_line)):
            key_schema, key = self._part(record.get("key"))
            value_schema, value = self._part(record.get("value"))
            topic = record.get("topic") or self._topic(value, line)
            if topic not in captured:
                captured[topic] = self._captured(topic)
            if (table := captured[topic]) is None:
                self.left_out["a record of a topic that is not captured"] += 1
                continue
            if value is not None and not self._is_event(topic, value_schema, value, line):
                continue
            op, before, after, ts_us = self._event(value, value_schema, line)
            if op == _TRUNCATE:
                yield from self._flush(line)
                yield Truncate([table], piece.position_from_count(line + 1), ts_us, source=self._place(topic, line))
                continue
            own = self._key(key, line)
            if value is None and self._told_already(topic, own, line):
                continue
            token = LayoutKey(key_schema, value_schema, tuple(own))
            rows = self._open.get(topic)
            if rows is not None and rows.token != token and not (value is None and rows.token.key == token.key):
                yield from self._flush(line)
                rows = None
            if rows is None:
                if value is None and self._tables.find_schema(table) is None:
                    self._leave_out(topic, "a tombstone of a key without a captured event")
                    continue
                rows = self._open[topic] = TopicRows(topic, table, token)
            self._add(rows, op, before, after, own, record.get("headers"), line, ts_us, _origin(value))
        yield from self._flush(len(piece.lines))

    # -- kinds of records -------------------------------------------------------------------------------------------

    def _part(self, part: Any) -> tuple[str | None, Any]:
        """Return the name of the schema of a key or value, and its content."""
        if type(part) is dict and len(part) == 2 and "payload" in part and "schema" in part:
            return self._lines.find_schema_name(part["schema"]), part["payload"]
        return None, part

    def _topic(self, value: Any, line: int) -> str:
        """Return the topic of a line that names none."""
        if self._config.events_topic is not None:
            return self._config.events_topic
        source = value.get("source") if isinstance(value, dict) else None
        if isinstance(source, dict) and source.get("table"):
            parts = (source.get("name"), source.get("schema") or source.get("db"), source["table"])
            return self._config.topic_delimiter.join(map(str, parts))
        raise self._refused(
            "The line has no topic and no `source` block from which the topic could be derived.",
            line,
            "set events.topic",
        )

    def _captured(self, topic: str) -> TableId | None:
        """Return the table of a topic, if it is captured."""
        if not self._config.is_topic_selected(topic):
            return None
        table = self._config.resolve_table(topic)
        if not self._tables.is_captured(table):
            return None
        if (owner := self._owners.setdefault(table, topic)) != topic:
            raise ConfigError(
                f"The topics {owner} and {topic} both map to the table {table}: their rows would be mixed.",
                where=self._piece.describe_line(0),
                safe="Everything before this record is captured.",
                remedy="read them with separate connectors, each with its own topic.prefix",
            )
        return table

    def _is_event(self, topic: str, schema: str | None, value: Any, line: int) -> bool:
        if schema is None:
            shape = of_value(topic, value)
        elif (known_shape := self._shapes.get(schema)) is not None:
            shape = known_shape
        else:
            shape = self._shapes[schema] = of_schema(self._lines.schemas[schema])
        if shape in EVENTS and not (shape is RecordKind.ENVELOPE and value.get("op") == "m"):
            return True
        if shape is RecordKind.UNKNOWN:
            raise self._refused(
                f"The value of a record of {topic} is neither a change event nor a flat row. It must be a "
                "struct with the fields of an event, or a struct without nested structs.",
                line,
                f"convert the records to one of these formats with a transformation; {_LEAVE_OUT}",
            )
        self._leave_out(topic, shape.value if shape is not RecordKind.ENVELOPE else RecordKind.MESSAGE.value)
        return False

    def _leave_out(self, topic: str, kind: str) -> None:
        self.left_out[kind] += 1
        if self._logs_skipped and (topic, kind) not in self._reported:
            self._reported.add((topic, kind))
            log.info("Records of %s are skipped: each is %s, not an event of a table.", topic, kind)

    def _event(self, value: Any, schema: str | None, line: int) -> tuple[int, Row | None, Row | None, int]:
        """Operation, image before, image after and time of an event."""
        if value is None:
            return DELETE, None, None, self._now(line)
        if "op" in value and ("after" in value or "before" in value):
            source = value.get("source") or {}
            ts_us = _micros(source) or _micros(value) or self._now(line)
            code = _CODES.get(value["op"])
            if code is None:
                raise self._refused(f"The operation {value['op']!r} is unknown.", line, _LEAVE_OUT)
            before, after = value.get("before"), value.get("after")
        else:
            before, after, ts_us = None, value, self._now(line)
            if ts_ms := value.get("__source_ts_ms") or value.get("__ts_ms"):
                ts_us = int(ts_ms) * 1000
            gone = str(value.pop("__deleted", "false")).lower() == "true"
            letter = value.pop("__op", None)
            code = DELETE if gone or letter == "d" else _CODES.get(letter or "c", CREATE)
            if code == DELETE:
                before, after = after, None
        if code == DELETE:
            return code, before, None, ts_us
        if after is None and code != _TRUNCATE:
            raise self._refused(
                f"An event with the operation {OPERATIONS[code]} has no row: its `after` is null.", line, _LEAVE_OUT
            )
        return code, before if code == UPDATE else None, after, ts_us

    def _now(self, line: int) -> int:
        return self._piece.times[line] if self._piece.times is not None else time.time_ns() // 1000

    def _key(self, key: Any, line: int) -> Row:
        """Return a record's key by the names of its columns."""
        if key is None or isinstance(key, dict):
            return key or {}
        if isinstance(key, list):
            raise self._refused("The key of a record is neither a single value nor a struct.", line, _LEAVE_OUT)
        if self._config.events_key_field is None:
            raise self._refused(
                f"The key of a record is the single value {key!r}, and the name of its column is unknown.",
                line,
                "set events.key.field",
            )
        return {self._config.events_key_field: key}

    def _told_already(self, topic: str, key: Row, line: int) -> bool:
        """Check whether a record without a value has nothing new: the delete of its key came just before."""
        if not key:
            raise self._refused("A record has neither a key nor a value.", line, _LEAVE_OUT)
        if self._deleted.get(topic) != key:
            return False
        self.left_out["a tombstone after a delete"] += 1
        return True

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _add(
        self, rows: TopicRows, op: int, before: Row | None, after: Row | None, key: Row, headers: Any, line: int, ts_us: int, origin: EventOrigin,
    ) -> None:  # fmt: skip
        if op == DELETE:
            if not key and before is None:
                raise self._refused("A delete event has neither a key nor a `before` row.", line, _LEAVE_OUT)
            before = {**before, **key} if before else dict(key)
            self._deleted[rows.topic] = key
        else:
            self._deleted.pop(rows.topic, None)
        header_values = headers if isinstance(headers, Mapping) else {}
        if after is not None:
            for name in self._config.events_headers:
                after[f"{HEADER}{name}"] = self._part(header_values.get(name))[1]
        second = _OLD_KEY in header_values and self._moves(rows, self._part(header_values[_OLD_KEY])[1])
        if op == CREATE and (second or _same_change(rows, origin)):
            rows.op[-1], rows.after[-1], rows.keys[-1], rows.lines[-1] = UPDATE, after, key, line
            return
        rows.op.append(op)
        rows.before.append(before)
        rows.after.append(after)
        rows.keys.append(key)
        rows.lines.append(line)
        rows.order.append(self._order)
        rows.ts_us.append(ts_us)
        rows.origins.append(origin)
        self._order += 1

    def _moves(self, rows: TopicRows, old_key: Any) -> bool:
        """Check whether a create and the delete before it are the two halves of a row's move to another key.

        Both together are one update: the row keeps the values that the create leaves out.
        """
        return bool(rows.op) and rows.op[-1] == DELETE and rows.keys[-1] == self._key(old_key, rows.lines[-1])

    def _flush(self, line: int) -> Iterator[LogItem]:
        """Yield the items of the rows that have come before a line."""
        opened, self._open, self._order = self._open, {}, 0
        position = self._piece.position_from_count(line)
        if not opened:
            if line == len(self._piece.lines):
                yield Heartbeat(position)
            return
        first = min(rows.lines[0] for rows in opened.values())
        for rows in opened.values():
            recorded, described = self._tables.find_schema(rows.table), self._describe(rows)
            if recorded is not None and rows.has_only_keys:
                continue
            schema = build_needed_schema(rows, described, recorded, ordered=self._feed.is_topic_ordered(rows.topic))
            if (change := build_schema_change(recorded, schema)) is not None:
                start = self._piece.position_from_count(first)
                yield SchemaChange(
                    "", rows.table.database_name, [change], start, rows.ts_us[0], self._place(rows.topic, first)
                )
        blocks = [self._block(rows) for rows in opened.values()]
        last = max(rows.ts_us[-1] for rows in opened.values())
        yield LogBlock(blocks, BlockTransactions(pa.array([""]), np.array([last])), position)

    def _describe(self, rows: TopicRows) -> DescribedColumns:
        """Build the description of columns that the schemas of some rows give."""
        if (described := self._described.get((rows.topic, rows.token))) is not None:
            return described
        token, described = rows.token, DescribedColumns(key=rows.token.key)
        try:
            if token.value_schema is not None:
                described.exact = True
                described.columns = self._columns(self._lines.schemas[token.value_schema], token.key)
            if token.key_schema is not None:
                for column in self._key_columns(self._lines.schemas[token.key_schema]):
                    described.columns.setdefault(column.name, column)
        except (ValueError, KeyError) as e:
            raise self._refused(
                f"The schema of a record of {rows.topic} cannot be read: {e}", rows.lines[0], _LEAVE_OUT
            ) from None
        self._described[rows.topic, token] = described
        return described

    def _columns(self, schema: Mapping[str, Any], key: tuple[str, ...]) -> dict[str, Column]:
        fields = {str(field["field"]): field for field in schema["fields"]}
        if "op" in fields and ("after" in fields or "before" in fields):
            image = fields.get("after") or fields["before"]
        else:
            image = {"fields": [field for name, field in fields.items() if name not in _METADATA]}
        zoned = self._config.events_zoned_timestamp_mode
        return {str(f["field"]): column_of(f, zoned, key=f["field"] in key) for f in image["fields"]}

    def _key_columns(self, schema: Mapping[str, Any]) -> list[Column]:
        nodes = (
            schema["fields"] if schema.get("type") == "struct" else [{**schema, "field": self._config.events_key_field}]
        )
        return [column_of(node, self._config.events_zoned_timestamp_mode, key=True) for node in nodes]

    def _block(self, rows: TopicRows) -> RowBlock:
        schema = self._tables.find_schema(rows.table)
        assert schema is not None
        self._with_keys_before(rows, schema)
        arrays = self._arrays.get((rows.topic, rows.token))
        if arrays is None or arrays.schema is not schema:
            placeholder = self._config.unavailable_value_placeholder
            arrays = self._arrays[rows.topic, rows.token] = ImageBuilder(schema, self._describe(rows), placeholder)
        try:
            before, lacking_before = arrays.build_images(rows.before, rows.keys, "before")
            after, lacking_after = arrays.build_images(rows.after, rows.keys, "after")
        except InvalidColumnValue as e:
            raise UnreadableValue(
                f"A value of a record of {rows.topic} cannot be read: {e}",
                where=self._piece.describe_line(rows.lines[e.row]),
                safe="Everything before the block of this record is captured; no value was guessed.",
                remedy="check which program wrote the record; if its schema is correct, the column can be excluded "
                "with column.exclude.list",
            ) from None
        lines = np.array(rows.lines, np.int64)
        return RowBlock(
            table=schema,
            op=np.array(rows.op, np.int8),
            before=before,
            after=after,
            order=np.array(rows.order, np.int64),
            transaction=np.zeros(len(lines), np.int32),
            ts_us=np.array(rows.ts_us, np.int64),
            source=self._sources(rows.topic, lines),
            unavailable_before=lacking_before,
            unavailable_after=lacking_after,
            together=_together(
                rows, schema, self._filters.select_key_columns(schema), self._config.unavailable_value_placeholder
            ),
        )

    def _with_keys_before(self, rows: TopicRows, schema: TableSchema) -> None:
        """Give updates without a row before its key, which did not change.

        Of a change of key there would be a delete and a create.
        """
        key = self._filters.select_key_columns(schema)
        for at, (op, before, after) in enumerate(zip(rows.op, rows.before, rows.after, strict=True)):
            if op != UPDATE or before is not None or after is None:
                continue
            if not key:
                raise self._refused(
                    f"An update event of {rows.topic} has neither a key nor a `before` row, so the updated "
                    "row is unknown.",
                    rows.lines[at],
                    "name the key columns with message.key.columns, or let the source log whole rows "
                    "(REPLICA IDENTITY FULL)",
                )
            rows.before[at] = {name: after.get(name, rows.keys[at].get(name)) for name in key}

    # -- where --------------------------------------------------------------------------------------------------------

    def _sources(self, topic: str, lines: Any) -> dict[str, pa.Array]:
        topics = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(lines), np.int32)), pa.array([topic]))
        return {"topic": topics, **self._piece.build_source_fields(lines)}

    def _place(self, topic: str, line: int) -> dict[str, object]:
        """Return the source's own fields of the ``source`` block, of one line."""
        return {name: values[0].as_py() for name, values in self._sources(topic, np.array([line])).items()}

    def _refused(self, problem: str, line: int, remedy: str) -> CdcError:
        return UnknownLogEvent(problem, where=self._piece.describe_line(line), safe=_SAFE, remedy=remedy)


def _origin(value: Any) -> EventOrigin:
    """Find the origin of an event, as far as it says it."""
    source = value.get("source") if isinstance(value, dict) else None
    if not isinstance(source, dict):
        return EventOrigin("", "")
    transaction = value.get("transaction")
    id_ = source.get("txId") or (transaction.get("id") if isinstance(transaction, dict) else None)
    for name in _TRANSACTION:
        id_ = source.get(name) if id_ is None else id_
    change = [source.get(name) for name in _CHANGE.get(str(source.get("connector")), ())]
    has_change = bool(change) and None not in change
    return EventOrigin("" if id_ is None else str(id_), " ".join(map(str, change)) if has_change else "")


def _same_change(rows: TopicRows, origin: EventOrigin) -> bool:
    """Check whether a create and the delete before it are one change of a row, where headers do not say it."""
    return bool(rows.op) and rows.op[-1] == DELETE and origin.change != "" and rows.origins[-1] == origin


def _together(rows: TopicRows, schema: TableSchema, key: Sequence[str], placeholder: str) -> npt.NDArray[np.int64]:
    """Assign numbers to the transactions. Rows are by themselves if they do not name theirs, or its images do not distinguish rows."""
    owned: dict[str, list[int]] = {}
    for at, origin in enumerate(rows.origins):
        if origin.transaction:
            owned.setdefault(origin.transaction, []).append(at)
    groups = -1 - np.arange(len(rows.op), dtype=np.int64)
    keys_only = set(key).issuperset(schema.column_names)
    for number, own in enumerate(owned.values()):
        if len(own) > 1 and (keys_only or _whole_images(rows, own, frozenset(key), placeholder)):
            groups[own] = number
    return groups


def _whole_images(rows: TopicRows, own: Sequence[int], key: frozenset[str], placeholder: str) -> bool:
    """Check whether the images before in a transaction have all values.

    With REPLICA IDENTITY DEFAULT they have those of the key, and for all others NULL or the column's default, the same in each; nothing else says
    which identity the table has.
    """
    first: Row | None = None
    moves: list[tuple[Row, Row]] = []
    for at in own:
        before, after = rows.before[at], rows.after[at]
        if before is None or rows.op[at] not in (UPDATE, DELETE):
            continue
        rest = {name: value for name, value in before.items() if name not in key}
        if not rest:
            return False
        if first is not None and rest != first:
            return True
        first = rest
        if after is not None:
            if all(before.get(name) == after.get(name) for name in key):
                return True  # otherwise there is no image before
            moves.append((rest, after))
    same = all(after.get(name) in (value, placeholder) for rest, after in moves for name, value in rest.items())
    return same and first is not None and any(first.values())


def _micros(block: Mapping[str, Any]) -> int | None:
    """Return the time of an event, in microseconds."""
    if (micros := block.get("ts_us")) is not None:
        return int(micros)
    return None if (millis := block.get("ts_ms")) is None else int(millis) * 1000
