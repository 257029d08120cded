"""Connectors in the states that people meet, as rows of the state tables and reports beside a change log: no run makes them.

They are stand-ins for real runs. Their texts, numbers and rows are those that real runs leave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.model.connector_offset import Offset, PendingTable, SnapshotState
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration, RunFailure, TaskRun
from airflow_provider_cdc.state.models import BatchRow, ControlRow, LeaseRow
from airflow_provider_cdc.state.state_store import StateStore

TABLES = ("inventory.customers", "inventory.orders", "inventory.products")
BATCHES = 48
_GTIDS = "0-1-48211"
SOURCE_AWAY = (
    "SourceUnavailable: The server db.example.com:3306 cannot be reached: Connection refused.\n  Where:  connection inventory_mariadb\n"
    "  Safe:   Nothing was read; the offset is untouched.\n  Repair: start the server, or correct the connection; the next run continues"
)
POSITION_LOST = (
    "PositionLost: The server no longer has the log at the position: it keeps binlog.000440 to binlog.000452.\n  Where:  binlog.000431:90412\n"
    "  Safe:   Everything up to the position is captured; the offset is untouched.\n  Repair: airflow cdc gap position-gone"
)
STORAGE_FULL = (
    "StorageFull: No space is left where the change log is written (No space left on device).\n  Where:  /srv/cdc/storage-full/0000000048\n"
    "  Safe:   The offset was not moved: the unwritten events will be captured again.\n  Repair: free space, or `airflow cdc maintain storage-full --only retention --now`"
)
SCHEMA_REFUSED = (
    "SchemaConflict: The statement changes rows without row events, and schema.change.rewrite.mode is fail: ALTER TABLE orders MODIFY price INT.\n"
    "  Where:  inventory.orders, binlog.000431:90412\n  Safe:   Everything before the statement is captured.\n"
    "  Repair: set schema.change.rewrite.mode to snapshot, and run the capture again"
)
TARGET_AWAY = (
    "TargetUnavailable: The bucket lake does not answer: Connect timeout on endpoint URL.\n  Where:  s3://lake\n"
    "  Safe:   The tables are unchanged; the change log keeps the changes.\n  Repair: check the address and the network of the worker; the next apply continues"
)
LEASE_HOLDER = "inventory_backfill.capture manual__2026-11-29 try 1 on worker-7"
STOPPED = "UnreadableValue: the value of column price in row id=812 cannot be read as DECIMAL(10,2). Repair: correct the row, then `airflow cdc snapshot quarantined inventory.orders --replace`"


class ConnectorStates:
    """Writes connectors of one kind each.

    :param folder: that their change logs are below
    """

    def __init__(self, store: StateStore, folder: Path, engine: sa.Engine) -> None:
        self._store, self._folder, self._engine = store, folder, engine
        self._now = datetime.now(UTC)

    def create_all(self) -> None:
        """Create one connector of each state."""
        for create in (
            self._new, self._healthy, self._behind, self._ended, self._source_away, self._position_lost, self._target_away, self._row_refused,
            self._storage_full, self._lease_held, self._quarantined, self._snapshot_stuck, self._schema_refused, self._log_end,
        ):  # fmt: skip
            create()

    # -- states -------------------------------------------------------------------------------------------------------

    def _new(self) -> None:
        pending = {table: PendingTable() for table in TABLES[1:]}
        self._connector("new", Offset(snapshot=SnapshotState(pending=pending)), moved_s=15)
        self._run("new", since_s=95)
        for seconds in range(90, 0, -10):
            self._measure("new", seconds, events=900 + 7 * seconds, lag_ms=None, gauges={"snapshot.TotalTableCount": 3})

    def _healthy(self) -> None:
        self._at_work("healthy")
        self._target("healthy", BATCHES)
        self._target(
            "healthy",
            BATCHES,
            kind="database",
            location="postgresql://dwh.example.com:5432/sales/cdc_applied",
            conn_id="sales_dwh",
        )

    def _behind(self) -> None:
        self._at_work("behind", behind_s=1_500)
        self._target("behind", BATCHES)

    def _ended(self) -> None:
        self._at_work("ended-on-purpose", ended_s=240)
        self._target("ended-on-purpose", BATCHES, applied_s=240)

    def _source_away(self) -> None:
        self._failed("source-away", SOURCE_AWAY)

    def _position_lost(self) -> None:
        self._failed("position-gone", POSITION_LOST)

    def _target_away(self) -> None:
        self._at_work("target-away")
        self._target("target-away", BATCHES - 9, applied_s=1_500, run_failed=True)
        target = ("target-away", "delta", "s3://lake/target-away/{table}", "cdc_target-away.apply.-1")
        self._store.targets.record_begin(*target)
        run = TaskRun("cdc_target-away", "scheduled__2026-11-30T01:00:00+00:00", "apply", try_number=3)
        failure = RunFailure("TargetUnavailable", task_run=run)
        self._store.targets.record_end(*target, BATCHES - 9, TARGET_AWAY, failure)

    def _row_refused(self) -> None:
        self._at_work("row-refused")
        why = "value too long for type character varying(20): column note of row id=7"
        self._target(
            "row-refused", BATCHES, kind="database", location="postgresql://dwh.example.com:5432/sales/cdc_applied", conn_id="sales_dwh",
            failed={"inventory.orders": why}, lagging={"inventory.orders": BATCHES - 6}, run_failed=True,
        )  # fmt: skip

    def _storage_full(self) -> None:
        self._failed("storage-full", STORAGE_FULL)

    def _lease_held(self) -> None:
        self._at_work("lease-held", moved_s=10_900, behind_s=10_800)
        self._run("lease-held", since_s=11_000, owner=LEASE_HOLDER)
        self._target("lease-held", BATCHES, applied_s=10_700)

    def _quarantined(self) -> None:
        self._at_work("quarantined", stopped={"inventory.orders": STOPPED})
        self._target("quarantined", BATCHES)

    def _snapshot_stuck(self) -> None:
        pending = {table: PendingTable() for table in TABLES[1:]}
        self._connector("snapshot-stuck", self._offset(batch=1, snapshot=SnapshotState(pending=pending)), moved_s=7_800)
        self._run("snapshot-stuck", since_s=8_000)
        self._measure("snapshot-stuck", 7_800, events=51_000, lag_ms=None, gauges={"snapshot.TotalTableCount": 3})
        self._target("snapshot-stuck", 1, applied_s=7_700)

    def _schema_refused(self) -> None:
        self._failed("schema-refused", SCHEMA_REFUSED)

    def _log_end(self) -> None:
        self._at_work("log-end-near", behind_s=5_400, gone_s=1_500)
        self._target("log-end-near", BATCHES)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _failed(self, name: str, error: str) -> None:
        self._at_work(name, moved_s=420, until_s=420)
        self._target(name, BATCHES, applied_s=415)
        run = TaskRun(f"cdc_{name}", "scheduled__2026-11-30T01:00:00+00:00", "capture")
        self._store.record_run_end(name, error, None, RunFailure(error.partition(":")[0], task_run=run))
        self._update(ControlRow.__tablename__, name, run_ended_at=self._at(420), last_error_at=self._at(420))

    def _at_work(
        self, name: str, *, behind_s: float = 0.4, moved_s: float = 6, ended_s: float | None = None, until_s: int = 0,
        gone_s: float | None = None, **offset: Any,
    ) -> None:  # fmt: skip
        """Create a connector that has worked for an hour, and still does unless its run has ended."""
        self._connector(name, self._offset(batch=BATCHES, **offset), moved_s=max(moved_s, ended_s or 0))
        window = {
            "streaming.LogBytesBehindSource": 2_400_000.0 * behind_s if behind_s > 60 else 0.0,
            "streaming.LogGoneAtInSeconds": (self._now + timedelta(seconds=gone_s or 190_000)).timestamp(),
        }
        for minutes in range(75, -1, -5):
            seconds = max(minutes * 60, 5)
            if seconds < max(until_s, ended_s or 0):
                continue
            growing = behind_s * (1 - minutes / 75) if behind_s > 60 else behind_s * (1 + minutes % 7 / 5)
            self._measure(name, seconds, events=5 * (2_400 + 900 * (minutes % 9)), lag_ms=growing * 1000, gauges=window)
        if ended_s is None and not until_s:
            self._run(name, since_s=3_700)
        else:
            self._end_run(name, ended_s or until_s)
        self._batches(name)

    def _offset(self, **more: Any) -> Offset:
        position = {
            "file": "binlog.000431", "pos": 90_412, "gtids": _GTIDS, "created": 1_764_000_000, "server": "1",
            "last": {"gtid": _GTIDS, "file": "binlog.000431", "pos": 88_001, "time": 1_764_000_100},
        }  # fmt: skip
        return Offset(position=position, seq=BATCHES * 1000, **more)

    def _connector(self, name: str, offset: Offset, *, moved_s: float) -> None:
        connections = {
            "source": "inventory_mariadb",
            "state": "cdc_state_default",
            "dag": f"cdc_{name.replace('-', '_')}",
        }
        self._store.register_connector(
            ConnectorRegistration(
                name,
                "mariadb",
                f"{self._folder}/{name}",
                properties={"table.include.list": r"inventory\..*"},
                connections=connections,
            )
        )
        with self._store.acquire_lease(name, "states", wait_s=0) as lease:
            self._store.replace_offset(lease, self._store.load_offset(name), offset, "batch committed")
        metrics = {"streaming": {"CapturedTables": list(TABLES)}}
        self._store.record_run_end(name, None, metrics)
        self._end_run(name, moved_s)
        self._update("cdc_offset", name, updated_at=self._at(moved_s))

    def _run(self, name: str, *, since_s: float, owner: str = "") -> None:
        """Let a run be alive, whose lease is renewed for a day."""
        values = {
            "owner": owner or f"cdc_{name}.capture scheduled__2026-11-30 try 1 on worker-1",
            "acquired_at": self._at(since_s),
        }
        self._update(
            LeaseRow.__tablename__, name, **values, expires_ms=int((self._now + timedelta(days=1)).timestamp() * 1000)
        )

    def _end_run(self, name: str, ago_s: float) -> None:
        self._update(ControlRow.__tablename__, name, run_ended_at=self._at(ago_s))

    def _measure(
        self, name: str, ago_s: float, *, events: int, lag_ms: float | None, gauges: Mapping[str, float]
    ) -> None:
        lag = {} if lag_ms is None else {"streaming.MilliSecondsBehindSource": lag_ms}
        whole = MetricSeries({**gauges, **lag, "run.LastRunFailed": 0}, {"run.TotalProcessorTimeInSeconds": 2.0})
        fresh = [] if lag_ms is None else [lag_ms / 1000 + 0.4]
        topic = MetricSeries(
            {}, {"topic.TotalNumberOfEventsCaptured": events}, {"topic.CaptureFreshnessInSeconds": fresh}
        )
        self._store.metrics.add_measurements(
            MetricSamples(name, "capture", {}, self._at(ago_s), {"": whole, f"{name}.inventory.orders": topic}, False)
        )

    def _target(
        self, name: str, batch: int, *, kind: str = "delta", location: str = "", conn_id: str = "", applied_s: float = 4,
        failed: Mapping[str, str] | None = None, lagging: Mapping[str, int] | None = None, run_failed: bool = False,
    ) -> None:  # fmt: skip
        location = location or f"s3://lake/{name}/{{table}}"
        report: Any = {
            "connector": name, "target": kind, "location": location, "last_batch": batch, "tables": [], "failed": dict(failed or {}),
            "lagging": dict(lagging or {}), "table_states": {}, "seconds": 2.4, "at": self._at(applied_s).isoformat(), "owner": "apply",
        }  # fmt: skip
        if conn_id:
            report["database"] = {"conn_id": conn_id, "sink": {}}
        reports = ApplyReports(Storage(f"{self._folder}/{name}"), name)
        reports.write(report)
        file = Path(reports.report_path(kind, location))
        file.write_text(json.dumps(report))  # the store writes the time of now
        place = hashlib.sha256(location.encode()).hexdigest()[:8]
        for minutes in range(75, -1, -5):
            seconds = max(minutes * 60.0, applied_s)
            if minutes * 60 < applied_s and minutes:
                continue
            last = not minutes
            gauges = {
                "apply.LastBatch": float(batch),
                "apply.LastRunFailed": float(run_failed and last),
                "apply.FailedTables": float(len(failed or {}) if last else 0),
            }
            topic = MetricSeries(
                {}, {"apply.TotalNumberOfEventsApplied": 9_000}, {"apply.FreshnessInSeconds": [4.0 + minutes % 4, 9.0]}
            )
            series = {
                "": MetricSeries(
                    gauges, texts={"apply.TargetName": f"{kind} {conn_id}" if conn_id else f"{kind} at {location}"}
                ),
                f"{name}.inventory.orders": topic,
            }
            self._store.metrics.add_measurements(
                MetricSamples(
                    name, f"apply {kind} {place}", {"target": kind, "place": place}, self._at(seconds), series, True
                )
            )

    def _batches(self, name: str) -> None:
        rows = [
            {
                "connector": name, "batch": n, "manifest": f"{name}/{n:010d}/manifest.json", "first_seq": (n - 1) * 1000 + 1, "last_seq": n * 1000,
                "events": 1000, "bytes": 118_000, "topics": {f"{name}.inventory.orders": 1000}, "position": {"file": "binlog.000431", "pos": 90_412 - 100 * (BATCHES - n)},
                "epoch": 1, "created_at": self._at((BATCHES - n) * 75 + 6),
            }
            for n in range(1, BATCHES + 1)
        ]  # fmt: skip
        with self._engine.begin() as c:
            c.execute(sa.insert(BatchRow), rows)

    def _update(self, table: str, name: str, **values: Any) -> None:
        found = next(t for t in BatchRow.metadata.tables.values() if t.name == table)
        with self._engine.begin() as c:
            changed = c.execute(sa.update(found).where(found.c.connector == name).values(**values)).rowcount
        assert changed == 1, (table, name)

    def _at(self, ago_s: float) -> datetime:
        return self._now - timedelta(seconds=ago_s)
