"""How far an apply is, while it works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from spark_jobs import progress as module
from spark_jobs.progress import Progress
from tests.spark.lake import Lake


def test_a_line_names_the_tables_at_work_and_which_of_their_batches() -> None:
    progress = Progress(200, 540)
    assert progress.text() == "0 of 200 tables are done"
    progress.begins("shop.b", 17)
    progress.begins("shop.a", 0)
    progress.applies("shop.b", 20, 20)
    progress.applies("shop.a", 1, 500)
    assert progress.text() == (
        "0 of 200 tables are done; at work: shop.a (batches 1 to 500 of 540), shop.b (batch 3 of 523)"
    )
    progress.ends("shop.a")
    assert "shop.a" not in progress.text()


def test_a_line_names_a_few_tables_only() -> None:
    progress = Progress(50, 1)
    for number in range(20):
        progress.begins(f"t{number:02}", 0)
    assert progress.text().endswith("t07 (batch 1 of 1) and 12 more")


def test_lines_come_now_and_then_also_while_nothing_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.1)
    caplog.set_level(logging.INFO)
    futures: list[Future[Any]] = [Future() for _ in range(3)]
    progress = Progress(3, 9)
    progress.begins("shop.slow", 4)
    for future in futures[1:]:
        future.set_result(None)
    timer = threading.Timer(0.55, futures[0].set_result, [None])
    timer.start()
    assert list(progress.watch(futures)) == [futures[1], futures[2], futures[0]]
    lines = [r.getMessage() for r in caplog.records if r.name == "spark_jobs.progress"]
    assert 2 <= len(lines) <= 6
    assert set(lines) == {"2 of 3 tables are done; at work: shop.slow (batch 1 of 5)"}


def test_quick_work_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(int) for _ in range(200)]
        assert set(Progress(200, 1).watch(futures)) == set(futures)
    assert caplog.records == []


@pytest.mark.spark
def test_an_apply_that_takes_long_says_where_it_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.2)
    database = lake.connector.database
    for name in ("slow", "quick"):
        database.create_table(f"s.{name}", {"id": "int64!"}, key=("id",))
    for n in range(3):
        with database.transaction() as t:
            t.insert("s.slow", {"id": n})
            t.insert("s.quick", {"id": n})
        lake.connector.capture()
    told = threading.Event()

    def hook(location: str, name: str, write: Callable[[], Any]) -> Any:
        if location.endswith("slow"):
            told.wait(10)
        return write()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "1 of 2 tables are done; at work: p.s.slow (batches 1 to 3 of 3)" in record.getMessage():
                told.set()

    heard = Heard()
    caplog.set_level(logging.INFO)
    logging.getLogger("spark_jobs.progress").addHandler(heard)
    lake.hook = hook
    try:
        lake.apply()
    finally:
        logging.getLogger("spark_jobs.progress").removeHandler(heard)
    assert told.is_set()
    lake.check()
