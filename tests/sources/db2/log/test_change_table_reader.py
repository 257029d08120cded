"""From rows of a change table to changes, wherever fetches cut them, compared with a plain reading of the rows.

The rows are made here and given as a driver would give them: no database is needed for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import SourceLogDamaged, UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import OPERATIONS
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.log.change_table_layout import ChangeTableLayout, layout_of
from airflow_provider_cdc.sources.db2.log.change_table_reader import ChangeTableReader
from airflow_provider_cdc.sources.db2.log.ordered_table_changes import ChangeArrays, Mask
from tests.support.sources.db2.db2_settings import PARTS, column, config, schema_of

Raw = tuple[Any, ...]
SCHEMA = schema_of(column("INTEGER", "ID", nullable=False), column("VARCHAR(20)", "V"), key=("ID",))


@dataclass
class GivenRows:
    """Rows, in the place of a database."""

    rows: list[Raw]
    asked: list[int] = field(default_factory=list)

    def fetch_rows(self, of: ChangeTableReader, rows: int) -> list[Raw]:
        self.asked.append(rows)
        taken, self.rows = self.rows[:rows], self.rows[rows:]
        return taken


def layout(
    schema: TableSchema = SCHEMA, *, pairs: bool = True, prefix: str | None = None, change: TableSchema | None = None
) -> ChangeTableLayout:
    registration = TableRegistration(PARTS, "ASNCDC", "CDC", b"", b"\xff", "A", "", pairs, prefix)
    return layout_of(schema, registration, change or schema, config())


def reader(rows: list[Raw], how: ChangeTableLayout, size: int = 10_000) -> ChangeTableReader:
    def fill(changes: ChangeArrays, _: ChangeTableLayout, changed: Mask) -> ChangeArrays:
        return changes

    return ChangeTableReader(how, b"", b"\xff", GivenRows(rows), fill, size, connector="c")  # type: ignore[arg-type]


def read(made: ChangeTableReader) -> list[tuple[Any, ...]]:
    """Commit, change, operation and images of each change."""
    found = []
    while made.more:
        changes = made.fetch_changes()
        if changes is None:
            continue
        before, after = ([None] * len(changes) if i is None else i.to_pylist() for i in (changes.before, changes.after))
        for i, op in enumerate(changes.op.tolist()):
            lsns = changes.commit.bytes_at(i), changes.intent.bytes_at(i)
            found.append((*lsns, OPERATIONS[op], before[i], after[i]))
    return found


def pair_plainly(rows: list[Raw], pairs: bool, before_images: bool) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    left = list(rows)
    while left:
        commit, intent, letter, *values = left.pop(0)
        image, old = {"ID": values[0], "V": values[1]}, None
        if before_images:
            old = {"ID": values[2], "V": values[3]}
        if letter == "D" and pairs and left and (left[0][0], left[0][2]) == (commit, "I"):
            second = left.pop(0)
            found.append((commit, second[1], "u", image, {"ID": second[3], "V": second[4]}))
        else:
            op, before, after = {"I": ("c", None, image), "D": ("d", image, None), "U": ("u", old, image)}[letter]
            found.append((commit, intent, op, before, after))
    return found


ROWS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from("DIDIU"), st.sampled_from([None, "", "a", "žluť"])), max_size=25
)


@settings(max_examples=300, deadline=None)
@given(drawn=ROWS, size=st.integers(1, 9), pairs=st.booleans(), prefix=st.booleans())
def test_changes_are_those_of_a_plain_reading_wherever_fetches_cut_the_rows(
    drawn: list[tuple[int, str, str | None]], size: int, pairs: bool, prefix: bool
) -> None:
    prefix = prefix and not pairs
    rows: list[Raw] = []
    for i, (commit, letter, text) in enumerate(sorted(drawn, key=lambda row: row[0])):
        old = (i + 100, f"old {i}") if prefix else ()
        rows.append((bytes([0, commit]), i.to_bytes(3, "big"), letter, i, text, *old))
    change = schema_of(*SCHEMA.columns, column("INTEGER", "XID"), column("VARCHAR(20)", "XV"))
    how = layout(pairs=pairs, prefix="X" if prefix else None, change=change if prefix else None)
    assert read(reader(list(rows), how, size)) == pair_plainly(rows, pairs, prefix)


def test_a_delete_at_the_end_of_a_fetch_waits_for_the_next_row() -> None:
    rows = [(b"\1", b"\1", "I", 1, "a"), (b"\1", b"\2", "D", 1, "a"), (b"\1", b"\3", "I", 1, "b")]
    made = reader(rows, layout(), 2)
    first = made.fetch_changes()
    assert first is not None
    assert len(first) == 1
    assert [change[2:] for change in read(made)] == [("u", {"ID": 1, "V": "a"}, {"ID": 1, "V": "b"})]


def test_a_delete_at_the_end_of_the_window_is_one() -> None:
    rows = [(b"\1", b"\1", "I", 1, "a"), (b"\2", b"\2", "D", 1, "a")]
    assert [change[2] for change in read(reader(rows, layout(), 2))] == ["c", "d"]


@pytest.mark.parametrize("letter", ["X", None, "", "II", "é"])
def test_an_operation_that_is_not_known_is_an_error(letter: str | None) -> None:
    made = reader([(b"\1", b"\1", "I", 1, "a"), (b"\2", b"\2", letter, 1, "a")], layout())
    with pytest.raises(UnknownLogEvent) as e:
        made.fetch_changes()
    assert "SHOP.PARTS, LSN 02" in str(e.value)


def test_rows_that_are_not_in_the_order_of_their_lsns_as_bytes_are_an_error() -> None:
    made = reader([(b"\x80", b"\1", "I", 1, "a"), (b"\x7f", b"\2", "I", 2, "a")], layout())
    with pytest.raises(SourceLogDamaged, match="order"):
        made.fetch_changes()


def test_a_fetch_is_the_smaller_the_larger_its_rows_are() -> None:
    rows = [(b"\1", i.to_bytes(3, "big"), "I", i, "x" * 20_000) for i in range(3000)]
    made = reader(rows, layout())
    read(made)
    request_count = made._cursors.asked  # type: ignore[attr-defined]
    assert request_count[0] == 1000
    assert all(100 < size < 500 for size in request_count[1:])


def test_images_before_without_the_key_are_none() -> None:
    change = schema_of(*SCHEMA.columns, column("VARCHAR(20)", "XV"))
    how = layout(pairs=False, prefix="X", change=change)
    assert how.before is None
    assert read(reader([(b"\1", b"\1", "U", 1, "a")], how)) == [(b"\1", b"\1", "u", None, {"ID": 1, "V": "a"})]


def test_columns_that_a_change_table_does_not_have_are_unavailable() -> None:
    schema = schema_of(*SCHEMA.columns, column("INTEGER", "W"), key=("ID",))
    made = reader(
        [(b"\1", b"\1", "D", 1, "a"), (b"\1", b"\2", "I", 1, "b"), (b"\1", b"\3", "I", 2, "c")],
        layout(schema, change=SCHEMA),
    )
    changes = made.fetch_changes()
    assert changes is not None
    assert changes.unavailable_before is not None
    assert changes.unavailable_after is not None
    assert changes.unavailable_before.tolist() == [[False, False], [False, False], [True, False]]
    assert changes.unavailable_after.tolist() == [[False, False], [False, False], [True, True]]


def test_indicators_mark_changed_lobs() -> None:
    schema = schema_of(*SCHEMA.columns, column("CLOB(1M)", "A"), column("CLOB(1M)", "B"), key=("ID",))
    how = layout(schema, change=schema_of(*SCHEMA.columns, column("CHAR(1)", "B")))
    assert ([schema.column_names[i] for i in how.lobs], how.sql.count('t."B"'), how.sql.count('t."A"')) == (
        ["A", "B"],
        1,
        0,
    )
    changed: list[list[bool]] = []

    def fill(changes: ChangeArrays, _: ChangeTableLayout, mask: Mask) -> ChangeArrays:
        changed.extend(mask.tolist())
        return changes

    rows = [
        (b"\1", b"\1", "D", 1, "a", None),
        (b"\1", b"\2", "I", 1, "a", "U"),
        (b"\1", b"\3", "I", 2, "b", None),
        (b"\1", b"\4", "I", 2, "b", " "),
    ]
    ChangeTableReader(how, b"", b"\xff", GivenRows(rows), fill, connector="c").fetch_changes()  # type: ignore[arg-type]
    assert changed == [[True, True, True], [True, False, False]]


@pytest.mark.parametrize("type_", ["CLOB(1M)", "DBCLOB(1M)", "BLOB(1M)", "XML"])
def test_large_values_are_read_from_the_table_though_the_change_table_has_their_type(type_: str) -> None:
    """ADDTABLE gives a change table the columns of its table, and the agent may write an indicator into them."""
    schema = schema_of(*SCHEMA.columns, column(type_, "A"), key=("ID",))
    how = layout(schema)
    assert ([schema.column_names[i] for i in how.lobs], dict(how.indicators), how.sql.count('t."A"')) == (["A"], {}, 0)
    assert how.changed_lobs([], 2).tolist() == [[True, True]]


def test_names_are_in_quotes_and_braces_in_them_are_no_places_for_anything() -> None:
    table = TableId(catalog="TESTDB", namespace="odd", name='t{where}"x')
    registration = TableRegistration(table, "ASNCDC", 'CDC{where}"x', b"", b"\xff", "A", "", True, None)
    sql, parameters = layout_of(SCHEMA, registration, SCHEMA, config()).query(b"\1", b"\2", (b"\1", b"\5"))
    assert '"ASNCDC"."CDC{where}""x"' in sql
    assert sql.count("?") == len(parameters) == 4
    assert parameters == (b"\1", b"\5", b"\1", b"\2")
