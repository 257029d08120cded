"""Rules for target tables: which one a table has, and what is refused, with what was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import PLAIN, TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId

RULES = [
    {"tables": r"shop\.audit_.*, shop\.events", "mode": "log"},
    {"tables": [r"SHOP\..*"], "mode": "history", "columns": {"drop": ["note"], "metadata": ["op"]}},
    {"tables": r"shop_(?P<region>\w+)\.orders", "location": "/lake/orders", "shard": {"region": "{region}"}},
]


def _table(name: str, catalog: str | None = None) -> TableId:
    namespace, _, table = name.partition(".")
    return TableId(namespace=namespace, name=table, catalog=catalog)


def test_the_first_rule_that_matches_the_whole_name_counts_and_counts_alone() -> None:
    rules = TableRules.parse(RULES)
    assert rules.select_rule(_table("shop.audit_log")).mode == "log"
    assert rules.select_rule(_table("shop.audit_log")).columns.drop == ()
    assert rules.select_rule(_table("shop.Orders")).mode == "history"
    assert rules.select_rule(_table("shop2.orders")) is PLAIN
    assert rules.select_rule(_table("my.shop.audit_log")) is PLAIN
    found = rules.match_table(_table("shop_eu.orders"))
    assert (found.rule.location, found.groups) == ("/lake/orders", {"region": "eu"})
    assert TableRules.parse([{"tables": r"pdb\.a\.b", "mode": "log"}]).select_rule(_table("a.b", "pdb")).mode == "log"
    for several in (r"s\.t\d{1\,3}, s\.u", [r"s\.t\d{1,3}", r"s\.u"]):
        assert TableRules.parse([{"tables": several, "mode": "log"}]).select_rule(_table("s.t123")).mode == "log"
    assert rules.find_unused_patterns([_table("shop.orders"), _table("shop_eu.orders")]) == [
        r"shop\.audit_.*, shop\.events"
    ]


def test_rules_are_the_same_as_a_list_as_json_as_yaml_and_in_a_file(tmp_path: Path) -> None:
    rules, yaml = TableRules.parse(RULES), "tables:\n- tables: ['shop\\.audit_.*', 'shop\\.events']\n  mode: log\n"
    assert TableRules.parse(rules.format_rules()) == rules
    (tmp_path / "rules.json").write_text(json.dumps({"tables": RULES}))
    assert TableRules.parse(str(tmp_path / "rules.json")) == rules
    assert TableRules.parse(yaml).rules == rules.rules[:1]
    (tmp_path / "rules.yaml").write_text(yaml)
    assert TableRules.parse(tmp_path / "rules.yaml").rules == rules.rules[:1]
    assert (
        rules.compute_digest()
        == TableRules.parse(rules.format_rules()).compute_digest()
        != TableRules.parse(yaml).compute_digest()
    )
    assert TableRules.parse("[]").compute_digest() == ""


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"mode": "log"}, "rule 1: tables is missing"),
    ({"tables": ""}, "rule 1: tables is empty"),
    ({"tables": "a(b"}, "is not a regular expression"),
    ({"tables": r"s\.t\d{1,3}"}, r"is split at the comma of {1,3}: write {1\,3}, or use a list of patterns"),
    ({"tables": "a", "mode": "histroy"}, "did you mean 'history'? Valid names are: current, log, soft_delete, history"),
    (
        {"tables": "a", "type_changes": "stopp"},
        "type_changes: 'stopp' is not known; did you mean 'stop'? Valid names are: rewrite, new_column, stop",
    ),
    (
        {"tables": "a", "type_changes": "new_column", "shard": {"s": "x"}},
        "type_changes: new_column cannot be used with shard, route or outbox",
    ),
    ({"tables": "a", "dropped_columns": "delete"}, "dropped_columns: 'delete' is not known"),
    ({"tables": "a", "dropped_columns": "drop", "mode": "log"}, "dropped_columns: drop cannot be used with mode log"),
    (
        {"tables": "a", "dropped_columns": "drop", "shard": {"s": "x"}},
        "dropped_columns: drop cannot be used with shard, route or outbox",
    ),
    ({"tables": "a", "filtre": "x"}, "'filtre' is not known; did you mean 'filter'? Valid names are: tables, location"),
    ({"tables": "a", "columns": {"dropp": ["x"]}}, "columns: 'dropp' is not known; did you mean 'drop'?"),
    ({"tables": "a", "columns": {"metadata": ["sequ"]}}, "did you mean 'seq'?"),
    ({"tables": "a", "columns": {"drop": ["x"], "keep": ["y"]}}, "keep and drop cannot be set both"),
    ({"tables": "a", "columns": {"drop": ["x"], "cast": {"X": "int"}}}, "columns.cast: X is in columns.drop"),
    (
        {"tables": "a", "columns": {"keep": ["id", "mail"], "rename": {"mali": "email"}}},
        "columns.rename: mali is not in columns.keep; did you mean 'mail'? Valid names are: id, mail",
    ),
    ({"tables": "a", "columns": {"keep": ["id"], "cast": {"n": "int"}}}, "columns.cast: n is not in columns.keep"),
    ({"tables": "a", "columns": {"rename": {"n": "x", "N": "y"}}}, "columns.rename: N is named twice"),
    ({"tables": "a", "columns": {"cast": {"n": "int", "N": "bigint"}}}, "columns.cast: N is named twice"),
    ({"tables": "a", "columns": {"rename": {"n": ""}}}, "columns.rename: a column name is empty"),
    ({"tables": "a", "columns": {"constant": {" ": "x"}}}, "columns.constant: a column name is empty"),
    ({"tables": "a", "shard": {"": "x"}}, "shard: a column name is empty"),
    ({"tables": "a", "columns": {"constant": {"c": "1"}, "computed": {"C": "1"}}}, "defined twice"),
    ({"tables": "a", "mode": "log", "columns": {"rename": {"a": "_seq"}}}, "_seq is defined twice"),
    ({"tables": "a", "location": "/lake/{databse}"}, "did you mean 'database'?"),
    ({"tables": "a", "location": "/lake/{table"}, "'/lake/{table' is not a valid template"),
    ({"tables": "a", "location": "/lake/{table:d}"}, "location: '/lake/{table:d}' is not a valid template"),
    ({"tables": "a", "shard": {"s": "{table:{width}}"}}, "shard.s: '{table:{width}}' is not a valid template"),
    ({"tables": "a", "shard": {"a": "{region}"}}, "shard.a: 'region' is not known"),
    ({"tables": ["(?P<r>a)", "b"], "shard": {"s": "{r}"}}, "shard.s: 'r' is not known"),
    ({"tables": "a", "shard": {"a": "1", "b": "2"}}, "shard: use exactly one column"),
    ({"tables": "a", "partition_by": "x", "cluster_by": "y"}, "cannot be set both"),
    ({"tables": "a", "filter": " "}, "filter: the filter is empty"),
    ({"tables": "(?P<table>.*)"}, "a group cannot have the name table"),
    ({"tables": ["(?P<topic>a)", "b"]}, "a group cannot have the name topic"),
    ({"tables": "a", "columns": {"constant": {"__cdc_x": "1"}}}, "begins with __cdc_"),
]


@pytest.mark.parametrize(("rule", "text"), WRONG, ids=[text[:30] for _, text in WRONG])
def test_a_wrong_rule_is_refused_with_what_may_have_been_meant(rule: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        TableRules.parse([rule])
    assert text in str(error.value)
    assert "No table was changed." in str(error.value)


def test_what_a_rule_says_of_changes_to_come_may_be_changed_for_a_table_that_is_there() -> None:
    rules = TableRules.parse([{"tables": "a", "type_changes": "stop", "dropped_columns": "drop"}])
    assert rules.rules[0].to_comparable_form() == {}
    assert rules != TableRules.parse([{"tables": "a"}])


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        TableRules.parse([{"tables": "a", "mode": "x"}, {"tables": "a"}, {"tables": "a", "filtr": 1, "shards": 1}])
    text = str(error.value)
    assert all(part in text for part in ("rule 1: mode", "rule 3: 'filtr'", "rule 3: 'shards'"))


@pytest.mark.parametrize("given", ["/no/such/file.json", "[{", "- a\n- b", 5, [1]])
def test_what_is_no_list_of_rules_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError):
        TableRules.parse(given)
