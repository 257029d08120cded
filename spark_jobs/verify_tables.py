"""Compare lakehouse tables with the source, row by row and value by value:
``spark-submit verify_tables.py --changelog … --connector … --location …``.

The rows of the source come from a change log too, the *reference*: a second connector with the same properties, another name, a scratch change log
and ``snapshot.mode=initial_only`` writes them, as they are at one position. ``airflow cdc verify`` and ``VerifyTablesOperator`` do that, and
start this job with ``--plan``: then nothing has to stand still. Each table is compared at its own last batch, with the reference and what the
connector has captured since.

Without ``--plan``, tables and source must be at the same position: stop the writers, or apply up to the position that the reference was read at. Any complete
change log can be the reference then: the rows that result from its events are compared.

Of tables that are kept by rules, which the report of the last apply has, the rows that the source has now are compared, with what the rules make of the
source's rows. Columns that tell about events are named and not compared, and so are columns that only the table has (dropped at the source, or left behind by ``type_changes: new_column``).
Where the types differ, values are compared in the wider one. Neither side has to fit into memory.

Exit status: 0 everything is equal, 1 something is not, 2 something could not be compared, and the rest is equal.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.applied import AppliedReports, routed, rules_of
from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.pending import Pending, collect
from airflow_provider_cdc.changelog.verify_plan import VerifyPlan, write_report
from airflow_provider_cdc.core.config.table_rules import Matched, TableRules
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TransientError
from spark_jobs import reduce
from spark_jobs.comparison import Comparison
from spark_jobs.datatypes import common
from spark_jobs.expected import Expected, NotComparable, Since, expected, of_reference
from spark_jobs.locations import table_location
from spark_jobs.session import open_changelog, own_session, session, suit
from spark_jobs.shaped import Shaped, matched, shaped
from spark_jobs.targets import load_format
from spark_jobs.targets.base import Owner, Pinned, Target
from spark_jobs.variants import Variants, recorded
from spark_jobs.verified import Compared, Verified

log = logging.getLogger("spark_jobs.verify_tables")

_LOOK_S = 2.0
"""Seconds between two looks at a table that is behind."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table to compare.

    :param reference: its rows at the source
    :param connector: the reference's name
    :param since: what the connector has captured since then; ``None``: the reference is all there is
    """

    reference: Pending
    connector: str
    position: dict[str, Any]
    since: Since | None = None
    at: str = ""


class VerifyTables:
    """Compares the tables of a connector with a reference.

        >>> VerifyTables(spark, ChangeLog("/scratch"), "shop-now", location="/lake/{database}/{table}").run().equal
        True

    :param changelog: of the reference
    :param connector: the reference's name; with a plan, the connector that the tables belong to
    :param location: where the tables are, as it was given to the apply
    :param tables_of: the connector that the tables belong to, where the location has ``{connector}`` in it
    :param values: whether examples show values; they may be personal data
    :param keys: folder for the keys of the rows that differ, as Parquet: one folder for each topic
    :param plan: how tables are compared while capture and apply go on
    :param source: the change log that the plan names
    :param rules: by which the apply keeps the tables; with a plan, those of the last apply's report if not given
    """

    def __init__(
        self,
        spark: SparkSession,
        changelog: ChangeLog,
        connector: str,
        *,
        location: str,
        target: str = "delta",
        tables_of: str | None = None,
        values: bool = False,
        keys: str = "",
        threads: int = 4,
        plan: VerifyPlan | None = None,
        source: ChangeLog | None = None,
        rules: TableRules | None = None,
    ) -> None:
        self._spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._tables_of, self._values = location, tables_of or connector, values
        self._kind, self._format, self._threads = target, load_format(target), threads
        self._keys, self._plan = keys.rstrip("/"), plan
        self._source, self._rules = source or changelog, rules
        self._deadline = 0.0

    def run(self) -> Verified:
        """:raises ConfigError: the reference is empty, or the folder of keys is not
        :raises ChangeLogDamaged: a file of a change log is not what its manifest says
        """
        began = time.monotonic()
        self._deadline = began + (self._plan.wait_s if self._plan else 0.0)
        self._refuse_keys()
        if self._rules is None and self._plan is not None:
            self._rules = rules_of(self._report() or {})
        tables = self._following(self._plan) if self._plan else self._at_rest()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-verify") as pool:
            results = list(pool.map(self._table, (tables[name] for name in sorted(tables))))
        results += self._left_out(tables)
        position = max(((t.connector, t.position) for t in tables.values()), key=lambda one: one[0], default=("", {}))[
            1
        ]
        results.sort(key=lambda result: result.topic)
        return Verified(self._tables_of, position, results, round(time.monotonic() - began, 3))

    def _left_out(self, tables: Collection[str]) -> list[Compared]:
        """Tables of the plan whose rows nobody has read, as they could not be compared."""
        why = self._plan.not_compared if self._plan else {}
        known = (self._report() or {"stands": {}})["stands"] if why else {}
        return [
            Compared(topic, known.get(topic, {}).get("location") or self._location, not_compared=text)
            for topic, text in why.items()
            if topic not in tables
        ]

    def _refuse_keys(self) -> None:
        if not self._keys:
            return
        path = getattr(self._spark._jvm, "org.apache.hadoop.fs.Path")(self._keys)
        files = path.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())
        if files.exists(path) and len(files.listStatus(path)):
            raise ConfigError(
                f"There is something in {self._keys} already.",
                safe="Nothing was read or changed.",
                remedy="give --keys a folder that is empty, or not there",
            )

    def _at_rest(self) -> dict[str, _Table]:
        """Topic → its table, where the reference is all there is."""
        manifests = list(self._changelog.manifests(self._connector))
        topics = collect(self._changelog, manifests)
        if not topics:
            raise self._nothing(self._connector)
        position = manifests[-1].offset_after.position or {}
        return {topic: _Table(found, self._connector, position) for topic, found in topics.items()}

    def _following(self, plan: VerifyPlan) -> dict[str, _Table]:
        """The same by a plan."""
        tables: dict[str, _Table] = {}
        for one in plan.references:
            manifests = list(self._changelog.manifests(one.name))
            if len(manifests) != one.batches:
                raise TransientError(
                    f"The scratch change log has {len(manifests)} of the {one.batches} batches that were written to it.",
                    where=f"{self._changelog.storage.url}, {one.name}",
                    safe="No table was changed.",
                    remedy="run the comparison again, and let nobody delete its scratch change log meanwhile",
                )
            found = collect(self._changelog, manifests)
            since = Since(self._source, plan.connector, one.first, straddles=one.straddles)
            tables |= {
                topic: _Table(found[topic], one.name, one.position, since, one.at)
                for topic in one.topics
                if topic in found
            }
        if not tables and not plan.not_compared:
            raise self._nothing(plan.connector)
        return tables

    def _nothing(self, connector: str) -> ConfigError:
        return ConfigError(
            f"There is nothing to compare with: the change log has no table of connector {connector}.",
            where=self._changelog.storage.url,
            remedy="capture the reference first: the same connector under another name with snapshot.mode=initial_only",
        )

    def _table(self, table: _Table) -> Compared:
        began, spark = time.monotonic(), own_session(self._spark, self._format)
        topic = table.reference.topic
        location = self._where(topic, table)
        result = Compared(topic, location, table.position, source=table.reference.events)
        for _, file in table.reference.files:
            self._changelog.check(table.connector, file)
        target = self._format.open(spark, location)
        try:
            if number := len(routed(self._report(), topic)):
                raise NotComparable(f"its rows are in {number} tables, to which a rule routes them")
            rule = matched(self._rules, table.reference.schema)
            pinned = self._pinned(target, table, result, Owner(self._tables_of, topic, bool(rule.rule.shard)))
            if pinned is not None:
                self._compare(spark, result, table, target, pinned, rule)
        except NotComparable as e:
            result.not_compared = str(e)
        except PySparkException as e:
            if reduce.ABSENT not in str(e):
                raise
            result.not_compared = (
                "the change log removes a row that the source did not have at the position at which it was read"
            )
        result.seconds = round(time.monotonic() - began, 3)
        log.info("%s: %s.", topic, "equal" if result.equal else "NOT equal")
        return result

    def _where(self, topic: str, table: _Table) -> str:
        """The location of a table; a rule may have put it elsewhere, which the report of the apply knows."""
        report = self._report()
        known = report["stands"].get(topic, {}).get("location") if report else None
        return known or table_location(self._location, self._tables_of, topic, table.reference.schema.id)

    def _report(self) -> dict[str, Any] | None:
        """What the last apply has left; ``None`` without a plan, since a reference does not tell whose tables are compared."""
        if self._plan is None:
            return None
        return AppliedReports(self._source.storage, self._tables_of).read(self._kind, self._location)

    # -- the table --------------------------------------------------------------------------------------------------------

    def _pinned(self, target: Target, table: _Table, result: Compared, owner: Owner) -> Pinned | None:
        """The state of the table that is compared: the present one, as soon as it has everything up to the reference's position.

        :raises NotComparable: it does not come there in time
        """
        topic = table.reference.topic
        while True:
            there = target.exists()
            if there and table.since is None:
                return target.pinned()
            if there and target.owner() != owner.recorded:
                result.problem = f"the table there belongs to {target.owner() or 'nobody'}"
                return None
            if there:
                pinned = target.pinned()
                marker = pinned.marker(owner.app)
                if not self._behind(table, marker):
                    result.batch, result.version = marker, pinned.version
                    return pinned
            if table.since is None or (not there and self._applied(topic) >= table.since.reached):
                result.problem = "there is no such table"
                return None
            if time.monotonic() >= self._deadline:
                raise NotComparable(self._late(table, marker if there else None))
            time.sleep(_LOOK_S)

    def _behind(self, table: _Table, marker: int) -> bool:
        """Whether a table with this last batch lacks something from before the position."""
        since, topic = table.since, table.reference.topic
        assert since is not None
        if marker >= since.reached or self._applied(topic, marker) >= since.reached:
            return False
        return since.lacks(topic, marker)

    def _applied(self, topic: str, marker: int | None = None) -> int:
        """The batch up to which an apply has found nothing more to do for a table; -1 if that is not known.

        :param marker: the table's last batch now
        """
        report = self._report()
        if report is None or topic in report["failed"] or topic in report["lagging"]:
            return -1
        stand = report["stands"].get(topic)
        if marker is not None and (stand is None or stand.get("batch") != marker):
            return -1
        return int(report["last_batch"])

    def _late(self, table: _Table, marker: int | None) -> str:
        assert table.since is not None
        assert self._plan is not None
        stands = "is not there" if marker is None else f"stands at batch {marker}"
        return (
            f"the apply has not brought it to batch {table.since.reached} within {self._plan.wait_s:.0f} s, which has the position at which "
            f"the source was read ({table.at}); it {stands}: run the apply, then verify it again"
        )

    # -- its rows ---------------------------------------------------------------------------------------------------------

    def _expected(self, spark: SparkSession, table: _Table, last: int) -> Expected:
        """The rows that the table ought to have at some batch."""
        if table.since is None:
            return of_reference(spark, table.reference)
        for part in table.since.parts(table.reference.topic, last):
            for _, file in part.files:
                table.since.changelog.check(table.since.connector, file)
        return expected(spark, table.reference, table.since, last)

    def _compare(
        self, spark: SparkSession, result: Compared, table: _Table, target: Target, pinned: Pinned, rule: Matched
    ) -> None:
        suit(spark, table.reference.bytes + target.size())
        last = 0 if table.since is None else max(result.batch or 0, table.since.reached)
        wanted = self._expected(spark, table, last)
        kept = shaped(
            spark, rule, self._tables_of, result.topic, wanted.schema, target.rule(), known=self._rules is not None
        )
        kept = kept.with_variants(_variants(target, pinned))
        rows, found = kept.made_of(wanted.rows), kept.live(pinned.rows)
        types = self._types(result, kept, pinned)
        if result.problem:
            result.source, result.target = rows.count(), found.count()
        else:
            comparison = Comparison(rows, found, types, kept.key, wanted.rows_about, kept.key_at_source)
            keys = f"{self._keys}/{result.topic}" if self._keys else ""
            comparison.compare(result, values=self._values, keys=keys)
            result.aside = kept.aside(pinned.rows)
        if table.since is not None and (result.problem or result.rows_differ):
            self._settled(result, table, last)

    def _types(self, result: Compared, kept: Shaped, pinned: Pinned) -> dict[str, str]:
        """Column → the type in which it is compared. What is the matter with columns is put into the result."""
        there = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in pinned.rows.schema.fields}
        types, problems = dict[str, str](), list[str]()
        for name, type_ in kept.types.items():
            other = there.pop(name.lower(), None)
            compared = common(type_, other[1]) if other else None
            if other is None:
                problems.append(f"the table has no column {name}")
            elif compared is None:
                problems.append(f"column {name} is {type_} at the source and {other[1]} in the table")
            else:
                types[name] = compared
        result.by_rule = kept.by_rule
        result.told = [name for name in kept.told if there.pop(name.lower(), None)]
        result.only_in_table = sorted(name for name, _ in there.values())
        result.problem = "; ".join(problems)
        return types

    def _settled(self, result: Compared, table: _Table, last: int) -> None:
        """
        :raises NotComparable: the table may differ, as the connector has not finished to read it
        """
        assert table.since is not None
        if why := table.since.unsettled(str(table.reference.schema.id), last):
            text = f"{why}, so that rows may be behind those of the source: verify it again when that is over ({result.problem or _differs(result)})"
            result.problem, result.missing, result.surplus, result.different = "", 0, 0, 0
            result.differing, result.examples = {}, []
            raise NotComparable(text)


def _variants(target: Target, pinned: Pinned) -> dict[str, str]:
    """Column of the source → the table's column that it goes on in. What has been recorded a moment ago may not be there yet."""
    owner = target.owner()
    known = recorded(target, owner.app) if owner is not None else Variants()
    return {column: name for column, name in known.at(known.until).items() if name in pinned.rows.columns}


def _differs(result: Compared) -> str:
    return f"{result.missing:,} rows are missing, {result.surplus:,} surplus, {result.different:,} different"


def main(arguments: list[str] | None = None) -> int:
    given = _arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    try:
        changelog, kind = open_changelog(given.changelog), load_format(given.target)
        plan = VerifyPlan.read(changelog.storage) if given.plan else None
        spark = session(f"cdc verify {given.connector}", kind)
        try:
            job = VerifyTables(
                spark, changelog, given.connector, location=given.location, target=given.target,
                tables_of=given.tables_of, values=given.values, keys=given.keys, threads=given.threads, plan=plan,
                source=open_changelog(plan.changelog) if plan else None,
                rules=TableRules.parse(given.rules) if given.rules else None,
            )  # fmt: skip
            verified = job.run()
        finally:
            spark.stop()
    except CdcError as e:
        print(e, file=sys.stderr)
        return 2
    print(verified.text())
    if given.json:
        given.json.write_bytes(orjson.dumps(verified.document(), option=orjson.OPT_INDENT_2))
    if plan is not None:
        write_report(changelog.storage, verified.document())
    return verified.status


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changelog", required=True, help="folder or object store prefix of the reference's change log"
    )
    parser.add_argument(
        "--connector", required=True, help="name of the reference's connector; with --plan, whose tables they are"
    )
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--tables-of", metavar="CONNECTOR", help="fills {connector} in the location")
    parser.add_argument("--target", default="delta", help="kind of the tables: delta (default) or iceberg")
    parser.add_argument("--threads", type=int, default=4, help="tables compared at the same time")
    parser.add_argument(
        "--plan", action="store_true", help="the change log has a plan, as airflow cdc verify makes one: nothing has to stand still"
    )  # fmt: skip
    parser.add_argument(
        "--values", action="store_true", help="show values of rows that differ; they may be personal data"
    )
    parser.add_argument(
        "--keys", default="", metavar="FOLDER", help="write the keys of rows that differ there, as Parquet; a folder for each topic"
    )  # fmt: skip
    parser.add_argument(
        "--rules", default="", help="rules of tables that the apply has, as JSON or YAML, or a file with them; with --plan, those of the last apply if not given"
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to a file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
