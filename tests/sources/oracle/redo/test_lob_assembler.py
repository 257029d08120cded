"""Long values and their rows: recorded sequences."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_cdc.core.errors import SchemaConflict, UnreadableValue
from tests.sources.oracle.redo.lob_texts import (
    NOTHING,
    MinedLine,
    as_blocks,
    assemble,
    delete,
    erase,
    insert,
    lob_reader,
    locator,
    shown_rows,
    string,
    trim,
    update,
    write,
    xml,
)  # fmt: skip

R1, R2 = "AAAS1pAAMAAAACXAAA", "AAAS1pAAMAAAACXAAB"
ONE = {"ID": 1, "V": "x"}
EMPTY = {"C": "", "D": "", "B": b"", "S": None, "X": None}


def rows(lines: list[MinedLine], **options: Any) -> list[Any]:
    reader = lob_reader(**options)
    return shown_rows(assemble(reader, lines), reader.schema)


def c(at: int = 0, **after: Any) -> tuple[int, str, Any]:
    return at, "c", {"after": {"ID": 1, "V": "x", "S": None, "C": None, "D": None, "B": None, "X": None, **after}}


def u(at: int = 0, **after: Any) -> tuple[int, str, Any]:
    return at, "u", {"before": {"ID": 1, "V": "x"}, "after": {"ID": 1, "V": "x", **after}}


CASES: dict[str, tuple[list[MinedLine], list[Any]]] = {
    "a LOB that lies in the row is part of the insert": (
        [insert(**ONE, **NOTHING | {"C": ""}), update(ONE, row_id=R1, C="short")],
        [c(C="short")],
    ),
    "a LOB that does not is, too": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", ONE), write("C", "it's ", 1), write("C", "long", 6)],
        [c(C="it's long")],
    ),
    "several long values of one row": (
        [
            insert(**ONE, **EMPTY), locator("C", ONE), write("C", "cc", 1), locator("D", ONE), write("D", "日本", 1),
            *xml(ONE, "<a>", "é</a>"), *string(ONE, "s" * 9, "t"), update(ONE, row_id=R1, B=b"\0\1"),
        ],
        [c(C="cc", D="日本", B="0001", X="<a>é</a>", S="s" * 9 + "t")],
    ),
    "an insert with empty LOBs alone": ([insert(**ONE, **EMPTY)], [c(C="", D="", B="")]),
    "an update with long values": (
        [update(ONE, V="y", C="", B=b""), locator("C", {"ID": 1, "V": "y"}), write("C", "cc", 1),
         update({"ID": 1, "V": "y"}, row_id=R1, B=b"b")],
        [(0, "u", {"before": ONE, "after": {"ID": 1, "V": "y", "C": "cc", "B": "62"}})],
    ),
    "an update of long values alone has only their pieces": (
        [locator("C", ONE), write("C", "cc", 1), *xml(ONE, "<x/>")],
        [u(C="cc", X="<x/>")],
    ),
    "an update that does not touch a LOB": ([update(ONE, row_id=R1, V="y")], [
        (0, "u", {"before": ONE, "after": {"ID": 1, "V": "y"}}),
    ]),
    "set to NULL, and to nothing": (
        [update(ONE, row_id=R1, C=None), update(ONE, row_id=R1, C="")], [u(0, C=None), u(1, C="")],
    ),
    "pieces in any order": (
        [locator("C", ONE), write("C", "ef", 5), write("C", "ab", 1), write("C", "cd", 3)], [u(C="abcdef")],
    ),
    "written, then cut to the length that it has": ([locator("C", ONE), write("C", "ab", 1), trim("C", 2)], [u(C="ab")]),
    "cleared, then written": ([locator("B", ONE), trim("B", 0), write("B", b"\1\2", 1)], [u(B="0102")]),
    "a trim that has the locator": (
        [MinedLine(11, (locator("C", ONE).text or "") + " dbms_lob.trim(loc_c, 0);\n"), write("C", "ab", 1)], [u(C="ab")],
    ),
    "locator, writes and end in one text": (
        [MinedLine(10, (locator("C", ONE).text or "") + (write("C", "ab", 1).text or "") + (write("C", "c", 3).text or "")
              + "END;\n")],
        [u(C="abc")],
    ),
    "in place, over an earlier value of the transaction": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", ONE), write("C", "abcdefghij", 1),
         locator("C", ONE, R1), write("C", "XYZ", 2), trim("C", 8), erase("C", 6, 2)],
        [c(C="aXYZe  h")],
    ),
    "in place, over a value that lies in the row": (
        [insert(**ONE, **NOTHING | {"B": b""}), update(ONE, row_id=R1, B=b"abc"), locator("B", ONE, R1),
         write("B", b"d", 6), erase("B", 1, 1)],
        [c(B="00626300" + "00" + "64")],
    ),
    "in place, twice the same place": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", ONE, R1), write("C", "aaa", 1), write("C", "bb", 2)],
        [c(C="abb")],
    ),
    "appended again and again": (
        [insert(row_id=R1, **ONE, **NOTHING | {"C": ""})]
        + [line for n in range(5) for line in (locator("C", ONE, R1), write("C", "ab", 2 * n + 1))],
        [c(C="ab" * 5)],
    ),
    "appended to a value that nobody knows": ([locator("C", ONE, R1), write("C", "more", 11)], [u(C="?")]),
    "appended without a row id to a value that nobody knows": ([locator("C", ONE), write("C", "more", 11)], [u(C="?")]),
    "in place, but all of it": (
        [locator("C", ONE, R1), write("C", "abcd", 1), trim("C", 3)], [u(C="abc")],
    ),
    "cleared in place": ([locator("C", ONE, R1), trim("C", 0), write("C", "ab", 3)], [u(C="  ab")]),
    "erased, unknown": ([locator("C", ONE, R1), erase("C", 1, 2_000_000_000)], [u(C="?")]),
    "far beyond what is known": ([locator("B", ONE, R1), write("B", b"x", 10**12)], [u(B="?")]),
    "locked and not changed": ([locator("C", ONE, R1)], []),
    "an earlier value, then a change of another column, then a change in place": (
        [insert(row_id=R1, **ONE, **NOTHING | {"C": "abc"}), update(ONE, row_id=R1, V="y"),
         locator("C", {"ID": 1, "V": "y"}, R1), write("C", "d", 4)],
        [c(C="abc"), (1, "u", {"before": ONE, "after": {"ID": 1, "V": "y", "C": "abcd"}})],
    ),
    "a change of the key between": (
        [insert(row_id=R1, **ONE, **NOTHING | {"C": "abc"}), update(ONE, row_id=R1, ID=2),
         locator("C", {"ID": 2, "V": "x"}, R1), write("C", "d", 4)],
        [c(C="abc"), (1, "u", {"before": ONE, "after": {"ID": 2, "V": "x", "C": "abcd"}})],
    ),
    "deleted and inserted again": (
        [delete(ONE, row_id=R1), insert(**ONE, **NOTHING | {"C": ""}), locator("C", ONE), write("C", "new", 1)],
        [(0, "d", {"before": ONE}), c(1, C="new")],
    ),
    "two updates of the same value": (
        [locator("C", ONE), write("C", "first", 1), locator("C", ONE), write("C", "2nd", 1)], [u(0, C="first"), u(2, C="2nd")],
    ),
    "rows in turn": (
        [insert(**ONE, **NOTHING | {"C": ""}), insert(**ONE | {"ID": 2}, **NOTHING | {"C": ""}),
         locator("C", ONE), write("C", "one", 1), locator("C", ONE | {"ID": 2}), write("C", "two", 1)],
        [c(C="one"), (1, "c", {"after": {**ONE, "ID": 2, **NOTHING, "C": "two"}})],
    ),
    "transactions in turn": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", ONE | {"ID": 2}, transaction=2), locator("C", ONE),
         write("C", "two", 1, 2), write("C", "one", 1)],
        [c(C="one"), (1, "u", {"before": ONE | {"ID": 2}, "after": ONE | {"ID": 2, "C": "two"}})],
    ),
    "a LOB without a locator belongs to the change before": (
        [insert(**ONE, **NOTHING | {"C": ""}), write("C", "abc", 1)], [c(C="abc")],
    ),
    "an XML document that is NULL": (xml(ONE, None), [u(X=None)]),
    "an XML document in bytes, cut within a character": (xml(ONE, b"<a>\xc3", b"\xa9</a>"), [u(X="<a>é</a>")]),
    "an XML document as older versions write it": (
        [xml(ONE, "")[0], MinedLine(70, "XML_REDO := '<a/>'\n amount: 4"), MinedLine(71, "")], [u(X="<a/>")],
    ),
    "characters beyond the basic plane, counted as two": (
        [locator("C", ONE), write("C", "😀a", 1, length=3), write("C", "b", 4)], [u(C="😀ab")],
    ),
    "characters beyond the basic plane, counted as one": (
        [locator("C", ONE), write("C", "b", 3), write("C", "😀a", 1)], [u(C="😀ab")],
    ),
    "a piece of a column that is not captured": (
        [insert(**ONE, **NOTHING), MinedLine(9, (locator("C", ONE).text or "").replace('"C"', '"SHAPE"')), write("C", "x", 1)], [c()],
    ),
    "a condition without the LOB's row": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", {}), write("C", "abc", 1)], [c(C="abc")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_sequence_is_the_recorded_rows(name: str) -> None:
    lines, expected = CASES[name]
    assert rows(lines) == expected


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_sequence_in_blocks_of_23ai_is_the_same_rows(name: str) -> None:
    lines, expected = CASES[name]
    assert [row[1:] for row in rows(as_blocks(lines))] == [row[1:] for row in expected]


BLOCKS: dict[str, tuple[list[MinedLine], list[Any]]] = {
    "a value set twice": (
        as_blocks([locator("C", ONE), write("C", "first", 1), trim("C", 5), locator("C", ONE), write("C", "2nd", 1), trim("C", 3)]),
        [u(0, C="first"), u(3, C="2nd")],
    ),
    "a cut with another locator": (
        as_blocks([locator("C", ONE), write("C", "abc", 1), locator("C", ONE), trim("C", 3)]), [u(C="abc")],
    ),
    "two rows": (
        as_blocks([locator("C", ONE), write("C", "abc", 1), trim("C", 3), locator("C", ONE | {"ID": 2}), write("C", "d", 1), trim("C", 1)]),
        [u(C="abc"), (3, "u", {"before": ONE | {"ID": 2}, "after": ONE | {"ID": 2, "C": "d"}})],
    ),
    "an insert, its pieces, then the NULLs": (
        [insert(**ONE, C="", D="", B=b"", S=None), *as_blocks([locator("C", ONE), write("C", "a", 1), write("C", "b", 2)]),
         update(ONE, row_id=R1, D=None, B=None)],
        [c(C="ab")],
    ),
    "an insert without LOBs": (
        [insert(**ONE, C="", D="", B=b"", S=None), update(ONE, row_id=R1, C=None, D=None, B=None)], [c()],
    ),
    "a document, ended by an update without a text": (
        [insert(**ONE, C="", D="", B=b"", S=None), *xml(ONE, "<a/>"), MinedLine(3, None, R1)],
        [c(C="", D="", B="", X="<a/>")],
    ),
    "a cut in place": (as_blocks([locator("C", ONE, R1), trim("C", 0)]), [u(C="")]),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_a_sequence_of_23ai_is_the_recorded_rows(name: str) -> None:
    lines, expected = BLOCKS[name]
    assert rows(lines) == expected


def test_the_row_of_a_value_is_known_from_the_log_row_that_names_it() -> None:
    lines = [
        insert(**ONE, **EMPTY),
        *as_blocks([locator("C", ONE), write("C", "a", 1)]),
        update(ONE, row_id=R1, D=None),
    ]
    assert assemble(lob_reader(), lines).named.tolist() == [3]


def test_a_value_that_may_have_been_undone_is_not_known() -> None:
    lines = [
        insert(row_id=R1, **ONE, **EMPTY),
        *as_blocks([locator("C", ONE, R1), write("C", "a", 1)]),
        MinedLine(3, "", R1),
    ]
    found = assemble(lob_reader(), lines, undone=3)
    ((_, op, row),) = shown_rows(found, lob_reader().schema)
    assert op == "c"
    assert {name: row["after"][name] for name in "CDBX"} == dict.fromkeys("CDBX", "?")


@pytest.mark.parametrize("name", CASES)
def test_sequences_of_several_transactions_do_not_touch_each_other(name: str) -> None:
    """The lines of a case dealt out among those of another transaction."""
    lines, expected = CASES[name]
    other = [line._replace(transaction=line.transaction + 10) for line in lines]
    mixed = [line for pair in zip(lines, other, strict=True) for line in pair]
    found = rows(mixed)
    assert [row[1:] for row in found if row[0] % 2 == 0] == [row[1:] for row in expected]
    assert [row[1:] for row in found if row[0] % 2 == 1] == [row[1:] for row in expected]


WITHOUT_KEY: dict[str, tuple[list[MinedLine], list[Any]]] = {
    "the row before": (CASES["several long values of one row"]),
    "the row id": (CASES["in place, over a value that lies in the row"]),
    "the only row that it can be": (CASES["in place, twice the same place"]),
    "two rows that it can be": (
        [insert(**ONE, **NOTHING | {"C": ""}), insert(**ONE, **NOTHING | {"C": ""}), locator("C", ONE, R1), write("C", "a", 1)],
        [c(C=""), c(1, C=""), u(2, C="?")],
    ),
    "another row than the one before": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", {"ID": 2, "V": "x"}), write("C", "a", 1)],
        [c(C=""), (1, "u", {"before": ONE | {"ID": 2}, "after": ONE | {"ID": 2, "C": "a"}})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_KEY)
def test_a_table_without_a_key_goes_by(name: str) -> None:
    lines, expected = WITHOUT_KEY[name]
    assert rows(lines, key=()) == expected


WRONG: dict[str, list[MinedLine]] = {
    "a piece without a begin": [write("C", "a", 1)],
    "a begin without a piece": [locator("C", ONE)],
    "the first piece is missing": [insert(**ONE, **EMPTY), locator("C", ONE), write("C", "b", 2)],
    "a piece in the middle is missing": [locator("C", ONE), write("C", "a", 1), write("C", "c", 3)],
    "the last piece is missing": [locator("C", ONE), write("C", "a", 1), trim("C", 2)],
    "a piece is there twice": [locator("C", ONE), write("C", "a", 1), write("C", "a", 1)],
    "the locator of the second is missing": [
        locator("C", ONE), write("C", "aa", 1), write("D", "aaa", 1),
    ],
    "bytes for a text": [locator("C", ONE), write("B", b"a", 1)],
    "a document that does not end": xml(ONE, "<a/>")[:-1],
    "a document that does not begin": xml(ONE, "<a/>")[1:],
    "an end alone": [MinedLine(71, None)],
    "a document of nothing": xml(ONE),
    "a document in Oracle's own binary form": xml(ONE, b"\x9f\x01\x63\x00"),
    "a document that is no XML": xml(ONE, "HEXTORAW"),
    "a string that does not end": string(ONE, "abc")[:-1],
    "a string's end for a document": [*xml(ONE, "<a/>")[:-1], MinedLine(93, None)],
    "a piece of another kind": [*xml(ONE, "<a/>")[:1], write("C", "a", 1)],
    "a value for a row that is gone": [delete(ONE, row_id=R1), locator("C", ONE, R1), write("C", "a", 1)],
    "NULL is written to": [insert(row_id=R1, **ONE, **NOTHING), locator("C", ONE, R1), write("C", "a", 1)],
    "trimmed to more than it is": [insert(row_id=R1, **ONE, **EMPTY), locator("C", ONE, R1), trim("C", 1)],
    "half of a character": [
        insert(row_id=R1, **ONE, **EMPTY), locator("C", ONE, R1), write("C", "😀", 1, length=2), trim("C", 1),
    ],
    "a number": [MinedLine(9, (locator("C", ONE).text or "").replace('select "C"', 'select "ID"')), write("C", "1", 1)],
    "more than can be held": [insert(row_id=R1, **ONE, **EMPTY), locator("B", ONE, R1), write("B", b"x", 10**12)],
    "a condition without the key": [insert(**ONE, **EMPTY), locator("C", {"V": "x"}), write("C", "a", 1)],
    "a row id of another row": [
        insert(row_id=R1, **ONE, **EMPTY), insert(row_id=R2, **ONE | {"ID": 2}, **EMPTY), locator("C", ONE, R2), write("C", "a", 1),
    ],
    "an odd number of digits": [locator("B", ONE), MinedLine(10, " buf_b := HEXTORAW('abc'); dbms_lob.write(loc_b, 2, 1, buf_b);")],
    "a buffer that nothing is done with": [
        locator("C", ONE), MinedLine(10, " buf_c := 'a'; buf_nc := 'b'; dbms_lob.write(loc_c, 1, 1, buf_c);"),
    ],
    "a trim of another value": [locator("C", ONE), write("C", "a", 1), trim("B", 1)],
    "an unknown operation": [MinedLine(255, "Unsupported")],
    "a change without a text": [MinedLine(1, None)],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_sequence_that_makes_no_sense_is_an_error_with_its_place(name: str) -> None:
    with pytest.raises(UnreadableValue) as caught:
        rows(WRONG[name])
    assert caught.value.remedy
    assert "SHOP.PARTS" in (caught.value.where or "")


def test_another_table_or_column_is_a_conflict() -> None:
    text = locator("C", ONE).text or ""
    for changed in (text.replace("PARTS", "OTHER"), text.replace('"C"', '"GONE"'), text.replace('"V"', '"COL 2"')):
        with pytest.raises(SchemaConflict):
            rows([MinedLine(9, changed), write("C", "a", 1)])


def test_lobs_that_are_not_captured_stay_unavailable() -> None:
    lines = [insert(**ONE, **EMPTY), locator("C", ONE), write("C", "a", 1), *string(ONE, "abc")]
    ((origin, op, row),) = rows(lines, **{"lob.enabled": False})
    assert (origin, op) == (0, "c")
    assert row == {"after": {**ONE, "S": "abc"}}


@pytest.mark.parametrize("mode", ["base64", "hex", "base64-url-safe"])
def test_a_value_in_place_is_put_on_bytes_in_every_binary_mode(mode: str) -> None:
    lines = [insert(row_id=R1, **ONE, **NOTHING | {"B": b"\xfb\xff"}), locator("B", ONE, R1), write("B", b"\xfe", 3)]
    ((_, _, row),) = rows(lines, **{"binary.handling.mode": mode})
    assert row["after"]["B"] == {"base64": "+//+", "hex": "fbfffe", "base64-url-safe": "-__-"}[mode]


def test_no_rows_are_no_rows() -> None:
    found = assemble(lob_reader(), [])
    assert len(found.rows) == len(found.origin) == 0
