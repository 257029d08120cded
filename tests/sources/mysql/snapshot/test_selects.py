"""Snapshots that read a table by a person's SELECT instead of all of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import CdcError, QueryRejected
from airflow_provider_cdc.core.model.table_schema import TableId
from tests.support.sources.mysql.mysql_chunks import source_of

COLUMNS = "id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,2), at DATETIME(3), kind ENUM('a','b'), raw VARBINARY(9), n BIGINT UNSIGNED, j JSON"


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("sel") as database:
        rows = ", ".join(
            f"({i}, 'n{i}', {i}.5, '2024-01-0{i} 10:00:00.123', 'b', X'0{i}', {i}, '[{i}]')" for i in range(1, 8)
        )
        database.sql(
            f"CREATE TABLE t ({COLUMNS})", f"INSERT INTO t VALUES {rows}", "CREATE TABLE u (id INT PRIMARY KEY)"
        )
        database.sql("INSERT INTO u VALUES (1), (2)")
        yield database


def _read(db: Any, selects: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    tables = [TableId(namespace=db.name, name=name) for name in "tu"]
    by_id = {t: selects[t.name] for t in tables if t.name in selects}
    found = {}
    with source_of(db.server) as source, source.open_snapshot(tables, readers=2, selects=by_id) as session:
        for table in tables:
            blocks = [block for chunk in session.split_table(table) for block in session.read(chunk)]
            found[table.name] = [row for block in blocks if block.after for row in block.after.to_pylist()]
    return found


@pytest.mark.parametrize(
    ("select", "ids"),
    [
        ("SELECT * FROM {db}.t WHERE id > 3", [4, 5, 6, 7]),
        ("SELECT * FROM {db}.t WHERE id > 3 ORDER BY id DESC;", [7, 6, 5, 4]),
        ("SELECT j, n, raw, kind, at, price, name, id FROM {db}.t WHERE price < 3 -- the cheap ones", [1, 2]),
        ("SELECT t.* FROM {db}.t t JOIN {db}.u u ON u.id = t.id", [1, 2]),
        ("(SELECT * FROM {db}.t WHERE id = 1) UNION ALL (SELECT * FROM {db}.t WHERE id = 5)", [1, 5]),
        ("SELECT * FROM {db}.t ORDER BY price DESC LIMIT 2", [7, 6]),
        ("SELECT * FROM {db}.t WHERE FALSE", []),
    ],
)
def test_a_select_gives_the_rows_and_other_tables_are_read_whole(db: Any, select: str, ids: list[int]) -> None:
    everything = {row["id"]: row for row in _read(db, {})["t"]}
    found = _read(db, {"t": select.format(db=db.name)})
    # an order inside need not come out of it
    assert sorted(found["t"], key=lambda r: r["id"]) == [everything[i] for i in sorted(ids)]
    assert found["u"] == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("SELECT * FORM t", "error in your SQL syntax"),
        ("SELECT id, name FROM {db}.t", "price"),
        ("SELECT * FROM {db}.nothing", "nothing"),
        ("SELECT * FROM {db}.t) s JOIN ({db}.u", "closes a parenthesis"),
        ("SELECT * FROM {db}.t; DELETE FROM {db}.t", "more than one statement"),
        ("UPDATE {db}.t SET id = 1", "UPDATE command denied"),
        ("", "empty"),
        ("SELECT id + 0 id, name, price, at, kind, raw, n, j FROM {db}.t", "id bigint instead of id int"),
        ("SELECT id, name, price + 1 price, at, kind, raw, n, j FROM {db}.t", "price decimal"),
        ("SELECT id, id name, price, at, kind, raw, n, j FROM {db}.t", "name int instead of name text"),
        ("SELECT id, name, price, CONCAT(at, '') at, kind, raw, n, j FROM {db}.t", "at text instead of at datetime"),
        ("SELECT id, name, price, at, kind, name raw, n, j FROM {db}.t", "raw text instead of raw bytes"),
        ("SELECT id, name, price, at, kind, raw, CAST(n AS SIGNED) n, j FROM {db}.t", "n bigint instead of n bigint unsigned"),
        ("SELECT id, NULL name, price, at, kind, raw, NULL n, j FROM {db}.t", "instead of"),
    ],
)  # fmt: skip
def test_a_select_that_does_not_give_the_table_is_refused(db: Any, select: str, message: str) -> None:
    select = select.format(db=db.name)
    with pytest.raises(QueryRejected, match=message) as caught:
        _read(db, {"t": select})
    assert select in str(caught.value)
    assert db.sql("SELECT COUNT(*) FROM t") == [(7,)]


def test_an_expression_of_the_same_form_is_a_column_like_any_other(db: Any) -> None:
    select = f"SELECT id, UPPER(name) name, price, at, 'b' kind, raw, n, j FROM {db.name}.t WHERE id = 1"
    assert _read(db, {"t": select})["t"][0]["name"] == "N1"


def test_a_refusal_says_that_the_database_would_not_let_it_happen(db: Any) -> None:
    try:
        _read(db, {"t": f"SELECT * FROM {db.name}.t WHERE no_such = 1"})
    except CdcError as e:
        error_text = str(e)
    assert "no_such" in error_text
    assert f"{db.name}.t" in error_text
