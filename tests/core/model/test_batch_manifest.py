"""The JSON form of a manifest. It stays as it is, as change logs last longer than releases."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from airflow_provider_cdc.core.model.batch_manifest import Manifest, SignalOutcome
from airflow_provider_cdc.core.model.connector_signal import SignalState
from tests.support.change_log.manifests import manifest

STORED: dict[str, Any] = {
    **manifest(events=0, changes=0).to_document(),
    "signal_outcomes": [{"number": 7, "state": "refused", "message": "no such table"}, {"number": 8, "state": "done"}],
}
"""As it stands in change logs, with states of signals."""

OUTCOMES = [
    SignalOutcome(number=7, state=SignalState.REFUSED, message="no such table"),
    SignalOutcome(number=8, state=SignalState.DONE),
]


def test_states_of_signals_are_read_as_they_were_written() -> None:
    found = Manifest.model_validate(STORED)
    assert found.signal_outcomes == OUTCOMES
    assert found.to_document() == STORED
    assert manifest(events=0, changes=0, signal_outcomes=OUTCOMES).to_document() == STORED


@pytest.mark.parametrize(
    "wrong", [{"number": 7}, {"number": 7, "state": "lost"}, {"number": 7, "state": "done", "colour": "red"}]
)
def test_a_state_of_a_signal_that_is_not_understood_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Manifest.model_validate(STORED | {"signal_outcomes": [wrong]})
