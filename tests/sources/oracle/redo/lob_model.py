"""A plain model of long values, and the lines that LogMiner shows for what is done to them."""

from __future__ import annotations

import itertools
import random
from typing import Any

from tests.sources.oracle.redo.lob_texts import (
    NOTHING,
    MinedLine,
    delete,
    erase,
    insert,
    locator,
    trim,
    update,
    write,
)  # fmt: skip


class Model:
    """Rows of a table with one CLOB and one BLOB, changed as DBMS_LOB documents it, and the lines that LogMiner shows for it."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.lines: list[MinedLine] = []

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
