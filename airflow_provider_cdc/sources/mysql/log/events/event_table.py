"""A set of events in a buffer, with a table of their offsets and header fields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.sources.mysql import kernels as k


@dataclass(slots=True)
class EventSet:
    """Events in a buffer; valid until the next set is asked for.

    :param table: ``int64[events, EV_FIELDS]``, see ``kernels/event_splitter.py``
    :param full: none of them can be kept for the next set, as the buffer has no room
    """

    buf: npt.NDArray[np.uint8]
    table: npt.NDArray[np.int64]
    full: bool = False

    def get_event_body(self, i: int) -> bytes:
        """Event ``i`` without its header and checksum."""
        start = int(self.table[i, k.EV_START])
        return self.buf[start + k.HEADER : start + int(self.table[i, k.EV_LENGTH])].tobytes()

    def __len__(self) -> int:
        return len(self.table)
