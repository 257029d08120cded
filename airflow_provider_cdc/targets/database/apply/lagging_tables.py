"""Retries of tables that are behind the others. A table continues with the others when it is where they are."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import BatchesRemoved, CdcError
from airflow_provider_cdc.targets.database.apply.apply_result import DatabaseApplyResult
from airflow_provider_cdc.targets.database.apply.start_batches import StartBatches
from airflow_provider_cdc.targets.database.apply.table_pauses import TablePauses
from airflow_provider_cdc.targets.database.apply.table_writer import Alone, TableWriter
from airflow_provider_cdc.targets.database.progress.marker_table import DatabaseMarkers, MarkersChanged, MarkerTable
from airflow_provider_cdc.targets.database.schema.batch_common_types import with_room
from airflow_provider_cdc.targets.database.schema.topic_filter import is_topic_selected

log = logging.getLogger(__name__)


class LaggingTableWriter(TableWriter, abc.ABC):
    """Brings tables that are behind up to the others, each table in separate transactions."""

    _markers: MarkerTable
    _pauses: TablePauses

    @abc.abstractmethod
    def _groups(self, after: int, until: int | None = None, *, together: bool = False) -> Iterator[BatchesByTopic]:
        """Yield the batches after one, as many together as one transaction has."""

    def _begin(self, markers: DatabaseMarkers, beginnings: StartBatches, done: DatabaseApplyResult) -> DatabaseMarkers:
        """Start with the first batch that is kept, if tables need removed batches before it: those that can, and no others.

        :raises Overtaken: another run was faster
        """
        before = beginnings.last_removed_batch
        if markers.batch >= before:
            return markers
        later, failed = beginnings.find_late_starts(markers.batch, markers.behind)

        def once(connection: sa.Connection) -> None:
            now = self._markers.lock_and_read(connection)
            if (now.batch, now.behind) != (markers.batch, markers.behind):
                raise MarkersChanged
            for topic, after in later.items():
                self._markers.store_lagging_table(connection, topic, after, "")
            for topic, error in failed.items():
                self._markers.store_lagging_table(connection, topic, markers.batch, error)
            self._markers.write(connection, before, "")

        self._retried(once)
        log.info("The tables of %s begin after batch %d: the earlier batches were removed.", self._connector, before)
        done.failed |= failed
        return DatabaseMarkers(before, {**markers.behind, **later, **dict.fromkeys(failed, markers.batch)})

    def _go_on_after(self, topic: str, batch: int, after: int) -> None:
        """Let a table that is behind continue after a later batch.

        :raises Overtaken: another run was faster
        """

        def once(connection: sa.Connection) -> None:
            now = self._markers.lock_and_read(connection)
            if now.behind.get(topic) != batch:
                raise MarkersChanged
            self._markers.store_lagging_table(connection, topic, after, "")
            self._markers.write(connection, now.batch)

        self._retried(once)

    def _catch_up(self, markers: DatabaseMarkers, beginnings: StartBatches, done: DatabaseApplyResult) -> None:
        """Try the tables again that are behind the others, but those that begin later than they are."""
        for topic, batch in sorted(markers.behind.items()):
            if not is_topic_selected(topic, self._config):
                log.info("The table of %s is now left out; it no longer waits at batch %d.", topic, batch)
                self._go_on(topic, batch)
                continue
            if why := self._pauses.find_skip_reason(topic):
                done.failed[topic] = why
                continue
            if batch < beginnings.last_removed_batch:
                try:
                    after = beginnings.compute_start_batch(topic, batch)
                except BatchesRemoved as e:
                    done.failed[topic] = describe_error(e)
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
                self._go_on(topic, batch, of=markers.batch)

    def _go_on(self, topic: str, batch: int, *, of: int | None = None) -> None:
        """Let a table continue with the others.

        :param batch: at which it is
        :param of: the batch of the others; their present one by default
        :raises Overtaken: another run has moved it, or the others
        """

        def once(connection: sa.Connection) -> None:
            now = self._markers.lock_and_read(connection)
            if now.behind.get(topic) != batch or of not in (None, now.batch):
                raise MarkersChanged
            self._markers.go_on(connection, topic)
            self._markers.write(connection, now.batch)

        self._retried(once)

    def _again(self, topic: str, group: BatchesByTopic, behind: int, done: DatabaseApplyResult) -> bool:
        """Apply some batches to one table; whether it took them.

        :param behind: the batch at which it is
        """
        pending = group.merge_parts(topic)
        pending = pending and widen_if_readable(pending)

        def once(connection: sa.Connection) -> str:
            now = self._markers.lock_and_read(connection)
            if now.behind.get(topic) != behind:
                raise MarkersChanged
            error = refused.get(topic) or (self._table(connection, topic, pending) if pending is not None else "")
            if not error:
                self._markers.store_lagging_table(connection, topic, group.last, "", group.writers[group.last])
            self._markers.write(connection, now.batch)
            return error

        began = time.monotonic()
        self._claim([pending] if pending is not None else [])
        refused = self._prepare(
            [pending] if pending is not None else [], self._alone(lambda now: now.behind.get(topic) == behind)
        )
        self._gives_up = True  # the others have waited for it before
        try:
            error = self._looked_at(once)
        finally:
            self._gives_up = False
        if error:
            done.failed[topic] = error
        elif pending is not None:
            done.record_table(pending, self._name(pending), began, self._newest.pop(topic, 0))
        return not error

    def _alone(self, unchanged: Callable[[DatabaseMarkers], bool]) -> Alone:
        """
        :param unchanged: whether markers are still those by which it is done
        """

        def alone(action: Callable[[sa.Connection], None]) -> None:
            def held(connection: sa.Connection) -> None:
                if not unchanged(now := self._markers.lock_and_read(connection)):
                    raise MarkersChanged
                action(connection)
                self._markers.write(connection, now.batch)

            self._retried(held)

        return alone

    def _looked_at(self, once: Callable[[sa.Connection], Any]) -> Any:
        """Run a transaction, and run it again with immediate constraint checks if a constraint refuses it when it ends.

        The second try checks constraints with each statement, which shows whose rows they reject.
        """
        try:
            return self._retried(once)
        except sa.exc.DBAPIError as e:
            if not self._dialect.AT_ONCE:
                raise
            log.info("The database rejects the whole transaction, which is repeated table by table: %s", e.orig)
        self._at_once = True
        try:
            return self._retried(once)
        finally:
            self._at_once = False


def widen_if_readable(pending: PendingBatches) -> PendingBatches:
    """Apply :func:`with_room` if the batches can be read; otherwise, the turn of the table reports the error."""
    try:
        return with_room(pending)
    except CdcError:
        return pending
