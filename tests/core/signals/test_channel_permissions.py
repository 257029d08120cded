"""Permissions of channels to send signals, generated over all channels and signals."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_signal import Signal
from airflow_provider_cdc.core.signals.channel_permissions import check_permission, is_allowed
from airflow_provider_cdc.core.signals.signal_request_parser import REPLACE, SQL, TYPES, SignalRejected, parse_request
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector
from tests.support.signals import send

POSITION = "set-binlog-position"
DATA = {
    "execute-snapshot": '{"data-collections": ["a.b"]}',
    "stop-snapshot": '{"type": "incremental"}',
    "log": '{"message": "x"}',
    "schema-changes": '{"database": "d", "changes": [{}]}',
}
WITH_SQL = (
    '{"data-collections": ["a.b"], "additional-condition": "1 = SLEEP(9)"}',
    '{"data-collections": ["a.b"], "additional-conditions": [{"data-collection": "a.b", "filter": "1 = 1"}]}',
    '{"data-collections": ["a.b"], "type": "blocking", "additional-conditions": [{"data-collection": "a.b", "filter": "SELECT 1"}]}',
)
REPLACING = '{"data-collections": ["a.b"], "replace": true}'


def _config(types: Any = None, channels: str = "source,airflow,file,kafka,queue") -> TableConfig:
    properties = {"topic.prefix": "shop", "signal.enabled.channels": channels, "signal.kafka.bootstrap.servers": "b:1"}
    return TableConfig.parse(properties | ({} if types is None else {"signal.allowed.types": types}))


def _may(config: TableConfig, channel: str, type_: str, data: str | None = None) -> bool:
    signal = Signal(1, "x", type_, data or DATA.get(type_), channel)
    try:
        check_permission(config, signal, parse_request(signal), POSITION)
    except SignalRejected as e:
        text = str(e)
    else:
        return True
    assert f"signal.allowed.types={channel}:{type_.strip()}" in text
    return False


def test_by_default_only_airflow_may_move_the_position_or_bring_sql() -> None:
    config, count = _config(), 0
    for channel in ("source", "file", "kafka", "queue"):
        for type_ in (*TYPES, "one-of-their-own"):
            assert _may(config, channel, type_) == (type_ != "schema-changes")
        assert not _may(config, channel, "execute-snapshot", REPLACING)
        assert not _may(config, channel, POSITION)
        assert not _may(config, channel, f" {POSITION} ")  # a CHAR column fills up with blanks
        for data in WITH_SQL:
            assert not _may(config, channel, "execute-snapshot", data)
        count += 1
    for channel, type_ in product(("airflow", "repair"), (*TYPES, POSITION)):
        assert _may(config, channel, type_)
    assert all(_may(config, "airflow", "execute-snapshot", data) for data in (*WITH_SQL, REPLACING))
    assert count == 4


def test_a_channel_that_is_named_may_send_what_is_named_and_nothing_else() -> None:
    config = _config(f"source: execute-snapshot, {SQL} ;kafka:*;airflow:log;file:")
    assert _may(config, "source", "execute-snapshot", WITH_SQL[0])
    assert not _may(config, "source", "execute-snapshot", REPLACING)
    assert _may(_config(f"source:execute-snapshot,{REPLACE}"), "source", "execute-snapshot", REPLACING)
    assert _may(_config("source:schema-changes"), "source", "schema-changes")
    assert not _may(config, "source", "log")
    assert not _may(config, "source", POSITION)
    assert _may(config, "kafka", POSITION)
    assert _may(config, "kafka", "execute-snapshot", WITH_SQL[2])
    assert _may(config, "airflow", "log")
    assert not _may(config, "airflow", "pause-snapshot")
    assert not any(_may(config, "file", type_) for type_ in TYPES)
    assert not is_allowed({"source": ("log",)}, "source", "execute-snapshot", (SQL,), position=None)


@pytest.mark.parametrize("wrong", ["source", "source:log;source:log", ":log", "nowhere:log", 5])
def test_what_cannot_be_meant_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"signal\.allowed\.types"):
        _config(wrong)


def test_what_is_stored_of_it_is_read_back() -> None:
    config = _config("source:log;kafka:*")
    again = _config(config.to_public_properties()["signal.allowed.types"])
    assert again.signal_allowed_types == config.signal_allowed_types == {"source": ("log",), "kafka": ("*",)}


# the same, asked of a run


@pytest.fixture
def db(request: pytest.FixtureRequest) -> MemoryDatabase:
    db = MemoryDatabase(request.node.nodeid)
    db.create_table("shop.a", {"id": "int64!", "n": "int64"}, key=("id",))
    db.create_table("shop.signals", {"id": "string!", "type": "string", "data": "string"}, key=("id",))
    insert(db, 1)
    return db


def insert(db: MemoryDatabase, *ids: int) -> None:
    with db.transaction() as t:
        for i in ids:
            t.insert("shop.a", {"id": i, "n": i})


def insert_signal(db: MemoryDatabase, id_: str, type_: str, data: str) -> None:
    with db.transaction() as t:
        t.insert("shop.signals", {"id": id_, "type": type_, "data": data})


def states(connector: Connector) -> dict[str, tuple[str, str]]:
    """Id of each signal → state and message, after it was taken."""
    connector.capture()
    connector.capture()
    return {s.id: (s.state, s.message) for s in connector.store.signals_of("test", limit=20)}


def make_connector(db: MemoryDatabase, folder: Path, **more: Any) -> Connector:
    named = {"signal_data_collection": "shop.signals", "signal_poll_interval_ms": 50, **more}
    connector = memory_connector(db, folder, **named)
    connector.capture()
    return connector


def test_a_row_of_the_signal_table_moves_no_position_and_runs_no_sql(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = make_connector(db, tmp_path)
    insert(db, 2)
    insert_signal(db, "move", "set-memory-position", '{"entry": 0}')
    for number, data in enumerate(WITH_SQL):
        insert_signal(db, f"sql{number}", "execute-snapshot", data.replace("a.b", "shop.a"))
    insert_signal(db, "empty", "execute-snapshot", REPLACING.replace("a.b", "shop.a"))
    insert_signal(db, "plain", "execute-snapshot", '{"data-collections": ["shop.a"]}')
    found = states(connector)
    assert {id_: state for id_, (state, _) in found.items()} == {
        "move": "refused", "sql0": "refused", "sql1": "refused", "sql2": "refused", "empty": "refused", "plain": "done",
    }  # fmt: skip
    assert "signal.allowed.types=source:set-memory-position" in found["move"][1]
    assert "signal.allowed.types=source:execute-snapshot,additional-conditions" in found["sql0"][1]
    assert sorted(row["id"] for row in connector.rows("shop.a")) == [1, 2]


def test_a_row_of_the_signal_table_may_do_what_is_allowed(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = make_connector(db, tmp_path, signal_allowed_types=f"source:execute-snapshot,{SQL},set-memory-position")
    condition = '{"data-collections": ["shop.a"], "additional-condition": "id < 5"}'
    insert_signal(db, "sql", "execute-snapshot", condition)
    insert_signal(db, "log", "log", '{"message": "x"}')
    found = states(connector)
    assert (found["sql"][0], found["log"][0]) == ("done", "refused")


def test_a_signal_that_moves_the_position_has_the_guard_of_the_command(db: MemoryDatabase, tmp_path: Path) -> None:
    connector = make_connector(db, tmp_path)
    before = db.read_consistent_view()[0]
    insert(db, 2)
    connector.capture()
    db.add_column("shop.a", "more", "string")
    insert(db, 3)
    connector.capture()
    here = connector.store.load_offset("test").offset
    assert here is not None
    send(connector, "set-memory-position", {"entry": before}, id_="over")
    found = states(connector)
    assert found["over"][0] == "refused"
    assert "The structure of shop.a was changed in between" in found["over"][1]
    now = connector.store.load_offset("test").offset
    assert now is not None
    assert (now.position, now.seq) == (here.position, here.seq)
