"""Whatever is sent to the API, well-formed or not, it answers, and never with an error of its own: schemathesis makes the requests from the OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from airflow_provider_cdc.dag import lifecycle_dag, tables_dag
from airflow_provider_cdc.plugins.app import app
from tests.plugins.conftest import Asked, known_to_airflow
from tests.support.face import Shop

DOCUMENT = schemathesis.openapi.from_dict(app.openapi())
OPERATIONS = {f"{one.ok().method} {one.ok().path}": one.ok() for one in DOCUMENT.get_all_operations()}
EXAMPLES = 5
ANSWERS = {200, 400, 403, 404, 405, 409, 415, 422}
"""400 are bodies that are no JSON; 403 are rows, which the configuration has to allow; a path that is made of odd characters may be no route, or one of another method."""


@pytest.fixture(scope="module")
def forms(metadata: None) -> None:
    known_to_airflow(lifecycle_dag(["shop"]), tables_dag(["shop"]))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_request_is_answered(shop: Shop, asked: Asked, forms: None, name: str) -> None:
    operation, client = OPERATIONS[name], asked()
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases, st.booleans())
    def answered(case: Any, known: bool) -> None:
        if known and "connector" in (case.path_parameters or {}):
            case.path_parameters["connector"] = "shop"
        sent = case.as_transport_kwargs(base_url="http://testserver")
        answer = client.request(
            sent["method"], sent["url"], params=sent.get("params"), headers=dict(sent.get("headers") or {}),
            json=sent.get("json"), content=sent.get("data"), follow_redirects=False,
        )  # fmt: skip
        assert answer.status_code in ANSWERS, (sent, answer.status_code, answer.text)
        assert answer.headers["content-type"] == "application/json"

    answered()


def test_every_route_has_requests() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in app.openapi()["paths"].values())
