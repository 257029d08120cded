"""Mode ``log``: each event is a separate row, in the order of ``_seq``.

The row of a delete has the image before it, that of a truncate has none.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.events import event_reduction
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OP
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from airflow_provider_cdc.targets.lake.write.table_write import TableWrite

_ORDER = "_seq"


def write_log(write: TableWrite) -> None:
    """Append the events of some batches, which must not be those of a commit before."""
    shape, pending = write.shape, write.pending.with_all_files()
    shape.list_sparse_columns(event_reduction.list_sparse_columns(pending, 0, as_they_are=True), pending.schema)
    events = event_reduction.read_events(write.spark, pending, 0, shape, truncates=True)
    rows = events if events is not None else event_reduction.build_empty_rows(write.spark, pending, shape)
    if write.fresh and shape.place:
        rows = _since_the_first(rows)
    rows = rows.select(*map(quote_name, write.column_types))
    if write.fresh:
        write.replace_topic_rows(rows.orderBy(F.col(_ORDER)))
    else:
        write.append_rows(rows, _ORDER)


def _since_the_first(rows: DataFrame) -> DataFrame:
    """Without the truncates before a place had any row, so that its table is the same whenever it is built."""
    first = rows.where(F.col(OP) != "t").agg(F.min("_seq")).head()
    return rows.where(F.col("_seq") >= (0 if first is None or first[0] is None else first[0]))
