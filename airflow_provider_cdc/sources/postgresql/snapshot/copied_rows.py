"""Rows that ``COPY … TO STDOUT (FORMAT BINARY)`` sends, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from psycopg import Connection

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, arrow_type
from airflow_provider_cdc.sources.postgresql.columns.value_decoders import (
    ColumnValues,
    ValueDecoder,
    make_decoder,
    needs_text,
)
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.kernels.copy_splitter import COPY_ENDED, split_copied_rows
from airflow_provider_cdc.sources.postgresql.kernels.message_layout import BAD_MESSAGE, BINARY_VALUE, TEXT_VALUE
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition
from airflow_provider_cdc.sources.postgresql.schema.table_structure import TableStructure
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import TypeCatalog
from airflow_provider_cdc.sources.relational.sql_quoting import quoted_name

BLOCK_BYTES: Final = 8 << 20
BLOCK_ROWS: Final = 16_384
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER: Final = len(_SIGNATURE) + 8


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """Reads the rows of a table's queries.

    :ivar selected: expressions of the table's columns
    """

    structure: TableStructure
    selected: tuple[str, ...]
    forms: tuple[int, ...]
    decoders: tuple[ValueDecoder, ...]

    @classmethod
    def prepare(cls, structure: TableStructure, types: TypeCatalog, config: PostgresConfig) -> CopiedRows:
        """Prepare the select list of a table, and the decoders of its values."""
        selected, forms, decoders = [], [], []
        for column, oid, modifier in zip(
            structure.schema.columns, structure.type_oids, structure.modifiers, strict=True
        ):
            name = quoted_name(column.name)
            text = needs_text(oid, types)
            captured = column.type != NOT_CAPTURED
            selected.append(f"{name}::text" if captured and text else name if captured else "NULL")
            forms.append(TEXT_VALUE if text else BINARY_VALUE)
            decoders.append(make_decoder(column, oid, modifier, types, config))
        return cls(structure, tuple(selected), tuple(forms), tuple(decoders))

    def read(
        self, connection: Connection[tuple[Any, ...]], query: str, extras: int = 0
    ) -> Iterator[tuple[pa.StructArray, list[str | None]]]:
        """Yield blocks of rows, each with the texts of the last row's further columns.

        :param query: selects :attr:`selected`, then ``extras`` texts
        """
        forms = np.array([*self.forms, *[TEXT_VALUE] * extras], np.uint8)
        shape = len(forms), BLOCK_ROWS
        kinds, starts, lengths = np.empty(shape, np.uint8), np.empty(shape, np.int64), np.empty(shape, np.int32)
        for data, begin in _gather_bytes(connection, query):
            p, why = begin, -1
            end = len(data)
            while why != COPY_ENDED and p < end:
                n, p, why = split_copied_rows(data, p, end, forms, kinds, starts, lengths)
                if why == BAD_MESSAGE or (n == 0 and why != COPY_ENDED):
                    raise UnreadableValue(
                        "The server has sent rows that do not have the form of COPY BINARY.",
                        where=str(self.structure.schema.id),
                        safe="The rows were not captured.",
                        remedy="let the worker connect to the server directly, without a proxy, and run again",
                    )
                if n:
                    yield (
                        self._decode(data, kinds[:, :n], starts[:, :n], lengths[:, :n], n),
                        self._last_texts(data, starts[:, n - 1], lengths[:, n - 1]),
                    )

    def _decode(self, data: Any, kinds: Any, starts: Any, lengths: Any, n: int) -> pa.StructArray:
        columns = self.structure.schema.columns
        if not columns:
            return pa.array([{}] * n, pa.struct([]))
        arrays = [
            decoder.decode(ColumnValues(data, kinds[i], starts[i], lengths[i]))
            for i, decoder in enumerate(self.decoders)
        ]
        return pa.StructArray.from_arrays(arrays, fields=[pa.field(c.name, arrow_type(c.type)) for c in columns])

    def _last_texts(self, data: Any, starts: Any, lengths: Any) -> list[str | None]:
        first = len(self.forms)
        return [data[s : s + size].tobytes().decode() for s, size in zip(starts[first:], lengths[first:], strict=True)]


def _gather_bytes(connection: Connection[tuple[Any, ...]], query: str) -> Iterator[tuple[Any, int]]:
    """Yield bytes of whole rows, and where they begin. The server sends each row in one message."""
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)".encode()) as copy,
    ):
        parts: list[Any] = []
        size, first = 0, True
        for part in copy:
            parts.append(part)
            size += len(part)
            if size >= BLOCK_BYTES or len(parts) >= BLOCK_ROWS:
                yield np.frombuffer(b"".join(parts), np.uint8), _HEADER if first else 0
                parts, size, first = [], 0, False
        if size:
            yield np.frombuffer(b"".join(parts), np.uint8), _HEADER if first else 0


def source_of(position: PostgresPosition) -> dict[str, str | np.integer[Any]]:
    """Return the ``source`` block of rows that were read at a position."""
    return {"sequence": f'["{position.lsn}","{position.lsn}"]', "lsn": np.int64(position.lsn)}


def select_text(rows: CopiedRows, extras: Sequence[str] = ()) -> str:
    """Return the select list."""
    return ", ".join([*rows.selected, *extras])
