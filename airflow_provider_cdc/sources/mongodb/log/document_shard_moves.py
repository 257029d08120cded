"""Documents that change their shard: one shard deletes them, another inserts them.

Both do it in one transaction, and each commits it at its own or at the same time. Where the insert comes first in the stream, the delete behind it is
of the document that was on the other shard, and there has to be the new one in the end. ``documentKey`` says which document each is of, by its shard key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import DELETE, INSERT, ChangeEvents
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_keys, format_values

Ints = npt.NDArray[np.int64]
Collection = tuple[str | None, str | None]
_REMEMBERED: Final = 64
"""Transactions of which this is known: the shards of one commit it within moments."""


@dataclass(slots=True)
class _Transaction:
    """Keeps the inserts of a transaction into collections that are spread over shards.

    :ivar inserted: collection, keys, and whole document keys of its inserts
    :ivar deleted: collection and document key of those inserts that it has deleted again
    """

    inserted: list[tuple[Collection, pa.LargeStringArray, pa.LargeBinaryArray]] = field(default_factory=list)
    deleted: set[tuple[Collection, bytes]] = field(default_factory=set)


class ShardMoves:
    """Knows the documents that the last transactions have inserted into collections that are spread over shards."""

    def __init__(self) -> None:
        self._transactions: dict[str, _Transaction] = {}

    def left_behind(self, events: ChangeEvents, numbers: Ints) -> npt.NDArray[np.bool_]:
        """Return which events are deletes of documents that are on another shard by then, or inserts that such a delete has undone.

        :param numbers: numbers of events, ascending
        """
        left = np.zeros(len(numbers), np.bool_)
        number = events.transaction_numbers[numbers]
        if not (number >= 0).any():
            return left
        names, operation = events.event_namespaces[1], events.operation[numbers]
        candidates = (number >= 0) & events.has_shard_key[numbers] & np.isin(operation, (INSERT, DELETE))
        for mine in _runs(events, numbers, candidates):
            at, deletes = numbers[mine], operation[mine] == DELETE
            collection, transaction = (
                names[events.event_namespaces[0][int(at[0])]],
                self._of(transaction_id(events, int(at[0]))),
            )
            key, whole = (
                format_keys(events.document_id.select_rows(at)),
                events.document_key.select_rows(at).to_binary(),
            )
            inserts = pa.array(~deletes)
            if transaction.deleted:
                transaction.deleted.difference_update(
                    (collection, document_key) for document_key in whole.filter(inserts).to_pylist()
                )
            if deletes.any():
                left[mine] = _replaced(collection, key, whole, deletes, transaction)
            if not deletes.all():
                transaction.inserted.append((collection, key.filter(inserts), whole.filter(inserts)))
        return left

    def _of(self, transaction: str) -> _Transaction:
        if transaction not in self._transactions and len(self._transactions) == _REMEMBERED:
            del self._transactions[next(iter(self._transactions))]
        return self._transactions.setdefault(transaction, _Transaction())


def _replaced(
    collection: Collection,
    key: pa.LargeStringArray,
    whole: pa.LargeBinaryArray,
    deletes: npt.NDArray[np.bool_],
    transaction: _Transaction,
) -> list[bool]:
    """Return which events of a run are deletes of documents that the transaction has replaced.

    It has inserted these with another document key, and has not deleted them again. Within the run, the inserts that are deleted so are returned, too.
    """
    gone = key.filter(pa.array(deletes)).unique()
    there = dict[str, set[bytes]]()
    for its, inserted, wholes in transaction.inserted:
        if its == collection and pc.any(is_gone := pc.is_in(inserted, value_set=gone)).as_py():
            for name, document_key in zip(
                inserted.filter(is_gone).to_pylist(), wholes.filter(is_gone).to_pylist(), strict=True
            ):
                if (collection, document_key) not in transaction.deleted:
                    there.setdefault(name, set()).add(document_key)
    replaced, at = [False] * len(key), dict[bytes, int]()
    for i in np.flatnonzero(pc.is_in(key, value_set=gone)).tolist() if there or not deletes.all() else ():
        name, document_key = key[i].as_py(), whole[i].as_py()
        if not deletes[i]:
            there.setdefault(name, set()).add(document_key)
            transaction.deleted.discard((collection, document_key))
            at[document_key] = i
        elif name in there:
            if document_key in there[name]:
                transaction.deleted.add((collection, document_key))
            there[name].discard(document_key)
            replaced[i] = bool(there[name])
            if replaced[i] and document_key in at:
                replaced[at[document_key]] = True
    return replaced


def _runs(events: ChangeEvents, numbers: Ints, candidates: npt.NDArray[np.bool_]) -> list[Ints]:
    """Places of wanted events that follow each other in one collection and one transaction."""
    places = np.flatnonzero(candidates)
    if not len(places):
        return []
    at = numbers[places]
    of = np.stack([events.transaction_numbers[at], events.event_namespaces[0][at]])
    return np.split(places, np.flatnonzero((of[:, 1:] != of[:, :-1]).any(axis=0)) + 1)


def transaction_id(events: ChangeEvents, i: int) -> str:
    """``lsid:txnNumber``, as Debezium has it."""
    session = format_values(events.read_field(b"lsid").select_rows(np.array([i])))[0].as_py()
    return f"{session}:{int(events.txn_number[i])}"
