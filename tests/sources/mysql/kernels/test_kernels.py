"""The compiled kernels against the same functions in plain Python, and against bytes that make no sense."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import Writer

HERE = Path(__file__).parent
ROOT = HERE.parents[3]

_CAPTURE = """
import json, sys
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
for name, kind, changelog, properties, secrets, state in json.load(sys.stdin):
    with open_capture(ConnectorDefinition(name, kind, changelog, properties), state, secrets=secrets) as capture:
        print(capture.run().events)
"""


def _run(script: list[str], given: Any, timeout: float, *, folder: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *script], input=json.dumps(given), capture_output=True, text=True, timeout=timeout,
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)} | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _process_arguments(connector: Connector) -> list[Any]:
    return [
        connector.name, connector.source, connector.changelog.storage.url, connector.properties, connector.secrets,
        connector.state_url,
    ]  # fmt: skip


def events_of(connector: Connector) -> list[dict[str, Any]]:
    """All events of a change log but for when they were captured."""
    found = []
    for manifest in connector.changelog.read_manifests(connector.name):
        for file in manifest.files:
            with connector.changelog.open_file(connector.name, file) as f:
                for event in pq.read_table(f).to_pylist():
                    for block in (event, event["source"]) if event["op"] == "r" else (event,):
                        for name in ("ts_ms", "ts_us", "ts_ns"):
                            del block[name]
                    found.append(event)
    return sorted(found, key=lambda e: e["seq"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_plain_python_twin_writes_the_same_change_log(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    server = request.getfixturevalue(kind)
    source = "mysql" if kind == "mysql97" else kind
    with server.connect(autocommit=True) as connection:
        writer = Writer(connection, "twin", 5, ddl=0.02)
        writer.prepare()
        writer.write(5)
        made = [
            mysql_connector(server, tmp_path / name, source, database_include_list="twin", snapshot_max_threads=1)
            for name in ("compiled", "plain")
        ]
        compiled, plain = made
        compiled.capture()
        _run(["-c", _CAPTURE], [_process_arguments(plain)], 300, NUMBA_DISABLE_JIT="1")
        writer.write(40)
        compiled.capture()
        _run(["-c", _CAPTURE], [_process_arguments(plain)], 300, NUMBA_DISABLE_JIT="1")
        writer.run("DROP DATABASE twin")
    events = events_of(compiled)
    assert len(events) > 80
    assert events == events_of(plain)


ROWS = [23, 24, 25, 30, 31, 32, *range(166, 172)]
FRAMES = [2, 15, 16, 19, 33, 34, 160, 162, 165]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("damage", ["rows", "frames"])
def test_damaged_events_end_in_an_error_or_an_answer(
    mariadb_factory: Any, tmp_path: Path, damage: str, compressed: bool
) -> None:
    """Never a crash, never a read outside of an event, never for ever. Checksums, which would find them all, are off."""
    options = {"binlog_checksum": "NONE"} | (
        {"log_bin_compress": "ON", "log_bin_compress_min_len": "10"} if compressed else {}
    )
    with mariadb_factory(**options) as server, server.connect(autocommit=True) as connection:
        writer = Writer(connection, "damaged", 6, ddl=0.0)
        writer.prepare()
        writer.write(60)
        given = {
            "kind": "mariadb",
            "properties": {
                "topic.prefix": "p", "database.hostname": server.host, "database.port": server.port,
                "database.user": server.user, "database.password": server.password, "database.server.id": 4400,
                "database.include.list": "damaged",
            },
            "types": ROWS if damage == "rows" else FRAMES,
            "rounds": (60, 2000),  # at least and at most
            "seconds": 8,
        }  # fmt: skip
        cache = ROOT / ".dev" / "numba-bounds"
        out = _run(
            [str(HERE / "damaged.py")],
            given,
            200,
            NUMBA_BOUNDSCHECK="1",
            NUMBA_CACHE_DIR=str(cache),
            PYTHONHASHSEED="0",
        )
    outcomes = json.loads(out.splitlines()[-1])
    assert sum(outcomes.values()) >= 60
    assert outcomes.get("read", 0) > 0
    assert set(outcomes) - {"read"}, outcomes


_LENGTH = """
import numpy as np
from airflow_provider_cdc.sources.mysql import kernels as k
print(k.read_lenenc(np.array([252, 1, 2], np.uint8), 0)[0])
"""


def test_compiled_kernels_are_not_kept_when_a_helper_in_another_file_changes(tmp_path: Path) -> None:
    package = tmp_path / "airflow_provider_cdc"
    shutil.copytree(ROOT / "airflow_provider_cdc", package, ignore=shutil.ignore_patterns("__pycache__"))

    def length() -> int:
        return int(_run(["-c", _LENGTH], None, 120, folder=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache")))

    assert length() == 0x201
    helper = package / "sources" / "mysql" / "kernels" / "byte_integers.py"
    changed = helper.read_text().replace("np.int64(8 * i)", "np.int64(4 * i)")
    assert changed != helper.read_text()
    helper.write_text(changed)
    assert length() == 0x21
