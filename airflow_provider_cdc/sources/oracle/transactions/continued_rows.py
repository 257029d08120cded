"""Joins redo statements that continue in the next rows.

``SQL_REDO`` holds 4,000 bytes. A longer statement continues in the rows that follow immediately; all but the last have ``CSF = 1``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.core.errors import SourceLogDamaged


class ContinuationJoiner:
    """Joins continuation rows, also across batches."""

    def __init__(self) -> None:
        self._waiting: pa.Table | None = None

    def join_rows(self, batch: pa.Table) -> pa.Table:
        """Rows with complete statements. Rows that continue in the next batch are held back.

        :raises SourceLogDamaged: a statement continues in a row of another change
        """
        if self._waiting is not None:
            batch = pa.concat_tables([self._waiting, batch])
            self._waiting = None
        goes_on = batch.column("csf").to_numpy()
        if not goes_on.any():
            return batch
        complete = np.flatnonzero(~goes_on)
        count = int(complete[-1]) + 1 if len(complete) else 0
        if count < batch.num_rows:
            self._waiting, batch = batch.slice(count), batch.slice(0, count)
            goes_on = goes_on[:count]
            if not count:
                return batch
        begins = np.append(True, ~goes_on[:-1])
        first = np.flatnonzero(begins)
        _same_change(batch, first[np.cumsum(begins) - 1])
        offsets = pa.array(np.append(first, len(goes_on)))
        parts = pa.LargeListArray.from_arrays(offsets, batch.column("sql").combine_chunks().fill_null(""))
        texts = pc.binary_join(parts, pa.scalar("", pa.large_string()))
        joined = batch.take(pa.array(first))
        return joined.set_column(joined.schema.get_field_index("sql"), "sql", texts)

    def check_complete(self) -> None:
        """Check that no row is held back at the end of a window.

        :raises SourceLogDamaged: the continuation of a statement is missing
        """
        if self._waiting is not None:
            raise _damaged("the next row is missing", self._waiting.column("scn")[0])


def _same_change(batch: pa.Table, first: npt.NDArray[np.int64]) -> None:
    xids = batch.column("xid").combine_chunks().dictionary_encode()
    index = xids.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    codes = batch.column("code").to_numpy()
    wrong = (index != index[first]) | (codes != codes[first])
    if wrong.any():
        raise _damaged("the next row belongs to another change", batch.column("scn")[int(np.argmax(wrong))])


def _damaged(problem: str, scn: object) -> SourceLogDamaged:
    return SourceLogDamaged(
        f"A redo statement continues in the next row (CSF = 1), but {problem}.",
        where=f"SCN {scn}",
        safe="Everything before this statement is captured.",
        remedy="run the capture again; if the error persists, check the database's alert log",
    )
