"""Applies the batches of a connector to the tables of a database, in groups. Each group is one transaction, with the marker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.applied import AppliedReports
from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.partial import DocumentsLost
from airflow_provider_cdc.changelog.pending import Batches, Pending
from airflow_provider_cdc.core.errors import BatchesRemoved, CdcError, ConfigError, TargetError
from airflow_provider_cdc.core.model.manifest import Contents
from airflow_provider_cdc.core.model.schema import TableSchema
from airflow_provider_cdc.core.spi.progress import Ticker, WorkProgress
from airflow_provider_cdc.sink import texts, windows
from airflow_provider_cdc.sink.ahead import ahead
from airflow_provider_cdc.sink.beginnings import Beginnings
from airflow_provider_cdc.sink.config import InsertMode, OnError, SinkConfig
from airflow_provider_cdc.sink.database import place_of, unavailable
from airflow_provider_cdc.sink.dialects import dialect_of
from airflow_provider_cdc.sink.dialects.base import Dialect, There
from airflow_provider_cdc.sink.documents import Completion, completes, present_in
from airflow_provider_cdc.sink.done import Done
from airflow_provider_cdc.sink.errors_table import ErrorsTable
from airflow_provider_cdc.sink.events import Step, steps
from airflow_provider_cdc.sink.evolution import bring_up, brought_up
from airflow_provider_cdc.sink.markers import Markers, MarkerTable, Overtaken
from airflow_provider_cdc.sink.order import Held, Refused, Topics, ordered, references
from airflow_provider_cdc.sink.room import with_room
from airflow_provider_cdc.sink.tables import SinkTable, name_of, table_of
from airflow_provider_cdc.sink.topics import chosen

log = logging.getLogger(__name__)

TARGET = "database"
"""Kind of target in reports."""
GROUP_BYTES, GROUP_BATCHES = 256 << 20, 500
"""A transaction has the batches of about so many bytes of change log, or so many of them."""
LOOK_S = 0.5
"""How often who follows the change log looks for a new batch."""
_ENSURED = 5
"""How often tables of our own are looked for, if other runs make them at the same time."""


class Sink:
    """Brings the tables of one database up to date with a change log.

        >>> Sink(open_engine(config), config, ChangeLog("/data/changelog"), "shop").apply().batch
        42

    :param engine: of the target database
    :param noted: what reports say besides, for those who come to the database later; nothing secret
    :ivar done: since it was taken last, also if that has failed in the end
    :raises TargetUnavailable: the database cannot be reached
    """

    def __init__(
        self,
        engine: sa.Engine,
        config: SinkConfig,
        changelog: ChangeLog,
        connector: str,
        *,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        self._noted, self._newest = dict(noted or {}), dict[str, int]()
        self.done = Done(place_of(engine, config))
        self._engine, self._config, self._changelog, self._connector = engine, config, changelog, connector
        try:
            with engine.connect() as connection:  # only then is it known what it is
                self._dialect: Dialect = dialect_of(engine, config.zone)
                self._dialect.look(connection)
        except sa.exc.DBAPIError as e:  # of Oracle and Db2, a wrong password is no OperationalError
            raise unavailable(engine, e) from e
        self._markers = MarkerTable(config.marker_table, connector, config.name)
        self._errors = ErrorsTable(config.errors_table, self._markers.of)
        self._reports = AppliedReports(changelog.storage, connector)
        self._way, self._at_work = (0, 0), ""
        self._held: Held | None = None
        self._ordered = True
        self._not_new = set[str]()
        """Topics whose tables had rows already that the source called new: none of theirs are taken for new any more."""
        self._lost = set[str]()
        """Topics that lack documents which later batches may have: their batches are applied together."""

    def apply(self) -> Done:
        """Apply everything that the change log has.

        :raises TargetError: tables could not take a change; the others are up to date
        :raises TargetUnavailable: the database cannot be reached
        """
        began, done = time.monotonic(), Done(self.done.place)
        try:
            self._applied(done, began)
        finally:
            self.done.add(done)
        if done.failed:
            raise self._failed(done)
        return done

    def _applied(self, done: Done, began: float) -> None:
        report = self._reports.register(TARGET, done.place)
        self._ensure_tables()
        board = self._changelog.board(self._connector)
        work = WorkProgress("Apply", "batches", where=f"{TARGET} at {done.place}", board=board, logger=log)
        with Ticker(work, self._told):
            self._all(done)
        now: Markers = self._retried(self._markers.read)
        done.batch, done.behind = now.batch, now.behind
        done.seconds = round(time.monotonic() - began, 3)
        self._report(report, done)

    def take(self) -> Done:
        """What was done since the last time."""
        taken, self.done = self.done, Done(self.done.place)
        return taken

    def _report(self, before: dict[str, Any], done: Done) -> None:
        """Say what the tables have now: nothing is removed from the change log that they need."""
        stands = dict(before.get("stands", {}))
        for topic, table in done.tables.items():
            stands[topic] = {"location": table["location"], "batch": table["last_batch"], "stamp": ""}
        for topic, batch in done.behind.items():
            stands[topic] = {"location": "", "stamp": "", **stands.get(topic, {}), "batch": batch}
        self._reports.write(
            {
                "connector": self._connector, "target": TARGET, "location": done.place, "last_batch": done.batch, "tables": [*done.tables.values()],
                "failed": done.failed, "lagging": done.behind, "stands": stands, "seconds": done.seconds, "rules": "", **self._noted,
            }
        )  # fmt: skip

    def follow(self, over: Callable[[float], bool]) -> Done:
        """Apply batches as they come. Several may do that at the same time: each batch is applied once.

            >>> ended = threading.Event()
            >>> sink.follow(ended.wait)

        :param over: waits for so many seconds, or until it is true that this is to end; whether it is
        :raises CdcError: as :meth:`apply`
        """
        done = self.apply()
        while not over(LOOK_S):
            if self._changelog.has(self._connector, done.batch + 1):
                done.add(self.apply())
        return done

    def markers(self) -> Markers:
        """How far the tables are now."""
        found: Markers = self._retried(self._markers.read)
        return found

    def fold(self, name: str) -> str:
        """What the database makes of a name without quotes."""
        return name if self._config.quote_identifiers else self._dialect.fold(name)

    def set_back(self, topic: str, schema: TableSchema, batch: int, why: str) -> None:
        """Empty the table of a topic, and have it begin after a batch: it is behind the others then, and :meth:`apply` brings it up to them.

        :param why: what the marker says of it meanwhile
        """
        table = table_of(topic, schema, self._config, self._dialect.fold)

        def once(connection: sa.Connection) -> None:
            now = self._markers.hold(connection)
            if self._dialect.there(connection, table.name) is not None:
                self._dialect.empty(connection, table)
            self._markers.stop(connection, topic, batch, why)
            self._markers.write(connection, now.batch)

        self._ensure_tables()
        self._retried(once)

    def _all(self, done: Done) -> None:
        first: int | None = None
        while True:
            markers = self._retried(self._markers.read)
            first = markers.batch if first is None else first
            try:
                beginnings = Beginnings(self._changelog, self._connector, self._config, self._groups, done.place)
                markers = self._begin(markers, beginnings, done)
                self._catch_up(markers, beginnings, done)
                later = {topic for topic, batch in markers.behind.items() if batch > markers.batch}
                for group in self._groups(markers.batch):
                    self._way = (
                        markers.batch - first,
                        self._changelog.last(self._connector, after=markers.batch) - first,
                    )
                    markers = self._group(group, markers, done)
                if later:
                    behind = {topic: batch for topic, batch in markers.behind.items() if topic in later}
                    self._catch_up(Markers(markers.batch, behind), beginnings, done)
                self._with_later(beginnings, done)
                break
            except Overtaken:
                log.info("Another run applies the batches of %s, too: the markers are read again.", self._connector)

    def _with_later(self, beginnings: Beginnings, done: Done) -> None:
        """Try the tables again that lack documents, with all batches that there are."""
        if self._lost:
            now = self._retried(self._markers.read)
            behind = {topic: batch for topic, batch in now.behind.items() if topic in self._lost}
            for topic in behind:
                done.failed.pop(topic, None)
            self._catch_up(Markers(now.batch, behind), beginnings, done)
            self._lost.clear()

    def _told(self) -> dict[str, Any]:
        """How far it is, as :meth:`WorkProgress.tell` has it."""
        done, total = self._way
        return {"done": done, "total": total, "now": f"at work: {self._at_work}" if self._at_work else ""}

    def _ensure_tables(self) -> None:
        tables: list[MarkerTable | ErrorsTable] = [
            self._markers,
            *([self._errors] if self._config.errors_tolerance is OnError.ALL else []),
        ]
        for table in tables:
            for attempt in range(_ENSURED):
                try:
                    self._retried(table.ensure)
                    break
                except (sa.exc.IntegrityError, sa.exc.ProgrammingError, sa.exc.OperationalError):
                    if attempt + 1 == _ENSURED:
                        raise
                    # another run was faster: to make the table, or then the row in it

    # -- groups -------------------------------------------------------------------------------------------------------

    def _groups(self, after: int, until: int | None = None, *, together: bool = False) -> Iterator[Batches]:
        group, size = list[Contents](), 0
        for manifest in self._changelog.manifests(self._connector, after=after, until=until):
            group.append(manifest.contents)
            size += group[-1].bytes
            if not together and self._full(size, len(group)):
                yield Batches(self._changelog, group)
                group, size = [], 0
        if group:
            yield Batches(self._changelog, group)

    def _full(self, size: int, batches: int) -> bool:
        """Whether a group is large enough.

        :param size: bytes of its files
        """
        return size >= GROUP_BYTES or batches >= GROUP_BATCHES

    def _group(self, group: Batches, markers: Markers, done: Done) -> Markers:
        """Apply some batches to all tables that are not behind, in one transaction.

        :raises Overtaken: another run was faster
        """

        def once(connection: sa.Connection) -> dict[str, str]:
            now = self._markers.hold(connection)
            if now.batch != markers.batch:
                raise Overtaken
            failed = dict[str, str]()
            for topic, pending in (pendings := self._in_order(connection, self._pending(group, now.behind))):
                if error := refused.get(topic) or self._table(connection, topic, pending):
                    failed[topic] = error
                    self._markers.stop(connection, topic, markers.batch, error)
            self._end_deletes(connection, [pending for topic, pending in pendings if topic not in failed])
            self._markers.write(connection, group.last)
            return failed

        began = time.monotonic()
        refused = self._prepare([pending for _, pending in self._pending(group, markers.behind)])
        try:
            failed = self._retried(once)
        except Refused as e:
            log.info("%s", e)
            self._ordered = False
            failed = self._retried(once)
        finally:
            self._held, self._ordered = None, True
        done.failed |= failed
        for _, pending in self._pending(group, {**markers.behind, **failed}):
            done.count(pending, self._name(pending), began, self._newest.pop(pending.topic, 0))
        return Markers(group.last, {**markers.behind, **dict.fromkeys(failed, markers.batch)})

    def _begin(self, markers: Markers, beginnings: Beginnings, done: Done) -> Markers:
        """Begin with the first batch that is kept, if tables need those before it that were removed: whoever can do that, and no other.

        :raises Overtaken: another run was faster
        """
        before = beginnings.before
        if markers.batch >= before:
            return markers
        later, failed = beginnings.all(markers.batch, markers.behind)

        def once(connection: sa.Connection) -> None:
            if self._markers.hold(connection).batch != markers.batch:
                raise Overtaken
            for topic, after in later.items():
                self._markers.stop(connection, topic, after, "")
            for topic, error in failed.items():
                self._markers.stop(connection, topic, markers.batch, error)
            self._markers.write(connection, before)

        self._retried(once)
        log.info("The tables of %s begin after batch %d: those before were removed.", self._connector, before)
        done.failed |= failed
        return Markers(before, {**markers.behind, **later, **dict.fromkeys(failed, markers.batch)})

    def _go_on_after(self, topic: str, batch: int, after: int) -> None:
        """Have a table that is behind go on after a later batch.

        :raises Overtaken: another run was faster
        """

        def once(connection: sa.Connection) -> None:
            now = self._markers.hold(connection)
            if now.behind.get(topic) != batch:
                raise Overtaken
            self._markers.stop(connection, topic, after, "")
            self._markers.write(connection, now.batch)

        self._retried(once)

    def _catch_up(self, markers: Markers, beginnings: Beginnings, done: Done) -> None:
        """Try the tables again that are behind the others, but those that begin later than they are."""
        for topic, batch in sorted(markers.behind.items()):
            if not chosen(topic, self._config):
                log.info("The table of %s is left out now: nobody waits for it at batch %d any more.", topic, batch)
                self._retried(lambda connection, topic=topic: self._markers.go_on(connection, topic))
                continue
            if batch < beginnings.before:
                try:
                    after = beginnings.of(topic, batch)
                except BatchesRemoved as e:
                    done.failed[topic] = str(e)
                    continue
                self._go_on_after(topic, batch, after)
                batch = markers.behind[topic] = after
            if batch > markers.batch:
                continue
            for group in self._groups(batch, until=markers.batch, together=topic in self._lost):
                if not self._again(topic, group, batch, done):
                    break
                batch = group.last
            else:
                self._retried(lambda connection, topic=topic: self._markers.go_on(connection, topic))

    def _again(self, topic: str, group: Batches, behind: int, done: Done) -> bool:
        """Apply some batches to one table; whether it took them.

        :param behind: the batch at which it is
        """
        pending = group.of(topic)
        pending = pending and with_room(pending)

        def once(connection: sa.Connection) -> str:
            now = self._markers.hold(connection)
            if now.behind.get(topic) != behind:
                raise Overtaken
            error = refused.get(topic) or (self._table(connection, topic, pending) if pending is not None else "")
            if not error:
                self._markers.stop(connection, topic, group.last, "")
            self._markers.write(connection, now.batch)
            return error

        began = time.monotonic()
        refused = self._prepare([pending] if pending is not None else [])
        error = self._retried(once)
        if error:
            done.failed[topic] = error
        elif pending is not None:
            done.count(pending, self._name(pending), began, self._newest.pop(topic, 0))
        return not error

    def _pending(self, group: Batches, behind: dict[str, int]) -> list[tuple[str, Pending]]:
        found = [(topic, group.of(topic)) for topic in sorted(group.topics) if topic not in behind]
        return [(t, with_room(p)) for t, p in found if p is not None and chosen(t, self._config)]

    def _in_order(self, connection: sa.Connection, topics: Topics) -> Topics:
        """Tables in the order in which they are written; if foreign keys say which one, deletes wait for :meth:`_end_deletes`."""
        refers = references(self._dialect, connection, topics, self._wanted) if self._ordered else {}
        waits = refers and self._config.insert_mode is InsertMode.UPSERT
        self._held = Held(self._dialect) if waits else None
        return ordered(topics, refers)

    def _end_deletes(self, connection: sa.Connection, tables: Sequence[Pending]) -> None:
        """:raises Refused: the database takes them in no order"""
        for pending in reversed(tables if self._held is not None else ()):
            try:
                self._held.end(connection, self._wanted(pending))  # type: ignore[union-attr]
            except sa.exc.DBAPIError as e:
                if self._dialect.transient(e):
                    raise
                raise Refused(
                    f"Rows of {pending.topic} cannot go last; each table is written by itself: {e.orig}"
                ) from e
            except CdcError:
                continue  # its turn has told it

    # -- one table ----------------------------------------------------------------------------------------------------

    def _prepare(self, tables: Sequence[Pending]) -> dict[str, str]:
        """DDL of a database that ends transactions by it.

        :return: topic → why its table cannot be brought up
        """
        failed = dict[str, str]()
        for pending in tables if not self._dialect.DDL_IN_TRANSACTION else ():
            try:
                table = self._wanted(pending)
                with self._engine.begin() as connection:
                    self._dialect.defer(connection)
                    bring_up(self._dialect, connection, table, pending, self._config)
            except CdcError as e:
                failed[pending.topic] = str(e)
            except sa.exc.DBAPIError as e:
                if not self._dialect.transient(e):
                    failed[pending.topic] = f"The table {pending.topic} cannot take a change: {e.orig}"
                log.warning("The table of %s could not be brought up: %s", pending.topic, e)
        return failed

    def _name(self, pending: Pending) -> str:
        return str(name_of(pending.topic, pending.schema, self._config, self.fold))

    def _wanted(self, pending: Pending) -> SinkTable:
        return table_of(pending.topic, pending.schema, self._config, self._dialect.fold)

    def _table(self, connection: sa.Connection, topic: str, pending: Pending) -> str:
        """Apply what is pending to one table; why it could not be done, or nothing.

        What the database refuses in arrays is done again one event after the other: a value that is unique may go from one row to another.
        """
        if not (pending.files or pending.changes):
            return ""
        self._at_work = topic
        try:
            table = self._wanted(pending)
            try:
                self._saved(connection, table, pending, each=False)
            except sa.exc.DBAPIError as e:
                if self._dialect.transient(e):
                    raise
                log.info("%s refuses rows of %s, which are written one by one now: %s", table.name, topic, e.orig)
                self._saved(connection, table, pending, each=True)
        except sa.exc.DBAPIError as e:
            if self._dialect.transient(e):
                raise
            return f"The table {topic} cannot take a change: {e.orig}"
        except DocumentsLost as e:
            self._lost.add(topic)
            return str(e)
        except (TargetError, ConfigError) as e:  # the configuration does not fit this table; it may fit the others
            return str(e)
        return ""

    def _saved(self, connection: sa.Connection, table: SinkTable, pending: Pending, *, each: bool) -> None:
        """Apply what is pending to one table; if that fails, what other tables have got in the transaction stays."""
        if self._held is not None:
            self._held.begin(pending.topic, at_once=each)
        savepoint = connection.begin_nested()
        try:
            if self._dialect.DDL_IN_TRANSACTION:
                there = bring_up(self._dialect, connection, table, pending, self._config)
            else:
                there = brought_up(self._dialect, connection, table)
            self._apply(connection, table, pending, there, each=each)
        except sa.exc.DBAPIError as e:
            # after a deadlock there is nothing left to go back to: the database has undone the whole transaction
            if not self._dialect.transient(e):
                savepoint.rollback()
            raise
        except CdcError:
            savepoint.rollback()
            raise
        savepoint.commit()

    def _apply(
        self, connection: sa.Connection, table: SinkTable, pending: Pending, there: There, *, each: bool
    ) -> None:
        def committed(ms: int) -> None:
            self._newest[table.topic] = max(ms, self._newest.get(table.topic, 0))

        given = (self._changelog, self._connector, pending, table, self._config)
        if (documents := completes(pending, table, self._config)) is not None:
            present = present_in(self._dialect, connection, table, documents)
            whole = Completion(pending, table, documents, present)
            # each step is made before the next one is read: it is read from the table
            for step in steps(*given, each=each, committed=committed, completed=whole):
                self._made(connection, table, step, there, each=each)
            return
        in_order = each or there.takes_others(table) or not windows.fit(pending, table, self._config)
        if not in_order and not self._dialect.refers_to_itself(connection, table.name):
            made = windows.Windows(*given, committed=committed).steps()
        else:
            made = steps(*given, each=each, committed=committed)
        with ahead(made) as coming:
            for step in coming:
                self._made(connection, table, step, there, each=each)

    def _made(self, connection: sa.Connection, table: SinkTable, step: Step, there: There, *, each: bool) -> None:
        try:
            if each and self._config.errors_tolerance is OnError.ALL:
                self._or_kept(connection, table, step, there)
            else:
                self._step(connection, table, step, there)
        except sa.exc.DBAPIError as e:
            if not each or self._dialect.transient(e):
                raise
            raise self._refused(table, step, e) from e

    def _or_kept(self, connection: sa.Connection, table: SinkTable, step: Step, there: There) -> None:
        """Make a step of one event, or keep its row with the errors."""
        savepoint = connection.begin_nested()
        try:
            self._step(connection, table, step, there)
        except sa.exc.DBAPIError as e:
            if self._dialect.transient(e):
                raise
            savepoint.rollback()
            log.warning("%s", self._refused(table, step, e))
            self._errors.keep(connection, table, step, str(e.orig))
        else:
            savepoint.commit()

    def _step(self, connection: sa.Connection, table: SinkTable, step: Step, there: There) -> None:
        if self._held is not None and (step := self._held.take(connection, table, step)) is None:  # type: ignore[assignment]
            return
        match step.what:
            case "empty":
                self._dialect.empty(connection, table)
            case "delete":
                self._dialect.delete(connection, table, step.rows)
            case "move":
                self._dialect.move(connection, table, step.rows)
            case "write" if self._config.insert_mode is InsertMode.INSERT:
                self._dialect.insert(connection, table, step.rows)
            case "write" if self._config.insert_mode is InsertMode.UPDATE:
                self._dialect.update(connection, table, step.rows)
            case _:
                if not (step.new and self._inserted(connection, table, step, there)):
                    self._dialect.upsert(connection, table, step.rows, unique=there.takes_others(table))

    def _inserted(self, connection: sa.Connection, table: SinkTable, step: Step, there: There) -> bool:
        """Insert new rows, which is cheaper than to look whether they are there; whether the table took them."""
        if table.topic in self._not_new or set(there.key) != {field.name for field in table.key}:
            return False
        savepoint = connection.begin_nested()
        try:
            self._dialect.insert(connection, table, step.rows)
        except sa.exc.DBAPIError as e:
            if self._dialect.transient(e):
                raise
            savepoint.rollback()
            self._not_new.add(table.topic)
            return False
        savepoint.commit()
        return True

    def _refused(self, table: SinkTable, step: Step, error: sa.exc.DBAPIError) -> TargetError:
        there = step.rows.column_names if step.rows.num_rows else []
        names = [one.name for one in table.key if one.name in there] or there
        shown = ", ".join(f"{name}={texts.shown(step.rows[name])[:80]}" for name in names)
        return TargetError(
            f"{table.name} cannot take a row: {error.orig}",
            where=f"topic {table.topic}, event {int(step.seq[0])}, row with {shown}",
            safe="The table has everything up to the batch before; other tables go on.",
            remedy="mend the row or the table, then run the apply again: it goes on with this batch",
        )

    # -- transactions -------------------------------------------------------------------------------------------------

    def _in_transaction(self, what: Any) -> Any:
        with self._engine.begin() as connection:
            self._dialect.defer(connection)
            return what(connection)

    def _retried(self, what: Any) -> Any:
        """A transaction that is tried again after what passes: deadlocks, lost connections."""
        for attempt in range(self._config.flush_max_retries + 1):
            try:
                return self._in_transaction(what)
            except sa.exc.DBAPIError as e:
                if not self._dialect.transient(e):
                    raise
                if attempt == self._config.flush_max_retries:
                    raise unavailable(self._engine, e) from e
                log.warning("The transaction is tried again (%d): %s", attempt + 1, e.orig)
                time.sleep(self._config.flush_retry_delay_ms / 1000 * (attempt + 1))
        raise AssertionError("unreachable")

    def _failed(self, done: Done) -> TargetError:
        lines = [f"{topic}: {why}" for topic, why in sorted(done.failed.items())]
        return TargetError(
            f"{len(lines)} of the tables of {self._connector} stay behind:\n" + "\n".join(lines),
            safe=f"All others are at batch {done.batch}.",
            remedy="mend what each one says, then run the apply again",
        )
