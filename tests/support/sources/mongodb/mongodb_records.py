"""The records that Debezium's engine makes of :mod:`tests.support.sources.mongodb.mongodb_scenarios`.

``python -m tests.support.sources.mongodb.mongodb_records`` writes them again (needs Maven).

The engine runs on ``dev/server mongodb``, or where ``MONGODB_URI`` leads.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from dev.benchmarks.engines import debezium
from dev.bootstrap.report import Report
from dev.servers.mongodb import MongoDb
from tests.support.sources.mongodb import mongodb_connectors
from tests.support.sources.mongodb.mongodb_scenarios import DATABASE, SCENARIOS, TOPIC, Scenario

FILE = Path(__file__).parents[3] / "changelog" / "debezium" / "recorded" / "mongodb_scenarios.json"
LONG = 10_000
"""Characters of a text from which on it is shortened."""
Record = dict[str, Any]


def comparable(record: Record, sessions: dict[str, str]) -> Record:
    """A record without what another run of the same work has otherwise: times and places, and the ids of sessions, which are numbered instead.

    :param record: ``topic``, ``key`` and ``value``
    """
    value = record["value"]
    if value is None:
        return record
    value = {name: part for name, part in value.items() if name not in ("ts_ms", "ts_us", "ts_ns")}
    if value.get("source"):
        source = {name: part for name, part in value["source"].items() if name not in ("version", "ts_us", "ts_ns")}
        # the time of the change is that on the wall, and of what a snapshot reads that of reading
        source["ts_ms"] = source["wallTime"] is None or source["ts_ms"] == source["wallTime"]
        source |= {
            "wallTime": source["wallTime"] is not None,
            "ord": source["ord"] > 0,
            "collection": source["collection"],
        }
        value["source"] = source
    text = json.dumps({"key": record["key"], "value": _shorten_value(value)}, ensure_ascii=False)
    for session in re.findall(
        r'\{\\*"id\\*": \{\\*"\$binary\\*": \\*"[^"\\]*\\*",\\*"\$type\\*": \\*"04\\*"\},\\*"uid\\*": \{[^}]*\}\}', text
    ):
        text = text.replace(session, sessions.setdefault(session.replace("\\", ""), f"session {len(sessions) + 1}"))
    return {"topic": record["topic"], **json.loads(text)}


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONG:
        return f"{len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()}"
    if isinstance(value, dict):
        return {name: _shorten_value(part) for name, part in value.items()}
    return value


def _record_scenario(url: str, scenario: Scenario, client: Any, folder: Path) -> tuple[list[Record], dict[str, Any]]:
    """Records, and the schemas of each topic."""
    client.drop_database(DATABASE)
    database = client[DATABASE]
    scenario.before(database)
    properties = {
        "topic.prefix": TOPIC, "snapshot.mode": "initial", "database.include.list": DATABASE, **scenario.properties,
        "converter.schemas.enable": "true", "key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true",
    }  # fmt: skip
    engine = debezium.Debezium.mongodb(url, f"{DATABASE}\\\\..*", folder, **properties)
    lines = engine.records(idle_s=5)
    scenario.work(database)
    lines += engine.records(idle_s=6)
    records: list[Record] = []
    schemas: dict[str, Any] = {}
    for topic, key, value in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        parts = {"key": json.loads(key), "value": json.loads(value)}
        for name, part in parts.items():
            if part is not None:
                schemas.setdefault(topic, {})[name] = part["schema"]
        records.append({"topic": topic, **{name: part and part["payload"] for name, part in parts.items()}})
    return records, schemas


def main(names: list[str]) -> int:
    """Record some scenarios, or all of them."""
    document = json.loads(FILE.read_text()) if FILE.exists() else {}
    report = Report(1 + len(names))
    with report.step("Debezium") as step:
        debezium.ensure(step)
    with MongoDb() as server:
        import pymongo

        url = mongodb_connectors.real_deployment_uri() or server.url()
        with pymongo.MongoClient(url) as client:
            for name in names:
                with report.step(name) as step, tempfile.TemporaryDirectory() as folder:
                    records, schemas = _record_scenario(url, SCENARIOS[name], client, Path(folder))
                    sessions: dict[str, str] = {}
                    document[name] = {"records": [comparable(r, sessions) for r in records], "schemas": schemas}
                    FILE.write_text(json.dumps(document, ensure_ascii=False) + "\n")
                    step.done(f"{len(records)} records")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [*SCENARIOS]))
