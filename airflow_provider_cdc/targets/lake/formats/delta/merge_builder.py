"""A MERGE by Delta's own builder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.delta.jvm_access import DeltaTableFolder
from airflow_provider_cdc.targets.lake.formats.table_values import KeyedMerge
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import OMITTED, OP, RECREATED
from airflow_provider_cdc.targets.lake.types.spark_types import build_fill_value, quote_name


def build_merge(folder: DeltaTableFolder, merge: KeyedMerge) -> Any:
    """Delta's own builder: it takes names and values as they are, without SQL text that would be parsed again."""

    def there(column: str) -> Expression:
        return F.col(f"t.{quote_name(column)}")

    def new(column: str) -> Expression:
        return F.col(f"s.{quote_name(column)}")

    op = F.col(f"s.{OP}")
    same = [there(c).eqNullSafe(new(c)) if c in merge.nullable else there(c) == new(c) for c in merge.key]
    if RECREATED in merge.rows.columns:
        same.append(~F.col(f"s.{RECREATED}"))
    kept_columns = set(merge.types) - set(merge.key) if OMITTED in merge.rows.columns else set()
    sets = {c: _kept_value(c, merge) if c in kept_columns else new(c) for c in merge.types}
    table = folder.load_class("io.delta.tables.DeltaTable").forPath(folder.spark._jsparkSession, folder.name)
    builder = table.alias("t").merge(merge.rows.alias("s")._jdf, _java(reduce(and_, same)))
    builder = builder.whenMatched(_java(op == "d")).delete()
    builder = builder.whenMatched().update(_assignments(folder, sets))
    builder = builder.whenNotMatched(_java(op != "d")).insert(_assignments(folder, {c: new(c) for c in merge.types}))
    if merge.fills:
        fills = {c: build_fill_value(value, merge.types[c]) for c, value in merge.fills.items()}
        builder = builder.whenNotMatchedBySource().update(_assignments(folder, fills))
    return builder


def _assignments(folder: DeltaTableFolder, values: Mapping[str, Expression]) -> Any:
    assignments = folder.load_class("java.util.LinkedHashMap")()
    for name, value in values.items():
        assignments.put(quote_name(name), _java(value))
    return assignments


def _kept_value(column: str, merge: KeyedMerge) -> Expression:
    """Build the table's value where no event had one: with the fill, if there is one."""
    name = quote_name(column)
    fills = merge.fills
    there = build_fill_value(fills[column], merge.types[column]) if column in fills else F.col(f"t.{name}")
    return F.when(F.array_contains(f"s.{OMITTED}", F.lit(column)), there).otherwise(F.col(f"s.{name}"))


def _java(expression: Expression) -> Any:
    return expression._jc
