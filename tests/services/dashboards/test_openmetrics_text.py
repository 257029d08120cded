"""OpenMetrics text of whatever names, labels and values there are, read by the format's own strict parser."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airflow_provider_cdc.core.model.metric_samples import BOUNDS_S, Histogram, StoredSeries
from airflow_provider_cdc.services.dashboards.openmetrics_text import format_openmetrics

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
VALUE = st.floats(0, 1e15)


def _histogram(values: list[float]) -> Histogram:
    found = Histogram()
    for value in values:
        found.add_value(value)
    return found


@given(
    st.dictionaries(st.tuples(TEXT, st.one_of(st.just(""), TEXT)), st.tuples(VALUE, VALUE, st.lists(VALUE)), max_size=5)
)
def test_every_series_comes_back_with_its_labels_and_values(
    found: dict[tuple[str, str], tuple[float, float, list[float]]],
) -> None:
    series = [
        StoredSeries(
            connector, "apply delta x", {"target": "delta"}, topic, datetime.now(UTC), {"schema-history.At": gauge}, {"run.Total": count},
            {"apply.Freshness": _histogram(values)},
        )
        for (connector, topic), (gauge, count, values) in found.items()
    ]  # fmt: skip
    families = {f.name: f for f in text_string_to_metric_families(format_openmetrics(series))}
    assert set(families) == ({"cdc_schema_history_At", "cdc_run_Total", "cdc_apply_Freshness"} if found else set())
    labels = {
        (connector, topic): {"connector": connector, "target": "delta"} | ({"topic": topic} if topic else {})
        for connector, topic in found
    }
    for key, (gauge, count, values) in found.items():
        for name, value in (("cdc_schema_history_At", gauge), ("cdc_run_Total", count)):
            assert [s.value for s in families[name].samples if s.labels == labels[key]] == [value]
        buckets = {
            s.labels["le"]: s.value
            for s in families["cdc_apply_Freshness"].samples
            if {k: v for k, v in s.labels.items() if k != "le"} == labels[key] and "le" in s.labels
        }
        assert buckets == {
            **{str(float(bound)): sum(v <= bound for v in values) for bound in BOUNDS_S}, "+Inf": len(values),
        }  # fmt: skip


def test_without_a_series_the_text_ends_at_once() -> None:
    assert format_openmetrics([]) == "# EOF\n"
