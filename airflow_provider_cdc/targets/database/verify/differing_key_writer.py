"""The keys of rows that differ, as Parquet: the input of repairs, in the form of a comparison by Spark."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.model.table_schema import arrow_type
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable
from airflow_provider_cdc.targets.database.schema.value_kinds import ValueKind, kind_of

_ROWS: Final = 10_000
_CLOCK: Final = re.compile(r"([+-]?)(?:(\d+) )?(\d+):(\d\d):(\d\d)(?:\.(\d+))?")


class DifferingKeys:
    """Writes the keys of one table: ``key`` by the names of the source, and how many rows source (``source``) and table (``target``) have of it.

    :param folder: for them; empty: they are not kept. It is made with the first key
    :param zone: of moments, in a database that has no type for them
    """

    def __init__(self, storage: Storage, folder: str, table: DatabaseTargetTable, zone: str) -> None:
        self._storage, self.folder, self._table, self._zone = storage, folder, table, zone
        self._types = [arrow_type(field.column.type) for field in table.key_columns]
        key = pa.struct(
            [(field.column.name, type_) for field, type_ in zip(table.key_columns, self._types, strict=True)]
        )
        self._schema = pa.schema([("key", key), ("source", pa.int64()), ("target", pa.int64())])
        self._parts, self._waiting = list[pa.Table](), 0
        self._file: Any = None
        self._writer: pq.ParquetWriter | None = None

    def add_expected_key(self, rows: pa.Table, number: int, *, there: int) -> None:
        """Record the key of a row that the source has.

        :param there: rows that the table has of this key
        """
        if self.folder:
            row = rows.slice(number, 1)
            self._add([row[field.name].combine_chunks() for field in self._table.key_columns], 1, there)

    def add_surplus_key(self, key: Sequence[Any]) -> None:
        """Record a key that only the table has.

        :param key: as the database gives it
        """
        if not self.folder:
            return
        try:
            parts = zip(key, self._table.key_columns, self._types, strict=True)
            self._add([_typed(value, kind_of(field.column), type_, self._zone) for value, field, type_ in parts], 0, 1)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # none of the source
            self._add(None, 0, 1)

    def close(self) -> bool:
        """Write the rest, and return whether there is any key."""
        self._flush()
        if self._writer is None:
            return False
        self._writer.close()
        self._file.close()
        return True

    def _add(self, key: list[pa.Array] | None, source: int, target: int) -> None:
        type_ = self._schema.field("key").type
        key_array = pa.nulls(1, type_) if key is None else pa.StructArray.from_arrays(key, fields=list(type_))
        self._parts.append(pa.table([key_array, pa.array([source]), pa.array([target])], schema=self._schema))
        self._waiting += 1
        if self._waiting >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._parts:
            return
        if self._writer is None:
            files, path = self._storage.resolve_url(self.folder)
            files.makedirs(path, exist_ok=True)
            self._file = files.open(f"{path}/part-0.parquet", "wb")
            self._writer = pq.ParquetWriter(self._file, self._schema)
        self._writer.write_table(pa.concat_tables(self._parts))
        self._parts, self._waiting = [], 0


def _typed(value: Any, kind: ValueKind, type_: pa.DataType, zone: str) -> pa.Array:
    """Convert a value of the database to the one that the change log would have.

    :param zone: of moments that do not say theirs
    :raises ArrowException: it cannot have such a value
    """
    if kind.name == "time":
        value = _micros(value)
    if kind.name == "bits" and isinstance(value, str):  # zeros and ones
        value = int(value, 2).to_bytes(((kind.length or 1) + 7) // 8, "little")
    if pa.types.is_date(type_) and isinstance(value, str):
        value = value.removesuffix(" 00:00:00")  # Oracle has no dates without a time
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return _moment(pa.array([value]), type_, zone)
    if pa.types.is_decimal(type_):
        return pa.array([str(value)]).cast(type_)
    return pa.array([value]).cast(type_) if isinstance(value, (str, int)) else pa.array([value], type_)


def _micros(value: Any) -> int:
    """Parse a time of a day as a database writes it, in microseconds.

    >>> _micros("+000 00:00:01.500000"), _micros(dt.time(1)), _micros("-01:00:00")
    (1500000, 3600000000, -3600000000)

    :raises ValueError: it is none
    """
    if isinstance(value, dt.datetime):
        value = value.time()
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    match = _CLOCK.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value} is not a time of day")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    size = whole * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])
    return -size if sign == "-" else size


def _moment(value: pa.Array, type_: pa.DataType, zone: str) -> pa.Array:
    try:
        if pa.types.is_string(value.type):
            return value.cast(type_)
    except pa.ArrowInvalid:  # it says no zone
        value = value.cast(pa.timestamp(type_.unit))
    return value.cast(type_) if value.type.tz else pc.assume_timezone(value, zone).cast(type_)
