"""Stores the part of an offset about single tables: a row for each table, written when it changes and not with each offset.

A connector of 1,000 tables that are still to be read would otherwise write 1,000 entries with each batch, once as the offset and once into its
history. A row is valid for the versions from ``since_version`` on and below ``until_version``, so that every offset of the history is whole again
when it is read: a row that a later offset does not have any more is closed, never changed.

An offset that has such rows says so by ``by_table`` in its document; a reader looks for no rows of others.

    >>> small, states = split_document({"seq": 7, "snapshot": {"pending": {"shop.orders": {}}}})
    >>> small
    {'seq': 7, 'by_table': True}
    >>> restore_document(small, states)
    {'seq': 7, 'snapshot': {'pending': {'shop.orders': {}}}}
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.state.models import OffsetTableRow

MARK: Final = "by_table"
PENDING, READ_AT, SCAN, SET_ASIDE = "pending", "read_at", "scan", "set_aside"
_AT_ONCE = 500
"""Rows that one statement names."""


@dataclass(frozen=True, slots=True)
class OffsetTableState:
    """The state of one table in one part of an offset."""

    part: str
    name: str
    state: dict[str, Any]


def has_tables(offset: Offset | None) -> bool:
    """Check whether an offset says anything of single tables."""
    if offset is None:
        return False
    return bool(offset.snapshot.pending or offset.snapshot.read_at or offset.incremental.scans or offset.set_aside)


def split_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], list[OffsetTableState]]:
    """Split an offset's document into that of its row and the states of single tables, in its order."""
    small = dict(document)
    snapshot, incremental = dict(small.pop("snapshot", {})), dict(small.pop("incremental", {}))
    states = [OffsetTableState(part, n, s) for part in (PENDING, READ_AT) for n, s in snapshot.pop(part, {}).items()]
    states += [OffsetTableState(SCAN, scan["table"], scan) for scan in incremental.pop("scans", [])]
    states += [OffsetTableState(SET_ASIDE, n, {"events": e}) for n, e in small.pop("set_aside", {}).items()]
    rest = {"snapshot": snapshot, "incremental": incremental, MARK: bool(states)}
    return small | {key: value for key, value in rest.items() if value}, states


def restore_document(document: Mapping[str, Any], states: Sequence[OffsetTableState]) -> dict[str, Any]:
    """Restore the whole document of an offset.

    :param states: in their order; without effect if the document does not say that it has such
    """
    whole = dict(document)
    if not whole.pop(MARK, False):
        return whole
    by_part: dict[str, list[OffsetTableState]] = defaultdict(list)
    for state in states:
        by_part[state.part].append(state)
    snapshot, incremental = dict(whole.pop("snapshot", {})), dict(whole.pop("incremental", {}))
    for part in (PENDING, READ_AT):
        if part in by_part:
            snapshot[part] = {s.name: s.state for s in by_part[part]}
    if SCAN in by_part:
        incremental["scans"] = [s.state for s in by_part[SCAN]]
    if SET_ASIDE in by_part:
        whole["set_aside"] = {s.name: s.state["events"] for s in by_part[SET_ASIDE]}
    return whole | {k: v for k, v in {"snapshot": snapshot, "incremental": incremental}.items() if v}


def record_states(c: sa.Connection, connector: str, version: int, states: Sequence[OffsetTableState]) -> None:
    """Make these the states from ``version`` on, within the transaction that writes the offset. Only what has changed is written."""
    r = OffsetTableRow
    present = sa.select(r.id, r.part, r.name, r.place, r.state).where(
        r.connector == connector, r.until_version.is_(None)
    )
    current: dict[tuple[str, str, int], sa.Row[Any]] = {}
    nth: Counter[tuple[str, str]] = Counter()
    for row in c.execute(present.order_by(r.place)):
        current[row.part, row.name, nth[row.part, row.name]] = row
        nth[row.part, row.name] += 1
    nth.clear()
    last: Counter[str] = Counter()
    new = []
    for s in states:
        key = (s.part, s.name, nth[s.part, s.name])
        nth[s.part, s.name] += 1
        before = current.get(key)
        if before is not None and before.state == s.state and before.place > last[s.part]:
            del current[key]
            last[s.part] = before.place
            continue
        last[s.part] += 1
        new.append({
            "connector": connector, "part": s.part, "name": s.name, "place": last[s.part], "state": s.state,
            "since_version": version, "until_version": None,
        })  # fmt: skip
    gone = [row.id for row in current.values()]
    for i in range(0, len(gone), _AT_ONCE):
        c.execute(sa.update(r).where(r.id.in_(gone[i : i + _AT_ONCE])).values(until_version=version))
    if new:
        c.execute(sa.insert(r), new)


def whole_offsets(c: sa.Connection, connector: str, documents: Mapping[int, Mapping[str, Any]]) -> dict[int, Offset]:
    """Offsets with their states of single tables.

    :param documents: version → document, as its row has it
    """
    marked = [version for version, document in documents.items() if document.get(MARK)]
    rows = _valid(c, [(connector, min(marked), max(marked))]) if marked else []
    return {version: _whole(document, version, rows) for version, document in documents.items()}


def present_offsets(c: sa.Connection, documents: Mapping[str, tuple[int, Mapping[str, Any]]]) -> dict[str, Offset]:
    """Load the offsets of several connectors, by one query however many they are.

    :param documents: connector → version and document, as its row has them
    """
    marked = [(connector, v, v) for connector, (v, document) in documents.items() if document.get(MARK)]
    rows: dict[str, list[sa.Row[Any]]] = defaultdict(list)
    for row in _valid(c, marked) if marked else ():
        rows[row.connector].append(row)
    return {name: _whole(document, v, rows[name]) for name, (v, document) in documents.items()}


def _whole(document: Mapping[str, Any], version: int, rows: Sequence[sa.Row[Any]]) -> Offset:
    valid = [
        OffsetTableState(row.part, row.name, row.state)
        for row in rows
        if row.since_version <= version and (row.until_version is None or version < row.until_version)
    ]
    return Offset.model_validate(restore_document(document, valid))


def _valid(c: sa.Connection, ranges: Sequence[tuple[str, int, int]]) -> Sequence[sa.Row[Any]]:
    """Rows that are valid for some version from a first to a last one, of each connector."""
    r = OffsetTableRow
    statement = sa.select(r.connector, r.part, r.name, r.state, r.since_version, r.until_version).where(
        sa.or_(
            *(
                (r.connector == connector)
                & (r.since_version <= last)
                & (r.until_version.is_(None) | (r.until_version > first))
                for connector, first, last in ranges
            )
        )
    )
    return c.execute(statement.order_by(r.connector, r.place)).all()
