"""Gives the measurements of runs to Airflow's own metrics: StatsD, Datadog or OpenTelemetry, whichever Airflow is configured for.

Names are ``cdc.`` and the documented ones, ``cdc.streaming.MilliSecondsBehindSource``; Airflow puts its prefix before them.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_cdc.core.model.metric_samples import MetricSamples
from airflow_provider_cdc.hooks.airflow_compat import load_stats

PREFIX = "cdc"


def to_airflow(samples: MetricSamples) -> None:
    """Emit everything: values now as gauges, increments as counts, freshness as timings.

    Tags are ``connector``, those of the producer, and ``topic`` where it is that of one table.
    """
    stats = load_stats()
    for topic, series in samples.series.items():
        tags = {"connector": samples.connector, **samples.tags} | ({"topic": topic} if topic else {})
        for name, value in series.gauges.items():
            stats.gauge(f"{PREFIX}.{name}", value, tags=tags)
        for name, more in series.counters.items():
            if more > 0:
                stats.incr(f"{PREFIX}.{name}", round(more), tags=tags)
        for name, values in series.observed.items():
            for seconds in values:
                stats.timing(f"{PREFIX}.{name}", timedelta(seconds=max(seconds, 0)), tags=tags)
