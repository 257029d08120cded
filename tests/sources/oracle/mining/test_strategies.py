"""Mining Oracle's redo: DDL with each strategy, sessions over switches and hours, databases where little happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.sources.oracle.mining import session as sessions
from airflow_provider_cdc.sources.oracle.mining.log_buffer_flush import LogWriterFlush
from airflow_provider_cdc.sources.oracle.mining.scn_windows import WindowPlanner
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import mine_rows, session_of
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records
from tests.support.connectors import Connector
from tests.support.patience import LONGEST_S

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


def _table(server: Oracle, name: str = "T", **login: Any) -> None:
    server.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY)", LOGGED.format(name), **login)


def _afters(found: list[Record]) -> list[Any]:
    return [r["value"]["after"] for r in found if r["topic"] != "test"]


# strategies


def test_with_the_online_catalog_ddl_goes_well_when_everything_before_it_was_captured(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    _table(schema)
    connector = connector_factory(log_mining_strategy="online_catalog")
    capture_records(connector)
    for number, ddl in enumerate(("ADD (V NUMBER(9))", "RENAME COLUMN V TO W", "DROP COLUMN W")):
        schema.sql(f"INSERT INTO T (ID) VALUES ({number})")
        assert len(_afters(capture_records(connector))) == 1
        schema.sql(f"ALTER TABLE T {ddl}")
        capture_records(connector)
    schema.sql("INSERT INTO T VALUES (9)")
    assert _afters(capture_records(connector)) == [{"ID": 9}]


@pytest.mark.parametrize("strategy", ["redo_log_catalog", "hybrid"])
def test_tables_may_change_at_any_time(
    schema: Oracle, connector_factory: Callable[..., Connector], strategy: str
) -> None:
    _table(schema)
    connector = connector_factory(log_mining_strategy=strategy)
    capture_records(connector)
    schema.sql("INSERT INTO T VALUES (1)", "COMMIT", "ALTER TABLE T ADD (V NUMBER(9))")
    schema.switch_log()
    schema.sql("INSERT INTO T VALUES (2, 2)", "COMMIT", "ALTER TABLE T DROP COLUMN V", "INSERT INTO T VALUES (3)")
    schema.sql("CREATE TABLE NEW (A NUMBER(9) PRIMARY KEY)", LOGGED.format("NEW"), "INSERT INTO NEW VALUES (4)")
    assert _afters(capture_records(connector)) == [{"ID": 1}, {"ID": 2, "V": 2}, {"ID": 3}, {"A": 4}]


# filters


@pytest.mark.parametrize("mode", ["none", "in", "regex"])
def test_whatever_the_filter_mode_the_same_is_captured(schema: Oracle, tmp_path: Path, mode: str) -> None:
    for name in ("T", "TT", "U"):
        _table(schema, name)
    lists = {"table_include_list": r"APP\.T,APP\.U" if mode == "in" else r"APP\.(T|U)"}
    connector = oracle_connector(schema, tmp_path, log_mining_query_filter_mode=mode, **lists)
    capture_records(connector)
    schema.sql(*(f"INSERT INTO {name} VALUES (1)" for name in ("T", "TT", "U")))
    assert [r["topic"] for r in capture_records(connector)] == ["test.APP.T", "test.APP.U"]


def test_changes_of_some_users_are_captured_or_left_out(schema: Oracle, tmp_path: Path) -> None:
    schema.admin("CREATE USER OTHER IDENTIFIED BY other QUOTA UNLIMITED ON users", "GRANT CREATE SESSION TO OTHER")
    try:
        _table(schema)
        schema.sql("GRANT INSERT ON T TO OTHER")
        lists = ({"log_mining_username_include_list": "OTHER"}, {"log_mining_username_exclude_list": "other"})
        connectors = [
            oracle_connector(schema, tmp_path / str(i), schema_include_list="APP", **p) for i, p in enumerate(lists)
        ]
        for connector in connectors:
            capture_records(connector)
        schema.sql("INSERT INTO T VALUES (1)")
        schema.sql("INSERT INTO APP.T VALUES (2)", user="OTHER", password="other")
        assert [_afters(capture_records(connector)) for connector in connectors] == [[{"ID": 2}], [{"ID": 1}]]
    finally:
        schema.admin("DROP USER OTHER CASCADE")


# windows


class TestFinished(BaseException):
    """All that a test waits for has happened."""


def test_a_jump_of_the_scn_is_mined_in_one_step(
    schema: Oracle, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    _table(schema)
    connector = connector_factory(log_mining_batch_size_max=20_000)
    seen: list[WindowPlanner] = []
    first = WindowPlanner.__init__

    def remember_and_start(self: WindowPlanner, *arguments: Any) -> None:
        seen.append(self)
        first(self, *arguments)

    monkeypatch.setattr(WindowPlanner, "__init__", remember_and_start)
    capture_records(connector)
    flush = LogWriterFlush.flush

    def jumping(self: Any, scn: int) -> int:
        written = flush(self, scn)
        if len(seen) == 2 and not seen[-1].counters.gaps:
            schema.jump_scn(5_000_000)
        elif len(seen) == 2:
            raise TestFinished
        return written

    monkeypatch.setattr(LogWriterFlush, "flush", jumping)
    schema.sql("INSERT INTO T VALUES (1)")
    with pytest.raises(TestFinished):
        connector.capture(run_for_s=LONGEST_S)
    assert seen[-1].counters.gaps == 1
    assert seen[-1].counters.steps < 100


# sessions


def test_the_clock_of_the_server_is_read_for_each_window(schema: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """LogMiner gives local times, and summer time may begin within one of its sessions."""
    _table(schema)
    offsets = iter([3600, 7200])
    monkeypatch.setattr(sessions, "utc_offset", lambda connection: next(offsets))
    with session_of(schema) as session:
        at, times = schema.scn(), []
        for number in range(2):
            schema.sql(f"INSERT INTO T VALUES ({number})")
            schema.flush()
            end = schema.scn()
            (row,) = [r for r in mine_rows(session, at, end, number == 0) if r["code"] == 1]
            times.append(row["ts_us"] / 1e6)
            at = end
    assert -3600 - 60 < times[1] - times[0] < -3600 + 60


# databases where little happens


def test_the_place_moves_on_while_nothing_of_the_captured_tables_changes(tmp_path: Path) -> None:
    """So that logs that are purged behind it are not missed, whatever else the database does."""
    with Oracle() as server:
        for name in ("QUIET", "BUSY"):
            _table(server, name)
        server.sql("INSERT INTO QUIET VALUES (0)")
        connector = oracle_connector(server, tmp_path, table_include_list=r"APP\.QUIET")
        idle = oracle_connector(server, tmp_path / "idle", table_include_list=r"APP\.QUIET")
        capture_records(connector)
        capture_records(idle)
        for number in range(6):
            server.sql(f"INSERT INTO BUSY VALUES ({number})")
            server.switch_log()
            place = connector.store.load_offset("test").offset
            assert capture_records(connector) == []
            moved = connector.store.load_offset("test").offset
            assert place is not None
            assert moved is not None
            assert place.position is not None
            assert moved.position is not None
            assert int(moved.position["scn"]) > int(place.position["scn"])
            server.purge(int(moved.position["scn"]))
        server.sql("INSERT INTO QUIET VALUES (1)")
        assert _afters(capture_records(connector)) == [{"ID": 1}]
        with pytest.raises(PositionLost):  # of one that did not run
            idle.capture()
