"""Reading whole tables: which ones, in what order, by several readers at once, and how a table's rows become a batch.

A batch of a snapshot holds whole tables. An interrupted snapshot therefore goes on with the tables that are missing, on a new
view of the database, and the log brings all of them to one position (:class:`~.position.SnapshotState`). Debezium starts over
instead (Debezium MySQL connector, "Initial snapshots that use a global read lock").
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.batch import Batcher
from airflow_provider_cdc.core.envelope import Envelope
from airflow_provider_cdc.core.events import LogBlock, RowBlock, Transactions
from airflow_provider_cdc.core.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.position import Offset, Position, SnapshotState
from airflow_provider_cdc.core.schema import TableChange, TableId
from airflow_provider_cdc.core.schema_history import SchemaHistory
from airflow_provider_cdc.core.source import Chunk, SnapshotSession, Source

log = logging.getLogger(__name__)

_NO_TRANSACTIONS = Transactions(pa.array([], pa.string()), np.empty(0, np.int64))


class Snapshotter:
    """Reads the pending tables of an offset into batches.

    :param readers: parallel readers on one view
    :param group_rows: tables are read, and committed, in groups of about this many rows
    """

    def __init__(
        self,
        source: Source,
        history: SchemaHistory,
        envelope: Envelope,
        batcher: Batcher,
        readers: int,
        group_rows: int,
    ) -> None:
        self._source, self._history, self._envelope, self._batcher = source, history, envelope, batcher
        self._readers, self._group_rows = readers, group_rows

    def run(self, offset: Offset, *, data: bool, at: Position | None = None) -> Offset:
        """Read every pending table, or with ``data=False`` only its structure.

        :param at: take the tables to be as they were at this position, instead of where they are read
        :return: the offset reached; it is committed
        """
        known = {str(t): t for t in self._source.discover()}
        offset = self._gone(offset, [name for name in offset.snapshot.pending if name not in known])
        pending = {known[name]: again for name, again in offset.snapshot.pending.items()}
        with self._source.snapshot(list(pending), readers=self._readers) as session:
            log.info("Snapshot of %d tables at %s begins.", len(pending), session.position)
            place = (at or session.position).to_json()
            offset = offset.model_copy(update={"position": offset.position or place})
            offset = self._gone(offset, [str(t) for t in pending if t not in session.schemas])
            for group in self._groups(session, [t for t in pending if t in session.schemas], data=data):
                for table in group:
                    self._structure(session, table)
                    if data and pending[table]:
                        self._truncate(session, table)
                if data:
                    self._read(session, [chunk for chunks in group.values() for chunk in chunks])
                done = {str(t) for t in group}
                state = offset.snapshot
                offset = offset.model_copy(
                    update={
                        "snapshot": SnapshotState(
                            pending={name: again for name, again in state.pending.items() if name not in done},
                            tables=state.tables | dict.fromkeys(sorted(done), place),
                        )
                    }
                )
                self._batcher.commit(offset)
        return self._batcher.offset

    def _gone(self, offset: Offset, names: list[str]) -> Offset:
        """Tables that were dropped before they could be read have nothing left to be read."""
        for name in names:
            log.warning("Table %s does not exist any more; nothing of it is read.", name)
        pending = {name: again for name, again in offset.snapshot.pending.items() if name not in names}
        return offset.model_copy(update={"snapshot": offset.snapshot.model_copy(update={"pending": pending})})

    def _groups(
        self, session: SnapshotSession, tables: list[TableId], *, data: bool
    ) -> Iterator[dict[TableId, list[Chunk]]]:
        """Tables with their chunks, several small ones together."""
        group: dict[TableId, list[Chunk]] = {}
        rows = 0
        for table in tables:
            chunks = session.chunks(table) if data else []
            size = sum(c.rows for c in chunks)
            if group and rows + size > self._group_rows:
                yield group
                group, rows = {}, 0
            group[table] = chunks
            rows += size
        if group or not tables:
            yield group

    def _structure(self, session: SnapshotSession, table: TableId) -> None:
        known = self._history.get(table)
        kind: Literal["ALTER", "CREATE"] = "ALTER" if known is not None else "CREATE"
        change = self._history.apply(TableChange(type=kind, id=table, table=session.schemas[table]))
        if change is None or change.table is None:
            return
        record = SchemaChangeRecord(
            seq=self._batcher.seq + 1, ddl=session.ddl.get(table, ""), database=table.namespace, position=session.position.to_json(),
            ts_us=session.ts_us, changes=[change], snapshot=True,
        )  # fmt: skip
        self._batcher.add_change(record, {self._envelope.topic(table): self._envelope.selected(change.table)})

    def _truncate(self, session: SnapshotSession, table: TableId) -> None:
        schema = self._history.get(table)
        assert schema is not None
        batch = self._envelope.truncate(schema, self._batcher.seq + 1, session.ts_us, {})
        self._batcher.seq = batch.last_seq
        self._batcher.add(batch)

    def _read(self, session: SnapshotSession, chunks: list[Chunk]) -> None:
        """Readers take the chunks one by one; their blocks are written here, in the order in which they come."""
        total, done, shown = sum(c.rows for c in chunks), 0, time.monotonic()
        for rows in _in_parallel(session, chunks, self._readers):
            schema = self._history.get(rows.table.id)
            if schema is not None:
                rows.table = schema
            block = LogBlock([rows], _NO_TRANSACTIONS, session.position)
            batches, self._batcher.seq = self._envelope.encode(block, self._batcher.seq, snapshot="true")
            for batch in batches:
                self._batcher.add(batch)
            done += len(rows)
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                log.info("Snapshot: %s of about %s rows read, now %s.", f"{done:,}", f"{total:,}", rows.table.id)


def _in_parallel(session: SnapshotSession, chunks: list[Chunk], readers: int) -> Iterator[RowBlock]:
    """Blocks of all chunks, read by several threads; at most a few blocks wait at any time."""
    waiting: queue.Queue[RowBlock | BaseException | None] = queue.Queue(maxsize=readers + 1)
    todo = iter(chunks)
    lock, stop = threading.Lock(), threading.Event()

    def hand_over(item: RowBlock | BaseException | None) -> None:
        while not stop.is_set():
            try:
                return waiting.put(item, timeout=0.5)
            except queue.Full:
                continue

    def work() -> None:
        try:
            while not stop.is_set():
                with lock:
                    chunk = next(todo, None)
                if chunk is None:
                    break
                for block in session.read(chunk):
                    hand_over(block)
            hand_over(None)
        except BaseException as e:  # handed to the consumer, which raises it
            hand_over(e)

    count = max(1, min(readers, len(chunks)))
    with ThreadPoolExecutor(count, thread_name_prefix="cdc-snapshot") as pool:
        for _ in range(count):
            pool.submit(work)
        try:
            ended = 0
            while ended < count:
                item = waiting.get()
                if item is None:
                    ended += 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            stop.set()
