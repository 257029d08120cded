"""Summaries of all connectors, as ``airflow cdc connectors -o json`` prints them and the pages' API returns them.

Moments are in UTC. A value that is not known is ``None``, and never a number that looks like one.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from airflow_provider_cdc.core.error_texts import build_page_address, split_error_name


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AttentionLevel(IntEnum):
    """Levels of attention that a connector needs; the highest one comes first."""

    NONE = 0
    RESTING = 1
    LATE = 2
    FAILED = 3


@with_config(ConfigDict(extra="forbid"))
class FreshnessPoint(TypedDict):
    """The freshness of an interval.

    :param at: start of the interval, in seconds since 1970
    """

    at: int
    p95_s: float


class Freshness(_Model):
    """The time from a change's commit at the source until it was durable, in the last hour.

    :param where: ``tables``: in the tables of the slowest target; ``change log``: if nothing is applied
    :param commits: number of measured commits
    :param p50_s: median in seconds, interpolated within a bucket of the histogram
    :param worst_topic: topic of the slowest commit
    :param points: oldest first; intervals without a commit are omitted
    """

    where: Literal["tables", "change log"]
    commits: int
    p50_s: float
    p95_s: float
    worst_topic: str
    worst_s: float
    points: Annotated[list[FreshnessPoint], SkipValidation] = Field(default_factory=list)


@with_config(ConfigDict(extra="forbid"))
class EventRate(TypedDict):
    """The rate of captured events in an interval.

    :param at: start of the interval, in seconds since 1970
    :param lag_s: maximum lag behind the source; ``None`` if it was not measured
    """

    # an overview has thousands: a dictionary of numbers is nothing for Python's garbage collector to look at, a model is three things
    at: int
    events_per_s: float
    lag_s: float | None


class LagTrend(_Model):
    """The change of a lag in the last quarter of an hour.

    :param per_minute_s: seconds by which it grows in a minute; negative if it shrinks
    :param caught_up_in_s: estimated seconds until there is no lag; ``None`` unless it shrinks
    :param text: in words, behind *the lag*
    """

    direction: Literal["grows", "shrinks", "stays"]
    per_minute_s: float
    caught_up_in_s: float | None = None
    text: str


class SnapshotProgress(_Model):
    """The progress of a snapshot.

    :param text: a sentence for people
    :param part: completed fraction, between 0 and 1
    :param left_s: estimated seconds until the end, at the rate so far, rounded; ``None`` until enough is read for an estimate
    """

    text: str
    part: float | None = None
    left_s: float | None = None


class OldestTransaction(_Model):
    """The oldest open transaction at the source, as found by the last run that checked."""

    id: str
    age_s: float


class LastError(_Model):
    """An error in its parts, see :mod:`airflow_provider_cdc.core.errors`. Missing parts are empty.

    :param name: the error's name, if it has a page
    :param page: address of this page; it is built from today's configuration, since the error may be older
    :param at: time of the error; ``None`` if it is not known
    """

    message: str
    name: str = ""
    page: str = ""
    where: str = ""
    safe: str = ""
    repair: str = ""
    at: datetime | None = None

    @classmethod
    def from_text(cls, text: str, at: datetime | None = None) -> LastError:
        """Parse an error from its text.

        >>> LastError.from_text("PositionLost: The log is gone.\\n  Where:  binlog.3\\n  Repair: airflow cdc gap shop").repair
        'airflow cdc gap shop'
        """
        name, text = split_error_name(text)
        parts: dict[str, list[str]] = {"message": []}
        part = "message"
        for line in text.splitlines():
            head = line.strip().partition(":")
            if line.startswith("  ") and head[0] in ("Where", "Safe", "Repair", "Page"):
                part, line = head[0].lower(), head[2]
            parts.setdefault(part, []).append(line.strip())
        texts = {key: "\n".join(lines).strip() for key, lines in parts.items()}
        return cls(at=at, name=name, **texts | {"page": build_page_address(name)})


class AlertKind(StrEnum):
    """A kind of alert; each has a page of its name in ``docs/alerts``."""

    RUN_FAILED = "RunFailed"
    NO_RUN = "NoRun"
    BEHIND_SOURCE = "BehindSource"
    LOG_ENDS = "LogEnds"
    TABLES_LEFT_BEHIND = "TablesLeftBehind"
    APPLY_FAILED = "ApplyFailed"
    APPLY_SILENT = "ApplySilent"
    TABLE_STALE = "TableStale"
    EVENT_SET_ASIDE = "EventSetAside"


class FailedTask(_Model):
    """The try of a task that failed.

    :param text: the task, the run and the try, for people
    :param log_path: of its log, within Airflow's UI
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    text: str
    log_path: str


class ConnectorAlert(_Model):
    """A condition of a connector that is not as it should be.

    :param kind: ``None`` for one that pages alone show, which has no page in the documentation
    :param sentence: the condition, without the name of the connector and without a full stop
    :param target: name of the target that it is about; empty if it is about the capture
    :param cause: the error that has led to it; ``None`` if there is none, or if it is not known
    :param safe: what is not lost; empty if only the cause has it
    :param task: the try that failed; ``None`` if it is not known
    :param check: the command that shows more
    :param page: address of the page of the error, if it has one, or of the alert; empty without a page
    """

    kind: AlertKind | None
    connector: str
    sentence: str
    target: str = ""
    cause: LastError | None = None
    safe: str = ""
    task: FailedTask | None = None
    check: str
    page: str


class NextRun(_Model):
    """The next run of the DAG that captures the connector.

    :param at: ``None`` if only an event or a user starts the DAG
    :param paused: the DAG is paused in Airflow, so it does not run
    :param gone: no file defines the DAG any more, so it does not run
    """

    at: datetime | None = None
    paused: bool = False
    gone: bool = False


class ConnectorSummary(_Model):
    """A connector.

    :param position: position of its offset in the source's log
    :param state: a value of :class:`airflow_provider_cdc.core.lifecycle.connector_status.ConnectorState`, since ``state_since``
    :param phase: its current activity, in words
    :param alerts: the conditions that are not as they should be
    :param lag_s: seconds behind its source when it read the last event, at ``lag_at``; ``None``: not known, for example after a failed run
    :param lag_trend: how the lag changes; ``None`` if it is small, or not measured for long enough
    :param lag_bytes: bytes of the source's log between its position and the end; ``None`` if the source does not report them
    :param log_gone_at: estimated time at which the source removes the log at its position; ``None``: not known, or never
    :param events_per_s: rates of the last hour, oldest first; intervals without an event are omitted
    :param error: the error of the last run, if it failed
    :param dag: the DAG that captures the connector
    :param next_run: ``None`` if Airflow was not queried
    :param tags: tags of that DAG; empty if Airflow was not queried
    """

    connector: str
    source: str | None
    state: str
    state_since: datetime | None
    phase: str
    trouble: AttentionLevel
    alerts: list[ConnectorAlert] = Field(default_factory=list)
    position: dict[str, Any] | None
    seq: int
    batch: int
    pending_tables: list[str]
    moved_at: datetime | None
    captured_by: str | None
    lease_s: float
    changelog: str | None
    freshness: Freshness | None = None
    lag_s: float | None = None
    lag_at: datetime | None = None
    lag_trend: LagTrend | None = None
    lag_bytes: int | None = None
    log_gone_at: datetime | None = None
    events_per_s: Annotated[list[EventRate], SkipValidation] = Field(default_factory=list)
    snapshot: SnapshotProgress | None = None
    oldest_transaction: OldestTransaction | None = None
    error: LastError | None = None
    dag: str | None = None
    next_run: NextRun | None = None
    tags: list[str] = Field(default_factory=list)


__all__ = [
    "AlertKind",
    "AttentionLevel",
    "ConnectorAlert",
    "ConnectorSummary",
    "EventRate",
    "FailedTask",
    "Freshness",
    "FreshnessPoint",
    "LagTrend",
    "LastError",
    "NextRun",
    "OldestTransaction",
    "SnapshotProgress",
]
