"""From what people enter to a signal that the engine understands, or to what was wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.signals.signal_request_parser import ExecuteSnapshotRequest, parse_request
from airflow_provider_cdc.dag.snapshot_form_parser import snapshot_request

CAPTURED = {name: f"ORCLPDB1.{name}" for name in ("shop.orders", "shop.order_lines", "shop.customers", "shop.a+b")}


def parse_request_of(**params: Any) -> ExecuteSnapshotRequest:
    """Return the request that the engine reads in the signal of a form with these values."""
    request = parse_request(Signal(1, "", "execute-snapshot", json.dumps(snapshot_request(params, CAPTURED))))
    assert isinstance(request, ExecuteSnapshotRequest)
    return request


def test_chosen_tables_are_asked_for_by_patterns_that_match_nothing_else() -> None:
    request = parse_request_of(tables=["shop.orders", "shop.a+b"], type="incremental")
    assert request.collections == ("shop.orders", r"shop\.a\+b")
    assert (request.blocking, request.conditions, request.replace) == (False, {}, False)


def test_typed_tables_may_be_names_or_patterns_with_or_without_the_level_above() -> None:
    request = parse_request_of(more_tables=[" shop.order.* ", "", "ORCLPDB1.shop.customers"])
    assert request.collections == ("shop.orders", "shop.order_lines", "shop.customers")


def test_a_table_that_is_not_captured_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"Not captured by the connector: shop\.invoices") as caught:
        snapshot_request({"tables": ["shop.orders", "shop.invoices"]}, CAPTURED)
    assert "shop.customers" in str(caught.value)
    with pytest.raises(ConfigError, match=r"no captured table matches 'shop\.ordrs'; did you mean shop\.orders\?"):
        snapshot_request({"more_tables": ["shop.ordrs"]}, CAPTURED)
    with pytest.raises(ConfigError, match="is not a regular expression"):
        snapshot_request({"more_tables": ["shop.("]}, CAPTURED)


@pytest.mark.parametrize("params", [{}, {"tables": None, "more_tables": None}, {"tables": [], "more_tables": [""]}])
def test_no_table_is_no_snapshot(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="No table is chosen"):
        snapshot_request(params, CAPTURED)


def test_a_filter_belongs_to_its_table() -> None:
    request = parse_request_of(
        tables=["shop.orders", "shop.customers"], filters={"shop.orders": " region = 'north' ", "shop.customers": ""}
    )
    assert request.conditions == {"shop.orders": "region = 'north'"}
    assert parse_request_of(tables=["shop.a+b"], filters={"shop.a+b": "x"}).conditions == {r"shop\.a\+b": "x"}
    with pytest.raises(ConfigError, match="which is not one of the tables"):
        snapshot_request({"tables": ["shop.orders"], "filters": {"shop.customers": "x"}}, CAPTURED)
    with pytest.raises(ConfigError, match=r"no captured table matches 'shop\.nothing'"):
        snapshot_request({"tables": ["shop.orders"], "filters": {"shop.nothing": "x"}}, CAPTURED)
    with pytest.raises(ConfigError, match="not a string"):
        snapshot_request({"tables": ["shop.orders"], "filters": {"shop.orders": 7}}, CAPTURED)


def test_changed_since_becomes_a_condition_in_utc() -> None:
    since = {"changed_since_column": "changed_at", "changed_since": "2025-02-01T01:00:00+01:00"}
    request = parse_request_of(tables=["shop.orders"], **since)
    assert request.conditions == {"shop.orders": "changed_at >= TIMESTAMP '2025-02-01 00:00:00'"}
    both = parse_request_of(tables=["shop.orders"], filters={"shop.orders": "a OR b"}, **since)
    assert both.conditions["shop.orders"] == "(a OR b) AND changed_at >= TIMESTAMP '2025-02-01 00:00:00'"
    blocking = parse_request_of(tables=["shop.orders"], type="blocking", **since)
    assert blocking.conditions["shop.orders"].startswith(
        "SELECT * FROM shop.orders WHERE changed_at >= TIMESTAMP '2025"
    )


@pytest.mark.parametrize(
    ("params", "wrong"),
    [
        ({"changed_since_column": "c"}, "both a column and a time"),
        ({"changed_since": "2025-02-01T00:00:00Z"}, "both a column and a time"),
        ({"changed_since_column": "1 OR 1=1 --", "changed_since": "2025-02-01T00:00:00Z"}, "is not a column name"),
        ({"changed_since_column": "c", "changed_since": "yesterday"}, "is not a time"),
        ({"replace": True, "filters": {"shop.orders": "x"}}, "cannot be emptied first"),
        ({"type": "blocking", "surrogate_key": "n"}, "has no chunks"),
        ({"type": "blocking", "chunk_size": 500}, "A chunk size applies to incremental snapshots"),
        (
            {
                "type": "blocking", "filters": {"shop.orders": "SELECT 1"}, "changed_since_column": "c",
                "changed_since": "2025-02-01T00:00:00Z",
            },
            "cannot be extended",
        ),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(params: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        snapshot_request({"tables": ["shop.orders"], **params}, CAPTURED)


def test_a_name_that_needs_quotes_is_not_guessed_into_a_select() -> None:
    params = {
        "tables": ["shop.a+b"], "type": "blocking", "changed_since_column": "c", "changed_since": "2025-02-01T00:00:00Z"
    }  # fmt: skip
    with pytest.raises(ConfigError, match="needs quotes in a SELECT statement"):
        snapshot_request(params, CAPTURED)


def test_conditions_are_in_the_words_of_the_source() -> None:
    request = parse_request_of(tables=["shop.orders"], filters={"shop.orders": {"kind": "ödd"}})
    assert request.conditions == {"shop.orders": '{"kind": "ödd"}'}
    since = {"tables": ["shop.orders"], "changed_since_column": "at", "changed_since": "2025-02-01T00:00:00Z"}
    with pytest.raises(ConfigError, match="This source does not support the condition 'changed since'"):
        snapshot_request(since, CAPTURED, ConnectorConfig)


def test_how_to_read_is_passed_on() -> None:
    request = parse_request_of(
        tables=["shop.orders"], type="incremental", surrogate_key=" n ", chunk_size=500, replace=True
    )
    assert (request.surrogate, request.chunk_rows, request.replace) == ("n", 500, True)
    assert parse_request_of(tables=["shop.orders"], type="incremental", chunk_size=None).chunk_rows is None
    assert parse_request_of(tables=["shop.orders"], type="blocking", chunk_size=None).blocking
