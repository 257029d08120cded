"""The change that comes of the columns that a table has after ``ALTER TABLE``."""

from __future__ import annotations

from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources.relational.alter_table_change import AlteredColumn, build_alter_change

ID, NAME = Column(name="id", type="int64", nullable=False), Column(name="name", type="string")
KNOWN = TableSchema(id=TableId(namespace="shop", name="orders"), columns=(ID, NAME), key=("id",), version=3)


def test_the_change_has_the_columns_in_their_places_with_their_old_names_and_what_fills_new_ones() -> None:
    title, total = NAME.model_copy(update={"name": "title"}), Column(name="total", type="int32")
    columns = [AlteredColumn(total, None), AlteredColumn(ID, ID), AlteredColumn(title, NAME)]
    change = build_alter_change(KNOWN, columns, added={"total": "0"}, exact=True, update={"key": ("title",)})
    assert (change.type, change.id, change.previous_id, change.exact) == ("ALTER", KNOWN.id, None, True)
    assert change.table == KNOWN.model_copy(update={"columns": (total, ID, title), "key": ("title",)})
    assert (change.renamed, change.added) == ({"title": "name"}, {"total": "0"})


def test_what_is_not_reported_stays() -> None:
    change = build_alter_change(KNOWN, [AlteredColumn(ID, ID)], added={}, exact=False, update={})
    assert change.table == KNOWN.model_copy(update={"columns": (ID,)})
    assert not change.exact
