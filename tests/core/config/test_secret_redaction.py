"""Secrets are known by the names of settings and by the form of texts: generated over both."""

from __future__ import annotations

import time
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.connector import ConnectorDefinition, refuse_secrets
from airflow_provider_cdc.core.config.secret_redaction import (
    find_credentials,
    is_secret_name,
    secret_options,
    secret_values,
    strip_credentials,
)
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources import SOURCES, config_class

MARKERS = ("sesame", "s3s@me", "a/b", "pa:ss", '"q u"')
"""A blank ends a URL, and where a password with ``@`` or ``:`` ends no one can tell in ``user:password@host``."""
FORMS = (
    "scheme://cdc:{}@db:1521/orcl",
    "jdbc:mysql://cdc:{}@db/shop?useSSL=true",
    "jdbc:oracle:thin:cdc/{}@//db:1521/ORCL",
    "jdbc:oracle:thin:cdc/{}@(DESCRIPTION=(ADDRESS=(HOST=db)))",
    "cdc/{}@ORCL",
    "cdc/{}@//db:1521/ORCL",
    "cdc:{}@db",
    "tcps://db:2484/orcl?wallet_location=/w&wallet_password={}",
    "jdbc:mysql://db/shop?user=cdc&password={}",
    "(DESCRIPTION=(SECURITY=(MY_WALLET_PASSWORD={}))(ADDRESS=(HOST=db)))",
    "Server=db;User=cdc;Pwd={};Encrypt=yes",
)
INNOCENT = (
    "jdbc:oracle:thin:@//db:1521/ORCL",
    "//db:1521/ORCL",
    "db:1521:ORCL",
    "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcps)(HOST=db)(PORT=2484))(CONNECT_DATA=(SERVICE_NAME=orcl)))",
    "tcps://db:2484/orcl?wallet_location=/w&ssl_server_dn_match=on",
    "/@wallet_alias",
    "s3://lake/changelog",
    "hdfs://cdc@namenode:9000/lake",
    "broker-1:9092,broker-2:9092",
    "C:\\oracle\\wallet",
)


def test_credentials_are_found_and_cut_out_of_every_form() -> None:
    cases = list(product(FORMS, MARKERS))
    for form, marker in cases:
        if (marker == '"q u"' and "cdc:{}@" in form) or (marker in ("s3s@me", "pa:ss") and form.startswith("cdc:")):
            continue
        text = form.format(marker)
        assert find_credentials("database.url", text), text
        assert marker.strip('"') not in strip_credentials("database.url", text), text
    print(f"{len(cases)} cases")


@pytest.mark.parametrize("text", INNOCENT)
def test_addresses_without_credentials_stay_as_they_are(text: str) -> None:
    assert find_credentials("database.url", text) == []
    assert strip_credentials("database.url", text) == text


@given(st.text(max_size=60))
def test_cutting_credentials_out_ends_and_leaves_none(text: str) -> None:
    once = strip_credentials("database.url", text)
    assert isinstance(once, str)
    assert (
        not find_credentials(
            "changelog.url", strip_credentials("changelog.url", f"x://u:{text.replace(' ', '')}pw@h/p")
        )
        or " " in text
    )


def test_texts_of_other_settings_are_no_connect_strings() -> None:
    for text in ("inventory/(a|b)@c", "UPDATE x SET password = 'y'", "a:b@c"):
        assert find_credentials("heartbeat.action.query", text) == []


OPTIONS = (
    {"secret": "X"},
    {"token": "X"},
    {"password": "X"},
    {"account_key": "X"},
    {"connection_string": "AccountName=a;AccountKey=X"},
    {"sas_token": "X"},
    {"client_kwargs": {"aws_secret_access_key": "X"}},
    {"config_kwargs": {"proxies": {"https": "http://me:X@proxy:3128"}}},
    {"headers": {"Authorization": "Bearer X"}},
    {"token": {"private_key": "X", "client_email": "a@b"}},
    {"s3_additional_kwargs": {"SSECustomerKey": "X"}},
    {"credential": "X"},
    {"endpoint_url": "https://me:X@store"},
)


@pytest.mark.parametrize("options", OPTIONS)
def test_secret_storage_options_are_found_at_any_depth(options: dict[str, Any]) -> None:
    assert secret_options(options)
    assert any("X" in secret for secret in secret_values(options))


def test_storage_options_without_a_secret_are_none() -> None:
    options = {"anon": True, "token": "anon", "endpoint_url": "http://s3:9000", "client_kwargs": {"region_name": "eu"}}
    assert secret_options(options) == []
    assert not is_secret_name("key")  # the id of an access key; its secret is another option


@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_no_property_of_any_source_may_bring_credentials_in_a_definition(kind: str) -> None:
    texts = [str(f.alias) for f in config_class(kind).model_fields.values() if "*" not in str(f.alias)]
    for name in texts:
        with pytest.raises(ConfigError, match="holds a secret") as caught:
            refuse_secrets(ConnectorDefinition("shop", kind, "/log", {name: "scheme://cdc:sesame@db/x"}))
        assert "sesame" not in str(caught.value)
    print(f"{len(texts)} properties of {kind}")


@pytest.mark.parametrize("options", OPTIONS)
def test_a_definition_with_a_secret_in_its_storage_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="changelog_options") as caught:
        refuse_secrets(ConnectorDefinition("shop", "memory", "/log", {}, options))
    assert "X" not in str(caught.value)


def test_a_change_log_with_credentials_in_its_address_is_refused() -> None:
    with pytest.raises(ConfigError, match="changelog") as caught:
        refuse_secrets(ConnectorDefinition("shop", "memory", "sftp://cdc:sesame@lake/log"))
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("name", ["changelog.url", "comment"])
@pytest.mark.parametrize("begin", ["", "u/", "u:", "x://", "a="])
def test_the_time_is_linear_in_the_length_of_a_text(name: str, begin: str) -> None:
    units = [
        "".join(unit)
        for size in (1, 2)
        for unit in product(('"', "'", "a", " ", ":", "@", "(", "=", "://", "/", "."), repeat=size)
    ]
    # an exponential time takes years: it shows at lengths at which it still ends
    for times, unit in product(range(8, 64, 2), units):
        began = time.thread_time()
        strip_credentials(name, begin + unit * times)
        assert time.thread_time() - began < 0.3, (unit, times)
    began = time.thread_time()
    for unit in units:
        strip_credentials(name, begin + unit * (20_000 // len(unit)))
    seconds = (time.thread_time() - began) / len(units)
    assert seconds < 0.03  # a quadratic one takes seconds
