"""Captures of Debezium events that are killed at every step towards something durable: every event is captured once, in order."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.sources.debezium.written import Row, Topic, node, write
from tests.support.change_log.log_consistency import consistent
from tests.support.connectors import Connector
from tests.support.processes.fork import Forks
from tests.support.pytest_runs.sampled import CaseSample

pytestmark = pytest.mark.crash

CAPTURE = "tests.support.processes.crash:capture"
FIELDS = [node("id", "int32", optional=False), node("name", "string")]
WIDER = [*FIELDS, node("size", "int64")]


def _write(folder: Path) -> list[Row]:
    """Files with rows, a truncate, a schema change and deletes; returns the rows that they come to."""
    topic, rows = Topic(FIELDS), [{"id": n, "name": "a"} for n in range(4)]
    write(folder / "in" / "0.jsonl", [*(topic.event("c", None, row) for row in rows), topic.event("t", None, None)])
    expected: dict[int, Row] = {}
    for file in range(1, 6):
        topic = Topic(FIELDS if file < 3 else WIDER)
        added = [{"id": 10 * file + n, "name": "a", **({"size": n} if file >= 3 else {})} for n in range(5)]
        events = [topic.event("c", None, row) for row in added]
        changed = {**added[0], "name": "b"}
        events += [
            topic.event("u", added[0], changed),
            topic.event("d", added[1], None),
            topic.end({"id": added[1]["id"]}),
        ]
        write(folder / "in" / f"{file}.jsonl", events)
        expected |= {row["id"]: {"size": None, **row} for row in (changed, *added[2:])}
    return sorted(expected.values(), key=lambda row: row["id"])


def _options(folder: Path) -> dict[str, Any]:
    return {"topic.prefix": "shop", "events.path": str(folder / "in"), "batch.max.rows": 7, "poll.interval.ms": 1}


def test_a_run_killed_at_any_step_loses_and_repeats_nothing(forks: Forks, folder: Path, sampled: CaseSample) -> None:
    before = folder / "before"
    expected = _write(folder)
    Connector(before, "debezium", _options(folder)).store.close()
    died: Counter[str] = Counter()
    for n in range(1, 1000):
        place = folder / "run"
        shutil.copytree(before, place)
        ended = forks.run(CAPTURE, folder=str(place), kind="debezium", options=_options(folder), at=n)
        assert ended.error == "", ended.text
        if not ended.signal:
            break
        assert ended.signal == signal.SIGKILL
        kind = (place / "died").read_text()
        if kind not in died or sampled.of(n, every=5):
            connector = Connector(place, "debezium", _options(folder))
            connector.capture()
            rows = sorted(connector.rows("inventory.orders"), key=lambda row: row["id"])
            assert rows == expected, kind
            write(folder / "in" / "9.jsonl", [Topic(WIDER).event("c", None, {"id": 99, "name": "z", "size": 1})])
            assert connector.capture().events == 1
            (folder / "in" / "9.jsonl").unlink()
            consistent(connector)
            connector.store.close()
        died[kind] += 1
        shutil.rmtree(place)
    assert len(ended.result["batches"]) >= 3
    assert {"before create", "before link", "after link", "inside transaction", "after transaction"} <= set(died)
