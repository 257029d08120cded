"""A store is asked whether it creates a file only if it is absent, before anything is committed there."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.put_if_absent_check import verify_exclusive
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.errors import ConfigError, StorageUnavailable
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from dev.servers import S3
from tests.support.connectors import memory_connector
from tests.support.servers.s3_proxy import Proxy, other_store
from tests.support.workloads.small_tables import KEYED, insert


def _storage(s3: S3, proxy: Proxy) -> Storage:
    return Storage(f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log", proxy.storage_options)


def test_a_store_that_keeps_its_promise_is_asked_once_by_each_connector(storage: Storage) -> None:
    verify_exclusive(storage, "shop")
    marker = orjson.loads(storage.read(storage.join_path("shop", "exclusive.json")) or b"")
    assert marker["store"] == storage.describe_store()
    assert storage.list(storage.join_path("shop", "probe")) == []
    verify_exclusive(storage, "shop")
    assert orjson.loads(storage.read(storage.join_path("shop", "exclusive.json")) or b"") == marker
    verify_exclusive(storage, "other")
    assert storage.read(storage.join_path("other", "exclusive.json")) is not None


def test_a_store_that_keeps_it_is_never_refused(s3: S3) -> None:
    """Two creators at once are a matter of luck: many of them are not."""
    for n in range(15):
        verify_exclusive(Storage(f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log", s3.storage_options), f"shop-{n}")


def test_later_runs_only_look_it_up(s3: S3) -> None:
    with other_store(s3, "honours") as proxy:
        storage = _storage(s3, proxy)
        verify_exclusive(storage, "shop")
        assert proxy.requests["PUT"] > 4
        proxy.requests.clear()
        verify_exclusive(storage, "shop")
    assert set(proxy.requests) <= {"GET", "HEAD"}
    assert proxy.requests.total() <= 2


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("ignores", "it replaced an existing file"),
        ("looks first", "the store confirmed both"),
        ("refuses", "it accepts files, but not with this condition"),
    ],
)
def test_a_store_that_does_not_keep_it_is_refused_by_name(s3: S3, kind: str, what: str) -> None:
    with other_store(s3, kind) as proxy:
        storage = _storage(s3, proxy)
        for _ in range(2):  # a refusal is not remembered as a success
            with pytest.raises(ConfigError, match=what) as caught:
                verify_exclusive(storage, "shop")
        endpoint = proxy.storage_options["client_kwargs"]["endpoint_url"]
    assert storage.url in (caught.value.where or "")
    assert endpoint in (caught.value.where or "")
    assert "client s3fs 20" in (caught.value.where or "")
    assert "If-None-Match" in (caught.value.remedy or "")
    assert storage.list(storage.join_path("shop")) == []


def test_a_store_that_does_not_say_which_condition_failed_is_understood(s3: S3) -> None:
    with other_store(s3, "terse") as proxy:
        storage = _storage(s3, proxy)
        verify_exclusive(storage, "shop")
        storage.create(storage.join_path("x"), b"one")
        with pytest.raises(FileExistsError):
            storage.create(storage.join_path("x"), b"two")


def test_a_store_that_does_not_answer_is_worth_a_retry(s3: S3) -> None:
    with other_store(s3, "honours") as proxy:
        storage = _storage(s3, proxy)
    with pytest.raises(StorageUnavailable):
        verify_exclusive(storage, "shop")


def test_a_change_log_that_has_moved_to_another_store_is_asked_there(s3: S3) -> None:
    """The marker is copied with everything else."""
    address = f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log"
    verify_exclusive(Storage(address, s3.storage_options), "shop")
    with other_store(s3, "ignores") as proxy, pytest.raises(ConfigError, match="it replaced an existing file"):
        verify_exclusive(Storage(address, proxy.storage_options), "shop")


def test_what_a_run_has_left_that_was_killed_while_it_tried_is_cleared_away(storage: Storage) -> None:
    for name in ("probe/0123/twice", "probe/0123/.4567.tmp", "exclusive.json.89ab.tmp"):
        storage.replace(storage.join_path("shop", *name.split("/")), b"first")
    verify_exclusive(storage, "shop")
    assert storage.list(storage.join_path("shop")) == ["exclusive.json"]


def test_a_marker_that_cannot_be_read_is_none(storage: Storage) -> None:
    for damaged in (b"{", b"[]", b'{"store": 1}'):
        storage.replace(storage.join_path("shop", "exclusive.json"), damaged)
        verify_exclusive(storage, "shop")
        assert (
            orjson.loads(storage.read(storage.join_path("shop", "exclusive.json")) or b"")["store"]
            == storage.describe_store()
        )


# folders; the file systems are stood in for by what their calls do, as none of them can be mounted here


def _without_links(_source: str, target: str) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), target)


@pytest.mark.parametrize(
    ("link", "what"),
    [
        (os.replace, "it replaced an existing file"),
        (_without_links, "it accepts files, but not with this condition"),
    ],
    ids=["a link replaces", "no links"],
)
def test_a_folder_on_an_odd_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: Any, what: str
) -> None:
    storage = Storage(str(tmp_path / "log"))
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(ConfigError, match=what) as caught:
        verify_exclusive(storage, "shop")
    assert f"at {platform.node()}, device {tmp_path.stat().st_dev}" in (caught.value.where or "")
    assert not list((tmp_path / "log").rglob("*.json"))


def test_a_folder_is_asked_again_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same path may be another disk there, or the same one mounted in another way."""
    storage = Storage(str(tmp_path / "log"))
    verify_exclusive(storage, "shop")
    monkeypatch.setattr(os, "link", os.replace)
    verify_exclusive(storage, "shop")
    monkeypatch.setattr(platform, "node", lambda: "another")
    with pytest.raises(ConfigError):
        verify_exclusive(storage, "shop")


# a run


def test_a_run_whose_probe_is_disturbed_tries_again(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that woke after its lease was taken over clears away what this one has just created."""
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", KEYED, key=("id",))
    insert(db, "shop.a", 1)
    connector = memory_connector(db, tmp_path)
    create, disturbed = Storage.create, []

    def create_slowly(self: Storage, path: str, data: bytes, *, scratch: str | None = None) -> None:
        if data == b"second" and not disturbed:
            disturbed.append(path)
            self.delete_folder(self.join_path("test", "probe"))
        create(self, path, data, scratch=scratch)

    monkeypatch.setattr(Storage, "create", create_slowly)
    assert connector.capture().events == 1
    assert disturbed


def test_a_run_reads_and_commits_nothing_on_a_store_that_overwrites(
    request: pytest.FixtureRequest, s3: S3, tmp_path: Path
) -> None:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", KEYED, key=("id",))
    insert(db, "shop.a", 1)
    connector = memory_connector(db, tmp_path)
    with other_store(s3, "ignores") as proxy:
        url = _storage(s3, proxy).url
        definition = ConnectorDefinition("test", "memory", url, connector.properties)
        capturing = open_capture(definition, connector.state_url, storage_secrets=proxy.storage_options)
        with capturing as capture, pytest.raises(ConfigError, match="replaced"):
            capture.run()
        assert ChangeLog(url, proxy.storage_options).list_batches("test") == []
    assert connector.store.load_offset("test").offset is None
