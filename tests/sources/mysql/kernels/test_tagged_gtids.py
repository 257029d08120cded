"""GTIDs with tags (MySQL 8.3 and newer): in sets, in the log, in positions and signals."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.gtid_sets import MySqlGtids
from airflow_provider_cdc.sources.mysql.log.events.event_table import EventSet
from airflow_provider_cdc.sources.mysql.log.transaction_ids import gtid_numbers, source_of
from airflow_provider_cdc.sources.mysql.source import MySqlSource
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import signal_state, snapshot
from tests.support.sources.mysql.mysql_chunks import source_of as source_on
from tests.support.sources.mysql.workload import source_rows

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TAGS = st.one_of(st.just(""), st.from_regex(r"[a-z_][a-z0-9_]{0,31}", fullmatch=True))


# -- sets ---------------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.tuples(st.uuids(), TAGS), st.sets(st.integers(1, 40), min_size=1), max_size=5))
def test_a_set_comes_back_out_of_its_texts_and_its_bytes(found: dict[tuple[uuid.UUID, str], set[int]]) -> None:
    gtids = MySqlGtids()
    for (server, tag), numbers in found.items():
        gtids.add_all(f"{server}:{tag}" if tag else str(server), np.array(sorted(numbers)))
    assert MySqlGtids.parse(str(gtids)) == gtids
    assert MySqlGtids.from_event_body(gtids.encode()) == gtids


def test_a_set_as_the_server_writes_it() -> None:
    gtids = MySqlGtids.parse(f"{SERVER.upper()}:1-36:B:1:my_tag1:1-2:4,\n {SERVER[:-1]}3:Only:7")
    assert gtids.sources == {
        SERVER: [(1, 36)],
        f"{SERVER}:b": [(1, 1)],
        f"{SERVER}:my_tag1": [(1, 2), (4, 4)],
        f"{SERVER[:-1]}3:only": [(7, 7)],
    }
    assert gtids.contains_gtids(MySqlGtids.parse(f"{SERVER}:my_tag1:2"))
    assert not gtids.contains_gtids(MySqlGtids.parse(f"{SERVER}:my_tag1:3"))
    assert not gtids.contains_gtids(MySqlGtids.parse(f"{SERVER}:other:2"))


def test_a_form_of_sets_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="format 2"):
        MySqlGtids.from_event_body(bytes([2, 0, 0, 0, 0, 0, 0, 2]))


# -- events -------------------------------------------------------------------------------------------------------------

BODY = bytes.fromhex(
    "027600000002e4f8c075029503c10322c503e9020a04f103000000020404060e6d795f74616731088c0a900c7fdfa294dccf60061059041283120b"
)
"""As MySQL 9.7 has written it."""


def _numbers(body: bytes) -> Any:
    buf = np.frombuffer(bytes(k.HEADER) + body + bytes(16), np.uint8)
    table = np.zeros((1, k.EV_FIELDS), np.int64)
    table[0, k.EV_TYPE], table[0, k.EV_LENGTH] = 42, k.HEADER + len(body)
    return gtid_numbers(EventSet(buf, table), np.array([0]))[0].tolist()


def _varlen(number: int) -> bytes:
    more = next(n for n in range(9) if number < 1 << 7 * (n + 1) or n == 8)
    if more == 8:
        return b"\xff" + number.to_bytes(8, "little")
    return (number << more + 1 | (1 << more) - 1).to_bytes(more + 1, "little")


def test_an_event_has_source_tag_and_number() -> None:
    high, low, number, *tag = _numbers(BODY)
    assert source_of(high, low, *tag) == "727c609d-e5f0-11f1-ba05-02fc00000001:my_tag1"
    assert number == 1


@given(st.uuids(), TAGS.filter(bool), st.integers(1, (1 << 63) - 2))
def test_any_source_tag_and_number(server: uuid.UUID, tag: str, number: int) -> None:
    fields = b"".join(map(_varlen, [0, 0, 1, *server.bytes, 2, number << 1, 3, len(tag)])) + tag.encode()
    high, low, found, *letters = _numbers(b"\x02\x76\x00" + fields + b"\x08\x8c\x0a")
    assert (source_of(high, low, *letters), found) == (f"{server}:{tag}", number)


@given(st.integers(0, 32), st.binary(max_size=40))
def test_an_event_of_another_form_is_refused(length: int, rest: bytes) -> None:
    """Whatever follows: neither a read past the event's end, nor a GTID that is none."""
    with contextlib.suppress(ValueError):
        assert _numbers(BODY[:length] + rest)[k.GTID_NUMBER] >= 0
    for wrong in (b"\x04" + BODY[1:], BODY[:33], BODY[:3] + b"\x02" + BODY[4:]):
        with pytest.raises(ValueError, match="does not support"):
            _numbers(wrong)


# -- on a server --------------------------------------------------------------------------------------------------------


@pytest.fixture
def db(mysql97: Any) -> Iterator[Any]:
    with mysql97.database("tagged") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        yield database


def _write_tagged(db: Any, tag: str, *statements: str) -> None:
    with db.server.connect(database=db.name, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET gtid_next = 'AUTOMATIC:{tag}'")
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("SET gtid_next = 'AUTOMATIC'")


def _executed_gtids(db: Any) -> MySqlGtids:
    return MySqlGtids.parse(db.sql("SELECT @@GLOBAL.gtid_executed")[0][0])


def _connector(db: Any, folder: Path, **properties: Any) -> Connector:
    return mysql_connector(db.server, folder, "mysql", database_include_list=db.name, **properties)


def _equal(connector: Connector, db: Any) -> None:
    assert connector.rows(f"{db.name}.t") == source_rows(db.server, db.name, "t")


def test_runs_go_on_behind_tagged_transactions_and_take_each_once(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path)
    connector.capture()
    _write_tagged(
        db, "First", "INSERT INTO t VALUES (3, 'c')", "UPDATE t SET v = 'bb' WHERE id = 2", "ALTER TABLE t ADD w INT DEFAULT 5"
    )  # fmt: skip
    db.sql("INSERT INTO t VALUES (4, 'd', 6)")
    assert connector.capture().events > 0
    _equal(connector, db)
    db.server.sql("FLUSH BINARY LOGS")
    _write_tagged(db, "second_1", "DELETE FROM t WHERE id = 1", "XA START 'x'", "INSERT INTO t VALUES (9, 'x', 1)", "XA END 'x'",
            "XA PREPARE 'x'", "XA COMMIT 'x'")  # fmt: skip
    connector.capture()
    _equal(connector, db)
    assert connector.replay.operations == {"r": 2, "c": 3, "u": 1, "d": 1}
    assert connector.capture().events == 0


def test_a_first_run_on_a_server_with_tagged_transactions(db: Any, tmp_path: Path) -> None:
    _write_tagged(db, "before", "INSERT INTO t VALUES (3, 'c')")
    connector = _connector(db, tmp_path)
    connector.capture()
    db.sql("INSERT INTO t VALUES (4, 'd')")
    connector.capture()
    _equal(connector, db)


@pytest.mark.parametrize("compressed", [0, 1])
def test_transactions_that_are_larger_than_the_buffer_and_compressed_ones(
    db: Any, tmp_path: Path, compressed: int
) -> None:
    connector = _connector(db, tmp_path)
    connector.capture()
    large = [f"INSERT INTO t VALUES ({i}, REPEAT('x', 900000))" for i in range(10, 20)]
    _write_tagged(db, "large", f"SET SESSION binlog_transaction_compression = {compressed}", "BEGIN", *large, "COMMIT")
    connector.capture()
    connector.capture()
    _equal(connector, db)


def test_events_name_their_tags(db: Any, tmp_path: Path) -> None:
    connector = _connector(db, tmp_path, snapshot_mode="no_data", provide_transaction_metadata=True)
    connector.replay.partial = True
    connector.capture()
    _write_tagged(db, "named", "INSERT INTO t VALUES (3, 'c')")
    found = capture_records(connector)
    server = db.sql("SELECT @@server_uuid")[0][0]
    (number,) = {high for low, high in _executed_gtids(db).sources[f"{server}:named"]}
    gtid = f"{server}:named:{number}"
    (event,) = [e for e in found if (e["value"] or {}).get("op") == "c"]
    assert event["value"]["source"]["gtid"] == gtid
    assert event["value"]["transaction"]["id"] == gtid


@pytest.fixture
def source(db: Any) -> Iterator[MySqlSource]:
    with source_on(db.server) as source:
        yield source


def test_places_are_named_by_tagged_sets(db: Any, source: MySqlSource) -> None:
    _write_tagged(db, "place", "INSERT INTO t VALUES (3, 'c')")
    db.server.sql("FLUSH BINARY LOGS")
    _write_tagged(db, "place", "INSERT INTO t VALUES (5, 'c')")
    end = source.current_position()
    by_gtids = source.position_of({"gtid_set": end.gtids})
    assert by_gtids.has_reached(end)  # type: ignore[union-attr]
    by_file = source.position_of({"binlog_filename": end.file, "binlog_position": end.pos})
    assert MySqlGtids.parse(by_file.gtids) == MySqlGtids.parse(end.gtids) == _executed_gtids(db)  # type: ignore[union-attr]
    server = db.sql("SELECT @@server_uuid")[0][0]
    with pytest.raises(ConfigError, match=r"has not executed .*:place:1000"):
        source.position_of({"gtid_set": f"{server}:place:1000"})


def test_chunks_are_read_between_tagged_transactions(db: Any, tmp_path: Path) -> None:
    db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, 'r')" for i in range(10, 60)))
    _write_tagged(db, "chunk", "UPDATE t SET v = 'u' WHERE id = 12")
    connector = _connector(db, tmp_path, snapshot_mode="no_data", incremental_snapshot_chunk_size=10)
    connector.replay.partial = True
    connector.capture()
    number = snapshot(connector, f"{db.name}.t")
    _write_tagged(db, "chunk", "UPDATE t SET v = 'later' WHERE id = 13")
    connector.capture()
    assert signal_state(connector, number)[0] == "done"
    _equal(connector, db)
