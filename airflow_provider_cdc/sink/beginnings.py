"""Where tables begin on a change log whose first batches were removed, and that they are not ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from airflow_provider_cdc.changelog.beginning import Beginning
from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.pending import Batches
from airflow_provider_cdc.core.errors import BatchesRemoved, TargetError
from airflow_provider_cdc.sink.config import SinkConfig
from airflow_provider_cdc.sink.markers import Markers
from airflow_provider_cdc.sink.topics import chosen


class Beginnings:
    """The beginnings of the tables of one run.

    :param groups: gives the batches after one, in groups
    :param where: the tables are
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        config: SinkConfig,
        groups: Callable[[int], Iterator[Batches]],
        where: str,
    ) -> None:
        self._beginning, self._config, self._groups, self._where = (
            Beginning(changelog, connector),
            config,
            groups,
            where,
        )

    @cached_property
    def before(self) -> int:
        """The last batch that was removed; 0 if none was."""
        mark = self._beginning.mark()
        return mark.first - 1 if mark is not None else 0

    @cached_property
    def _kept(self) -> list[Batches]:
        return list(self._groups(self.before))

    def of(self, topic: str, at: int) -> int:
        """The batch after which a table goes on.

        :param at: it has everything up to this batch; 0 if it has nothing
        :raises BatchesRemoved: it needs something that is gone
        """
        # the statement that empties it, which is among the events, takes whatever rows it has
        new = at == 0 or self._config.truncate_enabled
        return self._beginning.start(topic, at, new=new, kept=lambda _: self._kept, where=self._where).after

    def all(self, at: int, behind: Mapping[str, int]) -> tuple[dict[str, int], dict[str, str]]:
        """What does not simply go on with the first batch that is kept.

        :param at: tables have everything up to this batch
        :param behind: topics that have less
        :return: topic → the later batch after which its table begins; topic → why it cannot begin
        """
        later, failed = dict[str, int](), dict[str, str]()
        for topic in sorted(self._topics() - set(behind)):
            try:
                after = self.of(topic, at)
            except BatchesRemoved as e:
                failed[topic] = str(e)
            else:
                if after > self.before:
                    later[topic] = after
        return later, failed

    def _topics(self) -> set[str]:
        """Those that have events, or had some before the first batch and whose table is still there."""
        found = {topic for group in self._kept for topic in group.topics}
        mark = self._beginning.mark()
        if mark is not None and mark.topics is not None:
            gone = set(mark.dropped | mark.renamed)
            for group in self._kept:
                gone |= group.dropped | group.renamed
            found |= {topic for topic, one in mark.topics.items() if one.table.full_name not in gone}
        return {topic for topic in found if chosen(topic, self._config)}


def refuse_another(changelog: ChangeLog, connector: str, markers: Markers, where: str, forgetting: str) -> None:
    """Make sure that the change log is not behind the tables: what it will have under the numbers of their batches would never come into them.

    :param where: the tables are
    :param forgetting: the statement that deletes the markers
    :raises TargetError: it ends before a batch that they have
    """
    at = max([markers.batch, *markers.behind.values()])
    # it may also have been removed, as the tables have it
    if not at or changelog.has(connector, at) or (last := changelog.last(connector)) >= at:
        return
    raise TargetError(
        f"The tables of {connector} stand at batch {at}, and the change log ends with batch {last}: it is another change log, or its end is lost.",
        where=where,
        safe="No table was changed.",
        remedy="restore the change log from a backup, with the state tables; if it is lost for good, move the tables away, have the database forget "
        f"what they have ({forgetting}), and run the apply again: they are built again from the batches that there are",
    )
