"""Reading whole tables: which ones, in what order, by several readers at once, and how a table's rows become a batch.

A batch of a snapshot holds whole tables. An interrupted snapshot therefore goes on with the tables that are missing, on a new
view of the database, and the log brings all of them to one position (:class:`~.position.SnapshotState`). Debezium starts over
instead (Debezium MySQL connector, "Initial snapshots that use a global read lock").
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from airflow_provider_cdc.core.batch import Batcher
from airflow_provider_cdc.core.config_values import RowCountOrder
from airflow_provider_cdc.core.envelope import Envelope
from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRefused
from airflow_provider_cdc.core.events import RowBlock
from airflow_provider_cdc.core.filters import Filters
from airflow_provider_cdc.core.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.marks import MarkedRows, Marks
from airflow_provider_cdc.core.metrics import RunMetrics, SnapshotSeen
from airflow_provider_cdc.core.position import Offset, Position
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.schema_history import SchemaHistory
from airflow_provider_cdc.core.snapshotters import SnapshotPolicy, SnapshotQuery
from airflow_provider_cdc.core.source import Chunk, SnapshotSession, Source
from airflow_provider_cdc.core.telling import Telling

log = logging.getLogger(__name__)

_Group = dict[TableId, list[Chunk]]
_Item = _Group | RowBlock | Chunk


class Stopped(Exception):
    """The run was asked to end; what of the present tables was read is void."""


class Snapshotter:
    """Reads the pending tables of an offset into batches.

    :param readers: parallel readers on one view
    :param group_rows: tables are read, and committed, in groups of about this many rows
    :param stopped: whether the run was asked to end
    :param order: of the tables by their size
    """

    def __init__(
        self,
        source: Source,
        filters: Filters,
        history: SchemaHistory,
        envelope: Envelope,
        batcher: Batcher,
        *,
        readers: int,
        group_rows: int,
        stopped: Callable[[], bool] = lambda: False,
        order: RowCountOrder = RowCountOrder.DISABLED,
        metrics: RunMetrics | None = None,
        progress: Callable[[str, int, int, int], None] = lambda table, rows, total, left: None,
        policy: SnapshotPolicy | None = None,
        query: SnapshotQuery | None = None,
    ) -> None:
        """
        :param progress: is told the table, rows read, rows there are about, and tables left, every few seconds
        :param policy: is told how snapshots end
        :param query: says what is read of a table; a request may have its own statement
        """
        self._source, self._filters = source, filters
        self._history, self._envelope, self._batcher = history, envelope, batcher
        self._readers, self._group_rows, self._stopped = readers, group_rows, stopped
        self._order, self._metrics = order, metrics or RunMetrics()
        self._progress, self._policy, self._query = progress, policy, query
        self._seen = SnapshotSeen()
        self._told = Telling(batcher, [], {})

    def run(
        self,
        offset: Offset,
        *,
        data: bool,
        at: Position | None = None,
        only: Collection[str] | None = None,
        added: Collection[str] = (),
        catch_up: Callable[[Position], Offset] | None = None,
    ) -> Offset:
        """Read the pending tables, or with ``data=False`` only their structure.

        :param at: take the tables to be as they were at this position, instead of where they are read
        :param only: read no other ones
        :param added: tables that were not captured at the offset's position. Others that are known, and of which no row is read,
            stay as they are: their changes since that position are still to be streamed
        :param catch_up: streams up to where tables are read; called where some were captured before, as soon as the view is open
        :return: the offset reached; it is committed
        :raises Stopped: the run was asked to end; tables that were complete before are committed
        """
        names = [name for name in offset.snapshot.pending if only is None or name in only]
        self._seen = self._metrics.reading(len(names))
        hidden = str(self._envelope.hidden)
        self._told = Telling(self._batcher, [n for n in names if n != hidden], offset.snapshot.requests)
        try:
            offset = self._run(offset, names, data, at, added, catch_up)
        except BaseException:
            self._seen.end(aborted=True)
            if self._policy is not None:
                self._policy.snapshot_aborted()
            raise
        self._seen.end()
        if self._policy is not None:
            self._policy.snapshot_completed()
        return offset

    def _run(
        self,
        offset: Offset,
        names: list[str],
        data: bool,
        at: Position | None,
        added: Collection[str],
        catch_up: Callable[[Position], Offset] | None,
    ) -> Offset:
        found = self._source.discover()
        known = {str(t): t for t in found}
        tables = [known[name] for name in names if name in known]
        selects = {known[name]: sql for name, sql in offset.snapshot.selects.items() if name in known and name in names}
        asked = offset.snapshot.requests
        wanted = {t for t in tables if str(t) in asked or (data and self._filters.snapshot(t))}
        wanted.discard(self._envelope.hidden)
        own = self._queried([found[t] for t in tables if t in wanted and t not in selects])
        wanted -= {t for t, sql in own.items() if sql is None}
        selects |= {t: sql for t, sql in own.items() if sql is not None}
        stay: set[str] = set()
        if at is None and offset.position is not None:
            stay = {str(t) for t in tables if t not in wanted and self._history.get(t) is not None} - {*added}
            offset = offset.model_copy(update={"snapshot": offset.snapshot.without(stay)})
            names = [name for name in names if name not in stay]
            tables = [t for t in tables if str(t) not in stay]
        with (
            _explained(own),
            self._source.snapshot(
                tables, readers=self._readers, **({"selects": selects} if selects else {})
            ) as session,
            contextlib.ExitStack() as closing,
        ):
            log.info("Snapshot of %d tables at %s begins.", len(tables), session.position)
            self._told.started()
            if catch_up is not None and not offset.snapshot.waiting.issuperset(names):
                in_part = offset.snapshot.selects.keys()
                offset = catch_up(session.position)
                offset = offset.model_copy(update={"snapshot": offset.snapshot.without(stay)})
                whole = in_part - offset.snapshot.selects.keys()  # now, which needs a view of its own
                names = [name for name in names if name in offset.snapshot.pending and name not in whole]
                tables = [t for t in tables if str(t) in names]
            place = (at or session.position).to_json()
            offset = offset.model_copy(update={"position": offset.position or place})
            there = {str(t) for t in session.schemas}
            offset = self._gone(offset, [name for name in names if name not in there], session, place)
            wanted &= session.schemas.keys()
            marks, items = Marks(), _Ahead(self._items(session, tables, wanted))
            closing.callback(items.close)
            while (group := items.group()) is not None:
                for table in group:
                    held = self._held(offset, table)
                    self._structure(session, table)
                    self._seen.rows.setdefault(str(table), 0)
                    if table in wanted and held:
                        self._truncate(session, table)
                self._read(session, group, items, marks)
                offset = _done(offset, map(str, group), place)
                self._told.read({str(t): self._seen.rows[str(t)] for t in group if t in wanted}, offset)
                self._batcher.commit(offset)
                self._seen.remaining = len(offset.snapshot.pending.keys() & set(names))
        return self._batcher.offset

    def _held(self, offset: Offset, table: TableId) -> bool:
        """Whether rows of a table are to go before it is read: since it was found pending, some may have come from the log."""
        state, name = offset.snapshot, str(table)
        came = name in state.streamed and name not in state.selects and self._history.seen(table)
        return state.pending[name] or came

    def _queried(self, schemas: list[TableSchema]) -> dict[TableId, str | None]:
        """Table → what the user's own query says, where there is one."""
        if self._query is None:
            return {}
        found = {schema.id: self._query(schema.id, schema.names) for schema in schemas}
        if skipped := [str(t) for t, sql in found.items() if sql is None]:
            log.info("As snapshot.query.mode.custom.name has it, no rows are read of %s.", ", ".join(skipped))
        return found

    def _gone(self, offset: Offset, names: list[str], session: SnapshotSession, place: dict[str, Any]) -> Offset:
        """Tables that were dropped before they could be read: nothing is left of them, in the log up to here either."""
        if not names:
            return offset
        back = {str(t) for t in self._source.discover()}  # created meanwhile: read in the next round
        gone = [name for name in names if name not in back]
        for name in gone:
            told = logging.INFO if name in offset.snapshot.streamed else logging.WARNING
            log.log(told, "Table %s does not exist any more; nothing of it is read.", name)
        for table in [t for t in self._history.tables if str(t) in gone]:
            change = self._history.apply(TableChange(type="DROP", id=table))
            if change is not None:
                self._batcher.add_change(self._record(session, table, change), {})
        return _done(offset, gone, place)

    def _groups(
        self, session: SnapshotSession, tables: list[TableId], wanted: set[TableId]
    ) -> Iterator[dict[TableId, list[Chunk]]]:
        """Tables with their chunks, several small ones together; those of which no row is read go with the first."""
        group: dict[TableId, list[Chunk]] = {t: [] for t in tables if t in session.schemas and t not in wanted}
        rows = 0
        for table, chunks in self._ordered(session, [t for t in tables if t in wanted]):
            size = sum(c.rows for c in chunks)
            if rows and rows + size > self._group_rows:
                yield group
                group, rows = {}, 0
            group[table] = chunks
            rows += size
        yield group

    def _items(self, session: SnapshotSession, tables: list[TableId], wanted: set[TableId]) -> Generator[_Item]:
        """All that is read, group by group: a group, then blocks of its rows, and its chunks as they end."""
        for group in self._groups(session, tables, wanted):
            yield group
            yield from _in_parallel(session, [chunk for chunks in group.values() for chunk in chunks], self._readers)

    def _ordered(self, session: SnapshotSession, tables: list[TableId]) -> Iterator[tuple[TableId, list[Chunk]]]:
        """Tables with their chunks, by estimated rows where that is configured."""
        cut = ((table, session.chunks(table)) for table in tables)
        if self._order is RowCountOrder.DISABLED:
            return cut
        down = self._order is RowCountOrder.DESCENDING
        return iter(sorted(cut, key=lambda pair: sum(chunk.rows for chunk in pair[1]), reverse=down))

    def _structure(self, session: SnapshotSession, table: TableId) -> None:
        known = self._history.get(table)
        kind: Literal["ALTER", "CREATE"] = "ALTER" if known is not None else "CREATE"
        change = self._history.apply(TableChange(type=kind, id=table, table=session.schemas[table]))
        if change is None or change.table is None:
            return
        record = self._record(session, table, change)
        self._metrics.history.apply(record)
        shown = table != self._envelope.hidden
        self._batcher.add_change(
            record, {self._envelope.topic(table): self._envelope.selected(change.table)} if shown else {}
        )

    def _record(self, session: SnapshotSession, table: TableId, change: TableChange) -> SchemaChangeRecord:
        return SchemaChangeRecord(
            seq=self._batcher.seq + 1, ddl=session.ddl.get(table, ""), database=table.database,
            position=session.position.to_json(), ts_us=session.ts_us, source=dict(session.source), changes=[change],
            snapshot=True, captured_us=time.time_ns() // 1000,
        )  # fmt: skip

    def _truncate(self, session: SnapshotSession, table: TableId) -> None:
        schema = self._history.get(table)
        assert schema is not None
        batch = self._envelope.truncate(schema, self._batcher.seq + 1, session.ts_us, dict(session.source))
        self._batcher.seq = batch.last_seq
        self._batcher.add(batch)

    def _read(self, session: SnapshotSession, group: _Group, items: _Ahead, marks: Marks) -> None:
        """Write the rows of a group of tables in the order in which their blocks come."""
        left = total = 0
        for chunks in group.values():
            left, total = left + len(chunks), total + sum(c.rows for c in chunks)
        marks.expect({table: len(chunks) for table, chunks in group.items() if chunks})
        done, shown = 0, time.monotonic()
        while left:
            item = next(items)
            if self._stopped():
                raise Stopped
            if isinstance(item, RowBlock):
                self._write(session, marks.take(item))
                done += len(item)
            elif isinstance(item, Chunk):
                self._write(session, marks.ended(item.table))
                left -= 1
            if time.monotonic() - shown > 2 and isinstance(item, RowBlock):
                shown = time.monotonic()
                self._progress(str(item.table.id), done, total, self._seen.remaining)
                log.info("Snapshot: %s of about %s rows read, now %s.", f"{done:,}", f"{total:,}", item.table.id)
        if marks.open:
            self._write(session, marks.close(rows_follow=items.rows_follow()))

    def _write(self, session: SnapshotSession, blocks: Iterable[MarkedRows]) -> None:
        for block in blocks:
            rows = block.rows
            schema = self._history.get(rows.table.id)
            if schema is not None:
                rows.table = schema
            batches, self._batcher.seq = self._envelope.encode_read(
                rows, session.position, self._batcher.seq, snapshot=block.snapshot
            )
            for batch in batches:
                self._batcher.add(batch)
            self._seen.events(batches)
            self._seen.rows[str(rows.table.id)] = self._seen.rows.get(str(rows.table.id), 0) + len(rows)


class _Ahead:
    """What is read, with a look at what comes: no further than to the next row."""

    def __init__(self, items: Generator[_Item]) -> None:
        self._items = items
        self._waiting: deque[_Item | BaseException] = deque()

    def __next__(self) -> _Item:
        if not self._waiting:
            return next(self._items)
        item = self._waiting.popleft()
        if isinstance(item, BaseException):
            raise item
        return item

    def group(self) -> _Group | None:
        """The group that comes next; ``None`` at the end."""
        try:
            item = next(self)
        except StopIteration:
            return None
        assert isinstance(item, dict)
        return item

    def rows_follow(self) -> bool:
        """Whether there is another row. What cannot be read may be one; the error is raised when its turn comes."""
        while True:
            try:
                self._waiting.append(next(self._items))
            except StopIteration:
                return False
            except BaseException as e:  # raised when its turn comes: the tables that are complete are committed first
                self._waiting.append(e)
            item = self._waiting[-1]
            if isinstance(item, BaseException) or (isinstance(item, RowBlock) and len(item)):
                return True

    def close(self) -> None:
        """End the readers."""
        self._items.close()


@contextlib.contextmanager
def _explained(own: Mapping[TableId, str | None]) -> Iterator[None]:
    """A statement that the database refuses is nobody's request, but the user's own query's.

    :param own: table → what that has said
    :raises PrerequisiteError: such a statement is refused
    """
    try:
        yield
    except QueryRefused as e:
        table = next((t for t, sql in own.items() if sql is not None and sql in (e.where or "")), None)
        if table is None:
            raise
        raise PrerequisiteError(
            f"The statement of snapshot.query.mode.custom.name for {table} cannot be used: {e.what}",
            where=e.where,
            safe="Tables that were read before are kept; the next run begins with this one and those that follow.",
            remedy="try the statement in a SQL client as the capture user, and correct the query; it has to give the table's own "
            "columns as they are",
        ) from e


def _done(offset: Offset, names: Iterable[str], place: dict[str, Any]) -> Offset:
    """The offset after some tables were read at a place."""
    done_with = sorted(names)
    state = offset.snapshot.without(done_with)
    read = state.tables | dict.fromkeys(done_with, place)
    return offset.model_copy(update={"snapshot": state.model_copy(update={"tables": read})})


def _in_parallel(session: SnapshotSession, chunks: list[Chunk], readers: int) -> Iterator[RowBlock | Chunk]:
    """Blocks of all chunks, read by several threads, and each chunk when it has ended; at most a few blocks wait at any time."""
    waiting: queue.Queue[RowBlock | Chunk | BaseException | None] = queue.Queue(maxsize=2)
    todo = iter(chunks)
    lock, stop = threading.Lock(), threading.Event()

    def hand_over(item: RowBlock | Chunk | BaseException | None) -> None:
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
                    if stop.is_set():
                        return
                hand_over(chunk)
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
