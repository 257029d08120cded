"""From a declared PostgreSQL column to a change log column: types, semantic names, handling modes.

The mapping is that of "Data type mappings" of the Debezium PostgreSQL connector document. Where it leaves a choice, or loses values, no value
may get lost without a word:

* ``numeric`` without a precision, or of more than 38 digits, is exact text (``VariableScaleDecimal``, ``Decimal``), because no type of Parquet
  and Spark holds it as a number. ``NaN`` and infinities are values with ``decimal.handling.mode`` ``string`` and ``double``; with ``precise``,
  whose forms have no place for them, they are an error.
* ``infinity`` of dates and timestamps is the last moment of the year 9999, and ``-infinity`` the first of the year 1: they keep their order,
  and every target can store them. Other dates outside these years are an error.
* An array is a JSON text: the declared number of dimensions does not bind, and elements may be NULL. Finite numbers, booleans and JSON are
  written as such, all other elements as texts that the server prints. A value whose subscripts do not begin at 1 is the server's text of the
  whole, as a JSON string. ``vector`` and ``halfvec`` are lists of 32-bit floats, other vectors texts.
* ``hstore`` is a JSON text in either ``hstore.handling.mode``.
* Composites, ranges, multiranges and geometric types but ``point`` are the texts that the server prints.
* ``varbit`` has Debezium's form, in which zeros in front do not count.
* ``timetz`` is the time in UTC, as text. An ``interval`` is a number of microseconds or, with ``interval.handling.mode=string``, exact.
* A generated column is captured if the publication publishes it (PostgreSQL 18), else its values are not in the log: its type is ``null``, for
  snapshots too, so that both agree.
* A column of a type that is not known here, or of an array or composite of such, or of ``money``, has the type ``null``; ``include.unknown.datatypes`` captures the bytes that the server sends.
"""

from __future__ import annotations

from typing import Final

from airflow_provider_cdc.core.config.property_enums import BinaryHandling, DecimalHandling, TimePrecision
from airflow_provider_cdc.core.model.table_schema import GEOMETRY, NOT_CAPTURED, Column, ColumnDeclaration
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.config_enums import IntervalHandling
from airflow_provider_cdc.sources.postgresql.schema.type_catalog import PostgresType, TypeCatalog

MAX_DECIMAL_DIGITS: Final = 38
UNKNOWN_BYTES: Final = "unknown"
"""Value form of types that are not known here."""
JSON: Final = "io.debezium.data.Json"
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_VARIABLE_SCALE: Final = "io.debezium.data.VariableScaleDecimal"
_INT64_DIGITS: Final = 19
_SECOND_DIGITS: Final = 6
_HEADER: Final = 4
"""Bytes that the modifiers of most types count beside the length."""

_Mapped = tuple[str, str | None, dict[str, str]]

OID_TYPES: Final = frozenset({
    "oid", "xid", "cid", "regproc", "regprocedure", "regoper", "regoperator", "regclass", "regtype", "regrole", "regnamespace", "regconfig",
    "regdictionary", "regcollation",
})  # fmt: skip
"""Types whose values are numbers of 32 bits without a sign."""
_TEXTS: Final = frozenset({
    "text", "varchar", "bpchar", "name", "char", "inet", "cidr", "macaddr", "macaddr8", "tsvector", "tsquery", "pg_lsn", "txid_snapshot",
    "pg_snapshot", "jsonpath", "line", "lseg", "box", "path", "polygon", "circle", "tid", "xid8", "refcursor", "aclitem", "unknown",
})  # fmt: skip
_EXTENSION_TEXTS: Final[dict[str, str | None]] = {
    "citext": None, "ltree": "io.debezium.data.Ltree", "lquery": None, "ltxtquery": None, "sparsevec": None, "hstore": JSON,
}  # fmt: skip
_SIMPLE: Final[dict[str, _Mapped]] = {
    "bool": ("bool", None, {}),
    "int2": ("int16", None, {}),
    "int4": ("int32", None, {}),
    "int8": ("int64", None, {}),
    "float4": ("float", None, {}),
    "float8": ("double", None, {}),
    "uuid": ("string", "io.debezium.data.Uuid", {}),
    "json": ("string", JSON, {}),
    "jsonb": ("string", JSON, {}),
    "xml": ("string", "io.debezium.data.Xml", {}),
    "timetz": ("string", "io.debezium.time.ZonedTime", {}),
    "timestamptz": ("timestamp[us, tz=UTC]", "io.debezium.time.ZonedTimestamp", {}),
    "point": (GEOMETRY, "io.debezium.data.geometry.Point", {}),
    **{name: ("int64", None, {}) for name in OID_TYPES},
    **{name: ("string", None, {}) for name in _TEXTS},
}
_EXTENSIONS: Final[dict[str, _Mapped]] = {
    "geometry": (GEOMETRY, "io.debezium.data.geometry.Geometry", {}),
    "geography": (GEOMETRY, "io.debezium.data.geometry.Geography", {}),
    "vector": ("list<item: float>", "io.debezium.data.FloatVector", {}),
    "halfvec": ("list<item: float>", "io.debezium.data.FloatVector", {}),
    **{name: ("string", semantic, {}) for name, semantic in _EXTENSION_TEXTS.items()},
}
_JDBC: Final = {
    "bool": -7, "int2": 5, "int4": 4, "int8": -5, "oid": -5, "float4": 7, "float8": 8, "numeric": 2, "money": 8, "text": 12, "varchar": 12,
    "bpchar": 1, "name": 12, "char": 1, "bytea": -2, "date": 91, "time": 92, "timetz": 2013, "timestamp": 93, "timestamptz": 2014, "bit": -7,
    "xml": 2009,
}  # fmt: skip
"""Numbers of the JDBC driver for ``tableChanges[].columns[].jdbcType``."""
_JDBC_ARRAY, _JDBC_STRUCT, _JDBC_DISTINCT, _JDBC_OTHER = 2003, 2002, 2001, 1111
_MOMENTS: Final = ("time", "timetz", "timestamp", "timestamptz")


def make_column(
    name: str,
    type_oid: int,
    modifier: int,
    types: TypeCatalog,
    config: PostgresConfig,
    *,
    nullable: bool,
    default: str | None = None,
    default_is_expression: bool = False,
    generated: bool = False,
    published: bool = True,
    auto_incremented: bool = False,
    comment: str | None = None,
    number: int | None = None,
) -> Column:
    """Return the change log column for a declared one; of type ``null`` when its values cannot be captured.

    :param published: values are in the log; those of generated columns are not, unless the publication says so
    """
    base, modifier = types.find_base(type_oid, modifier)
    declared = types.find_type(type_oid)
    arrow, semantic, parameters = (
        _map(base, column_form(base, types), modifier, config) if base and published else None
    ) or (
        NOT_CAPTURED,
        None,
        {},
    )
    length, scale = _length_and_scale(base, modifier, config)
    type_name = "" if declared is None else declared.name
    return Column(
        name=name,
        type=arrow,
        nullable=nullable or arrow == NOT_CAPTURED,
        semantic=semantic,
        parameters=parameters,
        declared=ColumnDeclaration(
            jdbc_type=_JDBC_OTHER if declared is None else _jdbc_type(declared),
            type_name=type_name,
            type_expression=type_name,
            length=length,
            scale=scale,
            auto_incremented=auto_incremented,
            generated=generated,
            default=default,
            default_is_expression=default_is_expression,
            values=base.labels if base else (),
            comment=comment,
            number=number,
        ),
    )


def numeric_precision(modifier: int) -> tuple[int, int] | None:
    """Return precision and scale of a ``numeric`` with this modifier; ``None`` for one that has neither.

    >>> numeric_precision((12 << 16 | 2) + 4)
    (12, 2)
    """
    if modifier < _HEADER:
        return None
    packed = modifier - _HEADER
    return packed >> 16 & 0xFFFF, (packed & 0x7FF ^ 0x400) - 0x400


def value_form(base: PostgresType) -> str:
    """Return the word for the form of a type's values: mostly its name. Types that others made may have the names of known ones."""
    if base.kind in "ecrm":
        return {"e": "enum", "c": "composite", "r": "range", "m": "multirange"}[base.kind]
    if base.kind != "b":
        return UNKNOWN_BYTES
    if base.is_array:
        return "array"
    if base.is_builtin:
        return base.name if base.name in _SIMPLE or base.name in _SPECIAL else UNKNOWN_BYTES
    return base.name if base.name in _EXTENSIONS else UNKNOWN_BYTES


def column_form(base: PostgresType, types: TypeCatalog) -> str:
    """Return the word for the form of a column's values; that of unknown types if a part of the values, at any depth, is of such a type."""
    return value_form(base) if _has_known_parts(base, types, frozenset()) else UNKNOWN_BYTES


def _has_known_parts(base: PostgresType, types: TypeCatalog, within: frozenset[int]) -> bool:
    parts = [base.element_oid] if base.element_oid else [type_oid for _, type_oid in base.fields]
    if value_form(base) not in ("array", "composite", "range", "multirange") or base.oid in within:
        return True
    for part, _ in (types.find_base(oid) for oid in parts):
        # only the server knows with how many decimals money is printed
        if (
            part is None
            or value_form(part) in (UNKNOWN_BYTES, "money")
            or not _has_known_parts(part, types, within | {base.oid})
        ):
            return False
    return True


_SPECIAL: Final = frozenset({"numeric", "money", "bytea", "date", "time", "timestamp", "interval", "bit", "varbit"})


def _map(base: PostgresType, form: str, modifier: int, config: PostgresConfig) -> _Mapped | None:
    """Change log type, semantic name and parameters."""
    bytes_ = "binary" if config.binary_handling_mode is BinaryHandling.BYTES else "string"
    match form:
        case "unknown" if not (base.is_builtin and base.name == "unknown"):
            return (bytes_, None, {}) if config.include_unknown_datatypes else None
        case "array":
            return "string", JSON, {}
        case "composite" | "range" | "multirange":
            return "string", None, {}
        case "enum":
            return "string", "io.debezium.data.Enum", {"allowed": ",".join(base.labels)}
        case "bytea":
            return bytes_, None, {}
        case "numeric":
            return _numeric(modifier, config.decimal_handling_mode)
        case "money":
            scale = config.money_fraction_digits
            return _decimal(max(_INT64_DIGITS, scale), scale, config.decimal_handling_mode)
        case "bit" | "varbit":
            if form == "bit" and modifier == 1:
                return "bool", None, {}
            return "binary", "io.debezium.data.Bits", {"length": str(modifier if modifier > 0 else 2**31 - 1)}
        case "interval":
            if config.interval_handling_mode is IntervalHandling.STRING:
                return "string", "io.debezium.time.Interval", {}
            return "int64", "io.debezium.time.MicroDuration", {}
        case "date" | "time" | "timestamp":
            return _temporal(form, _fraction_digits(modifier), config.time_precision_mode)
    return _SIMPLE.get(form) if base.is_builtin else _EXTENSIONS.get(form)


def _numeric(modifier: int, mode: DecimalHandling) -> _Mapped:
    sized = numeric_precision(modifier)
    if sized is not None:
        return _decimal(*sized, mode)
    exact: _Mapped = ("string", _VARIABLE_SCALE, {})
    return {DecimalHandling.DOUBLE: ("double", None, {}), DecimalHandling.STRING: ("string", None, {})}.get(mode, exact)


def _decimal(precision: int, scale: int, mode: DecimalHandling) -> _Mapped:
    if mode is DecimalHandling.DOUBLE:
        return "double", None, {}
    if mode is DecimalHandling.STRING:
        return "string", None, {}
    digits = max(precision, scale) if scale > 0 else precision - scale
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return f"decimal128({digits}, {max(scale, 0)})" if digits <= MAX_DECIMAL_DIGITS else "string", _DECIMAL, parameters


def _temporal(form: str, digits: int, mode: TimePrecision) -> _Mapped:
    """Values are native; the mode decides on the semantic name, and so on the number in the JSON form."""
    connect = mode is TimePrecision.CONNECT
    if form == "date":
        return "date32[day]", "org.apache.kafka.connect.data.Date" if connect else "io.debezium.time.Date", {}
    if form == "time":
        adaptive = "Time" if mode is TimePrecision.ADAPTIVE and digits <= 3 else "MicroTime"
        return "int64", "org.apache.kafka.connect.data.Time" if connect else f"io.debezium.time.{adaptive}", {}
    fine = "MicroTimestamp" if digits > 3 else "Timestamp"
    return "timestamp[us]", "org.apache.kafka.connect.data.Timestamp" if connect else f"io.debezium.time.{fine}", {}


def _fraction_digits(modifier: int) -> int:
    return _SECOND_DIGITS if modifier < 0 else modifier


def _length_and_scale(
    base: PostgresType | None, modifier: int, config: PostgresConfig
) -> tuple[int | None, int | None]:
    if base is None or not base.is_builtin:
        return None, None
    if base.name == "numeric":
        return numeric_precision(modifier) or (None, None)
    if base.name == "money":
        return _INT64_DIGITS, config.money_fraction_digits
    if base.name in _MOMENTS:
        return _fraction_digits(modifier), None
    if modifier < 0 or base.name == "interval":
        return None, None
    return (modifier if base.name in ("bit", "varbit") else modifier - _HEADER), None


def _jdbc_type(declared: PostgresType) -> int:
    if declared.is_array:
        return _JDBC_ARRAY
    kinds = {"c": _JDBC_STRUCT, "d": _JDBC_DISTINCT, "e": 12}
    return kinds.get(declared.kind) or (_JDBC.get(declared.name, _JDBC_OTHER) if declared.is_builtin else _JDBC_OTHER)
