"""Delta tables that have a name in the session's catalog."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError, TargetError
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.delta.catalog_location import CatalogTableName
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name
from tests.support.patience import LONGEST_S
from tests.support.workloads.memory_work import Workload
from tests.targets.lake.lake import Lake, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.only_kind("delta")]
ORDERS = {"id": "int64!", "n": "int32"}


@pytest.fixture
def schema(lake: Lake, tmp_path: Path) -> str:
    """A schema for this test's tables, in a separate folder."""
    name = f"x{zlib.crc32(str(tmp_path).encode())}"
    lake.spark.sql(f"CREATE NAMESPACE {name} LOCATION '{tmp_path}/warehouse'")
    return name


def _orders(lake: Lake, *ids: int) -> None:
    lake.connector.database.create_table("s.orders", ORDERS, key=("id",))
    _insert_rows(lake, *ids)


def _insert_rows(lake: Lake, *ids: int) -> None:
    with lake.connector.database.transaction() as t:
        for i in ids:
            t.insert("s.orders", {"id": i, "n": i})
    lake.connector.capture()


def _rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """Return the rows as people read them, in a session separate from ours."""
    return sorted(tuple(row) for row in lake.spark.newSession().table(name).collect())


def test_tables_with_a_name_follow_their_source(lake: Lake, schema: str) -> None:
    work, r = Workload(lake.connector.database, sparse=("note",)), random.Random(4)
    location = f"spark_catalog.{schema}.{{database}}_{{table}}"
    for _ in range(2):
        for _ in range(30):
            work.step(r)
        lake.connector.capture()
        lake.apply(location=location)
        for topic, replayed in lake.replayed().items():
            name = f"{schema}.{replayed.schema.id.namespace}_{replayed.schema.id.name}"
            found = lake.spark.newSession().table(name).select(*map(quote_name, replayed.schema.column_names))
            assert sorted(found.toArrow().to_pylist(), key=repr) == replayed.all(), topic
    assert lake.apply(location=location).tables == []


def test_a_schema_is_made_when_it_is_missing(lake: Lake, schema: str) -> None:
    _orders(lake, 1)
    lake.spark.sql(f"DROP NAMESPACE {schema}")
    name = f"{schema}.orders"
    try:
        lake.apply(location=f"spark_catalog.{schema}.{{table}}")
        assert _rows(lake, name) == [(1, 1)]
    finally:
        folder = CatalogTableName(lake.spark, f"spark_catalog.{name}").resolve_folder()
        lake.spark.sql(f"DROP NAMESPACE {schema} CASCADE")
        path = lake.spark._jvm.org.apache.hadoop.fs.Path(folder).getParent()  # type: ignore[union-attr]
        path.getFileSystem(lake.spark._jsc.hadoopConfiguration()).delete(path, True)


def test_a_table_whose_maker_was_killed_before_it_had_its_name_gets_it(
    lake: Lake, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _orders(lake, 1)

    def raise_killed(self: CatalogTableName, folder: str) -> None:
        raise SystemError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(CatalogTableName, "register", raise_killed)
        with pytest.raises(TargetError):
            lake.apply(location=f"spark_catalog.{schema}.{{table}}")
    assert not lake.spark.catalog.tableExists(f"{schema}.orders")
    lake.apply(location=f"spark_catalog.{schema}.{{table}}")
    assert _rows(lake, f"{schema}.orders") == [(1, 1)]
    _insert_rows(lake, 2)
    lake.apply(location=f"spark_catalog.{schema}.{{table}}")
    assert _rows(lake, f"{schema}.orders") == [(1, 1), (2, 2)]


def test_a_table_that_the_catalog_has_elsewhere_is_written_there(lake: Lake, schema: str, tmp_path: Path) -> None:
    _orders(lake, 1)
    lake.apply()
    lake.spark.sql(f"CREATE TABLE {schema}.ORDERS USING delta LOCATION '{lake.path('s.orders')}'")
    _insert_rows(lake, 2)
    lake.apply(location=f"SPARK_CATALOG.{schema}.{{table}}")
    assert _rows(lake, f"{schema}.orders") == [(1, 1), (2, 2)]
    assert not (tmp_path / "warehouse" / "orders").exists()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("CREATE TABLE {}.orders (id BIGINT) USING parquet", "in use for a table of another format"),
        ("CREATE VIEW {}.orders AS SELECT 1 AS id", "in use for a view"),
        ("CREATE TABLE {}.orders (id BIGINT) USING delta", "does not belong to a connector"),
    ],
)
def test_what_has_the_name_already_is_left_alone(lake: Lake, schema: str, made: str, message: str) -> None:
    lake.spark.sql(made.format(schema))
    before = lake.spark.table(f"{schema}.orders").collect()
    _orders(lake, 1)
    with pytest.raises(TargetError, match=message):
        lake.apply(location=f"spark_catalog.{schema}.{{table}}")
    assert lake.spark.table(f"{schema}.orders").collect() == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other.shop.orders", "use a name in the session's own catalog"),
        ("spark_catalog.a.b.orders", "use a name in the session's own catalog"),
        ("spark_catalog.shop.`or-ders`", "only letters, digits and _"),
        ("spark_catalog.`s'hop`.orders", "only letters, digits and _"),
        ("spark_catalog.shop.bücher", "only letters, digits and _"),
    ],
)
def test_names_that_the_catalog_cannot_have_are_refused(lake: Lake, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_format("delta").open_target(lake.spark, name)


@pytest.mark.long
def test_a_hive_metastore_has_the_names(tmp_path: Path) -> None:
    child = [sys.executable, "-m", "tests.targets.lake.with_hive", str(tmp_path)]
    ran = subprocess.run(
        child, capture_output=True, text=True, timeout=LONGEST_S, env=spark_environment(), cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found == {"rows": [0, 1, 2], "comments": ["all orders", "the number"], "tables": ["orders"]}
