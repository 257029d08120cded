"""Writes to one table of a database within a transaction: its DDL, and the rows of pending batches."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.partial_document_updates import DocumentsLost
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, names_at
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError, TransientError
from airflow_provider_cdc.core.read_ahead import read_ahead
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.targets.database.apply.errors_table import ErrorsTable
from airflow_provider_cdc.targets.database.apply.foreign_key_order import DeferredDeletes
from airflow_provider_cdc.targets.database.apply.reused_column_names import (
    moved_values,
    update_refused,
    update_statements,
)
from airflow_provider_cdc.targets.database.apply.table_evolution import KeyChange, bring_up, brought_up, needs_no_change
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, ErrorTolerance, InsertMode
from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingTable, TargetDialect, execute_sql
from airflow_provider_cdc.targets.database.events import last_event_windows
from airflow_provider_cdc.targets.database.events.earlier_rows_check import EarlierBatches
from airflow_provider_cdc.targets.database.events.event_operation_reader import TableOperation, read_operations
from airflow_provider_cdc.targets.database.events.key_redefinitions import KeyedPart, key_before, split_by_key_change
from airflow_provider_cdc.targets.database.events.moved_row_completion import in_table, late_moves
from airflow_provider_cdc.targets.database.events.partial_update_completion import (
    DocumentCompletion,
    present_in,
    select_documents_to_complete,
)
from airflow_provider_cdc.targets.database.progress.marker_table import MarkersChanged
from airflow_provider_cdc.targets.database.progress.topic_table_ownership import TableClaim, TableClaims
from airflow_provider_cdc.targets.database.schema.target_table import (
    DatabaseTargetTable,
    TargetTableName,
    name_of,
    table_of,
)
from airflow_provider_cdc.targets.database.schema.value_kinds import kind_of
from airflow_provider_cdc.targets.database.target_engine import build_unavailable_error

log = logging.getLogger(__name__)

LARGE_BYTES = 64 << 20
"""Size of a table from which on a truncate at the source truncates it, if the database can undo that: readers wait until the transaction ends.

Rows of a smaller one are deleted, which takes a few seconds, and readers see them until then.
"""
_CLAIMED = 5
"""How often tables are claimed, if other runs do the same."""
Alone = Callable[[Callable[[sa.Connection], None]], None]
"""Does something in a separate transaction, in which the marker is held and is where it was when the run began with these batches."""


class TableWriter:
    """Applies pending batches to single tables.

    :class:`~airflow_provider_cdc.targets.database.apply.database_apply.DatabaseApply` decides which, and in which transaction.

    :param errors: where rows are kept that the database refuses
    """

    def __init__(
        self,
        engine: sa.Engine,
        dialect: TargetDialect,
        config: DatabaseTargetConfig,
        changelog: ChangeLog,
        connector: str,
        errors: ErrorsTable,
    ) -> None:
        self._engine, self._dialect, self._config = engine, dialect, config
        self._changelog, self._connector, self._errors = changelog, connector, errors
        self._claims = TableClaims(config, connector)
        self._newest = dict[str, int]()
        self._had = dict[str, frozenset[str]]()
        """Columns that tables had before this run's DDL, where that is not undone."""
        self._at_work = ""
        self._held: DeferredDeletes | None = None
        self._not_new = set[str]()
        """Topics whose tables had rows already that the source called new: none of theirs are taken for new any more."""
        self._written: Collection[str] = ()
        """Topics whose tables an apply has written, by its report."""
        self._lost = set[str]()
        """Topics that lack documents which later batches may have: their batches are applied together."""
        self._retry = set[str]()
        """Topics that have failed before batches of this run that have more of them."""
        self._gives_up = False
        """Whether a lock timeout stops the table. If not, the transaction is retried."""
        self._limits_waiting = False
        """True if a limit holds for the time that the transaction waits for locks of other sessions."""
        self._at_once = False
        """True if deferrable constraints are checked with each statement, not at the end of the transaction."""

    def fold_name(self, name: str) -> str:
        """Return the form that the database gives to a name without quotes."""
        return name if self._config.quote_identifiers else self._dialect.fold_name(name)

    def _prepare(self, tables: Sequence[PendingBatches], alone: Alone) -> dict[str, str]:
        """DDL of a database that ends transactions by it. Where the key of a table changes, the rows with the key before are written, too: they may come again.

        :param alone: as of :data:`Alone`
        :return: topic → why its table cannot be brought up
        """
        if self._dialect.DDL_IN_TRANSACTION:
            return {}
        self._dialect.structures.expire()
        with self._engine.connect() as connection:
            self._check_structures(connection, tables)
        self._gives_up = True
        try:
            failed = {
                pending.topic: self._isolated(pending.topic, self._prepared, pending, alone) for pending in tables
            }
        finally:
            self._gives_up = False
        return {topic: error for topic, error in failed.items() if error}

    def _prepared(self, pending: PendingBatches, alone: Alone) -> None:
        parts = self._parts(pending)
        self._had.pop(pending.topic, None)
        if len(parts) == 1 and needs_no_change(self._dialect, self._target_table(pending), pending):
            self._had[pending.topic] = frozenset()
            return
        for part in parts:
            try:
                with self._engine.begin() as connection:
                    self._dialect.defer_constraints(connection)
                    self._dialect.limit_waiting(connection)
                    _, had = self._bring_up(connection, part, parts[-1])
                self._had[pending.topic] = had
            except sa.exc.DBAPIError as e:
                if len(parts) > 1 or not self._dialect.is_transient(e):
                    raise
                # missing parts are found in the transaction
                log.warning("The batches could not be applied to the table of %s: %s", pending.topic, e)
            if part is not parts[-1]:
                alone(lambda connection, part=part: self._either_way(connection, [part]))  # type: ignore[misc]

    def _check_structures(self, connection: sa.Connection, tables: Sequence[PendingBatches]) -> None:
        """Find out with a few statements which tables have changed since they were read."""
        checked = list[DatabaseTargetTable]()
        for pending in tables:
            with contextlib.suppress(CdcError):  # reported when its turn comes
                checked.append(self._target_table(pending))
        self._dialect.check_structures(connection, checked)

    def _parts(self, pending: PendingBatches) -> list[KeyedPart]:
        return split_by_key_change(self._changelog, pending, self._config)

    def _bring_up(
        self, connection: sa.Connection, part: KeyedPart, last: KeyedPart
    ) -> tuple[ExistingTable, frozenset[str]]:
        """Make sure that the table exists for a part; also return the columns that it had before, if the part has changes."""
        table = self._target_table(part.pending)
        former = {frozenset(map(self.fold_name, key)) for key in part.former}
        there = None
        if part.pending.changes:
            self._dialect.structures.forget(table.name)
            there = self._dialect.inspect_table(connection, table)
        if there is not None and there.key and {*there.key} != {field.name for field in table.key_columns}:
            former.add(frozenset(map(self.fold_name, key_before(self._changelog, self._connector, part.pending))))
        had = frozenset(there.columns if there is not None else ())
        change = KeyChange(former, self._target_table(last.pending))
        earlier = EarlierBatches(
            self._changelog, self._connector, self._config, self._written, part.pending, last.pending
        )
        arguments = (self._dialect, connection, table, part.pending, self._config, self._connector)
        return bring_up(*arguments, change, earlier), had

    def _name(self, pending: PendingBatches) -> str:
        return str(name_of(pending.topic, pending.schema, self._config, self.fold_name))

    def _target_table(self, pending: PendingBatches) -> DatabaseTargetTable:
        """Build the target table of a topic.

        :raises ConfigError: as :func:`table_of`; or the table is that of another topic
        """
        table = table_of(pending.topic, pending.schema, self._config, self._dialect)
        if (why := self._claims.refused.get(pending.topic)) is not None:
            raise why
        self._refuse_repeated_hours(table)
        return table

    def _refuse_repeated_hours(self, table: DatabaseTargetTable) -> None:
        """Reject keys with moments in a zone that repeats an hour.

        :raises ConfigError: two keys would have the same text
        """
        moments = [field.name for field in table.key_columns if kind_of(field.column).name == "timestamp_tz"]
        if moments and not self._dialect.MOMENTS and sql_literals.repeats_hours(self._config.effective_time_zone):
            raise ConfigError(
                f"The key of {table.topic} has timestamps ({', '.join(moments)}), and in {self._config.effective_time_zone} one hour occurs twice when daylight saving time ends: two rows could "
                "have the same key.",
                safe="The table was not changed; other tables continue.",
                remedy="set database.time_zone=UTC, which then applies to the times of all tables, and rebuild the existing tables with "
                f"`{format_cdc_command('rebuild', self._connector, table.topic)}`; or apply this topic with a separate sink",
            )

    def _claim(self, tables: Sequence[PendingBatches]) -> None:
        """Make sure that each topic's table is its own, before anything is done to it."""
        claims, names, moved = dict[str, TableClaim](), dict[str, str](), dict[str, set[str]]()
        for pending in (candidate for candidate in tables if candidate.files or candidate.changes or candidate.schemas):
            topic = pending.topic
            try:
                name = table_of(topic, pending.schema, self._config, self._dialect).name
            except CdcError:
                continue  # reported when its turn comes
            claim = self._claim_of(topic, name, pending.schema.id.full_name)
            if self._claims.is_claimed(claim):
                continue
            claims[topic], names[topic] = claim, str(name)
            before = {change.previous_id for change in pending.changes.values()} - {None, pending.schema.id}
            moved[topic] = {table_id.full_name for table_id in before if table_id is not None}

        if not claims:
            return

        def once(connection: sa.Connection) -> None:
            for topic, claim in claims.items():
                for source in moved[topic]:
                    self._claims.move_claim(connection, topic, claim.table, source)
            self._claims.claim_tables(connection, claims, names)

        for attempt in range(_CLAIMED):
            try:
                self._retried(once)
                break
            except sa.exc.IntegrityError:
                if attempt + 1 == _CLAIMED:
                    raise
                # another run was faster

    def _claim_of(self, topic: str, name: TargetTableName, source: str = "") -> TableClaim:
        schema = name.schema or self._engine.dialect.default_schema_name or ""
        return TableClaim(self._dialect.same_table(f"{schema}.{name.table}"), self._connector, topic, source)

    def _empty(self, connection: sa.Connection, table: DatabaseTargetTable, *, briefly: bool = False) -> None:
        """Delete all rows of a table.

        :param briefly: the transaction ends at once, so that readers of small tables may wait for it, too
        :raises TargetError: it has rows of another topic, too
        """
        if (other := self._claims.find_other_topic(connection, self._claim_of(table.topic, table.name))) is not None:
            raise TargetError(
                f"The source table of {table.topic} was truncated, but the table {table.name} also contains rows of {other} (collection.name.shared).",
                where=f"topic {table.topic}",
                safe="The table was not changed; other tables continue.",
                remedy=f"delete the rows of {table.topic} by hand, and apply this once with truncate.enabled=false; "
                "or give each topic its own table with collection.name.format",
            )
        self._dialect.empty_table(connection, table, least_bytes=0 if briefly else LARGE_BYTES)

    def _table(self, connection: sa.Connection, topic: str, pending: PendingBatches) -> str:
        """Apply pending batches to one table; return why it could not be done, or nothing."""

        def written() -> None:
            if not self._limits_waiting:
                self._dialect.limit_waiting(connection)
                self._limits_waiting = True
            parts = self._parts(pending)
            self._either_way(connection, parts if self._dialect.DDL_IN_TRANSACTION else parts[-1:])

        return self._isolated(topic, written) if pending.files or pending.changes else ""

    def _isolated(self, topic: str, action: Callable[..., None], *arguments: Any) -> str:
        """Do something with one table; return why it could not be done, or nothing. Only errors that concern all tables are raised."""
        self._at_work = topic
        try:
            action(*arguments)
        except sa.exc.DBAPIError as e:
            if self._dialect.is_transient(e) and not self._locked_out(e):
                raise
            return f"The table {topic} rejects a change: {e.orig}"
        except (MarkersChanged, TransientError):
            raise
        except DocumentsLost as e:
            self._lost.add(topic)
            return describe_error(e)
        # the configuration does not fit this table, or a file of it is damaged; the others continue
        except CdcError as e:
            return describe_error(e)
        except Exception as e:
            log.exception("The changes of %s cannot be converted to rows.", topic)
            return describe_error(_unexpected(topic, e))
        return ""

    def _locked_out(self, error: sa.exc.DBAPIError) -> bool:
        """Return whether another session has locked one table for so long that the others no longer wait for it."""
        return self._gives_up and self._dialect.is_lock_timeout(error)

    def _either_way(self, connection: sa.Connection, parts: Sequence[KeyedPart]) -> None:
        """Apply parts of pending batches to one table.

        Arrays that the database rejects are written again one event after the other: a value that is unique may go from one row to another.
        """
        try:
            self._saved(connection, parts, each=False)
        except Exception as e:
            if not self._is_of_a_row(e):
                raise
            topic = parts[0].pending.topic
            for part in parts:  # another session may have changed it
                self._dialect.structures.forget(self._target_table(part.pending).name)
            log.info("The table of %s rejects rows, which are now written one by one: %s", topic, _error_text(e))
            self._saved(connection, parts, each=True)

    def _is_of_a_row(self, error: Exception) -> bool:
        """Check whether it may be one row that cannot be written: the database refuses it, or has no such value, or Python has not."""
        if isinstance(error, sa.exc.DBAPIError):
            return not self._dialect.is_transient(error)
        return not isinstance(error, (CdcError, MarkersChanged, OSError, MemoryError))

    def _saved(self, connection: sa.Connection, parts: Sequence[KeyedPart], *, each: bool) -> None:
        """Apply parts of pending batches to one table; if that fails, changes of other tables in the transaction stay."""
        if self._held is not None:
            self._held.restart_table(parts[0].pending.topic, at_once=each or len(parts) > 1)
        savepoint = connection.begin_nested()
        try:
            for part in parts:
                table = self._target_table(part.pending)
                if self._dialect.DDL_IN_TRANSACTION:
                    there, had = self._bring_up(connection, part, parts[-1])
                else:
                    there = brought_up(self._dialect, connection, table)
                    had = self._had.get(part.pending.topic, frozenset(there.columns))
                if had:
                    self._update_existing_rows(connection, table, part, had)
                self._apply(connection, table, part.pending, there, each=each)
        except sa.exc.DBAPIError as e:
            # after a deadlock there is nothing left to go back to: the database has undone the whole transaction
            if not self._dialect.is_transient(e) or self._locked_out(e):
                savepoint.rollback()
            raise
        except Exception:
            savepoint.rollback()
            raise
        savepoint.commit()

    def _update_existing_rows(
        self, connection: sa.Connection, table: DatabaseTargetTable, part: KeyedPart, had: frozenset[str]
    ) -> None:
        """Give existing rows the values of the source's rows in columns that were made again, or renamed.

        :raises TargetError: the database refuses it; rows are found by these columns, or are those of another topic, too; or it might be done twice
        """
        pending, config, dialect = part.pending, self._config, self._dialect
        if config.insert_mode is InsertMode.INSERT or (pending.name_takeover is not None and config.truncate_enabled):
            return  # rows are those of events; or none stays
        try:
            moved = moved_values(dialect, table, pending, part.schema_version, had, config)
        except LookupError as e:
            raise update_refused(self._connector, table, str(e)) from e
        if not moved:
            return
        if (other := self._claims.find_other_topic(connection, self._claim_of(table.topic, table.name))) is not None:
            # a column that is new at the source may be there for another topic
            gone = {name for change in pending.changes.values() for name in change.dropped}
            before = {*names_at(pending, part.schema_version), *gone}
            if any(field.name in had and field.column.name in before for field, _ in moved):
                raise update_refused(
                    self._connector, table, f"it also contains rows of {other} (collection.name.shared)"
                )
            return
        if keys := ", ".join(field.name for field, _ in moved if field.key):
            raise update_refused(
                self._connector, table, f"the column {keys} is part of the key, by which rows are found"
            )
        if not (part.last or dialect.DDL_IN_TRANSACTION) and any(origin.column for _, origin in moved):
            raise update_refused(self._connector, table, "the key changes in the same batches")
        try:
            for statement in update_statements(dialect, table, moved):
                execute_sql(connection, statement)
        except sa.exc.DBAPIError as e:
            if dialect.is_transient(e):
                raise
            raise update_refused(self._connector, table, str(e.orig)) from e

    def _apply(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        pending: PendingBatches,
        there: ExistingTable,
        *,
        each: bool,
    ) -> None:
        def committed(ms: int) -> None:
            self._newest[table.topic] = max(ms, self._newest.get(table.topic, 0))

        arguments = (self._changelog, self._connector, pending, table, self._config)
        if (documents := select_documents_to_complete(pending, table, self._config)) is not None:
            present = present_in(self._dialect, connection, table, documents)
            whole = DocumentCompletion(
                pending, table, documents, present, inserts=self._config.insert_mode is not InsertMode.UPDATE
            )
            # each step is made before the next one is read: it is read from the table
            for step in read_operations(*arguments, each=each, committed=committed, completed=whole):
                self._execute_step(connection, table, step, there, each=each)
            return
        if (moves := late_moves(*arguments, in_table(self._dialect, connection, table))) is not None:
            for step in read_operations(*arguments, each=each, committed=committed, completed=moves):
                self._execute_step(connection, table, step, there, each=each)
            return
        in_order = (
            each or there.takes_others(table) or not last_event_windows.can_use_windows(pending, table, self._config)
        )
        if not in_order and not there.self_reference:
            operations = last_event_windows.EventWindows(*arguments, committed=committed).read_operations()
        else:
            operations = read_operations(*arguments, each=each, committed=committed)
        with read_ahead(operations) as coming:
            for step in coming:
                self._execute_step(connection, table, step, there, each=each)

    def _execute_step(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        step: TableOperation,
        there: ExistingTable,
        *,
        each: bool,
    ) -> None:
        try:
            if each and self._config.errors_tolerance is ErrorTolerance.ALL:
                self._or_kept(connection, table, step, there)
            else:
                self._step(connection, table, step, there)
        except Exception as e:
            if not each or not self._is_of_a_row(e):
                raise
            raise self._refused(table, step, e) from e

    def _or_kept(
        self, connection: sa.Connection, table: DatabaseTargetTable, step: TableOperation, there: ExistingTable
    ) -> None:
        """Make a step of one event, or keep its row with the errors."""
        savepoint = connection.begin_nested()
        try:
            self._step(connection, table, step, there)
        except Exception as e:
            if not self._is_of_a_row(e):
                if not isinstance(e, sa.exc.DBAPIError) or self._locked_out(e):
                    savepoint.rollback()
                raise
            savepoint.rollback()
            log.warning("%s", self._refused(table, step, e))
            self._errors.store_row(connection, table, step, _error_text(e))
        else:
            savepoint.commit()

    def _step(
        self, connection: sa.Connection, table: DatabaseTargetTable, step: TableOperation, there: ExistingTable
    ) -> None:
        if self._held is not None and (step := self._held.release_step(connection, table, step)) is None:  # type: ignore[assignment]
            return
        match step.action:
            case "empty":
                self._empty(connection, table)
            case "delete":
                self._dialect.delete(connection, table, step.rows)
            case "move":
                self._dialect.move_row(connection, table, step.rows)
            case "write" if self._config.insert_mode is InsertMode.INSERT:
                self._dialect.insert(connection, table, step.rows)
            case "write" if self._config.insert_mode is InsertMode.UPDATE:
                self._dialect.update(connection, table, step.rows)
            case _:
                if not (step.new and self._inserted(connection, table, step, there)):
                    self._dialect.upsert(connection, table, step.rows, unique=there.takes_others(table))

    def _inserted(
        self, connection: sa.Connection, table: DatabaseTargetTable, step: TableOperation, there: ExistingTable
    ) -> bool:
        """Insert new rows, which is cheaper than to look whether they are there; whether the table took them."""
        if table.topic in self._not_new or set(there.key) != {field.name for field in table.key_columns}:
            return False
        savepoint = connection.begin_nested()
        try:
            self._dialect.insert(connection, table, step.rows)
        except sa.exc.DBAPIError as e:
            if self._dialect.is_transient(e):
                if self._locked_out(e):
                    savepoint.rollback()
                raise
            savepoint.rollback()
            self._not_new.add(table.topic)
            return False
        except Exception:
            savepoint.rollback()
            raise
        savepoint.commit()
        return True

    def _refused(self, table: DatabaseTargetTable, step: TableOperation, error: Exception) -> TargetError:
        there = step.rows.column_names if step.rows.num_rows else []
        names = [field.name for field in table.key_columns if field.name in there] or there
        shown = ", ".join(f"{name}={sql_literals.format_first_value(step.rows[name])[:80]}" for name in names)
        return TargetError(
            f"{table.name} rejects a row: {_error_text(error)}",
            where=f"topic {table.topic}, event {int(step.seq[0])}, row with {shown}",
            safe="The table is complete up to the previous batch; other tables continue.",
            remedy="fix the row or the table, then run the apply again: it resumes with this batch",
        )

    # -- transactions -------------------------------------------------------------------------------------------------

    def _in_transaction(self, action: Any) -> Any:
        if self._dialect.DDL_IN_TRANSACTION:
            self._dialect.structures.expire()
        self._limits_waiting = False
        try:
            with self._engine.begin() as connection:
                self._dialect.defer_constraints(connection, self._at_once)
                return action(connection)
        except BaseException:
            self._dialect.structures.clear()
            raise

    def _retried(self, action: Any) -> Any:
        """Run a transaction, and retry it after transient errors: deadlocks, lost connections."""
        soon = self._gives_up
        for attempt in range(self._config.flush_max_retries + 1):
            self._gives_up = soon or attempt == self._config.flush_max_retries
            try:
                return self._in_transaction(action)
            except sa.exc.DBAPIError as e:
                if not self._dialect.is_transient(e):
                    raise
                if attempt == self._config.flush_max_retries:
                    raise build_unavailable_error(self._engine, e) from e
                log.warning("Retrying the transaction (%d): %s", attempt + 1, e.orig)
                time.sleep(self._config.flush_retry_delay_ms / 1000 * (attempt + 1))
            finally:
                self._gives_up = soon
        raise AssertionError("unreachable")


def _unexpected(topic: str, error: Exception) -> TargetError:
    return TargetError(
        f"The changes of {topic} cannot be converted to rows: {type(error).__name__}: {error}",
        safe="The table is complete up to the previous batch; other tables continue.",
        remedy="leave the column with such values out with field.exclude.list, or the topic with topics.regex, and report the error with the traceback from the task log",
    )


def _error_text(error: Exception) -> str:
    return str(error.orig) if isinstance(error, sa.exc.DBAPIError) else f"{type(error).__name__}: {error}"
