"""Reads whole tables: chooses and orders them, reads with several readers at once, and writes their rows into batches.

A batch of a snapshot holds whole tables. An interrupted snapshot therefore continues with the tables that are missing, on a new
view of the database, and the log brings all of them to one position (:class:`~.connector_offset.SnapshotState`). Debezium starts over
instead (Debezium MySQL connector, "Initial snapshots that use a global read lock").
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from airflow_provider_cdc.core.config.property_enums import RowCountOrder, SnapshotEngine
from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError, QueryRejected, UnreadableValue
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import RunMetrics, SnapshotMetrics
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.reporting.progress_reporter import ProgressReporter
from airflow_provider_cdc.core.row_rate_limit import RowRateLimit
from airflow_provider_cdc.core.snapshot.parallel_chunk_reader import Group, GroupLookahead, Item, in_parallel
from airflow_provider_cdc.core.snapshot.remote_group_reading import GroupStopped, RemoteGroupReading
from airflow_provider_cdc.core.snapshot.snapshot_markers import MarkedRows, SnapshotMarkers
from airflow_provider_cdc.core.snapshot.snapshot_policy import SnapshotPolicy, find_unshared_view, snapshot_query
from airflow_provider_cdc.core.spi.capture_run_inputs import RunInputs
from airflow_provider_cdc.core.spi.remote_readers import ReadGroup, RemoteReaders, TableTask, ViewSharing
from airflow_provider_cdc.core.spi.source import SnapshotChunk, SnapshotSession
from airflow_provider_cdc.core.writing.inferred_tables import ImplicitTables
from airflow_provider_cdc.core.writing.run_output import RunOutput
from airflow_provider_cdc.core.writing.snapshot_notifications import SnapshotNotifications

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S: Final = 0.2
"""Seconds after which a snapshot that waits sees that the run was asked to end."""


class SnapshotStopped(Exception):
    """The run was asked to end; the rows of incomplete tables are discarded."""


class Snapshotter:
    """Reads the pending tables of a run's state into batches."""

    def __init__(
        self,
        inputs: RunInputs,
        output: RunOutput,
        history: SchemaHistory,
        metrics: RunMetrics,
        tables: ImplicitTables,
        *,
        policy: SnapshotPolicy,
        hidden: TableId | None,
        stopped: Callable[[], bool],
        progress: Callable[[str, int, int, int], None],
    ) -> None:
        """Store the parts of a snapshot.

        :param tables: records the columns that rows have
        :param policy: is called when snapshots end
        :param hidden: the signal table, of which only the schema is read
        :param stopped: whether the run was asked to end
        :param progress: is called every few seconds with the table, rows read, estimated rows, and tables left
        :ivar changed: tables that were altered or dropped before they were read: they are still pending
        """
        config = inputs.config
        self._source, self._filters, self._history, self._run_metrics = inputs.source, inputs.filters, history, metrics
        self._state, self._batcher = output.state, output.batcher
        self._writer, self._committer = output.writer, output.committer
        self._tables, self._policy, self._hidden, self._stopped, self._progress = (
            tables, policy, hidden, stopped, progress
        )  # fmt: skip
        self._readers, self._group_rows = config.snapshot_max_threads, config.batch_max_rows
        self._all_on_spark, self._open_readers = config.snapshot_engine is SnapshotEngine.SPARK, inputs.open_readers
        self._order, self._query = config.snapshot_tables_order_by_row_count, snapshot_query(config)
        self._limit = RowRateLimit(config.snapshot_max_rows_per_second)
        self._board, self._metrics = inputs.changelog.open_progress_board(inputs.name), SnapshotMetrics()
        self._notifications = SnapshotNotifications(self._batcher, [], {})
        self._full: set[TableId] = set()
        self._selects: Mapping[TableId, str] = {}
        self._earlier = False
        self.changed: set[TableId] = set()

    def run(
        self,
        *,
        data: bool,
        at: Position | None = None,
        only: Collection[str] | None = None,
        added: Collection[str] = (),
        catch_up: Callable[[Position], None] | None = None,
    ) -> None:
        """Read the pending tables, or with ``data=False`` only their schemas. Everything is committed at the end.

        :param at: record this position for the tables, instead of the one at which they are read
        :param only: read no other ones
        :param added: tables that were not captured at the offset's position. Other known tables of which no row is read
            stay as they are: their changes since that position are still to be streamed
        :param catch_up: streams up to the position at which tables are read; called as soon as the view is open, if some tables were
            captured before
        :raises SnapshotStopped: the run was asked to end; tables that were complete before are committed
        """
        pending, self._earlier = self._state.snapshot_state.pending, at is not None
        names = [name for name in pending if only is None or name in only]
        self._metrics = self._run_metrics.start_snapshot(len(names))
        requests, repaired = self._state.snapshot_state.request_numbers, self._state.snapshot_state.repaired_tables
        self._notifications = SnapshotNotifications(
            self._batcher, [n for n in names if n != str(self._hidden)], requests, repaired
        )
        try:
            self._run(names, data, at, added, catch_up)
        except BaseException:
            self._metrics.end_snapshot(aborted=True)
            self._policy.snapshot_aborted()
            raise
        self._metrics.end_snapshot()
        self._policy.snapshot_completed()

    def _run(
        self,
        names: list[str],
        data: bool,
        at: Position | None,
        added: Collection[str],
        catch_up: Callable[[Position], None] | None,
    ) -> None:
        state, schemas = self._state, self._source.discover_tables(lambda table: str(table) in names)
        ids = {str(t): t for t in schemas}
        tables = [ids[name] for name in names if name in ids]
        selects = {
            ids[name]: sql
            for name, sql in state.snapshot_state.select_statements.items()
            if name in ids and name in names
        }
        repaired = state.snapshot_state.repaired_tables
        requested = state.snapshot_state.request_numbers.keys() | repaired
        read_tables = {t for t in tables if str(t) in requested or (data and self._filters.is_snapshot_table(t))} - {
            self._hidden
        }
        own = self._queried([schemas[t] for t in tables if t in read_tables and t not in selects])
        read_tables -= {t for t, sql in own.items() if sql is None}
        _check_repaired(repaired, own)
        selects |= {t: sql for t, sql in own.items() if sql is not None}
        stay: set[str] = set()
        if at is None and state.offset.position is not None:
            stay = {str(t) for t in tables if t not in read_tables and self._history.find_schema(t) is not None} - {
                *added
            }
            state.snapshot_state = state.snapshot_state.remove_pending(stay)
            names = [name for name in names if name not in stay]
            tables = [t for t in tables if str(t) not in stay]
        with _explained(own), contextlib.ExitStack() as stack:
            on_spark = self._all_on_spark or any(state.snapshot_state.pending[name].on_spark for name in names)
            remote = stack.enter_context(self._gather_readers()) if on_spark and read_tables else None
            if remote is not None:
                session = stack.enter_context(self._source.open_shared_snapshot(tables, remote, selects=selects))
            else:
                more = {"selects": selects} if selects else {}
                session = stack.enter_context(self._source.open_snapshot(tables, readers=self._readers, **more))
            log.info("Snapshot of %d tables at %s begins.", len(tables), session.position)
            self._notifications.notify_started()
            if catch_up is not None and not state.snapshot_state.waiting_tables.issuperset(names):
                in_part = state.snapshot_state.select_statements.keys()
                catch_up(session.position)
                state.snapshot_state = state.snapshot_state.remove_pending(stay)
                whole = (
                    in_part - state.snapshot_state.select_statements.keys()
                )  # their rows were selected by a statement, and now all are read: that needs a separate view
                names = [name for name in names if name in state.snapshot_state.pending and name not in whole]
                tables = [t for t in tables if str(t) in names]
            self._selects = selects
            self._read_tables(session, names, tables, read_tables, (at or session.position).to_json(), remote)

    def _gather_readers(self) -> RemoteReaders:
        """Start readers of other processes, and wait for them.

        :raises ConfigError: the run has none
        :raises PrerequisiteError: the source's views cannot be shared
        :raises SnapshotStopped: the run was asked to end
        """
        if (finding := find_unshared_view(self._source)) is not None:
            raise PrerequisiteError(
                finding.problem,
                where="snapshot.engine",
                safe="Nothing was read; the offset is untouched.",
                remedy=finding.fix,
            )
        if self._open_readers is None:
            raise ConfigError(
                "A snapshot on Spark needs a Spark job, and this capture has no settings for one.",
                where="snapshot.engine",
                safe="Nothing was read; the offset is untouched.",
                remedy='set snapshot_job={"conn_id": "spark_default"} of CaptureOperator or of the group of cdc_dag, or remove snapshot.engine',
            )
        readers = self._open_readers()
        try:
            if not readers.gather_readers(self._stopped, late=self._source.VIEW_SHARING is ViewSharing.LATE):
                raise SnapshotStopped
        except BaseException:
            readers.close()
            raise
        return readers

    def _read_tables(
        self,
        session: SnapshotSession,
        names: list[str],
        tables: list[TableId],
        read_tables: set[TableId],
        position: dict[str, Any],
        remote: RemoteReaders | None,
    ) -> None:
        """Read tables group by group; each group is committed.

        :param names: of the tables, including those that no longer exist
        :param read_tables: tables whose rows are read
        :param position: at which they are read
        :param remote: readers of other processes, which read all tables that they can
        """
        state = self._state
        if state.offset.position is None:
            state.offset = state.offset.advance_position(position)
        there = {str(t) for t in session.schemas}
        self._gone([name for name in names if name not in there], session, position)
        read_tables &= session.schemas.keys()
        with ProgressReporter("Snapshot", "rows", board=self._board, logger=log) as work:
            marks, alone = SnapshotMarkers(), session.urgent | session.own
            local = read_tables if remote is None else read_tables & alone
            here = [t for t in tables if remote is None or t not in read_tables or t in local]
            if here or remote is None:
                self._read_here(session, here, local, names, position, marks, work, more=read_tables > local)
            if remote is not None:
                self._read_remotely(
                    session, [t for t in tables if t in read_tables - local], names, position, marks, work, remote
                )

    def _read_here(
        self,
        session: SnapshotSession,
        tables: list[TableId],
        read_tables: set[TableId],
        names: list[str],
        position: dict[str, Any],
        marks: SnapshotMarkers,
        work: ProgressReporter,
        *,
        more: bool,
    ) -> None:
        """Read tables by threads of this process.

        :param more: other tables will be read after them
        """
        with contextlib.closing(GroupLookahead(self._items(session, tables, read_tables))) as items:
            while (group := items.read_group()) is not None:
                self._begin_group(session, group, read_tables)
                self._read(session, group, items, marks, work, len(names), more=more)
                self._commit_group(session, group, read_tables, session.changed & group.keys(), names, position)

    def _read_remotely(
        self,
        session: SnapshotSession,
        tables: list[TableId],
        names: list[str],
        position: dict[str, Any],
        marks: SnapshotMarkers,
        work: ProgressReporter,
        remote: RemoteReaders,
    ) -> None:
        """Read tables by readers of other processes."""
        groups = [group for group in self._groups(session, tables, set(tables)) if group]
        shown: Group = {}

        def show(rows: int) -> None:
            if work.is_due and shown:
                total, table = sum(c.rows for chunks in shown.values() for c in chunks), next(iter(shown))
                self._progress(str(table), rows, total, self._metrics.remaining)
                self._report_progress(
                    work, table, sum(self._metrics.rows.values()) + rows, rows, total, len(shown), len(names)
                )

        reading = RemoteGroupReading(remote, stopped=self._stopped, on_progress=show, first_row_read=marks.has_begun)
        for number, group in enumerate(groups, 1):
            shown = group
            self._begin_group(session, group, set(group))
            for table in group:
                self._empty(session, table)
            chunks = [chunk for some in group.values() for chunk in some]
            task = self._describe_group(session, number, group)
            try:
                done = reading.read_group(task, chunks, self._batcher.last_seq, rows_follow=number < len(groups))
            except GroupStopped:
                raise SnapshotStopped from None
            changed = (session.changed | done.changed) & group.keys()
            files = {t: some for t, some in done.files.items() if t not in changed}
            schemas = {t: self._history.find_schema(t) for t in files}
            self._writer.add_read_files(
                [(schema, files[t]) for t, schema in schemas.items() if schema is not None],
                done.last_seq,
                self._metrics,
            )
            self._metrics.rows |= {str(t): rows for t, rows in done.rows.items()}
            self._commit_group(session, group, set(group), changed, names, position)

    def _describe_group(self, session: SnapshotSession, number: int, group: Group) -> ReadGroup:
        """Describe the tables of a group as readers need them."""
        batch, epoch, writer = self._batcher.batch_identity
        tables = dict[str, TableTask]()
        for table in group:
            schema = self._history.find_schema(table)
            assert schema is not None
            tables[str(table)] = TableTask(
                table=schema, inspected=session.schemas[table], select=self._selects.get(table)
            )
        return ReadGroup(
            number=number, batch=batch, epoch=epoch, writer=writer, position=session.position.to_json(), ts_us=session.ts_us,
            tables=tables,
        )  # fmt: skip

    def _begin_group(self, session: SnapshotSession, group: Group, read_tables: set[TableId]) -> None:
        for table in group:
            held = self._held(table)
            self._structure(session, table)
            self._metrics.rows.setdefault(str(table), 0)
            if table in read_tables and held:
                self._full.add(table)

    def _commit_group(
        self,
        session: SnapshotSession,
        group: Group,
        read_tables: set[TableId],
        changed: set[TableId],
        names: list[str],
        position: dict[str, Any],
    ) -> None:
        """Commit the rows of a group of tables.

        :param changed: of them, those that were altered before they were read
        """
        state = self._state
        for table in group:
            self._empty(session, table, keep=table in changed)
        state.snapshot_state = state.snapshot_state.record_read((str(t) for t in group if t not in changed), position)
        state.snapshot_state = state.snapshot_state.not_read({str(t) for t in changed})
        state.offset = state.offset.resume_tables({str(t) for t in group if t not in changed})
        self.changed |= changed
        self._metrics.rows |= {str(t): 0 for t in changed}
        self._notifications.notify_tables_read(
            {str(t): self._metrics.rows[str(t)] for t in group if t in read_tables - changed}, state.offset
        )
        self._committer.commit()
        self._metrics.remaining = len(state.snapshot_state.pending.keys() & set(names))

    def _held(self, table: TableId) -> bool:
        """Check whether a table must be emptied before it is read: since it became pending, rows may have come from the log."""
        pending = self._state.snapshot_state.pending[str(table)]
        return pending.held or (pending.streamed and pending.select is None and self._history.has_seen_table(table))

    def _queried(self, schemas: list[TableSchema]) -> dict[TableId, str | None]:
        """Table → the SELECT of the user's query; empty if there is no such query."""
        if self._query is None:
            return {}
        queries = {schema.id: self._query(schema.id, schema.column_names) for schema in schemas}
        if skipped := [str(t) for t, sql in queries.items() if sql is None]:
            log.info("snapshot.query.mode.custom.name excludes the rows of %s from the snapshot.", ", ".join(skipped))
        return queries

    def _gone(self, names: list[str], session: SnapshotSession, position: dict[str, Any]) -> None:
        """Record that tables were dropped before they could be read: they have no rows to read, and no events up to this position."""
        if not names:
            return
        back = {
            str(t) for t in self._source.discover_tables(lambda table: str(table) in names)
        }  # created meanwhile: read in the next round
        gone = [name for name in names if name not in back]
        for name in gone:
            level = logging.INFO if name in self._state.snapshot_state.streamed_tables else logging.WARNING
            log.log(level, "Table %s no longer exists; the snapshot skips it.", name)
        for table in [t for t in self._history.current_tables if str(t) in gone]:
            change = self._history.apply_change(TableChange(type="DROP", id=table))
            if change is not None:
                self._record(session, table, change, [])
        self._state.snapshot_state = self._state.snapshot_state.record_read(gone, position)
        self._state.offset = self._state.offset.resume_tables(gone)

    def _groups(
        self, session: SnapshotSession, tables: list[TableId], read_tables: set[TableId]
    ) -> Iterator[dict[TableId, list[SnapshotChunk]]]:
        """Tables with their chunks, several small ones together; tables of which no row is read are in the first group."""
        group: dict[TableId, list[SnapshotChunk]] = {
            t: [] for t in tables if t in session.schemas and t not in read_tables
        }
        rows = 0
        for table, chunks in self._ordered(session, [t for t in tables if t in read_tables]):
            size = sum(c.rows for c in chunks)
            if rows and rows + size > self._group_rows:
                yield group
                group, rows = {}, 0
            group[table] = chunks
            rows += size
        yield group

    def _items(self, session: SnapshotSession, tables: list[TableId], read_tables: set[TableId]) -> Generator[Item]:
        """All that is read, group by group: a group, then blocks of its rows, and its chunks as they end."""
        for group in self._groups(session, tables, read_tables):
            yield group
            yield from in_parallel(session, [chunk for chunks in group.values() for chunk in chunks], self._readers)

    def _ordered(
        self, session: SnapshotSession, tables: list[TableId]
    ) -> Iterator[tuple[TableId, list[SnapshotChunk]]]:
        """Tables with their chunks, in the order of their estimated rows if that is configured; tables that are locked until they are read come first."""
        tables = sorted(tables, key=lambda table: table not in session.urgent)
        cut = ((table, session.split_table(table)) for table in tables)
        if self._order is RowCountOrder.DISABLED:
            return cut
        down = self._order is RowCountOrder.DESCENDING
        by_rows = sorted(cut, key=lambda pair: sum(chunk.rows for chunk in pair[1]), reverse=down)
        return iter(sorted(by_rows, key=lambda pair: pair[0] not in session.urgent))

    def _structure(self, session: SnapshotSession, table: TableId) -> None:
        recorded = self._history.find_schema(table)
        kind: Literal["ALTER", "CREATE"] = "ALTER" if recorded is not None else "CREATE"
        present = session.schemas[table]
        if self._earlier and present.columns:
            present = present.model_copy(update={"provisional": True})
        if recorded is not None and not self._source.STRUCTURED:
            present = self._source.resolve_reread_schema(present, recorded)
        present = self._filters.record_conversions(present)
        change = self._history.apply_change(TableChange(type=kind, id=table, table=present))
        if change is not None and change.table is not None:
            self._record(session, table, change, [change.table] if table != self._hidden else [])

    def _record(
        self, session: SnapshotSession, table: TableId, change: TableChange, captured: list[TableSchema]
    ) -> None:
        self._writer.schema_change(
            [change], captured, ddl=session.ddl.get(table, ""), database=table.database_name,
            position=session.position.to_json(), ts_us=session.ts_us, source=dict(session.source), snapshot=True,
        )  # fmt: skip

    def _empty(self, session: SnapshotSession, table: TableId, *, keep: bool = False) -> None:
        """Write that a table which holds rows is emptied: right before its first row, or at the end if it has none.

        :param keep: it was altered before a row was read: events that come before its next turn are about the rows that are there
        """
        if table not in self._full:
            return
        self._full.remove(table)
        schema = self._history.find_schema(table)
        assert schema is not None
        if not keep:
            self._writer.write_truncate(schema, session.ts_us, dict(session.source), snapshot="true")

    def _read(
        self,
        session: SnapshotSession,
        group: Group,
        items: GroupLookahead,
        marks: SnapshotMarkers,
        work: ProgressReporter,
        tables: int,
        *,
        more: bool,
    ) -> None:
        """Write the rows of a group of tables in the order in which their blocks come.

        :param tables: that the snapshot has in all
        :param more: others will read rows afterwards
        """
        left = total = 0
        for chunks in group.values():
            left, total = left + len(chunks), total + sum(c.rows for c in chunks)
        marks.expect_chunks({table: len(chunks) for table, chunks in group.items() if chunks})
        done, shown, earlier = 0, time.monotonic(), sum(self._metrics.rows.values())
        while left:
            self._wait_for_rate()
            item = next(items)
            if self._stopped():
                raise SnapshotStopped
            if isinstance(item, RowBlock):
                self._write(session, marks.mark_rows(item))
                self._limit.record_rows(len(item))
                done += len(item)
            elif isinstance(item, SnapshotChunk):
                self._write(session, marks.end_chunk(item.table))
                left -= 1
            if time.monotonic() - shown > 2 and isinstance(item, RowBlock):
                shown = time.monotonic()
                self._progress(str(item.table.id), done, total, self._metrics.remaining)
            if work.is_due and isinstance(item, RowBlock):
                self._report_progress(work, item.table.id, earlier + done, done, total, len(group), tables)
        if marks.has_held_rows:
            self._write(session, marks.release_held_rows(rows_follow=more or items.rows_follow()))

    def _wait_for_rate(self) -> None:
        """Wait until more rows may be read. Readers wait, too: they are at most a few blocks ahead.

        :raises SnapshotStopped: the run was asked to end
        """
        while (pause_s := self._limit.compute_pause()) > 0:
            if self._stopped():
                raise SnapshotStopped
            time.sleep(min(pause_s, _LONGEST_PAUSE_S))

    def _report_progress(
        self, work: ProgressReporter, table: TableId, rows: int, done: int, total: int, group: int, tables: int
    ) -> None:
        """Report how many rows were read.

        :param rows: that were read in all
        :param done: of them those of the group of tables that is read
        :param total: rows of the group, as the database estimates them
        :param group: its tables
        """
        left = self._metrics.remaining
        about = f" of about {total:,}" if total > done else ""  # without statistics the number is unknown
        at = f"now {table}" if tables == 1 else f"now {table} ({done:,}{about} rows), {left} of {tables} tables left"
        way = tables - left + group * (min(done / total, 1.0) if total else 0.0)
        measured = total > done or tables > group
        work.report_progress(rows, span=(way, tables) if measured else None, now=at)

    def _write(self, session: SnapshotSession, blocks: Iterable[MarkedRows]) -> None:
        for block in blocks:
            self._empty(session, block.rows.table.id)
            (rows,) = self._tables.record_row_blocks([block.rows], session.position.to_json())
            schema = self._history.find_schema(rows.table.id)
            if schema is not None:
                rows.table = schema
            self._writer.write_read_rows(rows, session.position, snapshot=block.snapshot, metrics=self._metrics)
            self._metrics.rows[str(rows.table.id)] = self._metrics.rows.get(str(rows.table.id), 0) + len(rows)


def _check_repaired(repaired: set[str], own: Mapping[TableId, str | None]) -> None:
    """Check that the user's query reads the tables of which an event was set aside.

    :raises UnreadableValue: it leaves one out
    """
    for table, sql in own.items():
        if sql is None and str(table) in repaired:
            e = UnreadableValue(
                f"An event of {table} was set aside, and snapshot.query.mode.custom.name excludes its rows from snapshots.",
                where=str(table),
                safe="All other tables are captured; the table is stopped.",
                remedy="let the query return the rows of the table",
            )
            e.table = str(table)
            raise e


@contextlib.contextmanager
def _explained(own: Mapping[TableId, str | None]) -> Iterator[None]:
    """Turn the refusal of a statement that came from the user's query into an error that names the query.

    :param own: table → statement of the query
    :raises PrerequisiteError: such a statement is refused
    """
    try:
        yield
    except QueryRejected as e:
        table = next((t for t, sql in own.items() if sql is not None and sql in (e.where or "")), None)
        if table is None:
            raise
        raise PrerequisiteError(
            f"The statement of snapshot.query.mode.custom.name for {table} cannot be used: {e.message}",
            where=e.where,
            safe="The tables read so far are safe; the next run resumes with this table.",
            remedy="run the statement in a SQL client as the capture user, and correct the query; it must return the columns of the "
            "table unchanged",
        ) from e
