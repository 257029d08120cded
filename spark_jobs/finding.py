"""Finds rows of a table by all their values, and where they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.datatypes import quoted
from spark_jobs.difference import AbsentRows, Difference, Taken
from spark_jobs.last import OURS

FEW = 20
"""As many values of a column are compared one by one with what a file may hold."""
MOST_FILTERS = 8
"""Columns by whose values files are left out."""
NEW_CALENDAR = dt.date(1900, 1, 1)
"""Filters of Spark on files take earlier days and times for others, if the files are as old programs wrote them."""
_IMAGE, _NUMBER, _NTH = f"{OURS}image", f"{OURS}number", f"{OURS}nth"


def found(there: DataFrame, wanted: Difference, place: Sequence[str]) -> Taken:
    """The rows of a table that go: as many of each image as it says, the first ones by their places.

    :param there: the table's rows, with the types of the images' columns
    :param place: columns of ``there`` that say where a row is
    :raises AbsentRows: the table has too few
    """
    others = [name for name in there.columns if name not in (*wanted.names, *place)]
    if not wanted.goes.num_rows:
        return Taken(np.zeros(0, np.int64), _nothing(there, place), _nothing(there, others))
    images = _images(there, wanted)
    rows = there.where(may_be_among(wanted.goes)).alias("t")
    same = [F.col(f"t.{quoted(name)}").eqNullSafe(F.col(f"g.{_value(i)}")) for i, name in enumerate(wanted.names)]
    joined = rows.join(F.broadcast(images).alias("g"), reduce(and_, same))
    columns = [F.col(f"t.{quoted(name)}").alias(f"c{i}") for i, name in enumerate((*place, *others))]
    order = Window.partitionBy(_IMAGE).orderBy(*[f"c{i}" for i in range(len(place))])
    numbered = joined.select(_IMAGE, _NUMBER, *columns).withColumn(_NTH, F.row_number().over(order))
    # the first condition has only a constant, so that Spark keeps no more rows than that of an image
    enough = numbered.where(F.col(_NTH) <= int(wanted.number.max())).where(F.col(_NTH) <= F.col(_NUMBER))
    taken = enough.drop(_NUMBER).toArrow().sort_by([(_IMAGE, "ascending"), (_NTH, "ascending")])
    image = taken[_IMAGE].to_numpy().astype(np.int64)
    if (np.bincount(image, minlength=len(wanted.number)) < wanted.number).any():
        raise AbsentRows
    values = taken.drop_columns([_IMAGE, _NTH]).rename_columns([*place, *others])
    return Taken(image, values.select(list(place)), values.select(others))


def without(there: DataFrame, gone: pa.Table) -> DataFrame:
    """The rows of a table but for some: as many of equal ones go as ``gone`` has.

    :param gone: with columns of ``there``
    """
    fields = {field.name: field.dataType for field in there.schema.fields}
    plain = [T.StructField(_value(i), fields[name]) for i, name in enumerate(gone.column_names)]
    columns = [F.col(field.name) for field in plain]
    made: DataFrame = there.sparkSession.createDataFrame(
        gone.rename_columns([field.name for field in plain]), schema=T.StructType(plain)
    )
    counted = made.groupBy(*columns).agg(F.count("*").alias(_NUMBER)).alias("g")
    same = [F.col(f"t.{quoted(name)}").eqNullSafe(F.col(f"g.{_value(i)}")) for i, name in enumerate(gone.column_names)]
    joined = there.alias("t").join(F.broadcast(counted), reduce(and_, same), "left")
    rows = joined.select("t.*", *[F.col(f"g.{_value(i)}") for i in range(len(plain))], F.col(f"g.{_NUMBER}"))
    nth = F.row_number().over(Window.partitionBy(*columns).orderBy(_NUMBER))
    more = rows.where(F.col(_NUMBER).isNotNull()).withColumn(_NTH, nth).where(F.col(_NTH) > F.col(_NUMBER))
    names = [F.col(quoted(name)) for name in there.columns]
    return rows.where(F.col(_NUMBER).isNull()).select(*names).unionAll(more.select(*names))


def _value(number: int) -> str:
    """The name of a column, in the place of its own."""
    return f"{OURS}v{number}"


def _images(there: DataFrame, wanted: Difference) -> DataFrame:
    """The images, by numbers in the place of names."""
    spark: SparkSession = there.sparkSession
    types = {field.name: field.dataType for field in there.schema.fields}
    fields = [T.StructField(_value(i), types[name]) for i, name in enumerate(wanted.names)]
    fields += [T.StructField(name, T.LongType()) for name in (_IMAGE, _NUMBER)]
    columns = [*wanted.goes.columns, pa.array(np.arange(len(wanted.number))), pa.array(wanted.number)]
    return spark.createDataFrame(pa.table(columns, names=[f.name for f in fields]), schema=T.StructType(fields))


def _nothing(there: DataFrame, names: Sequence[str]) -> pa.Table:
    return there.select(*map(quoted, names)).limit(0).toArrow()


def may_be_among(images: pa.Table) -> Expression:
    """A condition that is true for rows that are equal to one of some images, by which most files are left out.

    Columns with NULL among their values, or with values of which a file may say something else than what it holds, are in no condition.
    """
    conditions = [_one_of(name, images[name]) for name in images.column_names]
    return reduce(and_, [c for c in conditions if c is not None][:MOST_FILTERS], F.lit(col=True))


def _one_of(name: str, values: pa.ChunkedArray) -> Expression | None:
    is_, type_ = pa.types, values.type
    timed = is_.is_date(type_) or is_.is_timestamp(type_)
    if values.null_count or not (
        timed or is_.is_integer(type_) or is_.is_string(type_) or is_.is_large_string(type_) or is_.is_decimal(type_)
    ):
        return None
    ends = pc.min_max(values)
    if timed and ends["min"].cast(pa.date32()).as_py() < NEW_CALENDAR:
        return None
    column, different = F.col(quoted(name)), pc.unique(values)
    if len(different) <= FEW:
        return column.isin([_literal(value) for value in different])
    return column.between(_literal(ends["min"]), _literal(ends["max"]))


def _literal(value: pa.Scalar) -> Expression:
    """A value with its type. Times go as numbers and texts: Python's own are changed with the time zone of the machine."""
    type_ = value.type
    if pa.types.is_timestamp(type_) and type_.tz:
        return F.timestamp_micros(F.lit(value.cast(pa.int64()).as_py()))
    if pa.types.is_timestamp(type_):
        return F.lit(value.as_py().isoformat(sep=" ")).cast("timestamp_ntz")
    if pa.types.is_date(type_):
        return F.lit(value.as_py().isoformat()).cast("date")
    if pa.types.is_decimal(type_):
        return F.lit(str(value.as_py())).cast(f"decimal({type_.precision},{type_.scale})")
    return F.lit(value.as_py())
