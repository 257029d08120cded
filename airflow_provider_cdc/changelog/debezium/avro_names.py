"""Adjusts names of fields and schemas in the JSON form for Avro.

See ``schema.name.adjustment.mode`` and ``field.name.adjustment.mode``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_cdc.core.config.property_enums import NameAdjustment
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError

_DEFAULTS = {str(f.alias): f.default for f in TableConfig.model_fields.values()}


def get_setting(config: Mapping[str, Any], name: str) -> Any:
    """Return a property that sources have in common, with the value of the run that made a batch.

    Manifests hold the properties that were set.

    :param config: of a manifest
    """
    return config.get(name, _DEFAULTS[name])


@dataclass(frozen=True, slots=True)
class AvroNames:
    """The adjusted names."""

    schemas: NameAdjustment = NameAdjustment.AVRO
    fields: NameAdjustment = NameAdjustment.NONE

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """:param config: of a manifest"""
        schemas, fields = (get_setting(config, f"{part}.name.adjustment.mode") for part in ("schema", "field"))
        return cls(NameAdjustment(schemas), NameAdjustment(fields))

    def adjust_schema_name(self, name: str) -> str:
        """Adjust the name of a schema; its dots stay."""
        return ".".join(adjust_name(part, self.schemas) for part in name.split("."))

    def adjust_field_name(self, name: str) -> str:
        """Adjust the name of a field."""
        return adjust_name(name, self.fields)

    def map_distinct_fields(self, columns: Iterable[str], table: object) -> dict[str, str]:
        """Column → field.

        :raises ConfigError: two columns would have one name
        """
        fields: dict[str, str] = {}
        for column in columns:
            other = next((c for c, name in fields.items() if name == self.adjust_field_name(column)), None)
            if other is not None:
                raise ConfigError(
                    f"field.name.adjustment.mode={self.fields} gives the columns {other} and {column} the same name.",
                    where=str(table),
                    safe="The change log contains both columns under their own names.",
                    remedy="use avro_unicode, which keeps names distinct, or leave one of them out with column.exclude.list",
                )
            fields[column] = self.adjust_field_name(column)
        return fields


def adjust_name(name: str, mode: NameAdjustment) -> str:
    """Adjust a name to the characters that Avro allows.

    >>> adjust_name("PART#", NameAdjustment.AVRO), adjust_name("PART_#", NameAdjustment.AVRO_UNICODE)
    ('PART_', 'PART_u005f_u0023')
    """
    if mode is NameAdjustment.AVRO:
        name = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return f"_{name}" if name[:1].isdigit() else name
    if mode is NameAdjustment.AVRO_UNICODE:
        return re.sub(r"^[0-9]|[^A-Za-z0-9]", lambda m: f"_u{ord(m[0]):04x}", name)
    return name
