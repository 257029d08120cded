"""Comparisons and repairs of tables that are kept by rules, while capture and apply continue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports, rules_of
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.verify.reference_capture import open_verification
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.signals import signal_state
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
PEOPLE = {"id": "int64!", "name": "string", "age": "int32", "country": "string"}
ODD = "it's `odd` ${env:HOME}"
RULES = [
    {
        "tables": r"s\.people",
        "filter": "age >= 18",
        "columns": {
            "drop": ["country"], "rename": {"id": ODD, "name": "Who"}, "cast": {"id": "string", "age": "decimal(5,1)"},
            "computed": {"whole": "concat(name, ' ', country)"}, "constant": {"origin": "{connector}/{table}"},
            "metadata": ["seq", "op", "table"],
        },
    },
    {"tables": r"s\.soft", "mode": "soft_delete", "filter": "age >= 18", "columns": {"metadata": {"changed": "commit_ts"}}},
    {"tables": r"s\.past", "mode": "history", "partition_by": ["_is_current"], "columns": {"rename": {"id": "key"}}},
    {"tables": r"shard_(?P<shard>\w+)\.bills", "shard": {"shard": "no. {shard}"}, "columns": {"rename": {"id": "bill"}}},
    {"tables": r"s\.bag", "filter": "a > 1", "columns": {"rename": {"a": "x"}, "computed": {"y": "a + 1"}}},
    {"tables": r"s\.log", "mode": "log"},
]  # fmt: skip
SHARDS = ("shard_a.bills", "shard_b.bills")
KEYED = ("s.people", "s.soft", "s.past", *SHARDS)


def _rules(lake: Lake) -> TableRules:
    rules = [dict(rule) for rule in RULES]
    rules[3]["location"] = lake.path("s.bills")
    return TableRules.parse(rules)


def _fill_tables(lake: Lake) -> Any:
    db = lake.connector.database  # type: ignore[attr-defined]
    for table in (*KEYED, "s.log"):
        db.create_table(table, PEOPLE, key=("id",))
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    with db.transaction() as t:
        for i in range(40):
            for table in (*KEYED, "s.log"):
                t.insert(table, {"id": i, "name": f"n{i}", "age": i, "country": ("FR", None)[i % 2]})
            t.insert("s.bag", {"a": i % 4, "b": "x"})
    lake.tables = _rules(lake)
    lake.follow()
    return db


def _change_rows(db: Any, first: int) -> None:
    """Rows that come to pass the filter, that do not any more, that go, come back, and change their keys."""
    with db.transaction() as t:
        for table in KEYED:
            t.update(table, {"id": first}, {"age": 90})
            t.update(table, {"id": first + 20}, {"age": 3})
            t.delete(table, {"id": first + 22})
            t.insert(table, {"id": first + 100, "name": "new", "age": 50})
            t.update(table, {"id": first + 24}, {"id": first + 200})
        t.insert("s.bag", {"a": 3, "b": f"{first}"})


def verify(
    lake: Lake,
    meanwhile: Callable[[], object] | None = None,
    *,
    repair: bool = False,
    tables: str = "",
    wait_s: float = 60,
    **options: Any,
) -> VerificationReport:
    """:param meanwhile: what happens after the source was read"""
    definition, store = lake.connector.definition(), lake.connector.store
    with open_verification(definition, lake.connector.state_url, secrets=lake.connector.secrets) as verification:
        wait, done = verification._wait, list[bool]()

        def wait_and_change(position: Any, wait_s: float) -> None:
            if meanwhile and not done:
                done.append(True)
                meanwhile()
            wait(position, wait_s)

        verification._wait = wait_and_change  # type: ignore[method-assign]
        report = ApplyReports(lake.connector.changelog.storage, lake.connector.name).read(lake.kind, lake.location)
        plan = verification.prepare_plan(tables, wait_s=wait_s, rules=rules_of(report or {}))
        keys = verification.scratch.storage.build_uri("keys") if repair else ""
        verified = VerifyTables(
            lake.spark, verification.scratch, lake.connector.name, location=lake.location, target=lake.kind, threads=2,
            plan=plan, source=lake.connector.changelog, keys=keys, **options,
        ).run()  # fmt: skip
        if repair:
            repairs = verification.build_repairs(verified.to_document())
            numbers = verification.send(repairs, "me")
            assert {one.topic for one in repairs if one.signal} == set(numbers)
            lake.connector.repairs = {one.topic: one.advice for one in repairs}  # type: ignore[attr-defined]
            lake.connector.sent = [*getattr(lake.connector, "sent", []), *numbers.values()]  # type: ignore[attr-defined]
    assert store is lake.connector.store
    return verified


def _table_verification(verified: VerificationReport, table: str) -> TableVerification:
    return next(t for t in verified.tables if t.topic == f"p.{table}")


def _damage_tables(lake: Lake) -> None:
    """In each of the tables rows are missing, one is too much, and one is another."""
    lake.sql(f"DELETE FROM {{}} WHERE `{_q(ODD)}` = '37'", "s.people")
    lake.sql(f"UPDATE {{}} SET `{_q(ODD)}` = '2' WHERE `{_q(ODD)}` = '38'", "s.people")  # 2 does not pass the filter
    lake.sql(f"UPDATE {{}} SET whole = 'x', origin = 'y' WHERE `{_q(ODD)}` = '39'", "s.people")
    lake.sql("UPDATE {} SET _is_deleted = true WHERE id = 37", "s.soft")
    lake.sql("UPDATE {} SET _is_deleted = false WHERE id = 22", "s.soft")
    lake.sql("UPDATE {} SET name = 'x' WHERE id = 39", "s.soft")
    lake.sql("DELETE FROM {} WHERE key = 37", "s.past")
    lake.sql("UPDATE {} SET key = 999 WHERE key = 38", "s.past")
    lake.sql("UPDATE {} SET name = 'x' WHERE key = 39 AND _is_current", "s.past")
    lake.sql("DELETE FROM {} WHERE bill = 37 AND shard = 'no. b'", "s.bills")
    lake.sql("UPDATE {} SET bill = 999 WHERE bill = 38 AND shard = 'no. b'", "s.bills")
    lake.sql("UPDATE {} SET name = 'x' WHERE bill = 39 AND shard = 'no. b'", "s.bills")
    lake.sql("UPDATE {} SET y = 9 WHERE x = 2", "s.bag")


def _q(name: str) -> str:
    return name.replace("`", "``").replace("{", "{{").replace("}", "}}")


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_each_mode_is_compared_with_what_its_rule_makes_of_the_source_and_repaired(lake: Lake) -> None:
    db = _fill_tables(lake)
    _change_rows(db, 0)

    def change_meanwhile() -> None:
        _change_rows(db, 5)
        lake.follow()
        _change_rows(db, 10)
        lake.follow()

    verified = verify(lake, change_meanwhile)
    assert {t.topic: t.not_compared for t in verified.tables if not t.is_equal}.keys() <= {"p.s.log", "p.s.bag"}, (
        verified.format_text()
    )
    lake.follow()
    verified = verify(lake)
    assert [t.topic for t in verified.tables if not t.is_equal] == ["p.s.log"], verified.format_text()
    assert "mode log: its rows are events" in _table_verification(verified, "s.log").not_compared
    people, soft, past = (_table_verification(verified, t) for t in KEYED[:3])
    passing = sum(row["age"] >= 18 for row in db.copy_rows("s.people"))
    assert (people.source, people.target, people.event_columns, people.aside) == (
        passing,
        passing,
        ["_seq", "_op", "_table"],
        0,
    )
    assert (soft.target, soft.event_columns) == (passing, ["changed", "_is_deleted", "_deleted_at"])
    assert (past.target, past.by_rule) == (len(db.copy_rows("s.past")), True)
    assert soft.aside == lake.frame("s.soft").where("_is_deleted").count() > 0
    assert past.aside == lake.frame("s.past").where("NOT _is_current").count() > 0
    assert "not verified, columns about events: _seq, _op, _table" in verified.format_text()
    assert (_table_verification(verified, SHARDS[0]).source, _table_verification(verified, SHARDS[0]).location) == (
        len(db.copy_rows(SHARDS[0])),
        lake.path("s.bills"),
    )

    _damage_tables(lake)
    verified = verify(lake, repair=True)
    counts = {t.topic[2:]: (t.missing, t.surplus, t.different) for t in verified.tables if t.rows_differ}
    assert counts == {
        **dict.fromkeys(("s.people", "s.past", SHARDS[1]), (2, 1, 1)), "s.soft": (1, 1, 1), "s.bag": (10, 10, 0),
    }, verified.format_text()  # fmt: skip
    advice = lake.connector.repairs  # type: ignore[attr-defined]
    assert "no key" in advice["p.s.bag"]
    assert "airflow cdc rebuild test s.bag" in advice["p.s.bag"]
    assert set(advice) == {f"p.{t}" for t in counts}
    verify(lake, repair=True)  # the first one was killed before any capture: its signals are there, and are sent again
    lake.follow()
    sent = lake.connector.sent  # type: ignore[attr-defined]
    assert [signal_state(lake.connector, number)[0] for number in sent] == ["done"] * 8
    verified = verify(lake)
    assert [t.topic for t in verified.tables if not t.is_equal] == ["p.s.bag", "p.s.log"], verified.format_text()


@pytest.mark.only_kind("delta")
def test_maps_and_variants_that_a_rule_computes_are_kept_and_compared(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    made = {"m": "map('name', name, 'age', cast(age AS string))", "v": "parse_json(to_json(named_struct('n', age)))"}
    lake.tables = TableRules.parse(
        [
            {"tables": r"s\.past", "mode": "history", "columns": {"computed": made}},
            {"tables": ".*", "columns": {"computed": made}},
        ]
    )
    for table in ("s.past", "s.people"):
        db.create_table(table, PEOPLE, key=("id",))
        with db.transaction() as t:
            for i in range(6):
                t.insert(table, {"id": i, "name": f"n{i}", "age": i})
    lake.follow()
    for table in ("s.past", "s.people"):
        with db.transaction() as t:
            t.update(table, {"id": 1}, {"age": 9})
    lake.follow()
    assert verify(lake).is_equal
    # the same entries in another order are the same map
    lake.sql("UPDATE {} SET m = map('age', m['age'], 'name', m['name'])", "s.people")
    lake.sql("UPDATE {} SET m = map('age', '8'), v = parse_json('{{\"n\": 8}}') WHERE id = 1 AND _is_current", "s.past")
    verified = verify(lake)
    assert _table_verification(verified, "s.people").is_equal, verified.format_text()
    assert _table_verification(verified, "s.past").differing == {"m": 1, "v": 1}


def test_rules_that_are_not_known_or_have_changed_are_named(lake: Lake, tmp_path: Path) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.people", PEOPLE, key=("id",))
    with db.transaction() as t:
        t.insert("s.people", {"id": 1, "age": 1})
    lake.tables = TableRules.parse([{"tables": ".*", "filter": "age > 0"}])
    lake.follow()
    assert verify(lake).is_equal
    other = TableRules.parse([{"tables": ".*", "filter": "age > 5"}])
    text = _table_verification(verify(lake, rules=other), "s.people").not_compared
    assert "it was built by another rule" in text
    assert "age > 5" in text
    wrong = TableRules.parse([{"tables": ".*", "filter": "agee > 5"}])
    assert "did you mean 'age'?" in _table_verification(verify(lake, rules=wrong), "s.people").not_compared


def test_rows_that_have_nothing_in_a_new_column_yet_are_repaired(
    make_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    lake = make_lake(tmp_path, schema_change_rewrite_mode="ignore")
    db = lake.connector.database  # type: ignore[attr-defined]
    modes = {"s.people": "current", "s.soft": "soft_delete", "s.past": "history"}
    lake.tables = TableRules.parse([{"tables": [t], "mode": m, "type_changes": "new_column"} for t, m in modes.items()])
    for table in modes:
        db.create_table(table, PEOPLE, key=("id",))
        with db.transaction() as t:
            for i in range(20):
                t.insert(table, {"id": i, "name": f"n{i}", "age": None if i == 19 else i})
    lake.follow()
    for table in modes:
        db.change_column(table, "age", "string", str)
        with db.transaction() as t:
            t.update(table, {"id": 3}, {"age": "three"})
            t.delete(table, {"id": 4})
            t.insert(table, {"id": 30, "age": "new"})
    lake.follow()
    verified = verify(lake, repair=True)
    # of 21 rows these are as they have to be: the changed one, the new one, the one without an age, and the deleted one is gone
    assert {t.topic[2:]: (t.missing, t.surplus, t.different) for t in verified.tables} == dict.fromkeys(
        modes, (0, 0, 17)
    )
    lake.follow()
    verified = verify(lake)
    assert verified.is_equal, verified.format_text()
    people = {r["id"]: (r["age"], r["age__v_string"]) for r in lake.rows("s.people")}
    assert [people[i] for i in (0, 3, 19, 30)] == [(0, "0"), (3, "three"), (None, None), (None, "new")]
