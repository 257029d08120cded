"""Refuses values that a Delta table cannot have in a column by which it is partitioned.

In Delta's log the value of a partition is a text, and an empty text is NULL; so is the name that Hive gives to the folder of NULL. A row with one of these would come back with
NULL, and one of which it is the key would not be found again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

OF_NULL = "__HIVE_DEFAULT_PARTITION__"
_REFUSED = "partition without a value: "


def guard_partition_values(rows: DataFrame, partitions: Collection[str]) -> DataFrame:
    """Rows for a table with partitions. Reading one with a value that a partition cannot have is an error, for :func:`unfit_partitions`.

    :param partitions: columns
    """
    names = {name.lower() for name in partitions}
    for field in rows.schema.fields:
        if field.name.lower() in names and field.dataType.typeName() in ("string", "varchar", "char", "binary"):
            value = F.col(quote_name(field.name))
            refused = F.raise_error(f"{_REFUSED}{field.name};").cast(field.dataType)
            guarded = F.when(value.cast("string").isin("", OF_NULL), refused).otherwise(value)
            rows = rows.withColumn(field.name, guarded)
    return rows


@contextlib.contextmanager
def unfit_partitions(where: str) -> Iterator[None]:
    """Raise a clear error for a value that a partition cannot have.

    :param where: the table is
    :raises TargetError: a row had a value that a partition cannot have
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as e:
        _, separator, text = str(e).partition(_REFUSED)
        if not separator:
            raise
        name = text.partition(";")[0]
        raise TargetError(
            f"A row has an empty text or {OF_NULL} in {name}, a partition column of the table. Delta would store NULL instead.",
            where=where,
            safe="The table was not changed; the change log keeps the batches.",
            remedy=f'in the table rule, partition by a computed column that always has a value, as {{"columns": {{"computed": {{"{name}_part": '
            f'"concat(\'=\', {name})"}}}}, "partition_by": "{name}_part"}}, or use cluster_by instead of partition_by; if the table exists '
            "already, move it away; then run the apply again, which builds it from the change log",
        ) from e
