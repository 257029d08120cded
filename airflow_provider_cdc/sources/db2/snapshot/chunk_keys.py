"""Keys that bound the chunks of a table: stored as JSON, and written into SQL.

A key's value is stored as it was selected (:mod:`..rows.select_list`), not as a value of the change log: a handling mode may omit a part, so that two
keys would be equal. It is compared with the column itself, never with a function of it, so that the key's index is used.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.db2.config_enums import NOT_LOGGED
from airflow_provider_cdc.sources.db2.rows.select_list import SelectList
from airflow_provider_cdc.sources.db2.schema.type_mapping import BITS, Db2ColumnType
from airflow_provider_cdc.sources.relational.sql_quoting import quoted_name

_LARGEST_NUMBER: Final = 1 << 53
"""Greater integers are text in JSON, since most programs other than Python read JSON numbers as floating point."""
_WHOLE: Final = frozenset({"SMALLINT", "INTEGER", "BIGINT"})
_FLOATING: Final = frozenset({"REAL", "DOUBLE"})
_NO_ORDER: Final = NOT_LOGGED | {"ROWID", "BOOLEAN"}


class SqlFragment(NamedTuple):
    """A part of a statement, and the values of its parameters, in their order."""

    text: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Db2KeyColumn:
    """A column that rows are ordered by.

    :param base: base type, as ``Db2ColumnType`` has it
    :param sql: the column in SQL
    :param shown: the expression that selects its value
    """

    name: str
    base: str
    sql: str
    shown: str

    def to_json(self, value: Any) -> Any:
        """Return the JSON form of a selected value."""
        match value:
            case bool():
                return int(value)
            case int():
                return value if abs(value) < _LARGEST_NUMBER else str(value)
            case bytes() | bytearray() | memoryview():
                return base64.b64encode(bytes(value)).decode()
            case float():
                return repr(value)
            case Decimal():
                return f"{value:f}"
            case dt.date():
                return value.isoformat()
            case str() if self.base in ("DECIMAL", "DECFLOAT"):
                return value.strip().replace(",", ".")
            case _:
                return value

    def to_parameter(self, key: Any) -> Any:
        """Return the parameter for a value in its JSON form."""
        if self.base in _WHOLE:
            return int(key)
        if self.base in _FLOATING:
            return float(key)
        if self.base in BITS:
            return base64.b64decode(key)
        if self.base == "TIME":
            minutes, seconds = divmod(int(key), 60)
            return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        return str(key)


def key_columns(schema: TableSchema, order: Sequence[str], columns: SelectList, alias: str) -> tuple[Db2KeyColumn, ...]:
    """Return the key columns of an order.

    :param alias: alias of the table in the query
    :raises QueryRejected: a column does not exist, or rows cannot be ordered by its type
    """
    columns_of_key = []
    by_name = {column.name: column for column in schema.columns}
    for name in order:
        column = by_name.get(name)
        base = Db2ColumnType.from_column(column).base if column is not None else ""
        if column is None or base in _NO_ORDER or name not in columns.index:
            raise QueryRejected(
                f"Rows of {schema.id} cannot be ordered by {name}: "
                + ("the column does not exist." if column is None else f"its type is {base}."),
                where=f"{schema.id}.{name}",
                safe="None of its rows was read; capture continues.",
                remedy="name another unique column as surrogate-key",
            )
        columns_of_key.append(
            Db2KeyColumn(name, base, f"{alias}.{quoted_name(name)}", columns.expressions[columns.index[name]])
        )
    return tuple(columns_of_key)


def build_after_conditions(
    columns: Sequence[Db2KeyColumn], key: Key
) -> list[tuple[SqlFragment, Sequence[Db2KeyColumn]]]:
    """Conditions for the rows after a key, in consecutive parts, each with the columns that its rows are ordered by.

    One condition with OR would not be an index range. Each part is one: the first has the rows that differ from the key in its last column only.
    """
    conditions = []
    for at in reversed(range(len(columns))):
        same = [f"{c.sql} = ?" for c in columns[:at]]
        text = " AND ".join([*same, f"{columns[at].sql} > ?"])
        conditions.append((SqlFragment(text, _values(columns[: at + 1], key[: at + 1])), columns[at:]))
    return conditions


def build_comparison(columns: Sequence[Db2KeyColumn], key: Key, operator: str) -> SqlFragment:
    """Build one condition for the rows before or after a key.

    :param operator: ``<``, ``<=``, ``>`` or ``>=``
    """
    strict, values = operator[0], _values(columns, key)
    text, binds = f"{columns[-1].sql} {operator} ?", values[-1:]
    for column, value in reversed([*zip(columns[:-1], values[:-1], strict=True)]):
        text = f"({column.sql} {strict} ? OR ({column.sql} = ? AND {text}))"
        binds = (value, value, *binds)
    if len(columns) > 1:  # logically redundant, but gives the index a bound
        text, binds = f"{columns[0].sql} {strict}= ? AND {text}", (values[0], *binds)
    return SqlFragment(text, binds)


def build_in_condition(columns: Sequence[Db2KeyColumn], keys: Sequence[Key]) -> SqlFragment:
    """Condition for the rows with one of some keys, of all columns or only of the first ones."""
    values = tuple(value for key in keys for value in _values(columns[: len(key)], key))
    if len(keys[0]) == 1:
        return SqlFragment(f"{columns[0].sql} IN ({', '.join('?' * len(keys))})", values)
    each = ["(" + " AND ".join(f"{c.sql} = ?" for c, _ in zip(columns, key, strict=False)) + ")" for key in keys]
    return SqlFragment(f"({' OR '.join(each)})", values)


def combine_conditions(parts: Iterable[SqlFragment]) -> SqlFragment:
    """Conditions that have to be fulfilled together; empty without one."""
    nonempty = [part for part in parts if part.text]
    return SqlFragment(
        " AND ".join(part.text for part in nonempty), tuple(value for part in nonempty for value in part.values)
    )


def _values(columns: Sequence[Db2KeyColumn], key: Key) -> tuple[Any, ...]:
    return tuple(column.to_parameter(value) for column, value in zip(columns, key, strict=True))
