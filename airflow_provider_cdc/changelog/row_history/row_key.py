"""The key of one row, whatever its columns are called and typed in a version of the table's schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.changelog.row_history.key_hashes import key_hashes
from airflow_provider_cdc.changelog.row_history.key_index_segment import KeyColumns
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.key_json import InvalidKeyValue, Key, build_key_arrays, parse_key_value
from airflow_provider_cdc.core.model.table_schema import Column

Names = Mapping[str, str | None]
"""Names of columns in another version: ``None`` = it does not have them. A column that is missing here has the same name, unless another one has it."""


def find_column_name(name: str, names: Names) -> str | None:
    """Return the name of a column in another version; ``None`` if that does not have it."""
    return names[name] if name in names else None if name in names.values() else name


def compose_names(first: Names, second: Names) -> Names:
    """From one version to another one, and from there to a third one."""
    names = {name: None if middle is None else find_column_name(middle, second) for name, middle in first.items()}
    return {**{name: last for name, last in second.items() if name not in first.values()}, **names}


@dataclass(frozen=True, slots=True)
class RowKey:
    """The values of a key by the names of its columns; as JSON, a value that is NULL is ``None``."""

    values: Mapping[str, Any]

    def rename_columns(self, names: Names) -> RowKey:
        """Return the same key, with the names that the columns have in another version."""
        renamed = {find_column_name(name, names): value for name, value in self.values.items()}
        return RowKey({name: value for name, value in renamed.items() if name is not None})

    def to_key(self, columns: KeyColumns) -> Key | None:
        """Its values as those of some key columns; ``None`` if it cannot be a key of these."""
        if {name for name, _ in columns} != set(self.values):
            return None
        try:
            return [_typed(self.values[name], Column(name=name, type=type_)) for name, type_ in columns]
        except InvalidKeyValue:
            return None

    def compute_hash(self, table: str, columns: KeyColumns) -> int | None:
        """Return the hash of the key in the index; ``None`` if it cannot be a key of these columns."""
        table_ = self._table(columns)
        return None if table_ is None else int(key_hashes(table, table_)[0])

    def match_keys(self, keys: pa.ChunkedArray, columns: KeyColumns) -> pa.ChunkedArray | None:
        """For each of some keys, whether it is this one; ``None`` if none can be.

        :param keys: structs
        """
        table = self._table(columns)
        if table is None:
            return None
        places = {field.name: n for n, field in enumerate(keys.type)}
        matches = keys.is_valid()
        for name, key_values in zip(table.column_names, table.columns, strict=True):
            values, value = pc.struct_field(keys, [places[name]]), key_values[0]
            same = pc.equal(values, value).fill_null(False) if value.is_valid else values.is_null()
            matches = pc.and_(matches, same)
        return matches

    def _table(self, columns: KeyColumns) -> pa.Table | None:
        values = self.to_key(columns)
        if values is None:
            return None
        try:
            arrays = [
                pa.nulls(1, _arrow(type_))
                if value is None
                else build_key_arrays([[value]], [Column(name=name, type=type_)])[0]
                for value, (name, type_) in zip(values, columns, strict=True)
            ]
        except InvalidKeyValue:
            return None
        return pa.table(arrays, names=[name for name, _ in columns])


def key_of_texts(texts: Sequence[str], columns: KeyColumns, table: str) -> RowKey:
    """Parse the key that a user has typed: its values in the order of its columns, or all of them as one JSON object.

    >>> key_of_texts(["7", "eu"], (("id", "int64"), ("region", "string")), "shop.orders")
    RowKey(values={'id': 7, 'region': 'eu'})

    :raises ConfigError: it is no key of these columns; the error names columns and types
    """
    described = ", ".join(f"{name} ({type_})" for name, type_ in columns)
    wrong = f"The key of {table} is {described}"
    names = ", ".join(name for name, _ in columns)
    remedy = f"after the table, enter one value for each key column, in this order: {names}; or one JSON object with all of them"
    if len(texts) == 1 and texts[0].startswith("{") and not _is_a_text(texts[0], columns):
        try:
            document = json.loads(texts[0])
        except ValueError as e:
            raise ConfigError(f"{wrong}, but {texts[0]!r} is not JSON: {e}.", remedy=remedy) from None
        if set(document) != {name for name, _ in columns}:
            raise ConfigError(f"{wrong}, but the request has {', '.join(document) or 'no columns'}.", remedy=remedy)
        values = [document[name] for name, _ in columns]
    elif len(texts) != len(columns):
        raise ConfigError(f"{wrong}, but {len(texts)} values are given.", remedy=remedy)
    else:
        values = [*texts]
    try:
        typed = [
            _typed(value, Column(name=name, type=type_)) for value, (name, type_) in zip(values, columns, strict=True)
        ]
    except InvalidKeyValue as e:
        raise ConfigError(f"{wrong}: {e}.", remedy=remedy) from None
    return RowKey(dict(zip((name for name, _ in columns), typed, strict=True)))


def _is_a_text(text: str, columns: KeyColumns) -> bool:
    """Check whether a text that begins like a JSON object is itself the value of a key of one text.

    Keys of documents are such: ``{"$oid": "…"}``.
    """
    if len(columns) != 1 or columns[0][1] != "string":
        return False
    try:
        document = json.loads(text)
    except ValueError:
        return True
    return not (isinstance(document, dict) and set(document) == {columns[0][0]})


def _typed(value: Any, column: Column) -> Any:
    """Convert a value, or a text of it, to the form of :func:`airflow_provider_cdc.core.model.key_json.parse_key_value`."""
    if value is None:
        return None
    if isinstance(value, str):
        value = _of_text(value, column.type)
    elif column.type == "string":
        value = str(value)
    return parse_key_value(value, column)


def _of_text(text: str, type_: str) -> Any:
    try:
        if type_.startswith("int"):
            return int(text)
        if type_ in ("float", "double"):
            return float(text)
    except ValueError:
        return text  # the error says what is valid
    return {"true": True, "false": False}.get(text, text) if type_ == "bool" else text


def _arrow(type_: str) -> pa.DataType:
    from airflow_provider_cdc.core.model.table_schema import arrow_type

    return arrow_type(type_)
