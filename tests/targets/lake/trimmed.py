"""Tables on a change log whose first batches were removed, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.retention.batch_retention import Retention, RetentionLimits
from airflow_provider_cdc.changelog.retention.retention_plan import RetentionPlan
from airflow_provider_cdc.core.errors import TargetError
from tests.support.signals import snapshot
from tests.targets.lake.lake import Lake

COLUMNS = {"id": "int64!", "n": "int32", "region": "string"}
NAMES = ("a", "b", "c")


def database(lake: Lake) -> Any:
    return lake.connector.database  # type: ignore[attr-defined]


def put_rows(lake: Lake, table: str, *ids: int, region: str = "eu") -> None:
    """Rows of a table, captured as a batch."""
    with database(lake).transaction() as t:
        for i in ids:
            t.insert(f"s.{table}", {"id": i, "n": i, "region": region})
    lake.connector.capture()


def create(lake: Lake, *names: str, key: tuple[str, ...] = ("id",)) -> None:
    for name in names:
        database(lake).create_table(f"s.{name}", COLUMNS, key=key)


def trim(lake: Lake) -> RetentionPlan:
    """Remove whatever no target needs."""
    return Retention(lake.connector.changelog, lake.connector.name, RetentionLimits(ms=0)).run()


def fill_tables(lake: Lake) -> None:
    """``s.a`` has rows in batches that are removed and in later ones, ``s.b`` only in removed ones, ``s.c`` begins after them."""
    create(lake, "a", "b")
    put_rows(lake, "a", 1, 2)
    put_rows(lake, "b", 1)
    put_rows(lake, "a", 3)
    lake.apply()
    assert trim(lake).removed_batches >= 2
    create(lake, "c")
    put_rows(lake, "c", 1)
    put_rows(lake, "a", 4)
    lake.apply()


def other_target(lake: Lake, **more: Any) -> Lake:
    """Another target of the same connector."""
    return replace(lake, name="elsewhere", reports=[], **more)


def list_failures(lake: Lake, **options: Any) -> dict[str, str]:
    """Topic → why its table could not be brought up to date; the others are."""
    job = lake.job(**options)
    with pytest.raises(TargetError):
        job.run()
    found = ApplyReports(lake.connector.changelog.storage, lake.connector.name).read(lake.kind, lake.location)
    assert found is not None
    return dict(found["failed"])


def equal(lake: Lake, *names: str) -> None:
    """Tables have the rows of the source."""
    for name in names:
        rows = database(lake).copy_rows(f"s.{name}")
        assert lake.rows(f"s.{name}", *(rows[0] if rows else ())) == sorted(rows, key=repr), name


def read_again(lake: Lake, *names: str) -> None:
    snapshot(lake.connector, *(f"s.{name}" for name in names), replace=True)
    lake.connector.capture()
