"""The pages with a connector of each kind of source that exists: its definition is the wizard's, its state that of real captures and applies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.services.definition_writer import DefinitionRequest, list_source_kinds, write_definition
from dev.airflow import Airflow, Services
from tests.support.airflow.airflow_connector import connect
from tests.support.sources.any_source import AnySource, any_source, parse_dag, run_dag
from tests.system.conftest import OF
from tests.system.pages import findings, show
from tests.system.test_pages import TABS

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

API = "/cdc/api/v1/connectors"
LEFT, GONE = "of the source's log left to read", "the source removes the log at the position in"
WINDOW = {"db2": [GONE], "mariadb": [LEFT], "mysql": [LEFT, GONE], "oracle": [LEFT]}
"""What a source reports of both ends of its log, as these servers and accounts are."""


@dataclass
class Fleet:
    """A connector of each kind, captured and applied twice, with changes in between."""

    sources: dict[str, AnySource] = field(default_factory=dict)

    def table(self, kind: str) -> str:
        """A table of it."""
        return self.sources[kind].tables["Orders"]


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest,
    airflow: Airflow,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Fleet]:
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=f"sqlite:///{airflow.home}/airflow.db")
    connect(monkeypatch, "ware-house", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    found, made = Fleet(), list[Path]()
    with ExitStack() as stack:
        for kind in list_source_kinds():
            name, conn_id = f"{OF}{kind}", f"its-{kind}"
            source = stack.enter_context(any_source(kind, request, name))
            found.sources[kind] = source
            connect(monkeypatch, conn_id, conn_type=f"cdc_{kind}", **source.fields)
            body = {**source.fields, "extra": json.dumps(source.fields.get("extra", {})), "connection_id": conn_id, "conn_type": f"cdc_{kind}"}  # fmt: skip
            services.json("POST", "/api/v2/connections", body)
            stack.callback(services.request, "DELETE", f"/api/v2/connections/{conn_id}")
            text = write_definition(
                DefinitionRequest(
                    source=kind, name=name, conn_id=conn_id, tables=list(source.tables.values()), left_out=source.left_out,
                    target="database", database="ware-house", changelog=f"{airflow.home}/cdc/{name}", properties={**source.properties},
                )
            )  # fmt: skip
            file = airflow.dags / text.python_file
            file.write_text(text.python, encoding="utf-8")
            made.append(file)
            dag = parse_dag(airflow.dags, text.python_file)
            run_dag(dag)
            for table in source.tables:
                source.change(table)
            run_dag(dag)
        yield found
        for file in made:
            file.unlink()


def test_each_source_is_seen_from_all_sides(
    page: Any, services: Services, fleet: Fleet, screenshot_folder: Path, axe_script: str
) -> None:
    def dags_known() -> bool:
        answer = services.json("GET", f"/api/v2/dags?dag_id_pattern=cdc_{OF}&limit=100")
        return {one["dag_id"] for one in answer["dags"]} >= {f"cdc_{OF}{kind}" for kind in fleet.sources}

    services.until(dags_known, 120, "the DAGs of the definitions are known")
    show(page, services)
    page.get_by_label("Search").fill(OF)
    rows = page.get_by_role("table", name="Connectors").locator("tbody tr")
    page.wait_for_function(f"document.querySelectorAll('[data-testid=cdc] tbody tr').length === {len(fleet.sources)}")
    lines = {one["connector"]: one for one in services.json("GET", API)["connectors"]}
    for kind in fleet.sources:
        name = f"{OF}{kind}"
        line, text = lines[name], rows.filter(has=page.get_by_role("link", name=name, exact=True)).inner_text()
        assert line["source"] == kind
        assert (line["error"], line["alerts"]) == (None, []), line
        assert line["freshness"]["where"] == "tables"
        assert line["freshness"]["worst_topic"] in text
        assert line["lag_s"] is not None
        assert "its DAG is paused" in text
        known = {LEFT: line["lag_bytes"], GONE: line["log_gone_at"]}
        assert [words for words, found in known.items() if found is not None] == WINDOW.get(kind, [])
        assert all((words in text) == bool(found) for words, found in known.items())  # 0 bytes are not worth a line
    page.screenshot(path=screenshot_folder / "sources.png", full_page=True)
    assert findings(page, axe_script) == []
    for kind in fleet.sources:
        all_sides(page, services, fleet, kind, screenshot_folder)
    assert page.errors == []


def all_sides(page: Any, services: Services, fleet: Fleet, kind: str, shots: Path) -> None:
    """Open each tab of a connector, and see in it what only a connector that works has."""
    name = f"{OF}{kind}"
    show(page, services, f"/connectors/{name}")
    table = fleet.table(kind)
    shown = {
        "Charts": "no error.", "Tables": table, "Snapshots and signals": "No signal was sent.", "Schema": table.partition(".")[2],
        "Batches": "database ware-house: yes", "Offsets": "batch 1", "Check": "changes nothing at the source", "Configuration": "topic.prefix", "Events": "SKIPPED" if kind == "debezium" else "COMPLETED",
        "Row history": "Each look-up is recorded",
    }  # fmt: skip
    assert set(shown) == set(TABS)
    for title, text in shown.items():
        page.get_by_role("tab", name=title, exact=True).click()
        panel = page.get_by_role("tabpanel")
        panel.get_by_text(text).first.wait_for()
        if title == "Check":
            panel.get_by_role("button", name="Check now").click()
            page.get_by_test_id("findings").get_by_text("Ready for capture.", exact=False).first.wait_for()
        assert page.get_by_test_id("failure").count() == 0, (kind, title, page.get_by_test_id("failure").first.inner_text())  # fmt: skip
        page.screenshot(path=shots / f"source-{kind}-{title.lower().replace(' ', '-')}.png")
