"""Comparisons of tables of a database with the source, in the database's own terms, while capture and apply continue; and their repairs."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, TransientError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.schema.target_table import TargetTableName
from airflow_provider_cdc.targets.database.verify import expected_rows, verify_database
from airflow_provider_cdc.targets.database.verify.table_comparison import TableComparison
from airflow_provider_cdc.targets.database.verify.verify_database import VerifyDatabase, why_not
from airflow_provider_cdc.verify.reference_capture import Verification, open_verification
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport
from tests.support.airflow.command_line import parser
from tests.support.connectors import Connector, memory_connector, mysql_connector
from tests.targets.database.apply.test_database_apply import (
    FITTING,
    TABLE,
    VALUES,
    in_order,
    rows,
    sink,
    write_transactions,
)

COLUMNS = {"id": "int64!", "a": "string", "b": "int32"}


@contextlib.contextmanager
def opened(connector: Connector, read: Callable[[], object] | None = None) -> Iterator[Verification]:
    """:param read: what happens when the source was read, before the capture is waited for"""
    with open_verification(connector.definition(), connector.state_url, secrets=connector.secrets) as verification:
        wait = verification._wait

        def waited(*given: Any) -> None:
            if read is not None:
                read()
            wait(*given)

        verification._wait = waited  # type: ignore[method-assign]
        yield verification


def compare(
    engine: sa.Engine,
    connector: Connector,
    verification: Verification,
    *,
    tables: Any = (),
    wait_s: float = 20,
    keys: bool = False,
    **properties: Any,
) -> VerificationReport:
    config = DatabaseTargetConfig.parse({**EQUAL, **{k.replace("__", "."): v for k, v in properties.items()}})
    plan = verification.prepare_plan(tables, wait_s=wait_s, never=lambda topic: why_not(config, topic))
    where = verification.scratch.storage.build_uri("keys") if keys else ""
    return VerifyDatabase(
        engine, config, plan, verification.scratch, connector.changelog, values=True, keys=where
    ).run()


def verified(
    engine: sa.Engine, connector: Connector, read: Callable[[], object] | None = None, **more: Any
) -> VerificationReport:
    with opened(connector, read) as verification:
        return compare(engine, connector, verification, **more)


def only(found: VerificationReport) -> TableVerification:
    (table,) = found.tables
    return table


def shop(tmp_path: Path, number: int = 0) -> tuple[MemoryDatabase, Connector]:
    """A source with a table ``s.t`` of some rows, and a connector on it that has captured them."""
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", COLUMNS, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with source.transaction() as t:
        for n in range(number):
            t.insert("s.t", {"id": n, "a": f"n{n}", "b": n})
    connector.capture()
    return source, connector


def run(engine: sa.Engine, *statements: str) -> None:
    """Run SQL; for Oracle, in its words."""
    if engine.dialect.name == "oracle":
        for word, instead in (
            ("BIGINT", "NUMBER(19)"),
            ("INTEGER", "NUMBER(10)"),
            ("VARCHAR(", "VARCHAR2("),
            ("ADD COLUMN", "ADD"),
        ):
            statements = tuple(statement.replace(word, instead) for statement in statements)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


@pytest.mark.parametrize("seed", range(2))
def test_values_of_all_types_are_equal_after_random_work_until_one_of_them_is_changed(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(expected_rows, "CHUNK_ROWS", 4)
    r, named = Random(seed), {"collection__name__format": "${source.table}"}
    source = MemoryDatabase(str(tmp_path))
    columns = {f"c{n} :x%s": type_ for n, type_ in enumerate(VALUES)}
    source.create_table(TABLE, {"id": "int64!", **columns}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p", batch_max_rows=r.choice([3, 1000]))
    fitting = FITTING.get(engine.dialect.name, VALUES)
    for _ in range(3):
        write_transactions(source, TABLE, r, 6, fitting)
        connector.capture()
        sink(engine, connector, **named).apply()
    with source.transaction() as t:  # each value once, and then NULL, so that every change is one
        for n in range(max(map(len, fitting.values()))):
            row = {c: values[n % len(values)] for c, values in zip(columns, fitting.values(), strict=True)}
            t.insert(TABLE, {"id": 500 + n, **row})
    connector.capture()
    sink(engine, connector, **named).apply()
    found = verified(engine, connector, **named)
    assert found.exit_status == 0, found.format_text()
    assert only(found).source == only(found).target == len(source.copy_rows(TABLE))
    dialect = dialect_of(engine)
    full, key = (
        dialect.format_table_name(TargetTableName(dialect.fold_name(TABLE.partition(".")[2]))),
        dialect.quote_name(dialect.fold_name("id")),
    )
    for column in columns:
        quoted = dialect.quote_name(dialect.fold_name(column))
        run(engine, f"UPDATE {full} SET {quoted} = NULL WHERE {key} = 501")  # Oracle has no empty texts
    table = only(verified(engine, connector, **named))
    assert (table.missing, table.surplus, table.different) == (0, 0, 1)
    assert set(table.differing) == {dialect.fold_name(column) for column in columns}


def test_what_is_missing_extra_and_different_is_counted_and_named_and_the_apply_repairs_it(
    engine: sa.Engine, tmp_path: Path
) -> None:
    source, connector = shop(tmp_path, 20)
    sink(engine, connector).apply()
    run(
        engine,
        "DELETE FROM p_s_t WHERE id IN (3, 4)",
        "UPDATE p_s_t SET a = 'else', b = 8 WHERE id = 7",
        "UPDATE p_s_t SET b = NULL WHERE id = 8",
        *(f"INSERT INTO p_s_t (id, a, b) VALUES ({n}, 'x', 1)" for n in (100, -5, 101)),
    )
    with opened(connector) as verification:
        found = compare(engine, connector, verification, keys=True)
        table = only(found)
        assert found.exit_status == 1
        assert (table.source, table.target) == (20, 21)
        assert (table.missing, table.different, table.surplus) == (2, 2, 3)
        id_, a, b = map(dialect_of(engine).fold_name, ("id", "a", "b"))
        assert table.differing == {a: 1, b: 2}
        assert (table.location, table.batch) == (dialect_of(engine).fold_name("p_s_t"), 1)
        by_key = {example["key"][id_]: example for example in table.examples}
        assert by_key["7"] == {
            "key": {id_: "7"}, "difference": "different", "columns": [a, b], "source": {a: "n7", b: "7"}, "target": {a: "else", b: "8"},
        }  # fmt: skip
        assert by_key["3"] == {"key": {id_: "3"}, "difference": "missing"}
        assert len(table.examples) == 5
        repairs = verification.build_repairs(found.to_document())
        (repair,) = repairs
        assert repair.signal is not None, repair.advice
        assert verification.send(repairs, "test").keys() == {"p.s.t"}
    connector.capture()
    sink(engine, connector).apply()
    assert verified(engine, connector).exit_status == 0
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def keys_of(type_: str, dialect: str) -> list[Any]:
    """Values of a key. MariaDB and Db2 take texts for others that differ in spaces at the end, and in Oracle empty ones are NULL."""
    left_out = ["A ", " ", *(["", b""] if dialect == "oracle" else [])]
    return [value for value in FITTING.get(dialect, VALUES)[type_] if value not in left_out]


@pytest.mark.parametrize("type_", [type_ for type_ in VALUES if type_ != "double"])
def test_keys_of_every_type_are_repaired(engine: sa.Engine, tmp_path: Path, type_: str) -> None:
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": f"{type_}!", "a": "string"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    first, *others = keys_of(type_, engine.dialect.name)
    with source.transaction() as t:
        for value in (first, *others):
            t.insert("s.t", {"id": value, "a": "a"})
    connector.capture()
    sink(engine, connector).apply()
    del source._own(source.resolve_table_id("s.t"))[-1]  # the source loses it, and no event says so
    run(engine, "UPDATE p_s_t SET a = 'else'")
    with opened(connector) as verification:
        found = compare(engine, connector, verification, keys=True)
        table = only(found)
        assert (table.surplus, table.different, table.missing) == (1, len(source.copy_rows("s.t")), 0)
        verification.send(verification.build_repairs(found.to_document()), "test")
    connector.capture()
    sink(engine, connector).apply()
    assert verified(engine, connector).exit_status == 0


ALL_TYPES = """
    a TINYINT UNSIGNED, b SMALLINT, c MEDIUMINT, d INT UNSIGNED, e BIGINT UNSIGNED, f DECIMAL(30, 10), g FLOAT, h DOUBLE, i BIT(11),
    j DATE, k DATETIME(6), l TIMESTAMP(3) NULL, m TIME(6), n YEAR, o CHAR(5), p VARCHAR(50), q TEXT, r BLOB, s ENUM('x', 'y'),
    t SET('x', 'y', 'z'), u JSON, v BOOLEAN, w BINARY(4)
"""
ONE = """
    200, -5, 70000, 4000000000, 9223372036854775807, -12345678901234567890.0123456789, 0.1, -1e300, b'10000000001',
    '1000-01-01', '9999-12-31 23:59:59.999999', '2024-07-01 01:02:03.004', '23:59:58.5', 1999, 'a b', 'ä€😀', '\\\\ '' "', X'00FF27', 'y',
    'x,z', '{"a": [1, 2.50, null]}', TRUE, X'00010000'
"""


def test_every_type_of_a_mariadb_source_is_equal_and_a_changed_value_is_not(
    engine: sa.Engine, mariadb: Any, tmp_path: Path
) -> None:
    with mariadb.database("source") as db:
        name = db.name
        mariadb.sql(
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY, {ALL_TYPES})",
            f"INSERT INTO {name}.t VALUES (1, {ONE})",
            f"INSERT INTO {name}.t (id) VALUES (2)",
        )
        connector = mysql_connector(mariadb, tmp_path, database_include_list=name, topic_prefix="p")
        connector.capture()
        mariadb.sql(f"INSERT INTO {name}.t VALUES (3, {ONE})", f"UPDATE {name}.t SET q = 'new' WHERE id = 1")
        connector.capture()
        named = {"collection__name__format": "mine"}  # each capture: the target may be on the source's server
        sink(engine, connector, **named).apply()
        found = verified(engine, connector, connector.capture, **named)
        assert (found.exit_status, only(found).source) == (0, 3), found.format_text()
        run(engine, "UPDATE mine SET g = 0.10000001 WHERE id = 3", "DELETE FROM mine WHERE id = 1")
        with opened(connector, connector.capture) as verification:
            found = compare(engine, connector, verification, keys=True, **named)
            assert (only(found).missing, only(found).differing) == (1, {dialect_of(engine).fold_name("g"): 1})
            verification.send(verification.build_repairs(found.to_document()), "test")
        connector.capture()
        sink(engine, connector, **named).apply()
        assert verified(engine, connector, connector.capture, **named).exit_status == 0


def test_nothing_has_to_stand_still(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write rows while the source is read and after it; capture and apply come late, and continue meanwhile."""
    monkeypatch.setattr(verify_database, "_LOOK_S", 0.05)
    source, connector = shop(tmp_path, 50)
    sink(engine, connector).apply()
    r, ended = Random(1), threading.Event()
    applies = threading.Thread(target=lambda: sink(engine, connector).apply_continuously(ended.wait))

    def change() -> None:
        with source.transaction() as t:
            for _ in range(10):
                n = r.randrange(60)
                t.delete("s.t", {"id": n}) or t.insert("s.t", {"id": n, "a": "new", "b": r.randrange(99)})
            t.update("s.t", {"id": 49}, {"id": 1000 + r.randrange(10**6)})

    change()  # is captured with what comes after the position: the batch begins before it

    def read() -> None:
        change()
        connector.capture()
        change()
        connector.capture()

    applies.start()
    try:
        with opened(connector, read) as verification:
            found = compare(engine, connector, verification)
    finally:
        ended.set()
        applies.join()
    assert found.exit_status == 0, found.format_text()


def test_a_table_that_the_apply_does_not_bring_to_the_position_is_not_compared(
    engine: sa.Engine, tmp_path: Path
) -> None:
    source, connector = shop(tmp_path, 2)
    table = only(verified(engine, connector, wait_s=0))
    assert "nothing was applied yet" in table.not_compared
    sink(engine, connector).apply()
    with source.transaction() as t:
        t.delete("s.t", {"id": 1})
    connector.capture()
    found = verified(engine, connector, wait_s=0)
    assert "it is at batch 1" in only(found).not_compared
    assert found.exit_status == 2
    assert not only(found).never


def test_a_table_that_stays_behind_is_compared_where_it_is(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = shop(tmp_path, 2)
    source.create_table("s.u", COLUMNS, key=("id",))
    sink(engine, connector).apply()
    run(engine, "CREATE UNIQUE INDEX one ON p_s_t (b)")
    with source.transaction() as t:
        t.insert("s.t", {"id": 7, "a": "", "b": 1})
        t.insert("s.u", {"id": 7, "a": "", "b": 1})
    connector.capture()
    with pytest.raises(Exception, match="could not be applied"):
        sink(engine, connector).apply()
    behind, other = verified(engine, connector, wait_s=0).tables
    assert (behind.topic, other.topic) == ("p.s.t", "p.s.u")
    assert "it is at batch 1" in behind.not_compared
    assert other.is_equal


def test_values_that_the_log_leaves_out_are_those_that_the_source_has(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = shop(tmp_path, 30)
    source.make_sparse("s.t", "a")
    sink(engine, connector).apply()

    def read() -> None:
        with source.transaction() as t:
            for n in range(10):
                t.update("s.t", {"id": n}, {"b": 1000 + n})
            t.update("s.t", {"id": 20}, {"id": 77, "b": 5})
            t.update("s.t", {"id": 77}, {"id": 78})
        connector.capture()
        sink(engine, connector).apply()

    with opened(connector, read) as verification:
        found = compare(engine, connector, verification)
    assert found.exit_status == 0, found.format_text()
    run(engine, "UPDATE p_s_t SET a = 'else' WHERE id IN (3, 78)")
    table = only(verified(engine, connector))
    assert (table.different, table.differing) == (2, {dialect_of(engine).fold_name("a"): 2})


def test_a_row_that_is_there_twice_is_one_too_many(engine: sa.Engine, tmp_path: Path) -> None:
    _, connector = shop(tmp_path, 3)
    run(engine, "CREATE TABLE p_s_t (id BIGINT, a VARCHAR(20), b INTEGER)")
    sink(engine, connector, insert__mode="insert").apply()
    assert only(verified(engine, connector)).is_equal
    run(engine, "INSERT INTO p_s_t SELECT * FROM p_s_t WHERE id = 1")
    with opened(connector) as verification:
        found = compare(engine, connector, verification, keys=True)
        assert (only(found).surplus, only(found).source, only(found).target) == (1, 3, 4)
        (repair,) = verification.build_repairs(found.to_document())
        assert "airflow cdc rebuild" in repair.advice


def test_lists_of_fields_and_names_are_those_of_the_sink(engine: sa.Engine, tmp_path: Path) -> None:
    _, connector = shop(tmp_path, 3)
    named = {"field__exclude__list": "b", "collection__name__format": "mine_${source.table}", "name": "second"}
    sink(engine, connector, **named).apply()
    run(engine, "ALTER TABLE mine_t ADD COLUMN own INTEGER")
    table = only(verified(engine, connector, **named))
    assert table.is_equal
    name, own = map(dialect_of(engine).fold_name, ("mine_t", "own"))
    assert (table.location, table.source, table.only_in_table) == (name, 3, [own])
    run(engine, "UPDATE mine_t SET own = 7")
    assert only(verified(engine, connector, **named)).is_equal


def test_a_table_that_is_gone_or_lacks_a_column_is_not_equal(engine: sa.Engine, tmp_path: Path) -> None:
    _, connector = shop(tmp_path, 3)
    sink(engine, connector).apply()
    run(engine, "ALTER TABLE p_s_t DROP COLUMN b")
    table = only(verified(engine, connector))
    assert (table.problem, table.source) == (f"it has no column {dialect_of(engine).fold_name('b')}", 3)
    run(engine, "DROP TABLE p_s_t")
    found = verified(engine, connector)
    assert (only(found).problem, found.exit_status) == ("the table does not exist", 1)


def test_a_table_that_cannot_have_the_rows_is_not_equal(engine: sa.Engine, tmp_path: Path) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite takes any value in any column")
    _, connector = shop(tmp_path, 3)
    sink(engine, connector).apply()
    run(engine, "DROP TABLE p_s_t", "CREATE TABLE p_s_t (id BIGINT NOT NULL PRIMARY KEY, a VARCHAR(1), b INTEGER)")
    table = only(verified(engine, connector))
    assert table.problem.startswith("it cannot store rows of the source: ")


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"insert__mode": "insert", "primary__key__mode": "none", "delete__enabled": False}, "its rows are events"),
        ({"insert__mode": "update"}, "rows that another process has inserted"),
        ({"delete__enabled": False}, "rows that the source has deleted"),
        ({"truncate__enabled": False}, "rows that the source has truncated"),
        ({"delete__enabled": False, "primary__key__mode": "record_value"}, "do not have the key of the source"),
        ({"topics": "p.s.u"}, "leaves it out"),
    ],
)
def test_a_sink_whose_rows_need_not_be_those_of_the_source_is_said_and_not_compared(
    tmp_path: Path, properties: dict[str, Any], why: str
) -> None:
    _, connector = shop(tmp_path, 1)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    with pytest.raises(ConfigError, match=f"None of the 1 selected tables(.|\n)*s.t: .*{why}"):
        verified(engine, connector, **properties)


def test_a_table_without_a_key_and_keys_of_which_a_part_is_left_out_are_said_and_not_compared(tmp_path: Path) -> None:
    source, connector = shop(tmp_path, 1)
    source.create_table("s.bag", {"a": "int32"})
    source.create_table("s.two", {"a": "int32!", "b": "int32!"}, key=("a", "b"))
    connector.capture()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    sink(engine, connector, topics__regex=r"p\.s\.(t|two)").apply()
    bag, two = verified(engine, connector, tables="s.bag, s.two", primary__key__fields="a").tables
    assert bag.never
    assert "have no key" in bag.not_compared
    assert "primary.key.fields leaves out b" in two.not_compared
    assert verified(engine, connector).exit_status == 0  # no one has named it


def test_a_reference_of_which_a_part_was_deleted_compares_nothing(tmp_path: Path) -> None:
    _, connector = shop(tmp_path, 1)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    sink(engine, connector).apply()
    config = DatabaseTargetConfig.parse(EQUAL)
    with opened(connector) as verification:
        plan = verification.prepare_plan()
        storage = verification.scratch.storage
        storage.delete_folder(storage.join_path(plan.references[0].name))
        with pytest.raises(TransientError, match="has 0 of the 1 batches"):
            VerifyDatabase(engine, config, plan, verification.scratch, connector.changelog).run()


def test_where_nothing_can_be_compared_the_command_that_builds_again_names_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, connector = shop(tmp_path, 1)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    monkeypatch.setattr(type(dialect_of(engine)), "not_comparable", lambda *given: ("it is old", f"`{given[-1]}`"))
    with pytest.raises(ConfigError, match="it is old") as caught:
        verified(engine, connector)
    _, command, _ = (caught.value.remedy or "").split("`")
    read = parser().parse_args(shlex.split(command)[2:])
    assert (read.connector, read.table) == (connector.name, ["p.s.t"])


def test_a_table_that_the_connector_is_reading_again_is_not_said_to_differ(tmp_path: Path) -> None:
    """Its rows come with the next chunks."""
    _, connector = shop(tmp_path, 2)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    sink(engine, connector).apply()
    run(engine, "DELETE FROM p_s_t WHERE id = 1")
    unsettled = verify_database.BatchesAfterReference.explain_lag
    try:
        verify_database.BatchesAfterReference.explain_lag = lambda *_: "an incremental snapshot of it was running"  # type: ignore[method-assign]
        table = only(verified(engine, connector))
    finally:
        verify_database.BatchesAfterReference.explain_lag = unsettled  # type: ignore[method-assign]
    assert table.not_compared.startswith("an incremental snapshot of it was running")
    assert not table.rows_differ


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_only_rows_that_differ_are_read_from_the_database(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_rows, "CHUNK_ROWS", 100)
    _, connector = shop(tmp_path, 1000)
    sink(engine, connector).apply()
    counted, read = list[int](), TableComparison._rows

    def rows_of(self: TableComparison, statement: str) -> Iterator[Any]:
        for row in read(self, statement):
            counted.append(1)
            yield row

    monkeypatch.setattr(TableComparison, "_rows", rows_of)
    found = only(verified(engine, connector))
    assert (found.is_equal, found.source, found.target, len(counted)) == (True, 1000, 1000, 1)
    counted.clear()
    run(engine, "UPDATE p_s_t SET a = 'N7' WHERE id = 7")  # equal to n7 by some collations
    found = only(verified(engine, connector))
    assert (found.different, found.missing, found.surplus, len(counted)) == (1, 0, 0, 2)
    run(engine, "DELETE FROM p_s_t WHERE id = 8", "UPDATE p_s_t SET id = 5000 WHERE id = 9")
    found = only(verified(engine, connector))
    assert (found.different, found.missing, found.surplus) == (1, 2, 1)
