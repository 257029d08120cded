"""Apply a change log to lakehouse tables: ``spark-submit apply_changes.py --changelog … --connector … --location …``.

For each table, the batches that it has not seen are applied: columns are added and changed, the last event of each key is merged, and
the number of the last batch is part of the same commit. So repeated, killed or concurrent runs give the same result. Tables are
processed in parallel threads of one session.

Exit status: 0 all tables have the last batch, 1 some tables failed (the others have it), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.applied import AppliedReports
from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.origins import TableOrigins
from airflow_provider_cdc.changelog.pending import Batches
from airflow_provider_cdc.changelog.turns import Turns
from airflow_provider_cdc.core.config.table_rules import NO_RULES, TableRules
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.core.model.manifest import Manifest
from spark_jobs.catch_up import CatchUp
from spark_jobs.origins import Origins
from spark_jobs.placement import Placement
from spark_jobs.progress import Progress
from spark_jobs.rehearsal import rehearse
from spark_jobs.report import Applied, Report
from spark_jobs.session import open_changelog, own_session, session
from spark_jobs.targets import known_profile, known_writes, load_format
from spark_jobs.targets.base import NEVER, Owner, Target
from spark_jobs.up_to_date import nothing_new, stamp, unchanged
from spark_jobs.view import View, groups
from spark_jobs.warm import WarmApply

log = logging.getLogger("spark_jobs.apply_changes")

LOOK_S = 60.0
"""How long tables are looked at before the first round."""


class ApplyChanges:
    """Brings the tables of one connector up to the last batch of its change log.

    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``
    :param profile: how new tables begin, one of :data:`spark_jobs.targets.formats.PROFILES`
    :param writes: how rows of tables with a key are written, one of :data:`spark_jobs.targets.formats.WRITES`
    :param threads: tables worked on at the same time
    :param adopt: topics whose tables are taken over although they belong to somebody else; their rows are replaced
    :param check_crc: compare the checksum of each file of the change log too, not only its size and number of rows
    :param tables: rules for tables that are not kept as the source has them, or are elsewhere
    """

    def __init__(
        self,
        spark: SparkSession,
        changelog: ChangeLog,
        connector: str,
        *,
        location: str,
        target: str = "delta",
        profile: str = "compatible",
        writes: str = "auto",
        threads: int = 4,
        adopt: Collection[str] = (),
        check_crc: bool = False,
        tables: TableRules = NO_RULES,
    ) -> None:
        self.spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._kind = location, target
        self._format, self._profile = load_format(target), known_profile(profile)
        self._placement = Placement(connector, location, tables)
        self._origins = Origins(TableOrigins(changelog.storage, connector), target, location)
        self._catch_up = CatchUp(
            changelog,
            connector,
            lambda at: self._open(at),
            adopt=adopt,
            check_crc=check_crc,
            writes=known_writes(writes),
            shapes=self._placement.shape,
            origins=self._origins,
        )
        self._rules = tables
        self._alone: dict[str, threading.Lock] = {}
        self._reports = AppliedReports(changelog.storage, connector)
        self._lock, self._older = threading.Lock(), dict[int, list[Batches]]()
        self._pool, self._threads = ThreadPoolExecutor(threads, thread_name_prefix="cdc-apply"), threading.local()

    def run(self) -> Report:
        """:raises TargetError: no table could be brought up to date, or some could not; the report is written before"""
        view = self.view()
        report = self.apply(view, view.topics - self.unchanged(view))
        self.write(report)
        report.refuse_failed()
        return report

    def apply(self, view: View, topics: Collection[str], *, settle: bool = True) -> Report:
        """Bring the tables of some topics up to the newest batch of a view.

        :param settle: look at each table afterwards, so that the next run knows it again without Spark; see :meth:`settled`
        :return: what was done and what failed; the other tables stand as they stood
        """
        began = time.monotonic()
        self._catch_up.newest = max(self._catch_up.newest, view.last)
        locations = self._placement.locations(view)
        self._placement.check(self.spark, view, locations, self._open)
        self._catch_up.progress = Progress(len(topics), view.last)
        applied: list[Applied] = []
        failed: dict[str, str] = {}
        stands = {topic: {**entry, **view.source(topic)} for topic, entry in view.stands.items() if topic not in topics}
        futures = {
            self._pool.submit(self._table, topic, locations[topic], view, applied, settle): topic
            for topic in sorted(topics)
        }
        try:
            for future in self._catch_up.progress.watch(futures):
                topic = futures[future]
                try:
                    if stood := future.result():
                        stands[topic] = stood
                except Exception as e:  # the other tables go on; the run fails at its end
                    log.exception("Table of topic %s could not be brought up to date.", topic)
                    failed[topic] = str(e)
                    stands[topic] = {
                        **view.known(topic),
                        "location": locations[topic],
                        "stamp": "",
                        **view.source(topic),
                    }
        finally:
            wait(futures)  # nobody goes on behind the back of whoever gets an error
        self._origins.write()
        behind = {
            topic: view.reached(topic) for topic in {*view.lagging, *failed} if topic in failed or topic not in topics
        }
        return Report(
            self._connector, self._kind, self._location, view.last, applied, failed, behind, stands,
            round(time.monotonic() - began, 3), rules=self._rules.digest(),
        )  # fmt: skip

    def unchanged(self, view: View) -> set[str]:
        """Topics without new events whose tables look as they did after the last run."""
        return unchanged(self._changelog, self._kind, view.idle())

    def settled(self, stands: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Look at the tables of some topics, and see how each stands now."""
        futures = {topic: self._pool.submit(self._settled, topic, entry) for topic, entry in stands.items()}
        return {topic: future.result() for topic, future in futures.items()}

    def look(self) -> None:
        """Read where each table of the last report stands, so that the next round finds it read. Nothing is changed."""
        report = self._reports.read(self._kind, self._location) or {"stands": {}}
        futures = [self._pool.submit(self._look, entry["location"]) for entry in report["stands"].values()]
        _, left = wait(futures, LOOK_S)
        for future in left:
            future.cancel()

    def _look(self, location: str) -> None:
        try:
            target = self._open(location)
            if target.exists():
                for ask in (target.owner, target.markers, target.size, target.columns):
                    ask()
        except Exception as e:  # a round says what is wrong with it, and where
            log.info("The table at %s could not be looked at: %s", location, e)

    def write(self, report: Report) -> None:
        """Replace the report of this target."""
        self._reports.write(dataclasses.asdict(report))

    def alive(self) -> None:
        """:raises CdcError: Spark has ended: no table can be worked on any more"""
        try:
            stopped = self.spark.sparkContext._jsc.sc().isStopped()
        except Exception as e:  # py4j's own errors, and those of the system, say that there is nobody
            log.warning("Spark does not answer: %s", e)
            stopped = True
        if stopped:
            raise CdcError(
                "The Spark session of the apply has ended.",
                safe="Each table has what was committed to it; the change log keeps the rest.",
                remedy="run the apply again: each table goes on from its last batch",
            )

    def forget(self) -> None:
        """Drop what belongs to one run only, before the next one with this object: older batches, and whom it may take tables from."""
        self._older.clear()
        self._catch_up.adopt = frozenset()

    def view(self) -> View:
        """The state of the change log and of the last report."""
        report = self._reports.read(self._kind, self._location) or {}
        numbers = self._changelog.batches(self._connector)
        newest = numbers[-1] if numbers else 0
        if report.get("last_batch", 0) > newest:
            log.warning("The change log ends with batch %d, and was at %d before.", newest, report["last_batch"])
            # each table is looked at, and says what it has
            stands = {topic: {**entry, "stamp": ""} for topic, entry in report["stands"].items()}
            report = {**report, "last_batch": 0, "stands": stands}
        if report and report.get("rules", "") != self._rules.digest():
            log.info("The rules of tables are not those of the last run: each table is looked at.")
            stands = {topic: {**entry, "stamp": "", "known": False} for topic, entry in report["stands"].items()}
            report = {**report, "last_batch": 0, "stands": stands}
        start = report.get("last_batch", 0) or max(numbers[0] - 1 if numbers else 0, 0)
        manifests = list(self._changelog.manifests(self._connector, after=start))
        if not newest:
            log.warning("The change log %s has no batch of connector %s.", self._changelog.storage.url, self._connector)
        stands, lagging = report.get("stands", {}), report.get("lagging", {})
        reported = bool(report.get("last_batch"))
        view = View(start, max(newest, start), self.indexed(manifests), reported, stands, lagging)
        if unknown := sorted(self._catch_up.adopt - view.topics):
            raise ConfigError(
                f"There is no topic {', '.join(unknown)} whose table could be adopted.",
                safe="No table was changed.",
                remedy=f"topics are: {', '.join(sorted(view.topics)[:20])}",
            )
        return view

    def indexed(self, manifests: list[Manifest]) -> list[Batches]:
        """Batches in groups that are merged at once."""
        return [Batches(self._changelog, group) for group in groups(manifests)]

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(self, topic: str, location: str, view: View, done: list[Applied], settle: bool) -> dict[str, Any]:
        """Apply what one table has not seen, in groups of batches; each commit is added to ``done`` at once.

        :return: its last batch and position then; nothing if there is no table and none is needed
        """
        shared = self._placement.shared(view, topic)
        owner = Owner(self._connector, topic, shared)
        with self._one_at_a_time(location) if shared else contextlib.nullcontext():
            return self._caught_up(owner, location, view, done, settle=settle)

    def _one_at_a_time(self, location: str) -> threading.Lock:
        """Held while one of the topics that share a table is written: writes to one table at once would fail, and begin again."""
        with self._lock:
            return self._alone.setdefault(location, threading.Lock())

    def _caught_up(
        self, owner: Owner, location: str, view: View, done: list[Applied], *, settle: bool
    ) -> dict[str, Any]:
        topic = owner.topic
        target, at = self._catch_up.look(owner, location)
        if at is None and topic in view.stands and view.source(topic)["dropped"]:
            log.info("The table of %s is gone, and the source has dropped it too: it is not built again.", topic)
            return {}
        missing = self._missing(topic, at, view)
        progress = self._catch_up.progress
        progress.begins(topic, missing[0].first - 1 if missing and at in (None, NEVER) else at or 0)
        try:
            for number, group in enumerate(missing):
                if at is None or group.last > at:
                    look = (target, at) if number == 0 else None
                    at = self._catch_up.apply(owner, location, missing[: number + 1], done, look)
        finally:
            progress.ends(topic)
        stood = {"location": location, "stamp": "", "batch": NEVER if at is None else at, **view.source(topic)}
        if owner.shared:
            stood["shared"] = True
        return self._settled(topic, stood) if settle else stood

    def _settled(self, topic: str, stood: Mapping[str, Any]) -> dict[str, Any]:
        # how it looks is asked first: if it changes in between, the next run looks closer
        looks = stamp(self._changelog, self._kind, stood["location"])
        target = self._open(stood["location"])
        if not target.exists():
            return {**stood, "stamp": looks, "batch": NEVER}
        batch = target.marker(Owner(self._connector, topic).app)
        return {**stood, "stamp": looks, "batch": batch, "bytes": target.size()}

    def _missing(self, topic: str, at: int | None, view: View) -> list[Batches]:
        """Groups of batches that hold everything that a table has not seen."""
        known = view.stands.get(topic)
        if at is not None and at >= view.start:
            return view.groups
        through = view.reported and topic not in view.lagging and known is not None and known["batch"] == at
        if view.start == 0 or (through and at not in (None, NEVER)):
            return view.groups
        if known is not None and at is not None and at < known["batch"]:
            log.warning(
                "The table of %s stands at batch %d, and stood at %d: it is caught up.", topic, at, known["batch"]
            )
        elif known is not None and at is None:
            log.warning("The table of %s is gone, and is built again from the change log.", topic)
        return self._since(max(at or 0, 0))

    def _since(self, batch: int) -> list[Batches]:
        """All batches after one of them; read once for all tables that need them."""
        with self._lock:
            if batch not in self._older:
                self._older[batch] = self.indexed(list(self._changelog.manifests(self._connector, after=batch)))
            return self._older[batch]

    def _open(self, location: str) -> Target:
        """A table, in the session of this thread: making one takes longer than a small merge."""
        if not hasattr(self._threads, "session"):
            self._threads.session = own_session(self.spark, self._format)
        return self._format.open(self._threads.session, location, profile=self._profile)


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    try:
        changelog = open_changelog(given.changelog)
        load_format(given.target)
        known_profile(given.profile)
        known_writes(given.writes)
        given.tables = TableRules.parse(given.tables)
        done = _for_a_while(changelog, given) if given.run_for else _once(changelog, given)
    except CdcError as e:
        print(e, file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 1
    for table in done.tables if done else ():
        print(
            f"{table.topic}: {table.events} events, batches {table.first_batch} to {table.last_batch}, {table.seconds} s"
        )
    return 0


def _once(changelog: ChangeLog, given: argparse.Namespace) -> Report | None:
    report = nothing_new(changelog, given.connector, given.target, given.location, given.tables.digest())
    if report is not None and not given.adopt:
        AppliedReports(changelog.storage, given.connector).write(report)
        print(f"Nothing to apply: every table of {given.connector} stands at batch {report['last_batch']}.")
        return None
    with _job(changelog, given) as job:
        return job.run()


def _for_a_while(changelog: ChangeLog, given: argparse.Namespace) -> Report | None:
    turns = Turns(changelog.storage, given.connector, given.target, given.location)
    # the one that applies now goes on until this one could, too
    with _job(changelog, given) as job:
        if turns.busy():
            _get_warm(job, given)
        return _turn(changelog, given, job, turns)


def _turn(changelog: ChangeLog, given: argparse.Namespace, job: ApplyChanges, turns: Turns) -> Report | None:
    with turns.take(given.owner) as turn:
        warm = WarmApply(job, changelog, given.connector, turn)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: warm.stop())
        return warm.run(given.run_for)


def _get_warm(job: ApplyChanges, given: argparse.Namespace) -> None:
    """Do what the first round would have to do for the first time, while another one still applies."""
    spark = job.spark

    def other(changelog: ChangeLog, connector: str, location: str) -> ApplyChanges:
        return ApplyChanges(
            spark, changelog, connector, location=location, target=given.target, threads=1, profile=given.profile, writes=given.writes,
        )  # fmt: skip

    if str(spark.sparkContext.master).startswith("local"):  # executors elsewhere do not see a folder of this machine
        rehearse(other)
    job.look()


@contextlib.contextmanager
def _job(changelog: ChangeLog, given: argparse.Namespace) -> Iterator[ApplyChanges]:
    """The job, in a Spark session that ends with it."""
    spark = session(f"cdc apply {given.connector}", load_format(given.target))
    try:
        yield ApplyChanges(
            spark, changelog, given.connector, location=given.location, target=given.target, threads=given.threads,
            profile=given.profile, writes=given.writes, adopt=given.adopt, check_crc=given.check_crc,
            tables=given.tables,
        )  # fmt: skip
    finally:
        spark.stop()


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--target", default="delta", help="kind of the tables: delta (default) or iceberg")
    parser.add_argument(
        "--profile", default="compatible",
        help="how new tables begin: compatible (most readers know them) or fast (small changes to large tables cost less)",
    )  # fmt: skip
    parser.add_argument(
        "--writes", default="auto",
        help="how rows of tables with a key are written: merge (always by a MERGE of Spark), commit (as arrays wherever they can be), or auto: what costs less",
    )  # fmt: skip
    parser.add_argument(
        "--tables", metavar="RULES", default="[]",
        help="rules for tables, as JSON or YAML, or a file with them: mode, columns, filter, location and so on by patterns of source tables",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=4, help="tables worked on at the same time")
    parser.add_argument(
        "--adopt", metavar="TOPIC", action="append", default=[],
        help="take over the table at this topic's place, though it is somebody else's: its rows are replaced; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--check-crc", action="store_true",
        help="compare the checksum of each file of the change log, besides its size and number of rows",
    )  # fmt: skip
    parser.add_argument(
        "--run-for", metavar="SECONDS", type=_seconds, default=0.0,
        help="go on for so long: one session applies each batch as soon as it is there, and takes over from the one that does so now",
    )  # fmt: skip
    parser.add_argument(
        "--owner", default=f"{socket.gethostname()}:{os.getpid()}",
        help="with --run-for: who it is, for logs and for whoever wants to know what it has done",
    )  # fmt: skip
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < float("inf"):
        raise ValueError
    return value


if __name__ == "__main__":
    sys.exit(main())
