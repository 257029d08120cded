"""The result of a verification: the findings of the comparison of tables with the source."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self


@dataclasses.dataclass(slots=True)
class TableVerification:
    """The result of one table.

    :param name: its name, if a route makes several of its topic; otherwise the name is the topic
    :param position: where the source's log was when its rows were read
    :param batch: the last batch that the table had when it was compared
    :param version: of the table, in the words of its kind
    :param missing: rows of the source that the table lacks
    :param surplus: rows of the table that the source lacks, or that it has twice
    :param different: rows of both whose values are not all equal
    :param differing: column → rows in which it differs
    :param examples: the first different, missing and surplus rows: their key and the columns concerned
    :param only_in_table: columns that the source does not have (any more)
    :param by_rule: a rule makes other rows or columns of it than the source has
    :param event_columns: columns of such a table that describe events; they are not compared
    :param aside: rows of such a table that the source does not have any more, by their own columns; they are not compared
    :param unknown: column → rows in which the reference does not have its value (``unavailable``); they are not compared in it
    :param problem: why the table cannot be equal, whatever its rows are
    :param not_compared: why it cannot be known whether it is equal
    :param never: that will be so whenever it is asked, as the table is one that the source has no rows for
    :param keys: where the keys of the rows that differ are written
    """

    topic: str
    location: str
    position: dict[str, Any] = dataclasses.field(default_factory=dict)
    batch: int | None = None
    version: str = ""
    source: int = 0
    target: int = 0
    missing: int = 0
    surplus: int = 0
    different: int = 0
    differing: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    only_in_table: list[str] = dataclasses.field(default_factory=list)
    by_rule: bool = False
    event_columns: list[str] = dataclasses.field(default_factory=list)
    aside: int = 0
    unknown: dict[str, int] = dataclasses.field(default_factory=dict)
    problem: str = ""
    not_compared: str = ""
    never: bool = False
    keys: str = ""
    seconds: float = 0.0
    name: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Parse the JSON form; the inverse of :meth:`to_document`."""
        return cls(**{field.name: document[field.name] for field in dataclasses.fields(cls)})

    @property
    def display_name(self) -> str:
        """Name for people: its topic, or of a topic with a route that and the location."""
        return self.name or self.topic

    @property
    def rows_differ(self) -> bool:
        return bool(self.missing or self.surplus or self.different)

    @property
    def is_equal(self) -> bool:
        return not (self.not_compared or self.problem or self.rows_differ)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return dataclasses.asdict(self) | {"equal": self.is_equal}


@dataclasses.dataclass(slots=True)
class VerificationReport:
    """The results of all tables.

    :param position: where the reference ends in the source's log; of several, the last one
    :param named: whether a user has named these tables: then one that can never be compared counts, too
    """

    connector: str
    position: dict[str, Any]
    tables: list[TableVerification]
    seconds: float
    named: bool = False

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Parse the JSON form; the inverse of :meth:`to_document`."""
        tables = [TableVerification.from_document(table) for table in document["tables"]]
        return cls(document["connector"], document["position"], tables, document["seconds"], document["named"])

    @property
    def counted_tables(self) -> list[TableVerification]:
        """Tables that decide the result: unless a user has named them, those that can never be compared are not among them."""
        return [table for table in self.tables if self.named or not table.never]

    @property
    def is_equal(self) -> bool:
        return self.exit_status == 0

    @property
    def exit_status(self) -> int:
        """The exit status of the job: 0, 1 or 2.

        0: all that can be compared is equal. 1: something is not. 2: something could not be compared and nothing is known to differ, or nothing can be compared at all.
        """
        if any(not (table.is_equal or table.not_compared) for table in self.counted_tables):
            return 1
        return 0 if self.counted_tables and all(table.is_equal for table in self.counted_tables) else 2

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        tables = [table.to_document() for table in self.tables]
        return dataclasses.asdict(self) | {"equal": self.is_equal, "status": self.exit_status, "tables": tables}

    def format_text(self) -> str:
        """For people."""
        head = ("table", "source", "target", "missing", "surplus", "different", "equal")
        lines = [
            (t.display_name, *(f"{n:,}" for n in (t.source, t.target, t.missing, t.surplus, t.different)), _verdict(t))
            for t in self.tables
        ]
        widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
        text = [_line(line, widths) for line in (head, *lines)]
        for table in self.tables:
            text += [f"{table.display_name}: {note}" for note in _notes(table)]
        return "\n".join(text)


def _notes(table: TableVerification) -> list[str]:
    notes = [f"{table.problem} ({table.location})"] if table.problem else []
    if table.never:
        notes.append(f"not verified, because {table.not_compared}")
    elif table.not_compared:
        notes.append(f"not verified: {table.not_compared} ({table.location})")
    if table.aside:
        notes.append(f"ignored: {table.aside:,} rows that the table marks as ended")
    if table.event_columns:
        notes.append(f"not verified, columns about events: {', '.join(table.event_columns)}")
    if table.only_in_table:
        notes.append(f"not verified, only in the table: {', '.join(table.only_in_table)}")
    if table.unknown:
        lacking = ", ".join(f"{c} ({n:,} rows)" for c, n in table.unknown.items())
        notes.append(f"not verified, values missing in the reference: {lacking}")
    if table.rows_differ and table.batch is not None:
        version = f", version {table.version} of the table" if table.version else ""
        notes.append(f"verified as of batch {table.batch}{version}")
    if table.differing:
        notes.append("differs in " + ", ".join(f"{c} ({n:,} rows)" for c, n in table.differing.items()))
    notes += map(_shown, table.examples)
    if table.keys:
        notes.append(f"the keys of all rows that differ are in {table.keys}")
    return notes


def _shown(example: dict[str, Any]) -> str:
    key = ", ".join(f"{k}={v}" for k, v in example["key"].items()) or "a row without a key"
    note = f"{example['difference']}: {key}"
    for column in example.get("columns", ()):
        note += f"; {column}"
        if "source" in example:
            note += f" is {example['source'][column]!r} at the source, {example['target'][column]!r} in the table"
    return note


def _line(parts: tuple[str, ...], widths: list[int]) -> str:
    first, *rest = parts
    return "  ".join([first.ljust(widths[0]), *(p.rjust(w) for p, w in zip(rest, widths[1:], strict=True))])


def _verdict(table: TableVerification) -> str:
    if table.never:
        return "-"
    return "?" if table.not_compared else "yes" if table.is_equal else "NO"
