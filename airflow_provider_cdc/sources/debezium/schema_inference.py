"""Types of values without a schema (``schemas.enable=false``): inferred from the values, and widened where later ones need it.

values so far            the column is
-------------            -------------
only null                not there yet: it comes with its first value
true, false              bool
whole numbers            int64, or decimal128(20, 0) beyond 64 bits
numbers                  double
texts                    string
objects, arrays          a text of JSON
some of each             string
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from airflow_provider_cdc.core.model.table_schema import Column
from airflow_provider_cdc.sources.debezium.schema_columns import JSON

BIG: Final = "decimal128(20, 0)"
_BY_TYPE: Final = {bool: "bool", int: "int64", float: "double", str: "string", dict: "json", list: "json"}
_WIDER: Final = {("int64", BIG): BIG, ("int64", "double"): "double", (BIG, "double"): "double"}
KINDS: Final = frozenset({*_BY_TYPE.values(), BIG})
_LARGEST: Final = 2**63 - 1


def infer_kind(values: Iterable[Any]) -> str | None:
    """Infer the kind of values: a type of the change log, or ``json``; ``None``: all are null.

    >>> infer_kind([1, None, 2.5])
    'double'
    """
    types = set(map(type, values))
    types.discard(type(None))
    kind: str | None = None
    for type_ in types:
        kind = widen_kind(kind, _BY_TYPE[type_])
    if kind == "int64" and max(v for v in values if v is not None) > _LARGEST:
        return BIG
    return kind


def widen_kind(first: str | None, second: str | None) -> str | None:
    """Return the kind that has room for both."""
    if first is None or second is None or first == second:
        return first if second is None else second
    return _WIDER.get((first, second)) or _WIDER.get((second, first)) or "string"


def kind_of(column: Column) -> str:
    """Return the kind that a column has room for."""
    return "json" if column.semantic == JSON and column.type == "string" else column.type


def build_column(name: str, kind_: str, *, key: bool = False) -> Column:
    """Build a column of a kind."""
    if kind_ == "json":
        return Column(name=name, type="string", semantic=JSON, nullable=not key)
    return Column(name=name, type=kind_, nullable=not key)


def format_value(value: Any) -> str | None:
    """Any value as a text."""
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
