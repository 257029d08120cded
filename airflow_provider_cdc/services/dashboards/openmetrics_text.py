"""Metrics of connectors as OpenMetrics text, which Prometheus and most others read.

A name is ``cdc``, the context and the documented name, ``cdc_streaming_MilliSecondsBehindSource``. A value that only grows is a counter, which ends with
``_total``; how fresh tables are is a histogram in seconds. Labels are ``connector``, of one table ``topic``, and of an apply ``target`` and ``place``.
Values are the latest, whenever that was: ``cdc_run_LastRunEndedAtInSeconds`` says of when those of a capture are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.model.metric_samples import BOUNDS_S, Histogram, StoredSeries

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def format_openmetrics(series: Iterable[StoredSeries]) -> str:
    """Format the text.

    >>> print(format_openmetrics(store.metrics.of("shop")))
    # HELP cdc_run_LastRunFailed run.LastRunFailed
    # TYPE cdc_run_LastRunFailed gauge
    cdc_run_LastRunFailed{connector="shop"} 0.0
    # EOF
    """
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricFamilies(series))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


class _MetricFamilies:
    """All samples of a name together, as the format has them."""

    def __init__(self, series: Iterable[StoredSeries]) -> None:
        self._metrics: dict[str, Metric] = {}
        for stored in series:
            labels = {"connector": stored.connector, **stored.tags} | ({"topic": stored.topic} if stored.topic else {})
            for name, value in stored.gauges.items():
                self._add(name, "gauge", "", labels, value)
            for name, value in stored.counters.items():
                self._add(name, "counter", "_total", labels, value)
            for name, histogram in stored.histograms.items():
                self._add_histogram(name, labels, histogram)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        yield from self._metrics.values()

    def _add(self, name: str, kind: str, suffix: str, labels: dict[str, str], value: float) -> None:
        from prometheus_client.core import Metric

        full = re.sub(r"[^a-zA-Z0-9_]", "_", f"cdc_{name}")
        family = self._metrics.setdefault(full, Metric(full, name, kind))
        family.add_sample(f"{full}{suffix}", labels, value)

    def _add_histogram(self, name: str, labels: dict[str, str], histogram: Histogram) -> None:
        bounds = [*(str(float(bound)) for bound in BOUNDS_S), "+Inf"]
        up_to = list(accumulate(histogram.classes))
        for bound, number in zip(bounds, up_to, strict=True):
            self._add(name, "histogram", "_bucket", {**labels, "le": bound}, number)
        self._add(name, "histogram", "_count", labels, up_to[-1])
        self._add(name, "histogram", "_sum", labels, histogram.total)
