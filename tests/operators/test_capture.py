"""The capture task, on a real state database, change log and memory source."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.api.datamodels._generated import DagRunType

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.operators import capture as module
from airflow_provider_cdc.operators.base.operator_links import BatchLink
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.verify_tables import VerifyTablesOperator
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop
from tests.support.airflow.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    cdc_command,
    page_link,
)
from tests.support.patience import LONGEST_S, wait_until


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "capture-operator")
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector, **more: Any) -> CaptureOperator:
    return CaptureOperator(**{"task_id": "capture", "definition": shop_connector.definition, "conn_id": "shop", **more})


def link(operator: CaptureOperator) -> str:
    return BatchLink().get_link(operator, ti_key=None)  # type: ignore[arg-type]


def test_a_run_returns_what_it_made_durable_and_links_to_its_last_batch(shop_connector: ShopConnector) -> None:
    shop_connector.order(1)
    shop_connector.order(2)
    operator = capture(shop_connector)
    result = operator.execute(context())
    assert result.pop("seconds") >= 0
    assert set(result.pop("metrics")) == {"snapshot", "streaming", "schema-history"}
    assert result == {
        "connector": "shop",
        "topic_prefix": "shop",
        "position": "entry 3",
        "seq": 3,  # the table's structure is a separate entry
        "events": 2,
        "topics": {"shop.inventory.orders": 2},
        "batches": [1, 1],
    }
    assert link(operator) == page_link("/plugin/cdc/connectors/shop/batches/1")


def test_a_run_returns_its_metrics_by_connector_prefix_and_context(shop_connector: ShopConnector) -> None:
    """The result has metrics that are lists or maps, too."""
    shop_connector.order(1)
    shop_connector.order(2)
    definition = replace(
        shop_connector.definition, properties={**shop_connector.definition.properties, "topic.prefix": "eu"}
    )
    result = capture(shop_connector, definition=definition).execute(context())
    assert (result["connector"], result["topic_prefix"]) == ("shop", "eu")
    metrics = result["metrics"]
    assert metrics["snapshot"]["SnapshotCompleted"] is True
    assert metrics["snapshot"]["TotalNumberOfEventsSeen"] == 2
    assert metrics["snapshot"]["RowsScanned"] == {"inventory.orders": 2}
    assert metrics["streaming"]["CapturedTables"] == ["inventory.orders"]
    assert metrics["schema-history"]["ChangesApplied"] == 1


def test_metrics_that_grow_with_the_number_of_tables_are_cut_where_airflow_keeps_them(
    shop_connector: ShopConnector,
) -> None:
    for n in range(60):
        shop_connector.database.create_table(
            f"inventory.t{n:02d}", {"id": "int64!"}, key=("id",), rows=[{"id": 1}] * (n > 9)
        )
    metrics = capture(shop_connector).execute(context())["metrics"]
    assert len(metrics["streaming"]["CapturedTables"]) == 51
    assert metrics["streaming"]["CapturedTables"][-1] == "… and 11 more"
    scanned = metrics["snapshot"]["RowsScanned"]
    assert scanned.pop("… more") == 11
    assert set(scanned) == {f"inventory.t{n:02d}" for n in range(10, 60)}
    kept = shop_connector.store.find_connector("shop").metrics
    assert len(kept["streaming"]["CapturedTables"]) == len(kept["snapshot"]["RowsScanned"]) == 61


def test_long_texts_are_cut_where_airflow_keeps_them(shop_connector: ShopConnector) -> None:
    """Such as the statement of the last schema change; the memory source has none, but names."""
    shop_connector.database.create_table(f"inventory.{'t' * 120}", {"id": "int64!"}, key=("id",))
    metrics = capture(shop_connector).execute(context())["metrics"]["schema-history"]
    kept = shop_connector.store.find_connector("shop").metrics["schema-history"]
    assert metrics["LastAppliedChange"] == kept["LastAppliedChange"][:100] + "…" == f"inventory.{'t' * 90}…"
    assert metrics["Status"] == "RUNNING"


def test_the_metrics_of_a_run_that_fails_reach_its_log_and_the_state(
    shop_connector: ShopConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no result."""
    capture(shop_connector).execute(context())
    shop_connector.order(1)
    for table in ("inventory.a b", "inventory.a_b"):  # both have the topic shop.inventory.a_b
        shop_connector.database.create_table(table, {"id": "int64!"}, key=("id",))
    shop_connector.database.drop_table("inventory.a b")
    with pytest.raises(AirflowFailException, match="would both have the topic"), caplog.at_level("INFO"):
        capture(shop_connector).execute(context())
    row = shop_connector.store.find_connector("shop")
    assert "would both have the topic" in row.last_error
    assert row.metrics["streaming"]["TotalNumberOfCreateEventsSeen"] == 1
    assert row.metrics["streaming"]["CapturedTables"] == ["inventory.orders"]
    assert row.metrics["schema-history"]["ChangesRecovered"] == 1
    assert "Metrics, streaming: LastEvent=shop.inventory.orders c seq 2" in caplog.text


def test_a_run_that_read_nothing_leaves_the_metrics_of_the_one_before(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_connector.order(1)
    capture(shop_connector).execute(context())
    before = shop_connector.store.find_connector("shop").metrics
    with shop_connector.store.acquire_lease("shop", "somebody", wait_s=0), pytest.raises(AirflowException):
        capture(shop_connector, lease_wait=0).execute(context())
    assert shop_connector.store.find_connector("shop").metrics == before


def test_a_run_without_changes_succeeds_and_links_to_the_connector(shop_connector: ShopConnector) -> None:
    capture(shop_connector).execute(context())
    operator = capture(shop_connector)
    result = operator.execute(context())
    assert (result["events"], result["batches"]) == (0, [])
    assert link(operator) == page_link("/plugin/cdc/connectors/shop")


def test_the_state_remembers_the_definition_and_the_connections_by_their_ids(shop_connector: ShopConnector) -> None:
    capture(shop_connector).execute(context())
    assert shop_connector.store.find_registration("shop") == ConnectorRegistration(
        connector="shop",
        source="memory",
        changelog=shop_connector.definition.changelog,
        properties={"memory.database": "capture-operator", "poll.interval.ms": 10, "topic.prefix": "shop"},
        connections={"source": "shop", "state": "cdc_state_default", "dag": "d"},
    )


def test_a_definition_is_checked_recorded_and_begun_by_its_first_run_and_repeating_it_changes_nothing(
    shop_connector: ShopConnector,
) -> None:
    shop_connector.order(1)
    wrong = replace(
        shop_connector.definition, properties={**shop_connector.definition.properties, "table.include.lsit": "a"}
    )
    with pytest.raises(AirflowFailException, match=r"table\.include\.lsit: unknown property"):
        capture(shop_connector, definition=wrong).execute(context())
    assert shop_connector.store.list_connectors() == []
    assert [capture(shop_connector).execute(context())["events"] for _ in range(2)] == [1, 0]
    (known,) = shop_connector.store.list_connectors()
    assert (known.connector, known.source_kind, known.last_batch) == ("shop", "memory", 1)


def test_ending_the_task_commits_what_is_there_and_succeeds(shop_connector: ShopConnector) -> None:
    shop_connector.order(1)
    operator = capture(shop_connector, run_for=600)
    results: list[dict[str, Any]] = []
    running = threading.Thread(target=lambda: results.append(operator.execute(context())))
    running.start()
    wait_until(lambda: shop_connector.store.list_batches("shop"), "the snapshot is committed: the run is streaming")
    shop_connector.order(2)
    offset = shop_connector.store.load_offset("shop").offset
    operator.on_kill()
    running.join(300)
    assert not running.is_alive()
    assert shop_connector.store.find_connector("shop").owner is None
    capture(shop_connector).execute(context())
    manifests = list(ChangeLog(shop_connector.definition.changelog).read_manifests("shop"))
    assert sum(m.event_count for m in manifests) == 2
    assert results[0]["seq"] >= (offset.seq if offset else 0)


def test_a_task_that_is_ended_before_it_could_begin_reads_no_log(shop_connector: ShopConnector) -> None:
    operator = capture(shop_connector, run_for=600)
    operator.on_kill()
    began = time.monotonic()
    operator.execute(context())
    assert time.monotonic() - began < 300, "it was not to run for its 600 seconds"


def test_the_lease_names_the_task_that_holds_it(shop_connector: ShopConnector) -> None:
    operator = capture(shop_connector, run_for=600)
    running = threading.Thread(target=lambda: operator.execute(context()))
    running.start()
    owner = wait_until(
        lambda: (row := shop_connector.store.find_connector("shop")) and row.owner, "the run has its lease"
    )
    assert owner.startswith("d.t r try 1 on ")
    with pytest.raises(AirflowException, match=r"is being captured by d\.t r try 1") as caught:
        capture(shop_connector, lease_wait=0.0).execute(context())
    assert not isinstance(caught.value, AirflowFailException)  # Airflow tries this one again
    operator.on_kill()
    running.join(30)


def test_what_a_person_must_mend_is_not_tried_again(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector).execute(context())
    shop_connector.order(1)
    shop_connector.database.purge_log()
    with pytest.raises(AirflowFailException, match=r"snapshot\.mode=when_needed"):
        capture(shop_connector).execute(context())
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password="")
    with pytest.raises(AirflowFailException, match=cdc_command("setup")):
        capture(shop_connector).execute(context())


def test_a_definition_with_a_secret_is_refused_when_the_dag_is_parsed() -> None:
    definition = ConnectorDefinition("shop", "mysql", "/lake", {"database.password": "hunter2"})
    with pytest.raises(ConfigError, match=r"database\.password") as caught:
        CaptureOperator(task_id="capture", definition=definition, conn_id="shop")
    assert "hunter2" not in str(caught.value)


def test_paths_and_properties_are_templates(shop_connector: ShopConnector) -> None:
    definition = ConnectorDefinition(
        "shop", "memory", "/lake/{{ ds }}", {"topic.prefix": "p{{ run_id }}"}, {"endpoint": "{{ ds }}"}
    )
    operator = capture(shop_connector, definition=definition, conn_id="{{ run_id }}")
    operator.render_template_fields({"ds": "2024-01-01", "run_id": "7"})  # type: ignore[typeddict-item]
    access = operator.connector_access
    assert access.definition.changelog == "/lake/2024-01-01"
    assert access.definition.properties == {"topic.prefix": "p7"}
    assert access.definition.changelog_options == {"endpoint": "2024-01-01"}
    assert access.conn_id == "7"


def test_texts_stay_texts_in_a_dag_with_native_templates(shop_connector: ShopConnector) -> None:
    """AF01: the number 2024 was no topic prefix."""
    properties = {"topic.prefix": "2024", "topic.delimiter": "{{ params.mark }}", "poll.interval.ms": 10}
    definition = replace(shop_connector.definition, properties=properties)
    with DAG("native", render_template_as_native_obj=True):
        operator = capture(shop_connector, definition=definition, conn_id="{{ params.number }}", storage_conn_id="1_0")
        verify = VerifyTablesOperator(
            task_id="verify", definition=definition, location="/l", source_conn_id="s", tables="{{ params.tables }}"
        )
    given: Any = {"params": {"mark": "1e3", "number": "007", "tables": ["a.b"]}}
    operator.render_template_fields(given)
    assert operator.properties == {"topic.prefix": "2024", "topic.delimiter": "1e3", "poll.interval.ms": 10}
    assert (operator.conn_id, operator.storage_conn_id) == ("007", "1_0")
    verify.render_template_fields(given)
    assert verify.tables == ["a.b"]


def test_a_name_is_not_taken_from_another_connector(shop_connector: ShopConnector, tmp_path: Path) -> None:
    """The last one to start took the offset, the pages and the rights of the other one. A change log that was moved is the same one."""
    shop_connector.order(1)
    capture(shop_connector).execute(context())
    recorded = shop_connector.store.find_registration("shop")
    elsewhere = replace(shop_connector.definition, changelog=f"{tmp_path}/elsewhere")
    with pytest.raises(
        AirflowFailException, match=r"another connector shop: it has the change log .*instead of .*else"
    ):
        capture(shop_connector, definition=elsewhere).execute(context())
    assert shop_connector.store.find_registration("shop") == recorded
    capture(shop_connector, definition=replace(shop_connector.definition, changelog=f"{recorded.changelog}/")).execute(
        context()
    )
    moved = replace(shop_connector.definition, changelog=f"{tmp_path}/moved")
    shutil.copytree(recorded.changelog, moved.changelog)
    capture(shop_connector, definition=moved).execute(context())
    assert shop_connector.store.find_registration("shop").changelog == moved.changelog
    with pytest.raises(AirflowException):  # it is accepted, and the batches of the offset are not there
        capture(shop_connector, definition=elsewhere, adopt=True).execute(context())
    assert shop_connector.store.find_registration("shop").changelog == elsewhere.changelog


def test_another_dag_gets_the_rights_on_a_connector_when_no_run_of_the_first_is_alive(
    shop_connector: ShopConnector,
) -> None:
    capture(shop_connector).execute(context())
    other = context()
    other["ti"].dag_id = "other"
    with shop_connector.store.acquire_lease("shop", "d.t r", wait_s=0), pytest.raises(AirflowException):
        capture(shop_connector, lease_wait=0).execute(other)
    assert shop_connector.store.find_registration("shop").connections["dag"] == "d"
    capture(shop_connector).execute(other)
    assert shop_connector.store.find_registration("shop").connections["dag"] == "other"


# runs that hand over to the next one


def began(seconds_ago: float) -> Any:
    return SimpleNamespace(start_date=datetime.now(UTC) - timedelta(seconds=seconds_ago))


def test_its_time_counts_from_the_beginning_of_the_dag_run(shop_connector: ShopConnector) -> None:
    shop_connector.order(1)
    at = time.monotonic()
    result = capture(shop_connector, run_for=103, hand_over=True).execute(context(dag_run=began(100)))
    assert result["events"] == 1
    assert 2 < time.monotonic() - at < 30


def test_a_retry_after_the_end_of_its_time_still_captures_what_there_is(shop_connector: ShopConnector) -> None:
    shop_connector.order(1)
    assert capture(shop_connector, run_for=60, hand_over=True).execute(context(dag_run=began(100)))["events"] == 1


@pytest.mark.long
def test_a_connector_that_is_restarted_or_paused_goes_on_in_the_same_run(
    shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSED_S", 1)
    operator = capture(shop_connector, run_for=3600, hand_over=True)

    def has_reached(events: int) -> bool:
        offset = shop_connector.store.load_offset("shop").offset
        return offset is not None and offset.seq >= 1 + events

    def write_orders() -> None:
        shop_connector.order(1)
        wait_until(lambda: has_reached(1), "the first order is captured")
        shop_connector.store.request_restart("shop", "ann")
        shop_connector.order(2)
        wait_until(lambda: has_reached(2), "the second order is captured")
        shop_connector.store.set_control("shop", DesiredState.PAUSED, "ann")
        wait_until(lambda: operator._capture is None, "the run has ended")
        shop_connector.order(3)
        shop_connector.store.set_control("shop", DesiredState.RUNNING, "ann")
        wait_until(lambda: has_reached(3), "the third order is captured")
        operator.on_kill()

    thread = threading.Thread(target=write_orders)
    thread.start()
    with pytest.raises(AirflowException, match="the next try continues"):
        operator.execute(context())
    thread.join()
    assert sum(m.event_count for m in ChangeLog(shop_connector.definition.changelog).read_manifests("shop")) == 3


def test_one_that_hands_over_and_is_ended_before_its_time_is_tried_again(shop_connector: ShopConnector) -> None:
    """A success would leave the source to no one until the next run begins."""
    shop_connector.order(1)
    operator = capture(shop_connector, run_for=3600, hand_over=True)

    def end() -> None:
        wait_until(lambda: shop_connector.store.list_batches("shop"), "the snapshot is committed")
        operator.on_kill()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(AirflowException, match=r"stopped before run_for ended.*the next try continues") as caught:
        operator.execute(context(dag_run=began(10)))
    thread.join()
    assert not isinstance(caught.value, AirflowFailException)
    assert operator.batch == 1
    assert shop_connector.store.find_connector("shop").owner is None


def test_the_next_run_waits_for_the_lease_and_goes_on(shop_connector: ShopConnector) -> None:
    first = capture(shop_connector, run_for=4, hand_over=True)
    results: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: results.append(first.execute(context())))
    thread.start()
    wait_until(lambda: shop_connector.store.load_offset("shop").offset is not None, "the first one captures")
    second = capture(shop_connector, run_for=3, hand_over=True, lease_wait=60).execute(context())
    thread.join()
    assert len(results) == 1
    assert second["seconds"] > 0


def test_a_run_that_a_user_triggers_takes_over_at_once_and_the_retry_of_the_earlier_one_leaves_it_the_capture(
    shop_connector: ShopConnector,
) -> None:
    """AF15: it waited ten minutes for the lease, and failed."""
    earlier, later = began(100), began(50)
    first = capture(shop_connector, run_for=3600, hand_over=True)
    second = capture(shop_connector, run_for=3600, hand_over=True, lease_wait=60)
    with ThreadPoolExecutor() as threads:
        try:
            shop_connector.order(1)
            taken_over = threads.submit(first.execute, context(dag_run=earlier))
            wait_until(lambda: shop_connector.store.list_batches("shop"), "the first one captures")
            running = threads.submit(second.execute, context(dag_run=later))
            assert taken_over.result(LONGEST_S)["events"] == 1
            owner = wait_until(lambda: shop_connector.store.find_connector("shop").owner, "the second one captures")
            assert owner.endswith(f"run of {later.start_date.isoformat()}")
            with pytest.raises(AirflowSkipException, match="A later run"):
                capture(shop_connector, run_for=3600, hand_over=True).execute(context(dag_run=earlier))
            assert shop_connector.store.find_connector("shop").owner == owner
        finally:
            first.on_kill()
            second.on_kill()
    with pytest.raises(AirflowException, match="stopped before run_for ended"):
        running.result(LONGEST_S)


def test_a_run_does_not_take_over_from_another_dag(shop_connector: ShopConnector) -> None:
    owner = f"other.t r try 1, run of {began(100).start_date.isoformat()}"
    operator = capture(shop_connector, run_for=60, hand_over=True, lease_wait=0)
    with (
        shop_connector.store.acquire_lease("shop", owner, wait_s=0),
        pytest.raises(AirflowException, match=r"captured by other\.t"),
    ):
        operator.execute(context(dag_run=began(5)))
    assert shop_connector.store.load_control("shop").restarts == 0


def test_a_run_of_a_backfill_captures_nothing(shop_connector: ShopConnector) -> None:
    """AF16"""
    shop_connector.order(1)
    run = SimpleNamespace(start_date=datetime.now(UTC), run_type=DagRunType.BACKFILL)
    with pytest.raises(AirflowFailException, match="backfill cannot capture"):
        capture(shop_connector, run_for=60, hand_over=True).execute(context(dag_run=run))
    assert shop_connector.store.list_batches("shop") == []


def test_a_run_that_ends_by_itself_has_nothing_to_hand_over(shop_connector: ShopConnector) -> None:
    with pytest.raises(ConfigError, match="hand_over needs run_for"):
        capture(shop_connector, hand_over=True)
