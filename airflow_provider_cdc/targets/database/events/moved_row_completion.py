"""Rows that have moved over each other to new keys, and whose events leave values out: the values are read before the rows are deleted under their old keys.

The creates of such rows come late, behind the deletes of their old keys (:mod:`airflow_provider_cdc.core.writing.key_conflict_order`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig, InsertMode
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.events.event_operation_reader import has_crossing_moves
from airflow_provider_cdc.targets.database.events.event_reader import TableEvents, events_after
from airflow_provider_cdc.targets.database.events.partial_update_completion import values_in
from airflow_provider_cdc.targets.database.schema.target_table import PREVIOUS, DatabaseTargetTable

Values = Callable[[str, Sequence[Hashable]], dict[Hashable, Any]]
"""Values of rows in a column, by their keys, for keys that exist."""


@dataclass(slots=True)
class LateMoves:
    """Completes the events of one table, each before the next ones are read: it reads rows as they were written before.

    :param old_keys: of the rows that move late
    :param late: numbers of the events that give them their new keys
    :param columns: that these events leave out
    :param values: reads the table
    """

    table: DatabaseTargetTable
    old_keys: frozenset[Hashable]
    late: frozenset[int]
    columns: Sequence[str]
    values: Values
    _held: dict[Hashable, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, events: Iterator[TableEvents]) -> Iterator[TableEvents]:
        """Yield the same events; late ones have all known values of their rows."""
        for some in events:
            keys = _keys(some.rows, [column.name for column in self.table.key_columns])
            begin, touched, leaving = 0, set[Hashable](), set[Hashable]()
            for at, (key, op) in enumerate(zip(keys, some.op, strict=True)):
                if op == "d" and key in self.old_keys:
                    if key in touched:  # its row is yet to be written
                        self._hold(leaving)
                        yield self._completed(some.select_events(np.arange(begin, at)))
                        begin, touched, leaving = at, set(), set()
                    leaving.add(key)
                touched.add(key)
            self._hold(leaving)
            yield self._completed(some.select_events(np.arange(begin, len(some.op))))

    def _hold(self, keys: set[Hashable]) -> None:
        """Read the values of rows that leave their keys."""
        for key in keys:
            self._held.pop(key, None)
        for column in self.columns:
            for key, value in self.values(column, sorted(keys, key=repr)).items() if keys else ():
                self._held.setdefault(key, {})[column] = value

    def _completed(self, events: TableEvents) -> TableEvents:
        if events.moves is None or events.previous is None or events.left_out is None:
            return events
        late = np.flatnonzero(events.moves & np.isin(events.seq, list(self.late)))
        if not len(late):
            return events
        previous = _keys(events.previous, [PREVIOUS.format(at) for at in range(len(self.table.key_columns))])
        rows, left_out, moves = events.rows, events.left_out.copy(), events.moves.copy()
        for column in self.columns:
            values = rows[column].to_pylist()
            for at in late:
                there = self._held.get(previous[at])
                if column in str(left_out[at]).split("\0") and there is not None:
                    values[at] = there[column]
            rows = rows.set_column(rows.column_names.index(column), column, pa.array(values, rows[column].type))
        for at in late:
            moves[at] = False
            if previous[at] in self._held:
                left_out[at] = "\0".join(n for n in str(left_out[at]).split("\0") if n and n not in self.columns)
        return replace(events, rows=rows, left_out=left_out, moves=moves if moves.any() else None)


def late_moves(
    changelog: ChangeLog,
    connector: str,
    pending: PendingBatches,
    table: DatabaseTargetTable,
    config: DatabaseTargetConfig,
    values: Values,
) -> LateMoves | None:
    """Find the late moves that are to be completed; ``None`` if there are none, or the left out values are not texts."""
    sparse = any(file.sparse_columns for _, file in pending.files)
    if not (sparse and has_crossing_moves(pending)) or config.insert_mode is not InsertMode.UPSERT:
        return None
    old_keys, late, columns, deleted = set[Hashable](), set[int](), set[str](), -1
    for some in events_after(changelog, connector, pending, table, 0, lambda _: None):
        if some.moves is not None and some.previous is not None and some.left_out is not None:
            previous = _keys(some.previous, [PREVIOUS.format(at) for at in range(len(table.key_columns))])
            own = _keys(some.rows, [column.name for column in table.key_columns])
            for at in np.flatnonzero(some.moves):
                before = own[at - 1] if at and some.op[at - 1] == "d" and some.seq[at - 1] == some.seq[at] - 1 else None
                if before != previous[at] and not (at == 0 and deleted == some.seq[0] - 1):
                    old_keys.add(previous[at])
                    late.add(int(some.seq[at]))
                    columns |= set(str(some.left_out[at]).split("\0"))
        deleted = int(some.seq[-1]) if len(some.op) and some.op[-1] == "d" else -1
    texts = {column.name for column in table.value_columns if column.column.type == "string"}
    if not late or not columns <= texts:
        return None
    return LateMoves(table, frozenset(old_keys), frozenset(late), sorted(columns), values)


def in_table(dialect: TargetDialect, connection: sa.Connection, table: DatabaseTargetTable) -> Values:
    """Read the values that a table has, as the transaction sees them."""
    return lambda column, keys: dict(values_in(dialect, connection, table, column)(keys))


def _keys(rows: pa.Table, names: Sequence[str]) -> list[Hashable]:
    return list(zip(*[rows[name].to_pylist() for name in names], strict=True))
