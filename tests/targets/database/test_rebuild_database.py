"""Building tables of a database again from the change log, while everything else continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.changelog.retention.target_progress import needs_of
from airflow_provider_cdc.core.errors import BatchesRemoved, ConfigError, TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database import rebuild_database as module
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of, postgresql
from airflow_provider_cdc.targets.database.rebuild_database import RebuildDatabase
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable, TargetTableName
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows, sink
from tests.targets.database.apply.test_statement_costs import statements
from tests.targets.database.verify.test_verify_database import COLUMNS, run


def rebuild(engine: sa.Engine, connector: Connector, *names: str, **properties: Any) -> dict[str, Any]:
    config = DatabaseTargetConfig.parse({**EQUAL, **{k.replace("__", "."): v for k, v in properties.items()}})
    return RebuildDatabase(engine, config, connector.changelog, connector.name).run(names, "r")


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    source = MemoryDatabase(str(tmp_path))
    for name in ("s.t", "s.u"):
        source.create_table(name, COLUMNS, key=("id",))
    return source


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    """Return a connector with three batches, of which the second adds a column."""
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    for n in range(3):
        if n == 1:
            source.add_column("s.t", "c", "int32", 7, text="7")
        with source.transaction() as t:
            for name in ("s.t", "s.u"):
                t.insert(name, {"id": n, "a": f"n{n}", "b": n})
                t.insert(name, {"id": 10 + n, "a": "gone", "b": 100 + n})
                t.delete(name, {"id": 9 + n})
        connector.capture()
    return connector


def _markers(engine: sa.Engine) -> list[dict[str, Any]]:
    return [{name.lower(): value for name, value in row.items()} for row in rows(engine, "cdc_applied", quoted=True)]


@pytest.mark.parametrize(
    "harm",
    ["DROP TABLE p_s_t", "DELETE FROM p_s_t", "UPDATE p_s_t SET a = 'else'", "INSERT INTO p_s_t (id) VALUES (99)"],
)
def test_a_table_is_as_the_source_again_and_others_are_left_alone(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, harm: str
) -> None:
    sink(engine, connector).apply()
    run(engine, harm, "UPDATE p_s_u SET a = 'mine'")
    report = rebuild(engine, connector, "s.t")
    assert report["problem"] == ""
    ((topic, location, batch),) = [(t["topic"], t["location"], t["batch"]) for t in report["tables"]]
    assert (topic, location, batch) == ("p.s.t", dialect_of(engine).fold_name("p_s_t"), 3)
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
    assert {row["a"] for row in rows(engine, "p_s_u")} == {"mine"}
    (marker,) = _markers(engine)
    assert (marker["topic"], marker["batch"]) == ("*", 3)
    assert sink(engine, connector).apply().event_count == 0


def test_what_is_killed_is_finished_by_the_next_apply_and_its_batches_are_kept(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink(engine, connector).apply()

    class Killed(BaseException):
        pass

    def killed(_: DatabaseApply) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(module.DatabaseApply, "apply", killed)
        with pytest.raises(Killed):
            rebuild(engine, connector, "p.s.t")
    assert rows(engine, "p_s_t") == []
    (need,) = needs_of(connector.changelog.storage, connector.name)
    assert (need.after, list(need.tables)) == (0, ["p.s.t"])
    (marker,) = [row for row in _markers(engine) if row["topic"] == "p.s.t"]
    assert (marker["batch"], marker["error"]) == (0, module.WHY)
    with source.transaction() as t:
        for name in ("s.t", "s.u"):
            t.insert(name, {"id": 50, "a": "new", "b": 0})
    connector.capture()
    sink(engine, connector).apply()
    for name in ("t", "u"):
        assert in_order(rows(engine, f"p_s_{name}")) == in_order(source.copy_rows(f"s.{name}"))


def test_a_table_that_still_refuses_a_row_is_named_and_the_others_are_built(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    sink(engine, connector).apply()
    run(engine, "DELETE FROM p_s_t", "DELETE FROM p_s_u", "CREATE UNIQUE INDEX one ON p_s_t (c)")
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"c": 3})
        t.update("s.t", {"id": 2}, {"c": 3})
    connector.capture()
    report = rebuild(engine, connector, "s.t", "s.u")
    assert f"p.s.t: TargetError: {dialect_of(engine).fold_name('p_s_t')} rejects a row" in report["problem"]
    assert [table["topic"] for table in report["tables"]] == ["p.s.u"]
    assert in_order(rows(engine, "p_s_u")) == in_order(source.copy_rows("s.u"))


def test_tables_that_others_are_behind_with_are_no_problem_of_this_one(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector
) -> None:
    sink(engine, connector).apply()
    run(engine, "CREATE UNIQUE INDEX one ON p_s_u (b)")
    with source.transaction() as t:
        t.insert("s.u", {"id": 60, "a": "", "b": 1})
    connector.capture()
    with pytest.raises(TargetError):
        sink(engine, connector).apply()
    run(engine, "DELETE FROM p_s_t")
    assert rebuild(engine, connector, "s.t")["problem"] == ""
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


def test_a_log_whose_first_batches_are_gone_builds_what_it_has_all_of(
    tmp_path: Path, source: MemoryDatabase, connector: Connector
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    source.create_table("s.late", COLUMNS, key=("id",))
    with source.transaction() as t:
        t.insert("s.late", {"id": 1, "a": "", "b": 1})
    connector.capture()
    source.truncate_table("s.u")
    with source.transaction() as t:
        t.insert("s.u", {"id": 1, "a": "after", "b": 1})
    connector.capture()
    sink(engine, connector).apply()
    retention = Retention(connector.changelog, connector.name, RetentionLimits(0, -1))
    retention.run()
    first = connector.changelog.find_first_batch(connector.name)
    assert first > 1
    with pytest.raises(BatchesRemoved, match=r"(?s)p\.s\.t cannot be built.*s\.t --replace"):
        rebuild(engine, connector, "s.t")
    assert rows(engine, "p_s_t")  # nothing was changed
    run(engine, "DELETE FROM p_s_u")
    assert rebuild(engine, connector, "s.u")["problem"] == ""
    assert rows(engine, "p_s_u") == [{"id": 1, "a": "after", "b": 1}]


def test_a_table_that_is_not_applied_is_not_built(tmp_path: Path, connector: Connector) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    with pytest.raises(ConfigError, match=r"contains no table s\.x that is applied here(.|\n)*s\.t, s\.u"):
        rebuild(engine, connector, "s.x")
    with pytest.raises(ConfigError, match=r"contains no table s\.t"):
        rebuild(engine, connector, "s.t", topics="p.s.u")


def test_rows_that_are_events_are_the_same_events_again(engine: sa.Engine, connector: Connector) -> None:
    events = {"insert__mode": "insert", "primary__key__mode": "kafka", "delete__enabled": False}
    sink(engine, connector, **events).apply()
    before = sorted(rows(engine, "p_s_u"), key=lambda row: row["__connect_offset"])
    run(engine, "DELETE FROM p_s_u")
    rebuild(engine, connector, "s.u", **events)
    assert sorted(rows(engine, "p_s_u"), key=lambda row: row["__connect_offset"]) == before


_TRUNCATE = "TRUNCATE TABLE ONLY"
_KEPT_BY = {
    "reference": ("CREATE TABLE other (id bigint REFERENCES p_s_t (id) ON DELETE CASCADE)",),
    "trigger": (
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
        "CREATE TRIGGER noted BEFORE DELETE ON p_s_t FOR EACH ROW EXECUTE FUNCTION noted()",
    ),
    "rule": ("CREATE RULE noted AS ON DELETE TO p_s_t DO ALSO NOTIFY noted",),
    "row-level security": ("ALTER TABLE p_s_t ENABLE ROW LEVEL SECURITY",),
    "publication": ("CREATE PUBLICATION published FOR TABLE p_s_t",),
    "child": ("CREATE TABLE child () INHERITS (p_s_t)",),
}


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("reason", [None, *_KEPT_BY])
def test_rows_are_truncated_where_that_does_what_a_delete_does(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, reason: str | None
) -> None:
    sink(engine, connector).apply()
    run(engine, *(_KEPT_BY[reason] if reason else ()))
    with statements(engine) as seen:
        assert rebuild(engine, connector, "s.t")["problem"] == ""
    assert any(_TRUNCATE in statement for statement in seen) == (reason is None)
    assert ('DELETE FROM "p_s_t"' in seen) == (reason is not None)
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_rows_are_deleted_beside_a_reader_who_sees_them_until_it_ends(
    engine: sa.Engine, source: MemoryDatabase, connector: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "TRUNCATE_WAIT_MS", 100)
    sink(engine, connector).apply()
    dialect, other = dialect_of(engine), sa.create_engine(engine.url)
    table = DatabaseTargetTable("p.s.t", TargetTableName("p_s_t"), ())
    with other.connect().execution_options(isolation_level="REPEATABLE READ") as reader:
        dialect.hold_rows(reader, table)
        before = reader.execute(sa.text("SELECT count(*) FROM cdc_applied")).scalar()
        with statements(engine) as seen:
            assert rebuild(engine, connector, "s.t")["problem"] == ""
        assert reader.execute(sa.text("SELECT count(*) FROM p_s_t")).scalar() == len(source.copy_rows("s.t"))
        assert reader.execute(sa.text("SELECT count(*) FROM cdc_applied")).scalar() == before
    other.dispose()
    assert any(_TRUNCATE in statement for statement in seen)
    assert 'DELETE FROM "p_s_t"' in seen
    assert in_order(rows(engine, "p_s_t")) == in_order(source.copy_rows("s.t"))
