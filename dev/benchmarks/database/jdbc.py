"""The relational sink beside Debezium's JDBC sink connector: the same events into the same PostgreSQL and MariaDB, as upserts and deletes by key.

60 % of the events are inserts, 30 % updates and 10 % deletes, in this order: the connector's batches are full then. Ours reads them from a change log that is there
already; the connector gets records that are made in pauses of its clock, with no Kafka and no converter. It is measured with its defaults, and with larger
batches, its reduction buffer and the driver's own batches. (``dialect.postgres.unnest.insert.enabled`` is left out: with it, 3.5.0 cannot write a MicroTimestamp.) Each run has a separate database; at the end all must have the same rows.

``--transaction-rows`` measures instead how much memory ours needs for a transaction of so many rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from dev import paths
from dev.benchmarks.engines import debezium
from dev.benchmarks.engines.ours import environment
from dev.benchmarks.engines.runs import measure_run
from dev.benchmarks.load.lake_changes import Changes, Events, SourceTable, images
from dev.benchmarks.measure import figures, machine
from dev.benchmarks.measure.figures import Bar
from dev.bootstrap.report import Problem, Report
from dev.servers import MariaDb, Postgres

DATABASES = ("postgres", "mariadb")
BATCH_EVENTS, WARM_SHARE = 100_000, 10
"""Events of a batch of the change log, and how many times fewer warm both sides up, in a table of their own."""
FORMS = {"debezium": (500, {}), "tuned": (5000, {"batch.size": 5000, "use.reduction.buffer": True})}
"""Form of the connector → ``max.poll.records``, and properties."""
TUNED_URL = {"postgres": "?reWriteBatchedInserts=true", "mariadb": ""}
TRANSACTION_BAR_MB = 500
_COLUMNS = "id, name, amount, created, qty, score, note, flag"
_DIGESTS = {
    "postgres": f"SELECT count(*), sum(hashtextextended(ROW({_COLUMNS})::text, 0)::numeric)::text FROM bench_stream",
    "mariadb": f"SELECT COUNT(*), SUM(CONV(LEFT(MD5(JSON_ARRAY({_COLUMNS})), 15), 16, 10)) FROM bench_stream",
}


def run(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Bar]]:
    """Each of ``--databases``."""
    chosen, rival = options.databases, not (options.skip_debezium or options.transaction_rows)
    report = Report(1 + rival + len(chosen) * (1 + len(FORMS) * rival))
    with report.step("a change log") as step:
        rows = options.transaction_rows or options.rows
        events = _Log(folder, rows, at_once=bool(options.transaction_rows), texts=rival)
        step.done(f"{rows:,} events")
    if rival:
        with report.step("Debezium") as step:
            debezium.ensure(step)
    document: dict[str, Any] = {"rows": rows, "runs": options.repeat}
    for name in chosen:
        print(f"Starting {name} …", flush=True)
        with _SERVERS[name]() as server:
            document[name] = _database(
                _ServerMeasurement(server, name, events, folder), options.repeat, report, rival=rival
            )
    document["load"] = machine.load()
    for name in chosen:
        print(f"\n{name}\n{figures.table(document[name], 'events')}\n{_server_cpu(document[name])}")
    print(f"\nLoad average at the end: {document['load']}. Figures count only from a machine that does nothing else.")
    return document, _bars(chosen, at_once=bool(options.transaction_rows))


def _bars(chosen: list[str], *, at_once: bool) -> list[Bar]:
    if at_once:
        return [Bar(f"{name}.ours.peak_rss_mb", TRANSACTION_BAR_MB, at_most=True) for name in chosen]
    return [
        Bar(f"{name}.ratio.{what}", limit)
        for name in chosen
        for what, limit in (("events_per_s", 5), ("events_per_cpu_s", 8))
    ]


def _database(one: _ServerMeasurement, repeat: int, report: Report, *, rival: bool) -> dict[str, Any]:
    with report.step(f"{one.name}: ours") as step:
        runs = [measure_run(one.ours(), step) for _ in range(repeat)]
    found = {"ours": _summed_up(runs)}
    for form in FORMS if rival else ():
        with report.step(f"{one.name}: {form}") as step:
            found[form] = _summed_up([measure_run(one.debezium(form, step.progress), step)])
    if len(one.digests) != 1:
        raise Problem(
            f"The tables of {one.name} are not equal: {one.digests} (rows, digest). The figures mean nothing."
        )
    document = figures.build_document(found["ours"], found.get("debezium"), "events")
    if rival:
        document |= {
            "tuned": found["tuned"],
            "ratio_to_tuned": figures.build_document(found["ours"], found["tuned"], "events")["ratio"],
        }
    return document


def _summed_up(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return figures.summed_up(runs, "events") | {"server_cpu_s": round(min(run["server_cpu_s"] for run in runs), 1)}


def _server_cpu(document: dict[str, Any]) -> str:
    sides = [document[name] for name in ("ours", *FORMS) if name in document]
    return f"{'CPU seconds of the server':<26}" + "".join(f"{side['server_cpu_s']:>14.1f}" for side in sides)


class _Log:
    """The events: as a change log, and for the connector as lines of text.

    :param at_once: in one transaction, instead of batches
    :param texts: whether the lines are wanted, too
    """

    def __init__(self, folder: Path, rows: int, *, at_once: bool, texts: bool) -> None:
        self.warm, self.lines = folder / "warm.tsv", folder / "events.tsv"
        size = rows if at_once else BATCH_EVENTS
        for topic, file, events in (("warm", self.warm, rows // WARM_SHARE), ("stream", self.lines, rows)):
            table, changes = SourceTable(topic, 0), Changes(folder / "changelog", topic)
            parts = list(_stream(table, events, size))
            for part in [_join_events(parts)] if at_once else parts:
                changes.commit([(table, part)])
            if texts:
                _write(file, parts)


def _stream(table: SourceTable, rows: int, batch: int) -> Iterator[Events]:
    inserts, deletes = rows * 6 // 10, rows // 10
    for events, kinds in ((inserts, (1, 0)), (rows - inserts - deletes, (0, 0)), (deletes, (0, 1))):
        whole = table.change(events, inserts=kinds[0], deletes=kinds[1])
        for at in range(0, events, batch):
            part = slice(at, at + batch)
            yield Events(whole.ops[part], whole.ids[part], whole.versions[part])


def _join_events(parts: list[Events]) -> Events:
    return Events(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("ops", "ids", "versions")))


def _write(file: Path, parts: list[Events]) -> None:
    """A line for each event, as ``DebeziumSink`` reads them."""
    with file.open("wb") as sink:
        for part in parts:
            rows = pa.Table.from_struct_array(
                images(part.ids, part.versions + (part.ops == "u"), np.zeros(len(part.ids), bool))
            )
            at = rows.column_names.index("created")
            rows = rows.set_column(at, "created", rows["created"].cast(pa.int64()))
            texts = [
                pa.array(part.ops.tolist()),
                *(column.cast(pa.string()).fill_null("\\N") for column in rows.columns),
            ]
            made = pa.table(texts, names=["op", *rows.column_names])
            pa_csv.write_csv(
                made, sink, pa_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
            )


class _ServerMeasurement:
    """A database server, and the measured runs on it."""

    def __init__(self, server: Any, name: str, events: _Log, folder: Path) -> None:
        self.name, self.digests = name, set[Any]()
        self._server, self._events, self._folder = server, events, folder

    def ours(self) -> dict[str, Any]:
        """Measure a run of our sink."""
        with self._database() as database:
            url = self._server.url(f"{database}?charset=utf8mb4" if self.name == "mariadb" else database)
            given = {"url": url, "changelog": str(self._folder / "changelog")}
            file = self._folder / "sink.json"
            file.write_text(json.dumps(given))
            return self._run(
                [sys.executable, "-m", "dev.benchmarks.programs.run_sink", str(file)], database, environment(), print
            )

    def debezium(self, form: str, progress: Callable[[str], None]) -> dict[str, Any]:
        """Measure a run of Debezium's JDBC sink connector."""
        poll, more = FORMS[form]
        tuned = form == "tuned"
        with self._database() as database:
            kind = {"postgres": "postgresql"}.get(self.name, self.name)
            user = ("user", "password") if self.name == "postgres" else ("admin_user", "admin_password")
            address = f"jdbc:{kind}://{self._server.host}:{self._server.port}/{database}"
            properties = {
                "name": "bench", "connection.url": address + (TUNED_URL[self.name] if tuned else ""),
                "connection.username": getattr(self._server, user[0]), "connection.password": getattr(self._server, user[1]),
                "insert.mode": "upsert", "primary.key.mode": "record_key", "delete.enabled": True, "schema.evolution": "basic",
                **more,
            }  # fmt: skip
            file = self._folder / "sink.properties"
            file.write_text(
                "".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}\n" for k, v in properties.items())
            )
            command = debezium.command(
                "bench.DebeziumSink", file, str(poll), str(self._events.warm), str(self._events.lines)
            )
            return self._run(command, database, dict(os.environ), progress)

    def _run(
        self, command: list[str], database: str, env: dict[str, str], progress: Callable[[str], None]
    ) -> dict[str, Any]:
        log, found = self._folder / "run.log", dict[str, Any]()
        before = machine.tree_cpu_s(self._server.pid)
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, cwd=paths.ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=errors
            ) as process,
        ):
            for line in process.stdout or ():
                if line.startswith("{"):
                    found = json.loads(line)
                elif line.startswith("progress"):
                    progress(f"{int(line.split()[1]):,} events")
        if process.returncode or not found:
            raise Problem(f"The apply ended with {process.returncode}:\n{log.read_text(errors='replace')[-4000:]}")
        found["server_cpu_s"] = machine.tree_cpu_s(self._server.pid) - before
        self.digests.add(tuple(map(str, self._server.sql(_DIGESTS[self.name], database=database)[0])))
        return found

    @contextlib.contextmanager
    def _database(self) -> Iterator[str]:
        with self._server.database("sink") as made:
            yield str(getattr(made, "name", made))


_SERVERS: dict[str, Callable[[], Any]] = {
    "postgres": lambda: Postgres({"shared_buffers": "512MB", "max_wal_size": "8GB"}),
    "mariadb": lambda: MariaDb(
        {"innodb_buffer_pool_size": "512M", "innodb_log_file_size": "1G", "max_binlog_size": "1G"}
    ),
}
