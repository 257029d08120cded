"""Events that cannot be read, on a real server: the properties decide whether their table waits for a person or is read again by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.snapshot.snapshotter import Snapshotter
from tests.sources.suite.common import RunKilled
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot_as_advised
from tests.support.sources.mysql.row_metadata import row_metadata
from tests.support.sources.mysql.workload import source_rows
from tests.support.workloads.small_tables import operations

PROCESSING = "event.processing.failure.handling.mode"
CONVERTING = "event.converting.failure.handling.mode"
INCONSISTENT = "inconsistent.schema.handling.mode"
HALF = "x'61eda080'"
"""Half a character, which the server takes and nothing behind it could read."""


def started(db: Any, folder: Path) -> Connector:
    db.sql("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9), w VARCHAR(9))", "CREATE TABLE b (id INT PRIMARY KEY)")
    db.sql("INSERT INTO a VALUES (1, 'one', 'x'), (2, 'two', 'y')", "INSERT INTO b VALUES (1)")
    connector = mysql_connector(db.server, folder, database_include_list=db.name)
    connector.capture()
    return connector


def run_in_session(db: Any, setting: str, *statements: str) -> None:
    """Run statements in a session with a setting; each is a transaction."""
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION {setting}")
        for statement in statements:
            cursor.execute(statement)


def assert_equal(connector: Connector, db: Any, *tables: str) -> None:
    for table in tables:
        assert connector.rows(f"{db.name}.{table}") == source_rows(db.server, db.name, table), table


def offset_of(connector: Connector) -> Offset:
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    return offset


@pytest.mark.parametrize(
    ("name", "mode"),
    [(PROCESSING, "warn"), (PROCESSING, "ignore"), ("event.deserialization.failure.handling.mode", "skip")],
)
def test_a_row_without_all_columns_has_its_table_read_again(
    mariadb: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, mode: str
) -> None:
    """Further events of the table are part of the same read, and the other tables are captured as usual."""
    with mariadb.database() as db:
        connector = started(db, tmp_path)
        db.sql("INSERT INTO a VALUES (3, 'three', 'z')")
        parts = "binlog_row_image = 'MINIMAL'"
        run_in_session(db, parts, "UPDATE a SET v = 'part' WHERE id = 1", "INSERT INTO b VALUES (2)")
        run_in_session(db, parts, "UPDATE a SET v = 'part' WHERE id = 2", "DELETE FROM a WHERE id = 3")
        db.sql("INSERT INTO b VALUES (3)")
        caplog.clear()
        found = operations(connector, connector.capture({name: mode}))
        assert found == {"a": {"t": 1, "r": 2}, "b": {"c": 2}}
        assert_equal(connector, db, "a", "b")
        (event,) = offset_of(connector).set_aside[f"{db.name}.a"]
        assert (event.error, "binlog_row_image" in event.text) == ("PrerequisiteError", True)
        warned = [r for r in caplog.records if r.levelname == "WARNING" and "is set aside" in r.getMessage()]
        assert len(warned) == (mode == "warn")
        db.sql("UPDATE a SET v = 'later' WHERE id = 2")
        assert operations(connector, connector.capture({name: mode})) == {"a": {"u": 1}}
        assert_equal(connector, db, "a", "b")


def test_a_value_that_cannot_be_converted_has_its_table_read_again_unless_the_table_still_has_it(
    mariadb: Any, tmp_path: Path
) -> None:
    """No value becomes null, and a table is not read in a loop."""
    with mariadb.database() as db:
        connector = started(db, tmp_path)
        db.sql(
            f"INSERT INTO a VALUES (3, {HALF}, 'z')",
            "UPDATE a SET v = 'whole' WHERE id = 3",
            "INSERT INTO b VALUES (2)",
        )
        connector.capture({CONVERTING: "warn"})
        assert_equal(connector, db, "a", "b")
        db.sql(f"INSERT INTO a VALUES (4, {HALF}, 'z')", "INSERT INTO b VALUES (3)")
        for row in (4, 5):
            with pytest.raises(UnreadableValue, match=rf"1 table is stopped.*{db.name}\.a: UnreadableValue") as caught:
                connector.capture({CONVERTING: "warn"})
            assert_equal(connector, db, "b")
            db.sql(f"INSERT INTO b VALUES ({row})")
        assert len(offset_of(connector).set_aside[f"{db.name}.a"]) == 2
        db.sql("DELETE FROM a WHERE id = 4")
        snapshot_as_advised(connector, str(caught.value))
        connector.capture({CONVERTING: "warn"})
        assert_equal(connector, db, "a", "b")


def test_rows_that_match_no_known_schema_have_their_table_read_again(mariadb: Any, tmp_path: Path) -> None:
    """Two columns of one type change places, and nothing in the log shows it."""
    silent = ("SET sql_log_bin = 0", "ALTER TABLE a MODIFY w VARCHAR(9) AFTER id", "SET sql_log_bin = 1")
    with mariadb.database() as db, row_metadata(mariadb, "MINIMAL"):
        connector = started(db, tmp_path)
        db.sql(*silent, "INSERT INTO a VALUES (3, 'z', 'three')", "INSERT INTO b VALUES (2)")
        with pytest.raises(UnreadableValue, match="SchemaConflict"):
            connector.capture({PROCESSING: "warn", INCONSISTENT: "fail"})
    with mariadb.database() as db, row_metadata(mariadb, "MINIMAL"):
        connector = started(db, tmp_path / "warn")
        db.sql(*silent, "INSERT INTO a VALUES (3, 'z', 'three')", "INSERT INTO b VALUES (2)")
        connector.capture({INCONSISTENT: "warn"})
        assert_equal(connector, db, "a", "b")
        (event,) = offset_of(connector).set_aside[f"{db.name}.a"]
        assert event.error == "SchemaConflict"


def test_a_run_that_dies_before_the_read_leaves_it_to_the_next_one(
    mariadb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = "binlog_row_image = 'MINIMAL'"
    with mariadb.database() as db:
        connector = started(db, tmp_path)
        run_in_session(db, parts, "UPDATE a SET v = 'part' WHERE id = 1", "INSERT INTO b VALUES (2)")
        with monkeypatch.context() as patch:
            patch.setattr(Snapshotter, "run", lambda *_, **__: (_ for _ in ()).throw(RunKilled))
            with pytest.raises(RunKilled):
                connector.capture({PROCESSING: "warn"})
        assert offset_of(connector).snapshot.repaired_tables == {f"{db.name}.a"}
        run_in_session(db, parts, "UPDATE a SET v = 'again' WHERE id = 1", "INSERT INTO b VALUES (3)")
        connector.capture({PROCESSING: "warn"})
        assert_equal(connector, db, "a", "b")
        assert connector.replay.operations["t"] == len(offset_of(connector).set_aside[f"{db.name}.a"]) == 1
