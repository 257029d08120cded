"""Blocking snapshots: whole tables that are read at run time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    NotGranted,
    QueryRejected,
)
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource
from tests.core.incremental.work import FORMS, BusyWriter, fill, partial
from tests.support.connectors import memory_connector
from tests.support.signals import list_notifications, signal_state, snapshot
from tests.support.workloads.small_tables import equal


def test_a_blocking_snapshot_reads_whole_tables_and_goes_on(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", "shop.b", type="blocking")
    with BusyWriter(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b")
    assert signal_state(connector, number) == ("done", "read shop.a, shop.b")
    kinds = [type_ for type_, _ in list_notifications(connector, "Blocking Snapshot")]
    assert kinds == ["STARTED", "TABLE_SCAN_COMPLETED", "TABLE_SCAN_COMPLETED", "COMPLETED"]


def test_a_table_is_read_whole_for_one_signal_at_a_time(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    first = snapshot(connector, "shop.a", type="blocking")
    second = snapshot(connector, "shop.a", "shop.b", type="blocking")
    connector.capture()
    assert signal_state(connector, first) == ("done", "read shop.a")
    assert signal_state(connector, second) == (
        "refused",
        f"a blocking snapshot of these tables is already pending: shop.a (signal {first})",
    )


def test_a_blocking_snapshot_with_a_select_leaves_other_rows_as_they_are(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]", signal_poll_interval_ms=50)
    connector.capture()
    db._rows[db.resolve_table_id("shop.a")] = [
        {**row, "note": "changed"} for row in db._rows[db.resolve_table_id("shop.a")]
    ]  # unlogged
    snapshot(
        connector, "shop.a", type="blocking", additional_conditions=[{"data-collection": "shop.a", "filter": "id < 5"}]
    )
    connector.capture()
    topics = [f.counts for m in connector.changelog.read_manifests("test") for f in m.files if f.topic == "test.shop.a"]
    assert topics[-1] == {"r": 5}


def test_a_blocking_snapshot_that_fails_leaves_no_gap(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(
        connector,
        "shop.a",
        type="blocking",
        additional_conditions=[{"data-collection": "shop.a", "filter": "id is bad"}],
    )
    fill(db, "shop.b", range(5000, 5003))
    connector.capture()
    state, message = signal_state(connector, number)
    assert (state, "id is bad" in message) == ("failed", True)
    assert len(connector.rows("shop.b")) == 3
    fill(db, "shop.b", range(6000, 6003))
    connector.capture()
    assert len(connector.rows("shop.b")) == 6


@pytest.mark.parametrize("kind", [AccessDenied, NotGranted, QueryRejected])
def test_a_blocking_snapshot_that_the_account_may_not_make_ends_no_run(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[CdcError]
) -> None:
    connector = partial(db, tmp_path)
    number = snapshot(connector, "shop.a", type="blocking")

    def deny_select(*_: Any, **__: Any) -> Any:
        raise kind("SELECT command denied for table shop.a", remedy="GRANT SELECT")

    monkeypatch.setattr(MemorySource, "open_snapshot", deny_select)
    for i in (5000, 6000):
        fill(db, "shop.b", range(i, i + 3))
        assert connector.capture().events == 3
    state, message = signal_state(connector, number)
    assert (state, "denied for table shop.a" in message, "GRANT SELECT" in message) == ("failed", True, True)


def test_what_the_account_may_not_read_ends_the_run_where_no_one_has_asked_for_it(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = memory_connector(db, tmp_path, table_include_list="shop.[a-z]")

    def deny_select(*_: Any, **__: Any) -> Any:
        raise AccessDenied("SELECT command denied for table shop.a", remedy="GRANT SELECT")

    monkeypatch.setattr(MemorySource, "open_snapshot", deny_select)
    with pytest.raises(AccessDenied):
        connector.capture()


def test_a_commit_that_fails_while_a_signal_is_taken_ends_the_run_and_loses_nothing(
    db: MemoryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = partial(db, tmp_path, **FORMS["insert_insert"])
    with db.transaction() as t:
        t.insert("shop.b", {"id": 5000, "n": 1, "note": "in the batch"})
        data = '{"data-collections": ["shop.a"], "type": "blocking"}'
        t.insert("shop.signals", {"id": "row-1", "type": "execute-snapshot", "data": data})
    commit, left = ChangeLog.commit_manifest, [1]

    def fail_once(self: ChangeLog, manifest: Any) -> str:
        if left[0]:
            left[0] -= 1
            raise OSError("the storage does not answer")
        return commit(self, manifest)

    monkeypatch.setattr(ChangeLog, "commit_manifest", fail_once)
    with pytest.raises(OSError, match="does not answer"):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a")
    assert [row["id"] for row in connector.rows("shop.b")] == [5000]
    (signal,) = connector.store.signals_of("test", limit=10)
    assert (signal.id, signal.state) == ("row-1", "done")


def test_a_blocking_snapshot_cancels_chunks_that_are_older_than_it(
    db: MemoryDatabase, tmp_path: Path, watermark_form: dict[str, Any], at_read: Any
) -> None:
    connector = memory_connector(
        db,
        tmp_path,
        table_include_list="shop.[a-z]",
        signal_poll_interval_ms=50,
        incremental_snapshot_chunk_size=50,
        **watermark_form,
    )
    connector.capture()
    at_read(3, lambda: snapshot(connector, "shop.a", type="blocking", id_="whole"))
    snapshot(connector, "shop.a")
    with BusyWriter(db):
        connector.capture()
    connector.capture()
    equal(connector, db, "shop.a", "shop.b", "shop.c")
