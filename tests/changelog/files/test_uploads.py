"""Uploads in parts that were begun and never completed: S3 keeps them, and shows them in no listing."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.storage import Storage
from dev.servers import S3
from tests.support.change_log.manifests import manifest

ROOT = Path(__file__).resolve().parents[3]
PART = 5 << 20
"""The smallest that S3 takes."""

KILLED = """
import json, os, sys
from airflow_provider_cdc.changelog.files.storage import Storage
url, options = json.loads(sys.argv[1])
storage = Storage(url, options)
file = storage.open_output(storage.join_path("c", "data", "000000000001", "f.parquet"))
file.write(bytes(12 << 20))
os._exit(9)
"""


class Bucket:
    """A bucket, and what is begun in it."""

    def __init__(self, s3: S3) -> None:
        self.name = f"b{uuid4().hex[:12]}"
        self.url = f"{s3.bucket(self.name)}/log"
        self.options: dict[str, Any] = {**s3.storage_options, "default_block_size": PART}
        self._client = s3.connect()

    def begin(self, key: str) -> None:
        self._client.create_multipart_upload(Bucket=self.name, Key=f"log/{key}")

    def begun(self) -> list[str]:
        found = self._client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])
        return sorted(upload["Key"].removeprefix("log/") for upload in found)


@pytest.fixture
def bucket(s3: S3) -> Bucket:
    return Bucket(s3)


def test_an_upload_of_a_run_that_was_killed_is_given_up_with_the_next_batch(bucket: Bucket) -> None:
    command = [sys.executable, "-c", KILLED, json.dumps([bucket.url, bucket.options])]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 9
    assert bucket.begun() == ["c/data/000000000001/f.parquet"]
    changelog, batch = ChangeLog(bucket.url, bucket.options), manifest(1)
    changelog.commit_manifest(batch)
    changelog.delete_orphan_files(batch)
    assert bucket.begun() == []


def test_uploads_of_other_batches_and_connectors_stay(bucket: Bucket) -> None:
    others = ["c/data/000000000002/f", "d/data/000000000001/f"]
    for key in (*others, "c/data/000000000001/f"):
        bucket.begin(key)
    ChangeLog(bucket.url, bucket.options).delete_orphan_files(manifest(1))
    assert bucket.begun() == others


def test_a_connector_is_deleted_with_what_it_has_begun(bucket: Bucket) -> None:
    for key in ("c/data/000000000001/f", "c/data/000000000009/f", "cc/data/000000000001/f"):
        bucket.begin(key)
    ChangeLog(bucket.url, bucket.options).delete("c")
    assert bucket.begun() == ["cc/data/000000000001/f"]


def test_a_discarded_file_is_not_uploaded(bucket: Bucket) -> None:
    storage = Storage(bucket.url, bucket.options)
    path = storage.join_path("c", "f")
    file = storage.open_output(path)
    file.write(bytes(12 << 20))
    assert bucket.begun() == ["c/f"]
    file.discard()
    assert bucket.begun() == []
    assert storage.read(path) is None


def test_an_account_that_may_not_list_uploads_gets_one_warning(
    bucket: Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server checks no rights: the client's answer is stood in for."""
    changelog = ChangeLog(bucket.url, bucket.options)

    def refuse_access(*_: object, **__: object) -> None:
        raise PermissionError("AccessDenied")

    monkeypatch.setattr(changelog.storage._fs, "call_s3", refuse_access)
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            changelog.delete_orphan_files(manifest(number))
    assert [r for r in caplog.records if "s3:ListBucketMultipartUploads" in r.message] == caplog.records[:1]
