"""The wizard's definition of each source, from what the source offers to tables that equal it, with no word of it changed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyiceberg.table import StaticTable

from airflow_provider_cdc.services.definition_writer import list_source_kinds
from tests.plugins.conftest import ClientFactory
from tests.plugins.test_wizard import API
from tests.support.airflow.airflow_connector import ShopConnector, connect
from tests.support.sources.any_source import (
    SOURCES,
    AnySource,
    Rows,
    any_source,
    normalize_rows,
    parse_dag,
    run_dag,
    target_table,
)

FLEET = """
from pathlib import Path

from airflow_provider_cdc.dag import cdc_dags

fleet = cdc_dags(Path(__file__).parent / "fleet")
"""
"""A DAG file as docs/platforms/airflow.md has it."""


def target(folder: Path, source: AnySource, name: str) -> Rows:
    """A table of the target as ``(id, note)``."""
    table = target_table("made", source.tables[name])
    with contextlib.closing(sqlite3.connect(folder / "warehouse.db")) as connection:
        return normalize_rows(source.kind, connection.execute(f'SELECT * FROM "{table}"').fetchall())


def wizard_answer(client_factory: ClientFactory, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Post a request to the wizard, and return its answer."""
    answer = client_factory().post(f"{API}/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_each_source_is_tried() -> None:
    assert sorted(SOURCES) == list_source_kinds()


def in_lake(lake: Path, kind: str, source: AnySource) -> list[Rows]:
    """Return the rows of each table of a lake as ``(id, note)``, in no order, read without Spark."""
    if kind == "delta":
        tables = [deltalake.DeltaTable(log.parent).to_pyarrow_table() for log in lake.rglob("_delta_log")]
    else:
        newest = (max(folder.glob("v*.metadata.json"), key=_version) for folder in lake.rglob("metadata"))
        tables = [StaticTable.from_metadata(str(file)).scan().to_arrow() for file in newest]
    return [normalize_rows(source.kind, [tuple(row.values()) for row in table.to_pylist()]) for table in tables]


def _version(file: Path) -> int:
    return int(file.name.removeprefix("v").partition(".")[0])


def write_definition(
    client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch, folder: Path, source: AnySource, **target: str
) -> tuple[str, str]:
    """Type into the wizard what a user would, and keep what it writes: the file of Python, and one that reads that of YAML."""
    connect(monkeypatch, "its-source", conn_type=f"cdc_{source.kind}", **source.fields)
    if source.kind != "debezium":
        there = wizard_answer(client_factory, "connections/its-source", {"seconds": 60})
        assert there["queried"] is True
        assert {*source.tables.values(), *source.left_out} <= set(there["tables"])
    # what tables of others lack, as those that another test has left there, does not matter
    chosen = [] if source.kind == "debezium" else list(source.tables.values())
    found = wizard_answer(client_factory, "connections/its-source", {"seconds": 60, "tables": chosen})
    assert found["ready"] is True, found
    body = {
        "source": source.kind, "name": "made", "conn_id": "its-source", "tables": list(source.tables.values()), "left_out": source.left_out,
        "changelog": f"{folder}/the log", "properties": source.properties, **target,
    }  # fmt: skip
    text = wizard_answer(client_factory, "definition", body)
    assert text["lacks"] == []
    dags = folder / "dags"
    (dags / "fleet").mkdir(parents=True)
    (dags / text["python_file"]).write_text(text["python"], encoding="utf-8")
    (dags / "fleet.py").write_text(FLEET)
    (dags / "fleet" / text["yaml_file"]).write_text(text["yaml"], encoding="utf-8")
    return text["python_file"], "fleet.py"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_the_definition_makes_the_target_equal_to_the_source(
    request: pytest.FixtureRequest,
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
) -> None:
    with any_source(kind, request) as source:
        connect(monkeypatch, "ware-house", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
        files = write_definition(
            client_factory, monkeypatch, tmp_path, source, target="database", database="ware-house"
        )
        result = run_dag(parse_dag(tmp_path / "dags", files[0]))
        assert len(result["topics"]) == len(source.tables)
        for name in source.tables:
            assert target(tmp_path, source, name) == source.rows(name)
            assert len(source.rows(name)) == 2
            source.change(name)
        run_dag(parse_dag(tmp_path / "dags", files[1]))
        for name in source.tables:
            assert target(tmp_path, source, name) == source.rows(name) == [(2, "second"), (3, "thïrd")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", sorted(SOURCES))
@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_the_definition_makes_the_lake_equal_to_the_source(
    request: pytest.FixtureRequest,
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    lake: str,
) -> None:
    """With Spark, and the jars that the operator fetches where the definition names none."""
    place = tmp_path / "the lake"
    with any_source(kind, request) as source:
        connect(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
        files = write_definition(
            client_factory, monkeypatch, tmp_path, source, target=lake, location=f"{place}/{{database}}/{{table}}"
        )
        run_dag(parse_dag(tmp_path / "dags", files[0]))
        assert sorted(in_lake(place, lake, source)) == sorted(source.rows(name) for name in source.tables)
        for name in source.tables:
            source.change(name)
        run_dag(parse_dag(tmp_path / "dags", files[1]))
        assert in_lake(place, lake, source) == [[(2, "second"), (3, "thïrd")]] * len(source.tables)
