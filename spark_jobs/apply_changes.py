"""Apply a change log to lakehouse tables: ``spark-submit apply_changes.py --changelog … --connector … --location …``.

Each table takes the batches that it has not seen: columns are brought in order, of each key the last event is merged, and the
number of the last batch lands in the same commit as the rows. A run that is repeated, killed, or started twice at once therefore
changes nothing about the result. Tables are worked on in parallel threads of one session.

Exit status: 0 all tables stand at the last batch, 1 some could not (the others do), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core.errors import CdcError, TargetError
from airflow_provider_cdc.core.manifest import Manifest
from airflow_provider_cdc.core.schema import TableId
from spark_jobs import reduce
from spark_jobs.pending import Pending, base_version, collect, lineage
from spark_jobs.session import session
from spark_jobs.targets import load_target
from spark_jobs.targets.base import NEVER, Conflict, Evolution, Marker, Target

log = logging.getLogger("spark_jobs.apply_changes")

ATTEMPTS = 6
GROUP_BYTES = 2 << 30
"""About as many bytes of change log are merged at once; a longer backlog takes several commits."""


@dataclasses.dataclass(slots=True)
class Applied:
    """What a run did to one table.

    :param rows: operation letter → change events that it took in
    :param position: where in the source's log the table stands now
    """

    topic: str
    location: str
    first_batch: int
    last_batch: int
    rows: dict[str, int]
    position: dict[str, Any]
    seconds: float


@dataclasses.dataclass(slots=True)
class Report:
    """What a run did; written beside the change log for people, sensors and the next run's shortcut."""

    connector: str
    target: str
    last_batch: int
    tables: list[Applied]
    failed: dict[str, str]
    seconds: float


class ApplyChanges:
    """Brings the tables of one connector up to the last batch of its change log.

    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``
    :param threads: tables worked on at the same time
    """

    def __init__(
        self,
        spark: SparkSession,
        changelog: ChangeLog,
        connector: str,
        *,
        location: str,
        target: str = "delta",
        threads: int = 4,
    ) -> None:
        self._spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._kind, self._threads = location, target, threads
        self._target = load_target(target)

    def run(self) -> Report:
        """:raises TargetError: no table could be brought up to date, or some could not; the report is written before"""
        began = time.monotonic()
        hint = self._last_report()
        start = min([hint.get("last_batch", 0), *hint.get("lagging", {}).values()])
        manifests = list(self._changelog.manifests(self._connector, after=start))
        topics = collect(self._changelog, manifests)
        applied: list[Applied] = []
        failed: dict[str, str] = {}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-apply") as pool:
            futures = {pool.submit(self._table, topic, manifests): topic for topic in sorted(topics)}
            for future in as_completed(futures):
                topic = futures[future]
                try:
                    applied += future.result()
                except Exception as e:  # the other tables go on; the run fails at its end
                    log.exception("Table of topic %s could not be brought up to date.", topic)
                    failed[topic] = str(e)
                log.info("%d of %d tables done.", len(applied) + len(failed), len(topics))
        last = manifests[-1].batch if manifests else hint.get("last_batch", 0)
        report = Report(self._connector, self._kind, last, applied, failed, round(time.monotonic() - began, 3))
        self._write_report(report, dict.fromkeys(failed, start))
        if failed:
            details = "\n".join(f"  {topic}: {text}" for topic, text in sorted(failed.items()))
            raise TargetError(
                f"{len(failed)} of {len(topics)} tables could not be brought up to date:\n{details}",
                safe="The other tables stand at the last batch; the change log keeps everything for these.",
                remedy="mend what the messages say, then run the apply again: it goes on where each table stands",
            )
        return report

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(self, topic: str, manifests: list[Manifest]) -> list[Applied]:
        """Apply what one table has not seen, in groups of batches."""
        done = []
        for group in _groups(manifests):
            result = self._group(topic, group)
            if result is not None:
                done.append(result)
        return done

    def _group(self, topic: str, manifests: list[Manifest]) -> Applied | None:
        for attempt in range(ATTEMPTS):
            try:
                return self._attempt(topic, manifests)
            except Conflict as e:
                # whoever was faster may have applied the same batches: the marker tells
                log.warning(
                    "Another writer committed to the table of %s first (%d): %s", topic, attempt + 1, str(e)[:200]
                )
                time.sleep(0.5 * attempt)
        raise TargetError(
            f"The table of {topic} was changed by other writers {ATTEMPTS} times while it was being merged.",
            safe="The table was not changed by this run.",
            remedy="stop the other writers, then run the apply again",
        )

    def _attempt(self, topic: str, manifests: list[Manifest]) -> Applied | None:
        began = time.monotonic()
        found = collect(self._changelog, manifests).get(topic)
        if found is None:
            return None
        location = self._place(topic, found.schema.id)
        target = self._target(self._spark.newSession(), location)
        app = f"cdc:{self._connector}:{topic}"
        marker = target.marker(app) if target.exists() else NEVER
        if marker == NEVER and manifests[0].batch > 1:
            # the table may have been removed to have it built again: everything counts
            manifests = list(self._changelog.manifests(self._connector, after=0, until=manifests[-1].batch))
        pending = collect(self._changelog, [m for m in manifests if m.batch > marker]).get(topic)
        if pending is None or not (pending.files or pending.changes):
            return None
        self._apply(target, pending, Marker(app, pending.last), new=marker == NEVER)
        return Applied(
            topic,
            location,
            pending.first,
            pending.last,
            pending.counts(),
            pending.position,
            round(time.monotonic() - began, 3),
        )

    def _place(self, topic: str, table: TableId) -> str:
        names = {"connector": self._connector, "topic": topic, "database": table.namespace, "table": table.name}
        return self._location.format(**{k: _safe(v) for k, v in names.items()})

    def _apply(self, target: Target, pending: Pending, marker: Marker, *, new: bool) -> None:
        spark, types, key = target.spark, reduce.final_types(pending.schema), pending.schema.key
        spark.conf.set("spark.sql.shuffle.partitions", str(_partitions(spark, pending)))
        cut = reduce.last_truncate(spark, pending)
        if new or cut:
            # nothing that is in the table counts: what is left of the events is the table
            self._fill(target, self._contents(spark, pending, cut, types), types, marker)
            return
        fills = target.evolve(_evolution(pending, types))
        if not pending.files and not fills:
            return
        if key:
            merged = reduce.events(spark, pending, 0)
            rows = reduce.last_per_key(merged, key) if merged is not None else _nothing(spark, types)
            target.merge(rows, key, types, fills, marker)
        else:
            self._bag(target, pending, types, fills, marker)

    @staticmethod
    def _fill(target: Target, rows: DataFrame, types: dict[str, str], marker: Marker) -> None:
        """Make these all rows of the table. A table that is there and empty keeps its partitioning."""
        if not target.exists():
            target.create(types)
            target.append(rows, marker)
        elif target.rows().head(1):
            target.replace(rows, marker)
        else:
            target.evolve(Evolution(types))
            target.append(rows, marker)

    def _contents(self, spark: SparkSession, pending: Pending, cut: int, types: dict[str, str]) -> DataFrame:
        """The table that the events after ``cut`` make out of nothing."""
        if not pending.schema.key:
            changes = reduce.differences(spark, pending, cut)
            return _nothing(spark, types).drop("__op") if changes is None else reduce.repeated(changes, list(types))
        rows = reduce.events(spark, pending, cut)
        if rows is None:
            return _nothing(spark, types).drop("__op")
        only_reads = all(set(f.counts) <= {"r", "t"} for _, f in pending.files if f.last_seq > cut)
        last = rows.drop("seq") if only_reads else reduce.last_per_key(rows, pending.schema.key)
        return last.where("__op <> 'd'").drop("__op")

    def _bag(
        self, target: Target, pending: Pending, types: dict[str, str], fills: dict[str, str], marker: Marker
    ) -> None:
        """A table without a key is a bag of rows: equal ones come and go by number."""
        spark, changes = target.spark, reduce.differences(target.spark, pending, 0)
        if changes is None:
            changes = _nothing(spark, types).drop("__op").withColumn("__n", F.lit(1))
        if not fills and set(pending.counts()) <= {"c", "r"}:
            target.append(changes.drop("__n"), marker)
            return
        there = target.rows().select(
            *[(F.expr(fills[c]).cast(t) if c in fills else F.col(f"`{c}`").cast(t)).alias(c) for c, t in types.items()],
            F.lit(1).alias("__n"),
        )
        target.replace(reduce.repeated(there.unionAll(changes), list(types)), marker)

    # -- reports ------------------------------------------------------------------------------------------------------

    def _report_path(self) -> str:
        return self._changelog.storage.path(self._connector, "applied", f"{self._kind}.json")

    def _last_report(self) -> dict[str, Any]:
        """The last run's report. Only a shortcut: which batches a table has taken is known by the table alone."""
        data = self._changelog.storage.read(self._report_path())
        return dict(orjson.loads(data)) if data else {}

    def _write_report(self, report: Report, lagging: dict[str, int]) -> None:
        document = dataclasses.asdict(report) | {"lagging": lagging}
        self._changelog.storage.replace(self._report_path(), orjson.dumps(document, option=orjson.OPT_INDENT_2))


def _evolution(pending: Pending, types: dict[str, str]) -> Evolution:
    """How the table's columns have to change for these batches."""
    base = base_version(pending)
    if not pending.changes:
        return Evolution(types)
    origins = lineage(pending, base)
    renamed = tuple((o.column, name) for name, o in origins.items() if o.column is not None and o.column != name)
    fills = {
        name: "NULL" if o.fill is None else f"CAST({_literal(o.fill)} AS {types[name]})"
        for name, o in origins.items()
        if o.column is None
    }
    return Evolution(types, renamed, fills)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _groups(manifests: list[Manifest]) -> Iterator[list[Manifest]]:
    """Batches in a row, about :data:`GROUP_BYTES` of files together."""
    group: list[Manifest] = []
    size = 0
    for manifest in manifests:
        group.append(manifest)
        size += sum(f.bytes for f in manifest.files)
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _partitions(spark: SparkSession, pending: Pending) -> int:
    """Shuffle partitions of about 32 MB of compressed events, at least one, at most four for each core."""
    return max(1, min(pending.bytes // (32 << 20) + 1, 4 * spark.sparkContext.defaultParallelism))


def _nothing(spark: SparkSession, types: dict[str, str]) -> DataFrame:
    columns = ", ".join(f"`{name}` {type_}" for name, type_ in types.items())
    return spark.createDataFrame([], f"__op string, {columns}")


def _safe(name: str) -> str:
    """A name as one part of a path."""
    return name.replace("%", "%25").replace("/", "%2F")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--target", default="delta")
    parser.add_argument("--threads", type=int, default=4, help="tables worked on at the same time")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    spark = session(f"cdc apply {given.connector}")
    try:
        job = ApplyChanges(
            spark, ChangeLog(given.changelog), given.connector, location=given.location, target=given.target,
            threads=given.threads,
        )  # fmt: skip
        report = job.run()
    except CdcError as e:
        print(e, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    for table in report.tables:
        print(
            f"{table.topic}: {sum(table.rows.values())} events, batches {table.first_batch} to {table.last_batch}, {table.seconds} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
