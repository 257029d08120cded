"""The cases of ``dev/bench apply`` for one kind of target, in a separate process: ``python -m dev.benchmarks.programs.run_apply FILE``.

Each case has two equal tables, ours and one that a plain MERGE keeps. Both get the same batches, in turns, in one warm session; the side that
begins changes with each batch. The first batch of a case is not counted. At the end of a case both tables must be equal.

Lines that begin with ``progress`` say how far it is. The last line of stdout is a JSON object.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from airflow_provider_cdc.core.model.batch_manifest import Manifest
from dev.benchmarks.apply.plain_merge import AS_IT_IS, PLAIN, PlainRule
from dev.benchmarks.load.lake_changes import TYPES, Changes, Events, SourceTable
from dev.benchmarks.measure import machine

THREADS = 4
MAINTAINED = 60
"""Batches between two maintenances: an hour of a batch a minute."""
_WHOLE, _LAST = AS_IT_IS.columns, {name: f"if(op = 'd', before.{name}, after.{name})" for name in TYPES}
_TOLD = {"_op": "op", "_seq": "seq", "_commit_ts": "timestamp_micros(source.ts_us)"}
_GONE = "timestamp_micros(if(op = 'd', source.ts_us, NULL))"
RULES: dict[str, tuple[dict[str, Any], PlainRule]] = {
    "metadata": ({"columns": {"metadata": ["op", "seq", "commit_ts"]}}, PlainRule({**_WHOLE, **_TOLD})),
    "renamed": (
        {"columns": {"drop": ["note"], "rename": {"name": "customer", "qty": "quantity"}}},
        PlainRule(
            {
                {"name": "customer", "qty": "quantity"}.get(name, name): value
                for name, value in _WHOLE.items()
                if name != "note"
            }
        ),
    ),
    "soft_delete": (
        {"mode": "soft_delete"},
        PlainRule({**_LAST, "_is_deleted": "op = 'd'", "_deleted_at": _GONE}, gone="false"),
    ),
    "filter": ({"filter": "flag = 1"}, PlainRule(_WHOLE, gone="op = 'd' OR after.flag <> 1")),
}
"""Of case (e): a rule, and the same by hand."""
SCAN = "SELECT sum(id), max(amount), count(DISTINCT qty), max(note) FROM rows"


class Cases:
    """All cases of a kind of target.

    :param folder: is emptied after each case
    """

    def __init__(self, target: str, profile: str, folder: Path, jars: Sequence[str], memory: str) -> None:
        from airflow_provider_cdc.targets.lake.formats import load_format
        from airflow_provider_cdc.targets.lake.session.spark_session import open_spark_session

        self._target, self._profile, self._folder = target, profile, folder
        plain = PLAIN[target]
        settings = {
            "spark.master": "local[*]",
            "spark.jars": ",".join(jars),
            "spark.driver.memory": memory,
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
        }
        if "spark.sql.catalog.plain" in plain.settings:
            settings["spark.sql.catalog.plain.warehouse"] = str(folder / "plain")
        self._spark = open_spark_session("bench", load_format(target), extra={**settings, **plain.settings})
        self._plain = plain(self._spark, folder / "plain")
        self._jvm = self._spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]

    def alternate(
        self, name: str, tables: Sequence[SourceTable], change: Callable[[SourceTable], Events], batches: int, rule: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """Apply batches on both sides.

        :param change: events of one table for the next batch
        :param batches: that count
        :param rule: of the tables, one of :data:`RULES`
        """
        case = _Case(self, name, tables, *RULES.get(rule, ({}, AS_IT_IS)))
        case.load()
        for number in range(batches + 1):
            _say(f"{name}: batch {number} of {batches}")
            manifest = case.changes.commit([(table, change(table)) for table in tables])
            for ours in (True, False) if number % 2 else (False, True):
                case.apply(manifest, ours=ours, counts=number > 0)
        case.compare()
        figures = case.figures()
        self.clear()
        return figures

    def in_a_row(self, name: str, rows: int, events: int, batches: int) -> dict[str, Any]:
        """Apply many batches to ours, with maintenance now and then, and read the table, and a copy that was just written."""
        table = SourceTable(name, rows)
        case = _Case(self, name, [table])
        case.load(plain=False)
        first, kept = case.scan(), list[float]()
        for number in range(batches):
            _say(f"{name}: batch {number + 1} of {batches}")
            manifest = case.changes.commit([(table, table.change(events, inserts=0.1, deletes=0.1))])
            case.apply(manifest, ours=True, counts=True)
            if (number + 1) % MAINTAINED == 0:
                kept.append(case.maintain())
        self._plain.create("copy", case.ours(table))
        scans = {"first_s": first, "end_s": case.scan(), "copy_s": case.scan(self._plain.rows("copy"))}
        taken = [seconds for seconds, _ in case.durations[True]]
        hundred = max(1, batches // 5)
        document = {
            "batches": batches, "rows": rows, "events": events, "apply_s": round(sum(taken), 1),
            "first_s": round(median(taken[:hundred]), 2), "last_s": round(median(taken[-hundred:]), 2), "longest_s": round(max(taken), 2),
            "maintained": len(kept), "maintain_s": round(sum(kept), 1),
            "scan": {key: round(value, 2) for key, value in scans.items()}, "scan_ratio": round(scans["end_s"] / scans["copy_s"], 2),
        }  # fmt: skip
        self.clear()
        return document

    def cpu_s(self) -> float:
        import os

        return machine.cpu_s(self._jvm, children=False) + machine.cpu_s(os.getpid(), children=False)

    def clear(self) -> None:
        self._plain.spark.catalog.clearCache()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Case:
    def __init__(
        self, cases: Cases, name: str, tables: Sequence[SourceTable], ours: dict[str, Any] | None = None, plain: PlainRule = AS_IT_IS,
    ) -> None:  # fmt: skip
        from airflow_provider_cdc.core.config.target_table_rules import TableRules
        from airflow_provider_cdc.targets.lake.jobs.apply_changes import ApplyChanges

        self.tables, self._cases, self._plain, self._rule = tables, cases, cases._plain, plain
        self.changes = Changes(cases._folder / "changelog", name)
        self._location = f"{cases._folder}/ours/{{table}}"
        self._job = ApplyChanges(
            cases._spark, self.changes.changelog, name, location=self._location, target=cases._target, threads=THREADS,
            profile=cases._profile, tables=TableRules.parse([{"tables": ".*", **ours}] if ours else []),
        )  # fmt: skip
        self.durations: dict[bool, list[tuple[float, float]]] = {True: [], False: []}

    def load(self, *, plain: bool = True) -> None:
        _say(f"{self.changes.connector}: making {len(self.tables)} tables")
        manifest = self.changes.commit([(table, table.read()) for table in self.tables])
        began = time.perf_counter()
        self._job.run()
        self.load_s = time.perf_counter() - began
        if plain:
            self._each(lambda table: self._plain.load(table.name, self._files(manifest, table), self._rule))

    def apply(self, manifest: Manifest, *, ours: bool, counts: bool) -> None:
        began, cpu = time.perf_counter(), self._cases.cpu_s()
        if ours:
            self._job.run()
        else:
            self._each(lambda table: self._plain.merge(table.name, self._files(manifest, table), self._rule))
        if counts:
            self.durations[ours].append((time.perf_counter() - began, self._cases.cpu_s() - cpu))

    def maintain(self) -> float:
        """Maintain our tables by need; seconds that it took."""
        from airflow_provider_cdc.targets.lake.jobs.maintain_tables import MaintainTables

        found = MaintainTables(
            self._cases._spark, self.changes.changelog, self.changes.connector, location=self._location, target=self._cases._target
        ).run()  # fmt: skip
        if found.has_failed:
            raise SystemExit(f"Maintenance failed: {[table.problem for table in found.tables]}")
        return found.seconds

    def compare(self) -> None:
        for table in self.tables:
            a, b = (_digest(rows) for rows in (self.ours(table), self._plain.rows(table.name)))
            if a != b:
                raise SystemExit(f"Ours of {table.name} is not equal to the plain one: {a} and {b} (rows, digest).")

    def figures(self) -> dict[str, Any]:
        ours, plain = ([median(kind) for kind in zip(*self.durations[side], strict=True)] for side in (True, False))
        return {
            "ours_s": round(ours[0], 2), "plain_s": round(plain[0], 2), "ours_cpu_s": round(ours[1], 2), "plain_cpu_s": round(plain[1], 2),
            "ratio": round(plain[0] / ours[0], 2), "batches": len(self.durations[True]), "load_s": round(self.load_s, 2),
        }  # fmt: skip

    def ours(self, table: SourceTable) -> Any:
        from airflow_provider_cdc.targets.lake.formats import load_format
        from airflow_provider_cdc.targets.lake.session.spark_session import own_session

        kind = load_format(self._cases._target)
        return kind.open_target(
            own_session(self._cases._spark, kind), self._location.format(table=table.name)
        ).read_rows()

    def scan(self, rows: Any = None) -> float:
        """Seconds of a query over all rows, the median of three."""
        taken = []
        for _ in range(4):
            found = self.ours(self.tables[0]) if rows is None else rows
            found.createOrReplaceTempView("rows")
            began = time.perf_counter()
            found.sparkSession.sql(SCAN).collect()
            taken.append(time.perf_counter() - began)
        return median(taken[1:])

    def _each(self, work: Callable[[SourceTable], None]) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, self.tables))

    def _files(self, manifest: Manifest, table: SourceTable) -> list[str]:
        return [
            self.changes.changelog.file_uri(self.changes.connector, file)
            for file in manifest.files
            if file.topic == table.topic
        ]


def _digest(rows: Any) -> tuple[int, Any]:
    from pyspark.sql import functions as F

    (found,) = rows.select(F.count("*"), F.sum(F.xxhash64(*sorted(rows.columns)).cast("decimal(38,0)"))).collect()
    return found[0], str(found[1])


def _say(text: str) -> None:
    print(f"progress {text}", flush=True)


def main() -> int:
    given = json.loads(Path(sys.argv[1]).read_text())
    cases = Cases(given["target"], given["profile"], Path(given["folder"]), given["jars"], given["memory"])
    million, batches = given["million"], given["repeat"]
    found: dict[str, Any] = {}

    def change_few_rows(table: SourceTable) -> Events:
        return table.change(million // 100, inserts=0.1, deletes=0.1)

    def change_many_rows(table: SourceTable) -> Events:
        return table.change(million, inserts=0.3, deletes=0.3, again=0.015)

    def change_fewest_rows(table: SourceTable) -> Events:
        return table.change(min(100, million // 200), inserts=0.1, deletes=0.1)

    if "b" in given["cases"]:
        for times in given["sizes"]:
            found[f"b{times}"] = cases.alternate(
                f"b{times}", [SourceTable(f"b{times}", times * million)], change_few_rows, batches
            )
    if "a" in given["cases"]:
        found["a"] = cases.alternate("a", [SourceTable("a", million)], change_many_rows, batches)
    if "c" in given["cases"]:
        small = [SourceTable(f"c{number}", million // 100, number) for number in range(given["tables"])]
        found["c"] = cases.alternate("c", small, change_fewest_rows, batches)
    if "d" in given["cases"]:
        found["d"] = cases.in_a_row("d", million, million // 500, given["batches"])
    if "e" in given["cases"]:
        for rule in RULES:
            found[f"e {rule}"] = cases.alternate(
                f"e_{rule}", [SourceTable(f"e_{rule}", million)], change_few_rows, batches, rule
            )
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
