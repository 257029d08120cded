"""A run that asks first: it leaves out everything heavy only where a whole run would have found nothing, and no one can tell the difference."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.capture.capture_run import CaptureRun
from airflow_provider_cdc.core.capture.pending_work_check import RunPrecheck
from airflow_provider_cdc.core.errors import ConnectorHalted, PositionLost
from airflow_provider_cdc.core.model.connector_offset import IncrementalState, Offset, PendingTable, TableScan
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.models import ConnectorRow, ControlRow, LeaseRow, OffsetRow
from airflow_provider_cdc.state.state_store import StateStore
from tests.support.connectors import Connector
from tests.support.workloads.small_tables import equal, insert

PASSING = {"updated_at", "run_ended_at", "acquired_at", "expires_ms", "epoch"}
_TOUCH = "INSERT INTO shop.a (id) VALUES (9)"


@pytest.fixture
def whole_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry for each whole run."""
    runs, execute = list[str](), CaptureRun.execute

    def count_and_execute(run: CaptureRun, run_for_s: float | None) -> None:
        runs.append(run.batcher.connector)
        execute(run, run_for_s)

    monkeypatch.setattr(CaptureRun, "execute", count_and_execute)
    return runs


@pytest.fixture
def idle_connector(db: MemoryDatabase, tmp_path: Path) -> Iterator[Connector]:
    """All is captured, and a run has found nothing more."""
    signals = tmp_path / "signals.txt"
    properties = {
        "memory.database": db.name,
        "signal.enabled.channels": "source,airflow,file",
        "signal.file": str(signals),
    }
    shop = Connector(tmp_path, "memory", properties)
    shop.capture()
    shop.capture()
    yield shop
    shop.store.close()


def test_a_run_that_finds_nothing_leaves_the_same_state_as_a_whole_one(
    idle_connector: Connector, whole_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _state(idle_connector)
    captured = idle_connector.capture()
    assert not whole_runs
    after_asking = _state(idle_connector)
    monkeypatch.setattr(RunPrecheck, "find_run_reason", lambda _: "as a test says")
    entire = idle_connector.capture()
    assert whole_runs == ["test"]
    assert before == after_asking == _state(idle_connector)
    assert [
        metrics["counters"]["run.TotalNumberOfRuns"]
        for _, metrics in idle_connector.store.metrics.load_run_history("test")
    ] == [
        1,
        2,
        3,
        4,
    ]
    assert _lasting_metrics(captured.metrics) == _lasting_metrics(entire.metrics)
    assert (captured.position, captured.seq, captured.events, captured.batches, captured.topics, captured.tables) == (
        entire.position, entire.seq, 0, [], {}, {},
    )  # fmt: skip


def test_each_run_has_a_lease_of_its_own_and_records_its_end(idle_connector: Connector, whole_runs: list[str]) -> None:
    before, epoch = idle_connector.store.find_connector("test"), _row(idle_connector, LeaseRow)["epoch"]
    idle_connector.capture()
    after = idle_connector.store.find_connector("test")
    assert not whole_runs
    assert before is not None
    assert after is not None
    assert before.run_ended_at is not None
    assert after.run_ended_at is not None
    assert after.run_ended_at > before.run_ended_at
    assert after.owner is None
    assert _row(idle_connector, LeaseRow)["epoch"] == epoch + 1


def _offset(shop: Connector, change: Callable[[Offset], Offset]) -> None:
    """Changes the committed offset, as a run that ended there would have left it."""
    stored = shop.store.load_offset("test")
    assert stored.offset is not None
    with shop.store.database.open_transaction() as c:
        c.execute(sa.update(OffsetRow).values(offset=change(stored.offset).to_document()))


def _update(shop: Connector, table: Any, **values: Any) -> None:
    with shop.store.database.open_transaction() as c:
        assert c.execute(sa.update(table).values(**values)).rowcount == 1


def _incremental(*, paused: bool) -> Callable[[Connector, MemoryDatabase], None]:
    def prepare(shop: Connector, db: MemoryDatabase) -> None:
        scans = IncrementalState(scans=[TableScan(table="shop.a", request=1)], paused=paused)
        _offset(shop, lambda offset: offset.with_incremental(scans))

    return prepare


def _read_later(shop: Connector, db: MemoryDatabase) -> None:
    at = shop.store.load_offset("test").offset
    assert at is not None
    assert at.position is not None
    position = at.position
    _offset(
        shop, lambda offset: offset.with_snapshot(offset.snapshot.model_copy(update={"read_at": {"shop.a": position}}))
    )


def _file_signal(shop: Connector, db: MemoryDatabase) -> None:
    line = {"id": "f", "type": "log", "data": {"message": "from a file"}}
    Path(shop.properties["signal.file"]).write_text(json.dumps(line) + "\n")


def _make_run_die(shop: Connector, db: MemoryDatabase) -> None:
    _update(shop, LeaseRow, owner="a run that died", expires_ms=1)


def _pending(shop: Connector, db: MemoryDatabase) -> None:
    pending = {"shop.a": PendingTable()}
    _offset(shop, lambda offset: offset.with_snapshot(offset.snapshot.model_copy(update={"pending": pending})))


def _purge_log(shop: Connector, db: MemoryDatabase) -> None:
    insert(db, "shop.a", 3)
    db.purge_log()


def _other_lists(shop: Connector, db: MemoryDatabase) -> None:
    _offset(shop, lambda offset: offset.with_tables_filter('{"lists": {"table.include.list": ["shop.a"]}}'))


Reason = tuple[Callable[[Connector, MemoryDatabase], object], dict[str, Any], str]
NEW = "no run has succeeded since the definition was recorded"
REASONS: dict[str, Reason] = {
    "log": (lambda shop, db: insert(db, "shop.a", 3), {}, "the log has advanced to entry"),
    "signal": (
        lambda shop, db: shop.store.send("test", SentSignal("x", "log", "{}")), {}, "signal x (log) is waiting",
    ),
    "signal in a file": (_file_signal, {}, "a signal has arrived"),
    "incremental snapshot": (_incremental(paused=False), {}, "an incremental snapshot continues with shop.a"),
    "paused incremental snapshot": (_incremental(paused=True), {}, "an incremental snapshot is paused"),
    "pending table": (_pending, {}, "1 table still needs a snapshot"),
    "table read later": (_read_later, {}, "a table was read at a later position"),
    "properties": (lambda shop, db: None, {"batch.max.rows": 7}, NEW),
    "lists": (_other_lists, {}, "the include and exclude lists were changed"),
    "heartbeat with a statement": (
        lambda shop, db: None, {"heartbeat.interval.ms": 1000, "heartbeat.action.query": _TOUCH}, "the statement of a heartbeat is due",
    ),
    "always": (lambda shop, db: None, {"snapshot.mode": "always"}, "snapshot.mode requires more than the log"),
    "initial_only": (lambda shop, db: None, {"snapshot.mode": "initial_only"}, "snapshot.mode requires more than the log"),
    "recovery": (lambda shop, db: None, {"snapshot.mode": "recovery"}, "snapshot.mode is recovery"),
    "last run died": (_make_run_die, {}, NEW),
    "last run failed": (lambda shop, db: shop.store.record_run_end("test", "it could not", None), {}, NEW),
    "definition newer than the last run": (
        lambda shop, db: _update(shop, ConnectorRow, updated_at=datetime.now(UTC) + timedelta(seconds=1)), {}, NEW,
    ),
    "no metrics": (
        lambda shop, db: _update(shop, ControlRow, metrics={}), {}, "the last run has not recorded the metrics of its schema history",
    ),
    "log purged": (_purge_log, {}, "the log no longer contains the position"),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_each_reason_has_a_whole_run_follow(
    idle_connector: Connector, db: MemoryDatabase, whole_runs: list[str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    prepare, properties, reason = REASONS[name]
    prepare(idle_connector, db)
    lost = pytest.raises(PositionLost) if name == "log purged" else contextlib.nullcontext()
    with caplog.at_level("INFO"), lost:
        idle_connector.capture(properties)
    assert whole_runs == ["test"]
    assert f"Capturing: {reason}" in caplog.text


@pytest.mark.parametrize("mode", ["always", "recovery"])
def test_a_mode_that_reads_is_a_whole_run_each_time(
    idle_connector: Connector, whole_runs: list[str], mode: str
) -> None:
    for _ in range(3):
        idle_connector.capture({"snapshot.mode": mode})
    assert len(whole_runs) == 3


def test_a_connector_that_is_halted_is_an_error_as_ever(idle_connector: Connector, whole_runs: list[str]) -> None:
    idle_connector.store.set_control("test", DesiredState.PAUSED, "somebody")
    with pytest.raises(ConnectorHalted):
        idle_connector.capture()
    assert not whole_runs


def test_a_batch_without_its_offset_is_adopted(
    idle_connector: Connector, db: MemoryDatabase, whole_runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run died after the manifest; its lease was given back, so only the change log knows."""
    insert(db, "shop.a", 3)

    def die_at_once(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StateStore, "commit_batch", die_at_once)
        with pytest.raises(KeyboardInterrupt):
            idle_connector.capture()
    stored = idle_connector.store.load_offset("test").offset
    assert stored is not None
    assert idle_connector.changelog.find_manifest("test", stored.batch + 1) is not None
    idle_connector.capture()
    equal(idle_connector, db)
    after = idle_connector.store.load_offset("test").offset
    assert after is not None
    assert after.batch == stored.batch + 1
    assert len(whole_runs) == 2


def test_after_an_adopted_batch_a_run_asks_first_again(
    idle_connector: Connector, db: MemoryDatabase, whole_runs: list[str]
) -> None:
    insert(db, "shop.a", 3)
    idle_connector.capture()
    del whole_runs[:]
    idle_connector.capture()
    assert not whole_runs


def _row(shop: Connector, table: Any) -> dict[str, Any]:
    with shop.store.database.engine.connect() as c:
        return dict(c.execute(sa.select(table.__table__)).one()._mapping)


def _state(shop: Connector) -> dict[str, list[dict[str, Any]]]:
    """Every row of the state tables, without what differs between any two runs, and without what adds them up."""
    found = {}
    with sqlite3.connect(shop.folder / "state.db") as c:
        c.row_factory = sqlite3.Row
        names = [row[0] for row in c.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        names = [name for name in names if not name.startswith("cdc_metric")]
        for name in names:
            rows = [
                {k: v for k, v in dict(row).items() if k not in PASSING} for row in c.execute(f'SELECT * FROM "{name}"')
            ]
            for row in rows:
                if row.get("metrics"):
                    row["metrics"] = _lasting_metrics(json.loads(row["metrics"]))
            found[name] = rows
    return found


def _lasting_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics without times."""
    return {
        c: {n: v for n, v in values.items() if not n.startswith(("MilliSecondsSince", "RecoveryStart"))}
        for c, values in metrics.items()
    }
