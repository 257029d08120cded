"""Statements that change rows, where the log has no rows. On servers: ``tests/cases/test_notlogged.py``."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.catalog_reader import StoredObjects
from airflow_provider_cdc.sources.mysql.schema.ddl_applier import DdlApplier, QueryEvent
from airflow_provider_cdc.sources.mysql.schema.live_catalog import LiveCatalog
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver
from tests.support.sources.mysql.binlog import CONFIG
from tests.support.sources.mysql.mysql_chunks import FixedTables


def _named(*names: str) -> frozenset[TableId]:
    return frozenset(TableId(namespace="shop", name=name) for name in names)


STORED = StoredObjects(_named("t", "audited", "plain"), _named("w"), _named("f"), _named("audited"))


@pytest.fixture
def catalog() -> SimpleNamespace:
    """Stands in for the connection to a catalog; a test may change what the server has."""
    made = SimpleNamespace(stored=STORED)
    made.read_stored_objects = lambda: made.stored
    return made


@pytest.fixture
def applier(catalog: Any) -> DdlApplier:
    (captured,) = _named("t")
    schema = TableSchema(id=captured, columns=(Column(name="id", type="int32", nullable=False),), key=("id",))
    tables = FixedTables({captured: schema})
    return DdlApplier(CONFIG, tables, LiveCatalog(lambda question: question(catalog)), TableNameResolver(0, tables))


def _why(applier: DdlApplier, sql: str) -> str | None:
    (statement,) = ddl.parse_statements(sql)
    assert isinstance(statement, ddl.DmlStatement)
    return applier.concerned_by(statement, QueryEvent(1, 0, "shop", sql, 0))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("UPDATE t SET v = 1", "it names shop.t"),
        ("UPDATE w SET v = 1", "it names the view shop.w"),
        ("INSERT INTO plain VALUES (f())", "it names the function shop.f"),
        ("INSERT INTO audited VALUES (1)", "it names the table with triggers shop.audited"),
        ("SELECT g()", "it calls a function"),
        ("DELETE FROM gone", "it does not name any table that now exists in shop"),
        ("INSERT INTO plain VALUES (1)", None),
    ],
)
def test_a_statement_may_change_captured_rows_by_another_name(applier: DdlApplier, sql: str, why: str | None) -> None:
    """M2: a statement that is taken for one on other tables is passed over, and its changes are lost."""
    found = _why(applier, sql)
    assert found == why if why is None else (found or "").startswith(why)


def test_a_view_that_is_made_while_the_log_is_read_counts(applier: DdlApplier, catalog: Any) -> None:
    assert _why(applier, "UPDATE plain SET v = 1") is None
    catalog.stored = replace(STORED, views=STORED.views | _named("plain"), tables=_named("t"))
    assert _why(applier, "UPDATE plain SET v = 1") is None
    applier.routes_changed()
    assert (_why(applier, "UPDATE plain SET v = 1") or "").startswith("it names the view shop.plain")


def test_a_view_that_is_renamed_while_the_log_is_read_counts(applier: DdlApplier, catalog: Any) -> None:
    assert (_why(applier, "UPDATE w SET v = 1") or "").startswith("it names the view shop.w")
    catalog.stored = replace(STORED, views=_named("u"))
    sql = "RENAME TABLE w TO u"
    (statement,) = ddl.parse_statements(sql)
    assert applier.determine_effect(statement, QueryEvent(1, 0, "shop", sql, 0), "here") is None
    assert (_why(applier, "UPDATE u SET v = 1") or "").startswith("it names the view shop.u")
