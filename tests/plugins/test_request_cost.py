"""A request holds a worker of the API server only briefly, whatever texts it has in each of its fields: of any length and of any alphabet."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient

from airflow_provider_cdc.plugins.api.body_limit import MOST_BYTES
from airflow_provider_cdc.plugins.plugin_app import app
from airflow_provider_cdc.sources import SOURCES, config_class
from tests.plugins.conftest import ClientFactory
from tests.plugins.test_any_request import quote
from tests.plugins.test_authorization import BODIES
from tests.support.airflow.airflow_connector import ShopConnector

MOST_S = {"VIEWER": 0.1, "ADMIN": 3.0}
"""Processor time of a request by role, in all threads of the process, the client's among them. An administrator's request may do work."""
TRIES = 5
"""A request is too slow if it is so each time: a first one may load code."""
ALPHABETS = {
    "quotes": '"', "login": "u/" + '"' * 59, "addresses": "jdbc:oracle:thin:u/", "urls": "http://a:", "groups": "(a|a)*", "nested": "(" * 40, "pattern": "([a-z]+.?)+",
    "settings": "a.b=", "brackets": "[", "braces": '{"a":', "escapes": "\\", "spaces": " ", "stars": ".*", "numbers": "9", "lines": "\n", "accents": "\u0130", "commas": "a.b,", "comments": "/*",
    "percent": "%", "templates": "{{", "dashes": "--", "sets": "[a-z],", "letters": "a", "semicolons": "a:b;",
}  # fmt: skip
"""Texts that are repeated up to a length."""
LENGTHS = (60, 2_000, 20_000, 200_000)
LONGEST_IN_URL = 20_000
_SCHEMAS = app.openapi()["components"]["schemas"]
Fill = Callable[[str], tuple[str, Any]]


@dataclass(frozen=True)
class TextField:
    """A field of a request that may have any text.

    :param fill: makes query and body with a text in the field, and otherwise a request that can be answered
    """

    operation: str
    name: str
    where: str
    longest: int
    fill: Fill

    def __str__(self) -> str:
        return f"{self.operation} {self.where} {self.name}"


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, and take the branch of several that may have a text."""
    if "$ref" in schema:
        return _resolve(_SCHEMAS[schema["$ref"].rpartition("/")[2]])
    branches = [_resolve(branch) for branch in schema.get("anyOf", ())]
    return next((branch for branch in branches if branch.get("type") in ("string", "array", "object")), schema)


def _values(name: str, schema: dict[str, Any]) -> Iterator[tuple[str, int, Callable[[str], Any]]]:
    """Names, largest length and values of the texts that a field of a body may have."""
    schema = _resolve(schema)
    match schema.get("type"):
        case "string":
            yield name, schema.get("maxLength", LENGTHS[-1]), lambda text: text
        case "array":
            most = schema.get("maxItems", 5000)
            items = _resolve(schema["items"])
            longest = items.get("maxLength", LENGTHS[-1])
            yield f"{name}[]", longest, lambda text: [text]
            yield f"{name}[{most}]", longest, lambda text: [f"{i}{text}"[: _share(most)] for i in range(most)]
            yield f"{name}[{most}] short", longest, lambda text: [f"{i}{text}"[:12] for i in range(most)]
            yield f"{name}[{most}] wrong", longest, lambda text: [""] * (most - 1) + [text]
        case "object":
            yield f"{name}: value", LENGTHS[-1], lambda text: {"x": text}
            yield f"{name}: name", LENGTHS[-1], lambda text: {text: "1"}


def _share(items: int) -> int:
    """Length of each of so many texts, so that all of them are a body that is just small enough."""
    return max(1, (MOST_BYTES - 1000) // (items * 2) - 4)


def _body_fields(operation: str, schema: dict[str, Any]) -> Iterator[TextField]:
    base = BODIES.get(operation.rpartition("/")[2], {})
    for name, field in _resolve(schema)["properties"].items():
        for label, longest, value in _values(name, field):
            yield TextField(operation, label, "body", longest, lambda text, n=name, v=value: ("", {**base, n: v(text)}))  # type: ignore[misc]


def _text_fields() -> Iterator[TextField]:
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            valid = None if body is None else BODIES.get(path.rpartition("/")[2], {})
            for parameter in operation.get("parameters", ()):
                label, where = parameter["name"], parameter["in"]
                if where == "query":
                    fill: Fill = lambda text, n=label, b=valid: (f"{n}={quote(text)}", b)  # type: ignore[misc] # noqa: E731
                else:
                    fill = lambda text, b=valid: ("", b)  # noqa: E731
                yield TextField(name, label, where, LONGEST_IN_URL, fill)
            if body is not None:
                yield from _body_fields(name, body)


FIELDS = {str(field): field for field in _text_fields()}
PROPERTIES = sorted(
    {(kind, str(field.alias)) for kind in SOURCES for field in config_class(kind).model_fields.values() if field.alias}
)
"""Kinds of sources with their properties: the wizard takes any of them."""


def _measure(client: TestClient, operation: str, url: str, body: Any) -> float:
    """Processor time of a request, the least of several tries."""
    method, _, _ = operation.partition(" ")
    content = None if method == "GET" else json.dumps({} if body is None else body)
    headers = {} if content is None else {"content-type": "application/json"}
    costs = []
    for _ in range(TRIES):
        began = time.process_time()
        client.request(method, url, content=content, headers=headers, follow_redirects=False)
        costs.append(time.process_time() - began)
        if costs[-1] < MOST_S["VIEWER"] / 2:
            break
    return min(costs)


def _texts(longest: int, most: int) -> Iterator[tuple[str, str]]:
    for name, alphabet in ALPHABETS.items():
        for length in sorted({min(length, most) for length in (*LENGTHS, longest)}):
            yield f"{length:,} characters of {name}", (alphabet * length)[:length]


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("role", ["VIEWER", "ADMIN"])
def test_a_request_costs_little_whatever_a_field_says(
    shop_connector: ShopConnector, client_factory: ClientFactory, name: str, role: str
) -> None:
    field, client = FIELDS[name], client_factory("eve", role)
    path = field.operation.partition(" ")[2]
    values = {"connector": "shop", "connection": "shop", "batch": "1"}
    costs: dict[str, float] = {}
    for what, text in _texts(field.longest, LONGEST_IN_URL if field.where != "body" else LENGTHS[-1]):
        query, body = field.fill(text)
        url = path
        for parameter, value in values.items():
            url = url.replace(f"{{{parameter}}}", quote(text) if (field.where, field.name) == ("path", parameter) else value)  # fmt: skip
        if len(url) + len(query) > 60_000:  # no server takes a longer one
            continue
        costs[what] = _measure(client, field.operation, f"{url}?{query}", body)
    slowest = max(costs, key=lambda what: costs[what])
    print(f"{costs[slowest] * 1000:.0f} ms: {name} as {role}, {slowest}")
    assert costs[slowest] < MOST_S[role], f"{costs[slowest]:.2f} s of the processor for {slowest}"


@pytest.mark.sampled(150)
@pytest.mark.parametrize(("kind", "name"), PROPERTIES, ids=[" ".join(pair) for pair in PROPERTIES])
def test_a_definition_costs_little_whatever_a_property_says(
    shop_connector: ShopConnector, client_factory: ClientFactory, kind: str, name: str
) -> None:
    client, costs, url = client_factory("eve", "VIEWER"), dict[str, float](), "/api/v1/wizard/definition"
    for what, text in _texts(20_000, 20_000):
        body = BODIES["definition"] | {"source": kind, "properties": {name: text}}
        costs[what] = _measure(client, f"POST {url}", url, body)
    slowest = max(costs, key=lambda what: costs[what])
    print(f"{costs[slowest] * 1000:.0f} ms: {name} of {kind}, {slowest}")
    assert costs[slowest] < MOST_S["VIEWER"], f"{costs[slowest]:.2f} s of the processor for {slowest}"


def test_a_large_body_is_refused_before_it_is_read(
    shop_connector: ShopConnector, client_factory: ClientFactory
) -> None:
    headers = {"content-type": "application/json"}
    for content in (b" " * (MOST_BYTES + 1), iter([b"[" * 600_000] * 2)):
        answer = client_factory().post("/api/v1/wizard/definition", content=content, headers=headers)
        assert answer.status_code == 413
        assert "larger than" in answer.json()["detail"]
    names = "x" * (MOST_BYTES - 100)
    answer = client_factory().post("/api/v1/wizard/definition", json={"name": names})
    assert answer.status_code == 422
