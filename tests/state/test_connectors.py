"""What the state remembers of connectors besides their offsets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.position import Offset
from airflow_provider_cdc.state.store import StateStore
from tests.support.patience import LONGEST_S


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
        return
    server = request.getfixturevalue("postgres")
    with server.database("state") as name:
        yield server.url(name)


def record(connector: str, changelog: str = "/lake") -> dict[str, Any]:
    return {
        "connector": connector,
        "source": "mariadb",
        "changelog": changelog,
        "changelog_options": {},
        "properties": {"topic.prefix": connector, "table.include.list": ["a", "b"]},
        "connections": {"source": "shop"},
    }


def test_a_record_comes_back_as_it_was_told_last(url: str) -> None:
    store = StateStore(url)
    store.create_tables()
    assert store.connector("shop") is None
    store.register(record("shop"))
    store.register(record("shop", "/elsewhere"))
    assert store.connector("shop") == record("shop", "/elsewhere")
    store.close()


def test_a_record_that_says_nothing_new_is_not_written(url: str) -> None:
    store = StateStore(url)
    store.create_tables()
    store.register(record("shop"))
    with store.database.engine.connect() as c:
        before = c.exec_driver_sql("SELECT updated_at FROM cdc_connector").scalar()
    store.register(record("shop"))
    with store.database.engine.connect() as c:
        assert c.exec_driver_sql("SELECT updated_at FROM cdc_connector").scalar() == before
    store.close()


def test_runs_that_register_in_the_same_moment_do_not_disturb_each_other(url: str) -> None:
    stores = [StateStore(url) for _ in range(4)]
    stores[0].create_tables()
    troubles: list[BaseException] = []
    for round_ in range(10):
        barrier = threading.Barrier(len(stores))

        def register(store: StateStore, n: int, name: str, barrier: threading.Barrier) -> None:
            try:
                barrier.wait(LONGEST_S)
                store.register(record(name, f"/lake/{n}"))
            except BaseException as e:
                troubles.append(e)

        threads = [
            threading.Thread(target=register, args=(store, n, f"c{round_}", barrier)) for n, store in enumerate(stores)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert troubles == []
        found = stores[0].connector(f"c{round_}")
        assert found in [record(f"c{round_}", f"/lake/{n}") for n in range(len(stores))]
    for store in stores:
        store.close()


def test_connectors_are_listed_with_offset_and_the_holder_of_the_lease(url: str) -> None:
    store = StateStore(url, lease_ttl_s=60)
    store.create_tables()
    store.register(record("known"))
    with store.lease("moved", "a test", wait_s=0) as lease:
        store.advance(lease, store.load("moved"), Offset(position={"pos": 4}, seq=7, batch=2))
        known, moved = store.connectors()
        assert (known["connector"], known["changelog"], known["offset"], known["owner"]) == (
            "known",
            "/lake",
            None,
            None,
        )
        assert (moved["connector"], moved["changelog"], moved["seq"], moved["owner"]) == ("moved", None, 7, "a test")
        assert 0 < moved["lease_s"] <= 60
        assert moved["updated_at"].tzinfo is not None
        assert (known["properties"], known["connections"]) == (record("known")["properties"], {"source": "shop"})
        assert moved["offset"]["position"] == {"pos": 4}
        states = {"wanted": "running", "asked_by": None, "reason": None, "run_ended_at": None, "last_error": None}
        assert {n: moved[n] for n in states} == states
    assert store.connectors("moved")[0]["owner"] is None
    assert store.connectors("nobody") == []
    store.close()
