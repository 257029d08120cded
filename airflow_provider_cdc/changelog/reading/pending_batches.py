"""Collects the batches that a table has not seen yet, and the schema changes between its version and theirs."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.truncation_marker import track_table_names
from airflow_provider_cdc.core.errors import ChangeLogDamaged
from airflow_provider_cdc.core.model.batch_manifest import BatchContents, DataFile
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command


@dataclass(slots=True)
class PendingBatches:
    """The pending batches of one topic.

    :param files: with the connector's folder resolved, in ``seq`` order
    :param passing: files, likewise, with events that say nothing of the rows that are there in the end: of rows that came to a key and left it within one transaction
    :param schemas: version → captured schema
    :param changes: version → the change that led to it; only those made by these batches
    :param last: number of the last batch looked at, whether it has files of this topic or not
    :param position: where that batch ends in the source's log
    :param name_takeover: of the last statement by which another table took the name of this topic's, which had been dropped: its number, and when it was
        run, in microseconds since 1970. No row from before it is one of the table's
    :param room: the newest schema, with types that have room for the values of events of older ones; ``None`` if its own types have
    """

    topic: str
    files: list[tuple[str, DataFile]] = field(default_factory=list)
    schemas: dict[int, TableSchema] = field(default_factory=dict)
    changes: dict[int, TableChange] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    position: dict[str, object] = field(default_factory=dict)
    name_takeover: tuple[int, int] | None = None
    room: TableSchema | None = None
    passing: list[tuple[str, DataFile]] = field(default_factory=list)

    @property
    def connector(self) -> str:
        """The owner of the batches: its folder has the files."""
        uri, file = self.files[0]
        return uri.removesuffix(file.path).rstrip("/").rpartition("/")[2]

    @property
    def read_again(self) -> str:
        """The command that reads all rows of its table into the change log again; targets are emptied first."""
        kind = None if self.schema.key else "blocking"  # chunks are cut by keys
        return format_cdc_command(
            "snapshot", self.connector, format_exact_pattern(self.schema.id), type=kind, replace=True
        )

    @property
    def schema(self) -> TableSchema:
        """The newest one."""
        return self.room or self.schemas[max(self.schemas)]

    @property
    def schema_version(self) -> int:
        """Number of the newest schema."""
        return max(self.schemas)

    @property
    def all_column_names(self) -> set[str]:
        """The names of the columns of all schemas."""
        return {name for schema in self.schemas.values() for name in schema.column_names}

    @property
    def event_count(self) -> int:
        return sum(f.rows for _, f in self.files)

    @property
    def file_bytes(self) -> int:
        return sum(f.bytes for _, f in self.files)

    def with_all_files(self) -> PendingBatches:
        """Return the same with all files, for callers that keep each event."""
        files = sorted([*self.files, *self.passing], key=lambda entry: entry[1].first_seq)
        return replace(self, files=files, passing=[])

    def count_operations(self) -> dict[str, int]:
        """Operation letter → events."""
        total: dict[str, int] = {}
        for _, file in self.files:
            for letter, n in file.counts.items():
                total[letter] = total.get(letter, 0) + n
        return total


class BatchesByTopic:
    """Batches in a row, by topic. They are read once, for all tables and markers.

    :param batches: ascending, without gaps; at least one
    :param dropped: full names of tables that the source had dropped before them
    """

    def __init__(self, changelog: ChangeLog, batches: Sequence[BatchContents], dropped: Collection[str] = ()) -> None:
        self.first, self.last, self.position = batches[0].batch, batches[-1].batch, batches[-1].position
        self._parts: dict[str, list[PendingBatches]] = {}
        self.changelog = batches[-1].changelog
        """Identity of the change log that they are of."""
        self.writers = {batch.batch: batch.writer for batch in batches}
        """Number → the run that has written it."""
        self._after = 0
        self.dropped: set[str] = set()
        """Full names of tables that the source has dropped, and not made again."""
        self.gone = set(dropped)
        """The same, with those that were dropped before."""
        self.renamed: set[str] = set()
        """Full names that tables have given up, and no other one has got."""
        for batch in batches:
            for topic, part in _by_topic(changelog, batch, self.gone).items():
                self._parts.setdefault(topic, []).append(part)
                self.dropped -= {schema.id.full_name for schema in part.schemas.values()}
            for change in (change for record in batch.schema_changes for change in record.changes):
                track_table_names(change, self.dropped, self.renamed)

    def select_later(self, batch: int) -> BatchesByTopic:
        """Return the batches after one of them.

        Nothing is read or copied for it, however many topics there are.
        """
        later = copy.copy(self)
        later.first, later._after = max(self.first, batch + 1), max(self._after, batch)
        return later

    @property
    def topics(self) -> set[str]:
        return {topic for topic in self._parts if topic in self}

    def __contains__(self, topic: str) -> bool:
        return self._newest(topic) is not None

    def find_table(self, topic: str) -> TableId | None:
        """Return the table of a topic, by the newest batch that has the topic."""
        newest = self._newest(topic)
        return None if newest is None else newest.schema.id

    def find_schema(self, topic: str) -> TableSchema | None:
        """Return the schema of a topic's table, by the newest batch that has the topic."""
        newest = self._newest(topic)
        return None if newest is None else newest.schema

    def _newest(self, topic: str) -> PendingBatches | None:
        parts = self._parts.get(topic)
        return parts[-1] if parts and parts[-1].last > self._after else None

    def list_parts(self, topic: str, after: int = 0) -> list[PendingBatches]:
        """List the part of a topic in each batch after ``after``."""
        after = max(after, self._after)
        return [part for part in self._parts.get(topic, ()) if part.last > after]

    def merge_parts(self, topic: str, after: int = 0) -> PendingBatches | None:
        """Return the parts of a topic in all batches after ``after``, as one."""
        parts = self.list_parts(topic, after)
        return merge_pending(parts, self.last, self.position) if parts else None


def merge_pending(parts: Sequence[PendingBatches], last: int, position: dict[str, object]) -> PendingBatches:
    """Several batches' parts of one topic as one."""
    whole = PendingBatches(parts[0].topic, first=parts[0].first, last=last, position=position)
    for part in parts:
        whole.files += part.files
        whole.passing += part.passing
        whole.schemas |= part.schemas
        whole.changes |= part.changes
        whole.name_takeover = part.name_takeover or whole.name_takeover
    return whole


def _by_topic(changelog: ChangeLog, batch: BatchContents, gone: set[str]) -> dict[str, PendingBatches]:
    """
    :param gone: full names of tables that are dropped before the batch; afterwards, those after it
    """
    by_topic: dict[str, PendingBatches] = {}
    structures: dict[tuple[TableId, int], str] = {}
    for topic in sorted({f.topic for f in batch.files} | set(batch.schemas)):
        by_topic[topic] = PendingBatches(topic, first=batch.batch, last=batch.batch, position=batch.position)
        for version, schema in batch.schemas.get(topic, {}).items():
            by_topic[topic].schemas[int(version)] = schema
            structures[schema.id, schema.version] = topic
    for file in batch.files:
        part = by_topic[file.topic]
        (part.passing if file.passing else part.files).append((changelog.file_uri(batch.connector, file), file))
    for record in batch.schema_changes:
        for change in record.changes:
            name = change.id.full_name
            if change.table is not None and (change.id, change.table.version) in structures:
                part = by_topic[structures[change.id, change.table.version]]
                part.changes[change.table.version] = change
                if name in gone and change.previous_id not in (None, change.id):
                    part.name_takeover = record.seq, record.ts_us
            if change.type == "DROP":
                gone.add(name)
            else:
                gone.discard(name)
    return by_topic


def collect_topics(changelog: ChangeLog, contents: Sequence[BatchContents]) -> dict[str, PendingBatches]:
    """Everything that some batches hold, by topic."""
    batches = BatchesByTopic(changelog, contents) if contents else None
    return {topic: part for topic in batches.topics if (part := batches.merge_parts(topic))} if batches else {}


@dataclass(frozen=True, slots=True)
class ColumnLineage:
    """The origin of a final column's value in an older version: a column of it, or a constant (``None`` is NULL)."""

    column: str | None = None
    fill: str | None = None


def trace_columns(pending: PendingBatches, version: int, until: int | None = None) -> dict[str, ColumnLineage]:
    """Column of version ``until`` → where its value comes from in rows of ``version``, through all changes in between.

    :param until: the newest version if not given
    :raises ChangeLogDamaged: a change between the two versions is missing
    """
    final = pending.schema_version if until is None else until
    origins = {name: ColumnLineage(column=name) for name in names_at(pending, version)}
    for step in range(version + 1, final + 1):
        table = _change(pending, step).table
        assert table is not None
        origins = {c.name: _through(origins, pending.changes[step], c.name) for c in table.columns}
    return {name: origins.get(name, ColumnLineage()) for name in pending.schemas[final].column_names}


def _change(pending: PendingBatches, version: int) -> TableChange:
    """Return the change that led to a version."""
    change = pending.changes.get(version)
    if change is None or change.table is None:
        raise ChangeLogDamaged(
            f"The change from version {version - 1} to {version} of {pending.topic} is not in the change log.",
            where=f"batches {pending.first} to {pending.last}",
            safe="The table was not changed.",
            remedy="drop the target table, and snapshot it again with snapshot.mode=always for one run",
        )
    return change


def _through(origins: dict[str, ColumnLineage], change: TableChange, name: str) -> ColumnLineage:
    if name in change.added:
        return ColumnLineage(fill=change.added[name])
    return origins.get(change.renamed.get(name, name), ColumnLineage())


def names_at(pending: PendingBatches, version: int) -> tuple[str, ...]:
    """Columns of a version: one of the batches, or the one before the first pending change.

    :raises ChangeLogDamaged: that change is missing
    """
    if (schema := pending.schemas.get(version)) is not None:
        return schema.column_names
    change = _change(pending, version + 1)
    assert change.table is not None
    return tuple(change.renamed.get(c.name, c.name) for c in change.table.columns if c.name not in change.added)


def left_behind(pending: PendingBatches, version: int) -> tuple[str, ...]:
    """List the columns of the version before that are dropped, or made again: no column of a version continues them.

    Of a version whose schema the batches do not have, no event needs them, and they are not known.
    """
    change = _change(pending, version)
    assert change.table is not None
    goes_on = {change.renamed.get(c.name, c.name) for c in change.table.columns if c.name not in change.added}
    return tuple(name for name in names_at(pending, version - 1) if name not in goes_on)


def base_version(pending: PendingBatches) -> int:
    """Return the version of the rows that the target holds: the one before the first pending change."""
    return min(pending.changes) - 1 if pending.changes else pending.schema_version
