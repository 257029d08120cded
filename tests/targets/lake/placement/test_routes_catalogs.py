"""Routes to tables that have names in a catalog, by values of any kind."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from airflow_provider_cdc.core.errors import TargetError
from tests.support.patience import LONGEST_S
from tests.support.pytest_runs.sampled import CaseSample
from tests.targets.lake.lake import Lake, spark_environment
from tests.targets.lake.placement.test_routes import COLUMNS, ODD, PLAIN, RouteWork
from tests.targets.lake.verify.test_verify_rules import verify
from tests.targets.lake.with_routes import check, rules, tables

pytestmark = pytest.mark.spark


@pytest.mark.only_kind("iceberg")
def test_a_value_of_any_kind_is_the_name_of_a_table_in_an_iceberg_catalog(lake: Lake, sampled: CaseSample) -> None:
    namespace = f"in_files.x{zlib.crc32(str(lake.folder).encode())}"
    values = [*PLAIN, *(text for number, text in enumerate(ODD) if sampled.of(number, every=3))]
    lake.tables, work = rules(namespace), RouteWork(lake, 21, regions=(*values, None))
    lake.follow()
    assert check(lake, namespace) == len(values)
    work.go(6, truncates=0)
    lake.follow()
    check(lake, namespace)
    verified = verify(lake)
    assert verified.is_equal, verified.format_text()
    assert len(verified.tables) == len(values)


@pytest.mark.long
@pytest.mark.only_kind("iceberg")
def test_random_work_of_two_applies_in_a_jdbc_catalog_ends_with_each_row_in_its_table(
    kind: str, tmp_path: Path
) -> None:
    seed, database = random.randrange(10**6), {"uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    settings = {
        "type": "jdbc", "warehouse": f"{tmp_path}/warehouse", "jdbc.user": "cdc", "jdbc.password": "cdc", **database,
    }  # fmt: skip
    child = [sys.executable, "-m", "tests.targets.lake.with_routes", str(tmp_path), json.dumps(settings), str(seed)]
    ran = subprocess.run(
        child, capture_output=True, text=True, timeout=LONGEST_S, env=spark_environment(), cwd=tmp_path
    )
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr[-8000:]}"
    assert json.loads(ran.stdout.splitlines()[-1])["tables"] > len(PLAIN)


@pytest.mark.only_kind("delta")
def test_values_that_a_catalog_cannot_distinguish_or_store_are_refused_and_others_are_written(
    lake: Lake, tmp_path: Path
) -> None:
    schema = f"x{zlib.crc32(str(tmp_path).encode())}"
    namespace, db = f"spark_catalog.{schema}", lake.connector.database  # type: ignore[attr-defined]
    lake.spark.sql(f"CREATE NAMESPACE {schema} LOCATION '{tmp_path}/warehouse'")
    lake.tables = rules(namespace)
    db.create_table("s.t", COLUMNS, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "region": "eu", "n": 1})
        t.insert("s.t", {"id": 2, "region": "Us", "n": 1})
        t.insert("s.t", {"id": 3, "region": "uS", "n": 1})
    lake.connector.capture()
    with pytest.raises(TargetError, match="to a table that has its rows of") as error:  # whichever of the two was first
        lake.apply()
    assert "s.t → spark_catalog" in str(error.value)
    found = tables(lake, namespace)
    assert found["of_eu"] == [{"id": 1, "region": "eu", "n": 1}]
    assert [row["region"] for row in found["of_us"]] in (["Us"], ["uS"])
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 2})
        t.insert("s.t", {"id": 4, "region": "EU", "n": 1})
        t.insert("s.t", {"id": 5, "region": "it's `odd` ${x}", "n": 1})
        t.insert("s.t", {"id": 6, "region": "new", "n": 1})
    lake.connector.capture()
    with pytest.raises(TargetError) as error:
        lake.apply()
    text = str(error.value)
    assert '"value": "EU"' in text
    assert "map two values to one, for example with lower(…)" in text
    assert "The catalog does not accept the name" in text
    found = tables(lake, namespace)
    assert found["of_eu"] == [{"id": 1, "region": "eu", "n": 2}]
    assert found["of_new"] == [{"id": 6, "region": "new", "n": 1}]
    assert found.keys() == {"of_eu", "of_us", "of_new"}

    other = f"{schema}_lower"
    lake.spark.sql(f"CREATE NAMESPACE {other} LOCATION '{tmp_path}/lower'")
    lake.tables = rules(f"spark_catalog.{other}", r"regexp_replace(lower(region), '\\W', '_')")
    lake.apply()
    found = tables(lake, f"spark_catalog.{other}")
    ids = {name: [row["id"] for row in rows] for name, rows in found.items()}
    assert ids == {"of_eu": [1, 4], "of_us": [2, 3], "of_it_s__odd____x_": [5], "of_new": [6]}
    verified = verify(lake)
    assert verified.is_equal, verified.format_text()
    assert len(verified.tables) == 4
