"""Failures of Oracle, and the errors that they become; capture at the edges that the documents' questions are about."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError, PositionLost, SourceUnavailable, TransientError
from airflow_provider_cdc.sources.oracle import connect as connecting
from airflow_provider_cdc.sources.oracle.connect import connect, fetch_scalar
from airflow_provider_cdc.sources.oracle.error_translation import translate_error
from airflow_provider_cdc.sources.oracle.mining.logminer_calls import start_statement
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def dedicated_server() -> Iterator[Oracle]:
    """A server of one's own, whose logs may be lost."""
    with Oracle() as server:
        table(server)
        yield server


def table(server: Oracle, name: str = "T") -> None:
    server.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY, V NUMBER(9))", LOGGED.format(name))
    server.sql(f"INSERT INTO {name} VALUES (1, 1)")


@pytest.fixture
def connector_factory(tmp_path: Path) -> Callable[..., Connector]:
    return lambda server, **properties: oracle_connector(
        server, tmp_path, **{"schema_include_list": "APP", **properties}
    )


def told(number: int, **properties: Any) -> CdcError:
    error = oracledb.DatabaseError(
        SimpleNamespace(code=number, full_code=f"ORA-{number:05d}", message=f"ORA-{number:05d}: text")
    )
    return translate_error(error, config(**properties), "here")


# numbers of the documents' questions


@pytest.mark.parametrize(
    ("number", "retried", "advice"),
    [
        (1555, True, ["UNDO_RETENTION", "the undo tablespace must have room", "snapshot.mode=no_data"]),
        (4036, True, ["log.mining.session.max.ms", "switch logs more often", "PGA_AGGREGATE_LIMIT"]),
        (1882, False, ["TZ", "V$TIMEZONE_NAMES"]),
        (25191, False, ["table.exclude.list", "report"]),
        (3113, True, ["the database and the listener are up"]),
        (12170, True, ["reachable from this worker"]),
    ],
)
def test_each_error_of_the_questions_has_the_documented_advice(number: int, retried: bool, advice: list[str]) -> None:
    error = told(number)
    assert isinstance(error, TransientError) is retried
    for words in advice:
        assert words in str(error.remedy)
    assert f"ORA-{number:05d}" in str(error)
    assert error.safe


def test_undo_that_is_too_short_fails_the_snapshot_with_both_remedies(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_cdc.sources.oracle.snapshot import snapshot

    read = snapshot.OracleSnapshot.read

    def update_and_read(self: Any, chunk: Any) -> Any:
        dedicated_server.sql("UPDATE T SET V = V + 1")
        dedicated_server.expire_undo()
        yield from read(self, chunk)

    monkeypatch.setattr(snapshot.OracleSnapshot, "read", update_and_read)
    connector = connector_factory(dedicated_server)
    with pytest.raises(SourceUnavailable, match="ORA-01555") as caught:
        connector.capture()
    assert "UNDO_RETENTION" in str(caught.value.remedy)
    assert "snapshot.mode=no_data" in str(caught.value.remedy)
    assert connector.changelog.list_batches(connector.name) == []
    monkeypatch.undo()
    assert [r["value"]["op"] for r in of_table(capture_records(connector), "T")] == ["r"]


# places that are lost


def test_an_offset_that_the_logs_do_not_reach_stops_capture_and_moves_nothing(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(dedicated_server)
    connector.capture()
    before = connector.store.load_offset(connector.name).offset
    dedicated_server.sql("INSERT INTO T VALUES (2, 2)")
    for _ in range(4):
        dedicated_server.switch_log()
    dedicated_server.purge()
    for _ in range(2):
        with pytest.raises(PositionLost) as caught:
            connector.capture()
        assert re.search(r"sequence|SCN", caught.value.message)
        assert "RMAN" in str(caught.value.remedy)
        assert "snapshot.mode=when_needed" in str(caught.value.remedy)
    assert connector.store.load_offset(connector.name).offset == before
    connector.capture({"snapshot.mode": "when_needed"})
    assert connector.rows("APP.T") == [{"ID": 1, "V": 1}, {"ID": 2, "V": 2}]


def test_a_database_that_was_set_back_is_reported_and_read_again_where_that_is_allowed(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(dedicated_server)
    connector.capture()
    dedicated_server.sql("INSERT INTO T VALUES (2, 2)")
    connector.capture()
    dedicated_server.reset_logs()
    dedicated_server.sql("INSERT INTO T VALUES (3, 3)")
    with pytest.raises(PositionLost) as caught:
        connector.capture()
    assert "snapshot.mode=when_needed" in str(caught.value.remedy)
    connector.capture({"snapshot.mode": "when_needed"})
    assert connector.rows("APP.T") == [
        {"ID": i, "V": v} for i, v in dedicated_server.sql("SELECT ID, V FROM T ORDER BY ID")
    ]


def test_structures_that_were_lost_are_built_again_from_the_database(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector], tmp_path: Path
) -> None:
    table(dedicated_server, "U")
    connector = connector_factory(dedicated_server, table_include_list="APP.T")
    connector.capture()
    dedicated_server.sql("INSERT INTO U VALUES (2, 2)")
    connector.properties["table.include.list"] = "APP.T,APP.U"
    assert {r["value"]["op"] for r in of_table(capture_records(connector), "U")} == {"r"}
    dedicated_server.sql("INSERT INTO U VALUES (3, 3)")
    assert [r["value"]["op"] for r in of_table(capture_records(connector), "U")] == ["c"]


# the connection


def test_a_silent_connection_is_kept_open_and_a_hanging_call_ends(
    dedicated_server: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: dict[str, Any] = {}
    plain = oracledb.connect

    def record_and_connect(**options: Any) -> oracledb.Connection:
        requested.update(options)
        return plain(**options)

    monkeypatch.setattr(connecting.oracledb, "connect", record_and_connect)
    url = f"(DESCRIPTION=(ENABLE=broken)(ADDRESS=(PROTOCOL=TCP)(HOST={dedicated_server.host})(PORT={dedicated_server.port}))(CONNECT_DATA=(SERVICE_NAME={dedicated_server.database})))"
    with closing(connect(settings(dedicated_server, database__url=f"jdbc:oracle:thin:@{url}"))) as connection:
        assert fetch_scalar(connection, "SELECT 1 FROM DUAL") == 1
        assert connection.call_timeout == 600_000
    assert 0 < requested["expire_time"] * 60 < 350, "gateways drop what is silent for 350 seconds"
    assert "(ENABLE=broken)" in requested["dsn"]


@pytest.mark.parametrize("strategy", ["redo_log_catalog", "online_catalog", "hybrid"])
def test_the_mining_that_oracle_has_taken_away_is_not_used(dedicated_server: Oracle, strategy: str) -> None:
    text = start_statement(settings(dedicated_server, log__mining__strategy=strategy))
    assert "START_LOGMNR(" in text
    assert "CONTINUOUS_MINE" not in text


def test_a_lost_connection_ends_the_run_as_one_to_be_tried_again(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(dedicated_server)
    connector.capture()
    dedicated_server.sql("INSERT INTO T VALUES (2, 2)")
    port = connector.secrets["database.port"]
    connector.secrets["database.port"] = 1
    with pytest.raises(SourceUnavailable) as caught:
        connector.capture()
    assert isinstance(caught.value, TransientError)
    assert "a retry resumes where this run stopped" in str(caught.value.remedy)
    connector.secrets["database.port"] = port
    assert [r["value"]["op"] for r in of_table(capture_records(connector), "T")] == ["c"]


# the way of things


def test_logs_that_switch_meanwhile_lose_and_repeat_nothing(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(dedicated_server, log_mining_restart_connection="true")
    connector.capture()
    sessions = 0
    for i in range(2, 6):
        dedicated_server.sql(f"INSERT INTO T VALUES ({i}, {i})")
        dedicated_server.switch_log()
        found = connector.capture()
        assert found.events == 1
        sessions += int(str(found.metrics["streaming"]["NumberOfMiningSessions"]))
    assert sessions >= 4
    assert [row["ID"] for row in connector.rows("APP.T")] == [1, 2, 3, 4, 5]


def test_a_restart_repeats_nothing_that_is_captured_though_it_reads_it_again(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(dedicated_server, log_mining_buffer_carry_max_bytes=0)
    connector.capture()
    with dedicated_server.connect() as connection:
        connection.cursor().execute("INSERT INTO T VALUES (2, 2)")
        dedicated_server.sql("INSERT INTO T VALUES (3, 3)")
        assert connector.capture().events == 1
        again = connector.capture()
        assert again.events == 0
        assert int(str(again.metrics["streaming"]["TotalProcessedRows"])) > 0, "the open transaction keeps the place"
        connection.commit()
    assert [r["key"]["ID"] for r in of_table(capture_records(connector), "T")] == [2]


# after the start


def test_after_the_start_there_is_a_topic_for_each_table_with_its_rows(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    table(dedicated_server, "U")
    connector = connector_factory(dedicated_server, topic_prefix="inventory-connector-oracle")
    found = capture_records(connector)
    assert {r["topic"] for r in found} == {
        "inventory-connector-oracle", "inventory-connector-oracle.APP.T", "inventory-connector-oracle.APP.U",
    }  # fmt: skip
    for name in ("T", "U"):
        (read,) = of_table(found, name)
        assert (read["value"]["op"], read["value"]["before"], read["value"]["after"]) == ("r", None, {"ID": 1, "V": 1})


def test_the_password_is_in_no_output_and_no_file(
    dedicated_server: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(dedicated_server)
    connector.secrets["database.password"] = "Wr0ng-Secret"
    with caplog.at_level(logging.DEBUG), pytest.raises(CdcError) as caught:
        connector.capture()
    assert "Wr0ng-Secret" not in str(caught.value) + caplog.text
    connector.secrets["database.password"] = dedicated_server.password
    with caplog.at_level(logging.DEBUG), open_source(connector.definition(), connector.secrets):
        result = connector.capture()
    quoted = re.compile(rf"password\W+{re.escape(dedicated_server.password)}\b")
    assert not quoted.search(caplog.text + str(result))
    for file in connector.folder.rglob("*"):
        assert not file.is_file() or not quoted.search(file.read_bytes().decode("latin-1"))
