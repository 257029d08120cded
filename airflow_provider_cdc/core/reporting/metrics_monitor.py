"""The one place that capture, snapshot and apply report to. It gives the metrics to sinks: the state tables, Airflow's metrics.

    >>> monitor = MetricsMonitor("shop", "capture", [store.measured])
    >>> monitor.set_gauge("run.LastRunFailed", 0)
    >>> monitor.flush(ended=True)

A sink that fails is named in the log and costs the run nothing: its result matters more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from airflow_provider_cdc.core.model.metric_samples import TEXTS, MetricSamples, MetricSeries, is_counter
from airflow_provider_cdc.core.model.run_metrics import Value

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Interval at which a run that continues reports its measurements."""
Sink = Callable[[MetricSamples], None]
"""Takes the samples since the last call; may raise."""


class MetricsMonitor:
    """Collects the samples of one connector by one producer. For one thread.

    :param producer: ``capture``, or ``apply`` and which target
    :param tags: besides connector and topic
    """

    def __init__(
        self, connector: str, producer: str, sinks: Sequence[Sink] = (), tags: Mapping[str, str] | None = None
    ) -> None:
        self._connector, self._producer, self._sinks, self._tags = connector, producer, tuple(sinks), dict(tags or {})
        self._series: dict[str, MetricSeries] = {}
        self._totals: dict[tuple[str, str], float] = {}
        self._flushed = time.monotonic()

    @property
    def is_due(self) -> bool:
        """True if a run that continues should report its samples."""
        return bool(self._sinks) and time.monotonic() - self._flushed >= EVERY_S

    def set_gauge(self, name: str, value: float, topic: str = "") -> None:
        """Record a value now; a negative one means that it is not known any more."""
        series = self._of(topic)
        if value < 0:
            series.gauges.pop(name, None)
            series.unknown.add(name)
            return
        series.unknown.discard(name)
        series.gauges[name] = value

    def add_count(self, name: str, more: float, topic: str = "") -> None:
        """Something was added."""
        counters = self._of(topic).counters
        counters[name] = counters.get(name, 0) + more

    def set_total(self, name: str, value: float, topic: str = "") -> None:
        """So much it is by now since the run has begun."""
        before = self._totals.get((name, topic), 0)
        self._totals[name, topic] = value
        self.add_count(name, value - before if value >= before else value, topic)

    def observe_value(self, name: str, seconds: float, topic: str = "") -> None:
        """Record a value of a histogram."""
        self._of(topic).observed.setdefault(name, []).append(seconds)

    def start_attempt(self) -> None:
        """Another attempt begins: its counts begin at 0."""
        self._totals.clear()

    def record_metrics(self, metrics: Mapping[str, Mapping[str, Value]], topics: Mapping[str, str]) -> None:
        """Numbers, and a few texts, of a document of :meth:`airflow_provider_cdc.core.model.run_metrics.RunMetrics.to_document`. A negative one means that nothing is known.

        :param topics: table → its topic; tables without one are left out
        """
        for context, values in metrics.items():
            for name, value in values.items():
                if name == "RowsScanned" and isinstance(value, dict):
                    for table, rows in value.items():
                        if table in topics:
                            self.set_total(f"{context}.{name}", float(rows), topics[table])
                elif isinstance(value, bool | int | float) and (value >= 0 or not is_counter(name)):
                    report = self.set_total if is_counter(name) else self.set_gauge
                    report(f"{context}.{name}", float(value))
                elif isinstance(value, str) and f"{context}.{name}" in TEXTS:
                    self.set_text(f"{context}.{name}", value)

    def set_text(self, name: str, text: str) -> None:
        """Set a text of the connector as a whole.

        :param name: of :data:`~airflow_provider_cdc.core.model.metric_samples.TEXTS`
        """
        self._of("").texts[name] = text

    def flush(self, *, ended: bool = False) -> None:
        """Give everything to the sinks.

        :param ended: the run has ended
        """
        self._flushed = time.monotonic()
        series, self._series = self._series, {}
        if not series:
            return
        samples = MetricSamples(self._connector, self._producer, self._tags, datetime.now(UTC), series, ended)
        for sink in self._sinks:
            try:
                sink(samples)
            except Exception as e:  # the result of the run itself matters more
                log.warning("Metrics of connector %s could not be stored: %s", self._connector, e)

    def _of(self, topic: str) -> MetricSeries:
        return self._series.setdefault(topic, MetricSeries())


def run_ended(monitor: MetricsMonitor, context: str, *, failed: bool, seconds: float) -> None:
    """Record the metrics that every run has when it ends, and report them at once.

    :param context: ``run`` of captures, ``apply`` of applies
    """
    monitor.add_count(f"{context}.TotalNumberOfRuns", 1)
    monitor.add_count(f"{context}.TotalNumberOfFailedRuns", int(failed))
    monitor.set_gauge(f"{context}.LastRunFailed", int(failed))
    monitor.set_gauge(f"{context}.LastRunDurationInSeconds", round(seconds, 3))
    monitor.set_gauge(f"{context}.LastRunEndedAtInSeconds", round(time.time(), 3))
    monitor.flush(ended=True)


__all__ = ["EVERY_S", "MetricsMonitor", "Sink", "run_ended"]
