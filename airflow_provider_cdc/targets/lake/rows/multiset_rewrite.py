"""Applies changes to tables without a key, as far as all rows are written again.

Such a table is a bag of rows: row images are added and removed (:func:`expand_row_counts`). In one that has columns which the source has dropped, rows keep their
values in these columns, which are in no image: so a row is followed from image to image (:func:`follow_images`), through the updates of a batch. If several rows are equal, an update or a delete may mean any of them, as the source cannot
distinguish them either: the one that was added last is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OURS, SEQ
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, sign_of_zeros

NUMBER = f"{OURS}n"
"""How often a row image is added (positive) or removed (negative)."""
_LEVEL, _BEFORE, _LASTS = f"{OURS}level", f"{OURS}before", f"{OURS}lasts"
_COPY, _SIGN, _SAME = f"{OURS}copy", f"{OURS}sign_", f"{OURS}same"
_INDEX, _IMAGE, _ROOT = f"{OURS}index", f"{OURS}image", f"{OURS}root"


def follow_images(
    there: DataFrame, changes: DataFrame, names: Sequence[str], *, signs: bool = True
) -> tuple[DataFrame, DataFrame]:
    """Return the rows after some changes, and images that go though the table does not have them.

    There may be no such images.

    :param there: the table's rows: ``names``, and the columns that the source has dropped
    :param changes: images with :data:`NUMBER` (1 or -1) and the number of their event; those of an update have the same
    :param signs: whether zeros with other signs are other values
    """
    dropped = [c for c in there.columns if c not in names]
    columns = [F.col(quote_name(c)) for c in names]
    if signs:
        own = _signs(there, names)
        there, changes = there.select("*", *own), changes.select("*", *own)
        columns += [F.col(f"{_SIGN}{i}") for i in range(len(own))]
    of_image = Window.partitionBy(*columns)
    stock = there.select(
        "*",
        F.struct(*columns).alias(_IMAGE),
        F.row_number().over(of_image.orderBy(*map(quote_name, dropped))).alias(_INDEX),
    )
    steps = _steps(changes, columns).localCheckpoint()
    takes = steps.where((F.col(NUMBER) < 0) & F.col(_BEFORE).isNull())
    taken = takes.groupBy(_IMAGE).agg(F.count("*").alias(_LEVEL)).alias("g")
    counted = stock.alias("k").join(taken, _same(f"k.{_IMAGE}", f"g.{_IMAGE}"), "left")
    stays = counted.where(F.col(_INDEX) > F.coalesce(f"g.{_LEVEL}", F.lit(0)))
    had = stock.groupBy(_IMAGE).agg(F.count("*").alias(_INDEX)).alias("h")
    lacks = taken.join(had, _same(f"g.{_IMAGE}", f"h.{_IMAGE}"), "left").where(
        F.col(f"g.{_LEVEL}") > F.coalesce(f"h.{_INDEX}", F.lit(0))
    )
    roots = _roots(steps).alias("r")
    new = (
        steps.where((F.col(NUMBER) > 0) & F.col(_LASTS))
        .alias("n")
        .join(roots, F.col(f"n.{SEQ}") == F.col("r.t"), "left")
    )
    from_stock = _same(f"k.{_IMAGE}", f"r.{_ROOT}.image") & (F.col(f"k.{_INDEX}") == F.col(f"r.{_ROOT}.at"))
    comes = new.join(stock.alias("k"), from_stock, "left").select(
        *[F.col(f"n.{quote_name(c)}").alias(c) for c in names], *[F.col(f"k.{quote_name(c)}").alias(c) for c in dropped]
    )
    return stays.select(*[F.col(f"k.{quote_name(c)}").alias(c) for c in (*names, *dropped)]).unionAll(comes), lacks


def _same(a: str, b: str) -> Expression:
    return F.col(a).eqNullSafe(F.col(b))


def _steps(changes: DataFrame, columns: Sequence[Expression]) -> DataFrame:
    """Link changes that undo each other.

    How many rows of an image there are, besides those of the table, goes up and down. A change that takes the number down from a
    level undoes the last one that brought it there, which is the one before it on this level (``_BEFORE``, its event); the first one
    on its level takes a row of the table. One that brings it up, and that nothing follows on its level, is there in the end
    (``_LASTS``).
    """
    order = [F.col(SEQ), F.col(NUMBER)]  # an update's image goes before its other one comes
    number = F.sum(NUMBER).over(Window.partitionBy(*columns).orderBy(*order).rowsBetween(Window.unboundedPreceding, 0))
    leveled = changes.withColumn(_LEVEL, number + F.when(F.col(NUMBER) < 0, 1).otherwise(0))
    on_level = Window.partitionBy(*columns, F.col(_LEVEL)).orderBy(*order)
    return leveled.select(
        "*",
        F.struct(*columns).alias(_IMAGE),
        F.lag(SEQ).over(on_level).alias(_BEFORE),
        F.lead(SEQ).over(on_level).isNull().alias(_LASTS),
    )


def _roots(steps: DataFrame) -> DataFrame:
    """Event (``t``) → the row of the table that it continues, followed in steps of doubled length.

    No row where it is a new one.
    """
    first = F.when(F.col(_BEFORE).isNull(), F.struct(F.col(_IMAGE).alias("image"), (1 - F.col(_LEVEL)).alias("at")))
    links = steps.where(F.col(NUMBER) < 0).select(
        F.col(SEQ).alias("t"), F.col(_BEFORE).alias("from"), first.alias(_ROOT)
    )
    links = links.localCheckpoint()
    while True:
        a, b = links.alias("a"), links.alias("b")
        links = (
            a.join(b, F.col("a.from") == F.col("b.t"), "left")
            .select(
                F.col("a.t").alias("t"),
                F.when(F.col("b.t").isNull(), F.col("a.from")).otherwise(F.col("b.from")).alias("from"),
                F.coalesce(f"a.{_ROOT}", f"b.{_ROOT}").alias(_ROOT),
                F.col("b.t").isNotNull().alias("went_on"),
            )
            .localCheckpoint()
        )
        if not links.where("went_on").head(1):
            return links.where(F.col(_ROOT).isNotNull()).select("t", _ROOT)


def expand_row_counts(rows: DataFrame, columns: list[str]) -> DataFrame:
    """Sum equal rows up by :data:`NUMBER`, then repeat each as often as it exists.

    Of rows that are equal, and differ in the sign of a zero, those go first that are the same in this, too.
    """
    names, number = list(map(quote_name, columns)), F.col(NUMBER)
    if signs := _signs(rows, columns):
        left = _left_of_equal(rows.select(*names, NUMBER, *signs), names)
    else:
        summed = rows.groupBy(*names).agg(F.sum(NUMBER).alias(NUMBER))
        left = summed.withColumn(NUMBER, F.when(number < 0, _absent()).otherwise(number))
    return (
        left.where(number != 0)
        .withColumn(_COPY, F.explode(F.sequence(F.lit(1), number)))
        .select(*map(quote_name, columns))
    )


def _signs(rows: DataFrame, columns: Sequence[str]) -> list[Expression]:
    """Build the :data:`_SIGN` columns, which distinguish zeros that are equal."""
    signs = [sign_of_zeros(F.col(quote_name(column)), rows.schema[column].dataType) for column in columns]
    return [sign.alias(f"{_SIGN}{i}") for i, sign in enumerate(sign for sign in signs if sign is not None)]


def _left_of_equal(rows: DataFrame, names: list[str]) -> DataFrame:
    """Count the rest of each row whose zeros have signs.

    :param rows: with :data:`NUMBER`, and :data:`_SIGN` columns
    """
    number, own = F.col(NUMBER), [name for name in rows.columns if name.startswith(_SIGN)]
    # grouped columns have no sign any more
    same = rows.groupBy(*names, *own).agg(F.sum(NUMBER).alias(NUMBER), F.first(F.struct(*names)).alias(_SAME))
    equal = Window.partitionBy(*names)
    ordered = equal.orderBy(*own).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    lacking = F.sum(F.greatest(-number, F.lit(0))).over(equal)
    so_far = F.sum(F.greatest(number, F.lit(0))).over(ordered)
    left = F.greatest(F.least(number, so_far - lacking), F.lit(0))
    checked = F.when(F.sum(number).over(equal) < 0, _absent()).otherwise(left)
    return same.select(_SAME, checked.alias(NUMBER)).select(f"{_SAME}.*", NUMBER)


def _absent() -> Expression:
    return F.raise_error(F.lit(ABSENT))


ABSENT = "a row to remove does not exist"
"""Error of the query of :func:`expand_row_counts` if the table and the change log do not belong together."""
