"""Cases of users of Airflow: what was once green and must not be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sensors.changes_available import ChangesAvailableSensor
from airflow_provider_cdc.triggers.changes_available import ChangesAvailableTrigger
from tests.support.airflow.airflow_connector import connect, context, make_shop
from tests.support.airflow.airflow_versions import AirflowFailException, TaskDeferred


def test_a_source_that_refuses_its_account_while_a_sensor_is_deferred_fails_the_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """AF24. In a real Airflow: ``tests/system/test_waiting.py``."""
    shop_connector = make_shop(monkeypatch, tmp_path, "af24")
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    wait = ChangesAvailableSensor(task_id="wait", definition=shop_connector.definition, conn_id="shop", soft_fail=True)
    with pytest.raises(TaskDeferred) as deferred:
        wait.execute(context())
    connect(monkeypatch, "shop", conn_type="cdc_memory", host="a database that nothing may enter")
    trigger = ChangesAvailableTrigger(**json.loads(json.dumps(deferred.value.trigger.serialize()[1])))

    async def first_event() -> Any:
        return await anext(trigger.run())  # type: ignore[arg-type]

    event = asyncio.run(first_event()).payload
    with pytest.raises(AirflowFailException, match="a database that nothing may enter"):
        wait.resume_execution(deferred.value.method_name, {"event": event}, context())
    shop_connector.store.close()
