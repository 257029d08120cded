"""The documented converters of NUMBER columns (Debezium Oracle connector, "Custom converters")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.core.config.property_enums import DecimalHandling
from airflow_provider_cdc.core.converters.converter_properties import is_column_selected
from airflow_provider_cdc.core.model.table_schema import TableId

BOOLEAN: Final = "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter"
ZERO_SCALE: Final = "io.debezium.connector.oracle.converters.NumberToZeroScaleConverter"
CONVERTERS: Final[Mapping[str, Mapping[str, str]]] = {
    BOOLEAN: {"selector": "patterns"},
    ZERO_SCALE: {"decimal.mode": "decimal mode"},
}
"""Java class → its properties → type of their values."""


@dataclass(frozen=True, slots=True)
class NumberConverter:
    """A converter of NUMBER columns.

    :param type: the documented class, one of :data:`CONVERTERS`
    :param options: its properties, without the prefix of the converter's name
    """

    type: str
    options: Mapping[str, str]

    def matches_column(self, table: TableId, column: str) -> bool:
        """Check whether it applies to a column by its ``selector``; without a selector it applies to all."""
        names = [f"{table}.{column}"] + ([f"{table.catalog}.{table}.{column}"] if table.catalog else [])
        return any(is_column_selected(self.options.get("selector"), name) for name in names)


def number_converters(converters: Sequence[Mapping[str, str]]) -> list[NumberConverter]:
    """Return the converters of the property ``converters``, in the order of their names."""
    return [NumberConverter(c["type"], {k: v for k, v in c.items() if k not in ("name", "type")}) for c in converters]


def check_decimal_modes(converters: Sequence[Mapping[str, str]]) -> None:
    """Check the decimal modes in the property ``converters``.

    :raises ValueError: there is no such mode
    """
    for c in converters:
        if c["type"] == ZERO_SCALE and c.get("decimal.mode", DecimalHandling.PRECISE) not in [*DecimalHandling]:
            raise ValueError(
                f"{c['name']}.decimal.mode: {c['decimal.mode']!r} is not one of {', '.join(DecimalHandling)}"
            )
