"""The limit on the number of captured tables, and runs that exceed it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector
from tests.support.workloads.small_tables import KEYED, equal


def test_more_tables_than_allowed_are_a_warning_and_captured(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = memory_connector(db, tmp_path, guardrail_collections_max=1)
    connector.capture()
    assert "2 tables are captured, more than the limit guardrail.collections.max=1: shop.a, shop.b." in caplog.text
    equal(connector, db)


def test_more_tables_than_allowed_are_an_error_before_anything_is_read(db: MemoryDatabase, tmp_path: Path) -> None:
    limit = {"guardrail_collections_max": 1, "guardrail_collections_limit_action": "fail"}
    connector = memory_connector(db, tmp_path, **limit)
    with pytest.raises(
        PrerequisiteError, match=r"2 tables are captured, more than the limit guardrail\.collections\.max=1"
    ):
        connector.capture()
    assert connector.changelog.list_batches("test") == []
    connector.properties["table.include.list"] = "shop.a"
    connector.capture()
    assert len(connector.rows("shop.a")) == 2
    assert TableConfig.parse({"topic.prefix": "p"}).guardrail_collections_max == 0, "by default any number is allowed"


def test_a_table_that_is_added_later_counts_in_the_next_run(db: MemoryDatabase, tmp_path: Path) -> None:
    limit = {"guardrail_collections_max": 2, "guardrail_collections_limit_action": "fail"}
    connector = memory_connector(db, tmp_path, **limit)
    connector.capture()
    db.create_table("shop.c", KEYED)
    with pytest.raises(PrerequisiteError, match="3 tables are captured"):
        connector.capture()


@pytest.mark.parametrize("limit", [0, 2])
def test_without_a_limit_or_within_it_nothing_is_said(
    db: MemoryDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    with caplog.at_level(logging.WARNING):
        memory_connector(
            db, tmp_path, guardrail_collections_max=limit, guardrail_collections_limit_action="fail"
        ).capture()
    assert "guardrail" not in caplog.text
