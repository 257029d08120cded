"""Metrics among Airflow's own: a StatsD server gets them by UDP, a collector of OpenTelemetry by HTTP, both in this process."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SourceUnavailable
from airflow_provider_cdc.operators.base.apply_metrics import measure_report
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.connectors.connector_handle import access_of, find_connector
from airflow_provider_cdc.sources.memory.source import MemorySource
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop
from tests.support.airflow.airflow_versions import AirflowException, begin_metrics, end_metrics, forget_metrics_at_exit

TOPIC = "shop.inventory.orders"


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "stats")
    yield shop_connector
    shop_connector.store.close()


class StatsD:
    """A server that keeps what it is sent."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.2)

    def received(self) -> dict[str, str]:
        """Name with tags → value and type."""
        found: dict[str, str] = {}
        try:
            while True:
                name, _, value = self.socket.recv(65536).decode().rpartition(":")
                found[name] = value
        except TimeoutError:
            return found


@pytest.fixture
def nothing_left() -> Iterator[None]:
    yield
    end_metrics()


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> Iterator[StatsD]:
    server = StatsD()
    for name, value in {
        "ON": "True",
        "HOST": "127.0.0.1",
        "PORT": str(server.socket.getsockname()[1]),
        "INFLUXDB_ENABLED": "True",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__STATSD_{name}", value)
    begin_metrics()
    yield server
    server.socket.close()


def capture(shop_connector: ShopConnector, **more: Any) -> None:
    CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop", **more).execute(context())


def test_statsd_gets_documented_names_with_connector_and_topic(shop_connector: ShopConnector, statsd: StatsD) -> None:
    shop_connector.order(1)
    capture(shop_connector)
    first = statsd.received()
    assert first["airflow.cdc.snapshot.TotalTableCount,connector=shop"] == "1.0|g"
    assert first[f"airflow.cdc.snapshot.RowsScanned,connector=shop,topic={TOPIC}"] == "1|c"
    assert first["airflow.cdc.run.LastRunFailed,connector=shop"] == "0|g"
    shop_connector.order(2)
    shop_connector.order(3)
    capture(shop_connector)
    second = statsd.received()
    assert second["airflow.cdc.streaming.TotalNumberOfCreateEventsSeen,connector=shop"] == "2|c"
    assert second["airflow.cdc.run.TotalNumberOfRuns,connector=shop"] == "1|c"
    milliseconds, kind = second[f"airflow.cdc.topic.CaptureFreshnessInSeconds,connector=shop,topic={TOPIC}"].split("|")
    assert kind == "ms"
    assert 0 <= float(milliseconds) < 60_000


def test_metrics_of_capture_and_apply_have_the_tags_of_the_connector(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, statsd: StatsD
) -> None:
    shop_connector = make_shop(monkeypatch, tmp_path, "tags", custom_metric_tags="team=sales, env=prod")
    shop_connector.order(1)
    capture(shop_connector)
    access = access_of(find_connector(shop_connector.store, "shop"))
    assert access is not None
    measure_report(access, "delta", "/lake", None, own=True, failed=True, seconds=1)
    found = statsd.received()
    assert found["airflow.cdc.run.LastRunFailed,connector=shop,team=sales,env=prod"] == "0|g"
    assert f"airflow.cdc.snapshot.RowsScanned,connector=shop,team=sales,env=prod,topic={TOPIC}" in found
    (applied,) = (name for name in found if name.startswith("airflow.cdc.apply.LastRunFailed,connector=shop,"))
    assert {"team=sales", "env=prod", "target=delta"} <= {*applied.split(",")}
    series = shop_connector.store.metrics.load_series("shop")
    assert all({"team": "sales", "env": "prod"}.items() <= stored.tags.items() for stored in series)
    shop_connector.store.close()


def test_statsd_gets_those_of_a_run_that_fails(
    shop_connector: ShopConnector, statsd: StatsD, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(shop_connector)
    statsd.received()
    monkeypatch.setattr(MemorySource, "current_position", raise_gone)
    with pytest.raises(AirflowException, match="it is gone"):
        capture(shop_connector)
    found = statsd.received()
    assert found["airflow.cdc.run.LastRunFailed,connector=shop"] == "1|g"
    assert found["airflow.cdc.run.TotalNumberOfFailedRuns,connector=shop"] == "1|c"


def raise_gone(source: MemorySource) -> Any:
    raise SourceUnavailable("it is gone")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> Iterator[list[bytes]]:
    """Start a collector of OpenTelemetry; yield the requests that it receives."""
    received: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {"ON": "True", "HOST": "127.0.0.1", "PORT": str(server.server_port)}.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__OTEL_{name}", value)
    begin_metrics()
    yield received
    from opentelemetry import metrics

    provider: Any = metrics.get_meter_provider()
    provider.shutdown()  # otherwise the end of the process waits for a collector that is gone
    forget_metrics_at_exit()
    server.shutdown()
    server.server_close()


def test_a_collector_of_opentelemetry_gets_them_with_their_tags(
    shop_connector: ShopConnector, collector: list[bytes]
) -> None:
    """Its client writes names in lower case."""
    import gzip

    from opentelemetry import metrics
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    capture(shop_connector)
    shop_connector.order(1)
    capture(shop_connector)
    provider: Any = metrics.get_meter_provider()
    provider.force_flush()
    found: dict[str, dict[str, str]] = {}
    for body in collector:
        plain = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
        for resource in ExportMetricsServiceRequest.FromString(plain).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = getattr(metric, str(metric.WhichOneof("data"))).data_points
                    found[metric.name] = {a.key: a.value.string_value for a in points[0].attributes}
    assert found["airflow.cdc.streaming.millisecondsbehindsource"] == {"connector": "shop"}
    assert found["airflow.cdc.topic.totalnumberofeventscaptured"] == {"connector": "shop", "topic": TOPIC}
    assert found["airflow.cdc.topic.capturefreshnessinseconds"] == {"connector": "shop", "topic": TOPIC}
