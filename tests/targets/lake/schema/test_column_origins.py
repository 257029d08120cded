"""Origins of the columns of target tables: noted when they change, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
ODD = "it's `odd` ${env:HOME}.x"
COLUMNS = {"id": "int64!", "mail": "string", "amount": "int32", "password": "string", "country": "string"}


def _column_origins(lake: Lake) -> ColumnOrigins:
    return ColumnOrigins(lake.connector.changelog.storage, lake.connector.name)


def _read(lake: Lake, location: str = "") -> dict[str, Any]:
    return _column_origins(lake).read(lake.kind, location or lake.location)


def _insert(lake: Lake, n: int, **more: Any) -> None:
    with lake.connector.database.transaction() as t:
        t.insert("s.t", {"id": n, "mail": "m", "amount": n, "password": "p", "country": "FR", **more})


@pytest.mark.every_kind
def test_columns_are_noted_with_what_rules_make_of_them(lake: Lake) -> None:
    lake.connector.database.create_table("s.t", COLUMNS, key=("id",))
    _insert(lake, 1)
    rule = {
        "tables": ".*", "mode": "soft_delete", "filter": "country = 'FR'",
        "columns": {
            "drop": ["password"], "rename": {"mail": ODD}, "cast": {"amount": "double"}, "constant": {"origin": "{table}"},
            "computed": {"both": "concat(mail, country)"}, "metadata": ["seq"],
        },
    }  # fmt: skip
    lake.tables = TableRules.parse([rule])
    lake.follow()
    found = _read(lake)["p.s.t"]
    assert (found["table"], found["filter"], found["source"]["amount"]) == ("s.t", ["country"], "int32")
    assert Path(found["path"].removeprefix("file:")) == Path(lake.path("s.t"))
    columns = found["columns"]
    assert {name: (one["from"], one["how"]) for name, one in columns.items()} == {
        "id": (["id"], "identity"), ODD: (["mail"], "identity"), "amount": (["amount"], "cast"), "country": (["country"], "identity"),
        "both": (["country", "mail"], "computed"), "origin": ([], "constant"), "_seq": ([], "event"), "_is_deleted": ([], "mode"),
        "_deleted_at": ([], "mode"),
    }  # fmt: skip
    assert {name: one["type"] for name, one in columns.items()} == lake.target("s.t").read_column_types()
    assert (columns["amount"]["text"], columns["both"]["text"], columns["origin"]["text"]) == (
        "double",
        "concat(mail, country)",
        "t",
    )


def test_it_is_written_when_columns_change_and_not_with_every_batch(lake: Lake) -> None:
    database = lake.connector.database
    database.create_table("s.t", COLUMNS, key=("id",))
    _insert(lake, 1)
    lake.follow()
    path = Path(_column_origins(lake).report_path(lake.kind, lake.location))
    first = path.stat().st_mtime_ns
    _insert(lake, 2)
    lake.follow()
    assert path.stat().st_mtime_ns == first
    database.rename_columns("s.t", mail="email")
    database.drop_column("s.t", "password")
    with database.transaction() as t:
        t.insert("s.t", {"id": 3, "email": "m", "amount": 3, "country": "FR"})
    lake.follow()
    columns = _read(lake)["p.s.t"]["columns"]
    assert (columns["email"]["from"], columns["password"]["how"]) == (["email"], "dropped")
    path.write_text("{")  # whatever it was: it is found again by the next apply that changes the table
    with database.transaction() as t:
        t.insert("s.t", {"id": 4, "email": "m", "amount": 3, "country": "FR"})
    lake.follow()
    assert _read(lake)["p.s.t"]["columns"] == columns


def test_an_apply_goes_on_if_it_cannot_be_written_down(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    lake.connector.database.create_table("s.t", COLUMNS, key=("id",))
    folder = Path(_column_origins(lake).report_path(lake.kind, lake.location)).parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("in the way")
    _insert(lake, 1)
    lake.follow()
    lake.check()
    assert "could not be stored" in caplog.text


@pytest.mark.only_kind("iceberg")
def test_a_table_of_a_catalog_is_noted_by_its_files_and_its_name(lake: Lake) -> None:
    lake.connector.database.create_table("s.t", COLUMNS, key=("id",))
    _insert(lake, 1)
    lake.connector.capture()
    location = f"in_files.origins_{Path(lake.folder).name}.{{table}}"
    lake.apply(location=location)
    found = _read(lake, location)["p.s.t"]
    warehouse = lake.spark.conf.get("spark.sql.catalog.in_files.warehouse")
    assert found["catalog"] == {
        "name": location.replace("{table}", "t"), "type": "hadoop", "warehouse": warehouse,
    }  # fmt: skip
    assert found["path"].startswith(f"{warehouse}/")
