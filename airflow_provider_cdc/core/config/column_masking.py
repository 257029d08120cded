"""Hides or cuts texts before they are written anywhere.

The properties are ``column.mask.with.<length>.chars`` and ``column.truncate.to.<length>.chars``.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from airflow_provider_cdc.core.config.base_configuration import COLUMN_TEXT
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Masking = Callable[["pa.Array"], "pa.Array"]
_TEXT_TYPES = {-16, -15, -9, -1, 1, 12, 2005, 2011}
"""JDBC types of character columns."""


WHOLE: Final = math.inf
"""The number of characters that are shown of texts that are not hidden."""


class Maskings:
    """The properties of one connector, compiled.

    :param properties: name → patterns of columns, ``<database>.<table>.<column>``
    """

    def __init__(self, properties: Mapping[str, Sequence[str]]) -> None:
        self._rules = [
            (name, _masking(name), [re.compile(p, re.IGNORECASE) for p in patterns])
            for name, patterns in properties.items()
        ]

    def find_column_maskings(
        self, schema: TableSchema, names: Sequence[TableId | str], key: Sequence[str]
    ) -> dict[int, Masking]:
        """Map the number of a column to the masking of its values. If several properties match, the first one counts.

        :param names: of the table, as patterns may write them
        :param key: the key columns of the table
        :raises ConfigError: a column of the key would be changed: rows could not be distinguished any more
        """
        maskings: dict[int, Masking] = {}
        for i, column in enumerate(schema.columns):
            for name, masking, patterns in self._rules:
                if i in maskings or not any(p.fullmatch(f"{n}.{column.name}") for p in patterns for n in names):
                    continue
                if column.name in key:
                    raise ConfigError(
                        f"{name}: {schema.id}.{column.name} is part of the key, which distinguishes rows, and cannot be masked or truncated.",
                        where=f"table {schema.id}",
                        remedy="remove the column from the property, or name another key with message.key.columns",
                    )
                if _is_text(column):
                    maskings[i] = masking
                else:
                    log.warning(
                        "%s does not hide %s.%s: the column does not contain text.", name, schema.id, column.name
                    )
        return maskings

    def find_text_maskings(self, schema: TableSchema, names: Sequence[TableId | str]) -> dict[str, Masking]:
        """Column of texts → the masking of its values. For rows that are shown: here it is no error if a column is part of the key."""
        maskings = {column.name: self.find_masking(column.name, names) for column in schema.columns if _is_text(column)}
        return {name: masking for name, masking in maskings.items() if masking is not None and name not in schema.key}

    def find_masking(self, column: str, names: Sequence[TableId | str]) -> Masking | None:
        """Find the masking of the texts of a column that is known by its name alone."""
        return next(
            (
                masking
                for _, masking, patterns in self._rules
                if any(p.fullmatch(f"{n}.{column}") for p in patterns for n in names)
            ),
            None,
        )

    def compute_visible_length(self, column: Column, names: Sequence[TableId | str]) -> float:
        """Return how many characters are shown of a column's texts, at most."""
        if _is_text(column):
            for name, _, patterns in self._rules:
                if any(p.fullmatch(f"{n}.{column.name}") for p in patterns for n in names):
                    kind, length = _parts(name)
                    return 0 if kind == "mask.with" else length
        return WHOLE


def _is_text(column: Column) -> bool:
    return column.type == "string" and column.declared.jdbc_type in _TEXT_TYPES


def _parts(name: str) -> tuple[str, int]:
    match = COLUMN_TEXT.fullmatch(name)
    if match is None:
        raise ConfigError(f"{name} is neither column.mask.with.<length>.chars nor column.truncate.to.<length>.chars.")
    return match[1], int(match[2])


def _masking(name: str) -> Masking:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, length = _parts(name)
    if kind == "mask.with":
        stars = pa.scalar("*" * length)
        return lambda values: pc.if_else(values.is_valid(), stars, pa.scalar(None, pa.string()))
    return lambda values: pc.utf8_slice_codeunits(values, 0, length)
