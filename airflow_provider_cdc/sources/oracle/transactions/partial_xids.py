"""Completes XIDs that LogMiner gives without their sequence number.

Rows that a rollback has written, and the ``ROLLBACK`` itself, may have the sequence 0xFFFFFFFF. They are of the transaction that is open
in their slot of the undo segment at that place in the log: a slot has one open transaction at a time.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.sources.oracle.kernels.operation_codes import COMMIT, ROLLBACK

PARTIAL = b"\xff\xff\xff\xff"
"""Last four bytes of an XID without a sequence number."""


def complete_xids(xids: pa.Array, codes: npt.NDArray[np.int16], open_xids: Collection[bytes]) -> pa.Array:
    """Return the XIDs, complete where the transaction is known.

    :param xids: binary, in log order
    :param codes: operation codes
    :param open_xids: XIDs of the transactions that are open before the first row
    """
    short = pc.equal(pc.binary_slice(xids, 4, 8), PARTIAL)
    if not pc.any(short).as_py():
        return xids
    slots = pc.binary_slice(xids, 0, 4)
    short_slots = slots.filter(short).unique()
    in_slot = {xid[:4]: xid for xid in open_xids}
    texts = xids.to_pylist()
    for i in np.flatnonzero(pc.is_in(slots, short_slots).to_numpy(zero_copy_only=False)).tolist():
        xid, code = texts[i], codes[i]
        if xid.endswith(PARTIAL):
            texts[i] = xid = in_slot.get(xid[:4], xid)
        if code in (COMMIT, ROLLBACK):
            in_slot.pop(xid[:4], None)
        else:
            in_slot[xid[:4]] = xid
    return pa.array(texts, xids.type)
