"""Offsets by compare-and-set, with the rows that are committed together with them: batches, schema changes, notifications."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from airflow_provider_cdc.core.errors import CommitConflict, CommitStateUnknown, StateUnavailable
from airflow_provider_cdc.core.model.batch_manifest import Manifest, SignalOutcome
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.spi.state_records import BatchRecord, OffsetRecord
from airflow_provider_cdc.core.spi.store_interfaces import Lease, StoredOffset
from airflow_provider_cdc.state.leases import Leases
from airflow_provider_cdc.state.models import BatchRow, OffsetHistoryRow, OffsetRow, SchemaHistoryRow
from airflow_provider_cdc.state.notifications import record_notifications
from airflow_provider_cdc.state.offset_table_states import has_tables, split_document, whole_offsets
from airflow_provider_cdc.state.offset_table_states import record_states as record_tables
from airflow_provider_cdc.state.signals import record_signal_state
from airflow_provider_cdc.state.state_database import StateDatabase, to_storable_text


class Offsets:
    """Moves offsets, with everything that is committed together with them."""

    def __init__(self, database: StateDatabase, leases: Leases) -> None:
        self._database, self._leases = database, leases

    def load(self, connector: str) -> StoredOffset:
        for attempt in self._database.iterate_attempts("load the offset"):
            with attempt, self._database.engine.connect() as c:
                row = c.execute(
                    sa.select(OffsetRow.offset, OffsetRow.version).where(OffsetRow.connector == connector)
                ).one_or_none()
                if row is None:
                    return StoredOffset(None, 0)
                version = row.version
                offsets = whole_offsets(c, connector, {version: row.offset})
        return StoredOffset(offsets[version], version)

    def commit(self, lease: Lease, expected: StoredOffset, manifest: Manifest, manifest_path: str) -> StoredOffset:
        return self._move(
            lease, expected, manifest.offset_after, f"batch {manifest.batch}", manifest, manifest_path,
            manifest.notifications, manifest.signal_outcomes,
        )  # fmt: skip

    def advance(
        self,
        lease: Lease,
        expected: StoredOffset,
        offset: Offset,
        notifications: Sequence[Notification] = (),
        signal_outcomes: Sequence[SignalOutcome] = (),
    ) -> StoredOffset:
        return self._move(
            lease, expected, offset, "nothing to capture", notifications=notifications, signal_outcomes=signal_outcomes
        )

    def replace(self, lease: Lease, expected: StoredOffset, offset: Offset, reason: str) -> StoredOffset:
        """Replace the offset with another one, as a person has asked. Raises like :meth:`commit`.

        The offset before stays in :meth:`list_history`.

        :param reason: who asked for it, and why
        """
        return self._move(lease, expected, offset, to_storable_text(reason, 250))

    def list_history(self, connector: str, limit: int = 50, *, version: int | None = None) -> list[OffsetRecord]:
        """Offsets that a connector has had, newest first.

        :param version: only this one
        """
        h = OffsetHistoryRow
        statement = sa.select(h.version, h.offset, h.epoch, h.reason, h.created_at).where(h.connector == connector)
        if version is not None:
            statement = statement.where(h.version == version)
        for attempt in self._database.iterate_attempts("list the history of offsets"):
            with attempt, self._database.engine.connect() as c:
                rows = c.execute(statement.order_by(h.version.desc()).limit(limit)).all()
                offsets = whole_offsets(c, connector, {row.version: row.offset for row in rows})
        return [
            OffsetRecord(version, offsets[version], epoch, reason, created_at)
            for version, _, epoch, reason, created_at in rows
        ]

    def _move(
        self,
        lease: Lease,
        expected: StoredOffset,
        offset: Offset,
        reason: str,
        manifest: Manifest | None = None,
        path: str = "",
        notifications: Sequence[Notification] = (),
        signal_outcomes: Sequence[SignalOutcome] = (),
    ) -> StoredOffset:
        commit_sent = False
        try:
            for attempt in self._database.iterate_attempts("move the offset"):
                with attempt:
                    try:
                        with self._database.open_transaction() as c:
                            self._leases.lock_lease(c, lease)
                            self._set_offset(c, lease, expected, offset, reason, manifest)
                            if manifest is not None:
                                self._record(c, manifest, path)
                            batch = None if manifest is None else manifest.batch
                            record_notifications(c, lease.connector, notifications, batch)
                            for o in signal_outcomes:
                                record_signal_state(c, lease.connector, o.number, o.state, o.message)
                            commit_sent = True  # by the end of this block
                    except CommitConflict:
                        # the reply to an earlier attempt may have been lost after the database had committed it
                        there = self.load(lease.connector)
                        if there.version != expected.version + 1 or there.offset != offset:
                            raise
        except StateUnavailable as e:
            if not commit_sent:
                raise
            raise CommitStateUnknown(
                f"The offset of {lease.connector} may have moved or not: the connection to the state database was lost before the confirmation. {e.message}",
                where=e.where,
                safe="An existing batch stays: no event is lost or duplicated in either case.",
                remedy="check the database, then run the capture again: it detects committed batches",
            ) from e
        return StoredOffset(offset, expected.version + 1)

    def _set_offset(
        self,
        c: sa.Connection,
        lease: Lease,
        expected: StoredOffset,
        offset: Offset,
        reason: str,
        manifest: Manifest | None,
    ) -> None:
        now, version = datetime.now(UTC), expected.version
        document, states = split_document(offset.to_document())
        values = {
            "version": version + 1, "offset": document, "epoch": lease.epoch, "seq": offset.seq, "batch": offset.batch,
            "updated_at": now,
        }  # fmt: skip
        if manifest is not None:
            values["source"] = manifest.source
        if version == 0:
            try:
                c.execute(sa.insert(OffsetRow).values(connector=lease.connector, **values))
            except IntegrityError:
                raise _conflict(lease) from None
        else:
            mine = (OffsetRow.connector == lease.connector) & (OffsetRow.version == version)
            if c.execute(sa.update(OffsetRow).where(mine).values(**values)).rowcount != 1:
                raise _conflict(lease)
        c.execute(
            sa.insert(OffsetHistoryRow).values(
                connector=lease.connector, version=version + 1, offset=document, epoch=lease.epoch, reason=reason,
                created_at=now,
            )
        )  # fmt: skip
        if states or has_tables(expected.offset):
            record_tables(c, lease.connector, version + 1, states)

    def _record(self, c: sa.Connection, manifest: Manifest, path: str) -> None:
        now = datetime.now(UTC)
        topics: dict[str, int] = {}
        for file in manifest.files:
            topics[file.topic] = topics.get(file.topic, 0) + file.rows
        c.execute(
            sa.insert(BatchRow).values(
                connector=manifest.connector, batch=manifest.batch, manifest=path, first_seq=manifest.first_seq,
                last_seq=manifest.last_seq, events=manifest.event_count, bytes=sum(f.bytes for f in manifest.files),
                topics=topics, position=manifest.offset_after.position or {}, epoch=manifest.epoch, created_at=now,
            )
        )  # fmt: skip
        for record in manifest.schema_changes:
            c.execute(
                sa.insert(SchemaHistoryRow).values(
                    connector=manifest.connector, seq=record.seq, batch=manifest.batch, created_at=now,
                    record=record.model_dump(mode="json", exclude_defaults=True),
                )
            )  # fmt: skip

    def list_batches(self, connector: str, *, limit: int = 50, batch: int | None = None) -> list[BatchRecord]:
        """List the newest batches of a connector, newest first, or one of them."""
        statement = sa.select(BatchRow.__table__).where(BatchRow.connector == connector)
        if batch is not None:
            statement = statement.where(BatchRow.batch == batch)
        with self._database.engine.connect() as c:
            rows = c.execute(statement.order_by(BatchRow.batch.desc()).limit(limit)).all()
        return [BatchRecord(**row._mapping) for row in rows]

    def count_events(self, connector: str, *, since_batch: int) -> int:
        """Count the events of a batch and of all later ones."""
        statement = sa.select(sa.func.sum(BatchRow.events)).where(
            BatchRow.connector == connector, BatchRow.batch >= since_batch
        )
        with self._database.engine.connect() as c:
            return int(c.execute(statement).scalar() or 0)

    def list_batches_between(
        self, connector: str, *, after: int, before: datetime, limit: int = 1000
    ) -> list[BatchRecord]:
        """List the batches after one of a number that were committed before a moment, oldest first."""
        statement = (
            sa.select(BatchRow.__table__)
            .where(BatchRow.connector == connector, BatchRow.batch > after, BatchRow.created_at < before)
            .order_by(BatchRow.batch)
            .limit(limit)
        )
        with self._database.engine.connect() as c:
            return [BatchRecord(**row._mapping) for row in c.execute(statement)]


def _conflict(lease: Lease) -> CommitConflict:
    return CommitConflict(
        f"The offset of {lease.connector} was moved by another process.",
        safe="Nothing was written.",
    )
