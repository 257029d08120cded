"""The documented converters of columns (Debezium MySQL connector, "Custom converters").

``TinyIntOneToBooleanConverter`` makes ``TINYINT(1)`` columns booleans. Of what ``JdbcSinkDataTypesConverter`` does, only the character
set of texts is left to do: a column has the same type in snapshots and in the stream anyway, ``BOOLEAN`` is INT16, ``REAL`` FLOAT64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from airflow_provider_cdc.core.model.schema import Column
from airflow_provider_cdc.core.spi.converters import selects

BOOLEAN: Final = "io.debezium.connector.binlog.converters.TinyIntOneToBooleanConverter"
JDBC_SINK: Final = "io.debezium.connector.binlog.converters.JdbcSinkDataTypesConverter"
CONVERTERS: Final[Mapping[str, Mapping[str, str]]] = {
    BOOLEAN: {"selector": "patterns", "length.checker": "bool"},
    JDBC_SINK: {
        "selector.boolean": "patterns", "selector.real": "patterns", "selector.string": "patterns",
        "treat.real.as.double": "bool",
    },
}  # fmt: skip
"""Class → its properties → what they hold."""
CHARSET: Final = "__debezium.source.column.character_set"


def converted(column: Column, where: str, converters: Sequence[Mapping[str, str]]) -> Column:
    """What the converters make of a column.

    :param where: its whole name, ``database.table.column``
    """
    for converter in converters:
        if converter["type"] == JDBC_SINK:
            column = _with_charset(column, where, converter)
        elif _is_boolean(column, converter) and selects(converter.get("selector"), where):
            column = column.model_copy(update={"type": "bool"})
    return column


def _is_boolean(column: Column, converter: Mapping[str, str]) -> bool:
    declared = column.declared
    if declared.type_name.partition(" ")[0] != "TINYINT":
        return False
    return declared.length == 1 or converter.get("length.checker") == "false"


def _with_charset(column: Column, where: str, converter: Mapping[str, str]) -> Column:
    charset = column.declared.charset
    if charset is None or not selects(converter.get("selector.string"), where):
        return column
    return column.model_copy(update={"parameters": column.parameters | {CHARSET: charset}})
