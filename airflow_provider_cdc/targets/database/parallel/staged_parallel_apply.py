"""The sink for loads that outgrow one machine: workers fill staging tables, and one transaction takes their rows, with the marker, as :mod:`airflow_provider_cdc.targets.database.apply.database_apply` has it.

It knows no Spark: the caller passes the workers (:data:`Workers`). Topics that cannot be staged, or have too few changes for it, are written
as without workers, in the same transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.partial_document_updates import find_partial_documents
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.targets.database.apply.apply_result import DatabaseApplyResult
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.apply.foreign_key_order import Topics
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode, PrimaryKeyMode
from airflow_provider_cdc.targets.database.dialects.target_dialect import ExistingTable
from airflow_provider_cdc.targets.database.events.event_reader import estimate_row_bytes, files_of, newest_commit
from airflow_provider_cdc.targets.database.events.key_redefinitions import changes_key
from airflow_provider_cdc.targets.database.events.outdated_type_events import changes_types
from airflow_provider_cdc.targets.database.parallel.staging_workers import (
    FileShare,
    StagedPartition,
    StagedTable,
    StagingRun,
    StagingWork,
    TopicStaging,
    digest_of,
    list_stale_tables,
    staging_dialect,
)
from airflow_provider_cdc.targets.database.progress.marker_table import DatabaseMarkers, MarkersChanged
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable

log = logging.getLogger(__name__)

GROUP_BYTES, GROUP_BATCHES = 4 << 30, 5000
"""A transaction has the batches of about so many bytes of change log, or so many of them."""
_GONE = 3
"""How often a group is staged again because its staging tables differ from the written rows."""


@dataclass(frozen=True, slots=True)
class StagingSizes:
    """Sizes from which on workers are worthwhile, and sizes of their parts.

    :param little: a topic with fewer bytes of change log is written by the driver
    :param share: bytes of change log that a worker reads
    :param partition: bytes that one writes, as Arrow has them; it needs about three times as much memory
    """

    little: int = 4 << 20
    share: int = 8 << 20
    partition: int = 32 << 20


Workers = Callable[[StagingWork, Sequence[FileShare]], list[StagedPartition]]
"""Runs :func:`~airflow_provider_cdc.targets.database.parallel.staging_workers.read_share` for shares, and :func:`~airflow_provider_cdc.targets.database.parallel.staging_workers.write_partition` for partitions: one result of each
partition, whatever tries of it there were."""


class StagingTableLost(MarkersChanged):
    """A staging table is gone, or has other rows than were written, as after a crash of the database: the group is staged again."""


class StagedDatabaseApply(DatabaseApply):
    """The apply of :class:`~airflow_provider_cdc.targets.database.apply.database_apply.DatabaseApply`, with workers.

    :param options: of the change log's storage, for the workers
    :param workers: runs them
    :param parallel: how many there are
    :param noted: as of :class:`~airflow_provider_cdc.targets.database.apply.database_apply.DatabaseApply`
    :raises ConfigError: the database is of a kind that has no staging tables
    """

    def __init__(
        self,
        engine: sa.Engine,
        config: DatabaseTargetConfig,
        changelog: ChangeLog,
        connector: str,
        workers: Workers,
        *,
        options: dict[str, Any] | None = None,
        parallel: int = 2,
        sizes: StagingSizes | None = None,
        noted: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(engine, config, changelog, connector, noted=noted)
        self._stages = staging_dialect(self._dialect)
        self._workers, self._parallel, self._sizes = workers, parallel, sizes or StagingSizes()
        self._options, self._sink = dict(options or {}), digest_of(connector, config)
        self._ahead = dict[str, list[StagedPartition]]()
        self._unstaged, self._used, self._tidy = 0, False, False

    def _all(self, done: DatabaseApplyResult) -> None:
        if not self._tidy:
            self._drop(self._retried(self._markers.read).batch)
        super()._all(done)

    def _in_order(self, connection: sa.Connection, topics: Topics) -> Topics:
        # rows that go are staged with those that come
        return super()._in_order(connection, topics) if self._at_once else topics

    def _full(self, size: int, batches: int) -> bool:
        return size >= GROUP_BYTES or batches >= GROUP_BATCHES

    def _group(self, group: BatchesByTopic, markers: DatabaseMarkers, done: DatabaseApplyResult) -> DatabaseMarkers:
        run, self._used = StagingRun(self._sink, markers.batch, uuid4().hex[:6]), False
        try:
            self._ahead = self._staged(group, markers, run)
            after = super()._group(group, markers, done)
        except StagingTableLost as e:
            self._unstaged += 1
            if self._unstaged > _GONE:
                raise CdcError(
                    f"The staging tables did not contain the written rows, {self._unstaged} times in a row: {e}",
                    safe="The tables are complete up to the batch of their marker.",
                    remedy="check whether the database keeps restarting, or another process drops its tables; then run the apply again",
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

    def _staged(
        self, group: BatchesByTopic, markers: DatabaseMarkers, run: StagingRun
    ) -> dict[str, list[StagedPartition]]:
        """Have workers stage the topics that can be staged.

        :return: topic → its staged partitions
        :raises Overtaken: another run was faster
        """
        topics, shares, little = dict[str, TopicStaging](), list[FileShare](), 0
        for topic, pending in self._pending(group, markers.behind):
            if pending.file_bytes < self._sizes.little:
                little += 1
            elif why := self._why_not(pending):
                log.info("The driver writes %s without staging: %s.", topic, why)
            elif (staging := self._work(pending, sum(topic.partitions for topic in topics.values()))) is not None:
                topics[topic] = staging
                shares += self._shares(pending, staging)
        if little:
            log.info("The driver writes %d tables without staging: they have few changes.", little)
        if not topics:
            return {}
        work_ = StagingWork(run, self._connector, self._changelog.storage.url, self._options, self._config, topics)
        self._at_work = f"{len(topics)} tables in {work_.partition_count} tasks"
        log.info("Batches up to %d: %s tables are staged by %d tasks.", group.last, len(topics), work_.partition_count)
        self._used = True
        try:
            parts = self._workers(work_, shares)
        except Exception:
            if self._retried(self._markers.read).batch != markers.batch:
                raise MarkersChanged from None  # the faster run has dropped the tables of these workers
            raise
        return self._complete(work_, shares, parts)

    def _why_not(self, pending: PendingBatches) -> str:
        """Return why a topic cannot be staged; empty if it can."""
        config = self._config
        if find_partial_documents(pending) is not None:
            return "its events are partial document updates, which need the documents in the table"
        if config.insert_mode is not InsertMode.UPSERT:
            return f"insert.mode={config.insert_mode} needs every event"
        if config.primary_key_mode not in (PrimaryKeyMode.RECORD_KEY, PrimaryKeyMode.RECORD_VALUE):
            return f"primary.key.mode={config.primary_key_mode} creates a row for each event"
        if changes_key(pending, config):
            return "its key changes"
        return ""

    def _work(self, pending: PendingBatches, first: int) -> TopicStaging | None:
        """Build the work for a topic.

        ``None`` if workers have nothing to do, or if its turn in the transaction is to report its problem.
        """
        try:
            table = self._target_table(pending)
            if changes_types(pending, table):
                log.info("The driver writes %s without staging: columns get other types.", pending.topic)
                return None
            files = files_of(pending)
            size = int(
                estimate_row_bytes(self._changelog, self._connector, pending, table) * sum(file.rows for file in files)
            )
        except Exception as e:
            log.info("The driver writes %s without staging: %s", pending.topic, e)
            return None
        after = pending.name_takeover[0] if pending.name_takeover is not None and self._config.truncate_enabled else 0
        if files[-1].last_seq <= after:  # all of them are of the table before
            return None
        few = min(self._parallel, pending.file_bytes // self._sizes.little + 1)
        partitions = max(size // self._sizes.partition + 1, few)
        return TopicStaging(replace(pending, files=[]), table, after, first, partitions)

    def _shares(self, pending: PendingBatches, work: TopicStaging) -> Iterator[FileShare]:
        for file in files_of(pending):
            if file.last_seq > work.after:
                of = file.bytes // self._sizes.share + 1
                yield from (FileShare(pending.topic, file, number, of) for number in range(of))

    def _complete(
        self, work: StagingWork, shares: Sequence[FileShare], parts: Sequence[StagedPartition]
    ) -> dict[str, list[StagedPartition]]:
        """Collect the staged partitions of each topic.

        :raises CdcError: an event has not come to its partition
        """
        by_topic: dict[str, list[StagedPartition]] = {topic: [] for topic in work.topics}
        for part in parts:
            by_topic[part.topic].append(part)
        for topic, some in list(by_topic.items()):
            if why := next((part.why_not for part in some if part.why_not), ""):
                log.info("The driver writes %s without staging: %s", topic, why)
                del by_topic[topic]
                continue
            events = sum(share.file.rows for share in shares if share.topic == topic and share.number == 0)
            if [part.events for part in some] != [events] * work.topics[topic].partitions:
                raise CdcError(
                    f"The workers have read {sorted({part.events for part in some})} of {events} events of {topic}, in {len(some)} partitions.",
                    safe="No table was changed.",
                    remedy="run the apply again; if the error persists, apply without Spark and report the error",
                )
        return by_topic

    # -- the transaction ----------------------------------------------------------------------------------------------

    def _apply(
        self,
        connection: sa.Connection,
        table: DatabaseTargetTable,
        pending: PendingBatches,
        there: ExistingTable,
        *,
        each: bool,
    ) -> None:
        parts = self._ahead.get(pending.topic)
        if parts is None or each:
            super()._apply(connection, table, pending, there, each=each)
            return
        tables = [staged for part in parts for staged in part.tables]
        for staged in tables:
            self._check(connection, staged)
        begun = pending.name_takeover is not None and self._config.truncate_enabled
        if begun or any(part.emptied for part in parts):
            self._empty(connection, table)
        # deletes first, so that their unique values may come again
        for staged in (staged for staged in tables if staged.action == "delete"):
            self._stages.delete_staged(connection, table, staged.name)
        for staged in (staged for staged in tables if staged.action == "write"):
            self._stages.write_staged(connection, table, staged.name, staged.columns, unique=there.takes_others(table))
        self._newest[pending.topic] = newest_commit(self._changelog, self._connector, pending)

    def _check(self, connection: sa.Connection, staged: StagedTable) -> None:
        """Check the number of rows of a staging table.

        :raises Unstaged: it has other rows than were written
        """
        try:
            rows = self._stages.staged_rows(connection, staged.name)
        except sa.exc.DBAPIError as e:
            if self._dialect.is_transient(e):
                raise
            raise StagingTableLost(f"{staged.name} cannot be read: {e.orig}") from e
        if rows != staged.rows:
            raise StagingTableLost(f"{staged.name} has {rows} rows, but {staged.rows} were written.")

    def _drop(self, batch: int, run: StagingRun | None = None) -> None:
        """Drop staging tables of this sink: those that no run can use any more, or those of a run.

        :param batch: that the marker has
        """
        try:
            with self._engine.connect() as connection:
                if run is None:
                    names = list_stale_tables(self._stages, connection, self._sink, batch)
                else:
                    names = [
                        name
                        for name in self._stages.list_staging_tables(connection, run.table_prefix)
                        if StagingRun.from_table_name(name) == run
                    ]
        except sa.exc.DBAPIError as e:
            log.warning("Staging tables cannot be listed: %s. The next run drops them.", e.orig)
            return
        for name in names:
            try:
                with self._engine.begin() as connection:
                    self._stages.drop_staging_table(connection, name)
            except sa.exc.DBAPIError as e:
                log.warning("The staging table %s cannot be dropped: %s. The next run drops it.", name, e.orig)
