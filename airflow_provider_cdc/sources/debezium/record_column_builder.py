"""Columns of a topic's records, by their schemas or by their values, and the arrays of their rows.

A record without a field that the table has leaves its value as it is: the value is *unavailable*, not NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import (
    HEADER,
    Column,
    TableChange,
    TableId,
    TableSchema,
    arrow_type,
    row_struct,
)
from airflow_provider_cdc.sources.debezium import schema_inference
from airflow_provider_cdc.sources.debezium.json_values import (
    MISSING,
    InvalidColumnValue,
    JsonColumnConverter,
    Mask,
    expand_images,
)
from airflow_provider_cdc.sources.debezium.schema_columns import JSON

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LayoutKey:
    """Key that determines the columns of a record. A topic's records of one token are read together.

    :param key_schema: name of the key's schema, see :class:`.json_line_parser.LineParser`
    :param value_schema: of the value's; ``None``: columns follow from the values
    :param key: names of the key's columns
    """

    key_schema: str | None
    value_schema: str | None
    key: tuple[str, ...]


@dataclass(slots=True)
class DescribedColumns:
    """Columns of a topic as schemas describe them.

    :param columns: of the value, then those that only the key has; by name
    :param exact: the value has all columns of the table; otherwise there may be more
    """

    columns: dict[str, Column] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    exact: bool = False


class EventOrigin(NamedTuple):
    """Place of an event in the database's log, as the event says it.

    :param transaction: empty if it does not say it
    :param change: the position of the one change; both halves of a change of key have it. Empty if it does not say it
    """

    transaction: str
    change: str


@dataclass(slots=True)
class TopicRows:
    """Rows of one topic and token, in their order.

    :param before: image before of each row; of a delete with the key in it
    :param after: image after, with the headers that are kept
    :param keys: of each row
    :param lines: numbers of the lines in their piece
    :param origins: where each has come from
    """

    topic: str
    table: TableId
    token: LayoutKey
    op: list[int] = field(default_factory=list)
    before: list[Row | None] = field(default_factory=list)
    after: list[Row | None] = field(default_factory=list)
    keys: list[Row] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    ts_us: list[int] = field(default_factory=list)
    origins: list[EventOrigin] = field(default_factory=list)

    @property
    def has_only_keys(self) -> bool:
        """True if these are only keys, of rows that are gone: they say nothing of the columns."""
        return all(
            after is None and before is not None and before.keys() == key.keys()
            for after, before, key in zip(self.after, self.before, self.keys, strict=True)
        )


def build_needed_schema(
    rows: TopicRows, described: DescribedColumns, recorded: TableSchema | None, *, ordered: bool
) -> TableSchema:
    """Build the schema that rows need.

    :param recorded: the one in force
    :param ordered: all records of the topic are in one order: a column that is not there any more is dropped
    """
    old = {} if recorded is None else {column.name: column for column in recorded.columns}
    columns = dict(described.columns)
    for name, kind in _kinds(rows, described, old).items():
        same = name in old and schema_inference.kind_of(old[name]) == kind
        columns[name] = old[name] if same else schema_inference.build_column(name, kind)
    if not (ordered and described.exact):
        columns = {name: _wider(column, columns.get(name)) for name, column in old.items()} | {
            name: column for name, column in columns.items() if name not in old
        }
    else:  # values of headers, which no schema has
        columns = columns | {name: column for name, column in old.items() if name.startswith(HEADER)}
    key = tuple(name for name in described.key if name in columns)
    if not key and recorded is not None and not any(rows.keys):
        key = recorded.key
    columns = {n: c.model_copy(update={"nullable": False}) if n in key else c for n, c in columns.items()}
    return TableSchema(id=rows.table, columns=tuple(columns.values()), key=key)


def _kinds(rows: TopicRows, described: DescribedColumns, old: Mapping[str, Column]) -> dict[str, str]:
    """Columns that no schema describes → the kind of their values, together with the values that the table has."""
    kinds: dict[str, str] = {}
    if described.exact and not any(name.startswith(HEADER) for row in rows.after if row for name in row):
        undescribed = [name for name in described.key if name not in described.columns]
        if not undescribed:
            return kinds
    dicts = [row for rows_ in (rows.after, rows.before) for row in rows_ if row is not None]
    names = dict.fromkeys(described.key) | dict.fromkeys(
        name for names in dict.fromkeys(map(tuple, dicts)) for name in names
    )
    for name in names:
        if name in described.columns or (described.exact and not name.startswith(HEADER) and name not in described.key):
            continue
        values = [row.get(name) for row in dicts]
        if name in described.key:
            values += [key.get(name) for key in rows.keys]
        before = schema_inference.kind_of(old[name]) if name in old else None
        if before is not None and (before not in schema_inference.KINDS or old[name].semantic not in (None, JSON)):
            continue  # a schema has set its type
        if (kind := schema_inference.widen_kind(before, schema_inference.infer_kind(values))) is not None:
            kinds[name] = kind
    return kinds


_INTEGERS = ("int8", "int16", "int32", "int64")
_FLOATS = ("float", "double")


def _wider(old: Column, new: Column | None) -> Column:
    """Return the wider of a column's two forms, which has room for both; where none has, the new one."""
    if new is None or old.type == new.type:
        return old if new is None else new
    for types in (_INTEGERS, _FLOATS):
        if old.type in types and new.type in types:
            return old if types.index(old.type) > types.index(new.type) else new
    a, b = arrow_type(old.type), arrow_type(new.type)
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        return old if a.scale >= b.scale and a.precision - a.scale >= b.precision - b.scale else new
    return new


def build_schema_change(recorded: TableSchema | None, schema: TableSchema) -> TableChange | None:
    """Return the schema change that makes a schema of the one in force; ``None``: it is the same."""
    if recorded is None:
        return TableChange(type="CREATE", id=schema.id, table=schema)
    if recorded.same_structure(schema):
        return None
    names = set(recorded.column_names)
    added = {c.name: c.declared.default for c in schema.columns if c.name not in names}
    return TableChange(type="ALTER", id=schema.id, table=schema, added=added)


class ImageBuilder:
    """Makes the images of rows under the schema in force.

    :param placeholder: ``unavailable.value.placeholder``
    """

    def __init__(self, schema: TableSchema, described: DescribedColumns, placeholder: str) -> None:
        self.schema, self._described = schema, described
        self._own = [described.columns.get(column.name, column) for column in schema.columns]
        self._converters = [JsonColumnConverter(column, placeholder) for column in self._own]
        self._type = row_struct(schema)
        self._names = set(schema.column_names)

    def build_images(
        self, rows: Sequence[Row | None], keys: Sequence[Row], image: str
    ) -> tuple[pa.StructArray | None, Mask | None]:
        """Build one image of each row, and a mask of the values that it does not have (``[column, row]``).

        :param keys: of the rows
        :raises InvalidColumnValue: a value is not one of its column, or no column has it
        """
        there = np.fromiter((row is not None for row in rows), np.bool_, len(rows))
        if not there.any():
            return None, None
        at = np.flatnonzero(there)
        some = [row for row in rows if row is not None]
        their_keys = [keys[int(i)] for i in at] if len(at) < len(rows) else list(keys)
        self._refuse_unknown(some, at, image)
        arrays, masks = [], []
        for column, own, converter in zip(self.schema.columns, self._own, self._converters, strict=True):
            values = _values(column.name, some, their_keys, key=column.name in self.schema.key)
            if (
                own is column
                and column.type == "string"
                and column.name not in self._described.columns
                and column.semantic is None
            ):
                values = [v if v is MISSING else schema_inference.format_value(v) for v in values]
            try:
                array, missing = converter.convert_values(values)
                arrays.append(array if own.type == column.type else array.cast(arrow_type(column.type)))
            except InvalidColumnValue as e:
                raise InvalidColumnValue(int(at[e.row]), f"{image}.{column.name}: {e}") from None
            except pa.ArrowInvalid as e:
                raise InvalidColumnValue(
                    int(at[0]), f"{image}.{column.name} is a {own.type}, which does not fit {column.type}: {e}"
                ) from None
            masks.append(missing)
        index = np.where(there, np.cumsum(there) - 1, -1)
        return expand_images(arrays, self._type, index), _spread(masks, at, len(rows))

    def _refuse_unknown(self, some: list[Row], at: npt.NDArray[np.int64], image: str) -> None:
        """Reject a value that no column takes: it would be lost."""
        for names in dict.fromkeys(map(tuple, some)):
            if unknown := set(names) - self._names:
                row, lost = next(
                    ((i, name) for i, r in enumerate(some) for name in unknown if r.get(name) is not None), (0, None)
                )
                if lost is not None:
                    raise InvalidColumnValue(
                        int(at[row]), f"{image} has a field {lost}, which its schema does not contain"
                    )


def _values(name: str, rows: list[Row], keys: list[Row], *, key: bool) -> list[Any]:
    try:
        return [row[name] for row in rows]
    except KeyError:
        if not key:
            return [row.get(name, MISSING) for row in rows]
        return [row[name] if name in row else own.get(name, MISSING) for row, own in zip(rows, keys, strict=True)]


def _spread(masks: Iterable[Mask | None], at: npt.NDArray[np.int64], n: int) -> Mask | None:
    """Masks of the columns, of some rows, as one of all rows."""
    each = list(masks)
    if all(mask is None for mask in each):
        return None
    whole = np.zeros((len(each), n), np.bool_)
    for column, mask in enumerate(each):
        if mask is not None:
            whole[column, at] = mask
    return whole
