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

from airflow_provider_cdc.targets.lake.types.variant_columns import as_text

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
    "variant": T.VariantType(),
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


def structure(types: Mapping[str, str | T.DataType]) -> T.StructType:
    """Names and Spark types, without a text in which a name would have to be quoted.

    >>> structure({"it's `odd`": "int"}).simpleString()
    "struct<it's `odd`:int>"
    """
    return T.StructType([T.StructField(name, _object(type_)) for name, type_ in types.items()])


def known(type_: str) -> bool:
    """Whether :func:`structure` knows a Spark type.

    >>> known("decimal(9,2)"), known("map<string,string>"), known("interval")
    (True, True, False)
    """
    return bool(type_ in _OBJECTS or _DECIMAL.fullmatch(type_))


def _object(type_: str | T.DataType) -> T.DataType:
    if isinstance(type_, T.DataType):
        return type_
    if found := _DECIMAL.fullmatch(type_):
        return T.DecimalType(int(found[1]), int(found[2]))
    return _OBJECTS[type_]


def from_file(value: Expression, type_: str) -> Expression:
    """A value of the files as the tables have it."""
    if not type_.startswith("timestamp[ns"):
        return value
    within = F.pmod(value, F.lit(1000))
    micros = F.call_function("div", value, F.lit(1000)) - (value % 1000 < 0).cast("bigint")
    text = F.date_format(F.timestamp_micros(micros), "yyyy-MM-dd HH:mm:ss.SSSSSS")
    exact = F.concat(text, F.lpad(within.cast("string"), 3, "0"))
    return F.concat(exact, F.lit("Z")) if "tz" in type_ else exact


def constant(text: str | None, type_: str) -> str | None:
    """A text that a cast to a column's type understands, as tables have it.

    >>> constant("2024-02-29 12:00:00.5", "timestamp[ns]")
    '2024-02-29 12:00:00.500000000'
    """
    if text is None or not type_.startswith("timestamp[ns"):
        return text
    head, _, tail = text.strip().removesuffix("Z").replace("T", " ").partition(".")
    return f"{head}.{tail:0<9}" + ("Z" if "tz" in type_ else "")


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of a Spark type has an equal one in another type.

    >>> holds("bigint", "int"), holds("decimal(14,4)", "decimal(10,2)"), holds("int", "string")
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


def common(a: str, b: str) -> str | None:
    """The wider of two types; ``None`` when neither holds the other."""
    return a if holds(a, b) else b if holds(b, a) else None


def filled(text: str | None, type_: str) -> Expression:
    """The value that a column's fill stands for (:class:`airflow_provider_cdc.targets.lake.formats.target.Evolution`)."""
    return F.lit(text).cast(type_)


def iso_text(moment: pa.Scalar) -> str:
    """A moment as text, also one that Python does not have: before its first year, or after 9999.

    >>> iso_text(pa.scalar(576560160000000000, pa.timestamp("us"))), iso_text(pa.scalar(-70000000000000000, pa.timestamp("us")))
    ('+20240-06-19T00:00:00.000000', '-0249-10-15T19:33:20.000000')
    """
    text = str(np.datetime64(moment.cast(pa.timestamp("us", moment.type.tz)).cast(pa.int64()).as_py(), "us"))
    sign = "-" if text.startswith("-") else ""
    year, rest = text.removeprefix("-").split("-", 1)
    return f"{sign or ('+' if len(year) > 4 else '')}{year:0>4}-{rest}"


def quoted(name: str) -> str:
    """A name as SQL and ``functions.col`` take it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def sign_of_zeros(value: Expression, type_: T.DataType) -> Expression | None:
    """Tells zeros with a minus from those without one: they are equal in SQL, which keeps any one of equal values when it groups them. ``None`` for
    types that have no such zeros."""
    if isinstance(type_, T.FloatType | T.DoubleType):
        return (value == 0) & value.cast("string").startswith("-")
    if isinstance(type_, T.ArrayType) and isinstance(type_.elementType, T.FloatType | T.DoubleType):
        return F.transform(value, lambda one: (one == 0) & one.cast("string").startswith("-"))
    return None


def parts_of(type_: T.DataType) -> Iterator[T.DataType]:
    """A type, and the types within it."""
    yield type_
    within = {
        T.ArrayType: ("elementType",), T.MapType: ("keyType", "valueType"),
    }.get(type(type_), ())  # fmt: skip
    fields = [f.dataType for f in type_.fields] if isinstance(type_, T.StructType) else []
    for part in (*(getattr(type_, name) for name in within), *fields):
        yield from parts_of(part)


def storable(type_: T.DataType) -> bool:
    """Whether columns of a table can have a type, apart from those within it.

    >>> storable(T.NullType()), storable(T.VariantType())
    (False, True)
    """
    if isinstance(type_, T.StringType):
        return type_.simpleString() == "string"  # and no other order of texts
    return not isinstance(type_, T.NullType | T.AnsiIntervalType | T.CalendarIntervalType | T.TimeType)


def comparable(value: Expression, type_: T.DataType) -> Expression:
    """A value as something that is equal to that of an equal one, and has a hash: of a map its entries in order, of a variant its text,
    which names the types of its values."""
    if isinstance(type_, T.MapType):
        key, of_key = type_.keyType, type_.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda one: F.struct(comparable(one.key, key).alias("key"), comparable(one.value, of_key).alias("value")),
        )
        return F.array_sort(entries)
    if isinstance(type_, T.VariantType):
        return as_text(value)
    if isinstance(type_, T.ArrayType):
        element = type_.elementType
        return F.transform(value, lambda one: comparable(one, element))
    if isinstance(type_, T.StructType):
        fields = [comparable(value.getField(f.name), f.dataType).alias(f.name) for f in type_.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    return value


def literal(text: str) -> str:
    """A quoted SQL text, for the few statements that need SQL.

    Sessions must not put values into SQL texts (:data:`airflow_provider_cdc.targets.lake.session.spark_session.PINNED`): no quoting keeps ``${env:…}`` as it is.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
