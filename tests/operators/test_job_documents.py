"""Jobs as plain dictionaries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.operators.job_documents import cdc_job

SHOP = ConnectorDefinition("shop", "mariadb", "s3://lake/changelog", {}, {"anon": False})


def test_a_job_is_a_dictionary_that_json_knows_without_a_connection_or_a_secret() -> None:
    job = cdc_job(
        SHOP, location="s3a://lake/{table}", application_uri="s3://lake/cdc/", threads=3, storage_conn_id="not_there"
    )
    assert json.loads(json.dumps(job)) == job
    assert job["script"] == "s3://lake/cdc/apply_changes.py"
    assert job["package"] == "s3://lake/cdc/airflow_provider_cdc.zip"
    assert job["arguments"][:4] == ["--changelog", "s3://lake/changelog", "--connector", "shop"]
    assert job["arguments"][job["arguments"].index("--threads") + 1] == "3"
    assert job["secret_environment"] == ["CDC_STORAGE_OPTIONS"]
    assert job["packages"][0].startswith("io.delta:")


def test_without_a_folder_the_script_is_that_of_this_machine() -> None:
    job = cdc_job(SHOP, kind="maintain", location="/lake/{table}", target="iceberg", packages="a:b:1")
    assert job["script"].startswith("/")
    assert job["script"].endswith("/maintain_tables.py")
    assert job["packages"] == ["a:b:1"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "verify"}, "kind='verify' is not known"),
        ({"conf": {"spark.hadoop.fs.s3a.secret.key": "sesame"}}, r"conf\[spark.hadoop.fs.s3a.secret.key\]"),
    ],
)
def test_a_job_that_cannot_be_described_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        cdc_job(SHOP, location="/lake/{table}", **given)
    assert "sesame" not in str(caught.value)
