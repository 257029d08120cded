"""Long values that have begun and may continue in the next window.

LogMiner knows a piece of a LOB, an XML document or a long string by the rows before it, and begins each window afresh. So the next window
begins where such a value began; rows that were read are passed over.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import FIRST_PIECE, LAST_CHANGE, UNSUPPORTED


class UnfinishedValues:
    """The beginnings of the long values that a window may have cut."""

    def __init__(self) -> None:
        self._begins: dict[int, int] = {}
        self._written: set[int] = set()

    def add_changes(self, changes: pa.Table) -> None:
        """Note the next rows of a window.

        :param changes: columns ``tx``, ``code`` and ``scn`` of :data:`airflow_provider_cdc.sources.oracle.transactions.buffer.row_segments.ROWS`, in log order
        """
        codes = changes.column("code").to_numpy()
        pieces = (codes >= FIRST_PIECE) & (codes != UNSUPPORTED)
        if not (pieces.any() or self._begins):
            return
        serials, scns = changes.column("tx").to_numpy(), changes.column("scn").to_numpy()
        for serial in np.unique(serials).tolist():
            of_one = np.flatnonzero(serials == serial)
            self._written.add(serial)
            if not pieces[of_one[-1]]:
                self._begins.pop(serial, None)
                continue
            others = of_one[~pieces[of_one]]
            begin = others[-1] if len(others) and codes[others[-1]] <= LAST_CHANGE else None
            if begin is not None:
                self._begins[serial] = int(scns[begin])
            else:
                self._begins.setdefault(serial, int(scns[of_one[0]]))

    def end_window(self) -> None:
        """Keep those to which the window has written: a statement writes its values without a pause."""
        self._begins = {serial: scn for serial, scn in self._begins.items() if serial in self._written}
        self._written = set()

    def discard_transactions(self, serials: list[int]) -> None:
        """Forget transactions that ended, or that are read again."""
        for serial in serials:
            self._begins.pop(serial, None)

    def restore_scn(self, low: int | None) -> None:
        """Begin behind a window of another stream.

        :param low: its :meth:`find_first_scn`
        """
        if low is not None:
            self._begins[-1] = low

    def find_first_scn(self) -> int | None:
        """SCN at which the first one began; ``None`` without one."""
        return min(self._begins.values(), default=None)
