"""Finds rows of a topic in batches before the pending ones: its table has got them, and they do not come again."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, base_version
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode


class EarlierBatches:
    """The batches before some pending ones. The change log is read when a property is first read.

    :param parts: of the pending batches, the first one included
    :param written: topics whose tables an apply has written
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        config: DatabaseTargetConfig,
        written: Collection[str],
        *parts: PendingBatches,
    ) -> None:
        self._changelog, self._connector, self._config = changelog, connector, config
        self._written, self._parts = written, parts

    @property
    def needs_earlier_rows(self) -> bool:
        """Check whether the table needs rows that earlier batches brought."""
        pending, config = self._parts[0], self._config
        emptied = config.truncate_enabled and any(
            part.name_takeover is not None or "t" in part.count_operations() for part in self._parts
        )
        if config.insert_mode is InsertMode.INSERT or emptied or pending.topic not in self._written:
            return False
        return self._earlier_events[0]

    @property
    def previous_schema(self) -> TableSchema | None:
        """The source's schema right before the pending batches; ``None`` if it is not known."""
        pending = self._parts[0]
        return pending.schemas.get(base_version(pending)) or self._earlier_events[1]

    @cached_property
    def _earlier_events(self) -> tuple[bool, TableSchema | None]:
        """Find whether earlier batches have events of the topic, and its last schema."""
        pending, mark = self._parts[0], self._changelog.read_truncation_marker(self._connector)
        first = mark.first if mark is not None else 1
        rows, schema = mark is not None and mark.may_lack(pending.topic), None
        if pending.first > first:
            for manifest in self._changelog.read_manifests(self._connector, after=first - 1, until=pending.first - 1):
                rows |= any(file.topic == pending.topic for file in manifest.files)
                if versions := manifest.schemas.get(pending.topic):
                    schema = versions[max(versions, key=int)]
        return rows, schema
