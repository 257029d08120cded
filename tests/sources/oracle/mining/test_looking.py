"""Questions beside a mining session: they read views and the dictionary, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.lifecycle.log_gap import find_gap
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector

_HARMLESS = re.compile(r"\s*(SELECT|WITH|ALTER SESSION SET (NLS_\w+|TIME_ZONE|CONTAINER)\b)", re.IGNORECASE)
"""Settings are those of the session that looks, which is no other's."""
_SAID = re.compile(r"DBMS_LOGMNR|FOR UPDATE", re.IGNORECASE)


def test_looking_only_selects(schema: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No LogMiner session, no build of a dictionary, no flush of the log writer, no lock, no row written."""
    schema.sql(
        "CREATE TABLE looked (id NUMBER PRIMARY KEY)", "ALTER TABLE looked ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
    )
    connector = oracle_connector(schema, tmp_path)
    connector.capture()
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert offset.position is not None
    text: list[str] = []
    execute = oracledb.Cursor.execute

    def heard(self: Any, statement: Any, *args: Any, **options: Any) -> Any:
        text.append(str(statement))
        return execute(self, statement, *args, **options)

    monkeypatch.setattr(oracledb.Cursor, "execute", heard)
    with open_source(connector.definition(), connector.secrets) as source:
        assert [f for f in source.check_prerequisites() if f.fatal] == []
        source.discover_tables()
        source.collect_stream_metrics()
        assert find_gap("test", offset, None, source) is None
        for place in (source.current_position(), source.oldest_position(), source.parse_position(offset.position)):
            source.verify_position(source.position_of(place.to_json()))
    assert len(text) > 10
    assert [s for s in text if not _HARMLESS.match(s) or _SAID.search(s.replace("'DBMS_LOGMNR", ""))] == []
    connector.capture()
    assert any("DBMS_LOGMNR" in s for s in text), "what a run says is heard"
