"""Finds a row under the key columns that its table had before: a primary key was changed, or ``message.key.columns`` was.

The row's values in the columns of the earlier key are in its oldest known event, or in the later key if that has these columns, too. The newest event under the
earlier key shows that it is the same row: its image must have the later key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader, Row, RowEvent
from airflow_provider_cdc.changelog.row_history.key_index_segment import KeyColumns
from airflow_provider_cdc.changelog.row_history.row_key import Names, RowKey
from airflow_provider_cdc.changelog.row_history.table_renames import TableNamePeriod


@dataclass(slots=True)
class PreviousKeys:
    """The row of one name of a table.

    :param key: with the columns as they are called at the end of the reign
    :param accepts: whether an event belongs to the story
    :ivar notes: texts about changes that could not be found
    """

    events: KeyEventReader
    reign: TableNamePeriod
    key: RowKey
    accepts: Callable[[RowEvent], bool]
    notes: list[str] = field(default_factory=list)

    def find_earlier_events(self, own: list[RowEvent]) -> list[RowEvent]:
        """Find the events of the row under other key columns, ascending; they are before all that are known.

        :param own: events under the key, ascending
        """
        earlier = list[RowEvent]()
        sets = self._sets()
        for columns in sorted(sets, key=lambda names: -sets[names]):
            oldest = next((event for event in [*earlier, *own] if event.op != "t"), None)
            if oldest is not None and oldest.op == "c":
                break  # the row begins there
            values = {**self._values(oldest), **self.key.values}
            if missing := sorted(columns - values.keys()):
                self.notes.append(
                    f"The earlier key of {self.reign.table} was {', '.join(sorted(columns))}. No event under the later key contains {missing[0]} of the row, so earlier changes are not listed."
                )
                break
            before = RowKey({name: values[name] for name in sorted(columns)})
            some = self._under(before, None if oldest is None else oldest.seq)
            if some and self._same(some[-1]):
                earlier = [*some, *earlier]
        return earlier

    def _sets(self) -> dict[frozenset[str], int]:
        """Other key columns that the table had, by their names at the end, and the newest version that had them."""
        sets = dict[frozenset[str], int]()
        versions = self.events.list_key_columns().get(self.reign.table.full_name, {})
        for version, several in versions.items():
            names = self.reign.names_in(version)
            for columns in several:
                own = frozenset(called_at_the_end(name, names) or name for name, _ in columns)
                if own and own != self.key.values.keys():
                    sets[own] = max(version, sets.get(own, version))
        return sets

    def _values(self, event: RowEvent | None) -> Row:
        """Return the values of the row before an event, as the event says, by the names at the end."""
        if event is None:
            return {}
        names = self.reign.names_in(event.schema.version)
        return _by_the_end(event.after, event.unavailable, names) | _by_the_end(
            event.before, event.unavailable if event.op == "d" else event.unavailable_before, names
        )

    def _under(self, key: RowKey, until: int | None) -> list[RowEvent]:
        events = self.events.find_events(
            self.reign.table.full_name, lambda version: key.rename_columns(self.reign.names_in(version))
        )
        return [
            event
            for event in events
            if event.op != "t" and self.accepts(event) and (until is None or event.seq < until)
        ]

    def _same(self, event: RowEvent) -> bool:
        """Check whether the row of an event has the later key."""
        names = self.reign.names_in(event.schema.version)
        image, lacks = (
            (event.after, event.unavailable) if event.after is not None else (event.before, event.unavailable)
        )
        values = _by_the_end(image, lacks, names)
        types = {called_at_the_end(column.name, names): column.type for column in event.schema.columns}
        key_names = [name for name in self.key.values if name in values and name in types]
        columns: KeyColumns = tuple((name, types[name]) for name in key_names)
        row_key, other = (RowKey({name: row[name] for name in key_names}) for row in (values, self.key.values))
        return row_key.to_key(columns) == other.to_key(columns)


def called_at_the_end(name: str, names: Names) -> str | None:
    """Return the name at the end of a column of a version; ``None`` if it is not there any more.

    :param names: columns as they are called at the end → their names in the version
    """
    end_name = next((end for end, name_then in names.items() if name_then == name), None)
    return end_name if end_name is not None else None if name in names else name


def _by_the_end(image: Row | None, lacks: Iterable[str], names: Names) -> Row:
    values = {name: value for name, value in (image or {}).items() if name not in {*lacks}}
    return {end: value for name, value in values.items() if (end := called_at_the_end(name, names)) is not None}
