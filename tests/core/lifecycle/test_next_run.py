"""The decision when the next run of a connector begins, over the whole class of its states."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import PositionLost, SourceUnavailable
from airflow_provider_cdc.core.lifecycle.connector_status import status_of
from airflow_provider_cdc.core.lifecycle.next_run import (
    AT_WORK_S,
    LONGEST_PAUSE_S,
    RETRY_AFTER_S,
    find_due_apply,
    find_hold,
    list_owed_applies,
)
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.spi.desired_state import ConnectorControl, DesiredState
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord, RunFailure, TargetProgress, marks_of
from airflow_provider_cdc.services.text.status_texts import status_lines

NOW = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
TASK, OTHER = "dag.apply.-1", "other.apply.-1"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def record(batch: int, *targets: TargetProgress, **more: Any) -> ConnectorRecord:
    fields: dict[str, Any] = {
        "offset": Offset(position={"entry": 1}, batch=batch),
        "version": 7,
        "moved_at": ago(99_999),
    }
    return ConnectorRecord("shop", targets=targets, **{**fields, **more})


def marks(of: ConnectorRecord) -> dict[str, Any]:
    return marks_of(of.version, of.last_signal, of.control.restarts, of.control.changed_at)


seconds = st.floats(0, 10 * RETRY_AFTER_S)
targets = st.builds(
    lambda task, batch, failures, person, began, ended: TargetProgress(
        "delta", "/lake", task, ago(began), batch, failures,
        RunFailure("TargetError", person, marks=marks(record(0))) if failures else None,
        "it failed" if failures else None, None if ended is None else ago(ended),
    ),
    st.sampled_from([TASK, OTHER]), st.integers(0, 9), st.integers(0, 5000), st.booleans(), seconds, st.none() | seconds,
)  # fmt: skip


@given(st.integers(0, 9), st.lists(targets, max_size=3))
def test_a_connector_owes_its_targets_what_they_lack_and_what_has_failed(
    batch: int, noted: list[TargetProgress]
) -> None:
    owed = [o.target for o in list_owed_applies(record(batch, *noted), [TASK])]
    mine = [target for target in noted if target.task == TASK]
    lacking = [target for target in mine if batch and (target.batch < batch or target.failures)]
    assert owed == lacking + ([None] if batch and not mine else [])


@given(st.integers(1, 9), targets)
def test_what_is_owed_is_tried_again_in_time_and_never_at_once(batch: int, target: TargetProgress) -> None:
    shop = record(batch, target)
    (owed,) = list(list_owed_applies(shop, [target.task])) or [None]
    if owed is None:
        assert find_due_apply(shop, [target.task], NOW + timedelta(days=1)) is None
        return
    last = max(filter(None, [target.began_at, target.ended_at]))
    person = target.failure is not None and target.failure.needs_person and not target.is_at_work
    longest = RETRY_AFTER_S if person else max(LONGEST_PAUSE_S["apply"], AT_WORK_S if target.is_at_work else 0)
    assert find_due_apply(shop, [target.task], last + timedelta(seconds=longest)) is not None
    if target.is_at_work or target.failures:  # a try that has just ended, or has begun, is no reason for another one
        assert find_due_apply(shop, [target.task], last + timedelta(seconds=14.9)) is None


@given(st.integers(0, 9), st.lists(targets, max_size=3), st.sampled_from([DesiredState.PAUSED, DesiredState.STOPPED]))
def test_nothing_is_due_while_people_have_paused_the_connector(
    batch: int, noted: list[TargetProgress], state: DesiredState
) -> None:
    assert find_due_apply(record(batch, *noted, control=ConnectorControl(state)), [TASK], NOW) is None


@given(st.lists(targets.filter(lambda t: t.task == OTHER), max_size=3))
def test_what_another_dag_owes_is_no_reason_for_a_run(noted: list[TargetProgress]) -> None:
    mine = TargetProgress("delta", "/mine", TASK, ago(50), 9, ended_at=ago(40))
    assert find_due_apply(record(9, mine, *noted), [TASK], NOW) is None
    assert find_due_apply(record(9, *noted), [], NOW) is None


def test_a_target_that_no_apply_has_noted_is_owed_everything_and_is_not_tried_in_a_hurry() -> None:
    assert find_due_apply(record(0), [TASK], NOW) is None
    assert find_due_apply(record(3), [TASK], NOW) == "no apply has confirmed the batches up to 3 yet"
    assert find_due_apply(record(3, run_ended_at=ago(10)), [TASK], NOW) is None
    assert find_due_apply(record(3, run_ended_at=ago(31)), [TASK], NOW) is not None


def test_pauses_grow_to_half_a_minute() -> None:
    def due(failures: int, after: float) -> bool:
        target = TargetProgress("delta", "/lake", TASK, ago(after + 1), 1, failures, None, "away", ago(after))
        return find_due_apply(record(2, target), [TASK], NOW) is not None

    assert [due(1, 14.9), due(1, 15.1), due(2, 29.9), due(2, 30.1), due(2000, 30.1)] == [False, True, False, True, True]


def test_a_new_batch_is_left_to_the_run_that_it_has_started() -> None:
    target = TargetProgress("delta", "/lake", TASK, ago(300), 1, ended_at=ago(290))
    fresh = record(2, target, moved_at=ago(10))
    assert find_due_apply(fresh, [TASK], NOW, grace_s=30) is None
    assert find_due_apply(fresh, [TASK], NOW) == "batches up to 2 are not applied to delta at /lake"
    assert find_due_apply(record(2, target, moved_at=ago(31)), [TASK], NOW, grace_s=30) is not None
    assert find_due_apply(fresh, [TASK], NOW, tried_at=ago(59)) is None


def failed(error: type[Exception], at: float, failures: int = 1) -> ConnectorRecord:
    blank = record(1, run_ended_at=ago(at), last_error_at=ago(at), last_error="it failed")
    made = RunFailure.from_error(error("it failed"), "d1")
    with_marks = RunFailure(made.name, made.needs_person, "d1", failures, marks(blank))
    return record(1, run_ended_at=ago(at), last_error_at=ago(at), last_error="it failed", failure=with_marks)


@given(st.sampled_from([PositionLost, SourceUnavailable, ValueError]), seconds, st.integers(1, 5000))
def test_a_connector_waits_after_a_failure_until_its_time(error: type[Exception], at: float, failures: int) -> None:
    hold = find_hold(failed(error, at, failures), "d1", NOW)
    if error is PositionLost:
        assert (hold is not None) == (at < RETRY_AFTER_S)
    else:
        assert hold is None or at < LONGEST_PAUSE_S["capture"]
        assert hold is not None or at >= 15
    assert hold is None or hold.until == ago(at) + timedelta(seconds=(hold.until - ago(at)).total_seconds()) > NOW


CHANGES = {
    "another offset": {"version": 8},
    "a signal": {"last_signal": 1},
    "a restart": {"control": ConnectorControl(restarts=1)},
    "a pause that has ended": {"control": ConnectorControl(changed_at=ago(1))},
    "a run that ended well": {"run_ended_at": NOW, "failure": None},
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_sign_of_a_repair_ends_the_wait(name: str) -> None:
    broken = failed(PositionLost, 1)
    assert find_hold(broken, "d1", NOW) is not None
    repaired = ConnectorRecord(**{f: getattr(broken, f) for f in broken.__dataclass_fields__} | CHANGES[name])
    assert find_hold(repaired, "d1", NOW) is None


def test_another_definition_ends_the_wait_and_so_does_the_time_that_the_dag_gives() -> None:
    broken = failed(PositionLost, 100)
    assert find_hold(broken, "d2", NOW) is None
    assert find_hold(broken, "d1", NOW, retry_after_s=99) is None
    hold = find_hold(broken, "d1", NOW, retry_after_s=101)
    assert hold is not None
    assert (hold.failure.name, hold.until) == ("PositionLost", NOW + timedelta(seconds=1))
    assert find_hold(None, "d1", NOW) is None


def test_a_target_that_needs_a_person_waits_through_commits_of_the_capture_and_not_through_a_restart() -> None:
    needs = RunFailure("TargetError", needs_person=True, marks=marks(record(2)))
    target = TargetProgress("delta", "/lake", TASK, ago(61), 1, 1, needs, "no such column", ago(60))
    assert find_due_apply(record(2, target), [TASK], NOW) is None
    assert find_due_apply(record(2, target, version=8), [TASK], NOW) is None
    assert find_due_apply(record(2, target), [TASK], NOW, retry_after_s=59) is not None
    assert find_due_apply(record(2, target, control=ConnectorControl(restarts=1)), [TASK], NOW) is not None


def test_the_status_says_what_is_owed_and_how_long_the_connector_waits() -> None:
    target = TargetProgress("delta", "/lake", TASK, ago(61), 1, 1, None, "away", ago(60))
    broken = failed(PositionLost, 1)
    assert broken.failure is not None
    waits = RunFailure(
        **{f: getattr(broken.failure, f) for f in broken.failure.__dataclass_fields__} | {"waits_until": NOW}
    )
    fields = {f: getattr(broken, f) for f in broken.__dataclass_fields__}
    shop = ConnectorRecord(**fields | {"failure": waits, "targets": (target,), "offset": Offset(batch=2)})
    lines = list(status_lines(status_of(shop, [])))
    wait = "Connector shop waits after PositionLost until 2025-01-02 03:04:05 UTC. A repair begins a run at once; so does `airflow cdc restart shop`."
    assert f"  Waits:      {wait}" in lines
    assert "  Owed:       batches up to 2 are not applied to delta at /lake: away" in lines
