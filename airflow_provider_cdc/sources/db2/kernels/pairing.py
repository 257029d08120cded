"""Pairs of change table rows that are one update: a delete directly followed by an insert of the same transaction.

The agent writes an update as such a pair where the table is registered with ``CHG_UPD_TO_DEL_INS`` = ``Y``. A delete of one row and an insert
of another one look the same; if their keys differ, the update becomes a delete and a create again (spec DB2-395, DB2-397).
"""
# mypy: disable-error-code="assignment, arg-type, return-value, no-any-return"

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE
from airflow_provider_cdc.sources.jit import jit

NONE: Final = -1

_I: Final = ord("I")
_U: Final = ord("U")
_D: Final = ord("D")


@jit
def pair_rows(
    commits: npt.NDArray[np.uint64], letters: npt.NDArray[np.uint8], pairs: bool, ops: npt.NDArray[np.int8],
    before: npt.NDArray[np.int64], after: npt.NDArray[np.int64],
) -> int:  # fmt: skip
    """Find the events of the rows of one change table, which are in order.

    :param commits: ``[row, word]``, ``IBMSNAP_COMMITSEQ``
    :param letters: ``IBMSNAP_OPERATION``, a byte each
    :param pairs: a delete followed by an insert is an update
    :param ops: room for one operation per row, in the codes of ``core.model.log_items``; likewise ``before`` and ``after``
    :param before: row of the image before, :data:`NONE` without one; of a ``U`` row, the row itself
    :param after: row of the image after
    :return: how many events there are; of an unknown letter, ``-1 -`` its row
    """
    count, row, rows, words = 0, 0, len(letters), commits.shape[1]
    while row < rows:
        letter = letters[row]
        if letter == _I:
            ops[count], before[count], after[count] = CREATE, NONE, row
        elif letter == _U:
            ops[count], before[count], after[count] = UPDATE, row, row
        elif letter == _D:
            ops[count], before[count], after[count] = DELETE, row, NONE
            if pairs and row + 1 < rows and letters[row + 1] == _I:
                same = True
                for w in range(words):
                    same = same and commits[row, w] == commits[row + 1, w]
                if same:
                    ops[count], after[count] = UPDATE, row + 1
                    row += 1
        else:
            return -1 - row
        count += 1
        row += 1
    return count
