"""Build tables again from the change log: ``spark-submit rebuild_tables.py --changelog … --connector … --location … --topic …``.

A table is built *in its place*, as of its own last batch: one commit replaces its rows, and leaves its columns and its last batch as they are.
That repairs rows that somebody has changed. Readers see the old rows or the new ones. Capture and apply go on; if an apply commits to the table
meanwhile, the table is built again as of that batch.

With ``--to`` it is built *beside*, at another location, as of any batch. That table has the same owner, and the batch as its last one.

The change log has to begin with batch 1: the events before are in no other place.
Tables that are kept by a rule, and columns that the source has dropped, cannot be built again in their place.

Exit status: 0 all tables are built, 1 one is not, 2 an argument is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import time
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.applied import AppliedReports, routed
from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.pending import Batches, Pending
from airflow_provider_cdc.changelog.rebuilt import RebuildReports
from airflow_provider_cdc.core.errors import CdcError, ChangeLogDamaged, ConfigError, TargetError
from spark_jobs import reduce
from spark_jobs.datatypes import common, quoted
from spark_jobs.last import UNKNOWN
from spark_jobs.locations import table_location
from spark_jobs.session import open_changelog, own_session, session, suit
from spark_jobs.targets import load_format
from spark_jobs.targets.base import NEVER, Conflict, Marker, Owner, Target

log = logging.getLogger("spark_jobs.rebuild_tables")

ATTEMPTS = 6
_UNTOUCHED = "The table was not changed."


@dataclasses.dataclass(frozen=True, slots=True)
class Rebuilt:
    """One table.

    :param batch: its last batch
    """

    topic: str
    location: str
    batch: int
    seconds: float


class RebuildTables:
    """Builds tables of a connector again.

        >>> RebuildTables(spark, ChangeLog("/changelog"), "shop", location="/lake/{database}/{table}").run(["shop.inventory.orders"])
        [Rebuilt(topic='shop.inventory.orders', location='/lake/inventory/orders', batch=1203, seconds=4.2)]

    :param location: where the tables are, as it was given to the apply
    :param to: where to build them; in their places if it is empty
    :param batch: the last batch to build from; only with ``to``, the newest if not given
    :raises ConfigError: a batch is given without ``to``, or both locations are one
    :ivar done: the tables that are built
    """

    def __init__(
        self,
        spark: SparkSession,
        changelog: ChangeLog,
        connector: str,
        *,
        location: str,
        to: str = "",
        batch: int | None = None,
        target: str = "delta",
    ) -> None:
        if batch is not None and not to:
            raise ConfigError(
                f"A table can be built as of batch {batch} only beside the one that there is: in its place it would be behind what the apply has done.",
                safe=_UNTOUCHED,
                remedy="say where with --to, for example --to /lake/rebuilt/{database}/{table}",
            )
        if to == location:
            raise ConfigError(
                f"--to and --location are both {to}.",
                safe=_UNTOUCHED,
                remedy="give another location, or leave --to out to build the tables in their places",
            )
        self.done: list[Rebuilt] = []
        self._changelog, self._connector = changelog, connector
        self._location, self._to, self._batch = location, to, batch
        self._format = load_format(target)
        self._spark = own_session(spark, self._format)

    def run(self, topics: Collection[str]) -> list[Rebuilt]:
        """Build the tables of some topics, one after the other.

        :param topics: topics, or names of tables at the source
        :raises ConfigError: there is no such topic or batch; nothing is built
        :raises ChangeLogDamaged: the change log does not begin with batch 1, or lacks something; tables before this one are built
        :raises TargetError: a table cannot be built; tables before it are
        """
        newest = self._newest()
        whole = Batches(self._changelog, list(self._changelog.manifests(self._connector, until=newest)))
        by_table = {str(whole.table(topic)): topic for topic in sorted(whole.topics)}
        topics = [name if name in whole.topics else by_table.get(name, name) for name in topics]
        if unknown := sorted(set(topics) - whole.topics):
            raise ConfigError(
                f"Up to batch {newest}, the change log of {self._connector} has no topic {', '.join(unknown)}.",
                safe="No table was changed.",
                remedy=f"topics are: {', '.join(sorted(whole.topics)[:20])}",
            )
        for topic in topics:
            self.done.append(self._table(topic, whole))
        return self.done

    def _newest(self) -> int:
        """The last batch to build from."""
        numbers = self._changelog.batches(self._connector)
        if not numbers:
            raise ConfigError(
                f"The change log {self._changelog.storage.url} has no batch of connector {self._connector}.",
                safe="No table was changed.",
                remedy="check --changelog and --connector; airflow cdc connectors lists them",
            )
        if numbers[0] > 1:
            raise ChangeLogDamaged(
                f"The change log begins with batch {numbers[0]}: batches 1 to {numbers[0] - 1} are missing, and a table cannot be built without them.",
                where=f"{self._changelog.storage.url}, connector {self._connector}",
                safe="No table was changed.",
                remedy="restore their manifests and files from a backup; or read the tables again: airflow cdc snapshot "
                f"{self._connector} <table>",
            )
        if self._batch is not None and self._batch not in numbers:
            raise ConfigError(
                f"There is no batch {self._batch}: the change log of {self._connector} has batches 1 to {numbers[-1]}.",
                safe="No table was changed.",
                remedy=f"airflow cdc batches {self._connector} lists them with their positions and times",
            )
        return self._batch or numbers[-1]

    def _table(self, topic: str, whole: Batches) -> Rebuilt:
        table = whole.table(topic)
        assert table is not None
        began, owner = time.monotonic(), Owner(self._connector, topic)
        location = table_location(self._to or self._location, self._connector, topic, table)
        if not self._to:
            self._refuse_routed(topic)
        target = self._format.open(self._spark, location)
        batch = self._beside(target, owner, whole) if self._to else self._in_place(target, owner)
        log.info("The table of %s at %s is built as of batch %d.", topic, location, batch)
        return Rebuilt(topic, location, batch, round(time.monotonic() - began, 3))

    def _refuse_routed(self, topic: str) -> None:
        """:raises TargetError: a rule brings the rows of the topic to several tables"""
        report = AppliedReports(self._changelog.storage, self._connector).read(self._format.kind, self._location)
        if places := routed(report, topic):
            raise TargetError(
                f"The rows of {topic} are in {len(places)} tables, to which a rule routes them, and only the apply builds such tables.",
                where=", ".join(places[:20]),
                safe=_UNTOUCHED,
                remedy="move the table that is to be built again away, and run the apply; or build one table of all rows beside with --to",
            )

    def _beside(self, target: Target, owner: Owner, whole: Batches) -> int:
        found = "a table is there already" if target.exists() else target.strange(owner)
        if found:
            raise TargetError(
                f"The table of {owner.topic} cannot be built there: {found}.",
                where=target.location,
                safe="Nothing was changed there.",
                remedy="give another location with --to, or move away what is there",
            )
        pending = whole.of(owner.topic)
        assert pending is not None
        target.create(self._contents(pending), Marker(owner, whole.last))
        return whole.last

    def _in_place(self, target: Target, owner: Owner) -> int:
        for attempt in range(ATTEMPTS):
            batch = self._last_batch(target, owner)
            manifests = list(self._changelog.manifests(self._connector, until=batch))
            pending = Batches(self._changelog, manifests).of(owner.topic)
            assert pending is not None
            rows = _like(self._contents(pending), target, owner)
            try:
                target.rebuild(rows, Marker(owner, batch))
            except Conflict as e:
                log.warning("Another writer committed to %s first (%d): %s", target.location, attempt + 1, str(e)[:200])
                continue
            return batch
        raise TargetError(
            f"The table of {owner.topic} was changed by other writers {ATTEMPTS} times while it was being built.",
            where=target.location,
            safe="The table was not changed by this run.",
            remedy="let no apply run meanwhile, then build it again; capture may go on",
        )

    def _last_batch(self, target: Target, owner: Owner) -> int:
        """The last batch of a table that can be built in its place."""
        remedy = "run the apply: it builds the table from the change log"
        if not target.exists():
            raise TargetError(
                f"There is no table of {owner.topic}.", where=target.location, safe=_UNTOUCHED, remedy=remedy
            )
        if target.owner() != owner:
            raise TargetError(
                f"The table there belongs to {target.owner() or 'nobody'}, and not to {owner} alone.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy="check --location, --connector and --target",
            )
        if target.rule():
            raise TargetError(
                f"The table of {owner.topic} is kept by a rule, and only the apply builds such tables.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy=f"move the table away and {remedy}",
            )
        batch, last = target.marker(owner.app), self._changelog.batches(self._connector)[-1]
        if not NEVER < batch <= last:
            raise TargetError(
                f"The table stands at batch {batch}, and the change log ends with batch {last}.",
                where=target.location,
                safe=_UNTOUCHED,
                remedy="restore the change log from a backup, or check --changelog",
            )
        return batch

    def _contents(self, pending: Pending) -> DataFrame:
        for _, file in pending.files:
            self._changelog.check(self._connector, file)
        suit(self._spark, pending.bytes)
        return reduce.contents(self._spark, pending, reduce.last_truncate(self._spark, pending)).drop(UNKNOWN)


def _like(rows: DataFrame, target: Target, owner: Owner) -> DataFrame:
    """Rows with the columns of the table.

    :raises TargetError: the table has other columns, or a column has no room for its values
    """
    given = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in rows.schema.fields}
    selected, problems = [], []
    for name, there in target.columns().items():
        column, type_ = given.pop(name.lower(), ("", ""))
        if not column:
            problems.append(f"the change log has no column {name} any more")
        elif common(type_, there) != there:
            problems.append(f"column {name} is {there} in the table, and {type_} in the change log")
        else:
            selected.append(F.col(quoted(column)).cast(there).alias(name))
    problems += [f"the table has no column {name}" for name, _ in given.values()]
    if problems:
        raise TargetError(
            f"The table of {owner.topic} cannot be built in its place: {'; '.join(problems)}.",
            where=target.location,
            safe=_UNTOUCHED,
            remedy="build it beside with --to, or move the table away and run the apply: both give the columns that the source has, "
            "and no values of columns that it has dropped",
        )
    return rows.select(*selected)


def main(arguments: list[str] | None = None) -> int:
    given, began = _arguments(arguments), time.monotonic()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    done: list[Rebuilt] = []
    problem: CdcError | None = None
    try:
        changelog, kind = open_changelog(given.changelog), load_format(given.target)
        spark = session(f"cdc rebuild {given.connector}", kind)
        try:
            job = RebuildTables(
                spark, changelog, given.connector, location=given.location, to=given.to, batch=given.batch, target=given.target,
            )  # fmt: skip
            done = job.done
            job.run(given.topic)
        except CdcError as e:
            problem = e
        finally:
            spark.stop()
        report = {
            "connector": given.connector, "target": given.target, "location": given.location, "run": given.run_id,
            "tables": [dataclasses.asdict(table) for table in done], "problem": str(problem or ""),
            "seconds": round(time.monotonic() - began, 3),
        }  # fmt: skip
        RebuildReports(changelog.storage, given.connector).write(report)
    except CdcError as e:
        problem = problem or e
    for table in done:
        print(f"{table.topic}: built as of batch {table.batch} at {table.location}, {table.seconds} s")
    if problem is None:
        return 0
    print(problem, file=sys.stderr)
    return 2 if isinstance(problem, ConfigError) else 1


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument(
        "--topic", required=True, action="append",
        help="whose table is built: a topic, or <database>.<table>; may be given repeatedly",
    )  # fmt: skip
    parser.add_argument(
        "--to", default="", metavar="LOCATION", help="build the tables there, beside those at --location"
    )
    parser.add_argument("--batch", type=int, help="with --to: the last batch to build from; the newest if not given")
    parser.add_argument("--target", default="delta", help="kind of the tables: delta (default) or iceberg")
    parser.add_argument("--run-id", default="", help="goes into the report")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
