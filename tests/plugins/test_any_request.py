"""Whatever is sent to the API, well-formed or not, it answers, and never with an error of the server: schemathesis makes the requests from the OpenAPI document."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote as quoted

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from airflow_provider_cdc.dag import lifecycle_dag, tables_dag
from airflow_provider_cdc.plugins.plugin_app import app
from tests.plugins.conftest import ClientFactory, known_to_airflow
from tests.plugins.test_authorization import BODIES
from tests.support.airflow.airflow_connector import ShopConnector

DOCUMENT = schemathesis.openapi.from_dict(app.openapi())
OPERATIONS = {f"{one.ok().method} {one.ok().path}": one.ok() for one in DOCUMENT.get_all_operations()}
EXAMPLES = 5
ANSWERS = {200, 400, 403, 404, 405, 409, 415, 422}
"""400 are bodies that are no JSON; 403 are rows, which the configuration has to allow; a path that is made of odd characters may be no route, or one of another method."""

AWKWARD = [
    "x" * 10_000, "\0", "a\0b", "\ud800", "\udcff", "../../etc/passwd", "..", "%2F", "a/b", "%00", "\u202eabc", "<b>\"'", "${x}", "9" * 400, "-1", str(1 << 63),
    str(1 << 64), "1e400", "NaN", "\n", "", " ", "\U0001f600", "x'; DROP TABLE cdc_connectors; --",
]  # fmt: skip
"""Texts where names, numbers and keys belong."""
UNUSUAL = [
    "NaN", "Infinity", "[" * 5000, '{"a":' * 5000, '{"version": NaN}', f'{{"version": {"9" * 400}}}', '{"version": 1e400}', f'{{"seconds": {"9" * 5000}}}',
    '{"seconds": NaN}', '{"seconds": Infinity}', '{"seconds": true}', '"\\ud800"', '{"\\ud800": 1}', "\0", "", "null", '{"reason": "a\\u0000b"}', '{"tables": ["\\ud800"]}', '{"reason": "\\udfff"}',
]  # fmt: skip
"""Bodies that some reader of JSON takes and another does not."""


@pytest.fixture(scope="module")
def form_dags(metadata: None) -> None:
    known_to_airflow(lifecycle_dag(["shop"], dangerous=True), tables_dag(["shop"], dangerous=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_request_is_answered(
    shop_connector: ShopConnector, client_factory: ClientFactory, form_dags: None, name: str
) -> None:
    operation, client = OPERATIONS[name], client_factory()
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases, st.booleans())
    def answer_request(case: Any, known: bool) -> None:
        if known and "connector" in (case.path_parameters or {}):
            case.path_parameters["connector"] = "shop"
        sent = case.as_transport_kwargs(base_url="http://testserver")
        answer = client.request(
            sent["method"], sent["url"], params=sent.get("params"), headers=dict(sent.get("headers") or {}),
            json=sent.get("json"), content=sent.get("data"), follow_redirects=False,
        )  # fmt: skip
        assert answer.status_code in ANSWERS, (sent, answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/json"
        if answer.status_code not in (400, 405):  # of a server that has not found the route
            case.validate_response(answer, checks=[response_schema_conformance])

    answer_request()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OPERATIONS)
def test_awkward_names_and_values_are_answered(
    shop_connector: ShopConnector, client_factory: ClientFactory, form_dags: None, name: str
) -> None:
    method, _, path = name.partition(" ")
    client, kept = client_factory(), shop_connector.store.load_control("shop")

    def answer_request(url: str, content: str | None) -> None:
        headers = {} if content is None else {"content-type": "application/json"}
        answer = client.request(method, url, content=content, headers=headers, follow_redirects=False)
        late = {503} if path.endswith("/check") else set()  # a source that does not answer in time, on a busy machine
        assert answer.status_code in {*ANSWERS, *late, 307}, (
            url[:300],
            content,
            answer.status_code,
            answer.text[:1000],
        )
        if answer.status_code != 307:  # a slash too many
            assert answer.headers["content-type"] == "application/json"
            json.loads(answer.text)

    reads = method.upper() == "GET"
    body = BODIES.get(path.rpartition("/")[2], {"seconds": 1})
    for text in AWKWARD:
        other, shorter = quote(text), quote(text[:1000])
        for url in {re.sub(r"{[a-z]+}", other, found) for found in (path, path.replace("{connector}", "shop"))}:
            query = "&".join(f"{key}={shorter}" for key in ("limit", "text", "table", "span", "confirm", "state"))
            answer_request(f"{url}?{query}&plan=true", None if reads else json.dumps(_replace_texts(body, text)))
    for content in () if reads else UNUSUAL:
        answer_request(re.sub(r"{[a-z]+}", "shop", path), content)
    assert shop_connector.store.load_control("shop") == kept


def quote(text: str) -> str:
    """Within a URL."""
    return quoted(text, safe="", errors="surrogatepass")


def _replace_texts(body: Any, text: str) -> Any:
    """Each text of a body is another one."""
    match body:
        case dict():
            return {key: _replace_texts(value, text) for key, value in body.items()}
        case list():
            return [_replace_texts(value, text) for value in body]
        case str():
            return text
        case _:
            return body


def test_every_route_has_requests() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in app.openapi()["paths"].values())
