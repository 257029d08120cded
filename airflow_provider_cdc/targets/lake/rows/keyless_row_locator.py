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

from airflow_provider_cdc.changelog.reading.arrow_row_matching import Numbers, number_rows
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS
from airflow_provider_cdc.targets.lake.rows.multiset_diff import AbsentRows, LocatedRows, MultisetDifference
from airflow_provider_cdc.targets.lake.spark_releases.python_features import collect_arrow, create_frame
from airflow_provider_cdc.targets.lake.types.spark_types import iso_text, quote_name, sign_of_zeros

FEW = 20
"""Number of values of a column that are compared one by one with the bounds of a file."""
MOST_FILTERS = 8
"""Columns by whose values files are left out."""
NEW_CALENDAR = (dt.date(1900, 1, 1) - dt.date(1970, 1, 1)).days
"""In days since 1970. Filters of Spark on files take earlier days and times for others, if the files are as old programs wrote them."""
_IMAGE, _NUMBER, _NTH = f"{OURS}image", f"{OURS}number", f"{OURS}nth"


def locate_rows(there: DataFrame, changes: MultisetDifference, place: Sequence[str]) -> LocatedRows:
    """Find the rows of a table that go: as many of each image as it says.

    Those go first that are the same to the sign of each zero, then the first ones by their places.

    :param there: the table's rows, with the types of the images' columns
    :param place: columns of ``there`` that say where a row is
    :raises AbsentRows: the table has too few
    """
    others = [name for name in there.columns if name not in (*changes.column_names, *place)]
    if not changes.removed_images.num_rows:
        return LocatedRows(np.zeros(0, np.int64), _nothing(there, place), _nothing(there, others))
    images = _images(there, changes)
    rows = there.where(may_be_among(changes.removed_images)).alias("t")
    same = [
        F.col(f"t.{quote_name(name)}").eqNullSafe(F.col(f"g.{_value(i)}"))
        for i, name in enumerate(changes.column_names)
    ]
    joined = rows.join(F.broadcast(images).alias("g"), reduce(and_, same))
    signs = _signs(there, changes.column_names)
    selected = [*place, *others, *signs]
    columns = [F.col(f"t.{quote_name(name)}").alias(f"c{i}") for i, name in enumerate(selected)]
    columns += [sign.alias(f"s{i}") for i, sign in enumerate(signs.values())]
    equal = Window.partitionBy(_IMAGE, *[f"s{i}" for i in range(len(signs))])
    order = equal.orderBy(*[f"c{i}" for i in range(len(place))])
    ranked = joined.select(_IMAGE, _NUMBER, *columns).withColumn(_NTH, F.row_number().over(order))
    # the first condition has only a constant, so that Spark keeps no more rows than that of an image
    enough = ranked.where(F.col(_NTH) <= int(changes.number.max())).where(F.col(_NTH) <= F.col(_NUMBER))
    plain = enough.drop(_NUMBER, *[f"s{i}" for i in range(len(signs))])
    taken = collect_arrow(plain).sort_by([(_IMAGE, "ascending"), (_NTH, "ascending")])
    image = taken[_IMAGE].to_numpy().astype(np.int64)
    if (np.bincount(image, minlength=len(changes.number)) < changes.number).any():
        raise AbsentRows
    values = taken.drop_columns([_IMAGE, _NTH]).rename_columns(selected)
    signed = values.select(list(signs))
    if signs:
        first = _same_first(image, signed, changes)
        image, values, signed = image[first], values.take(first), signed.take(first)
    return LocatedRows(image, values.select(list(place)), values.select(others), signed)


def _signs(there: DataFrame, names: Sequence[str]) -> dict[str, Expression]:
    """Column of the table (``t``) whose zeros have signs → the expression that distinguishes them."""
    types = {field.name: field.dataType for field in there.schema.fields}
    signs = {name: sign_of_zeros(F.col(f"t.{quote_name(name)}"), types[name]) for name in names}
    return {name: sign for name, sign in signs.items() if sign is not None}


def _same_first(image: Numbers, signed: pa.Table, changes: MultisetDifference) -> Numbers:
    """Choose which of the rows that are equal to an image go, in the order of the images.

    As many are chosen as go; those that are the same come before the others.

    :param image: for each row, the number of its image; ascending
    :param signed: the values of each row whose zeros have signs
    """
    there = signed.add_column(0, _IMAGE, pa.array(image))
    gone = (
        changes.signed.select(signed.column_names)
        .cast(signed.schema)
        .add_column(0, _IMAGE, pa.array(changes.signed_image))
    )
    codes, gone_codes = number_rows(there, gone, one_zero=False)
    quota = np.bincount(gone_codes, weights=changes.signed_number, minlength=int(codes.max(initial=0)) + 1)
    order = np.lexsort((_nth(codes) >= quota[codes], image))
    chosen: Numbers = np.sort(order[_nth(image[order]) < changes.number[image[order]]])
    return chosen


def _nth(codes: Numbers) -> Numbers:
    """For each number, how often it was there before."""
    order = np.argsort(codes, kind="stable")
    ordered, nth = codes[order], np.empty(len(codes), np.int64)
    nth[order] = np.arange(len(codes)) - np.searchsorted(ordered, ordered)
    return nth


def exclude_rows(there: DataFrame, gone: pa.Table) -> DataFrame:
    """Return the rows of a table but for some: as many of equal ones go as ``gone`` has.

    :param gone: with columns of ``there``
    """
    fields = {field.name: field.dataType for field in there.schema.fields}
    plain = [T.StructField(_value(i), fields[name]) for i, name in enumerate(gone.column_names)]
    columns = [F.col(field.name) for field in plain]
    gone_rows = create_frame(
        there.sparkSession, gone.rename_columns([field.name for field in plain]), T.StructType(plain)
    )
    signs = _signs(there, gone.column_names)
    of_gone = [sign_of_zeros(F.col(field.name), field.dataType) for field in plain]
    own = [sign.alias(f"s{i}") for i, sign in enumerate(sign for sign in of_gone if sign is not None)]
    groups = gone_rows.select(*columns, *own).groupBy(*columns, *[f"s{i}" for i in range(len(own))])
    counted = groups.agg(F.count("*").alias(_NUMBER)).alias("g")
    same = [
        F.col(f"t.{quote_name(name)}").eqNullSafe(F.col(f"g.{_value(i)}")) for i, name in enumerate(gone.column_names)
    ]
    same += [sign.eqNullSafe(F.col(f"g.s{i}")) for i, sign in enumerate(signs.values())]
    joined = there.alias("t").join(F.broadcast(counted), reduce(and_, same), "left")
    of_g = [*(_value(i) for i in range(len(plain))), *(f"s{i}" for i in range(len(own)))]
    group_values = [F.col(f"g.{name}").alias(f"{OURS}g_{name}") for name in of_g]
    rows = joined.select("t.*", *group_values, F.col(f"g.{_NUMBER}"))
    nth = F.row_number().over(Window.partitionBy(*[f"{OURS}g_{name}" for name in of_g]).orderBy(_NUMBER))
    more = rows.where(F.col(_NUMBER).isNotNull()).withColumn(_NTH, nth).where(F.col(_NTH) > F.col(_NUMBER))
    names = [F.col(quote_name(name)) for name in there.columns]
    return rows.where(F.col(_NUMBER).isNull()).select(*names).unionAll(more.select(*names))


def _value(number: int) -> str:
    """Return the substitute name of a column, by its number."""
    return f"{OURS}v{number}"


def _images(there: DataFrame, changes: MultisetDifference) -> DataFrame:
    """Create a frame of the images, by numbers in the place of names."""
    spark: SparkSession = there.sparkSession
    types = {field.name: field.dataType for field in there.schema.fields}
    fields = [T.StructField(_value(i), types[name]) for i, name in enumerate(changes.column_names)]
    fields += [T.StructField(name, T.LongType()) for name in (_IMAGE, _NUMBER)]
    columns = [*changes.removed_images.columns, pa.array(np.arange(len(changes.number))), pa.array(changes.number)]
    return create_frame(spark, pa.table(columns, names=[f.name for f in fields]), T.StructType(fields))


def _nothing(there: DataFrame, names: Sequence[str]) -> pa.Table:
    return collect_arrow(there.select(*map(quote_name, names)).limit(0))


def may_be_among(images: pa.Table) -> Expression:
    """Build a condition that is true for rows that are equal to one of some images.

    Most files are left out by it.

    Columns with NULL among their values, or with values whose bounds in a file may be wrong, are in no condition.
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
    # as a number: Python has no days before the first year
    if timed and ends["min"].cast(pa.date32()).cast(pa.int32()).as_py() < NEW_CALENDAR:
        return None
    column, different = F.col(quote_name(name)), pc.unique(values)
    if len(different) <= FEW:
        return column.isin([_literal(value) for value in different])
    return column.between(_literal(ends["min"]), _literal(ends["max"]))


def _literal(value: pa.Scalar) -> Expression:
    """Build a literal of a value with its type.

    Times go as numbers and texts: Python's own are changed with the time zone of the machine.
    """
    type_ = value.type
    if pa.types.is_timestamp(type_) and type_.tz:
        return F.timestamp_micros(F.lit(value.cast(pa.int64()).as_py()))
    if pa.types.is_timestamp(type_):
        return F.lit(iso_text(value)).cast("timestamp_ntz")
    if pa.types.is_date(type_):
        return F.date_from_unix_date(F.lit(value.cast(pa.int32()).as_py()))
    if pa.types.is_decimal(type_):
        return F.lit(str(value.as_py())).cast(f"decimal({type_.precision},{type_.scale})")
    return F.lit(value.as_py())
