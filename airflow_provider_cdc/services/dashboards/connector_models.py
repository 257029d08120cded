"""Parts of one connector's page: its tables and its properties."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetOfTable(_Model):
    """What was applied of a table to one target, over all runs.

    :param place: a short name of the target's location that is always the same
    :param freshness_p50_s: how long after its commit at the source the newest event of an apply was in the table, in seconds
    :param at: when an apply has told of it last
    """

    target: str
    place: str
    events: int
    freshness_p50_s: float | None
    freshness_p95_s: float | None
    at: datetime


class ComparisonOfTable(_Model):
    """How one table of a target compared with the source the last time.

    :param place: as of :class:`TargetOfTable`
    :param at: when that was
    """

    target: str
    place: str
    equal: bool
    missing: int
    surplus: int
    different: int
    at: datetime


class TableLine(_Model):
    """One table.

    :param topic: ``None`` if it is not known
    :param version: of its schema
    :param key: its columns, empty if it has none
    :param events: that were captured, over all runs; 0 if none was counted
    :param rows_read: by snapshots, over all runs
    :param pending: it is still to be read whole
    :param chunk_rows: rows that an incremental snapshot of it has read; ``None`` if none is under way
    """

    table: str
    topic: str | None
    version: int
    columns: int
    key: list[str]
    events: int
    rows_read: int
    pending: bool
    chunk_rows: int | None
    targets: list[TargetOfTable] = Field(default_factory=list)
    comparisons: list[ComparisonOfTable] = Field(default_factory=list)


class PropertyLine(_Model):
    """One property.

    :param what: it does
    :param by: who has set it
    :param value: ``None`` if it is not shown, as it comes from the connection or is secret, or has none
    """

    name: str
    what: str
    by: Literal["definition", "connection", "default"]
    value: Any
    secret: bool


__all__ = ["ComparisonOfTable", "PropertyLine", "TableLine", "TargetOfTable"]
