"""``key-ranges`` of ``execute-snapshot`` (ours): only rows of these ranges are read, and keys that may be gone are looked up.

Keys are those of events, by the names of their columns:

    >>> parse_range({"data-collection": "shop.orders", "from": {"id": 5}, "to": {"id": 90}, "absent": [{"id": 7}]})
    AskedRange(table='shop.orders', first={'id': 5}, last={'id': 90}, absent=({'id': 7},))
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_cdc.core.model.connector_offset import ScanRange, TableScan
from airflow_provider_cdc.core.model.key_json import (
    InvalidKeyValue,
    Key,
    build_key_arrays,
    build_sort_key,
    parse_key_value,
)
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema

MOST_RANGES: Final = 1_000
"""Ranges of one signal."""
MOST_ABSENT: Final = 10_000
"""Absent keys of one signal."""
MOST_WAITING: Final = 5
"""How many times as many of both may wait in an offset, which is written with each batch."""
_FIELDS: Final = ("data-collection", "from", "to", "absent")


class InvalidKeyRange(ValueError):
    """Ranges of keys cannot be read; the text names the error."""


@dataclass(frozen=True, slots=True)
class RequestedRange:
    """A range as its sender wrote it.

    :param table: name, or regular expression, of its table
    :param first: column → value of the key of its first row; ``None`` = from the beginning
    :param last: likewise, of its last row
    :param absent: keys that may not be at the source any more
    """

    table: str
    first: Mapping[str, Any] | None = None
    last: Mapping[str, Any] | None = None
    absent: tuple[Mapping[str, Any], ...] = ()


def parse_range(entry: object) -> RequestedRange:
    """Parse an entry of ``key-ranges``.

    :raises InvalidKeyRange: it has another form
    """
    if not isinstance(entry, dict) or not isinstance(table := entry.get("data-collection"), str) or not table.strip():
        raise InvalidKeyRange('an entry of "key-ranges" has no string "data-collection"')
    for name in entry:
        if name not in _FIELDS:
            raise InvalidKeyRange(
                f"the range of {table} has the unknown field {_quoted(name)}{_near(name, _FIELDS)}; valid fields are {', '.join(_FIELDS)}"
            )
    bounds = []
    for name in ("from", "to"):
        bound = entry.get(name)
        if bound is not None and not isinstance(bound, dict):
            raise InvalidKeyRange(f'"{name}" of a range of {table} is not an object with the key columns')
        bounds.append(bound)
    absent = entry.get("absent")
    absent = [] if absent is None else absent
    if not isinstance(absent, list) or not all(isinstance(key, dict) for key in absent):
        raise InvalidKeyRange(f'"absent" of a range of {table} is not a list of objects with the key columns')
    return RequestedRange(table, bounds[0], bounds[1], tuple(absent))


def check_number(ranges: int, absent: int, scans: Sequence[TableScan]) -> None:
    """Check that there are no more ranges than an offset may hold.

    :param ranges: of a signal
    :param absent: keys of the signal
    :param scans: scans that wait already
    :raises InvalidKeyRange: there are more than an offset may hold
    """
    for unit, name, n, most, there in (
        ("ranges", "key-ranges", ranges, MOST_RANGES, sum(len(scan.ranges) for scan in scans)),
        ("keys", "absent", absent, MOST_ABSENT, sum(len(r.absent) for scan in scans for r in scan.ranges)),
    ):
        if n > most:
            raise InvalidKeyRange(
                f'"{name}" has {n:,} {unit}, but a signal may have at most {most:,}: send several signals'
            )
        if there + n > MOST_WAITING * most:
            raise InvalidKeyRange(
                f'"{name}" has {n:,} {unit}, and {there:,} of other signals are waiting; at most {MOST_WAITING * most:,} may wait: send the signal again later'
            )


def ranges_of(schema: TableSchema, key: Sequence[str], entries: Sequence[RequestedRange]) -> list[ScanRange]:
    """Return the ranges of one table, as they are read: in the order given; overlaps that can be recognized become one range.

    :param key: names of the key columns
    :raises InvalidKeyRange: a key is not one of the table, lies outside its ranges, or cannot be found at the source
    """
    if not key:
        raise InvalidKeyRange(
            f"{schema.id} has no key, so key ranges are not possible: add a primary key, or name the key columns with "
            f"message.key.columns={schema.id}:<columns>"
        )
    columns = [schema.get_column(name) for name in key]
    try:
        parsed = [
            ScanRange(
                first=_key(entry.first, schema.id, columns),
                last=_key(entry.last, schema.id, columns),
                absent=[k for k in (_key(absent, schema.id, columns) for absent in entry.absent) if k is not None],
            )
            for entry in entries
        ]
        build_key_arrays([k for r in parsed for k in (r.first, r.last, *r.absent) if k is not None], columns)
    except InvalidKeyValue as e:
        raise InvalidKeyRange(f"{schema.id}: {e}") from None
    _check_inside(schema.id, parsed, columns)
    return _unique(_merged(parsed, columns))


def _key(values: Mapping[str, Any] | None, table: TableId, columns: Sequence[Column]) -> Key | None:
    if values is None:
        return None
    names = [column.name for column in columns]
    for name in values:
        if name not in names:
            raise InvalidKeyValue(
                f'"{name}" is not a key column{_near(name, names)}; the key columns are {", ".join(names)}'
            )
    if missing := [name for name in names if name not in values]:
        raise InvalidKeyValue(f"a key lacks {', '.join(missing)}; the key columns are {', '.join(names)}")
    return [parse_key_value(values[column.name], column) for column in columns]


def _check_inside(table: TableId, ranges: Sequence[ScanRange], columns: Sequence[Column]) -> None:
    """Keys whose order only the database knows are looked up wherever they lie."""
    bounds = [(_rank(r.first, columns), _rank(r.last, columns)) for r in ranges]
    for r, (low, high) in zip(ranges, bounds, strict=True):
        if low is not None and high is not None and low > high:
            raise InvalidKeyRange(
                f"{table}: a range from {_shown(r.first)} to {_shown(r.last)} is in the wrong order: its end comes before its beginning"
            )
    if _incomparable(ranges, columns):
        return
    for key in (key for r in ranges for key in r.absent):
        rank = build_sort_key(key, columns) or ()
        if not any((low is None or low <= rank) and (high is None or rank <= high) for low, high in bounds):
            raise InvalidKeyRange(f'{table}: {_shown(key)} of "absent" is in none of the ranges')


def _merged(ranges: Sequence[ScanRange], columns: Sequence[Column]) -> list[ScanRange]:
    """Ranges without overlaps, in the order of the first row, where it is known how the database orders keys."""
    if _incomparable(ranges, columns):
        same: dict[str, ScanRange] = {}
        for r in ranges:
            at = json.dumps([r.first, r.last])
            same[at] = _joined(same[at], r, r.last) if at in same else r
        return [*same.values()]
    ordered = sorted(ranges, key=lambda r: (r.first is not None, _rank(r.first, columns) or ()))
    merged: list[ScanRange] = []
    for r in ordered:
        low, end = _rank(r.first, columns), _rank(merged[-1].last, columns) if merged else None
        if not merged or (end is not None and low is not None and low > end):
            merged.append(r)
        else:
            high = _rank(r.last, columns)
            last = None if end is None or high is None else r.last if high > end else merged[-1].last
            merged[-1] = _joined(merged[-1], r, last)
    return merged


def _joined(a: ScanRange, b: ScanRange, last: Key | None) -> ScanRange:
    return ScanRange(first=a.first, last=last, absent=[*a.absent, *b.absent])


def _unique(ranges: Sequence[ScanRange]) -> list[ScanRange]:
    """Each absent key once."""
    written: set[str] = set()
    unique = []
    for r in ranges:
        texts = {json.dumps(key): key for key in r.absent}
        unique.append(r.model_copy(update={"absent": [key for text, key in texts.items() if text not in written]}))
        written.update(texts)
    return unique


def _incomparable(ranges: Sequence[ScanRange], columns: Sequence[Column]) -> bool:
    example = next((k for r in ranges for k in (r.first, r.last, *r.absent) if k is not None), None)
    return example is not None and build_sort_key(example, columns) is None


def _rank(key: Key | None, columns: Sequence[Column]) -> tuple[Any, ...] | None:
    return None if key is None else build_sort_key(key, columns)


def _near(name: str, names: Sequence[str]) -> str:
    lowered = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), [*lowered], n=1)
    return f" (did you mean {lowered[near[0]]}?)" if near else ""


def _quoted(text: str) -> str:
    return f'"{text}"'


def _shown(key: Key | None) -> str:
    return json.dumps(key, ensure_ascii=False)
