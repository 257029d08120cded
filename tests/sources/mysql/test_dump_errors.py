"""The number 1236, with which servers end the reading of their log for any reason at all, is translated by its cause each time."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import (
    CdcError,
    PositionLost,
    PrerequisiteError,
    SourceLogDamaged,
    SourceUnavailable,
)
from airflow_provider_cdc.sources.mysql.connect import connect, server_of, translate_error
from airflow_provider_cdc.sources.mysql.log.binlog_connection import BinlogConnection
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.connectors import Connector, mysql_connector
from tests.support.sources.mysql.mysql_server import new_log_file
from tests.support.sources.mysql.workload import source_rows

LENGTH = 9  # where an event's head has its length
HEAD = 19
KINDS = ["mysql 9.7", "mysql 8.0", "mariadb", "mariadb 11.8"]


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    name, _, edition = request.param.partition(" ")
    with request.getfixturevalue(f"{name}_factory")(edition or None, server_id="81") as started:
        started.sql(
            "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO m.t VALUES (0, 'first')"
        )
        yield started


def _mariadb(server: Any) -> bool:
    return "MariaDB" in server.sql("SELECT VERSION()")[0][0]


def _connector(server: Any, folder: Path, **properties: Any) -> Connector:
    kind = "mariadb" if _mariadb(server) else "mysql"
    return mysql_connector(server, folder, kind, database_include_list="m", **properties)


def _rows_event(server: Any) -> tuple[Path, int, int]:
    """A closed file of the log that a connector has not read, and where the last event with rows in it is, from where to where."""
    at = server.sql("SHOW BINARY LOGS")[-1][0]
    new_log_file(server)
    events = server.sql(f"SHOW BINLOG EVENTS IN '{at}'")
    place, end = next((int(e[1]), int(e[4])) for e in reversed(events) if str(e[2]).startswith("Write_rows"))
    return server.data / at, place, end


@contextlib.contextmanager
def _damage_file(file: Path, place: int, new: bytes | None) -> Iterator[None]:
    """While this is open, the file is another one from a place on; with ``None`` it ends there."""
    whole = file.read_bytes()
    file.write_bytes(whole[:place] if new is None else whole[:place] + new + whole[place + len(new) :])
    try:
        yield
    finally:
        file.write_bytes(whole)


DAMAGES = {
    "larger than max_allowed_packet": (
        LENGTH,
        struct.pack("<I", 0x7FFFFFF0),
        PrerequisiteError,
        "SET GLOBAL max_allowed_packet",
    ),
    "no length of an event": (LENGTH, struct.pack("<I", 5), SourceLogDamaged, "damaged on the server"),
    "the file ends in an event": (HEAD + 4, None, SourceLogDamaged, "damaged on the server"),
    "another checksum": (HEAD + 12, b"\xa5\x5a\xa5", SourceLogDamaged, "damaged on the server"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_log_that_cannot_be_read_on_is_no_lost_position(server: Any, tmp_path: Path, damage: str) -> None:
    """With ``position.lost.mode=snapshot`` all tables would be read again, in each run again."""
    offset, new, expected, remedy = DAMAGES[damage]
    connector = _connector(server, tmp_path, position_lost_mode="snapshot")
    connector.capture()
    for name in ("master_verify_checksum", "source_verify_checksum"):  # the older and the newer name
        if server.sql(f"SHOW GLOBAL VARIABLES LIKE '{name}'"):
            server.sql(f"SET GLOBAL {name} = ON")
    first = max(r["id"] for r in source_rows(server, "m", "t")) + 1
    server.sql(*(f"INSERT INTO m.t VALUES ({n}, REPEAT('x', 100))" for n in range(first, first + 3)))
    file, place, _ = _rows_event(server)
    with _damage_file(file, place + offset, new):
        for _ in range(2):
            with pytest.raises(expected) as caught:
                connector.capture()
            assert not isinstance(caught.value, PositionLost)
            assert remedy in (caught.value.remedy or "")
            assert "captured" in (caught.value.safe or "")
            assert file.name in f"{caught.value.message} {caught.value.where}"
    read = connector.replay.advance().operations["r"]
    connector.capture()
    assert connector.rows("m.t") == source_rows(server, "m", "t")
    assert connector.replay.operations["r"] == read, "no table was read again"
    server.sql(f"INSERT INTO m.t VALUES ({first + 3}, 'last')")
    with _damage_file(file, place + offset, new):
        connector.capture({"snapshot.mode": "always"})
        assert connector.rows("m.t") == source_rows(server, "m", "t"), (
            "what the errors advise, where the log stays as it is"
        )


ADVICE = {
    "behind its end": "sync_binlog",
    "before its begin": "sync_binlog",
    "no such file": "binlog_expire_logs_seconds",
    "more GTIDs than there are": "sync_binlog",
}


def test_a_position_that_the_log_does_not_reach_is_lost(server: Any, tmp_path: Path) -> None:
    """A run finds this out by itself before it asks for the log; if it did not, the server would say so."""
    connector = _connector(server, tmp_path)
    with open_source(connector.definition(), connector.secrets) as source:
        config = source._config  # type: ignore[attr-defined]
    with connect(config) as connection:
        known = server_of(connection)
        here = server.sql("SHOW BINARY LOGS")[-1]
        own = "0-81-999999" if known.mariadb else f"{known.identity}:1-999999"
        places = {
            "behind its end": MySqlPosition(here[0], int(here[1]) + 10_000),
            "before its begin": MySqlPosition(here[0], 1),
            "no such file": MySqlPosition("nothing.000001", 4),
            "more GTIDs than there are": MySqlPosition(here[0], 4, own),
        }
        for why, place in places.items():
            with (
                BinlogConnection(config, known, place, unregistered=True) as log,
                pytest.raises(PositionLost) as caught,
            ):
                next(log.event_headers())
            assert ADVICE[why] in (caught.value.remedy or ""), why


NET = "; the first event 'binlog.000003' at 4, the last event read from './binlog.000003' at 1204, the last byte read from './binlog.000003' at 1223."
TEXTS: dict[type[CdcError], tuple[str, ...]] = {
    PositionLost: (
        "Could not find first log file name in binary log index file",
        "Could not find first log file name in binary log index file while looking for the oldest binary log that contains any GTID "
        "that is not in the given gtid set",
        "Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere, or "
        "provision a new replica from backup. Consider increasing the source's binary log expiration period. The GTID set sent by "
        "the replica is '', and the missing transactions are '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7'",
        "Cannot replicate because the master purged required binary logs. Replicate the missing transactions from elsewhere, or "
        "provision a new slave from backup. Consider increasing the master's binary log expiration period.",
        "Replica has more GTIDs than the source has, using the source's SERVER_UUID. This may indicate that the the last binary log "
        "file was truncated or lost, e.g., after a power failure when sync_binlog != 1. The source may have rolled back transactions "
        "that were already replicated to the replica.",
        "Slave has more GTIDs than the master has, using the master's SERVER_UUID. This may indicate that the end of the binary log "
        "was truncated or that the last binary log file was lost",
        "Client requested source to start replication from position > file size",
        "Client requested master to start replication from position > file size",
        "Client requested source to start replication from position < 4",
        "Client requested master to start replication from impossible position",
        "Error: connecting slave requested to start from GTID 0-1-77, which is not in the master's binlog",
        "Error: connecting slave requested to start from GTID 0-1-77, which is not in the master's binlog. Since the master's binlog "
        "contains GTIDs with higher sequence numbers, it probably means that the slave has diverged due to executing extra erroneous "
        "transactions",
        "Requested slave GTID state not found in binlog",
        "Requested slave GTID state not found in binlog. The slave has probably diverged due to executing erroneous transactions",
        "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and required binlog "
        "files have been purged.",
        "The binlog on the master is missing the GTID requested by the slave (even though both a prior and a subsequent sequence number "
        "does exist), and GTID strict mode is enabled.",
        "Slave requested incorrect position in master binlog. Requested position 77 in file 'mariadb-bin.000003', but this position does "
        "not correspond to the location of any binlog event.",
    ),
    PrerequisiteError: (
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source",
        "log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master",
        "Binary log is not open",
        "Binary log is not open and failed to open index file to retrieve next file.",
        "Could not decrypt binlog: encryption key error",
        "event decryption failure",
        "Could not start decryption of binlog.",
        "Failed to decrypt content read from binlog file.",
        "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file ./binlog.000003, position 157.",
        "Cannot replicate anonymous transaction when @@GLOBAL.GTID_MODE = ON, at file ./binlog.000003, position 157.",
        "Cannot replicate GTID-transaction when @@GLOBAL.GTID_MODE = OFF, at file ./binlog.000003, position 157.",
        "Slave can not handle replication events with the checksum that master is configured to log",
        "a text of a server to come",
    ),
    SourceUnavailable: (
        "A replica with the same server_uuid/server_id as this replica has connected to the source",
        "A slave with the same server_uuid/server_id as this slave has connected to the master",
        "A slave with the same server_uuid/server_id is already connected",
        "memory allocation failed reading log event",
        "Failed in internal GTID book-keeping: Out of memory",
        "Internal error (out of memory?) updating slave state while scanning binlog to find start position",
        "I/O error reading log event",
        "could not find next log",
        "Failed on my_net_write()",
        "failed on flush_net()",
        "Found net error",
        "Failed to run hook 'transmit_start'",
        "Failed to load replication slave GTID state",
    ),
    SourceLogDamaged: (
        "bogus data in log event",
        "binlog truncated in the middle of event; consider out of disk space on source",
        "event read from binlog did not pass crc check",
        "Event crc check failed! Most likely there is event corruption.",
        "unknown error reading log event on the master",
        "Could not find format_description_event in binlog file",
        "Failed to find format descriptor event in start of binlog",
        "Corrupt Format_description event found or out-of-memory",
        "Corrupt gtid_log_event found while scanning binlog to find initial slave position",
        "Failed to read Gtid_list_log_event: corrupt binlog",
        "Failed to replace GTID event with backwards-compatible event: corrupt event.",
        "Error reading header of binary log while looking for the oldest binary log that contains any GTID that is not in the given gtid set",
        "Failed to read the binary log index file while looking for the oldest binary log that contains any GTID that is not in the given gtid set",
        "Could not open log file",
        "Failed to open log (file './binlog.000003', errno 2)",
        "Could not read binlog while searching for slave start position on master",
        "Found duplicate Gtid_list_log_event while scanning binlog to find slave start position",
    ),
}  # fmt: skip


@pytest.mark.parametrize("suffix", ["", NET])
@pytest.mark.parametrize(("expected", "text"), [(kind, text) for kind, texts in TEXTS.items() for text in texts])
def test_texts_of_the_servers_are_reported_for_what_they_are(expected: type[CdcError], text: str, suffix: str) -> None:
    """The texts are those of ``mysqld`` 8.0 and 9.7 and ``mariadbd`` 10.11 and 11.8, some with places in the log."""
    from airflow_provider_cdc.sources.mysql.config import MySqlConfig

    config = MySqlConfig.parse(
        {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 7}
    )
    error = translate_error(pymysql.err.OperationalError(1236, text + suffix), config, "binlog.000003:1204")
    assert type(error) is expected
    assert text in error.message
    assert error.where == "binlog.000003:1204"
    assert error.safe
    assert error.remedy
