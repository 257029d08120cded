"""Sending signals to a connector, and looking at their states and at its notifications."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from airflow_provider_cdc.core.model.connector_signal import SentSignal
from tests.support.connectors import Connector


def send(connector: Connector, type_: str, data: Any = None, *, id_: str = "ask", channel: str = "airflow") -> int:
    """Send a signal; returns its number."""
    text = data if data is None or isinstance(data, str) else json.dumps(data)
    return connector.store.send(connector.name, SentSignal(id_, type_, text, channel))


def snapshot(connector: Connector, *tables: str, id_: str = "ask", **more: Any) -> int:
    """Send ``execute-snapshot``; keywords with underscores for hyphens."""
    data = {"data-collections": list(tables)} | {name.replace("_", "-"): value for name, value in more.items()}
    return send(connector, "execute-snapshot", data, id_=id_)


def snapshot_as_advised(connector: Connector, error: str) -> int:
    """Send the signal of the command by which an error has a table read whole."""
    (command,) = re.findall(r"`(airflow cdc snapshot .* --replace)`", error)
    *cdc, name, pattern, _, type_, _ = shlex.split(command)
    assert (cdc, name) == (["airflow", "cdc", "snapshot"], connector.name)
    return snapshot(connector, pattern, type=type_, replace=True)


def signal_state(connector: Connector, number: int) -> tuple[str, str]:
    """State and message of a signal."""
    found = connector.store.signals_of(connector.name, limit=1, number=number)[0]
    return found.state.value, found.message or ""


def signal_ended(connector: Connector, number: int) -> Callable[[], bool]:
    """A condition: a signal has been carried out, or never will be."""
    return lambda: signal_state(connector, number)[0] in {"done", "failed"}


def list_notifications(connector: Connector, kind: str | None = None) -> list[tuple[str, dict[str, str]]]:
    """Types and data of the notifications, oldest first; without progress."""
    found = connector.store.list_notifications(connector.name, after=0, limit=10_000)
    return [
        (n.notification.type, n.notification.additional_data)
        for n in found
        if kind in (None, n.notification.aggregate_type) and n.notification.type != "IN_PROGRESS"
    ]


def scans(connector: Connector) -> dict[str, str]:
    """Table → how its scan has ended, of incremental snapshots."""
    ended = [
        data for type_, data in list_notifications(connector, "Incremental Snapshot") if type_ == "TABLE_SCAN_COMPLETED"
    ]
    return {data["scanned_collection"]: data["status"] for data in ended}
