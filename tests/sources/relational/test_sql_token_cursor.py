"""Patterns of the readers of DDL mean the same to every Python."""

from __future__ import annotations

import re
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from airflow_provider_cdc.sources.mysql.schema.ddl.grammar import tokenizer as mysql
from airflow_provider_cdc.sources.oracle.schema.ddl.grammar import sql_tokenizer as oracle

PATTERNS = [oracle._PATTERN, oracle._REST, *(mysql._pattern(a, b) for a in (False, True) for b in (False, True))]


def _inside_names(node: Any, possessive: bool = False) -> list[str]:
    """Names of lookaheads inside possessive repeats of a parsed pattern."""
    found = []
    if isinstance(node, _parser.SubPattern | list):
        return [name for one in node for name in _inside_names(one, possessive)]
    if isinstance(node, tuple):
        name = str(node[0])
        if possessive and name.startswith("ASSERT"):
            found.append(name)
        return found + [n for one in node[1:] for n in _inside_names(one, possessive or name == "POSSESSIVE_REPEAT")]
    return found


@pytest.mark.parametrize("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_no_lookahead_is_in_a_possessive_repeat(pattern: re.Pattern[str]) -> None:
    """Python before 3.11.5 continues behind what such a repeat has tried in vain: it took comments for something else."""
    assert _inside_names(_parser.parse(pattern.pattern, pattern.flags)) == []


def test_such_a_pattern_is_found() -> None:
    assert _inside_names(_parser.parse(r"/\*(?:[^*]++|\*(?!/))*+\*/")) == ["ASSERT_NOT"]
