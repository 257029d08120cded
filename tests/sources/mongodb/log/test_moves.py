"""Documents that a transaction moves to another shard, whatever the order in which the shards' events come."""

from __future__ import annotations

from random import Random
from typing import Any

import bson
import numpy as np
import pytest
from bson import Int64, Timestamp

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.change_event_arrays import DELETE, read_events
from airflow_provider_cdc.sources.mongodb.log.document_shard_moves import ShardMoves
from tests.support.pytest_runs.sampled import CaseSample

DRAWN, LONG = 300, 20_000
BORDER = 500
"""Documents with a smaller ``k`` are on the first of two shards."""

Step = tuple[str, int, int]
"""Operation, ``k`` and ``_id``."""


def _event(number: int, time: int, step: Step) -> dict[str, Any]:
    operation, k, id_ = step
    whole = {"fullDocument": {"_id": id_, "k": k}} if operation == "insert" else {}
    return {
        "_id": {"_data": f"{number:08d}"},
        "operationType": operation,
        "clusterTime": Timestamp(time, 1),
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"k": k, "_id": id_},
        "lsid": {"id": b"a session"},
        "txnNumber": Int64(7),
        **whole,
    }


def _transaction(random: Random) -> tuple[dict[int, int], dict[int, int], list[list[Step]]]:
    """Return the documents before and after it (``_id`` → ``k``), and the events of each shard. A document moves at most once."""
    home = {id_: random.choice((100, 900)) for id_ in range(4)}
    before = {id_: k for id_, k in home.items() if random.random() < 0.7}
    now, shards, moved = dict(before), [list[Step](), list[Step]()], set[int]()
    for _ in range(random.randrange(1, 7)):
        id_ = random.randrange(4)
        k = now.get(id_)
        if k is None:
            if id_ not in moved:  # otherwise another shard may have events of it, too
                k = now[id_] = home[id_]
                shards[k > BORDER].append(("insert", k, id_))
        elif random.random() < 0.5 and id_ not in moved:
            moved.add(id_)
            shards[k > BORDER].append(("delete", k, id_))
            now[id_] = 1000 - k
            shards[k < BORDER].append(("insert", now[id_], id_))
        else:
            shards[k > BORDER].append(("delete", k, id_))
            del now[id_]
    return before, now, shards


def _hides_rows(shards: list[list[Step]]) -> bool:
    """Return whether documents are inserted and then moved: an event of the shard that they have left hides their row until its delete is known."""
    inserted = [{id_ for operation, _, id_ in steps if operation == "insert"} for steps in shards]
    return bool(inserted[0] & inserted[1])


def _merge_shards(random: Random, shards: list[list[Step]]) -> list[tuple[int, Step]]:
    """The events as a router gives them: each shard has its time or both have one, at which they come in any order."""
    times = random.choice(((1, 1), (1, 2), (2, 1)))
    left = [[(time, step) for step in steps] for time, steps in zip(times, shards, strict=True)]
    found = []
    while any(left):
        earliest = min(steps[0][0] for steps in left if steps)
        chosen = random.choice([steps for steps in left if steps and steps[0][0] == earliest])
        found.append(chosen.pop(0))
    return found


def test_what_a_transaction_leaves_is_what_its_events_say(sampled: CaseSample) -> None:
    """The events come in one batch, or in several."""
    random, behind = sampled.random("moves"), 0
    for case in range(LONG if sampled.all else DRAWN):
        before, after, shards = _transaction(random)
        found = _merge_shards(random, shards)
        moves, rows = ShardMoves(), dict(before)
        batches = [found] if _hides_rows(shards) or random.random() < 0.5 else [[one] for one in found]
        for batch in filter(None, batches):
            events = read_events(
                BsonDocuments.of_list([bson.encode(_event(n, time + 10, step)) for n, (time, step) in enumerate(batch)])
            )
            left = moves.left_behind(events, np.arange(len(batch)))
            for number, (_, (operation, k, id_)) in enumerate(batch):
                if left[number]:
                    behind += events.operation[number] == DELETE
                elif operation == "delete":
                    rows.pop(id_, None)
                else:
                    rows[id_] = k
        assert rows == after, (case, before, found)
    assert behind, "no delete came behind the insert"


@pytest.mark.parametrize("times", [(1, 1), (1, 2)], ids=["one time", "two times"])
def test_a_delete_behind_the_insert_of_another_shard_is_left_out(times: tuple[int, int]) -> None:
    steps = [(times[0], ("insert", 100, 1)), (times[1], ("delete", 901, 2)), (times[1], ("delete", 900, 1))]
    events = read_events(BsonDocuments.of_list([bson.encode(_event(n, *one)) for n, one in enumerate(steps)]))
    assert ShardMoves().left_behind(events, np.arange(3)).tolist() == [False, False, True]
