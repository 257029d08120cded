"""Structures in ``schema-changes`` signals: a schema change event can be sent back as a signal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cdc.changelog.debezium.record_renderer import _table_change
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.schema.schema_signal import table_of
from tests.support.sources.mysql.mysql_chunks import source_of

CONFIG = MySqlConfig.parse(
    {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 7}
)
ALL = """
id BIGINT UNSIGNED AUTO_INCREMENT, a TINYINT, b SMALLINT UNSIGNED ZEROFILL NOT NULL, c MEDIUMINT, d INT DEFAULT 5,
e DECIMAL(12,3) DEFAULT 1.5, f FLOAT, g DOUBLE, h BIT(1), i BIT(20), j CHAR(5), k VARCHAR(30) NOT NULL DEFAULT 'it''s',
l TEXT, m LONGTEXT CHARACTER SET latin1, n BINARY(4), o VARBINARY(9), p BLOB, q DATE, r TIME(3), s DATETIME(6),
t TIMESTAMP(2) NULL, u YEAR, v ENUM('a','b''c','d,e'), w SET('x','y'), x POINT, y GEOMETRY, z DECIMAL(50,10),
aa INT GENERATED ALWAYS AS (a + 1) STORED, ab JSON, PRIMARY KEY (id), UNIQUE (k)
"""


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_the_table_in_an_event_is_the_table(request: pytest.FixtureRequest, kind: str) -> None:
    server = request.getfixturevalue(kind)
    with server.database("named") as db, source_of(server) as source:
        own = ", ac UUID, ad INET6" if kind == "mariadb" else ", ac VECTOR(3)"
        db.sql(f"CREATE TABLE t ({ALL.strip()}{own})")
        schema = source.discover_tables()[TableId(namespace=db.name, name="t")]
        change = TableChange(type="ALTER", id=schema.id, table=schema)
        document = json.loads(json.dumps(_table_change(change)))
        found = source.table_of(document, "elsewhere", None)
        assert (found.type, found.id) == ("ALTER", schema.id)
        assert found.table is not None
        assert found.table.key == schema.key
        assert found.table.charset == schema.charset
        for mine, theirs in zip(found.table.columns, schema.columns, strict=True):
            # whether a default has to be computed is not part of the form
            expected = theirs.declared.model_copy(update={"default_is_expression": False})
            assert mine == theirs.model_copy(update={"declared": expected})


def _document(**rest: Any) -> dict[str, Any]:
    columns = [
        {"name": "b", "typeName": "VARCHAR", "length": 20, "position": 2, "charsetName": "latin1"},
        {"name": "a", "jdbcType": 4, "typeName": "INT", "position": 1, "optional": False},
    ]
    table = {
        "defaultCharsetName": "utf8mb4",
        "primaryKeyColumnNames": ["a"],
        "columns": columns,
        **rest.pop("table", {}),
    }
    return {"type": "CREATE", "id": '"shop"."orders"', "table": table, **rest}


def test_texts_have_the_length_and_the_character_set_that_the_signal_reports() -> None:
    change = table_of(_document(), "db", CONFIG)
    assert change.id == TableId(namespace="shop", name="orders")
    assert change.table is not None
    assert (change.table.get_column("b").declared.length, change.table.get_column("b").declared.charset) == (
        20,
        "latin1",
    )


@pytest.mark.parametrize(
    ("text", "table", "previous"),
    [
        ("orders", "db.orders", None),
        ("shop.orders", "shop.orders", None),
        ("`shop`.`or.ders`", "shop.or.ders", None),
        ('"shop"."old","shop"."new"', "shop.new", "shop.old"),
    ],
)
def test_names_of_tables(text: str, table: str, previous: str | None) -> None:
    change = table_of(_document(id=text), "db", CONFIG)
    assert (str(change.id), None if change.previous_id is None else str(change.previous_id)) == (table, previous)


def test_types_with_their_numbers_inside() -> None:
    columns = [
        {"name": "a", "typeName": "decimal(9,2)"},
        {"name": "b", "typeName": "enum('x','y')"},
        {"name": "c", "typeName": "INT UNSIGNED"},
    ]
    change = table_of(_document(table={"columns": columns, "primaryKeyColumnNames": None}), "db", CONFIG)
    assert change.table is not None
    assert [c.type for c in change.table.columns] == ["decimal128(9, 2)", "string", "int64"]
    assert change.table.get_column("b").declared.values == ("x", "y")


def _column(**rest: Any) -> dict[str, Any]:
    return _document(table={"columns": [{"name": "a", "typeName": "INT", **rest}]})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (_document(id=None), "is not the name of a table"),
        (_document(id="a.b.c"), "is not the name of a table"),
        (_document(table={"columns": [{"name": n, "typeName": "INT"} for n in "aA"]}), "two columns of the same name"),
        (_document(table={"defaultCharsetName": 8}), "defaultCharsetName"),
        (_column(typeName="NUMBR"), "NUMBR"),
        (_column(typeName="ENUM"), "enumValues"),
    ],
)
def test_what_cannot_be_understood_is_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        table_of(document, "db", CONFIG)
