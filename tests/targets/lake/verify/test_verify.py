"""Comparing tables with the source's rows: what is equal is said to be, and every difference is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.connectors import memory_connector
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
COLUMNS = {"id": "int64!", "n": "int32", "note": "string", "x": "double"}


def _verify(lake: Lake, **options: Any) -> VerificationReport:
    """Read the source as it is now into a scratch change log, and compare."""
    number = len(list(lake.folder.glob("reference*")))
    reference = memory_connector(
        lake.connector.database, lake.folder / f"reference{number}", topic_prefix="p", snapshot_mode="initial_only"
    )
    reference.capture()
    job = VerifyTables(
        lake.spark, reference.changelog, reference.name, location=lake.location, target=lake.kind, threads=2, **options
    )
    return job.run()


def _fill_tables(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.orders", COLUMNS, key=("id",))
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    db.create_table("s.empty", COLUMNS, key=("id",))
    with db.transaction() as t:
        for i in range(50):
            t.insert("s.orders", {"id": i, "n": i, "note": None if i % 3 else f"n{i}", "x": float("nan")})
            t.insert("s.bag", {"a": i % 4})
    lake.follow()


def _table_verification(verified: VerificationReport, table: str) -> TableVerification:
    return next(t for t in verified.tables if t.topic == f"p.s.{table}")


def _sql(lake: Lake, statement: str, table: str) -> None:
    lake.sql(statement, f"s.{table}")


def test_a_table_that_is_kept_by_a_rule_is_not_called_equal_or_different(lake: Lake) -> None:
    lake.tables = TableRules.parse([{"tables": r"s\.orders", "mode": "log"}])
    _fill_tables(lake)
    verified = _verify(lake)
    assert "it has a rule, but it is unknown which one" in _table_verification(verified, "orders").not_compared
    assert verified.exit_status == 2
    assert _table_verification(verified, "bag").is_equal


@pytest.mark.every_kind
def test_tables_that_follow_their_source_are_equal(lake: Lake) -> None:
    _fill_tables(lake)
    db = lake.connector.database
    db.drop_column("s.orders", "note")
    db.change_column("s.orders", "n", "int64", int)
    with db.transaction() as t:
        t.update("s.orders", {"id": 3}, {"n": 2**50, "x": None})
        t.delete("s.bag", {"a": 3})
    lake.follow()
    verified = _verify(lake)
    assert verified.is_equal, verified.format_text()
    orders = _table_verification(verified, "orders")
    assert (orders.source, orders.target, orders.only_in_table) == (50, 50, ["note"])
    assert _table_verification(verified, "empty").source == 0
    assert "p.s.orders: not verified, only in the table: note" in verified.format_text()


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_every_kind_of_difference_is_counted_and_shown(lake: Lake) -> None:
    _fill_tables(lake)
    _sql(lake, "DELETE FROM {} WHERE id IN (1, 2)", "orders")
    _sql(lake, "INSERT INTO {} VALUES (100, 1, 'x', 1.0), (40, 40, null, double('NaN'))", "orders")  # new, and twice
    _sql(lake, "UPDATE {} SET note = 'other', n = null WHERE id = 10", "orders")
    _sql(lake, "UPDATE {} SET note = '' WHERE id = 11", "orders")
    _sql(lake, "INSERT INTO {} VALUES (0, null), (9, null)", "bag")
    verified = _verify(lake, values=True)
    orders, bag = _table_verification(verified, "orders"), _table_verification(verified, "bag")
    assert not verified.is_equal
    assert (orders.source, orders.target) == (50, 50)
    assert (orders.missing, orders.surplus, orders.different) == (2, 2, 2)
    assert orders.differing == {"n": 1, "note": 2}
    assert (bag.missing, bag.surplus, bag.different) == (0, 2, 0)
    assert _table_verification(verified, "empty").is_equal
    shown = {example["key"]["id"]: example for example in orders.examples}
    assert len(shown) == 5
    kinds = {"1": "missing", "2": "missing", "100": "surplus", "40": "surplus", "10": "different", "11": "different"}
    assert all(example["difference"] == kinds[key] for key, example in shown.items())
    assert [t["equal"] for t in verified.to_document()["tables"]] == [False, True, False]


def test_values_are_shown_only_on_request(lake: Lake) -> None:
    _fill_tables(lake)
    _sql(lake, "UPDATE {} SET note = 'personal' WHERE id = 11", "orders")
    _sql(lake, "INSERT INTO {} VALUES (1, 'personal')", "bag")
    assert "note is 'None' at the source, 'personal' in the table" in _verify(lake, values=True).format_text()
    hidden = _verify(lake)
    assert not hidden.is_equal
    assert "personal" not in hidden.format_text()
    assert "id=11; note" in hidden.format_text()


def test_tables_and_columns_that_are_not_there_are_differences(lake: Lake) -> None:
    _fill_tables(lake)
    db = lake.connector.database
    db.create_table("s.late", COLUMNS, key=("id",))
    db.add_column("s.orders", "c", "int32")
    db.drop_column("s.bag", "b")
    db.add_column("s.bag", "b", "int64")
    verified = _verify(lake)
    assert not verified.is_equal
    assert _table_verification(verified, "late").problem.startswith("the table does not exist")
    assert _table_verification(verified, "orders").problem == "the table has no column c"
    assert (
        _table_verification(verified, "bag").problem
        == "column b has the type bigint at the source and string in the table"
    )
    assert (_table_verification(verified, "orders").source, _table_verification(verified, "orders").target) == (50, 50)


def test_a_table_that_cannot_be_read_keeps_no_other_one_from_being_compared(lake: Lake) -> None:
    _fill_tables(lake)
    _sql(lake, "DELETE FROM {} WHERE a = 1", "bag")
    for file in Path(lake.path("s.orders")).rglob("*.parquet"):
        file.unlink()
    verified = _verify(lake)
    assert _table_verification(verified, "orders").not_compared.startswith("it could not be read: ")
    assert _table_verification(verified, "bag").missing == 13
    assert _table_verification(verified, "empty").is_equal
    assert verified.exit_status == 1


def test_nothing_to_compare_with_is_an_error(lake: Lake, tmp_path: Path) -> None:
    job = VerifyTables(lake.spark, ChangeLog(str(tmp_path / "none")), "none", location=lake.location, target=lake.kind)
    with pytest.raises(ConfigError, match="Nothing to verify against"):
        job.run()


def test_values_that_the_reference_does_not_have_are_not_compared_and_named(lake: Lake) -> None:
    db = lake.connector.database
    db.create_table("s.orders", COLUMNS, key=("id",), sparse=("note",))
    with db.transaction() as t:
        for i in range(4):
            t.insert("s.orders", {"id": i, "n": i, "note": f"n{i}", "x": 0.5})
    lake.follow()
    with db.transaction() as t:
        t.update("s.orders", {"id": 1}, {"n": 10})
        t.update("s.orders", {"id": 2}, {"id": 20})
    lake.follow()
    assert _verify(lake).is_equal
    # a log that begins after the rows: its updates do not tell their notes
    late = memory_connector(db, lake.folder / "late", topic_prefix="p", snapshot_mode="no_data")
    late.capture()
    with db.transaction() as t:
        for i in (0, 1, 3, 20):
            t.update("s.orders", {"id": i}, {"x": 1.5})
        t.update("s.orders", {"id": 3}, {"note": "told"})
    late.capture()
    lake.follow()
    _sql(lake, "UPDATE {} SET note = 'wrong' WHERE id IN (0, 3)", "orders")
    verified = VerifyTables(lake.spark, late.changelog, late.name, location=lake.location, target=lake.kind).run()
    orders = _table_verification(verified, "orders")
    assert (orders.source, orders.different, orders.differing, orders.unknown) == (4, 1, {"note": 1}, {"note": 3})
    assert "not verified, values missing in the reference: note (3 rows)" in verified.format_text()
