"""Permissions: each route of the OpenAPI document × each role × logged out, and single DAGs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.models.connection import Connection
from airflow.models.team import Team
from airflow.utils.session import create_session
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airflow_provider_cdc.core.spi.state_records import ConnectorRegistration
from airflow_provider_cdc.plugins import authorization
from airflow_provider_cdc.plugins.authorization import KnownDag, known_of
from airflow_provider_cdc.plugins.plugin_app import app
from dev import paths
from tests.plugins.conftest import ClientFactory
from tests.support.airflow.airflow_connector import ShopConnector, connect
from tests.support.airflow.airflow_versions import has_teams, set_auth_manager, simple_user

BODIES: dict[str, Any] = {
    "snapshot": {"tables": ["inventory.orders"]},
    "forget-target": {"target": "delta", "location": "/lake"},
    "rebuild": {"tables": ["inventory.orders"]},
    "restore-offset": {"version": 1},
    "set-offset": {"position": {"entry": 1}},
    "repair-gap": {"repair": "snapshot"},
    "key": {"table": "inventory.orders"},
    "row": {"table": "inventory.orders", "key": ["1"]},
    "definition": {"source": "mariadb", "name": "shop", "conn_id": "shop"},
}
"""What routes with a body are sent; others take an empty object."""
ALLOWED = {
    "read": {"VIEWER", "USER", "OP", "ADMIN"},
    "operate": {"USER", "OP", "ADMIN"},
    "administer": {"OP", "ADMIN"},
    "rows": {"USER", "OP", "ADMIN"},
}
"""Right → the roles of Airflow's simple auth manager that have it: the table of docs/run/security.md."""
TEAMS_OF = authorization.teams_of
"""Asks Airflow's database, which the fixtures do without."""
DAG_TEAMS = {"billing_dag": "blue"}
PAGE = (paths.ROOT / "docs" / "run" / "security.md").read_text()
TABLE = dict(re.findall(r"^\| `((?:GET|POST) /[^`]*)` \| (.+) \|$", PAGE, re.M))
"""Route → the right that it needs, as docs/run/security.md says."""
ROUTES = [
    (*route.split(" "), right.strip("`"))
    for route, right in TABLE.items()
    if " /api/v1/" in route and right.startswith("`")
]
DOCUMENT = {
    f"{method.upper()} {path}": operation["x-right"]
    for path, methods in app.openapi()["paths"].items()
    for method, operation in methods.items()
}


def request_status(client: TestClient, method: str, path: str, connector: str = "shop") -> int:
    """The status of an answer to a request that is well-formed."""
    url = path.replace("{connector}", connector).replace("{batch}", "1").replace("{connection}", "shop")
    body = BODIES.get(path.rpartition("/")[2], {}) if method == "POST" else None
    answer = client.request(method, url, json=body, follow_redirects=False)
    assert answer.status_code < 500, answer.text
    assert answer.status_code != 422, answer.text
    return answer.status_code


def test_the_table_of_routes_has_each_with_its_right() -> None:
    assert {f"{method} {path}": right for method, path, right in ROUTES} == DOCUMENT
    others = {f"GET {route.path.replace(':path', '')}" for route in app.routes if "/api/v1/" not in route.path}
    assert set(TABLE) == DOCUMENT.keys() | others | {"GET /api/v1/openapi.json"}
    assert set(DOCUMENT.values()) == set(ALLOWED)


def test_no_route_is_outside_of_the_document() -> None:
    """A route that is not in the document would need no line in the table."""
    api = [route for route in app.routes if isinstance(route, APIRoute) and route.path.startswith("/api/")]
    assert {f"{method} {route.path_format}" for route in api for method in route.methods} == DOCUMENT.keys()


@pytest.mark.parametrize("role", ["VIEWER", "USER", "OP", "ADMIN", None])
def test_each_route_is_allowed_or_refused_as_the_table_says(
    shop_connector: ShopConnector, client_factory: ClientFactory, role: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop")
    client = client_factory(role=role)
    for method, path, right in ROUTES:
        status = request_status(client, method, path)
        if role is None:
            assert status == 401, (path, status)
        elif role in ALLOWED[right]:
            assert status in (200, 409), (path, status)  # what is planned for may not be there
        else:
            assert status == 403, (path, status)
    assert shop_connector.store.load_control("shop").desired_state == "running"  # plans change nothing


def test_who_has_a_login_and_no_role_is_refused_everywhere(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    client = client_factory(role="")
    for method, path, _ in ROUTES:
        assert request_status(client, method, path) == 403, path
    assert client.get("/metrics").status_code == 403


def test_what_needs_no_login_shows_nothing_of_any_connector(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    client = client_factory(role=None)
    free = [route.removeprefix("GET ") for route, right in TABLE.items() if right.startswith("none")]
    found = {route: client.get(route, follow_redirects=False) for route in free}
    assert found.pop("/api/v1/openapi.json").json() == app.openapi()
    assert found.pop("/static").status_code in (307, 404)  # a folder has no page
    assert found.pop("/docs/{page}").status_code == 404  # the documentation is the same for everybody
    assert not found


def test_tokens_and_cookies_count_as_in_airflows_own_api(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    client, manager = client_factory(role=None), get_auth_manager()
    ada, eve = simple_user("ada", "ADMIN"), simple_user("eve", None)
    token, other = manager.generate_jwt(ada), manager.generate_jwt(eve)
    old = manager.generate_jwt(ada, expiration_time_in_seconds=-3600)

    def status(bearer: str | None = None, cookie: str | None = None) -> int:
        headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
        headers |= {} if cookie is None else {"cookie": f"_token={cookie}"}
        return client.get("/api/v1/connectors", headers=headers).status_code

    assert (status(), status(token), status(cookie=token)) == (401, 200, 200)
    assert (status(old), status(cookie=old)) == (401, 401)
    body, _, signature = token.rpartition(".")
    assert status(f"{body}.{signature[::-1]}") == 403
    assert (status(other, token), status(token, other)) == (403, 200)  # the header counts before the cookie
    if not hasattr(manager, "revoke_token"):
        return  # Airflow 3.1 revokes no token
    manager.revoke_token(token)
    assert (status(token), status(cookie=token)) == (403, 403)


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_what_a_page_of_another_site_could_send_is_refused(
    shop_connector: ShopConnector, client_factory: ClientFactory, kind: str | None
) -> None:
    """A browser sends these types, and a body without one, without asking the site whether they are wanted."""
    client, before = client_factory(), len(shop_connector.store.list_notifications("shop"))
    for method, path, _ in ROUTES:
        if method == "POST":
            url = path.replace("{connector}", "shop").replace("{connection}", "shop") + "?plan=false&confirm=shop"
            body = json.dumps(BODIES.get(path.rpartition("/")[2], {})).encode()
            answer = client.post(url, content=body, headers={} if kind is None else {"content-type": kind})
            assert answer.status_code == 415, (path, answer.text)
    assert shop_connector.store.load_control("shop").desired_state == "running"
    assert len(shop_connector.store.list_notifications("shop")) == before


def test_rows_are_shown_to_no_one_unless_the_configuration_names_the_connector(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    answer = client_factory().post("/api/v1/connectors/shop/row", json=BODIES["row"])
    assert answer.status_code == 403
    assert "AIRFLOW__CDC__SHOW_ROWS_OF=shop" in answer.json()["error"]["repair"]
    assert [e.notification.type for e in shop_connector.store.list_notifications("shop")].count("VIEWED") == 0


def test_what_a_user_may_do_is_said(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    found = {
        role: client_factory(role=role).get("/api/v1/connectors/shop").json()["rights"]
        for role in ("VIEWER", "USER", "OP", "ADMIN")
    }
    assert found == {role: [right for right in ALLOWED if role in ALLOWED[right]] for role in found}


@pytest.mark.parametrize(
    ("name", "role", "seen"),
    [("ann", "USER", {"shop"}), ("bob", "VIEWER", {"billing"}), ("ada", "ADMIN", {"shop", "billing", "script"})],
)
def test_users_see_the_connectors_of_the_dags_that_they_may_read(
    fleet: ShopConnector, client_factory: ClientFactory, name: str, role: str, seen: set[str]
) -> None:
    client = client_factory(name, role)
    found = client.get("/api/v1/connectors").json()
    assert {row["connector"] for row in found["connectors"]} == seen
    assert found["total"] == len(seen)
    measured = client.get("/metrics")
    assert measured.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    (runs,) = [f for f in text_string_to_metric_families(measured.text) if f.name == "cdc_run_TotalNumberOfRuns"]
    assert {sample.labels["connector"] for sample in runs.samples} == seen
    for connector in ("shop", "billing", "script"):
        for method, path, _ in ROUTES:
            if "{connector}" in path and connector not in seen:
                assert request_status(client, method, path, connector) == 404, path


@pytest.fixture
def teams(fleet: ShopConnector, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections of Airflow's database: ``shop`` and ``script`` are of the team ``red``; that to ``billing`` is in none of its tables."""
    if not has_teams():
        pytest.skip("Airflow 3.1 has no teams")
    monkeypatch.setattr(authorization, "teams_of", TEAMS_OF)
    monkeypatch.setattr(
        authorization, "known_dags", lambda ids: {id_: KnownDag(id_, DAG_TEAMS.get(id_)) for id_ in ids}
    )
    with create_session() as session:
        session.add(Team(name="red"))
        session.flush()
        session.add_all(
            Connection(conn_id=name, conn_type="cdc_memory", team_name="red") for name in ("shop", "script")
        )
    yield
    with create_session() as session:
        session.execute(sa.delete(Connection).where(Connection.conn_id.in_(["shop", "script"])))
        session.execute(sa.delete(Team).where(Team.name == "red"))


@pytest.mark.parametrize(
    ("teams_of_ann", "may"),
    [
        ([], {"shop": "read operate"}),
        (["red"], {"shop": "read operate administer", "script": "read operate administer"}),
        (["blue"], {"shop": "read operate", "billing": "read operate administer"}),
    ],
)
def test_dags_and_connections_of_a_team_are_for_its_members(
    teams: None, client_factory: ClientFactory, teams_of_ann: list[str], may: dict[str, str]
) -> None:
    """Teams are as in Airflow; a connection from a secrets backend alone is of the team of the DAG that finds it."""
    client = client_factory("anna", "OP", teams_of_ann)
    assert {row["connector"] for row in client.get("/api/v1/connectors").json()["connectors"]} == may.keys()
    for connector in ("shop", "billing", "script"):
        answer = client.get(f"/api/v1/connectors/{connector}")
        if connector in may:
            assert " ".join(right for right in answer.json()["rights"] if right != "rows") == may[connector]
        else:
            assert answer.status_code == 404
        forgets = client.post(f"/api/v1/connectors/{connector}/actions/reset-offset", json={}).status_code
        assert forgets in ((200, 409) if "administer" in may.get(connector, "") else (403, 404))


def test_pages_use_the_connections_of_the_team_of_the_dag(
    teams: None, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections of Airflow's tables: Airflow itself finds those of a team only for that team."""
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    for name in ("shop", "script"):
        monkeypatch.delenv(f"AIRFLOW_CONN_{name.upper()}")
        with create_session() as session:
            session.execute(sa.update(Connection).where(Connection.conn_id == name).values(host="pages"))
    for dag_team, status in (("red", 200), ("blue", 409), (None, 409)):
        monkeypatch.setitem(DAG_TEAMS, "shop_dag", dag_team)
        client = client_factory("anna", "OP", ["red", "blue"])
        answer = client.post("/api/v1/connectors/shop/check", json={})
        assert answer.status_code == status, answer.text
        if status == 409:
            assert "Connection shop, with which the connector reads its source, does not exist" in answer.text
        for route in ("gap", "actions/reset-offset"):
            found = client.post(f"/api/v1/connectors/shop/{route}", json={}).text
            assert ("does not exist" in found) == (status == 409), found
    assert client_factory("anna", "OP", ["red"]).post("/api/v1/wizard/connections/shop", json={}).status_code == 200


def test_a_connector_whose_dag_is_deleted_is_decided_by_its_connection(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DAG that Airflow no longer has belongs to no team, and so to all teams."""
    monkeypatch.setattr(authorization, "known_dags", lambda ids: {})
    monkeypatch.setattr(authorization, "teams_of", lambda conn_ids: {"shop": "red"})
    asked: list[str | None] = []
    manager = type(get_auth_manager())
    monkeypatch.setattr(manager, "is_authorized_dag", lambda *_, **__: asked.append("dag") or True)
    monkeypatch.setattr(
        manager,
        "is_authorized_connection",
        lambda _, *, details, **__: asked.append(details.team_name) or False,
    )
    if has_teams():  # Airflow 3.1 asks about each connection
        monkeypatch.setattr(manager, "filter_authorized_connections", lambda _, **__: set())
    client = client_factory("eve", "OP")
    assert client.get("/api/v1/connectors").json()["connectors"] == []
    assert client.get("/api/v1/connectors/shop").status_code == 404
    assert client.post("/api/v1/connectors/shop/actions/pause", json={}).status_code == 404
    assert set(asked) == ({"red"} if has_teams() else {"red", None})


def test_an_auth_manager_that_is_far_away_is_asked_once_for_all_connectors(
    fleet: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some ask a server for each answer; of many ids they ask it once."""
    questions: list[set[str]] = []

    class Far(SimpleAuthManager):
        def filter_authorized_dag_ids(self, *, dag_ids: set[str], **more: Any) -> set[str]:
            questions.append(dag_ids)
            return dag_ids & {"dag7", "shop_dag"}

        def is_authorized_dag(self, **more: Any) -> bool:
            pytest.fail("asked about one DAG alone")

    for n in range(20):
        fleet.store.register_connector(
            ConnectorRegistration(f"more{n}", "memory", "/log", connections={"dag": f"dag{n}"})
        )
    set_auth_manager(monkeypatch, Far())
    found = client_factory("ann", "USER").get("/api/v1/connectors").json()
    assert {one["connector"] for one in found["connectors"]} == {"more7", "shop"}
    assert [len(ids) for ids in questions] == [22]


def test_the_teams_of_all_connections_are_one_query(teams: None, fleet: ShopConnector) -> None:
    asked_for: list[str] = []
    listener = lambda *a: asked_for.append(a[2])  # noqa: E731
    sa.event.listen(sa.Engine, "before_cursor_execute", listener)
    try:
        known = known_of(fleet.store.list_connectors())
        records = {record.connector: record for record in fleet.store.list_connectors()}
        before = len(asked_for)
        assert [known.find_team(records[name]) for name in ("shop", "billing", "script")] == ["red", "blue", "red"]
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", listener)
    assert len(asked_for) == before + 1


def test_a_hidden_connector_answers_as_a_missing_one(fleet: ShopConnector, client_factory: ClientFactory) -> None:
    client = client_factory("ann", "USER")
    for method, path, _ in ROUTES:
        if "{connector}" in path:
            body = BODIES.get(path.rpartition("/")[2], {}) if method == "POST" else None
            hidden, missing = (
                client.request(method, path.replace("{connector}", name).replace("{batch}", "1"), json=body).text
                for name in ("billing", "nothing")
            )
            assert hidden.replace("billing", "nothing") == missing


def test_pages_show_the_state_of_the_configured_connection(
    shop_connector: ShopConnector, client_factory: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CDC__STATE_CONN_ID", "cdc_state_red")
    answer = client_factory().get("/api/v1/connectors")
    assert (answer.status_code, "cdc_state_red" in answer.text) == (503, True)
    connect(monkeypatch, "cdc_state_red", conn_type="cdc_state", password=str(shop_connector.store.database.engine.url))
    assert client_factory().get("/api/v1/connectors").json()["total"] == 1


def test_metrics_need_a_login(shop_connector: ShopConnector, client_factory: ClientFactory) -> None:
    assert client_factory(role=None).get("/metrics").status_code == 401
