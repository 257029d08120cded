"""Of each key the last event, with the values that it leaves out.

An event that lacks the value of a column (``unavailable``) leaves it as it was. What it was is found in this order: the last
event of the same *row* that tells it; the table's own value. A row is more than a key: a change of the key takes a row from one
key to another (``previous_key``), and a create or a read begins a new one, which inherits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.datatypes import literal, quoted

KEPT = "__kept"
"""Names of the columns that an event lacks. Of reduced rows: those that no event told, so that the table's value stays."""
FROM = "__from"
"""The key that a row had before an event that changed it."""
ORIGIN = "__origin"
"""Of reduced rows: the key of the table's row whose values ``__kept`` is about; there where keys changed."""
UNKNOWN = "__unknown"
"""Of reduced rows: names of the columns that a create or a read lacked, so that nobody knows the value: it is NULL."""
_LIFE, _ROW = "__life", "__row"


def last_per_key(rows: DataFrame, key: tuple[str, ...], sparse: Sequence[str] = ()) -> DataFrame:
    """Of each key the event with the highest ``seq``; without ``seq``.

    :param rows: events with ``seq``, ``__op`` and final columns; with ``__kept`` where ``sparse`` is not empty, and with
        ``__from`` where an event that changes the key lacks values
    :param sparse: columns that events may lack
    """
    groups = rows.groupBy(*map(quoted, key))
    if not sparse:
        names = ", ".join(quoted(c) for c in rows.columns if c != "seq")
        return groups.agg(F.expr(f"max_by(struct({names}), seq)").alias("__last")).select("__last.*")
    others = [c for c in rows.columns if c not in ("seq", KEPT, FROM, *key, *sparse)]
    last = F.expr(f"max_by(struct({', '.join(map(quoted, others))}), seq)").alias("__last")
    told = [F.expr(_last_told(c, moves=FROM in rows.columns)).alias(f"__told_{i}") for i, c in enumerate(sparse)]
    if FROM not in rows.columns:
        return _shown(groups.agg(last, *told), key, others, sparse)
    rows = _identified(rows, key).localCheckpoint()
    ends = F.expr(f"max_by({_ROW}, seq)").alias(_ROW)
    ended = rows.groupBy(*map(quoted, key)).agg(last, ends).alias("e")
    known = rows.where("__op <> 'd'").groupBy(_ROW).agg(*told).alias("k")
    joined = ended.join(known, F.expr(f"e.{_ROW} <=> k.{_ROW}"), "left").drop(F.col(f"k.{_ROW}"))
    return _shown(joined, key, others, sparse, F.col(f"{_ROW}.key").alias(ORIGIN))


def _last_told(column: str, *, moves: bool) -> str:
    """The value of a column by the last event that tells it, or that begins a row without it."""
    lacks = f"array_contains({KEPT}, {literal(column)})"
    begins = "__op IN ('c', 'r')" + (f" AND {FROM} IS NULL" if moves else "")
    told = f"__op <> 'd' AND (NOT {lacks} OR ({begins}))"
    return f"max_by(named_struct('v', {quoted(column)}, 'lacks', {lacks}), seq) FILTER (WHERE {told})"


def _shown(
    picked: DataFrame, key: Sequence[str], others: Sequence[str], sparse: Sequence[str], *more: Expression
) -> DataFrame:
    places = {c: F.col(f"__told_{i}") for i, c in enumerate(sparse)}
    untold = [F.when(told.isNull(), F.lit(c)) for c, told in places.items()]
    unknown = [F.when(told["lacks"], F.lit(c)) for c, told in places.items()]
    return picked.select(
        *[F.col(f"__last.{quoted(c)}").alias(c) for c in others],
        *[F.col(quoted(c)) for c in key],
        *[told["v"].alias(c) for c, told in places.items()],
        F.array_compact(F.array(*untold)).alias(KEPT),
        F.array_compact(F.array(*unknown)).alias(UNKNOWN),
        *more,
    )


# -- rows that change their keys --------------------------------------------------------------------------------------


def _identified(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Events with ``__row``: which row they are of, by the number of the event that began it, or 0 and its key in the table.

    A key has one life after the other, each begun by a create or a read. A life that begins with a change of the key goes on
    with that of the old key, which ends one event before. Lives are followed to the first one in steps of doubled length.
    """
    of_key = Window.partitionBy(*map(quoted, key)).orderBy("seq")
    begins = F.when(F.col("__op").isin("c", "r"), F.col("seq"))
    life = F.coalesce(F.last(begins, ignorenulls=True).over(of_key), F.lit(0))
    rows = rows.withColumn(_LIFE, life)
    whole = F.struct(*[F.col(quoted(c)) for c in key])
    moves = rows.where(F.col(FROM).isNotNull() & (F.size(KEPT) > 0)).select(F.col("seq").alias("t"))
    ends = rows.where("__op = 'd'").select(F.col("seq").alias("s"), F.col(_LIFE).alias("at"), whole.alias("key"))
    links = moves.join(ends, F.expr("s = t - 1")).select("t", "at", "key").localCheckpoint()
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
    first = links.select("t", F.struct("at", "key").alias("first"))
    own = F.struct(F.col(_LIFE).alias("at"), whole.alias("key"))
    found = rows.join(first, F.expr(f"{_LIFE} = t"), "left")
    return found.withColumn(_ROW, F.coalesce("first", own)).drop("t", "first", _LIFE)


def inherited(rows: DataFrame, there: DataFrame, key: tuple[str, ...], sparse: Sequence[str]) -> DataFrame:
    """Reduced rows with the values that the table has under the keys (``__origin``) that the rows had there.

    :param there: the table's rows, with the final columns
    """
    whole = F.struct(*[F.col(f"r.{quoted(c)}") for c in key])
    moved = (F.size(KEPT) > 0) & ~F.col(ORIGIN).eqNullSafe(whole)
    rows = rows.alias("r").withColumn("__moved", moved)
    old = there.select(
        F.struct(*[F.col(quoted(c)) for c in key]).alias("__old"), F.struct(*map(quoted, sparse)).alias("__values")
    )
    wanted = rows.where("__moved").select(F.col(ORIGIN))
    # a merge reads its rows twice, and may not see two states of the table
    found = old.join(wanted, F.expr(f"__old <=> {ORIGIN}"), "left_semi").localCheckpoint()
    joined = rows.join(found, F.expr(f"__moved AND {ORIGIN} <=> __old"), "left")
    columns = []
    for name in rows.columns:
        if name == KEPT:
            columns.append(F.expr(f"IF(__moved, array(), {KEPT})").cast("array<string>").alias(KEPT))
        elif name in sparse:
            takes = f"__moved AND array_contains({KEPT}, {literal(name)})"
            columns.append(F.expr(f"IF({takes}, __values.{quoted(name)}, {quoted(name)})").alias(name))
        elif name not in ("__moved", ORIGIN):
            columns.append(F.col(quoted(name)))
    return joined.select(*columns)
