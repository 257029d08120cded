"""A request holds a worker of the API server only briefly, whatever texts it brings: of any length and of any alphabet."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.plugins.conftest import ClientFactory
from tests.plugins.test_any_request import OPERATIONS, _replace_texts, quote
from tests.plugins.test_authorization import BODIES
from tests.support.airflow.airflow_connector import ShopConnector

MOST_S = 0.1
"""Processor time of a request, in all threads of the process, the client's among them."""
TRIES = 3
"""A request is too slow if it is so each time: a first one may load code."""
ALPHABETS = {
    "quotes": '"', "login": "u/" + '"' * 59, "addresses": "jdbc:oracle:thin:u/", "urls": "http://a:", "groups": "(a|a)*", "nested": "(" * 40, "pattern": "([a-z]+.?)+",
    "settings": "a.b=", "brackets": "[", "braces": '{"a":', "escapes": "\\", "spaces": " ", "stars": ".*", "numbers": "9", "lines": "\n", "accents": "\u0130", "commas": "a.b,", "comments": "/*",
    "percent": "%", "templates": "{{", "dashes": "--",
}  # fmt: skip
"""Texts that are repeated up to a length."""
LENGTHS = (60, 2_000, 20_000, 200_000)


@pytest.mark.sampled(150)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_viewers_request_costs_little_whatever_it_says(
    shop_connector: ShopConnector, client_factory: ClientFactory, name: str, alphabet: str, length: int
) -> None:
    method, _, path = name.partition(" ")
    text = (ALPHABETS[alphabet] * length)[:length]
    in_url = quote(text[:1_000])
    query = "&".join(f"{key}={in_url}" for key in ("text", "table", "confirm", "tag", "source", "state"))
    url = re.sub(r"{[a-z]+}", in_url, path.replace("{connector}", "shop"))
    body = (
        None if method.upper() == "GET" else json.dumps(_replace_texts(BODIES.get(path.rpartition("/")[2], {}), text))
    )
    headers = {} if body is None else {"content-type": "application/json"}
    client, costs = client_factory("eve", "VIEWER"), []
    for _ in range(TRIES):
        began = time.process_time()
        client.request(method, f"{url}?{query}", content=body, headers=headers, follow_redirects=False)
        costs.append(time.process_time() - began)
        if costs[-1] < MOST_S:
            return
    pytest.fail(f"{min(costs):.2f} s of the processor for {length:,} characters of {alphabet}")
