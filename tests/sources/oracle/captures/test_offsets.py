"""Offsets in Oracle's redo: their form, where capture continues, and what is said of a place that is gone."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import PositionLost
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records
from tests.support.connectors import Connector
from tests.support.sources.oracle.oracle_server import run

LOGGED = "ALTER TABLE T ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    schema.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED)
    return schema


@pytest.fixture
def connector_factory(db: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(db, tmp_path, **{"schema_include_list": "APP", **properties})


def _ids(found: list[Record]) -> list[int]:
    return [r["value"]["after"]["ID"] for r in found if r["topic"] == "test.APP.T"]


def _current_position(connector: Connector) -> dict[str, Any]:
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    assert offset.position is not None
    return offset.position


def _move(connector: Connector, place: dict[str, Any]) -> None:
    """Write another place, as someone does who moves a connector."""
    store = connector.store
    with store.acquire_lease(connector.name, "somebody", wait_s=10) as lease:
        stored = store.load_offset(connector.name)
        assert stored.offset is not None
        store.advance_offset(lease, stored, stored.offset.model_copy(update={"position": place}))


def test_the_place_has_the_documented_watermarks_as_texts(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(batch_max_rows=1)
    capture_records(connector)
    with closing(db.connect()) as owner:
        run(owner, "INSERT INTO T VALUES (1)")
        began = db.admin("SELECT MIN(START_SCN) FROM V$TRANSACTION")[0][0]
        db.sql("INSERT INTO T VALUES (2)")
        (record,) = capture_records(connector)
        place = _current_position(connector)
        assert all(isinstance(place[name], str) for name in ("scn", "read_scn"))
        # mining begins at the open transaction, everything that was committed is captured
        assert int(place["scn"]) == began
        source = record["value"]["source"]
        assert int(place["scn"]) < int(source["commit_scn"]) <= int(place["read_scn"])
        assert capture_records(connector) == []
        run(owner, "COMMIT")
    assert _ids(capture_records(connector)) == [1]
    manifests = list(connector.changelog.read_manifests("test"))
    commits = [m.offset_after.position or {} for m in manifests]
    (committed,) = {p["commit_scn"] for p in commits if p.get("commit_scn", "").startswith(f"{source['commit_scn']}:")}
    assert committed == f"{source['commit_scn']}:1:{source['txId']}"


def test_a_place_in_each_documented_form_can_be_gone_back_to(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """Changes after ``commit_scn`` come once more, those before it do not."""
    connector = connector_factory()
    capture_records(connector)
    sources = []
    for number in range(4):
        db.sql(f"INSERT INTO T VALUES ({number})")
        (record,) = capture_records(connector)
        sources.append(record["value"]["source"])
    first, second = sources[:2]
    for commit in (
        str(int(second["commit_scn"]) + 1),
        f"{second['commit_scn']}:1:{second['txId']}",
        f'{second["commit_scn"]}: "0x{second["txId"]}:1"',
    ):
        _move(connector, {"scn": first["scn"], "commit_scn": commit})
        assert _ids(capture_records(connector)) == [2, 3], commit
    _move(connector, {"scn": first["scn"]})
    assert _ids(capture_records(connector)) == [0, 1, 2, 3]


def test_a_place_that_no_log_has_names_what_is_missing_and_what_there_is(tmp_path: Path) -> None:
    with Oracle() as server:
        server.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED)
        connector = oracle_connector(server, tmp_path)
        capture_records(connector)
        server.sql("INSERT INTO T VALUES (1)")
        before = connector.store.load_offset("test")
        for _ in range(5):
            server.switch_log()
        server.purge()
        for _ in range(2):  # nothing is mended or skipped by itself
            with pytest.raises(PositionLost) as caught:
                connector.capture()
            assert connector.store.load_offset("test") == before
        missing = re.search(rf"\b{_current_position(connector)['scn']}\b", str(caught.value))
        oldest = server.admin("SELECT MIN(FIRST_CHANGE#) FROM V$LOG", dsn=server.dsn)[0][0]
        assert missing
        assert re.search(rf"\b{oldest}\b", str(caught.value))
        assert "RESTORE ARCHIVELOG" in str(caught.value.remedy)
        assert "when_needed" in str(caught.value.remedy)
        connector.properties["snapshot.mode"] = "when_needed"
        capture_records(connector)
        assert connector.rows("APP.T") == [{"ID": 1}]


def test_each_redo_thread_has_its_own_watermark(tmp_path: Path) -> None:
    with Oracle({"threads": 2}) as server:
        server.sql("CREATE TABLE T (ID NUMBER(9) PRIMARY KEY)", LOGGED)
        connector = oracle_connector(server, tmp_path, rac_nodes=",".join(server.nodes))
        capture_records(connector)
        for number in range(6):
            server.sql(f"INSERT INTO T VALUES ({number})", thread=number % 2 + 1)
        sources = {r["value"]["after"]["ID"]: r["value"]["source"] for r in capture_records(connector)}
        assert [sources[i]["redo_thread"] for i in range(6)] == [1, 2] * 3
        ends = [f"{sources[i]['commit_scn']}:{i % 2 + 1}:{sources[i]['txId']}" for i in (4, 1)]
        _move(connector, {"scn": sources[0]["scn"], "commit_scn": ",".join(ends)})
        assert _ids(capture_records(connector)) == [3, 5]
