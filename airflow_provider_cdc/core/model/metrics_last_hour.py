"""Metrics of a connector's last hour, piece by piece of five minutes: how fresh it was, and how many events there were.

Totals over all runs do not show the present state, and reading them for each topic takes longer the more tables there are. These pieces are of the
connector as a whole, so that one row is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_cdc.core.model.metric_samples import Histogram, MetricSeries

PIECE_S = 300
INTERVAL_COUNT = 13
"""Pieces: those of an hour, and the one that has only begun."""
_EVENTS = frozenset({"topic.TotalNumberOfEventsCaptured", "apply.TotalNumberOfEventsApplied"})
_FRESHNESS = frozenset({"topic.CaptureFreshnessInSeconds", "apply.FreshnessInSeconds"})
_LAG_MS = "streaming.MilliSecondsBehindSource"
_CPU_S = "run.TotalProcessorTimeInSeconds"


@dataclass(slots=True)
class MetricsInterval:
    """Five minutes, or the length of the pieces that it is one of.

    :param at: when they began, in seconds since 1970
    :param freshness: how long after its commit at the source the newest event of each commit was durable, or in its table
    :param worst: the topic with the largest of these, and how many seconds it was
    :param lag_s: the most that it was behind its source; ``None`` if that was not measured
    :param cpu_s: processor time of the process that captured; ``None`` if that was not measured
    """

    at: int
    events: int = 0
    freshness: Histogram = field(default_factory=Histogram)
    worst: tuple[str, float] | None = None
    lag_s: float | None = None
    cpu_s: float | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        worst = None if self.worst is None else list(self.worst)
        document = {"at": self.at, "events": self.events, "freshness": self.freshness.to_document(), "worst": worst}
        more = {"lag_s": self.lag_s, "cpu_s": self.cpu_s}
        return document | {name: round(value, 3) for name, value in more.items() if value is not None}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> MetricsInterval:
        worst = document["worst"]
        return cls(
            document["at"],
            document["events"],
            Histogram.from_document(document["freshness"]),
            None if worst is None else (str(worst[0]), float(worst[1])),
            document.get("lag_s"),
            document.get("cpu_s"),
        )

    def add_samples(self, series: Mapping[str, MetricSeries]) -> None:
        """Add the samples of some series.

        :param series: topic → its metrics
        """
        whole = series.get("", MetricSeries())
        if (lag_ms := whole.gauges.get(_LAG_MS)) is not None:
            self.lag_s = max(self.lag_s or 0.0, lag_ms / 1000)
        if (cpu_s := whole.counters.get(_CPU_S)) is not None:
            self.cpu_s = (self.cpu_s or 0.0) + cpu_s
        for topic, samples in series.items():
            self.events += int(sum(more for name, more in samples.counters.items() if name in _EVENTS))
            for seconds in (s for name in _FRESHNESS & samples.observed.keys() for s in samples.observed[name]):
                self.freshness.add_value(seconds)
                if self.worst is None or seconds > self.worst[1]:
                    self.worst = (topic, round(seconds, 3))


def append_samples(
    before: Sequence[Mapping[str, Any]], series: Mapping[str, MetricSeries], now_s: float
) -> list[dict[str, Any]]:
    """Return the pieces after more was measured, oldest first, as documents.

    :param before: as this returned them the last time
    :param now_s: seconds since 1970
    """
    at = int(now_s // PIECE_S) * PIECE_S
    pieces = [MetricsInterval.from_document(piece) for piece in before if piece["at"] > at - INTERVAL_COUNT * PIECE_S]
    if not pieces or pieces[-1].at < at:
        pieces.append(MetricsInterval(at))
    pieces[-1].add_samples(series)
    return [piece.to_document() for piece in pieces]


@dataclass(frozen=True, slots=True)
class LastHourMetrics:
    """Summary of an hour from its pieces.

    :param events: when each piece began, its events, and the most seconds that it was behind its source
    :param fresh: when each piece began, and the seconds within which 95 % of its commits were there; pieces without a commit are missing
    :param worst: the topic with the largest freshness, and how many seconds it was
    """

    events: list[tuple[int, int, float | None]]
    fresh: list[tuple[int, float]]
    freshness: Histogram
    worst: tuple[str, float] | None

    @classmethod
    def from_intervals(cls, pieces: Sequence[Mapping[str, Any]], now_s: float) -> LastHourMetrics:
        """Summarize the pieces that are not older than an hour: none comes for a connector at which nothing happens.

        No object is made of each: there are thousands when all connectors are looked at.

        :param pieces: as :func:`append_samples` gives them
        """
        lately = [piece for piece in pieces if piece["at"] > now_s - 3600 - PIECE_S]
        worst = max(
            (piece["worst"] for piece in lately if piece["worst"]), key=lambda slowest: slowest[1], default=None
        )
        return cls(
            [(piece["at"], piece["events"], piece.get("lag_s")) for piece in lately],
            [
                (piece["at"], p95_s)
                for piece in lately
                if piece["worst"]
                and (p95_s := Histogram.from_document(piece["freshness"]).estimate_quantile(0.95)) is not None
            ],
            Histogram.from_documents([piece["freshness"] for piece in lately]),
            None if worst is None else (str(worst[0]), float(worst[1])),
        )


__all__ = ["INTERVAL_COUNT", "PIECE_S", "LastHourMetrics", "MetricsInterval", "append_samples"]
