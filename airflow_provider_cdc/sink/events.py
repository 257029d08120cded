"""Events of the change log as steps for a table: rows that are written, keys that go, and the moment at which all rows go.

A row group at a time, so that memory stays small however long a transaction is. Within one, what comes later wins: of each key only the last event is a step, unless
single events matter (``insert.mode=insert``) or leave values out, which the table keeps then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.log import ChangeLog, committed_ms
from airflow_provider_cdc.changelog.partial import partial
from airflow_provider_cdc.changelog.pending import Pending, lineage
from airflow_provider_cdc.core.errors import ChangeLogDamaged, TargetError
from airflow_provider_cdc.core.model.manifest import DataFile
from airflow_provider_cdc.core.model.schema import Column, arrow_type
from airflow_provider_cdc.sink.config import InsertMode, SinkConfig
from airflow_provider_cdc.sink.tables import COORDINATES, PREVIOUS, Field, SinkTable

WHOLE_GROUP = 65_536
"""Events that are looked at together, at most."""
BEFORE = "before"
"""The document before an event."""
_TRIED = 2000
"""Rows by which the width of a table is known."""


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of a table next.

    :param what: ``write`` rows, ``delete`` the rows of keys, ``empty`` the table, or ``move`` one row to another key, with the values that the event has; it is written
        next, in case that it was not there
    :param rows: by the columns of the target; of ``delete`` the key columns only; of ``move`` also those of the key before, see :data:`PREVIOUS`
    :param seq: numbers of the events in the change log
    :param new: whether these are rows that the source has made, which should not be in the table yet
    """

    what: Literal["write", "delete", "empty", "move"]
    rows: pa.Table
    seq: npt.NDArray[np.int64]
    new: bool = False


@dataclass(frozen=True, slots=True)
class Events:
    """Some events, in their order.

    :param rows: with the columns of the target; of a delete, the key
    :param left_out: columns that an event does not have, of those that any of them lacks; one text for each event, empty if it has all
    :param previous: keys before, by the names of :data:`PREVIOUS`, where events change a key and leave values out: these are in the row that had the key before
    :param moves: which ones do
    :param partial: where updates may say what has changed of a document instead of the document: :data:`BEFORE`, and the event columns of the schema
    """

    op: npt.NDArray[np.object_]
    seq: npt.NDArray[np.int64]
    rows: pa.Table
    left_out: npt.NDArray[np.object_] | None
    previous: pa.Table | None = None
    moves: npt.NDArray[np.bool_] | None = None
    partial: pa.Table | None = None

    def take(self, chosen: npt.NDArray[Any]) -> Events:
        """Some of them.

        :param chosen: which ones: truth values, or numbers in order, each once
        """
        at = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        if len(at) == len(self.op):
            return self
        numbers = pa.array(at)
        left_out = None if self.left_out is None else self.left_out[at]
        partial = None if self.partial is None else self.partial.take(numbers)
        found = Events(self.op[at], self.seq[at], self.rows.take(numbers), left_out, partial=partial)
        if self.previous is None or self.moves is None or not self.moves[at].any():
            return found
        return replace(found, previous=self.previous.take(numbers), moves=self.moves[at])


def steps(
    changelog: ChangeLog,
    connector: str,
    pending: Pending,
    table: SinkTable,
    config: SinkConfig,
    *,
    each: bool = False,
    committed: Callable[[int], None] = lambda _: None,
    completed: Callable[[Iterator[Events]], Iterator[Events]] | None = None,
) -> Iterator[Step]:
    """The steps that pending batches mean for a table.

    :param each: a step for each event, as the source has made them
    :param completed: puts documents in the place of what has changed of them
    :param committed: is told of each file when the newest of its events was committed at the source, in ms since 1970; 0 if that is not known
    :raises ChangeLogDamaged: a file is not what its manifest says
    :raises TargetError: a change cannot be made in the table
    """
    after = 0
    if pending.taken is not None and config.truncate_enabled:  # by a table that has none of the rows of the one before
        after = pending.taken[0]
        yield Step("empty", pa.table({}), np.array([after]))
    found = _unsplit(_events(changelog, connector, pending, table, after, committed))
    for events in found if completed is None else completed(found):
        for part in _apart(events):
            if part.moves is not None:
                yield from _moved(part, table, config)
            elif each:
                for at in range(len(part.op)):
                    yield from _steps(part.take(np.array([at])), table, config)
            else:
                yield from _steps(part, table, config)


def _unsplit(chunks: Iterator[Events]) -> Iterator[Events]:
    """Events without a delete that stands at the end of a chunk although its row is moved by the first event of the next one."""
    held: Events | None = None
    for chunk in chunks:
        if held is not None:
            if chunk.moves is None or not chunk.moves[0] or chunk.seq[0] != held.seq[0] + 1:
                yield held
            held = None
        rest = chunk
        if chunk.left_out is not None and len(chunk.op) and chunk.op[-1] == "d":
            held, rest = chunk.take(np.array([len(chunk.op) - 1])), chunk.take(np.arange(len(chunk.op) - 1))
        if len(rest.op):
            yield rest
    if held is not None:
        yield held


def _apart(events: Events) -> Iterator[Events]:
    """Each event that moves a row by itself, without the delete that the source makes of it: the row is still needed."""
    begin = 0
    for at in () if events.moves is None else np.flatnonzero(events.moves):
        own = at > begin and events.op[at - 1] == "d" and events.seq[at - 1] == events.seq[at] - 1
        end = int(at) - int(own)
        if end > begin:
            yield events.take(np.arange(begin, end))
        yield events.take(np.array([at]))
        begin = int(at) + 1
    if begin < len(events.op):
        yield events.take(np.arange(begin, len(events.op)))


def _moved(event: Events, table: SinkTable, config: SinkConfig) -> Iterator[Step]:
    """The steps of an event that moves a row.

    :raises TargetError: it cannot be done in this insert mode
    """
    assert event.left_out is not None
    if not (config.delete_enabled and config.insert_mode is InsertMode.UPSERT):
        lacking = str(event.left_out[0]).replace("\0", ", ")
        raise TargetError(
            f"A row of {table.topic} got another key, and the log does not have its values of {lacking}.",
            where=f"event {event.seq[0]}",
            safe="The table was not changed.",
            remedy="set insert.mode=upsert and delete.enabled=true, by which the row is moved; or have the source log whole rows",
        )
    for step in _written(event, [field.name for field in table.key]):
        rows = step.rows
        assert event.previous is not None
        for name in event.previous.column_names:
            rows = rows.append_column(name, event.previous[name])
        yield Step("move", rows, step.seq)
        yield step


def _steps(events: Events, table: SinkTable, config: SinkConfig) -> Iterator[Step]:
    ends = np.flatnonzero(events.op == "t")
    begin = 0
    for end in (*ends, len(events.op)):
        part = events.take(np.arange(begin, end))
        yield from _between(part, table, config)
        if end < len(events.op) and config.truncate_enabled:
            yield Step("empty", events.rows.slice(0, 0), events.seq[end : end + 1])
        begin = end + 1


def _between(events: Events, table: SinkTable, config: SinkConfig) -> Iterator[Step]:
    """Steps of events without truncates."""
    if not config.delete_enabled:
        events = events.take(events.op != "d")
    if not len(events.op):
        return
    key = [field.name for field in table.key]
    if not key or (config.insert_mode is InsertMode.INSERT and not (events.op == "d").any()):
        yield from _written(events, key)
        return
    if config.insert_mode is not InsertMode.INSERT and events.left_out is None:
        first, last = ends(events.rows, key)
        made = np.isin(events.op[first], ("c", "r"))
        yield from _one_each(events.take(last[~made]), key)
        yield from _one_each(events.take(last[made]), key, new=True)
        return
    rank = _rank(events.rows, key)
    for number in range(int(rank.max()) + 1):
        yield from _one_each(events.take(rank == number), key)


def _one_each(events: Events, key: list[str], *, new: bool = False) -> Iterator[Step]:
    """Steps of events that have different keys: first what goes, so that what was unique to it may come again.

    :param new: as of :class:`Step`
    """
    gone = events.op == "d"
    if gone.any():
        deleted = events.take(gone)
        yield Step("delete", deleted.rows.select(key), deleted.seq)
    if not gone.all():
        for step in _written(events.take(~gone), key):
            yield replace(step, new=new)


def _written(events: Events, key: list[str]) -> Iterator[Step]:
    """Rows, those together that leave the same columns out."""
    if events.left_out is None:
        yield Step("write", events.rows, events.seq)
        return
    for left_out in sorted(set(events.left_out)):
        some = events.take(events.left_out == left_out)
        lacking = set(left_out.split("\0")) if left_out else set()
        kept = [name for name in some.rows.column_names if name in key or name not in lacking]
        yield Step("write", some.rows.select(kept), some.seq)


def ends(rows: pa.Table, key: list[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the first and the last event of each key are, in the order of the last ones."""
    plain = [f"k{i}" for i in range(len(key))]
    # threads would have a table of groups each, and take twice the memory
    found = _numbered(rows, key).group_by(plain, use_threads=False).aggregate([("at", "min"), ("at", "max")])
    first, last = found["at_min"].to_numpy(), found["at_max"].to_numpy()
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


# -- reading ----------------------------------------------------------------------------------------------------------


def files_of(pending: Pending) -> list[DataFile]:
    """The files of a topic, in the order of their events.

    :raises ChangeLogDamaged: two of them have events of the same time
    """
    files = sorted((file for _, file in pending.files), key=lambda file: file.first_seq)
    for one, other in itertools.pairwise(files):
        if other.first_seq <= one.last_seq:
            raise ChangeLogDamaged(
                f"Two files of {pending.topic} have events of the same time: {one.path} and {other.path}.",
                where=f"batches {pending.first} to {pending.last}",
                safe="The table was not changed.",
                remedy="read the table again with an ad hoc snapshot",
            )
    return files


def _events(
    changelog: ChangeLog,
    connector: str,
    pending: Pending,
    table: SinkTable,
    after: int,
    committed: Callable[[int], None],
) -> Iterator[Events]:
    """The events after one, in their order."""
    for file in files_of(pending):
        if file.last_seq <= after:
            continue
        for found in read(changelog, connector, file, pending, table, committed=committed):
            yield found if file.first_seq > after else found.take(found.seq > after)


def read(
    changelog: ChangeLog,
    connector: str,
    file: DataFile,
    pending: Pending,
    table: SinkTable,
    *,
    share: int = 0,
    of: int = 1,
    groups: Sequence[int] | None = None,
    only_keys: bool = False,
    most: int = WHOLE_GROUP,
    committed: Callable[[int], None] = lambda _: None,
) -> Iterator[Events]:
    """The events of a file, in their order.

    :param share: which one of its shares is read
    :param of: how many shares it has; each has some of its row groups
    :param groups: its row groups that are read, instead of those of a share
    :param only_keys: nothing is read but what the keys need, which are all columns that the table has
    :param most: events that come together
    :param committed: told when the newest of the file's events was committed, in ms since 1970
    """
    with changelog.open(connector, file) as opened:
        source = pq.ParquetFile(opened)
        committed(committed_ms(source.metadata))
        there = set(source.schema_arrow.names)
        wanted = [name for name in ("seq", "op", "key", "after", "unavailable", "previous_key") if name in there]
        documents = partial(pending) if file.sparse else None
        if documents is not None:
            wanted += [name for name in (BEFORE, *(column.name for column in documents.columns)) if name in there]
        if only_keys:
            origins = lineage(pending, file.schema_version)
            images = [f"after.{origins[field.column.name].column}" for field in table.key]
            wanted = ["seq", "op", *(["key"] if "key" in there else []), *images]
        chosen = range(share, source.num_row_groups, of) if groups is None else groups
        for batch in source.iter_batches(most, row_groups=chosen, columns=wanted):
            yield _made(pa.Table.from_batches([batch]), file, pending, table)


def width(changelog: ChangeLog, connector: str, pending: Pending, table: SinkTable) -> float:
    """About how many bytes a row has as Arrow has it, by some of the rows of a topic's largest file.

    :raises ChangeLogDamaged: the file is not what its manifest says
    """
    _, largest = max(pending.files, key=lambda found: found[1].rows)
    some = next(read(changelog, connector, largest, pending, table, most=_TRIED), None)
    return 0.0 if some is None else some.rows.nbytes / max(some.rows.num_rows, 1)


def newest_commit(changelog: ChangeLog, connector: str, pending: Pending) -> int:
    """When the newest of a topic's events was committed at the source, in ms since 1970; 0 if that is not known."""
    newest = 0
    for _, file in pending.files:
        with changelog.open(connector, file) as opened:
            newest = max(newest, committed_ms(pq.read_metadata(opened)))
    return newest


def _made(events: pa.Table, file: DataFile, pending: Pending, table: SinkTable) -> Events:
    key, after = _fields(events, "key"), _fields(events, "after")
    origins = lineage(pending, file.schema_version)
    columns = {}
    for field in table.fields:
        columns[field.name] = _value(field, origins, key, after, events, file)
    op = events["op"].to_numpy(zero_copy_only=False)
    left_out = None
    if file.sparse:
        final = {
            origin.column: field.name
            for field in table.fields
            if (origin := origins.get(field.column.name)) is not None
        }
        left_out = _left_out(events, final)
    said = None
    if (documents := partial(pending) if file.sparse else None) is not None:
        before = _fields(events, BEFORE).get(documents.body, pa.nulls(events.num_rows, pa.string()))
        given = {c.name: events[c.name] for c in documents.columns if c.name in events.column_names}
        said = pa.table({BEFORE: before, **given})
    found = Events(op, events["seq"].to_numpy(), pa.table(columns), left_out, partial=said)
    return found if left_out is None else _with_moves(found, events, left_out, origins, table)


def _value(
    field: Field, origins: Any, key: dict[str, Any], after: dict[str, Any], events: pa.Table, file: DataFile
) -> pa.ChunkedArray:
    """A column of the target, for all events."""
    column, rows = field.column, events.num_rows
    if column in COORDINATES:
        constant = {"__connect_topic": pa.scalar(file.topic), "__connect_partition": pa.scalar(0, pa.int32())}
        return events["seq"] if column is COORDINATES[2] else pa.chunked_array([pa.repeat(constant[column.name], rows)])
    origin = origins[column.name]
    wanted = arrow_type(column.type)
    if origin.column is None:
        value = pa.scalar(origin.fill, pa.string()).cast(wanted) if origin.fill is not None else pa.scalar(None, wanted)
        return pa.chunked_array([pa.repeat(value, rows)])
    value = after.get(origin.column)
    if origin.column in key:  # images may leave keys out, and deletes have no image
        value = key[origin.column] if value is None else pc.coalesce(value, key[origin.column])
    return _typed(value, column, rows)


def _typed(value: pa.ChunkedArray | None, column: Column, rows: int) -> pa.ChunkedArray:
    wanted = arrow_type(column.type)
    if value is None:
        return pa.chunked_array([pa.nulls(rows, wanted)])
    try:
        return value if value.type == wanted else value.cast(wanted)
    except pa.ArrowInvalid as e:
        raise TargetError(
            f"A value of the column {column.name} is none of the type that the source has given it: {e}",
            safe="The table was not changed.",
            remedy="drop the target table and read it again with an ad hoc snapshot, or leave the column out with field.exclude.list",
        ) from e


def _left_out(events: pa.Table, final: dict[str | None, str]) -> npt.NDArray[np.object_]:
    """For each event, the columns of the target that it has no value of."""
    if "unavailable" not in events.column_names:
        return np.full(events.num_rows, "", object)
    found: Sequence[list[str] | None] = events["unavailable"].to_pylist()
    texts = ["\0".join(sorted(final[name] for name in names if name in final)) if names else "" for names in found]
    return np.array(texts, object)


def _with_moves(
    found: Events, events: pa.Table, left_out: npt.NDArray[np.object_], origins: Any, table: SinkTable
) -> Events:
    """With the keys before, if an event changes a key and leaves values out."""
    if "previous_key" not in events.column_names or not table.key:
        return found
    moves = events["previous_key"].is_valid().to_numpy(zero_copy_only=False) & (left_out != "")
    if not moves.any():
        return found
    before = _fields(events, "previous_key")
    columns = {
        PREVIOUS.format(at): _typed(before.get(origins[field.column.name].column), field.column, events.num_rows)
        for at, field in enumerate(table.key)
    }
    return replace(found, previous=pa.table(columns), moves=moves)


def _fields(events: pa.Table, name: str) -> dict[str, pa.ChunkedArray]:
    """The fields of a column of structs. Those of a missing struct are NULL."""
    if name not in events.column_names or not pa.types.is_struct(events[name].type):
        return {}
    return {field.name: pc.struct_field(events[name], [i]) for i, field in enumerate(events[name].type)}
