"""Waits for the initial snapshot of a connector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_cdc.services.text.pause_gap_signal_texts import why_idle
from airflow_provider_cdc.triggers.state_table_trigger import PollResult, StateTrigger

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
    from airflow_provider_cdc.state.state_store import StateStore

_SHOWN = 5
"""Tables that are named."""


class InitialSnapshotTrigger(StateTrigger):
    """Fires when the initial snapshot is complete: the connector has a position, and no table of that snapshot is left.

    Tables that a signal asks for do not count, nor those that are read again after an event was set aside. Fires ``{"seq", "batch"}``: the connector's progress by then.
    """

    def poll_state(self, record: ConnectorRecord | None, store: StateStore) -> PollResult:
        offset = None if record is None else record.offset
        why = why_idle(record, self.connector)
        if offset is None or offset.position is None:
            text = f"Connector {self.connector} has captured nothing yet{f': {why}' if why else ''}."
            return PollResult(text, f"nothing {why}")
        left = sorted(n for n, table in offset.snapshot.pending.items() if table.request is None and not table.repair)
        if not left:
            text = f"The initial snapshot of {self.connector} is complete, at seq {offset.seq}."
            return PollResult(text, "complete", {"seq": offset.seq, "batch": offset.batch})
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        text = (
            f"Connector {self.connector} has {len(left)} table{'s' if len(left) > 1 else ''} still to read: "
            f"{', '.join(left[:_SHOWN])}{more}; {offset.seq:,} events so far{f'; {why}' if why else ''}."
        )
        return PollResult(text, f"{len(left)} {why}")
