"""The example dashboard for Grafana, and the rules for Prometheus, ask for metrics that there are after a real capture and the report of an apply. Grafana itself is not at hand, so
no test looks at what it draws."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airflow_provider_cdc.operators.base.apply_metrics import report_apply_metrics
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.dashboards.openmetrics_text import format_openmetrics
from airflow_provider_cdc.services.dashboards.overview_models import AlertKind
from tests.support.airflow.airflow_connector import context, make_shop

FOLDER = Path(__file__).parents[3] / "docs" / "grafana"
DASHBOARD = json.loads((FOLDER / "airflow-cdc.json").read_text())
RULES = yaml.safe_load((FOLDER / "prometheus-rules.yaml").read_text())["groups"][0]["rules"]
EXPRESSIONS = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]] + [
    v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"
]


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, set[str]]]:
    """Name of each sample → its labels."""
    shop_connector = make_shop(monkeypatch, tmp_path, "dashboard")
    for key in (1, 2):
        shop_connector.order(key)
        CaptureOperator(task_id="capture", definition=shop_connector.definition, conn_id="shop").execute(context())
    table = {"topic": "shop.inventory.orders", "rows": {"c": 2}, "seconds": 1.5, "freshness_s": 3.0, "rows_written": 2, "first_batch": 1, "last_batch": 2, "location": "/lake/orders"}  # fmt: skip
    report = {"owner": "me", "last_batch": 2, "tables": [table], "failed": {}, "lagging": {}, "table_states": {}}
    access = SimpleNamespace(state_conn_id="cdc_state_default", definition=shop_connector.definition)
    one: Any = SimpleNamespace(
        name="shop", target="delta", location="/lake/{table}", owner="me", access=access, report=report
    )
    report_apply_metrics(one, failed=False, seconds=2.0)
    families = text_string_to_metric_families(format_openmetrics(shop_connector.store.metrics.load_series()))
    yield {sample.name: set(sample.labels) for family in families for sample in family.samples}
    shop_connector.store.close()


def test_every_question_is_about_a_metric_and_labels_that_there_are(samples: dict[str, set[str]]) -> None:
    for expression in EXPRESSIONS:
        names = set(re.findall(r"\bcdc_\w+", expression))
        assert names, expression
        assert names <= set(samples), expression
        for labels in re.findall(r"by \(([\w, ]+)\)", expression):
            for name in names:
                assert set(labels.split(", ")) <= samples[name], expression


def test_every_rule_is_an_alert_about_a_metric_that_there_is(samples: dict[str, set[str]]) -> None:
    for rule in RULES:
        assert rule["alert"] in set(AlertKind)
        (name,) = re.findall(r"\bcdc_\w+", rule["expr"])
        assert name in samples or name == "cdc_streaming_LogGoneAtInSeconds", rule  # the memory source keeps its log
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used <= samples.get(name, {"connector"}), rule


def test_panels_lie_beside_each_other_and_say_what_they_show() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        {(x, y) for x in range(p["gridPos"]["x"], p["gridPos"]["x"] + p["gridPos"]["w"]) for y in range(p["gridPos"]["y"], p["gridPos"]["y"] + p["gridPos"]["h"])}
        for p in panels
    ]  # fmt: skip
    assert not [pair for pair in combinations(cells, 2) if pair[0] & pair[1]]
    assert all(x < 24 for cell in cells for x, _ in cell)


def test_it_is_of_whichever_prometheus_is_chosen() -> None:
    sources = [panel["datasource"]["uid"] for panel in DASHBOARD["panels"]]
    sources += [t["datasource"]["uid"] for panel in DASHBOARD["panels"] for t in panel["targets"]]
    assert set(sources) == {"${datasource}"}
