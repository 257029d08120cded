"""Keys that the source changes: pending batches are split there, and each part is applied by the key that its rows had."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches, base_version
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, PrimaryKeyMode
from airflow_provider_cdc.targets.database.events.event_reader import files_of
from airflow_provider_cdc.targets.database.schema.batch_common_types import with_room


@dataclass(frozen=True, slots=True)
class KeyedPart:
    """A part of pending batches whose rows have one key.

    :param former: the keys of the parts before, by names of the source; a table that has one of them gets the key of this part
    :param schema_version: version of the columns that rows in the table have before it
    :param last: no part follows
    """

    pending: PendingBatches
    former: tuple[tuple[str, ...], ...] = ()
    schema_version: int = 0
    last: bool = True


def changes_key(pending: PendingBatches, config: DatabaseTargetConfig) -> bool:
    """Check whether the source changes the key by which rows of a table are found."""
    return config.primary_key_mode is PrimaryKeyMode.RECORD_KEY and bool(_begins(pending))


def split_by_key_change(changelog: ChangeLog, pending: PendingBatches, config: DatabaseTargetConfig) -> list[KeyedPart]:
    """Split pending batches where the key changes. Events from before the table was emptied are in none of the parts.

    :raises ChangeLogDamaged: a file differs from its manifest
    """
    keyed = changes_key(pending, config)
    # rows from before may lack the values that a column must have now
    emptied = _emptied(changelog, pending) if config.truncate_enabled and (keyed or pending.changes) else 0
    files = [entry for entry in pending.files if entry[1].last_seq > emptied]
    since = base_version(pending)
    if not keyed:
        return [
            KeyedPart(
                replace(pending, files=files, name_takeover=(emptied, 0)) if emptied else pending, schema_version=since
            )
        ]
    bounds = [*_begins(pending), pending.schema_version + 1]
    parts, former = list[KeyedPart](), list[tuple[str, ...]]()
    for begin, end in itertools.pairwise((min(pending.schemas), *bounds)):
        some = [entry for entry in files if begin <= entry[1].schema_version < end]
        last = end > pending.schema_version
        if some or last:
            part = replace(pending, files=some, name_takeover=None) if last else _with_key(pending, some, end)
            if emptied and not parts:
                part = replace(part, name_takeover=(emptied, 0))
            parts.append(KeyedPart(part, tuple(former), since, last))
            since = part.schema_version
        former.append(_key(pending, max(version for version in pending.schemas if version < end)))
    return parts


def key_before(changelog: ChangeLog, connector: str, pending: PendingBatches) -> tuple[str, ...]:
    """Return the key that a table had before the pending batches, by its present names.

    It is empty if the change log does not have it any more, or nothing has changed.
    """
    first = min(pending.changes, default=0)
    if not first or first - 1 in pending.schemas:
        return ()
    for batch in range(pending.first - 1, 0, -1):
        manifest = changelog.find_manifest(connector, batch)
        if manifest is None:
            return ()
        versions = manifest.schemas.get(pending.topic, {})
        if earlier_versions := [version for version in versions if int(version) < first]:
            schema = versions[max(earlier_versions, key=int)]
            return _key(replace(pending, schemas={first - 1: schema, **pending.schemas}), first - 1)
    return ()


def _begins(pending: PendingBatches) -> list[int]:
    """Find the versions with which another key begins."""
    return [
        version for before, version in itertools.pairwise(sorted(pending.schemas)) if _changed(pending, before, version)
    ]


def _changed(pending: PendingBatches, before: int, version: int) -> bool:
    names, old = _names(pending, before, version), pending.schemas[before].key
    return not all(name in names for name in old) or {names[name] for name in old} != set(pending.schemas[version].key)


def _key(pending: PendingBatches, version: int) -> tuple[str, ...]:
    """Return the key of a version, by the names that its columns have now. One that was dropped meanwhile keeps its name."""
    names = _names(pending, version, pending.schema_version)
    return tuple(names.get(name, name) for name in pending.schemas[version].key)


def _names(pending: PendingBatches, version: int, until: int) -> dict[str, str]:
    """Column of a version → its name in a later one. Columns that were dropped meanwhile are left out."""
    names = {name: name for name in pending.schemas[version].column_names}
    for step in range(version + 1, until + 1):
        change = pending.changes.get(step)
        if change is None or change.table is None:
            continue
        now = {old: new for new, old in change.renamed.items()}
        there, added = set(change.table.column_names), set(change.added) - set(change.renamed)
        later = {first: now.get(name, name) for first, name in names.items()}
        names = {first: name for first, name in later.items() if name in there and name not in added}
    return names


def _with_key(pending: PendingBatches, files: list[tuple[str, DataFile]], end: int) -> PendingBatches:
    """Return the part before a version: with the newest columns and its own key.

    If columns of that key are gone since then, the part has the columns that it had.
    """
    version = max(version for version in pending.schemas if version < end)
    names, then = _names(pending, version, pending.schema_version), pending.schemas[version]
    if all(name in names for name in then.key):
        back = {new: old for old, new in names.items()}
        columns = tuple(_loosened(column, then, back) for column in pending.schema.columns)
        key = tuple(names[name] for name in then.key)
        room = pending.schema.model_copy(update={"key": key, "columns": columns})
        return replace(pending, files=files, room=room, name_takeover=None)
    schemas = {number: schema for number, schema in pending.schemas.items() if number < end}
    changes = {number: change for number, change in pending.changes.items() if number < end}
    return with_room(replace(pending, files=files, schemas=schemas, changes=changes, room=None, name_takeover=None))


def _loosened(column: Column, then: TableSchema, back: Mapping[str, str]) -> Column:
    """Return a column that may be NULL if it could before."""
    old = back.get(column.name)
    if column.nullable or old is None or not then.get_column(old).nullable:
        return column
    return column.model_copy(update={"nullable": True})


def _emptied(changelog: ChangeLog, pending: PendingBatches) -> int:
    """Find the number of the last event before which no row is one of the table's; 0 if there is none.

    :raises ChangeLogDamaged: a file differs from its manifest
    """
    taken = pending.name_takeover[0] if pending.name_takeover is not None else 0
    for file in reversed(files_of(pending)):
        if file.last_seq > taken and "t" in file.counts:
            with changelog.open_file(pending.connector, file) as opened:
                events = pq.ParquetFile(opened).read(columns=["seq", "op"])
            last = pc.max(events["seq"].filter(pc.equal(events["op"], "t"))).as_py()
            return max(taken, last or 0)
    return taken
