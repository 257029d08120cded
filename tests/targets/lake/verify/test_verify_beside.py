"""Comparisons of tables while capture and apply continue: each at its own batch; what is not sure is not called different."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ConfigError, TransientError
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.verify.reference_capture import open_verification
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
ROUNDS = 20
COLUMNS = {"id": "int64!", "n": "int32", "note": "string", "x": "double"}


def _database(lake: Lake) -> Any:
    return lake.connector.database  # type: ignore[attr-defined]


def _fill_tables(lake: Lake, **more: Any) -> Any:
    db = _database(lake)
    db.create_table("s.orders", COLUMNS, key=("id",), **more)
    db.create_table("s.bag", {"a": "int32", "b": "string"})
    with db.transaction() as t:
        for i in range(50):
            t.insert("s.orders", {"id": i, "n": i, "note": None if i % 3 else f"n{i}", "x": float("nan")})
            t.insert("s.bag", {"a": i % 4})
    lake.follow()
    return db


def _verify(
    lake: Lake, meanwhile: Callable[[], object] | None = None, *, tables: tuple[str, ...] = (), wait_s: float = 60, **options: Any
) -> VerificationReport:  # fmt: skip
    """:param meanwhile: what happens after the source was read; otherwise capture and apply come there"""
    definition = lake.connector.definition()
    with open_verification(definition, lake.connector.state_url, secrets=lake.connector.secrets) as verification:
        wait, done = verification._wait, list[bool]()

        def wait_and_change(position: Any, wait_s: float) -> None:
            if not done:
                done.append(True)
                (meanwhile or lake.follow)()
            wait(position, wait_s)

        verification._wait = wait_and_change  # type: ignore[method-assign]
        plan = verification.prepare_plan(tables, wait_s=wait_s)
        return VerifyTables(
            lake.spark, verification.scratch, lake.connector.name, location=lake.location, target=lake.kind, threads=2,
            plan=plan, source=lake.connector.changelog, **options,
        ).run()  # fmt: skip


def _table_verification(verified: VerificationReport, table: str) -> TableVerification:
    return next(t for t in verified.tables if t.topic == f"p.s.{table}")


@pytest.mark.sampled(2)
@pytest.mark.every_kind
def test_each_table_is_compared_at_its_own_batch_with_what_was_captured_since(lake: Lake, tmp_path: Path) -> None:
    db = _fill_tables(lake)

    def write(first: int) -> None:
        with db.transaction() as t:
            t.insert("s.orders", {"id": first, "n": 1})
            t.update("s.orders", {"id": 1}, {"n": first})
            t.update("s.orders", {"id": first}, {"id": first + 1})
            t.delete("s.orders", {"id": 10 + first % 7})

    write(100)  # before the position, in the batch that it is within

    def change_meanwhile() -> None:
        write(110)
        db.add_column("s.orders", "c", "int32", 7)
        lake.follow()
        write(120)
        lake.follow()
        write(130)
        lake.connector.capture()  # and not applied

    verified = _verify(lake, change_meanwhile)
    assert verified.is_equal, verified.format_text()
    orders, bag = _table_verification(verified, "orders"), _table_verification(verified, "bag")
    assert (orders.batch, orders.source, orders.target) == (3, 50, 50)
    assert orders.version
    assert bag.batch == 1
    assert orders.position == verified.position != {}

    lake.sql("DELETE FROM {} WHERE id IN (5, 111)", "s.orders")
    lake.sql("UPDATE {} SET c = NULL WHERE id = 6", "s.orders")
    lake.sql("INSERT INTO {} (id, n) VALUES (900, 1)", "s.orders")
    keys = f"{tmp_path}/keys"
    damaged = _verify(lake, lambda: None, tables=(r"s\.orders",), wait_s=0, keys=keys)
    assert [t.not_compared for t in damaged.tables] != [""]  # batch 4 is captured, and not applied
    lake.apply()
    damaged = _verify(lake, lambda: None, tables=(r"s\.orders",), keys=keys)
    (orders,) = damaged.tables
    assert (orders.missing, orders.surplus, orders.different, orders.differing) == (2, 1, 1, {"c": 1})
    assert (orders.keys, damaged.exit_status) == (f"{keys}/p.s.orders", 1)
    written = lake.spark.read.parquet(orders.keys).toArrow().to_pylist()
    assert sorted((row["key"]["id"], row["difference"], row["columns"]) for row in written) == [
        (5, "missing", []), (6, "different", ["c"]), (111, "missing", []), (900, "surplus", []),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="is not empty"):
        _verify(lake, lambda: None, keys=keys)


def test_a_table_that_is_behind_is_waited_for_and_one_that_is_not_there_is_not(lake: Lake) -> None:
    db = _fill_tables(lake)
    with db.transaction() as t:
        t.insert("s.orders", {"id": 100})
    verified = _verify(lake, lake.connector.capture, wait_s=3)
    assert verified.exit_status == 2
    assert "it did not reach batch 1 " not in verified.format_text()
    assert "it did not reach batch 2 within 3 s" in _table_verification(verified, "orders").not_compared
    assert "it is at batch 1: run the apply" in _table_verification(verified, "orders").not_compared
    assert _table_verification(verified, "bag").is_equal  # nothing of it is in the second batch
    later = threading.Timer(2, lake.apply)
    later.start()
    assert _verify(lake, lambda: None).is_equal
    later.join()
    lake.sql("DELETE FROM {}", "s.bag")
    _remove_table(lake, "s.bag")
    verified = _verify(lake, lambda: None)
    assert (_table_verification(verified, "bag").problem, verified.exit_status) == ("the table does not exist", 1)


def _remove_table(lake: Lake, table: str) -> None:
    import shutil

    shutil.rmtree(lake.path(table))


def test_a_scratch_change_log_that_someone_has_begun_to_delete_is_not_compared_with(lake: Lake) -> None:
    _fill_tables(lake)
    with open_verification(lake.connector.definition(), lake.connector.state_url) as verification:
        plan = verification.prepare_plan()
        Path(verification.scratch.path_of("test-verify-1", plan.references[0].batches)).unlink()
        job = VerifyTables(
            lake.spark, verification.scratch, lake.connector.name, location=lake.location, target=lake.kind, plan=plan,
            source=lake.connector.changelog,
        )  # fmt: skip
        with pytest.raises(TransientError, match="batches that were written to it"):
            job.run()


def test_rows_without_a_key_are_compared_when_nothing_was_written_at_the_position(lake: Lake) -> None:
    db = _fill_tables(lake)
    with db.transaction() as t:
        t.insert("s.bag", {"a": 1, "b": "x"})

    def change_meanwhile() -> None:
        with db.transaction() as t:
            t.insert("s.bag", {"a": 1, "b": "x"})
            t.delete("s.bag", {"a": 2})
        lake.follow()

    assert _verify(lake, change_meanwhile).is_equal  # the second reading is at the end of that batch
    lake.sql("INSERT INTO {} VALUES (1, 'x')", "s.bag")
    verified = _verify(lake)
    assert (_table_verification(verified, "bag").surplus, verified.exit_status) == (1, 1)


def test_a_truncate_and_values_that_events_leave_out_make_no_difference(lake: Lake) -> None:
    db = _fill_tables(lake, sparse=("note",))
    with db.transaction() as t:
        t.update("s.orders", {"id": 3}, {"n": 33})
        t.update("s.orders", {"id": 6}, {"id": 60})

    def change_meanwhile() -> None:
        with db.transaction() as t:
            t.update("s.orders", {"id": 9}, {"n": 99})
            t.update("s.orders", {"id": 12}, {"id": 120})
        lake.follow()

    verified = _verify(lake, change_meanwhile)
    assert verified.is_equal, verified.format_text()
    # whether row 6 or row 60 had the note at the position does not follow from numbers of batches
    assert _table_verification(verified, "orders").unknown == {"note": 2}

    def empty_and_insert() -> None:
        db.truncate_table("s.orders")
        with db.transaction() as t:
            t.insert("s.orders", {"id": 1, "note": "new"})
        lake.follow()

    verified = _verify(lake, empty_and_insert)
    assert verified.is_equal, verified.format_text()
    assert _table_verification(verified, "orders").target == 1


def test_a_table_that_the_connector_has_not_read_to_its_end_is_not_called_different(lake: Lake) -> None:
    db = _fill_tables(lake)
    lake.sql("DELETE FROM {} WHERE id > 40", "s.orders")
    lake.connector.store.send(
        lake.connector.name,
        SentSignal("1", "execute-snapshot", '{"data-collections": ["s.orders"]}', "airflow", None, "me"),
    )
    lake.connector.store.send(
        lake.connector.name, SentSignal("2", "pause-snapshot", '{"type": "incremental"}', "airflow", None, "me")
    )
    with db.transaction() as t:
        t.insert("s.orders", {"id": 100})
    lake.follow()
    verified = _verify(lake)
    orders = _table_verification(verified, "orders")
    assert "an incremental snapshot of it was running" in orders.not_compared
    assert "9 rows are missing" in orders.not_compared
    assert (orders.missing, verified.exit_status) == (0, 2)


def test_a_table_of_someone_else_or_with_a_rule_is_not_compared(lake: Lake) -> None:
    _fill_tables(lake)
    shared = f"{lake.folder}/{lake.name}/s/orders"
    verified = _verify_at(lake, shared)
    assert [t.problem for t in verified.tables] == ["the table belongs to connector test, topic p.s.orders"]


def _verify_at(lake: Lake, location: str) -> VerificationReport:
    with open_verification(lake.connector.definition(), lake.connector.state_url) as verification:
        plan = verification.prepare_plan([r"s\.bag"])
        return VerifyTables(
            lake.spark, verification.scratch, lake.connector.name, location=location, target=lake.kind, plan=plan,
            source=lake.connector.changelog,
        ).run()  # fmt: skip


def test_a_table_that_a_rule_has_put_elsewhere_is_found_and_one_with_events_is_not_compared(lake: Lake) -> None:
    elsewhere = f"{lake.folder}/elsewhere/bag"
    lake.tables = TableRules.parse(
        [{"tables": r"s\.bag", "location": elsewhere}, {"tables": r"s\.orders", "mode": "log"}]
    )
    _fill_tables(lake)
    verified = _verify(lake)
    assert (_table_verification(verified, "bag").location, _table_verification(verified, "bag").is_equal) == (
        elsewhere,
        True,
    )
    assert "its rule has mode log" in _table_verification(verified, "orders").not_compared
    assert verified.exit_status == 0
    assert _verify(lake, tables=(r"s\..*",)).exit_status == 2


@contextlib.contextmanager
def _going_on(*rounds: Callable[[], object]) -> Iterator[None]:
    """Each of them again and again, in a separate thread."""
    stop, errors = threading.Event(), list[BaseException]()

    def repeat(one: Callable[[], object]) -> None:
        try:
            while not stop.is_set():
                one()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=repeat, args=(one,)) for one in rounds]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors, errors


@pytest.mark.long
def test_beside_a_writer_a_capture_and_an_apply_nothing_is_ever_called_different(lake: Lake) -> None:
    import random
    import time

    db, r = _fill_tables(lake), random.Random(1)

    def write() -> None:
        with db.transaction() as t:
            for _ in range(r.randrange(1, 4)):
                key = r.randrange(60)
                there = any(row["id"] == key for row in db.copy_rows("s.orders"))
                if not there:
                    t.insert("s.orders", {"id": key, "n": r.randrange(9)})
                elif r.random() < 0.3:
                    t.delete("s.orders", {"id": key})
                else:
                    t.update("s.orders", {"id": key}, {"n": r.randrange(9), "note": r.choice(["", "a", None])})
            if r.random() < 0.05:
                t.insert("s.bag", {"a": r.randrange(4)})
        time.sleep(0.05)

    def follow() -> None:
        lake.connector.capture()
        time.sleep(0.5)

    def apply() -> None:
        lake.apply()
        time.sleep(0.5)

    with _going_on(write, follow, apply):
        for number in range(ROUNDS):
            # a bag is written to at nearly every position: it is looked at now and then
            verified = _verify(lake, lambda: None, tables=() if number % 5 == 4 else (r"s\.orders",), wait_s=300)
            assert verified.exit_status != 1, verified.format_text()
            assert _table_verification(verified, "orders").is_equal, verified.format_text()
    lake.follow()  # what is still to be applied would repair the rows
    lake.sql("UPDATE {} SET n = 77 WHERE id < 30", "s.orders")
    assert not _verify(lake).is_equal
