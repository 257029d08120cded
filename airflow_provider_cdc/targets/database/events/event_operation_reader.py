"""Events as steps for a table: rows that are written, keys that go, and the moment at which all rows go.

A row group at a time, so that memory stays small however long a transaction is. Within one, later events win: of each key only the last event is a step, unless
single events matter (``insert.mode=insert``) or leave values out, which the table keeps then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode
from airflow_provider_cdc.targets.database.events.event_reader import TableEvents, events_after
from airflow_provider_cdc.targets.database.events.outdated_type_events import without_unfit
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable


@dataclass(frozen=True, slots=True)
class TableOperation:
    """The next change of a table.

    :param action: ``write`` rows, ``delete`` the rows of keys, ``empty`` the table, or ``move`` one row to another key, with the values that the event has; it is written
        next, in case that it was not there
    :param rows: by the columns of the target; of ``delete`` the key columns only; of ``move`` also those of the key before, see :data:`~airflow_provider_cdc.targets.database.schema.target_table.PREVIOUS`
    :param seq: numbers of the events in the change log
    :param new: whether these are rows that the source has made, which should not be in the table yet
    """

    action: Literal["write", "delete", "empty", "move"]
    rows: pa.Table
    seq: npt.NDArray[np.int64]
    new: bool = False


def read_operations(
    changelog: ChangeLog,
    connector: str,
    pending: PendingBatches,
    table: DatabaseTargetTable,
    config: DatabaseTargetConfig,
    *,
    each: bool = False,
    committed: Callable[[int], None] = lambda _: None,
    completed: Callable[[Iterator[TableEvents]], Iterator[TableEvents]] | None = None,
) -> Iterator[TableOperation]:
    """Yield the steps that pending batches mean for a table.

    :param each: a step for each event, as the source has made them
    :param completed: puts documents in the place of partial updates
    :param committed: gets, for each file, the time at which the newest of its events was committed at the source, in ms since 1970; 0 if that is not known
    :raises ChangeLogDamaged: a file differs from its manifest
    :raises TargetError: a change cannot be made in the table
    """
    after = 0
    if (
        pending.name_takeover is not None and config.truncate_enabled
    ):  # by a table that has none of the rows of the one before
        after = pending.name_takeover[0]
        yield TableOperation("empty", pa.table({}), np.array([after]))
    late = has_crossing_moves(pending, after)
    table_events = without_unfit(events_after(changelog, connector, pending, table, after, committed), table, config)
    if any(file.sparse_columns for _, file in pending.files):
        table_events = _unsplit(table_events)
    for events in table_events if completed is None else completed(table_events):
        for part in _apart(events):
            if part.moves is not None:
                if late and completed is None:
                    raise _crossed(part, table)
                yield from _moved(part, table, config)
            elif each:
                for at in range(len(part.op)):
                    yield from _steps(part.select_events(np.array([at])), table, config)
            else:
                yield from _steps(part, table, config)


def _unsplit(chunks: Iterator[TableEvents]) -> Iterator[TableEvents]:
    """Yield events without a delete at the end of a chunk whose row is moved by the first event of the next chunk.

    That chunk may be in another file: one in which values are left out, while they are not in that of the delete.
    """
    held: TableEvents | None = None
    for chunk in chunks:
        if held is not None:
            if chunk.moves is None or not chunk.moves[0] or chunk.seq[0] != held.seq[0] + 1:
                yield held
            held = None
        rest = chunk
        if len(chunk.op) and chunk.op[-1] == "d":
            held, rest = (
                chunk.select_events(np.array([len(chunk.op) - 1])),
                chunk.select_events(np.arange(len(chunk.op) - 1)),
            )
        if len(rest.op):
            yield rest
    if held is not None:
        yield held


def _apart(events: TableEvents) -> Iterator[TableEvents]:
    """Each event that moves a row by itself, without the delete that the source makes of it: the row is still needed."""
    begin = 0
    for at in () if events.moves is None else np.flatnonzero(events.moves):
        own = at > begin and events.op[at - 1] == "d" and events.seq[at - 1] == events.seq[at] - 1
        end = int(at) - int(own)
        if end > begin:
            yield events.select_events(np.arange(begin, end))
        yield events.select_events(np.array([at]))
        begin = int(at) + 1
    if begin < len(events.op):
        yield events.select_events(np.arange(begin, len(events.op)))


def has_crossing_moves(pending: PendingBatches, after: int = 0) -> bool:
    """Check whether there may be changes of keys whose create does not follow the delete of the old key.

    Then rows have moved over each other, or passed a key.
    """
    return bool(pending.passing) or any(file.late and file.last_seq > after for _, file in pending.files)


def _crossed(event: TableEvents, table: DatabaseTargetTable) -> TargetError:
    """Build the error for rows that have moved over each other.

    By the time at which one gets its key, its row under the previous key is deleted.
    """
    assert event.left_out is not None
    lacking = str(event.left_out[0]).replace("\0", ", ")
    return TargetError(
        f"Rows of {table.topic} exchanged their keys, and the log does not contain their values of {lacking}.",
        where=f"event {event.seq[0]}",
        safe="The table was not changed.",
        remedy="snapshot the table again with an ad hoc snapshot that replaces its rows, then rebuild the target; or configure the source to log whole rows",
    )


def _moved(event: TableEvents, table: DatabaseTargetTable, config: DatabaseTargetConfig) -> Iterator[TableOperation]:
    """Yield the steps of an event that moves a row.

    :raises TargetError: it cannot be done in this insert mode
    """
    assert event.left_out is not None
    if not (config.delete_enabled and config.insert_mode is InsertMode.UPSERT):
        lacking = str(event.left_out[0]).replace("\0", ", ")
        raise TargetError(
            f"The key of a row of {table.topic} changed, and the log does not contain its values of {lacking}.",
            where=f"event {event.seq[0]}",
            safe="The table was not changed.",
            remedy="set insert.mode=upsert and delete.enabled=true, which moves the row; or configure the source to log whole rows",
        )
    for step in _written(event, [field.name for field in table.key_columns]):
        rows = step.rows
        assert event.previous is not None
        for name in event.previous.column_names:
            rows = rows.append_column(name, event.previous[name])
        yield TableOperation("move", rows, step.seq)
        yield step


def _steps(events: TableEvents, table: DatabaseTargetTable, config: DatabaseTargetConfig) -> Iterator[TableOperation]:
    truncates = np.flatnonzero(events.op == "t")
    begin = 0
    for end in (*truncates, len(events.op)):
        part = events.select_events(np.arange(begin, end))
        yield from _between(part, table, config)
        if end < len(events.op) and config.truncate_enabled:
            yield TableOperation("empty", events.rows.slice(0, 0), events.seq[end : end + 1])
        begin = end + 1


def _between(events: TableEvents, table: DatabaseTargetTable, config: DatabaseTargetConfig) -> Iterator[TableOperation]:
    """Yield the steps of events without truncates."""
    if not config.delete_enabled:
        events = events.select_events(events.op != "d")
    if not len(events.op):
        return
    key = [field.name for field in table.key_columns]
    if not key or (config.insert_mode is InsertMode.INSERT and not (events.op == "d").any()):
        yield from _written(events, key)
        return
    if config.insert_mode is not InsertMode.INSERT and events.left_out is None:
        first, last = find_first_last_per_key(events.rows, key)
        created = np.isin(events.op[first], ("c", "r"))
        yield from _one_each(events.select_events(last[~created]), key)
        yield from _one_each(events.select_events(last[created]), key, new=True)
        return
    rank = _rank(events.rows, key)
    for number in range(int(rank.max()) + 1):
        yield from _one_each(events.select_events(rank == number), key)


def _one_each(events: TableEvents, key: list[str], *, new: bool = False) -> Iterator[TableOperation]:
    """Yield the steps of events that have different keys: deletes first, so that their unique values may come again.

    :param new: as of :class:`TableOperation`
    """
    gone = events.op == "d"
    if gone.any():
        deleted = events.select_events(gone)
        yield TableOperation("delete", deleted.rows.select(key), deleted.seq)
    if not gone.all():
        for step in _written(events.select_events(~gone), key):
            yield replace(step, new=new)


def _written(events: TableEvents, key: list[str]) -> Iterator[TableOperation]:
    """Rows, those together that leave the same columns out."""
    if events.left_out is None:
        yield TableOperation("write", events.rows, events.seq)
        return
    for left_out in sorted(set(events.left_out)):
        some = events.select_events(events.left_out == left_out)
        lacking = set(left_out.split("\0")) if left_out else set()
        names = [name for name in some.rows.column_names if name in key or name not in lacking]
        yield TableOperation("write", some.rows.select(names), some.seq)


def find_first_last_per_key(rows: pa.Table, key: list[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the first and the last event of each key, in the order of the last ones."""
    plain = [f"k{i}" for i in range(len(key))]
    # threads would have a table of groups each, and take twice the memory
    groups = _numbered(rows, key).group_by(plain, use_threads=False).aggregate([("at", "min"), ("at", "max")])
    first, last = groups["at_min"].to_numpy(), groups["at_max"].to_numpy()
    order = np.argsort(last)
    return first[order], last[order]


def _rank(rows: pa.Table, key: list[str]) -> npt.NDArray[np.int64]:
    """For each event, how many of its key come before it."""
    plain = [f"k{i}" for i in range(len(key))]
    numbered = _numbered(rows, key)
    groups = numbered.group_by(plain).aggregate([("at", "min")])
    # the first event of a key stands for it
    first = numbered.join(groups, plain).sort_by("at")["at_min"].to_numpy() if rows.num_rows else np.zeros(0, np.int64)
    order = np.argsort(first, kind="stable")
    begins = np.concatenate([[True], np.diff(first[order]) != 0]) if len(order) else np.zeros(0, np.bool_)
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - starts
    return rank


def _numbered(rows: pa.Table, key: list[str]) -> pa.Table:
    named = rows.select(key).rename_columns([f"k{i}" for i in range(len(key))])
    return named.append_column("at", pa.array(np.arange(rows.num_rows)))
