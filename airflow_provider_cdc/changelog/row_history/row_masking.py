"""Hides the values that the connector masks, in rows that are shown to a person.

That includes values that were captured before the masking was configured.

A change log, and a target, keep values that were written before ``column.mask.with.<length>.chars`` or ``column.truncate.to.<length>.chars`` named a column.
Both give the same value if they are applied twice. A pseudonym does not, so a column that has one is hidden as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from airflow_provider_cdc.core.config.base_configuration import COLUMN_HASH, COLUMN_TEXT
from airflow_provider_cdc.core.config.column_masking import Masking, Maskings
from airflow_provider_cdc.core.config.property_enums import Patterns
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema

Row = dict[str, Any]
HIDDEN = "***"
"""Instead of a text that was computed from a column which is masked."""
_HIDING = f"column.mask.with.{len(HIDDEN)}.chars"
_PATTERNS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Patterns)


class RowMasks:
    """The maskings of one connector, as they are now.

        >>> masks = RowMasks({"column.mask.with.3.chars": r"shop\\.people\\.email"})
        >>> masks.mask_stored_row({"mail": "a@b.c", "id": "7"}, TableId(namespace="shop", name="people"), {"mail": ["email"], "id": ["id"]})
        {'mail': '***', 'id': '7'}

    :param properties: of the connector; others than maskings are not looked at
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        patterns: dict[str, tuple[str, ...]] = {}
        for name, value in properties.items():
            shown = _HIDING if COLUMN_HASH.fullmatch(name) else name
            if COLUMN_TEXT.fullmatch(shown):
                patterns[shown] = patterns.get(shown, ()) + _PATTERNS.validate_python(value)
        self._maskings = Maskings(patterns)
        self._any = bool(patterns)
        self._text_maskings: dict[tuple[TableId, int], dict[str, Masking]] = {}

    def mask_image(self, schema: TableSchema, image: Row | None) -> Row | None:
        """Mask a row as the change log has it."""
        if image is None or not self._any:
            return image
        key = schema.id, schema.version
        if key not in self._text_maskings:
            self._text_maskings[key] = self._maskings.find_text_maskings(schema, _names(schema.id))
        return {name: _masked(value, self._text_maskings[key].get(name)) for name, value in image.items()}

    def mask_stored_row(self, row: Row, table: TableId, origins: Mapping[str, Collection[str]]) -> Row:
        """Mask a row as a target has it.

        :param table: of the source
        :param origins: column of the target → columns of the source that it comes from; one that is not among them may have been dropped at the source, and has its name
        """
        if not self._any:
            return row
        masked = {}
        for name, value in row.items():
            own = origins.get(name) or [name]
            maskings = [
                masking for column in own if (masking := self._maskings.find_masking(column, _names(table))) is not None
            ]
            masked[name] = value if not maskings else _masked(value, maskings[0]) if len(own) == 1 else HIDDEN
        return masked


def _names(table: TableId) -> tuple[str, ...]:
    return tuple(dict.fromkeys((str(table), table.full_name)))


def _masked(value: Any, masking: Masking | None) -> Any:
    if masking is None or not isinstance(value, str):
        return value
    return masking(pa.array([value], pa.string()))[0].as_py()
