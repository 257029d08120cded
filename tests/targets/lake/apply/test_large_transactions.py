"""A transaction of two million rows, captured in flat memory and applied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.connectors import mysql_connector
from tests.support.workloads.large import capture_apart, create, fill
from tests.targets.lake.lake import Lake

ROWS = 2_000_000


@pytest.fixture
def compiled_queries(spark: SparkSession) -> Iterator[None]:
    """Small tests do without compiled queries; these rows are worth them."""
    expected = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in expected}
    for name, value in expected.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.set(name, str(old))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("compiled_queries")
def test_transaction_of_two_million_rows_is_captured_and_applied(
    spark: SparkSession, database: Any, tmp_path: Path
) -> None:
    create(database, "big")
    fill(database, "big", 1000)
    connector = mysql_connector(database.server, tmp_path, database_include_list=database.name)
    lake = Lake(spark, tmp_path, connector)
    lake.follow()
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE big SET quantity = quantity + 1 WHERE id <= 500")
        cursor.execute("DELETE FROM big WHERE id > 900")
        connection.commit()
    fill(database, "big", ROWS, first=1001)
    result = capture_apart(connector)
    assert result["events"] == ROWS + 600
    assert result["peak_mb"] < 500
    lake.apply()
    sums = "COUNT(*), SUM(id), SUM(quantity), SUM(price), COUNT(DISTINCT note), SUM(LENGTH(note)), MIN(made_at), MAX(made_at)"
    expected = database.sql(f"SELECT {sums} FROM big")[0]
    frame = lake.frame(f"{database.name}.big")
    found = frame.select(
        F.count("*"), F.sum("id"), F.sum("quantity"), F.sum("price"), F.countDistinct("note"), F.sum(F.length("note")),
        F.min("made_at"), F.max("made_at"),
    ).first()  # fmt: skip
    assert tuple(found or ()) == tuple(expected)
