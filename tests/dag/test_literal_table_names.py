"""Tables that a definition names, found without asking the source."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.dag.literal_table_names import list_literals, named_tables


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"inventory\.orders", ["inventory.orders"]),
        ("inventory.orders", ["inventory.orders"]),
        (r"inventory\.(customers|orders)", ["inventory.customers", "inventory.orders"]),
        (r"(?:a|b)\.(c|d_(e|f))", ["a.c", "a.d_e", "a.d_f", "b.c", "b.d_e", "b.d_f"]),
        (r"APP\.SYS\$LOG", ["APP.SYS$LOG"]),
        (r"a\.b|c\.d", ["a.b", "c.d"]),
    ],
)
def test_texts_groups_and_choices_are_names(pattern: str, names: list[str]) -> None:
    assert list_literals(pattern) == names


@pytest.mark.parametrize(
    "pattern",
    [r"a\..*", r"a\.b+", r"a\.[bc]", r"a\.b?", r"a\.\w", "(?i)a.b", "a(?!b)", "a{2}", "(a|b", "a)", "", "a|", "a$"],
)
def test_a_pattern_that_leaves_open_what_it_matches_names_nothing(pattern: str) -> None:
    assert list_literals(pattern) == []


def test_a_pattern_that_stands_for_too_many_names_names_nothing() -> None:
    assert list_literals("(a|b)" * 12) == []


def test_the_include_list_may_be_a_text_or_a_list_and_names_no_table_twice() -> None:
    assert named_tables({"table.include.list": r"a\.b,a\.(c|b), x\..*"}) == ["a.b", "a.c"]
    assert named_tables({"table.include.list": ["a.b", "a.c"]}) == ["a.b", "a.c"]
    assert named_tables({"collection.include.list": "db.c"}) == ["db.c"]


def test_a_template_names_nothing_before_it_is_rendered() -> None:
    assert named_tables({"table.include.list": "{{ var.value.tables }}"}) == []
    assert named_tables({}) == []
