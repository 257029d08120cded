"""The pattern of one name, as everything that takes patterns reads it: include lists, rules of columns, signals, forms."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.name_patterns import escape_name, format_exact_pattern, split_patterns
from airflow_provider_cdc.core.signals.signal_request_parser import ExecuteSnapshotRequest, parse_request
from airflow_provider_cdc.core.signals.table_patterns import conditions_by_table, match_tables
from airflow_provider_cdc.dag.snapshot_form_parser import snapshot_request
from airflow_provider_cdc.sources.memory.config import MemoryConfig

ODD = "ab.\"'`=,:;|*+?()[]{}\\^$#-_ \t\n\u00a0\u202e%ß"
NAMES = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
TABLES = st.builds(lambda namespace, name: TableId(namespace=namespace, name=name), NAMES, NAMES)


def _config(**lists: str) -> MemoryConfig:
    given: dict[str, Any] = {name.replace("_", "."): value for name, value in lists.items()}
    return MemoryConfig.parse({"topic.prefix": "p", "memory.database": "x", **given})


def _equal_casefolded(a: TableId, b: TableId) -> bool:
    return str(a).casefold() == str(b).casefold()


@given(TABLES, st.lists(TABLES, max_size=5))
def test_an_include_list_of_it_captures_that_table_alone(table: TableId, others: list[TableId]) -> None:
    filters = Filters(_config(table_include_list=f"{format_exact_pattern(table)},no\\.such"))
    assert filters.is_table_captured(table)
    assert [o for o in others if filters.is_table_captured(o) and not _equal_casefolded(o, table)] == []


@given(TABLES, NAMES, st.lists(NAMES, max_size=5))
def test_a_list_of_columns_excludes_that_column_alone(table: TableId, column: str, others: list[str]) -> None:
    filters = Filters(_config(column_exclude_list=escape_name(f"{table}.{column}")))
    assert not filters.in_images(table, column)
    assert [o for o in others if not filters.in_images(table, o) and o.casefold() != column.casefold()] == []


@given(TABLES, st.lists(TABLES, max_size=5))
def test_a_signal_with_it_names_that_table_alone(table: TableId, others: list[TableId]) -> None:
    found, missing = match_tables([format_exact_pattern(table)], [table, *others])
    assert ({str(t) for t in found}, missing) == ({str(table)}, [])


@given(st.lists(TABLES, min_size=1, max_size=5, unique_by=str), st.sampled_from(["tables", "more_tables"]))
def test_the_form_sends_a_signal_that_names_the_chosen_table_alone(tables: list[TableId], field: str) -> None:
    captured = {str(table): table.full_name for table in tables}
    chosen = str(tables[0])
    data = snapshot_request({field: [chosen], "filters": {chosen: "x > 1"}}, captured)
    request = parse_request(Signal(1, "1", "execute-snapshot", json.dumps(data)))
    assert isinstance(request, ExecuteSnapshotRequest)
    found, missing = match_tables(request.collections, tables)
    assert ({str(t) for t in found}, missing) == ({chosen}, [])
    assert conditions_by_table(request.conditions, tables) == {chosen: "x > 1"}


@given(NAMES)
def test_it_is_one_line_without_a_sign_that_a_reader_of_patterns_cuts_at(name: str) -> None:
    for pattern in (escape_name(name), format_exact_pattern(name)):
        assert not re.search(r"[\s'\"`=,:]", pattern)
        assert pattern.isprintable()
    assert re.fullmatch(escape_name(name), name)


@given(st.lists(TABLES, min_size=1, max_size=4))
def test_a_list_in_one_text_is_the_list_of_its_patterns(tables: list[TableId]) -> None:
    patterns = [re.escape(str(table)) for table in tables]
    assert split_patterns(",".join(pattern.replace(",", r"\,") for pattern in patterns)) == patterns
