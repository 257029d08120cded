"""Changes of the columns of an Iceberg table: those that can be made in place, and their steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.column_renames import list_renames, rename_column_types
from airflow_provider_cdc.targets.lake.formats.iceberg.table_schema import (
    can_widen_type,
    iceberg_types,
    to_iceberg_type,
)
from airflow_provider_cdc.targets.lake.formats.table_values import ColumnEvolution
from airflow_provider_cdc.targets.lake.types.spark_types import can_hold_type


def can_evolve(evolution: ColumnEvolution, columns: Mapping[str, str], location: str) -> bool:
    """Check an evolution, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.can_evolve`.

    :param columns: the table's, and their types
    """
    there = rename_column_types(evolution, columns, location)
    if there is None:
        return False
    can = True
    for name, type_ in evolution.types.items():
        there_type = there.get(name.lower(), to_iceberg_type(type_))
        if (
            can_hold_type(there_type, type_)
            or can_hold_type(there_type, to_iceberg_type(type_))
            or can_widen_type(there_type, to_iceberg_type(type_))
        ):
            continue
        # the table has no smaller integer than int: whether the values fit, a cast of theirs says
        from_small = there_type == to_iceberg_type("tinyint") and can_hold_type(type_, "tinyint")
        if name not in evolution.fills and not (can_hold_type(type_, there_type) or from_small):
            raise _other_type(name, there_type, type_, location)
        can = False
    return can


def list_schema_updates(
    spark: SparkSession, evolution: ColumnEvolution, there: Mapping[str, str]
) -> Iterator[tuple[Any, ...]]:
    """Methods of Iceberg's ``UpdateSchema`` with their arguments. It knows columns by the names that they had before.

    :param there: the table's columns, and their types
    """
    names, final_names = {name.lower(): name for name in there}, {name.lower(): name for name in evolution.types}
    for old, new in list_renames(evolution):
        if old in names and new in final_names:
            yield "renameColumn", names[old], final_names[new]
            names[new] = names.pop(old)
    for name in evolution.list_dropped_columns(there):
        yield "deleteColumn", name
    types = iceberg_types(spark, evolution.types)
    for name, type_ in evolution.types.items():
        present_name = names.get(name.lower())
        if present_name is None:
            yield "addColumn", None, name, types[name]
        elif not (
            can_hold_type(there[present_name], type_) or can_hold_type(there[present_name], to_iceberg_type(type_))
        ):
            yield "updateColumn", present_name, types[name]


def _other_type(name: str, old: str, new: str, location: str) -> TargetError:
    return TargetError(
        f"Column {name} has the type {old} in the table and needs the type {new}, but Iceberg cannot change it in place.",
        where=location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="set schema.change.rewrite.mode=snapshot, so that the connector snapshots the table again after such a change, or drop "
        "the target table and snapshot the source table again with snapshot.mode=always for one run",
    )
