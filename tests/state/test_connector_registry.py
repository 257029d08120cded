"""Records of connectors in the state, besides their offsets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.patience import LONGEST_S


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/state.db"
        return
    server = request.getfixturevalue("postgres")
    with server.database("state") as name:
        yield server.url(name)


def registration(connector: str, changelog: str = "/lake") -> ConnectorRegistration:
    properties = {"topic.prefix": connector, "table.include.list": ["a", "b"]}
    return ConnectorRegistration(connector, "mariadb", changelog, {}, properties, {"source": "shop"})


def test_a_record_comes_back_as_it_was_reported_last(url: str) -> None:
    store = StateStore(url)
    store.create_tables()
    assert store.find_registration("shop") is None
    store.register_connector(registration("shop"))
    store.register_connector(registration("shop", "/elsewhere"))
    assert store.find_registration("shop") == registration("shop", "/elsewhere")
    store.close()


def test_a_record_that_says_nothing_new_is_not_written(url: str) -> None:
    store = StateStore(url)
    store.create_tables()
    store.register_connector(registration("shop"))
    with store.database.engine.connect() as c:
        before = c.exec_driver_sql("SELECT updated_at FROM cdc_connector").scalar()
    store.register_connector(registration("shop"))
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
                store.register_connector(registration(name, f"/lake/{n}"))
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
        found = stores[0].find_registration(f"c{round_}")
        assert found in [registration(f"c{round_}", f"/lake/{n}") for n in range(len(stores))]
    for store in stores:
        store.close()


def test_connectors_are_listed_with_offset_and_the_holder_of_the_lease(url: str) -> None:
    store = StateStore(url, lease_ttl_s=60)
    store.create_tables()
    store.register_connector(registration("known"))
    with store.acquire_lease("moved", "a test", wait_s=0) as lease:
        store.advance_offset(lease, store.load_offset("moved"), Offset(position={"pos": 4}, seq=7, batch=2))
        known, moved = store.list_connectors()
        assert (known.connector, known.registration, known.offset, known.owner) == (
            "known",
            registration("known"),
            None,
            None,
        )
        assert (moved.connector, moved.registration, moved.last_seq, moved.owner) == ("moved", None, 7, "a test")
        assert 0 < moved.lease_s <= 60
        assert moved.moved_at.tzinfo is not None
        assert moved.offset_position == {"pos": 4}
        assert (moved.control, moved.run_ended_at, moved.last_error) == (ConnectorControl(), None, None)
    assert store.find_connector("moved").owner is None
    assert store.find_connector("nobody") is None
    store.close()


def test_records_of_some_have_the_newest_signal_and_those_that_never_ran_too(url: str) -> None:
    store = StateStore(url)
    store.create_tables()
    for name in ("shop", "billing", "other"):
        store.register_connector(registration(name))
    sent = [store.send(name, SentSignal("x", "log", "{}")) for name in ("shop", "other", "shop")]
    store.set_control("new", DesiredState.PAUSED, "ann")
    found = store.load_records(["shop", "billing", "new", "nobody"])
    assert {name: record.last_signal for name, record in found.items()} == {"shop": sent[2], "billing": 0, "new": 0}
    assert found["new"].control.desired_state is DesiredState.PAUSED
    assert found["shop"] == store.find_connector("shop")
    assert store.find_connector("new") is None
    assert store.load_records([]) == {}
    store.close()
