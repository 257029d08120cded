"""TIMESTAMP columns of sessions without ``explicit_defaults_for_timestamp``: the attributes that their definitions do not state."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_cdc.sources.mysql.schema.ddl.alter_table_model import Action, AddColumn, ChangeColumn
from airflow_provider_cdc.sources.mysql.schema.ddl.parsed_columns import ColumnDef, MySqlColumnDefault


def with_implied_timestamps(columns: tuple[ColumnDef, ...]) -> tuple[ColumnDef, ...]:
    """Return the columns of a new table with the attributes that their definitions do not state.

    None may be NULL that does not say so, the first one has the present time as its default, others zero.

    >>> [c.nullable for c in with_implied_timestamps((ColumnDef("a", "timestamp"), ColumnDef("b", "int")))]
    [False, None]
    """
    completed, first = list[ColumnDef](), True
    for column in columns:
        implied = _implied(column)
        if implied is not column and implied.default is None and implied.on_update is None:
            now = MySqlColumnDefault("CURRENT_TIMESTAMP", True) if first else MySqlColumnDefault("0000-00-00 00:00:00")
            implied = replace(implied, default=now)
        first = first and column.type != "timestamp"
        completed.append(implied)
    return tuple(completed)


def with_implied_timestamp(action: Action) -> Action:
    """Complete an action of ALTER TABLE: the column that it adds or changes may not be NULL if it does not say so."""
    if isinstance(action, AddColumn | ChangeColumn):
        return replace(action, column=_implied(action.column))
    return action


def _implied(column: ColumnDef) -> ColumnDef:
    if column.type != "timestamp" or column.nullable is not None or column.generated:
        return column
    return replace(column, nullable=False)
