"""Texts about paused connectors, gaps, and the progress of signals, for logs and pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, SignalProgress, part_of
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState

if TYPE_CHECKING:
    from airflow_provider_cdc.core.lifecycle.log_gap import LogGap


def format_halt(control: ConnectorControl) -> str:
    """Format who has paused or stopped a connector, and why; empty if it is running.

    >>> format_halt(ConnectorControl(DesiredState.PAUSED, by="ann", reason="migration"))
    'paused by ann: migration'
    """
    if control.desired_state is DesiredState.RUNNING:
        return ""
    by = f" by {control.by}" if control.by else ""
    since = f" at {control.changed_at:%Y-%m-%d %H:%M:%S} UTC" if control.changed_at else ""
    reason = f": {control.reason}" if control.reason else ""
    return f"{control.desired_state}{by}{since}{reason}"


def why_idle(record: ConnectorRecord | None, connector: str) -> str:
    """Return why a connector captures nothing now; empty when a run of it is alive.

    :param record: of the connector in the state tables
    """
    if record is None:
        return f"no capture of {connector} has run yet"
    if text := format_halt(record.control):
        return f"the connector is {text}"
    if record.owner is None:
        return "no capture run is active; the next run continues"
    return ""


def gap_text(gap: LogGap | None, connector: str) -> str:
    """Format the gap between the position of a connector and the beginning of the log, or a text for no gap."""
    return str(gap) if gap is not None else f"No gap: the log contains the position of {connector}."


def progress_text(progress: SignalProgress) -> str:
    """Format the progress of a signal's snapshot as text.

    >>> progress_text({"left": 2, "table": "shop.orders", "rows": 120000, "rows_per_s": 81000.4})
    '2 tables left, now shop.orders, 120,000 rows, 81,000 rows/s'
    """
    parts = []
    if (left := progress.get("left")) is not None:
        of = f" of {progress['tables']}" if progress.get("tables") else ""
        parts.append(f"{left}{of} table{'' if left == 1 and not of else 's'} left")
    if progress.get("table"):
        parts.append(f"now {progress['table']}")
    if (rows := progress.get("rows")) is not None:
        about = f" of about {progress['of_about']:,}" if progress.get("of_about") else ""
        parts.append(f"{rows:,}{about} row{'' if rows == 1 and not about else 's'}")
    if (ranges := progress.get("ranges")) is not None:
        deleted = progress.get("deleted", 0)
        parts.append(
            f"{ranges:,} range{'' if ranges == 1 else 's'} left, {deleted:,} key{'' if deleted == 1 else 's'} deleted"
        )
    if (rate := progress.get("rows_per_s")) is not None:
        parts.append(f"{float(rate):,.0f} rows/s")
    return ", ".join(parts)


def compute_fraction(state: SignalState, progress: SignalProgress) -> float | None:
    """Compute how much of a signal's snapshot is done.

    See :func:`~airflow_provider_cdc.core.spi.state_records.part_of`.
    """
    return 1.0 if state is SignalState.DONE else part_of(progress)


def failure_text(connector: str, event: Mapping[str, Any]) -> str | None:
    """Why a signal was not carried out; ``None`` if it was.

    :param event: of ``SignalCompletedTrigger``
    """
    state = SignalState(event["state"])
    if state is SignalState.DONE:
        return None
    name = f"Signal {event['number']} ({event['type']}) of {connector}"
    return f"{name} {'was refused' if state is SignalState.REFUSED else 'failed'}: {event['message'] or 'no reason was given'}"
