"""Part of ``dev/bench page``: how long the API takes for the overview of many connectors with many tables each, and how many queries it asks.

The app is asked within this process, as someone who may see everything, with the state in SQLite: what is measured is the route, not Airflow's server around it. What Airflow
itself knows of DAGs is left out: two more queries, however many there are.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Report

BARS = [Bar("overview.p95_ms", 300, at_most=True), Bar("overview.queries", 10, at_most=True)]
REQUESTS = 30
TARGET = "apply delta 1"


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """The overview."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{folder}/state.db"
    os.environ["AIRFLOW_HOME"] = str(folder)
    os.environ["AIRFLOW_CONN_CDC_STATE_DEFAULT"] = f'{{"conn_type": "cdc_state", "password": "{url}"}}'
    connectors, tables = options.connectors or 200, options.tables or 1000
    report = Report(2)
    with report.step(f"{connectors:,} connectors with {tables:,} tables each") as step:
        for n in range(connectors):
            _fill(url, f"connector{n:03}", tables)
            step.progress(f"{n + 1:,} connectors")
    document: dict[str, Any] = {"connectors": connectors, "tables": tables}
    with report.step("requests") as step:
        step.progress("the overview")
        document["overview"] = found = _time_requests("/api/v1/connectors")
    print(
        f"overview: p50 {found['p50_ms']} ms, p95 {found['p95_ms']} ms, {found['cpu_p50_ms']} ms of a core, {found['queries']} queries, {found['kb']} kB"
    )
    return document, BARS


def _fill(url: str, name: str, tables: int) -> None:
    """A connector as it is after a hundred runs: an offset, batches, metrics of each topic and as a whole."""
    import sqlalchemy as sa

    from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
    from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
    from airflow_provider_cdc.state.metrics import series_of
    from airflow_provider_cdc.state.models import MetricHistoryRow
    from airflow_provider_cdc.state.state_store import StateStore

    store, now = StateStore(url), datetime.now(UTC)
    store.create_tables()
    store.register_connector(
        ConnectorRegistration(
            name,
            "mariadb",
            "/log",
            properties={"table.include.list": "shop.*"},
            connections={"source": "shop", "dag": name},
        )
    )
    topics = [f"{name}.shop.table{k:04}" for k in range(tables)]
    captured = {
        t: MetricSeries({}, {"topic.TotalNumberOfEventsCaptured": 10}, {"topic.CaptureFreshnessInSeconds": [0.8]})
        for t in topics
    }
    applied = {
        t: MetricSeries({}, {"apply.TotalNumberOfEventsApplied": 10}, {"apply.FreshnessInSeconds": [3.2]})
        for t in topics
    }
    for minutes in range(60, -1, -5):
        at, few = now - timedelta(minutes=minutes), topics[: tables if minutes in (0, 60) else 5]
        whole = MetricSeries({"streaming.MilliSecondsBehindSource": 900, "run.LastRunFailed": 0})
        store.metrics.add_measurements(
            MetricSamples(name, "capture", {}, at, {"": whole, **{t: captured[t] for t in few}}, True)
        )
        done = MetricSeries({"apply.LastBatch": 1, "apply.LastRunFailed": 0})
        store.metrics.add_measurements(
            MetricSamples(
                name, TARGET, {"target": "delta", "place": "1"}, at, {"": done, **{t: applied[t] for t in few}}, True
            )
        )
    ((found, _),) = [
        one for one in store.metrics.map_connector_totals(lambda *one: one, name) if one[0].producer == "capture"
    ]
    kept = {"gauges": found.gauges, "counters": found.counters, "histograms": {}}
    with store.database.open_transaction() as c:
        rows = [
            {"connector": name, "series": series_of(producer, ""), "number": -k, "metrics": kept, "at": now}
            for producer in ("capture", TARGET) for k in range(87)
        ]  # fmt: skip
        c.execute(sa.insert(MetricHistoryRow), rows)
    store.record_run_end(name, None, {"streaming": {"CapturedTables": topics}})
    store.close()


def _time_requests(path: str) -> dict[str, Any]:
    """Milliseconds of requests after a first one, those of a core (of a busy machine they alone count), and the queries of one."""
    import numpy as np
    import sqlalchemy as sa
    from airflow.api_fastapi import app as airflow_app
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from airflow_provider_cdc.plugins import authorization
    from airflow_provider_cdc.plugins.plugin_app import app

    airflow_app._AuthManagerState.instance = SimpleAuthManager()
    authorization.known_dags = lambda ids: {id_: authorization.KnownDag(id_) for id_ in ids}
    authorization.teams_of = lambda conn_ids: {}
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="bench", role="ADMIN")
    client, taken, cpu, seen = TestClient(app), [], [], []
    sa.event.listen(sa.Engine, "before_cursor_execute", lambda *a: seen.append(a[2]))
    for n in range(REQUESTS + 1):
        seen.clear()
        began, busy = time.perf_counter(), time.process_time()
        answer = client.get(path)
        if n:
            taken.append(1000 * (time.perf_counter() - began))
            cpu.append(1000 * (time.process_time() - busy))
        assert answer.status_code == 200, answer.text
    queries = [one for one in seen if not one.startswith("PRAGMA")]
    p50, p95 = (round(float(np.percentile(taken, part)), 1) for part in (50, 95))
    return {
        "p50_ms": p50,
        "p95_ms": p95,
        "cpu_p50_ms": round(float(np.percentile(cpu, 50)), 1),
        "queries": len(queries),
        "kb": round(len(answer.content) / 1000, 1),
    }
