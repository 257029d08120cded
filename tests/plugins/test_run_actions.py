"""What people do from a page and a run of Airflow does: its plan, the run that begins, with which parameters, and the record that names it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.models.dagrun import DagRun
from airflow.sdk import DAG
from airflow.utils.session import create_session

from airflow_provider_cdc.changelog.applied import AppliedReports
from airflow_provider_cdc.dag import lifecycle_dag, tables_dag
from airflow_provider_cdc.hooks.connector import access_of
from airflow_provider_cdc.operators.lifecycle import ConnectorLifecycleOperator
from airflow_provider_cdc.plugins.runs import forms
from tests.plugins.conftest import Asked, capture, known_to_airflow
from tests.plugins.test_actions import API, audit
from tests.support.face import Shop, context


@pytest.fixture(autouse=True)
def dags(metadata: None) -> Iterator[None]:
    with DAG("shop_dag", schedule=None) as captures:
        ConnectorLifecycleOperator(task_id="t", connector="shop", action="status")
    known_to_airflow(captures, lifecycle_dag(["shop"]), tables_dag(["billing", "shop"]))
    with create_session() as session:
        session.execute(sa.delete(DagRun))
    yield
    known_to_airflow()


def act(asked: Asked, action: str, body: dict[str, Any], status: int = 200, **query: Any) -> Any:
    answer = asked("eve", "OP").post(f"{API}/{action}", json=body, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def begun() -> list[tuple[str, str, str, Any]]:
    with create_session() as session:
        return [(r.dag_id, r.run_id, r.triggering_user_name or "", r.conf) for r in session.scalars(sa.select(DagRun))]


def applied(shop: Shop, *locations: str) -> None:
    record = shop.store.connector("shop")
    assert record is not None
    access = access_of(record)
    assert access is not None
    reports = AppliedReports(access.changelog().storage, "shop")
    for location in locations:
        reports.write({**reports.register("delta", location, ""), "last_batch": 1})


def test_a_run_of_the_connectors_dag_begins_and_is_recorded(shop: Shop, asked: Asked) -> None:
    plan = act(asked, "run", {"reason": "now"})
    assert (plan["dag"], plan["run"], plan["obstacle"], plan["confirm"], begun()) == ("shop_dag", None, None, False, [])
    done = act(asked, "run", {"reason": "now"}, plan=False)
    assert begun() == [("shop_dag", done["run"], "eve", {})]
    (kept,) = audit(shop)
    assert (kept["action"], kept["by"], kept["dag"], kept["run"]) == ("run", "eve", "shop_dag", done["run"])


def test_a_dag_that_is_paused_or_gone_is_said_before_and_begins_nothing(shop: Shop, asked: Asked) -> None:
    known_to_airflow(lifecycle_dag(["shop"]), paused=True)
    assert "does not know the DAG shop_dag" in act(asked, "run", {})["obstacle"]
    assert "cdc_lifecycle is paused" in act(asked, "restore-offset", {"version": 1})["obstacle"]
    refused = act(asked, "restore-offset", {"version": 1}, 409, plan=False, confirm="shop")
    assert "unpause it first" in refused["detail"]
    assert (begun(), audit(shop)) == ([], [])


@pytest.mark.parametrize(
    ("action", "confirm"), [("verify", {}), ("repair", {"confirm": "shop"}), ("rebuild", {"confirm": "shop"})]
)
def test_tables_are_worked_on_by_a_run_of_the_form(
    shop: Shop, asked: Asked, action: str, confirm: dict[str, str]
) -> None:
    body = {"tables": ["inventory.ord.*"]}
    assert "Nothing was applied for shop" in act(asked, action, body, 409)["detail"]
    applied(shop, "/a", "/b")
    assert "say which one" in act(asked, action, body, 409)["detail"]
    body["location"] = "/b"
    plan = act(asked, action, body)
    assert (plan["dag"], plan["confirm"]) == ("cdc_tables", bool(confirm))
    assert "inventory.orders" in plan["lines"][0]
    assert "delta at /b" in plan["lines"][0]
    if confirm:
        act(asked, action, body, 409, plan=False)
    done = act(asked, action, body, plan=False, **confirm)
    names = ["inventory.orders"] if action == "rebuild" else [r"inventory\.orders"]
    expected = {
        "connector": "shop",
        "work": action,
        "tables": names,
        "target": "delta",
        "location": "/b",
        "confirm": confirm.get("confirm"),
    }
    assert begun() == [("cdc_tables", done["run"], "eve", expected)]
    assert [(one["action"], one["run"]) for one in audit(shop)] == [(action, done["run"])]


def test_an_offset_is_restored_by_the_run_that_was_begun(shop: Shop, asked: Asked) -> None:
    shop.order(1)
    capture(shop)
    plan = act(asked, "restore-offset", {"version": 1})
    assert (plan["dag"], plan["confirm"], plan["obstacle"]) == ("cdc_lifecycle", True, None)
    assert any(line.startswith("REPEATED") for line in plan["lines"])
    body = {"version": 1, "at_version": plan["version"], "reason": "once more"}
    act(asked, "restore-offset", body, 409, plan=False, confirm="shopp")
    with shop.store.lease("shop", "the run", wait_s=0):
        assert (
            "pause the connector first" in act(asked, "restore-offset", body, 409, plan=False, confirm="shop")["detail"]
        )
    assert begun() == []
    act(asked, "restore-offset", body, plan=False, confirm="shop")
    ((dag, _, _, conf),) = begun()
    given = {
        name: conf[name] for name in ("connector", "action", "version", "at_version", "plan_only", "confirm", "reason")
    }
    restore = ConnectorLifecycleOperator(task_id="steer", **given)
    restore.execute(context())
    assert dag == "cdc_lifecycle"
    found = shop.store.offset_history("shop")
    assert (found[0].version, found[0].offset.position) == (plan["version"] + 1, found[-1].offset.position)
    assert "restored from version 1" in found[0].reason
    with pytest.raises(Exception, match="The offset has moved since the plan was made"):
        restore.execute(context())
    assert (
        f"it had version {plan['version']}, and has {plan['version'] + 1} now"
        in act(asked, "restore-offset", body, 409, plan=False, confirm="shop")["detail"]
    )
    assert "has had no offset of version 9" in act(asked, "restore-offset", {"version": 9}, 409)["detail"]


def test_only_a_form_that_takes_the_connector_is_used(shop: Shop, asked: Asked) -> None:
    known_to_airflow(
        lifecycle_dag(["billing"], dag_id="its_lifecycle"),
        tables_dag(["billing"], dag_id="its_tables"),
        lifecycle_dag(["shop"], dag_id="mine", tags=["cdc", "x"]),
    )
    assert sorted(forms()) == ["its_lifecycle", "its_tables", "mine"]
    assert act(asked, "restore-offset", {"version": 1})["dag"] == "mine"
    applied(shop, "/a")
    refused = act(asked, "verify", {}, 409)["error"]
    assert "there is none" in refused["what"]
    assert "tables_dag" in refused["repair"]


def test_a_form_that_the_user_may_not_trigger_is_not_used(shop: Shop, asked: Asked) -> None:
    """The user ``ann`` may operate the connector, by its own DAG, and has no right on the form."""
    applied(shop, "/a")
    answer = asked("ann", "USER").post("/api/v1/connectors/shop/actions/verify", json={})
    assert answer.status_code == 409
    assert "you may begin no run of cdc_tables" in answer.json()["detail"]
