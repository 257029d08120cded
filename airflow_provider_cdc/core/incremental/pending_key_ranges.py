"""Ranges of keys: which rows and keys of a scan come next, and the rest of it behind them.

Of each range the keys that may be absent are looked up first, by themselves: whether a key has a row is the database's to say, not a
matter of the order in which it sorts texts. Then the rows of the range are read, like those of a whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_cdc.core.model.connector_offset import TableScan
from airflow_provider_cdc.core.model.key_json import InvalidKeyValue, Key, parse_key_value
from airflow_provider_cdc.core.model.notifications import ScanProblem, TableScanStatus
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, KeyRange


def waiting_keys(scan: TableScan, most: int) -> list[Key]:
    """Return the keys that are to be looked up next."""
    return scan.ranges[0].absent[:most] if scan.ranges else []


def whole_range(reader: ChunkReader, scan: TableScan, rows: KeyRange) -> KeyRange:
    """Return the first range, with both of its bounds; without ranges ``rows`` itself.

    :param rows: the rows of the table that come next
    """
    if not scan.ranges or scan.ranges[0].last is None:
        return rest_of_first_range(reader, scan, rows)
    (end,) = reader.to_source_keys(rows.table, scan.key, [scan.ranges[0].last])
    return replace(rest_of_first_range(reader, scan, rows), end=end)


def rest_of_first_range(reader: ChunkReader, scan: TableScan, rows: KeyRange) -> KeyRange:
    """Return the rows of the first range that come next; its last row is known."""
    if not scan.ranges or rows.after is not None or scan.ranges[0].first is None:
        return rows
    (first,) = reader.to_source_keys(rows.table, scan.key, [scan.ranges[0].first])
    return replace(rows, first=first)


def advance_scan(scan: TableScan, after: Key | None, *, last: bool, lookups: int) -> TableScan:
    """Return the scan behind a chunk.

    :param after: key of the chunk's last row
    :param last: the table, or the first range, has no more rows
    :param lookups: how many keys were looked up, instead of reading rows
    """
    if lookups:
        return scan.record_lookups(lookups)
    return scan.range_read() if last and scan.ranges else scan.advance_key(after)


def order_of_ranges(schema: TableSchema, scan: TableScan, key: Sequence[str]) -> tuple[str, ...] | ScanProblem:
    """Return the columns by which the rows of ranges are ordered.

    Those of the key of events come first, by which ranges are bounded.

    :param key: the present key of events
    """
    if [*key] != scan.key:
        return ScanProblem(
            TableScanStatus.SKIPPED,
            f"the key of {schema.id} was changed from {', '.join(scan.key)} to {', '.join(key)} after its key ranges were requested; "
            "the rest of the ranges is not read: send a new signal",
        )
    columns = [schema.get_column(name) for name in key]
    try:
        for range_ in scan.ranges:
            for values in (range_.first, range_.last, *range_.absent):
                for value, column in zip(values or (), columns, strict=False):
                    parse_key_value(value, column)
    except InvalidKeyValue as e:
        return ScanProblem(
            TableScanStatus.SKIPPED,
            f"the key of {schema.id} was changed after its key ranges were requested ({e}); the rest of the ranges is not read: send a new signal",
        )
    return tuple(dict.fromkeys((*key, *schema.key)))
