"""Reads and writes of an Iceberg table object, as plans of Spark.

Spark's own API finds tables by name, in a catalog, in whatever state they are then. Here the table is given: in the state in which its marker
was read, or within a transaction that no other session sees yet. So nothing can come in between, and names never are part of a SQL text that
is looked up in a catalog.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_provider_cdc.targets.lake.formats.iceberg.jvm_access import ICEBERG
from airflow_provider_cdc.targets.lake.formats.table_values import KeyedMerge
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OMITTED, OP, RECREATED
from airflow_provider_cdc.targets.lake.spark_releases.jvm_features import (
    activate_session,
    count_parameters,
    load_jvm_class,
    load_session_class,
)
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, quote_text

_TABLE = f"{ICEBERG}.spark.source.SparkTable"
_PLANS = "org.apache.spark.sql.catalyst.plans.logical"


def read_table_rows(spark: SparkSession, table: Any) -> DataFrame:
    """Read the rows of a table's current snapshot."""
    return DataFrame(_run(spark, _relation(spark, _pinned(spark, table))), spark)


def _pinned(spark: SparkSession, table: Any) -> Any:
    """Return a table that stays in its present state, for a frame that is computed after the table has changed.

    Spark's own view of a table does so since the runtime of Spark 4.1; older ones look at schema and snapshot when rows are read.
    """
    if 1 in count_parameters(spark, _TABLE):
        return table
    operations = table.operations()
    static = load_jvm_class(spark, f"{ICEBERG}.StaticTableOperations")(
        operations.current(), operations.io(), operations.locationProvider()
    )
    return load_jvm_class(spark, f"{ICEBERG}.BaseTable")(static, table.name())


def list_scan_tasks(scan: Any) -> list[Any]:
    """Each file that a scan reads, with its deletes (``org.apache.iceberg.FileScanTask``).

    :param scan: ``org.apache.iceberg.TableScan``
    """
    planned = scan.planFiles()
    try:
        tasks, every = planned.iterator(), []
        while tasks.hasNext():
            every.append(tasks.next())
        return every
    finally:
        planned.close()


def append_rows(spark: SparkSession, table: Any, rows: DataFrame) -> None:
    """Add rows; columns are found by name, and cast."""
    companion = _object(spark, f"{_PLANS}.AppendData")
    _run(spark, companion.byName(_relation(spark, table), _plan(rows), _no_options(companion, 3)))


def overwrite_rows(spark: SparkSession, table: Any, rows: DataFrame) -> None:
    """Put rows in the place of all that there are."""
    everything = _object(spark, "org.apache.spark.sql.catalyst.expressions.Literal").TrueLiteral()
    companion = _object(spark, f"{_PLANS}.OverwriteByExpression")
    _run(spark, companion.byName(_relation(spark, table), _plan(rows), everything, _no_options(companion, 4)))


def merge_rows(spark: SparkSession, table: Any, merge: KeyedMerge) -> None:
    """Upsert and delete by key.

    The statement is parsed, with placeholders for table and rows, which are put into its plan.
    """
    activate_session(spark)  # a thread without settings would look for variables in names and values
    parsed = spark._jsparkSession.sessionState().sqlParser().parsePlan(build_merge_statement(merge))
    alias = _object(spark, f"{_PLANS}.SubqueryAlias")
    evolves_schema = (False,) if 7 in count_parameters(spark, f"{_PLANS}.MergeIntoTable") else ()  # since Spark 4.0
    plan = load_jvm_class(spark, f"{_PLANS}.MergeIntoTable")(
        alias.apply("t", _relation(spark, table)), alias.apply("s", _plan(merge.rows)), parsed.mergeCondition(),
        parsed.matchedActions(), parsed.notMatchedActions(), parsed.notMatchedBySourceActions(), *evolves_schema,
    )  # fmt: skip
    _run(spark, plan)


def build_merge_statement(merge: KeyedMerge) -> str:
    """Build the merge of ``s`` into ``t`` in SQL."""
    op, kept_columns = f"s.{OP}", set(merge.types) - set(merge.key) if OMITTED in merge.rows.columns else set()
    same = [f"t.{quote_name(c)} {'<=>' if c in merge.nullable else '='} s.{quote_name(c)}" for c in merge.key]
    same += [f"NOT s.{RECREATED}"] if RECREATED in merge.rows.columns else []
    sets = [
        f"t.{quote_name(c)} = {_kept_sql(c, merge) if c in kept_columns else f's.{quote_name(c)}'}" for c in merge.types
    ]
    columns, values = (", ".join(f"{prefix}{quote_name(c)}" for c in merge.types) for prefix in ("", "s."))
    text = (
        f"MERGE INTO t USING s ON {' AND '.join(same)} WHEN MATCHED AND {op} = 'd' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(sets)} WHEN NOT MATCHED AND {op} <> 'd' THEN INSERT ({columns}) VALUES ({values})"
    )
    if merge.fills:
        fills = [f"t.{quote_name(c)} = {_filled(value, merge.types[c])}" for c, value in merge.fills.items()]
        text += f" WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {', '.join(fills)}"
    return text


def _kept_sql(column: str, merge: KeyedMerge) -> str:
    """Build the table's value where no event had one: with the fill, if there is one."""
    name, fills = quote_name(column), merge.fills
    there = _filled(fills[column], merge.types[column]) if column in fills else f"t.{name}"
    return f"CASE WHEN array_contains(s.{OMITTED}, {quote_text(column)}) THEN {there} ELSE s.{name} END"


def _filled(text: str | None, type_: str) -> str:
    return f"CAST({'NULL' if text is None else quote_text(text)} AS {type_})"


def _relation(spark: SparkSession, table: Any) -> Any:
    none = load_jvm_class(spark, "scala.Option").empty()
    activate_session(spark)
    refreshes = () if 1 in count_parameters(spark, _TABLE) else (False,)  # before the runtime of Spark 4.1
    spark_table = load_jvm_class(spark, _TABLE)(table, *refreshes)
    return _object(spark, "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation").create(
        spark_table, none, none
    )


def _plan(rows: DataFrame) -> Any:
    return rows._jdf.logicalPlan()


def _run(spark: SparkSession, plan: Any) -> Any:
    """Run a query, or a command, which is carried out at once."""
    activate_session(spark)
    return load_session_class(spark, "Dataset").ofRows(spark._jsparkSession, plan)


def _object(spark: SparkSession, name: str) -> Any:
    """Return an object of Scala."""
    return getattr(load_jvm_class(spark, f"{name}$"), "MODULE$")


def _no_options(companion: Any, number: int) -> Any:
    return getattr(companion, f"byName$default${number}")()
