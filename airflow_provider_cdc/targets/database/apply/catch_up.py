"""Tables that are behind the others: they are tried again, and go on with the others when they are where these are."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.reading.pending_batches import Batches, Pending
from airflow_provider_cdc.core.errors import BatchesRemoved, CdcError
from airflow_provider_cdc.targets.database.apply.run_result import Done
from airflow_provider_cdc.targets.database.apply.start_batches import Beginnings
from airflow_provider_cdc.targets.database.apply.table_pauses import Pauses
from airflow_provider_cdc.targets.database.apply.table_writer import Alone, TableWriter
from airflow_provider_cdc.targets.database.progress.markers import Markers, MarkerTable, Overtaken
from airflow_provider_cdc.targets.database.schema.topic_filter import chosen
from airflow_provider_cdc.targets.database.schema.type_promotion import with_room

log = logging.getLogger(__name__)


class CatchUp(TableWriter, abc.ABC):
    """Brings tables that are behind up to the others, each in transactions of its own."""

    _markers: MarkerTable
    _pauses: Pauses

    @abc.abstractmethod
    def _groups(self, after: int, until: int | None = None, *, together: bool = False) -> Iterator[Batches]:
        """The batches after one, as many together as one transaction has."""

    def _begin(self, markers: Markers, beginnings: Beginnings, done: Done) -> Markers:
        """Begin with the first batch that is kept, if tables need those before it that were removed: whoever can do that, and no other.

        :raises Overtaken: another run was faster
        """
        before = beginnings.before
        if markers.batch >= before:
            return markers
        later, failed = beginnings.all(markers.batch, markers.behind)

        def once(connection: sa.Connection) -> None:
            now = self._markers.hold(connection)
            if (now.batch, now.behind) != (markers.batch, markers.behind):
                raise Overtaken
            for topic, after in later.items():
                self._markers.stop(connection, topic, after, "")
            for topic, error in failed.items():
                self._markers.stop(connection, topic, markers.batch, error)
            self._markers.write(connection, before, "")

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
                self._go_on(topic, batch)
                continue
            if why := self._pauses.why(topic):
                done.failed[topic] = why
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
                self._go_on(topic, batch, of=markers.batch)

    def _go_on(self, topic: str, batch: int, *, of: int | None = None) -> None:
        """Have a table go on with the others.

        :param batch: at which it is
        :param of: the batch of the others; wherever they are if nothing is said
        :raises Overtaken: another run has moved it, or the others
        """

        def once(connection: sa.Connection) -> None:
            now = self._markers.hold(connection)
            if now.behind.get(topic) != batch or of not in (None, now.batch):
                raise Overtaken
            self._markers.go_on(connection, topic)
            self._markers.write(connection, now.batch)

        self._retried(once)

    def _again(self, topic: str, group: Batches, behind: int, done: Done) -> bool:
        """Apply some batches to one table; whether it took them.

        :param behind: the batch at which it is
        """
        pending = group.of(topic)
        pending = pending and roomy(pending)

        def once(connection: sa.Connection) -> str:
            now = self._markers.hold(connection)
            if now.behind.get(topic) != behind:
                raise Overtaken
            error = refused.get(topic) or (self._table(connection, topic, pending) if pending is not None else "")
            if not error:
                self._markers.stop(connection, topic, group.last, "", group.writers[group.last])
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
            done.count(pending, self._name(pending), began, self._newest.pop(topic, 0))
        return not error

    def _alone(self, unchanged: Callable[[Markers], bool]) -> Alone:
        """
        :param unchanged: whether markers are still those by which it is done
        """

        def alone(what: Callable[[sa.Connection], None]) -> None:
            def held(connection: sa.Connection) -> None:
                if not unchanged(now := self._markers.hold(connection)):
                    raise Overtaken
                what(connection)
                self._markers.write(connection, now.batch)

            self._retried(held)

        return alone

    def _looked_at(self, once: Callable[[sa.Connection], Any]) -> Any:
        """A transaction that is tried again if a constraint refuses it when it ends: then with constraints that are looked at with each statement, by which it is known
        whose rows they refuse."""
        try:
            return self._retried(once)
        except sa.exc.DBAPIError as e:
            if not self._dialect.AT_ONCE:
                raise
            log.info("The database refuses the transaction as a whole, and it is made again table by table: %s", e.orig)
        self._at_once = True
        try:
            return self._retried(once)
        finally:
            self._at_once = False


def roomy(pending: Pending) -> Pending:
    """As :func:`with_room`, of what can be read; what cannot is told when its turn comes."""
    try:
        return with_room(pending)
    except CdcError:
        return pending
