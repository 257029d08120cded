"""Stores the metrics of connectors: the latest values, totals over all runs, and a short history."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa

from airflow_provider_cdc.core.model.metric_rollups import (
    Rollups,
    ShortPieces,
    append_first_samples,
    find_closed_interval,
    finest_pieces,
    merge_closed_interval,
)
from airflow_provider_cdc.core.model.metric_samples import Histogram, MetricSamples, StoredSeries, merge_series
from airflow_provider_cdc.core.model.metrics_last_hour import MetricsInterval, append_samples
from airflow_provider_cdc.state.desired_state import lock_control_row
from airflow_provider_cdc.state.models import ConnectorRow, MetricHistoryRow, MetricRow
from airflow_provider_cdc.state.state_database import StateDatabase

T = TypeVar("T")
RUNS_PER_PRODUCER = 100
"""Runs of each producer that the history has."""
FORGOTTEN = timedelta(days=90)
"""After this time without a new value, the series of a topic or of a target is removed."""


def series_of(producer: str, topic: str) -> str:
    """Return the text that stands for a series in keys: names may be too long for those.

    >>> len(series_of("capture", "shop.inventory.orders"))
    64
    """
    return hashlib.sha256(f"{producer}\n{topic}".encode()).hexdigest()


class StoredMetrics:
    """The metrics of connectors."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def add_measurements(self, samples: MetricSamples) -> None:
        """Add samples. The number of statements does not depend on the number of topics."""
        keys = {series_of(samples.producer, topic): topic for topic in samples.series}
        whole = series_of(samples.producer, "")
        for attempt in self._database.iterate_attempts("store metrics"):
            with attempt, self._database.open_transaction() as c:
                lock_control_row(c, samples.connector)  # one at a time: totals are read, and then written
                mine = (MetricRow.connector == samples.connector) & MetricRow.series.in_(keys)
                before = {
                    row.series: row.metrics
                    for row in c.execute(sa.select(MetricRow.series, MetricRow.metrics).where(mine))
                }
                after = {key: merge_series(before.get(key, {}), samples.series[topic]) for key, topic in keys.items()}
                recent = before.get(whole, {}).get("recent", ())
                if (over := find_closed_interval(recent, samples.at.timestamp())) is not None:
                    self._fold(c, samples, over)
                lately: dict[str, Any] = {"recent": append_samples(recent, samples.series, samples.at.timestamp())}
                young = append_first_samples(before.get(whole, {}), samples.series, samples.at.timestamp())
                if young is not None:
                    lately["young"] = young.to_document()
                c.execute(sa.delete(MetricRow).where(mine | self._forgotten(samples)))
                shown = {key: {**after[key], **lately} if key == whole else after[key] for key in keys}
                c.execute(sa.insert(MetricRow), [_row(samples, key, keys[key], shown[key]) for key in keys])
                if samples.ended and whole in keys:
                    self._remember(c, samples, whole, after[whole])

    def load_series(self, connector: str | None = None) -> list[StoredSeries]:
        """Load the series of one connector, or of all: by connector, producer and topic."""
        statement = sa.select(MetricRow.__table__)
        if connector is not None:
            statement = statement.where(MetricRow.connector == connector)
        with self._database.engine.connect() as c:
            rows = c.execute(statement).all()
        return sorted((_stored_series(row) for row in rows), key=lambda s: (s.connector, s.producer, s.topic))

    def map_connector_totals(
        self, build_result: Callable[[StoredSeries, ShortPieces], T], connector: str | None = None
    ) -> list[T]:
        """Map the metrics of connectors as a whole, of all connectors or of one, in no order.

        The function gets what each producer has measured of a connector as a whole, and the shortest pieces of its last hour, see
        :mod:`~airflow_provider_cdc.core.model.metric_rollups`. One document is read after the other and let go: those of 200 connectors are fifty thousand
        small objects, and if all are there at once, Python's garbage collector takes them for ones that stay, and looks through everything that the process holds.

        One query that reads no row of a topic, however many there are: a capture's row has a known key, those of applies are in the history once a run has ended.
        """
        m, h = MetricRow, MetricHistoryRow
        capture = series_of("capture", "")
        ended = sa.select(h.connector, h.series).where(h.series != capture).distinct().subquery()
        columns = list(m.__table__.columns)
        applied = sa.select(*columns).join(ended, (m.connector == ended.c.connector) & (m.series == ended.c.series))
        named = sa.select(ConnectorRow.connector)
        captured = sa.select(*columns).where(m.connector.in_(named), m.series == capture)
        if connector is not None:
            applied, captured = applied.where(m.connector == connector), captured.where(m.connector == connector)
        with self._database.engine.connect() as c:
            return [
                build_result(_stored_series(row), finest_pieces(row.metrics))
                for row in c.execute(sa.union_all(applied, captured))
            ]

    def load_run_history(self, connector: str, producer: str = "capture") -> list[tuple[datetime, dict[str, Any]]]:
        """List the ends of the last runs, and the metrics of the connector as a whole by then, oldest first."""
        key = series_of(producer, "")
        statement = (
            sa.select(MetricHistoryRow.at, MetricHistoryRow.metrics)
            .where(MetricHistoryRow.connector == connector, MetricHistoryRow.series == key)
            .order_by(MetricHistoryRow.number)
        )
        with self._database.engine.connect() as c:
            return [(row.at, row.metrics) for row in c.execute(statement)]

    def load_rollups(self, connector: str) -> dict[str, tuple[Rollups, Sequence[Mapping[str, Any]], ShortPieces]]:
        """Load the pieces of an hour, a day and a week of a connector as a whole.

        It is: producer → the longer spans, the last pieces of five minutes, and the shortest pieces of the last hour, see
        :mod:`airflow_provider_cdc.core.model.metric_rollups`.
        """
        rollups = sa.select(MetricHistoryRow.metrics).where(
            MetricHistoryRow.connector == connector, MetricHistoryRow.number == 0
        )
        recent = sa.select(MetricRow.producer, MetricRow.metrics).where(
            MetricRow.connector == connector, MetricRow.topic == ""
        )
        with self._database.engine.connect() as c:
            longer = {row.metrics["producer"]: row.metrics["spans"] for row in c.execute(rollups)}
            return {
                row.producer: (longer.get(row.producer, {}), row.metrics.get("recent", ()), finest_pieces(row.metrics))
                for row in c.execute(recent)
            }

    def _fold(self, c: sa.Connection, samples: MetricSamples, piece: MetricsInterval) -> None:
        """Keep a piece of five minutes, which is over, in longer ones: one row for each producer, with the number 0."""
        key = series_of(samples.producer, "\n")  # no topic is called so
        mine = (MetricHistoryRow.connector == samples.connector) & (MetricHistoryRow.series == key)
        stored = c.scalar(sa.select(MetricHistoryRow.metrics).where(mine))
        spans = merge_closed_interval({} if stored is None else stored["spans"], piece, samples.at.timestamp())
        values = {"connector": samples.connector, "series": key, "number": 0, "at": samples.at}
        c.execute(sa.delete(MetricHistoryRow).where(mine))
        metrics = {"producer": samples.producer, "spans": spans}
        c.execute(sa.insert(MetricHistoryRow).values(**values, metrics=metrics))

    def _remember(self, c: sa.Connection, samples: MetricSamples, key: str, metrics: dict[str, Any]) -> None:
        series = (MetricHistoryRow.connector == samples.connector) & (MetricHistoryRow.series == key)
        last = c.scalar(sa.select(sa.func.max(MetricHistoryRow.number)).where(series)) or 0
        values = {
            "connector": samples.connector,
            "series": key,
            "number": last + 1,
            "metrics": metrics,
            "at": samples.at,
        }
        c.execute(sa.insert(MetricHistoryRow).values(**values))
        old = series & (MetricHistoryRow.number <= last + 1 - RUNS_PER_PRODUCER)
        outlived = (MetricHistoryRow.connector == samples.connector) & (MetricHistoryRow.at < samples.at - FORGOTTEN)
        c.execute(sa.delete(MetricHistoryRow).where(old | outlived))

    def _forgotten(self, samples: MetricSamples) -> sa.ColumnElement[bool]:
        return (MetricRow.connector == samples.connector) & (MetricRow.at < samples.at - FORGOTTEN)


def _row(samples: MetricSamples, key: str, topic: str, metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "connector": samples.connector, "series": key, "producer": samples.producer, "topic": topic, "tags": samples.tags,
        "metrics": metrics, "at": samples.at,
    }  # fmt: skip


def _stored_series(row: sa.Row[Any]) -> StoredSeries:
    metrics = row.metrics
    histograms = {name: Histogram.from_document(histogram) for name, histogram in metrics["histograms"].items()}
    return StoredSeries(
        row.connector, row.producer, row.tags, row.topic, row.at, metrics["gauges"], metrics["counters"], histograms,
        metrics.get("texts", {}),
    )  # fmt: skip
