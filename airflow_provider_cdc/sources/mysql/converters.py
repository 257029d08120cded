"""The documented custom converters (Debezium MySQL connector, "Custom converters").

``TinyIntOneToBooleanConverter`` makes ``TINYINT(1)`` columns booleans. ``JdbcSinkDataTypesConverter`` only adds the character set of
text columns here: columns have the same type in snapshots and in the stream anyway, ``BOOLEAN`` is INT16 and ``REAL`` FLOAT64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from airflow_provider_cdc.core.converters.converter_properties import is_column_selected
from airflow_provider_cdc.core.model.table_schema import Column

BOOLEAN: Final = "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter"
JDBC_SINK: Final = "io.debezium.connector.binlog.converters.JdbcSinkDataTypesConverter"
CONVERTERS: Final[Mapping[str, Mapping[str, str]]] = {
    BOOLEAN: {"selector": "patterns", "length.checker": "bool"},
    JDBC_SINK: {
        "selector.boolean": "patterns", "selector.real": "patterns", "selector.string": "patterns",
        "treat.real.as.double": "bool",
    },
}  # fmt: skip
"""Java class → its properties → type of their values."""
CHARSET: Final = "__debezium.source.column.character_set"


def apply_converters(column: Column, where: str, converters: Sequence[Mapping[str, str]]) -> Column:
    """Return a column after the converters were applied.

    :param where: its full name, ``database.table.column``
    :param converters: the configured converters, as ``MySqlConfig.converters`` has them
    """
    for converter in converters:
        if converter["type"] == JDBC_SINK:
            column = _with_charset(column, where, converter)
        elif (
            converter["type"] == BOOLEAN
            and _is_boolean(column, converter)
            and is_column_selected(converter.get("selector"), where)
        ):
            column = column.model_copy(update={"type": "bool"})
    return column


def _is_boolean(column: Column, converter: Mapping[str, str]) -> bool:
    declared = column.declared
    if declared.type_name.partition(" ")[0] != "TINYINT":
        return False
    return declared.length == 1 or converter.get("length.checker") == "false"


def _with_charset(column: Column, where: str, converter: Mapping[str, str]) -> Column:
    charset = column.declared.charset
    if charset is None or not is_column_selected(converter.get("selector.string"), where):
        return column
    return column.model_copy(update={"parameters": column.parameters | {CHARSET: charset}})
