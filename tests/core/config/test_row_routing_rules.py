"""Rules that bring the rows of one source table to several tables: what they say, and what is refused, with what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError

BY = {"by": "region", "location": "/lake/{value}"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"route": 5}, "route: 5 is neither a step"),
    ({"route": [BY, "x"]}, "is neither a step"),
    ({"route": [{"whn": "x", "location": "/a"}]}, "route.1: 'whn' is not known; did you mean 'when'? Valid names are: when, by, location"),
    ({"route": {"when": "x"}}, "route.1.location is missing"),
    ({"route": {"location": "/a"}}, "step 1 has neither when nor by"),
    ({"route": [{"location": "/a"}, BY]}, "step 1 has neither when nor by"),
    ({"route": {"by": "x", "location": "/a/{valu}"}}, "step 1: location: 'valu' is not known; did you mean 'value'?"),
    ({"route": {"by": "x", "location": "/a"}}, "step 1: location does not contain {value}"),
    ({"route": {"when": "x", "location": "/a/{value}"}}, "location contains {value}, but the step has no by"),
    ({"route": {"by": "x", "location": "/a/{value:.1}"}}, "{value} cannot have a format"),
    ({"route": {"by": " ", "location": "/a/{value}"}}, "step 1: by is empty"),
    ({"route": {"when": "x", "location": " "}}, "step 1: location is empty"),
    ({"route": [{"when": "a", "location": "/x"}, {"when": "b", "location": "/x"}]}, "join the conditions with OR"),
    ({"route": BY, "shard": {"s": "1"}}, "route and shard cannot be set both"),
    ({"tables": "(?P<value>.*)", "route": BY}, "a group cannot have the name value"),
    ({"route": BY, "otherwise": "dropp"}, "otherwise: 'dropp' is not known; did you mean 'drop'? Valid names are: default, drop, error"),
    ({"otherwise": "drop"}, "otherwise: the rule has no route"),
    ({"outbox": {"table.field.event.idd": "x"}}, "outbox: 'table.field.event.idd' is not known; did you mean 'table.field.event.id'?"),
    ({"outbox": {"id": "x"}}, "outbox: 'id' is not known"),
    ({"outbox": {"route.topic.regex": "x"}}, "outbox: route.topic.regex is not supported: "),
    ({"outbox": {"route.tombstone.on.empty.payload": True}}, "tables have no tombstones"),
    ({"outbox": {"table.fields.additional.error.on.missing": False}}, "table.fields.additional.error.on.missing is not supported: "),
    ({"outbox": {"table.json.payload.null.behavior": "ignore"}}, "table.json.payload.null.behavior is not supported: "),
    ({"outbox": {"table.op.invalid.behavior": "fatl"}}, "'fatl' is not known; did you mean 'fatal'? Valid names are: warn, error, fatal"),
    ({"outbox": {"table.fields.additional.placement": "a:hedaer"}}, "'hedaer' is not known; did you mean 'header'?"),
    ({"outbox": {"table.fields.additional.placement": "a:partition"}}, "use partition_by of the rule"),
    ({"outbox": {"table.fields.additional.placement": "a"}}, "is not column:placement"),
    ({"outbox": {"table.fields.additional.placement": "a:header:KEY"}}, "its tables would have two columns named"),
    ({"outbox": {"route.topic.replacement": "all"}}, "does not contain ${routedByValue}"),
    ({"outbox": {}, "mode": "history"}, "outbox: mode cannot be set together with outbox"),
    ({"outbox": {}, "route": BY}, "outbox: route cannot be set together with outbox"),
    ({"outbox": {}, "otherwise": "default"}, "use drop or error"),
    ({"outbox": {}, "location": "/lake/events"}, "location contains none of {table}, {topic} or {aggregatetype}"),
    ({"outbox": {}, "location": "/lake/{aggregatetyp}"}, "did you mean 'aggregatetype'?"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_a_wrong_route_or_outbox_is_refused_with_what_may_have_been_meant(rule: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        TableRules.parse([{"tables": "a", **rule}])
    assert text in str(error.value)
    assert "No table was changed." in str(error.value)


RIGHT: list[dict[str, Any]] = [
    {"route": BY},
    {"route": [{"when": "n > 1", **BY}, {"when": "n > 2", "location": "/a"}, {"location": "/rest"}], "otherwise": "drop"},
    {"outbox": {}, "location": "/lake/{aggregatetype}", "partition_by": "timestamp", "filter": "id > 1"},
    {"outbox": {"route.by.field": "kind", "table.fields.additional.placement": "a:header:x, b:envelope"}, "otherwise": "drop"},
]  # fmt: skip


@pytest.mark.parametrize("rule", RIGHT)
def test_rules_with_routes_are_the_same_after_they_were_written_down(rule: dict[str, Any]) -> None:
    rules = TableRules.parse([{"tables": "a", **rule}])
    assert TableRules.parse(rules.format_rules()) == rules
    assert TableRules.parse(rules.format_rules()).compute_digest() == rules.compute_digest()
    assert not rules.rules[0].is_plain
    assert rules.rules[0].is_routed


def test_what_becomes_of_rows_that_no_step_takes_may_be_changed_for_tables_that_are_there() -> None:
    rules = [TableRules.parse([{"tables": "a", "route": BY, "otherwise": left}]).rules[0] for left in ("drop", "error")]
    assert rules[0].to_comparable_form() == rules[1].to_comparable_form() == {"route": [{"by": "region"}]}
    assert TableRules.parse([{"tables": "a", "route": BY}]).rules[0].unrouted_rows_action == "default"
    outbox = TableRules.parse([{"tables": "a", "outbox": {"table.op.invalid.behavior": "fatal"}}]).rules[0]
    assert (outbox.unrouted_rows_action, outbox.to_comparable_form()) == ("error", {"outbox": {}})
