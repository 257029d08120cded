"""Texts in logs and on pages about pauses, progress and failed signals."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.core.spi.store_interfaces import ConnectorControl, DesiredState
from airflow_provider_cdc.services.text.pause_gap_signal_texts import (
    compute_fraction,
    failure_text,
    format_halt,
    progress_text,
    why_idle,
)


def test_why_nothing_moves_is_said_in_one_sentence() -> None:
    assert why_idle(None, "shop") == "no capture of shop has run yet"
    assert why_idle(ConnectorRecord("shop"), "shop") == "no capture run is active; the next run continues"
    assert why_idle(ConnectorRecord("shop", owner="a run"), "shop") == ""
    control = ConnectorControl(DesiredState.PAUSED, by="ann", reason="upgrade")
    paused = ConnectorRecord("shop", owner="a run that ends now", control=control)
    assert why_idle(paused, "shop") == "the connector is paused by ann: upgrade"
    assert format_halt(ConnectorControl(DesiredState.STOPPED)) == "stopped"


@pytest.mark.parametrize(
    ("progress", "text", "part"),
    [
        ({}, "", None),
        ({"left": 1, "table": "a.b", "rows": 1}, "1 table left, now a.b, 1 row", 0.0),
        ({"tables": 4, "left": 1, "rows": 5000}, "1 of 4 tables left, 5,000 rows", 0.75),
        ({"left": 2, "rows": 50, "of_about": 100}, "2 tables left, 50 of about 100 rows", 0.25),
        ({"left": 1, "after": [30], "upto": [40]}, "1 table left", 0.75),
        ({"left": 1, "after": ["x"], "upto": ["y"]}, "1 table left", 0.0),
        ({"left": 1, "after": None, "upto": None}, "1 table left", 0.0),
        ({"tables": 3, "left": 0}, "0 of 3 tables left", 1.0),
        (
            {"left": 1, "rows": 3, "ranges": 1, "deleted": 12},
            "1 table left, 3 rows, 1 range left, 12 keys deleted",
            0.0,
        ),
        ({"left": 1, "rows": 300, "of_about": 100}, "1 table left, 300 of about 100 rows", 1.0),
    ],
)
def test_progress_is_reported_as_far_as_it_is_known(progress: Any, text: str, part: float | None) -> None:
    assert progress_text(progress) == text
    assert compute_fraction(SignalState.RUNNING, progress) == part
    assert compute_fraction(SignalState.DONE, progress) == 1.0


def test_a_failure_text_is_given_for_failed_signals_only() -> None:
    event = {"number": 7, "type": "log", "message": ""}
    assert failure_text("shop", {**event, "state": "done"}) is None
    assert failure_text("shop", {**event, "state": "failed"}) == "Signal 7 (log) of shop failed: no reason was given"
