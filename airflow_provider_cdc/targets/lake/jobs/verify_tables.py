"""Verify lakehouse tables: compare them with the source, row by row and value by value.

The command is ``spark-submit verify_tables.py --changelog … --connector … --location …``.

The rows of the source come from another change log, the *reference*: a second connector with the same properties, another name, a scratch change log
and ``snapshot.mode=initial_only`` writes them, as of one position. ``airflow cdc verify`` and ``VerifyTablesOperator`` do that, and
start this job with ``--plan``: capture and apply may then continue. The job compares each table, at its last batch, with the reference and the
changes that the connector has captured since.

Without ``--plan``, tables and source must be at the same position: stop the writers, or apply up to the position of the reference. Any complete
change log can then be the reference: the job compares the rows that result from its events. The report of the last apply, in the change log of the connector of
the tables, contains rules and routes: ``--applied`` gives this change log, and ``--tables-of`` the name of the connector. Without ``--applied``, the job reports tables
with a rule as not compared.

For tables with rules, which the report of the last apply contains, the job applies the rules to the source rows and compares the result with the current rows of
the table. Where a route sends the rows of a source table to several tables, the job compares each of them with its own rows. The job reports, but does not compare,
columns that describe events and columns that only the table has (dropped at the source, or left behind by ``type_changes: new_column``). Where the types differ, it
compares values in the wider type. Neither side has to fit into memory.

Exit status: 0 everything that can be compared is equal, 1 something is not, 2 something could not be compared, and the rest is equal. Tables with events as rows
(mode ``log``, outboxes) can never be compared: the job reports them, and counts them only if the user has named them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import orjson
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report_store import rules_of
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES, MatchedRule, TableRules
from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, ConfigError, TargetError
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.targets.lake.apply.job_progress_reporter import JobTableProgress
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.jvm_errors import describe_causes
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Owner
from airflow_provider_cdc.targets.lake.formats.table_values import PinnedTableState
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.formats.target_roles import TargetIdentity
from airflow_provider_cdc.targets.lake.jobs.verify_arguments import parse_arguments
from airflow_provider_cdc.targets.lake.rows.multiset_rewrite import ABSENT
from airflow_provider_cdc.targets.lake.rules.topic_target import TargetTable
from airflow_provider_cdc.targets.lake.schema.column_successors import ColumnVariants, read_recorded_variants
from airflow_provider_cdc.targets.lake.session.spark_session import (
    open_changelog,
    open_spark_session,
    own_session,
    tune_session,
)
from airflow_provider_cdc.targets.lake.types.spark_types import find_common_type
from airflow_provider_cdc.targets.lake.verify.compared_table_progress import VerifiedTables
from airflow_provider_cdc.targets.lake.verify.projected_table import (
    ProjectedTable,
    build_projected_table,
    match_rule,
)
from airflow_provider_cdc.targets.lake.verify.reference_loader import at_rest, load_plan_references
from airflow_provider_cdc.targets.lake.verify.routed_tables import tables_of
from airflow_provider_cdc.targets.lake.verify.row_comparison import RowComparison
from airflow_provider_cdc.targets.lake.verify.source_reference import SourceReference
from airflow_provider_cdc.verify.batches_after_reference import NeverComparable, NotComparable
from airflow_provider_cdc.verify.verification_documents import VerificationPlan, write_report
from airflow_provider_cdc.verify.verification_report import TableVerification, VerificationReport

log = logging.getLogger("airflow_provider_cdc.targets.lake.jobs.verify_tables")


@dataclass(frozen=True, slots=True)
class _ComparedTable:
    """A table to compare.

    :param spark: the session of its topic
    :param keys: folder for the keys of rows that differ, below that of all of them
    :param upto: of one of the tables of a route, the batch at which they are compared if nothing of it came since its last one
    """

    source_reference: SourceReference
    placed: TargetTable
    spark: SparkSession
    keys: str
    upto: int = -1


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
    :param plan: how tables are compared while capture and apply continue
    :param source: the change log that the plan names; without a plan, the one of the connector that the tables belong to, which has the report of its last
        apply: which rules there are, and which tables a route has made
    :param rules: by which the apply keeps the tables; those of the last apply's report if not given
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
        plan: VerificationPlan | None = None,
        source: ChangeLog | None = None,
        rules: TableRules | None = None,
    ) -> None:
        self._spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._tables_of, self._values = location, tables_of or connector, values
        self._kind, self._format, self._threads = target, load_format(target), threads
        self._keys, self._plan = keys.rstrip("/"), plan
        self._source, self._rules = source or changelog, rules
        self._standing = VerifiedTables(plan, self._source, self._tables_of, target, location)
        self._progress, self._identity = JobTableProgress(), ""

    def run(self) -> VerificationReport:
        """Compare the tables.

        :raises ConfigError: the reference is empty, or the folder of keys is not
        :raises ChangeLogDamaged: a file of a change log differs from its manifest
        """
        began = time.monotonic()
        self._refuse_keys()
        self._identity = self._source.read_identity(self._tables_of)
        report = self._standing.read_report()
        if self._rules is None and (self._plan is not None or report is not None):
            self._rules = NO_RULES if report is None else rules_of(report)
        topics = self._load_references()
        try:
            results = self._all(topics) + self._left_out(topics)
        finally:
            for source_reference in topics.values():
                source_reference.release_cached_rows()
        position = max(
            ((t.connector, t.position) for t in topics.values()), key=lambda pair: pair[0], default=("", {})
        )[1]
        results.sort(key=lambda result: (result.topic, result.display_name))
        named = self._plan is not None and self._plan.named
        return VerificationReport(self._tables_of, position, results, round(time.monotonic() - began, 3), named)

    def _load_references(self) -> dict[str, SourceReference]:
        """Return for each topic the reference of its tables."""
        if self._plan is None:
            return at_rest(self._changelog, self._connector)
        return load_plan_references(self._changelog, self._plan, self._source)

    def _all(self, topics: Mapping[str, SourceReference]) -> list[TableVerification]:
        results, tables = list[TableVerification](), list[Future[TableVerification]]()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-verify")
        where = self._kind, self._location
        self._progress = JobTableProgress.from_job("Verify", len(topics), self._source, self._tables_of, *where)
        with self._progress:
            try:
                for look in as_completed([pool.submit(self._tables, topics[name]) for name in sorted(topics)]):
                    outcome = look.result()
                    if isinstance(outcome, TableVerification):
                        results.append(outcome)
                        self._progress.count_finished_table()
                    else:
                        self._progress.tables += len(outcome) - 1
                        tables += [pool.submit(self._table, table) for table in outcome]
                return results + [future.result() for future in tables]
            finally:
                pool.shutdown(cancel_futures=True)

    def _left_out(self, tables: Collection[str]) -> list[TableVerification]:
        """Return results for the tables of the plan whose rows were not read, as they could not be compared."""
        why = self._plan.not_compared if self._plan else {}
        report = self._standing.read_report() if why else None
        table_states = {} if report is None else report["table_states"]
        locations = {topic: state["location"] for topic, state in table_states.items()}
        return [
            TableVerification(topic, locations.get(topic) or self._location, not_compared=text, never=True)
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
                f"The folder {self._keys} is not empty.",
                safe="Nothing was read or changed.",
                remedy="give --keys an empty folder or a folder that does not exist",
            )

    # -- which tables -------------------------------------------------------------------------------------------------

    def _tables(self, source_reference: SourceReference) -> list[_ComparedTable] | TableVerification:
        """Return the tables of a topic, or the result of one that cannot be compared or needs no table.

        Such a result says that the tables cannot be compared, or that there are none, as they need not be.
        """
        source_reference.check_files()
        topic, id_ = source_reference.topic, source_reference.reference.schema.id
        spark, routed_tables = own_session(self._spark, self._format), self._standing.list_routed_tables(topic)
        if not (routed_tables or (self._rules is not None and self._rules.select_rule(id_).is_routed)):
            placed = TargetTable(topic, topic, self._standing.resolve_location(topic, id_, self._rules))
            return [_ComparedTable(source_reference, placed, spark, topic)]
        result = TableVerification(topic, self._location, source_reference.position)
        try:
            return self._places(spark, source_reference) or result
        except (NotComparable, *_TROUBLE) as e:
            _not_compared(result, e)
            return result

    def _places(self, spark: SparkSession, source_reference: SourceReference) -> list[_ComparedTable]:
        """Return the tables of a topic with a route.

        :raises NotComparable: it is not known which they are
        """
        rule, topic = match_rule(self._rules, source_reference.reference.schema).rule, source_reference.topic
        # the known ones are not compared either: the report would be silent about all others
        if self._rules is None or self._standing.read_report() is None:
            raise NotComparable(
                "its rows are in several tables, and only the report of the last apply lists them: set --applied to the change log with this report, "
                f"or run `{name_cdc_command('verify')}`"
            )
        if not rule.is_routed:
            raise NotComparable(
                "the last apply had a rule with a route for it, but the given rules have no route for it"
            )
        upto = 0 if source_reference.later_changes is None else self._standing.wait_for_routes(source_reference)
        tune_session(spark, 2 * source_reference.reference.file_bytes)  # its tables together are about as large
        there = source_reference.load_cached_rows(spark, upto)
        tables = tables_of(
            spark, self._rules, self._tables_of, self._location, topic, there, self._standing.list_routed_tables(topic)
        )
        return [
            _ComparedTable(source_reference, table, spark, f"{topic}/place={n}", upto)
            for n, table in enumerate(tables, start=1)
        ]

    # -- one table ----------------------------------------------------------------------------------------------------

    def _table(self, table: _ComparedTable) -> TableVerification:
        began, placed, source_reference = time.monotonic(), table.placed, table.source_reference
        self._progress.start_table(placed.name)
        result = TableVerification(
            placed.topic, placed.location, source_reference.position, source=source_reference.reference.event_count
        )
        if placed.place is not None:
            result.name, result.source = placed.name, 0
        try:
            rule = match_rule(self._rules, source_reference.reference.schema)
            target = self._opened(table)
            owner = Owner(self._tables_of, placed.topic, bool(rule.rule.shard), self._identity)
            pinned = self._standing.wait_for_table(target, source_reference, placed.name, result, owner)
            if pinned is not None:
                self._compare(result, table, target, pinned, rule)
        except (NotComparable, *_TROUBLE) as e:  # the other tables are compared all the same
            if result.rows_differ:  # that is known
                raise
            _not_compared(result, e)
        self._progress.release_table(placed.name)
        self._progress.count_finished_table()
        result.seconds = round(time.monotonic() - began, 3)
        log.info("%s: %s.", placed.name, "equal" if result.is_equal else "NOT equal")
        return result

    def _opened(self, table: _ComparedTable) -> Target:
        """Open a table.

        :raises NotComparable: no table can be there
        """
        try:
            return self._format.open_target(table.spark, table.placed.location)
        except CdcError as e:
            raise NotComparable(e.message) from e

    def _compare(
        self,
        result: TableVerification,
        table: _ComparedTable,
        target: Target,
        pinned: PinnedTableState,
        rule: MatchedRule,
    ) -> None:
        spark, source_reference, place = table.spark, table.source_reference, table.placed.place
        last = 0 if source_reference.later_changes is None else max(result.batch or 0, source_reference.reached_batch)
        if place is None:
            tune_session(spark, source_reference.reference.file_bytes + target.count_file_bytes())
        elif last < table.upto <= self._standing.find_applied_batch(result.topic, table.placed.name, result.batch):
            last = table.upto
        there = (
            source_reference.load_cached_rows(spark, last)
            if last == table.upto
            else source_reference.load_rows(spark, last)
        )
        projected = build_projected_table(
            spark, rule, self._tables_of, result.topic, there.schema, target.read_rule(), rules_known=self._rules is not None, place=place,
        )  # fmt: skip
        projected = projected.with_variants(_variants(target, pinned))
        rows, table_rows = projected.project_rows(there.rows), projected.select_live_rows(pinned.rows)
        types = self._types(result, projected, pinned)
        if result.problem:
            result.source, result.target = rows.count(), table_rows.count()
        else:
            comparison = RowComparison(
                rows, table_rows, types, projected.key_columns, there.rows_about, projected.key_at_source
            )
            comparison.record_differences(
                result, values=self._values, keys=f"{self._keys}/{table.keys}" if self._keys else ""
            )
            result.aside = projected.count_skipped_rows(pinned.rows)
        if source_reference.later_changes is not None and (result.problem or result.rows_differ):
            self._settled(result, source_reference, last)

    def _types(self, result: TableVerification, projected: ProjectedTable, pinned: PinnedTableState) -> dict[str, str]:
        """Column → the type in which it is compared. Problems of columns are put into the result."""
        there = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in pinned.rows.schema.fields}
        types, problems = dict[str, str](), list[str]()
        for name, type_ in projected.comparable_types.items():
            other = there.pop(name.lower(), None)
            compared = find_common_type(type_, other[1]) if other else None
            if other is None:
                problems.append(f"the table has no column {name}")
            elif compared is None:
                problems.append(f"column {name} has the type {type_} at the source and {other[1]} in the table")
            else:
                types[name] = compared
        result.by_rule = projected.by_rule
        result.event_columns = [name for name in projected.event_columns if there.pop(name.lower(), None)]
        result.only_in_table = sorted(name for name, _ in there.values())
        result.problem = "; ".join(problems)
        return types

    def _settled(self, result: TableVerification, source_reference: SourceReference, last: int) -> None:
        """Check that the connector has finished to read the table.

        :raises NotComparable: the table may differ, as the connector has not finished to read it
        """
        assert source_reference.later_changes is not None
        if why := source_reference.later_changes.explain_lag(str(source_reference.reference.schema.id), last):
            text = f"{why}, so that the table may be behind the source: verify it again afterwards ({result.problem or _differs(result)})"
            result.problem, result.missing, result.surplus, result.different = "", 0, 0, 0
            result.differing, result.examples = {}, []
            raise NotComparable(text)


_TROUBLE = (TargetError, PySparkException, Py4JJavaError)
"""Errors of one table, or of the source's rows of it."""


def _not_compared(result: TableVerification, why: Exception) -> None:
    result.not_compared, result.never = str(why), isinstance(why, NeverComparable)
    if isinstance(why, NotComparable):
        return
    log.error("%s could not be verified.", result.display_name, exc_info=why)
    if isinstance(why, TargetError):
        result.not_compared = why.message
    elif ABSENT in str(why):
        result.not_compared = (
            "the change log removes a row that the source did not have at the position of the reference"
        )
    else:
        result.not_compared = f"it could not be read: {describe_causes(why)}"


def _variants(target: TargetIdentity, pinned: PinnedTableState) -> dict[str, str]:
    """Column of the source → the table's column that it continues in.

    A record from a moment ago may not be there yet.
    """
    owner = target.read_owner()
    variants = read_recorded_variants(target, owner.application_name) if owner is not None else ColumnVariants()
    return {
        column: name for column, name in variants.select_names(variants.until).items() if name in pinned.rows.columns
    }


def _differs(result: TableVerification) -> str:
    return f"{result.missing:,} rows are missing, {result.surplus:,} are surplus, {result.different:,} are different"


def main(arguments: list[str] | None = None) -> int:
    args = parse_arguments(arguments, __doc__)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    try:
        changelog, kind = open_changelog(args.changelog), load_format(args.target)
        plan = VerificationPlan.read(changelog.storage) if args.plan else None
        spark = open_spark_session(f"cdc verify {args.connector}", kind)
        try:
            job = VerifyTables(
                spark, changelog, args.connector, location=args.location, target=args.target,
                tables_of=args.tables_of, values=args.values, keys=args.keys, threads=args.threads, plan=plan,
                source=open_changelog(plan.changelog if plan else args.applied) if plan or args.applied else None,
                rules=TableRules.parse(args.rules) if args.rules else None,
            )  # fmt: skip
            verified = job.run()
        finally:
            spark.stop()
    except CdcError as e:
        print(describe_error(e), file=sys.stderr)
        return 2
    print(verified.format_text())
    if args.json:
        args.json.write_bytes(orjson.dumps(verified.to_document(), option=orjson.OPT_INDENT_2))
    if plan is not None:
        write_report(changelog.storage, verified.to_document())
    return verified.exit_status
