"""Actions from a page that a run of Airflow does: the plan, the run that begins, its parameters, and the record that names it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.api_fastapi.app import get_auth_manager
from airflow.models.dagbag import DBDagBag
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG
from airflow.utils.session import create_session

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.dag import lifecycle_dag, tables_dag
from airflow_provider_cdc.operators.lifecycle import ConnectorLifecycleOperator
from airflow_provider_cdc.plugins.user_dag_runs import list_form_dags
from airflow_provider_cdc.services.actions import connector_run_actions
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from airflow_provider_cdc.sources.memory.source import MemorySource
from tests.plugins.conftest import ClientFactory, capture, known_to_airflow
from tests.plugins.test_actions import API, audit
from tests.support.airflow.airflow_connector import SHOP, ShopConnector, context


@pytest.fixture(autouse=True)
def dags(metadata: None) -> Iterator[None]:
    with DAG("shop_dag", schedule=None) as captures:
        ConnectorLifecycleOperator(task_id="t", connector="shop", action="status")
    known_to_airflow(captures, lifecycle_dag(["shop"], dangerous=True), tables_dag(["billing", "shop"], dangerous=True))
    with create_session() as session:
        session.execute(sa.delete(DagRun))
    yield
    known_to_airflow()


def post_action(
    client_factory: ClientFactory, action: str, body: dict[str, Any], status: int = 200, **query: Any
) -> Any:
    answer = client_factory("eve", "OP").post(f"{API}/{action}", json=body, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def list_begun_runs() -> list[tuple[str, str, str, Any]]:
    with create_session() as session:
        return [(r.dag_id, r.run_id, r.triggering_user_name or "", r.conf) for r in session.scalars(sa.select(DagRun))]


def record_applied(shop_connector: ShopConnector, *locations: str) -> None:
    record = shop_connector.store.find_connector("shop")
    assert record is not None
    access = access_of(record)
    assert access is not None
    reports = ApplyReports(access.open_change_log().storage, "shop")
    for location in locations:
        reports.write({**reports.register_target("delta", location), "last_batch": 1})


def test_a_run_of_the_connectors_dag_begins_and_is_recorded(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    plan = post_action(client_factory, "run", {"reason": "now"})
    assert (plan["dag"], plan["run"], plan["obstacle"], plan["confirm"], list_begun_runs()) == (
        "shop_dag",
        None,
        None,
        False,
        [],
    )
    done = post_action(client_factory, "run", {"reason": "now"}, plan=False)
    assert list_begun_runs() == [("shop_dag", done["run"], "eve", {})]
    (kept,) = audit(shop_connector)
    assert (kept["action"], kept["by"], kept["dag"], kept["run"]) == ("run", "eve", "shop_dag", done["run"])


def test_a_dag_that_is_paused_or_gone_is_said_before_and_begins_nothing(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    known_to_airflow(lifecycle_dag(["shop"], dangerous=True), paused=True)
    assert "does not have the DAG shop_dag" in post_action(client_factory, "run", {})["obstacle"]
    assert "cdc_lifecycle is paused" in post_action(client_factory, "restore-offset", {"version": 1})["obstacle"]
    refused = post_action(client_factory, "restore-offset", {"version": 1}, 409, plan=False, confirm="shop")
    assert "unpause it first" in refused["detail"]
    assert (list_begun_runs(), audit(shop_connector)) == ([], [])


@pytest.mark.parametrize(
    ("action", "confirm"), [("verify", {}), ("repair", {"confirm": "shop"}), ("rebuild", {"confirm": "shop"})]
)
def test_tables_are_worked_on_by_a_run_of_the_form(
    shop_connector: ShopConnector, client_factory: ClientFactory, action: str, confirm: dict[str, str]
) -> None:
    body = {"tables": ["inventory.ord.*"]}
    assert "No changes of shop were applied" in post_action(client_factory, action, body, 409)["detail"]
    record_applied(shop_connector, "/a", "/b")
    assert "select one" in post_action(client_factory, action, body, 409)["detail"]
    body["location"] = "/b"
    plan = post_action(client_factory, action, body)
    assert (plan["dag"], plan["confirm"]) == ("cdc_tables", bool(confirm))
    assert "inventory.orders" in plan["lines"][0]
    assert "delta at /b" in plan["lines"][0]
    if confirm:
        post_action(client_factory, action, body, 409, plan=False)
    post_action(client_factory, action, body, 409, plan=False, about="0" * 32, **confirm)
    done = post_action(client_factory, action, body, plan=False, about=plan["about"], **confirm)
    names = ["inventory.orders"]
    expected = {
        "connector": "shop",
        "work": action,
        "tables": names,
        "target": "delta",
        "location": "/b",
        "confirm": confirm.get("confirm"),
    }
    assert list_begun_runs() == [("cdc_tables", done["run"], "eve", expected)]
    assert [(one["action"], one["run"]) for one in audit(shop_connector)] == [(action, done["run"])]


def test_an_offset_is_restored_by_the_run_that_was_begun(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    plan = post_action(client_factory, "restore-offset", {"version": 1})
    assert (plan["dag"], plan["confirm"], plan["obstacle"]) == ("cdc_lifecycle", True, None)
    assert any(line.startswith("REPEATED") for line in plan["lines"])
    body = {"version": 1, "at_version": plan["version"], "reason": "once more"}
    post_action(client_factory, "restore-offset", body, 409, plan=False, confirm="shopp")
    with shop_connector.store.acquire_lease("shop", "the run", wait_s=0):
        assert (
            "pause the connector first"
            in post_action(client_factory, "restore-offset", body, 409, plan=False, confirm="shop")["detail"]
        )
    assert list_begun_runs() == []
    post_action(client_factory, "restore-offset", body, plan=False, confirm="shop")
    ((dag, _, _, conf),) = list_begun_runs()
    given = {
        name: conf[name] for name in ("connector", "action", "version", "at_version", "plan_only", "confirm", "reason")
    }
    restore = ConnectorLifecycleOperator(task_id="steer", **given)
    restore.execute(context())
    assert dag == "cdc_lifecycle"
    found = shop_connector.store.offset_history("shop")
    assert (found[0].version, found[0].offset.position) == (plan["version"] + 1, found[-1].offset.position)
    assert "restored from version 1" in found[0].reason
    with pytest.raises(Exception, match="The offset has moved since the plan was made"):
        restore.execute(context())
    assert (
        f"its version was {plan['version']}, and is now {plan['version'] + 1}"
        in post_action(client_factory, "restore-offset", body, 409, plan=False, confirm="shop")["detail"]
    )
    assert "has no offset of version 9" in post_action(client_factory, "restore-offset", {"version": 9}, 409)["detail"]


def run_lifecycle(conf: dict[str, Any]) -> dict[str, Any]:
    """Run the task of a run of ``lifecycle_dag`` with its parameters."""
    given = {name: value for name, value in conf.items() if name != "reason"} | {"reason": conf["reason"] or ""}
    return ConnectorLifecycleOperator(task_id="steer", **given).execute(context())


def test_an_offset_is_set_to_what_someone_writes(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    first = shop_connector.store.load_offset("shop")
    assert first.offset is not None
    shop_connector.order(1)
    capture(shop_connector)
    for position, why in (
        ({"entry": "two"}, "is not a position"),
        ({"file": "x"}, "is not a position"),
        ({"entry": 1, "x": 2}, "is not a position"),
    ):
        assert why in post_action(client_factory, "set-offset", {"position": position}, 409)["detail"]
    beyond = post_action(client_factory, "set-offset", {"position": {"entry": 100}})
    assert "The log cannot be read from entry 100" in beyond["obstacle"]
    body = {"position": first.offset.position, "reason": "once more"}
    plan = post_action(client_factory, "set-offset", body)
    assert (plan["dag"], plan["confirm"], plan["obstacle"], plan["version"]) == (
        "cdc_lifecycle",
        True,
        None,
        first.version + 1,
    )
    assert "continues from" in plan["lines"][0]
    assert any(line.startswith("REPEATED") for line in plan["lines"])
    post_action(client_factory, "set-offset", body, 409, plan=False, confirm="shopp")
    assert list_begun_runs() == []
    post_action(client_factory, "set-offset", body | {"at_version": plan["version"]}, plan=False, confirm="shop")
    ((_, _, _, conf),) = list_begun_runs()
    assert (conf["action"], conf["position"]) == ("offset-set", first.offset.position)
    run_lifecycle(conf)
    assert shop_connector.store.load_offset("shop").offset.position == first.offset.position  # type: ignore[union-attr]
    with pytest.raises(Exception, match="The offset has moved since the plan was made"):
        run_lifecycle(conf)
    capture(shop_connector)
    assert [
        json.loads(one["parameters"])["position"] for one in audit(shop_connector) if one["type"] == "REQUESTED"
    ] == [body["position"]]


def test_an_offset_is_forgotten(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    plan = post_action(client_factory, "reset-offset", {})
    assert "discards its position" in plan["lines"][0]
    assert "snapshot of every captured table again" in plan["lines"][1]
    post_action(client_factory, "reset-offset", {"at_version": plan["version"]}, plan=False, confirm="shop")
    ((_, _, _, conf),) = list_begun_runs()
    run_lifecycle(conf)
    assert shop_connector.store.load_offset("shop").offset.position is None  # type: ignore[union-attr]


@pytest.fixture
def chunkable_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of the shop can be read in chunks."""
    monkeypatch.setitem(SHOP, "id", "int64!")


@pytest.mark.parametrize("repair", ["snapshot", "incremental", "skip"])
def test_a_gap_is_repaired_in_the_way_that_was_chosen(
    chunkable_table: None, shop_connector: ShopConnector, client_factory: ClientFactory, repair: str
) -> None:
    assert "No gap: " in post_action(client_factory, "repair-gap", {"repair": repair}, 409)["detail"]
    shop_connector.order(1)
    shop_connector.database.purge_log()
    shop_connector.order(2)
    body = {"repair": repair, "reason": "the log was purged"}
    plan = post_action(client_factory, "repair-gap", body)
    assert (plan["dag"], plan["confirm"], plan["obstacle"]) == ("cdc_lifecycle", True, None)
    assert plan["lines"][0].startswith("Lost: all changes committed after")
    assert ("LOST FOR GOOD" in plan["lines"][1]) == (repair == "skip")
    assert any("1 table is snapshotted again" in line for line in plan["lines"]) == (repair != "skip")
    with shop_connector.store.acquire_lease("shop", "the run", wait_s=0):
        assert "pause the connector first" in post_action(client_factory, "repair-gap", body)["obstacle"]
    post_action(client_factory, "repair-gap", body, 409, plan=False)
    assert list_begun_runs() == []
    done = post_action(client_factory, "repair-gap", body | {"at_version": plan["version"]}, plan=False, confirm="shop")
    ((dag, run, by, conf),) = list_begun_runs()
    assert (dag, run, by, conf["repair"]) == ("cdc_lifecycle", done["run"], "eve", repair)
    run_lifecycle(conf)
    assert "the log was purged" in shop_connector.store.offset_history("shop", 1)[0].reason
    assert "No gap: " in post_action(client_factory, "repair-gap", body, 409)["detail"]
    capture(shop_connector)
    assert [s.state for s in shop_connector.store.signals_of("shop")] == (["done"] if repair == "incremental" else [])


def test_what_cannot_repair_a_gap_is_said_before(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_connector.database.create_table("inventory.keyless", {"line": "string"})
    shop_connector.order(1)
    shop_connector.database.purge_log()
    found = post_action(client_factory, "repair-gap", {"repair": "incremental"})
    assert "or with a nullable key: inventory.keyless has no key, inventory.orders: id is nullable" in found["obstacle"]
    refused = post_action(client_factory, "repair-gap", {"repair": "incremental"}, 409, plan=False, confirm="shop")
    assert "repair the gap with a snapshot" in refused["detail"]
    assert (list_begun_runs(), audit(shop_connector)) == ([], [])


def test_a_source_that_does_not_answer_is_not_waited_for_by_a_plan(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_run_actions, "_SOURCE_ANSWER_S", 0.05)
    going = threading.Event()
    monkeypatch.setattr(MemorySource, "verify_position", lambda *_: going.wait(30))
    try:
        answer = client_factory("eve", "OP").post(f"{API}/set-offset", json={"position": {"entry": 1}})
    finally:
        going.set()
    assert answer.status_code == 503
    assert "has not answered within" in answer.json()["error"]["message"]


def list_action_states(client_factory: ClientFactory) -> list[tuple[str, str, str, str]]:
    found = client_factory("ann", "VIEWER").get("/api/v1/connectors/shop/actions").json()
    return [(one["action"], one["by"], one["fate"], one["outcome"]) for one in found]


def end_run(run: str, state: str) -> None:
    with create_session() as session:
        session.execute(sa.update(DagRun).where(DagRun.run_id == run).values(state=state, end_date=datetime.now(UTC)))


def test_what_was_asked_for_is_followed_to_its_end(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    post_action(client_factory, "pause", {"reason": "upgrade"}, plan=False)
    run = post_action(client_factory, "run", {}, plan=False)["run"]
    assert list_action_states(client_factory) == [("run", "eve", "queued", ""), ("pause", "eve", "done", "")]
    for state, message in (("running", "running"), ("failed", "failed"), ("success", "done")):
        end_run(run, state)
        assert list_action_states(client_factory)[0] == ("run", "eve", message, "")
    plan = post_action(client_factory, "reset-offset", {"reason": "<b>"}, plan=False, confirm="shop")
    conf = next(conf for _, id_, _, conf in list_begun_runs() if id_ == plan["run"])
    names = {"dag_id": "cdc_lifecycle", "run_id": plan["run"], "task_id": "steer", "try_number": 1, "max_tries": 0}
    task = ConnectorLifecycleOperator(task_id="steer", **{**conf, "confirm": "nobody"})
    with pytest.raises(Exception, match="not confirmed"):
        task.execute({"ti": SimpleNamespace(**names)})
    end_run(plan["run"], "failed")
    (newest, *_) = list_action_states(client_factory)
    assert newest[:3] == ("reset-offset", "eve", "failed")
    assert "not confirmed" in newest[3]
    ConnectorLifecycleOperator(task_id="steer", **conf).execute({"ti": SimpleNamespace(**names)})
    end_run(plan["run"], "success")
    (newest, *_) = list_action_states(client_factory)
    assert newest == ("reset-offset", "eve", "done", "The offset was moved from entry 1 to none.")
    with create_session() as session:
        session.execute(sa.delete(DagRun))
    assert [one[2] for one in list_action_states(client_factory)] == ["done", "not known", "done"]


def test_only_a_form_that_takes_the_connector_is_used(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    known_to_airflow(
        lifecycle_dag(["billing"], dag_id="its_lifecycle", dangerous=True),
        tables_dag(["billing"], dag_id="its_tables"),
        lifecycle_dag(["shop"], dag_id="mine", dangerous=True, tags=["cdc", "x"]),
    )
    assert sorted(list_form_dags()) == ["its_lifecycle", "its_tables", "mine"]
    assert post_action(client_factory, "restore-offset", {"version": 1})["dag"] == "mine"
    record_applied(shop_connector, "/a")
    refused = post_action(client_factory, "verify", {}, 409)["error"]
    assert "no such DAG exists" in refused["message"]
    assert "tables_dag" in refused["repair"]


def test_an_action_is_in_airflows_audit_log_too(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    """The login of the state can change the connector's own records."""
    with create_session() as session:
        session.execute(sa.delete(Log))
    post_action(client_factory, "run", {"reason": "now"})
    post_action(client_factory, "run", {"reason": "now"}, plan=False)
    with create_session() as session:
        logged = session.execute(sa.select(Log.event, Log.owner_display_name, Log.dag_id, Log.extra)).all()
    assert [(*row[:3], json.loads(row[3])) for row in logged] == [
        ("cdc.run", "eve", "shop_dag", {"connector": "shop", "action": "run", "reason": "now"})
    ]


def test_the_forms_of_an_installation_are_read_once_and_again_when_they_change(
    dags: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each plan of each user read all DAGs of forms from Airflow's database."""
    read: list[str] = []
    latest = DBDagBag.get_latest_version_of_dag

    def count(self: DBDagBag, dag_id: str, **more: Any) -> Any:
        read.append(dag_id)
        return latest(self, dag_id, **more)

    monkeypatch.setattr(DBDagBag, "get_latest_version_of_dag", count)
    known_to_airflow(lifecycle_dag(["read_once"], dag_id="read_once"))
    assert [list_form_dags()["read_once"]["connector"] for _ in range(3)] == [["read_once"]] * 3
    assert read == ["read_once"]
    with create_session() as session:  # as a changed file makes it
        changed = sa.update(SerializedDagModel).where(SerializedDagModel.dag_id == "read_once")
        session.execute(changed.values(dag_hash="another"))
    list_form_dags()
    assert read == ["read_once", "read_once"]


def test_what_cannot_be_undone_needs_a_form_that_offers_it(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """All who may trigger a form may do all that it offers: by default, nothing of this kind."""
    known_to_airflow(lifecycle_dag(["shop"], dag_id="harmless"), tables_dag(["shop"], dag_id="harmless_tables"))
    record_applied(shop_connector, "/a")
    assert post_action(client_factory, "verify", {})["dag"] == "harmless_tables"
    for action, body, factory in (
        ("reset-offset", {}, "lifecycle_dag"),
        ("rebuild", {"tables": ["inventory.orders"]}, "tables_dag"),
    ):
        refused = post_action(client_factory, action, body, 409)["error"]
        assert "no such DAG exists" in refused["message"]
        assert f"{factory}([…], dangerous=True)" in refused["repair"]


def test_a_user_does_not_learn_the_names_and_runs_of_dags_that_he_may_not_read(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_applied(shop_connector, "/a")
    done = post_action(client_factory, "verify", {}, plan=False)
    asked = type(get_auth_manager()).is_authorized_dag

    def forms_are_hidden(self: Any, *, details: Any = None, **more: Any) -> bool:
        return not str(getattr(details, "id", "")).startswith("cdc_") and asked(self, details=details, **more)

    monkeypatch.setattr(type(get_auth_manager()), "is_authorized_dag", forms_are_hidden)
    refused = post_action(client_factory, "verify", {}, 409)["error"]["message"]
    assert "you may not start a run of it" in refused
    assert "cdc_tables" not in refused
    assert (list_action_states(client_factory)[0][2], done["dag"]) == ("not known", "cdc_tables")


def test_a_form_that_the_user_may_not_trigger_is_not_used(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    """The user ``ann`` may operate the connector, by its own DAG, and has no right on the form."""
    record_applied(shop_connector, "/a")
    answer = client_factory("ann", "USER").post("/api/v1/connectors/shop/actions/verify", json={})
    assert answer.status_code == 409
    assert "you may not start a run of it" in answer.json()["detail"]
