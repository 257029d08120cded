"""All connectors at a look: what ``airflow cdc connectors -o json`` prints and the pages' API answers.

Moments are in UTC. What is not known is ``None``, and never a number that looks like one.
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, with_config
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AttentionLevel(IntEnum):
    """The need of a connector to be looked at; the largest comes first."""

    NONE = 0
    RESTING = 1
    LATE = 2
    FAILED = 3


class Freshness(_Model):
    """The time from a change's commit at the source until it was durable, in the last hour.

    :param where: in the tables of a target, the worst one if there are several; in the change log where nothing is applied
    :param commits: how many commits it is about
    :param p50_s: a half of them was faster, in seconds; a class of the histogram counts as evenly spread
    :param worst_topic: of the slowest one
    """

    where: Literal["tables", "change log"]
    commits: int
    p50_s: float
    p95_s: float
    worst_topic: str
    worst_s: float


@with_config(ConfigDict(extra="forbid"))
class EventRate(TypedDict):
    """Events that were captured within five minutes.

    :param at: when they began, in seconds since 1970
    """

    # an overview has thousands: a dictionary of numbers is nothing for Python's garbage collector to look at, a model is three things
    at: int
    events_per_s: float


class SnapshotProgress(_Model):
    """The progress of a snapshot.

    :param text: for people
    :param part: between 0 and 1
    :param left_s: seconds until its end, if it continues as so far
    """

    text: str
    part: float | None = None
    left_s: float | None = None


class OldestTransaction(_Model):
    """The oldest transaction that is open at the source, as the last run that looked has found it."""

    id: str
    age_s: float


class LastError(_Model):
    """An error in its parts, see :mod:`airflow_provider_cdc.core.errors`; parts that it does not have are empty.

    :param at: when it happened; ``None`` if that is not known
    """

    what: str
    where: str = ""
    safe: str = ""
    repair: str = ""
    at: datetime | None = None

    @classmethod
    def from_text(cls, text: str, at: datetime | None = None) -> LastError:
        """Parse an error from its text.

        >>> LastError.from_text("The log is gone.\\n  Where:  binlog.3\\n  Repair: airflow cdc gap shop").repair
        'airflow cdc gap shop'
        """
        parts: dict[str, list[str]] = {"what": []}
        name = "what"
        for line in text.splitlines():
            head = line.strip().partition(":")
            if line.startswith("  ") and head[0] in ("Where", "Safe", "Repair"):
                name, line = head[0].lower(), head[2]
            parts.setdefault(name, []).append(line.strip())
        return cls(at=at, **{key: "\n".join(lines).strip() for key, lines in parts.items()})


class NextRun(_Model):
    """The next run of the DAG that captures.

    :param at: ``None``: nothing but an event or a person starts it
    :param paused: it is paused in Airflow: it does not run
    :param gone: no file has it any more: it does not run either
    """

    at: datetime | None = None
    paused: bool = False
    gone: bool = False


class ConnectorSummary(_Model):
    """A connector.

    :param position: where its offset stands in the source's log
    :param state: a word of :class:`airflow_provider_cdc.core.lifecycle.connector_status.ConnectorState`, since ``since``
    :param phase: what it is doing, in words
    :param problems: a sentence for each thing that is not as it should be
    :param lag_s: how far behind its source it was when it read the last event, at ``lag_at``; ``None``: not known, as after a run that has failed
    :param lag_bytes: of the source's log, between its position and the end; ``None`` where the source does not say
    :param log_gone_at: when the source removes the log at its position, if it continues as it does; ``None``: not known, or never
    :param events_per_s: of the last hour, oldest first; pieces without an event are left out
    :param error: of the last run, if it has failed
    :param dag: the DAG that captures it
    :param next_run: ``None`` where Airflow was not asked
    :param tags: of that DAG; likewise
    """

    connector: str
    source: str | None
    state: str
    since: datetime | None
    phase: str
    trouble: AttentionLevel
    problems: list[str] = Field(default_factory=list)
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
    "AttentionLevel",
    "ConnectorSummary",
    "EventRate",
    "Freshness",
    "LastError",
    "NextRun",
    "OldestTransaction",
    "SnapshotProgress",
]
