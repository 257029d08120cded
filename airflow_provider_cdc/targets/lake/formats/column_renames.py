"""Renamed columns, of every format that identifies columns by their names, in which upper and lower case are one."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.table_values import ColumnEvolution


def list_renames(evolution: ColumnEvolution) -> list[tuple[str, str]]:
    """List the renames in lower case; Spark ignores case, so a change of case is none."""
    pairs = [(old.lower(), new.lower()) for old, new in evolution.renamed]
    return [(old, new) for old, new in pairs if old != new]


def rename_column_types(evolution: ColumnEvolution, columns: Mapping[str, str], location: str) -> dict[str, str] | None:
    """Column in lower case → its type, when the renames are made; old names are among them.

    :param columns: the table's, and their types
    :return: ``None`` if they cannot be made in place
    :raises TargetError: two columns would have one name, or the table lacks the renamed column
    """
    there = {name.lower(): type_ for name, type_ in columns.items()}
    final = {name.lower() for name in evolution.types}
    if len(final) < len(evolution.types):
        raise TargetError(
            "The names of two columns differ only in upper and lower case, and Spark cannot distinguish them.",
            where=f"{location}: {', '.join(evolution.types)}",
            safe="The table was not changed; the change log keeps the batches.",
            remedy="leave one of them out with column.exclude.list, or rename it at the source",
        )
    for old, new in list_renames(evolution):
        # after a kill, a name that is given away and taken again in one go would not show which step was done
        if old in final or (old in there and new in there):
            return None
        if old not in there and new not in there:
            raise TargetError(
                f"Column {old} was renamed to {new} at the source, but the table has neither column.",
                where=location,
                safe="The table was not changed; the change log keeps the batches.",
                remedy="drop the target table and run the apply again, which rebuilds it from the change log",
            )
        there.setdefault(new, there.get(old, ""))
    return there
