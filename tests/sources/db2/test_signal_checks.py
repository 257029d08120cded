"""The signal table of Db2: findings about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.spi.source import Finding
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT
from tests.support.sources.db2.db2_settings import CONTROL_GRANTS, SIGNAL_GRANT


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        db2_adapter = Db2Adapter(db2, stack)
        db2_adapter.create("t", {"id": INT}, ("id",))
        yield db2_adapter


def list_findings(db: Db2Adapter, folder: Path, **properties: Any) -> list[Finding]:
    properties = {
        "signal_data_collection": db.collection("signals"),
        "table_include_list": rf"{db.namespace}\.t",
        **properties,
    }
    connector = db.connector(folder, **properties)
    with open_source(connector.definition(), connector.secrets) as source:
        seen = source.check_prerequisites()
    assert not any(f.fatal for f in seen), seen
    return seen


def test_a_table_as_it_should_be(db: Db2Adapter, tmp_path: Path) -> None:
    db.signals()
    assert list_findings(db, tmp_path) == []


def test_no_table(db: Db2Adapter, tmp_path: Path) -> None:
    (one,) = list_findings(db, tmp_path)
    assert "does not exist" in one.problem
    statements = one.fix.split("; ")
    db.sql(*statements)
    db._tables["signals"] = None
    assert [
        f.problem for f in list_findings(db, tmp_path) if "not exist" in f.problem or "capture mode" in f.problem
    ] == []


def test_a_name_that_is_none(db: Db2Adapter, tmp_path: Path) -> None:
    (one,) = list_findings(db, tmp_path, signal_data_collection="signals")
    assert "not the name of a table" in one.problem


def test_nothing_is_looked_at_where_nothing_uses_it(db: Db2Adapter, tmp_path: Path) -> None:
    assert list_findings(db, tmp_path, read_only=True, signal_enabled_channels="file") == []


def test_a_table_that_is_not_in_capture_mode(db: Db2Adapter, tmp_path: Path) -> None:
    db.signals()
    db.server.remove_table(db.namespace, "signals")
    seen = list_findings(db, tmp_path)
    assert "not in capture mode" in seen[0].problem
    assert "ADDTABLE" in seen[0].fix


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"id": "VARCHAR(42)", "type": "VARCHAR(32)"}, "2 columns instead of three"),
        ({"id": "VARCHAR(4)", "type": "VARCHAR(32)", "data": "VARCHAR(2048)"}, "too small for ids"),
        ({"id": "VARCHAR(42)", "type": "INTEGER", "data": "VARCHAR(2048)"}, "too small for types of signals"),
        ({"id": "VARCHAR(42)", "type": "VARCHAR(32)", "data": "CLOB(1M)"}, "change tables contain no values"),
    ],
)
def test_columns_that_do_not_fit(db: Db2Adapter, tmp_path: Path, columns: dict[str, str], text: str) -> None:
    db._create("signals", columns, ("id",))
    db.sql(f"GRANT INSERT, DELETE ON TABLE {db.name('signals')} TO USER CDC")
    (one,) = list_findings(db, tmp_path)
    assert text in one.problem


def test_the_check_names_the_grants_for_watermarks(db2_factory: Callable[..., Db2], tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = db2_factory(authorize=True)
        server.sql(*CONTROL_GRANTS, SIGNAL_GRANT)
        db = Db2Adapter(server, stack)
        db.create("t", {"id": INT}, ("id",))
        _watermarks_need_rights(db, tmp_path)


def _watermarks_need_rights(db: Db2Adapter, tmp_path: Path) -> None:
    db.signals()
    db.sql(f"REVOKE INSERT, DELETE ON TABLE {db.name('signals')} FROM USER CDC")
    (one,) = list_findings(db, tmp_path, incremental_snapshot_watermarking_strategy="insert_delete")
    assert "lacks INSERT, DELETE" in one.problem
    assert list_findings(db, tmp_path, read_only=True) == []
    db.sql(one.fix.partition(", or set")[0])
    assert list_findings(db, tmp_path, incremental_snapshot_watermarking_strategy="insert_delete") == []
