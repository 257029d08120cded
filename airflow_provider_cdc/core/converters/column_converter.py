"""Converters that users write: they replace the type and the values of the columns that they accept.

A converter is a subclass of :class:`ColumnConverter`, and an entry point of group ``airflow_provider_cdc.converters`` of a package that is installed
where captures run and where DAGs are parsed (Debezium documents, "Custom converters").

    >>> class Isbn(ColumnConverter):
    ...     def find_conversion(self, table, column):
    ...         return Conversion("string", group_digits) if column.name == "isbn" else None
"""

from __future__ import annotations

import abc
import datetime as dt
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_cdc.core.entry_points import CONVERTERS
from airflow_provider_cdc.core.errors import CdcError, UnreadableValue
from airflow_provider_cdc.core.extension_calls import build_unusable_error, call_extension, load_extension
from airflow_provider_cdc.core.model.table_schema import (
    NOT_CAPTURED,
    Column,
    ColumnDeclaration,
    TableId,
    TableSchema,
    arrow_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_TYPES: Final = (
    "bool", "int8", "int16", "int32", "int64", "float", "double", "string", "binary", "date32[day]", "timestamp[us]",
)  # fmt: skip
_SEMANTICS: Final[Mapping[str, str]] = {
    "date32[day]": "io.debezium.time.Date",
    "timestamp[us]": "io.debezium.time.MicroTimestamp",
}
_DECIMAL: Final = re.compile(r"decimal128\(([1-9]\d?), (\d{1,2})\)")
_DECIMALS: Final = "org.apache.kafka.connect.data.Decimal"
_NOT_AS_WRITTEN: Final = ("Bits", "ZonedTimestamp", "Interval", "MicroDuration")
"""Ends of semantic names whose values do not have the form of their defaults."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter's form of one column.

    :param type: Arrow type of the results: ``bool``, ``int8`` to ``int64``, ``float``, ``double``, ``string``, ``binary``, ``date32[day]``,
        ``timestamp[us]`` or ``decimal128(<digits>, <scale>)``
    :param convert: takes an Arrow array without nulls, and returns an array of ``type`` with as many values. NULL stays NULL
    :param schema_name: name of the column's schema in the Debezium JSON form; not for dates, timestamps and decimals, which have one
    :param parameters: of that schema
    :param nullable: whether results may be null although the column is NOT NULL
    """

    type: str
    convert: Callable[[pa.Array], pa.Array]
    schema_name: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    nullable: bool = False


class ColumnConverter(abc.ABC):
    """Converts columns. It is made once per run, and works in the thread that writes events.

    :param options: the properties ``<name>.<option>`` of the converter, without its name, all as text
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    @abc.abstractmethod
    def find_conversion(self, table: TableId, column: Column) -> Conversion | None:
        """Return how a column is converted; ``None``: this converter does not accept it.

        Asked for each column that can be captured, often: the answer must be the same each time.

        :param column: with the type that its values have without converters, and its declaration in the database
        """


@dataclass(frozen=True, slots=True)
class ConvertedColumn:
    """A column that a converter has accepted.

    :param table: of the column
    :param setting: the property that names the converter, for errors
    :param source: the column as the source has it
    :param column: the column as events have it
    """

    table: TableId
    setting: str
    source: Column
    column: Column
    conversion: Conversion

    def convert_values(self, values: pa.Array, absent: pa.BooleanArray | None = None) -> pa.Array:
        """Convert a column of rows.

        :param absent: mask of the rows that have no image; ``None`` = none
        :raises UnreadableValue: the converter fails, or gives other values than it has declared
        """
        import numpy as np
        import pyarrow as pa

        mask = np.asarray(values.is_valid())
        if absent is not None:
            mask &= ~np.asarray(absent)
        if not mask.any():
            return pa.nulls(len(values), arrow_type(self.column.type))
        if mask.all():
            return self._convert(values)
        index = pa.array(np.cumsum(mask) - 1, mask=~mask)
        return self._convert(values.filter(pa.array(mask))).take(index)

    def convert_text(self, text: str) -> str | None:
        """Convert a value that is written as text, such as a default. Returns ``None`` if the result cannot be written as text."""
        import pyarrow as pa

        source = self.source
        if source.type == "binary" or (source.semantic or "").endswith(_NOT_AS_WRITTEN):
            return None
        try:
            values = pa.array([text]).cast(arrow_type(source.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        try:
            return _format(self._convert(values)[0].as_py())
        except UnreadableValue as e:
            log.warning("The default of %s is left out. %s", e.where, e.message)
            return None

    def _convert(self, values: pa.Array) -> pa.Array:
        import pyarrow as pa

        try:
            result = self.conversion.convert(values)
        except CdcError:
            raise
        except Exception as e:
            raise self._unreadable(f"it raises {type(e).__name__}: {e}") from e
        if not isinstance(result, pa.Array) or str(result.type) != self.column.type:
            given = f"an array of {result.type}" if isinstance(result, pa.Array) else f"a {type(result).__name__}"
            raise self._unreadable(f"it returns {given} instead of an array of {self.column.type}")
        if len(result) != len(values):
            raise self._unreadable(f"it returns {len(result)} values for {len(values)}")
        if result.null_count and not self.column.nullable:
            raise self._unreadable("it returns null for a column that is NOT NULL")
        return result

    def _unreadable(self, why: str) -> UnreadableValue:
        error = UnreadableValue(
            f"The converter {self.setting} does not convert values of column {self.source.name}: {why}.",
            where=f"{self.table}.{self.source.name}",
            safe="No event of these rows was written.",
            remedy="correct the package with this entry point on the workers that run captures",
        )
        error.table = str(self.table)
        return error


class CustomConverters:
    """The converters of one connector. They are loaded when the first column is looked at.

    :param settings: name, type and options of each, as ``converters`` names them; if several accept a column, the first one counts
    """

    def __init__(self, settings: Sequence[Mapping[str, str]]) -> None:
        self._settings = settings
        self._loaded: list[tuple[str, ColumnConverter]] | None = None

    def find_converted_columns(self, schema: TableSchema) -> dict[str, ConvertedColumn]:
        """Map the names of columns that are converted to their conversions.

        :raises ConfigError: a converter cannot be loaded, or declares something that cannot be
        """
        if not self._settings:
            return {}
        found = (self._find(schema.id, column) for column in schema.columns if column.type != NOT_CAPTURED)
        return {converted.source.name: converted for converted in found if converted is not None}

    def _find(self, table: TableId, column: Column) -> ConvertedColumn | None:
        if self._loaded is None:
            self._loaded = [_load(settings) for settings in self._settings]
        for setting, converter in self._loaded:
            conversion = call_extension(
                f"{setting} for {table}.{column.name}", converter.find_conversion, table, column
            )
            if conversion is not None:
                return _convert_column(setting, table, column, conversion)
        return None


def _load(settings: Mapping[str, str]) -> tuple[str, ColumnConverter]:
    """Return the property that names a converter, as text, and the converter."""
    name, type_ = settings["name"], settings["type"]
    setting = f"{name}.type={type_}"
    make = load_extension(CONVERTERS, type_, setting)
    converter = call_extension(
        setting, make, {key: value for key, value in settings.items() if key not in ("name", "type")}
    )
    if not isinstance(converter, ColumnConverter):
        raise build_unusable_error(
            setting, f"it returns a {type(converter).__name__}, which is not a {ColumnConverter.__name__}"
        )
    return setting, converter


def _convert_column(setting: str, table: TableId, column: Column, conversion: Any) -> ConvertedColumn:
    """Check a conversion, and build the column as events have it.

    :raises ConfigError: it is not one
    """
    where = f"{setting} for {table}.{column.name}"
    if not isinstance(conversion, Conversion):
        raise build_unusable_error(
            where, f"find_conversion returns a {type(conversion).__name__}, which is not a Conversion"
        )
    decimal = _DECIMAL.fullmatch(conversion.type)
    if conversion.type not in _TYPES and not (decimal and int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1])):
        valid = ", ".join([*_TYPES, "decimal128(<digits>, <scale>)"])
        raise build_unusable_error(where, f"{conversion.type!r} is not a type of events. Valid types are: {valid}")
    semantic = _DECIMALS if decimal else _SEMANTICS.get(conversion.type)
    if semantic is not None and conversion.schema_name is not None:
        raise build_unusable_error(
            where, f"values of {conversion.type} have the schema {semantic} and cannot have another one"
        )
    parameters = {"scale": decimal[2], "connect.decimal.precision": decimal[1]} if decimal else {}
    declared = column.declared
    plain = ColumnDeclaration(
        comment=declared.comment, generated=declared.generated, auto_incremented=declared.auto_incremented,
        default_is_expression=declared.default_is_expression,
    )  # fmt: skip
    shown = Column(
        name=column.name, type=conversion.type, nullable=column.nullable or conversion.nullable, declared=plain,
        semantic=semantic or conversion.schema_name, parameters={**parameters, **conversion.parameters},
    )  # fmt: skip
    converted = ConvertedColumn(table, setting, column, shown, conversion)
    if declared.default is None or declared.default_is_expression:
        return converted
    default = converted.convert_text(declared.default)
    shown = shown.model_copy(update={"declared": plain.model_copy(update={"default": default})})
    return ConvertedColumn(table, setting, column, shown, conversion)


def _format(value: Any) -> str | None:
    """Format a value as text that a cast to its type understands. Returns ``None`` for null and for bytes."""
    match value:
        case bool():
            return str(int(value))
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.isoformat(sep=" ")
        case None | bytes():
            return None
    return str(value)
