"""From change events to the blocks that core takes: whole collections at a time, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE, BlockTransactions, LogBlock, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.mongodb.collection_tables import DISAMBIGUATED_PATHS, UPDATE_DESCRIPTION
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonValues
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import INSERT as INSERTED
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import (
    MISSING,
    ChangeEvents,
)
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import UPDATE as UPDATED
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_keys, format_values
from airflow_provider_cdc.sources.mongodb.documents.update_description_columns import removed_fields, truncated_arrays
from airflow_provider_cdc.sources.mongodb.errors import without_image
from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.log.document_shard_moves import Ints, ShardMoves, transaction_id
from airflow_provider_cdc.sources.mongodb.position import ClusterTime, MongoPosition

_OPS: Final = np.array([-1, CREATE, UPDATE, UPDATE, DELETE, -1], np.int8)
"""By the operation of an event: insert, update, replace, delete."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction whose end the stream has not come to.

    :param number: its ``txnNumber``
    :param time: cluster time of its last event so far
    :param position: behind that event
    """

    id: str
    number: int
    time: ClusterTime
    position: MongoPosition


class BlockBuilder:
    """Makes blocks of events; keeps whether the last transaction is still open.

    :param tables: decides which collections are captured
    """

    def __init__(self, tables: CapturedTableSchemas, shaping: FieldRewriter) -> None:
        self._tables, self._shaping, self._moves = tables, shaping, ShardMoves()
        self._open: OpenTransaction | None = None

    @property
    def has_open_transaction(self) -> bool:
        """Check whether rows of a transaction were given out whose end has not come."""
        return self._open is not None

    def is_past_transaction(self, position: MongoPosition) -> bool:
        """Check whether a position is behind the moment of the open transaction: no more rows of it come."""
        return self._open is not None and position.has_reached(MongoPosition(self._open.time))

    def close_transaction(self) -> Iterator[LogBlock]:
        """Yield the block that ends the open transaction, if there is one.

        The next event of the stream shows that it has no more rows.
        """
        if self._open is not None:
            ended, self._open = self._open, None
            times = np.array([ended.time.ts_us], np.int64)
            yield LogBlock([], BlockTransactions(pa.array([ended.id], pa.string()), times), ended.position)

    def build_blocks(self, events: ChangeEvents, at: Ints, before: MongoPosition) -> Iterator[LogBlock]:
        """Blocks of some events, which change documents; none, where none of them is of a captured collection.

        :param at: which ones, ascending
        :param before: position before them
        """
        indices, names = events.event_namespaces
        tables = [_table(name) for name in names]
        captured = np.array([table is not None and self._tables.is_captured(table) for table in tables])
        captured_at = at[captured[indices[at]]]
        captured_at = captured_at[~self._moves.left_behind(events, captured_at)]
        if self._open is not None and not _within(
            self._open, events, int(captured_at[0] if len(captured_at) else at[-1])
        ):
            before = self._open.position
            yield from self.close_transaction()
        if not len(captured_at):
            return
        last, tail = int(captured_at[-1]), int(at[-1])
        self._open = None
        if events.transaction_numbers[last] < 0 or events.transaction_numbers[last] != events.transaction_numbers[tail]:
            yield self._block(events, captured_at, position_at(events, tail))
            return
        group = _groups(events, captured_at)
        # complete transactions are a separate block: events of the open transaction are counted by its blocks
        if whole := int(np.searchsorted(group, group[-1])):
            before = position_at(events, int(captured_at[whole - 1]))
            yield self._block(events, captured_at[:whole], before)
        end = position_at(events, tail)
        self._open = OpenTransaction(transaction_id(events, last), int(events.txn_number[last]), end.time, end)
        yield self._block(events, captured_at[whole:], before, open=True)

    def _block(self, events: ChangeEvents, numbers: Ints, position: MongoPosition, *, open: bool = False) -> LogBlock:
        """Build a block of events of captured collections."""
        indices, names = events.event_namespaces
        group = _groups(events, numbers)
        of_table = indices[numbers]
        rows = []
        for number in np.unique(of_table):
            mine = np.flatnonzero(of_table == number)
            table = _table(names[number])
            assert table is not None
            rows.append(self._rows(table, events, numbers[mine], mine, group[mine]))
        return LogBlock(rows, BlockTransactions(*_transactions(events, numbers, group)), position, open=open)

    def _rows(
        self, table: TableId, events: ChangeEvents, at: Ints, order: Ints, group: npt.NDArray[np.int32]
    ) -> RowBlock:
        operation = events.operation[at]
        op = _OPS[operation]
        key = format_keys(events.document_id.select_rows(at))
        if key.null_count:
            raise UnknownLogEvent(
                f"An event of {table} has no documentKey._id, so its document is unknown.",
                where=str(position_at(events, int(at[0]))),
                safe="Everything before this event is captured.",
                remedy="keep documentKey in the events that cursor.pipeline returns",
            )
        key = _texts(key)
        columns = self._in_columns(table)
        schema, after = self._shaping.build_bodies(
            table, events.read_field(b"fullDocument").select_rows(at), columns=columns
        )
        _, before = self._shaping.build_bodies(
            table, events.read_field(b"fullDocumentBeforeChange").select_rows(at), columns=columns
        )
        deleted = op == DELETE
        lacks_after = ~deleted & np.asarray(after.is_null())
        created = op == CREATE
        lacks_before = ~created & np.asarray(before.is_null())
        if len(cut := np.flatnonzero(lacks_after & (operation != UPDATED))):
            raise UnknownLogEvent(
                f"An insert or replace event of {table} has no document.",
                where=str(position_at(events, int(at[cut[0]]))),
                safe="Everything before this event is captured.",
                remedy="keep fullDocument in the events that cursor.pipeline returns",
            )
        self._check_images(table, events, at, operation)
        time = (events.cluster_time[at] >> np.uint64(32)).astype(np.int64) * 1_000_000
        wall = events.wall_time[at]
        return RowBlock(
            table=schema,
            op=op,
            before=None if created.all() else _images(key, before, created),
            after=None if deleted.all() else _images(key, after, deleted),
            order=order.astype(np.int64),
            transaction=group.astype(np.int32),
            ts_us=np.where(wall == MISSING, time, wall * 1000),
            source=_source(events, at),
            beside={} if columns else self._described(table, events, at, operation),
            unavailable_before=_of_document(lacks_before),
            unavailable_after=_of_document(lacks_after),
        )

    def _check_images(self, table: TableId, events: ChangeEvents, at: Ints, operation: npt.NDArray[np.uint8]) -> None:
        """Make sure that events have the images that are recorded: the server says null where it has none, and a stage of one's own leaves nothing.

        :raises PrerequisiteError: one has none; it names the collection
        """
        if str(table) == self._shaping.signals:
            return
        lacking = np.zeros(len(at), np.bool_)
        if self._shaping.before_by_image:
            lacking |= (events.read_field(b"fullDocumentBeforeChange").kinds[at] == k.NULL) & (operation != INSERTED)
        if self._shaping.after_by_image:
            lacking |= (events.read_field(b"fullDocument").kinds[at] == k.NULL) & (operation == UPDATED)
        if lacking.any():
            raise without_image(table, position_at(events, int(at[lacking.argmax()])))

    def _in_columns(self, table: TableId) -> bool:
        """Check whether documents become columns: as the table has it, whatever the configuration says meanwhile."""
        schema = self._tables.find_schema(table)
        return self._shaping.as_columns(table) if schema is None else schema.documents is None

    def _described(
        self, table: TableId, events: ChangeEvents, at: Ints, operation: npt.NDArray[np.uint8]
    ) -> dict[str, pa.Array]:
        """Return the descriptions of updates."""
        updates = operation == UPDATED
        if not updates.any():
            return {}
        parts = {name: values.select_rows(at) for name, values in events.update_parts.items()}
        removed, truncated = removed_fields(parts[b"removedFields"]), truncated_arrays(parts[b"truncatedArrays"])
        return {
            UPDATE_DESCRIPTION.name: self._shaping.build_update_descriptions(
                table, parts[b"updatedFields"], removed, truncated, updates
            ),
            DISAMBIGUATED_PATHS.name: self._shaping.format_ambiguous_paths(table, parts[b"disambiguatedPaths"]),
        }


def position_at(events: ChangeEvents, i: int) -> MongoPosition:
    """Return the position behind an event."""
    token = events.token_array[i].as_py()
    if token is None:
        raise UnknownLogEvent(
            "An event has no resume token: the stream could not resume after it.",
            safe="Everything before this event is captured.",
            remedy="keep _id in the events that cursor.pipeline returns",
        )
    return MongoPosition.behind_token(token, _type_bits(events, i)).whole_event_position


def _type_bits(events: ChangeEvents, i: int) -> str:
    import bson

    raw = events.read_field(b"_id").read_bytes(i)
    return bytes(bson.decode(raw).get("_typeBits", b"")).hex() if b"_typeBits\0" in raw else ""


def _table(name: tuple[str | None, str | None]) -> TableId | None:
    database, collection = name
    return TableId(namespace=database, name=collection) if database and collection else None


def _within(open_: OpenTransaction, events: ChangeEvents, i: int) -> bool:
    """Check whether an event is one of the open transaction."""
    return int(events.txn_number[i]) == open_.number and transaction_id(events, i) == open_.id


def _groups(events: ChangeEvents, numbers: Ints) -> npt.NDArray[np.int32]:
    """Assign a number to the transaction of each event, from 0 on.

    A transaction is the events of one that follow each other, and outside of transactions those of one moment.
    """
    time, number = events.cluster_time[numbers], events.transaction_numbers[numbers]
    new = np.ones(len(numbers), np.bool_)
    new[1:] = (number[1:] != number[:-1]) | ((number[1:] < 0) & (time[1:] != time[:-1]))
    return np.cumsum(new).astype(np.int32) - 1


def _transactions(events: ChangeEvents, numbers: Ints, group: npt.NDArray[np.int32]) -> tuple[pa.StringArray, Ints]:
    first = numbers[np.unique(group, return_index=True)[1]]
    times = events.cluster_time[first]
    ids: list[str | None] = [None] * len(first)  # a change outside of transactions belongs to none
    for i in np.flatnonzero(events.txn_number[first] != MISSING):
        ids[i] = transaction_id(events, int(first[i]))
    return pa.array(ids, pa.string()), (times >> np.uint64(32)).astype(np.int64) * 1_000_000


def _images(key: pa.StringArray, document: pa.Array, absent: npt.NDArray[np.bool_]) -> pa.StructArray:
    mask = pa.array(absent) if absent.any() else None
    return pa.StructArray.from_arrays([key, document], ["_id", "document"], mask=mask)


def _of_document(lacking: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return np.array([np.zeros(len(lacking), np.bool_), lacking]) if lacking.any() else None


def _texts(array: pa.Array) -> pa.StringArray:
    return array.cast(pa.string())


def _source(events: ChangeEvents, at: Ints) -> dict[str, pa.Array]:
    number, wall = events.txn_number[at], events.wall_time[at]
    return {
        "ord": pa.array((events.cluster_time[at] & np.uint64(0xFFFFFFFF)).astype(np.int32)),
        "lsid": _sessions(events.read_field(b"lsid"), at, number),
        "txnNumber": pa.array(number, pa.int64(), mask=number == MISSING),
        "wallTime": pa.array(wall, pa.int64(), mask=wall == MISSING),
    }


def _sessions(lsid: BsonValues, at: Ints, number: Ints) -> pa.Array:
    if (number == MISSING).all():
        return pa.nulls(len(at), pa.string())
    return _texts(format_values(lsid.select_rows(at)))


def up_to(events: ChangeEvents, order: str) -> int:
    """Count the first events that are not behind a position (:attr:`.MongoPosition.sort_key`)."""
    tokens = events.token_array
    if len(tokens) and (tokens[0].as_py() or "") > order:  # most often
        return 0
    later = np.flatnonzero(np.asarray(pc.greater(tokens, pa.scalar(order, tokens.type))))
    return int(later[0]) if len(later) else len(tokens)
