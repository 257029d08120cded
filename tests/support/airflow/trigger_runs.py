"""For tests of triggers: as a triggerer makes and runs them."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable
from typing import Any

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from tests.support.airflow.airflow_connector import ShopConnector
from tests.support.patience import LONGEST_S


def deserialize_trigger(trigger: Any) -> Any:
    """The trigger that another triggerer makes from what was serialized."""
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))


async def await_first_event(trigger: Any, *, within: float = LONGEST_S) -> Any:
    """The first event, ``None`` when there is none in time."""
    events = trigger.run()
    try:
        return (await asyncio.wait_for(anext(events), within)).payload
    except TimeoutError:
        return None
    finally:
        await events.aclose()


async def waiting(triggers: list[Any], *, until: Callable[[], bool]) -> None:
    """Run triggers, which have no reason to fire, until something is true."""
    tasks = [asyncio.create_task(await_first_event(trigger, within=LONGEST_S)) for trigger in triggers]
    try:
        while not until():
            await asyncio.sleep(0.02)
            for task in tasks:
                assert not task.done(), task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def report(
    shop_connector: ShopConnector,
    last: int,
    lagging: dict[str, int] | None = None,
    failed: dict[str, str] | None = None,
    location: str = "/lake",
    table_states: dict[str, dict[str, Any]] | None = None,
) -> None:
    """Write the report of a finished apply beside the change log.

    A stand-in for ``airflow_provider_cdc.targets.lake.jobs.apply_changes``.
    """
    document = {
        "target": "delta",
        "last_batch": last,
        "tables": [],
        "lagging": lagging or {},
        "failed": failed or {},
        "table_states": table_states or {},
        "seconds": 1,
    }
    ApplyReports(ChangeLog(shop_connector.definition.changelog).storage, "shop").write(
        {**document, "location": location}
    )
