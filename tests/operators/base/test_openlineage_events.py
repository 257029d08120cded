"""OpenLineage events of tasks: names of datasets, columns, statistics; by the classes of its client. In a whole Airflow: ``tests/system``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.operators.base.openlineage_events import AppliedTables, build_apply_lineage, dataset_of
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.sources import config_class
from dev import paths
from tests.operators.test_apply_changes import LOCATION, Spark, apply, report, table
from tests.support.airflow.airflow_connector import ShopConnector, context, make_shop

TABLE = TableId(namespace="INVENTORY", name="ORDERS", catalog="FREEPDB1")


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(tmp_path, monkeypatch)


@pytest.fixture
def shop_connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShopConnector]:
    shop_connector = make_shop(monkeypatch, tmp_path, "lineage", column_mask_with_5_chars=r"inventory\.orders\.note")
    yield shop_connector
    shop_connector.store.close()


def document(told: Any) -> dict[str, Any]:
    """Return the datasets in the form in which they would be sent."""
    return {name: [json.loads(Serde.to_json(d)) for d in getattr(told, name)] for name in ("inputs", "outputs")}


def told_of(tables: Any, origins: Any, changelog: str, target: str) -> Any:
    """The events of a run of one connector."""
    return build_apply_lineage([AppliedTables(tables, origins, changelog, "shop")], target)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "dataset"),
    [
        ("/lake/shop/orders", ("file", "/lake/shop/orders")),
        ("file:///lake/shop/orders/", ("file", "/lake/shop/orders")),
        ("s3://lake/shop/orders", ("s3://lake", "shop/orders")),
        ("s3a://lake/shop/50%25 ?#x", ("s3://lake", "shop/50%25 ?#x")),
        ("gs://lake/shop/orders", ("gs://lake", "shop/orders")),
        ("abfss://c@a.dfs.core.windows.net/x", ("abfss://c@a.dfs.core.windows.net", "x")),
        ("hdfs://nn:8020/lake/x", ("hdfs://nn:8020", "/lake/x")),
    ],
)
def test_places_have_the_names_that_other_tools_give_them(url: str, dataset: tuple[str, str]) -> None:
    assert dataset_of(url) == dataset


@pytest.mark.parametrize(
    ("source", "properties", "dataset"),
    [
        ("mysql", {"database.hostname": "db", "database.port": 3307}, ("mysql://db:3307", "INVENTORY.ORDERS")),
        ("mariadb", {"database.hostname": "::1"}, ("mysql://[::1]:3306", "INVENTORY.ORDERS")),
        ("oracle", {"database.hostname": "db"}, ("oracle://db:1521", "FREEPDB1.INVENTORY.ORDERS")),
        (
            "oracle",
            {"database.url": "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST= a.b )(PORT=1522))(CONNECT_DATA=(SERVICE_NAME=x)))"},
            ("oracle://a.b:1522", "FREEPDB1.INVENTORY.ORDERS"),
        ),
        ("oracle", {"database.url": "jdbc:oracle:thin:@//db:1523/FREE"}, ("oracle://db:1523", "FREEPDB1.INVENTORY.ORDERS")),
        ("oracle", {"database.url": "db/FREE"}, ("oracle://db:1521", "FREEPDB1.INVENTORY.ORDERS")),
        ("oracle", {"database.url": "PROD"}, ("oracle://PROD", "FREEPDB1.INVENTORY.ORDERS")),
        ("memory", {"memory.database": "shop"}, ("memory://shop", "INVENTORY.ORDERS")),
    ],
)  # fmt: skip
def test_tables_of_a_source_have_the_names_of_the_specification(
    source: str, properties: dict[str, Any], dataset: tuple[str, str]
) -> None:
    needed: dict[str, Any] = {"topic.prefix": "p", "database.user": "u", "database.server.id": 1}
    if source == "oracle":
        needed |= {"database.dbname": "FREE", "database.pdb.name": "FREEPDB1"}
        del needed["database.server.id"]
    if source == "memory":
        needed = {"topic.prefix": "p"}
    assert config_class(source).parse({**needed, **properties}).build_dataset_name(TABLE) == dataset


# -- capture ----------------------------------------------------------------------------------------------------------


def test_a_capture_reports_the_tables_it_has_captured_their_topics_and_what_is_masked(
    shop_connector: ShopConnector, tmp_path: Path
) -> None:
    shop_connector.database.create_table("inventory.idle", {"id": "int64"}, key=("id",))
    shop_connector.order(1, "secret")
    operator = CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop")
    result = operator.execute(context())
    assert result["events"] == 1
    lineage = document(operator.get_openlineage_facets_on_complete(None))
    (read,), (written,) = lineage["inputs"], lineage["outputs"]
    assert (read["namespace"], read["name"]) == ("memory://lineage", "inventory.orders")
    assert [(f["name"], f["ordinal_position"]) for f in read["facets"]["schema"]["fields"]] == [("id", 1), ("note", 2)]
    assert (written["namespace"], written["name"]) == ("file", f"{tmp_path}/changelog/shop/shop.inventory.orders")
    columns = written["facets"]["columnLineage"]["fields"]
    assert columns["id"]["inputFields"] == [
        {
            "namespace": "memory://lineage", "name": "inventory.orders", "field": "id",
            "transformations": [{"type": "DIRECT", "subtype": "IDENTITY", "masking": False}],
        }
    ]  # fmt: skip
    (masked,) = columns["note"]["inputFields"][0]["transformations"]
    assert (masked["subtype"], masked["description"], masked["masking"]) == ("TRANSFORMATION", "masked", True)
    statistics = written["outputFacets"]["outputStatistics"]
    files = list((tmp_path / "changelog" / "shop" / "data").rglob("*.parquet"))
    assert (statistics["rowCount"], statistics["fileCount"]) == (1, len(files))
    assert statistics["size"] == sum(file.stat().st_size for file in files)


def test_a_capture_that_found_nothing_reports_no_table(shop_connector: ShopConnector) -> None:
    operator = CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop")
    operator.execute(context())
    assert document(operator.get_openlineage_facets_on_complete(None)) == {"inputs": [], "outputs": []}


# -- apply ------------------------------------------------------------------------------------------------------------


def origin(topic: str, **more: Any) -> dict[str, Any]:
    columns = {
        "id": {"type": "bigint", "from": ["id"], "how": "identity"},
        "email": {"type": "string", "from": ["mail"], "how": "identity"},
        "amount": {"type": "double", "from": ["amount"], "how": "cast", "text": "double"},
        "day": {"type": "date", "from": ["at", "zone"], "how": "computed", "text": "to_date(at, zone)"},
        "origin": {"type": "string", "from": [], "how": "constant", "text": "it's"},
        "_op": {"type": "string", "from": [], "how": "event", "text": "op"},
        "_is_current": {"type": "boolean", "from": [], "how": "mode", "text": "history"},
        "old": {"type": "int", "from": [], "how": "dropped"},
    }
    source = dict.fromkeys(("id", "mail", "amount", "at", "zone", "password", "country"), "string")
    known = {"path": f"/lake/{topic}", "catalog": {}, "filter": ["country"], "source": source, "columns": columns}
    return {"location": f"/lake/{topic}", **known, **more}


def test_an_apply_reports_what_rules_make_of_columns() -> None:
    one = {**table("shop.a", c=2, d=1), "rows_written": 2, "bytes_written": 99, "files_written": 1}
    reported = document(told_of([one], {"shop.a": origin("shop.a")}, "s3://lake/log", "delta"))
    (read,), (written,) = reported["inputs"], reported["outputs"]
    assert (read["namespace"], read["name"]) == ("s3://lake", "log/shop/shop.a")
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 3
    assert "password" in {f["name"] for f in read["facets"]["schema"]["fields"]}
    assert (written["namespace"], written["name"]) == ("file", "/lake/shop.a")
    lineage = written["facets"]["columnLineage"]
    come = {name: [f["field"] for f in found["inputFields"]] for name, found in lineage["fields"].items()}
    assert come == {
        "id": ["id"], "email": ["mail"], "amount": ["amount"], "day": ["at", "zone"], "origin": [], "_op": [], "_is_current": [], "old": [],
    }  # fmt: skip
    how = {
        name: found["inputFields"][0]["transformations"][0] for name, found in lineage["fields"].items() if come[name]
    }
    assert {name: (found["subtype"], found.get("description")) for name, found in how.items()} == {
        "id": ("IDENTITY", None), "email": ("IDENTITY", None), "amount": ("TRANSFORMATION", "cast to double"),
        "day": ("TRANSFORMATION", "to_date(at, zone)"),
    }  # fmt: skip
    texts = {name: found["transformationDescription"] for name, found in lineage["fields"].items() if not come[name]}
    assert texts == {
        "origin": 'the text "it\'s"', "_op": "the operation of the last event", "_is_current": "kept up to date by mode history",
        "old": "dropped at the source, and kept unchanged",
    }  # fmt: skip
    assert [(f["field"], f["transformations"][0]["subtype"]) for f in lineage["dataset"]] == [("country", "FILTER")]
    assert {(f["name"], f["type"]) for f in written["facets"]["schema"]["fields"]} >= {
        ("day", "date"),
        ("id", "bigint"),
    }
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (2, 99, 1)
    assert written["facets"]["storage"]["storageLayer"] == "delta"


def test_topics_that_share_a_table_are_all_named_as_its_columns_origin() -> None:
    shared = {"location": "/lake/all", "path": "/lake/all"}
    tables = [{**table(f"shop.{n}", c=1), "location": "/lake/all", "rows_written": 1} for n in ("a", "b")]
    tables[1]["rows_written"] = None
    known = {f"shop.{n}": origin(n, **shared) for n in ("a", "b")}
    lineage = document(told_of(tables, known, "/log", "iceberg"))
    (written,) = lineage["outputs"]
    fields = written["facets"]["columnLineage"]["fields"]["email"]["inputFields"]
    assert [f["name"] for f in fields] == ["/log/shop/shop.a", "/log/shop/shop.b"]
    assert (
        "rowCount" not in written["outputFacets"]["outputStatistics"]
    )  # a number that is unknown for one of both is left out


def test_tables_that_a_route_makes_of_one_topic_are_reported_each_with_the_topic_read_once() -> None:
    names = {f"shop.a → /lake/{place}": f"/lake/{place}" for place in ("eu", "us")}
    tables = [{**table("shop.a", c=3), "name": name, "location": at} for name, at in names.items()]
    known = {name: origin("a", location=at, path=at) for name, at in names.items()}
    lineage = document(told_of(tables, known, "/log", "delta"))
    (read,) = lineage["inputs"]
    assert (read["name"], read["inputFacets"]["inputStatistics"]["rowCount"]) == ("/log/shop/shop.a", 3)
    assert [written["name"] for written in lineage["outputs"]] == ["/lake/eu", "/lake/us"]
    assert all("columnLineage" in written["facets"] for written in lineage["outputs"])


@pytest.mark.parametrize(
    ("catalog", "namespace"),
    [
        ({"type": "rest", "uri": "https://catalog.example.com"}, "https://catalog.example.com"),
        ({"type": "hive", "uri": "thrift://ms:9083", "warehouse": "/w"}, "hive://ms:9083"),
        ({"type": "hadoop", "warehouse": "s3://lake/w"}, "s3://lake/w"),
        ({}, "lake"),
    ],
)
def test_a_table_of_a_catalog_has_its_files_and_its_name_in_lineage(catalog: dict[str, str], namespace: str) -> None:
    at = {
        "location": "lake.shop.`a.b`",
        "path": "s3a://lake/w/shop/a.b",
        "catalog": {"name": "lake.shop.a.b", **catalog},
    }
    one = {**table("shop.a", c=1), "location": at["location"]}
    (written,) = document(told_of([one], {"shop.a": origin("a", **at)}, "/log", "iceberg"))["outputs"]
    assert (written["namespace"], written["name"]) == ("s3://lake", "w/shop/a.b")
    assert written["facets"]["symlinks"]["identifiers"] == [
        {"namespace": namespace, "name": "shop.a.b", "type": "TABLE"}
    ]


def test_of_a_table_whose_columns_are_not_known_only_its_name_is_reported() -> None:
    tables = [table("shop.a", c=1), {**table("shop.b", c=1), "location": "lake.shop.b"}]
    lineage = document(told_of(tables, {"shop.a": origin("a", location="/elsewhere")}, "/log", "delta"))
    names = [(one["namespace"], one["name"], sorted(one["facets"])) for one in lineage["outputs"]]
    assert names == [("file", "/lake/shop.a", ["storage"]), ("lake", "shop.b", ["storage"])]


def test_a_task_reports_the_tables_of_its_run_and_also_when_some_have_failed(tmp_path: Path, spark: Spark) -> None:
    from tests.support.airflow.airflow_versions import AirflowException

    ColumnOrigins(Storage(f"{tmp_path}/changelog"), "shop").write(
        {"target": "delta", "location": LOCATION, "tables": {"shop.a": origin("shop.a")}}
    )
    spark.will(report(table("shop.a", c=2), table("shop.b", c=1), table("shop.a", d=1)))
    operator = apply(tmp_path)
    operator.execute(context())
    lineage = document(operator.get_openlineage_facets_on_complete(None))
    assert [one["name"] for one in lineage["outputs"]] == ["/lake/shop.a", "/lake/shop.b"]
    assert ["columnLineage" in one["facets"] for one in lineage["outputs"]] == [True, False]
    spark.will(report(table("shop.a", u=1), **{"shop.b": "no room"}), status=1)
    operator = apply(tmp_path)
    with pytest.raises(AirflowException, match="no room"):
        operator.execute(context())
    lineage = document(operator.get_openlineage_facets_on_complete(None))
    assert [one["name"] for one in lineage["outputs"]] == ["/lake/shop.a"]


WITHOUT = """
import importlib.abc, importlib.metadata, importlib_metadata, sys

for found in (importlib.metadata, importlib_metadata):
    found.distributions = lambda everything=found.distributions, **given: [
        d for d in everything(**given) if "openlineage" not in d.metadata["Name"]
    ]

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "openlineage" or name.startswith("airflow.providers.openlineage"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import airflow_provider_cdc.dag, airflow_provider_cdc.operators.apply_changes, airflow_provider_cdc.operators.capture
from airflow_provider_cdc.operators.base import openlineage_events

print(openlineage_events.is_installed(), [name for name in sys.modules if name.startswith("openlineage")])
"""


def test_tasks_do_without_the_provider_where_it_is_not_installed(tmp_path: Path) -> None:
    environment = {"AIRFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(paths.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1:] == ["False []"], done
