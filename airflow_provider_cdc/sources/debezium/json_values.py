"""JSON values → Arrow arrays: the inverse of :func:`airflow_provider_cdc.changelog.debezium.debezium_values.build_converter`."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.model.table_schema import GEOMETRY, Column, arrow_type
from airflow_provider_cdc.sources.debezium.schema_columns import DECIMAL, JSON, VARIABLE_SCALE, unscaled_from_base64
from airflow_provider_cdc.sources.debezium.schema_inference import format_value

MISSING: Final = object()
"""The event does not have the value at all."""
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_NO_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
Mask = npt.NDArray[np.bool_]


class InvalidColumnValue(ValueError):
    """A value is not one of its column.

    :ivar row: which one
    """

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


class JsonColumnConverter:
    """Makes arrays of the values of one column.

    :param placeholder: ``unavailable.value.placeholder``
    """

    def __init__(self, column: Column, placeholder: str) -> None:
        self._column, self._type = column, arrow_type(column.type)
        self._make = _maker(column)
        texts = {placeholder, _json([placeholder]), _json({placeholder: placeholder})}
        data = placeholder.encode()
        encoded = {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()}
        self._placeholders = pa.array(sorted(texts | encoded)) if column.type == "string" else None
        self._bytes = pa.scalar(data, pa.binary()) if column.type == "binary" else None

    def convert_values(self, values: list[Any]) -> tuple[pa.Array, Mask | None]:
        """Build the array, and a mask of the values that the event does not have; ``None``: it has all.

        :raises InvalidColumnValue: a value is not one of the column
        """
        missing: Mask | None = None
        if any(value is MISSING for value in values):
            missing = np.fromiter((value is MISSING for value in values), np.bool_, len(values))
            values = [None if value is MISSING else value for value in values]
        array = self._array(values)
        lacking = self._lacking(array)
        if lacking is not None:
            array = pc.if_else(pa.array(lacking), pa.scalar(None, array.type), array)
            missing = lacking if missing is None else missing | lacking
        return array, missing

    def _array(self, values: list[Any]) -> pa.Array:
        try:
            return self._make(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError, ArithmeticError):
            pass
        for row, value in enumerate(
            values
        ):  # numbers may be written as texts; the error names the first value that is no number
            try:
                if isinstance(value, str) and pa.types.is_integer(self._type):
                    values[row] = int(value)
                self._make([values[row]])
            except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError, ArithmeticError) as e:
                raise InvalidColumnValue(row, f"{_shown(value)} is not a {self._column.type}: {e}") from None
        return self._make(values)

    def _lacking(self, array: pa.Array) -> Mask | None:
        if self._placeholders is not None:
            is_placeholder = pc.is_in(array, self._placeholders)
        elif self._bytes is not None:
            is_placeholder = pc.fill_null(pc.equal(array, self._bytes), fill_value=False)
        else:
            return None
        mask: Mask = is_placeholder.to_numpy(zero_copy_only=False)
        return mask if mask.any() else None


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 60 else f"{shown[:60]}…"


_Make = Callable[[list[Any]], pa.Array]


def _maker(column: Column) -> _Make:
    """Return the function that makes an array of a column's JSON values, without looking twice."""
    type_, semantic = arrow_type(column.type), column.semantic or ""
    if semantic == DECIMAL:
        scale = int(column.parameters.get("scale", 0))
        if pa.types.is_decimal(type_):
            return lambda values: _decimals(values, type_, -min(scale, 0))
        return lambda values: pa.array(
            [None if v is None else _plain(unscaled_from_base64(v), scale) for v in values], type_
        )
    if semantic == VARIABLE_SCALE:
        return lambda values: pa.array(
            [None if v is None else _plain(unscaled_from_base64(v["value"]), v["scale"]) for v in values], type_
        )
    if column.type == GEOMETRY:
        return lambda values: pa.array([None if v is None else _geometry(v) for v in values], type_)
    if pa.types.is_date(type_):
        return lambda values: pa.array(values, pa.int32()).view(type_)
    if pa.types.is_timestamp(type_):
        return _moments(type_, semantic)
    if semantic.endswith(".Time"):
        return lambda values: pc.multiply_checked(pa.array(values, pa.int64()), 1000)
    if pa.types.is_binary(type_):
        return lambda values: pa.array(
            [None if v is None else base64.b64decode(v, validate=True) for v in values], type_
        )
    if pa.types.is_floating(type_):
        return lambda values: _floats(values, type_)
    if pa.types.is_decimal(type_):  # without a schema
        return lambda values: pa.array([None if v is None else Decimal(v) for v in values], type_)
    if semantic == JSON:
        return lambda values: pa.array(list(map(format_value, values)), type_)
    if pa.types.is_list(type_):
        return lambda values: pa.array([None if v is None else list(map(_number, v)) for v in values], type_)
    return lambda values: pa.array(values, type_)


def _moments(type_: pa.DataType, semantic: str) -> _Make:
    if type_.tz is not None:
        return lambda values: pa.array(values, pa.string()).cast(type_)
    factor = 1000 if semantic.endswith(".Timestamp") else 1
    if factor == 1:
        return lambda values: pa.array(values, pa.int64()).view(type_)
    return lambda values: pc.multiply_checked(pa.array(values, pa.int64()), factor).view(type_)


def _decimals(values: list[Any], type_: pa.DataType, zeros: int) -> pa.Array:
    """Decimals from the bytes of their unscaled values.

    :param zeros: that come behind them: a negative scale
    """
    limit, factor = 10**type_.precision, 10**zeros
    data, valid = bytearray(), np.empty(len(values), np.bool_)
    b64, number = binascii.a2b_base64, int.from_bytes
    for row, value in enumerate(values):
        valid[row] = value is not None
        unscaled = 0 if value is None else number(b64(value), "big", signed=True) * factor
        if not -limit < unscaled < limit:
            raise ValueError(f"it has more than {type_.precision} digits")
        data += unscaled.to_bytes(16, "little", signed=True)
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(type_, len(values), [bitmap, pa.py_buffer(bytes(data))])


def _plain(number: int, scale: int) -> str:
    return f"{Decimal(number).scaleb(-scale, _EXACT):f}"


def _number(value: Any) -> float:
    return _NO_NUMBERS[value] if isinstance(value, str) else value


def _floats(values: list[Any], type_: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, TypeError):
        return pa.array([None if v is None else _number(v) for v in values], type_)


def _geometry(value: dict[str, Any]) -> dict[str, Any]:
    """Decode a geometry. A point may come without its bytes."""
    if value.get("wkb") is None:
        wkb = struct.pack("<BIdd", 1, 1, value["x"], value["y"])
    else:
        wkb = base64.b64decode(value["wkb"])
    return {"wkb": wkb, "srid": value.get("srid")}


def expand_images(arrays: Sequence[pa.Array], type_: pa.StructType, index: npt.NDArray[np.int64]) -> pa.StructArray:
    """Images of rows that have one, as images of all rows.

    :param index: for each row, which of the images it has; -1: none
    """
    images = pa.StructArray.from_arrays(list(arrays), fields=list(type_))
    if len(images) == len(index):
        return images
    return images.take(pa.array(index, mask=index < 0))
