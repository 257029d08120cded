"""Changes of the columns of a Delta table: those that can be made in place, their statements, and the features that they need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.column_renames import list_renames, rename_column_types
from airflow_provider_cdc.targets.lake.formats.table_values import ColumnEvolution, TableComments
from airflow_provider_cdc.targets.lake.types.spark_types import can_hold_type, quote_name, quote_text

MAPPING = {"delta.columnMapping.mode": "name"}
"""Renaming and odd names of columns, without rewriting files."""
WIDENING = {"delta.enableTypeWidening": "true"}
"""INT to BIGINT, without rewriting files."""
NTZ = {"delta.feature.timestampNtz": "supported"}
"""Columns of times without a zone. Delta switches this on by itself only when it creates a table."""
RESERVED = frozenset(
    {
        "_row_id_", "_file_name_", "_source_row_present_", "_target_row_present_", "_row_dropped_",  # of MERGE
        "__delta_internal_is_row_deleted", "__delta_internal_row_index",  # of its reader of files
    }
)  # fmt: skip
"""Names of Delta's internal columns while it reads and merges: a table with such a column can be written, and not be merged into or not be read."""
RESERVED_BESIDE_VECTORS = frozenset({"_metadata", "filepath", "rowindexcol", "deletionvectorid"})
"""Those that it uses besides in tables with deletion vectors."""
_ODD = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that names of columns have only with column mapping."""


def can_evolve(
    evolution: ColumnEvolution, columns: Mapping[str, str], location: str, widens: Callable[[str, str], bool]
) -> bool:
    """Check an evolution, as :meth:`airflow_provider_cdc.targets.lake.formats.target_interface.Target.can_evolve`.

    :param columns: the table's, and their types
    :param widens: whether this release of Delta changes one type to another in place
    """
    there = rename_column_types(evolution, columns, location)
    if there is None:
        return False
    return all(
        _fits(there[name.lower()], type_)
        and (can_hold_type(there[name.lower()], type_) or widens(there[name.lower()], type_))
        for name, type_ in evolution.types.items()
        # values that neither type holds are an error of the column, unless they are not needed any more
        if name.lower() in there and (name in evolution.fills or can_hold_type(type_, there[name.lower()]))
    )


def build_alter_statements(evolution: ColumnEvolution, columns: Mapping[str, str], location: str) -> Iterator[str]:
    """Build the ``ALTER TABLE`` clauses, in order.

    :raises TargetError: a column would get a type that cannot be reached
    """
    there = {name.lower(): type_ for name, type_ in columns.items()}
    names = {name.lower(): name for name in evolution.types}
    for old, new in list_renames(evolution):
        if old in there and new in names:
            yield f"RENAME COLUMN {quote_name(old)} TO {quote_name(names[new])}"
            there[new] = there.pop(old)
    if gone := evolution.list_dropped_columns(columns):
        yield f"DROP COLUMNS ({', '.join(map(quote_name, gone))})"
    missing = [f"{quote_name(name)} {type_}" for name, type_ in evolution.types.items() if name.lower() not in there]
    if missing:
        yield f"ADD COLUMNS ({', '.join(missing)})"
    for name, type_ in evolution.types.items():
        old = there.get(name.lower(), type_)
        if not _fits(old, type_):
            raise _other_type(name, old, type_, location)
        if not can_hold_type(old, type_):
            yield f"ALTER COLUMN {quote_name(name)} TYPE {type_}"


def list_evolution_properties(evolution: ColumnEvolution, columns: Mapping[str, str]) -> dict[str, str]:
    """Properties of the table that an evolution needs."""
    types = {name.lower(): type_ for name, type_ in columns.items()}
    came = {new: types[old] for old, new in list_renames(evolution) if old in types}
    types.update(came)
    new = {name: type_ for name, type_ in evolution.types.items() if name.lower() not in types}
    wider = {
        name: t for name, t in evolution.types.items() if name not in new and not can_hold_type(types[name.lower()], t)
    }
    renamed = {name: "" for name in evolution.types if name.lower() in came}
    needs = list_column_properties({**renamed, **new, **wider})
    return {**needs, **(MAPPING if came else {}), **(WIDENING if wider else {})}


def list_column_properties(types: Mapping[str, str]) -> dict[str, str]:
    """Properties without which a Delta table cannot have these columns."""
    odd = any(_ODD.search(name) for name in types)
    return {**(MAPPING if odd else {}), **(NTZ if "timestamp_ntz" in types.values() else {})}


def build_comment_statements(comments: TableComments, described: str, columns: Mapping[str, str]) -> Iterator[str]:
    """Build the ``ALTER TABLE`` clauses for the comments that a table lacks; one statement is one commit.

    :param described: the table's own comment
    :param columns: column of the table → its comment
    """
    there = {name.lower(): (name, comment) for name, comment in columns.items()}
    if comments.table and comments.table != described:
        yield f"SET TBLPROPERTIES ('comment' = {quote_text(comments.table)})"
    lacking = [
        f"{quote_name(there[name.lower()][0])} COMMENT {quote_text(comment)}"
        for name, comment in comments.columns.items()
        if name.lower() in there and there[name.lower()][1] != comment
    ]
    if lacking:
        yield f"ALTER COLUMN {', '.join(lacking)}"


def _other_type(name: str, old: str, new: str, location: str) -> TargetError:
    return TargetError(
        f"Column {name} has the type {old} in the table and needs the type {new}, but Delta cannot change it in place.",
        where=location,
        safe="The table was not changed; the change log keeps the batches.",
        remedy="set schema.change.rewrite.mode=snapshot, so that the connector snapshots the table again after such a change, or drop "
        "the target table and snapshot the source table again with snapshot.mode=always for one run",
    )


def _fits(there: str, required: str) -> bool:
    """Check whether a column of one type can hold values of another, as it is or widened in place.

    Delta makes integers only such decimals as have room for all values of their width in its files, which have 32 bits at least.
    """
    if can_hold_type(there, required):
        return True
    in_files = "int" if there in ("tinyint", "smallint") and required.startswith("decimal") else there
    return can_hold_type(required, there) and can_hold_type(required, in_files)
