"""Makes change events of row blocks, on arrays: sequence numbers, keys, the ``source`` block, the envelope.

The form is that of "Change event values" of the Debezium connector documents, with native types inside (``docs/reference/change-log.md``
has the columns). As in Debezium, an update that changes the key becomes a delete of the old key and a
create of the new one; here, the create also has the old key (``previous_key``).

A value that the log does not have is null in its image, and its column is named in ``unavailable``. A null that is not named is NULL.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc import __version__
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.config.topic_names import TopicNames
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.log_items import (
    OPERATIONS,
    TRUNCATE,
    UPDATE,
    BlockTransactions,
    LogBlock,
    RowBlock,
)
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema, arrow_type, row_struct
from airflow_provider_cdc.core.model.transient_key_duplicates import KeysOverlap
from airflow_provider_cdc.core.writing.key_conflict_order import KeyOrder
from airflow_provider_cdc.core.writing.row_block_slices import RowBlockPart, RowBlockParts
from airflow_provider_cdc.core.writing.row_block_transforms import (
    SelectedColumns,
    beside_of,
    changed_rows,
    check_keys,
    image_of,
    key_of,
    lacking_columns,
    select_rows,
    split_key_changes,
    unavailable_names,
)

_CONSTANT = pa.dictionary(pa.int8(), pa.string())
_REPEATED = pa.dictionary(pa.int32(), pa.string())
"""Texts of the envelope are dictionary arrays: a file holds few different ones. Readers see plain strings."""
_REQUIRED = {"version", "connector", "name", "ts_ms", "db"}
"""Fields of the ``source`` block that every event has, for every source."""
TRANSACTION = pa.struct([("id", _REPEATED), ("total_order", pa.int64()), ("data_collection_order", pa.int64())])
_OPERATIONS = pa.array(OPERATIONS)
_NO_TRANSACTIONS = BlockTransactions(pa.array([], pa.string()), np.empty(0, np.int64))


class Envelope:
    """Wraps row blocks in the event envelope of one connector.

    :param connector: the documented ``source.connector`` value
    :param source_fields: the source's own fields of the ``source`` block
    :param hidden: a table of which no event is made: the signal table
    :param topics: names the topics
    :param keys_overlap: whether rows may have the same key in the middle of a transaction
    :ivar filtered: rows of which ``skipped.operations`` and the like made no event
    """

    def __init__(
        self,
        config: ConnectorConfig,
        filters: Filters,
        connector: str,
        source_fields: list[pa.Field],
        *,
        hidden: TableId | None = None,
        topics: TopicNames | None = None,
        keys_overlap: KeysOverlap = KeysOverlap.NEVER,
    ) -> None:
        self._config, self._filters, self._connector = config, filters, connector
        self._extra = source_fields
        self._hidden, self._topics = hidden, topics or TopicNames(config)
        self._selected: dict[int, tuple[TableSchema, SelectedColumns]] = {}
        self._keys_overlap = keys_overlap
        self._order = KeyOrder(self._select, self._may_overlap)
        self.filtered = 0
        self._open: Counter[str] = (
            Counter()
        )  # events so far of a transaction that continues in the next block, "" = all
        self._skipped = np.zeros(len(OPERATIONS), np.bool_)
        for code, letter in enumerate(OPERATIONS):
            self._skipped[code] = letter in config.skipped_operations

    def claim_topic(self, table: TableId) -> str:
        """See :meth:`Topics.claim <airflow_provider_cdc.core.config.topic_names.TopicNames.claim_topic>`."""
        return self._topics.resolve_topic(table) if table == self._hidden else self._topics.claim_topic(table)

    def select_columns(self, schema: TableSchema) -> TableSchema:
        """Return the captured part of ``schema``, as written to manifests."""
        return self._select(schema).schema

    def encode_block(
        self, block: LogBlock, seq: int, *, snapshot: str | pa.DictionaryArray = "false"
    ) -> tuple[list[EventBatch], int]:
        """Events of a block.

        :param seq: the last sequence number given out before
        :param snapshot: value of ``source.snapshot``; of a block of one table, one for each row
        :return: batches, and the last sequence number given out now
        :raises SchemaConflict: the log does not have the key of a row
        :raises UnreadableValue: a user's converter does not convert a value
        """
        for rows in block.rows:
            check_keys(rows, self._select(rows.table), block)
        keep = [self.build_row_mask(rows) for rows in block.rows]
        for rows, mask in zip(block.rows, keep, strict=True):
            if mask is not None and rows.table.id != self._hidden:
                self.filtered += int((~mask).sum())
        moved = [self._key_changes(rows) for rows in block.rows]
        if not self._order.needs_ordering(block, moved):
            parts = [RowBlockPart(rows, changed) for rows, changed in zip(block.rows, moved, strict=True)]
            return self._encode(RowBlockParts(block, parts), keep, seq, snapshot)
        batches = list[EventBatch]()
        for some in self._order.order_block(block, keep, moved):
            encoded, seq = self._encode(some, [None] * len(some.parts), seq, snapshot)
            batches += encoded
        return batches, seq

    def _encode(
        self,
        whole: RowBlockParts,
        keep: Sequence[npt.NDArray[np.bool_] | None],
        seq: int,
        snapshot: str | pa.DictionaryArray,
    ) -> tuple[list[EventBatch], int]:
        """See :meth:`encode_block`.

        :param keep: of each part, mask of the rows that events are made of; ``None`` = all
        """
        block = whole.block
        weights = np.zeros(block.row_count, np.int64)
        for part, mask in zip(whole.parts, keep, strict=True):
            weight: npt.NDArray[np.int64] | int = 1
            if part.changed is not None:
                weight = np.where(part.changed, 2, 1)
            weights[part.rows.order] = weight if mask is None else np.where(mask, weight, 0)
        ends = np.cumsum(weights) + seq
        ordinals = self._ordinals(block, weights) if self._config.provide_transaction_metadata else None
        batches = []
        for part, mask in zip(whole.parts, keep, strict=True):
            if len(part.rows):
                total = ordinals[part.rows.order] if ordinals is not None else None
                batches += self._encode_rows(part, block, ends[part.rows.order], mask, snapshot, total)
        self._carry(block, weights, batches)
        return batches, int(ends[-1]) if len(ends) else seq

    def rollback(self) -> None:
        """Forget the open transaction."""
        self._open.clear()
        self._order.discard_transaction()

    def encode_read(
        self, rows: RowBlock, position: Position, seq: int, *, snapshot: str | pa.DictionaryArray
    ) -> tuple[list[EventBatch], int]:
        """Rows that were read from a table, and so belong to no transaction of the log; see :meth:`encode_block`."""
        return self.encode_block(LogBlock([rows], _NO_TRANSACTIONS, position), seq, snapshot=snapshot)

    def encode_truncate(
        self,
        schema: TableSchema,
        seq: int,
        ts_us: int,
        source: dict[str, object],
        transaction: str | None = None,
        *,
        snapshot: str = "false",
    ) -> EventBatch:
        """Build a ``t`` event: no key, no images.

        :param transaction: id of the transaction that consists of it
        :param snapshot: value of ``source.snapshot``: that of a snapshot which empties the table before it reads it again
        """
        selected, row = self._select(schema), np.zeros(1, np.int64)
        extra = {own.name: pa.array([source.get(own.name, _nothing(own))], own.type) for own in self._extra}
        rows = RowBlock(
            schema, np.full(1, TRUNCATE, np.int8), None, None, row, None, np.full(1, ts_us, np.int64), extra
        )
        ids, ordinals = None, None
        if transaction is not None and self._config.provide_transaction_metadata:
            rows.transaction, ordinals = np.zeros(1, np.int32), row + 1
            ids = pa.array([transaction])
        events = self._events(selected, rows, row + seq, ids, ordinals, snapshot)
        return EventBatch(selected.topic, selected.schema, events, seq, seq, {"t": 1})

    # -- one row block ------------------------------------------------------------------------------------------------

    def _encode_rows(
        self,
        part: RowBlockPart,
        block: LogBlock,
        last: npt.NDArray[np.int64],
        mask: npt.NDArray[np.bool_] | None,
        snapshot: str | pa.DictionaryArray,
        ordinals: npt.NDArray[np.int64] | None,
    ) -> list[EventBatch]:
        """``last`` is the sequence number of each row's last event."""
        rows, ordered = part.rows, part.ordered
        selected = self._select(rows.table)
        previous = None if ordered is None else ordered.previous
        if part.changed is not None:
            rows, last, mask, ordinals, previous = split_key_changes(rows, last, mask, part.changed, ordinals, selected)
        if mask is not None:
            index = np.flatnonzero(mask)
            if not len(index):
                return []
            rows, last = select_rows(rows, index), last[index]
            ordinals = ordinals[index] if ordinals is not None else None
            previous = previous.take(pa.array(index)) if previous is not None else None
            snapshot = snapshot if isinstance(snapshot, str) else snapshot.take(pa.array(index))
        place = None if ordered is None else ordered.place
        events = self._events(selected, rows, last, block.transactions.id, ordinals, snapshot, previous, place)
        counts = np.bincount(rows.op, minlength=len(OPERATIONS))
        by_letter = {OPERATIONS[code]: int(n) for code, n in enumerate(counts) if n}
        lacking = lacking_columns(rows, selected)
        encoded = EventBatch(selected.topic, selected.schema, events, int(last[0]), int(last[-1]), by_letter, *lacking)
        if ordered is not None:
            encoded.passing, encoded.late = ordered.passing, ordered.late
        return [encoded]

    def _events(
        self,
        selected: SelectedColumns,
        rows: RowBlock,
        seq: npt.NDArray[np.int64],
        ids: pa.StringArray | None,
        ordinals: npt.NDArray[np.int64] | None,
        snapshot: str | pa.DictionaryArray,
        previous: pa.StructArray | None = None,
        place: npt.NDArray[np.int64] | None = None,
    ) -> pa.RecordBatch:
        n, now = len(rows), time.time_ns()
        columns: dict[str, pa.Array] = {
            "seq": pa.array(seq),
            "op": pa.DictionaryArray.from_arrays(pa.array(rows.op), _OPERATIONS),
        }
        if selected.key_type is not None:
            columns["key"] = key_of(rows, selected)
            columns["previous_key"] = pa.nulls(n, selected.key_type) if previous is None else previous
        columns["before"] = image_of(rows.before, selected, n)
        columns["after"] = image_of(rows.after, selected, n)
        columns |= beside_of(rows, selected.schema)
        columns["source"] = self._source(rows, selected.schema, snapshot)
        columns["transaction"] = self._transaction(rows, ids, ordinals, selected.topic, place)
        for name, unit in (("ts_ms", 1_000_000), ("ts_us", 1000), ("ts_ns", 1)):
            columns[name] = pa.array(np.full(n, now // unit, np.int64))
        columns["unavailable"], columns["unavailable_before"] = unavailable_names(rows, selected)
        columns["schema_version"] = pa.array(np.full(n, selected.schema.version, np.int32))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _source(self, rows: RowBlock, schema: TableSchema, snapshot: str | pa.DictionaryArray) -> pa.StructArray:
        """Build the ``source`` struct: common fields in Debezium's order, then the source's own."""
        n, table = len(rows), schema.id
        fields: dict[str, pa.Array] = {
            "version": _constant(__version__, n),
            "connector": _constant(self._connector, n),
            "name": _constant(self._config.topic_prefix, n),
            "ts_ms": pa.array(rows.ts_us // 1000),
            "snapshot": _constant(snapshot, n) if isinstance(snapshot, str) else snapshot,
            "db": _constant(table.database_name, n),
            "sequence": pa.nulls(n, _CONSTANT),
            "ts_us": pa.array(rows.ts_us),
            "ts_ns": pa.array(rows.ts_us * 1000),
        }
        if table.catalog is not None:
            fields["schema"] = _constant(table.namespace, n)
        named = "table" if schema.documents is None else schema.documents.table_field
        fields[named] = _constant(table.name, n)
        for own in self._extra:
            fields[own.name] = _repeated(rows.source[own.name] if own.name in rows.source else _nothings(own, n))
        required = _REQUIRED | {own.name for own in self._extra if not own.nullable}
        if schema.documents is not None:  # there are no events but those about documents
            required.add(named)
        described = {own.name: own.metadata for own in self._extra}
        typed = [
            pa.field(name, values.type, nullable=name not in required, metadata=described.get(name))
            for name, values in fields.items()
        ]
        return pa.StructArray.from_arrays(list(fields.values()), fields=typed)

    def _transaction(
        self,
        rows: RowBlock,
        ids: pa.StringArray | None,
        ordinals: npt.NDArray[np.int64] | None,
        topic: str,
        place: npt.NDArray[np.int64] | None,
    ) -> pa.StructArray:
        """Build the ``transaction`` struct: where each event stands in its transaction, counted from 1.

        :param place: number of each among the rows of its transaction and table, from 0; ``None``: as they stand here
        """
        n, owner = len(rows), rows.transaction
        if ids is None or ordinals is None or owner is None:
            return pa.nulls(n, TRANSACTION)
        alone = np.asarray(ids.is_null())[owner] if ids.null_count else None
        # Parquet takes a null of a row, and none among the names
        names = pa.DictionaryArray.from_arrays(pa.array(owner, mask=alone), ids.fill_null(""))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        within = np.arange(1, n + 1) - np.repeat(starts, np.diff(np.append(starts, n))) if place is None else place + 1
        within += np.where(owner == 0, self._open[topic], 0)
        mask = None if alone is None else pa.array(alone)
        arrays = [names, pa.array(ordinals), pa.array(within)]
        return pa.StructArray.from_arrays(arrays, fields=list(TRANSACTION), mask=mask)

    def _ordinals(self, block: LogBlock, weights: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """``total_order`` of each row's last event within its transaction."""
        owner = _owners(block)
        ends = np.cumsum(weights)
        first = np.searchsorted(owner, owner, side="left")
        return ends - (ends[first] - weights[first]) + np.where(owner == 0, self._open[""], 0)

    def _carry(self, block: LogBlock, weights: npt.NDArray[np.int64], batches: list[EventBatch]) -> None:
        """Keep count of a transaction that continues in the next block."""
        if not block.open:
            self._open.clear()
        else:
            self._open[""] += int(weights.sum())
            for batch in batches:
                self._open[batch.topic] += batch.events.num_rows

    # -- rows that are kept, rows that are split ----------------------------------------------------------------------

    def build_row_mask(self, rows: RowBlock) -> npt.NDArray[np.bool_] | None:
        """Mask of the rows that events are made of; ``None`` = all."""
        config = self._config
        if rows.table.id == self._hidden:
            return np.zeros(len(rows), np.bool_)
        if not (config.skipped_operations or config.skips_unchanged()):
            return None
        mask = ~self._skipped[rows.op]
        if config.skips_unchanged():
            mask &= (rows.op != UPDATE) | changed_rows(rows, self._select(rows.table))
        return None if mask.all() else mask

    def _key_changes(self, rows: RowBlock) -> npt.NDArray[np.bool_] | None:
        """Mask of the updates that change the key; ``None`` = no such row."""
        key = self._select(rows.table).key
        if rows.before is None or rows.after is None or not key:
            return None
        changed = np.zeros(len(rows), np.bool_)
        for i in key:
            before, after = rows.before.field(i), rows.after.field(i)
            # a value that is, or was, NULL: keys of message.key.columns may be
            differs = pc.coalesce(pc.not_equal(before, after), pc.xor(before.is_null(), after.is_null()))
            changed |= differs.to_numpy(zero_copy_only=False)
        changed &= rows.op == UPDATE
        return changed if changed.any() else None

    def _may_overlap(self, schema: TableSchema) -> bool:
        """Check whether rows of a table may have the same key in the middle of a transaction.

        Nothing looks after a key that only the configuration names.
        """
        if self._keys_overlap is KeysOverlap.NAMED_KEYS:
            return self._select(schema).schema.key != schema.key
        return self._keys_overlap is KeysOverlap.ALWAYS

    def _select(self, schema: TableSchema) -> SelectedColumns:
        cached = self._selected.get(id(schema))
        if cached is not None and cached[0] is schema:
            return cached[1]
        captured = self._filters.select_columns(schema)
        position = {name: i for i, name in enumerate(schema.column_names)}
        shown = {name for name in captured.column_names if self._filters.in_images(schema.id, name)}
        images = tuple(i for name, i in position.items() if name in shown)
        converted = {position[name]: column for name, column in self._filters.find_converted_columns(schema).items()}
        full = row_struct(schema)
        types = [
            pa.field(field.name, arrow_type(converted[i].column.type)) if i in converted else field
            for i, field in enumerate(full)
        ]
        selected = SelectedColumns(
            topic=self.claim_topic(schema.id),
            schema=captured,
            images=None if len(images) == len(position) else images,
            names=np.array([schema.column_names[i] for i in images]),
            key=tuple(position[name] for name in captured.key),
            # columns of a structure that the log leaves open have one name: then all of them are there
            image_type=pa.struct(types if len(images) == len(position) else [types[i] for i in images]),
            key_type=row_struct(schema, only=captured.key) if captured.key else None,
            maskings=self._filters.build_maskings(schema),
            converted=converted,
        )
        self._selected[id(schema)] = (schema, selected)
        return selected


def _nothing(field: pa.Field) -> object:
    """Return the value of a field of the ``source`` block that has none here: null, or an empty value if the field is required."""
    if field.nullable:
        return None
    return "" if pa.types.is_string(field.type) else 0


def _nothings(field: pa.Field, n: int) -> pa.Array:
    return pa.nulls(n, field.type) if field.nullable else pa.array([_nothing(field)] * n, field.type)


def _constant(value: str, n: int) -> pa.DictionaryArray:
    """``value`` n times, at the cost of n bytes."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), pa.array([value]))


def _repeated(column: pa.Array) -> pa.Array:
    """Texts as dictionary arrays of one index type, so that all blocks of a topic have one schema; others as they are."""
    if pa.types.is_string(column.type):
        column = column.dictionary_encode()
    return column.cast(_REPEATED) if pa.types.is_dictionary(column.type) and column.type != _REPEATED else column


def _owners(block: LogBlock) -> npt.NDArray[np.int32]:
    """Transaction index of each row of a block, in commit order."""
    owner = np.zeros(block.row_count, np.int32)
    for rows in block.rows:
        if rows.transaction is not None:
            owner[rows.order] = rows.transaction
    return owner
