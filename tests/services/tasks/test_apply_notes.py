"""Applies note the progress of their targets in the state tables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import NO_RULES
from airflow_provider_cdc.core.errors import ConfigError, StorageUnavailable
from airflow_provider_cdc.core.spi.state_records import TargetProgress
from airflow_provider_cdc.operators.base.connector_apply_report import ConnectorTables
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.tasks.apply_notes import ApplyNotes, load_notes
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop = make_shop(monkeypatch, tmp_path, "notes")
    shop.store.set_control("shop", shop.store.load_control("shop").desired_state, "a test")
    yield shop
    shop.store.close()


def tables(shop: ShopConnector, location: str = "/lake", **more: Any) -> ConnectorTables:
    access, log = ConnectorAccess(shop.definition, "shop"), logging.getLogger("test")
    return ConnectorTables(access, "delta", location, NO_RULES, [], 10, log, owner="me", **more)


def report(batch: int, **failed: bool) -> Any:
    """Return the report of a job: table → whether a person must repair its error."""
    terminal = [name for name, by_person in failed.items() if by_person]
    return {"last_batch": batch, "failed": dict.fromkeys(failed, "it failed"), "terminal": terminal}


def noted(shop: ShopConnector) -> TargetProgress:
    (target,) = load_notes("cdc_state_default", ["shop"])["shop"]
    return target


def test_a_target_has_what_its_last_apply_has_reported(shop: ShopConnector) -> None:
    tables(shop).build_notes(context()).record_begin()
    assert noted(shop).is_at_work
    tables(shop, report=report(4)).record_end(context(), None)
    target = noted(shop)
    assert (target.batch, target.failures, target.failure, target.is_at_work) == (4, 0, None, False)
    assert (target.target, target.location, target.task) == ("delta", "/lake", "d.t.-1")
    tables(shop, report=report(3)).record_end(
        context(), None
    )  # a target that was put back: the apply corrects the note
    assert noted(shop).batch == 3


@pytest.mark.parametrize(
    ("found", "error", "needs_person", "batch"),
    [
        (report(5, a=True), Exception("a failed"), True, 5),
        (report(5, a=True, b=False), Exception("a and b failed"), False, 5),
        (None, Exception("Spark has ended"), False, 4),
        (None, StorageUnavailable("no answer"), False, 4),
        (None, ConfigError("no such property"), True, 4),
    ],
)
def test_a_failure_says_whether_a_person_must_act(
    shop: ShopConnector, found: Any, error: Exception, needs_person: bool, batch: int
) -> None:
    tables(shop, report=report(4)).record_end(context(), None)
    for failures in (1, 2):
        tables(shop, report=found).record_end(context(), error)
        target = noted(shop)
        assert target.failure is not None
        assert (target.batch, target.failures, target.failure.needs_person) == (batch, failures, needs_person)
    tables(shop, report=report(6)).record_end(context(), None)
    assert (noted(shop).failures, noted(shop).error) == (0, None)


def test_a_note_that_is_right_is_not_written_again(shop: ShopConnector) -> None:
    tables(shop, report=report(4)).record_end(context(), None)
    before = noted(shop)
    idle = tables(shop, report=report(4))
    idle.owner = ""  # nothing was submitted
    idle.record_end(context(), None, [before])
    assert noted(shop) == before
    idle.report = report(5)
    idle.record_end(context(), None, [before])
    assert noted(shop).batch == 5


def test_a_task_has_one_target_wherever_it_is_moved_and_others_stay(shop: ShopConnector) -> None:
    tables(shop, "/old", report=report(4)).record_end(context(), None)
    other = ApplyNotes("shop", "cdc_state_default", "database", "postgresql://db/x", "other.apply.-1")
    other.record_end(2)
    tables(shop, "/new", report=report(4)).record_end(context(), None)
    places = {target.location for target in load_notes("cdc_state_default", ["shop"])["shop"]}
    assert places == {"/new", "postgresql://db/x"}
    ApplyNotes("shop", "cdc_state_default", "database", "", "other.apply.-1").record_failure(Exception("away"))
    failures = {target.location: target.failures for target in load_notes("cdc_state_default", ["shop"])["shop"]}
    assert failures == {"/new": 0, "postgresql://db/x": 1}
    shop.store.targets.forget_target("shop", "delta", "/new")
    assert [t.location for t in load_notes("cdc_state_default", ["shop"])["shop"]] == ["postgresql://db/x"]


def test_an_apply_does_not_fail_because_of_its_note(shop: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password="sqlite:////nowhere/at/all.db")
    tables(shop, report=report(4)).record_end(context(), None)
    assert load_notes("cdc_state_default", ["shop"]) == {}
