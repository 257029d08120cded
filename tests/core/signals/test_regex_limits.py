"""The work that a regular expression can be, computed before anything is matched."""

from __future__ import annotations

import re
import time

import pytest

from airflow_provider_cdc.core.signals.regex_limits import LONGEST, MOST, RegexTooComplex, count_match_steps

NAMES = [60] * 1000
"""A thousand tables whose names are long."""


@pytest.mark.parametrize(
    "pattern", ["shop.orders", r"shop\.orders", "db1\\.My\\.Table", "shop.item[0-9]", "a" * 10_000]
)
def test_a_name_can_be_matched_in_one_way(pattern: str) -> None:
    assert count_match_steps(pattern, NAMES) == 0


@pytest.mark.parametrize(
    "pattern",
    [
        ".*",
        r"shop\..*",
        r"^shop\.(orders|items|customers)$",
        "(?i)shop.*",
        r"(shop|store)\.[a-z]{2,5}_v[0-9]+",
        ".*_(eu|us|asia)_.*",
        ".*_.*_.*",
        r"shop\.(?!tmp_).*",
        r"shop\.([a-z]+_)?(orders|items)(_[0-9]{4})?",
        r"(?:a|b){1,3}x",
        "a++b",
        "(?>a+)b",
        "(a)?(?(1)b|c)",
        "(a)-\\1",
        "|".join(f"shop.t{i}" for i in range(3000)),
        "a{4000000000}",
        "(a{1000}){1000}",
    ],
)
def test_what_people_write_is_little_work(pattern: str) -> None:
    assert 0 <= count_match_steps(pattern, NAMES) < MOST


@pytest.mark.parametrize(
    "pattern",
    [
        "([a-z0-9_]+.?)+!",
        "(a+)+b",
        "(a*)*b",
        "(a|aa)*b",
        "(x+x+)+y",
        "(?:(?:a+)?)+b",
        "(?=(a+)+b)x",
        "(?!(a+)+b)x",
        "(?>(a+)+b)",
        "(a|a)" * 30 + "b",
        "a?" * 40 + "a" * 40,
        ".*" * 10 + "!",
        ".*?" * 10 + "!",
        "(.*){10}!",
        "(.*)" + "\\1" * 8,
        "(){4000000000}",
        "(a?){4000000000}",
        "a*" * 20_000,
        "a" * (LONGEST + 1),
    ],
)
def test_what_would_take_for_ever_is_known_at_once(pattern: str) -> None:
    re.compile(pattern)
    began = time.thread_time()
    with pytest.raises(RegexTooComplex):
        count_match_steps(pattern, NAMES)
    assert time.thread_time() - began < 5


def test_without_a_name_there_is_no_work() -> None:
    assert count_match_steps("(a+)+b", []) == 0


def test_ways_are_counted_by_the_length_of_each_name() -> None:
    assert count_match_steps("a*", [0, 1, 9]) == 1 + 2 + 10
    assert count_match_steps("a*b*", [2]) == 3 + (3 + 2 + 1)
    assert count_match_steps("a{2,3}", [9]) == 2
    assert count_match_steps("(ab){2,3}", [9]) == count_match_steps("(?:ab){2,3}", [9])


def test_a_pattern_that_is_too_deep_for_the_stack_is_too_complex() -> None:
    def count(calls: int) -> float:
        return count(calls - 1) if calls else count_match_steps("(?:a|" * 60 + "b" + ")" * 60, NAMES)

    assert count(50) < MOST
    with pytest.raises(RegexTooComplex):
        count(900)
