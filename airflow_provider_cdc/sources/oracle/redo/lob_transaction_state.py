"""State of a transaction while its long values are assembled (:mod:`.lob_assembler`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.sources.oracle.redo.long_value import LongValue


@dataclass(slots=True, eq=False)
class ChangedRow:
    """The changes of a transaction to one table row so far.

    :param history: indices of its inserts and updates, and (column, value) of its long values, oldest first
    :param event: the output row of the last of them
    :param deleted: the last change was a delete
    :param key: number of its key, see :class:`.row_image_matching.RowImages`; -1 without a key
    """

    history: list[Any] = field(default_factory=list)
    event: OutputRow | None = None
    deleted: bool = False
    key: int = -1


@dataclass(slots=True, eq=False)
class OutputRow:
    """An output row.

    :param origin: index of its first log row
    :param named: index of a log row that has its ROWID; -1 if there is none
    :param image: index of its images in :class:`.row_image_matching.RowImages`
    :param op: operation code of ``core.model.log_items``
    :param values: column → long value that replaces the image's: a :class:`LongValue`, bytes, ``None``, :data:`UNAVAILABLE`, or the index
        of the image that has the value
    :param listed: it was added to the output
    """

    origin: int
    image: int
    op: int
    row: ChangedRow
    values: dict[int, Any] = field(default_factory=dict)
    listed: bool = False
    named: int = -1


@dataclass(slots=True, eq=False)
class OpenLongValue:
    """A long value that has begun and not ended.

    :param kind: ``CLOB``, ``NCLOB``, ``BLOB``, ``XML`` or ``STRING``
    :param column: index of its column; -1 if that is not captured
    :param image: index of the image that its beginning has
    :param text: the statement that begins it, for errors
    :param event: the output row that it belongs to
    :param before: the output row of the previous change of the same table row
    :param parts: pieces of an XML document or long string
    :param in_place: ``DBMS_LOB`` changes an existing value
    :param touched: it has pieces
    :param ended: its end was read
    """

    kind: str
    column: int
    image: int
    text: str
    event: OutputRow
    before: OutputRow | None
    value: LongValue
    parts: list[Any] = field(default_factory=list)
    in_place: bool = False
    touched: bool = False
    ended: bool = False


@dataclass(slots=True, eq=False)
class LobTransaction:
    """State of a transaction.

    :param rows: table rows by number of the key
    :param by_row_id: table rows by ROWID
    :param open: the output row of a statement whose last log row may still follow
    :param last: the output row of the last change
    :param newest: the output row of the last log row
    :param locator: index and ROWID of a locator without a text, whose first piece is still to come
    :param unnamed: output rows whose table row has neither a known key nor a ROWID
    :param group: the long value that began last
    """

    rows: dict[int, ChangedRow] = field(default_factory=dict)
    by_row_id: dict[str, ChangedRow] = field(default_factory=dict)
    open: OutputRow | None = None
    last: OutputRow | None = None
    newest: OutputRow | None = None
    locator: tuple[int, str | None] | None = None
    unnamed: list[OutputRow] = field(default_factory=list)
    group: OpenLongValue | None = None
