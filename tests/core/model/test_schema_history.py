"""Structures as the log continues, their versions, and which changes leave a table's rows in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from airflow_provider_cdc.core.capture.captured_tables import CapturedTables
from airflow_provider_cdc.core.capture.unlogged_rewrite_check import rewrite_reason
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.schema_history import SchemaHistory, StoredSchemas
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema, as_document


def _id(name: str) -> TableId:
    return TableId(namespace="shop", name=name)


def _table(name: str = "t", **columns: str) -> TableSchema:
    return TableSchema(id=_id(name), columns=tuple(Column(name=n, type=t) for n, t in columns.items()))


def _change(kind: Any = "ALTER", name: str = "t", table: TableSchema | None = None, **more: Any) -> TableChange:
    return TableChange(type=kind, id=_id(name), table=table, **more)


def _record(seq: int, *changes: TableChange) -> SchemaChangeRecord:
    return SchemaChangeRecord(
        seq=seq, ddl="", database="shop", position={}, ts_us=0, captured_us=0, changes=list(changes)
    )


def test_a_change_names_the_columns_that_it_drops() -> None:
    history = SchemaHistory()
    history.apply_change(_change("CREATE", table=_table(a="int64", b="string", c="string", d="string")))
    made = history.apply_change(
        _change(table=_table(a="int64", c="string", d="int64"), renamed={"c": "b"}, added={"d": None})
    )
    assert made is not None
    assert made.dropped == ("c",)  # b is called c now, and d is there again
    again = history.apply_change(_change(table=_table(c="string", a="int64", d="int64")))
    assert again is not None
    assert again.dropped == ()


def test_versions_grow_with_each_change_of_structure() -> None:
    history = SchemaHistory()
    first = history.apply_change(_change("CREATE", table=_table(a="int64")))
    second = history.apply_change(_change(table=_table(a="int64", b="string")))
    assert [c.table.version for c in (first, second) if c and c.table] == [1, 2]
    assert history.find_schema(_id("t")) == _table(a="int64", b="string").model_copy(update={"version": 2})


def test_a_change_that_changes_nothing_gives_no_version() -> None:
    history = SchemaHistory()
    history.apply_change(_change("CREATE", table=_table(a="int64")))
    assert history.apply_change(_change(table=_table(a="int64"))) is None
    # rows may have changed: that must not be passed over
    assert history.apply_change(_change(table=_table(a="int64"), exact=False)) is not None
    # a column was dropped and made again, or two have changed their names
    assert history.apply_change(_change(table=_table(a="int64"), added={"a": None}, dropped=("a",))) is not None
    history.apply_change(_change(table=_table(a="int64", b="int64")))
    assert history.apply_change(_change(table=_table(a="int64", b="int64"), renamed={"a": "b", "b": "a"})) is not None
    # the structure is newer than the statement
    assert history.apply_change(_change(table=_table(a="int64", b="int64"), added={"b": None})) is None
    assert history.apply_change(_change(table=_table(a="int64", b="int64"), renamed={"b": "c"})) is None
    # a table of the same structure under the same name is another table
    assert history.apply_change(_change("CREATE", table=_table(a="int64"))) is not None


def test_a_table_that_comes_back_goes_on_with_its_versions() -> None:
    """Files of the old and of the new table must never be taken for one structure."""
    history = SchemaHistory()
    history.apply_change(_change("CREATE", table=_table(a="int64")))
    history.apply_change(_change("DROP"))
    assert history.find_schema(_id("t")) is None
    assert history.current_tables == []
    assert history.has_seen_table(_id("t"))
    back = history.apply_change(_change("CREATE", table=_table(b="string")))
    assert back is not None
    assert back.table is not None
    assert back.table.version == 2


def test_two_tables_swap_their_names_in_one_statement() -> None:
    history = SchemaHistory()
    history.apply_change(_change("CREATE", "a", _table("a", x="int64")))
    history.apply_change(_change("CREATE", "b", _table("b", y="string")))
    swap = [
        _change(name="b", table=_table("b", x="int64"), previous_id=_id("a")),
        _change(name="a", table=_table("a", y="string"), previous_id=_id("b")),
    ]
    history.remove_renamed(swap)
    assert history.current_tables == []
    for change in swap:
        history.apply_change(change)
    assert {str(t): history.find_schema(t).column_names for t in history.current_tables} == {
        "shop.a": ("y",),
        "shop.b": ("x",),
    }  # type: ignore[union-attr]


def test_replay_gives_the_history_that_recorded_the_changes() -> None:
    history, records = SchemaHistory(), []
    statements = [
        [_change("CREATE", "a", _table("a", x="int64"))],
        [_change("CREATE", "b", _table("b", y="string"))],
        [_change("ALTER", "a", _table("a", x="int64", z="int32"))],
        [
            _change(name="b", table=_table("b", x="int64", z="int32"), previous_id=_id("a")),
            _change(name="a", table=_table("a", y="string"), previous_id=_id("b")),
        ],
        [_change("DROP", "b")],
        [_change("CREATE", "b", _table("b", w="bool"))],
    ]
    for seq, changes in enumerate(statements, 1):
        history.remove_renamed(changes)
        records.append(_record(seq, *[c for c in map(history.apply_change, changes) if c is not None]))
        again = SchemaHistory.from_records(records)
        assert {t: again.find_schema(t) for t in again.current_tables} == {
            t: history.find_schema(t) for t in history.current_tables
        }
        assert again._versions == history._versions


def test_rows_of_a_waiting_table_are_not_wanted() -> None:
    config = TableConfig.parse({"topic.prefix": "p", "table.include.list": "shop.a,shop.b"})
    history = SchemaHistory()
    history.apply_change(_change("CREATE", "a", _table("a", x="int64")))
    tables = CapturedTables(Filters(config), history)
    assert tables.is_captured(_id("a"))
    assert not tables.is_captured(_id("c"))
    tables.hold_back({"shop.a"})
    assert not tables.is_captured(_id("a"))
    assert tables.is_captured(_id("b"))
    assert tables.find_schema(_id("a")) is not None  # its structure is followed all the same
    assert tables.list_known_tables() == [_id("a")]


# rewrites


def _reason(old: str, new: str) -> str | None:
    return rewrite_reason(_table(a=old), _change(table=_table(a=new)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int8", "int16"), ("int8", "int64"), ("int16", "int32"), ("int32", "int64"), ("float", "double"),
        ("decimal128(10, 2)", "decimal128(12, 2)"), ("decimal128(10, 2)", "decimal128(12, 4)"),
        ("decimal128(10, 2)", "decimal128(38, 2)"), ("string", "string"), ("timestamp[us]", "timestamp[us]"),
    ],
)  # fmt: skip
def test_widening_a_column_leaves_no_doubt(old: str, new: str) -> None:
    assert _reason(old, new) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int16", "int8"), ("int64", "int32"), ("double", "float"), ("int32", "double"), ("int32", "string"),
        ("string", "int32"), ("int32", "decimal128(10, 0)"), ("decimal128(10, 2)", "decimal128(9, 2)"),
        ("decimal128(10, 2)", "decimal128(10, 3)"), ("decimal128(10, 2)", "decimal128(10, 1)"),
        ("decimal128(10, 2)", "decimal128(12, 1)"), ("date32[day]", "timestamp[us]"), ("float", "int64"),
        ("timestamp[us]", "timestamp[us, tz=UTC]"), ("string", "binary"), ("bool", "int8"),
    ],
)  # fmt: skip
def test_another_type_leaves_the_values_in_doubt(old: str, new: str) -> None:
    assert _reason(old, new) == f"column a was changed from {old} to {new}"


@given(st.integers(1, 37), st.integers(0, 37), st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_is_wider_exactly_when_every_value_fits(p: int, s: int, p2: int, s2: int) -> None:
    assume(s <= p and s2 <= p2)
    largest = 10**p - 1  # unscaled
    scaled = largest * 10 ** (s2 - s) if s2 >= s else None
    fits = scaled is not None and scaled < 10**p2
    assert (_reason(f"decimal128({p}, {s})", f"decimal128({p2}, {s2})") is None) == fits


def test_a_column_with_a_known_value_leaves_no_doubt_and_one_without_does() -> None:
    old, new = _table(a="int64"), _table(a="int64", b="string")
    assert rewrite_reason(old, _change(table=new, added={"b": "x"})) is None
    assert rewrite_reason(old, _change(table=new, added={"b": None})) is None
    reason = rewrite_reason(old, _change(table=new))
    assert reason == "the value of the new column b in existing rows is not known"


def test_dropping_and_reordering_columns_leaves_no_doubt() -> None:
    old = _table(a="int64", b="string", c="bool")
    assert rewrite_reason(old, _change(table=_table(c="bool", a="int64"))) is None


def test_a_renamed_column_keeps_its_values_unless_its_type_changes_too() -> None:
    old = _table(a="int32", b="string")
    assert rewrite_reason(old, _change(table=_table(a2="int32", b="string"), renamed={"a2": "a"})) is None
    assert rewrite_reason(old, _change(table=_table(a2="int64", b="string"), renamed={"a2": "a"})) is None
    assert rewrite_reason(old, _change(table=_table(a2="string", b="string"), renamed={"a2": "a"}))
    # two columns swap their names: what counts is where the values come from
    assert rewrite_reason(old, _change(table=_table(b="int32", a="string"), renamed={"a": "b", "b": "a"})) is None
    assert rewrite_reason(old, _change(table=_table(a2="int32", b="string")))


def test_an_inexact_change_is_in_doubt_whatever_the_structure() -> None:
    reason = rewrite_reason(_table(a="int64"), _change(table=_table(a="int64"), exact=False))
    assert reason == "rows may have values that the log does not contain"


def test_a_table_created_with_rows_that_the_log_may_lack_is_in_doubt_from_the_first() -> None:
    change = _change("CREATE", table=_table(a="int64"), exact=False)
    assert rewrite_reason(None, change) == "rows may have values that the log does not contain"
    assert rewrite_reason(_table(a="int64"), change) is not None


def test_a_column_that_cannot_be_captured_leaves_nothing_in_doubt() -> None:
    old, new = _table(a="int64"), _table(a="int64", photo="null")
    assert rewrite_reason(old, _change(table=new)) is None
    assert rewrite_reason(new, _change(table=_table(a="int64", picture="null"))) is None
    assert rewrite_reason(new, _change(table=_table(a="int64", photo="string")))


def test_a_drop_and_a_first_structure_leave_nothing_in_doubt() -> None:
    assert rewrite_reason(_table(a="int64"), _change("DROP")) is None
    assert rewrite_reason(None, _change("CREATE", table=_table(a="int64"))) is None


ids = st.sampled_from("abcd")
tables = st.builds(lambda name, t, v: _table(name, c=t).model_copy(update={"version": v}), ids, st.sampled_from(["int64", "string"]), st.integers(1, 5))  # fmt: skip


@st.composite
def changes(draw: st.DrawFn) -> TableChange:
    """Draw a change of any kind: a table that is made, altered, dropped or renamed."""
    kind, table = draw(st.sampled_from(["CREATE", "ALTER", "DROP"])), draw(tables)
    if kind == "DROP":
        return _change("DROP", table.id.name)
    previous = _id(draw(ids)) if kind == "ALTER" and draw(st.booleans()) else None
    return _change(kind, table.id.name, table, previous_id=previous)


records = st.builds(
    lambda made, ddl, snapshot: _record(1, *made).model_copy(update={"ddl": ddl, "snapshot": snapshot}),
    st.lists(changes(), min_size=1, max_size=3), st.sampled_from(["", "CREATE TABLE"]), st.booleans(),
)  # fmt: skip


@given(st.lists(records, max_size=12), st.integers(0, 12))
def test_a_base_and_what_came_since_are_the_same_as_the_whole_history(
    history: list[SchemaChangeRecord], at: int
) -> None:
    whole = SchemaHistory.from_records(history)
    base = SchemaHistory.from_records(history[:at]).build_base()
    base = [type(b).model_validate(as_document(b)) for b in base]  # as they are stored
    parts = SchemaHistory.from_stored(StoredSchemas(base, history[at:], len(history)))
    assert (parts.ever_known_tables, parts.current_tables, parts.is_empty) == (
        whole.ever_known_tables,
        whole.current_tables,
        whole.is_empty,
    )
    for name in "abcd":
        table = _id(name)
        assert parts.find_schema(table) == whole.find_schema(table)
        assert parts.has_seen_table(table) == whole.has_seen_table(table)
    assert parts.build_base() == whole.build_base()
