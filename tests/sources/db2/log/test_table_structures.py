"""Changes between two structures of a table."""

from __future__ import annotations

from airflow_provider_cdc.sources.db2.log.table_structures import altered_table
from tests.support.sources.db2.db2_settings import column, schema_of

ID = column("INTEGER", "ID", nullable=False)


def test_a_new_column_has_its_default_in_existing_rows() -> None:
    plain, with_default = column("INTEGER", "A"), column("VARCHAR(9)", "B")
    with_default = with_default.model_copy(
        update={"declared": with_default.declared.model_copy(update={"default": "x"}), "nullable": False}
    )
    moment = column("TIMESTAMP", "C")
    moment = moment.model_copy(
        update={
            "declared": moment.declared.model_copy(
                update={"default": "CURRENT TIMESTAMP", "default_is_expression": True}
            )
        }
    )
    strict = column("INTEGER", "D", nullable=False)
    change = altered_table(schema_of(ID), schema_of(ID, plain, with_default, moment, strict))
    assert (change.added, change.renamed) == ({"A": None, "B": "x"}, {})


def test_a_column_that_comes_before_one_that_stays_was_renamed_whatever_its_type_is_now() -> None:
    old = schema_of(ID, column("INTEGER", "A"), column("DATE", "Z"))
    for type_ in ("INTEGER", "BIGINT", "VARCHAR(9)"):
        change = altered_table(old, schema_of(ID, column(type_, "B"), column("DATE", "Z")))
        assert (change.renamed, change.added, change.exact) == ({"B": "A"}, {}, True)


def test_columns_that_were_renamed_keep_their_order() -> None:
    old = schema_of(ID, column("INTEGER", "A"), column("DATE", "B"), column("DATE", "Z"))
    change = altered_table(old, schema_of(ID, column("INTEGER", "C"), column("DATE", "D"), column("DATE", "Z")))
    assert (change.renamed, change.exact) == ({"C": "A", "D": "B"}, True)


def test_a_column_that_went_or_came_alone_leaves_nothing_open() -> None:
    a, z = column("INTEGER", "A"), column("DATE", "Z")
    gone = altered_table(schema_of(ID, a, z), schema_of(ID, z))
    assert (gone.renamed, gone.added, gone.exact) == ({}, {}, True)
    come = altered_table(schema_of(ID, a), schema_of(ID, a, z))
    assert (come.renamed, come.added, come.exact) == ({}, {"Z": None}, True)
    both = altered_table(schema_of(ID, a, z), schema_of(ID, z, column("INTEGER", "C")))
    assert (both.renamed, both.added, both.exact) == ({}, {"C": None}, True)


def test_a_last_column_of_the_same_type_may_have_been_renamed_or_made_again() -> None:
    change = altered_table(schema_of(ID, column("VARCHAR(9)", "A")), schema_of(ID, column("VARCHAR(9)", "B")))
    assert (change.renamed, change.added, change.exact) == ({"B": "A"}, {}, False)


def test_a_last_column_of_another_type_may_have_been_renamed_or_made_again() -> None:
    change = altered_table(schema_of(ID, column("VARCHAR(9)", "A")), schema_of(ID, column("INTEGER", "B")))
    assert (change.renamed, change.added, change.exact) == ({}, {"B": None}, False)


def test_a_table_whose_columns_stand_in_another_order_was_made_again() -> None:
    a, z = column("INTEGER", "A"), column("DATE", "Z")
    assert not altered_table(schema_of(ID, a, z), schema_of(ID, z, a)).exact
    assert not altered_table(schema_of(ID, z), schema_of(ID, a, z)).exact
