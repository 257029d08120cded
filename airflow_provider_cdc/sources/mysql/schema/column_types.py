"""From a declared MySQL or MariaDB column to a change log column: types, semantic names, handling modes.

The mapping is that of "Data type mappings" of the Debezium MySQL connector document. Two rules are ours, because losing a
value without a word is not an option: a ``BIGINT UNSIGNED`` beyond 63 bits is an error in mode ``long`` (Debezium wraps it
around), and a ``DECIMAL`` of more than 38 digits, which neither Parquet nor Spark can hold as a number, becomes text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_cdc.core.config.property_enums import BinaryHandling, DecimalHandling, TimePrecision
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, ColumnDeclaration
from airflow_provider_cdc.sources.mysql.config import MySqlConfig, UnsignedHandling

INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
"""Integer types and their width in the log, in bytes."""
TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
BLOBS = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
SPATIAL = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
}  # fmt: skip
MAX_DECIMAL_DIGITS = 38
SYSTEM_DATABASES = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
"""Databases of the server's own, which are never captured."""
TRANSACTIONAL = frozenset({"InnoDB", "ROCKSDB", "TokuDB", "ndbcluster"})
"""Engines whose tables a view shows as they were."""

_JDBC = {
    "tinyint": 5, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "decimal": 3, "float": 6, "double": 8, "bit": -7,
    "char": 1, "varchar": 12, "tinytext": 12, "text": 12, "mediumtext": 12, "longtext": 12, "json": 1111, "binary": -2,
    "varbinary": -3, "tinyblob": 2004, "blob": 2004, "mediumblob": 2004, "longblob": 2004, "enum": 1, "set": 1, "date": 91,
    "time": 92, "datetime": 93, "timestamp": 2014, "year": 4, "uuid": 1111, "inet4": 12, "inet6": 12, "vector": 1111,
}  # fmt: skip
"""``java.sql.Types`` numbers of ``tableChanges[].columns[].jdbcType``."""


@dataclass(frozen=True, slots=True)
class MySqlColumnType:
    """A column's declared type, as the DDL or ``information_schema`` gives it.

    :param base: canonical lower-case type name
    :param length: display width, number of characters or bytes, digits of a decimal, fractional digits of a temporal type
    :param values: members of an ENUM or SET
    :param zerofill: numbers are displayed with leading zeros; their values do not change
    """

    base: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    charset: str | None = None
    values: tuple[str, ...] = ()
    zerofill: bool = field(default=False, compare=False)

    @property
    def fraction_digits(self) -> int:
        """Fractional digits of a temporal type."""
        return self.length or 0

    @property
    def precision_and_scale(self) -> tuple[int, int]:
        """Precision and scale of a decimal."""
        return self.length or 10, self.scale or 0

    @classmethod
    def from_column(cls, column: Column) -> MySqlColumnType:
        """Return the declared type of a change log column; the inverse of :func:`make_column`."""
        declared = column.declared
        base, _, rest = declared.type_name.lower().partition(" ")
        return cls(
            base,
            declared.length,
            declared.scale,
            "unsigned" in rest,
            declared.charset,
            declared.values,
            "zerofill" in rest,
        )


def make_column(
    name: str,
    type_: MySqlColumnType,
    config: MySqlConfig,
    *,
    nullable: bool,
    default: str | None = None,
    default_is_expression: bool = False,
    auto_incremented: bool = False,
    generated: bool = False,
    comment: str | None = None,
) -> Column | None:
    """Build the change log column for a declared one; ``None`` for a type that cannot be captured."""
    mapped = _map(type_, config)
    if mapped is None:
        return None
    arrow, semantic, parameters = mapped
    type_name = type_.base.upper() + (" UNSIGNED" if type_.unsigned else "") + (" ZEROFILL" if type_.zerofill else "")
    return Column(
        name=name,
        type=arrow,
        nullable=nullable,
        semantic=semantic,
        parameters=parameters,
        declared=ColumnDeclaration(
            jdbc_type=_JDBC.get(type_.base, 1111),
            type_name=type_name,
            type_expression=type_name,
            # of members that are bytes, MySQL's catalog says nothing and MariaDB's that they are binary
            charset=type_.charset if type_.base in TEXTS | {"enum", "set"} and type_.charset != "binary" else None,
            length=_MEMBERS_LENGTH[type_.base](type_.values) if type_.base in _MEMBERS_LENGTH else type_.length,
            scale=type_.scale,
            auto_incremented=auto_incremented,
            generated=generated,
            default=default,
            default_is_expression=default_is_expression,
            values=type_.values,
            comment=comment,
        ),
    )


_MEMBERS_LENGTH: dict[str, Callable[[tuple[str, ...]], int]] = {
    "enum": lambda members: 1,
    "set": lambda members: max(2 * len(members) - 1, 0),
}
"""The length of an ENUM and a SET, as Debezium counts it: a character for each member and each comma."""

_Mapped = tuple[str, str | None, dict[str, str]]


def _map(t: MySqlColumnType, config: MySqlConfig) -> _Mapped | None:
    """Change log type, semantic name and parameters."""
    if t.base in INTEGERS:
        return _integer(t, config)
    if t.base in TEXTS or t.base in ("uuid", "inet4", "inet6"):
        return "string", None, {}
    if t.base in BLOBS:
        return ("binary" if config.binary_handling_mode is BinaryHandling.BYTES else "string"), None, {}
    if t.base == "decimal":
        return _decimal(*t.precision_and_scale, config)
    if t.base in ("date", "time", "datetime", "timestamp"):
        return _temporal(t, config)
    if t.base in SPATIAL:
        kind = "Point" if t.base == "point" else "Geometry"
        return GEOMETRY, f"io.debezium.data.geometry.{kind}", {}
    if t.base == "bit":
        bits = t.length or 1
        return ("bool", None, {}) if bits == 1 else ("binary", "io.debezium.data.Bits", {"length": str(bits)})
    if t.base in ("enum", "set"):
        return "string", f"io.debezium.data.Enum{'Set' if t.base == 'set' else ''}", {"allowed": ",".join(t.values)}
    simple: dict[str, _Mapped] = {
        "float": ("float", None, {}),
        "double": ("double", None, {}),
        "year": ("int32", "io.debezium.time.Year", {}),
        "json": ("string", "io.debezium.data.Json", {}),
        "vector": ("list<item: float>", "io.debezium.data.FloatVector", {}),
    }
    return simple.get(t.base)


def _integer(t: MySqlColumnType, config: MySqlConfig) -> _Mapped:
    if t.base == "bigint" and t.unsigned and config.bigint_unsigned_handling_mode is UnsignedHandling.PRECISE:
        return (
            "decimal128(20, 0)",
            "org.apache.kafka.connect.data.Decimal",
            {"scale": "0", "connect.decimal.precision": "20"},
        )
    width = {"tinyint": "int16", "smallint": "int32" if t.unsigned else "int16", "mediumint": "int32"}
    return width.get(t.base, "int64" if t.unsigned or t.base == "bigint" else "int32"), None, {}


def _decimal(precision: int, scale: int, config: MySqlConfig) -> _Mapped:
    match config.decimal_handling_mode:
        case DecimalHandling.DOUBLE:
            return "double", None, {}
        case DecimalHandling.STRING:
            return "string", None, {}
    semantic = (
        "org.apache.kafka.connect.data.Decimal",
        {"scale": str(scale), "connect.decimal.precision": str(precision)},
    )
    return f"decimal128({precision}, {scale})" if precision <= MAX_DECIMAL_DIGITS else "string", *semantic


def _temporal(t: MySqlColumnType, config: MySqlConfig) -> _Mapped:
    """Values are native; the mode decides on the semantic name, and so on the number in the JSON form."""
    mode = config.time_precision_mode
    connect = mode is TimePrecision.CONNECT
    if t.base == "timestamp":
        return "timestamp[us, tz=UTC]", "io.debezium.time.ZonedTimestamp", {}
    if t.base == "date":
        return "date32[day]", "org.apache.kafka.connect.data.Date" if connect else "io.debezium.time.Date", {}
    if t.base == "time":
        adaptive = "Time" if mode is TimePrecision.ADAPTIVE and t.fraction_digits <= 3 else "MicroTime"
        return "int64", "org.apache.kafka.connect.data.Time" if connect else f"io.debezium.time.{adaptive}", {}
    fine = "MicroTimestamp" if t.fraction_digits > 3 else "Timestamp"
    return "timestamp[us]", "org.apache.kafka.connect.data.Timestamp" if connect else f"io.debezium.time.{fine}", {}
