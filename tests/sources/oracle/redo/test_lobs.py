"""Long values and their rows: recorded sequences, and random ones against a plain model."""

from __future__ import annotations

import itertools
import random
import resource
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import SchemaConflict, UnreadableValue
from airflow_provider_cdc.sources.oracle.kernels.operations import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.redo.lobs import read_with_lobs
from tests.sources.oracle.redo.lob_texts import (
    Line,
    assemble,
    delete,
    erase,
    insert,
    lob_reader,
    locator,
    shown,
    string,
    trim,
    update,
    write,
    xml,
)  # fmt: skip

R1, R2 = "AAAS1pAAMAAAACXAAA", "AAAS1pAAMAAAACXAAB"
ONE = {"ID": 1, "V": "x"}
EMPTY = {"C": "", "D": "", "B": b"", "S": None, "X": None}


def rows(lines: list[Line], **options: Any) -> list[Any]:
    reader = lob_reader(**options)
    return shown(assemble(reader, lines), reader.schema)


def c(at: int = 0, **after: Any) -> tuple[int, str, Any]:
    return at, "c", {"after": {"ID": 1, "V": "x", "S": None, "C": None, "D": None, "B": None, "X": None, **after}}


def u(at: int = 0, **after: Any) -> tuple[int, str, Any]:
    return at, "u", {"before": {"ID": 1, "V": "x"}, "after": {"ID": 1, "V": "x", **after}}


NOTHING = {"C": None, "D": None, "B": None, "S": None, "X": None}
CASES: dict[str, tuple[list[Line], list[Any]]] = {
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
        [Line(11, (locator("C", ONE).text or "") + " dbms_lob.trim(loc_c, 0);\n"), write("C", "ab", 1)], [u(C="ab")],
    ),
    "locator, writes and end in one text": (
        [Line(10, (locator("C", ONE).text or "") + (write("C", "ab", 1).text or "") + (write("C", "c", 3).text or "")
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
        [xml(ONE, "")[0], Line(70, "XML_REDO := '<a/>'\n amount: 4"), Line(71, "")], [u(X="<a/>")],
    ),
    "characters beyond the basic plane, counted as two": (
        [locator("C", ONE), write("C", "😀a", 1, length=3), write("C", "b", 4)], [u(C="😀ab")],
    ),
    "characters beyond the basic plane, counted as one": (
        [locator("C", ONE), write("C", "b", 3), write("C", "😀a", 1)], [u(C="😀ab")],
    ),
    "a piece of a column that is not captured": (
        [insert(**ONE, **NOTHING), Line(9, (locator("C", ONE).text or "").replace('"C"', '"SHAPE"')), write("C", "x", 1)], [c()],
    ),
    "a condition without the LOB's row": (
        [insert(**ONE, **NOTHING | {"C": ""}), locator("C", {}), write("C", "abc", 1)], [c(C="abc")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_sequence_is_the_recorded_rows(name: str) -> None:
    lines, wanted = CASES[name]
    assert rows(lines) == wanted


@pytest.mark.parametrize("name", CASES)
def test_sequences_of_several_transactions_do_not_touch_each_other(name: str) -> None:
    """The lines of a case dealt out among those of another transaction."""
    lines, wanted = CASES[name]
    other = [line._replace(transaction=line.transaction + 10) for line in lines]
    mixed = [line for pair in zip(lines, other, strict=True) for line in pair]
    found = rows(mixed)
    assert [row[1:] for row in found if row[0] % 2 == 0] == [row[1:] for row in wanted]
    assert [row[1:] for row in found if row[0] % 2 == 1] == [row[1:] for row in wanted]


WITHOUT_KEY: dict[str, tuple[list[Line], list[Any]]] = {
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
    lines, wanted = WITHOUT_KEY[name]
    assert rows(lines, key=()) == wanted


WRONG: dict[str, list[Line]] = {
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
    "an end alone": [Line(71, None)],
    "a document of nothing": xml(ONE),
    "a document in Oracle's own binary form": xml(ONE, b"\x9f\x01\x63\x00"),
    "a document that is no XML": xml(ONE, "HEXTORAW"),
    "a string that does not end": string(ONE, "abc")[:-1],
    "a string's end for a document": [*xml(ONE, "<a/>")[:-1], Line(93, None)],
    "a piece of another kind": [*xml(ONE, "<a/>")[:1], write("C", "a", 1)],
    "a value for a row that is gone": [delete(ONE, row_id=R1), locator("C", ONE, R1), write("C", "a", 1)],
    "NULL is written to": [insert(row_id=R1, **ONE, **NOTHING), locator("C", ONE, R1), write("C", "a", 1)],
    "trimmed to more than it is": [insert(row_id=R1, **ONE, **EMPTY), locator("C", ONE, R1), trim("C", 1)],
    "half of a character": [
        insert(row_id=R1, **ONE, **EMPTY), locator("C", ONE, R1), write("C", "😀", 1, length=2), trim("C", 1),
    ],
    "a number": [Line(9, (locator("C", ONE).text or "").replace('select "C"', 'select "ID"')), write("C", "1", 1)],
    "more than can be held": [insert(row_id=R1, **ONE, **EMPTY), locator("B", ONE, R1), write("B", b"x", 10**12)],
    "a condition without the key": [insert(**ONE, **EMPTY), locator("C", {"V": "x"}), write("C", "a", 1)],
    "a row id of another row": [
        insert(row_id=R1, **ONE, **EMPTY), insert(row_id=R2, **ONE | {"ID": 2}, **EMPTY), locator("C", ONE, R2), write("C", "a", 1),
    ],
    "an odd number of digits": [locator("B", ONE), Line(10, " buf_b := HEXTORAW('abc'); dbms_lob.write(loc_b, 2, 1, buf_b);")],
    "a buffer that nothing is done with": [
        locator("C", ONE), Line(10, " buf_c := 'a'; buf_nc := 'b'; dbms_lob.write(loc_c, 1, 1, buf_c);"),
    ],
    "a trim of another value": [locator("C", ONE), write("C", "a", 1), trim("B", 1)],
    "an unknown operation": [Line(255, "Unsupported")],
    "a change without a text": [Line(1, None)],
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
            rows([Line(9, changed), write("C", "a", 1)])


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


# -- random sequences against a plain model ---------------------------------------------------------------------------------------


class Model:
    """Rows of a table with one CLOB and one BLOB, changed as DBMS_LOB documents it, and the lines that LogMiner shows for it."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.lines: list[Line] = []

    def data(self, column: str, most: int = 12) -> Any:
        n = self.r.randint(0, most)
        return self.r.randbytes(n) if column == "B" else "".join(self.r.choice("abcé日'") for _ in range(n))

    def step(self) -> None:
        r = self.r
        id_ = r.randint(1, 4)
        if id_ not in self.rows:
            self.insert(id_)
        elif r.random() < 0.1:
            self.lines.append(delete(self.named(id_), row_id=self.row_id(id_)))
            del self.rows[id_]
        elif r.random() < 0.4:
            self.set(id_)
        else:
            self.in_place(id_)

    def row_id(self, id_: int) -> str:
        return f"AAAS1pAAMAAAACXA{self.rows[id_]['n']:02d}"

    def named(self, id_: int) -> dict[str, Any]:
        return {"ID": id_, "V": self.rows[id_]["V"]}

    def insert(self, id_: int) -> None:
        row = {"V": self.data("V", 3) or "v", "C": self.data("C"), "B": self.data("B")}
        self.rows[id_] = {**row, "n": len(self.lines) % 100}
        self.lines.append(insert(**NOTHING | {"ID": id_, "V": row["V"], "C": "", "B": b""}))
        self.statement(id_, {"C": row["C"], "B": row["B"]})

    def set(self, id_: int) -> None:
        changed = {n: self.data(n) for n in self.r.sample(["C", "B"], self.r.randint(1, 2))}
        before = self.named(id_)
        if self.r.random() < 0.5:
            self.rows[id_]["V"] = self.data("V", 3) or "w"
            shown_ = {n: v[:0] for n, v in changed.items()}
            self.lines.append(update(before, **{"V": self.rows[id_]["V"], **shown_}))
        else:
            changed = {n: v for n, v in changed.items() if v}
        self.rows[id_].update(changed)
        self.statement(id_, changed)

    def statement(self, id_: int, values: dict[str, Any]) -> None:
        """Long values, in pieces of any order, then the short ones."""
        inline = {n: v for n, v in values.items() if 0 < len(v) < 4}
        for name, value in values.items():
            if len(value) < 4:
                continue
            self.lines.append(locator(name, self.named(id_)))
            cuts = sorted({0, len(value), *(self.r.randrange(len(value)) for _ in range(2))})
            parts = [write(name, value[a:b], a + 1) for a, b in itertools.pairwise(cuts)]
            self.lines += self.r.sample(parts, len(parts))
            if self.r.random() < 0.3:
                self.lines.append(trim(name, len(value)))
        if inline:
            self.lines.append(update(self.named(id_), row_id=self.row_id(id_), **inline))

    def in_place(self, id_: int) -> None:
        name = self.r.choice("CB")
        row = self.rows[id_]
        blank: Any = b"\0" if name == "B" else " "
        self.lines.append(locator(name, self.named(id_), self.row_id(id_)))
        for _ in range(self.r.randint(1, 4)):
            value = row[name]
            at = self.r.randint(0, len(value) + 3)
            way = self.r.randrange(3)
            if way == 0:
                data = self.data(name) or blank
                value = value.ljust(at, blank)
                row[name] = value[:at] + data + value[at + len(data) :]
                self.lines.append(write(name, data, at + 1))
            elif way == 1:
                at = min(at, len(value))
                row[name] = value[:at]
                self.lines.append(trim(name, at))
            else:
                n = self.r.randint(1, 5)
                end = min(at + n, len(value))
                if at < end:
                    row[name] = value[:at] + blank * (end - at) + value[end:]
                self.lines.append(erase(name, at + 1, n))


@pytest.mark.parametrize("seed", range(60))
def test_random_sequences_end_in_the_values_of_a_plain_model(seed: int) -> None:
    model = Model(seed)
    for _ in range(25):
        model.step()
    reader = lob_reader()
    found: dict[int, dict[str, Any]] = {}
    for _, op, row in shown(assemble(reader, model.lines), reader.schema):
        if op == "d":
            del found[row["before"]["ID"]]
            continue
        id_ = row["after"]["ID"]
        assert (op == "c") == (id_ not in found)
        found.setdefault(id_, {}).update(row["after"])
    wanted = {id_: {"V": row["V"], "C": row["C"], "B": row["B"].hex()} for id_, row in model.rows.items()}
    assert {id_: {n: row[n] for n in "VCB"} for id_, row in found.items()} == wanted


# -- size -------------------------------------------------------------------------------------------------------------------------


def test_a_hundred_megabytes_in_pieces_need_a_few_times_their_size() -> None:
    size, piece = 100 << 20, 32_000
    hexed = "41" * piece
    count = size // piece
    texts = [locator("B", ONE).text]
    texts += [
        f" buf_b := HEXTORAW('{hexed}'); \n dbms_lob.write(loc_b, {piece}, {n * piece + 1}, buf_b);"
        for n in range(count)
    ]
    array = pa.array(texts, pa.large_string())
    del texts
    codes = np.array([9] + [10] * count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = lob_reader()
    found = read_with_lobs(reader, array, codes, np.zeros(count + 1, np.int64), [NO_ROW_ID] * (count + 1))
    assert found.rows.after is not None
    assert len(found.rows.after.field("B")[0].as_buffer()) == count * piece
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert extra < 5 * size


def test_ten_thousand_appends_to_one_value_are_not_copied_each_time() -> None:
    lines = [insert(row_id=R1, **ONE, **NOTHING | {"C": ""})]
    for n in range(10_000):
        lines += [locator("C", ONE, R1), write("C", "x" * 500, n * 500 + 1)]
    reader = lob_reader()
    found = assemble(reader, lines)
    assert len(found.rows) == 1
    assert found.rows.after is not None
    assert found.rows.after.field("C")[0].as_py() == "x" * 5_000_000
