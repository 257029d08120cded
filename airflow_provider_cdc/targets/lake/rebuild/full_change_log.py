"""The change log that tables are built from: all batches that are kept, up to one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic, PendingBatches, merge_pending
from airflow_provider_cdc.changelog.reading.table_start_batch import find_emptying_batch, unbuildable_error
from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.core.model.batch_manifest import BatchContents, Manifest
from airflow_provider_cdc.core.remedy_commands import format_cdc_command, name_cdc_command
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable


class FullChangeLog:
    """The batches of a connector from the first one on that is kept.

    :param batch: the last one; the newest if not given
    :param time: the same, as the time by which it was committed to the change log
    :raises ConfigError: there is no such batch
    :raises BatchesRemoved: it was removed
    :ivar batches: all of them
    :ivar mark: the record of those before; ``None`` if none was removed
    """

    def __init__(
        self, changelog: ChangeLog, connector: str, *, batch: int | None = None, time: datetime | None = None
    ) -> None:
        self.changelog, self.connector = changelog, connector
        self._checked: set[str] = set()
        self.mark = changelog.read_truncation_marker(connector)
        self._first = 1 if self.mark is None else self.mark.first
        self._dropped = frozenset() if self.mark is None else self.mark.dropped
        self.batches = BatchesByTopic(changelog, self._contents(batch, time), self._dropped)

    @property
    def last_batch(self) -> int:
        """The last batch."""
        return self.batches.last

    def find_newest_batch(self) -> int:
        """Return the newest batch that exists now."""
        return self.changelog.find_last_batch(self.connector, after=self.last_batch)

    def select_batches(self, batch: int) -> BatchesByTopic:
        """Return the batches up to one.

        :raises BatchesRemoved: it is not kept
        """
        if batch == self.last_batch:
            return self.batches
        return BatchesByTopic(
            self.changelog, [manifest.batch_contents for manifest in self._existing_manifests(batch)], self._dropped
        )

    def has_removed_events(self, topic: str) -> bool:
        """Return whether there was something of a topic in batches that were removed."""
        return self.mark is not None and self.mark.may_lack(topic)

    def collect_pending(self, table: TargetTable, batch: int) -> PendingBatches:
        """All events of a table's topic up to a batch; of one whose first ones were removed, those from which all rows follow that it has then.

        :raises ChangeLogDamaged: a file of them differs from its manifest
        :raises BatchesRemoved: the table cannot be built from the existing batches
        :raises TargetError: there are none
        """
        if batch > self.last_batch:  # an apply has gone on
            self.batches = self.select_batches(batch)
        parts = [part for part in self.batches.list_parts(table.topic) if part.last <= batch]
        if self.mark is not None and self.mark.may_lack(table.topic):
            base = find_emptying_batch(table.topic, [self.batches], batch)
            if not base:
                source = self.batches.find_table(table.topic)
                raise unbuildable_error(
                    self.connector, self.mark, table.topic, batch, new=True, base=0, where=table.location, table=str(source or "")
                )  # fmt: skip
            parts = [part for part in parts if part.last >= base]
        if not parts:
            raise TargetError(
                f"The table of {table.topic} is at batch {batch}, but the change log has no events of this topic up to that batch.",
                where=table.location,
                safe="The table was not changed.",
                remedy="check --changelog and --connector",
            )
        pending = merge_pending(parts, batch, parts[-1].position)
        for path, file in pending.files:
            if path not in self._checked:
                self.changelog.check_file(self.connector, file)
                self._checked.add(path)
        return pending

    def _contents(self, batch: int | None, time: datetime | None) -> list[BatchContents]:
        first = self.changelog.find_first_batch(self.connector)
        if not first:
            raise ConfigError(
                f"The change log {self.changelog.storage.url} has no batch of connector {self.connector}.",
                safe="No table was changed.",
                remedy=f"check --changelog and --connector; `{name_cdc_command('connectors')}` lists them",
            )
        if batch is not None and batch >= first and not self.changelog.has_batch(self.connector, batch):
            last = self.changelog.list_batches(self.connector)[-1]
            raise self._none(
                f"Batch {batch} does not exist: the change log of {self.connector} has batches {first} to {last}."
            )
        manifests = self._existing_manifests(batch)
        if time is None:
            return [manifest.batch_contents for manifest in manifests]
        return self._by(manifests, time if time.tzinfo else time.replace(tzinfo=UTC))

    def _existing_manifests(self, until: int | None) -> Iterator[Manifest]:
        """Return the manifests up to a batch that are kept.

        :raises BatchesRemoved: the last one of them is not there any more
        """
        if until is not None and (removed := self.changelog.find_removal(self.connector, until, first=self._first)):
            raise removed
        return self.changelog.read_manifests(self.connector, after=self._first - 1, until=until, there=until or 0)

    def _by(self, manifests: Iterator[Manifest], time: datetime) -> list[BatchContents]:
        """Return the batches up to the last one that was committed by a time."""
        contents, by, first = list[BatchContents](), 0, ""
        for count, manifest in enumerate(manifests, start=1):
            first = first or manifest.created_at
            contents.append(manifest.batch_contents)
            if datetime.fromisoformat(manifest.created_at) <= time:
                by = count
        if not by:
            raise self._none(
                f"No batch of {self.connector} was committed by {time.isoformat()}: the first batch was committed at {first}."
            )
        return contents[:by]

    def _none(self, problem: str) -> ConfigError:
        return ConfigError(
            problem,
            safe="No table was changed.",
            remedy=f"run `{format_cdc_command('batches', self.connector)}` to list the batches with their positions and times",
        )
