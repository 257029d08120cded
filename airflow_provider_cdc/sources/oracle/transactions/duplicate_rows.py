"""Finds rows that LogMiner returns twice."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import SELECT_LOB_LOCATOR

log = logging.getLogger(__name__)

Int64s = npt.NDArray[np.int64]


def find_duplicates(rows: pa.Table, serials: Int64s, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mask of rows that repeat an earlier row, as when a log was added under two names.

    ``RS_ID`` and ``SSN`` together identify a change (Oracle Database Reference, "V$LOGMNR_CONTENTS"). The pieces of a long value are of one
    change and have different texts. Locators without a text repeat, and twice is as good as once.

    :param serials: per row, the transaction
    :param mask: mask of the rows to compare
    """
    again = np.zeros(rows.num_rows, np.bool_)
    scns = rows.column("scn").to_numpy()
    same = np.append(False, np.diff(scns) == 0)
    locator = (rows.column("code").to_numpy() == SELECT_LOB_LOCATOR) & rows.column("sql").is_null().to_numpy()
    near = np.flatnonzero((same | np.append(same[1:], False)) & mask & ~locator)
    if len(near) < 2:
        return again
    part = rows.take(pa.array(near))
    keys = [
        scns[near],
        serials[near],
        part.column("ssn").to_numpy(),
        part.column("thread").to_numpy(),
        part.column("code").to_numpy(),
    ]
    for name in ("rs_id", "row_id", "sql"):
        codes = part.column(name).combine_chunks().dictionary_encode().indices
        keys.append(codes.fill_null(-1).to_numpy(zero_copy_only=False))
    order = np.lexsort(keys)
    alike = np.ones(len(near) - 1, np.bool_)
    for key in keys:
        alike &= np.diff(key[order]) == 0
    again[near[order[1:][alike]]] = True
    if again.any():
        log.warning("LogMiner returned %d rows twice, from SCN %d on; they are used once.", again.sum(), scns[again][0])
    return again
