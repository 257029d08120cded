"""Open transactions that are carried over from run to run, on a server: what is mined, what becomes of them, and what the offset says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.model.connector_offset import CarriedFile, Offset
from airflow_provider_cdc.core.writing.carry_over_store import StoredCarryOver
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.log_consistency import consistent
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector
from tests.support.sources.oracle.oracle_server import run

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
LARGE = "x" * 3000


@pytest.fixture
def db(schema: Oracle, redo_at_once: None) -> Oracle:
    for name in ("T", "U"):
        schema.sql(f"CREATE TABLE {name} (ID NUMBER(9) PRIMARY KEY, V VARCHAR2(4000))", LOGGED.format(name))
    return schema


@pytest.fixture
def connector_factory(db: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector whose snapshot is done."""

    def make(**properties: Any) -> Connector:
        connector = oracle_connector(db, tmp_path, **{"schema_include_list": "APP", **properties})
        connector.capture()
        return connector

    return make


def _offset(connector: Connector) -> Offset:
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    return offset


def _carried_file(connector: Connector) -> CarriedFile:
    carried = _offset(connector).carried
    assert carried is not None
    return carried


def _files(connector: Connector) -> list[Path]:
    folder = connector.folder / "changelog" / connector.name / "carried"
    return sorted(folder.iterdir()) if folder.exists() else []


def _count_mined_rows(connector: Connector, **options: Any) -> int:
    """Run a capture, and return the number of rows that it has mined."""
    return int(connector.capture(options).metrics["streaming"]["TotalProcessedRows"])


def _count_log_lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def _ids(found: list[Any]) -> list[int]:
    return [r["value"]["after"]["ID"] for r in found if r["topic"] == "test.APP.T"]


def test_a_transaction_that_is_open_over_thirty_runs_is_mined_once(
    db: Oracle, connector_factory: Callable[..., Connector], tmp_path: Path
) -> None:
    """``dev/bench oracle`` measures the same with a million rows."""
    connector = connector_factory()
    (tmp_path / "whole").mkdir()
    whole = oracle_connector(db, tmp_path / "whole", schema_include_list="APP")
    whole.capture()
    mined = events = 0
    with closing(db.connect()) as owner, closing(db.connect()) as other:
        for number in range(30):
            run(owner, f"INSERT INTO T VALUES ({number}, 'long')")
            run(other, *(f"INSERT INTO U VALUES ({number * 100 + i}, 'short')" for i in range(100)), "COMMIT")
            result = connector.capture()
            counted = result.metrics["streaming"]
            mined, events = mined + counted["TotalProcessedRows"], events + result.events
            assert counted["CarriedChangesCount"] == number + 1
            assert (
                0
                < counted["CarriedChangesInBytes"]
                == sum(path.stat().st_size for path in _files(connector) if path.suffix == ".rows")
            )
            assert counted["CarriedFilesCount"] <= 6
        run(owner, "COMMIT")
    mined += connector.capture().metrics["streaming"]["TotalProcessedRows"]
    there = _count_mined_rows(whole)
    assert there > 3000
    assert mined <= 1.2 * there
    assert events == 3000
    assert connector.rows("APP.T") == whole.rows("APP.T")
    assert len(connector.rows("APP.T")) == 30
    assert _files(connector) == []
    consistent(connector)


def test_the_offset_has_a_name_and_a_size_and_no_more(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    before = len(str(_offset(connector).to_document()))
    with closing(db.connect()) as owner:
        run(owner, *(f"INSERT INTO T VALUES ({i}, '{LARGE}')" for i in range(50)))
        connector.capture()
        assert len(str(_offset(connector).to_document())) < before + 150
        names = {path.name for path in _files(connector)}
        assert _carried_file(connector).name in names
        assert len(names) == 2
        run(owner, "ROLLBACK")
    connector.capture()
    assert _offset(connector).carried is None
    assert _files(connector) == []


@pytest.mark.parametrize(
    "damage", ["all gone", "rows gone", "state gone", "rows damaged", "properties", "put by another release"]
)
def test_what_cannot_be_used_is_mined_again_and_reported(
    db: Oracle,
    connector_factory: Callable[..., Connector],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, *(f"INSERT INTO T VALUES ({i}, '{LARGE}')" for i in range(20)))
        connector.capture()
        run(owner, "DELETE FROM T WHERE ID = 7", "COMMIT")
    rows, state = sorted(_files(connector), key=lambda path: path.suffix)
    assert (rows.suffix, state.suffix) == (".rows", ".state")
    match damage:
        case "rows damaged":
            rows.write_bytes(rows.read_bytes()[:-40] + b"x" * 40)
        case "properties":
            connector.properties["batch.max.rows"] = 77
        case "put by another release":
            monkeypatch.setattr("airflow_provider_cdc.core.writing.carry_over_store.__version__", "0.0.9")
        case _:
            for path in (rows, state):
                if damage.split()[0] in ("all", path.suffix[1:]):
                    path.unlink()
    result = connector.capture()
    assert _count_log_lines(caplog, "transactions cannot be used") == 1
    assert _count_log_lines(caplog, f"mined again from SCN {_scn_of(caplog)}") == 1
    assert result.metrics["streaming"]["CarriedLostCount"] == 1
    assert sorted(row["ID"] for row in connector.rows("APP.T")) == [i for i in range(20) if i != 7]
    assert result.events == 21
    assert _files(connector) == []
    consistent(connector)


def _scn_of(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = [r for r in caplog.records if "transactions cannot be used" in r.getMessage()]
    return str(record.args[1])  # type: ignore[index]


def test_a_file_that_is_damaged_shows_within_a_large_transaction_which_is_begun_again(
    db: Oracle,
    connector_factory: Callable[..., Connector],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its first blocks are written by then; none of its events is there twice."""
    from airflow_provider_cdc.sources.oracle.transactions.buffer import transaction_buffer
    from airflow_provider_cdc.sources.oracle.transactions.carry_over import row_file

    monkeypatch.setattr(transaction_buffer, "BLOCK_ROWS", 8)
    monkeypatch.setattr(row_file, "PIECE_ROWS", 8)
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, *(f"INSERT INTO T VALUES ({i}, '{LARGE}')" for i in range(64)))
        connector.capture()
        rows = next(path for path in _files(connector) if path.suffix == ".rows")
        read = StoredCarryOver.read_part

        def read_spoiled(self: StoredCarryOver, name: str, start: int, size: int) -> bytes:
            """Only when the last piece is read for the third time: the transaction's blocks are on their way."""
            data = read(self, name, start, size)
            if start + size == rows.stat().st_size:
                seen.append(start)
            return data[:-1] + b"\x01" if len(seen) == 2 and start + size == rows.stat().st_size else data

        seen: list[int] = []
        monkeypatch.setattr(StoredCarryOver, "read_part", read_spoiled)
        run(owner, "COMMIT")
    connector.capture()
    assert len(seen) == 2
    assert _count_log_lines(caplog, "damaged at byte") == 1
    assert _count_log_lines(caplog, "rolled back") == 0
    assert sorted(row["ID"] for row in connector.rows("APP.T")) == list(range(64))
    consistent(connector)


def test_an_offset_that_is_set_back_mines_from_its_position(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """With what was carried or without: rows of open transactions come when these commit, and others are repeated."""
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1, 'open')")
        connector.capture()
        first, version = _offset(connector), connector.store.load_offset("test").version
        db.sql("INSERT INTO U VALUES (1, 'x')")
        connector.capture()
        assert _carried_file(connector) != first.carried
        store = connector.store
        history = store.offset_history("test", version=version)
        with store.acquire_lease("test", "somebody", wait_s=10) as lease:
            stored = store.load_offset("test")
            assert stored.offset is not None
            store.replace_offset(lease, stored, stored.offset.restore_position(history[0].offset), "back")
        assert _offset(connector).carried is None
        found = capture_records(connector)
        assert [r["topic"] for r in found if r["topic"] != "test"] == ["test.APP.U"], "captured once more"
        # as someone does who writes the whole offset, with what it carried then
        with store.acquire_lease("test", "somebody", wait_s=10) as lease:
            stored = store.load_offset("test")
            assert stored.offset is not None
            store.replace_offset(
                lease, stored, stored.offset.restore_position(first).with_carried_file(_carried_file(connector)), "back"
            )
        assert [r["topic"] for r in capture_records(connector) if r["topic"] != "test"] == ["test.APP.U"]
        run(owner, "COMMIT")
    assert _ids(capture_records(connector)) == [1]
    assert _files(connector) == []


def test_a_table_that_is_added_has_the_rows_of_transactions_that_were_open_before(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows were not buffered when they were mined first."""
    connector = connector_factory(table_include_list=r"APP\.T")
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1, 'open')", "INSERT INTO U VALUES (1, 'open')")
        connector.capture()
        assert _carried_file(connector)
        connector.properties["table.include.list"] = r"APP\.T,APP\.U"
        connector.capture()
        run(owner, "COMMIT")
    connector.capture()
    # by the stream up to the position at which the table was read, and by the one from there on
    assert _count_log_lines(caplog, "stored under other conditions (properties, tables that are left out)") == 1
    assert _count_log_lines(caplog, "stored under other conditions (tables that are left out)") == 1
    assert (len(connector.rows("APP.T")), len(connector.rows("APP.U"))) == (1, 1)


def test_a_table_that_is_added_has_the_rows_of_transactions_that_changed_no_other(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """They keep no position, but that of the added table's snapshot does."""
    connector = connector_factory(table_include_list=r"APP\.T")
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO U VALUES (1, 'open')")
        db.sql("INSERT INTO T VALUES (1, 'before')")
        connector.capture()
        connector.properties["table.include.list"] = r"APP\.T,APP\.U"
        connector.capture()
        db.sql("INSERT INTO T VALUES (2, 'after')")
        connector.capture()
        run(owner, "COMMIT")
    connector.capture()
    assert [row["ID"] for row in connector.rows("APP.U")] == [1]


def test_rows_with_hidden_columns_are_carried_over_only_if_that_is_wanted(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    """The redo SQL has all columns."""
    connector = connector_factory(column_exclude_list=r"APP\.T\.V")
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1, 'secret')")
        with caplog.at_level(logging.WARNING):
            connector.capture()
        assert _files(connector) == []
        assert _count_log_lines(caplog, "would expose hidden columns") == 1
        connector.properties["log.mining.buffer.carry.max.bytes"] = 1 << 20
        connector.capture()
        assert len(_files(connector)) == 2
        run(owner, "COMMIT")
    assert _ids(capture_records(connector)) == [1]


def test_a_run_that_goes_on_carries_over_at_its_end(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    with closing(db.connect()) as owner:
        run(owner, *(f"INSERT INTO T VALUES ({i}, 'open')" for i in range(300)))
        connector.capture(run_for_s=3)
        assert _carried_file(connector)
        run(owner, "COMMIT")
    result = connector.capture()
    assert result.events == 300
    assert result.metrics["streaming"]["TotalProcessedRows"] < 100


def test_a_transaction_whose_redo_is_read_without_its_beginning_keeps_its_undo_rows(tmp_path: Path) -> None:
    """LogMiner does not know the whole id of a transaction that began before the logs it is given."""
    with Oracle() as server:
        server.configure(partial_xids=True)
        server.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED.format("T"))
        connector = oracle_connector(server, tmp_path, schema_include_list="APP")
        connector.capture()
        with closing(server.connect()) as owner:
            run(owner, "INSERT INTO T VALUES (1)", "SAVEPOINT S", "INSERT INTO T VALUES (2)")
            connector.capture()
            server.switch_log()
            run(owner, "INSERT INTO T VALUES (3)", "ROLLBACK TO S")
            connector.capture()
            run(owner, "INSERT INTO T VALUES (4)", "COMMIT")
        assert _ids(capture_records(connector)) == [1, 4]


def test_spilled_rows_are_carried_over_too(
    db: Oracle, connector_factory: Callable[..., Connector], tmp_path: Path
) -> None:
    connector = connector_factory(log_mining_buffer_memory_max_bytes=50_000)
    with closing(db.connect()) as owner:
        for number in range(3):
            run(owner, *(f"INSERT INTO T VALUES ({number * 50 + i}, '{LARGE}')" for i in range(50)))
            counted = connector.capture().metrics["streaming"]
            assert counted["SpilledChangesCount"] > 0
            assert counted["CarriedChangesCount"] == (number + 1) * 50
            assert counted["BufferedChangesInBytes"] <= 50_000
        run(owner, "COMMIT")
    assert len(_ids(capture_records(connector))) == 150
