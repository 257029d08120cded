"""Measurements since the last report, as plain numbers.

:class:`airflow_provider_cdc.core.reporting.metrics_monitor.MetricsMonitor` gives them to its sinks.

A name is a context and a documented name, ``streaming.MilliSecondsBehindSource``. Lists and maps of the documents are no numbers, and are left
out here; so are texts, but for :data:`TEXTS`. Of ``RowsScanned`` each table is a separate series.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

BOUNDS_S = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 21600, 86400)
"""Upper bounds of the classes of a histogram, in seconds; one more class is above them."""

_COUNTED = frozenset({
    "ErrorCount", "FetchingQueryCount", "RowsScanned", "RowsWithLostLobs", "RowsWithReselectedLobs", "ScnFreezeCount",
    "TotalCapturedDmlCount", "TotalParseTimeInMilliseconds", "TotalProcessedRows", "TotalProcessingTimeInMilliseconds",
    "TotalResultSetNextTimeInMilliseconds", "TotalMiningSessionStartTimeInMilliseconds", "UnparsableDdlCount", "WarningCount",
})  # fmt: skip


TEXTS = frozenset({"streaming.OldestTransactionId", "apply.TargetName"})
"""Texts that the overview of all connectors shows beside numbers: it reads nothing else of a run's metrics."""


def is_counter(name: str) -> bool:
    """Check whether a metric of this documented name only grows within a run, so that runs are added up.

    Others have a value at a time.

    >>> is_counter("TotalNumberOfEventsSeen"), is_counter("MilliSecondsBehindSource")
    (True, False)
    """
    return name in _COUNTED or (name.startswith(("TotalNumberOf", "NumberOf")) and name != "NumberOfActiveTransactions")


@dataclass(slots=True)
class Histogram:
    """Number of values of each class.

    :ivar classes: of :data:`BOUNDS_S`, and one above them; not cumulative
    """

    classes: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total: float = 0.0

    def add_value(self, value: float) -> None:
        """:param value: in seconds; one that two clocks make negative counts as 0"""
        value = max(value, 0.0)
        self.classes[sum(value > bound for bound in BOUNDS_S)] += 1
        self.total += value

    def estimate_quantile(self, part: float) -> float | None:
        """About the value, in seconds, below which this part of all values is: within a class they count as evenly spread; ``None`` without values.

        >>> Histogram([0, 0, 4] + [0] * 12, 6.0).estimate_quantile(0.5)
        1.5
        """
        rank, below = part * sum(self.classes), 0
        if not rank:
            return None
        for lower, upper, number in zip((0.0, *BOUNDS_S), (*BOUNDS_S, BOUNDS_S[-1]), self.classes, strict=True):
            if number and below + number >= rank:
                return round(lower + (upper - lower) * (rank - below) / number, 3)
            below += number
        return float(BOUNDS_S[-1])

    @classmethod
    def from_documents(cls, documents: Sequence[dict[str, Any]]) -> Histogram:
        """All values of several ones."""
        if not documents:
            return cls()
        classes = zip(*(document["classes"] for document in documents), strict=True)
        return cls([sum(counts) for counts in classes], sum(float(counts["total"]) for counts in documents))

    def to_document(self) -> dict[str, Any]:
        return {"classes": list(self.classes), "total": round(self.total, 3)}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Histogram:
        return cls(list(document["classes"]), float(document["total"]))


@dataclass(slots=True)
class MetricSeries:
    """The metrics of a connector, or of one of its topics.

    :ivar gauges: name → value now
    :ivar counters: name → increment
    :ivar observed: name → values that were observed, in seconds
    :ivar texts: name → text now, of :data:`TEXTS`
    :ivar unknown: names of gauges that have no value any more
    """

    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    observed: dict[str, list[float]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class MetricSamples:
    """Measurements since the last report.

    :ivar producer: ``capture``, or ``apply`` and which target: counters and gauges of two producers are never the same
    :ivar tags: besides connector and topic
    :ivar series: topic → its metrics; of the connector as a whole, the topic is empty
    :ivar ended: whether the run has ended
    """

    connector: str
    producer: str
    tags: dict[str, str]
    at: datetime
    series: dict[str, MetricSeries]
    ended: bool


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """Stored form of a series: counters and histograms of all runs together.

    :ivar topic: empty for the connector as a whole
    """

    connector: str
    producer: str
    tags: dict[str, str]
    topic: str
    at: datetime
    gauges: dict[str, float]
    counters: dict[str, float]
    histograms: dict[str, Histogram]
    texts: dict[str, str] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "connector": self.connector,
            "producer": self.producer,
            "tags": dict(self.tags),
            "topic": self.topic,
            "at": self.at.isoformat(timespec="milliseconds"),
            "gauges": dict(self.gauges),
            "counters": dict(self.counters),
            "histograms": {name: histogram.to_document() for name, histogram in self.histograms.items()},
            "texts": dict(self.texts),
        }


def merge_series(before: dict[str, Any], series: MetricSeries) -> dict[str, Any]:
    """Return the stored form of a series after more was measured.

    It is a document of ``gauges``, ``counters``, ``histograms`` and ``texts``.

    :param before: such a document; empty for a new series
    """
    counters = dict(before.get("counters", {}))
    for name, more in series.counters.items():
        counters[name] = counters.get(name, 0) + more
    histograms = {name: Histogram.from_document(histogram) for name, histogram in before.get("histograms", {}).items()}
    for name, values in series.observed.items():
        _observe(histograms.setdefault(name, Histogram()), values)
    gauges = {**before.get("gauges", {}), **series.gauges}
    return {
        "gauges": {name: value for name, value in gauges.items() if name not in series.unknown},
        "counters": counters,
        "histograms": {name: histogram.to_document() for name, histogram in histograms.items()},
        "texts": {**before.get("texts", {}), **series.texts},
    }


def _observe(histogram: Histogram, values: Sequence[float]) -> None:
    for value in values:
        histogram.add_value(value)
