"""Documents in the lake: a column for the key, one for the document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake import Lake
from tests.support.connectors import Connector
from tests.support.shelf import Shelf, registered


@pytest.mark.every_kind
def test_a_table_follows_documents(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    shelf = Shelf(str(tmp_path))
    with registered():
        ours = Connector(tmp_path / "connector", "shelf", {"shelf": shelf.name, "poll.interval.ms": 10})
        lake = Lake(spark, tmp_path, ours, kind=kind)
        shelf.commit(("c", "box.letters", {"_id": 1, "to": {"name": "Ann"}}), ("c", "box.letters", {"_id": "1"}))
        lake.follow()
        shelf.commit(("u", "box.letters", 1, {"to": {"names": ["Ann", "Bob"]}}), ("d", "box.letters", "1"))
        shelf.commit(("c", "box.letters", {"_id": 2}))
        lake.follow()
        rows = {row["_id"]: json.loads(row["sheet"]) for row in lake.frame("box.letters").collect()}
        assert rows == {"1": {"_id": 1, "to": {"names": ["Ann", "Bob"]}}, "2": {"_id": 2}}
        shelf.commit(("drop", "box.letters"))
        shelf.commit(("c", "box.letters", {"_id": 3}))
        lake.follow()
        assert [row["_id"] for row in lake.frame("box.letters").collect()] == ["3"]
