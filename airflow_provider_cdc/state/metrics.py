"""What connectors have measured: the latest values, totals over all runs, and a short history."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa

from airflow_provider_cdc.core.model.metric_rollups import Kept, closed, folded
from airflow_provider_cdc.core.model.metric_samples import Histogram, KeptSeries, Measured, added
from airflow_provider_cdc.core.model.metrics_last_hour import Piece, continued
from airflow_provider_cdc.state.desired_state import locked
from airflow_provider_cdc.state.engine import Database
from airflow_provider_cdc.state.models import ConnectorRow, MetricHistoryRow, MetricRow

T = TypeVar("T")
KEPT = 100
"""Runs of each producer that the history has."""
FORGOTTEN = timedelta(days=90)
"""After this time without a new value, the series of a topic or of a target is removed."""


def series_of(producer: str, topic: str) -> str:
    """What stands for a series in keys: names may be too long for those.

    >>> len(series_of("capture", "shop.inventory.orders"))
    64
    """
    return hashlib.sha256(f"{producer}\n{topic}".encode()).hexdigest()


class Metrics:
    """The metrics of connectors."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, found: Measured) -> None:
        """Add what was measured. The number of statements does not depend on how many topics there are."""
        keys = {series_of(found.producer, topic): topic for topic in found.series}
        whole = series_of(found.producer, "")
        for attempt in self._database.attempts():
            with attempt, self._database.write() as c:
                locked(c, found.connector)  # one at a time: totals are read, and then written
                mine = (MetricRow.connector == found.connector) & MetricRow.series.in_(keys)
                before = {
                    row.series: row.metrics
                    for row in c.execute(sa.select(MetricRow.series, MetricRow.metrics).where(mine))
                }
                after = {key: added(before.get(key, {}), found.series[topic]) for key, topic in keys.items()}
                recent = before.get(whole, {}).get("recent", ())
                if (over := closed(recent, found.at.timestamp())) is not None:
                    self._fold(c, found, over)
                lately = continued(recent, found.series, found.at.timestamp())
                c.execute(sa.delete(MetricRow).where(mine | self._forgotten(found)))
                shown = {key: {**after[key], "recent": lately} if key == whole else after[key] for key in keys}
                c.execute(sa.insert(MetricRow), [_row(found, key, keys[key], shown[key]) for key in keys])
                if found.ended and whole in keys:
                    self._remember(c, found, whole, after[whole])

    def of(self, connector: str | None = None) -> list[KeptSeries]:
        """The series of one connector, or of all: by connector, producer and topic."""
        statement = sa.select(MetricRow.__table__)
        if connector is not None:
            statement = statement.where(MetricRow.connector == connector)
        with self._database.engine.connect() as c:
            rows = c.execute(statement).all()
        return sorted((_kept(row) for row in rows), key=lambda s: (s.connector, s.producer, s.topic))

    def wholes(self, made: Callable[[KeptSeries, list[dict[str, Any]]], T], connector: str | None = None) -> list[T]:
        """Of all connectors or of one, what is made of each as a whole by each of its producers, and of the last pieces of
        :mod:`~airflow_provider_cdc.core.model.metrics_last_hour`; in no order. One document is read after the other and let go: those of 200 connectors are fifty thousand
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
                made(_kept(row), row.metrics.get("recent", [])) for row in c.execute(sa.union_all(applied, captured))
            ]

    def history(self, connector: str, producer: str = "capture") -> list[tuple[datetime, dict[str, Any]]]:
        """When the last runs have ended, and what was measured of the connector as a whole by then, oldest first."""
        key = series_of(producer, "")
        statement = (
            sa.select(MetricHistoryRow.at, MetricHistoryRow.metrics)
            .where(MetricHistoryRow.connector == connector, MetricHistoryRow.series == key)
            .order_by(MetricHistoryRow.number)
        )
        with self._database.engine.connect() as c:
            return [(row.at, row.metrics) for row in c.execute(statement)]

    def spans(self, connector: str) -> dict[str, tuple[Kept, Sequence[Mapping[str, Any]]]]:
        """What is kept of an hour, a day and a week of a connector as a whole: producer → the longer spans, and the last pieces of five minutes, see
        :mod:`airflow_provider_cdc.core.model.metric_rollups`."""
        kept = sa.select(MetricHistoryRow.metrics).where(
            MetricHistoryRow.connector == connector, MetricHistoryRow.number == 0
        )
        recent = sa.select(MetricRow.producer, MetricRow.metrics).where(
            MetricRow.connector == connector, MetricRow.topic == ""
        )
        with self._database.engine.connect() as c:
            longer = {row.metrics["producer"]: row.metrics["spans"] for row in c.execute(kept)}
            return {
                row.producer: (longer.get(row.producer, {}), row.metrics.get("recent", ())) for row in c.execute(recent)
            }

    def _fold(self, c: sa.Connection, found: Measured, piece: Piece) -> None:
        """Keep a piece of five minutes, which is over, in longer ones: one row for each producer, with the number 0."""
        key = series_of(found.producer, "\n")  # no topic is called so
        mine = (MetricHistoryRow.connector == found.connector) & (MetricHistoryRow.series == key)
        kept = c.scalar(sa.select(MetricHistoryRow.metrics).where(mine))
        spans = folded({} if kept is None else kept["spans"], piece, found.at.timestamp())
        values = {"connector": found.connector, "series": key, "number": 0, "at": found.at}
        c.execute(sa.delete(MetricHistoryRow).where(mine))
        metrics = {"producer": found.producer, "spans": spans}
        c.execute(sa.insert(MetricHistoryRow).values(**values, metrics=metrics))

    def _remember(self, c: sa.Connection, found: Measured, key: str, metrics: dict[str, Any]) -> None:
        series = (MetricHistoryRow.connector == found.connector) & (MetricHistoryRow.series == key)
        last = c.scalar(sa.select(sa.func.max(MetricHistoryRow.number)).where(series)) or 0
        values = {"connector": found.connector, "series": key, "number": last + 1, "metrics": metrics, "at": found.at}
        c.execute(sa.insert(MetricHistoryRow).values(**values))
        old = series & (MetricHistoryRow.number <= last + 1 - KEPT)
        outlived = (MetricHistoryRow.connector == found.connector) & (MetricHistoryRow.at < found.at - FORGOTTEN)
        c.execute(sa.delete(MetricHistoryRow).where(old | outlived))

    def _forgotten(self, found: Measured) -> sa.ColumnElement[bool]:
        return (MetricRow.connector == found.connector) & (MetricRow.at < found.at - FORGOTTEN)


def _row(found: Measured, key: str, topic: str, metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "connector": found.connector, "series": key, "producer": found.producer, "topic": topic, "tags": found.tags,
        "metrics": metrics, "at": found.at,
    }  # fmt: skip


def _kept(row: sa.Row[Any]) -> KeptSeries:
    kept = row.metrics
    histograms = {name: Histogram.of(found) for name, found in kept["histograms"].items()}
    return KeptSeries(
        row.connector, row.producer, row.tags, row.topic, row.at, kept["gauges"], kept["counters"], histograms,
        kept.get("texts", {}),
    )  # fmt: skip
