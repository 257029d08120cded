"""Repairs tables that a comparison has found to differ: which keys are to be read again, as signals of the connector.

A signal has capture read ranges of keys beside the stream, and write a delete of keys that the source does not have (``key-ranges`` of
``execute-snapshot``). The apply brings both into the tables, like any other change.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.key_json import InvalidKeyValue, Key, build_sort_key, key_to_json, parse_key_value
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command

if TYPE_CHECKING:
    from airflow_provider_cdc.changelog.files.storage import Storage
    from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema

MOST_KEYS: Final = 10_000
"""More keys than this are no repair of single rows."""
MOST_RANGES: Final = 100
"""Ranges of one table: neighbouring keys are read in one, with the rows between them."""


@dataclass(frozen=True, slots=True)
class DifferingKey:
    """A key of which source and table do not have the same.

    :param values: of the key columns, as Python has them
    :param source: rows that the source has of it
    :param target: rows that the table has of it
    """

    values: tuple[Any, ...]
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class TableRepair:
    """A repair of one table.

    :param topic: its topic; where a route makes several tables of it and not all are meant, that and the location of one
    :param signal: data of an ``execute-snapshot`` signal; ``None``: no signal repairs it
    :param advice: the alternative, or the effect of the signal
    """

    topic: str
    signal: dict[str, Any] | None
    advice: str


def repairs_of(
    connector: str, tables: Iterable[Mapping[str, Any]], schemas: Mapping[str, TableSchema], storage: Storage
) -> list[TableRepair]:
    """Build the repairs of all tables that differ.

    One signal repairs all tables that a route makes of one topic: each row that is read again comes to the table that it belongs in.

    :param tables: entries of the result of a comparison
    :param schemas: topic → its table at the source
    :param storage: whose credentials open the folders of keys
    :raises CdcError: the keys of rows that differ cannot be read
    """
    repairs, routed = list[TableRepair](), dict[str, list[list[DifferingKey]]]()
    for table in tables:
        topic, number = table["topic"], table["missing"] + table["surplus"] + table["different"]
        name, schema = table["name"] or topic, schemas.get(topic)
        if table["problem"]:
            repairs.append(TableRepair(name, None, _advice(connector, table, schema)))
        elif number:
            assert schema is not None
            some = table["keys"] and number <= MOST_KEYS
            keys = read_keys(storage, table["keys"], schema.key) if some else []
            at = table["location"] if table["name"] else ""
            repair = build_repair(connector, name, schema, keys, number, at=at)
            if at and repair.signal is not None:
                routed.setdefault(topic, []).append(keys)
            else:
                repairs.append(repair)
    for topic, several in routed.items():
        keys = _together(several)
        repairs.append(build_repair(connector, topic, schemas[topic], keys, len(keys)))
    return sorted(repairs, key=lambda repair: repair.topic)


def _advice(connector: str, table: Mapping[str, Any], schema: TableSchema | None) -> str:
    advice = (
        f"{table['problem']}: run the apply; if the problem remains, move the table away, and the apply rebuilds it"
    )
    if not table["name"] or schema is None:
        return advice
    kind = None if schema.key else "blocking"
    again = format_cdc_command("snapshot", connector, format_exact_pattern(schema.id), type=kind, replace=True)
    return f"{advice}, or snapshot all rows again: {again}"


def build_repair(
    connector: str,
    topic: str,
    schema: TableSchema,
    keys: Sequence[DifferingKey],
    number: int,
    *,
    at: str = "",
) -> TableRepair:
    """Build the repair of one table.

    :param topic: as of :class:`TableRepair`
    :param schema: the table at the source, with the key of events
    :param keys: those that differ, as far as they are known
    :param number: how many differ
    :param at: where the table is, if its topic has several
    """
    table = schema.id
    rebuild = f"`{format_cdc_command('rebuild', connector, at or table)}`"
    again = f"`{format_cdc_command('snapshot', connector, format_exact_pattern(table), replace=True)}`"
    if not schema.key:
        return TableRepair(topic, None, f"its rows have no key and cannot be repaired by key: run {rebuild}")
    if number > MOST_KEYS or not keys:
        return TableRepair(
            topic, None, f"{number:,} keys differ, so the whole table must be repaired: run {again} or {rebuild}"
        )
    if twice := sum(key.target > 1 for key in keys):
        return TableRepair(
            topic,
            None,
            f"it has {twice:,} duplicate keys, which only a rebuild removes: run {rebuild}",
        )
    columns = [schema.get_column(name) for name in schema.key]
    try:
        ranges = key_ranges(table, columns, keys)
    except InvalidKeyValue as e:
        return TableRepair(topic, None, f"a key of the table is not a key of the source ({e}): run {rebuild}")
    data = {"type": "incremental", "data-collections": [format_exact_pattern(table)], "key-ranges": ranges}
    return TableRepair(
        topic,
        data,
        f"a snapshot reads {number:,} keys again, in {len(ranges):,} ranges; the next apply repairs the table",
    )


def _together(several: Iterable[Sequence[DifferingKey]]) -> list[DifferingKey]:
    """Keys that differ in several tables of one topic, each once: a row in the wrong table is missing in one and too much in another."""
    keys: dict[tuple[Any, ...], DifferingKey] = {}
    for key in itertools.chain.from_iterable(several):
        before = keys.get(key.values, key)
        keys[key.values] = DifferingKey(key.values, max(key.source, before.source), max(key.target, before.target))
    return list(keys.values())


def key_ranges(table: TableId, columns: Sequence[Column], keys: Sequence[DifferingKey]) -> list[dict[str, Any]]:
    """Build the ranges that hold some keys, with those that the source may not have.

    Databases order texts and bytes by rules of their own: of such keys each one is looked up by itself.

    :raises InvalidKeyValue: a key cannot be one of the source
    """
    named = {"data-collection": format_exact_pattern(table)}
    named_keys = [(_key(key, columns), not key.source) for key in keys]
    ranks = {at: rank for at, (key, _) in enumerate(named_keys) if (rank := build_sort_key(key, columns)) is not None}
    if len(ranks) < len(named_keys):
        first = _named(named_keys[0][0], columns)
        return [{**named, "from": first, "to": first, "absent": [_named(key, columns) for key, _ in named_keys]}]
    order = sorted(ranks, key=lambda at: ranks[at])
    ranges = []
    for group in _groups([ranks[at] for at in order]):
        among = [named_keys[order[i]] for i in group]
        entry = {**named, "from": _named(among[0][0], columns), "to": _named(among[-1][0], columns)}
        gone = [_named(key, columns) for key, absent in among if absent]
        ranges.append({**entry, "absent": gone} if gone else entry)
    return ranges


def _groups(ranks: Sequence[tuple[Any, ...]]) -> Iterator[range]:
    """Neighbours together; the groups are divided where the distances are the largest."""
    gaps = [_distance(a, b) for a, b in itertools.pairwise(ranks)]
    cuts = heapq.nlargest(MOST_RANGES - 1, range(len(gaps)), key=lambda i: gaps[i])
    start = 0
    for cut in sorted(cuts):
        yield range(start, cut + 1)
        start = cut + 1
    yield range(start, len(ranks))


def _distance(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[int, float]:
    """Return the distance of two keys: by the first column in which they differ, where that is a number."""
    for at, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            number = not isinstance(x, (str, tuple, bool))
            return -at, float(y - x) if number else 1.0
    return -len(a), 0.0


def _key(key: DifferingKey, columns: Sequence[Column]) -> Key:
    return [parse_key_value(value, column) for value, column in zip(key_to_json(key.values), columns, strict=True)]


def _named(key: Key, columns: Sequence[Column]) -> dict[str, Any]:
    return {column.name: value for column, value in zip(columns, key, strict=True)}


def read_keys(storage: Storage, folder: str, key: Sequence[str]) -> list[DifferingKey]:
    """Read the keys of differing rows that a verification has written.

    :param storage: whose credentials open the folder
    :param folder: of one topic, see ``--keys`` of ``spark_jobs/verify_tables.py``
    :param key: names of the key columns
    :raises CdcError: the folder cannot be read from here
    """
    import pyarrow.parquet as pq

    try:
        files, path = storage.resolve_url(folder)
        keys: list[DifferingKey] = []
        for name in sorted(str(n) for n in files.ls(path, detail=False) if str(n).endswith(".parquet")):
            with files.open(name, "rb") as opened:
                rows: list[Mapping[str, Any]] = pq.read_table(opened, columns=["key", "source", "target"]).to_pylist()
            none = dict.fromkeys(key)  # a key of the table that is none of the source
            keys += [
                DifferingKey(tuple((row["key"] or none)[n] for n in key), row["source"], row["target"]) for row in rows
            ]
    except (OSError, ImportError, ValueError, KeyError) as e:
        raise CdcError(
            f"The keys of the rows that differ cannot be read: {e}",
            where=folder,
            safe="No signal was sent.",
            remedy="leave --keys out, so that the keys are written below the scratch change log",
        ) from e
    return keys


def signal_text(repair: TableRepair) -> str:
    """Format the data of a repair's signal."""
    return json.dumps(repair.signal, ensure_ascii=False)
