"""Tables that DDL in the log may change."""

from __future__ import annotations

from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.relational.captured_structures import CapturedStructures, StatementEffect


def _table(name: str) -> TableId:
    namespace, _, name = name.partition(".")
    return TableId(namespace=namespace, name=name)


ORDERS, SYSTEM, HIDDEN, LATER = map(_table, ("shop.orders", "sys.jobs", "shop.hidden", "shop.later"))


class _Tables(CapturedTableSchemas):
    """Structures of three tables; all but one that is left out may be captured."""

    def find_schema(self, table: TableId) -> TableSchema | None:
        columns = (Column(name="id", type="int64"),)
        return TableSchema(id=table, columns=columns) if table in self.list_known_tables() else None

    def is_captured(self, table: TableId) -> bool:
        return table != HIDDEN

    def list_known_tables(self) -> list[TableId]:
        return [ORDERS, SYSTEM, HIDDEN]


def _make_structures() -> CapturedStructures:
    return CapturedStructures(_Tables(), lambda table: table.namespace == "sys")


def test_tables_of_the_database_s_own_and_tables_that_are_left_out_are_no_concern() -> None:
    captured = _make_structures()
    assert [captured.is_captured(t) for t in (ORDERS, LATER, SYSTEM, HIDDEN)] == [True, True, False, False]
    assert [captured.find_structure(t) is not None for t in (ORDERS, LATER, SYSTEM, HIDDEN)] == [
        True,
        False,
        False,
        False,
    ]


def test_a_statement_that_is_not_understood_may_be_about_any_table_unless_it_names_some() -> None:
    captured = _make_structures()
    assert captured.list_concerned_tables([]) == [ORDERS]
    assert captured.list_concerned_tables([LATER, SYSTEM, HIDDEN]) == [LATER]
    assert captured.in_namespace("shop") == [ORDERS, HIDDEN]


def test_only_captured_tables_with_a_structure_are_dropped_or_have_other_rows() -> None:
    captured, effect = _make_structures(), StatementEffect()
    for table in (ORDERS, LATER, SYSTEM, HIDDEN):
        captured.drop_table(table, effect)
    assert effect.changes == [TableChange(type="DROP", id=ORDERS)]
    effect = StatementEffect()
    assert [captured.rows_changed(t, effect) for t in (ORDERS, LATER, SYSTEM, HIDDEN)] == [True, False, False, False]
    (change,) = effect.changes
    assert (change.type, change.id, change.exact) == ("ALTER", ORDERS, False)
    assert change.table == _Tables().find_schema(ORDERS)
