"""Runs in a separate process, with other settings of numba: ``redo_child.py twin|fuzz``."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any

import numpy as np

from airflow_provider_cdc.core.errors import SchemaConflict, UnreadableValue
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
from tests.sources.oracle.redo.redo_tables import images, read
from tests.sources.oracle.redo.test_redo_random import generate_statements, reader

_PIECES = ["'", "''", ",", ")", ";", " and ", " where ", '"', "NULL", "\\", " || ", "(", "-", ".", "9", "é", ":1", "a."]
TEXTS = 8_000


def read_twin() -> dict[str, Any]:
    texts, codes, _ = generate_statements(7, 40)
    one = reader()
    rows = read(one, texts, codes)
    return {"plain": rows.plain.tolist(), "rows": [repr(images(rows, i, one.schema)) for i in range(len(texts))]}


def damage_text(r: random.Random, text: str) -> str:
    """A text with a piece cut off, taken out, put in, doubled, or exchanged."""
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        at = r.randrange(len(text) + 1)
        way = r.randrange(6)
        if way == 0:
            text = text[:at]
        elif way == 1:
            text = text[:at] + text[at + r.choice((1, 1, 2, 9)) :]
        elif way == 2:
            text = text[:at] + r.choice(_PIECES) + text[at:]
        elif way == 3:
            text = text[:at] + text[at : at + 20] + text[at:]
        elif way == 4:
            text = text[:at] + r.choice(_PIECES) + text[at + 1 :]
        else:
            text = text[:at] + chr(r.randrange(1, 0x250)) + text[at + 1 :]
    return text


def fuzz() -> dict[str, Any]:
    r = random.Random(12)
    texts, codes, _ = generate_statements(11, 400)
    one = reader()
    outcomes: Counter[str] = Counter()
    disagreements: list[str] = []
    other: list[str] = []
    while outcomes["texts"] < TEXTS:
        picked = [r.randrange(len(texts)) for _ in range(100)]
        for text, code in [(damage_text(r, texts[i]), codes[i]) for i in picked]:
            outcomes["texts"] += 1
            try:
                outcomes[_compare_readers(one, text, code, disagreements)] += 1
            except (UnreadableValue, SchemaConflict) as e:
                outcomes[type(e).__name__] += 1
            except Exception as e:
                other.append(f"{type(e).__name__}: {e}: {text}")
    found: dict[str, Any] = {"fast": 0, "plain": 0, "UnreadableValue": 0, "SchemaConflict": 0}
    return found | outcomes | {"disagreements": disagreements[:5], "other": other[:5]}


def _compare_readers(one: RedoReader, text: str, code: int, disagreements: list[str]) -> str:
    """Read a text; what the kernel reads, the plain path must read alike."""
    rows = read(one, [text], [code])
    if rows.plain[0]:
        return "plain"
    try:
        plain = one.read_plain([text], np.array([code]))
    except (UnreadableValue, SchemaConflict) as e:
        disagreements.append(f"{e} {text}")
        return "fast"
    if repr(images(rows, 0, one.schema)) != repr(images(plain, 0, one.schema)):
        disagreements.append(text)
    return "fast"


if __name__ == "__main__":
    print(json.dumps({"twin": read_twin, "fuzz": fuzz}[sys.argv[1]]()))
