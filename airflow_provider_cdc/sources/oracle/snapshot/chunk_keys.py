"""Keys in SQL: the order of rows, rows behind a key, and keys as JSON that comes back exactly.

A key's value is kept as the database writes it in the session's formats (:mod:`.query_columns`), not as a change log value: what a handling
mode leaves out (the time of a DATE, a zone) would make two keys one. It is turned back by a function around the bind variable,
never around the column, so that the key's index serves.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import oracledb

from airflow_provider_cdc.core.errors import QueryRefused
from airflow_provider_cdc.core.model.schema import TableSchema
from airflow_provider_cdc.core.spi.chunks import Key
from airflow_provider_cdc.sources.oracle.schema.types import ColumnType
from airflow_provider_cdc.sources.oracle.snapshot.query_columns import QueryColumns

ROWID: Final = "ROWID"
_LARGEST_NUMBER: Final = 1 << 53
"""Greater whole numbers are texts in JSON: others than Python read them as floating point."""
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
"""Type of a column → what stands around its bind variable, and the variable's type."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that rows are ordered by.

    :param sql: the column
    :param shown: expression that gives its value
    :param rowid: it is the row's id, which is no column of the table's structure
    """

    name: str
    base: str
    sql: str
    shown: str
    rowid: bool = False

    def bound(self, name: str) -> str:
        """The bind variable ``name`` as a value of this column."""
        return _BINDS[self.base][0].format(f":{name}")

    def to_json(self, value: Any) -> Any:
        """A value as the driver gives it, for JSON."""
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

    def variable(self, cursor: oracledb.Cursor, value: Any) -> oracledb.Var:
        """A variable that holds a value from JSON."""
        kind = _BINDS[self.base][1]
        if kind is oracledb.DB_TYPE_NUMBER:
            value = Decimal(str(value))
        elif kind is oracledb.DB_TYPE_RAW:
            value = base64.b64decode(value)
        elif kind in (oracledb.DB_TYPE_BINARY_FLOAT, oracledb.DB_TYPE_BINARY_DOUBLE):
            value = float(value)
        size = max(len(value), 1) if isinstance(value, str | bytes) else 0
        made = cursor.var(kind, size)
        made.setvalue(0, value)
        return made


def is_rowid(schema: TableSchema, name: str) -> bool:
    """Whether a name of an order is the row's id."""
    return name.upper() == ROWID and name not in schema.names


def key_columns(schema: TableSchema, order: Sequence[str], columns: QueryColumns, alias: str) -> tuple[KeyColumn, ...]:
    """The columns of an order.

    :param alias: of the table in the query
    :raises QueryRefused: rows cannot be ordered by such a column
    """
    found = []
    known = {column.name: column for column in schema.columns}
    for name in order:
        if is_rowid(schema, name):
            found.append(KeyColumn(ROWID, "ROWID", f"{alias}.ROWID", f"ROWIDTOCHAR({alias}.ROWID)", rowid=True))
            continue
        column = known.get(name)
        base = ColumnType.of(column).base if column is not None else ""
        if column is None or base not in _BINDS or name not in columns.place:
            raise QueryRefused(
                f"Rows of {schema.id} cannot be ordered by {name}: "
                + ("there is no such column." if column is None else f"its type is {base}."),
                where=f"{schema.id}.{name}",
                safe="None of its rows was read; capture goes on.",
                remedy="name another unique column as surrogate-key, or ROWID",
            )
        shown = columns.expressions[columns.place[name]]
        found.append(KeyColumn(name, base, f'{alias}."{name}"', shown))
    return tuple(found)


def binds(prefix: str, columns: Sequence[KeyColumn], key: Key, cursor: oracledb.Cursor) -> dict[str, oracledb.Var]:
    """Bind variables with a key's values."""
    pairs = zip(columns, key, strict=True)
    return {_name(prefix, i): column.variable(cursor, value) for i, (column, value) in enumerate(pairs)}


def _name(prefix: str, i: int) -> str:
    """No name is the beginning of another one."""
    return f"{prefix}{i:02}"


def behind(prefix: str, columns: Sequence[KeyColumn]) -> list[tuple[str, Sequence[KeyColumn]]]:
    """The rows behind a key, in parts that follow each other.

    Oracle does not compare rows of values, and the OR of it all would not be a range of an index. Each part is one: first the
    rows that differ from the key in its last column only. With each goes the columns that its rows are ordered by.
    """
    found = []
    for at in reversed(range(len(columns))):
        same = [f"{c.sql} = {c.bound(_name(prefix, i))}" for i, c in enumerate(columns[:at])]
        column = columns[at]
        found.append((" AND ".join([*same, f"{column.sql} > {column.bound(_name(prefix, at))}"]), columns[at:]))
    return found


def compared(prefix: str, columns: Sequence[KeyColumn], operator: str) -> str:
    """The rows before or behind a key as one condition; ``<`` or ``>``, and ``=`` behind it where the key itself belongs to them."""
    strict = operator[0]
    first = columns[0]
    text = f"{columns[-1].sql} {operator} {columns[-1].bound(_name(prefix, len(columns) - 1))}"
    for i, column in reversed([*enumerate(columns[:-1])]):
        value = column.bound(_name(prefix, i))
        text = f"({column.sql} {strict} {value} OR ({column.sql} = {value} AND {text}))"
    if len(columns) > 1:  # says no more, and is a bound of an index
        text = f"{first.sql} {strict}= {first.bound(_name(prefix, 0))} AND {text}"
    return text
