"""The part of the source interface for incremental snapshots: reading a table in chunks beside a running stream.

A chunk is the next rows of a table in the order of its key. Two positions in the log around the reading make it safe to mix
chunks with the stream: the watermarks ("DBLog: A Watermark Based Change-Data-Capture
Framework"; Debezium connector documents, "Incremental snapshots"):

* everything that the stream delivered before the chunk's window was opened is in the chunk's rows (the **low** watermark);
* everything in the chunk's rows is in the log before the window is closed (the **high** watermark).

There are two ways to get them. *Written* watermarks are rows of the signal table: they come back through the log. *Read* ones
are positions that the database reports, and need no right to write (``read.only``).
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from airflow_provider_cdc.core.config.property_enums import CHUNK_BYTES
from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from types import TracebackType

    from airflow_provider_cdc.core.model.log_items import RowBlock


class StructureChanged(Exception):
    """The table no longer has the schema with which it was to be read."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows of one table in the order of some columns.

    :param table: schema with which the rows are read, from :meth:`ChunkReader.read_table_schema`
    :param order: names of the columns that the rows are ordered by, which together are unique and never NULL; a surrogate key
        first, if there is one, which may be a pseudo-column of the source's
    :param after: the rows lie behind this key; ``None`` = from the first row
    :param upto: the last row has at most this key; ``None`` = to the last row
    :param condition: rows fulfil this condition too, in the source's own terms, as a signal has it
    :param first: the rows begin with this key, of all columns of the order or only of the first ones; only without ``after``
    :param end: the rows end with this key, of all columns of the order or only of the first ones; only without ``upto``
    :param keys: only rows with one of these keys, of all columns of the order or only of the first ones

    The bounds and keys are a source's own, which only the source interprets: they come from :attr:`ChunkRows.last`,
    :meth:`ChunkReader.read_last_key` and :meth:`ChunkReader.to_source_keys`.
    """

    table: TableSchema
    order: tuple[str, ...]
    after: Key | None = None
    upto: Key | None = None
    condition: str | None = None
    first: Key | None = None
    end: Key | None = None
    keys: tuple[Key, ...] | None = None


@dataclass(slots=True)
class ChunkRows:
    """Rows and watermarks of one chunk.

    :param rows: ``READ`` rows in key order, ``order`` 0, 1, 2 … over all blocks together; empty when there is none
    :param last: key of the last row; ``None`` when there is none
    :param low: a position in the log up to which all that was committed is in the rows; with written watermarks ``None``
    :param high: a position in the log before which all that is in the rows was committed; with written watermarks ``None``
    :param complete: the range has no more rows
    :param reading_s: seconds that reading the rows took, without watermarks and catalog queries
    :param ts_us: when the rows were read, microseconds since the epoch, by the database's clock; 0 = not known
    :param source: the source's own fields of the ``source`` block, for events about keys that have no row
    """

    rows: list[RowBlock]
    last: Key | None
    low: Position | None = None
    high: Position | None = None
    complete: bool = False
    reading_s: float = 0.0
    ts_us: int = 0
    source: Mapping[str, object] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(block) for block in self.rows)

    @property
    def memory_bytes(self) -> int:
        """About how much memory the rows take."""
        return sum(block.after.nbytes for block in self.rows if block.after is not None)


class ChunkReader(abc.ABC):
    """Reads chunks over a separate connection. A context manager; one thread at a time uses it."""

    @abc.abstractmethod
    def read_table_schema(self, table: TableId) -> TableSchema | None:
        """Read the present schema; ``None`` when the table does not exist. Its ``version`` has no meaning."""

    @abc.abstractmethod
    def read_last_key(self, rows: KeyRange) -> Key | None:
        """Key of the last row of a range; ``None`` when it has no row.

        :raises QueryRejected: the database does not accept the range's condition
        :raises StructureChanged: see :class:`StructureChanged`
        """

    @abc.abstractmethod
    def read(self, rows: KeyRange, limit: int, queries: int = 1, max_bytes: int = CHUNK_BYTES) -> ChunkRows:
        """Read the first ``limit`` rows of a range, or fewer if there are no more.

        With several queries, that many per query, each behind the rows of the one before.

        The chunk ends earlier, and the next one continues behind it, as soon as its rows take ``max_bytes``: so memory stays
        bounded, however wide rows are and however many were asked for. It has one row at least, if there is one.

        With read watermarks, ``low`` is taken before the rows are read and ``high`` afterwards (or both are the very position of
        a consistent view). A reader that was opened for written watermarks leaves them out.

        :raises QueryRejected: the database does not accept the range's condition
        :raises StructureChanged: the rows have another schema than the range's table
        :raises SourceUnavailable: the connection was lost, or another session blocks the table (``SourceBusy``); the reader may be closed and
            another one opened
        """

    def to_source_keys(self, table: TableSchema, columns: Sequence[str], keys: Sequence[Key]) -> list[Key]:
        """Keys of events as keys of this source, for :attr:`KeyRange.first`, ``end`` and ``keys``.

        :param table: schema from :meth:`table`
        :param columns: names of the key columns
        :param keys: values of these columns as the change log has them, in JSON (:func:`.core.model.keys.parse_keys`)
        :raises QueryRejected: the change log does not have all of a column's values, so that the source's key is not known
        """
        raise QueryRejected(
            "This source does not support key ranges.",
            where=str(table.id),
            safe="Nothing was read; capture continues.",
            remedy="send the signal without key-ranges",
        )

    def as_events(self, keys: Sequence[Key]) -> list[Key]:
        """Keys in the form that events have, where a source takes a key in several forms: those of keys that are to be deleted.

        :param keys: as :meth:`to_source_keys` takes them
        """
        return [*keys]

    def describe_missing_log(self, low: Position, floor: Position) -> str:
        """Return the part of the log before ``floor`` and not before ``low``, as text."""
        return f"the changes after {low}, up to {floor}"

    def read_at_position(self, rows: KeyRange, position: Position) -> list[RowBlock] | None:
        """Read the rows of :attr:`KeyRange.keys` as they were when everything up to a position had happened, and nothing behind it.

        Called for sources whose updates may have the changes of a document, and not the document after them (:attr:`~.core.model.table_schema.DocumentSettings`).

        :return: ``None``: the database does not know that any more
        :raises SourceUnavailable: see :meth:`read`
        """
        raise NotImplementedError

    @abc.abstractmethod
    def insert_signal_row(self, id_: str, type_: str, data: str | None = None) -> None:
        """Insert a row into the signal table and commit it.

        When this returns, every transaction that precedes the row in the log is visible to the next read.

        :raises QueryRejected: the account may not, or the table does not fit
        """

    @abc.abstractmethod
    def delete_signal_row(self, id_: str) -> None:
        """Delete a row of the signal table and commit that; it need not be there any more. Raises like :meth:`insert_signal_row`."""

    @abc.abstractmethod
    def end_of_log(self) -> Position:
        """Return the end of the log: everything that was visible in rows read before the call is in the log before it.

        So it is a high watermark by itself, for windows whose closing row does not come back. One cheap question.

        :raises SourceUnavailable: see :meth:`read`
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection; may be called twice, and from another thread to end a read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
