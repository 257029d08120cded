"""The whole way with random work: MariaDB, capture, apply, in a loop; in the end every value in the tables is the source's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from airflow_provider_cdc.targets.lake.schema.column_successors import read_recorded_variants
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.workload import WORDS_OF_MARIADB, Writer, source_rows
from tests.targets.lake.lake import Lake

TABLES = ("one", "two", "bag")


def _rules(database: str, seed: int) -> TableRules:
    """Choose rules for columns that are dropped, or get other types; another choice for each table."""
    chance = random.Random(seed)
    rules = []
    for table in TABLES:
        changes = (
            ["rewrite"] if table == "bag" else ["rewrite", "new_column", "new_column"]
        )  # without a key there is no new column
        says = {"type_changes": chance.choice(changes), "dropped_columns": chance.choice(["keep", "drop"])}
        rules.append({"tables": rf"{database}\.{table}", **says})
    print("rules:", rules)
    return TableRules.parse(rules)


def _equal(server: Any, lake: Lake, database: str) -> None:
    for table in TABLES:
        full = f"{database}.{table}"
        expected, target = source_rows(server, database, table), lake.target(full)
        owner = target.read_owner()
        variants = read_recorded_variants(target, owner.application_name)
        placed = variants.select_names(variants.until)
        names = {name: placed.get(name, name) for name in _columns(server, database, table)}
        found = lake.frame(full).select(*[F.col(quote_name(there)).alias(name) for name, there in names.items()])
        assert sorted(found.toArrow().to_pylist(), key=repr) == expected, table
        rule = lake.tables.select_rule(TableId(namespace=database, name=table))
        more = {*target.read_column_types()} - {*names.values()}
        left = {
            there for began in variants.began.values() for there in began.values()
        }  # they go on in others, and stay
        if rule.dropped_columns == "drop":
            assert not more - left, (table, more, left)


def _columns(server: Any, database: str, table: str) -> list[str]:
    return [row[0] for row in server.sql(f"SHOW COLUMNS FROM {database}.{table}")]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 21))])
def test_tables_end_equal_to_the_source_value_by_value(
    mariadb: Any, spark: SparkSession, tmp_path: Path, kind: str, seed: int
) -> None:
    database = f"lake_{kind}_{seed}"
    with mariadb.connect(autocommit=True) as connection:
        writer = Writer(connection, database, seed, ddl=0.012, words=WORDS_OF_MARIADB)
        writer.prepare()
        writer.write(50)
        connector = mysql_connector(mariadb, tmp_path, database_include_list=database)
        lake = Lake(spark, tmp_path, connector, kind=kind, tables=_rules(database, seed))
        for transactions in (500, 850):
            lake.follow()
            _equal(mariadb, lake, database)
            writer.write(transactions // 2)
            connector.capture()  # two batches for one apply
            writer.write(transactions // 2)
        lake.follow()
        _equal(mariadb, lake, database)
    reference = mysql_connector(
        mariadb, tmp_path / "now", database_include_list=database, snapshot_mode="initial_only", topic_prefix="now"
    )
    reference.capture()
    verified = VerifyTables(
        spark,
        reference.changelog,
        reference.name,
        location=lake.location,
        target=kind,
        tables_of=connector.name,
        rules=lake.tables,
    ).run()
    assert verified.is_equal, verified.format_text()
    assert [t.source for t in verified.tables] == [len(source_rows(mariadb, database, t)) for t in sorted(TABLES)]


@pytest.mark.long
def test_the_same_seed_makes_the_same_log(mariadb: Any, tmp_path: Path) -> None:
    logs = []
    for name in ("same_a", "same_b"):
        with mariadb.connect(autocommit=True) as connection:
            writer = Writer(connection, name, 5, ddl=0.02)
            writer.prepare()
            connector = mysql_connector(mariadb, tmp_path / name, database_include_list=name)
            connector.capture()
            writer.write(600)
        connector.capture()
        logs.append(_log(connector))
    assert len(logs[0]) > 1000
    assert logs[0] == logs[1]


def _log(connector: Connector) -> list[tuple[Any, ...]]:
    """Row events and statements in order, without what differs from server to server and time to time.

    Tables that are read again together are read by several connections, and their rows come as they come.
    """
    items: list[tuple[Any, ...]] = []
    for manifest in connector.changelog.read_manifests(connector.name):
        items += [(r.seq, r.ddl) for r in manifest.schema_changes if not r.snapshot]
        for file in manifest.files:
            with connector.changelog.open_file(manifest.connector, file) as opened:
                rows = pq.read_table(opened, use_threads=False).to_pylist()
            table = file.topic.rsplit(".", 1)[1]
            items += [(r["seq"], table, r["op"], r.get("key"), r["before"], r["after"]) for r in rows]
    items.sort(key=lambda item: item[0])
    return [item for item in items if item[2:3] != ("r",)] + sorted(
        (item[1:] for item in items if item[2:3] == ("r",)), key=repr
    )
