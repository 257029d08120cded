"""Collections that pipelines write: ``$out`` makes a collection again under its name, ``$merge`` changes its documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.sources.mongodb.mongodb_connectors import mongodb_connector

SUM = {"$group": {"_id": "$who", "n": {"$sum": "$t"}}}


@pytest.mark.parametrize("listed", [True, False])
def test_the_target_is_what_pipelines_have_made_of_it(uri: str, database: Any, tmp_path: Path, listed: bool) -> None:
    """Capture the collection alone, or its whole database with the temporary collections."""
    lists = {"collection_include_list": rf"{re.escape(database.name)}\.sums"} if listed else {}
    ours = mongodb_connector(uri, tmp_path, database_include_list=database.name, **lists)
    database.orders.insert_many([{"_id": n, "who": n % 3, "t": n} for n in range(9)])
    database.sums.insert_one({"_id": "old"})

    def equal() -> None:
        ours.capture()
        found = sorted(json.dumps(row, sort_keys=True) for row in ours.documents(f"{database.name}.sums"))
        assert found == sorted(json.dumps(row, sort_keys=True) for row in database.sums.find())

    equal()
    database.orders.aggregate([SUM, {"$out": "sums"}])
    equal()
    database.orders.insert_many([{"_id": n, "who": n % 5, "t": n} for n in range(10, 20)])
    database.orders.aggregate([SUM, {"$merge": {"into": "sums", "whenMatched": "replace"}}])
    equal()
    database.sums.insert_one({"_id": "between"})
    database.orders.aggregate([SUM, {"$match": {"n": {"$gt": 30}}}, {"$out": "sums"}])
    database.orders.aggregate([SUM, {"$set": {"more": 1}}, {"$merge": {"into": "sums", "whenNotMatched": "discard"}}])
    equal()
    database.orders.aggregate([{"$match": {"_id": "none"}}, {"$out": "sums"}])
    equal()
