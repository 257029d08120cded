"""Puts the history of a row together: its changes from the newest one back, under the earlier keys of the row and names of its table.

>>> RowHistoryReader(events, "shop", history).read_history(table, key)
RowHistory(connector='shop', table='inventory.orders', ...)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from airflow_provider_cdc.changelog.row_history.earlier_key_columns import PreviousKeys, called_at_the_end
from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader, Row, RowEvent
from airflow_provider_cdc.changelog.row_history.partial_row_documents import follows_documents, with_documents
from airflow_provider_cdc.changelog.row_history.row_history_models import CurrentRow, Operation, RowChange, RowHistory
from airflow_provider_cdc.changelog.row_history.row_key import Names, RowKey, compose_names, find_column_name
from airflow_provider_cdc.changelog.row_history.row_masking import RowMasks
from airflow_provider_cdc.changelog.row_history.table_renames import History, TableNamePeriod, reign_of
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId

_OPERATIONS: dict[str, Operation] = {"r": "read", "c": "create", "u": "update", "d": "delete", "t": "truncate"}
_COMMON = ("version", "connector", "name", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "schema", "table", "sequence")
"""Fields of the ``source`` block that are not the source's own."""


@dataclass(slots=True)
class _FoundHistory:
    """The events and changes that were found so far, newest first.

    :param names: columns as they are called at the beginning → their names at each event
    """

    events: list[tuple[RowEvent, Names]] = field(default_factory=list)
    changes: list[tuple[int, SchemaChangeRecord, TableChange]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class RowHistoryReader:
    """Reads the histories of rows from one connector's change log.

    :param history: the recorded schema changes
    :param masks: of the rows that are shown
    """

    def __init__(self, events: KeyEventReader, connector: str, history: History, masks: RowMasks | None = None) -> None:
        self._events, self._connector, self._history = events, connector, history
        self._masks = masks or RowMasks({})

    def read_history(self, table: TableId, key: RowKey, *, as_of: datetime | None = None) -> RowHistory:
        """Read the history of the row that has a key now, or had it at a time.

        :param key: with the names that its columns have in the newest version
        """
        until = None if as_of is None else int(as_of.timestamp() * 1_000_000)
        history = self._collect_history(table, key, until)
        in_order = with_documents([event for event, _ in reversed(history.events)])
        history.events = [(event, names) for event, (_, names) in zip(reversed(in_order), history.events, strict=True)]
        events = self._events
        cut = events.first > 1
        begins = self._begins_at() if cut else None
        if cut:
            history.notes.append(
                f"The change log begins with batch {events.first}, committed at {begins}: earlier changes are no longer available."
            )
        row_events = [event for event, _ in history.events if event.op != "t"]
        begins_here = bool(row_events) and row_events[-1].op in ("c", "r")
        # where the row's beginning is not kept, earlier changes of the whole table may have changed it, too
        oldest = -1 if cut and not begins_here else min((event.seq for event in row_events), default=None)
        changes = [_change(*event) for event in _paired([event for event, _ in history.events])]
        changes += [_schema_change(*entry) for entry in history.changes if until is None or entry[1].ts_us <= until]
        if oldest is None:
            changes = []
        shown = sorted(
            (change for change in changes if oldest is not None and change.seq >= oldest),
            key=lambda change: -change.seq,
        )
        return RowHistory(
            connector=self._connector, table=table.full_name, key=dict(key.values), as_of=None if as_of is None else as_of.isoformat(),
            changes=shown, row=_row(history, shown, events.first), first_batch=events.first, last_batch=events.last, begins_at=begins,
            left_out=events.left_out, notes=history.notes,
        )  # fmt: skip

    def _collect_history(self, table: TableId, key: RowKey, until: int | None) -> _FoundHistory:
        history, before, so_far = _FoundHistory(), None, dict[str, str | None]()
        names: Names = so_far
        left: RowEvent | None = None
        while True:
            reign = reign_of(self._history, table, before)
            left = moved = self._add_period(history, reign, key, names, until, left)
            if moved is not None:
                previous = RowKey(dict(moved.previous_key or {}))
                names = compose_names(names, reign.names_in(moved.schema.version))
                key, before = previous, moved.seq
            elif reign.came_from is not None:
                names, key = compose_names(names, reign.names_then), key.rename_columns(reign.names_then)
                table, before = reign.came_from, reign.after
            else:
                if reign.other is not None:
                    history.notes.append(
                        f"Before seq {reign.after}, another table had the name {reign.table}: since then its name is {reign.other}."
                    )
                return history

    def _add_period(
        self,
        history: _FoundHistory,
        reign: TableNamePeriod,
        key: RowKey,
        names: Names,
        until: int | None,
        left: RowEvent | None,
    ) -> RowEvent | None:
        """Add the changes in the time of one name. Returns the event that gave the row its key, if another key was before it.

        :param left: the event that gave the row another key afterwards
        """
        events = self._events.find_events(
            reign.table.full_name, lambda version: key.rename_columns(reign.names_in(version))
        )

        def is_in_period(event: RowEvent) -> bool:
            return reign.has_seq(event.seq) and (until is None or event.committed_us <= until)

        own = [event for event in events if is_in_period(event)]
        if left is not None:  # others may have come to the key since the row left it
            last = max((at for at, event in enumerate(own) if event.op == "d"), default=len(own) - 1)
            own = own[: last + 1]
        if not any(event.op == "c" and event.previous_key is not None for event in own):
            others = PreviousKeys(self._events, reign, key, is_in_period)
            own = sorted([*others.find_earlier_events(own), *own], key=lambda event: event.seq)
            history.notes += others.notes
        moved = None
        for event in reversed(own):
            history.events.append((self._masked(event), compose_names(names, reign.names_in(event.schema.version))))
            if event.op == "c" and event.previous_key is not None:
                moved = event
                break
        since = reign.after if moved is None else moved.seq
        history.changes += [entry for entry in reign.changes if entry[1].seq >= since]
        if moved is not None and (earlier := [e for e in own if e.seq < moved.seq and e.op != "t"]):
            when = format_moment(earlier[-1].committed_us)
            history.notes.append(
                f"Until {when}, another row had the key {_shown(key)}: {len(earlier)} changes belong to that row; --as-of {when} shows them."
            )
        return moved

    def _masked(self, event: RowEvent) -> RowEvent:
        before, after = (self._masks.mask_image(event.schema, image) for image in (event.before, event.after))
        return replace(event, before=before, after=after)

    def _begins_at(self) -> str:
        manifest = self._events.changelog.find_manifest(self._connector, self._events.first)
        return "" if manifest is None else manifest.created_at


def format_moment(us: int) -> str:
    """Microseconds since 1970 in ISO 8601.

    >>> format_moment(0)
    '1970-01-01T00:00:00.000000+00:00'
    """
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat(timespec="microseconds")


def _paired(events: list[RowEvent]) -> Iterator[tuple[RowEvent, RowEvent | None]]:
    """Events, and to each create of a key change the delete that belongs to it.

    :param events: newest first
    """
    taken: RowEvent | None = None
    for at, event in enumerate(events):
        older = events[at + 1] if at + 1 < len(events) else None
        if event is taken:
            continue
        if (
            event.op == "c"
            and event.previous_key is not None
            and older is not None
            and older.op == "d"
            and older.key == event.previous_key
        ):
            taken = older
            yield event, older
        else:
            yield event, None


def _change(event: RowEvent, delete: RowEvent | None) -> RowChange:
    moved = event.previous_key is not None or event.next_key is not None
    before = event.before if delete is None else delete.before
    lacks = event.unavailable_before if delete is None else delete.unavailable
    unavailable = event.unavailable if event.after is not None else ()
    if event.op == "d":
        lacks = event.unavailable
    return RowChange(
        seq=event.seq, batch=event.batch, operation="key change" if moved else _OPERATIONS[event.op], table=event.schema.id.full_name,
        topic=event.topic, key=event.key, previous_key=event.previous_key, next_key=event.next_key, schema_version=event.schema.version,
        columns=list(event.schema.column_names), before=before, after=event.after, unavailable=sorted(unavailable), unavailable_before=sorted(lacks),
        changed=_changed(before, event.after, {*unavailable}), snapshot=_snapshot(event.source),
        position={name: value for name, value in event.source.items() if name not in _COMMON and value is not None},
        transaction=event.transaction, committed_at=format_moment(event.committed_us), captured_at=format_moment(event.ts_us), batch_at=event.created_at,
    )  # fmt: skip


def _snapshot(source: Row) -> str | None:
    snapshot = source.get("snapshot")
    return None if snapshot in (None, "false") else str(snapshot)


def _changed(before: Row | None, after: Row | None, unavailable: set[str]) -> list[str]:
    if before is None or after is None:
        return []
    return [
        name
        for name, value in after.items()
        if name not in unavailable and (name not in before or before[name] != value)
    ]


def _schema_change(batch: int, record: SchemaChangeRecord, change: TableChange) -> RowChange:
    return RowChange(
        seq=record.seq, batch=batch, operation="schema change", table=change.id.full_name,
        schema_version=None if change.table is None else change.table.version, columns=[] if change.table is None else list(change.table.column_names),
        position={name: value for name, value in record.source.items() if name not in _COMMON and value is not None} or record.position,
        committed_at=format_moment(record.ts_us), captured_at=format_moment(record.captured_us),
        statement=record.ddl or f"({change.type})",
    )  # fmt: skip


def _row(history: _FoundHistory, changes: list[RowChange], first: int) -> CurrentRow:
    """Return the row after the newest change.

    :param first: batch that is kept
    """
    newest = next(
        (change for change in changes if change.operation != "schema change" or _drops(change, history)), None
    )
    if newest is None:
        return CurrentRow(state="unknown")
    if newest.operation == "schema change":
        made_again = changes[0].seq > newest.seq and newest.batch < first
        return CurrentRow(state="unknown" if made_again else "no row")
    if newest.after is None:
        return CurrentRow(state="no row")
    row, lacking = dict(newest.after), set(newest.unavailable)
    events = [entry for entry in history.events if entry[0].seq <= newest.seq]
    names_now = events[0][1]
    for event, names in _life(events):
        # an update of a document makes it another one
        for name in sorted(lacking - _bodies(event)):
            original = called_at_the_end(name, names_now)
            column = None if original is None else find_column_name(original, names)
            image = event.after or {}
            if column is not None and column in image and column not in event.unavailable:
                row[name] = image[column]
                lacking.discard(name)
    return CurrentRow(state="row", row=row, unavailable=sorted(lacking))


def _bodies(event: RowEvent) -> set[str]:
    documents = event.schema.documents
    return {documents.body} if documents is not None and follows_documents(event.schema) else set()


def _drops(change: RowChange, history: _FoundHistory) -> bool:
    """Check whether a schema change took the table away."""
    return any(record.seq == change.seq and table_change.type == "DROP" for _, record, table_change in history.changes)


def _life(events: list[tuple[RowEvent, Names]]) -> Iterator[tuple[RowEvent, Names]]:
    """Yield the events of the row that is there now: not of one that had the key before and was deleted.

    :param events: newest first
    """
    for event, names in events:
        if (
            event.op in ("d", "t")
            and event.next_key is None
            and events[0][0] is not event
            and not _continues_key_change(event, events)
        ):
            return
        yield event, names
        if (event.op == "c" and event.previous_key is None) or event.op == "r":
            return


def _continues_key_change(event: RowEvent, events: list[tuple[RowEvent, Names]]) -> bool:
    """Check whether a delete is half of a key change of this row."""
    return any(other.seq > event.seq and other.previous_key == event.key for other, _ in events)


def _shown(key: RowKey) -> str:
    return ", ".join(f"{name}={value}" for name, value in key.values.items())


__all__ = ["RowHistoryReader", "format_moment"]
