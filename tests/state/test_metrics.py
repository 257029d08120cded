"""Metrics in the state tables: totals over runs, latest values, a history that ends, and a number of statements that is always the same."""

from __future__ import annotations

import gc
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.model.metric_rollups import SPANS, pieces_of
from airflow_provider_cdc.core.model.metric_samples import MetricSamples, MetricSeries
from airflow_provider_cdc.core.model.metrics_last_hour import PIECE_S, LastHourMetrics
from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.state import metrics as module
from airflow_provider_cdc.state.models import MetricHistoryRow, MetricRow
from airflow_provider_cdc.state.state_store import StateStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def make_samples(
    series: dict[str, MetricSeries],
    *,
    connector: str = "shop",
    producer: str = "capture",
    at: datetime = NOW,
    ended: bool = True,
) -> MetricSamples:
    return MetricSamples(connector, producer, {"a": "b"}, at, series, ended)


def make_series(n: float, gauge: float = 0.0) -> MetricSeries:
    return MetricSeries({"g": gauge}, {"n": n}, {"f": [1.5]})


def test_counts_add_up_over_runs_and_values_are_the_latest(store: StateStore) -> None:
    store.metrics.add_measurements(make_samples({"": make_series(2, 5), "t": make_series(7)}))
    store.metrics.add_measurements(make_samples({"": make_series(3, 4)}))
    store.metrics.add_measurements(make_samples({"": make_series(100)}, producer="apply"))
    store.metrics.add_measurements(make_samples({"": make_series(100)}, connector="other"))
    whole, topic = [one for one in store.metrics.load_series("shop") if one.producer == "capture"]
    assert (whole.topic, whole.counters, whole.gauges, whole.tags, whole.at) == (
        "",
        {"n": 5},
        {"g": 4},
        {"a": "b"},
        NOW,
    )
    assert sum(whole.histograms["f"].classes) == 2
    assert whole.histograms["f"].total == 3.0
    assert (topic.topic, topic.counters) == ("t", {"n": 7})
    assert [one.connector for one in store.metrics.load_series()] == ["other", "shop", "shop", "shop"]


def test_the_history_has_the_last_runs_and_no_more(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUNS_PER_PRODUCER", 5)
    for n in range(12):
        store.metrics.add_measurements(make_samples({"": make_series(1)}, at=NOW + timedelta(minutes=n), ended=False))
        store.metrics.add_measurements(make_samples({"": make_series(1)}, at=NOW + timedelta(minutes=n)))
    found = store.metrics.load_run_history("shop")
    assert [metrics["counters"]["n"] for _, metrics in found] == [16, 18, 20, 22, 24]
    assert found[-1][0] == NOW + timedelta(minutes=11)
    assert rows(store, MetricHistoryRow) == 5 + 1  # and one with a day and a week
    assert rows(store, MetricRow) == 1


def test_series_of_which_nothing_was_heard_for_long_are_removed(store: StateStore) -> None:
    store.metrics.add_measurements(make_samples({"": make_series(1), "dropped": make_series(1)}))
    store.metrics.add_measurements(make_samples({"": make_series(1)}, connector="other"))
    later = NOW + module.FORGOTTEN + timedelta(seconds=1)
    store.metrics.add_measurements(make_samples({"": make_series(1), "t": make_series(1)}, at=later))
    assert [(one.connector, one.topic) for one in store.metrics.load_series()] == [
        ("other", ""),
        ("shop", ""),
        ("shop", "t"),
    ]
    assert len(store.metrics.load_run_history("shop")) == 1


def test_the_number_of_statements_does_not_grow_with_topics(store: StateStore) -> None:
    def statements(topics: int) -> int:
        series = {"": make_series(1)} | {f"t{n}": make_series(1) for n in range(topics)}
        with watched_statements(store.database.engine) as seen:
            store.metrics.add_measurements(make_samples(series))
        return len(seen)

    statements(1)
    few, many = statements(1), statements(500)
    assert few == many <= 12


def test_names_of_any_length_have_a_series_of_their_own(store: StateStore) -> None:
    topics = ["x" * 400 + end for end in ("a", "b")] + ['é,"\\\n']
    store.metrics.add_measurements(make_samples({topic: make_series(1) for topic in topics}))
    assert {one.topic for one in store.metrics.load_series("shop")} == set(topics)


def test_nothing_is_left_of_a_connector_that_is_deleted(store: StateStore) -> None:
    store.metrics.add_measurements(make_samples({"": make_series(1)}))
    with store.acquire_lease("shop", "a test", wait_s=0) as lease:
        store.delete_connector(lease)
    assert store.metrics.load_series("shop") == []
    assert store.metrics.load_run_history("shop") == []


def rows(store: StateStore, table: Any) -> int:
    with store.database.engine.connect() as c:
        return int(c.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


class watched_statements:
    """The statements of an engine, as long as it is entered; one that has many rows is one."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine, self._seen = engine, list[str]()

    def __enter__(self) -> list[str]:
        sa.event.listen(self._engine, "before_cursor_execute", self._note)
        return self._seen

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._note)

    def _note(self, _c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        self._seen.append(statement)


def test_the_last_hour_is_kept_in_pieces_of_five_minutes(store: StateStore) -> None:
    store.register_connector(ConnectorRegistration("shop", "memory", "/log"))
    for minute in (0, 1, 6, 30, 61, 66):
        orders = MetricSeries(
            counters={"topic.TotalNumberOfEventsCaptured": 10},
            observed={"topic.CaptureFreshnessInSeconds": [1.5, 0.7 + minute]},
        )
        lines = MetricSeries(
            counters={"topic.TotalNumberOfEventsCaptured": 1}, observed={"topic.CaptureFreshnessInSeconds": [3.0]}
        )
        found = {"": make_series(1), "orders": orders, "lines": lines}
        store.metrics.add_measurements(make_samples(found, at=NOW + timedelta(minutes=minute), ended=False))
    ((whole, (piece_s, pieces)),) = store.metrics.map_connector_totals(lambda *one: one)
    assert piece_s == PIECE_S
    assert (whole.connector, whole.producer, whole.topic) == ("shop", "capture", "")
    first = int(NOW.timestamp() // PIECE_S) * PIECE_S
    assert [(p["at"] - first) // 60 for p in pieces] == [5, 30, 60, 65]
    assert [p["events"] for p in pieces] == [11] * 4
    assert pieces[-1]["worst"] == ["orders", 66.7]
    assert sum(pieces[-1]["freshness"]["classes"]) == 3
    hour = LastHourMetrics.from_intervals(pieces, (NOW + timedelta(minutes=70)).timestamp())
    assert [((at - first) // 60, events) for at, events, _ in hour.events] == [(30, 11), (60, 11), (65, 11)]
    assert (sum(hour.freshness.classes), hour.worst) == (9, ("orders", 66.7))
    assert hour.freshness.total == sum(3 * [1.5 + 3.0]) + 30.7 + 61.7 + 66.7
    nothing = LastHourMetrics.from_intervals(pieces, (NOW + timedelta(hours=9)).timestamp())
    assert (nothing.events, sum(nothing.freshness.classes), nothing.worst) == ([], 0, None)


def test_what_there_was_lately_of_all_connectors_is_one_query_without_their_topics(store: StateStore) -> None:
    def query(connectors: int, topics: int) -> Any:
        for n in range(connectors):
            store.register_connector(ConnectorRegistration(f"c{n}", "memory", "/log"))
            series = {"": make_series(1)} | {f"t{k}": make_series(1) for k in range(topics)}
            store.metrics.add_measurements(make_samples(series, connector=f"c{n}"))
            store.metrics.add_measurements(
                make_samples({"": make_series(1)}, connector=f"c{n}", producer="apply delta 1")
            )
        with watched_statements(store.database.engine) as seen:
            found = store.metrics.map_connector_totals(lambda *one: one)
        assert sorted((one.connector, one.producer, one.topic) for one, _ in found) == [
            (f"c{n}", producer, "") for n in range(connectors) for producer in ("apply delta 1", "capture")
        ]
        return seen

    assert len(query(1, 1)) == len(query(5, 40))


def test_documents_of_many_connectors_are_not_there_at_once(store: StateStore) -> None:
    """Python's garbage collector takes what is there for long for what stays: a list of all of them had it look through the whole process."""
    for n in range(20):
        store.register_connector(ConnectorRegistration(f"c{n}", "memory", "/log"))
        for minute in range(0, 60, 5):
            orders = MetricSeries(observed={"topic.CaptureFreshnessInSeconds": [1.5]})
            at = NOW + timedelta(minutes=minute)
            store.metrics.add_measurements(
                make_samples({"": make_series(1), "orders": orders}, connector=f"c{n}", at=at, ended=False)
            )
    ((_, (_, pieces)),) = store.metrics.map_connector_totals(lambda *one: one, "c0")
    assert len(pieces) == 12

    def count_documents() -> int:
        young = gc.get_objects(generation=0)  # what was made since the collection below
        return sum(type(one) is dict and pieces[0].keys() == one.keys() for one in young)

    gc.collect()
    gc.disable()
    try:
        alive = store.metrics.map_connector_totals(lambda *_: count_documents())
    finally:
        gc.enable()
    assert len(alive) == 20
    assert (
        24 <= max(alive) <= 48
    )  # short pieces and those of five minutes, of one, or of one that is read and one that is about to go


def test_the_first_hour_has_pieces_of_ten_seconds_and_then_of_a_minute(store: StateStore) -> None:
    store.register_connector(ConnectorRegistration("shop", "memory", "/log"))
    lengths, count = {}, 0
    for second in (*range(0, 700, 10), *range(700, 3900, 100)):
        orders = MetricSeries(counters={"topic.TotalNumberOfEventsCaptured": 3})
        at = NOW + timedelta(seconds=second)
        store.metrics.add_measurements(make_samples({"": make_series(1), "orders": orders}, at=at, ended=False))
        count += 3
        ((_, (piece_s, pieces)),) = store.metrics.map_connector_totals(lambda *one: one)
        lengths.setdefault(piece_s, second)
        assert len(pieces) <= 61
        assert sum(piece["events"] for piece in pieces) == count
    assert lengths == {10: 0, 60: 600, PIECE_S: 3600}


@pytest.mark.parametrize("span", sorted(SPANS))
def test_a_span_has_all_that_was_measured_in_it_and_ends(store: StateStore, span: str) -> None:
    """Work of nine days in bursts, recorded at any moment: each piece has the records within it, and what is kept does not grow."""
    draw = random.Random(span)
    moment, reports = NOW.timestamp(), list[tuple[float, int, float]]()
    while moment < NOW.timestamp() + 9 * 86_400:
        moment += draw.choice([10, 10, 60, 290, 301, 4000, 40_000])
        events, lag_ms = draw.randrange(1, 50), draw.randrange(100_000)
        whole = MetricSeries(
            {"streaming.MilliSecondsBehindSource": lag_ms}, {"run.TotalProcessorTimeInSeconds": 0.5}, {}
        )
        orders = MetricSeries(
            {}, {"topic.TotalNumberOfEventsCaptured": events}, {"topic.CaptureFreshnessInSeconds": [2.0]}
        )
        at = datetime.fromtimestamp(moment, UTC)
        store.metrics.add_measurements(make_samples({"": whole, "orders": orders}, at=at, ended=draw.random() < 0.1))
        reports.append((moment, events, lag_ms / 1000))
    now = moment + 1
    kept, recent, _ = store.metrics.load_rollups("shop")["capture"]
    pieces = pieces_of(span, kept, recent, now)
    length, piece_s = SPANS[span]
    since = SPANS[span].compute_start(now)
    expected: dict[int, list[tuple[int, float]]] = {}
    for at, events, lag_s in reports:
        if at >= since:
            expected.setdefault(int(at // piece_s) * piece_s, []).append((events, lag_s))
    found = {piece.at: (piece.events, piece.lag_s, piece.cpu_s, sum(piece.freshness.classes)) for piece in pieces}
    assert found == {
        at: (sum(e for e, _ in rows), max(lag for _, lag in rows), 0.5 * len(rows), len(rows))
        for at, rows in expected.items()
    }
    assert len(pieces) <= length / piece_s + 1
    assert list(found) == sorted(found)
