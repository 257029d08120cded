"""Stored origins of the columns of target tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.column_origins import ColumnOrigins

LOCATION = "/lake/{table}"


@pytest.fixture
def origins(tmp_path: Path) -> ColumnOrigins:
    return ColumnOrigins(Storage(str(tmp_path)), "shop")


def test_each_target_has_a_document_of_its_own(origins: ColumnOrigins) -> None:
    assert origins.read("delta", LOCATION) == {}
    origins.write({"target": "delta", "location": LOCATION, "tables": {"shop.t": {"columns": {"é": {"from": ["é"]}}}}})
    origins.write({"target": "iceberg", "location": LOCATION, "tables": {}})
    assert origins.read("delta", LOCATION) == {"shop.t": {"columns": {"é": {"from": ["é"]}}}}
    assert origins.read("iceberg", LOCATION) == origins.read("delta", "/elsewhere") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1", '{"tables": 1}', '{"tables": {"t": 1}}', "[1]", "\x00"])
def test_a_document_that_makes_no_sense_is_found_again(origins: ColumnOrigins, text: str) -> None:
    origins.write({"target": "delta", "location": LOCATION, "tables": {"shop.t": {}}})
    Path(origins.report_path("delta", LOCATION)).write_text(text)
    assert origins.read("delta", LOCATION) == {}
