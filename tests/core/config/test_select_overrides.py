"""Tables with a SELECT of their own: how they and their statements are named."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_cdc.core.config.select_overrides import LIST, name_parts, with_statements
from airflow_provider_cdc.core.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("shop.orders", ("shop", "orders")),
        ('"shop"."orders"', ("shop", "orders")),
        ('shop."old orders"', ("shop", "old orders")),
        ('"my.shop"."orders [1]"', ("my.shop", "orders [1]")),
        ('"my shop.old orders"', ("my shop", "old orders")),
        ('"a""b".c', ('a"b', "c")),
        (" shop . orders ", ("shop", "orders")),
        ("one.two.three", ("one", "two", "three")),
        ("orders", ("orders",)),
        ('"shop.orders', ('"shop.orders',)),
        ("shop.", ("shop.",)),
        ('"a"b.c', ('"a"b.c',)),
    ],
)
def test_parts_of_names_may_be_quoted(name: str, parts: tuple[str, ...]) -> None:
    assert name_parts(name) == parts


def test_a_statement_is_found_under_its_tables_name_quoted_or_not() -> None:
    given = {
        LIST: 'shop.orders, "my, shop"."o 1" ,shop."x"',
        f'{LIST}."shop".orders': "A",
        f'{LIST}."my, shop"."o 1"': "B",
    }
    found = with_statements({"other": 1, **given, f"{LIST}.shop.x": "C"})
    assert found == {"other": 1, LIST: {"shop.orders": "A", '"my, shop"."o 1"': "B", 'shop."x"': "C"}}
    assert with_statements(found) == found


def test_a_list_may_be_a_list() -> None:
    assert with_statements({LIST: ["a.b"], f"{LIST}.a.b": "S"}) == {LIST: {"a.b": "S"}}
    with pytest.raises(ConfigError, match="is neither a list of strings nor"):
        with_statements({LIST: 7})


def test_a_table_without_a_statement_is_a_warning_or_an_error(caplog: pytest.LogCaptureFixture) -> None:
    given = {LIST: "a.b,a.c", f"{LIST}.a.c": "S"}
    with caplog.at_level(logging.WARNING):
        assert with_statements(given) == {LIST: {"a.c": "S"}}
    assert f"{LIST}: a.b has no SELECT statement in {LIST}.a.b; a snapshot reads the whole table." in caplog.text
    with pytest.raises(ConfigError, match=r"'a\.b': it has no SELECT"):
        with_statements(given, all_needed=True)


def test_a_statement_without_its_table_in_the_list_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'a\.b': it is not in the list"):
        with_statements({f"{LIST}.a.b": "S"})


def test_of_many_tables_without_a_statement_the_first_are_named_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_statements({LIST: ",".join(f"a.t{n}" for n in range(5_000)) + ",a.t1" * 5_000})
    assert len(caplog.records) == 21
    assert "4980 more tables have no SELECT statement" in caplog.text
