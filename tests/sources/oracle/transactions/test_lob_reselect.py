"""Long values that are changed in place: the log has a piece, the table at the commit has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dev.servers import Oracle
from tests.sources.oracle_adapter import oracle_connector


@pytest.fixture(params=["19c", "23ai"])
def long_values(request: pytest.FixtureRequest, schema: Oracle) -> Iterator[Oracle]:
    schema.configure(lob_shape=request.param)
    schema.sql(
        "CREATE TABLE notes (id NUMBER(9) PRIMARY KEY, body CLOB, other CLOB)",
        "ALTER TABLE notes ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    with schema.connect() as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO notes VALUES (1, :1, :2)", ["a" * 5000, "z" * 3000])
        connection.commit()
    yield schema
    schema.configure(lob_shape="19c")


def _append(server: Oracle, text: str) -> None:
    server.sql(
        "DECLARE l CLOB; BEGIN SELECT body INTO l FROM notes WHERE id = 1 FOR UPDATE;"
        f" dbms_lob.writeappend(l, {len(text)}, '{text}'); END;"
    )


def _events(connector: Any, op: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files:
            with connector.changelog.open_file("test", file) as f:
                found += [e for e in pq.ParquetFile(f).read().to_pylist() if e["op"] == op]
    return sorted(found, key=lambda e: int(e["seq"]))


def _bodies(connector: Any) -> list[Any]:
    return [(row["BODY"], row["OTHER"]) for row in connector.rows("APP.NOTES")]


def test_an_event_has_the_value_of_its_own_commit_not_of_a_later_one(long_values: Oracle, tmp_path: Path) -> None:
    connector = oracle_connector(long_values, tmp_path, schema_include_list="APP", lob_enabled=True)
    connector.capture()
    _append(long_values, "b" * 10)
    _append(long_values, "c" * 20)
    connector.capture()
    first = "a" * 5000 + "b" * 10
    events = _events(connector, "u")
    assert [e["after"]["BODY"] for e in events] == [first, first + "c" * 20]
    assert [e["unavailable"] for e in events] == [["OTHER"], ["OTHER"]]
    assert _bodies(connector) == [(first + "c" * 20, "z" * 3000)]


def test_a_value_that_cannot_be_read_any_more_stays_unavailable_and_is_reported(
    long_values: Oracle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    connector = oracle_connector(long_values, tmp_path, schema_include_list="APP", lob_enabled=True)
    connector.capture()
    _append(long_values, "b" * 10)
    long_values.sql("DELETE FROM notes", "INSERT INTO notes VALUES (1, 'new', 'new')")
    long_values.expire_undo()
    connector.capture()
    assert "APP.NOTES.BODY were changed in place (DBMS_LOB)" in caplog.text
    assert _bodies(connector) == [("new", "new")]
