"""Documents that change their shard: one shard deletes them, another inserts them.

Both do it in one transaction, and each commits it at a time of its own. Where the insert comes first in the stream, the delete behind it is of the document
that was on the other shard, and there has to be the new one in the end.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.sources.mongodb.documents.change_events import DELETE, INSERT, ChangeEvents
from airflow_provider_cdc.sources.mongodb.documents.extended_json import keys, texts

Ints = npt.NDArray[np.int64]
_REMEMBERED: Final = 64
"""Transactions whose inserts are known: the shards of one commit it within moments."""


class Moves:
    """Knows what the last transactions have inserted into collections that are spread over shards."""

    def __init__(self) -> None:
        self._inserted: dict[str, list[tuple[tuple[str | None, str | None], int, pa.LargeStringArray]]] = {}
        """Transaction → its inserts: collection, cluster time, and keys."""

    def left_behind(self, events: ChangeEvents, kept: Ints) -> npt.NDArray[np.bool_]:
        """Which events are deletes of documents that are on another shard by then.

        :param kept: numbers of events, ascending
        """
        left = np.zeros(len(kept), np.bool_)
        number = events.transaction[kept]
        if not (number >= 0).any():
            return left
        names, operation = events.namespaces[1], events.operation[kept]
        for mine in _runs(
            events, kept, (number >= 0) & events.has_shard_key[kept] & np.isin(operation, (INSERT, DELETE))
        ):
            at, deletes = kept[mine], operation[mine] == DELETE
            first = int(at[0])
            collection, time = names[events.namespaces[0][first]], int(events.cluster_time[first])
            key, known = keys(events.document_id.take(at)), self._of(transaction_id(events, first))
            for its, then, inserted in known:
                if its == collection and then != time:
                    left[mine] |= deletes & np.asarray(pc.is_in(key, value_set=inserted))
            if not deletes.all():
                known.append((collection, time, key.filter(pa.array(~deletes))))
        return left

    def _of(self, transaction: str) -> list[tuple[tuple[str | None, str | None], int, pa.LargeStringArray]]:
        if transaction not in self._inserted and len(self._inserted) == _REMEMBERED:
            del self._inserted[next(iter(self._inserted))]
        return self._inserted.setdefault(transaction, [])


def _runs(events: ChangeEvents, kept: Ints, wanted: npt.NDArray[np.bool_]) -> list[Ints]:
    """Places of wanted events that follow each other in one collection, at one moment of one transaction."""
    places = np.flatnonzero(wanted)
    if not len(places):
        return []
    at = kept[places]
    of = np.stack([events.transaction[at], events.cluster_time[at].astype(np.int64), events.namespaces[0][at]])
    return np.split(places, np.flatnonzero((of[:, 1:] != of[:, :-1]).any(axis=0)) + 1)


def transaction_id(events: ChangeEvents, i: int) -> str:
    """``lsid:txnNumber``, as Debezium has it."""
    session = texts(events.field(b"lsid").take(np.array([i])))[0].as_py()
    return f"{session}:{int(events.txn_number[i])}"
