"""Places in the log that a person names (``set-binlog-position``), and what a stream reads from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.log_items import LogBlock
from airflow_provider_cdc.sources.mysql.gtid_sets import parse_gtids
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from airflow_provider_cdc.sources.mysql.source import MySqlSource
from tests.support.sources.mysql.mysql_chunks import FixedTables, LoggedRow, read_log_rows, source_of
from tests.support.sources.mysql.mysql_server import new_log_file, purge_log


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def db(server: Any) -> Iterator[Any]:
    with server.database("place") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        yield database


@pytest.fixture
def source(server: Any) -> Iterator[MySqlSource]:
    with source_of(server) as source:
        yield source


def _ids(source: MySqlSource, db: Any, start: Any) -> list[int]:
    return [e.row["id"] for e in _events(source, db, start)]


def _events(source: MySqlSource, db: Any, start: Any) -> list[LoggedRow]:
    tables = {t: s for t, s in source.discover_tables().items() if t.namespace == db.name}
    return read_log_rows(source, start, tables)


def _end(source: MySqlSource) -> dict[str, Any]:
    end = source.current_position()
    return {"binlog_filename": end.file, "binlog_position": end.pos}


def test_a_file_and_an_offset_are_where_the_stream_goes_on(db: Any, source: MySqlSource) -> None:
    db.sql("INSERT INTO t VALUES (1, 1)")
    new_log_file(db)
    db.sql("INSERT INTO t VALUES (2, 2)")
    named, end = _end(source), source.current_position()
    db.sql("INSERT INTO t VALUES (3, 3)", "UPDATE t SET v = 9 WHERE id = 1")
    found = source.position_of(named)
    assert isinstance(found, MySqlPosition)
    assert (found.file, found.pos, found.server) == (end.file, end.pos, end.server)
    assert parse_gtids(found.gtids) == parse_gtids(end.gtids)
    assert found.created > 0
    assert found.has_reached(end)
    assert end.has_reached(found)
    assert _ids(source, db, found) == [3, 1]
    # what a run writes down after it is whole as well
    last = list(source.stream_log(found, FixedTables({}), until=source.current_position()))[-1]
    assert parse_gtids(last.position.gtids) == parse_gtids(source.current_position().gtids)  # type: ignore[union-attr]


def test_the_head_of_a_file_is_a_place(db: Any, source: MySqlSource) -> None:
    db.sql("INSERT INTO t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)")
    file = source.current_position().file
    for pos in (0, 4):
        found = source.position_of({"binlog_filename": file, "binlog_position": pos})
        assert isinstance(found, MySqlPosition)
        assert (found.file, found.pos) == (file, 4)
        assert _ids(source, db, found) == [2]


@pytest.mark.sampled(3)
def test_each_place_between_two_transactions_is_one_and_no_other(db: Any, source: MySqlSource) -> None:
    new_log_file(db)
    places = {source.current_position().pos: 0}
    for n in range(3):
        db.sql(f"INSERT INTO t VALUES ({n}, 0), ({n + 100}, 0)", f"UPDATE t SET v = {n + 1} WHERE id > 50")
        places[source.current_position().pos] = n + 1
    file, end = source.current_position().file, source.current_position().pos
    good, reported = set(), set()
    for pos in range(min(places) - 5, end + 3):
        try:
            source.position_of({"binlog_filename": file, "binlog_position": pos})
            good.add(pos)
        except ConfigError as e:
            reported.add(
                "inside"
                if "is inside a transaction" in str(e)
                else "behind"
                if f"has {end} bytes" in str(e)
                else str(e)
            )
    assert set(places) <= good
    assert reported == {"inside", "behind"}
    # each statement was a transaction: one more place for each INSERT
    assert len([pos for pos in good if pos >= min(places)]) == 1 + 6


def test_gtids_are_where_the_stream_goes_on(db: Any, source: MySqlSource) -> None:
    db.sql("INSERT INTO t VALUES (1, 1)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 2)")
    end = source.current_position()
    db.sql("INSERT INTO t VALUES (3, 3)")
    found = source.position_of({"gtid_set": f" {end.gtids} "})
    assert isinstance(found, MySqlPosition)
    assert found.has_reached(end)
    assert end.has_reached(found)
    assert not found.has_reached(source.current_position())
    assert source.current_position().has_reached(found)
    assert _ids(source, db, found) == [3]
    again = source.parse_position(found.to_json())
    assert again == found
    until = source.current_position()  # MariaDB writes a checkpoint after it whenever it likes
    last = list(source.stream_log(found, FixedTables({}), until=until))[-1]
    assert isinstance(last.position, MySqlPosition)  # type: ignore[union-attr]
    assert last.position.has_reached(until)  # type: ignore[union-attr]
    # at the end of the log there is nothing, and a stream is there at once
    here = source.position_of({"gtid_set": source.current_position().gtids})
    items = list(source.stream_log(here, FixedTables({}), until=source.current_position()))
    assert not any(isinstance(i, LogBlock) for i in items)


def test_a_stream_that_began_at_the_head_of_the_log_knows_all_gtids(db: Any, source: MySqlSource) -> None:
    db.sql("FLUSH BINARY LOGS", "INSERT INTO t VALUES (1, 1)")
    file = source.current_position().file
    start = MySqlPosition(file, 4, server=source.server_info.identity)
    last = list(source.stream_log(start, FixedTables({}), until=source.current_position()))[-1]
    assert parse_gtids(last.position.gtids) == parse_gtids(source.current_position().gtids)  # type: ignore[union-attr]


def test_the_form_that_positions_are_shown_in_is_taken(source: MySqlSource) -> None:
    end = source.current_position()
    assert source.position_of(end.to_json()) == end


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "is not a position"),
    ({"binlog_filename": "binlog.000001"}, "binlog_position is missing"),
    ({"binlog_position": 4}, "binlog_filename is missing"),
    ({"binlog_filename": "binlog.000001", "binlog_position": 4, "gtid_set": "x"}, "exclude each other"),
    ({"binlog_filename": "binlog.000001", "binlog_position": -1}, "not a number of 0 or more"),
    ({"binlog_filename": "binlog.000001", "binlog_position": "4"}, "not a number of 0 or more"),
    ({"binlog_filename": "binlog.000001", "binlog_position": True}, "not a number of 0 or more"),
    ({"binlog_filename": "binlog.1", "binlog_position": 4}, "not the name of a log file"),
    ({"binlog_filename": "../../x.000001", "binlog_position": 4}, "not the name of a log file"),
    ({"binlog_filename": 1, "binlog_position": 4}, "not the name of a log file"),
    ({"binlog_filename": "binlog.999999", "binlog_position": 4}, "has no file binlog.999999"),
    ({"gtid_set": ""}, "not a set of GTIDs"),
    ({"gtid_set": 7}, "not a set of GTIDs"),
    ({"gtid_set": "nonsense"}, "not a"),
    ({"gtid_set": "x', (SELECT 1), '"}, "not a"),
    ({"somewhere": 1}, "is not a position"),
]


@pytest.mark.parametrize(("data", "message"), BAD)
def test_what_is_no_place_is_refused_with_the_valid_forms(
    source: MySqlSource, data: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        source.position_of(data)
    assert "airflow cdc offsets" in str(caught.value)


def test_gtids_that_the_server_has_not_reached_are_refused(db: Any, source: MySqlSource) -> None:
    if db.server.kind == "mariadb":
        wrong = {"0-1000-99999999": "log ends at", "0-1000-1,0-1000-2": "a domain twice"}
    else:
        wrong = {"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5": "has not executed", "0-1-1": "not a set of GTIDs of MySQL"}
    for text, message in wrong.items():
        with pytest.raises(ConfigError, match=message):
            source.position_of({"gtid_set": text})


def test_what_was_purged_is_no_place_any_more(request: pytest.FixtureRequest, server: Any) -> None:
    factory = request.getfixturevalue(f"{server.kind}_factory")
    with factory(server.edition) as own, source_of(own) as source:
        own.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        named, gtids = _end(source), source.current_position().gtids
        own.sql("INSERT INTO d.t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS")
        assert source.position_of({"gtid_set": gtids})
        purge_log(own)
        with pytest.raises(ConfigError, match="has no file"):
            source.position_of(named)
        with pytest.raises(ConfigError, match="position does not exist"):
            source.position_of({"gtid_set": gtids})


def test_gtids_of_a_server_that_has_none(mysql_factory: Any) -> None:
    with mysql_factory("8.0", gtid_mode=None, enforce_gtid_consistency=None) as server, source_of(server) as source:
        server.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        with pytest.raises(ConfigError, match="binlog_filename"):
            source.position_of({"gtid_set": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"})
        named = _end(source)
        server.sql("INSERT INTO d.t VALUES (1)")
        found = source.position_of(named)
        assert isinstance(found, MySqlPosition)
        assert found.gtids == ""
        tables = {t: s for t, s in source.discover_tables().items() if t.namespace == "d"}
        assert [e.row["id"] for e in read_log_rows(source, found, tables)] == [1]
