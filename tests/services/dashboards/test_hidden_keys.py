"""Parts of rows in documents of the state, which are hidden from users who may not see rows."""

from __future__ import annotations

import json

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.services.dashboards.hidden_keys import HIDDEN, hide_keys, hide_keys_in_text

SECRET = "ann@example.com"


def test_an_offset_shows_its_tables_and_no_key() -> None:
    scan = {"table": "shop.users", "request": 1, "order": ["mail"], "after": [SECRET], "upto": [SECRET], "rows": 7}
    document = {"position": {"entry": 1}, "incremental": {"scans": [{**scan, "condition": f"mail > '{SECRET}'"}]}}
    hidden = hide_keys(document)
    assert SECRET not in json.dumps(hidden)
    assert hidden["position"] == {"entry": 1}
    assert hidden["incremental"]["scans"][0]["table"] == "shop.users"
    plain = Offset().model_dump(mode="json")
    assert hide_keys(plain) == plain


def test_a_text_that_is_cut_is_hidden_as_a_whole_if_it_may_hold_a_key() -> None:
    assert hide_keys_in_text(f'{{"key-ranges": [["{SECRET}"') == HIDDEN
    assert hide_keys_in_text('{"data-collections": ["shop.us') == '{"data-collections": ["shop.us'
    assert hide_keys_in_text("[" * 100_000 + "key") == HIDDEN
    assert hide_keys_in_text(None) is None
