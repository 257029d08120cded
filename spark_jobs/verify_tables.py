"""Compare lakehouse tables with the source, row by row and value by value:
``spark-submit verify_tables.py --changelog … --connector … --location …``.

The rows of the source come from a change log too: a second connector with the same properties, another name, a scratch change log
and ``snapshot.mode=initial_only`` writes them, as they are at one position, into Parquet. The comparison itself runs in Spark,
so that neither side has to fit into memory. Any complete change log can be the reference: the rows that result from its events are compared.

Tables and source must be at the same position: stop the writers, or apply up to the position that the reference was read at.
Columns that only the table has (dropped at the source) are named and not compared. Where the types differ, values are compared
in the wider one.

Exit status: 0 everything is equal, 1 something is not, 2 it could not be compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.changelog.pending import Pending, collect
from airflow_provider_cdc.core.errors import CdcError, ConfigError
from spark_jobs import reduce
from spark_jobs.datatypes import common, quoted
from spark_jobs.last import OURS, UNKNOWN
from spark_jobs.locations import table_location
from spark_jobs.rules import changes_rows
from spark_jobs.session import open_changelog, own_session, session
from spark_jobs.targets import load_format

log = logging.getLogger("spark_jobs.verify_tables")

EXAMPLES = 5
_SOURCE, _TARGET = f"{OURS}source", f"{OURS}target"
"""Number of rows that each side has of a key."""
_A, _B, _COLUMNS = f"{OURS}a", f"{OURS}b", f"{OURS}columns"


@dataclasses.dataclass(slots=True)
class Compared:
    """One table.

    :param missing: rows of the source that the table lacks
    :param surplus: rows of the table that the source lacks, or that it has twice
    :param different: rows of both whose values are not all equal
    :param differing: column → rows in which it differs
    :param examples: the first different, missing and surplus rows: their key and the columns concerned
    :param only_in_table: columns that the source does not have (any more)
    :param unknown: column → rows in which the reference does not have its value (``unavailable``); they are not compared in it
    :param problem: why the rows cannot be compared at all
    """

    topic: str
    location: str
    source: int = 0
    target: int = 0
    missing: int = 0
    surplus: int = 0
    different: int = 0
    differing: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    only_in_table: list[str] = dataclasses.field(default_factory=list)
    unknown: dict[str, int] = dataclasses.field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        return not (self.problem or self.missing or self.surplus or self.different)


@dataclasses.dataclass(slots=True)
class Verified:
    """All tables.

    :param position: where the reference ends in the source's log
    """

    connector: str
    position: dict[str, Any]
    tables: list[Compared]
    seconds: float

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        tables = [dataclasses.asdict(table) | {"equal": table.equal} for table in self.tables]
        return dataclasses.asdict(self) | {"equal": self.equal, "tables": tables}

    def text(self) -> str:
        """For people."""
        head = ("table", "source", "target", "missing", "surplus", "different", "equal")
        lines = [
            (t.topic, *(f"{n:,}" for n in (t.source, t.target, t.missing, t.surplus, t.different)), _yes(t.equal))
            for t in self.tables
        ]
        widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
        text = [_line(line, widths) for line in (head, *lines)]
        for table in self.tables:
            text += [f"{table.topic}: {note}" for note in _notes(table)]
        return "\n".join(text)


class VerifyTables:
    """Compares the tables of a connector with a reference.

        >>> VerifyTables(spark, ChangeLog("/scratch"), "shop-now", location="/lake/{database}/{table}").run().equal
        True

    :param changelog: of the reference
    :param connector: the reference's name
    :param location: where the tables are, as it was given to the apply
    :param tables_of: the connector that the tables belong to, where the location has ``{connector}`` in it
    :param values: whether examples show values; they may be personal data
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
        threads: int = 4,
    ) -> None:
        self._spark, self._changelog, self._connector = spark, changelog, connector
        self._location, self._tables_of, self._values = location, tables_of or connector, values
        self._format, self._threads = load_format(target), threads

    def run(self) -> Verified:
        """:raises ConfigError: the reference is empty
        :raises ChangeLogDamaged: a file of it is not what its manifest says
        """
        began = time.monotonic()
        manifests = list(self._changelog.manifests(self._connector))
        topics = collect(self._changelog, manifests)
        if not topics:
            raise ConfigError(
                f"There is nothing to compare with: the change log has no table of connector {self._connector}.",
                where=self._changelog.storage.url,
                remedy="capture the reference first: the same connector under another name with snapshot.mode=initial_only",
            )
        with ThreadPoolExecutor(self._threads, thread_name_prefix="cdc-verify") as pool:
            tables = list(pool.map(self._table, (topics[name] for name in sorted(topics))))
        position = manifests[-1].offset_after.position or {}
        return Verified(self._connector, position, tables, round(time.monotonic() - began, 3))

    def _table(self, pending: Pending) -> Compared:
        began, spark = time.monotonic(), own_session(self._spark, self._format)
        location = table_location(self._location, self._tables_of, pending.topic, pending.schema.id)
        result = Compared(pending.topic, location)
        for _, file in pending.files:
            self._changelog.check(self._connector, file)
        expected = reduce.contents(spark, pending, reduce.last_truncate(spark, pending))
        target = self._format.open(spark, location)
        if not target.exists():
            result.problem, result.source = "there is no such table", expected.count()
        elif changes_rows(target.rule()):
            result.problem = "it is kept by a rule, so that its rows are not those of the source"
            result.source = expected.count()
        else:
            self._compare(result, pending, expected, target.rows())
        result.seconds = round(time.monotonic() - began, 3)
        log.info("%s: %s.", pending.topic, "equal" if result.equal else "NOT equal")
        return result

    def _compare(self, result: Compared, pending: Pending, expected: DataFrame, found: DataFrame) -> None:
        there = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in found.schema.fields}
        wanted, types, problems = reduce.final_types(pending.schema), {}, []
        for name, type_ in wanted.items():
            other = there.pop(name.lower(), None)
            compared = common(type_, other[1]) if other else None
            if other is None:
                problems.append(f"the table has no column {name}")
            elif compared is None:
                problems.append(f"column {name} is {type_} at the source and {other[1]} in the table")
            else:
                types[name] = compared
        result.only_in_table = sorted(name for name, _ in there.values())
        result.problem = "; ".join(problems)
        if result.problem:
            result.source, result.target = expected.count(), found.count()
            return
        if UNKNOWN in expected.columns:
            per_column = expected.select(F.explode(UNKNOWN).alias("c")).groupBy("c").count().collect()
            result.unknown = {row["c"]: row["count"] for row in sorted(per_column)}
        both = _side(expected, types, _SOURCE).unionAll(_side(found, types, _TARGET))
        key = pending.schema.key or tuple(types)
        # without a key, what tells a row is its values
        shown = key if pending.schema.key or self._values else ()
        _count(result, _by_key(both, key, types), list(types), shown, values=self._values)


def _side(rows: DataFrame, types: dict[str, str], side: str) -> DataFrame:
    """Rows of one side, as ``_SOURCE`` and ``_TARGET`` count them."""
    flags = [F.lit(1 if name == side else 0).alias(name) for name in (_SOURCE, _TARGET)]
    unknown = F.col(UNKNOWN) if UNKNOWN in rows.columns else F.array().cast("array<string>").alias(UNKNOWN)
    return rows.select(*[F.col(quoted(c)).cast(t).alias(c) for c, t in types.items()], *flags, unknown)


def _by_key(both: DataFrame, key: tuple[str, ...], types: dict[str, str]) -> DataFrame:
    """For each key how many rows each side has, and which columns differ.

    Without a key all columns are the key: then none can differ.
    """
    others = [c for c in types if c not in key]
    image = F.struct(*map(quoted, others)) if others else F.struct(F.lit(1))

    def of(side: str, value: Expression) -> Expression:
        return F.any_value(F.when(F.col(side) == 1, value), ignoreNulls=True)

    grouped = both.groupBy(*map(quoted, key)).agg(
        F.sum(_SOURCE).alias(_SOURCE),
        F.sum(_TARGET).alias(_TARGET),
        of(_SOURCE, image).alias(_A),
        of(_TARGET, image).alias(_B),
        of(_SOURCE, F.col(UNKNOWN)).alias(UNKNOWN),
    )
    different = [
        F.when(
            ~F.col(f"{_A}.{quoted(c)}").eqNullSafe(F.col(f"{_B}.{quoted(c)}")) & ~F.array_contains(UNKNOWN, F.lit(c)),
            F.lit(c),
        )
        for c in others
    ]
    shared = (F.col(_SOURCE) > 0) & (F.col(_TARGET) > 0)
    names = F.array_compact(F.array(*different)) if different else F.array().cast("array<string>")
    return grouped.withColumn(_COLUMNS, F.when(shared, names).otherwise(F.array().cast("array<string>")))


def _count(result: Compared, grouped: DataFrame, columns: list[str], key: tuple[str, ...], *, values: bool) -> None:
    source, target = F.col(_SOURCE), F.col(_TARGET)
    zero = F.lit(0)
    totals = grouped.agg(
        F.sum(source).alias("source"),
        F.sum(target).alias("target"),
        F.sum(F.greatest(source - target, zero)).alias("missing"),
        F.sum(F.greatest(target - source, zero)).alias("surplus"),
        F.count_if(F.size(_COLUMNS) > 0).alias("different"),
        *[F.count_if(F.array_contains(_COLUMNS, F.lit(c))) for c in columns],
    ).first()
    assert totals is not None
    counts = ("source", "target", "missing", "surplus", "different")
    for at, name in enumerate(counts):
        setattr(result, name, totals[at] or 0)
    result.differing = {c: n for c, n in zip(columns, totals[len(counts) :], strict=True) if n}
    if not result.equal:
        wrong = grouped.where((source != target) | (F.size(_COLUMNS) > 0))
        result.examples = [_example(row, key, values=values) for row in wrong.take(EXAMPLES)]


def _example(row: Row, key: tuple[str, ...], *, values: bool) -> dict[str, Any]:
    example: dict[str, Any] = {"key": {name: str(row[name]) for name in key}}
    if row[_SOURCE] > row[_TARGET]:
        example["what"] = "missing"
    elif row[_SOURCE] < row[_TARGET]:
        example["what"] = "surplus"
    else:
        example["what"] = "different"
    if row[_COLUMNS]:
        example["columns"] = list(row[_COLUMNS])
        if values:
            example["source"] = {c: str(row[_A][c]) for c in row[_COLUMNS]}
            example["target"] = {c: str(row[_B][c]) for c in row[_COLUMNS]}
    return example


def _notes(table: Compared) -> list[str]:
    notes = [f"{table.problem} ({table.location})"] if table.problem else []
    if table.only_in_table:
        notes.append(f"not compared, only in the table: {', '.join(table.only_in_table)}")
    if table.unknown:
        lacking = ", ".join(f"{c} ({n:,} rows)" for c, n in table.unknown.items())
        notes.append(f"not compared, the reference does not have the value: {lacking}")
    if table.differing:
        notes.append("differs in " + ", ".join(f"{c} ({n:,} rows)" for c, n in table.differing.items()))
    for example in table.examples:
        key = ", ".join(f"{k}={v}" for k, v in example["key"].items()) or "a row without a key"
        note = f"{example['what']}: {key}"
        for column in example.get("columns", ()):
            note += f"; {column}"
            if "source" in example:
                note += f" is {example['source'][column]!r} at the source, {example['target'][column]!r} in the table"
        notes.append(note)
    return notes


def _line(parts: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = parts
    return "  ".join([first.ljust(widths[0]), *(p.rjust(w) for p, w in zip(rest, widths[1:], strict=True))])


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--changelog", required=True, help="folder or object store prefix of the reference's change log"
    )
    parser.add_argument("--connector", required=True, help="name of the reference's connector")
    parser.add_argument("--location", required=True, help="where tables are, for example /lake/{database}/{table}")
    parser.add_argument("--tables-of", metavar="CONNECTOR", help="fills {connector} in the location")
    parser.add_argument("--target", default="delta", help="kind of the tables: delta (default) or iceberg")
    parser.add_argument("--threads", type=int, default=4, help="tables compared at the same time")
    parser.add_argument(
        "--values", action="store_true", help="show values of rows that differ; they may be personal data"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to a file")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for every call into the JVM
    spark = session(f"cdc verify {given.connector}", load_format(given.target))
    try:
        job = VerifyTables(
            spark, open_changelog(given.changelog), given.connector, location=given.location, target=given.target,
            tables_of=given.tables_of, values=given.values, threads=given.threads,
        )  # fmt: skip
        verified = job.run()
    except CdcError as e:
        print(e, file=sys.stderr)
        return 2
    finally:
        spark.stop()
    print(verified.text())
    if given.json:
        given.json.write_bytes(orjson.dumps(verified.document(), option=orjson.OPT_INDENT_2))
    return 0 if verified.equal else 1


if __name__ == "__main__":
    sys.exit(main())
