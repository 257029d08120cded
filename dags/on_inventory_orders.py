"""Starts whenever orders have changed in the ``inventory`` database, as soon as the changes are captured.

The asset events of a run name the batches that hold the changes. A run that should wait until a target has them begins with
``AppliedSensor``.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task
from inventory import inventory

from airflow_provider_cdc.dag import watched_table_asset

orders = watched_table_asset(inventory, "inventory.orders")


@task
def report(**context: Any) -> int:
    """Print what has changed; return the number of events."""
    payloads = [event.extra["payload"] for event in context["triggering_asset_events"][orders]]
    for payload in payloads:
        first, last = payload["batches"]
        print(f"{payload['events']} events of orders in batches {first} to {last}, up to seq {payload['last_seq']}")
    return sum(payload["events"] for payload in payloads)


with DAG("on_inventory_orders", schedule=[orders], catchup=False, tags=["cdc"]) as dag:
    report()
