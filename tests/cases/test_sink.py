"""Relational targets: what sources and databases do to them that no table of another one may notice, and no row be lost by."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.table_schema import Column, TableChange
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import sql_literals
from airflow_provider_cdc.targets.database.dialects.mysql import MariaDb
from airflow_provider_cdc.targets.database.dialects.postgresql import PostgreSql, as_text
from airflow_provider_cdc.targets.database.rebuild_database import RebuildDatabase
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import memory_connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.signals import snapshot
from tests.targets.database.apply.test_database_apply import errors, rows, sink
from tests.targets.database.conftest import _FIXTURES
from tests.targets.database.parallel.test_staged_parallel_apply import staged_apply
from tests.targets.database.source_table import ID, Table, column
from tests.targets.database.verify.test_verify_database import only, verified

KINDS = ("sqlite", "postgresql", "mariadb", "mysql")


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database of each kind."""
    yield from _engine(request, tmp_path, request.param)


def _engine(request: pytest.FixtureRequest, folder: Path, kind: str) -> Iterator[sa.Engine]:
    if kind == "sqlite":
        yield from _open_target(f"sqlite:///{folder}/target.db")
        return
    server = request.getfixturevalue(_FIXTURES[kind])
    with server.database("cases") as database:
        name = database if kind == "postgresql" else f"{database.name}?charset=utf8mb4"
        yield from _open_target(server.url(name))


def _open_target(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": url}))
    yield engine
    engine.dispose()


# -- A2: keys that change at the source ---------------------------------------------------------------------------------

CODE = column("code", "string", "VARCHAR", 10, nullable=False)
V = Column(name="v", type="int32")
KEYS = [("id",), ("code",), ("id", "code")]


def assert_equal_rows(table: Table) -> None:
    names = table.source._schemas[table.source.resolve_table_id("s.t")].column_names
    there = [tuple(row[name] for name in names) for row in rows(table.engine, "p_s_t")]
    assert sorted(there) == sorted(tuple(row[name] for name in names) for row in table.source.copy_rows("s.t"))


def key_of(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_pk_constraint("p_s_t")["constrained_columns"])


@pytest.mark.parametrize("new", KEYS[1:], ids=["replaced", "widened"])
@pytest.mark.parametrize("applies", ["one", "each", "rebuild"])
def test_a_key_that_changes_leaves_no_row_of_the_one_before(
    engine: sa.Engine, tmp_path: Path, new: tuple[str, ...], applies: str
) -> None:
    """A2: deletes and updates from before the change are of the key before."""
    table = Table(tmp_path, engine, CODE, V)
    table.insert({"id": 1, "code": "A", "v": 1}, {"id": 2, "code": "B", "v": 2}, {"id": 4, "code": "E", "v": 4})
    table.connector.capture()
    if applies == "each":
        table.apply()
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.update("s.t", {"id": 2}, {"code": "C", "v": 20})
    table.alter(ID, CODE, V, key=new)
    table.insert({"id": 3, "code": "D", "v": 3}, {"id": 5 if new == ("code",) else 4, "code": "F", "v": 5})
    table.apply()
    assert_equal_rows(table)
    assert key_of(engine) == set(new)
    with table.source.transaction() as t:
        t.update("s.t", {"code": "D"}, {"id": 30, "v": 31})
        t.delete("s.t", {"code": "C"})
    table.apply()
    assert_equal_rows(table)
    if applies == "rebuild":
        config = DatabaseTargetConfig.parse(EQUAL)
        report = RebuildDatabase(engine, config, table.connector.changelog, table.connector.name).run(["s.t"])
        assert not report["problem"]
        assert_equal_rows(table)


def test_a_key_that_is_changed_by_hand_loses_nothing_from_before(engine: sa.Engine, tmp_path: Path) -> None:
    """A2: the error says that the key has changed, and the DDL; then what was before the change is still applied by the key before."""
    table = Table(tmp_path, engine, CODE, V)
    table.insert({"id": 1, "code": "A", "v": 1}, {"id": 2, "code": "B", "v": 2})
    table.apply()
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
        t.update("s.t", {"id": 2}, {"code": "C"})
    table.alter(ID, CODE, V, key=("code",))
    table.insert({"id": 3, "code": "D", "v": 3})
    table.connector.capture()
    with pytest.raises(
        TargetError, match=r"(?s)The source has changed the key of p\.s\.t.*\(id\) instead of \(code\)"
    ) as caught:
        sink(engine, table.connector, schema__evolution="none").apply()
    error_text = re.search(r"run ((?:ALTER|CREATE) .*?); then run the apply again", str(caught.value))
    assert error_text is not None
    with engine.begin() as connection:
        for statement in error_text[1].split("; "):
            connection.exec_driver_sql(statement)
    table.insert({"id": 3, "code": "E", "v": 4})
    table.connector.capture()
    sink(engine, table.connector, schema__evolution="none").apply()
    assert_equal_rows(table)


def test_a_key_column_that_is_renamed_is_renamed_by_hand(engine: sa.Engine, tmp_path: Path) -> None:
    """A2: no key identifies a row whose column the table has by its former name; the error has the statement."""
    table = Table(tmp_path, engine, V)
    table.insert({"id": 1, "v": 1}, {"id": 2, "v": 2})
    table.apply()
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
    table.alter(Column(name="k", type="int64", nullable=False), V, key=("k",), renamed={"k": "id"})
    table.insert({"k": 3, "v": 3})
    with pytest.raises(TargetError, match="has no column k, which is part of the key") as caught:
        table.apply()
    error_text = re.search(r"run (ALTER .*?), as the source did; then run the apply again", str(caught.value))
    assert error_text is not None
    with engine.begin() as connection:
        connection.exec_driver_sql(error_text[1])
    table.apply()
    assert_equal_rows(table)


def test_a_key_that_a_table_gets_helps_once_the_table_is_read_again(engine: sa.Engine, tmp_path: Path) -> None:
    """A2: events without a key stop the table, also when the source has one now; the error says what else it takes."""
    table = Table(tmp_path, engine, V)
    table.alter(Column(name="id", type="int64", nullable=False), V, key=())
    table.insert({"id": 1, "v": 1}, {"id": 2, "v": 2})
    with pytest.raises(TargetError, match="have no key") as caught:
        table.apply()
    assert "snapshot the table again with `airflow cdc snapshot … --replace`" in str(caught.value)
    table.alter(Column(name="id", type="int64", nullable=False), V)
    with pytest.raises(TargetError, match="have no key"):
        table.apply()
    snapshot(table.connector, "s.t", type="blocking")
    table.connector.capture()
    with contextlib.suppress(TargetError):
        table.apply()  # it comes to where the others are
    table.apply()
    assert_equal_rows(table)


@pytest.mark.parametrize("applies", ["one", "each", "rebuild"])
def test_rows_from_before_a_table_was_emptied_need_no_value_of_a_later_column(
    engine: sa.Engine, tmp_path: Path, applies: str
) -> None:
    """R12: a column that must have a value, whose table is read again or made again with it, as DDL has it whose default only the source knows."""
    table = Table(tmp_path, engine, V)
    table.insert({"id": 1, "v": 1}, {"id": 2, "v": 2})
    table.connector.capture()
    if applies == "each":
        table.apply()
    with table.source.transaction() as t:
        t.update("s.t", {"id": 2}, {"v": 3})
    table.alter(ID, V, Column(name="n", type="int32", nullable=False), added={"n": None})
    table.source.truncate_table("s.t")
    table.insert({"id": 2, "v": 3, "n": 7})
    table.apply()
    assert_equal_rows(table)
    table.insert({"id": 3, "v": 4, "n": 8})
    table.apply()
    if applies == "rebuild":
        config = DatabaseTargetConfig.parse(EQUAL)
        report = RebuildDatabase(engine, config, table.connector.changelog, table.connector.name).run(["s.t"])
        assert not report["problem"]
    assert_equal_rows(table)


@pytest.mark.parametrize(
    "what", ["DROP TABLE p_s_t", "ALTER TABLE p_s_t DROP COLUMN v", "ALTER TABLE p_s_t RENAME COLUMN v TO w"]
)
def test_what_someone_has_taken_away_is_not_made_again_without_its_values(
    engine: sa.Engine, tmp_path: Path, what: str
) -> None:
    """D2: rows that do not change any more would be missing, or have NULL; the ways out of the error work."""
    table = Table(tmp_path, engine, CODE, V)
    table.insert({"id": 1, "code": "A", "v": 1}, {"id": 2, "code": "B", "v": 2})
    table.apply()
    with engine.begin() as connection:
        connection.exec_driver_sql(what)
    table.insert({"id": 3, "code": "C", "v": 3})
    with pytest.raises(TargetError, match=r"(?s)p_s_t (no longer exists|has no column v).*airflow cdc rebuild"):
        table.apply()
    table.alter(ID, CODE, V, Column(name="n", type="int32"), added={"n": "7"})
    with pytest.raises(TargetError, match=r"p_s_t (no longer exists|has no column v)"):
        table.apply()
    if "RENAME" in what:
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE p_s_t RENAME COLUMN w TO v")
    else:
        config = DatabaseTargetConfig.parse(EQUAL)
        report = RebuildDatabase(engine, config, table.connector.changelog, table.connector.name).run(["s.t"])
        assert not report["problem"]
    table.apply()
    assert_equal_rows(table)


def test_a_table_that_is_gone_is_made_with_rows_that_are_all_read_again(engine: sa.Engine, tmp_path: Path) -> None:
    """D2: then it lacks none."""
    table = Table(tmp_path, engine, V)
    table.insert({"id": 1, "v": 1}, {"id": 2, "v": 2})
    table.apply()
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE p_s_t")
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
    snapshot(table.connector, "s.t", type="blocking")
    table.apply()
    assert_equal_rows(table)


def test_a_table_that_is_made_again_with_another_key_loses_the_one_before(engine: sa.Engine, tmp_path: Path) -> None:
    """A2: none of its rows stays, and none of the new ones has a value in the column of the former key."""
    table = Table(tmp_path, engine, V)
    table.insert({"id": 1, "v": 1}, {"id": 2, "v": 2})
    table.apply()
    table.source.drop_table("s.t")
    table.source.create_table("s.t", {"code": "int64!", "v": "int32"}, key=("code",))
    table.insert({"code": 1, "v": 5}, {"code": 7, "v": 6})
    table.apply()
    table.insert({"code": 8, "v": 6})
    table.apply()
    assert_equal_rows(table)


def test_columns_have_any_letters_in_their_names(engine: sa.Engine, tmp_path: Path) -> None:
    """R31: they are found in the table by the names that they have, and not made again."""
    names = ["b`t", "``", 'q"q', "a b", "per%cent", "co:lon", "?", "br[a]ck", "dot.dot", "{x}", "'"]
    key = Column(name="k`", type="int64", nullable=False)
    columns = [Column(name=name, type="int32") for name in names]
    table = Table(tmp_path, engine, V)
    table.alter(key, *columns, key=("k`",))
    table.insert({"k`": 1, **dict.fromkeys(names, 1)}, {"k`": 2, **dict.fromkeys(names, 2)})
    table.apply()
    with table.source.transaction() as t:
        t.update("s.t", {"k`": 1}, dict.fromkeys(names, 3))
        t.delete("s.t", {"k`": 2})
    table.apply()
    table.alter(key, *columns, Column(name="later`", type="int32"), key=("k`",), added={"later`": None})
    table.insert({"k`": 3, **dict.fromkeys(names, 4), "later`": 5})
    table.apply()
    assert_equal_rows(table)


@pytest.mark.parametrize("what", ["dropped", "made"])
def test_a_key_whose_columns_come_and_go(engine: sa.Engine, tmp_path: Path, what: str) -> None:
    """A2: the column of the key before is dropped, or that of the next one is made, and its rows are read again."""
    table = Table(tmp_path, engine, CODE, V)
    table.insert({"id": 1, "code": "A", "v": 1}, {"id": 2, "code": "B", "v": 2})
    table.apply()
    with table.source.transaction() as t:
        t.delete("s.t", {"id": 1})
    if what == "dropped":
        table.alter(CODE, V, key=("code",))
        table.insert({"code": "C", "v": 3})
    else:
        uid = Column(name="uid", type="int64", nullable=False)
        table.alter(ID, CODE, V, uid, key=("uid",), added={"uid": "0"})
        table.source.truncate_table("s.t")
        table.insert({"id": 2, "code": "B", "v": 2, "uid": 7}, {"id": 2, "code": "B", "v": 2, "uid": 8})
    table.apply()
    assert_equal_rows(table)


def test_a_rebuild_empties_no_table_that_would_not_take_its_rows(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A2: as one whose key takes texts as equal that are not."""
    with contextlib.contextmanager(_engine)(request, tmp_path, "mariadb") as engine:
        table = Table(tmp_path, engine, CODE, V)
        table.alter(ID, CODE, V, key=("code",))
        table.insert({"id": 1, "code": "A", "v": 1})
        table.apply()
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE p_s_t MODIFY code VARCHAR(10) COLLATE utf8mb4_general_ci NOT NULL")
        config = DatabaseTargetConfig.parse(EQUAL)
        with pytest.raises(TargetError, match="may treat two keys of the source as equal"):
            RebuildDatabase(engine, config, table.connector.changelog, table.connector.name).run(["s.t"])
        assert_equal_rows(table)


class KeyWork:
    """Random work on a table whose key changes now and then."""

    def __init__(self, table: Table, random: Random) -> None:
        self.table, self.random, self.key, self.rows = table, random, KEYS[0], list[dict[str, Any]]()

    def step(self) -> None:
        match self.random.random():
            case x if x < 0.15:
                self._change_key()
            case x if x < 0.55:
                self._write()
            case x if x < 0.8:
                self._update()
            case _:
                self._delete()

    def _fits(self, rows: list[dict[str, Any]], key: tuple[str, ...]) -> bool:
        return len({tuple(row[name] for name in key) for row in rows}) == len(rows)

    def _row(self) -> dict[str, Any]:
        return {"id": self.random.randrange(6), "code": self.random.choice("ABCDEF"), "v": self.random.randrange(1000)}

    def _change_key(self) -> None:
        fitting = [key for key in KEYS if key != self.key and self._fits(self.rows, key)]
        if fitting:
            self.key = self.random.choice(fitting)
            self.table.alter(ID, CODE, V, key=self.key)

    def _write(self) -> None:
        row = self._row()
        if self._fits([*self.rows, row], self.key):
            self.rows.append(row)
            self.table.insert(row)

    def _update(self) -> None:
        if self.rows:
            at, row = self.random.randrange(len(self.rows)), self._row()
            if self._fits([*self.rows[:at], row, *self.rows[at + 1 :]], self.key):
                with self.table.source.transaction() as t:
                    t.update("s.t", {name: self.rows[at][name] for name in self.key}, row)
                self.rows[at] = row

    def _delete(self) -> None:
        if self.rows:
            row = self.rows.pop(self.random.randrange(len(self.rows)))
            with self.table.source.transaction() as t:
                t.delete("s.t", {name: row[name] for name in self.key})


@pytest.mark.parametrize("seed", range(3))
def test_random_work_with_keys_that_change(
    engine: sa.Engine, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    """A2: in any order, captured and applied at any time."""
    several = 40 if request.config.getoption("--long") else 1
    for number in range(several):
        random = Random(seed + 1000 * number)
        (folder := tmp_path / str(number)).mkdir()
        table = Table(folder, engine, CODE, V)
        work = KeyWork(table, random)
        for _ in range(random.randrange(5, 60)):
            work.step()
            if (what := random.random()) < 0.08:
                table.apply()
                assert_equal_rows(table)
            elif what < 0.2:
                table.connector.capture()
        table.apply()
        assert_equal_rows(table)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE p_s_t")
            connection.exec_driver_sql("DROP TABLE cdc_applied")


# -- B2: what a database refuses of one table ---------------------------------------------------------------------------

COLUMNS = (
    ID,
    V,
    Column(name="t", type="string"),
    Column(name="z", type="string", semantic="io.debezium.time.ZonedTimestamp"),
    Column(name="b", type="binary"),
)
GOOD = {"v": 1, "t": "x", "z": "2024-02-29T12:00:00Z", "b": b"\0'\\\xff"}


class SinkTables:
    """Some tables of one source, whose rows come into tables of the same names."""

    def __init__(self, folder: Path, engine: sa.Engine, names: str) -> None:
        self.engine, self.source, self.names = engine, MemoryDatabase(str(folder)), names
        for name in names:
            self.source.create_table(f"s.{name}", {"id": "int64!"}, key=("id",))
            schema = self.source._schemas[self.source.resolve_table_id(f"s.{name}")].model_copy(
                update={"columns": COLUMNS}
            )
            self.source._alter(schema, TableChange(type="ALTER", id=schema.id, table=schema), "…")
        self.connector = memory_connector(self.source, folder, topic_prefix="p")

    def put(self, names: str, *ids: int, **values: Any) -> None:
        """Insert rows with these ids into each of the tables, in one transaction."""
        with self.source.transaction() as t:
            for name in names:
                for number in ids:
                    t.insert(f"s.{name}", {"id": number, **GOOD, **values})

    def same(self, names: str) -> None:
        for name in names:
            there = sorted(row["id"] for row in rows(self.engine, f"p_s_{name}"))
            assert there == sorted(row["id"] for row in self.source.copy_rows(f"s.{name}")), name

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


class RowRefusal:
    """Has a database, or something before it, refuse a row of a table, until it is mended."""

    values: dict[str, Any] = {}
    said = ""

    def __init__(self, shop: SinkTables, name: str, patch: pytest.MonkeyPatch) -> None:
        self.shop, self.name, self.patch = shop, name, patch

    def begin(self) -> None:
        """Before the row is captured."""

    def captured(self) -> None:
        """Act once the row is in the change log."""

    def mend(self) -> None: ...


class NotNull(RowRefusal):
    values, said = {"v": None}, "(?i)null"

    def begin(self) -> None:
        for statement in self._changes(null=False):
            self.shop.run(statement)

    def mend(self) -> None:
        for statement in self._changes(null=True):
            self.shop.run(statement)

    def _changes(self, *, null: bool) -> list[str]:
        table = f"p_s_{self.name}"
        match self.shop.engine.dialect.name:
            case "sqlite":
                trigger = f"CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN NEW.v IS NULL BEGIN SELECT RAISE(ABORT, 'v is NULL'); END"
                return ["DROP TRIGGER refuse"] if null else [trigger]
            case "postgresql":
                return [f"ALTER TABLE {table} ALTER COLUMN v {'DROP' if null else 'SET'} NOT NULL"]
            case _:
                return [f"ALTER TABLE {table} MODIFY v INT {'NULL' if null else 'NOT NULL'}"]


class PythonHasNoSuchTime(RowRefusal):
    """B2a: as Debezium has PostgreSQL's ``infinity``."""

    values, said = {"z": "+292278994-08-16T23:00:00.000000Z"}, "(?i)iso|time zone"

    def mend(self) -> None:
        self.patch.setattr(
            sql_literals, "format_zoned_timestamps", lambda values, zone: pa.nulls(len(values), pa.string())
        )
        self.patch.setattr("airflow_provider_cdc.targets.database.dialects.postgresql.as_text", _without_times)
        self.patch.setattr(
            "airflow_provider_cdc.targets.database.dialects.postgresql_copy.encode_columns", lambda columns: None
        )


def _without_times(values: pa.Array, kind: Any, _as: Any = as_text) -> pa.Array:
    return pa.nulls(len(values), pa.string()) if kind.name == "timestamp_tz" else _as(values, kind)


class DamagedFile(RowRefusal):
    """B2b: a file is lost, or is not what it was."""

    said = "is missing|bytes instead of|cannot be"

    def captured(self) -> None:
        log = self.shop.connector.changelog
        manifest = log.find_manifest("test", log.find_last_batch("test"))
        assert manifest is not None
        file = next(file for file in manifest.files if file.topic == f"p.s.{self.name}")
        self.path = Path(log.file_uri("test", file).removeprefix("file:"))
        self.kept = self.path.read_bytes()
        self.damage()

    def damage(self) -> None:
        self.path.unlink()

    def mend(self) -> None:
        self.path.write_bytes(self.kept)


class GarbledFile(DamagedFile):
    def damage(self) -> None:
        self.path.write_bytes(b"\0" * len(self.kept))


class DeferredConstraint(RowRefusal):
    """B2c: the database says so when the transaction ends."""

    values, said = {"v": 77}, "constraint"

    def begin(self) -> None:
        table = f"p_s_{self.name}"
        self.shop.run(
            "CREATE TABLE others (v INT PRIMARY KEY)",
            "INSERT INTO others VALUES (1)",
            f"ALTER TABLE {table} ADD CONSTRAINT late FOREIGN KEY (v) REFERENCES others DEFERRABLE INITIALLY DEFERRED",
        )

    def mend(self) -> None:
        self.shop.run("INSERT INTO others VALUES (77)")


class LongRow(RowRefusal):
    """B2d: no statement of the server has room for the row."""

    values, said = {"t": "x" * 5000}, "max_allowed_packet is 4,096.*SET GLOBAL max_allowed_packet"

    def begin(self) -> None:
        def packet(self: MariaDb, connection: Any) -> int:
            self._longest = 4096
            return 4096

        self.patch.setattr(MariaDb, "_packet", packet)

    def mend(self) -> None:
        self.patch.undo()


REFUSALS = {
    "sqlite": [NotNull, PythonHasNoSuchTime, DamagedFile, GarbledFile],
    "postgresql": [NotNull, PythonHasNoSuchTime, DamagedFile, GarbledFile, DeferredConstraint],
    "mariadb": [NotNull, PythonHasNoSuchTime, DamagedFile, GarbledFile, LongRow],
    "mysql": [NotNull, PythonHasNoSuchTime, DamagedFile, GarbledFile, LongRow],
}
ALL = [(kind, refusal) for kind, refusals in REFUSALS.items() for refusal in refusals]


@pytest.mark.parametrize(("kind", "refusal"), ALL, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_what_is_refused_of_one_table_stops_that_table_and_no_other(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, refusal: type[RowRefusal], sampled: CaseSample
) -> None:
    """B2a, B2b, B2c, B2d, R26: wherever the row is, however many tables there are, with and without workers."""
    ways = [sink, staged_apply] if kind != "sqlite" else [sink]
    cases = [(way, bad, place) for way in ways for bad in "acd" for place in range(3)]
    chosen = sampled.cases(f"{kind} {refusal.__name__}", len(cases), every=9)
    for number in sorted(chosen):
        way, bad, place = cases[number]
        (folder := tmp_path / str(number)).mkdir()
        opened = contextlib.contextmanager(_engine)(request, folder, kind)
        with opened as engine, pytest.MonkeyPatch.context() as patch:
            sink_tables = SinkTables(folder, engine, "abcd"[: 1 + max("abcd".index(bad), number % 4)])
            _check_refused(sink_tables, way, bad, place, refusal(sink_tables, bad, patch))


def _check_refused(sink_tables: SinkTables, way: Any, bad: str, place: int, refusal: RowRefusal) -> None:
    good, topic = sink_tables.names.replace(bad, ""), f"p.s.{bad}"
    sink_tables.put(sink_tables.names, 1, 2)
    sink_tables.connector.capture()
    way(sink_tables.engine, sink_tables.connector).apply()
    refusal.begin()
    for number in range(3):
        sink_tables.put(good, 10 + number)
        sink_tables.put(bad, 10 + number, **(refusal.values if number == place else {}))
    sink_tables.connector.capture()
    refusal.captured()
    for more in (20, 21):
        with pytest.raises(TargetError, match=refusal.said) as caught:
            way(sink_tables.engine, sink_tables.connector).apply()
        assert f"{topic}: " in str(caught.value)
        assert not any(f"p.s.{name}: " in str(caught.value) for name in good)
        sink_tables.same(good)
        assert sorted(row["id"] for row in rows(sink_tables.engine, f"p_s_{bad}")) == [1, 2]
        sink_tables.put(sink_tables.names, more)
        sink_tables.connector.capture()
    refusal.mend()
    way(sink_tables.engine, sink_tables.connector).apply()
    sink_tables.same(sink_tables.names)


def test_a_continuous_apply_goes_on_with_the_others_while_one_table_fails(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2e: it tries the one that fails again, after pauses that grow, and ends with its error if that stays."""
    sink_tables = SinkTables(tmp_path, engine, "abc")
    sink_tables.put("abc", 1)
    sink_tables.connector.capture()
    sink(engine, sink_tables.connector).apply()
    refusal = NotNull(sink_tables, "b", monkeypatch)
    refusal.begin()
    looks = 0

    def act_and_check(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            sink_tables.put("ac", 2)
            sink_tables.put("b", 2, v=None)
        elif looks == 3:
            sink_tables.put("abc", 3)
        elif looks == 5:
            sink_tables.same("ac")
            refusal.mend()
        elif looks > 5 and not has_several_markers(sink_tables):
            return True
        sink_tables.connector.capture()
        time.sleep(0.2)
        return False

    done = sink(engine, sink_tables.connector).apply_continuously(act_and_check)
    assert not done.failed
    sink_tables.same("abc")
    refusal.begin() if engine.dialect.name == "sqlite" else None
    sink_tables.put("b", 4, v=None) if engine.dialect.name == "sqlite" else sink_tables.put("b", 4)
    sink_tables.put("a", 4)
    sink_tables.connector.capture()
    if engine.dialect.name == "sqlite":
        with pytest.raises(TargetError, match=r"p\.s\.b"):
            sink(engine, sink_tables.connector).apply_continuously(lambda seconds: True)
        sink_tables.same("ac")


def has_several_markers(sink_tables: SinkTables) -> bool:
    return len(rows(sink_tables.engine, "cdc_applied")) > 1


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_lock_that_someone_holds_for_a_while_is_waited_for(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """The number of an error says that it passes (1205), whatever SQLSTATE the driver has of it."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        sa.event.listen(engine, "connect", _shorten_lock_wait)
        sink_tables = SinkTables(tmp_path, engine, "ab")
        sink_tables.put("ab", 1)
        sink_tables.connector.capture()
        sink(engine, sink_tables.connector).apply()
        with sink_tables.source.transaction() as t:
            t.update("s.b", {"id": 1}, {"v": 7})
        sink_tables.connector.capture()
        other = sa.create_engine(engine.url)
        with other.connect() as connection:
            connection.exec_driver_sql("SELECT * FROM p_s_b FOR UPDATE")
            timer = threading.Timer(1.3, connection.rollback)
            timer.start()
            sink(engine, sink_tables.connector, flush__retry__delay__ms=10).apply()
            timer.join()
        other.dispose()
        assert [row["v"] for row in rows(engine, "p_s_b")] == [7]


@pytest.mark.parametrize("way", [sink, staged_apply], ids=["sink", "staged"])
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql"])
def test_a_table_that_someone_keeps_locked_stops_and_no_other(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: a lock that no one gives back was waited for without end, by all tables."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        dialect = PostgreSql if kind == "postgresql" else MariaDb
        monkeypatch.setattr(dialect, "PATIENCE", dialect.PATIENCE.replace("30", "1"))
        sink_tables = SinkTables(tmp_path, engine, "abc")
        sink_tables.put("abc", 1)
        sink_tables.connector.capture()
        way(engine, sink_tables.connector).apply()
        sink_tables.put("abc", 2)
        sink_tables.connector.capture()
        other = sa.create_engine(engine.url)
        with other.connect() as holder:
            holder.exec_driver_sql("LOCK TABLE p_s_b" if kind == "postgresql" else "LOCK TABLES p_s_b WRITE")
            for more in (3, 4):
                with pytest.raises(TargetError, match=r"(?is)p\.s\.b rejects a change.*lock") as caught:
                    way(engine, sink_tables.connector, flush__max__retries=1, flush__retry__delay__ms=10).apply()
                assert "p.s.a:" not in str(caught.value)
                sink_tables.same("ac")
                sink_tables.put("abc", more)
                sink_tables.connector.capture()
            if kind != "postgresql":
                holder.exec_driver_sql("UNLOCK TABLES")
        other.dispose()
        way(engine, sink_tables.connector).apply()
        sink_tables.same("abc")


def _shorten_lock_wait(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_bytes_of_a_long_row_take_no_more_room_than_they_have(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2d, R26: all bytes there are, in a row that is too long as hexadecimal digits, beside rows that are not."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        sink_tables = SinkTables(tmp_path, engine, "a")
        monkeypatch.setattr(MariaDb, "_packet", lambda self, connection: 4096)
        long = bytes(range(256)) * 9 + b"'\\" * 50
        sink_tables.put("a", 1, 2)
        sink_tables.put("a", 3, b=long, t="it's \\ ä€😀")
        sink_tables.put("a", 4, v=None)
        sink_tables.connector.capture()
        sink(engine, sink_tables.connector).apply()
        sink_tables.same("a")
        assert {row["id"]: (row["b"], row["t"], row["v"]) for row in rows(engine, "p_s_a")} == {
            1: (GOOD["b"], "x", 1), 2: (GOOD["b"], "x", 1), 3: (long, "it's \\ ä€😀", 1), 4: (GOOD["b"], "x", None)
        }  # fmt: skip


def test_a_row_for_which_the_server_has_no_packet_is_refused_by_name(mariadb_factory: Any, tmp_path: Path) -> None:
    """R26: MariaDB with its own default, 16 MB; 9 MB of bytes fit, 17 MB do not."""
    with mariadb_factory(max_allowed_packet="16M") as server, server.database("cases") as database:
        url = server.url(f"{database.name}?charset=utf8mb4")
        with contextlib.contextmanager(_open_target)(url) as engine:
            _without_a_packet(engine, tmp_path)


def _without_a_packet(engine: sa.Engine, folder: Path) -> None:
    sink_tables = SinkTables(folder, engine, "ax")
    sink_tables.put("ax", 1, b=b"\xfe" * (9 << 20))
    sink_tables.put("a", 2, b=b"\xfe" * (17 << 20))
    sink_tables.put("x", 2)
    sink_tables.connector.capture()
    with pytest.raises(TargetError, match=r"(?s)p\.s\.a: .*max_allowed_packet is 16,777,216.*row with id=2"):
        sink(engine, sink_tables.connector).apply()
    sink_tables.same("x")
    sink(engine, sink_tables.connector, errors__tolerance="all").apply()
    sink_tables.same("x")
    assert [row["id"] for row in rows(engine, "p_s_a")] == [1]
    (kept,) = errors(engine)
    assert "max_allowed_packet" in kept["error"]


# -- A3: two runs over one marker ---------------------------------------------------------------------------------------


class TransactionTurns:
    """Has runs in threads do one transaction each in an order that is given: whatever they read before it may be old."""

    def __init__(self, order: list[int]) -> None:
        self.order, self.changed, self.ended = order, threading.Condition(), set[int]()

    def wait(self, run: int) -> None:
        """Wait for the turn of a run. When the order is at its end, or the other run is, no one waits any more."""
        with self.changed:
            mine = lambda: not self.order or self.order[0] == run or self.order[0] in self.ended  # noqa: E731
            while not self.changed.wait_for(mine, timeout=10):
                raise AssertionError("nobody had the turn")
            if self.order:
                self.order.pop(0)
            self.changed.notify_all()

    def end(self, run: int) -> None:
        with self.changed:
            self.ended.add(run)
            self.changed.notify_all()


class InterleavedApply(DatabaseApply):
    """A run that waits for its turn before each transaction."""

    turns: TransactionTurns
    number: int

    def _retried(self, what: Any) -> Any:
        self.turns.wait(self.number)
        return super()._retried(what)


def _run(sink_tables: SinkTables, turns: TransactionTurns, number: int, what: str) -> BaseException | None:
    """Run an apply or a rebuild to its end, and return its error, if any."""
    properties = dict(EQUAL)
    if what == "does not fit":  # of table a
        properties["primary.key.fields"] = "id,n"
    try:
        config = DatabaseTargetConfig.parse(properties)
        if what == "rebuild":
            one = RebuildDatabase(
                sink_tables.engine, config, sink_tables.connector.changelog, sink_tables.connector.name
            )
            one._sink.__class__ = InterleavedApply
            one._sink.turns, one._sink.number = turns, number  # type: ignore[attr-defined]
            one.run(["s.a"])
        else:
            run = InterleavedApply(
                sink_tables.engine, config, sink_tables.connector.changelog, sink_tables.connector.name
            )
            run.turns, run.number = turns, number
            run.apply()
    except BaseException as e:
        return e
    finally:
        turns.end(number)
    return None


@pytest.mark.parametrize("other", ["the same", "does not fit", "rebuild"])
@pytest.mark.parametrize("kind", ["sqlite", "mariadb"])
def test_two_runs_over_one_marker_leave_nothing_out_in_any_order(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: one catches a table up that was behind, while the other one continues with the others."""
    monkeypatch.setattr("airflow_provider_cdc.targets.database.apply.database_apply.GROUP_BATCHES", 1)
    long = request.config.getoption("--long")
    for number in range(150 if long else 6):
        random = Random(f"{kind} {other} {number}")
        (folder := tmp_path / str(number)).mkdir()
        with contextlib.contextmanager(_engine)(request, folder, kind) as engine:
            sink_tables = SinkTables(folder, engine, "ab")
            for batch in range(1, 3):
                sink_tables.put("ab", batch)
                sink_tables.connector.capture()
            with pytest.raises(TargetError):  # both tables stay behind
                sink(engine, sink_tables.connector, primary__key__fields="id,n").apply()
            sink_tables.put("ab", 3)
            sink_tables.connector.capture()
            if other == "the same":
                sink_tables.put("ab", 4)
                sink_tables.connector.capture()
            turns = TransactionTurns([random.randrange(2) for _ in range(40)])
            with ThreadPoolExecutor(2) as pool:
                failed = [
                    pool.submit(_run, sink_tables, turns, at, what) for at, what in enumerate(("the same", other))
                ]
                found = [future.result() for future in failed]
            assert found[0] is None or isinstance(found[0], TargetError)
            sink(engine, sink_tables.connector).apply()
            sink_tables.same("ab")


def test_a_table_that_was_behind_goes_on_only_where_the_others_are(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A3: the other run applies a batch between the last one of the table and its going on."""
    sink_tables = SinkTables(tmp_path, engine, "ab")
    sink_tables.put("ab", 1)
    sink_tables.connector.capture()
    first = sink(engine, sink_tables.connector)
    first.apply()
    refusal = NotNull(sink_tables, "b", monkeypatch)
    refusal.begin()
    sink_tables.put("a", 2)
    sink_tables.put("b", 2, v=None)
    sink_tables.connector.capture()
    with pytest.raises(TargetError):
        sink(engine, sink_tables.connector).apply()
    refusal.mend()
    go_on, once = DatabaseApply._go_on, iter([True])

    def act_between(self: DatabaseApply, topic: str, batch: int, **more: Any) -> None:
        if next(once, False):
            sink_tables.put("ab", 3)
            sink_tables.connector.capture()
            with monkeypatch.context() as patch:
                patch.setattr(DatabaseApply, "_catch_up", lambda *_: None)  # it has tried the table, in vain
                sink(engine, sink_tables.connector).apply()
        go_on(self, topic, batch, **more)

    monkeypatch.setattr(DatabaseApply, "_go_on", act_between)
    sink(engine, sink_tables.connector).apply()
    sink_tables.same("ab")


# -- R23, R24, R34, C6, A6: tables that a database makes otherwise, or refuses ------------------------------------------


def wide_column(name: str, length: int, type_: str = "VARCHAR") -> Column:
    return column(name, "string", type_, length)


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
@pytest.mark.parametrize(
    ("message", "columns", "length"), [("", 260, 20), ("", 450, 15), ("told", 190, 20), ("told", 60, 600)], ids=str
)
def test_a_table_whose_rows_a_page_may_not_hold_is_made(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, message: str, columns: int, length: int
) -> None:
    """R23: a server counts the longest values of all columns, which no row has."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        more = {"parameters": {"__debezium.source.column.length": str(length)}}
        found = [
            wide_column(f"c{n}", length) if message else column(f"c{n}", "string", "", length, **more)
            for n in range(columns)
        ]
        table = Table(tmp_path, engine, *found)
        table.insert({"id": 1, **{f"c{n}": "x" * (length // 2) for n in range(columns)}})
        table.apply()
        assert_equal_rows(table)
        added = [wide_column(f"d{n}", 20) for n in range(60)]
        table.alter(ID, *found, *added, added={one.name: None for one in added})
        table.insert({"id": 2, **{f"d{n}": "y" for n in range(60)}})
        table.apply()
        assert_equal_rows(table)


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_row_that_a_page_does_not_hold_is_refused_by_name(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """R23: a table may be made, and a row of it be too long all the same."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        table = Table(tmp_path, engine, *(wide_column(f"c{n}", 15) for n in range(450)))
        table.insert({"id": 1, "c0": "x"}, {"id": 2, **{f"c{n}": "€" * 13 for n in range(450)}})
        table.connector.capture()
        with pytest.raises(TargetError, match=r"(?s)[Rr]ow size too large.*row with id=2"):
            sink(engine, table.connector).apply()
        sink(engine, table.connector, errors__tolerance="all").apply()
        assert [row["id"] for row in rows(engine, "p_s_t")] == [1]


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
@pytest.mark.parametrize("lengths", [(255,) * 4, (1000,), (3000,), (20, 1000, 255)], ids=str)
def test_a_key_that_is_longer_than_an_index_is_made_of_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, lengths: tuple[int, ...]
) -> None:
    """R24: 3,072 bytes; a source whose texts have one byte a character has longer keys."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        names = tuple(f"k{n}" for n in range(len(lengths)))
        keys = [column(n, "string", "VARCHAR", size, nullable=False) for n, size in zip(names, lengths, strict=True)]
        table = Table(tmp_path, engine, *keys, V)
        table.alter(ID, *keys, V, key=names)
        table.insert(
            *({"id": n, "v": n, **dict.fromkeys(names, f"{text}{n}")} for n, text in enumerate(("a ", "A", "é")))
        )
        table.apply()
        with table.source.transaction() as t:
            t.update("s.t", {"id": 1}, {"v": 10})
            t.delete("s.t", {"id": 2})
            t.update("s.t", {"id": 0}, {names[0]: "A "})
        table.apply()
        there = {
            row["id"]: (bytes(row[names[0]]).decode() if isinstance(row[names[0]], bytes) else row[names[0]], row["v"])
            for row in rows(engine, "p_s_t")
        }
        assert there == {0: ("A ", 0), 1: ("A1", 10)}


@pytest.mark.parametrize(("kind", "columns"), [("postgresql", 1601), ("sqlite", 2001), ("mariadb", 1018)])
def test_a_table_of_more_columns_than_there_can_be_says_what_to_do(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, columns: int
) -> None:
    """R24: with columns left out it is made."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        table = Table(tmp_path, engine, *(Column(name=f"c{n}", type="int16") for n in range(columns)))
        table.insert({"id": 1, "c5": 5})
        table.connector.capture()
        with pytest.raises(TargetError, match=r"(?s)columns cannot be created.*field\.exclude\.list.*CREATE TABLE"):
            sink(engine, table.connector).apply()
        sink(engine, table.connector, field__exclude__list=r"c\d\d+").apply()
        assert [row["c5"] for row in rows(engine, "p_s_t")] == [5]


@pytest.mark.parametrize(("kind", "columns"), [("postgresql", 1016), ("sqlite", 1100), ("mysql", 1000)])
def test_a_table_of_many_columns_is_compared(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, columns: int
) -> None:
    """R34: a result has fewer columns than both sides of a wide table."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        table = Table(tmp_path, engine, *(Column(name=f"c{n}", type="int16") for n in range(columns)))
        table.insert(*({"id": n, f"c{n}": n, f"c{columns - 1}": n} for n in (3, 1, 2)))
        table.apply()
        assert only(verified(engine, table.connector)).is_equal
        with engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE p_s_t SET c{columns - 1} = 7, c0 = 1 WHERE id = 2")
            connection.exec_driver_sql("DELETE FROM p_s_t WHERE id = 1")
            connection.exec_driver_sql("INSERT INTO p_s_t (id) VALUES (9)")
        found = only(verified(engine, table.connector))
        assert (found.missing, found.surplus, found.different) == (1, 1, 1)
        assert found.differing == {"c0": 1, f"c{columns - 1}": 1}


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_tables_have_transactions_whatever_the_server_would_make(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """C6: a default engine that has none, and tables that were made with it."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        sa.event.listen(engine, "connect", _my_isam)
        sink_tables = SinkTables(tmp_path, engine, "abc")
        sink_tables.run("CREATE TABLE p_s_c (id BIGINT PRIMARY KEY, v INT, t TEXT, z TEXT, b BLOB)")
        sink_tables.put("abc", 1)
        sink_tables.connector.capture()
        with pytest.raises(TargetError, match=r"p_s_c uses the engine MyISAM.*(?s:.*)ENGINE=InnoDB") as caught:
            sink(engine, sink_tables.connector, errors__tolerance="all").apply()
        assert "p.s.a:" not in str(caught.value)
        with engine.connect() as connection:
            found = connection.exec_driver_sql(
                "SELECT DISTINCT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME <> 'p_s_c'"
            )
            assert found.all() == [("InnoDB",)]
        sink_tables.run("ALTER TABLE p_s_c ENGINE=InnoDB")
        sink(engine, sink_tables.connector).apply()
        sink_tables.same("abc")


def _my_isam(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION default_storage_engine = MyISAM")


def test_two_moments_are_two_keys(engine: sa.Engine, tmp_path: Path) -> None:
    """A6a: in Berlin, half past two comes twice in the night when summer time ends."""
    at = Column(name="at", type="timestamp[us, tz=UTC]", nullable=False)
    table = Table(tmp_path, engine, at, V)
    table.alter(ID, at, V, key=("at",))
    for hour in (0, 1):
        table.insert({"id": hour, "at": dt.datetime(2024, 10, 27, hour, 30, tzinfo=dt.UTC), "v": hour})
    table.connector.capture()
    if engine.dialect.name != "postgresql":
        with pytest.raises(TargetError, match=r"(?s)one hour occurs twice.*database\.time_zone=UTC"):
            sink(engine, table.connector, use__time__zone="Europe/Berlin").apply()
        assert not sa.inspect(engine).has_table("p_s_t")
    table.apply(use__time__zone="Asia/Tokyo" if engine.dialect.name != "postgresql" else "Europe/Berlin")
    assert sorted(row["v"] for row in rows(engine, "p_s_t")) == [0, 1]


@pytest.mark.parametrize("way", [sink, staged_apply], ids=["sink", "staged"])
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql"])
def test_both_zeros_are_one_key(request: pytest.FixtureRequest, tmp_path: Path, kind: str, way: Any) -> None:
    """A6d: as they are in databases."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        key = Column(name="k", type="double", nullable=False)
        table = Table(tmp_path, engine, key, V)
        table.alter(ID, key, V, key=("k",))
        numbers = [0.0, -0.0]
        random = Random(kind)
        for at in range(30):
            if table.source.copy_rows("s.t"):
                with table.source.transaction() as t:
                    t.delete("s.t", {"k": random.choice(numbers)})
            table.insert({"id": at, "k": random.choice(numbers), "v": at})
            if at % 10 == 0:
                table.connector.capture()
                way(engine, table.connector).apply()
        table.connector.capture()
        way(engine, table.connector).apply()
        assert [row["v"] for row in rows(engine, "p_s_t")] == [29]
