"""Mode ``log``: each event is a row of its own, in the order of ``_seq``. The row of a delete has the image before it, that of a truncate has none."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.events import reduce_events
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OP
from airflow_provider_cdc.targets.lake.types.spark_types import quoted
from airflow_provider_cdc.targets.lake.write.table_write import Write

_ORDER = "_seq"


def write_log(write: Write) -> None:
    """Append the events of some batches, which must not be those of a commit before."""
    shape, pending = write.shape, write.pending.whole()
    shape.sparse(reduce_events.sparse(pending, 0, as_they_are=True), pending.schema)
    found = reduce_events.events(write.spark, pending, 0, shape, truncates=True)
    rows = found if found is not None else reduce_events.nothing(write.spark, pending, shape)
    if write.fresh and shape.place:
        rows = _since_the_first(rows)
    rows = rows.select(*map(quoted, write.types))
    if write.fresh:
        write.anew(rows.orderBy(F.col(_ORDER)))
    else:
        write.append(rows, _ORDER)


def _since_the_first(rows: DataFrame) -> DataFrame:
    """Without the truncates before a place had any row, so that its table is the same whenever it is built."""
    first = rows.where(F.col(OP) != "t").agg(F.min("_seq")).head()
    return rows.where(F.col("_seq") >= (0 if first is None or first[0] is None else first[0]))
