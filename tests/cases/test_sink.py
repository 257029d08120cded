"""Relational targets: what sources and databases do to them that no table of another one may notice, and no row be lost by."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.core.model.schema import Column, TableChange
from airflow_provider_cdc.sink import texts
from airflow_provider_cdc.sink.config import EQUAL, SinkConfig
from airflow_provider_cdc.sink.database import open_engine
from airflow_provider_cdc.sink.dialects.mysql import MariaDb
from airflow_provider_cdc.sink.dialects.postgresql import as_text
from airflow_provider_cdc.sink.rebuild import RebuildDatabase
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.sink.conftest import _FIXTURES
from tests.sink.source_table import ID, Table, column
from tests.sink.test_apply import errors, rows, sink
from tests.sink.test_staged import staged
from tests.support.connectors import memory_connector
from tests.support.sampled import Sampled

KINDS = ("sqlite", "postgresql", "mariadb", "mysql")


@pytest.fixture(params=KINDS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database of each kind."""
    yield from _engine(request, tmp_path, request.param)


def _engine(request: pytest.FixtureRequest, folder: Path, kind: str) -> Iterator[sa.Engine]:
    if kind == "sqlite":
        yield from _opened(f"sqlite:///{folder}/target.db")
        return
    server = request.getfixturevalue(_FIXTURES[kind])
    with server.database("cases") as database:
        name = database if kind == "postgresql" else f"{database.name}?charset=utf8mb4"
        yield from _opened(server.url(name))


def _opened(url: str) -> Iterator[sa.Engine]:
    engine = open_engine(SinkConfig.parse({"connection.url": url}))
    yield engine
    engine.dispose()


# -- A2: keys that change at the source ---------------------------------------------------------------------------------

CODE = column("code", "string", "VARCHAR", 10, nullable=False)
V = Column(name="v", type="int32")
KEYS = [("id",), ("code",), ("id", "code")]


def same(table: Table) -> None:
    names = table.source._schemas[table.source.id("s.t")].names
    there = [tuple(row[name] for name in names) for row in rows(table.engine, "p_s_t")]
    assert sorted(there) == sorted(tuple(row[name] for name in names) for row in table.source.rows("s.t"))


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
    same(table)
    assert key_of(engine) == set(new)
    with table.source.transaction() as t:
        t.update("s.t", {"code": "D"}, {"id": 30, "v": 31})
        t.delete("s.t", {"code": "C"})
    table.apply()
    same(table)
    if applies == "rebuild":
        config = SinkConfig.parse(EQUAL)
        report = RebuildDatabase(engine, config, table.connector.changelog, table.connector.name).run(["s.t"])
        assert not report["problem"]
        same(table)


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
                same(table)
            elif what < 0.2:
                table.connector.capture()
        table.apply()
        same(table)
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


class Shop:
    """Some tables of one source, whose rows come into tables of the same names."""

    def __init__(self, folder: Path, engine: sa.Engine, names: str) -> None:
        self.engine, self.source, self.names = engine, MemoryDatabase(str(folder)), names
        for name in names:
            self.source.create_table(f"s.{name}", {"id": "int64!"}, key=("id",))
            schema = self.source._schemas[self.source.id(f"s.{name}")].model_copy(update={"columns": COLUMNS})
            self.source._alter(schema, TableChange(type="ALTER", id=schema.id, table=schema), "…")
        self.connector = memory_connector(self.source, folder, topic_prefix="p")

    def put(self, names: str, *ids: int, **values: Any) -> None:
        """One transaction with rows of each table."""
        with self.source.transaction() as t:
            for name in names:
                for number in ids:
                    t.insert(f"s.{name}", {"id": number, **GOOD, **values})

    def same(self, names: str) -> None:
        for name in names:
            there = sorted(row["id"] for row in rows(self.engine, f"p_s_{name}"))
            assert there == sorted(row["id"] for row in self.source.rows(f"s.{name}")), name

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)


class Refusal:
    """Has a database, or something before it, refuse a row of a table, until it is mended."""

    values: dict[str, Any] = {}
    said = ""

    def __init__(self, shop: Shop, name: str, patch: pytest.MonkeyPatch) -> None:
        self.shop, self.name, self.patch = shop, name, patch

    def begin(self) -> None:
        """Before the row is captured."""

    def captured(self) -> None:
        """When it is in the change log."""

    def mend(self) -> None: ...


class NotNull(Refusal):
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


class PythonHasNoSuchTime(Refusal):
    """B2a: as Debezium has PostgreSQL's ``infinity``."""

    values, said = {"z": "+292278994-08-16T23:00:00.000000Z"}, "(?i)iso|timestamp"

    def mend(self) -> None:
        self.patch.setattr(texts, "zoned", lambda values, zone: pa.nulls(len(values), pa.string()))
        self.patch.setattr("airflow_provider_cdc.sink.dialects.postgresql.as_text", _without_times)
        self.patch.setattr("airflow_provider_cdc.sink.dialects.copy_rows.encoded", lambda columns: None)


def _without_times(values: pa.Array, kind: Any, _as: Any = as_text) -> pa.Array:
    return pa.nulls(len(values), pa.string()) if kind.name == "timestamp_tz" else _as(values, kind)


class DamagedFile(Refusal):
    """B2b: a file is lost, or is not what it was."""

    said = "is missing|bytes instead of|cannot be"

    def captured(self) -> None:
        log = self.shop.connector.changelog
        manifest = log.manifest("test", log.last("test"))
        assert manifest is not None
        file = next(file for file in manifest.files if file.topic == f"p.s.{self.name}")
        self.path = Path(log.uri("test", file).removeprefix("file:"))
        self.kept = self.path.read_bytes()
        self.damage()

    def damage(self) -> None:
        self.path.unlink()

    def mend(self) -> None:
        self.path.write_bytes(self.kept)


class GarbledFile(DamagedFile):
    def damage(self) -> None:
        self.path.write_bytes(b"\0" * len(self.kept))


class DeferredConstraint(Refusal):
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


class LongRow(Refusal):
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
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, refusal: type[Refusal], sampled: Sampled
) -> None:
    """B2a, B2b, B2c, B2d, R26: wherever the row is, however many tables there are, with and without workers."""
    ways = [sink, staged] if kind != "sqlite" else [sink]
    cases = [(way, bad, place) for way in ways for bad in "acd" for place in range(3)]
    chosen = sampled.cases(f"{kind} {refusal.__name__}", len(cases), every=9)
    for number in sorted(chosen):
        way, bad, place = cases[number]
        (folder := tmp_path / str(number)).mkdir()
        opened = contextlib.contextmanager(_engine)(request, folder, kind)
        with opened as engine, pytest.MonkeyPatch.context() as patch:
            shop = Shop(folder, engine, "abcd"[: 1 + max("abcd".index(bad), number % 4)])
            _refused(shop, way, bad, place, refusal(shop, bad, patch))


def _refused(shop: Shop, way: Any, bad: str, place: int, refusal: Refusal) -> None:
    good, topic = shop.names.replace(bad, ""), f"p.s.{bad}"
    shop.put(shop.names, 1, 2)
    shop.connector.capture()
    way(shop.engine, shop.connector).apply()
    refusal.begin()
    for number in range(3):
        shop.put(good, 10 + number)
        shop.put(bad, 10 + number, **(refusal.values if number == place else {}))
    shop.connector.capture()
    refusal.captured()
    for more in (20, 21):
        with pytest.raises(TargetError, match=refusal.said) as caught:
            way(shop.engine, shop.connector).apply()
        assert f"{topic}: " in str(caught.value)
        assert not any(f"p.s.{name}: " in str(caught.value) for name in good)
        shop.same(good)
        assert sorted(row["id"] for row in rows(shop.engine, f"p_s_{bad}")) == [1, 2]
        shop.put(shop.names, more)
        shop.connector.capture()
    refusal.mend()
    way(shop.engine, shop.connector).apply()
    shop.same(shop.names)


def test_a_continuous_apply_goes_on_with_the_others_while_one_table_fails(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2e: it tries the one that fails again, after pauses that grow, and ends with its error if that stays."""
    shop = Shop(tmp_path, engine, "abc")
    shop.put("abc", 1)
    shop.connector.capture()
    sink(engine, shop.connector).apply()
    refusal = NotNull(shop, "b", monkeypatch)
    refusal.begin()
    looks = 0

    def over(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            shop.put("ac", 2)
            shop.put("b", 2, v=None)
        elif looks == 3:
            shop.put("abc", 3)
        elif looks == 5:
            shop.same("ac")
            refusal.mend()
        elif looks > 5 and not behind(shop):
            return True
        shop.connector.capture()
        time.sleep(0.2)
        return False

    done = sink(engine, shop.connector).follow(over)
    assert not done.failed
    shop.same("abc")
    refusal.begin() if engine.dialect.name == "sqlite" else None
    shop.put("b", 4, v=None) if engine.dialect.name == "sqlite" else shop.put("b", 4)
    shop.put("a", 4)
    shop.connector.capture()
    if engine.dialect.name == "sqlite":
        with pytest.raises(TargetError, match=r"p\.s\.b"):
            sink(engine, shop.connector).follow(lambda seconds: True)
        shop.same("ac")


def behind(shop: Shop) -> bool:
    return len(rows(shop.engine, "cdc_applied")) > 1


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_bytes_of_a_long_row_take_no_more_room_than_they_have(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2d, R26: all bytes there are, in a row that is too long as hexadecimal digits, beside rows that are not."""
    with contextlib.contextmanager(_engine)(request, tmp_path, kind) as engine:
        shop = Shop(tmp_path, engine, "a")
        monkeypatch.setattr(MariaDb, "_packet", lambda self, connection: 4096)
        long = bytes(range(256)) * 9 + b"'\\" * 50
        shop.put("a", 1, 2)
        shop.put("a", 3, b=long, t="it's \\ ä€😀")
        shop.put("a", 4, v=None)
        shop.connector.capture()
        sink(engine, shop.connector).apply()
        shop.same("a")
        assert {row["id"]: (row["b"], row["t"], row["v"]) for row in rows(engine, "p_s_a")} == {
            1: (GOOD["b"], "x", 1), 2: (GOOD["b"], "x", 1), 3: (long, "it's \\ ä€😀", 1), 4: (GOOD["b"], "x", None)
        }  # fmt: skip


def test_a_row_for_which_the_server_has_no_packet_is_refused_by_name(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """R26: MariaDB with its own default, 16 MB; 9 MB of bytes fit, 17 MB do not."""
    with contextlib.contextmanager(_engine)(request, tmp_path, "mariadb") as engine:
        shop = Shop(tmp_path, engine, "ax")
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar() == 16 << 20
        shop.put("ax", 1, b=b"\xfe" * (9 << 20))
        shop.put("a", 2, b=b"\xfe" * (17 << 20))
        shop.put("x", 2)
        shop.connector.capture()
        with pytest.raises(TargetError, match=r"(?s)p\.s\.a: .*max_allowed_packet is 16,777,216.*row with id=2"):
            sink(engine, shop.connector).apply()
        shop.same("x")
        sink(engine, shop.connector, errors__tolerance="all").apply()
        shop.same("x")
        assert [row["id"] for row in rows(engine, "p_s_a")] == [1]
        (kept,) = errors(engine)
        assert "max_allowed_packet" in kept["error"]
