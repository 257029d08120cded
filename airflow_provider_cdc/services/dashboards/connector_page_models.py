"""Parts of one connector's page: its tables and its properties."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TableTarget(_Model):
    """The applied changes of a table at one target, over all runs.

    :param place: a short name of the target's location that is always the same
    :param freshness_p50_s: how long after its commit at the source the newest event of an apply was in the table, in seconds
    :param at: when an apply has reported it last
    """

    target: str
    place: str
    events: int
    freshness_p50_s: float | None
    freshness_p95_s: float | None
    at: datetime


class ComparisonSummary(_Model):
    """The result of the last comparison of one table of a target with the source.

    :param place: as of :class:`TableTarget`
    :param at: when that was
    """

    target: str
    place: str
    equal: bool
    missing: int
    surplus: int
    different: int
    at: datetime


class TableSummary(_Model):
    """A table.

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
    targets: list[TableTarget] = Field(default_factory=list)
    comparisons: list[ComparisonSummary] = Field(default_factory=list)


class PropertySummary(_Model):
    """A property.

    :param what: it does
    :param by: who has set it
    :param value: ``None`` if it is not shown, as it comes from the connection or is secret, or has none
    """

    name: str
    what: str
    by: Literal["definition", "connection", "default"]
    value: Any
    secret: bool


__all__ = ["ComparisonSummary", "PropertySummary", "TableSummary", "TableTarget"]
