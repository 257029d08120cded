"""Reads result sets as Arrow columns, by the binary protocol of prepared statements; a kernel decodes the rows.

The binary protocol does not round: a FLOAT of a snapshot has the same bits as in the log. The text protocol rounds it. PyMySQL has no
prepared statements, so the three commands that are needed are sent here.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import SourceUnavailable, values_of
from airflow_provider_cdc.core.model.table_schema import Column, TableSchema, arrow_type, row_struct
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.columns import array_builders as col
from airflow_provider_cdc.sources.mysql.columns.column_buffers import (
    ColumnBuffers,
    Finisher,
    ScratchMemory,
    build_struct_array,
)
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema.column_types import BLOBS, INTEGERS, SPATIAL, MySqlColumnType
from airflow_provider_cdc.sources.mysql.snapshot.result_column_check import (
    COM_STMT_CLOSE,
    COM_STMT_PREPARE,
    ResultColumn,
    UnexpectedColumn,
)

_COM_STMT_EXECUTE = 0x17
INTERRUPTED: Final = 1317
"""Error code of a statement that KILL QUERY ended (``ER_QUERY_INTERRUPTED``)."""
BUFFER: Final = 4 << 20
BLOCK_ROWS: Final = 32_768


class ResultReader:
    """Reads one table's rows from result sets.

    :param schema: the columns; queries must select them in this order
    :param extras: number of further columns after them, which are read as bytes
    """

    def __init__(self, schema: TableSchema, config: MySqlConfig, *, extras: int = 0) -> None:
        self.schema = schema
        self.type = pa.struct([*row_struct(schema), *[pa.field("", pa.binary())] * extras])
        self._scratch = ScratchMemory()
        self._finishers: list[Finisher] = []
        self._stores: list[int] = []
        rows = []
        slots = [0, 0, 0]
        filters = Filters(config)
        needed, key = filters.list_needed_columns(schema), filters.select_key_columns(schema)
        for column in schema.columns:
            kind, a, b, finisher = _column(column, f"{schema.id}.{column.name}", config, column.name in key)
            if column.name not in needed:
                finisher = col.build_null_finisher(arrow_type(column.type))
            store = {k.R_BYTES: k.STORE_VARIABLE, k.R_DECIMAL_WIDE: k.STORE_WIDE}.get(kind, k.STORE_FIXED)
            rows.append((kind, a, b, slots[store]))
            slots[store] += 1
            self._stores.append(store)
            self._finishers.append(finisher)
        for _ in range(extras):
            rows.append((k.R_BYTES, 0, 0, slots[k.STORE_VARIABLE]))
            slots[k.STORE_VARIABLE] += 1
            self._stores.append(k.STORE_VARIABLE)
            self._finishers.append(col.build_bytes_finisher(pa.binary()))
        self._columns = np.array(rows, np.int64).reshape(-1, 4)
        self._rows = min(BLOCK_ROWS, max((8 << 20) // (8 * len(rows)), 1024))

    def read(
        self, connection: Connection, sql: str, like: Sequence[ResultColumn] | None = None
    ) -> Iterator[pa.StructArray]:
        """Execute a query; yields struct arrays of up to :data:`BLOCK_ROWS` rows.

        :param like: the expected column definitions; ``None`` = not compared
        :raises SourceUnavailable: the connection was lost
        :raises UnexpectedColumn: a column is not defined as expected; the connection must be closed
        """
        statement = self._execute(connection, sql)
        try:
            yield from self._answer(_PacketBuffer(connection._sock), like)
        except pymysql.err.Error:  # the server's answer ends with it
            self._command(connection, struct.pack("<BI", COM_STMT_CLOSE, statement))
            raise
        self._command(connection, struct.pack("<BI", COM_STMT_CLOSE, statement))

    def read_first_rows(
        self, connection: Connection, sql: str, max_bytes: int, stop: Callable[[], bool]
    ) -> tuple[list[pa.StructArray], bool]:
        """Execute a query; returns its first rows, about ``max_bytes`` of them, and whether there were more.

        The remaining rows are discarded as they come, never held in memory.

        :param stop: called when there are more rows; ends the statement on the server, or returns ``False`` if it could not
        :raises SourceUnavailable: the connection was lost
        """
        statement, packets = self._execute(connection, sql), _PacketBuffer(connection._sock)
        images: list[pa.StructArray] = []
        size = 0
        try:
            for image in self._answer(packets, None):
                images.append(image)
                size += image.nbytes
                if size >= max_bytes:
                    break
            if more := not packets.ended:
                packets.pass_over(stopped=stop())
        finally:
            if packets.ended:
                self._command(connection, struct.pack("<BI", COM_STMT_CLOSE, statement))
        return images, more

    def _answer(self, packets: _PacketBuffer, like: Sequence[ResultColumn] | None) -> Iterator[pa.StructArray]:
        scratch = self._scratch
        packets.read_packet()  # the number of columns
        for i in range(len(self._stores)):
            definition = packets.read_packet()
            if like is not None and not (column := ResultColumn.parse(definition)).has_same_encoding(like[i]):
                raise UnexpectedColumn(column, like[i])
        packets.read_packet()  # the end of the definitions
        why = k.NEED_MORE
        while why != k.LAST_ROW:
            if why == k.SPLIT:
                yield self._large(packets.read_large_row())
                why = k.ROWS_FULL
                continue
            if why == k.NEED_MORE:
                packets.receive_packets()
            buffers = ColumnBuffers(self._stores, self._rows, len(packets.buf), scratch)
            rows, packets.used, why = k.decode_result(
                packets.buf, packets.used, packets.have, self._columns, *buffers.kernel_arrays
            )
            if why == k.PROTOCOL:
                packets.raise_error()
            packets.ended = why == k.LAST_ROW
            if rows:
                yield self._image(buffers, rows)

    def _image(self, buffers: ColumnBuffers, rows: int) -> pa.StructArray:
        with values_of(self.schema.id):
            return build_struct_array(buffers, self._finishers, rows, None, self.type)

    def _large(self, payload: npt.NDArray[np.uint8]) -> pa.StructArray:
        """Decode a row of 16 MB or more."""
        buffers = ColumnBuffers(self._stores, 1, len(payload), ScratchMemory())
        fixed, valid, wide, offsets, data, filled = buffers.kernel_arrays
        if not k.result_row(
            payload, 1, len(payload), 0, self._columns, len(self._columns), fixed, valid, wide, offsets, data, filled
        ):
            raise SourceUnavailable("The server's response is invalid: a large row does not have its declared length.")
        return self._image(buffers, 1)

    def _execute(self, connection: Connection, sql: str) -> int:
        """Prepare and execute a statement; its result is left in the socket. Returns the statement's id."""
        c: Any = connection
        c._execute_command(COM_STMT_PREPARE, sql)
        head = c._read_packet()._data
        statement, ncols, nparams = struct.unpack_from("<IHH", head, 1)
        for count in (nparams, ncols):
            for _ in range(count + (1 if count else 0)):
                c._read_packet()
        if ncols != len(self._stores):
            raise AssertionError(f"{ncols} columns were returned instead of {len(self._stores)}")
        self._command(connection, struct.pack("<BIBI", _COM_STMT_EXECUTE, statement, 0, 1))
        return int(statement)

    @staticmethod
    def _command(connection: Connection, body: bytes) -> None:
        connection._sock.sendall(struct.pack("<I", len(body))[:3] + b"\0" + body)


class _PacketBuffer:
    """The packets that the server sends, in a buffer; the bytes ``used`` to ``have`` are not processed yet.

    :ivar ended: the result set was read to its end
    """

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.ended = False
        self.buf: npt.NDArray[np.uint8] = np.empty(BUFFER, np.uint8)
        self.used = self.have = 0

    def receive_packets(self) -> None:
        """Receive at least the next packet, and further bytes that have arrived."""
        self._need(4)
        self._need(4 + self._length())
        if self.have < len(self.buf):
            self._poll()

    def read_packet(self) -> bytes:
        """Return the payload of the next packet, one that is not a row."""
        self._need(4)
        length = self._length()
        self._need(4 + length)
        if self.buf[self.used + 4] == 0xFF:
            self.raise_error()
        self.used += 4 + length
        return self.buf[self.used - length : self.used].tobytes()

    def read_large_row(self) -> npt.NDArray[np.uint8]:
        """Return the payload of a row that spans several packets."""
        parts = []
        length = 0xFFFFFF
        while length == 0xFFFFFF:
            self._need(4)
            length = self._length()
            self._need(4 + length)
            parts.append(self.buf[self.used + 4 : self.used + 4 + length].copy())
            self.used += 4 + length
        return np.concatenate(parts)

    def pass_over(self, *, stopped: bool) -> None:
        """Discard all remaining rows, of any size.

        :param stopped: the statement was killed, so the result may end with the error :data:`INTERRUPTED`
        """
        goes_on = False
        while not self.ended:
            self._need(4)
            length = self._length()
            self._need(4 + min(length, 9))
            first = self.buf[self.used + 4] if length else 0
            if not goes_on and first == 0xFF:
                self._need(4 + length)
                try:
                    self.raise_error()
                except pymysql.err.Error as e:
                    if stopped and e.args[:1] == (INTERRUPTED,):
                        return
                    raise
            self.ended = not goes_on and first == 0xFE and length < 9
            self._drop(4 + length)
            goes_on = length == 0xFFFFFF

    def _drop(self, count: int) -> None:
        while (there := self.have - self.used) < count:
            count -= there
            self.used = self.have = 0
            if not self._receive():
                raise _lost("the server closed it")
        self.used += count

    def raise_error(self) -> None:
        """Raise the error of an error packet, or :class:`SourceUnavailable` for an unexpected packet."""
        self.ended = self.buf[self.used + 4] == 0xFF
        packet = self.buf[self.used + 4 : min(self.used + 4 + self._length(), self.have)].tobytes()
        if packet[:1] == b"\xff":
            pymysql.err.raise_mysql_exception(packet)
        raise SourceUnavailable(f"The server's response is invalid (it begins with {packet[:8].hex()}).")

    def _length(self) -> int:
        at = self.used
        return int(self.buf[at]) | int(self.buf[at + 1]) << 8 | int(self.buf[at + 2]) << 16

    def _need(self, count: int) -> None:
        if self.have - self.used >= count:
            return
        rest = self.have - self.used
        buf = self.buf if count <= len(self.buf) else np.empty(count + BUFFER // 4, np.uint8)
        buf[:rest] = self.buf[self.used : self.have].copy()
        self.buf, self.used, self.have = buf, 0, rest
        while self.have < count:
            if not self._receive():
                raise _lost("the server closed it")

    def _poll(self) -> None:
        """Receive the bytes that have arrived already, so that blocks have many rows."""
        while self.have < len(self.buf) // 2 and select.select([self._sock], [], [], 0)[0] and self._receive():
            pass

    def _receive(self) -> int:
        try:
            n = int(self._sock.recv_into(memoryview(self.buf)[self.have :]))  # type: ignore[arg-type]
        except OSError as e:
            raise _lost(str(e)) from e
        self.have += n
        return n


def _lost(why: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"The connection was lost during the read of a table: {why}.",
        safe="Tables that were read completely are kept; the next run resumes with this table.",
        remedy="if the error repeats, raise net_write_timeout and wait_timeout on the server",
    )


_Read = tuple[int, int, int, Finisher]


def _column(column: Column, where: str, config: MySqlConfig, key: bool) -> _Read:
    """Return the way the kernel reads a column of the binary protocol: kind, two parameters, finisher."""
    t = MySqlColumnType.from_column(column)
    if t.base in INTEGERS:
        width = {3: 4}.get(INTEGERS[t.base], INTEGERS[t.base])
        wide = t.unsigned and t.base == "bigint"
        return (
            k.R_INT,
            width,
            int(t.unsigned),
            col.unsigned_bigint(column, where) if wide else col.build_integer_finisher(column),
        )
    if t.base == "decimal":
        return _decimal(column, *t.precision_and_scale)
    if t.base in ("date", "datetime", "timestamp"):
        return (
            k.R_DATE if t.base == "date" else k.R_DATETIME,
            0,
            0,
            col.build_temporal_finisher(column, key=where if key else None),
        )
    if t.base == "bit":
        return k.R_BIT, 0, 0, col.finish_booleans if column.type == "bool" else col.build_bit_finisher(column)
    simple: dict[str, _Read] = {
        "float": (k.R_BITS, 4, 0, col.finish_floats),
        "double": (k.R_BITS, 8, 0, col.finish_doubles),
        "year": (k.R_INT, 2, 1, col.build_integer_finisher(column)),
        "time": (k.R_TIME, 0, 0, col.build_integer_finisher(column)),
        "vector": (k.R_BYTES, 0, 0, col.finish_vectors),
    }
    if t.base in simple:
        return simple[t.base]
    if t.base in SPATIAL:
        return k.R_BYTES, 0, 0, col.finish_geometries
    if t.base in BLOBS:
        return k.R_BYTES, 0, 0, col.build_binary_finisher(config.binary_handling_mode)
    if t.base in ("enum", "set"):
        return k.R_BYTES, 0, 0, col.member_texts
    # everything else comes as text in the connection's character set, which is utf8mb4
    return k.R_BYTES, 0, 0, col.build_text_finisher("utf8mb4", where)


def _decimal(column: Column, precision: int, scale: int) -> _Read:
    if precision <= 18:
        return k.R_DECIMAL, precision, scale, col.build_decimal_finisher(column, precision, scale, wide=False)
    if precision <= 38:
        return k.R_DECIMAL_WIDE, precision, scale, col.build_decimal_finisher(column, precision, scale, wide=True)
    return k.R_BYTES, precision, scale, col.long_decimals(column, precision, scale, lambda b, _p, _s: b.decode())


__all__ = ["ResultReader"]
