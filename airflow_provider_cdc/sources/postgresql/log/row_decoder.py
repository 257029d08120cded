"""Rows of one relation: from their bytes to a ``RowBlock``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import SourceLogDamaged, values_of
from airflow_provider_cdc.core.model.log_items import RowBlock
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, TableSchema, arrow_type
from airflow_provider_cdc.sources.postgresql.columns.value_decoders import ColumnValues, ValueDecoder, make_decoder
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.kernels.tuple_splitter import split_rows
from airflow_provider_cdc.sources.postgresql.log.message_buffer import Segment
from airflow_provider_cdc.sources.postgresql.position import format_lsn
from airflow_provider_cdc.sources.postgresql.protocol.relation_messages import Relation
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import TypeCatalog

EPOCH_US = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts."""


@dataclass(frozen=True, slots=True)
class TransactionColumns:
    """Columns of the transactions of a segment.

    :param ids: of transactions, as events have them
    :param ts_us: when each was committed
    :param before: LSN behind the transaction before each
    """

    ids: pa.StringArray
    ts_us: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
    xids: npt.NDArray[np.int64]

    @classmethod
    def from_segment(cls, segment: Segment, before: int) -> TransactionColumns:
        """Build them without Python for each.

        :param before: LSN behind the transaction before the first one
        """
        xids, commits = segment.transactions[:, layout.TX_ID].copy(), segment.transactions[:, layout.TX_COMMIT]
        ids = pc.binary_join_element_wise(
            pa.array(xids).cast(pa.string()), pa.array(commits.copy()).cast(pa.string()), ":"
        )
        ends = np.concatenate([[before], segment.transactions[:-1, layout.TX_END]]).astype(np.int64)
        return cls(ids, segment.transactions[:, layout.TX_TIME] + EPOCH_US, ends, xids)


class RowDecoder:
    """Decodes the rows of one relation under one table schema.

    :param schema: has the names of the relation's columns; others of it are not in the log
    """

    def __init__(self, schema: TableSchema, relation: Relation, types: TypeCatalog, config: PostgresConfig) -> None:
        self.schema = schema
        places = {column.name: n for n, column in enumerate(relation.columns)}
        self._in_key = np.array([column.in_key for column in relation.columns], np.bool_)
        self._columns: list[tuple[int | None, ValueDecoder | None]] = []
        for column in schema.columns:
            place = places.get(column.name)
            if place is None or column.type == NOT_CAPTURED:
                self._columns.append((place, None))
                continue
            sent = relation.columns[place]
            self._columns.append((place, make_decoder(column, sent.type_oid, sent.modifier, types, config)))
        self._fields = [pa.field(column.name, arrow_type(column.type)) for column in schema.columns]

    def decode(
        self,
        data: npt.NDArray[np.uint8],
        rows: npt.NDArray[np.int64],
        order: npt.NDArray[np.int64],
        transaction: npt.NDArray[np.int64],
        columns: TransactionColumns,
    ) -> RowBlock:
        """Decode rows.

        :param rows: ``int64[n, ROW_FIELDS]``
        :param order: number of each among all rows of the block
        :param transaction: index of the transaction of each among those of the block
        :raises SourceLogDamaged: a row is not as the protocol has it
        :raises UnreadableValue: a value is not as its type has it
        """
        n, width = len(rows), len(self._in_key)
        kinds = np.empty((2, width, n), np.uint8)
        starts = np.empty((2, width, n), np.int64)
        lengths = np.empty((2, width, n), np.int32)
        bad = split_rows(data, rows, self._in_key, kinds, starts, lengths)
        if bad >= 0:
            raise self._damaged(int(rows[bad, layout.ROW_LSN]))
        # an unchanged value that is stored beside the row: the image before has it, if it has all columns
        known = (kinds[0] == layout.TEXT_VALUE) | (kinds[0] == layout.BINARY_VALUE) | (kinds[0] == layout.NULL_VALUE)
        fill = (kinds[1] == layout.UNCHANGED_VALUE) & known
        if fill.any():
            for values in (kinds, starts, lengths):
                values[1][fill] = values[0][fill]
        images, unavailable = [], []
        for image in range(2):
            built, missing = self._build_image(data, kinds[image], starts[image], lengths[image])
            images.append(built)
            unavailable.append(missing)
        return RowBlock(
            table=self.schema, op=rows[:, layout.ROW_OPERATION].astype(np.int8), before=images[0], after=images[1], order=order,
            transaction=transaction.astype(np.int32), ts_us=columns.ts_us[transaction], source=_source(rows, transaction, columns),
            unavailable_before=unavailable[0], unavailable_after=unavailable[1],
        )  # fmt: skip

    def _build_image(
        self,
        data: npt.NDArray[np.uint8],
        kinds: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int32],
    ) -> tuple[pa.StructArray | None, npt.NDArray[np.bool_] | None]:
        """Build one image of all rows, and where the log does not have its values."""
        n = kinds.shape[1]
        absent = kinds[0] == layout.NO_IMAGE
        # columns that are no part of the replica identity are marked in each image of it, the first one may be one of them
        if absent.all():
            return None, None
        missing = np.zeros((len(self._columns), n), np.bool_)
        arrays = []
        for at, ((place, decoder), field) in enumerate(zip(self._columns, self._fields, strict=True)):
            if decoder is None or place is None:
                arrays.append(pa.nulls(n, field.type))
                missing[at] = ~absent if not pa.types.is_null(field.type) else False
                continue
            kind = kinds[place]
            missing[at] = (kind == layout.UNCHANGED_VALUE) | (kind == layout.NOT_LOGGED)
            with values_of(self.schema.id):
                arrays.append(decoder.decode(ColumnValues(data, kind, starts[place], lengths[place])))
        mask = pa.array(absent) if absent.any() else None
        image = pa.StructArray.from_arrays(arrays, fields=self._fields, mask=mask)
        return image, missing if missing.any() else None

    def _damaged(self, lsn: int) -> SourceLogDamaged:
        return SourceLogDamaged(
            f"A row of {self.schema.id} in the stream is not as the protocol has it.",
            where=format_lsn(lsn),
            safe="Everything before its transaction is captured; no value was guessed.",
            remedy="run the capture again; if the error persists, this is a bug of the connector: please report it. To continue after it, "
            "snapshot the table again with snapshot.mode=always for one run",
        )


def _source(
    rows: npt.NDArray[np.int64], transaction: npt.NDArray[np.int64], columns: TransactionColumns
) -> dict[str, pa.Array]:
    lsn = pa.array(rows[:, layout.ROW_LSN].copy())
    before = pa.array(columns.before).cast(pa.string()).take(pa.array(transaction))
    texts: Sequence[object] = ('["', before, '","', lsn.cast(pa.string()), '"]', "")
    return {
        "sequence": pc.binary_join_element_wise(*texts),
        "txId": pa.array(columns.xids[transaction]),
        "lsn": lsn,
        "xmin": pa.nulls(len(rows), pa.int64()),
    }
