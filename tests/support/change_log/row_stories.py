"""The history of each row of a memory database, by its own log, and the story that the change log has of it."""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
from airflow_provider_cdc.changelog.row_history.row_history_models import RowChange, RowHistory
from airflow_provider_cdc.changelog.row_history.row_history_reader import RowHistoryReader
from airflow_provider_cdc.core.model.log_items import DELETE, UPDATE
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.memory.database import LoggedRowChange as Logged
from airflow_provider_cdc.sources.memory.database import MemoryDatabase, MemoryLogEntry
from tests.support.connectors import Connector

Row = dict[str, Any]
Done = tuple[str, Row | None, Row | None, tuple[int, int]]
"""Operation, image before, image after (each without what the log does not have), entry and row of the log."""
CHANGES = ("create", "update", "delete", "key change", "truncate")


class RowStories:
    """The changes of each row: table → key → its changes, oldest first. The tables have the key ``id``.

    A row takes its changes along to another key, and a table to another name. A row that gets the key of a deleted row continues its changes.
    """

    def __init__(self, database: MemoryDatabase) -> None:
        self.database, self.rows = database, defaultdict[TableId, dict[int, list[Done]]](dict)
        self._at = 0

    def captured(self) -> None:
        """The rows that are there now are read, and nothing before is known."""
        self._at = len(self.database.log)

    def advance(self) -> RowStories:
        """Take in what was done since."""
        for at in range(self._at, len(self.database.log)):
            self._entry(self.database.log[at], at)
        self._at = len(self.database.log)
        return self

    def _entry(self, entry: MemoryLogEntry, at: int) -> None:
        if entry.truncated is not None:
            for done in self.rows[entry.truncated].values():
                done.append(("truncate", None, None, (at, 0)))
        moved = {
            change.id: self.rows.pop(change.previous_id, {})
            for change in entry.changes
            if change.previous_id is not None
        }
        self.rows.update(moved)
        for number, change in enumerate(entry.rows):
            if number >= entry.rollback_of and change.table.key:
                self._row(change, (at, number))

    def _row(self, change: Logged, place: tuple[int, int]) -> None:
        rows, before, after = self.rows[change.table.id], change.before, change.after
        if change.op == DELETE:
            assert before is not None
            rows.setdefault(before["id"], []).append(("delete", before, None, place))
        elif change.op == UPDATE and before is not None and after is not None and before["id"] != after["id"]:
            until = rows.get(before["id"], [])
            rows[after["id"]] = [*until, ("key change", before, after, place)]
            rows[before["id"]] = [*until, ("key change", before, None, place)]
        else:
            assert after is not None
            rows.setdefault(after["id"], []).append(
                ("update" if change.op == UPDATE else "create", before, after, place)
            )


def stories(connector: Connector, *, seconds: float = 60) -> RowHistoryReader:
    """Reports what the change log has now."""
    events = KeyEventReader(connector.changelog, connector.name, time.monotonic() + seconds)
    return RowHistoryReader(events, connector.name, partial(connector.store.schema_changes_of, connector.name))


def order_story(story: RowHistory, database: MemoryDatabase) -> list[Done]:
    """The same of a story, oldest first. A table that is read again is emptied before: the database knows nothing of it."""
    changes = [change for change in reversed(story.changes) if change.operation in CHANGES]
    return [_to_done(change) for change in changes if change.operation != "truncate" or _truncates(database, change)]


def complete_story(done: list[Done], found: list[Done]) -> list[Done]:
    """Add to a row's changes the values that events have from earlier changes in the same transaction.

    The log leaves them out. Events of rows that have passed keys have them, as the events before say nothing of the row's key.

    :param found: the story; images have more values where it has them
    """
    shown = {one[3]: one[2] or {} for one in found}
    made, known, entry = list[Done](), dict[str, Any](), -1
    for operation, before, after, place in done:
        known, entry = known if place[0] == entry else {}, place[0]
        if after is not None:
            more = {name: known[name] for name in shown.get(place, {}) if name not in after and name in known}
            after = {**after, **more}
        known = (after or {}) if after is None or operation == "create" else known | after
        made.append((operation, before, after, place))
    return made


def _truncates(database: MemoryDatabase, change: RowChange) -> bool:
    """Check whether a client has emptied the table; not if it was made again, or a snapshot has emptied it before it read it again."""
    if change.snapshot is not None:
        return False
    entry = database.log[change.position["entry"]]
    assert entry.truncated is not None or entry.changes, "neither a truncate nor a table that was made anew"
    return str(entry.truncated) == change.table


def _to_done(change: RowChange) -> Done:
    place = change.position["entry"], change.position["row"]
    return (
        change.operation,
        _known_image(change.before, change.unavailable_before),
        _known_image(change.after, change.unavailable),
        place,
    )


def _known_image(image: Row | None, lacks: list[str]) -> Row | None:
    return None if image is None else {name: value for name, value in image.items() if name not in lacks}


def kept_places(connector: Connector) -> set[tuple[int, int]]:
    """Entry and row of every event that the change log still has."""
    changelog, found = connector.changelog, set[tuple[int, int]]()
    for manifest in changelog.read_manifests(connector.name, after=changelog.find_first_batch(connector.name) - 1):
        for file in manifest.files:
            for row in pq.read_table(
                changelog.storage.join_path(connector.name, file.path), columns=["source"]
            ).to_pylist():
                found.add((row["source"]["entry"], row["source"]["row"]))
    return found
