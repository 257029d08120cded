"""Apply a change log to lakehouse tables: ``spark-submit apply_changes.py --changelog … --connector … --location …``.

For each table, the batches that it has not seen are applied: columns are added and changed, the last event of each key is merged, and
the number of the last batch is part of the same commit. So repeated, killed or concurrent runs give the same result. Tables are
processed in parallel threads of one session.

Exit status: 0 all tables have the last batch, 1 some tables failed (the others have it), 2 the arguments cannot be used.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.applied import AppliedReports
from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.pending import Batches, Pending, joined
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError
from airflow_provider_cdc.core.model.manifest import Manifest
from airflow_provider_cdc.core.model.schema import TableId
from spark_jobs.ownership import applied_batch
from spark_jobs.session import open_changelog, own_session, session
from spark_jobs.table import bring_up, one_batch_at_a_time
from spark_jobs.targets import known_profile, load_format
from spark_jobs.targets.base import NEVER, Conflict, Marker, Owner, Target
from spark_jobs.up_to_date import nothing_new, stamp, unchanged
from spark_jobs.view import View, groups

log = logging.getLogger("spark_jobs.apply_changes")

ATTEMPTS = 6


@dataclasses.dataclass(slots=True)
class Applied:
    """What a run did to one table.

    :param rows: operation letter → change events that were applied
    :param position: the table's position in the source's log now
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
    """What a run did, and the last batch of each table; see :class:`airflow_provider_cdc.changelog.applied.AppliedReports`."""

    connector: str
    target: str
    location: str
    last_batch: int
    tables: list[Applied]
    failed: dict[str, str]
    lagging: dict[str, int]
    stands: dict[str, dict[str, Any]]
    seconds: float


class ApplyChanges:
    """Brings the tables of one connector up to the last batch of its change log.

    :param location: where tables are, with ``{database}``, ``{table}``, ``{topic}`` and ``{connector}``
    :param profile: how new tables begin, one of :data:`spark_jobs.targets.formats.PROFILES`
    :param threads: tables worked on at the same time
    :param adopt: topics whose tables are taken over although they belong to somebody else; their rows are replaced
    :param check_crc: compare the checksum of each file of the change log too, not only its size and number of rows
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
        threads: int = 4,
        adopt: Collection[str] = (),
        check_crc: bool = False,
    ) -> None:
        self._spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._kind, self._threads = location, target, threads
        self._format, self._profile = load_format(target), known_profile(profile)
        self._adopt, self._check_crc = frozenset(adopt), check_crc
        self._reports = AppliedReports(changelog.storage, connector)
        self._lock, self._older, self._last = threading.Lock(), dict[int, list[Batches]](), 0

    def run(self) -> Report:
        """:raises TargetError: no table could be brought up to date, or some could not; the report is written before"""
        began = time.monotonic()
        view = self._view()
        topics = sorted(view.topics)
        locations = self._locations(view, topics)
        applied: list[Applied] = []
        failed: dict[str, str] = {}
        idle = unchanged(self._changelog, self._kind, view.idle())
        stands = {topic: {**view.stands[topic], **view.source(topic)} for topic in idle}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-apply") as pool:
            futures = {
                pool.submit(self._table, topic, locations[topic], view, applied): topic
                for topic in topics
                if topic not in idle
            }
            for number, future in enumerate(as_completed(futures), start=1):
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
                log.info("%d of %d tables done.", number, len(futures))
        lagging = {topic: view.reached(topic) for topic in failed}
        report = Report(
            self._connector, self._kind, self._location, view.last, applied, failed, lagging, stands,
            round(time.monotonic() - began, 3),
        )  # fmt: skip
        self._reports.write(dataclasses.asdict(report))
        if failed:
            details = "\n".join(f"  {topic}: {text}" for topic, text in sorted(failed.items()))
            raise TargetError(
                f"{len(failed)} of {len(topics)} tables could not be brought up to date:\n{details}",
                safe="The other tables stand at the last batch; the change log keeps everything for these.",
                remedy="fix what the messages name, then run the apply again: each table goes on from its last batch",
            )
        return report

    def _view(self) -> View:
        """The state of the change log and of the last report."""
        report = self._reports.read(self._kind, self._location) or {}
        numbers = self._changelog.batches(self._connector)
        newest = self._last = numbers[-1] if numbers else 0
        if report.get("last_batch", 0) > newest:
            log.warning("The change log ends with batch %d, and was at %d before.", newest, report["last_batch"])
            # each table is looked at, and says what it has
            stands = {topic: {**entry, "stamp": ""} for topic, entry in report["stands"].items()}
            report = {**report, "last_batch": 0, "stands": stands}
        start = report.get("last_batch", 0) or max(numbers[0] - 1 if numbers else 0, 0)
        manifests = list(self._changelog.manifests(self._connector, after=start))
        if not newest:
            log.warning("The change log %s has no batch of connector %s.", self._changelog.storage.url, self._connector)
        stands, lagging = report.get("stands", {}), report.get("lagging", {})
        reported = bool(report.get("last_batch"))
        view = View(start, max(newest, start), self._indexed(manifests), reported, stands, lagging)
        if unknown := sorted(self._adopt - view.topics):
            raise ConfigError(
                f"There is no topic {', '.join(unknown)} whose table could be adopted.",
                safe="No table was changed.",
                remedy=f"topics are: {', '.join(sorted(view.topics)[:20])}",
            )
        return view

    def _indexed(self, manifests: list[Manifest]) -> list[Batches]:
        return [Batches(self._changelog, group) for group in groups(manifests)]

    def _locations(self, view: View, topics: list[str]) -> dict[str, str]:
        """Topic → location of its table.

        :raises ConfigError: two tables would be at one location
        """
        locations: dict[str, str] = {}
        topics_by_location: dict[str, str] = {}
        for topic in topics:
            table = view.table(topic)
            location = view.known(topic)["location"] if table is None else self._table_location(topic, table)
            if topics_by_location.setdefault(location, topic) != topic:
                raise ConfigError(
                    f"The tables of {topics_by_location[location]} and {topic} would both be at {location}.",
                    safe="No table was changed.",
                    remedy="give the location {database} and {table}, or {topic}",
                )
            locations[topic] = location
        return locations

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(self, topic: str, location: str, view: View, done: list[Applied]) -> dict[str, Any]:
        """Apply what one table has not seen, in groups of batches; each commit is added to ``done`` at once.

        :return: its last batch and position then; nothing if there is no table and none is needed
        """
        owner, target = Owner(self._connector, topic), self._open(location)
        at = self._applied_batch(target, owner)
        if at is None and topic in view.stands and view.source(topic)["dropped"]:
            log.info("The table of %s is gone, and the source has dropped it too: it is not built again.", topic)
            return {}
        missing = self._missing(topic, at, view)
        for number, group in enumerate(missing):
            if at is None or group.last > at:
                self._group(owner, location, missing[: number + 1], done)
        # how it looks is asked first: if it changes in between, the next run looks closer
        looks = stamp(self._changelog, self._kind, location)
        batch = target.marker(owner.app) if target.exists() else NEVER
        return {"location": location, "stamp": looks, "batch": batch, **view.source(topic)}

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
                self._older[batch] = self._indexed(list(self._changelog.manifests(self._connector, after=batch)))
            return self._older[batch]

    def _applied_batch(self, target: Target, owner: Owner) -> int | None:
        """The last batch of a table, ``None`` if there is no table.

        :raises TargetError: it is not ours, or cannot be caught up
        """
        at = applied_batch(target, owner, adopt=owner.topic in self._adopt)
        if at is None or at <= self._last:
            return at
        last = max(self._changelog.batches(self._connector), default=0)
        if at > last:  # nor has another run applied what was captured since this one began
            raise TargetError(
                f"The table stands at batch {at}, and the change log ends with batch {last}: it is another change log, or its end is lost.",
                where=f"{target.location} ({owner})",
                safe="The table was not changed.",
                remedy="restore the change log from a backup; if it is lost for good, move the table away and run the apply again: it is "
                "built again from the batches that there are",
            )
        return at

    def _group(self, owner: Owner, location: str, groups: list[Batches], done: list[Applied]) -> None:
        """Apply the last of some groups of batches; a table that is new takes all of them."""
        for attempt in range(ATTEMPTS):
            try:
                self._attempt(owner, location, groups, done)
                return
            except Conflict as e:
                # whoever was faster may have applied the same batches: the marker tells
                log.warning(
                    "Another writer committed to the table of %s first (%d): %s", owner.topic, attempt + 1, str(e)[:200]
                )
                time.sleep(0.5 * attempt)
        raise TargetError(
            f"The table of {owner.topic} was changed by other writers {ATTEMPTS} times while it was being merged.",
            safe="The table was not changed by this run.",
            remedy="stop the other writers, then run the apply again",
        )

    def _attempt(self, owner: Owner, location: str, groups: list[Batches], done: list[Applied]) -> None:
        """Read the table's marker once, and apply what it lacks; commits are added to ``done``."""
        target = self._open(location)
        at = self._applied_batch(target, owner)
        new = at in (None, NEVER)
        if new and groups[0].first > 1:
            raise Conflict("it was removed a moment ago")
        parts = [
            part for group in (groups if new else groups[-1:]) for part in group.each(owner.topic, max(at or 0, 0))
        ]
        if not parts:
            return
        pending = joined(parts, groups[-1].last, groups[-1].position)
        if not (pending.files or pending.changes or new):
            return
        self._check(pending)
        one_by_one = not new and one_batch_at_a_time(target.spark, pending)
        for step in parts if one_by_one else [pending]:
            began = time.monotonic()
            bring_up(target, step, Marker(owner, step.last), new=new)
            done.append(
                Applied(
                    owner.topic, location, step.first, step.last, step.counts(), step.position,
                    round(time.monotonic() - began, 3),
                )
            )  # fmt: skip

    def _check(self, pending: Pending) -> None:
        """:raises ChangeLogDamaged: a file is not what its manifest says"""
        for _, file in pending.files:
            self._changelog.check(self._connector, file, crc=self._check_crc)

    def _open(self, location: str) -> Target:
        return self._format.open(own_session(self._spark, self._format), location, profile=self._profile)

    def _table_location(self, topic: str, table: TableId) -> str:
        return table_location(self._location, self._connector, topic, table)


def table_location(location: str, connector: str, topic: str, table: TableId) -> str:
    """The location of a topic's table.

    >>> table_location("/lake/{database}/{table}", "shop", "shop.inventory.orders", TableId(namespace="inventory", name="orders"))
    '/lake/inventory/orders'

    :raises ConfigError: the location has a name in braces that is not known, or would lead out of the lake
    """
    names = {"connector": connector, "topic": topic, "database": table.namespace, "table": table.name}
    try:
        found = location.format(**{k: v.replace("%", "%25").replace("/", "%2F") for k, v in names.items()})
    except (KeyError, IndexError, ValueError) as e:
        raise ConfigError(
            f"The location {location!r} cannot be used: {e} is not a name that it may have in braces. "
            f"Valid names are: {', '.join(names)}.",
            remedy="for example --location /lake/{database}/{table}",
        ) from e
    first, *others = found.rpartition("://")[2].rstrip("/").split("/")
    if {"", ".", ".."} & set(others) or first in (".", ".."):
        raise ConfigError(
            f"The table of {topic} would be at {found!r}: no part of a location may be empty, '.' or '..'.",
            safe="No table was changed.",
            remedy="leave the table out with table.exclude.list, or give names another place, for example --location /lake/{topic}",
        )
    return found


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    try:
        changelog = open_changelog(given.changelog)
        load_format(given.target)
        known_profile(given.profile)
        report = nothing_new(changelog, given.connector, given.target, given.location)
        if report is not None and not given.adopt:
            AppliedReports(changelog.storage, given.connector).write(report)
            print(f"Nothing to apply: every table of {given.connector} stands at batch {report['last_batch']}.")
            return 0
        done = _with_spark(changelog, given)
    except CdcError as e:
        print(e, file=sys.stderr)
        return 2 if isinstance(e, ConfigError) else 1
    for table in done.tables:
        print(
            f"{table.topic}: {sum(table.rows.values())} events, batches {table.first_batch} to {table.last_batch}, {table.seconds} s"
        )
    return 0


def _with_spark(changelog: ChangeLog, given: argparse.Namespace) -> Report:
    spark = session(f"cdc apply {given.connector}", load_format(given.target))
    try:
        return ApplyChanges(
            spark, changelog, given.connector, location=given.location, target=given.target, threads=given.threads,
            profile=given.profile, adopt=given.adopt, check_crc=given.check_crc,
        ).run()  # fmt: skip
    finally:
        spark.stop()


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--target", default="delta")
    parser.add_argument(
        "--profile", default="compatible",
        help="how new tables begin: compatible (most readers know them) or fast (with all features that make changes cheaper)",
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
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
