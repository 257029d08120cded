"""Tasks that send signals, on real state tables and a memory source that carries them out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.hooks.page_links import ConnectorLink
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.signal import AdHocSnapshotOperator, SendSignalOperator
from airflow_provider_cdc.triggers.signal_completed import SignalCompletedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, AirflowFailException, TaskDeferred, page_link


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "signal-operator")
    shop_connector.order(1)
    capture(shop_connector)
    yield shop_connector
    shop_connector.store.close()


def capture(shop_connector: ShopConnector) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())


def signals(shop_connector: ShopConnector) -> list[dict[str, Any]]:
    return shop_connector.store.signals_of("shop", 50)


def instance(*, max_tries: int = 0, retries: int = 0) -> Any:
    """The context of a task instance."""
    task = SimpleNamespace(retries=retries)
    ti = SimpleNamespace(
        dag_id="d", task_id="t", run_id="r", try_number=1, map_index=-1, max_tries=max_tries, task=task
    )
    return context(ti=ti, dag_run=SimpleNamespace(triggering_user_name="ann"))


def test_a_signal_is_recorded_and_returned_by_its_number(shop_connector: ShopConnector) -> None:
    result = SendSignalOperator(task_id="t", connector="shop", type="log", data={"message": "here"}).execute(instance())
    (row,) = signals(shop_connector)
    assert result == {"number": row.number, "id": "d.t r", "type": "log"}
    assert (row.type, json.loads(row.data), row.channel) == ("log", {"message": "here"}, "airflow")
    assert row.sent_by == "ann, by d r"
    assert row.state == "received"


def test_a_task_that_is_tried_again_does_not_send_twice(shop_connector: ShopConnector) -> None:
    operator = SendSignalOperator(task_id="t", connector="shop", type="pause-snapshot")
    first = operator.execute(instance(max_tries=2, retries=2))
    assert operator.execute(instance(max_tries=2, retries=2)) == first
    assert len(signals(shop_connector)) == 1


def test_a_task_that_was_cleared_sends_again(shop_connector: ShopConnector) -> None:
    operator = SendSignalOperator(task_id="t", connector="shop", type="pause-snapshot")
    operator.execute(instance(max_tries=2, retries=2))
    operator.execute(instance(max_tries=3, retries=2))  # Airflow raises max_tries when a task is cleared
    assert len(signals(shop_connector)) == 2


@pytest.mark.parametrize(
    ("type_", "data", "wrong"),
    [
        ("execute-snapshot", "{", "its data is not JSON"),
        ("execute-snapshot", {"type": "sideways"}, "valid values are incremental and blocking"),
        ("stop-snapshot", {}, "the only valid value is incremental"),
        ("log", None, "it has no data"),
    ],
)
def test_data_that_cannot_be_meant_is_refused_before_it_is_sent(
    shop_connector: ShopConnector, type_: str, data: Any, wrong: str
) -> None:
    with pytest.raises(AirflowFailException, match=wrong):
        SendSignalOperator(task_id="t", connector="shop", type=type_, data=data).execute(instance())
    assert signals(shop_connector) == []


def test_a_connector_that_no_one_knows_is_refused_by_name(shop_connector: ShopConnector) -> None:
    with pytest.raises(AirflowException, match=r"No connector 'shpo'[\s\S]*shop"):
        SendSignalOperator(task_id="t", connector="shpo", type="pause-snapshot").execute(instance())


def test_it_waits_in_the_triggerer_for_what_becomes_of_the_signal(shop_connector: ShopConnector) -> None:
    operator = SendSignalOperator(
        task_id="t", connector="shop", type="pause-snapshot", wait=True, wait_timeout=timedelta(hours=1)
    )
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(instance())
    assert isinstance(deferred.value.trigger, SignalCompletedTrigger)
    assert deferred.value.trigger.number == signals(shop_connector)[0].number
    assert deferred.value.timeout == timedelta(hours=1)


def test_it_waits_in_a_worker_where_there_is_no_triggerer(shop_connector: ShopConnector) -> None:
    operator = SendSignalOperator(
        task_id="t",
        connector="shop",
        type="log",
        data={"message": "x"},
        wait=True,
        deferrable=False,
        poll_interval=0.05,
        wait_timeout=timedelta(minutes=1),
    )

    def capture_once_sent() -> None:
        while not signals(shop_connector):
            time.sleep(0.05)
        capture(shop_connector)

    running = threading.Thread(target=capture_once_sent)
    running.start()
    assert operator.execute(instance())["state"] == "done"
    running.join()


def test_waiting_in_a_worker_ends_at_its_timeout_and_the_signal_stays(shop_connector: ShopConnector) -> None:
    operator = SendSignalOperator(
        task_id="t", connector="shop", type="pause-snapshot", wait=True, deferrable=False, poll_interval=0.05,
        wait_timeout=timedelta(seconds=0.2),
    )  # fmt: skip
    with pytest.raises(AirflowException, match="waits for a run"):
        operator.execute(instance())
    assert signals(shop_connector)[0].state == "received"


@pytest.mark.parametrize(
    ("state", "message"), [(SignalState.REFUSED, "was refused: no such thing"), (SignalState.FAILED, "failed: no")]
)
def test_a_signal_that_is_not_carried_out_fails_the_task(
    shop_connector: ShopConnector, state: SignalState, message: str
) -> None:
    operator = SendSignalOperator(task_id="t", connector="shop", type="pause-snapshot", wait=True)
    event = {"number": 7, "type": "pause-snapshot", "state": state.value, "message": "no such thing", "progress": None}
    with pytest.raises(AirflowFailException, match=message):
        operator.execute_complete(instance(), event)


@pytest.mark.parametrize("blocking", [False, True])
def test_an_ad_hoc_snapshot_reads_the_rows_that_are_asked_for_again(
    shop_connector: ShopConnector, blocking: bool
) -> None:
    shop_connector.database.create_table("inventory.lines", {"id": "int64!", "note": "string"}, key=("id",))
    with shop_connector.database.transaction() as t:
        for key in range(5):
            t.insert("inventory.lines", {"id": key, "note": ""})
    capture(shop_connector)
    operator = AdHocSnapshotOperator(task_id="t", connector="shop", tables=["inventory.lines"], blocking=blocking)
    number = operator.execute(instance())["number"]
    capture(shop_connector)
    (row,) = shop_connector.store.signals_of("shop", number=number)
    assert row.state == "done", row
    assert shop_connector.store.list_batches("shop")[0].topics["shop.inventory.lines"] >= 5


def test_an_ad_hoc_snapshot_is_the_documented_signal() -> None:
    operator = AdHocSnapshotOperator(
        task_id="t",
        connector="shop",
        tables=["a.b", "a.c"],
        blocking=True,
        filters={"a.b": "SELECT 1"},
        surrogate_key="n",
        on_spark=True,
    )
    assert operator.build_signal_data() == {
        "type": "blocking",
        "data-collections": ["a.b", "a.c"],
        "additional-conditions": [{"data-collection": "a.b", "filter": "SELECT 1"}],
        "surrogate-key": "n",
        "engine": "spark",
    }


@pytest.mark.parametrize("given", [500, "500", " {{ rows }} "])
def test_a_chunk_size_may_be_a_template(given: int | str) -> None:
    operator = AdHocSnapshotOperator(task_id="t", connector="shop", tables=["a.b"], chunk_size=given)
    operator.render_template_fields({"rows": 500})  # type: ignore[typeddict-item]
    assert operator.build_signal_data() == {"type": "incremental", "data-collections": ["a.b"], "chunk-size": 500}


def test_ranges_of_keys_go_into_the_signal_and_their_values_may_be_templates() -> None:
    ranges = [{"data-collection": "a.b", "from": {"name": "{{ first }}"}, "absent": [{"name": "x"}]}]
    operator = AdHocSnapshotOperator(task_id="t", connector="shop", tables=["a.b"], key_ranges=ranges)
    operator.render_template_fields({"first": "é'"})  # type: ignore[typeddict-item]
    assert operator.build_signal_data() == {
        "type": "incremental",
        "data-collections": ["a.b"],
        "key-ranges": [{"data-collection": "a.b", "from": {"name": "é'"}, "absent": [{"name": "x"}]}],
    }


@pytest.mark.parametrize("given", [None, "", "{{ params.nothing or '' }}"])
def test_a_chunk_size_may_be_left_to_the_connector(given: str | None) -> None:
    operator = AdHocSnapshotOperator(task_id="t", connector="shop", tables=["a.b"], chunk_size=given)
    operator.render_template_fields({"params": {}})
    assert "chunk-size" not in operator.build_signal_data()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"chunk_size": 0}, "not a whole number from 1"),
        ({"chunk_size": "many"}, "not a whole number from 1"),
        ({"chunk_size": 500, "blocking": True}, "is valid only for incremental snapshots"),
        ({"key_ranges": [{"data-collection": "inventory.orders", "absnet": []}]}, "did you mean absent"),
    ],
)
def test_what_cannot_be_meant_is_not_sent(shop_connector: ShopConnector, given: dict[str, Any], message: str) -> None:
    operator = AdHocSnapshotOperator(task_id="t", connector="shop", tables=["inventory.orders"], **given)
    with pytest.raises(AirflowFailException, match=f"was not sent: .*{message}"):
        operator.execute(instance())
    assert shop_connector.store.list_signals("shop", 0) == []


def test_fields_are_templates_and_the_link_leads_to_the_connector(shop_connector: ShopConnector) -> None:
    operator = AdHocSnapshotOperator(
        task_id="t",
        connector="{{ x }}",
        tables=["{{ x }}.t"],
        filters={"shop.t": "id > {{ y }}"},
        state_conn_id="{{ x }}",
    )
    operator.render_template_fields({"x": "shop", "y": 7})  # type: ignore[typeddict-item]
    assert (operator.connector, operator.state_conn_id) == ("shop", "shop")
    assert operator.build_signal_data()["data-collections"] == ["shop.t"]
    assert operator.build_signal_data()["additional-conditions"][0]["filter"] == "id > 7"
    assert ConnectorLink().get_link(operator, ti_key=None) == page_link("/plugin/cdc/connectors/shop")  # type: ignore[arg-type]
