"""The wizard of the API: what it offers, and the definitions that it writes, which run unchanged. Who may ask: test_authorization.py."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.dag import cdc_dags
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.authorization import KnownConnection
from airflow_provider_cdc.services.definition_writer import (
    MODES,
    TARGETS,
    DefinitionRequest,
    list_source_kinds,
    modes_of,
    write_definition,
)
from airflow_provider_cdc.sources import config_class
from tests.plugins.conftest import ClientFactory
from tests.support.airflow.airflow_connector import ShopConnector, connect

API = "/api/v1/wizard"
NAMES = [
    "inventory.orders", "Orders.A", "Shop.Größe", "a.b,c", "a.b'c\"d`e", "a.${x}{{y}}", "a.{% z %}", "a.\\d+", "a.b: #c", "a.- d", "a.\u202egnp\u202c",
    "a.名前 🐘", "a. b ", "a.\u2028x", "a.\x01", "a.\U000e0001", "a.\U0001f418", "a.[x](y)*+?|^$", "a.%s", "a.'''", "a.\n", "a.~", "a." + "x" * 500,
]  # fmt: skip
"""Names that a text could make something else of."""
TABLES = [f"n{number}{name}" for number, name in enumerate(NAMES)]
"""The same, each with a separate topic."""


def dag_of(text: str, folder: Path) -> tuple[Any, ConnectorDefinition]:
    """Run a Python file as Airflow does: its DAG, and the connector in it."""
    file = folder / "made.py"
    file.write_text(text, encoding="utf-8")
    made = runpy.run_path(str(file))
    return made["dag"], made["connector"]


@pytest.mark.parametrize("kind", list_source_kinds())
def test_both_texts_say_the_same_and_name_just_the_tables_that_were_chosen(kind: str, tmp_path: Path) -> None:
    config = config_class(kind)
    for number, (mode, target) in enumerate(itertools.product(modes_of(kind) or ["initial"], TARGETS)):
        definition_request = DefinitionRequest(
            source=kind, name=f"shop-{number}", conn_id="it's", tables=TABLES, left_out=["n1orders.a"], mode=mode, target=target, database='a"b',
            changelog="/log/'x'", properties={"poll.interval.ms": 250},
        )  # fmt: skip
        found = write_definition(definition_request)
        dag, connector = dag_of(found.python, tmp_path)
        folder = tmp_path / f"fleet{number}"
        folder.mkdir()
        (folder / found.yaml_file).write_text(found.yaml, encoding="utf-8")
        fleet = cdc_dags(folder)
        assert fleet.broken == {}
        assert fleet.connectors == [connector]
        (other,) = fleet.dags.values()
        assert other.dag_id == dag.dag_id
        assert sorted(other.task_dict) == sorted(dag.task_dict)
        tasks = {name.rpartition(".")[2]: task for name, task in dag.task_dict.items()}
        assert tasks["capture"].conn_id == "it's"
        assert ("apply" in tasks) == (target != "none")
        stand_ins = config.from_connection(host="host", login="user", schema="schema")
        parsed = config.parse({"topic.prefix": definition_request.name, **stand_ins, **connector.properties})
        filters = Filters(parsed)
        chosen = [TableId(namespace=name.split(".", 1)[0], name=name.split(".", 1)[1]) for name in TABLES]
        if kind in ("mariadb", "mysql", "mongodb"):  # others spell names otherwise; the list is the same
            assert [t for t in chosen if not filters.is_table_captured(t)] == []
            assert not filters.is_table_captured(TableId(namespace="n0inventory", name="orders2"))
            assert filters.is_table_captured(TableId(namespace="n0inventory", name="ORDERS"))
            assert not filters.is_table_captured(TableId(namespace="n1orders", name="a"))
            assert not filters.is_table_captured(
                TableId(namespace=TABLES[NAMES.index("a.\\d+")].partition(".")[0], name="1")
            )


@pytest.mark.parametrize("kind", list_source_kinds())
def test_modes_that_are_offered_can_be_used(kind: str) -> None:
    assert set(modes_of(kind)) == (set() if kind == "debezium" else set(MODES))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"source": "oracel"}, "not a kind of source"),
        ({"name": "a b"}, "its DAG has the same name"),
        ({"name": ".b"}, "its DAG has the same name"),
        ({"mode": "now"}, "choose one of these modes"),
        ({"properties": {"database.password": "hunter2"}}, "belong to the connection"),
        ({"properties": {"heartbeat.intervall.ms": 1}}, "did you mean heartbeat.interval.ms?"),
        ({"properties": {"poll.interval.ms": "soon"}}, "poll.interval.ms"),
        ({"tables": ["a.\0"]}, "a definition file cannot contain"),
        ({"tables": ["a.b c", "a.b_c"]}, "would both have the topic shop.a.b_c"),
        ({"changelog": "s3://key:hunter2@bucket/x"}, ""),
    ],
)
def test_what_could_not_run_is_refused(
    shop_connector: ShopConnector, client_factory: ClientFactory, body: dict[str, Any], text: str
) -> None:
    usual = {"source": "mariadb", "name": "shop", "conn_id": "shop"}
    answer = client_factory().post(f"{API}/definition", json=usual | body)
    assert answer.status_code == 409, answer.text
    assert text in answer.json()["detail"]
    assert "hunter2" not in answer.text


def test_connections_are_those_that_someone_may_see(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [KnownConnection("shop", "memory"), KnownConnection("orders", "mariadb")]
    monkeypatch.setattr(authorization, "known_connections", lambda prefix, kinds: there)
    found = {role: client_factory(role=role).get(API).json() for role in ("VIEWER", "OP")}
    assert [one["conn_id"] for one in found["OP"]["connections"]] == ["shop", "orders"]
    assert found["VIEWER"]["connections"] == []
    assert [one["kind"] for one in found["VIEWER"]["sources"]] == list_source_kinds()
    for one in found["OP"]["sources"]:
        assert f"source={one['kind']!r}" in one["example"]["python"]


@pytest.mark.parametrize(
    ("query_sources", "test_connection", "wizard", "check"),
    [
        ("", "", 403, 200), ("connectors", "Disabled", 403, 200), ("connectors", "Hidden", 403, 200), ("connectors", "Enabled", 200, 200),
        ("all", "Disabled", 200, 200), ("none", "Enabled", 403, 403), ("of course", "Enabled", 200, 403),
    ],
)  # fmt: skip
def test_a_page_queries_only_sources_that_airflows_configuration_allows(
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    monkeypatch: pytest.MonkeyPatch,
    query_sources: str,
    test_connection: str,
    wizard: int,
    check: int,
) -> None:
    for name, value in (("CDC__QUERY_SOURCES", query_sources), ("CORE__TEST_CONNECTION", test_connection)):
        monkeypatch.delenv(f"AIRFLOW__{name}", raising=False)
        if value:
            monkeypatch.setenv(f"AIRFLOW__{name}", value)
    client, connector = client_factory(), "/api/v1/connectors/shop"
    asked = client.post("/api/v1/wizard/connections/shop", json={})
    assert asked.status_code == wizard, asked.text
    if wizard == 403:
        assert "AIRFLOW__CDC__QUERY_SOURCES=all" in asked.json()["error"]["repair"]
    for route, body in (("check", {}), ("gap", {}), ("actions/reset-offset", {})):
        answer = client.post(f"{connector}/{route}", json=body)
        assert (answer.status_code == 403) == (check == 403), answer.text
        if check == 403:
            assert "AIRFLOW__CDC__QUERY_SOURCES=connectors" in answer.json()["error"]["repair"]


def test_the_source_of_a_connection_says_what_it_has(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop_connector.database.create_table("inventory.log", {"line": "string"})
    found = client_factory().post(f"{API}/connections/shop", json={}).json()
    assert found == {
        "queried": True, "ready": True, "findings": [], "tables": ["inventory.log", "inventory.orders"], "total": 2, "keyless": ["inventory.log"],
    }  # fmt: skip
    connect(monkeypatch, "team/shop", conn_type="cdc_memory", host="pages")
    assert client_factory().post(f"{API}/connections/team%2Fshop", json={}).json() == found
    secret = "the-password"
    connect(monkeypatch, "shop_db", conn_type="cdc_mariadb", host="127.0.0.1", port=1, login="u", password=secret)
    answer = client_factory().post(f"{API}/connections/shop_db", json={})
    assert answer.status_code == 503, answer.text
    assert secret not in answer.text
    answer = client_factory().post(f"{API}/connections/none", json={})
    assert answer.status_code == 409
    assert "Connection none, with which" in answer.json()["detail"]
    monkeypatch.setattr(CdcSourceHook, "inspect_source", lambda self, *_: pytest.fail("asked"))
    assert client_factory(role="USER").post(f"{API}/connections/shop", json={}).status_code == 403


def test_what_no_connection_says_is_given_and_files_are_left_to_the_workers(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, "events", conn_type="cdc_debezium", host="127.0.0.1:1")
    (tmp_path / "secrets.jsonl").write_text("{")
    (kind,) = [one for one in client_factory().get(API).json()["sources"] if one["kind"] == "debezium"]
    assert [one["name"] for one in kind["places"]] == ["events.path", "topics", "topics.regex"]
    for places in ({}, {"events.path": f"{tmp_path}/*"}):
        found = client_factory().post(f"{API}/connections/events", json={"places": places}).json()
        assert found == {"queried": False, "ready": True, "findings": [], "tables": [], "total": 0, "keyless": []}
    answer = client_factory().post(f"{API}/connections/events", json={"places": {"events.path.options": "{}"}})
    assert answer.status_code == 409
    assert "give one of events.path, topics, topics.regex" in answer.json()["detail"]
    answer = client_factory().post(f"{API}/connections/shop", json={"places": {"events.path": "/etc/passwd"}})
    assert answer.status_code == 409
    body = {"source": "debezium", "name": "shop", "conn_id": "events", "tables": ["shop.inventory.orders"]}
    written = client_factory().post(f"{API}/definition", json=body).json()
    assert written["lacks"] == ["events.path: /data/events/*.jsonl"]
    written = (
        client_factory().post(f"{API}/definition", json=body | {"properties": {"topics.regex": r"shop\..*"}}).json()
    )
    assert written["lacks"] == []
    assert "events.path" not in written["python"]
    assert "'inventory.orders'" in written["python"]


def test_a_new_connector_of_the_wizard_captures(
    shop_connector: ShopConnector, client_factory: ClientFactory, tmp_path: Path
) -> None:
    """From what the source offers to rows in the change log, with nothing written by hand but the paths."""
    shop_connector.order(1)
    shop_connector.database.create_table("inventory.left_out", {"id": "int64"}, key=("id",))
    body = {"source": "memory", "name": "made", "conn_id": "shop", "tables": ["inventory.orders"], "target": "none", "changelog": f"{tmp_path}/log"}  # fmt: skip
    text = client_factory().post(f"{API}/definition", json=body).json()["python"]
    _, connector = dag_of(text, tmp_path)
    url = f"sqlite:///{tmp_path}/state.db"
    with open_capture(connector, url, secrets={"memory.database": "pages"}) as run:
        result = run.run()
    assert list(result.topics) == ["made.inventory.orders"]
