"""Documents that were read, as ``READ`` rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.log_items import READ, RowBlock
from airflow_provider_cdc.core.model.schema import TableSchema
from airflow_provider_cdc.sources.mongodb.documents.errors import DocumentError
from airflow_provider_cdc.sources.mongodb.documents.extended_json import keys
from airflow_provider_cdc.sources.mongodb.documents.values import Documents
from airflow_provider_cdc.sources.mongodb.field_projection import Shaping
from airflow_provider_cdc.sources.mongodb.position import ClusterTime


def read_rows(
    table: TableSchema, documents: Documents, at: ClusterTime, ts_us: int, shaping: Shaping, first: int = 0
) -> RowBlock:
    """A block of documents.

    :param table: decides whether documents are to become columns
    :param at: moment of the cluster's time at which they were read
    :param ts_us: when that was
    :param first: ``order`` of the first one
    :raises UnreadableValue: a document is damaged
    """
    n = len(documents)
    try:
        key = keys(documents.field(b"_id")).cast(pa.string())
        schema, body = shaping.bodies(table.id, documents.values, columns=table.documents is None)
    except DocumentError as e:
        error = UnreadableValue(
            f"A document of {table.id} cannot be read: {e}",
            safe="Nothing of this collection was written.",
            remedy="mend the document, leave it out with snapshot.collection.filter.overrides, or the collection with collection.exclude.list",
        )
        error.table = str(table.id)
        raise error from e
    return RowBlock(
        table=schema,
        op=np.full(n, READ, np.int8),
        before=None,
        after=pa.StructArray.from_arrays([key, body], ["_id", "document"]),
        order=np.arange(first, first + n),
        transaction=None,
        ts_us=np.full(n, ts_us, np.int64),
        source=source_columns(n, at),
    )


def source_columns(n: int, at: ClusterTime) -> dict[str, pa.Array]:
    """The source's own fields of the ``source`` block of rows that were read."""
    return {
        "ord": pa.array(np.full(n, at.ordinal, np.int32)), "lsid": pa.nulls(n, pa.string()), "txnNumber": pa.nulls(n, pa.int64()),
        "wallTime": pa.nulls(n, pa.int64()),
    }  # fmt: skip


def source_values(at: ClusterTime) -> dict[str, Any]:
    """The same, of one event."""
    return {"ord": at.ordinal, "lsid": None, "txnNumber": None, "wallTime": None}
