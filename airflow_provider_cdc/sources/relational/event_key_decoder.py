"""Errors of chunk readers and snapshots of relational databases, in the same words for all of them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar

from airflow_provider_cdc.core.config.property_enums import BinaryHandling
from airflow_provider_cdc.core.errors import CdcError, QueryRejected
from airflow_provider_cdc.core.model.key_json import Key
from airflow_provider_cdc.core.model.table_schema import Column, TableId

_EXACT_DIGITS: Final = 15
"""Digits of a decimal that a double keeps."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")

_Column = TypeVar("_Column")


class IrreversibleKey(ValueError):
    """The key of a row is not known from the key of its events; the text says why."""


def keys_of_rows(
    table: TableId, columns: Sequence[_Column], keys: Sequence[Key], undone: Callable[[_Column, Any], Any]
) -> list[Key]:
    """Keys of events as keys of rows.

    :param columns: of the key, in its order
    :param undone: gives the database's value of a column for the one that events have; may raise :class:`IrreversibleKey`
    :raises QueryRejected: a key may be that of several rows
    """
    try:
        return [[undone(column, value) for column, value in zip(columns, key, strict=True)] for key in keys]
    except IrreversibleKey as e:
        raise QueryRejected(
            f"The key of a row of {table} cannot be derived from the key of its event: {e}.",
            where=str(table),
            safe="No row of the range was read; capture continues.",
            remedy="snapshot the whole table: send the signal again without key-ranges",
        ) from None


def key_decimal(column: Column, value: Any, precision: int | None, scale: int) -> Any:
    """Convert a decimal number of a key, from the form that events have.

    :param precision: digits that the database keeps; ``None`` = more than a double does
    :param scale: of them behind the point
    :raises IrreversibleKey: the value is a double that may stand for several numbers, or no number
    """
    if column.type == "double":
        if precision is None or precision > _EXACT_DIGITS:
            raise IrreversibleKey(f"decimal.handling.mode=double does not keep all digits of {column.name}")
        return f"{round(Decimal(repr(value)), scale):f}"
    if not _NUMBER.fullmatch(str(value)):
        raise IrreversibleKey(f"{value!r} of {column.name} is not a decimal number")
    return value


def key_bytes(column: Column, value: str, mode: BinaryHandling) -> bytes:
    """Bytes of a key, from the form that events have.

    :param mode: ``binary.handling.mode`` of the connector; columns of bytes are in base64 whatever it is
    :raises IrreversibleKey: the text is not of this form
    """
    mode = BinaryHandling.BASE64 if column.type == "binary" else mode
    try:
        if mode is BinaryHandling.HEX:
            return bytes.fromhex(value)
        altchars = b"-_" if mode is BinaryHandling.BASE64_URL_SAFE else None
        return base64.b64decode(value, altchars, validate=True)
    except (binascii.Error, ValueError):
        raise IrreversibleKey(
            f"{value!r} of {column.name} does not have the format of binary.handling.mode={mode.value}"
        ) from None


def build_query_refused(problem: str, why: str, statement: str) -> QueryRejected:
    """Return the error for a user's statement or condition that the database refuses.

    :param why: the database's message
    """
    return QueryRejected(
        f"{problem}: {why}",
        where=statement,
        safe="None of its rows is captured; capture continues.",
        remedy="run the statement in a SQL client as the capture user, correct it, and send the signal again",
    )


def no_watermark(error: CdcError, signals: TableId, remedy: str) -> QueryRejected:
    """Return the error for a signal table that takes no watermark."""
    return QueryRejected(
        f"The watermark cannot be written to the signal table: {error.message}",
        where=str(signals),
        safe="None of the chunk's rows is captured; capture continues.",
        remedy=remedy,
    )
