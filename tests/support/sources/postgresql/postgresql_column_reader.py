"""Reads columns of a real server in both forms, and decodes them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from psycopg import Connection

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.postgresql.columns.value_decoders import ColumnValues, make_decoder
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import BINARY_VALUE, NULL_VALUE, TEXT_VALUE
from airflow_provider_cdc.sources.postgresql.schema.column_types import make_column
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import TypeCatalog

SETTINGS = (
    "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, YMD', false), set_config('IntervalStyle', 'postgres', false), "
    "set_config('extra_float_digits', '3', false), set_config('bytea_output', 'hex', false)"
)


def configuration(**properties: Any) -> PostgresConfig:
    """Return a configuration; underscores stand for dots."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return PostgresConfig.parse(
        {"database.hostname": "h", "database.user": "u", "database.password": "p", "database.dbname": "postgres", "topic.prefix": "t"}
        | named
    )  # fmt: skip


class ColumnReader:
    """Decodes the values of expressions, in binary form and as texts."""

    def __init__(self, connection: Connection[Any], config: PostgresConfig | None = None) -> None:
        self.connection, self.config = connection, config or configuration()
        connection.prepare_threshold = None  # the same statements have other types
        connection.execute(SETTINGS)
        self.types = TypeCatalog.read(connection)

    def make_column(self, type_: str) -> tuple[Column, int, int]:
        """Return the column of a type, its OID and its modifier."""
        self.connection.execute("DROP TABLE IF EXISTS pg_temp.probe")
        self.connection.execute(f"CREATE TEMP TABLE probe (v {type_})")
        oid, modifier = self.connection.execute(
            "SELECT atttypid::int8, atttypmod FROM pg_attribute WHERE attrelid = 'pg_temp.probe'::regclass AND attname = 'v'"
        ).fetchone()
        if self.types.find_type(oid) is None:
            self.types = TypeCatalog.read(self.connection)
        return make_column("v", oid, modifier, self.types, self.config, nullable=True), oid, modifier

    def read_both(self, type_: str, values: list[str | None]) -> tuple[pa.Array, pa.Array, list[str | None]]:
        """Store values, and return them from the binary form, from texts, and as the server prints them."""
        column, oid, modifier = self.make_column(type_)
        with self.connection.cursor().copy("COPY probe FROM STDIN") as copy:
            for value in values:
                copy.write_row((value,))
        with self.connection.cursor().copy("COPY (SELECT v FROM probe) TO STDOUT") as copy:
            texts = [row[0] for row in copy.rows()]  # a cast to text is not always what the server sends
        with self.connection.cursor().copy("COPY (SELECT v FROM probe) TO STDOUT (FORMAT binary)") as copy:
            binary = b"".join(bytes(part) for part in copy)
        decoder = make_decoder(column, oid, modifier, self.types, self.config)
        return decoder.decode(split_copy(binary)), decoder.decode(pack(texts)), texts


def split_copy(data: bytes) -> ColumnValues:
    """Find the values of a COPY in binary form that has one column."""
    p, kinds, starts, lengths = 19 + struct.unpack_from("!i", data, 15)[0], [], [], []
    while struct.unpack_from("!h", data, p)[0] == 1:
        (length,) = struct.unpack_from("!i", data, p + 2)
        kinds.append(NULL_VALUE if length < 0 else BINARY_VALUE)
        starts.append(p + 6)
        lengths.append(max(length, 0))
        p += 6 + max(length, 0)
    return _values(data, kinds, starts, lengths)


def pack(values: list[str | bytes | None]) -> ColumnValues:
    """Put values behind one another: texts as texts, bytes as the binary form."""
    data, kinds, starts, lengths = b"", [], [], []
    for value in values:
        encoded = value.encode() if isinstance(value, str) else (value or b"")
        kinds.append(NULL_VALUE if value is None else TEXT_VALUE if isinstance(value, str) else BINARY_VALUE)
        starts.append(len(data))
        lengths.append(len(encoded))
        data += encoded
    return _values(data, kinds, starts, lengths)


def _values(data: bytes, kinds: list[int], starts: list[int], lengths: list[int]) -> ColumnValues:
    return ColumnValues(
        np.frombuffer(data or b"\0", np.uint8),
        np.array(kinds, np.uint8),
        np.array(starts, np.int64),
        np.array(lengths, np.int32),
    )
