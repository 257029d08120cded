"""Change logs for measuring the apply: made on arrays and written as capture writes them, so that 20 million rows take seconds.

The rows are those of a table of orders: eight columns of common types, about 200 bytes each. What a row says depends on its id and on how often it
was changed, so that each event has its image before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, arrow_type

Integers = np.ndarray[Any, np.dtype[np.int64]]

TYPES = {
    "id": "int64", "name": "string", "amount": "decimal128(12, 2)", "created": "timestamp[us]", "qty": "int32", "score": "double",
    "note": "string", "flag": "int16",
}  # fmt: skip
_BLOCK = 131_072
_SOURCE = pa.struct([("ts_ms", pa.int64()), ("ts_us", pa.int64())])


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one table, in order.

    :param ops: ``r``, ``c``, ``u`` or ``d`` of each
    :param versions: how often the row was changed before
    """

    ops: np.ndarray[Any, np.dtype[np.str_]]
    ids: Integers
    versions: Integers


class SourceTable:
    """A table of the source: which rows it has, and how often each was changed.

    :param rows: with the ids from 1
    """

    def __init__(self, name: str, rows: int, seed: int = 1) -> None:
        self.name, self.topic = name, f"bench.{name}"
        self._random = np.random.default_rng(seed)
        self._next = rows + 1
        self._ids = np.arange(1, rows + 1)
        self._versions = np.zeros(rows + 1, np.int64)
        columns = tuple(Column(name=name, type=type_, nullable=name != "id") for name, type_ in TYPES.items())
        self.schema = TableSchema(id=TableId(namespace="bench", name=name), columns=columns, key=("id",), version=1)

    def read(self) -> Events:
        """All rows, as a snapshot reads them."""
        return self._events("r", self._ids)

    def change(self, events: int, *, inserts: float, deletes: float, again: float = 0) -> Events:
        """Inserts of new rows, then updates and deletes of random ones.

        :param inserts: their share of the events
        :param again: share of the events that change a row for the second time
        """
        new, gone, second = (round(events * share) for share in (inserts, deletes, again))
        born = np.arange(self._next, self._next + new)
        self._next += new
        self._versions = np.concatenate([self._versions, np.zeros(new, np.int64)])
        there = self._random.choice(len(self._ids), events - new - second, replace=False)
        dead, changed = there[:gone], self._ids[there[gone:]]
        parts = [self._events("c", born), self._events("u", changed)]
        self._versions[changed] += 1
        parts.append(self._events("u", changed[:second]))
        self._versions[changed[:second]] += 1
        parts.append(self._events("d", self._ids[dead]))
        self._ids = np.concatenate([np.delete(self._ids, dead), born])
        return Events(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("ops", "ids", "versions")))

    def _events(self, op: str, ids: Integers) -> Events:
        return Events(np.full(len(ids), op), ids, self._versions[ids])


class Changes:
    """The change log of one connector.

    :param folder: of the change log
    """

    def __init__(self, folder: Path, connector: str) -> None:
        self.changelog, self.connector = ChangeLog(str(folder)), connector
        self._batch, self._seq = 0, 0

    def commit(self, events: Sequence[tuple[SourceTable, Events]]) -> Manifest:
        """Write events as the next batch, and commit it."""
        self._batch += 1
        first = self._seq + 1
        writer = self.changelog.open_batch_writer(self.connector, self._batch, 1, "bench")
        for table, these in events:
            for block in self._blocks(table, these):
                writer.write(block)
        manifest = Manifest(
            connector=self.connector, source="bench", batch=self._batch, epoch=1, writer="bench", created_at=datetime.now(UTC).isoformat(),
            first_seq=first, last_seq=self._seq, offset_before=None,
            offset_after=Offset(position={"batch": self._batch}, seq=self._seq, batch=self._batch), files=writer.finish_files(),
            schemas={table.topic: {"1": table.schema} for table, _ in events},
        )  # fmt: skip
        self.changelog.commit_manifest(manifest)
        return manifest

    def _blocks(self, table: SourceTable, events: Events) -> Iterator[EventBatch]:
        for start in range(0, len(events.ids), _BLOCK):
            part = slice(start, start + _BLOCK)
            ops, ids, versions = events.ops[part], events.ids[part], events.versions[part]
            first, self._seq = self._seq + 1, self._seq + len(ids)
            created, gone = np.isin(ops, ("r", "c")), ops == "d"
            at = pa.array(np.full(len(ids), int(datetime.now(UTC).timestamp() * 1000)))
            block = pa.RecordBatch.from_arrays(
                [
                    pa.array(np.arange(first, self._seq + 1)),
                    pa.array(ops.tolist(), pa.string()),
                    pa.StructArray.from_arrays([pa.array(ids)], names=["id"]),
                    images(ids, versions, created),
                    images(ids, versions + (ops == "u"), gone),
                    pa.StructArray.from_arrays([at, pc.multiply(at, 1000)], fields=list(_SOURCE)),
                ],
                names=["seq", "op", "key", "before", "after", "source"],
            )
            letters, numbers = np.unique(ops, return_counts=True)
            counts = dict(zip(letters.tolist(), numbers.tolist(), strict=True))
            yield EventBatch(table.topic, table.schema, block, first, self._seq, counts)


def images(ids: Integers, versions: Integers, absent: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.StructArray:
    """Row images; null where ``absent``."""
    h = (ids * 2654435761 + versions * 40503) & 0xFFFFFFFF
    wide = np.zeros((len(ids), 2), np.int64)
    wide[:, 0] = h % 100_000_000
    amount = pa.Array.from_buffers(pa.decimal128(12, 2), len(ids), [None, pa.py_buffer(wide)])
    number = pa.array(ids).cast(pa.string())
    columns = [
        pa.array(ids),
        pc.binary_join_element_wise(pa.scalar("customer"), number, "-"),
        amount,
        pa.array(1_700_000_000_000_000 + h * 1000, pa.int64()).cast(pa.timestamp("us")),
        pa.array((h % 2_000_000).astype(np.int32), mask=h % 50 == 0),
        pa.array(h / 7.0),
        pc.binary_join_element_wise(_TEXTS.take(pa.array(h % len(_TEXTS))), number, " "),
        pa.array((h % 2).astype(np.int16)),
    ]
    fields = [pa.field(name, arrow_type(type_)) for name, type_ in TYPES.items()]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(absent))


def _texts() -> pa.StringArray:
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz 0123456789", np.uint8)
    random = np.random.default_rng(7)
    return pa.array([random.choice(letters, 80 + i % 41).tobytes().decode() for i in range(4096)])


_TEXTS = _texts()
