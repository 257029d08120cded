"""Mapping from a declared Db2 column to a change log column: types, semantic names, handling modes.

The mapping is that of "Data type mappings" of the Debezium Db2 connector document. Where it leaves a choice or has a gap, no value may get lost
without a word:

* ``DECFLOAT`` is an exact text (``VariableScaleDecimal``), because the scale differs from value to value. NaN and infinities are no decimals: an
  error, unless ``decimal.handling.mode`` makes texts or doubles of the column.
* ``TIMESTAMP(0..6)`` has microseconds, every year from 1 to 9999. ``TIMESTAMP(7..9)`` has nanoseconds, which reach from 1678 to 2261: a
  value outside is an error. ``TIMESTAMP(10..12)`` is text, as no type of Parquet has so many digits. ``time.precision.mode=connect`` keeps
  microseconds and every year in all of them.
* ``TIME`` is microseconds since midnight. 24:00:00, which Db2 keeps apart from 00:00:00, is a whole day of them; as part of a timestamp it is
  the beginning of the next day.
* ``ROWID`` is text, in hexadecimal. A distinct type is its source type.
* A column whose values cannot be read is always NULL: its type is ``null``. It stays in the table's structure, and ``declared`` says what it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.core.config.property_enums import BinaryHandling, DecimalHandling, TimePrecision
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, ColumnDeclaration
from airflow_provider_cdc.sources.db2.config import Db2Config

TEXTS: Final = frozenset(
    {"CHAR", "VARCHAR", "LONG VARCHAR", "CLOB", "GRAPHIC", "VARGRAPHIC", "LONG VARGRAPHIC", "DBCLOB"}
)
BITS: Final = frozenset(
    {"CHAR FOR BIT DATA", "VARCHAR FOR BIT DATA", "LONG VARCHAR FOR BIT DATA", "BINARY", "VARBINARY", "BLOB"}
)
DEFAULT_FRACTION: Final = 6
NANOS: Final = 9
MOST_DIGITS: Final = 12

_JDBC = {
    "SMALLINT": 5, "INTEGER": 4, "BIGINT": -5, "DECIMAL": 3, "DECFLOAT": 1111, "REAL": 7, "DOUBLE": 8, "BOOLEAN": 16, "CHAR": 1,
    "VARCHAR": 12, "LONG VARCHAR": -1, "CLOB": 2005, "GRAPHIC": 1, "VARGRAPHIC": 12, "LONG VARGRAPHIC": -1, "DBCLOB": 2005, "BINARY": -2,
    "VARBINARY": -3, "CHAR FOR BIT DATA": -2, "VARCHAR FOR BIT DATA": -3, "LONG VARCHAR FOR BIT DATA": -4, "BLOB": 2004, "DATE": 91,
    "TIME": 92, "TIMESTAMP": 93, "XML": 2009, "ROWID": -8,
}  # fmt: skip
"""Numbers of JDBC for ``tableChanges[].columns[].jdbcType``."""

_SYNONYMS = {
    "CHARACTER": "CHAR", "CHARACTER VARYING": "VARCHAR", "CHAR VARYING": "VARCHAR", "CHARACTER LARGE OBJECT": "CLOB", "CHAR LARGE OBJECT": "CLOB",
    "BINARY LARGE OBJECT": "BLOB", "BINARY VARYING": "VARBINARY", "INT": "INTEGER", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "NUM": "DECIMAL",
    "FLOAT": "DOUBLE", "DOUBLE PRECISION": "DOUBLE", "TIMESTMP": "TIMESTAMP", "CHAR () FOR BIT DATA": "CHAR FOR BIT DATA",
    "VARCHAR () FOR BIT DATA": "VARCHAR FOR BIT DATA", "CHARACTER FOR BIT DATA": "CHAR FOR BIT DATA", "NCHAR": "GRAPHIC",
    "NVARCHAR": "VARGRAPHIC", "NCLOB": "DBCLOB", "DATETIME": "TIMESTAMP",
}  # fmt: skip
_NUMBERS = re.compile(
    r"\(\s*(\d+)\s*([KMG])?\s*(?:OCTETS|CODEUNITS16|CODEUNITS32)?\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE
)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZED = {
    "CHAR",
    "VARCHAR",
    "CLOB",
    "GRAPHIC",
    "VARGRAPHIC",
    "DBCLOB",
    "BINARY",
    "VARBINARY",
    "BLOB",
    "CHAR FOR BIT DATA",
    "VARCHAR FOR BIT DATA",
}
_DEFAULTS = {
    "DECIMAL": (5, 0),
    "DECFLOAT": (34, None),
    "TIMESTAMP": (DEFAULT_FRACTION, None),
    "CHAR": (1, None),
    "GRAPHIC": (1, None),
}


@dataclass(frozen=True, slots=True)
class Db2ColumnType:
    """A column's declared type, as the catalog gives it.

    :param base: canonical name in capitals, without parameters; of a distinct type, of its source type
    :param length: characters or bytes as declared (code units where they are counted), digits of a DECIMAL or DECFLOAT, digits of a second
    :param scale: decimals of a DECIMAL
    """

    base: str
    length: int | None = None
    scale: int | None = None

    @classmethod
    def parse(cls, text: str) -> Db2ColumnType:
        """From the text of a type, as in DDL.

        >>> Db2ColumnType.parse("decimal(12, 2)"), Db2ColumnType.parse("VARCHAR(20 OCTETS) FOR BIT DATA")
        (ColumnType(base='DECIMAL', length=12, scale=2), ColumnType(base='VARCHAR FOR BIT DATA', length=20, scale=None))
        """
        match = _NUMBERS.search(text)
        base = _canonical(_NUMBERS.sub(" ", text))
        if match is None:
            return cls(base, *_DEFAULTS.get(base, (None, None)))
        length = int(match[1]) * _UNITS.get((match[2] or "").upper(), 1)
        return cls(base, length, int(match[3] or 0) if base == "DECIMAL" else None)

    @classmethod
    def of_catalog(
        cls, type_name: str, length: int | None, scale: int | None, *, codepage: int | None
    ) -> Db2ColumnType:
        """From columns of ``SYSCAT.COLUMNS``.

        :param length: ``LENGTH``, or ``STRINGUNITSLENGTH`` where there is one
        :param codepage: ``CODEPAGE``; 0 = FOR BIT DATA
        """
        base = _canonical(type_name)
        if base in ("CHAR", "VARCHAR", "LONG VARCHAR") and codepage == 0:
            base = f"{base} FOR BIT DATA"
        if base == "DECIMAL":
            return cls(base, length, scale or 0)
        if base == "DECFLOAT":
            return cls(base, 34 if length is None or length > 8 else 16)
        if base == "TIMESTAMP":
            return cls(base, DEFAULT_FRACTION if scale is None else scale)
        return cls(base, length if base in _SIZED else None)

    @classmethod
    def from_column(cls, column: Column) -> Db2ColumnType:
        """Return the declared type of a change log column; the inverse of :func:`make_column`."""
        declared = column.declared
        return cls(declared.type_name, declared.length, declared.scale)

    @property
    def fraction_digits(self) -> int:
        """Digits of the second of a timestamp."""
        return DEFAULT_FRACTION if self.length is None else self.length

    @property
    def ddl_expression(self) -> str:
        """The type as DDL spells it."""
        if self.length is None:
            return self.base
        inside = f"({self.length})" if self.scale is None else f"({self.length},{self.scale})"
        first, _, bits = self.base.partition(" FOR BIT DATA")
        return f"{first}{inside} FOR BIT DATA" if bits or self.base.endswith("FOR BIT DATA") else self.base + inside


def make_column(
    name: str,
    type_: Db2ColumnType,
    config: Db2Config,
    *,
    nullable: bool,
    distinct: str | None = None,
    default: str | None = None,
    default_is_expression: bool = False,
    generated: bool = False,
    auto_incremented: bool = False,
) -> Column:
    """Build the change log column for a declared one; of type ``null`` when its values cannot be captured.

    :param distinct: name of the distinct type, whose source is ``type_``
    """
    arrow, semantic, parameters = _map(type_, config) or (NOT_CAPTURED, None, {})
    return Column(
        name=name,
        type=arrow,
        nullable=nullable or arrow == NOT_CAPTURED,
        semantic=semantic,
        parameters=parameters,
        declared=ColumnDeclaration(
            jdbc_type=_JDBC.get(type_.base, 1111),
            type_name=type_.base,
            type_expression=distinct or type_.base,
            length=type_.length,
            scale=type_.scale,
            auto_incremented=auto_incremented,
            generated=generated,
            default=default,
            default_is_expression=default_is_expression,
        ),
    )


def is_distinct(column: Column) -> bool:
    """Check whether a column's type is a distinct one, which functions of its source type do not take."""
    return column.declared.type_expression not in ("", column.declared.type_name)


_Mapped = tuple[str, str | None, dict[str, str]]


def _map(t: Db2ColumnType, config: Db2Config) -> _Mapped | None:
    """Change log type, semantic name and parameters."""
    simple: dict[str, _Mapped] = {
        "SMALLINT": ("int16", None, {}),
        "INTEGER": ("int32", None, {}),
        "BIGINT": ("int64", None, {}),
        "REAL": ("float", None, {}),
        "DOUBLE": ("double", None, {}),
        "BOOLEAN": ("bool", None, {}),
        "XML": ("string", "io.debezium.data.Xml", {}),
        "ROWID": ("string", None, {}),
    }
    if t.base in simple:
        return simple[t.base]
    if t.base in TEXTS:
        return "string", None, {}
    if t.base in BITS:
        return "binary" if config.binary_handling_mode is BinaryHandling.BYTES else "string", None, {}
    if t.base in ("DECIMAL", "DECFLOAT"):
        return _number(t, config.decimal_handling_mode)
    return _temporal(t, config.time_precision_mode)


def _number(t: Db2ColumnType, mode: DecimalHandling) -> _Mapped:
    if mode is DecimalHandling.DOUBLE:
        return "double", None, {}
    if mode is DecimalHandling.STRING:
        return "string", None, {}
    if t.base == "DECFLOAT":
        return "string", "io.debezium.data.VariableScaleDecimal", {}
    digits, scale = t.length or 5, t.scale or 0
    parameters = {"scale": str(scale), "connect.decimal.precision": str(digits)}
    return f"decimal128({digits}, {scale})", "org.apache.kafka.connect.data.Decimal", parameters


def _temporal(t: Db2ColumnType, mode: TimePrecision) -> _Mapped | None:
    """Values are native; the mode decides on the semantic name, and so on the number in the JSON form."""
    connect = mode is TimePrecision.CONNECT
    if t.base == "DATE":
        return "date32[day]", "org.apache.kafka.connect.data.Date" if connect else "io.debezium.time.Date", {}
    if t.base == "TIME":
        if connect:
            return "int64", "org.apache.kafka.connect.data.Time", {}
        micros = mode is TimePrecision.ADAPTIVE_TIME_MICROSECONDS
        return "int64", "io.debezium.time.MicroTime" if micros else "io.debezium.time.Time", {}
    if t.base != "TIMESTAMP":
        return None
    if connect:
        return "timestamp[us]", "org.apache.kafka.connect.data.Timestamp", {}
    if t.fraction_digits > NANOS:
        return "string", None, {}
    if t.fraction_digits > DEFAULT_FRACTION:
        return "timestamp[ns]", "io.debezium.time.NanoTimestamp", {}
    return "timestamp[us]", f"io.debezium.time.{'MicroTimestamp' if t.fraction_digits > 3 else 'Timestamp'}", {}


def _canonical(text: str) -> str:
    base = " ".join(text.upper().replace('"', "").split())
    return _SYNONYMS.get(base, base)
