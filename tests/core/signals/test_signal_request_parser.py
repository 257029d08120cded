"""Requests in signals: every documented form, and every wrong one with its reason."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.model.connector_signal import Signal, SignalState
from airflow_provider_cdc.core.signals.custom_actions import ACTIONS, SignalContext, custom_actions
from airflow_provider_cdc.core.signals.signal_request_parser import (
    LARGEST,
    MOST_CHUNK_ROWS,
    TYPES,
    ExecuteSnapshotRequest,
    LogMessageRequest,
    OtherRequest,
    PauseSnapshotRequest,
    ResumeSnapshotRequest,
    SchemaChangesRequest,
    SignalRejected,
    StopSnapshotRequest,
    parse_request,
    pattern_from_name,
)
from tests.support.packages import install_package

CHANGE = {
    "type": "ALTER",
    "id": '"ORCLPDB1"."APP"."ACCOUNT"',
    "table": {"defaultCharsetName": None, "primaryKeyColumnNames": ["ID"], "columns": []},
}


def _parse_signal(type_: str, data: Any = None) -> Any:
    return parse_request(
        Signal(1, "ad-hoc-1", type_, data if data is None or isinstance(data, str) else json.dumps(data))
    )


def _refusal(type_: str, data: Any = None) -> str:
    with pytest.raises(SignalRejected) as caught:
        _parse_signal(type_, data)
    return str(caught.value)


# execute-snapshot


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"data-collections": ["shop.orders"]}, ExecuteSnapshotRequest(("shop.orders",))),
        ({"data-collections": ["shop.orders"], "type": "incremental"}, ExecuteSnapshotRequest(("shop.orders",))),
        ({"data-collections": ["shop.orders"], "type": "INCREMENTAL"}, ExecuteSnapshotRequest(("shop.orders",))),
        ({"data-collections": ["shop.orders"], "type": None}, ExecuteSnapshotRequest(("shop.orders",))),
        (
            {"data-collections": ["a.b", "a.c"], "type": "Blocking"},
            ExecuteSnapshotRequest(("a.b", "a.c"), blocking=True),
        ),
        ({"data-collections": "a.b"}, ExecuteSnapshotRequest(("a.b",))),
        ({"data-collections": []}, ExecuteSnapshotRequest(())),
        (
            {"data-collections": [r"shop\.o.*", '"db 1"."My.Table"']},
            ExecuteSnapshotRequest((r"shop\.o.*", '"db 1"."My.Table"')),
        ),
        (
            {"data-collections": ["schema1.products"], "additional-condition": "color='blue' AND quantity>10"},
            ExecuteSnapshotRequest(("schema1.products",), conditions={"": "color='blue' AND quantity>10"}),
        ),
        (
            {
                "data-collections": ["db.t1", "db.t2"],
                "type": "blocking",
                "additional-conditions": [{"data-collection": "db.t1", "filter": "SELECT * FROM db.t1 WHERE c=0"}],
            },
            ExecuteSnapshotRequest(("db.t1", "db.t2"), True, {"db.t1": "SELECT * FROM db.t1 WHERE c=0"}),
        ),
        (
            {
                "data-collections": ["a.b"],
                "additional-condition": " ",
                "additional-conditions": None,
                "surrogate-key": "",
            },
            ExecuteSnapshotRequest(("a.b",)),
        ),
        ({"data-collections": ["a.b"], "surrogate-key": "ROWID"}, ExecuteSnapshotRequest(("a.b",), surrogate="ROWID")),
        ({"data-collections": ["a.b"], "replace": True}, ExecuteSnapshotRequest(("a.b",), replace=True)),
        ({"data-collections": ["a.b"], "chunk-size": 1}, ExecuteSnapshotRequest(("a.b",), chunk_rows=1)),
        (
            {"data-collections": ["a.b"], "chunk-size": MOST_CHUNK_ROWS},
            ExecuteSnapshotRequest(("a.b",), chunk_rows=1_000_000),
        ),
        ({"data-collections": ["a.b"], "chunk-size": None, "type": "blocking"}, ExecuteSnapshotRequest(("a.b",), True)),
        (
            {"data-collections": ["a.b"], "type": "blocking", "engine": "spark"},
            ExecuteSnapshotRequest(("a.b",), True, on_spark=True),
        ),
        (
            {"data-collections": ["a.b"], "type": "blocking", "engine": "embedded"},
            ExecuteSnapshotRequest(("a.b",), True),
        ),
    ],
)
def test_every_form_of_execute_snapshot(data: dict[str, Any], expected: ExecuteSnapshotRequest) -> None:
    assert _parse_signal("execute-snapshot", data) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, 'it names no tables in "data-collections"'),
        ({"data-collections": None}, 'it names no tables in "data-collections"'),
        ({"data-collections": 5}, '"data-collections" is not a list of strings'),
        ({"data-collections": ["a.b", 5]}, '"data-collections" is not a list of strings'),
        ({"data-collections": {"a": 1}}, '"data-collections" is not a list of strings'),
        ({"data-collections": ["a.b", " "]}, '"data-collections" has an empty name'),
        ({"data-collections": ["a.("]}, "\"data-collections\" has 'a.(', which is not a regular expression"),
        ({"data-collections": ["a{99999999999}"]}, "which is not a regular expression"),
        ({"data-collections": ["(" * 20000]}, "which is not a regular expression"),
        (
            {"data-collections": ["a.b"], "type": "full"},
            "\"type\" is 'full'; valid values are incremental and blocking",
        ),
        ({"data-collections": ["a.b"], "type": 5}, '"type" is 5, not a string'),
        ({"data-collections": ["a.b"], "additional-condition": 5}, '"additional-condition" is not a string'),
        ({"data-collections": ["a.b"], "additional-conditions": "x"}, '"additional-conditions" is not a list'),
        (
            {"data-collections": ["a.b"], "additional-conditions": ["x"]},
            'an entry of "additional-conditions" must have the strings',
        ),
        (
            {"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.b"}]},
            'an entry of "additional-conditions" must have the strings',
        ),
        (
            {"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.b", "filter": "x"}] * 2},
            "\"additional-conditions\" has two filters for 'a.b'",
        ),
        (
            {"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.(", "filter": "x"}]},
            "\"additional-conditions\" has 'a.(', which is not a regular expression",
        ),
        ({"data-collections": ["a.b"], "surrogate-key": ["id"]}, '"surrogate-key" is not a string'),
        *(
            (
                {"data-collections": ["a.b"], "chunk-size": wrong},
                '"chunk-size" is not a whole number from 1 to 1,000,000',
            )
            for wrong in (0, -1, MOST_CHUNK_ROWS + 1, 10**30, True, False, 2.5, "", "500", [500], {})
        ),
        (
            {"data-collections": ["a.b"], "engine": "spark"},
            '"engine": "spark" needs "type": "blocking"',
        ),
        (
            {"data-collections": ["a.b"], "engine": ["spark"], "type": "blocking"},
            "\"engine\" is ['spark']; valid values are embedded and spark",
        ),
        (
            {"data-collections": ["a.b"], "chunk-size": 5, "type": "BLOCKING"},
            '"chunk-size" is valid only for incremental snapshots',
        ),
    ],
)
def test_each_wrong_execute_snapshot_is_rejected_with_its_reason(data: dict[str, Any], reason: str) -> None:
    assert reason in _refusal("execute-snapshot", data)


@pytest.mark.parametrize(
    ("name", "matches", "does_not"),
    [
        ('db1."My.Table"', "db1.My.Table", "db1.MyXTable"),
        ('"a"."b c"', "a.b c", "a.b  c"),
        ("shop.o.*", "shop.orders", "store.orders"),
        (" shop.orders ", "shop.orders", "shop.order"),
    ],
)
def test_quoted_names_stand_for_themselves(name: str, matches: str, does_not: str) -> None:
    import re

    assert re.fullmatch(pattern_from_name(name), matches)
    assert not re.fullmatch(pattern_from_name(name), does_not)


# stop, pause, resume


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"type": "incremental"}, StopSnapshotRequest()),
        ({"type": "INCREMENTAL", "data-collections": ["a.b"]}, StopSnapshotRequest(("a.b",))),
        ({"type": "incremental", "data-collections": None}, StopSnapshotRequest()),
    ],
)
def test_every_form_of_stop_snapshot(data: dict[str, Any], expected: StopSnapshotRequest) -> None:
    assert _parse_signal("stop-snapshot", data) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"data-collections": ["a.b"]}, '"type" is missing; the only valid value is incremental'),
        ({"type": "blocking"}, "\"type\" is 'blocking'; the only valid value is incremental"),
        ({"type": "incremental", "data-collections": []}, "leave it out to stop all"),
        ({"type": "incremental", "data-collections": 5}, '"data-collections" is not a list of strings'),
    ],
)
def test_each_wrong_stop_snapshot_is_rejected_with_its_reason(data: dict[str, Any], reason: str) -> None:
    assert reason in _refusal("stop-snapshot", data)


@pytest.mark.parametrize("data", [None, "", "{}", "whatever", "[1]"])
def test_pausing_and_resuming_need_no_data(data: str | None) -> None:
    assert _parse_signal("pause-snapshot", data) == PauseSnapshotRequest()
    assert _parse_signal("resume-snapshot", data) == ResumeSnapshotRequest()


# others


def test_a_message_for_the_log() -> None:
    assert _parse_signal("log", {"message": "Signal message at offset {}"}) == LogMessageRequest(
        "Signal message at offset {}"
    )
    assert _refusal("log", {}) == _refusal("log", {"message": 5}) == 'its data has no string "message"'


def test_structures_of_tables() -> None:
    data = {"database": "ORCLPDB1", "schema": "APP", "changes": [CHANGE]}
    assert _parse_signal("schema-changes", data) == SchemaChangesRequest("ORCLPDB1", "APP", (CHANGE,))
    assert _parse_signal("schema-changes", {**data, "schema": None}) == SchemaChangesRequest(
        "ORCLPDB1", None, (CHANGE,)
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"database": None}, 'its data has no "database"'),
        ({"database": ""}, 'its data has no "database"'),
        ({"database": 5}, 'its data has no "database"'),
        ({"schema": 5}, '"schema" is not a string'),
        ({"changes": None}, 'its data has no list "changes"'),
        ({"changes": []}, 'its data has no list "changes"'),
        ({"changes": ["x"]}, 'its data has no list "changes"'),
    ],
)
def test_each_wrong_structure_is_rejected_with_its_reason(wrong: dict[str, Any], reason: str) -> None:
    assert _refusal("schema-changes", {"database": "d", "schema": None, "changes": [CHANGE], **wrong}) == reason


def test_other_types_are_kept_with_their_data() -> None:
    data = {"binlog_filename": "mysql-bin.000003", "binlog_position": 1234}
    assert _parse_signal("set-binlog-position", data) == OtherRequest("set-binlog-position", data)
    assert _parse_signal("mine") == _parse_signal("mine", " ") == OtherRequest("mine", {})


def test_blanks_around_a_type_do_not_count() -> None:
    """A column of type CHAR fills up with them."""
    assert _parse_signal("pause-snapshot      ") == PauseSnapshotRequest()
    assert _parse_signal("mine   ") == OtherRequest("mine", {})


@pytest.mark.parametrize("type_", [t for t in TYPES if t not in ("pause-snapshot", "resume-snapshot")] + ["mine"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("{", "its data is not JSON: "),
        ("{'a': 1}", "its data is not JSON: "),
        ("[" * 100_000, "its data is not JSON: "),
        ("[]", "its data is a JSON array, not an object"),
        ('"x"', "its data is a JSON string, not an object"),
        ("5", "its data is a JSON number, not an object"),
        ("null", "its data is a JSON null, not an object"),
        ("true", "its data is a JSON boolean, not an object"),
        (f'{{"message": "{"x" * LARGEST}"}}', "the limit is 1,048,576"),
    ],
)
def test_unreadable_data_is_rejected_with_its_reason(type_: str, data: str, reason: str) -> None:
    assert reason in _refusal(type_, data)


@pytest.mark.parametrize("type_", [t for t in TYPES if t not in ("pause-snapshot", "resume-snapshot")])
@pytest.mark.parametrize("data", [None, "", " "])
def test_data_that_is_missing_is_reported(type_: str, data: str | None) -> None:
    assert _refusal(type_, data) == "it has no data; the data must be a JSON object"


def test_a_signal_without_a_type_is_rejected_for_that() -> None:
    assert _refusal("") == _refusal(" ", {"data": {}}) == "it has no type"
    assert _refusal("", "execute, please").startswith("its data is not JSON")


@given(st.sampled_from([*TYPES, "", "mine"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "data-collections", "additional-conditions", "additional-condition", "data-collection",
                         "filter", "surrogate-key", "message", "database", "schema", "changes", "replace",
                         "chunk-size", "engine"]), inner),
    max_leaves=8,
))  # fmt: skip
def test_no_data_gives_another_error(type_: str, data: Any) -> None:
    with contextlib.suppress(SignalRejected):
        _parse_signal(type_, json.dumps(data))


def test_final_states_are_those_after_which_nothing_happens() -> None:
    assert [f.value for f in SignalState if f.is_final] == ["done", "refused", "failed"]


# types of one's own

_OWN = """
from airflow_provider_cdc.core.signals.signal_request_parser import SignalRejected

def purge(context, data):
    context.log(f"purging {data['table']} of {context.connector} at {context.position}")
    return "purged"

def picky(context, data):
    raise SignalRejected("not today")

number = 5
"""


def test_a_type_of_ones_own_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"purge": "{module}:purge", "picky": "{module}:picky"}
    install_package(tmp_path, monkeypatch, {ACTIONS: points}, _OWN)
    lines: list[str] = []
    context = SignalContext("shop", "binlog.000001:4", lines.append)
    actions = custom_actions()
    assert actions["purge"](context, {"table": "a.b"}) == "purged"
    assert lines == ["purging a.b of shop at binlog.000001:4"]
    with pytest.raises(SignalRejected, match="not today"):
        actions["picky"](context, {})


def test_a_type_of_ones_own_that_cannot_be_loaded_refuses_its_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points = {"gone": "no_such_module:f", "number": "{module}:number"}
    install_package(tmp_path, monkeypatch, {ACTIONS: points}, _OWN)
    actions = custom_actions()
    for name, why in (("gone", "cannot be loaded: ModuleNotFoundError"), ("number", "is not callable")):
        with pytest.raises(SignalRejected, match=why):
            actions[name](SignalContext("shop", "", print), {})
        assert why in caplog.text


def test_documented_types_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install_package(tmp_path, monkeypatch, {ACTIONS: {"log": "{module}:purge"}}, _OWN)
    with caplog.at_level(logging.WARNING):
        assert "log" not in custom_actions()
    assert "log is a built-in signal type" in caplog.text


def test_of_two_packages_with_one_name_the_first_wins_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        install_package(tmp_path / name, monkeypatch, {ACTIONS: {"twice": "{module}:purge"}}, _OWN)
    assert custom_actions()["twice"].__module__ == "added_b"  # first on the path
    assert "has the same name" in caplog.text


def test_every_documented_type_is_known() -> None:
    documented = {"execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log", "schema-changes"}
    assert set(TYPES) == documented
    parsed = {type_: _parse_signal(type_, _DATA[type_]) for type_ in TYPES}
    assert not any(isinstance(request, OtherRequest) for request in parsed.values())


_DATA: dict[str, Any] = {
    "execute-snapshot": {"data-collections": ["a.b"]},
    "stop-snapshot": {"type": "incremental"},
    "pause-snapshot": None,
    "resume-snapshot": None,
    "log": {"message": ""},
    "schema-changes": {"database": "d", "changes": [CHANGE]},
}
