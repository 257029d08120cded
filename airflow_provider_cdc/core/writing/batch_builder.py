"""Makes one batch: writes events into files, collects schema changes, then commits in three steps.

The order of these steps is what exactly-once rests on: files, then the manifest (the moment at which the batch exists),
then the offset. A crash before the manifest leaves files that no manifest names, and the next run deletes them. A crash after it
leaves a complete batch, and the next run adopts it.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import BatchesRemoved, ChangeLogDamaged, CommitConflict, ConfigError
from airflow_provider_cdc.core.model.batch_manifest import (
    FORMAT,
    DataFile,
    LeftOutRecord,
    Manifest,
    SchemaChangeRecord,
    SignalOutcome,
)
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.notifications import Notification, NotificationChannel
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.store_interfaces import BatchWriter, ChangeLog, Lease, StateStore, StoredOffset
from airflow_provider_cdc.core.writing.committed_totals import BatchTotals

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.log_items import LeftOutRows

log = logging.getLogger(__name__)

_CLOCKS = timedelta(minutes=1)
"""Largest difference between the clocks of senders of signals and of workers: of a batch that is adopted after a kill, no signal is sent later."""


_LOOK_AGAIN_S = 60.0
"""How often a run looks whether the change log is still the one that it began with."""
_IDENTITY = 16
"""Letters of a change log's identity."""


class BatchBuilder:
    """The batch that is being made, and the offset that the last one left.

    :ivar stored: the committed offset
    :ivar committed: the batches of this run
    """

    def __init__(
        self,
        connector: str,
        source: str,
        config: dict[str, Any],
        store: StateStore,
        changelog: ChangeLog,
        lease: Lease,
        writer_id: str,
        channels: Sequence[NotificationChannel] = (),
        source_fields: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Begin a batch.

        :param source_fields: see :class:`~airflow_provider_cdc.core.model.batch_manifest.Manifest`
        :param channels: get the notifications of commits
        :param source: the documented ``source.connector`` value
        :param config: the properties that were set, without secrets; manifests carry them for readers that render events
        """
        self.connector = connector
        self._source, self._config, self._writer_id = source, config, writer_id
        self._store, self._changelog, self._lease = store, changelog, lease
        self._source_fields = dict(source_fields)
        self._channels, self._sinks = channels, "sink" in config.get("notification.enabled.channels", ())
        self._notifications: list[Notification] = []
        self._signal_outcomes: list[SignalOutcome] = []
        self.stored = self._adopt(store.load_offset(connector))
        self._seq = self.committed_offset.seq
        self.committed = BatchTotals()
        self.counts: Counter[str] = Counter()
        self.rows = 0
        self._writer: BatchWriter | None = None
        self._error: BaseException | None = None
        self._looked_at = time.monotonic()
        self._schemas: dict[str, dict[str, TableSchema]] = {}
        self._changes: list[SchemaChangeRecord] = []
        self._left_out: dict[tuple[str, str], LeftOutRecord] = {}
        self._remote_files: list[DataFile] = []
        self._unused = 0
        self._marked = self._state()

    @property
    def committed_offset(self) -> Offset:
        """The committed offset; an empty one before the first batch."""
        return self.stored.offset or Offset()

    @property
    def last_seq(self) -> int:
        """The last sequence number given out, uncommitted ones included."""
        return self._seq

    @property
    def batch_identity(self) -> tuple[int, int, str]:
        """Number of the batch that is being made, lease epoch and id of the run: they are part of the names of its files."""
        return self.committed_offset.batch + 1, self._lease.epoch, self._writer_id

    @property
    def event_count(self) -> int:
        """Events of this run, uncommitted ones included."""
        return self.committed.events + self.rows

    @property
    def is_empty(self) -> bool:
        """No event, schema change or record of left-out events waits to be committed."""
        return not self.counts and not self._changes and not self._left_out

    @property
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes if self._writer is not None else 0

    def add_events(self, batch: EventBatch) -> None:
        """Write events, whose sequence numbers must follow, and record their schema."""
        if self._writer is None:
            self._writer = self._changelog.open_batch_writer(
                self.connector, self.committed_offset.batch + 1, self._lease.epoch, self._writer_id
            )
        self._writer.write(batch)
        self._schemas.setdefault(batch.topic, {})[str(batch.schema.version)] = batch.schema
        self.counts[batch.topic] += batch.events.num_rows
        self.rows += batch.events.num_rows
        self._seq = max(self._seq, batch.last_seq)

    def add_files(self, tables: Sequence[tuple[TableSchema, Sequence[DataFile]]], last_seq: int) -> None:
        """Add files that other processes have written into the folder of this batch.

        Their events have numbers behind all that were given out before; numbers between them may be unused.

        :param tables: schema of the events, and files with them
        :param last_seq: the last number that was given to them
        """
        rows = 0
        for schema, files in tables:
            for file in files:
                self._schemas.setdefault(file.topic, {})[str(schema.version)] = schema
                self.counts[file.topic] += file.rows
                rows += file.rows
            self._remote_files += files
        self.rows += rows
        self._unused += last_seq - self._seq - rows
        self._seq = last_seq

    def add_change(self, record: SchemaChangeRecord, selected: dict[str, TableSchema]) -> None:
        """Record a schema change.

        :param selected: topic → captured schema after the change
        """
        self._changes.append(record)
        for topic, schema in selected.items():
            self._schemas.setdefault(topic, {})[str(schema.version)] = schema
        self._seq = record.seq

    def leave_out(self, left: LeftOutRows, start: dict[str, Any], end: Position) -> None:
        """Record row events that the batch does not have.

        :param start: and ``end``: where in the log they are
        """
        log.warning(
            "%d row events of %s up to %s are left out, because the table is snapshotted again: %s.", left.events, left.table, end, left.reason
        )  # fmt: skip
        before = self._left_out.get((str(left.table), left.reason))
        self._left_out[str(left.table), left.reason] = LeftOutRecord(
            table=str(left.table), start=before.start if before else start, end=end.to_json(),
            events=left.events + (before.events if before else 0), reason=left.reason,
        )  # fmt: skip

    def add_notification(self, notification: Notification) -> None:
        """Send a notification with the next commit."""
        self._notifications.append(notification)

    def end_signal(self, number: int, state: SignalState, message: str = "") -> None:
        """Have the final state of a signal recorded with the next commit."""
        self._signal_outcomes.append(SignalOutcome(number=number, state=state, message=message))

    def set_savepoint(self) -> None:
        """Mark the end of the content so far: it stays if :meth:`rollback` is called."""
        if self._writer is not None:
            self._writer.set_savepoint()
        self._marked = self._state()

    def release_savepoint(self) -> None:
        """Make the content so far stay; nothing is taken back until :meth:`set_savepoint`."""
        if self._writer is not None:
            self._writer.release_savepoint()

    def _state(self) -> tuple[int, int, Counter[str], dict[tuple[str, str], LeftOutRecord], int]:
        return self._seq, self.rows, self.counts.copy(), dict(self._left_out), len(self._changes)

    def rollback(self) -> None:
        """Take back the events added since :meth:`set_savepoint`. Schema changes stay, as a rollback does not undo them: they get the next numbers."""
        if self._writer is not None:
            self._writer.rollback()
            self._writer.release_savepoint()
        self._seq, self.rows, counts, left_out, changes = self._marked
        self.counts, self._left_out = counts.copy(), dict(left_out)
        for number in range(changes, len(self._changes)):
            self._seq += 1
            self._changes[number] = self._changes[number].model_copy(update={"seq": self._seq})
        self._marked = self._state()

    def commit(self, offset: Offset) -> None:
        """Commit the batch and move the offset to ``offset``, whose ``seq`` and ``batch`` are filled in here.

        Without events and changes only the offset moves.

        After an error it is not known what is durable. The next run finds out; this one cannot commit any more, and every
        further attempt raises the same error.

        :raises CommitConflict: another run committed a batch of this number first
        :raises LeaseLost: another run took over
        """
        if self._error is not None:
            raise self._error
        try:
            self._commit(offset)
        except BaseException as e:
            self._error = e
            raise

    def _commit(self, offset: Offset) -> None:
        before, waiting = self.stored.offset, bool(self._notifications or self._signal_outcomes)
        if self.is_empty and not (self._sinks and self._notifications):
            self._drop_files()  # of a transaction that was rolled back
            offset = offset.with_numbers(self.last_seq, self.committed_offset.batch)
            if offset != before or waiting:
                self._store.confirm_lease(self._lease)
                self.stored = self._store.advance_offset(
                    self._lease, self.stored, offset, self._notifications, self._signal_outcomes
                )
                self._deliver()
            return
        files = self._writer.finish_files() if self._writer is not None else []
        files += self._remote_files
        self._check_dense()
        offset = offset.with_numbers(self.last_seq, self.committed_offset.batch + 1).in_log(
            self._log_of(self.committed_offset)
        )
        self._look_again()
        manifest = Manifest(
            connector=self.connector,
            source=self._source,
            config=self._config,
            batch=offset.batch,
            epoch=self._lease.epoch,
            writer=self._writer_id,
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            first_seq=self.committed_offset.seq + 1,
            last_seq=self.last_seq,
            offset_before=before,
            offset_after=offset,
            files=files,
            schemas=self._schemas,
            schema_changes=self._changes,
            source_fields=self._source_fields if self._changes else {},
            left_out=list(self._left_out.values()),
            notifications=self._notifications,
            signal_outcomes=self._signal_outcomes,
            unused_numbers=self._unused,
        )
        self._store.confirm_lease(self._lease)
        path = self._publish(manifest)
        self.stored = self._store.commit_batch(self._lease, self.stored, manifest, path)
        self._changelog.delete_orphan_files(manifest)
        self.committed.add_batch(manifest)
        self._deliver()
        self._clear()
        log.info(
            "Batch %d: %d events (seq %d to %d) in %d files.",
            manifest.batch, manifest.event_count, manifest.first_seq, manifest.last_seq, len(files),
        )  # fmt: skip

    @staticmethod
    def _log_of(offset: Offset) -> str:
        """Return the identity of the change log.

        Its first batch makes it: of two runs that do so, only one gets its batch into the log.
        """
        return offset.changelog if offset.batch else uuid.uuid4().hex[:_IDENTITY]

    def _look_again(self) -> None:
        """Make sure, from time to time, that no other change log was put in the place of the one that the run began with."""
        if self.committed_offset.batch and time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
            self._belongs(
                self._changelog.find_manifest(self.connector, self.committed_offset.batch), self.committed_offset
            )
            self._looked_at = time.monotonic()

    def _check_dense(self) -> None:
        """Make sure that each sequence number belongs to one event or one schema change, unless a reader left it unused: a gap would be a lost event."""
        numbers = self.last_seq - self.committed_offset.seq - self._unused
        there = self.rows + len(self._changes)
        if numbers != there:
            raise AssertionError(f"{numbers} sequence numbers were assigned to {there} events and schema changes")

    def discard_batch(self) -> None:
        """Delete files that were written and not committed."""
        self._drop_files()
        self._seq = self.committed_offset.seq
        self._notifications, self._signal_outcomes = [], []
        self._clear()

    def _deliver(self) -> None:
        """Send the notifications; the facts that they report are durable by now."""
        durable, self._notifications, self._signal_outcomes = self._notifications, [], []
        for notification in durable:
            for channel in self._channels:
                try:
                    channel.send(self.connector, notification)
                except Exception:  # in a channel's own code; capture does not depend on it
                    log.exception("%s could not send a notification: %s", type(channel).__name__, notification)

    def _publish(self, manifest: Manifest) -> str:
        """Write the manifest. After an error the files stay: the manifest may have been written all the same."""
        writer, self._writer = self._writer, None
        try:
            return self._changelog.commit_manifest(manifest)
        except CommitConflict:  # after this error the files may go: the existing manifest names others
            if writer is not None:
                writer.discard_files()
            raise

    def _drop_files(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.discard_files()

    def _clear(self) -> None:
        self._schemas, self._changes = {}, []
        self.counts, self.rows = Counter(), 0
        self._left_out = {}
        self._remote_files, self._unused = [], 0
        self._marked = self._state()

    def _adopt(self, stored: StoredOffset) -> StoredOffset:
        """Bring the offset up to date with committed batches whose run died before it wrote the offset."""
        if stored.offset is not None and stored.offset.batch:
            self._look_at_last(stored.offset)
        while True:
            offset = stored.offset or Offset()
            manifest = self._changelog.find_manifest(self.connector, offset.batch + 1)
            if manifest is None:
                self._refuse_removed(offset)
                return stored
            _verify(manifest, offset)
            self._refuse_signals(manifest, offset)
            path = self._changelog.format_manifest_path(manifest)
            stored = self._store.commit_batch(self._lease, stored, manifest, path)
            self._changelog.delete_orphan_files(manifest)
            log.warning(
                "Adopted batch %d (seq %d to %d): the batch is complete, but the run that wrote it ended before it committed the offset.",
                manifest.batch, manifest.first_seq, manifest.last_seq,
            )  # fmt: skip

    def _refuse_signals(self, manifest: Manifest, offset: Offset) -> None:
        """Reject signals whose numbers an adopted batch has given to others.

        State tables that were put back give out numbers of signals once more. A batch that is adopted has taken others under these numbers: those that were
        sent after it was made would count as taken, or end as the others have, without having been carried out.
        """
        taken, created = manifest.offset_after.signal, datetime.fromisoformat(manifest.created_at)
        if taken <= offset.signal:
            return
        again = "Nothing was done: the state tables were restored from a backup, and another signal had this number before. Send the signal again."
        refused = self._store.refuse_signals(
            self.connector, after=offset.signal, upto=taken, sent_after=created + _CLOCKS, message=again
        )
        if refused:
            log.warning("Signals %s are refused. %s", ", ".join(map(str, refused)), again)

    def _refuse_removed(self, offset: Offset) -> None:
        """Check that the next batch was not there already.

        :raises BatchesRemoved: the next batch was there, and would be written once more: the state tables are older than the change log's beginning
        """
        if (removed := self._changelog.find_removal(self.connector, offset.batch + 1)) is None:
            return
        stands = f"are at batch {offset.batch}" if offset.batch else "do not contain the connector"
        raise BatchesRemoved(
            f"The state tables {stands}, but the change log is at a later batch, and this run would write its batches again. {removed.message}",
            where=removed.where,
            safe="Nothing was read; the state tables and the change log are unchanged.",
            remedy="restore a backup of the state tables that is at one of the existing batches: the run adopts the batches after it. Without such a backup, "
            f"start again with `{format_cdc_command('delete', self.connector, with_changelog=True)}`, and move the target tables away first; or give the connector a new name",
        )

    def _look_at_last(self, offset: Offset) -> None:
        """Make sure that the last batch exists, and delete files that its run may have left behind."""
        last = self._changelog.find_manifest(self.connector, offset.batch)
        if last is None:
            self._refuse_removed(offset)
        last = self._belongs(last, offset)
        self._keeps_its_name(last, "topic.prefix", self.connector)
        self._keeps_its_name(last, "topic.delimiter", ".")
        self._changelog.delete_orphan_files(last)

    def _belongs(self, last: Manifest | None, offset: Offset) -> Manifest:
        """Check that the last batch belongs to the state tables, and return its manifest.

        :param last: manifest of the batch that the state tables are at
        :raises ChangeLogDamaged: it is none of theirs
        """
        if last is not None and last.changelog_id == offset.changelog and last.last_seq == offset.seq:
            return last
        if last is None:
            problem = "is not in the change log"
        elif last.changelog_id != offset.changelog:
            problem = f"belongs to another change log ({last.changelog_id}, not {offset.changelog})"
        else:
            problem = f"ends at seq {last.last_seq} in the change log"
        raise ChangeLogDamaged(
            f"The state tables are at batch {offset.batch}, seq {offset.seq}, but this batch {problem}: "
            "the change log and the state tables do not belong together.",
            where=f"connector {self.connector}, batch {offset.batch}",
            safe="The state tables and the change log are unchanged.",
            remedy=format_mismatch_remedy(self.connector),
        )

    def _keeps_its_name(self, last: Manifest, name: str, default: str) -> None:
        """Make sure that ``topic.prefix`` has not changed: with another one, tables and consumers would see new tables that begin in the middle."""
        before, now = last.config.get(name, default), self._config.get(name, default)
        if before != now:
            raise ConfigError(
                f"{name} was {before!r} in the existing batches and is {now!r} now.",
                where=f"connector {self.connector}",
                safe="Nothing was read; the offset is untouched.",
                remedy=f"set {name}={before} again, or give the connector a new name to start again",
            )


def format_mismatch_remedy(connector: str) -> str:
    """Return the remedy where the state tables and the change log of a connector are not of each other."""
    return (
        "connect the connector to its original change log and state database, or restore both from backups of the same time; "
        f"if this change log is correct, run `{format_cdc_command('delete', connector)}` to delete the connector's rows from the state tables: the next run continues after the "
        "last batch of the change log; or give the connector a new name to start again"
    )


def _verify(manifest: Manifest, offset: Offset) -> None:
    if manifest.format > FORMAT:
        raise ChangeLogDamaged(
            f"Batch {manifest.batch} was written by a newer release (format {manifest.format}; this release supports {FORMAT}).",
            safe="Nothing was changed: the batch is complete, and the offset is before it.",
            remedy="upgrade airflow-provider-cdc on this worker",
        )
    of_another = bool(offset.batch) and manifest.changelog_id != offset.changelog
    if manifest.first_seq != offset.seq + 1 or of_another:
        problem = "belongs to another change log" if of_another else f"begins at seq {manifest.first_seq}"
        raise ChangeLogDamaged(
            f"Batch {manifest.batch} {problem}, but the state tables are at seq {offset.seq}: "
            "the change log and the state tables do not belong together.",
            where=f"connector {manifest.connector}, batch {manifest.batch}",
            safe="The state tables and the change log are unchanged.",
            remedy=format_mismatch_remedy(manifest.connector),
        )
