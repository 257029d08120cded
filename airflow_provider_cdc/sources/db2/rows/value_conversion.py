"""Fetched values of one column as an Arrow array of its change log type."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.table_schema import Column, arrow_type
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.schema.type_mapping import BITS, Db2ColumnType
from airflow_provider_cdc.sources.relational.binary_mode_format import binary_text

Reader = Callable[[Sequence[Any]], pa.Array]

_DAY_US: Final = 86_400_000_000
_DAY_NS: Final = _DAY_US * 1000
_NUMBER: Final = re.compile(r"[+-]?[0-9.]+(?:E[+-]?[0-9]+)?")
_OTHER_HANDLING: Final = (
    "set decimal.handling.mode=string or double, which support such values, or exclude the column with "
    "column.exclude.list"
)


class UnreadableDb2Value(ValueError):
    """A value that the change log cannot represent.

    :param remedy: what helps
    """

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def reader_of(column: Column, config: Db2Config) -> Reader:
    """Return the function that makes an array of the fetched values of a column.

    The values are as :func:`.select_list.expression_of` selects them.
    """
    t, type_ = Db2ColumnType.from_column(column), arrow_type(column.type)
    if t.base in BITS:
        text = binary_text(config.binary_handling_mode)
        return partial(_bytes, type_=type_) if text is None or pa.types.is_binary(type_) else partial(_encoded, text)
    if t.base == "DECIMAL":
        return partial(_decimals, t, type_=type_)
    if t.base == "DECFLOAT":
        exact = column.semantic is not None
        return _doubles if pa.types.is_floating(type_) else partial(_decfloats, exact)
    if t.base == "BOOLEAN":
        return lambda values: pa.array(values, pa.int8()).cast(pa.bool_())
    if t.base == "TIME":
        return lambda values: pc.multiply(pa.array(values, pa.int64()), 1_000_000)
    if t.base == "TIMESTAMP":
        return _long_texts if pa.types.is_string(type_) else partial(_timestamps, type_=type_)
    return lambda values: pa.array(values, type_)


def _bytes(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    return pa.array(values, type_)


def _encoded(text: Callable[[bytes], str], values: Sequence[Any]) -> pa.Array:
    return pa.array([None if v is None else text(bytes(v)) for v in values], pa.string())


def _decimals(t: Db2ColumnType, values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Decimals, which the driver gives as text."""
    texts = _number_texts(values)
    if pa.types.is_string(type_):
        return texts
    if pa.types.is_floating(type_):
        return texts.cast(type_)
    return texts.cast(pa.decimal128(t.length or 5, t.scale or 0)).cast(type_)


def _number_texts(values: Sequence[Any]) -> pa.Array:
    """Convert decimals to text, with digits before the point, whichever program has written them."""
    if Decimal in {*map(type, values)}:
        values = [None if v is None else f"{v:f}" for v in values]
    texts = pa.array(values, pa.string())
    if pc.any(pc.match_substring_regex(texts, r"^[+-]?\.|\s|,")).as_py():
        texts = pc.replace_substring(pc.utf8_trim_whitespace(texts), ",", ".")
        texts = pc.replace_substring_regex(texts, r"^([+-]?)\.", r"\10.")
    return texts


def _decfloats(exact: bool, values: Sequence[Any]) -> pa.Array:
    """``DECFLOAT`` from the database's text; the same number always has the same text.

    :param exact: NaN and infinities, which are no decimals, are an error
    """
    return pa.array([None if v is None else _canonical(str(v).strip(), exact=exact) for v in values], pa.string())


def _canonical(text: str, *, exact: bool) -> str:
    if not _NUMBER.fullmatch(text.upper()):
        if not exact:
            return text
        raise UnreadableDb2Value(f"{text} is not a decimal number", _OTHER_HANDLING)
    plain = f"{Decimal(text):f}"
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return "0" if plain in ("-0", "") else plain


def _doubles(values: Sequence[Any]) -> pa.Array:
    """``DECFLOAT`` as floating point; both kinds of NaN are NaN."""
    return pa.array([None if v is None else _double(str(v)) for v in values], pa.float64())


def _double(text: str) -> float:
    bare = text.strip().upper()
    return float("nan") if "NAN" in bare else float(bare)


def _timestamps(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Timestamps from text; the hour 24 is the beginning of the next day."""
    texts = pa.array(values, pa.string())
    late = pc.match_substring(texts, " 24:")
    if not pc.any(late).as_py():
        return texts.cast(type_)
    moments = pc.replace_substring(texts, " 24:", " 00:").cast(type_).view(pa.int64())
    day = _DAY_NS if type_.unit == "ns" else _DAY_US
    return pc.add(moments, pc.if_else(late, pa.scalar(day), pa.scalar(0))).view(type_)


def _long_texts(values: Sequence[Any]) -> pa.Array:
    """Timestamps with more digits than any type has, in the form of ISO 8601."""
    texts = pa.array(values, pa.string())
    late = pc.match_substring(texts, " 24:")
    if pc.any(late).as_py():
        rest = pc.utf8_slice_codeunits(texts, 10)
        days = pc.utf8_slice_codeunits(texts, 0, 10).cast(pa.date32()).cast(pa.int32())
        moved = pc.add(days, pc.if_else(late, pa.scalar(1, pa.int32()), pa.scalar(0, pa.int32()))).cast(pa.date32())
        texts = pc.binary_join_element_wise(moved.cast(pa.string()), pc.replace_substring(rest, " 24:", " 00:"), "")
    return pc.replace_substring(texts, " ", "T")
