"""Positions (places in a source's log) and offsets (what a connector has durably finished).

A position is the source's own affair: core stores it as JSON, hands it back, and asks one question of it, whether it lies
at or after another one. ``seq`` orders everything downstream, so nothing else ever compares log coordinates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field


@runtime_checkable
class Position(Protocol):
    """A place between two transactions of a source's log; immutable.

    ``str()`` gives the form people see in errors and in the UI, in the database's own terms.
    """

    def to_json(self) -> dict[str, Any]:
        """A JSON object from which ``Source.parse_position`` builds an equal position."""

    def reached(self, other: Self) -> bool:
        """Whether a reader that stands here has everything that a reader at ``other`` has."""


class SnapshotState(BaseModel):
    """How far reading whole tables has come.

    Each table is read at one position, but not all at the same one: an interrupted snapshot goes on with the tables that
    are missing, at a new position, and the log closes the gap for those read before.

    :param pending: table (``namespace.name``) still to be read → whether the target may hold rows of it already
    :param tables: table → position at which it was read; only those that streaming has not passed yet
    :param requests: pending table → number of the signal that asked for it; those of no signal are missing
    :param selects: pending table → statement that gives its rows in place of all of them
    :param streamed: pending tables whose events are captured until they are read, as they were before; those of other pending
        tables are part of what is read
    :param due: tables of requests that are to be read whatever becomes of the request, as a statement has rewritten their rows
    """

    model_config = ConfigDict(extra="forbid")

    pending: dict[str, bool] = Field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = Field(default_factory=dict)
    requests: dict[str, int] = Field(default_factory=dict)
    selects: dict[str, str] = Field(default_factory=dict)
    streamed: list[str] = Field(default_factory=list)
    due: list[str] = Field(default_factory=list)

    @property
    def waiting(self) -> set[str]:
        """Pending tables whose events are left out until they are read."""
        return self.pending.keys() - set(self.streamed)

    def without(self, names: Collection[str]) -> SnapshotState:
        """The same, but some tables are not pending any more."""
        return self.model_copy(
            update={
                "pending": {name: again for name, again in self.pending.items() if name not in names},
                "requests": {name: number for name, number in self.requests.items() if name not in names},
                "selects": {name: sql for name, sql in self.selects.items() if name not in names},
                "streamed": [name for name in self.streamed if name not in names],
                "due": [name for name in self.due if name not in names],
            }
        )

    def renamed(self, names: Mapping[str, str]) -> SnapshotState:
        """The same under new names of tables. Where a condition chose the rows, all are read: under the new name there are none.

        :param names: old name → new name
        """
        kept = self.without({*names, *names.values()})
        moved = {new: old for old, new in names.items() if old in self.pending}
        update: dict[str, Any] = {
            "pending": kept.pending | dict.fromkeys(moved, True),
            "requests": kept.requests | {new: self.requests[old] for new, old in moved.items() if old in self.requests},
            "streamed": sorted({*kept.streamed, *(new for new, old in moved.items() if old in self.streamed)}),
            "due": sorted({*kept.due, *(new for new, old in moved.items() if old in self.due)}),
        }
        return kept.model_copy(update=update)


class Scan(BaseModel):
    """A table that an incremental snapshot reads, and how far it has come.

    :param table: ``namespace.name``
    :param request: number of the signal that asked for it
    :param signal: that signal's id, as the sender called it
    :param tables: how many tables that signal asked for
    :param condition: SQL condition that rows have to fulfil
    :param surrogate: column that chunks are cut by in place of the key
    :param order: columns that the rows are ordered by; empty before the first chunk
    :param after: key of the last row that is captured
    :param upto: key of the last row there was at the beginning
    :param rows: rows read so far
    :param replace: the table is emptied in the target before its first row is read, so that rows which are gone disappear
    :param chunk_rows: rows that are read at a time; ``None`` = as the connector has it
    """

    model_config = ConfigDict(extra="forbid")

    table: str
    request: int
    signal: str = ""
    tables: int = 0
    condition: str | None = None
    surrogate: str | None = None
    order: list[str] = Field(default_factory=list)
    after: list[Any] | None = None
    upto: list[Any] | None = None
    rows: int = 0
    replace: bool = False
    chunk_rows: int | None = None


class IncrementalState(BaseModel):
    """The incremental snapshots that are asked for.

    :param scans: tables in the order in which they are read; the first one is being read
    :param paused: reading waits for ``resume-snapshot``
    :param failed: number of a signal that still has tables to read → what went wrong with others of it
    """

    model_config = ConfigDict(extra="forbid")

    scans: list[Scan] = Field(default_factory=list)
    paused: bool = False
    failed: dict[str, str] = Field(default_factory=dict)


class Offset(BaseModel):
    """What a connector has durably finished. Written by compare-and-set together with each batch.

    :param position: place in the log to continue from; ``None`` before the first snapshot or stream
    :param seq: last sequence number that was given out
    :param batch: number of the last committed batch; 0 before the first
    :param snapshot: tables that are not yet, or not yet all, at ``position``
    :param tables_filter: the include and exclude lists in force, to notice that tables were added
    :param incremental: tables that are read in chunks beside the stream
    :param signal: number of the last signal that was taken
    """

    model_config = ConfigDict(extra="forbid")

    position: dict[str, Any] | None = None
    seq: int = 0
    batch: int = 0
    snapshot: SnapshotState = Field(default_factory=SnapshotState)
    tables_filter: str = ""
    incremental: IncrementalState = Field(default_factory=IncrementalState)
    signal: int = 0

    def document(self) -> dict[str, Any]:
        """The JSON form, as stored and as written into manifests."""
        return self.model_dump(mode="json", exclude_defaults=True)
