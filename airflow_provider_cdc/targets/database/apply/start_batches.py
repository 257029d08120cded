"""The batches where tables begin on a change log whose first batches were removed, and the check that tables are not ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import BatchesByTopic
from airflow_provider_cdc.changelog.reading.table_start_batch import TableStartFinder
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import BatchesRemoved, TargetError
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.progress.marker_table import ALL, DatabaseMarkers
from airflow_provider_cdc.targets.database.schema.topic_filter import is_topic_selected


class StartBatches:
    """The beginnings of the tables of one run.

    :param groups: gives the batches after one, in groups
    :param where: the tables are
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        config: DatabaseTargetConfig,
        groups: Callable[[int], Iterator[BatchesByTopic]],
        where: str,
    ) -> None:
        self._beginning, self._config, self._groups, self._where = (
            TableStartFinder(changelog, connector),
            config,
            groups,
            where,
        )

    @cached_property
    def last_removed_batch(self) -> int:
        """The last batch that was removed; 0 if none was."""
        mark = self._beginning.read_marker()
        return mark.first - 1 if mark is not None else 0

    @cached_property
    def _kept_groups(self) -> list[BatchesByTopic]:
        return list(self._groups(self.last_removed_batch))

    def compute_start_batch(self, topic: str, at: int) -> int:
        """Return the batch after which a table continues.

        :param at: it has everything up to this batch; 0 if it has nothing
        :raises BatchesRemoved: it needs something that is gone
        """
        # the statement that empties it, which is among the events, takes whatever rows it has
        new = at == 0 or self._config.truncate_enabled
        return self._beginning.find_start(
            topic, at, new=new, list_batches=lambda _: self._kept_groups, where=self._where
        ).after

    def find_late_starts(self, at: int, behind: Mapping[str, int]) -> tuple[dict[str, int], dict[str, str]]:
        """Find the tables that do not simply continue with the first batch that is kept.

        :param at: tables have everything up to this batch
        :param behind: topics that have less
        :return: topic → the later batch after which its table begins; topic → why it cannot begin
        """
        later, failed = dict[str, int](), dict[str, str]()
        for topic in sorted(self._topics() - set(behind)):
            try:
                after = self.compute_start_batch(topic, at)
            except BatchesRemoved as e:
                failed[topic] = describe_error(e)
            else:
                if after > self.last_removed_batch:
                    later[topic] = after
        return later, failed

    def _topics(self) -> set[str]:
        """List the topics that have events, or had some before the first batch and whose table is still there."""
        topics = {topic for group in self._kept_groups for topic in group.topics}
        mark = self._beginning.read_marker()
        if mark is not None and mark.topics is not None:
            gone = set(mark.dropped | mark.renamed)
            for group in self._kept_groups:
                gone |= group.dropped | group.renamed
            topics |= {topic for topic, entry in mark.topics.items() if entry.table.full_name not in gone}
        return {topic for topic in topics if is_topic_selected(topic, self._config)}


def refuse_another(changelog: ChangeLog, connector: str, markers: DatabaseMarkers, where: str, forgetting: str) -> str:
    """Make sure that the change log is the one of the tables, and not behind them.

    Batches that it has, or will have, under their numbers would never be applied to them. It costs one request, if no table is behind and the batch is kept.

    :param where: the tables are
    :param forgetting: the statement that deletes the markers
    :return: the identity of the change log
    :raises TargetError: it ends before a batch that they have, or has other batches under these numbers
    """
    at = max([markers.batch, *markers.behind.values()])
    if not at:
        return changelog.read_identity(connector)
    remedy = (
        "restore the change log and the state tables from a backup; if the change log is permanently lost, move the tables away, delete their markers "
        f"from the database ({forgetting}), and run the apply again: it rebuilds the tables from the existing batches"
    )
    there = changelog.find_manifest(connector, at)
    # it may also have been removed, as the tables have it
    if there is not None or (last := changelog.find_last_batch(connector)) >= at:
        identity = changelog.read_identity(connector) if there is None else there.changelog_id
        if reason := _of_another(changelog, connector, markers, there, identity):
            raise TargetError(
                f"The tables of {connector} were built from another change log: {reason}. The batch numbers do not show which events of the existing change log the tables lack.",
                where=where,
                safe="No table was changed; the change log keeps the batches.",
                remedy=remedy,
            )
        return identity
    raise TargetError(
        f"The tables of {connector} are at batch {at}, but the change log ends with batch {last}: it is another change log, or its end is lost.",
        where=where,
        safe="No table was changed.",
        remedy=remedy,
    )


def _of_another(
    changelog: ChangeLog, connector: str, markers: DatabaseMarkers, newest: Manifest | None, identity: str
) -> str:
    """Return why batches of the markers are not those of the change log; empty if nothing shows that.

    :param newest: manifest of the last of these batches, if it is kept
    :param identity: of the change log
    """
    manifests = dict[int, Manifest | None]({newest.batch: newest} if newest is not None else {})
    for topic, batch in {ALL: markers.batch, **markers.behind}.items():
        log, writer = markers.logs.get(topic, ("", ""))
        if batch and log != identity:
            return f"they belong to {log}, and the existing one is {identity}"
        if not (batch and writer):
            continue
        if batch not in manifests:
            manifests[batch] = changelog.find_manifest(connector, batch)
        manifest = manifests[batch]
        if manifest is not None and manifest.writer != writer:
            return f"its batch {batch} is a different one, as if the change log had been restored to an earlier state and continued from there"
    return ""
