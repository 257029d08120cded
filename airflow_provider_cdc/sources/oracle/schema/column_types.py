"""From a declared Oracle column to a change log column: types, semantic names, handling modes.

The mapping is that of "Data type mappings" of the Debezium Oracle connector document. Where it leaves a choice, no value may
get lost without a word:

* ``NUMBER`` without a scale, ``FLOAT`` and decimals of more than 38 digits are exact texts (``VariableScaleDecimal``,
  ``Decimal``), because no type of Parquet and Spark holds them as numbers; ``decimal.handling.mode=double`` makes them doubles.
* ``NUMBER`` of up to 18 digits without decimals is a whole number in every ``decimal.handling.mode``, as in real events.
* ``TIMESTAMP WITH TIME ZONE`` is text, because no timestamp type keeps the zone. ``WITH LOCAL TIME ZONE`` is a moment in UTC.
* ``TIMESTAMP(7..9)`` has nanoseconds, which reach from 1678 to 2261: a value outside is an error;
  ``time.precision.mode=connect`` keeps microseconds and every year.
* ``DATE`` has a time of day and stays a timestamp; only ``time.precision.mode=connect`` cuts it off.
* ``BOOLEAN``, ``JSON`` and ``VECTOR`` are read from tables: LogMiner shows no change of a table that has one of them.
* A column whose values are not in the log in a form that can be read is always NULL: its type is ``null``. It stays in the
  table's structure, so that the log's rows fit, and ``declared`` says what it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from airflow_provider_cdc.core.config.property_enums import BinaryHandling, DecimalHandling, TimePrecision
from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.config_enums import IntervalHandling
from airflow_provider_cdc.sources.oracle.number_column_converters import BOOLEAN, ZERO_SCALE, number_converters

MAX_DECIMAL_DIGITS = 38
NULL = "null"
"""``Column.type`` of columns that are not captured."""
UNSUPPORTED = frozenset({"BOOLEAN", "JSON", "VECTOR"})
"""Types of which LogMiner shows no value: a change of a table with one of them is a row without values
(https://github.com/osodevops/kafka-connect-oracle-cdc, reference/sql-redo-shapes.md; debezium/debezium#4973)."""
TEXTS = {"CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "ROWID"}
_SHORT_TEXT = 1_000
"""Greatest length, in characters, of texts that never have more than 4,000 bytes."""

_JDBC = {
    "CHAR": 1, "NCHAR": -15, "VARCHAR2": 12, "NVARCHAR2": -9, "CLOB": 2005, "NCLOB": 2011, "BLOB": 2004, "RAW": -3,
    "NUMBER": 2, "FLOAT": 6, "BINARY_FLOAT": 100, "BINARY_DOUBLE": 101, "DATE": 93, "TIMESTAMP": 93,
    "TIMESTAMP WITH TIME ZONE": -101, "TIMESTAMP WITH LOCAL TIME ZONE": -102, "INTERVAL YEAR TO MONTH": -103,
    "INTERVAL DAY TO SECOND": -104, "BOOLEAN": 16, "JSON": 2016, "VECTOR": -105, "ROWID": -8, "XMLTYPE": 2009,
}  # fmt: skip
"""Numbers of the JDBC driver for ``tableChanges[].columns[].jdbcType``."""

_SYNONYMS: dict[str, tuple[str, int | None, int | None]] = {
    "INTEGER": ("NUMBER", 38, 0), "INT": ("NUMBER", 38, 0), "SMALLINT": ("NUMBER", 38, 0),
    "DECIMAL": ("NUMBER", 38, 0), "DEC": ("NUMBER", 38, 0), "NUMERIC": ("NUMBER", 38, 0),
    "REAL": ("FLOAT", 63, None), "DOUBLE PRECISION": ("FLOAT", 126, None), "FLOAT": ("FLOAT", 126, None),
    "VARCHAR": ("VARCHAR2", None, None), "CHARACTER": ("CHAR", 1, None), "CHAR": ("CHAR", 1, None),
    "NCHAR": ("NCHAR", 1, None), "NATIONAL CHARACTER": ("NCHAR", 1, None), "CHARACTER VARYING": ("VARCHAR2", None, None),
    "TIMESTAMP": ("TIMESTAMP", 6, None), "TIMESTAMP WITH TIME ZONE": ("TIMESTAMP WITH TIME ZONE", 6, None),
    "TIMESTAMP WITH LOCAL TIME ZONE": ("TIMESTAMP WITH LOCAL TIME ZONE", 6, None), "SYS.XMLTYPE": ("XMLTYPE", None, None),
    "PUBLIC.XMLTYPE": ("XMLTYPE", None, None), "INTERVAL YEAR TO MONTH": ("INTERVAL YEAR TO MONTH", 2, None),
    "INTERVAL DAY TO SECOND": ("INTERVAL DAY TO SECOND", 6, None),
}  # fmt: skip
"""Other spellings, and the meaning of a type without parameters."""

_SIZED = {"CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "RAW", "UROWID"}
_PARAMETERS = re.compile(r"\(\s*(\*|\d+)\s*(?:BYTE|CHAR)?\s*(?:,\s*(-?\d+|\*)\s*)?\)")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's declared type, as DDL or the catalog gives it.

    :param base: canonical upper-case type name, without parameters
    :param length: characters or bytes, digits of a NUMBER, decimals of the seconds of a timestamp
    :param scale: decimals of a NUMBER; ``None`` = any number of them
    """

    base: str
    length: int | None = None
    scale: int | None = None

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """From the text of a type, as in DDL or ``ALL_TAB_COLUMNS.DATA_TYPE``.

        >>> ColumnType.parse("NUMBER(12,2)")
        ColumnType(base='NUMBER', length=12, scale=2)
        >>> ColumnType.parse("timestamp(3) with local time zone")
        ColumnType(base='TIMESTAMP WITH LOCAL TIME ZONE', length=3, scale=None)
        """
        upper = " ".join(text.upper().replace('"', "").split())
        match = _PARAMETERS.search(upper)
        base = " ".join(_PARAMETERS.sub(" ", upper).split())
        base, length, scale = _SYNONYMS.get(base, (base, None, None))
        if match is None:
            return cls(base, length, scale)
        if base == "INTERVAL DAY TO SECOND":
            # INTERVAL DAY(2) TO SECOND(6): the decimals are those of the seconds
            seconds = re.search(r"SECOND\s*\(\s*(\d+)\s*\)", upper)
            return cls(base, int(seconds[1]) if seconds else 6)
        first, second = match[1], match[2]
        if base == "NUMBER":
            if first == "*" and second is None:
                return cls(base, 38, 0) if scale == 0 else cls(base)
            digits = 38 if first == "*" else int(first)
            return cls(base, digits, None if second == "*" else int(second or 0))
        return cls(base, length if first == "*" else int(first))

    @property
    def is_long_text(self) -> bool:
        """Check whether its texts may be longer than 4,000 bytes: the log splits those into pieces."""
        return self.base in {*TEXTS, "RAW"} and (self.length or 0) > _SHORT_TEXT

    @classmethod
    def of_catalog(
        cls, data_type: str, data_length: int | None, data_precision: int | None, data_scale: int | None
    ) -> ColumnType:
        """From the columns of the same names of ``ALL_TAB_COLUMNS``; lengths of texts are ``CHAR_LENGTH``.

        Equal to what :meth:`parse` makes of the same column's DDL.
        """
        t = cls.parse(data_type)
        if t.base == "NUMBER":
            if data_precision is None:
                return cls("NUMBER") if data_scale is None else cls("NUMBER", 38, data_scale)
            return cls("NUMBER", data_precision, data_scale)
        if t.base == "FLOAT":
            return cls("FLOAT", data_precision or 126)
        return cls(t.base, data_length, None) if t.base in _SIZED and "(" not in data_type else t

    @classmethod
    def from_column(cls, column: Column) -> ColumnType:
        """Return the declared type of a change log column; the inverse of :func:`make_column`."""
        declared = column.declared
        return cls(declared.type_name, declared.length, declared.scale)

    @property
    def fraction_digits(self) -> int:
        """Decimals of the seconds of a timestamp."""
        return 6 if self.length is None else self.length

    @property
    def ddl_expression(self) -> str:
        """The type as DDL spells it."""
        if self.length is None:
            return self.base
        inside = f"({self.length})" if self.scale is None else f"({self.length},{self.scale})"
        if self.base == "NUMBER" and self.scale is None:
            inside = f"({self.length},*)"
        first, _, rest = self.base.partition(" ")
        return f"{first}{inside} {rest}" if first == "TIMESTAMP" and rest else self.base + inside


def make_column(
    table: TableId,
    name: str,
    type_: ColumnType,
    config: OracleConfig,
    *,
    nullable: bool,
    default: str | None = None,
    default_is_expression: bool = False,
    generated: bool = False,
    auto_incremented: bool = False,
) -> Column:
    """Return the change log column for a declared one; of type ``null`` when its values cannot be captured.

    :param generated: a virtual column, whose values are computed when they are read and are not in the log
    """
    mapped = None if generated else _converted(table, name, type_, config) or _map(type_, config)
    arrow, semantic, parameters = mapped or (NULL, None, {})
    return Column(
        name=name,
        type=arrow,
        nullable=nullable or arrow == NULL,
        semantic=semantic,
        parameters=parameters,
        declared=ColumnDeclaration(
            jdbc_type=_JDBC.get(type_.base, 1111),
            type_name=type_.base,
            type_expression=type_.base,
            length=type_.length,
            scale=type_.scale,
            auto_incremented=auto_incremented,
            generated=generated,
            default=default,
            default_is_expression=default_is_expression,
        ),
    )


def number_text(number: Decimal) -> str:
    """Return the one text of a number: no exponent, no zeros at the end of its decimals."""
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


_Mapped = tuple[str, str | None, dict[str, str]]
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _converted(table: TableId, name: str, t: ColumnType, config: OracleConfig) -> _Mapped | None:
    """Return the result of the first converter that wants this column."""
    if t.base != "NUMBER" or t.length is None or t.scale is None:
        return None
    for converter in number_converters(config.converters):
        if converter.type == BOOLEAN and (t.length, t.scale) == (1, 0) and converter.matches_column(table, name):
            return "bool", None, {}
        if converter.type == ZERO_SCALE and t.scale < 0 and t.length - t.scale >= 19:
            mode = DecimalHandling(converter.options.get("decimal.mode", DecimalHandling.PRECISE))
            return _decimal(t.length, t.scale, 0, mode)
    return None


def _map(t: ColumnType, config: OracleConfig) -> _Mapped | None:
    """Change log type, semantic name and parameters."""
    bytes_ = "binary" if config.binary_handling_mode is BinaryHandling.BYTES else "string"
    simple: dict[str, _Mapped] = {
        "BINARY_FLOAT": ("float", None, {}),
        "BINARY_DOUBLE": ("double", None, {}),
        "CLOB": ("string", None, {}),
        "NCLOB": ("string", None, {}),
        "XMLTYPE": ("string", "io.debezium.data.Xml", {}),
        "BOOLEAN": ("bool", None, {}),
        "JSON": ("string", "io.debezium.data.Json", {}),
        "VECTOR": ("string", None, {}),
        "BLOB": (bytes_, None, {}),
        "RAW": (bytes_, None, {}),
        "TIMESTAMP WITH TIME ZONE": ("string", "io.debezium.time.ZonedTimestamp", {}),
    }
    if t.base in simple:
        return simple[t.base]
    if t.base in TEXTS:
        return "string", None, {}
    if t.base in ("NUMBER", "FLOAT"):
        return _number(t, config.decimal_handling_mode)
    if t.base.startswith("INTERVAL "):
        if config.interval_handling_mode is IntervalHandling.STRING:
            return "string", "io.debezium.time.Interval", {}
        return "int64", "io.debezium.time.MicroDuration", {}
    return _temporal(t, config)


def _number(t: ColumnType, mode: DecimalHandling) -> _Mapped:
    if t.base == "FLOAT" or t.length is None or t.scale is None:
        exact: _Mapped = ("string", _VARIABLE_SCALE, {})
        return {DecimalHandling.DOUBLE: ("double", None, {}), DecimalHandling.STRING: ("string", None, {})}.get(
            mode, exact
        )
    if t.scale <= 0:
        for width, arrow in ((2, "int8"), (4, "int16"), (9, "int32"), (18, "int64")):
            if t.length - t.scale <= width:
                return arrow, None, {}
    return _decimal(t.length, t.scale, t.scale, mode)


def _decimal(precision: int, scale: int, shown: int, mode: DecimalHandling) -> _Mapped:
    """Return a NUMBER with a scale; ``shown`` is the scale of the JSON form, which may be negative."""
    if mode is DecimalHandling.DOUBLE:
        return "double", None, {}
    if mode is DecimalHandling.STRING:
        return "string", None, {}
    digits = max(precision, scale) if scale > 0 else precision - scale
    parameters = {"scale": str(shown), "connect.decimal.precision": str(precision)}
    arrow = f"decimal128({digits}, {max(scale, 0)})" if digits <= MAX_DECIMAL_DIGITS else "string"
    return arrow, _DECIMAL, parameters


def _temporal(t: ColumnType, config: OracleConfig) -> _Mapped | None:
    """Values are native; the mode decides on the semantic name, and so on the number in the JSON form."""
    connect = config.time_precision_mode is TimePrecision.CONNECT
    if t.base == "DATE":
        if connect:
            return "date32[day]", "org.apache.kafka.connect.data.Date", {}
        return "timestamp[us]", "io.debezium.time.Timestamp", {}
    fine = t.fraction_digits > 6
    if t.base == "TIMESTAMP WITH LOCAL TIME ZONE":
        return f"timestamp[{'ns' if fine else 'us'}, tz=UTC]", "io.debezium.time.ZonedTimestamp", {}
    if t.base != "TIMESTAMP":
        return None
    if connect:
        return "timestamp[us]", "org.apache.kafka.connect.data.Timestamp", {}
    if fine:
        return "timestamp[ns]", "io.debezium.time.NanoTimestamp", {}
    return "timestamp[us]", f"io.debezium.time.{'MicroTimestamp' if t.fraction_digits > 3 else 'Timestamp'}", {}
