"""Tables that the configuration does not fit, or of which the change log has no longer everything: they stay behind, and no other one does."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.rebuild_database import RebuildDatabase
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.connectors import Connector, memory_connector
from tests.support.signals import snapshot
from tests.targets.database.apply.test_database_apply import in_order, rows, sink
from tests.targets.database.conftest import _FIXTURES
from tests.targets.database.parallel.test_staged_parallel_apply import staged_apply
from tests.targets.database.verify.test_verify_database import verified

COLUMNS = {"id": "int64!", "n": "int32"}


@pytest.fixture(params=["sqlite", "mariadb", "mariadb, staged"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A sink for an empty database: one with DDL in its transactions, one without, and one by way of staging tables."""
    kind, _, way = request.param.partition(", ")
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/target.db"
    else:
        server = request.getfixturevalue(_FIXTURES[kind])
        url = server.url(f"{request.getfixturevalue('mariadb_database').name}?charset=utf8mb4")
    engine = open_engine(DatabaseTargetConfig.parse({"connection.url": url}))
    yield engine, (staged_apply if way else sink)
    engine.dispose()


@pytest.fixture
def mariadb_database(request: pytest.FixtureRequest) -> Any:
    with request.getfixturevalue("mariadb").database("stopped") as database:
        yield database


@pytest.fixture
def source(tmp_path: Path) -> MemoryDatabase:
    return MemoryDatabase(str(tmp_path))


@pytest.fixture
def connector(source: MemoryDatabase, tmp_path: Path) -> Connector:
    return memory_connector(source, tmp_path, topic_prefix="p")


def insert_rows(source: MemoryDatabase, connector: Connector, *tables: str, ids: tuple[int, ...]) -> None:
    with source.transaction() as t:
        for table in tables:
            for number in ids:
                t.insert(table, {"id": number, "n": number})
    connector.capture()


def assert_equal_tables(engine: sa.Engine, source: MemoryDatabase, *tables: str) -> None:
    for table in tables:
        assert in_order(rows(engine, "p_" + table.replace(".", "_"))) == in_order(source.copy_rows(table)), table


def markers(engine: sa.Engine) -> dict[str, int]:
    return {row["topic"]: row["batch"] for row in rows(engine, "cdc_applied")}


def test_a_table_without_a_key_stops_and_no_other(target: Any, source: MemoryDatabase, connector: Connector) -> None:
    engine, of = target
    source.create_table("s.keyless", COLUMNS, key=())
    source.create_table("s.good", COLUMNS, key=("id",))
    for ids in ((1, 2), (3,)):
        insert_rows(source, connector, "s.keyless", "s.good", ids=ids)
        with pytest.raises(TargetError, match=r"(?s)1 tables of .*p\.s\.keyless: .*no key.*message\.key\.columns"):
            of(engine, connector).apply()
        assert_equal_tables(engine, source, "s.good")
        assert not sa.inspect(engine).has_table("p_s_keyless")
    last = connector.changelog.list_batches(connector.name)[-1]
    assert markers(engine) == {"*": last, "p.s.keyless": 0}
    (report,) = ApplyReports(connector.changelog.storage, connector.name).list_reports()
    assert report["lagging"] == {"p.s.keyless": 0}
    assert "no key" in report["failed"]["p.s.keyless"]
    # its error names this way out
    assert of(engine, connector, topics__regex=r"p\.s\.good").apply().batch == last
    assert markers(engine) == {"*": last}
    (report,) = ApplyReports(connector.changelog.storage, connector.name).list_reports()
    assert (report["lagging"], report["failed"]) == ({}, {})


def test_a_table_that_the_properties_do_not_fit_goes_on_when_they_are_mended(
    target: Any, source: MemoryDatabase, connector: Connector
) -> None:
    engine, of = target
    source.create_table("s.bad", COLUMNS, key=("id",))
    source.create_table("s.good", {**COLUMNS, "m": "int32"}, key=("m", "id"))
    with source.transaction() as t:
        for number in range(3):
            t.insert("s.good", {"id": number, "m": 1, "n": 0})
    insert_rows(source, connector, "s.bad", ids=(1, 2))
    with pytest.raises(TargetError, match=r"(?s)p\.s\.bad: ConfigError: primary\.key\.fields names m") as caught:
        of(engine, connector, primary__key__fields="id,m").apply()
    assert "p.s.good:" not in str(caught.value)
    assert_equal_tables(engine, source, "s.good")
    of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.good", "s.bad")


def test_a_row_that_the_source_has_mended_since_needs_one_run(
    target: Any, source: MemoryDatabase, connector: Connector
) -> None:
    engine, of = target
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE p_s_bad (id BIGINT NOT NULL PRIMARY KEY, n INTEGER CHECK (n < 100))")
    for name in ("s.bad", "s.good"):
        source.create_table(name, COLUMNS, key=("id",))
    insert_rows(source, connector, "s.bad", "s.good", ids=(1, 200, 3))
    assert list(list_failures(target, connector)) == ["p.s.bad"]
    insert_rows(source, connector, "s.good", ids=(4,))
    assert list(list_failures(target, connector)) == ["p.s.bad"]
    with source.transaction() as t:
        t.update("s.bad", {"id": 200}, {"n": 2})
    insert_rows(source, connector, "s.bad", "s.good", ids=(5,))
    done = of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.bad", "s.good")
    assert (done.failed, done.behind) == ({}, {})


def test_a_topic_that_was_left_out_and_is_taken_again_lacks_nothing(
    target: Any, source: MemoryDatabase, connector: Connector
) -> None:
    engine, of = target
    some = {"topics__regex": r"p\.s\.b"}
    for name in ("s.a", "s.b", "s.c"):
        source.create_table(name, COLUMNS, key=("id",))
    insert_rows(source, connector, "s.a", "s.b", ids=(1, 2))
    of(engine, connector).apply()
    with source.transaction() as t:
        t.delete("s.a", {"id": 1})
    insert_rows(source, connector, "s.a", "s.b", "s.c", ids=(3,))
    for number in (4, 5):
        insert_rows(source, connector, "s.b", ids=(number,))
        of(engine, connector, **some).apply()
    assert_equal_tables(engine, source, "s.b")
    assert [row["id"] for row in rows(engine, "p_s_a")] == [1, 2]
    of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.a", "s.b", "s.c")
    assert markers(engine) == {"*": connector.changelog.list_batches(connector.name)[-1]}
    of(engine, connector, **some).apply()
    of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.a", "s.b", "s.c")


def test_rows_of_a_topic_that_was_left_out_are_inserted_once(
    source: MemoryDatabase, connector: Connector, tmp_path: Path
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/target.db")
    inserts = {"insert__mode": "insert", "delete__enabled": False, "truncate__enabled": False}
    for name in ("s.a", "s.b"):
        source.create_table(name, COLUMNS, key=("id",))
    for number, some in enumerate(({}, {"topics": "p.s.b"}, {}, {"topics": "p.s.a"}, {})):
        insert_rows(source, connector, "s.a", "s.b", ids=(number,))
        sink(engine, connector, **inserts, **some).apply()
    assert_equal_tables(engine, source, "s.a", "s.b")
    engine.dispose()


def test_a_topic_whose_batches_were_removed_while_it_was_left_out_stays_behind(
    target: Any, source: MemoryDatabase, connector: Connector, tmp_path: Path
) -> None:
    engine, of = target
    for name in ("s.a", "s.b"):
        source.create_table(name, COLUMNS, key=("id",))
    insert_rows(source, connector, "s.b", ids=(1,))
    of(engine, connector, topics="p.s.b").apply()
    insert_rows(source, connector, "s.a", "s.b", ids=(2,))
    of(engine, connector, topics="p.s.b").apply()
    for number in (3, 4):
        insert_rows(source, connector, "s.b", ids=(number,))
    remove_batches(connector, tmp_path)
    of(engine, connector, topics="p.s.b").apply()
    why = list_failures(target, connector)
    assert list(why) == ["p.s.a"]
    assert "snapshot test s.a --replace" in why["p.s.a"]
    snapshot(connector, "s.a", replace=True)
    connector.capture()
    of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.a", "s.b")


def remove_batches(connector: Connector, folder: Path) -> None:
    """Remove the batches that were there, which another target has had."""
    other = sa.create_engine(f"sqlite:///{folder}/other.db")
    sink(other, connector).apply()
    other.dispose()
    first = connector.changelog.find_first_batch(connector.name)
    Retention(connector.changelog, connector.name, RetentionLimits(0, -1)).run()
    assert connector.changelog.find_first_batch(connector.name) > first


def list_failures(target: Any, connector: Connector) -> dict[str, str]:
    """Why tables stay behind."""
    engine, of = target
    one = of(engine, connector)
    with pytest.raises(TargetError):
        one.apply()
    return dict(one.done.failed)


def fill_tables(
    source: MemoryDatabase, connector: Connector, folder: Path, *, until_trimmed: Any = lambda: None
) -> None:
    """``s.a`` has rows in batches that are removed and in later ones, ``s.b`` only in removed ones, ``s.c`` begins after them, ``s.d`` is emptied after
    them, and ``s.e`` was dropped before."""
    for name in "abde":
        source.create_table(f"s.{name}", COLUMNS, key=("id",))
    insert_rows(source, connector, "s.a", "s.b", "s.d", "s.e", ids=(1, 2))
    until_trimmed()
    insert_rows(source, connector, "s.a", "s.d", ids=(3,))
    source.drop_table("s.e")
    insert_rows(source, connector, "s.a", ids=(4,))
    remove_batches(connector, folder)
    source.create_table("s.c", COLUMNS, key=("id",))
    insert_rows(source, connector, "s.a", "s.c", "s.d", ids=(5,))
    source.truncate_table("s.d")
    insert_rows(source, connector, "s.d", "s.c", ids=(6,))
    insert_rows(source, connector, "s.d", "s.c", ids=(7,))


def test_a_new_target_begins_with_what_the_change_log_still_has_all_of(
    target: Any, source: MemoryDatabase, connector: Connector, tmp_path: Path
) -> None:
    engine, of = target
    fill_tables(source, connector, tmp_path)
    for _ in range(2):
        why = list_failures(target, connector)
        assert sorted(why) == ["p.s.a", "p.s.b"]
        assert all(f"snapshot test s.{topic[-1]} --replace" in text for topic, text in why.items())
        assert_equal_tables(engine, source, "s.c", "s.d")
        last = connector.changelog.list_batches(connector.name)[-1]
        assert markers(engine) == {"*": last, "p.s.a": 0, "p.s.b": 0}
        insert_rows(source, connector, "s.c", "s.d", ids=(10 + last,))
    snapshot(connector, "s.a", "s.b", replace=True)
    connector.capture()
    last = connector.changelog.list_batches(connector.name)[-1]
    assert of(engine, connector).apply().batch == last
    assert_equal_tables(engine, source, "s.a", "s.b", "s.c", "s.d")
    assert markers(engine) == {"*": last}


def test_a_target_of_a_backup_goes_on_with_what_lacks_nothing(
    target: Any, source: MemoryDatabase, connector: Connector, tmp_path: Path
) -> None:
    """It had the first batch, and was forgotten then."""
    engine, of = target

    def backed_up() -> None:
        of(engine, connector).apply()
        reports = ApplyReports(connector.changelog.storage, connector.name)
        (report,) = reports.list_reports()
        reports.delete_report(report["target"], report["location"])

    fill_tables(source, connector, tmp_path, until_trimmed=backed_up)
    at = markers(engine)["*"]
    why = list_failures(target, connector)
    assert list(why) == ["p.s.a"]
    assert_equal_tables(engine, source, "s.b", "s.c", "s.d")
    assert markers(engine) == {"*": connector.changelog.list_batches(connector.name)[-1], "p.s.a": at}
    snapshot(connector, "s.a", replace=True)
    connector.capture()
    of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.a", "s.b", "s.c", "s.d")


def test_what_is_killed_while_a_table_begins_later_is_finished_by_the_next_run(
    target: Any, source: MemoryDatabase, connector: Connector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, of = target
    fill_tables(source, connector, tmp_path)

    class Killed(BaseException):
        """No one catches it."""

    def raise_killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseApply, "_again", raise_killed)
        with pytest.raises(Killed):
            of(engine, connector).apply()
    assert markers(engine)["p.s.d"] > 0
    assert sorted(list_failures(target, connector)) == ["p.s.a", "p.s.b"]
    assert_equal_tables(engine, source, "s.c", "s.d")


@pytest.mark.parametrize("put_back", ["nothing", "older"])
def test_tables_that_are_ahead_of_the_change_log_take_nothing_of_it(
    target: Any, source: MemoryDatabase, connector: Connector, tmp_path: Path, put_back: str
) -> None:
    """Change log and state were lost, or are those of a backup. What is captured from then on has the numbers of batches that the tables have had."""
    engine, of = target
    source.create_table("s.a", COLUMNS, key=("id",))
    insert_rows(source, connector, "s.a", ids=(1,))
    copies = [(tmp_path / name, tmp_path / f"{name} of the backup") for name in ("changelog", "state.db")]
    if put_back == "older":
        connector.store.close()
        shutil.copytree(*copies[0])
        shutil.copy(*copies[1])
    for number in (2, 3, 4):
        insert_rows(source, connector, "s.a", ids=(number,))
    of(engine, connector).apply()
    last = connector.changelog.find_last_batch(connector.name)
    connector.store.close()
    for now, before in copies:
        shutil.rmtree(now) if now.is_dir() else now.unlink()
        if before.exists():
            before.rename(now)
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    for number in (5, 6):
        insert_rows(source, connector, "s.a", ids=(number,))
        with pytest.raises(TargetError, match=f"are at batch {last}.* another change log") as caught:
            of(engine, connector).apply()
        with pytest.raises(TargetError, match="another change log"):
            RebuildDatabase(engine, DatabaseTargetConfig.parse(EQUAL), connector.changelog, connector.name).run(["s.a"])
        with pytest.raises(TargetError, match="another change log"):
            verified(engine, connector, wait_s=0)
        assert in_order(rows(engine, "p_s_a")) == [{"id": n, "n": n} for n in (1, 2, 3, 4)]
    with engine.begin() as connection:  # as the remedy says
        text = re.search(r"\((DELETE FROM .*)\), and", str(caught.value.remedy))
        assert text is not None
        connection.exec_driver_sql(text[1])
        connection.exec_driver_sql("DROP TABLE p_s_a")
    of(engine, connector).apply()
    assert_equal_tables(engine, source, "s.a")
