"""A table of orders with as many rows as it takes, and captures that are measured in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.support.connectors import Connector
from tests.support.patience import LONGEST_S

_CAPTURE = """
import json, sys, time
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
name, kind, changelog, properties, secrets, state = json.load(sys.stdin)
with open_capture(ConnectorDefinition(name, kind, changelog, properties), state, secrets=secrets) as capture:
    events = capture.run().events
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kernels = [m for name, m in sys.modules.items() if name.startswith("airflow_provider_cdc.sources") and ".kernels." in name]
loaded = sorted(n for m in kernels for n, f in vars(m).items() if getattr(f, "signatures", None))
print(json.dumps({
    "events": events, "peak_mb": int(status["VmHWM"].split()[0]) / 1024, "pandas": "pandas" in sys.modules, "kernels": loaded,
    "cpu_s": time.process_time(),
}))
"""


def capture_apart(connector: Connector) -> dict[str, Any]:
    """Capture in a separate process: events, peak memory in MB, CPU seconds, the kernels it has loaded, and whether it has imported
    pandas."""
    given = [
        connector.name, connector.source, connector.changelog.storage.url, connector.properties, connector.secrets,
        connector.state_url,
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _CAPTURE],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def fill(database: Any, table: str, rows: int, first: int = 1) -> None:
    """Insert rows in one transaction."""
    database.sql(
        f"INSERT INTO {table} SELECT seq, MOD(seq, 10000), MOD(seq, 100), seq * 1.25, CONCAT('note number ', seq), "
        f"TIMESTAMP'2026-01-01 00:00:00' + INTERVAL seq SECOND, MOD(seq, 2), seq / 3 FROM seq_{first}_to_{first + rows - 1}"
    )


def create(database: Any, table: str) -> None:
    """The eight columns of an order."""
    database.sql(
        f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, customer INT, quantity SMALLINT, price DECIMAL(12,2), "
        "note VARCHAR(60), made_at DATETIME(6), paid TINYINT, weight DOUBLE)"
    )
