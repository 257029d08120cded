"""Events with documents instead of their changes: partial updates are applied key by key.

They are applied in the order of events, where the executors have them. The document that the first updates of a key are applied to is in the table. It has to be as it
was before the batches: the writer of these events makes sure of that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator
from functools import partial as given
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from airflow_provider_cdc.changelog.reading.partial_document_updates import (
    DocumentBuilder,
    DocumentEvents,
    LostDocument,
    refuse_lost,
)
from airflow_provider_cdc.core.model.table_schema import DocumentSchema, arrow_type
from airflow_provider_cdc.core.spi.partial_update_applier import partial_updates
from airflow_provider_cdc.targets.lake.executors.executor_packages import lacks_package, ship_driver_code
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OMITTED, OP, OURS, SEQ
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

if TYPE_CHECKING:  # executors load this module, and have no need of those
    from airflow_provider_cdc.changelog.reading.pending_batches import ColumnLineage, PendingBatches

Present = Callable[[], DataFrame | None]
"""The documents of the table before the events, by the key: with the names of the source; ``None`` if it has none."""

_LACKS, _BEFORE, _CHANGE = f"{OURS}lacks", f"{OURS}before", f"{OURS}said_"
_THERE, _LOST = "=", "!"
"""Operation of a document that the table has, and of a key whose document is not known."""
_SHOWN = 10


def list_document_fields(documents: DocumentSchema) -> list[T.StructField]:
    """Return the fields that have to be read of files besides the rows."""
    return [T.StructField(column.name, from_arrow_type(arrow_type(column.type))) for column in documents.columns]


def build_document_values(documents: DocumentSchema, origin: ColumnLineage) -> list[Expression]:
    """Return the values of events that :func:`complete_documents` needs.

    :param origin: of the documents, in the files
    """
    body = str(origin.column)
    lacks = (F.col("op") == "u") & F.array_contains("unavailable", F.lit(body))
    change_values = [
        F.col(quote_name(column.name)).alias(f"{_CHANGE}{i}") for i, column in enumerate(documents.columns)
    ]
    return [
        F.coalesce(lacks, F.lit(False)).alias(_LACKS),
        F.col(f"before.{quote_name(body)}").alias(_BEFORE),
        *change_values,
    ]


def complete_documents(
    spark: SparkSession,
    pending: PendingBatches,
    rows: DataFrame,
    documents: DocumentSchema,
    present: Present | None,
    emptied: Callable[[], int],
) -> DataFrame:
    """Events with their documents. An update whose document is not known, but is by a later event of its key, is not among them.

    :param rows: with :func:`build_document_values`
    :param emptied: number of the last event that has emptied the table; 0 if none has
    :raises TargetError: a document is not known in the end
    """
    key = pending.schema.key
    names = [name for name in rows.columns if name not in (_LACKS, _BEFORE) and not name.startswith(_CHANGE)]
    there = present() if present is not None else None
    all_rows = rows
    if there is not None:
        alone = rows.where(F.col(_LACKS) & F.col(_BEFORE).isNull()).select(*map(quote_name, key)).distinct()
        there = there.join(alone, [*key], "left_semi").select(
            F.lit(-1).cast("bigint").alias(SEQ), F.lit(_THERE).alias(OP), F.lit(False).alias(_LACKS), *map(quote_name, (*key, documents.body))
        )  # fmt: skip
        all_rows = rows.unionByName(there, allowMissingColumns=True)
    schema = rows.select(*map(quote_name, names)).schema
    tasks = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    by_key = all_rows.repartition(tasks, *map(quote_name, key)).sortWithinPartitions(*map(quote_name, (*key, SEQ)))
    change_columns = [column.name for column in documents.columns]
    fold = given(
        _folded, kind=str(documents.updates), key=key, body=documents.body, change_columns=change_columns, names=names
    )
    ship_driver_code(spark.sparkContext)
    try:
        events = by_key.mapInArrow(fold, schema).localCheckpoint()  # it is read several times
    except (PySparkException, Py4JJavaError) as e:
        if (lacking := lacks_package(str(e))) is not None:
            raise lacking from e
        raise
    if events.where(F.col(OP) == _LOST).head(1):
        # documents from before a truncate need not be known
        unknown = events.where((F.col(OP) == _LOST) & (F.col(SEQ) > emptied()))
        lost, number = unknown.limit(_SHOWN).collect(), unknown.count()
        shown = {row[key[0]]: LostDocument(row[SEQ], json.loads(row[documents.body])) for row in lost}
        if shown:
            raise refuse_lost(shown, pending, f"the table of {pending.topic}", more=number - len(lost))
    events = events.where(F.col(OP) != _LOST)
    if OMITTED not in names:
        return events
    left_out = F.when(F.col(OP) == "u", F.array_remove(OMITTED, documents.body)).otherwise(F.col(OMITTED))
    return events.withColumn(OMITTED, left_out)


def _folded(
    batches: Iterator[pa.RecordBatch],
    *,
    kind: str,
    key: tuple[str, ...],
    body: str,
    change_columns: list[str],
    names: list[str],
) -> Iterator[pa.RecordBatch]:
    """Return the events of some keys with their documents, and those that are :data:`_LOST`.

    :param batches: by keys, and of each in their order
    """
    fold = DocumentBuilder(partial_updates(kind))
    schema: pa.Schema | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        schema = table.select(names).schema
        changes = _changes(table, key, body, change_columns)
        documents, unknown = fold.apply_events(changes, keep=changes.keys[-1:])
        whole = table.select(names).set_column(
            names.index(body), schema.field(body), documents.cast(schema.field(body).type)
        )
        whole = whole.filter(pa.array(~unknown & (changes.op != _THERE)))
        yield from whole.to_batches()
        yield from _lost_documents(
            fold, [key_values for key_values in fold.lost if key_values != changes.keys[-1]], schema, key, body
        )
    if schema is not None:
        yield from _lost_documents(fold, list(fold.lost), schema, key, body)


def _changes(table: pa.Table, key: tuple[str, ...], body: str, change_columns: list[str]) -> DocumentEvents:
    keys: list[Hashable] = list(zip(*[table[name].to_pylist() for name in key], strict=True))
    columns = {name: _array(table[f"{_CHANGE}{i}"]) for i, name in enumerate(change_columns)}
    op, seq = (table[name].to_numpy() for name in (OP, SEQ))
    lacks: Any = pc.fill_null(table[_LACKS], False).to_numpy()
    return DocumentEvents(keys, op, seq, np.asarray(lacks, np.bool_), _array(table[body]).cast(pa.string()), _array(table[_BEFORE]).cast(pa.string()), columns)  # fmt: skip


def _lost_documents(
    fold: DocumentBuilder, keys: list[Hashable], schema: pa.Schema, key: tuple[str, ...], body: str
) -> Iterator[pa.RecordBatch]:
    rows = []
    for key_values in keys:
        lost = fold.lost.pop(key_values)
        named: dict[str, Any] = dict(zip(key, key_values, strict=True))  # type: ignore[call-overload]
        rows.append({OP: _LOST, SEQ: lost.seq, body: json.dumps(lost.why), **named})
    if rows:
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        yield from pa.Table.from_pylist(rows, nullable).to_batches()


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
