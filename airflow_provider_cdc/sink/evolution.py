"""What a table lacks: it is made, or gets columns (``schema.evolution=basic``); or the run says which DDL would mend it."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_cdc.changelog.pending import Pending, base_version, lineage
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sink.config import SchemaEvolution, SinkConfig
from airflow_provider_cdc.sink.dialects.base import Dialect, There, run
from airflow_provider_cdc.sink.kinds import kind_of
from airflow_provider_cdc.sink.tables import Field, SinkTable


def bring_up(
    dialect: Dialect, connection: sa.Connection, table: SinkTable, pending: Pending, config: SinkConfig
) -> There:
    """Have the table there with all the columns that rows have.

    :return: the table as it is then
    :raises TargetError: ``schema.evolution=none``, and it lacks something
    """
    there = dialect.there(connection, table.name)
    if there is None:
        _allowed(config, f"There is no table {table.name}.", table, [dialect.create(table)])
        run(connection, dialect.create(table))
        return There({}, tuple(field.name for field in table.key))
    if lacking := [field for field in table.fields if field.name not in there.columns]:
        statements = dialect.add(table, lacking)
        names = ", ".join(field.name for field in lacking)
        _allowed(config, f"The table {table.name} has no column {names}.", table, statements)
        _refuse_keys(table, lacking)
        for statement in statements:
            run(connection, statement)
        _fill(dialect, connection, table, lacking, pending)
    return there


def _allowed(config: SinkConfig, what: str, table: SinkTable, statements: list[str]) -> None:
    if config.schema_evolution is SchemaEvolution.NONE:
        raise TargetError(
            what,
            where=f"topic {table.topic}",
            safe="The table was not changed.",
            remedy=f"set schema.evolution=basic, or run {'; '.join(statements)}; then run the apply again",
        )


def _refuse_keys(table: SinkTable, lacking: list[Field]) -> None:
    if keys := [field.name for field in lacking if field.key]:
        raise TargetError(
            f"The table {table.name} has no column {', '.join(keys)}, which is part of the key.",
            where=f"topic {table.topic}",
            safe="The table was not changed.",
            remedy="make the table by hand with this key, or give it another name with collection.name.format",
        )


def _fill(
    dialect: Dialect, connection: sa.Connection, table: SinkTable, lacking: list[Field], pending: Pending
) -> None:
    """Rows that are there get in new columns what the source's rows have got."""
    origins = lineage(pending, base_version(pending))
    for field in lacking:
        origin = origins.get(field.column.name)
        if origin is not None and origin.column is None and origin.fill is not None:
            type_ = dialect.type_of(kind_of(field.column), key=False)
            text = "'" + origin.fill.replace("'", "''") + "'"
            run(
                connection,
                f"UPDATE {dialect.full(table.name)} SET {dialect.quote(field.name)} = {dialect.cast(text, type_)}",
            )
