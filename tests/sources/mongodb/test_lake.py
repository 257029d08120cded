"""Documents in the lake whose updates say only what has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.lake import Lake, start_spark
from tests.support.mongodb import mongodb_connector
from tests.support.mongodb_work import Work, same


@pytest.fixture(scope="module")
def spark() -> Any:
    return start_spark()


@pytest.mark.parametrize(
    ("kind", "mode"), [("delta", "change_streams"), ("iceberg", "change_streams_with_pre_image"), ("iceberg", "change_streams")]
)  # fmt: skip
def test_tables_are_equal_where_events_say_only_what_has_changed(
    spark: Any, uri: str, client: Any, database: Any, tmp_path: Path, kind: str, mode: str
) -> None:
    work = Work(client, database.name, 200, images=mode.endswith("pre_image"))
    work.write(30)
    ours = mongodb_connector(
        uri, tmp_path / "connector", database_include_list=database.name, batch_max_rows=40, capture_mode=mode
    )
    lake = Lake(spark, tmp_path, ours, kind=kind)
    for _ in range(4):
        lake.follow()
        found = lake.frame(f"{database.name}.letters").collect()
        same([row["document"] for row in found], work.collection.find())
        work.write(40)
