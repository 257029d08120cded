"""Rebuild tables from the change log.

The command is ``spark-submit rebuild_tables.py --changelog … --connector … --location … --topic …``.

By default, the job rebuilds a table *in its place*, as of the table's last batch: one commit replaces its rows, and keeps its columns and its last batch.
That repairs rows that another program has changed. Readers see either the old rows or the new rows. Capture and apply continue; if an apply commits to
the table meanwhile, the job rebuilds the table again as of that batch. The job creates a table again if it no longer exists.

With ``--to``, the job builds the table at another location, as of any batch. That table has the same owner, and the batch as its last one.

The rows are the same as after an apply that starts at batch 1 without a table and uses the rules of the last apply. Where a route sends the rows of a source
table to several tables, the job rebuilds all of them, or only the table with the given location. Each table is a separate commit.

The change log must start with batch 1, because no other place contains the earlier events.
The job cannot rebuild these tables in their place: tables that several source tables share, and tables with columns that the source has dropped or that
continue in new columns.

Exit status: 0 all tables are rebuilt, 1 a table failed, 2 an argument is wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import time
from collections.abc import Collection
from datetime import datetime
from typing import cast

from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.rebuild_report_store import RebuildReports
from airflow_provider_cdc.changelog.reports.table_job_reports import RebuildReport, TableRebuilt
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from airflow_provider_cdc.targets.lake.apply.job_progress_reporter import JobTableProgress
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.rebuild.full_change_log import FullChangeLog
from airflow_provider_cdc.targets.lake.rebuild.rebuild_placement import InPlaceRebuild, SeparateRebuild
from airflow_provider_cdc.targets.lake.rebuild.tables_to_rebuild import RebuildTargets
from airflow_provider_cdc.targets.lake.session.spark_session import open_changelog, open_spark_session, own_session

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.rebuild_tables")
_UNTOUCHED = "The table was not changed."


@dataclasses.dataclass(frozen=True, slots=True)
class RebuiltTable:
    """Result of the rebuild of one table.

    :param batch: its last batch
    :param name: its name, if a route makes several of its topic
    """

    topic: str
    location: str
    batch: int
    seconds: float
    name: str = ""

    def to_document(self) -> TableRebuilt:
        """Return the entry of the report."""
        return cast("TableRebuilt", dataclasses.asdict(self))


class RebuildTables:
    """Builds tables of a connector again.

        >>> RebuildTables(spark, ChangeLog("/changelog"), "shop", location="/lake/{database}/{table}").run(["shop.inventory.orders"])
        [Rebuilt(topic='shop.inventory.orders', location='/lake/inventory/orders', batch=1203, seconds=4.2, name='')]

    :param location: where the tables are, as it was given to the apply
    :param to: where to build them; in their places if it is empty
    :param batch: the last batch to build from; only with ``to``, the newest if not given
    :param time: the same, as the time by which it was committed to the change log
    :param rules: by which tables are kept; those of the last apply if not given
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
        time: datetime | None = None,
        target: str = "delta",
        rules: TableRules | None = None,
    ) -> None:
        if (batch is not None or time is not None) and not to:
            as_of = f"batch {batch}" if time is None else f"{time}"
            raise ConfigError(
                f"A table can be built as of {as_of} only at another location: in its own place, it would lack batches that the apply has already applied.",
                safe=_UNTOUCHED,
                remedy="give another location with --to, for example --to /lake/rebuilt/{database}/{table}",
            )
        if batch is not None and time is not None:
            raise ConfigError(
                "A table is built as of a batch or as of a time, not both.",
                safe=_UNTOUCHED,
                remedy="leave out --batch or --time",
            )
        if to == location:
            raise ConfigError(
                f"--to and --location are both {to}.",
                safe=_UNTOUCHED,
                remedy="give another location, or leave out --to to rebuild the tables in their places",
            )
        self.done: list[RebuiltTable] = []
        self._changelog, self._connector = changelog, connector
        self._to, self._batch, self._time = to, batch, time
        self._where = target, location
        self._format = load_format(target)
        self._spark = own_session(spark, self._format)
        self._places = RebuildTargets(changelog, connector, target, location, rules)

    def run(self, names: Collection[str]) -> list[RebuiltTable]:
        """Build some tables, one after the other.

        :param names: topics, or names of tables at the source, of which all tables are built; or the location of one of the tables of a route
        :raises ConfigError: there is no such table or batch; nothing is built
        :raises ChangeLogDamaged: the change log does not begin with batch 1, or lacks something; tables before this one are built
        :raises TargetError: a table cannot be built; if that can be seen before, none is, otherwise those before it are
        """
        whole = FullChangeLog(self._changelog, self._connector, batch=self._batch, time=self._time)
        until = whole.last_batch if self._to else self._places.find_last_applied_batch(whole)
        tables = self._places.resolve_tables(self._spark, list(names), whole, until, only_new=bool(self._to))
        if self._to:
            tables = self._places.relocate_tables(tables, self._to, whole)
        way = self._way(whole)
        for table in tables:
            way.check_table(table)
        with JobTableProgress.from_job(
            "Rebuild", len(tables), self._changelog, self._connector, *self._where
        ) as progress:
            for table in tables:
                began = time.monotonic()
                progress.start_table(table.topic)
                batch = way.build_table(table)
                log.info("The table of %s at %s is built as of batch %d.", table.topic, table.location, batch)
                name = "" if table.place is None else f"{table.topic} → {table.location}"
                self.done.append(
                    RebuiltTable(table.topic, table.location, batch, round(time.monotonic() - began, 3), name)
                )
                progress.release_table(table.topic)
                progress.count_finished_table()
        return self.done

    def _way(self, whole: FullChangeLog) -> InPlaceRebuild | SeparateRebuild:
        return (SeparateRebuild if self._to else InPlaceRebuild)(self._spark, self._format, whole, self._places)


def main(arguments: list[str] | None = None) -> int:
    args, began = _arguments(arguments), time.monotonic()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    done: list[RebuiltTable] = []
    problem: CdcError | None = None
    try:
        changelog, kind = open_changelog(args.changelog), load_format(args.target)
        spark = open_spark_session(f"cdc rebuild {args.connector}", kind)
        try:
            job = RebuildTables(
                spark, changelog, args.connector, location=args.location, to=args.to, batch=args.batch, time=args.time,
                target=args.target, rules=TableRules.parse(args.rules) if args.rules else None,
            )  # fmt: skip
            done = job.done
            job.run(args.topic)
        except CdcError as e:
            problem = e
        finally:
            spark.stop()
        report: RebuildReport = {
            "connector": args.connector, "target": args.target, "location": args.location, "run": args.run_id,
            "tables": [table.to_document() for table in done], "problem": str(problem or ""),
            "seconds": round(time.monotonic() - began, 3),
        }  # fmt: skip
        RebuildReports(changelog.storage, args.connector).write(report)
    except CdcError as e:
        problem = problem or e
    for table in done:
        print(f"{table.name or table.topic}: built as of batch {table.batch} at {table.location}, {table.seconds} s")
    if problem is None:
        return 0
    print(problem, file=sys.stderr)
    return 2 if isinstance(problem, ConfigError) else 1


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changelog", required=True, help="folder or object store prefix of the change log")
    parser.add_argument("--connector", required=True)
    parser.add_argument(
        "--location", required=True, help="location of the tables, for example /lake/{database}/{table}"
    )
    parser.add_argument(
        "--topic", required=True, action="append",
        help="table to rebuild: a topic, or <database>.<table>, which for a topic with a route means all of its tables; or the location of one table of a route; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--to", default="", metavar="LOCATION",
        help="build the tables at this location, beside the tables at --location; {place} distinguishes the tables of a route",
    )  # fmt: skip
    parser.add_argument("--batch", type=int, help="with --to: the last batch to build from (default: the newest batch)")
    parser.add_argument(
        "--time", type=datetime.fromisoformat, help="with --to: build from the batches that were committed to the change log by this time, such as 2026-03-01T12:00:00+00:00"
    )  # fmt: skip
    parser.add_argument(
        "--rules", default="", help="table rules, as JSON or YAML, or a file with them (default: the rules of the last apply)"
    )  # fmt: skip
    parser.add_argument("--target", default="delta", help="table format: delta (default) or iceberg")
    parser.add_argument("--run-id", default="", help="run ID to store in the report")
    return parser.parse_args(arguments)
