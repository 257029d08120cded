"""Damaged redo: an error of ours, or the row that an independent reader sees in it; never a wrong row, never anything else."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import SchemaConflict, UnreadableValue
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader, RedoRows
from tests.sources.oracle.redo.lob_model import Model
from tests.sources.oracle.redo.lob_texts import MinedLine, assemble, lob_reader, shown_rows
from tests.sources.oracle.redo.redo_tables import images, read
from tests.sources.oracle.redo.strict_redo import InvalidStatement, Statement
from tests.sources.oracle.redo.test_redo_random import generate_statements, reader
from tests.support.patience import LONGEST_S

ROOT = Path(__file__).resolve().parents[4]
KERNEL_TEXTS, PLAIN_TEXTS, SEQUENCES = 20_000, 4_000, 3_000
_PIECES = [
    "'",
    "''",
    ",",
    ")",
    "(",
    ";",
    " and ",
    " where ",
    '"',
    "NULL",
    "\\",
    " || ",
    "-",
    ".",
    "9",
    "é",
    ":1",
    "a.",
    " ",
    "/*",
    "*/",
]


# -- damage -----------------------------------------------------------------------------------------------------------------------


def change_text(r: random.Random, text: str) -> str:
    """Some characters put in, taken out, doubled or exchanged, or the end cut off."""
    for _ in range(r.choice((1, 1, 1, 1, 2, 4))):
        at = r.randrange(len(text) + 1)
        way = r.randrange(8)
        if way == 0:
            text = text[:at]
        elif way == 1:
            text = text[:at] + text[at + r.choice((1, 1, 2, 9)) :]
        elif way == 2:
            text = text[:at] + r.choice(_PIECES) + text[at:]
        elif way == 3:
            text = text[:at] + text[at : at + r.choice((1, 20))] + text[at:]
        elif way == 4:
            text = text[:at] + r.choice(_PIECES) + text[at + 1 :]
        elif way == 5:
            text = text[:at] + chr(r.choice((r.randrange(1, 0x250), r.randrange(32, 127)))) + text[at + 1 :]
        else:
            # digits and letters become others: what is still a statement is another row
            text = text[:at] + r.choice("0123456789ABFabf") + text[at + 1 :]
    return text


def splice_statements(r: random.Random, text: str, other: str) -> str:
    """Rows of a long statement out of order, missing, twice, or of another statement."""
    size = r.choice((40, 100, 400, 1000))
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    others = [other[at : at + size] for at in range(0, len(other), size)]
    at = r.randrange(len(parts))
    way = r.randrange(4)
    if way == 0:
        to = r.randrange(len(parts))
        parts[at], parts[to] = parts[to], parts[at]
    elif way == 1:
        del parts[at]
    elif way == 2:
        parts.insert(at, parts[at])
    else:
        parts[at] = others[min(at, len(others) - 1)]
    return "".join(parts)


def draw_damaged_texts(seed: int, count: int) -> tuple[list[str], list[int]]:
    r = random.Random(seed)
    texts, codes, _ = generate_statements(seed, 500)
    found, found_codes = [], []
    for _ in range(count):
        i = r.randrange(len(texts))
        text = (
            splice_statements(r, texts[i], texts[r.randrange(len(texts))])
            if r.random() < 0.25
            else change_text(r, texts[i])
        )
        found.append(text)
        found_codes.append(codes[i] if r.random() < 0.98 else r.choice((1, 2, 3)))
    return found, found_codes


# -- judgement --------------------------------------------------------------------------------------------------------------------


def find_wrong_image(rows: RedoRows, at: int, one: RedoReader, text: str, code: int) -> str | None:
    """Describe the fault of a row that was read; return None if it is right."""
    found = images(rows, at, one.schema)
    try:
        seen = Statement(text, code)
    except InvalidStatement as e:
        return f"not a statement ({e}), read as {found}: {text}"
    expected = {n: image for n, image in (("before", seen.before), ("after", seen.after)) if image is not None}
    return None if repr(found) == repr(_order_images(expected, one)) else f"{found} instead of {expected}: {text}"


def _order_images(expected: dict[str, dict[str, Any]], one: RedoReader) -> dict[str, dict[str, Any]]:
    return {n: {c: image[c] for c in one.schema.column_names if c in image} for n, image in expected.items()}


def kernels() -> dict[str, Any]:
    """Many texts at once through the kernels; what they read must be right, what they leave is left."""
    one = reader()
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    for seed in range(KERNEL_TEXTS // 2_000):
        texts, codes = draw_damaged_texts(1_000 + seed, 2_000)
        array = pa.array(texts, pa.large_string())
        buf = np.frombuffer(array.buffers()[2], np.uint8)
        offsets = np.frombuffer(array.buffers()[1], np.int64)[: len(texts) + 1]
        rows, left = one.read_fast(buf, offsets, np.array(codes, np.int64))
        outcomes["texts"] += len(texts)
        for at in np.flatnonzero(~left).tolist():
            outcomes["read"] += 1
            fault = find_wrong_image(rows, at, one, texts[at], codes[at])
            faults += [fault] if fault else []
    return {**outcomes, "faults": faults[:5]}


def read_plainly() -> dict[str, Any]:
    """Text by text, as the stream would read it."""
    one = reader()
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    texts, codes = draw_damaged_texts(77, PLAIN_TEXTS)
    for text, code in zip(texts, codes, strict=True):
        outcomes["texts"] += 1
        try:
            rows = read(one, [text], [code])
        except (UnreadableValue, SchemaConflict) as e:
            outcomes[type(e).__name__] += 1
            continue
        except Exception as e:
            faults.append(f"{type(e).__name__}: {e}: {text}")
            continue
        outcomes["plain" if rows.plain[0] else "read"] += 1
        fault = find_wrong_image(rows, 0, one, text, code)
        faults += [fault] if fault else []
    return {**outcomes, "faults": faults[:5]}


def _child(task: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sources.oracle.redo.test_redo_fuzz", task],
        capture_output=True, text=True, timeout=LONGEST_S, cwd=ROOT, env=os.environ | environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_kernels_never_read_a_damaged_text_as_a_wrong_row() -> None:
    """With every index checked by the compiler, so that reading beyond a text is an error."""
    found = _child("kernels", NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(ROOT / ".dev" / "numba-bounds"))
    assert found["faults"] == []
    assert found["texts"] >= KERNEL_TEXTS
    assert found["read"] > KERNEL_TEXTS // 20


def test_a_damaged_text_is_an_error_or_the_row_that_it_still_says() -> None:
    found = read_plainly()
    assert found["faults"] == []
    assert found["texts"] >= PLAIN_TEXTS
    assert min(found["plain"], found["read"], found["UnreadableValue"], found["SchemaConflict"]) > 80


def test_undamaged_texts_are_rows_for_the_independent_reader() -> None:
    """It must not be right by refusing everything."""
    texts, codes, _ = generate_statements(3, 400)
    one = reader()
    rows = read(one, texts, codes)
    assert [
        find_wrong_image(rows, at, one, text, code) for at, (text, code) in enumerate(zip(texts, codes, strict=True))
    ] == ([None] * len(texts))


def test_an_independent_reader_that_is_wrong_is_noticed() -> None:
    texts, codes, _ = generate_statements(4, 40)
    one = reader()
    rows = read(one, texts, codes)
    turned = [*texts[1:], texts[0]]
    assert all(find_wrong_image(rows, at, one, turned[at], codes[(at + 1) % len(codes)]) for at in range(len(texts)))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_are_refused_or_read_as_text(seed: int) -> None:
    r = random.Random(seed)
    texts, codes, _ = generate_statements(seed, 100)
    one = reader()
    refused = 0
    for text, code in zip(texts, codes, strict=True):
        raw = bytearray(text.encode())
        raw[r.randrange(len(raw))] = r.choice((r.randrange(48, 58), r.randrange(97, 103), r.randrange(256)))
        try:
            rows = one.read(pa.array([bytes(raw)], pa.binary()), np.array([code]))
        except (UnreadableValue, SchemaConflict):
            refused += 1
            continue
        assert find_wrong_image(rows, 0, one, raw.decode(), code) is None
    assert 10 < refused < 95


# -- long values ------------------------------------------------------------------------------------------------------------------

LOB_TYPES = {
    "ID": "NUMBER(9)",
    "V": "VARCHAR2(60)",
    "S": "VARCHAR2(60)",
    "C": "CLOB",
    "D": "CLOB",
    "B": "BLOB",
    "X": "CLOB",
}
_SPACE = r"(?:\s|/\*.*?\*/)*"


def _shape(*tokens: str) -> re.Pattern[str]:
    return re.compile(_SPACE + _SPACE.join(tokens) + _SPACE, re.DOTALL | re.IGNORECASE)


_WRITE = _shape(
    "buf_(c|b)", ":=", r"(?:'((?:[^']|'')*)'|HEXTORAW\(\s*'([0-9a-f]*)'\s*\)|EMPTY_BLOB\(\))", ";", "dbms_lob", r"\.", "write", r"\(",
    r"loc_\1", ",", "([0-9]+)", ",", "([0-9]+)", ",", r"buf_\1", r"\)", ";",
)  # fmt: skip
_TRIM = _shape("dbms_lob", r"\.", "trim", r"\(", "loc_(c|b)", ",", "([0-9]+)", r"\)", ";")
_ERASE = _shape(
    "e", ":=", "([0-9]+)", ";", "dbms_lob", r"\.", "erase", r"\(", "loc_(c|b)", ",", "e", ",", "([0-9]+)", r"\)", ";"
)
_LOCATOR = re.compile(
    r'.*\sselect\s*"(C|B)"\s*into\s+loc_(c|b)\s+from\s+"SHOP"\s*\.\s*"PARTS"\s+(where\s.*)\sfor\s+update\s*;?\s*',
    re.DOTALL,
)
UNKNOWN = "?"


class LobModel:
    """A model of the table after a sequence of lines, by cell and by operation; slow, and written independently.

    ``rows`` has, for each row that is mentioned, what is known of it; ``"?"`` for a value that has changed and cannot be known.
    """

    def __init__(self, lines: list[MinedLine]) -> None:
        self.rows: dict[int | None, dict[str, Any]] = {}
        self.partial: dict[tuple[int | None, str], tuple[dict[int, Any], int | None]] = {}
        self.place: tuple[int | None, str] = (None, "")
        self.open: tuple[int | None, set[str]] = (-1, set())
        at = 0
        while at < len(lines):
            line, at = lines[at], at + 1
            if line.code <= 3:
                self.change(line)
                continue
            column, named, in_place, at = self.begin(line, at)
            steps = []
            while at < len(lines) and lines[at].code in (10, 11, 29) and not _LOCATOR.fullmatch(lines[at].text or ""):
                steps.append(self.step(lines[at], column.lower()))
                at += 1
            if in_place and not steps:
                continue
            row = self.rows.setdefault(named.get("ID"), {})
            row |= named
            self.place = named.get("ID"), column
            row[column] = self.value(row.get(column, UNKNOWN), steps, column == "B", in_place)

    def begin(self, line: MinedLine, at: int) -> tuple[str, dict[str, Any], bool, int]:
        """Column, condition, whether the value is changed in place, and where its steps begin."""
        id_, announced = self.open
        if line.code == 10 and (w := _WRITE.fullmatch(line.text or "")) and w[1].upper() in announced:
            announced.discard(w[1].upper())
            return w[1].upper(), {"ID": id_}, False, at - 1
        m = _LOCATOR.fullmatch(line.text or "") if line.code in (9, 11) else None
        if m is None or m[1].lower() != m[2]:
            raise InvalidStatement("no locator")
        named = Statement(f'delete from "SHOP"."PARTS" {m[3]};', 2, LOB_TYPES).before or {}
        announced.discard(m[1])
        in_place = line.row_id != NO_ROW_ID
        if in_place or named.get("ID") != id_:
            self.open = (-1, set())
        return m[1], named, in_place, at

    def change(self, line: MinedLine) -> None:
        seen = Statement(line.text or "", line.code, LOB_TYPES)
        if seen.after is None:
            self.rows.pop((seen.before or {}).get("ID"), None)
            self.open = (-1, set())
            return
        old = (seen.before or seen.after).get("ID")
        row = self.rows.pop(old, {}) if line.code == 3 else {}
        self.rows[seen.after.get("ID")] = row | seen.after
        self.partial = {at: part for at, part in self.partial.items() if at[0] != old or at[1] not in seen.after}
        shown_ = {n for n in "CB" if seen.after.get(n) == ""} if line.row_id == NO_ROW_ID else set()
        self.open = (seen.after.get("ID"), shown_)

    def step(self, line: MinedLine, variable: str) -> tuple[str, int, Any]:
        text = line.text or ""
        if m := _WRITE.fullmatch(text):
            data = (m[2] or "").replace("''", "'") if m[1] == "c" else bytes.fromhex(m[3] or "")
            if m[1] != variable or line.code != 10 or int(m[4]) != len(data) or int(m[5]) < 1:
                raise InvalidStatement("write")
            return "write", int(m[5]) - 1, data if m[1] == "b" else list(data)
        if m := _TRIM.fullmatch(text):
            if m[1] != variable or line.code != 11:
                raise InvalidStatement("trim")
            return "trim", int(m[2]), None
        m = _ERASE.fullmatch(text)
        if m is None or m[2] != variable or line.code != 29 or int(m[3]) < 1:
            raise InvalidStatement("no step")
        return "erase", int(m[3]) - 1, int(m[1])

    def value(self, before: Any, steps: list[tuple[str, int, Any]], binary: bool, in_place: bool) -> Any:
        """``before`` and the result: a text, hexadecimal digits, NULL or unknown."""
        if steps and (steps[0][0] == "erase" or (steps[0][0] == "trim" and steps[0][1] > 0)):
            in_place = True
        blank: Any = 0 if binary else " "
        cells, length = self.start(before, binary) if in_place else ({}, None)
        for name, at, what in steps:
            if name == "write":
                if not in_place and any(at + i in cells for i in range(len(what))):
                    raise InvalidStatement("twice")
                if length is not None:
                    if in_place:
                        cells |= dict.fromkeys(range(length, at), blank)
                    length = max(length, at + len(what))
                cells |= {at + i: c for i, c in enumerate(what)}
            elif name == "trim":
                if length is not None and length < at:
                    raise InvalidStatement("trimmed to more")
                length, cells = at, {i: c for i, c in cells.items() if i < at}
            elif not in_place:
                raise InvalidStatement("erased")
            else:
                end = at + what if length is None else min(at + what, length)
                cells |= dict.fromkeys(range(at, end), blank)
        if not in_place:
            return self.stated(before, cells, length, binary)
        if length is None or len(cells) != length:
            self.partial[self.place] = cells, length
            return UNKNOWN
        return _join_cells(cells, binary)

    def start(self, before: Any, binary: bool) -> tuple[dict[int, Any], int | None]:
        if before is None:
            raise InvalidStatement("NULL")
        if before == UNKNOWN:
            return self.partial.pop(self.place, ({}, None))
        cells = dict(enumerate(bytes.fromhex(before) if binary else before))
        return cells, len(cells)

    def stated(self, before: Any, cells: dict[int, Any], length: int | None, binary: bool) -> Any:
        """A value that a statement sets, from its first unit on; or the rest of one."""
        if not cells and length != 0:
            raise InvalidStatement("nothing")
        reach = len(cells)
        if sorted(cells) == list(range(reach)):
            if length not in (None, reach):
                raise InvalidStatement("pieces missing")
            return _join_cells(cells, binary)
        if 0 in cells:
            raise InvalidStatement("a hole")
        if before == UNKNOWN:
            return UNKNOWN
        size = len(before or "") // (2 if binary else 1)
        if before is None or length is not None or sorted(cells) != list(range(size, size + reach)):
            raise InvalidStatement("the first pieces are missing")
        return before + _join_cells(cells, binary)


def _join_cells(cells: dict[int, Any], binary: bool) -> str:
    parts = [cells[i] for i in sorted(cells)]
    return bytes(parts).hex() if binary else "".join(parts)


def shuffle_lines(r: random.Random, lines: list[MinedLine]) -> list[MinedLine]:
    """Lines that are missing, there twice, or in another place; some texts are damaged, too."""
    lines = list(lines)
    for _ in range(r.choice((1, 1, 2, 3))):
        if not lines:
            break
        at, to = r.randrange(len(lines)), r.randrange(len(lines))
        way = r.randrange(6)
        if way == 0:
            del lines[r.choice((0, at))]
        elif way == 1:
            lines.insert(to, lines[at])
        elif way == 2:
            lines[at], lines[to] = lines[to], lines[at]
        elif way == 3 and at + 1 < len(lines):
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
        elif way == 4:
            lines[at] = lines[at]._replace(text=change_text(r, lines[at].text or "x"))
        else:
            lines[at] = lines[at]._replace(text=lines[to].text)
    return lines


def replay_lines(one: RedoReader, lines: list[MinedLine]) -> dict[int | None, dict[str, Any]]:
    """The table that the rows of the real one make."""
    table: dict[int | None, dict[str, Any]] = {}
    for _, op, row in shown_rows(assemble(one, lines), one.schema):
        if op == "d":
            table.pop(row["before"].get("ID"), None)
            continue
        old = table.pop(row["before"].get("ID"), {}) if "before" in row else {}
        table[row["after"].get("ID")] = old | row["after"]
    return table


def test_lines_of_long_values_that_are_shuffled_missing_or_there_twice_are_never_a_wrong_value() -> None:
    r = random.Random(9)
    one = lob_reader()
    outcomes: Counter[str] = Counter()
    for number in range(SEQUENCES):
        model = Model(number)
        for _ in range(r.randint(1, 5)):
            model.step()
        lines = shuffle_lines(r, model.lines)
        try:
            found = replay_lines(one, lines)
        except (UnreadableValue, SchemaConflict):
            outcomes["error"] += 1
            continue
        expected = LobModel(lines).rows
        assert _long_values(found) == _long_values(expected), lines
        outcomes["unknown" if "'?'" in repr(expected) else "read"] += 1
    assert outcomes["read"] > SEQUENCES // 8
    assert outcomes["error"] > SEQUENCES // 8
    assert outcomes["unknown"] > 5


def test_whole_sequences_are_what_the_judge_says() -> None:
    one = lob_reader()
    for number in range(100):
        model = Model(number)
        for _ in range(20):
            model.step()
        assert _long_values(replay_lines(one, model.lines)) == _long_values(LobModel(model.lines).rows)


def _long_values(table: dict[int | None, dict[str, Any]]) -> dict[int | None, dict[str, Any]]:
    return {id_: {name: row[name] for name in "CB" if name in row} for id_, row in table.items()}


if __name__ == "__main__":
    print(json.dumps({"kernels": kernels, "plain": read_plainly}[sys.argv[1]]()))
