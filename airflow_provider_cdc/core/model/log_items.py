"""Log items, which a source hands to capture, with rows as columns.

``Source.stream_log`` yields these. Rows never appear one by one: a :class:`LogBlock` is a stretch of the log, decoded, with one
:class:`RowBlock` per table schema, and its transactions are columns too, so that a million one-row transactions cost no more
Python than one transaction of a million rows. Everything that is not a row (DDL, truncate) ends a block and comes by itself,
in log order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from airflow_provider_cdc.core.model.connector_offset import CarriedFile
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

READ: Final = 0
CREATE: Final = 1
UPDATE: Final = 2
DELETE: Final = 3
TRUNCATE: Final = 4
OPERATIONS: Final = ("r", "c", "u", "d", "t")
"""Letters of the operation codes above (Debezium MySQL connector, "Change event values": ``op``)."""


@dataclass(slots=True)
class RowBlock:
    """Rows of one table under one table schema, in log order.

    :param table: schema under which the rows were decoded; the images have exactly its columns
    :param op: ``int8[n]``, codes of this module
    :param before: struct array of length n, null where a row has no image before; ``None`` when no row has one
    :param after: likewise, for the image after
    :param order: ``int64[n]``, the row's number among all rows of the :class:`LogBlock`: 0, 1, 2 … in commit order, ascending
    :param transaction: ``int32[n]``, the row's index into ``LogBlock.transactions``; ``None`` for snapshot rows
    :param ts_us: ``int64[n]``, when the change was made in the database, microseconds since the epoch
    :param source: the source's own fields of the ``source`` block, each an array of length n
    :param unavailable_before: ``bool[column, row]`` over the schema's columns: values that the log does not have, which is not
        the same as NULL. They are null in ``before``; ``None`` when there is none
    :param unavailable_after: likewise, for ``after``. An update leaves such a value as it was
    :param beside: the schema's further columns of events (:class:`~airflow_provider_cdc.core.model.table_schema.DocumentSchema`), each an array of
        length n; one that is missing is null in every row
    :param address: where the database keeps each row, the same for all changes of a row within a transaction; null where that is not known
    :param together: ``int64[n]``, which rows were changed in one transaction, where ``transaction`` does not say it
    """

    table: TableSchema
    op: npt.NDArray[np.int8]
    before: pa.StructArray | None
    after: pa.StructArray | None
    order: npt.NDArray[np.int64]
    transaction: npt.NDArray[np.int32] | None
    ts_us: npt.NDArray[np.int64]
    source: dict[str, pa.Array]
    unavailable_before: npt.NDArray[np.bool_] | None = None
    unavailable_after: npt.NDArray[np.bool_] | None = None
    beside: dict[str, pa.Array] = field(default_factory=dict)
    address: pa.Array | None = None
    together: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.op)

    @property
    def nbytes(self) -> int:
        """Size of the row images in memory, and of the columns beside them."""
        images = [image for image in (self.before, self.after) if image is not None]
        return sum(array.nbytes for array in (*images, *self.beside.values()))


@dataclass(slots=True)
class BlockTransactions:
    """The transactions of a block, as columns of equal length.

    :param id: the documented transaction ids (GTIDs, Oracle XIDs …), a string array; null: a change that was made in no transaction, of which
        events say nothing of one
    :param ts_us: ``int64[n]``, when each was committed
    """

    id: pa.StringArray
    ts_us: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class LeftOutRows:
    """Row events of a table that is to be read again, in a part of the log where its schema is not known.

    :param events: how many
    :param reason: the unknown fact
    """

    table: TableId
    events: int
    reason: str


@dataclass(slots=True)
class LogBlock:
    """A stretch of the log.

    A block holds whole transactions, with one exception: a transaction that is larger than a block comes as several blocks,
    all but the last with ``open=True`` and, in those, no other transaction. The first transaction of the block that ends it
    is its rest. Its rows become durable only when that block has come.

    :param position: where a reader continues that has everything up to the end of the last complete transaction
    :param open: the last transaction continues in the next block
    :param left_out: row events of this part of the log that cannot be decoded
    """

    rows: list[RowBlock]
    transactions: BlockTransactions
    position: Position
    open: bool = False
    left_out: list[LeftOutRows] = field(default_factory=list)

    @property
    def row_count(self) -> int:
        return sum(len(r) for r in self.rows)


@dataclass(slots=True)
class Rollback:
    """The open transaction was rolled back, in whole or in part: the rows of its blocks so far are void.

    The rows that are left of it, if any, follow in new blocks.
    """


@dataclass(slots=True)
class SchemaChange:
    """A DDL statement that concerns captured tables.

    :param ddl: the statement as the log has it
    :param database: the default database it ran in
    :param structure_unknown: tables whose schema after the statement is not known: they are read again
    :param position: the position behind it
    :param source: the source's own fields of the ``source`` block
    :param open: rows of the same transaction follow (``CREATE TABLE … SELECT``)
    """

    ddl: str
    database: str
    changes: list[TableChange]
    position: Position
    ts_us: int
    source: dict[str, object] = field(default_factory=dict)
    open: bool = False
    structure_unknown: list[TableId] = field(default_factory=list)


@dataclass(slots=True)
class Truncate:
    """All rows of some tables were removed by one statement.

    :param tables: one event is written for each
    """

    tables: list[TableId]
    position: Position
    ts_us: int
    transaction_id: str | None = None
    source: dict[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Heartbeat:
    """Nothing for the captured tables up to ``position``; also sent while waiting, so that callers can look at the clock."""

    position: Position


@dataclass(slots=True)
class CarryOverItem(Heartbeat):
    """A heartbeat from which on the source carries something over to its next stream.

    It has nothing for the captured tables up to ``position``; see :mod:`airflow_provider_cdc.core.spi.carry_over`.

    :param file: what :meth:`~airflow_provider_cdc.core.spi.carry_over.CarryOver.store_state` returned; ``None``: nothing any more
    """

    file: CarriedFile | None


LogItem = LogBlock | Rollback | SchemaChange | Truncate | Heartbeat
