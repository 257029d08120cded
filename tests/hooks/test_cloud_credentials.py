"""Connections to clouds, in the fields of Airflow's own providers, become options of fsspec and credentials for tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError, StorageUnavailable
from airflow_provider_cdc.get_provider_info import get_provider_info
from airflow_provider_cdc.hooks.source import CdcSourceHook
from airflow_provider_cdc.hooks.target_database import CdcDatabaseHook
from airflow_provider_cdc.services.connectors.connector_handle import storage_options
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.support.airflow.airflow_connector import connect

KEY = {"type": "service_account", "private_key": "-----BEGIN"}


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"conn_type": "aws", "login": "AKIA", "password": "s"}, {"key": "AKIA", "secret": "s"}),
        (
            {"conn_type": "aws", "extra": {"aws_access_key_id": "AKIA", "aws_secret_access_key": "s", "aws_session_token": "t"}},
            {"key": "AKIA", "secret": "s", "token": "t"},
        ),
        (
            {"conn_type": "aws", "extra": {"region_name": "eu-central-1", "endpoint_url": "http://store:9000", "profile_name": "etl"}},
            {"profile": "etl", "client_kwargs": {"region_name": "eu-central-1", "endpoint_url": "http://store:9000"}},
        ),
        ({"conn_type": "aws"}, {}),
        ({"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": json.dumps(KEY), "project": "p"}}, {"token": KEY, "project": "p"}),
        ({"conn_type": "google_cloud_platform", "extra": {"extra__google_cloud_platform__key_path": "/k.json"}}, {"token": "/k.json"}),
        ({"conn_type": "google_cloud_platform"}, {}),
        ({"conn_type": "wasb", "login": "lake", "password": "key"}, {"account_name": "lake", "account_key": "key"}),
        (
            {"conn_type": "wasb", "host": "https://lake.blob.core.windows.net/", "extra": {"sas_token": "?sv=1"}},
            {"account_name": "lake", "sas_token": "?sv=1"},
        ),
        ({"conn_type": "wasb", "extra": {"connection_string": "AccountName=lake"}}, {"connection_string": "AccountName=lake"}),
        (
            {"conn_type": "adls", "host": "lake", "login": "app", "password": "s", "extra": {"tenant_id": "t"}},
            {"account_name": "lake", "client_id": "app", "client_secret": "s", "tenant_id": "t"},
        ),
        ({"conn_type": "generic", "login": "unused", "extra": {"key": "k", "anon": False}}, {"key": "k", "anon": False}),
    ],
    ids=str,
)  # fmt: skip
def test_a_connection_to_a_cloud_is_translated(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    connect(monkeypatch, "lake", **fields)
    assert storage_options("lake") == options


def test_s3fs_takes_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")
    extra = {"region_name": "eu-central-1", "endpoint_url": "http://store:9000"}
    connect(monkeypatch, "lake", conn_type="aws", login="AKIA", password="s", extra=extra)
    filesystem = s3fs.S3FileSystem(skip_instance_cache=True, **storage_options("lake"))
    assert (filesystem.key, filesystem.secret) == ("AKIA", "s")
    assert filesystem.client_kwargs["region_name"] == "eu-central-1"


def test_a_role_that_cannot_be_assumed_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens at the address of the service."""
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    extra = {
        "role_arn": "arn:aws:iam::1:role/etl",
        "region_name": "eu-central-1",
        "sts_endpoint_url": "http://127.0.0.1:9",
    }
    connect(monkeypatch, "lake", conn_type="aws", login="AKIA", password="hunter2", extra=extra)
    with pytest.raises(StorageUnavailable, match=r"role/etl.*EndpointConnectionError") as caught:
        storage_options("lake")
    assert "hunter2" not in str(caught.value)


CLOUDS = pytest.mark.parametrize(
    ("cloud", "fields", "provider", "credentials"),
    [
        ({}, {}, "aws_rds", {}),
        ({"aws_conn_id": "lake", "region_name": "eu-west-1"}, {"conn_type": "aws", "login": "AKIA", "password": "s"}, "aws_rds",
         {"aws_access_key_id": "AKIA", "aws_secret_access_key": "s", "region_name": "eu-west-1"}),
        ({"gcp_conn_id": "lake"}, {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": KEY}}, "google_cloud_sql", {"keyfile_dict": KEY}),
        ({"azure_conn_id": "lake"}, {"conn_type": "azure", "login": "c", "password": "s", "extra": {"tenantId": "t"}}, "azure_entra",
         {"client_id": "c", "client_secret": "s", "tenant_id": "t"}),
        ({"aws_conn_id": "lake"}, {"conn_type": "aws", "extra": {"role_arn": "arn:etl", "region_name": "eu-west-1"}}, "aws_rds",
         {"region_name": "eu-west-1", "role_arn": "arn:etl"}),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip


@CLOUDS
def test_iam_in_the_extra_of_a_target_is_a_login_by_token(
    monkeypatch: pytest.MonkeyPatch,
    cloud: dict[str, str],
    fields: dict[str, Any],
    provider: str,
    credentials: dict[str, Any],
) -> None:
    if fields:
        connect(monkeypatch, "lake", **fields)
    extra = {"iam": True, **cloud}
    connect(monkeypatch, "warehouse", conn_type="postgres", host="db", login="cdc", password="unused", extra=extra)
    properties = CdcDatabaseHook("warehouse").resolve_properties()
    assert properties["connection.token.provider"] == provider
    assert json.loads(properties["connection.token.credentials"]) == credentials
    assert "connection.password" not in properties
    engine = open_engine(DatabaseTargetConfig.parse(properties))
    assert engine.url.query["sslmode"] == "require"
    engine.dispose()


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
@CLOUDS
def test_iam_in_the_extra_of_a_source_is_a_login_by_token(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    cloud: dict[str, str],
    fields: dict[str, Any],
    provider: str,
    credentials: dict[str, Any],
) -> None:
    if fields:
        connect(monkeypatch, "lake", **fields)
    extra = {"iam": True, "database.ssl.mode": "verify_identity", **cloud}
    connect(monkeypatch, "shop", conn_type=f"cdc_{kind}", host="db", login="cdc", password="unused", extra=extra)
    properties = CdcSourceHook("shop").resolve_properties()
    assert json.loads(properties.pop("database.token.credentials")) == credentials
    assert properties == {
        "database.hostname": "db",
        "database.user": "cdc",
        "database.ssl.mode": "verify_identity",
        "database.token.provider": provider,
    }


def test_a_source_without_logins_by_token_refuses_iam(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "shop", conn_type="cdc_oracle", host="db", login="cdc", extra={"iam": True})
    with pytest.raises(ConfigError, match="cannot contain iam"):
        CdcSourceHook("shop").resolve_properties()


def test_the_form_of_a_source_shows_the_fields_of_logins_by_token() -> None:
    types = {each["connection-type"]: each["conn-fields"] for each in get_provider_info()["connection-types"]}
    shown = {"iam", "aws_conn_id", "gcp_conn_id", "azure_conn_id", "region_name"}
    assert shown <= types["cdc_mysql"].keys() & types["cdc_mariadb"].keys()
    assert not shown & types["cdc_oracle"].keys()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"conn_type": "postgres", "extra": {"iam": True, "sslmode": "prefer"}}, "sslmode=prefer"),
        ({"conn_type": "mysql", "extra": {"iam": True}}, "no ssl_ca"),
        ({"conn_type": "mssql", "extra": {"iam": True}}, "does not support"),
        ({"conn_type": "postgres", "extra": {"iam": True, "aws_conn_id": "a", "gcp_conn_id": "b"}}, "several clouds"),
    ],
    ids=str,
)
def test_a_token_is_not_sent_in_plain_text_or_to_a_database_without_such_logins(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], words: str
) -> None:
    connect(monkeypatch, "warehouse", host="db", login="cdc", **fields)
    with pytest.raises(ConfigError, match=words):
        CdcDatabaseHook("warehouse").resolve_properties()


def test_a_connection_without_iam_keeps_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(
        monkeypatch, "warehouse", conn_type="postgres", host="db", login="cdc", password="s", extra={"iam": "false"}
    )
    properties = CdcDatabaseHook("warehouse").resolve_properties()
    assert properties["connection.password"] == "s"
    assert sa.make_url(properties["connection.url"]).query == {}
