"""Decides which tables and columns are captured, and which columns are a table's key.

Patterns are anchored: they match the whole name, without regard to case, as Debezium's do (Debezium MySQL connector,
``table.include.list``, ``column.include.list``, ``message.key.columns``). Where tables have a level above the namespace, lists of
columns, of keys and of what a snapshot reads match names with it and without it: the documents have both (Debezium Oracle
connector, ``snapshot.include.collection.list``).

    >>> config = TableConfig.parse({"topic.prefix": "shop", "table.include.list": "inventory.(orders|lines)"})
    >>> Filters(config).table(TableId(namespace="inventory", name="orders"))
    True
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_provider_cdc.core.config.column_masking import WHOLE, Masking, Maskings
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.converters.column_converter import ConvertedColumn, CustomConverters
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, TableId, TableSchema

__all__ = ["WHOLE", "Filters"]


class _NamePatterns:
    """Matches names with patterns. Each pattern is compiled by itself, as it may have flags and groups."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [re.compile(p, re.IGNORECASE) for p in patterns]

    def __contains__(self, name: str) -> bool:
        return any(p.fullmatch(name) for p in self._patterns)


def _matcher(patterns: Sequence[str]) -> _NamePatterns | None:
    return _NamePatterns(patterns) if patterns else None


class Filters:
    """The include and exclude lists of one connector, compiled."""

    def __init__(self, config: ConnectorConfig) -> None:
        include, exclude = config.namespace_lists()
        self._namespaces = (_matcher(include), _matcher(exclude))
        columns = config.column_rules()
        include, exclude = config.table_lists()
        self._tables, self._in_scope = (_matcher(include), _matcher(exclude)), config.in_scope
        self._columns = (_matcher(columns.include), _matcher(columns.exclude))
        self._snapshot = _matcher(config.snapshot_include_collection_list)
        self._keys = _parse_keys(columns.keys)
        self._maskings = Maskings(columns.texts, columns.salt)
        self._converters = CustomConverters(columns.converters)
        self._has_values = config.has_values
        self._signals = (config.signal_data_collection or "").casefold()
        self._typed_columns = _matcher(columns.propagated), _matcher(columns.propagated_types)

    def can_capture_namespace(self, name: str) -> bool:
        """Return whether tables of this database may be captured at all."""
        return _is_selected(name, *self._namespaces)

    def is_table_captured(self, table: TableId) -> bool:
        """Return whether changes of this table are captured."""
        return self.is_table_listed(table) and self._in_scope(table)

    def is_table_listed(self, table: TableId) -> bool:
        """Return whether the lists select a table, be there changes of it or not."""
        return self.can_capture_namespace(table.namespace) and _is_selected(str(table), *self._tables)

    def is_snapshot_table(self, table: TableId) -> bool:
        """Return whether a captured table is read by an initial snapshot (``snapshot.include.collection.list``)."""
        return self._snapshot is None or any(name in self._snapshot for name in _names(table))

    def select_columns(self, schema: TableSchema) -> TableSchema:
        """Return the schema of the captured columns.

        Excluded columns are left out, and those that cannot be captured; the key is replaced where the configuration says so, and columns that users'
        converters accept have the types of these.

        Key columns are always part of it, even when a column list excludes them from the row images
        (:meth:`in_images`).

        :raises ConfigError: ``message.key.columns`` names a column that the table does not have, or the column lists
            leave none
        """
        key, readable = self.select_key_columns(schema), [c for c in schema.columns if c.type != NOT_CAPTURED]
        if not any(self.in_images(schema.id, c.name) for c in readable):
            raise ConfigError(
                f"column.include.list or column.exclude.list leaves no column of {schema.id} to capture.",
                where=f"columns of {schema.id}: {', '.join(c.name for c in readable) or 'none with a type that can be captured'}",
                remedy="list columns of each captured table, as <database>.<table>.<column>, or leave the table out",
            )
        converted = self.find_converted_columns(schema)
        columns = tuple(
            converted[c.name].column if c.name in converted else self._described(schema.id, c)
            for c in readable
            if c.name in key or self.in_images(schema.id, c.name)
        )
        return schema.model_copy(update={"columns": columns, "key": key, "converted": {}})

    def record_conversions(self, schema: TableSchema) -> TableSchema:
        """Return a schema for the schema history: with the types that users' converters give its columns now."""
        types = {name: column.column.type for name, column in self.find_converted_columns(schema).items()}
        return schema if types == schema.converted else schema.model_copy(update={"converted": types})

    def list_needed_columns(self, schema: TableSchema) -> frozenset[str]:
        """Names of the columns whose values are needed. Of the others no value is decoded: one that cannot be read does no harm.

        A signal table is read whatever the lists say.
        """
        whole = any(name.casefold() == self._signals for name in _names(schema.id))
        named = {name.lower() for name in self._named_key(schema.id) or ()}
        return frozenset(
            c.name
            for c in schema.columns
            if whole or c.name in schema.key or c.name.lower() in named or self.in_images(schema.id, c.name)
        )

    def build_maskings(self, schema: TableSchema) -> dict[int, Masking]:
        """Map the number of a column to the masking of its values in images.

        :raises ConfigError: it is part of the key
        """
        return self._maskings.find_column_maskings(schema, _names(schema.id), self.select_key_columns(schema))

    def find_converted_columns(self, schema: TableSchema) -> dict[str, ConvertedColumn]:
        """Map the columns that users' converters accept to their conversions, be they captured or not.

        :raises ConfigError: a converter cannot be used, or accepts a column of the key, or one that is masked or truncated
        """
        converted = self._converters.find_converted_columns(schema)
        key = self.select_key_columns(schema) if converted else ()
        for name, column in converted.items():
            why = "is part of the key, which distinguishes rows" if name in key else None
            if self._maskings.find_masking(name, _names(schema.id)) is not None:
                why = "is masked or truncated"
            if why is not None:
                raise ConfigError(
                    f"{column.setting} accepts {schema.id}.{name}, which {why}, and cannot be converted.",
                    where=f"table {schema.id}",
                    safe="Committed batches are safe, and the next run resumes after them.",
                    remedy="let find_conversion return None for this column",
                )
        return converted

    def compute_text_limit(self, schema: TableSchema, column: Column) -> float:
        """Return how many characters of a captured column's texts are captured.

        The number is 0 if the column is masked, :data:`WHOLE` if nothing is done to it.
        """
        return self._maskings.compute_visible_length(column, _names(schema.id))

    def find_pseudonym(self, schema: TableSchema, column: Column) -> str | None:
        """Return the property by which texts of a column are pseudonyms; ``None`` if they are not."""
        return self._maskings.find_pseudonym(column, _names(schema.id))

    def compute_visible_length(self, schema: TableSchema, column: Column) -> float:
        """Return how much of a column is captured: -1 nothing, 0 only its name, otherwise so many characters of its values."""
        if column.type == NOT_CAPTURED or not self.in_images(schema.id, column.name):
            return -1
        return self.compute_text_limit(schema, column) if self._has_values(column) else 0

    def _described(self, table: TableId, column: Column) -> Column:
        """Return the column, with its type in the database if that is configured (``….propagate.source.type``)."""
        declared, (columns, types) = column.declared, self._typed_columns
        names = _names(table)
        if not any(
            (columns is not None and f"{name}.{column.name}" in columns)
            or (types is not None and f"{name}.{declared.type_name}" in types)
            for name in names
        ):
            return column
        values = {"type": declared.type_name.upper(), "length": declared.length, "scale": declared.scale}
        more = {f"__debezium.source.column.{name}": str(value) for name, value in values.items() if value is not None}
        return column.model_copy(update={"parameters": column.parameters | more})

    def in_images(self, table: TableId, column: str) -> bool:
        """Return whether the column lists let a column appear in ``before`` and ``after``."""
        include, exclude = self._columns
        names = [f"{name}.{column}" for name in _names(table)]
        if include is not None:
            return any(name in include for name in names)
        return exclude is None or not any(name in exclude for name in names)

    def select_key_columns(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the names of the key columns: configured ones, else those of the table.

        A table whose key has a column that cannot be captured has no key here: with a part of the key, different rows would look
        like one.
        """
        readable = {c.name for c in schema.columns if c.type != NOT_CAPTURED}
        columns = self._named_key(schema.id)
        if columns is None:
            return schema.key if readable.issuperset(schema.key) else ()
        by_lower = {name.lower(): name for name in schema.column_names if name in readable}
        if missing := [c for c in columns if c.lower() not in by_lower]:
            raise ConfigError(
                f"message.key.columns names {missing[0]!r}, which is not a column of {schema.id} that can be captured.",
                where=f"columns of {schema.id}: {', '.join(by_lower.values())}",
                remedy="correct message.key.columns",
            )
        return tuple(by_lower[c.lower()] for c in columns)

    def _named_key(self, table: TableId) -> tuple[str, ...] | None:
        """Return the columns that ``message.key.columns`` names for a table; ``None`` if it names none."""
        return next((columns for pattern, columns in self._keys if any(map(pattern.fullmatch, _names(table)))), None)


def _names(table: TableId) -> tuple[str, ...]:
    """Return the names that patterns may match."""
    return (str(table),) if table.catalog is None else (str(table), table.full_name)


def _is_selected(name: str, include: _NamePatterns | None, exclude: _NamePatterns | None) -> bool:
    if include is not None:
        return name in include
    return exclude is None or name not in exclude


def _parse_keys(text: str) -> list[tuple[re.Pattern[str], tuple[str, ...]]]:
    """``db.table:c1,c2;other:c3`` → compiled table patterns with their columns."""
    rules = []
    for part in filter(None, (p.strip() for p in text.split(";"))):
        table, colon, columns = part.rpartition(":")
        names = tuple(c.strip() for c in columns.split(",") if c.strip())
        if not colon or not table or not names:
            raise ConfigError(
                f"message.key.columns: {part!r} does not have the form <table>:<column>[,<column>].",
                remedy="use the form inventory.orders:order_id,line_no;inventory.(.*)_log:id",
            )
        try:
            rules.append((re.compile(table.strip(), re.IGNORECASE), names))
        except re.error as e:
            raise ConfigError(
                f"message.key.columns: {table.strip()!r} is not a regular expression: {e}",
                remedy="correct message.key.columns",
            ) from None
    return rules
