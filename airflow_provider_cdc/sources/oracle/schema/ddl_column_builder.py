"""Columns of one table as DDL statements define them."""

from __future__ import annotations

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.schema import ddl
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import StreamLookups


class DdlColumnBuilder:
    """Makes columns of their definitions in DDL. Asks the catalog once, and only if a definition does not suffice.

    :param lookups: gives the table's current schema, and the values of constants
    """

    def __init__(self, table: TableId, config: OracleConfig, lookups: StreamLookups) -> None:
        self._table, self._config, self._lookups = table, config, lookups
        self._catalog_read = False
        self._catalog_schema: TableSchema | None = None

    @property
    def catalog_schema(self) -> TableSchema | None:
        """The table's current schema in the catalog; ``None`` if it does not exist."""
        if not self._catalog_read:
            self._catalog_read, self._catalog_schema = True, self._lookups.read_table(self._table)
        return self._catalog_schema

    def build_column(self, c: ddl.ColumnDefinition, old: Column | None = None) -> Column:
        """Build a column from its definition; properties that ``MODIFY`` does not name keep their old value."""
        if old is None and not c.virtual and (c.type is None or not c.built_in):
            there = self.catalog_schema.columns if self.catalog_schema is not None else ()
            for column in there:
                if column.name == c.name:
                    return column
        type_ = c.type if c.type is not None else ColumnType.from_column(old) if old is not None else ColumnType("")
        declared = old.declared if old is not None else None
        value, expression = (declared.default, declared.default_is_expression) if declared else (None, False)
        if c.default is not None:
            constant = self._lookups.evaluate_constant(c.default.text) if c.default.kind == "expression" else None
            expression = c.default.kind == "expression" and constant is None
            value = c.default.text if expression else constant or c.default.value
        if c.identity:
            value, expression = None, False
        nullable = c.nullable if c.nullable is not None else old.nullable if old is not None else True
        column = make_column(
            self._table, c.name, type_, self._config, nullable=nullable, default=value, default_is_expression=expression,
            generated=c.virtual or bool(declared and declared.generated),
            auto_incremented=c.identity or bool(declared and declared.auto_incremented),
        )  # fmt: skip
        return column.with_comment(declared.comment if declared is not None else None)
