"""Reads and writes of an Iceberg table object, as plans of Spark.

Spark's own API finds tables by name, in a catalog, in whatever state they are then. Here the table is given: in the state in which its marker
was read, or within a transaction that nobody else sees yet. So nothing can come in between, and names never are part of a SQL text that
is looked up in a catalog.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_classes import ICEBERG, activate, named
from airflow_provider_cdc.targets.lake.formats.target import Merge
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import ANEW, KEPT, OP
from airflow_provider_cdc.targets.lake.types.spark_types import literal, quoted

_PLANS = "org.apache.spark.sql.catalyst.plans.logical"


def read(spark: SparkSession, table: Any) -> DataFrame:
    """The rows of a table's current snapshot."""
    return DataFrame(_run(spark, _relation(spark, table)), spark)


def tasks(scan: Any) -> list[Any]:
    """Each file that a scan reads, with its deletes (``org.apache.iceberg.FileScanTask``).

    :param scan: ``org.apache.iceberg.TableScan``
    """
    planned = scan.planFiles()
    try:
        found, every = planned.iterator(), []
        while found.hasNext():
            every.append(found.next())
        return every
    finally:
        planned.close()


def append(spark: SparkSession, table: Any, rows: DataFrame) -> None:
    """Add rows; columns are found by name, and cast."""
    companion = _object(spark, f"{_PLANS}.AppendData")
    _run(spark, companion.byName(_relation(spark, table), _plan(rows), _no_options(companion, 3)))


def overwrite(spark: SparkSession, table: Any, rows: DataFrame) -> None:
    """Put rows in the place of all that there are."""
    everything = _object(spark, "org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral()
    companion = _object(spark, f"{_PLANS}.OverwriteByExpression")
    _run(spark, companion.byName(_relation(spark, table), _plan(rows), everything, _no_options(companion, 4)))


def merge(spark: SparkSession, table: Any, merge: Merge) -> None:
    """Upsert and delete by key.

    The statement is parsed, with placeholders for table and rows, which are put into its plan.
    """
    activate(spark)  # a thread without settings would look for variables in names and values
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement(merge))
    alias = _object(spark, f"{_PLANS}.SubqueryAlias")
    plan = named(spark, f"{_PLANS}.MergeIntoTable")(
        alias.apply("t", _relation(spark, table)), alias.apply("s", _plan(merge.rows)), parsed.mergeCondition(),
        parsed.matchedActions(), parsed.notMatchedActions(), parsed.notMatchedBySourceActions(), False,
    )  # fmt: skip
    _run(spark, plan)


def statement(merge: Merge) -> str:
    """The merge of ``s`` into ``t`` in SQL."""
    op, kept = f"s.{OP}", set(merge.types) - set(merge.key) if KEPT in merge.rows.columns else set()
    same = [f"t.{quoted(c)} {'<=>' if c in merge.nullable else '='} s.{quoted(c)}" for c in merge.key]
    same += [f"NOT s.{ANEW}"] if ANEW in merge.rows.columns else []
    sets = [f"t.{quoted(c)} = {_kept(c, merge) if c in kept else f's.{quoted(c)}'}" for c in merge.types]
    columns, values = (", ".join(f"{prefix}{quoted(c)}" for c in merge.types) for prefix in ("", "s."))
    text = (
        f"MERGE INTO t USING s ON {' AND '.join(same)} WHEN MATCHED AND {op} = 'd' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(sets)} WHEN NOT MATCHED AND {op} <> 'd' THEN INSERT ({columns}) VALUES ({values})"
    )
    if merge.fills:
        fills = [f"t.{quoted(c)} = {_filled(value, merge.types[c])}" for c, value in merge.fills.items()]
        text += f" WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {', '.join(fills)}"
    return text


def _kept(column: str, merge: Merge) -> str:
    """The table's value where no event told one: what the fill makes of it, if there is one."""
    name, fills = quoted(column), merge.fills
    there = _filled(fills[column], merge.types[column]) if column in fills else f"t.{name}"
    return f"CASE WHEN array_contains(s.{KEPT}, {literal(column)}) THEN {there} ELSE s.{name} END"


def _filled(text: str | None, type_: str) -> str:
    return f"CAST({'NULL' if text is None else literal(text)} AS {type_})"


def _relation(spark: SparkSession, table: Any) -> Any:
    none = named(spark, "scala.Option").empty()
    activate(spark)
    made = named(spark, f"{ICEBERG}.spark.source.SparkTable")(table)
    return _object(spark, "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation").create(made, none, none)


def _plan(rows: DataFrame) -> Any:
    return rows._jdf.logicalPlan()


def _run(spark: SparkSession, plan: Any) -> Any:
    """A query, or a command, which is carried out at once."""
    activate(spark)
    return named(spark, "org.apache.spark.sql.classic.Dataset").ofRows(spark._jsparkSession, plan)


def _object(spark: SparkSession, name: str) -> Any:
    """An object of Scala."""
    return getattr(named(spark, f"{name}$"), "MODULE$")


def _no_options(companion: Any, number: int) -> Any:
    return getattr(companion, f"byName$default${number}")()
