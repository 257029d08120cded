"""What is known of a transaction while its long values are put together (:mod:`.lobs`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.sources.oracle.redo.long_value import LongValue


@dataclass(slots=True, eq=False)
class Row:
    """What a transaction has done to a row so far.

    :param history: places of the inserts and updates, and (column, value) of long values, oldest first
    :param event: the output row that the last of them went to
    :param key: its number for the row's key, -1 when it has none
    """

    history: list[Any] = field(default_factory=list)
    event: Event | None = None
    deleted: bool = False
    key: int = -1


@dataclass(slots=True, eq=False)
class Event:
    """An output row.

    :param image: where its images are in :class:`.images.Images`
    :param values: long values that replace those of the image: a :class:`LongValue`, bytes, ``None``, :data:`UNAVAILABLE`, or
        the place of the image that has it
    """

    origin: int
    image: int
    op: int
    row: Row
    values: dict[int, Any] = field(default_factory=dict)
    listed: bool = False


@dataclass(slots=True, eq=False)
class Group:
    """A value that has begun; ``column`` is -1 when nobody wants it.

    :param before: the output row that the row's last change went to
    """

    kind: str
    column: int
    text: str
    event: Event
    before: Event | None
    value: LongValue
    parts: list[Any] = field(default_factory=list)
    in_place: bool = False
    touched: bool = False
    ended: bool = False


@dataclass(slots=True, eq=False)
class Transaction:
    """What is known of a transaction.

    :param rows: by key
    :param open: the output row of a statement whose last row may not have come yet
    :param last: the output row of the last change
    :param unnamed: output rows of changes whose row is known by neither key nor row id
    """

    rows: dict[int, Row] = field(default_factory=dict)
    by_row_id: dict[str, Row] = field(default_factory=dict)
    open: Event | None = None
    last: Event | None = None
    unnamed: list[Event] = field(default_factory=list)
    group: Group | None = None
