"""Keys that bound the chunks of a table: stored as JSON, and written into SQL.

A key's value is stored as the database writes it in the session's format (:mod:`.query_columns`), not as a value of the change log: a
handling mode may omit a part (the time of a DATE, a time zone), so that two keys would be equal. It is converted back by a function
around the bind variable, never around the column, so that the key's index is used.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import oracledb

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType
from airflow_provider_cdc.sources.oracle.schema.source_fields import ROWID
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns

_LARGEST_NUMBER: Final = 1 << 53
"""Greater integers are text in JSON, since most programs other than Python read JSON numbers as floating point."""
_MOMENT: Final = "SYYYY-MM-DD HH24:MI:SS"
_ZONED: Final = f"TO_TIMESTAMP_TZ({{}}, '{_MOMENT}.FF9 TZH:TZM')"
_BINDS: Final[dict[str, tuple[str, oracledb.DbType]]] = {
    "NUMBER": ("{}", oracledb.DB_TYPE_NUMBER),
    "FLOAT": ("{}", oracledb.DB_TYPE_NUMBER),
    "BINARY_FLOAT": ("{}", oracledb.DB_TYPE_BINARY_FLOAT),
    "BINARY_DOUBLE": ("{}", oracledb.DB_TYPE_BINARY_DOUBLE),
    "CHAR": ("{}", oracledb.DB_TYPE_CHAR),
    "NCHAR": ("{}", oracledb.DB_TYPE_NCHAR),
    "VARCHAR2": ("{}", oracledb.DB_TYPE_VARCHAR),
    "NVARCHAR2": ("{}", oracledb.DB_TYPE_NVARCHAR),
    "RAW": ("{}", oracledb.DB_TYPE_RAW),
    "ROWID": ("CHARTOROWID({})", oracledb.DB_TYPE_VARCHAR),
    "DATE": (f"TO_DATE({{}}, '{_MOMENT}')", oracledb.DB_TYPE_VARCHAR),
    "TIMESTAMP": (f"TO_TIMESTAMP({{}}, '{_MOMENT}.FF9')", oracledb.DB_TYPE_VARCHAR),
    "TIMESTAMP WITH TIME ZONE": (_ZONED, oracledb.DB_TYPE_VARCHAR),
    "TIMESTAMP WITH LOCAL TIME ZONE": (
        f"CAST({_ZONED} AS TIMESTAMP(9) WITH LOCAL TIME ZONE)",
        oracledb.DB_TYPE_VARCHAR,
    ),
    "INTERVAL DAY TO SECOND": ("TO_DSINTERVAL({})", oracledb.DB_TYPE_VARCHAR),
    "INTERVAL YEAR TO MONTH": ("TO_YMINTERVAL({})", oracledb.DB_TYPE_VARCHAR),
}
"""Type of a column → SQL expression with ``{}`` for its bind variable, and the type of the variable."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that rows are ordered by.

    :param base: base type, as ``ColumnType`` has it
    :param sql: the column in SQL
    :param shown: the expression that selects its value
    :param rowid: it is the pseudocolumn ROWID
    """

    name: str
    base: str
    sql: str
    shown: str
    rowid: bool = False

    def bind_expression(self, name: str) -> str:
        """Return the SQL expression of the bind variable ``name``."""
        return _BINDS[self.base][0].format(f":{name}")

    def to_json(self, value: Any) -> Any:
        """Return the JSON form of a value from the driver."""
        match value:
            case bytes():
                return base64.b64encode(value).decode()
            case float():
                return repr(value)
            case str() if self.base in ("NUMBER", "FLOAT"):
                number = Decimal(value)
                whole = number == number.to_integral_value() and abs(number) < _LARGEST_NUMBER
                return int(number) if whole else value
            case str() if self.base.startswith(("DATE", "TIMESTAMP")):
                return value.strip()
            case _:
                return value

    def create_bind_variable(self, cursor: oracledb.Cursor, value: Any) -> oracledb.Var:
        """Return a bind variable with a value in its JSON form."""
        kind = _BINDS[self.base][1]
        if kind is oracledb.DB_TYPE_NUMBER:
            value = Decimal(str(value))
        elif kind is oracledb.DB_TYPE_RAW:
            value = base64.b64decode(value)
        elif kind in (oracledb.DB_TYPE_BINARY_FLOAT, oracledb.DB_TYPE_BINARY_DOUBLE):
            value = float(value)
        size = max(len(value), 1) if isinstance(value, str | bytes) else 0
        variable = cursor.var(kind, size)
        variable.setvalue(0, value)
        return variable


def is_rowid(schema: TableSchema, name: str) -> bool:
    """Check whether a name in an order is the pseudocolumn ROWID."""
    return name.upper() == ROWID and name not in schema.column_names


def key_columns(schema: TableSchema, order: Sequence[str], columns: QueryColumns, alias: str) -> tuple[KeyColumn, ...]:
    """Return the key columns of an order.

    :param alias: alias of the table in the query
    :raises QueryRejected: a column does not exist, or rows cannot be ordered by its type
    """
    columns_of_key = []
    by_name = {column.name: column for column in schema.columns}
    for name in order:
        if is_rowid(schema, name):
            columns_of_key.append(
                KeyColumn(ROWID, "ROWID", f"{alias}.ROWID", f"ROWIDTOCHAR({alias}.ROWID)", rowid=True)
            )
            continue
        column = by_name.get(name)
        base = ColumnType.from_column(column).base if column is not None else ""
        if column is None or base not in _BINDS or name not in columns.index:
            raise QueryRejected(
                f"Rows of {schema.id} cannot be ordered by {name}: "
                + ("the column does not exist." if column is None else f"its type is {base}."),
                where=f"{schema.id}.{name}",
                safe="None of its rows was read; capture continues.",
                remedy="name another unique column as surrogate-key, or ROWID",
            )
        shown = columns.expressions[columns.index[name]]
        columns_of_key.append(KeyColumn(name, base, f'{alias}."{name}"', shown))
    return tuple(columns_of_key)


def bind_key_values(
    prefix: str, columns: Sequence[KeyColumn], key: Key, cursor: oracledb.Cursor
) -> dict[str, oracledb.Var]:
    """Name → bind variable, with the values of a key."""
    pairs = zip(columns, key, strict=True)
    return {_name(prefix, i): column.create_bind_variable(cursor, value) for i, (column, value) in enumerate(pairs)}


def _name(prefix: str, i: int) -> str:
    """Name of a bind variable; with two digits, so that no name is the prefix of another."""
    return f"{prefix}{i:02}"


def build_after_conditions(prefix: str, columns: Sequence[KeyColumn]) -> list[tuple[str, Sequence[KeyColumn]]]:
    """Conditions for the rows after a key, in consecutive parts, each with the columns that its rows are ordered by.

    Oracle has no row value comparison with ``>``, and one condition with OR would not be an index range. Each part is an index range: the
    first has the rows that differ from the key in its last column only.
    """
    conditions = []
    for at in reversed(range(len(columns))):
        same = [f"{c.sql} = {c.bind_expression(_name(prefix, i))}" for i, c in enumerate(columns[:at])]
        column = columns[at]
        conditions.append(
            (" AND ".join([*same, f"{column.sql} > {column.bind_expression(_name(prefix, at))}"]), columns[at:])
        )
    return conditions


def build_comparison(prefix: str, columns: Sequence[KeyColumn], operator: str) -> str:
    """Build one condition for the rows before or after a key.

    :param operator: ``<``, ``<=``, ``>`` or ``>=``
    """
    strict = operator[0]
    first = columns[0]
    text = f"{columns[-1].sql} {operator} {columns[-1].bind_expression(_name(prefix, len(columns) - 1))}"
    for i, column in reversed([*enumerate(columns[:-1])]):
        value = column.bind_expression(_name(prefix, i))
        text = f"({column.sql} {strict} {value} OR ({column.sql} = {value} AND {text}))"
    if len(columns) > 1:  # logically redundant, but gives the index a bound
        text = f"{first.sql} {strict}= {first.bind_expression(_name(prefix, 0))} AND {text}"
    return text


def build_keys_condition(prefix: str, columns: Sequence[KeyColumn], keys: Sequence[Key]) -> str:
    """Condition for the rows with one of some keys, of all columns or only of the first ones."""
    if len(keys[0]) == 1:
        values = ", ".join(columns[0].bind_expression(_name(key_prefix(prefix, n), 0)) for n in range(len(keys)))
        return f"{columns[0].sql} IN ({values})"
    conditions = []
    for n, key in enumerate(keys):
        names = [_name(key_prefix(prefix, n), i) for i in range(len(key))]
        conditions.append(
            " AND ".join(f"{c.sql} = {c.bind_expression(name)}" for c, name in zip(columns, names, strict=False))
        )
    return f"({' OR '.join(f'({same})' for same in conditions)})"


def key_prefix(prefix: str, n: int) -> str:
    """Prefix of the bind variables of one of several keys."""
    return f"{prefix}{n:04}_"
