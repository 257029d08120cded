"""The form of structures in ``schema-changes`` signals, whatever the database. Names and types are tested with each source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableChange, TableId
from airflow_provider_cdc.sources.relational.schema_signal import SignalColumn, read_change

ORDERS = TableId(namespace="shop", name="orders")


class _PlainDialect:
    """The dialect of a database whose types are those of the change log, and whose names may be in any case."""

    def resolve_tables(self, text: Any) -> tuple[TableId, TableId | None]:
        names = [TableId(namespace="shop", name=name) for name in str(text).split(">")]
        return names[-1], names[0] if len(names) > 1 else None

    def find_charset(self, table: TableId, structure: Mapping[str, Any]) -> str | None:
        return structure.get("defaultCharsetName")

    def build_column(self, given: SignalColumn) -> Column:
        declared = ColumnDeclaration(
            charset=given.document.get("charsetName", given.table_charset), length=given.length, scale=given.scale,
            default=given.default, generated=given.generated, auto_incremented=given.auto_incremented,
        )  # fmt: skip
        return Column(name=given.name, type=given.type_text, nullable=given.nullable, declared=declared)

    def fold_name(self, name: str) -> str:
        return name.lower()

    def build_structure_error(self, what: str) -> ConfigError:
        return ConfigError(f"refused: {what}")


def _change(**table: Any) -> TableChange:
    columns = [{"name": "b", "typeName": "string", "position": 2}, {"name": "a", "typeName": "int32", "position": 1}]
    return read_change({"type": "ALTER", "id": "orders", "table": {"columns": columns} | table}, _PlainDialect())


def _column(**given: Any) -> Column:
    (column,) = _table(_change(columns=[{"name": "a", "typeName": "int32"} | given])).columns
    return column


def _table(change: TableChange) -> Any:
    assert change.table is not None
    return change.table


def test_columns_stand_in_the_order_of_their_positions() -> None:
    change = _change()
    assert (change.type, change.id, change.exact) == ("ALTER", ORDERS, True)
    assert _table(change).column_names == ("a", "b")


def test_columns_of_the_key_are_never_null() -> None:
    table = _table(_change(primaryKeyColumnNames=["a"]))
    assert table.key == ("a",)
    assert [c.nullable for c in table.columns] == [False, True]
    assert not _column(optional=False).nullable


def test_a_table_that_is_dropped_needs_no_structure() -> None:
    assert read_change({"type": "DROP", "id": "orders"}, _PlainDialect()) == TableChange(type="DROP", id=ORDERS)


def test_a_table_may_have_had_another_name() -> None:
    columns = [{"name": "a", "typeName": "int32"}]
    change = read_change({"type": "ALTER", "id": "old>orders", "table": {"columns": columns}}, _PlainDialect())
    assert (change.previous_id, change.id) == (TableId(namespace="shop", name="old"), ORDERS)


def test_the_source_gets_the_column_facts_of_the_signal() -> None:
    declared = _column(length=9, scale=2, defaultValueExpression=5, charsetName="latin1").declared
    assert (declared.length, declared.scale, declared.default, declared.charset) == (9, 2, "5", "latin1")
    assert _column(typeName=None, typeExpression="int64").type == "int64"
    table = _table(_change(defaultCharsetName="utf8mb4"))
    assert [table.charset, *(c.declared.charset for c in table.columns)] == ["utf8mb4"] * 3


def test_a_column_that_the_database_numbers_is_not_a_generated_one() -> None:
    numbered, generated = _column(autoIncremented=True, generated=True), _column(generated=True)
    assert (numbered.declared.auto_incremented, numbered.declared.generated) == (True, False)
    assert (generated.declared.auto_incremented, generated.declared.generated) == (False, True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"columns": []}, '"columns"'),
        ({"columns": None}, '"columns"'),
        ({"columns": ["a"]}, 'without "name"'),
        ({"columns": [{"typeName": "int32"}]}, 'without "name"'),
        ({"columns": [{"name": "a"}]}, 'no "typeName"'),
        ({"columns": [{"name": "a", "typeName": ""}]}, 'no "typeName"'),
        ({"columns": [{"name": "a", "typeName": "int32", "length": "9"}]}, "\"length\" of shop.orders.a is '9'"),
        ({"columns": [{"name": "a", "typeName": "int32", "scale": True}]}, "not a number"),
        ({"columns": [{"name": name, "typeName": "int32"} for name in "aA"]}, "two columns of the same name"),
        ({"primaryKeyColumnNames": "a"}, "not a list"),
        ({"primaryKeyColumnNames": ["zz"]}, "its columns are a, b"),
        ({"primaryKeyColumnNames": [{"name": "a"}]}, "its columns are a, b"),
    ],
)
def test_what_cannot_be_understood_is_refused_in_the_words_of_the_source(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"refused: .*{message}"):
        _change(**table)


@pytest.mark.parametrize("document", [{"type": "MODIFY", "id": "orders"}, {"id": "orders"}])
def test_a_change_creates_alters_or_drops(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="valid values are CREATE, ALTER and DROP"):
        read_change(document, _PlainDialect())


def test_a_change_without_a_structure_is_refused() -> None:
    with pytest.raises(ConfigError, match='"columns"'):
        read_change({"type": "CREATE", "id": "orders"}, _PlainDialect())
