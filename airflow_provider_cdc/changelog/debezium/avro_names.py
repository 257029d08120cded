"""Adjusts names of fields and schemas in the JSON form for Avro (``schema.name.adjustment.mode``,
``field.name.adjustment.mode``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_cdc.core.config.enums import NameAdjustment
from airflow_provider_cdc.core.config.tables import TableConfig
from airflow_provider_cdc.core.errors import ConfigError

_DEFAULTS = {str(f.alias): f.default for f in TableConfig.model_fields.values()}


def setting(config: Mapping[str, Any], name: str) -> Any:
    """A property that sources have in common, with the value of the run that made a batch: manifests hold the properties that were set.

    :param config: of a manifest
    """
    return config.get(name, _DEFAULTS[name])


@dataclass(frozen=True, slots=True)
class Names:
    """The adjusted names."""

    schemas: NameAdjustment = NameAdjustment.AVRO
    fields: NameAdjustment = NameAdjustment.NONE

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """:param config: of a manifest"""
        schemas, fields = (setting(config, f"{what}.name.adjustment.mode") for what in ("schema", "field"))
        return cls(NameAdjustment(schemas), NameAdjustment(fields))

    def schema(self, name: str) -> str:
        """The name of a schema; its dots stay."""
        return ".".join(adjusted(part, self.schemas) for part in name.split("."))

    def field(self, name: str) -> str:
        """The name of a field."""
        return adjusted(name, self.fields)

    def distinct(self, columns: Iterable[str], table: object) -> dict[str, str]:
        """Column → field.

        :raises ConfigError: two columns would have one name
        """
        found: dict[str, str] = {}
        for column in columns:
            other = next((c for c, name in found.items() if name == self.field(column)), None)
            if other is not None:
                raise ConfigError(
                    f"field.name.adjustment.mode={self.fields} makes the same name of the columns {other} and {column}.",
                    where=str(table),
                    safe="The change log has both columns under their own names.",
                    remedy="use avro_unicode, which keeps names distinct, or leave one of them out with column.exclude.list",
                )
            found[column] = self.field(column)
        return found


def adjusted(name: str, mode: NameAdjustment) -> str:
    """A name as Avro allows it.

    >>> adjusted("PART#", NameAdjustment.AVRO), adjusted("PART_#", NameAdjustment.AVRO_UNICODE)
    ('PART_', 'PART_u005f_u0023')
    """
    if mode is NameAdjustment.AVRO:
        name = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return f"_{name}" if name[:1].isdigit() else name
    if mode is NameAdjustment.AVRO_UNICODE:
        return re.sub(r"^[0-9]|[^A-Za-z0-9]", lambda m: f"_u{ord(m[0]):04x}", name)
    return name
