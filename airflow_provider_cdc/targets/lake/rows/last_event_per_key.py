"""The last event of each key, completed by the values that it lacks.

An event that lacks the value of a column (``unavailable``) leaves it as it was. The value is taken from the last event of
the same *row* that has it, otherwise from the table. A row is more than a key: a change of the key takes a row from one
key to another (``previous_key``), and a create or a read begins a new one, which inherits nothing.

Rows are made with columns of our own beside those of the table. Their names begin with :data:`OURS`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.types.spark_types import quote_name

OURS = "__cdc_"
"""Prefix of our own columns; no column of a table may have such a name."""
SEQ = f"{OURS}seq"
"""Number of the event."""
OP = f"{OURS}op"
"""Operation letter of the event."""
OMITTED = f"{OURS}omitted"
"""Names of the columns that an event lacks. Of reduced rows: those that no event has, so that the table's value stays."""
FROM = f"{OURS}from"
"""The key that a row had before an event that changed it."""
ORIGIN = f"{OURS}origin"
"""Of reduced rows: the key of the table's row whose values :data:`OMITTED` is about; there where keys changed."""
RECREATED = f"{OURS}recreated"
"""Of reduced rows: whether the row of this key was deleted by some event, so that one that is there after it is another row. Rows that are merged have
it as of :func:`split_recreated_rows`."""
UNKNOWN = f"{OURS}unknown"
"""Column of reduced rows: names of the columns that a create or a read lacked. Their values are unknown, and NULL in the row."""
ROW = f"{OURS}row"
"""Of events: the row that they are of, through changes of its key; see :func:`identify_rows`."""
_LIFE, _LAST, _VALUE, _EACH = f"{OURS}life", f"{OURS}last", f"{OURS}value_", f"{OURS}each"
_MOVED, _OLD, _VALUES = f"{OURS}moved", f"{OURS}old", f"{OURS}values"


def build_key_condition(key: Sequence[str], a: str, b: str) -> Expression:
    """Build the condition that rows of two frames have the same key."""
    return reduce(and_, [F.col(f"{a}.{quote_name(c)}").eqNullSafe(F.col(f"{b}.{quote_name(c)}")) for c in key])


def last_per_key(
    rows: DataFrame,
    key: tuple[str, ...],
    sparse: Sequence[str] = (),
    carried: Collection[str] = (),
    *,
    stays: bool = False,
    recreated: bool = False,
) -> DataFrame:
    """Reduce events to the one with the highest number of each key; without that number.

    :param rows: events with :data:`SEQ`, :data:`OP` and final columns; with :data:`OMITTED` where ``sparse`` is not empty, and with
        :data:`FROM` where an event that changes the key lacks values
    :param sparse: columns that events may lack
    :param carried: those among them that also creates and reads leave as they are, and that have the image before a delete
    :param stays: whether a row that is deleted stays in the table, and later events of its key continue it
    :param recreated: whether :data:`RECREATED` is needed
    """
    groups, moves = rows.groupBy(*map(quote_name, key)), FROM in rows.columns
    more, recreated_columns = (
        ([F.max(F.col(OP) == "d").alias(RECREATED)], [F.col(RECREATED)]) if recreated else ([], [])
    )
    if not sparse:
        last = _newest([c for c in rows.columns if c != SEQ]).alias(_LAST)
        return groups.agg(last, *more).select(f"{_LAST}.*", *recreated_columns)
    # grouped columns have lost the sign of their zeros
    others = [c for c in rows.columns if c not in (SEQ, OMITTED, FROM, *sparse)]
    last = _newest(others).alias(_LAST)
    by_key, by_row = list[Expression](), list[Expression]()
    for i, c in enumerate(sparse):
        if c in carried:
            by_key.append(_last_carried(c, moves=moves, stays=stays).alias(f"{_VALUE}{i}"))
        else:
            by_row.append(_last_value(c, moves=moves).alias(f"{_VALUE}{i}"))
    if not moves:
        return _shown(groups.agg(last, *more, *by_key, *by_row), others, sparse, *recreated_columns)
    rows = identify_rows(rows, key).localCheckpoint()
    ended = rows.groupBy(*map(quote_name, key)).agg(last, *more, *by_key, F.max_by(ROW, SEQ).alias(ROW)).alias("e")
    row_values = rows.where(F.col(OP) != "d").groupBy(ROW).agg(F.count("*"), *by_row).alias("k")
    same = F.col(f"e.{ROW}").eqNullSafe(F.col(f"k.{ROW}"))
    joined = ended.join(row_values, same, "left").drop(F.col(f"k.{ROW}"))
    return _shown(joined, others, sparse, F.col(f"{ROW}.key").alias(ORIGIN), *recreated_columns)


def split_recreated_rows(rows: DataFrame) -> DataFrame:
    """Split reduced rows with :data:`RECREATED`, for a table that has more columns than they.

    A row that is there again after it was deleted has nothing of the one before it. So it is two rows: one that deletes, and one with :data:`RECREATED`,
    which is inserted whatever the table has.
    """
    again, op = F.col(RECREATED) & (F.col(OP) != "d"), F.col(OP)
    whole = F.struct(op.alias("op"), again.alias("anew"))
    gone = F.struct(F.lit("d").alias("op"), F.lit(False).alias("anew"))
    each = F.explode(F.when(again, F.array(gone, whole)).otherwise(F.array(whole)))
    others = [quote_name(c) for c in rows.columns if c not in (OP, RECREATED)]
    return rows.select(*others, each.alias(_EACH)).select(
        *others, F.col(f"{_EACH}.op").alias(OP), F.col(f"{_EACH}.anew").alias(RECREATED)
    )


def _newest(columns: Sequence[str]) -> Expression:
    return F.max_by(F.struct(*map(quote_name, columns)), SEQ)


def _last_value(column: str, *, moves: bool) -> Expression:
    """Build the value of a column by the last event that has it, or that begins a row without it."""
    lacks = F.array_contains(OMITTED, F.lit(column))
    begins = F.col(OP).isin("c", "r")
    if moves:
        begins &= F.col(FROM).isNull()
    has_value = (F.col(OP) != "d") & (~lacks | begins)
    # of events without a number none is the newest
    return F.max_by(F.struct(F.col(quote_name(column)).alias("v"), lacks.alias("lacks")), F.when(has_value, F.col(SEQ)))


def _last_carried(column: str, *, moves: bool, stays: bool) -> Expression:
    """Build the value of a column by the last event of the key that has it, or that ends the row.

    Another row under its key begins without the value.
    """
    lacks, ends = F.array_contains(OMITTED, F.lit(column)), F.lit(False)
    if not stays:
        ends = F.col(OP) == "d"
        if moves:
            ends |= F.col(FROM).isNotNull() & lacks
    value = F.struct(F.when(~ends, F.col(quote_name(column))).alias("v"), F.lit(False).alias("lacks"))
    return F.max_by(value, F.when(~lacks | ends, F.col(SEQ)))


def _shown(picked: DataFrame, others: Sequence[str], sparse: Sequence[str], *more: Expression) -> DataFrame:
    values = {c: F.col(f"{_VALUE}{i}") for i, c in enumerate(sparse)}
    kept_names = [F.when(value.isNull(), F.lit(c)) for c, value in values.items()]
    unknown = [F.when(value["lacks"], F.lit(c)) for c, value in values.items()]
    return picked.select(
        *[F.col(f"{_LAST}.{quote_name(c)}").alias(c) for c in others],
        *[value["v"].alias(c) for c, value in values.items()],
        F.array_compact(F.array(*kept_names)).alias(OMITTED),
        F.array_compact(F.array(*unknown)).alias(UNKNOWN),
        *more,
    )


# -- rows that change their keys --------------------------------------------------------------------------------------


def identify_rows(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Identify the row of each event: by the number of the event that began it, or 0 and its key in the table.

    A key has one life after the other, each begun by a create or a read. A life that begins with a change of the key continues
    that of the old key, which the last delete before it has ended; that is not always one event before. Lives are followed to the first one in steps
    of doubled length.
    """
    of_key = Window.partitionBy(*map(quote_name, key)).orderBy(SEQ)
    begins = F.when(F.col(OP).isin("c", "r"), F.col(SEQ))
    life = F.coalesce(F.last(begins, ignorenulls=True).over(of_key), F.lit(0))
    rows = rows.withColumn(_LIFE, life)
    whole = F.struct(*[F.col(quote_name(c)) for c in key])
    moved = rows.where(F.col(FROM).isNotNull() & (F.size(OMITTED) > 0))
    moves = moved.select(F.col(SEQ).alias("t"), F.col(FROM).alias("old"))
    ends = rows.where(F.col(OP) == "d").select(F.col(SEQ).alias("s"), F.col(_LIFE).alias("at"), whole.alias("key"))
    before = moves.join(ends, F.col("key").eqNullSafe(F.col("old")) & F.expr("s < t"))
    last = before.groupBy("t").agg(F.max_by(F.struct("at", "key"), "s").alias("end"))
    links = last.select("t", "end.at", "end.key").localCheckpoint()
    while True:
        a, b = links.alias("a"), links.alias("b")
        links = (
            a.join(b, F.expr("a.at = b.t"), "left")
            .select(
                F.col("a.t").alias("t"),
                F.coalesce("b.at", "a.at").alias("at"),
                F.when(F.col("b.t").isNotNull(), F.col("b.key")).otherwise(F.col("a.key")).alias("key"),
                F.col("b.t").isNotNull().alias("went_on"),
            )
            .localCheckpoint()
        )
        if not links.where("went_on").head(1):
            break
    first = links.select(F.col("t").alias(_OLD), F.struct("at", "key").alias(_VALUES))
    own = F.struct(F.col(_LIFE).alias("at"), whole.alias("key"))
    identified = rows.join(first, F.col(_LIFE) == F.col(_OLD), "left")
    return identified.withColumn(ROW, F.coalesce(_VALUES, own)).drop(_OLD, _VALUES, _LIFE)


def inherit_values(
    rows: DataFrame, there: DataFrame, key: tuple[str, ...], sparse: Sequence[str], carried: Collection[str] = ()
) -> DataFrame:
    """Reduced rows with the values that the table has under the keys (:data:`ORIGIN`) that the rows had there.

    :param there: the table's rows, with the final columns
    :param carried: as in :func:`last_per_key`: such values stay under their keys
    """
    sparse = [name for name in sparse if name not in carried]
    whole = F.struct(*[F.col(f"r.{quote_name(c)}") for c in key])
    moved = ~F.col(ORIGIN).eqNullSafe(whole)
    if RECREATED in rows.columns:  # it may have come back to its old key by way of others, and is inserted
        moved |= F.col(RECREATED)
    moved &= F.size(OMITTED) > 0
    rows = rows.alias("r").withColumn(_MOVED, moved)
    old = there.select(
        F.struct(*[F.col(quote_name(c)) for c in key]).alias(_OLD), F.struct(*map(quote_name, sparse)).alias(_VALUES)
    )
    origins = rows.where(_MOVED).select(F.col(ORIGIN))
    # a merge reads its rows twice, and may not see two states of the table
    old_values = old.join(origins, F.col(_OLD).eqNullSafe(F.col(ORIGIN)), "left_semi").localCheckpoint()
    joined = rows.join(old_values, F.col(_MOVED) & (F.col(ORIGIN) == F.col(_OLD)), "left")
    columns = []
    for name in rows.columns:
        if name == OMITTED:
            stays = (
                F.filter(OMITTED, lambda column: column.isin(*carried)) if carried else F.array().cast("array<string>")
            )
            columns.append(F.when(F.col(_MOVED), stays).otherwise(F.col(OMITTED)).alias(OMITTED))
        elif name in sparse:
            takes = F.col(_MOVED) & F.array_contains(OMITTED, F.lit(name))
            value = F.when(takes, F.col(f"{_VALUES}.{quote_name(name)}")).otherwise(F.col(quote_name(name)))
            columns.append(value.alias(name))
        elif name not in (_MOVED, ORIGIN):
            columns.append(F.col(quote_name(name)))
    return joined.select(*columns)
