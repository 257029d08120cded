"""Parts of one connector's page: its tables and its properties."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TableTarget(_Model):
    """The applied changes of a table at one target, over all runs.

    :param place: a short, stable name of the target's location
    :param freshness_p50_s: median time from the commit at the source until the newest event of an apply was in the table, in seconds
    :param at: time of the last report of an apply
    """

    target: str
    place: str
    events: int
    freshness_p50_s: float | None
    freshness_p95_s: float | None
    at: datetime


class ComparisonSummary(_Model):
    """The result of the last verification of one table of a target against the source.

    :param place: as in :class:`TableTarget`
    :param at: time of the verification
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
    :param version: its schema version
    :param key: its key columns; empty if it has no key
    :param events: captured events, over all runs; 0 if none was counted
    :param rows_read: rows read by snapshots, over all runs
    :param pending: its snapshot as a whole is still pending
    :param chunk_rows: rows read by its active incremental snapshot; ``None`` if none is active
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

    :param description: its description
    :param by: origin of its value
    :param value: ``None`` if it has no value, or if the value is secret or comes from the connection
    """

    name: str
    description: str
    by: Literal["definition", "connection", "default"]
    value: Any
    secret: bool


__all__ = ["ComparisonSummary", "PropertySummary", "TableSummary", "TableTarget"]
