"""Spark's types for those of the change log, and which type can hold the values of another.

Spark has no timestamp of nanoseconds. Tables hold such values as text, exact and in the order of time:
``2024-02-29 12:00:00.123456789``, with a ``Z`` at the end for a moment in UTC. A cast to a timestamp understands them. In the files
of the change log they are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.targets.lake.spark_releases.python_features import UNSTORABLE_TYPES, VARIANT_TYPE, is_variant
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import as_text

_SIMPLE = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[ns]": "string",
    "timestamp[ns, tz=UTC]": "string",
    "list<item: float>": "array<float>",
    "struct<wkb: binary, srid: int32>": "struct<wkb:binary,srid:int>",
}
_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integers and the decimal digits that they need."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_OBJECTS: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    **({} if VARIANT_TYPE is None else {"variant": VARIANT_TYPE()}),
    "date": T.DateType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "timestamp": T.TimestampType(),
    "array<float>": T.ArrayType(T.FloatType()),
    "array<string>": T.ArrayType(T.StringType()),
    "map<string,string>": T.MapType(T.StringType(), T.StringType()),
    "struct<wkb:binary,srid:int>": T.StructType(
        [T.StructField("wkb", T.BinaryType()), T.StructField("srid", T.IntegerType())]
    ),
}


def spark_type(text: str) -> str:
    """Spark's name for a change log type (``Column.type``).

    >>> spark_type("timestamp[us, tz=UTC]")
    'timestamp'
    """
    if text in _SIMPLE:
        return _SIMPLE[text]
    if text.startswith("decimal128("):
        return "decimal" + text.removeprefix("decimal128").replace(" ", "")
    raise ValueError(f"unknown change log type {text!r}")


def file_type(text: str) -> str:
    """Spark's name for a change log type as it is read from the files.

    >>> file_type("timestamp[ns]")
    'bigint'
    """
    return "bigint" if text.startswith("timestamp[ns") else spark_type(text)


def build_struct_type(types: Mapping[str, str | T.DataType]) -> T.StructType:
    """Names and Spark types, without a text in which a name would have to be quoted.

    >>> build_struct_type({"it's `odd`": "int"}).simpleString()
    "struct<it's `odd`:int>"
    """
    return T.StructType([T.StructField(name, _object(type_)) for name, type_ in types.items()])


def is_known_type(type_: str) -> bool:
    """Return whether :func:`build_struct_type` knows a Spark type.

    >>> is_known_type("decimal(9,2)"), is_known_type("map<string,string>"), is_known_type("interval")
    (True, True, False)
    """
    return bool(type_ in _OBJECTS or _DECIMAL.fullmatch(type_))


def _object(type_: str | T.DataType) -> T.DataType:
    if isinstance(type_, T.DataType):
        return type_
    if match := _DECIMAL.fullmatch(type_):
        return T.DecimalType(int(match[1]), int(match[2]))
    return _OBJECTS[type_]


def from_file(value: Expression, type_: str) -> Expression:
    """Convert a value of the files to that of the tables."""
    if not type_.startswith("timestamp[ns"):
        return value
    within = F.pmod(value, F.lit(1000))
    micros = F.call_function("div", value, F.lit(1000)) - (value % 1000 < 0).cast("bigint")
    text = F.date_format(F.timestamp_micros(micros), "yyyy-MM-dd HH:mm:ss.SSSSSS")
    exact = F.concat(text, F.lpad(within.cast("string"), 3, "0"))
    return F.concat(exact, F.lit("Z")) if "tz" in type_ else exact


def format_constant(text: str | None, type_: str) -> str | None:
    """Convert a text that a cast to a column's type understands to the form that tables have.

    >>> format_constant("2024-02-29 12:00:00.5", "timestamp[ns]")
    '2024-02-29 12:00:00.500000000'
    """
    if text is None or not type_.startswith("timestamp[ns"):
        return text
    head, _, tail = text.strip().removesuffix("Z").replace("T", " ").partition(".")
    return f"{head}.{tail:0<9}" + ("Z" if "tz" in type_ else "")


def can_hold_type(wide: str, narrow: str) -> bool:
    """Return whether every value of a Spark type has an equal one in another type.

    >>> can_hold_type("bigint", "int"), can_hold_type("decimal(14,4)", "decimal(10,2)"), can_hold_type("int", "string")
    (True, True, False)
    """
    if wide == narrow:
        return True
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS[narrow] < _INTEGERS[wide]
    if into := _DECIMAL.fullmatch(wide):
        digits, scale = int(into[1]), int(into[2])
        if narrow in _INTEGERS:
            return digits - scale >= _INTEGERS[narrow]
        if out := _DECIMAL.fullmatch(narrow):
            return scale >= int(out[2]) and digits - scale >= int(out[1]) - int(out[2])
        return False
    return (narrow, wide) in {
        ("float", "double"), ("tinyint", "double"), ("smallint", "double"), ("int", "double"), ("date", "timestamp_ntz"),
    }  # fmt: skip


def find_common_type(a: str, b: str) -> str | None:
    """Return the wider of two types; ``None`` when neither holds the other."""
    return a if can_hold_type(a, b) else b if can_hold_type(b, a) else None


def build_fill_value(text: str | None, type_: str) -> Expression:
    """Build the value that a column's fill stands for.

    Fills are those of :class:`airflow_provider_cdc.targets.lake.formats.table_values.ColumnEvolution`.
    """
    return F.lit(text).cast(type_)


def iso_text(moment: pa.Scalar) -> str:
    """Format a moment as text, also one that Python does not have: before its first year, or after 9999.

    >>> iso_text(pa.scalar(576560160000000000, pa.timestamp("us"))), iso_text(pa.scalar(-70000000000000000, pa.timestamp("us")))
    ('+20240-06-19T00:00:00.000000', '-0249-10-15T19:33:20.000000')
    """
    text = str(np.datetime64(moment.cast(pa.timestamp("us", moment.type.tz)).cast(pa.int64()).as_py(), "us"))
    sign = "-" if text.startswith("-") else ""
    year, rest = text.removeprefix("-").split("-", 1)
    return f"{sign or ('+' if len(year) > 4 else '')}{year:0>4}-{rest}"


def quote_name(name: str) -> str:
    """Quote a name as SQL and ``functions.col`` take it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def sign_of_zeros(value: Expression, type_: T.DataType) -> Expression | None:
    """Build an expression that distinguishes zeros with a minus from those without one.

    They are equal in SQL, which keeps any one of equal values when it groups them. ``None`` for types that have no such zeros.
    """
    if isinstance(type_, T.FloatType | T.DoubleType):
        return (value == 0) & value.cast("string").startswith("-")
    if isinstance(type_, T.ArrayType) and isinstance(type_.elementType, T.FloatType | T.DoubleType):
        return F.transform(value, lambda item: (item == 0) & item.cast("string").startswith("-"))
    return None


def parts_of(type_: T.DataType) -> Iterator[T.DataType]:
    """Iterate over a type and the types within it."""
    yield type_
    within = {
        T.ArrayType: ("elementType",), T.MapType: ("keyType", "valueType"),
    }.get(type(type_), ())  # fmt: skip
    fields = [f.dataType for f in type_.fields] if isinstance(type_, T.StructType) else []
    for part in (*(getattr(type_, name) for name in within), *fields):
        yield from parts_of(part)


def is_storable_type(type_: T.DataType) -> bool:
    """Return whether columns of a table can have a type, apart from those within it.

    >>> is_storable_type(T.NullType()), is_storable_type(T.DateType())
    (False, True)
    """
    if isinstance(type_, T.StringType):
        return type_.simpleString() == "string"  # and no other order of texts
    return not isinstance(type_, UNSTORABLE_TYPES)


def to_comparable_value(value: Expression, type_: T.DataType) -> Expression:
    """Convert a value so that equal values become equal, and have a hash.

    Of a map these are its entries in order, of a variant its text, which names the types of its values.
    """
    if isinstance(type_, T.MapType):
        key, of_key = type_.keyType, type_.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda item: F.struct(
                to_comparable_value(item.key, key).alias("key"), to_comparable_value(item.value, of_key).alias("value")
            ),
        )
        return F.array_sort(entries)
    if is_variant(type_):
        return as_text(value)
    if isinstance(type_, T.ArrayType):
        element = type_.elementType
        return F.transform(value, lambda item: to_comparable_value(item, element))
    if isinstance(type_, T.StructType):
        fields = [to_comparable_value(value.getField(f.name), f.dataType).alias(f.name) for f in type_.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    return value


def quote_text(text: str) -> str:
    """Quote a SQL text, for the few statements that need SQL.

    Sessions must not put values into SQL texts (:data:`airflow_provider_cdc.targets.lake.session.spark_session.PINNED`): no quoting keeps ``${env:…}`` as it is.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
