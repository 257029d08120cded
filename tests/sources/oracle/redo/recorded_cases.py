"""Reads the files of recorded cases."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "recorded"


@dataclass
class Case:
    """``sql`` is a literal of the type ``type``, or a whole text with an operation code."""

    name: str
    sql: str
    expected: Any
    type: str = ""
    code: int = 0
    properties: dict[str, Any] = field(default_factory=dict)


def values() -> list[Case]:
    cases = []
    for number, line in enumerate((HERE / "values.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        type_, sql, expected, *properties = line.split(" ¦ ")
        given = json.loads(properties[0]) if properties else {}
        cases.append(Case(f"{number}: {type_} {sql}"[:80], sql, json.loads(expected), type_, 0, given))
    return cases


def texts(file: str) -> list[Case]:
    cases = []
    for block in (HERE / file).read_text().split("\n=== ")[1:]:
        name, head, rest = block.split("\n", 2)
        sql, expected = rest.split("\n---\n")
        code, _, properties = head.partition(" ")
        cases.append(Case(name, sql, json.loads(expected), "", int(code), json.loads(properties or "{}")))
    return cases
