"""Reads the rows of one change table in a window, and makes changes of them, some thousand at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import SourceBusy, SourceLogDamaged, UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import UPDATE
from airflow_provider_cdc.sources.db2.connect import Db2Error
from airflow_provider_cdc.sources.db2.error_translation import NO_COLUMN, UNDEFINED
from airflow_provider_cdc.sources.db2.kernels.merge_order import first_descending
from airflow_provider_cdc.sources.db2.kernels.pairing import NONE, pair_rows
from airflow_provider_cdc.sources.db2.log.change_table_layout import ChangeTableLayout
from airflow_provider_cdc.sources.db2.log.connector_registrations import change_table_gone
from airflow_provider_cdc.sources.db2.log.cursor_pool import CursorPool
from airflow_provider_cdc.sources.db2.log.lsn_arrays import LsnArray
from airflow_provider_cdc.sources.db2.log.ordered_table_changes import ChangeArrays, Mask
from airflow_provider_cdc.sources.db2.position import lsn_sort_key, lsn_text
from airflow_provider_cdc.sources.db2.rows.select_list import columns_of

FIRST_ROWS: Final = 1000
"""Rows of the first fetch, from which the size of rows is known."""
FIRST_LOB_ROWS: Final = 50
"""Likewise, where LOBs are read for each row."""
FETCH_ROWS: Final = 10_000
FETCH_BYTES: Final = 8 << 20
LEAST_ROWS: Final = 20
_LETTERS: Final = frozenset("IUD")

FillLobs = Callable[[ChangeArrays, ChangeTableLayout, Mask], ChangeArrays]
"""Gives changes the LOBs that change tables do not have: changes, layout, ``bool[lob, change]``: those that a change has changed."""


class ChangeTableReader:
    """The changes of one table in a window; a :class:`.change_merger.ChangeRun`.

    :param start: commits after this LSN, up to and with ``end``
    :param fill_lobs: see :data:`FillLobs`
    :param most_rows: most rows that are fetched at once
    :param connector: its name, for the commands in errors
    :ivar more: whether there may be more changes
    :ivar rows: rows that were fetched so far
    """

    def __init__(
        self,
        layout: ChangeTableLayout,
        start: bytes,
        end: bytes,
        cursors: CursorPool,
        fill_lobs: FillLobs,
        most_rows: int = FETCH_ROWS,
        *,
        connector: str,
    ) -> None:
        self._layout, self._start, self._end = layout, start, end
        self._cursors, self._fill_lobs, self._connector = cursors, fill_lobs, connector
        self._most, self._size = most_rows, min(FIRST_LOB_ROWS if layout.lobs else FIRST_ROWS, most_rows)
        self._after: tuple[bytes, bytes] | None = None
        self._held: list[tuple[Any, ...]] = []  # a delete that the next row may make an update of
        self.more, self.rows = True, 0

    def query(self) -> tuple[str, tuple[Any, ...]]:
        return self._layout.query(self._start, self._end, self._after)

    def fetch_changes(self) -> ChangeArrays | None:
        """Fetch the next changes, in order.

        :raises UnknownLogEvent: a row has an operation that is not known
        :raises SourceLogDamaged: rows are not in order
        """
        while self.more:
            rows, self._held = self._held + self._next(), []
            at_end = not self.more
            if rows and not at_end and rows[-1][2] == "D" and self._layout.registration.pairs:
                self._held = [rows.pop()]
            if rows:
                return self._changes(rows)
        return None

    def _next(self) -> list[tuple[Any, ...]]:
        try:
            fetched = self._cursors.fetch_rows(self, self._size)
        except Db2Error as e:
            if e.code in UNDEFINED:
                where = self._where(self._start)
                raise change_table_gone(self._layout.registration, where, self._connector) from e
            if e.code in NO_COLUMN:
                raise SourceBusy(
                    f"The change table {self._layout.registration.change_table_name} was altered during the read.",
                    where=self._where(self._start),
                    safe="Everything up to the position is captured; the offset is untouched.",
                    remedy="a retry reads it with its current structure",
                ) from e
            raise
        self.more = len(fetched) == self._size
        if fetched:
            self.rows += len(fetched)
            self._after = (bytes(fetched[-1][0]), bytes(fetched[-1][1]))
        # where lengths of LSNs differ, the database may place an equal LSN after the position
        return fetched[
            sum(
                1
                for _ in itertools.takewhile(
                    lambda row: lsn_sort_key(bytes(row[0])) <= lsn_sort_key(self._start), fetched
                )
            ) :
        ]

    def _changes(self, rows: list[tuple[Any, ...]]) -> ChangeArrays:
        n, layout = len(rows), self._layout
        fetched = columns_of(rows)
        commit, intent = LsnArray.from_bytes(fetched[0]), LsnArray.from_bytes(fetched[1])
        self._check_order(commit, intent)
        ops, before, after = self._paired(commit, fetched[2])
        row = np.where(after == NONE, before, after)
        values = layout.values.build_struct(layout.values_of(fetched), n)
        old = layout.before.build_struct(layout.before_of(fetched), n) if layout.before is not None else None
        alone = (ops == UPDATE) & (before == after)  # updates that came as one row
        before = np.where(alone, NONE if old is None else before + n, before)
        changes = ChangeArrays(
            table=layout.schema,
            commit=commit if len(row) == n else commit[row],
            intent=intent if len(row) == n else intent[row],
            op=ops,
            before=_image(before, values if old is None else pa.concat_arrays([values, old])),
            after=_image(after, values),
            unavailable_before=self._lacking(ops, alone, before),
            unavailable_after=_mask(layout.values.build_unavailable_mask(len(row)), after != NONE),
        )
        if layout.lobs:
            changes = self._fill_lobs(changes, layout, layout.changed_lobs(fetched, n)[:, row])
        fits = FETCH_BYTES * n // max(changes.image_bytes, 1)
        self._size = max(min(LEAST_ROWS, self._most), min(self._most, fits))
        return changes

    def _paired(
        self, commit: LsnArray, letters: Sequence[Any]
    ) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Operation, row of the image before and row of the image after of each change."""
        n = len(commit)
        if set(letters) <= _LETTERS:
            codes = np.frombuffer("".join(letters).encode(), np.uint8)
        else:
            codes = np.array([ord(letter) if letter in _LETTERS else 0 for letter in letters], np.uint8)
        ops, before, after = np.empty(n, np.int8), np.empty(n, np.int64), np.empty(n, np.int64)
        count = pair_rows(commit.words, codes, self._layout.registration.pairs, ops, before, after)
        if count < 0:
            at = -1 - count
            error = UnknownLogEvent(
                f"A row of the change table {self._layout.registration.change_table_name} has the unknown "
                f"operation {letters[at]!r}.",
                where=self._where(commit.bytes_at(at)),
                safe="Everything up to the previous transaction is captured.",
                remedy="inspect the row in the change table; if a program other than the capture agent has written "
                "it, delete it",
            )
            error.table = str(self._layout.schema.id)
            raise error
        return ops[:count], before[:count], after[:count]

    def _lacking(
        self, ops: npt.NDArray[np.int8], alone: npt.NDArray[np.bool_], before: npt.NDArray[np.int64]
    ) -> Mask | None:
        """``unavailable_before``."""
        layout, n = self._layout, len(ops)
        absent = _mask(layout.values.build_unavailable_mask(n), (before != NONE) & ~alone)
        if layout.before is None:
            return absent
        of_updates = _mask(layout.before.build_unavailable_mask(n), alone)
        if absent is None or of_updates is None:
            return absent if of_updates is None else of_updates
        return absent | of_updates

    def _check_order(self, commit: LsnArray, intent: LsnArray) -> None:
        at = first_descending(np.hstack([commit.words, intent.words]))
        if at >= 0:
            raise SourceLogDamaged(
                "The database returned rows of the change table "
                f"{self._layout.registration.change_table_name} that are not in the byte order of their LSNs.",
                where=self._where(commit.bytes_at(at)),
                safe="Everything up to the previous transaction is captured.",
                remedy="check that IBMSNAP_COMMITSEQ and IBMSNAP_INTENTSEQ of the change table are FOR BIT DATA",
            )

    def _where(self, lsn: bytes) -> str:
        return f"{self._layout.schema.id}, LSN {lsn_text(lsn)}"


def _image(row: npt.NDArray[np.int64], values: pa.StructArray) -> pa.StructArray | None:
    """Return the images of the given rows; null where there is none."""
    none = row == NONE
    if none.all():
        return None
    if len(row) == len(values) and not none.any() and (np.diff(row) == 1).all():
        return values
    return values.take(pa.array(row, mask=none if none.any() else None))


def _mask(absent: Mask | None, has_image: npt.NDArray[np.bool_]) -> Mask | None:
    return None if absent is None or not has_image.any() else absent & has_image
