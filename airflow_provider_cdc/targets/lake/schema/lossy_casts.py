"""Columns that get a type which does not hold their values: which they are, and whether each value has an equal one of the new type."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.table_values import ColumnEvolution
from airflow_provider_cdc.targets.lake.types.spark_types import can_hold_type, quote_name
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import VARIANT

Changed = Mapping[str, tuple[str, str]]
"""Column → the type that the table has, and the one that it is to have."""


def other_types(columns: Mapping[str, str], evolution: ColumnEvolution) -> dict[str, tuple[str, str]]:
    """Columns whose values neither the type that they have nor the one that they are to have holds.

    :param columns: of the table, with their types
    """
    types = {name.lower(): type_ for name, type_ in columns.items()}
    came = {new.lower(): old.lower() for old, new in evolution.renamed}
    lossy = {}
    for name, new in evolution.types.items():
        lower = name.lower()
        old = types.get(came.get(lower, lower), types.get(lower))  # a killed run may have renamed it
        # a column that is dropped and made again has none of its old values
        if name not in evolution.fills and old is not None and not (can_hold_type(old, new) or can_hold_type(new, old)):
            lossy[name] = old, new
    return lossy


def check_exact(rows: DataFrame, changed: Changed, where: str) -> None:
    """Check that each value has an equal one of the new type.

    :param rows: values of the columns, with the types that they have
    :raises TargetError: a value has no equal one of the new type
    """
    if not changed:
        return
    if any(VARIANT in types for types in changed.values()):
        raise _refused(changed, where, "text and VARIANT cannot be converted into each other in place")
    try:
        counts = rows.agg(*[F.count_if(_lost(name, *types)) for name, types in changed.items()]).head()
    except AnalysisException as e:
        raise _refused(changed, where, "no such cast exists") from e
    assert counts is not None
    for (name, types), number in zip(changed.items(), counts, strict=True):
        if number:
            raise _refused({name: types}, where, f"{number} values have no equal value of the new type")


def _lost(name: str, old: str, new: str) -> Expression:
    value = F.col(quote_name(name))
    return value.isNotNull() & ~value.try_cast(new).try_cast(old).eqNullSafe(value)


def _refused(changed: Changed, where: str, why: str) -> TargetError:
    columns = "; ".join(
        f"{name} has the type {old} in the table and needs the type {new}" for name, (old, new) in changed.items()
    )
    return TargetError(
        f"Column types changed at the source: {columns}, but {why}.",
        where=where,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="snapshot the source table again (schema.change.rewrite.mode=snapshot does so after such a change), cast the column to one type with "
        "columns.cast in a rule with another location, or leave it out with column.exclude.list",
    )
