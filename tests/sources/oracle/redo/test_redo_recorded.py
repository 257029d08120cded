"""Redo texts of every known shape, with what they mean; the cases are in ``recorded/``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core import errors
from airflow_provider_cdc.sources.oracle.redo.lob_piece_parser import (
    ValueBegin,
    ValueErase,
    ValueTrim,
    ValueWrite,
    read_pieces,
)
from airflow_provider_cdc.sources.oracle.redo.parsed_literal import UnreadableRedo
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
from tests.sources.oracle.redo.recorded_cases import Case, texts, values
from tests.sources.oracle.redo.redo_tables import UNAVAILABLE, config, images, parts_reader, read, recorded_value, table

VALUES, STATEMENTS, PIECES = values(), texts("statements.txt"), texts("pieces.txt")


def test_there_are_enough_recorded_cases() -> None:
    assert len(VALUES) + len(STATEMENTS) + len(PIECES) >= 300


@pytest.mark.parametrize("case", VALUES, ids=lambda c: c.name)
def test_a_literal_is_the_recorded_value_wherever_it_stands(case: Case) -> None:
    given = config(**case.properties)
    reader = RedoReader(table({"ID": "NUMBER(9)", "V": case.type}, given), given)
    condition = '"V" IS NULL' if case.sql == "NULL" else f'"V" = {case.sql}'
    sql = [
        f"""insert into "SHOP"."PARTS"("ID","V") values ('7',{case.sql});""",
        f"""delete from "SHOP"."PARTS" where "ID" = '7' and {condition};""",
        f"""update "SHOP"."PARTS" set "V" = {case.sql} where "ID" = '7';""",
        f"""update "SHOP"."PARTS" set "ID" = '7' where "ID" = '7' and {condition};""",
    ]
    codes = [1, 2, 3, 3]
    if isinstance(case.expected, dict) and "error" in case.expected:
        for text, code in zip(sql, codes, strict=True):
            with pytest.raises(getattr(errors, case.expected["error"])) as caught:
                read(reader, [text], [code])
            assert caught.value.remedy
            assert "V" in str(caught.value)
        return
    rows = read(reader, sql, codes)
    expected: dict[str, Any] = {"ID": 7} if case.expected == UNAVAILABLE else {"ID": 7, "V": case.expected}
    found = [images(rows, i, reader.schema) for i in range(4)]
    assert found == [
        {"after": expected}, {"before": expected}, {"before": {"ID": 7}, "after": expected}, {"before": expected, "after": expected},
    ]  # fmt: skip
    assert images(read_all_plainly(reader, sql, codes), 0, reader.schema) == found[0]


def read_all_plainly(reader: RedoReader, sql: list[str], codes: list[int]) -> Any:
    return reader.read_plain(sql, np.array(codes))


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda c: c.name)
def test_a_statement_means_the_recorded_rows(case: Case) -> None:
    reader = parts_reader(case.properties)
    if "error" in case.expected:
        with pytest.raises(getattr(errors, case.expected["error"])) as caught:
            read(reader, [case.sql], [case.code])
        assert caught.value.remedy
        assert caught.value.where is not None
        assert "SHOP.PARTS" in caught.value.where
        return
    rows = read(reader, [case.sql], [case.code])
    expected = dict(case.expected)
    assert bool(rows.plain[0]) is expected.pop("plain", False)
    assert images(rows, 0, reader.schema) == expected
    assert images(read_all_plainly(reader, [case.sql], [case.code]), 0, reader.schema) == expected
    assert rows.op.tolist() == [{1: 1, 2: 3, 3: 2}[case.code]]


def test_good_statements_keep_their_places_among_each_other() -> None:
    """All of them at once: kernel and plain path fill one result."""
    good = [c for c in STATEMENTS if "error" not in c.expected and not c.properties]
    reader = parts_reader({})
    rows = read(reader, [c.sql for c in good], [c.code for c in good])
    assert 5 < rows.plain.sum() < len(good) - 5
    for i, case in enumerate(good):
        expected = {k: v for k, v in case.expected.items() if k != "plain"}
        assert images(rows, i, reader.schema) == expected, case.name


@pytest.mark.parametrize("case", PIECES, ids=lambda c: c.name)
def test_a_piece_means_what_was_recorded(case: Case) -> None:
    if "error" in case.expected:
        with pytest.raises(UnreadableRedo):
            read_pieces(case.code, case.sql)
        return
    match next(iter(read_pieces(case.code, case.sql)), None):
        case None:
            found: dict[str, Any] = {"end": True}
        case ValueBegin(kind, owner, name, column, where):
            reader = parts_reader({})
            values_, unavailable = reader.read_conditions([where], [case.sql])
            row = {
                n: recorded_value(values_.field(c)[0])
                for c, n in enumerate(reader.schema.column_names)
                if not unavailable[c, 0]
            }
            found = {"begin": kind, "table": f"{owner}.{name}", "column": column, "row": row}
        case ValueWrite(data, offset, length):
            written = f"hex:{data.hex()}" if isinstance(data, bytes) else data
            found = {"write": written, "offset": offset, "length": length}
            found = {k: v for k, v in found.items() if v is not None or k == "write"}
        case ValueTrim(length):
            found = {"trim": length}
        case ValueErase(offset, length):
            found = {"erase": offset, "length": length}
    assert found == case.expected


def test_every_operation_code_of_a_value_in_pieces_is_recorded() -> None:
    assert {c.code for c in PIECES} >= {9, 10, 11, 29, 68, 70, 71, 91, 92, 93}
    assert {c.code for c in STATEMENTS} >= {1, 2, 3}


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_texts_come_with_short_and_long_offsets_and_as_a_part_of_an_array(type_: pa.DataType) -> None:
    good = [c for c in STATEMENTS if c.code == 3 and "error" not in c.expected and not c.properties]
    reader = parts_reader({})
    array = pa.array([c.sql for c in good], pa.string()).cast(type_).slice(2, 5)
    rows = reader.read(array, np.full(5, 3))
    for i, case in enumerate(good[2:7]):
        assert images(rows, i, reader.schema) == {k: v for k, v in case.expected.items() if k != "plain"}


def test_bytes_that_are_not_utf8_are_refused() -> None:
    reader = parts_reader({})
    text = b"""insert into "SHOP"."PARTS"("ID","LABEL") values ('1','\xe9');"""
    with pytest.raises(errors.UnreadableValue, match="UTF-8"):
        reader.read(pa.array([text], pa.binary()), np.array([1]))


def test_no_texts_are_no_rows() -> None:
    rows = parts_reader({}).read(pa.array([], pa.string()), np.array([], np.int64))
    assert len(rows) == 0
    assert rows.before is None
    assert rows.after is None
