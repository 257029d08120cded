"""Values of DDL that mean the same in every relational database."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_cdc.sources.relational.ddl_statements import (
    NoColumnChange,
    PartitionDataChange,
    QualifiedName,
    RenameTo,
    names_of_alter,
)

TABLE, NEW, OTHER = QualifiedName("shop", "orders"), QualifiedName(None, "sales"), QualifiedName("old", "orders")


@dataclass(frozen=True, slots=True)
class _Exchange(PartitionDataChange):
    """A source's own kind of it."""

    without_validation: bool = False


def test_an_alter_table_concerns_its_table_the_new_name_and_those_that_rows_come_from() -> None:
    actions = [NoColumnChange("comment"), PartitionDataChange("exchange partition", (OTHER,)), RenameTo(NEW)]
    assert names_of_alter(TABLE, actions) == [TABLE, OTHER, NEW]
    assert names_of_alter(TABLE, [_Exchange("exchange partition", (OTHER,), without_validation=True)]) == [TABLE, OTHER]
    assert names_of_alter(TABLE, []) == [TABLE]


def test_a_name_is_written_with_its_namespace_if_it_has_one() -> None:
    assert [str(TABLE), str(NEW)] == ["shop.orders", "sales"]
