"""Rows that hold one key at a time, within a transaction: which events of them the key's last one may not be.

Some databases look at the end of a statement, or of a transaction, whether keys are unique. Until then, ``UPDATE t SET id = id + 1`` has two rows under one key: a
row has come to it, and the one that was there is yet to leave. So the last change of a key need not be about the row that has it in the end.

A change takes a row from a key (an update, a delete), or brings one to it (an update, a create), or both. Those of one row are found by the
identity of the row: its address, or else its image, as the image that a change finds is the one that the change before has left. So of each key there
are *stays*: of a row that was there before the transaction, of rows that come and go within it, and of the row that stays. Of the last one the
events have to come last. A row that comes and goes leaves a key as it was. Whether another row has it all the time, no log says, so its events say nothing of the key.

Rows that are equal in all that is known of them may be confused; the table has the same content in the end then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_provider_cdc.core.writing.row_hashes import Hashes, mix_hashes

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


@dataclass(slots=True)
class KeyChanges:
    """Changes of one table, in the order of the log.

    :param transaction: a number for each transaction
    :param leaves: whether it takes a row from a key
    :param comes: whether it brings a row to a key
    :param old_key: hash of the key that it takes a row from
    :param new_key: hash of the key that it brings a row to
    :param old_row: identifies the row that it finds
    :param new_row: identifies the row that it leaves
    """

    transaction: Places
    leaves: Mask
    comes: Mask
    old_key: Hashes
    new_key: Hashes
    old_row: Hashes
    new_row: Hashes

    def __len__(self) -> int:
        return len(self.leaves)


@dataclass(slots=True)
class KeyStays:
    """Findings about each change.

    :param late: the row that it leaves is the one that has the key in the end, and changes of other rows under that key follow
    :param arrives_and_leaves: it brings a row to a key, that leaves it within the transaction
    :param leaves_after_arrival: it takes a row from a key, to which it has come within the transaction
    :param before: number of the change of the same row before it, -1 if there is none; known only of rows that come to, or leave, keys which several rows have held
    """

    late: Mask
    arrives_and_leaves: Mask
    leaves_after_arrival: Mask
    before: Places


def find_key_stays(changes: KeyChanges) -> KeyStays | None:
    """Look for keys that a row comes to, and a row leaves afterwards, in one transaction; ``None`` if there are none."""
    n, moment = len(changes), np.arange(len(changes))
    scope = mix_hashes(changes.transaction.astype(np.uint64))
    old_key, new_key = mix_hashes(changes.old_key ^ scope), mix_hashes(changes.new_key ^ scope)
    same = changes.leaves & changes.comes & (old_key == new_key)
    arrivals, departures = np.flatnonzero(changes.comes & ~same), np.flatnonzero(changes.leaves & ~same)
    keys, number = np.unique(np.concatenate([new_key[arrivals], old_key[departures]]), return_inverse=True)
    first, last = np.full(len(keys), n, np.int64), np.full(len(keys), -1, np.int64)
    np.minimum.at(first, number[: len(arrivals)], arrivals)
    np.maximum.at(last, number[len(arrivals) :], departures)
    shared = keys[first < last]
    if not len(shared):
        return None
    old, old_number = _of(shared, old_key, changes.leaves)
    new, new_number = _of(shared, new_key, changes.comes)
    following, preceding = _matched(n, old, old_key, changes.old_row, new, new_key, changes.new_row)
    ends, begins = _followed(following, same), _followed(preceding, same)
    goes = (
        following[ends] >= 0
    )  # the stay that the change is of ends, by a change that takes the row to another key or away
    came = preceding[begins] >= 0
    comes_to_go = new & goes
    goes_as_it_came = old & came
    remains = new & ~goes
    # of each key: the last change of another row than the one that remains
    others = np.full(len(shared), -1, np.int64)
    leaving = old & ~(same & remains)
    np.maximum.at(others, old_number[leaving], moment[leaving])
    np.maximum.at(others, new_number[comes_to_go], moment[comes_to_go])
    begin = np.full(len(shared), n, np.int64)
    np.minimum.at(begin, new_number[remains], moment[remains])
    late = np.zeros(n, np.bool_)
    late[remains] = (begin < others)[new_number[remains]]
    return KeyStays(late, comes_to_go & (~same | came), goes_as_it_came & (~same | goes), preceding)


def _of(shared: Hashes, key: Hashes, changes: Mask) -> tuple[Mask, Places]:
    """Check which changes concern some keys, and which key each of them concerns."""
    number = np.minimum(np.searchsorted(shared, key), len(shared) - 1)
    return changes & (shared[number] == key), number


def _matched(
    n: int, old: Mask, old_key: Hashes, old_row: Hashes, new: Mask, new_key: Hashes, new_row: Hashes
) -> tuple[Places, Places]:
    """For each change, the one that finds the row which it leaves, and the one that has left the row which it finds; -1 if there is none.

    Equal rows are matched as brackets are.
    """
    at_new, at_old = np.flatnonzero(new), np.flatnonzero(old)
    change = np.concatenate([at_new, at_old])
    moment = np.concatenate([2 * at_new + 1, 2 * at_old])
    key = np.concatenate([new_key[at_new], old_key[at_old]])
    row = np.concatenate([new_row[at_new], old_row[at_old]])
    sign = np.concatenate([np.ones(len(at_new), np.int64), -np.ones(len(at_old), np.int64)])
    order = np.lexsort((moment, row, key))
    key, row, sign, change, moment = key[order], row[order], sign[order], change[order], moment[order]
    begins = np.concatenate([[True], (np.diff(key) != 0) | (np.diff(row) != 0)])
    group = np.cumsum(begins) - 1
    depth = np.cumsum(sign)
    depth -= (depth - sign)[np.flatnonzero(begins)][group]
    level = np.where(sign > 0, depth, depth + 1)
    order = np.lexsort((moment, level, group))
    group, level, sign, change = group[order], level[order], sign[order], change[order]
    pair = (group[1:] == group[:-1]) & (level[1:] == level[:-1]) & (sign[:-1] > 0) & (sign[1:] < 0)
    at = np.flatnonzero(pair)
    following, preceding = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    following[change[at]], preceding[change[at + 1]] = change[at + 1], change[at]
    return following, preceding


def _followed(link: Places, same: Mask) -> Places:
    """For each change, the last one that is reached by links over changes that leave the key as it is."""
    reached = np.arange(len(link))
    step = np.where((link >= 0) & same[link], link, reached)
    while True:
        further = step[step]
        if (further == step).all():
            return step
        step = further
