"""For tests of the Airflow face inside this process: connections in the environment, a connector on a memory database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore

SHOP = {"id": "int64", "note": "string"}


def connect(monkeypatch: pytest.MonkeyPatch, conn_id: str, **fields: Any) -> None:
    """Make a connection that Airflow finds in the environment."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))


@dataclass
class ShopConnector:
    """A memory database with one table, a connector on it, and the connections ``shop`` and ``cdc_state_default``."""

    database: MemoryDatabase
    definition: ConnectorDefinition
    store: StateStore

    def order(self, key: int, note: str = "") -> None:
        """Insert an order, as a transaction."""
        with self.database.transaction() as t:
            t.insert("inventory.orders", {"id": key, "note": note})


def make_shop(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, **properties: Any) -> ShopConnector:
    """See :class:`ShopConnector`; properties with underscores for dots."""
    database = MemoryDatabase(name)
    database.create_table("inventory.orders", SHOP, key=("id",))
    state_url = f"sqlite:///{folder}/state.db"
    store = StateStore(state_url, lease_ttl_s=5, patience_s=1)
    store.create_tables()
    connect(monkeypatch, "shop", conn_type="cdc_memory", host=name)
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state_url)
    named = {"poll.interval.ms": 10, **{k.replace("_", "."): v for k, v in properties.items()}}
    return ShopConnector(database, ConnectorDefinition("shop", "memory", f"{folder}/changelog", named), store)


def context(**more: Any) -> Any:
    """Make the part of an operator's context that ours use, in the first of four tries."""
    from airflow.sdk.execution_time.context import OutletEventAccessors

    ti = SimpleNamespace(
        dag_id="d", task_id="t", run_id="r", map_index=more.pop("map_index", -1), try_number=more.pop("try_number", 1), max_tries=3,
    )  # fmt: skip
    return {"ti": ti, "outlet_events": OutletEventAccessors(), **more}


class TaskState(dict[str, Any]):
    """The state that a task instance keeps over its tries; a stand-in for Airflow's API server."""

    set = dict.__setitem__
