"""How the columns of an Iceberg table change: what can be done in place, and by which steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.core.errors import TargetError
from spark_jobs.datatypes import holds
from spark_jobs.targets.base import Evolution
from spark_jobs.targets.iceberg.columns import held, iceberg_types, widens


def can_evolve(evolution: Evolution, columns: Mapping[str, str], location: str) -> bool:
    """As :meth:`spark_jobs.targets.base.Target.can_evolve`.

    :param columns: the table's, and their types
    """
    there = {name.lower(): type_ for name, type_ in columns.items()}
    final = {name.lower() for name in evolution.types}
    if len(final) < len(evolution.types):
        raise TargetError(
            "Two columns have the same name but for upper and lower case, which Spark cannot tell apart.",
            where=f"{location}: {', '.join(evolution.types)}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="leave one of them out with column.exclude.list, or rename it at the source",
        )
    for old, new in renames(evolution):
        # a name that is given away and taken again in one go would not tell what has been done after a kill
        if old in final or (old in there and new in there):
            return False
        if old not in there and new not in there:
            raise _lost(old, new, location)
        there.setdefault(new, there.get(old, ""))
    can = True
    for name, type_ in evolution.types.items():
        there_type = there.get(name.lower(), held(type_))
        if holds(there_type, type_) or holds(there_type, held(type_)) or widens(there_type, held(type_)):
            continue
        # the table has no smaller integer than int: whether the values fit, a cast of theirs says
        from_small = there_type == held("tinyint") and holds(type_, "tinyint")
        if name not in evolution.fills and not (holds(type_, there_type) or from_small):
            raise _other_type(name, there_type, type_, location)
        can = False
    return can


def updates(spark: SparkSession, evolution: Evolution, there: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    """Methods of Iceberg's ``UpdateSchema`` with what they are given. It knows columns by the names that they had before.

    :param there: the table's columns, and their types
    """
    names, wanted = {name.lower(): name for name in there}, {name.lower(): name for name in evolution.types}
    for old, new in renames(evolution):
        if old in names and new in wanted:
            yield "renameColumn", names[old], wanted[new]
            names[new] = names.pop(old)
    for name in evolution.going(there):
        yield "deleteColumn", name
    made = iceberg_types(spark, evolution.types)
    for name, type_ in evolution.types.items():
        known = names.get(name.lower())
        if known is None:
            yield "addColumn", None, name, made[name]
        elif not (holds(there[known], type_) or holds(there[known], held(type_))):
            yield "updateColumn", known, made[name]


def _other_type(name: str, old: str, new: str, location: str) -> TargetError:
    return TargetError(
        f"Column {name} is {old} in the table and would have to become {new}, which Iceberg cannot do in place.",
        where=location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="set schema.change.rewrite.mode=snapshot, so that the table is read again after such a change, or drop "
        "the target table and read it again with snapshot.mode=always for one run",
    )


def _lost(old: str, new: str, location: str) -> TargetError:
    return TargetError(
        f"Column {old} was renamed to {new} at the source; the table has neither.",
        where=location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="drop the target table and run the apply again: it is built again from the change log",
    )


def renames(evolution: Evolution) -> list[tuple[str, str]]:
    """Renames in lower case; Spark ignores case, so a change of case is none."""
    pairs = [(old.lower(), new.lower()) for old, new in evolution.renamed]
    return [(old, new) for old, new in pairs if old != new]
