"""The sensor's own part; how far a target is: ``tests/triggers/test_changes_applied.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.changes_applied import AppliedSensor
from airflow_provider_cdc.triggers.changes_applied import AppliedTrigger
from tests.support.airflow.airflow_connector import ShopConnector, TaskState, context, make_shop
from tests.support.airflow.airflow_versions import AirflowFailException, TaskDeferred
from tests.support.airflow.trigger_runs import report


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "applied-sensor")
    shop_connector.order(1)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    yield shop_connector
    shop_connector.store.close()


def sensor(**more: Any) -> AppliedSensor:
    return AppliedSensor(**{"task_id": "wait", "connector": "shop", "poll_interval": 0.05, **more})


def test_it_waits_in_the_triggerer_for_the_batch_that_was_the_last_one(shop_connector: ShopConnector) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        sensor().execute(context())
    trigger = deferred.value.trigger
    assert isinstance(trigger, AppliedTrigger)
    assert trigger.serialize()[1]["batch"] == 1  # another triggerer waits for the same
    report(shop_connector, 1)
    assert sensor().execute(context()) == {"batch": 1, "applied": 1, "target": "delta"}


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_in_a_worker_it_waits_for_the_same_batch_however_much_is_captured_meanwhile(
    shop_connector: ShopConnector, mode: str
) -> None:
    waits, given = sensor(deferrable=False, mode=mode), context(task_state_store=TaskState())
    assert not waits.poke(given)
    shop_connector.order(2)
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    report(shop_connector, 1)
    if mode == "reschedule":  # each poke is a separate process
        waits = sensor(deferrable=False, mode=mode)
    found = waits.poke(given)
    assert found
    assert found.xcom_value == {"batch": 1, "applied": 1, "target": "delta"}  # type: ignore[union-attr]


def test_points_may_come_from_templates(shop_connector: ShopConnector) -> None:
    report(shop_connector, 1)
    assert sensor(seq="1").execute(context())["batch"] == 1
    assert sensor(position='{"entry": 2}').execute(context())["batch"] == 1
    operator = sensor(seq="{{ n }}", connector="{{ c }}")
    operator.render_template_fields({"n": 1, "c": "shop"})  # type: ignore[typeddict-item]
    assert operator.execute(context())["batch"] == 1


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"seq": 1, "batch": 1}, "only one of batch, seq and position"),
        ({"seq": "one"}, "is not a number"),
        ({"position": "there"}, "'there' is not a position"),
    ],
)
def test_points_that_cannot_be_meant_are_refused(
    shop_connector: ShopConnector, point: dict[str, Any], message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        sensor(**point).execute(context())
