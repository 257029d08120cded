"""Documents that were read, as ``READ`` rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.log_items import READ, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DocumentError
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_keys
from airflow_provider_cdc.sources.mongodb.field_rewriter import FieldRewriter
from airflow_provider_cdc.sources.mongodb.position import ClusterTime


def read_rows(
    table: TableSchema, documents: BsonDocuments, at: ClusterTime, ts_us: int, shaping: FieldRewriter, first: int = 0
) -> RowBlock:
    """Build a block of documents.

    :param table: decides whether documents are to become columns
    :param at: moment of the cluster's time at which they were read
    :param ts_us: when that was
    :param first: ``order`` of the first one
    :raises UnreadableValue: a document is damaged
    """
    n = len(documents)
    try:
        key = format_keys(documents.read_field(b"_id")).cast(pa.string())
        schema, body = shaping.build_bodies(table.id, documents.document_values, columns=table.documents is None)
    except DocumentError as e:
        error = UnreadableValue(
            f"A document of {table.id} cannot be read: {e}",
            safe="No part of this collection was written.",
            remedy="fix the document, exclude it with snapshot.collection.filter.overrides, or exclude the "
            "collection with collection.exclude.list",
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
    """Build the source's own fields of the ``source`` block of rows that were read."""
    return {
        "ord": pa.array(np.full(n, at.ordinal, np.int32)), "lsid": pa.nulls(n, pa.string()), "txnNumber": pa.nulls(n, pa.int64()),
        "wallTime": pa.nulls(n, pa.int64()),
    }  # fmt: skip


def source_values(at: ClusterTime) -> dict[str, Any]:
    """Return the same, of one event."""
    return {"ord": at.ordinal, "lsid": None, "txnNumber": None, "wallTime": None}
