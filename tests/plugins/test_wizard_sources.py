"""The wizard's definition of each source, from what the source offers to tables that equal it, with no word of it changed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.hooks.new_definition import kinds
from tests.plugins.conftest import Asked
from tests.plugins.test_wizard import API
from tests.support.any_source import SOURCES, AnySource, Rows, any_source, noted, parsed, ran, target_table
from tests.support.face import Shop, connect

FLEET = """
from pathlib import Path

from airflow_provider_cdc.dag import cdc_dags

fleet = cdc_dags(Path(__file__).parent / "fleet")
"""
"""A DAG file as docs/airflow.md has it."""


def target(folder: Path, source: AnySource, name: str) -> Rows:
    """A table of the target as ``(id, note)``."""
    table = target_table("made", source.tables[name])
    with contextlib.closing(sqlite3.connect(folder / "warehouse.db")) as connection:
        return noted(source.kind, connection.execute(f'SELECT * FROM "{table}"').fetchall())


def said(asked: Asked, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the wizard answers."""
    answer = asked().post(f"{API}/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_each_source_is_tried() -> None:
    assert sorted(SOURCES) == kinds()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_the_definition_makes_the_target_equal_to_the_source(
    request: pytest.FixtureRequest, shop: Shop, asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    with any_source(kind, request) as source:
        connect(monkeypatch, "its-source", conn_type=f"cdc_{kind}", **source.fields)
        connect(monkeypatch, "ware-house", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
        if kind != "debezium":
            there = said(asked, "connections/its-source", {"seconds": 60})
            assert there["asked"] is True
            assert {*source.tables.values(), *source.left_out} <= set(there["tables"])
        # what tables of others lack, as those that another test has left there, does not matter
        chosen = [] if kind == "debezium" else list(source.tables.values())
        found = said(asked, "connections/its-source", {"seconds": 60, "tables": chosen})
        assert found["ready"] is True, found
        body = {
            "source": kind, "name": "made", "conn_id": "its-source", "tables": list(source.tables.values()), "left_out": source.left_out,
            "target": "database", "database": "ware-house", "changelog": f"{tmp_path}/the log", "properties": source.properties,
        }  # fmt: skip
        written = said(asked, "definition", body)
        assert written["lacks"] == []
        folder = tmp_path / "dags"
        (folder / "fleet").mkdir(parents=True)
        (folder / written["python_file"]).write_text(written["python"], encoding="utf-8")
        (folder / "fleet.py").write_text(FLEET)
        (folder / "fleet" / written["yaml_file"]).write_text(written["yaml"], encoding="utf-8")
        result = ran(parsed(folder, written["python_file"]))
        assert len(result["topics"]) == len(source.tables)
        for name in source.tables:
            assert target(tmp_path, source, name) == source.rows(name)
            assert len(source.rows(name)) == 2
            source.change(name)
        ran(parsed(folder, "fleet.py"))
        for name in source.tables:
            assert target(tmp_path, source, name) == source.rows(name) == [(2, "second"), (3, "thïrd")]
