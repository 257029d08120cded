"""The sink for loads that outgrow one machine: workers fill staging tables, and one transaction takes their rows, with the marker, as :mod:`airflow_provider_cdc.targets.database.apply.database_apply` has it.

It knows no Spark: who runs the workers is given (:data:`Workers`). What cannot be staged, and what is too little for it, is written as without workers, in the same
transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.partial_updates import partial
from airflow_provider_cdc.changelog.reading.pending_batches import Batches, Pending
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.database.apply.database_apply import Sink
from airflow_provider_cdc.targets.database.apply.foreign_key_order import Topics
from airflow_provider_cdc.targets.database.apply.run_result import Done
from airflow_provider_cdc.targets.database.config import InsertMode, PrimaryKeyMode, SinkConfig
from airflow_provider_cdc.targets.database.dialects.dialect import There
from airflow_provider_cdc.targets.database.events.event_reader import files_of, newest_commit, width
from airflow_provider_cdc.targets.database.events.key_changes import changes_key
from airflow_provider_cdc.targets.database.events.type_changes import changes_types
from airflow_provider_cdc.targets.database.parallel.staging_workers import (
    Part,
    Run,
    Share,
    StagedTable,
    TopicWork,
    Work,
    digest_of,
    leftovers,
    staging_dialect,
)
from airflow_provider_cdc.targets.database.progress.markers import Markers, Overtaken
from airflow_provider_cdc.targets.database.schema.target_table import SinkTable

log = logging.getLogger(__name__)

GROUP_BYTES, GROUP_BATCHES = 4 << 30, 5000
"""A transaction has the batches of about so many bytes of change log, or so many of them."""
_GONE = 3
"""How often a group is staged again as its staging tables are not what was written."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is worth workers, and how it is parted.

    :param little: a topic with fewer bytes of change log is written by the driver
    :param share: bytes of change log that a worker reads
    :param partition: bytes that one writes, as Arrow has them; it needs about three times as much memory
    """

    little: int = 4 << 20
    share: int = 8 << 20
    partition: int = 32 << 20


Workers = Callable[[Work, Sequence[Share]], list[Part]]
"""Runs :func:`~airflow_provider_cdc.targets.database.parallel.staging_workers.read_share` for shares, and :func:`~airflow_provider_cdc.targets.database.parallel.staging_workers.write_partition` for partitions: one result of each
partition, whatever tries of it there were."""


class Unstaged(Overtaken):
    """A staging table is gone, or has other rows than were written, as after a crash of the database: the group is staged again."""


class StagedSink(Sink):
    """As :class:`~airflow_provider_cdc.targets.database.apply.database_apply.Sink`, with workers.

    :param options: of the change log's storage, for the workers
    :param workers: runs them
    :param parallel: how many there are
    :param noted: as of :class:`~airflow_provider_cdc.targets.database.apply.database_apply.Sink`
    :raises ConfigError: the database is of a kind that has no staging tables
    """

    def __init__(
        self,
        engine: sa.Engine,
        config: SinkConfig,
        changelog: ChangeLog,
        connector: str,
        workers: Workers,
        *,
        options: dict[str, Any] | None = None,
        parallel: int = 2,
        sizes: Sizes | None = None,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(engine, config, changelog, connector, noted=noted)
        self._stages = staging_dialect(self._dialect)
        self._workers, self._parallel, self._sizes = workers, parallel, sizes or Sizes()
        self._options, self._sink = dict(options or {}), digest_of(connector, config)
        self._ahead = dict[str, list[Part]]()
        self._unstaged, self._used, self._tidy = 0, False, False

    def _all(self, done: Done) -> None:
        if not self._tidy:
            self._drop(self._retried(self._markers.read).batch)
        super()._all(done)

    def _in_order(self, connection: sa.Connection, topics: Topics) -> Topics:
        # rows that go are staged with those that come
        return super()._in_order(connection, topics) if self._at_once else topics

    def _full(self, size: int, batches: int) -> bool:
        return size >= GROUP_BYTES or batches >= GROUP_BATCHES

    def _group(self, group: Batches, markers: Markers, done: Done) -> Markers:
        run, self._used = Run(self._sink, markers.batch, uuid4().hex[:6]), False
        try:
            self._ahead = self._staged(group, markers, run)
            after = super()._group(group, markers, done)
        except Unstaged as e:
            self._unstaged += 1
            if self._unstaged > _GONE:
                raise CdcError(
                    f"Staging tables are not what was written, {self._unstaged} times in a row: {e}",
                    safe="The tables have every batch up to the one that their marker names.",
                    remedy="see whether the database restarts all the time, or somebody drops its tables; then run the apply again",
                ) from e
            log.warning("The batches after %d are staged again: %s", markers.batch, e)
            raise
        finally:
            self._ahead = {}
            if self._used:
                self._drop(markers.batch, run)
        self._unstaged = 0
        if self._used or not self._tidy:
            # tables of a killed run, which might have been of one that was alive until the marker moved on
            self._drop(after.batch)
            self._tidy = True
        return after

    # -- staging ------------------------------------------------------------------------------------------------------

    def _staged(self, group: Batches, markers: Markers, run: Run) -> dict[str, list[Part]]:
        """Have workers stage what can be staged.

        :return: topic → what was staged
        :raises Overtaken: another run was faster
        """
        topics, shares, little = dict[str, TopicWork](), list[Share](), 0
        for topic, pending in self._pending(group, markers.behind):
            if pending.bytes < self._sizes.little:
                little += 1
            elif why := self._why_not(pending):
                log.info("The driver writes %s by itself: %s.", topic, why)
            elif (one := self._work(pending, sum(topic.partitions for topic in topics.values()))) is not None:
                topics[topic] = one
                shares += self._shares(pending, one)
        if little:
            log.info("The driver writes %d tables by itself: they have little.", little)
        if not topics:
            return {}
        work_ = Work(run, self._connector, self._changelog.storage.url, self._options, self._config, topics)
        self._at_work = f"{len(topics)} tables by {work_.partitions} tasks"
        log.info("Batches up to %d: %s tables are staged by %d tasks.", group.last, len(topics), work_.partitions)
        self._used = True
        try:
            parts = self._workers(work_, shares)
        except Exception:
            if self._retried(self._markers.read).batch != markers.batch:
                raise Overtaken from None  # whoever was faster has dropped the tables of these workers
            raise
        return self._complete(work_, shares, parts)

    def _why_not(self, pending: Pending) -> str:
        """Why a topic cannot be staged; empty if it can."""
        config = self._config
        if partial(pending) is not None:
            return "updates say what has changed of its documents, which is applied to those in the table"
        if config.insert_mode is not InsertMode.UPSERT:
            return f"insert.mode={config.insert_mode} needs every event"
        if config.primary_key_mode not in (PrimaryKeyMode.RECORD_KEY, PrimaryKeyMode.RECORD_VALUE):
            return f"primary.key.mode={config.primary_key_mode} makes a row of each event"
        if changes_key(pending, config):
            return "its key changes"
        return ""

    def _work(self, pending: Pending, first: int) -> TopicWork | None:
        """What workers have to do for a topic; ``None`` if they have nothing to do, or its turn in the transaction is to tell what is wrong with it."""
        try:
            table = self._wanted(pending)
            if changes_types(pending, table):
                log.info("The driver writes %s by itself: columns get other types.", pending.topic)
                return None
            files = files_of(pending)
            size = int(width(self._changelog, self._connector, pending, table) * sum(file.rows for file in files))
        except Exception as e:
            log.info("The driver writes %s by itself: %s", pending.topic, e)
            return None
        after = pending.taken[0] if pending.taken is not None and self._config.truncate_enabled else 0
        if files[-1].last_seq <= after:  # all of them are of the table before
            return None
        few = min(self._parallel, pending.bytes // self._sizes.little + 1)
        partitions = max(size // self._sizes.partition + 1, few)
        return TopicWork(replace(pending, files=[]), table, after, first, partitions)

    def _shares(self, pending: Pending, work: TopicWork) -> Iterator[Share]:
        for file in files_of(pending):
            if file.last_seq > work.after:
                of = file.bytes // self._sizes.share + 1
                yield from (Share(pending.topic, file, number, of) for number in range(of))

    def _complete(self, work: Work, shares: Sequence[Share], parts: Sequence[Part]) -> dict[str, list[Part]]:
        """What was staged of each topic.

        :raises CdcError: not every event has come to where it belongs
        """
        found: dict[str, list[Part]] = {topic: [] for topic in work.topics}
        for part in parts:
            found[part.topic].append(part)
        for topic, some in list(found.items()):
            if why := next((part.why_not for part in some if part.why_not), ""):
                log.info("The driver writes %s by itself: %s", topic, why)
                del found[topic]
                continue
            events = sum(share.file.rows for share in shares if share.topic == topic and share.number == 0)
            if [part.events for part in some] != [events] * work.topics[topic].partitions:
                raise CdcError(
                    f"Of {events} events of {topic}, workers have seen {sorted({part.events for part in some})}, in {len(some)} partitions.",
                    safe="No table was changed.",
                    remedy="run the apply again; if it comes back, apply without Spark and report it",
                )
        return found

    # -- the transaction ----------------------------------------------------------------------------------------------

    def _apply(
        self, connection: sa.Connection, table: SinkTable, pending: Pending, there: There, *, each: bool
    ) -> None:
        parts = self._ahead.get(pending.topic)
        if parts is None or each:
            super()._apply(connection, table, pending, there, each=each)
            return
        tables = [one for part in parts for one in part.tables]
        for one in tables:
            self._check(connection, one)
        begun = pending.taken is not None and self._config.truncate_enabled
        if begun or any(part.emptied for part in parts):
            self._empty(connection, table)
        # first what goes, so that what was unique to it may come again
        for one in (one for one in tables if one.what == "delete"):
            self._stages.delete_staged(connection, table, one.name)
        for one in (one for one in tables if one.what == "write"):
            self._stages.write_staged(connection, table, one.name, one.columns, unique=there.takes_others(table))
        self._newest[pending.topic] = newest_commit(self._changelog, self._connector, pending)

    def _check(self, connection: sa.Connection, staged: StagedTable) -> None:
        """:raises Unstaged: it has other rows than were written"""
        try:
            rows = self._stages.staged_rows(connection, staged.name)
        except sa.exc.DBAPIError as e:
            if self._dialect.transient(e):
                raise
            raise Unstaged(f"{staged.name} cannot be read: {e.orig}") from e
        if rows != staged.rows:
            raise Unstaged(f"{staged.name} has {rows} rows, and {staged.rows} were written.")

    def _drop(self, batch: int, run: Run | None = None) -> None:
        """Drop staging tables of this sink: those that are of no use to anybody, or those of a run.

        :param batch: that the marker has
        """
        try:
            with self._engine.connect() as connection:
                if run is None:
                    names = leftovers(self._stages, connection, self._sink, batch)
                else:
                    names = [one for one in self._stages.staged(connection, run.prefix) if Run.of(one) == run]
        except sa.exc.DBAPIError as e:
            log.warning("Staging tables cannot be looked for: %s. The next run drops them.", e.orig)
            return
        for name in names:
            try:
                with self._engine.begin() as connection:
                    self._stages.unstage(connection, name)
            except sa.exc.DBAPIError as e:
                log.warning("The staging table %s cannot be dropped: %s. The next run does it.", name, e.orig)
