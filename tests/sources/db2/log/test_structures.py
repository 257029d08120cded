"""What changed between two structures."""

from __future__ import annotations

from airflow_provider_cdc.sources.db2.log.structures import altered_table
from tests.support.db2_settings import column, schema_of

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


def test_a_column_of_the_same_type_in_the_same_place_is_renamed() -> None:
    change = altered_table(schema_of(ID, column("VARCHAR(9)", "A")), schema_of(ID, column("VARCHAR(9)", "B")))
    assert (change.renamed, change.added) == ({"B": "A"}, {})


def test_a_column_of_another_type_in_the_same_place_is_a_new_one() -> None:
    change = altered_table(schema_of(ID, column("VARCHAR(9)", "A")), schema_of(ID, column("INTEGER", "B")))
    assert (change.renamed, change.added) == ({}, {"B": None})


def test_a_column_that_goes_while_another_one_comes_elsewhere_is_not_renamed() -> None:
    old = schema_of(ID, column("INTEGER", "A"), column("INTEGER", "B"))
    change = altered_table(old, schema_of(ID, column("INTEGER", "B"), column("INTEGER", "C")))
    assert (change.renamed, change.added) == ({}, {"C": None})
