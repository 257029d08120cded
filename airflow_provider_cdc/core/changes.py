"""What a DDL statement in the log means for a run: the structure in force, tables that were emptied, tables to read again."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.config_values import RewriteMode
from airflow_provider_cdc.core.errors import ConfigError, SchemaConflict
from airflow_provider_cdc.core.events import SchemaChange
from airflow_provider_cdc.core.manifest import SchemaChangeRecord
from airflow_provider_cdc.core.schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.schema_history import rewrite_reason
from airflow_provider_cdc.core.telling import how_to_read

if TYPE_CHECKING:
    from airflow_provider_cdc.core.run import Run

log = logging.getLogger(__name__)


class SchemaChanges:
    """Takes the schema changes of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def take(self, item: SchemaChange) -> None:
        """Record the change; read tables again where the log does not tell what became of their rows."""
        run, history = self._run, self._run.history
        applied: list[TableChange] = []
        selected: dict[str, TableSchema] = {}
        emptied: list[TableId] = []
        reread: list[TableId] = []
        self._claim(item)
        before = {c.id: history.get(c.previous_id or c.id) for c in item.changes}
        history.leave(item.changes)
        for change in item.changes:
            if not self._concerns(change):
                continue
            seen = history.seen(change.id)
            versioned = history.apply(change)
            if versioned is None:
                continue
            applied.append(versioned)
            if versioned.table is None or not run.tables.captured(change.id) or change.id == run.envelope.hidden:
                continue
            selected[run.envelope.topic(change.id)] = run.envelope.selected(versioned.table)
            if change.previous_id is not None and change.previous_id != change.id:
                reread.append(change.id)
                continue
            if change.type == "CREATE" and seen:
                emptied.append(change.id)
            if self._must_reread(before[change.id], versioned, item):
                reread.append(change.id)
        reread += [table for table in item.untold if run.tables.captured(table)]
        if applied or item.untold:
            self._record(item, applied, selected)
            run.incremental.changed(applied)
            self._carry(applied)
        wanted = self._readable(reread)
        begun = {change.id for change in applied if change.exact}
        for table in emptied:
            if table in begun or table not in wanted:  # one that comes with rows is emptied when it is read
                run.truncate(table, item)
        run.after_change(item)
        if reread:
            self._read_again(reread, wanted, item)

    def _claim(self, item: SchemaChange) -> None:
        """
        :raises ConfigError: a table that comes to be has the topic of another one
        """
        run = self._run
        for change in item.changes:
            if change.table is None or not run.tables.captured(change.id):
                continue
            try:
                run.envelope.topic(change.id)
            except ConfigError as e:
                if not item.open:
                    run.commit()
                raise ConfigError(e.what, where=f"{item.position}: {item.ddl}", safe=e.safe, remedy=e.remedy) from e

    def _concerns(self, change: TableChange) -> bool:
        captured = self._run.tables.captured
        return captured(change.id) or (change.previous_id is not None and captured(change.previous_id))

    def _record(self, item: SchemaChange, applied: list[TableChange], selected: dict[str, TableSchema]) -> None:
        batcher = self._run.batcher
        record = SchemaChangeRecord(
            seq=batcher.seq + 1, ddl=item.ddl, database=item.database, position=item.position.to_json(), ts_us=item.ts_us,
            source=item.source, changes=applied, captured_us=time.time_ns() // 1000,
        )  # fmt: skip
        batcher.add_change(record, selected)
        self._run.metrics.history.apply(record)

    def _carry(self, changes: list[TableChange]) -> None:
        """A table that waits to be read goes on waiting under its new name."""
        run = self._run
        renamed = [c for c in changes if c.previous_id not in (None, c.id) and run.tables.captured(c.id)]
        names = {str(c.previous_id): str(c.id) for c in renamed}
        if names.keys() & run.offset.snapshot.pending.keys():
            run.offset = run.offset.model_copy(update={"snapshot": run.offset.snapshot.renamed(names)})

    def _readable(self, tables: list[TableId]) -> list[TableId]:
        """Those of some tables whose rows a snapshot would read."""
        if not self._run.reads_rows:
            return []
        return [t for t in tables if self._run.filters.snapshot(t)]

    def _read_again(self, tables: list[TableId], wanted: list[TableId], item: SchemaChange) -> None:
        anew = self._scan_anew({str(t) for t in tables if t not in wanted}, item)
        if left := [str(t) for t in tables if t not in wanted and str(t) not in anew]:
            log.warning("Rows of %s are not known from the log, and are not read again: %s", ", ".join(left), item.ddl)
        if not wanted:
            return
        log.info("Reading %s again after: %s", ", ".join(map(str, wanted)), item.ddl)
        self._run.pend(wanted)
        self._run.commit_if_closed()

    def _scan_anew(self, tables: set[str], item: SchemaChange) -> set[str]:
        """Incremental snapshots of some tables begin anew, as what they have read is not what the tables hold now. Gives the
        tables that are read so."""
        run = self._run
        state = run.scans.state
        found = {scan.table for scan in state.scans} & tables
        if not found:
            return found
        log.warning(
            "The incremental snapshot of %s begins anew with the first row, after: %s. Rows that are not in the table any more stay "
            "in the targets, as they do without `replace`.",
            ", ".join(sorted(found)),
            item.ddl,
        )
        begin: dict[str, Any] = {"order": [], "after": None, "upto": None, "rows": 0}
        scans = [scan.model_copy(update=begin) if scan.table in found else scan for scan in state.scans]
        run.incremental.cancel()
        run.scans.state = state.model_copy(update={"scans": scans})
        return found

    def _must_reread(self, old: TableSchema | None, change: TableChange, item: SchemaChange) -> bool:
        reason = rewrite_reason(old, change)
        mode = self._run.config.schema_change_rewrite_mode
        if reason is None:
            return False
        if mode is RewriteMode.IGNORE:
            assert change.table is not None
            how = how_to_read(self._run.parts.name, [change.table], self._run.filters)
            log.warning(
                "Rows of %s may be missing or old in the targets: schema.change.rewrite.mode=ignore goes on after a statement that "
                "changed rows in a way that the log does not show (%s): %s. To read them: %s",
                change.id, reason, item.ddl, how,
            )  # fmt: skip
            return False
        if mode is RewriteMode.FAIL:
            self._run.commit()
            raise SchemaConflict(
                f"A DDL statement changed rows of {change.id} in a way that the log does not show: {reason}.",
                where=f"{item.position}: {item.ddl}",
                safe="Everything before this statement is captured.",
                remedy="set schema.change.rewrite.mode=snapshot to read the table again, or ignore to go on without",
            )
        return True
