"""DAGs from definitions: what forms ask for and refuse, and assets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.definitions.param import ParamsDict

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.dag import (
    ConnectorApplyOptions,
    ConnectorDefinition,
    GroupedConnector,
    ad_hoc_snapshot_dag,
    alerts_dag,
    apply_dag,
    cdc_dag,
    cdc_group_dag,
    cdc_task_group,
    lifecycle_dag,
    maintenance_dag,
    signal_dag,
    table_asset,
    tables_dag,
    watched_table_asset,
)
from airflow_provider_cdc.hooks.airflow_compat import build_run_type_argument
from airflow_provider_cdc.operators.apply_changes import ApplyChangesOperator
from airflow_provider_cdc.operators.apply_connectors import ApplyConnectorsOperator
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.apply_to_database_on_spark import ApplyToDatabaseOnSparkOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.maintain_tables import MaintainTablesOperator
from airflow_provider_cdc.operators.retention import RetentionOperator
from airflow_provider_cdc.services.dashboards.connector_alerts import AlertLimits
from airflow_provider_cdc.triggers.asset_changes import CdcChangeTrigger
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import AirflowFailException, ParamValidationError, serialize_dag

SHOP = ConnectorDefinition("shop", "memory", "/lake", {"table.include.list": r"inventory\.(orders|lines)"})


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "factories")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


def filled_params(dag: DAG, **values: Any) -> dict[str, Any]:
    """Return the parameters of a run of the DAG after a form was filled in."""
    params = ParamsDict({name: dag.params.get_param(name) for name in dag.params})
    params.update(values)
    return dict(params.validate())


def test_a_form_that_no_one_filled_in_is_valid_and_asks_for_nothing() -> None:
    for made in (ad_hoc_snapshot_dag([SHOP]), signal_dag([SHOP]), lifecycle_dag([SHOP]), tables_dag([SHOP])):
        assert filled_params(made)["connector"] == "shop"
    assert filled_params(lifecycle_dag([SHOP]))["action"] == "status"
    assert filled_params(lifecycle_dag([SHOP], dangerous=True))["plan_only"] is True
    assert filled_params(tables_dag([SHOP]))["work"] == "verify"


def test_a_form_offers_what_cannot_be_undone_only_where_its_author_allows_it() -> None:
    """The right to trigger the DAG was enough to delete a connector."""
    for action in ("offset-set", "offset-restore", "offset-reset", "repair-gap", "delete"):
        with pytest.raises(ParamValidationError):
            filled_params(lifecycle_dag([SHOP]), action=action)
        assert filled_params(lifecycle_dag([SHOP], dangerous=True), action=action)["action"] == action
    with pytest.raises(ParamValidationError):
        filled_params(tables_dag([SHOP]), work="rebuild")
    assert filled_params(tables_dag([SHOP], dangerous=True), work="rebuild")["work"] == "rebuild"
    assert set(lifecycle_dag([SHOP]).params) == {"connector", "action", "reason"}


def test_a_form_takes_what_people_enter(shop_connector: ShopConnector) -> None:
    dag = ad_hoc_snapshot_dag([SHOP, "billing"], tables={"billing": ["billing.invoices"]})
    tables = dag.params.get_param("tables").schema
    assert tables["examples"] == ["billing.invoices", "inventory.lines", "inventory.orders"]
    assert tables["values_display"]["billing.invoices"] == "billing.invoices (billing)"
    params = filled_params(
        dag, tables=["inventory.orders"], more_tables=["inventory.o.*"], filters={"inventory.orders": "id > 1"},
        changed_since="2025-01-01T00:00:00Z", changed_since_column="at", type="blocking", replace=True,
    )  # fmt: skip
    assert params["tables"] == ["inventory.orders"]
    assert (params["chunk_size"], filled_params(dag, chunk_size=500)["chunk_size"]) == (None, 500)
    assert dag.params.get_param("chunk_size").schema["section"] == "How to read"


@pytest.mark.parametrize(
    "wrong",
    [
        {"connector": "billing"}, {"type": "sideways"}, {"tables": "inventory.orders"}, {"tables": [7]},
        {"filters": ["x"]}, {"replace": "yes"}, {"chunk_size": 0}, {"chunk_size": 1_000_001}, {"chunk_size": 2.5},
        {"chunk_size": "500"}, {"chunk_size": True},
    ],
)  # fmt: skip
def test_a_form_refuses_what_has_the_wrong_type(wrong: dict[str, Any]) -> None:
    with pytest.raises(ParamValidationError):
        filled_params(ad_hoc_snapshot_dag([SHOP]), **wrong)


@pytest.mark.parametrize("make", [ad_hoc_snapshot_dag, signal_dag, lifecycle_dag, tables_dag])
def test_a_control_dag_takes_no_connector_that_it_was_not_given(make: Any) -> None:
    """Airflow checks this too when a run is triggered by REST: who may trigger the DAG reaches its connectors and no others."""
    with pytest.raises(ParamValidationError):
        filled_params(make([SHOP]), connector="billing")


def test_the_check_refuses_tables_that_were_never_captured_by_name(shop_connector: ShopConnector) -> None:
    check = ad_hoc_snapshot_dag([SHOP]).get_task("check").python_callable  # type: ignore[attr-defined]
    good = check(state_conn_id="cdc_state_default", params={"connector": "shop", "tables": ["inventory.orders"]})
    assert good["data-collections"] == ["inventory.orders"]
    with pytest.raises(AirflowFailException, match=r"inventory\.lines[\s\S]*captured: inventory\.orders"):
        check(state_conn_id="cdc_state_default", params={"connector": "shop", "tables": ["inventory.lines"]})
    with pytest.raises(Exception, match="No connector 'billing'"):
        check(state_conn_id="cdc_state_default", params={"connector": "billing", "tables": ["a.b"]})


def test_a_form_without_connectors_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one connector"):
        signal_dag([])


def test_arguments_of_the_dag_are_the_users() -> None:
    dag = signal_dag([SHOP], dag_id="mine", tags=["shop"], dag_display_name="Mine")
    assert (dag.dag_id, dag.tags, dag.dag_display_name) == ("mine", {"shop"}, "Mine")


@pytest.mark.parametrize("name", ["eu.shop", "shop-2", "shop_2", "0", "a" * 200])
def test_every_name_that_a_connector_may_have_makes_a_dag(name: str) -> None:
    made = cdc_dag(replace(SHOP, name=name), conn_id="shop", dag_id="capture")
    assert {*made.task_ids} == {"wait", "capture"}


def test_a_watched_table_is_its_asset_with_a_watcher() -> None:
    definition = ConnectorDefinition("shop", "memory", "/lake", {"topic.prefix": "eu", "topic.delimiter": "_"})
    asset = watched_table_asset(definition, "inventory.orders", poll_interval=7)
    assert asset.uri == table_asset(definition, "inventory.orders").uri
    assert asset.uri == "cdc://shop/eu_inventory_orders/captured"
    trigger = asset.watchers[0].trigger
    assert isinstance(trigger, CdcChangeTrigger)
    assert (trigger.topics, trigger.asset, trigger.poll_interval) == (["eu_inventory_orders"], asset.name, 7)
    whole = watched_table_asset(definition)
    assert whole.uri == "cdc://shop/captured"
    assert whole.watchers[0].trigger.topics == []  # type: ignore[attr-defined]


def test_a_continuous_dag_captures_and_applies_side_by_side_and_hands_over_every_run_for() -> None:
    dag = cdc_dag(SHOP, conn_id="shop", location="/lake/{table}", continuous=True, group={"run_for": 600})
    assert (dag.schedule, dag.max_active_runs, dag.catchup) == (timedelta(minutes=10), 2, False)
    capture, apply = (dag.get_task(name) for name in ("capture", "apply"))
    assert isinstance(capture, CaptureOperator)
    assert isinstance(apply, ApplyChangesOperator)
    assert not capture.downstream_list
    assert not apply.downstream_list
    # both go on until the next run's are ready, and no longer than the next run would wait
    assert 600 < capture.run_for < 600 + capture.lease_wait  # type: ignore[operator]
    assert apply.run_for == capture.run_for
    assert capture.hand_over
    assert capture.properties["batch.max.ms"] == 1000


def test_a_batch_time_of_ones_own_stays() -> None:
    slower = ConnectorDefinition("shop", "memory", "/lake", {"batch.max.ms": 5000})
    dag = cdc_dag(slower, conn_id="shop", location="/lake/{table}", continuous=True)
    assert dag.get_task("capture").properties["batch.max.ms"] == 5000  # type: ignore[attr-defined]
    assert "batch.max.ms" not in cdc_dag(SHOP, conn_id="shop", location="/l/{table}").get_task("capture").properties  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schedule": "@daily"}, "its own schedule"),
        ({"max_active_runs": 1}, "max_active_runs of at least 2"),
        ({"catchup": True}, "catchup=True has no past"),
    ],
)
def test_a_continuous_dag_refuses_what_would_leave_a_gap(wrong: dict[str, Any], message: str) -> None:
    """AF31"""
    with pytest.raises(ConfigError, match=message):
        cdc_dag(SHOP, conn_id="shop", location="/lake/{table}", continuous=True, **wrong)


@pytest.mark.skipif(not build_run_type_argument(), reason="the task refuses it, see tests/operators/test_capture.py")
def test_a_dag_that_continues_from_its_offset_takes_no_backfill() -> None:
    """AF16: Airflow refuses it when it is requested; each of its runs would have failed after ten minutes."""
    for dag in (
        cdc_dag(SHOP, conn_id="shop", continuous=True),
        cdc_group_dag([GroupedConnector(definition=SHOP, conn_id="shop")], schedule="@daily"),
        apply_dag([SHOP], location="/l"),
    ):
        assert {run_type.value for run_type in DagRunType} - set(dag.allowed_run_types or ()) == {"backfill"}
    assert cdc_dag(SHOP, conn_id="shop", allowed_run_types=None).allowed_run_types is None


def test_a_dag_may_have_the_groups_of_several_connectors() -> None:
    """AF06: their tasks had the same ids."""
    with DAG("both") as dag:
        for definition in (SHOP, replace(SHOP, name="eu.billing")):
            cdc_task_group(definition, conn_id="c", location="/l/{table}")
        cdc_task_group(replace(SHOP, name="third"), conn_id="c", prefix_group_id=False)
    assert {"shop.capture", "shop.apply", "eu_billing.capture", "eu_billing.wait", "capture"} <= set(dag.task_ids)
    assert "capture" in cdc_dag(SHOP, conn_id="c").task_ids
    assert "g.capture" in cdc_dag(SHOP, conn_id="c", group={"group_id": "g"}).task_ids


# -- a database as the target -----------------------------------------------------------------------------------------


def test_a_dag_keeps_the_tables_of_a_database_equal_to_the_source() -> None:
    dag = cdc_dag(SHOP, conn_id="shop", database="warehouse", sink={"errors.tolerance": "all"})
    apply = dag.get_task("apply")
    assert isinstance(apply, ApplyToDatabaseOperator)
    assert (apply.conn_id, apply.sink, apply.run_for) == ("warehouse", {"errors.tolerance": "all"}, None)
    assert dag.get_task("capture").downstream_task_ids == {"apply", "captured"}
    assert "database of `warehouse`" in str(dag.doc_md)


def test_a_continuous_dag_applies_to_a_database_as_batches_come() -> None:
    dag = cdc_dag(SHOP, conn_id="shop", database="warehouse", continuous=True, group={"run_for": 600})
    capture, apply = (dag.get_task(name) for name in ("capture", "apply"))
    assert isinstance(apply, ApplyToDatabaseOperator)
    assert apply.run_for is not None
    assert apply.run_for > 600
    assert not capture.downstream_list


def test_spark_may_bring_changes_into_a_database() -> None:
    dag = cdc_dag(
        SHOP,
        conn_id="shop",
        database="warehouse",
        on_spark=True,
        sink={"name": "second"},
        group={"spark_conn_id": "big"},
    )
    apply = dag.get_task("apply")
    assert isinstance(apply, ApplyToDatabaseOnSparkOperator)
    assert (apply.database_conn_id, apply.sink, apply._conn_id) == ("warehouse", {"name": "second"}, "big")
    assert dag.get_task("capture").downstream_task_ids == {"apply", "captured"}
    with pytest.raises(ConfigError, match="without database"):
        cdc_dag(SHOP, conn_id="shop", location="/lake/{table}", on_spark=True)


@pytest.mark.parametrize(
    "target", [{"location": "/l"}, {"database": "warehouse"}, {"database": "warehouse", "on_spark": True}], ids=str
)
def test_the_apply_of_a_dag_uses_the_state_connection_of_its_group(target: dict[str, Any]) -> None:
    """AF14: it used cdc_state_default: its metrics were lost, or went to the state of others."""
    dag = cdc_dag(SHOP, conn_id="shop", group={"state_conn_id": "cdc_other"}, **target)
    assert {task.state_conn_id for task in dag.tasks if task.task_id != "captured"} == {"cdc_other"}  # type: ignore[attr-defined]
    assert "state_conn_id" in dag.get_task("apply").template_fields


def test_the_apply_of_several_connectors_uses_the_state_connection_of_its_dag() -> None:
    group = cdc_group_dag([GroupedConnector(definition=SHOP, conn_id="shop")], location="/l", state_conn_id="cdc_other")
    for dag in (group, apply_dag([SHOP], location="/l", state_conn_id="cdc_other")):
        apply = dag.get_task("apply")
        assert isinstance(apply, ApplyConnectorsOperator)
        assert {one.access.state_conn_id for one in apply._connectors()} == {"cdc_other"}


def test_one_target_is_meant_and_its_properties_need_it() -> None:
    with pytest.raises(ConfigError, match="two targets"):
        cdc_dag(SHOP, conn_id="shop", location="/lake/{table}", database="warehouse")
    with pytest.raises(ConfigError, match="without database"):
        cdc_dag(SHOP, conn_id="shop", location="/lake/{table}", sink={"insert.mode": "insert"})


# -- one apply for several connectors ---------------------------------------------------------------------------------

BILLING = ConnectorDefinition("billing", "memory", "/lake")


@pytest.mark.parametrize("continuous", [False, True])
def test_without_a_location_a_dag_captures_and_applies_nothing(*, continuous: bool) -> None:
    dag = cdc_dag(SHOP, conn_id="shop", continuous=continuous)
    assert sorted(dag.task_ids) == (["capture"] if continuous else ["capture", "wait"])
    assert "change log" in str(dag.doc_md)
    for applied in ({"tables": [{"tables": "a", "mode": "log"}]}, {"group": {"apply": {"threads": 2}}}):
        with pytest.raises(ConfigError, match="without location"):
            cdc_dag(SHOP, conn_id="shop", **applied)  # type: ignore[arg-type]


def test_one_dag_applies_what_several_connectors_capture_as_soon_as_they_do() -> None:
    dag = apply_dag(
        [SHOP, ConnectorApplyOptions(definition=BILLING, location="/b/{table}")], location="/lake/{table}", tags=["x"]
    )
    assert (dag.dag_id, dag.max_active_runs, dag.catchup, dag.tags) == ("cdc_apply", 1, False, {"x"})
    starts = [asset.uri for asset in dag.schedule.objects]
    due = ["cdc://billing/cdc_apply/apply-due", "cdc://shop/cdc_apply/apply-due"]
    assert sorted(starts) == sorted(["cdc://billing/captured", "cdc://shop/captured", *due])
    (apply,) = dag.tasks
    assert isinstance(apply, ApplyConnectorsOperator)
    assert [one["location"] for one in apply.connectors] == ["/lake/{table}", "/b/{table}"]
    assert (apply.run_for, apply.retries) == (None, 3)
    assert apply_dag([SHOP], location="/l", schedule=None).schedule is None


def test_a_continuous_one_hands_over_every_run_for_and_refuses_what_would_leave_a_gap() -> None:
    dag = apply_dag([SHOP, BILLING], location="/lake/{table}", continuous=True, run_for=600, apply={"threads": 7})
    assert (dag.schedule, dag.max_active_runs) == (timedelta(minutes=10), 2)
    (apply,) = dag.tasks
    assert isinstance(apply, ApplyConnectorsOperator)
    assert apply.run_for == 720
    assert {spec.threads for spec in apply._options_by_name.values()} == {7}
    for wrong in ({"schedule": "@daily"}, {"max_active_runs": 1}):
        with pytest.raises(ConfigError, match="continuous=True"):
            apply_dag([SHOP], location="/l", continuous=True, **wrong)  # type: ignore[arg-type]


# -- several connectors by one task --------------------------------------------------------------------------------------


def test_one_dag_waits_for_captures_and_applies_several_connectors_and_its_run_fails_with_any_of_them() -> None:
    given = [
        GroupedConnector(definition=SHOP, conn_id="shop"),
        GroupedConnector(definition=BILLING, conn_id="b", storage_conn_id="s"),
    ]
    other = ConnectorApplyOptions(definition=SHOP, location="/s/{table}", profile="fast")
    dag = cdc_group_dag(given, location="/lake/{table}", tables_of=[other], poll_interval=7, tags=["x"])
    assert (dag.dag_id, dag.max_active_runs, dag.catchup, dag.tags) == ("cdc_group", 1, False, {"x"})
    assert {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks} == {
        "wait": ["capture"], "capture": ["apply", "captured"], "apply": [], "captured": []
    }  # fmt: skip
    wait, capture, apply, captured = (dag.get_task(name) for name in ("wait", "capture", "apply", "captured"))
    assert (
        [one["name"] for one in capture.connectors] == [one["name"] for one in wait.connectors] == ["shop", "billing"]
    )  # type: ignore[attr-defined]
    assert (wait.poll_interval, wait.soft_fail) == (7, True)  # type: ignore[attr-defined]
    assert isinstance(apply, ApplyConnectorsOperator)
    assert [(one["location"], one["storage_conn_id"]) for one in apply.connectors] == [
        ("/s/{table}", None),
        ("/lake/{table}", "s"),
    ]
    # what is captured of those that have not failed is applied; a separate task keeps the run from being a success then
    assert (apply.trigger_rule, captured.trigger_rule) == ("none_skipped", "all_success")
    assert sorted(outlet.name for outlet in apply.outlets) == ["cdc://billing", "cdc://shop"]
    serialize_dag(dag)


def test_a_group_without_a_location_captures_only() -> None:
    given = [GroupedConnector(definition=SHOP, conn_id="shop")]
    assert sorted(cdc_group_dag(given).task_ids) == ["capture", "wait"]
    assert cdc_group_dag(given, wait=False, schedule="@daily").task_ids == ["capture"]
    with pytest.raises(ConfigError, match="without location"):
        cdc_group_dag(given, apply={"threads": 3})
    with pytest.raises(ConfigError, match=r"does not capture: billing[\s\S]*captured: shop"):
        cdc_group_dag(given, tables_of=[ConnectorApplyOptions(definition=BILLING, location="/b")])


def test_the_alerts_dag_refuses_limits_and_notifiers_that_it_cannot_use() -> None:
    for wrong in ({"behind": 7}, {"behind_s": 0}, {"behind_s": "7"}, {"stale_s": timedelta(0)}, 7):
        with pytest.raises(ConfigError, match="limits"):
            alerts_dag(limits=wrong)  # type: ignore[arg-type]
    for nothing in ("mail", print, [print, "mail"], None):
        with pytest.raises(ConfigError, match="notify"):
            alerts_dag(notify=nothing)  # type: ignore[arg-type]
    made = alerts_dag(limits=AlertLimits(stale_s=60), notify=[print], dag_id="watch", schedule="@hourly", tags=["ops"])
    assert (made.dag_id, made.schedule, made.tags, made.max_active_runs) == ("watch", "@hourly", {"ops"}, 1)
    assert made.get_task("look").retries == 0
    serialize_dag(made)


def test_the_maintenance_dag_has_a_task_for_each_connector_and_spark_only_where_there_are_tables() -> None:
    billing, crm = replace(SHOP, name="billing"), replace(SHOP, name="crm")
    made = maintenance_dag(
        [SHOP, ConnectorApplyOptions(definition=billing, location="/finance/{table}", threads=4)],
        location="/lake/{table}", target="iceberg", keep=timedelta(days=2), maintain={"threads": 3, "conf": {"a": "b"}},
    )  # fmt: skip
    shop, finance = made.get_task("shop"), made.get_task("billing")
    assert isinstance(shop, MaintainTablesOperator)
    assert isinstance(finance, MaintainTablesOperator)
    assert [(task.location, task.threads, task.target) for task in (shop, finance)] == [
        ("/lake/{table}", 3, "iceberg"), ("/finance/{table}", 4, "iceberg"),
    ]  # fmt: skip
    assert shop.keep == timedelta(days=2)
    assert (shop.retries, made.schedule, made.max_active_runs, made.catchup) == (1, "@daily", 1, False)
    assert isinstance(maintenance_dag([crm]).get_task("crm"), RetentionOperator)
    serialize_dag(made)


@pytest.mark.parametrize(
    ("connectors", "given", "named"),
    [
        ([], {}, "connectors"), ([SHOP, SHOP], {}, "shop"), (["shop"], {}, "connectors"), (SHOP, {}, "connectors"),
        ([SHOP], {"maintain": {"threads": 2}}, "location"), ([SHOP], {"location": "/l", "keep": timedelta(minutes=1)}, "keep|hour"),
        ([SHOP], {"location": "/l", "target": "orc"}, "orc"),
    ],
)  # fmt: skip
def test_the_maintenance_dag_refuses_arguments_that_it_cannot_use(
    connectors: Any, given: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        maintenance_dag(connectors, **given)
