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
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, cast

import orjson
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError
from airflow_provider_cdc.core.manifest import Manifest
from airflow_provider_cdc.core.schema import TableId
from spark_jobs.pending import Pending, collect
from spark_jobs.session import open_changelog, own_session, session
from spark_jobs.table import bring_up, one_batch_at_a_time
from spark_jobs.targets import load_target
from spark_jobs.targets.base import NEVER, Conflict, Marker

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
    location: str
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
        self._lock, self._all = threading.Lock(), cast(list[Manifest] | None, None)

    def run(self) -> Report:
        """:raises TargetError: no table could be brought up to date, or some could not; the report is written before"""
        began = time.monotonic()
        hint = self._last_report()
        start = min([hint.get("last_batch", 0), *hint.get("lagging", {}).values()])
        manifests = list(self._changelog.manifests(self._connector, after=start))
        topics = collect(self._changelog, manifests)
        self._distinct(topics)
        if not start and not manifests:
            log.warning("The change log %s has no batch of connector %s.", self._changelog.storage.url, self._connector)
        applied: list[Applied] = []
        failed: dict[str, str] = {}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-apply") as pool:
            futures = {pool.submit(self._table, topic, manifests, applied): topic for topic in sorted(topics)}
            for number, future in enumerate(as_completed(futures), start=1):
                topic = futures[future]
                try:
                    future.result()
                except Exception as e:  # the other tables go on; the run fails at its end
                    log.exception("Table of topic %s could not be brought up to date.", topic)
                    failed[topic] = str(e)
                log.info("%d of %d tables done.", number, len(topics))
        last = manifests[-1].batch if manifests else hint.get("last_batch", 0)
        report = Report(
            self._connector, self._kind, self._location, last, applied, failed, round(time.monotonic() - began, 3)
        )
        self._write_report(report, dict.fromkeys(failed, start))
        if failed:
            details = "\n".join(f"  {topic}: {text}" for topic, text in sorted(failed.items()))
            raise TargetError(
                f"{len(failed)} of {len(topics)} tables could not be brought up to date:\n{details}",
                safe="The other tables stand at the last batch; the change log keeps everything for these.",
                remedy="mend what the messages say, then run the apply again: it goes on where each table stands",
            )
        return report

    def _distinct(self, topics: dict[str, Pending]) -> None:
        """:raises ConfigError: two tables would be written to one place"""
        taken: dict[str, str] = {}
        for topic, pending in topics.items():
            location = self._place(topic, pending.schema.id)
            if taken.setdefault(location, topic) != topic:
                raise ConfigError(
                    f"The tables of {taken[location]} and {topic} would both be at {location}.",
                    safe="No table was changed.",
                    remedy="give the location {database} and {table}, or {topic}",
                )

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(self, topic: str, manifests: list[Manifest], done: list[Applied]) -> None:
        """Apply what one table has not seen, in groups of batches; each commit is added to ``done`` at once."""
        for group in _groups(manifests):
            self._group(topic, group, done)

    def _group(self, topic: str, manifests: list[Manifest], done: list[Applied]) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._attempt(topic, manifests, done)
                return
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

    def _attempt(self, topic: str, manifests: list[Manifest], done: list[Applied]) -> None:
        """One look at the marker, and what follows from it; commits are added to ``done``."""
        found = collect(self._changelog, manifests).get(topic)
        if found is None:
            return
        location = self._place(topic, found.schema.id)
        target = self._target(own_session(self._spark), location)
        app = f"cdc:{self._connector}:{topic}"
        marker = target.marker(app) if target.exists() else NEVER
        if marker == NEVER and manifests[0].batch > 1:
            # the table may have been removed to have it built again: everything counts
            manifests = [m for m in self._everything() if m.batch <= manifests[-1].batch]
        manifests = [m for m in manifests if m.batch > marker]
        pending = collect(self._changelog, manifests).get(topic)
        if pending is None or not (pending.files or pending.changes or marker == NEVER):
            return
        steps = [pending]
        if marker != NEVER and one_batch_at_a_time(target.spark, pending):
            each = (collect(self._changelog, [m]).get(topic) for m in manifests)
            steps = [step for step in each if step is not None]
        for step in steps:
            began = time.monotonic()
            bring_up(target, step, Marker(app, step.last), new=marker == NEVER)
            done.append(
                Applied(
                    topic, location, step.first, step.last, step.counts(), step.position,
                    round(time.monotonic() - began, 3),
                )
            )  # fmt: skip

    def _everything(self) -> list[Manifest]:
        """All manifests; read once for all tables that are new."""
        with self._lock:
            if self._all is None:
                self._all = list(self._changelog.manifests(self._connector))
            return self._all

    def _place(self, topic: str, table: TableId) -> str:
        return place(self._location, self._connector, topic, table)

    # -- reports ------------------------------------------------------------------------------------------------------

    def _report_path(self) -> str:
        return self._changelog.storage.path(self._connector, "applied", f"{self._kind}.json")

    def _last_report(self) -> dict[str, Any]:
        """The last run's report. Only a shortcut: which batches a table has taken is known by the table alone."""
        data = self._changelog.storage.read(self._report_path())
        report = dict(orjson.loads(data)) if data else {}
        return report if report.get("location") == self._location else {}

    def _write_report(self, report: Report, lagging: dict[str, int]) -> None:
        document = dataclasses.asdict(report) | {"lagging": lagging}
        self._changelog.storage.replace(self._report_path(), orjson.dumps(document, option=orjson.OPT_INDENT_2))


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


def place(location: str, connector: str, topic: str, table: TableId) -> str:
    """Where a topic's table is.

    >>> place("/lake/{database}/{table}", "shop", "shop.inventory.orders", TableId(namespace="inventory", name="orders"))
    '/lake/inventory/orders'

    :raises ConfigError: the location has a name in braces that is not known
    """
    names = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
    try:
        return location.format(**{k: v.replace("%", "%25").replace("/", "%2F") for k, v in names.items()})
    except (KeyError, IndexError, ValueError) as e:
        raise ConfigError(
            f"The location {location!r} cannot be used: {e} is not a name that it may have in braces. "
            f"Valid names are: {', '.join(names)}.",
            remedy="for example --location /lake/{database}/{table}",
        ) from e


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--target", default="delta")
    parser.add_argument("--threads", type=int, default=4, help="tables worked on at the same time")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    spark = session(f"cdc apply {given.connector}")
    try:
        job = ApplyChanges(
            spark, open_changelog(given.changelog), given.connector, location=given.location, target=given.target,
            threads=given.threads,
        )  # fmt: skip
        report = job.run()
    except CdcError as e:
        print(e, file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 1
    finally:
        spark.stop()
    for table in report.tables:
        print(
            f"{table.topic}: {sum(table.rows.values())} events, batches {table.first_batch} to {table.last_batch}, {table.seconds} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
