"""A MERGE by Delta's own builder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F

from airflow_provider_cdc.targets.lake.formats.delta.folder import TableFolder
from airflow_provider_cdc.targets.lake.formats.target import Merge
from airflow_provider_cdc.targets.lake.rows.last_event_per_key import ANEW, KEPT, OP
from airflow_provider_cdc.targets.lake.types.spark_types import filled, quoted


def builder(folder: TableFolder, merge: Merge) -> Any:
    """Delta's own builder: it takes names and values as they are, without SQL text that would be parsed again."""

    def there(column: str) -> Expression:
        return F.col(f"t.{quoted(column)}")

    def new(column: str) -> Expression:
        return F.col(f"s.{quoted(column)}")

    op = F.col(f"s.{OP}")
    same = [there(c).eqNullSafe(new(c)) if c in merge.nullable else there(c) == new(c) for c in merge.key]
    if ANEW in merge.rows.columns:
        same.append(~F.col(f"s.{ANEW}"))
    kept = set(merge.types) - set(merge.key) if KEPT in merge.rows.columns else set()
    sets = {c: _kept(c, merge) if c in kept else new(c) for c in merge.types}
    table = folder.cls("io.delta.tables.DeltaTable").forPath(folder.spark._jsparkSession, folder.name)
    builder = table.alias("t").merge(merge.rows.alias("s")._jdf, _java(reduce(and_, same)))
    builder = builder.whenMatched(_java(op == "d")).delete()
    builder = builder.whenMatched().update(_assignments(folder, sets))
    builder = builder.whenNotMatched(_java(op != "d")).insert(_assignments(folder, {c: new(c) for c in merge.types}))
    if merge.fills:
        fills = {c: filled(value, merge.types[c]) for c, value in merge.fills.items()}
        builder = builder.whenNotMatchedBySource().update(_assignments(folder, fills))
    return builder


def _assignments(folder: TableFolder, values: Mapping[str, Expression]) -> Any:
    found = folder.cls("java.util.LinkedHashMap")()
    for name, value in values.items():
        found.put(quoted(name), _java(value))
    return found


def _kept(column: str, merge: Merge) -> Expression:
    """The table's value where no event told one: what the fill makes of it, if there is one."""
    name = quoted(column)
    fills = merge.fills
    there = filled(fills[column], merge.types[column]) if column in fills else F.col(f"t.{name}")
    return F.when(F.array_contains(f"s.{KEPT}", F.lit(column)), there).otherwise(F.col(f"s.{name}"))


def _java(expression: Expression) -> Any:
    return expression._jc
