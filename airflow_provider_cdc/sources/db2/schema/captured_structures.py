"""The structure with which a table is captured: that of the table, as far as its change table has it.

Change tables are static: a column that a table has got is captured when the administrator has given it to the change table, too (spec DB2-369). A
column that only the change table has is one that the table has lost. LOB and XML columns belong to the structure whether or not the change table
has something in their place: it never has their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_cdc.core.model.table_schema import Column, TableSchema
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED
from airflow_provider_cdc.sources.db2.schema.type_mapping import Db2ColumnType

OWN_COLUMNS = "IBMSNAP_"
"""Beginning of the names of a change table's own columns."""


def captured_structure(source: TableSchema, change: TableSchema | None, before_prefix: str | None) -> TableSchema:
    """Build the structure with which a table is captured.

    :param source: the table's own structure; without columns where it does not exist any more
    :param change: that of its change table; ``None`` = there is none, and nothing can be left out
    :param before_prefix: see :class:`..asn.table_registrations.TableRegistration`
    """
    if change is None:
        return source
    logged = {c.name: c for c in data_columns(change, before_prefix, [c.name for c in source.columns])}
    own = {c.name for c in source.columns}
    columns = [c for c in source.columns if c.name in logged or Db2ColumnType.from_column(c).base in NOT_LOGGED]
    columns += [c.model_copy(update={"nullable": True}) for name, c in logged.items() if name not in own]
    names = {c.name for c in columns}
    key = source.key if names.issuperset(source.key) else ()
    return source.model_copy(update={"columns": tuple(columns), "key": key})


def data_columns(change: TableSchema, before_prefix: str | None, own: Sequence[str] = ()) -> list[Column]:
    """List the columns of a change table that hold values after the change: without its own ones, and without images from before.

    :param own: the table's own columns: one of these is no image of another, whatever it is called
    """
    columns = [c for c in change.columns if not c.name.startswith(OWN_COLUMNS)]
    if not before_prefix:
        return columns
    names, own_names = {c.name for c in columns}, {*own}
    return [c for c in columns if c.name in own_names or not _is_before(c.name, before_prefix, names)]


def before_column(name: str, before_prefix: str) -> str:
    """Return the name of the column with the image from before."""
    return f"{before_prefix}{name}"


def _is_before(name: str, prefix: str, names: set[str]) -> bool:
    return name.startswith(prefix) and name.removeprefix(prefix) in names
