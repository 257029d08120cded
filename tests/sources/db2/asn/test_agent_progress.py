"""The progress of the capture agent, and its settings, on the Db2 test server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal

import pytest

from airflow_provider_cdc.sources.db2.asn.agent_progress import (
    capture_parameters,
    clock_us,
    find_greatest_lsn,
    read_agent_progress,
    read_server_clock,
    zone_us,
)
from airflow_provider_cdc.sources.db2.asn.table_registrations import later_starts, read_registrations
from airflow_provider_cdc.sources.db2.connect import Db2Connection, connect_database
from airflow_provider_cdc.sources.db2.position import previous_lsn
from dev.servers.db2 import Db2
from tests.sources.db2.log.streamed import StreamedSchema

ASN = '"ASNCDC"'


@pytest.fixture
def streamed_schema(db2: Db2) -> StreamedSchema:
    streamed = StreamedSchema(db2)
    streamed.create("T (ID INTEGER NOT NULL PRIMARY KEY)")
    return streamed


@pytest.fixture
def connection(streamed_schema: StreamedSchema) -> Iterator[Db2Connection]:
    with closing(connect_database(streamed_schema.config)) as found:
        yield found


def test_the_published_lsn_is_that_of_the_agent_and_moves_with_commits(
    streamed_schema: StreamedSchema, connection: Db2Connection
) -> None:
    streamed_schema.server.catch_up()
    before = read_agent_progress(connection, ASN)
    connection.rollback()
    streamed_schema.sql("INSERT INTO {s}.T VALUES (1)")
    lsn = streamed_schema.server.catch_up()
    now = read_agent_progress(connection, ASN)
    assert before.lsn < now.lsn == lsn
    assert (now.newest, now.unreported) == (b"", now.registered)
    assert before.synch_us < now.synch_us <= now.now_us
    assert abs(now.now_us - time.time() * 1e6) < 60e6
    latency = now.latency_us
    assert latency is not None
    assert 0 <= latency < 60e6


def test_tables_that_come_and_go_and_rest_are_seen_in_the_cheap_question(
    streamed_schema: StreamedSchema, connection: Db2Connection
) -> None:
    def tables() -> tuple[int, int, bytes]:
        found = read_agent_progress(connection, ASN).registrations_fingerprint
        connection.rollback()
        return found

    seen = [tables()]
    streamed_schema.create("U (ID INTEGER NOT NULL PRIMARY KEY)")
    seen.append(tables())
    streamed_schema.server.sql(
        f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'I' WHERE SOURCE_OWNER = '{streamed_schema.namespace}' AND SOURCE_TABLE = 'U'"
    )
    seen.append(tables())
    streamed_schema.server.remove_table(streamed_schema.namespace, "U")
    seen.append(tables())
    assert seen[1][0] == seen[0][0] + 1
    assert seen[2][:2] == (seen[1][0], seen[1][1] - 1)
    assert seen[3][:2] == seen[0][:2]


def test_the_parameters_of_the_agent_are_read(connection: Db2Connection) -> None:
    found = capture_parameters(connection, ASN)
    assert found is not None
    assert (found.retention_limit, found.commit_interval, found.prune_interval) == (10080, 30, 300)
    assert (found.memory_limit, found.autoprune, found.autostop, found.sleep_interval) == (32, True, False, 5)
    assert found.startmode == "WARMSI"


def test_the_databases_clock_is_utc(connection: Db2Connection) -> None:
    now, _ = read_server_clock(connection)
    assert abs(now - time.time() * 1e6) < 60e6


def test_a_registration_says_which_change_table_there_is_and_how_it_is_filled(
    streamed_schema: StreamedSchema, connection: Db2Connection
) -> None:
    streamed_schema.create("B (ID INTEGER NOT NULL PRIMARY KEY)", upd_to_del_ins=False, before_prefix="X")
    found = read_registrations(connection, ASN, "TESTDB")
    plain, other = found[streamed_schema.id("T")], found[streamed_schema.id("B")]
    assert plain.change_table_name == f"ASNCDC.CDC_{streamed_schema.namespace}_T"
    assert (plain.pairs, plain.before_prefix, plain.state) == (True, None, "A")
    assert (other.pairs, other.before_prefix) == (False, "X")
    assert (plain.old, plain.new) == (None, None)
    assert plain.altered is not None
    assert plain.source_altered is not None
    assert abs(plain.created_us - time.time() * 1e6) < 60e6


def test_change_tables_that_begin_after_an_lsn_are_found(db2_factory: Callable[..., Db2]) -> None:
    on = StreamedSchema(db2_factory(synchpoints="both"))
    on.create("T (ID INTEGER NOT NULL PRIMARY KEY)")
    with closing(connect_database(on.config)) as connection:
        start = read_registrations(connection, ASN, "TESTDB")[on.id("T")].old
        assert start is not None
        assert later_starts(connection, ASN, "TESTDB", start) == {}
        assert later_starts(connection, ASN, "TESTDB", start.rstrip(b"\0")) == {}, "compared as if zero bytes followed"
        assert later_starts(connection, ASN, "TESTDB", previous_lsn(start)) == {on.id("T"): start}
        now = read_agent_progress(connection, ASN)
        assert (now.newest_start, now.unreported) == (start, 1)


@pytest.mark.parametrize(
    ("zone", "hours"),
    [(Decimal("-33000"), -3.5), (Decimal("53000"), 5.5), ("-80000.", -8), (0, 0), (Decimal("130000"), 13)],
)
def test_time_zones_are_numbers_of_hours_minutes_and_seconds(zone: object, hours: float) -> None:
    assert zone_us(zone) == hours * 3_600_000_000


def test_a_timestamp_is_microseconds_since_the_epoch_as_the_servers_clock_shows_it() -> None:
    assert clock_us(datetime(2024, 2, 29, 12, 0, 0, 5)) == 1_709_208_000_000_005
    assert clock_us(datetime(1969, 12, 31, 23, 59, 59)) == -1_000_000


def test_of_lsns_the_greatest_is_found_and_null_is_the_least() -> None:
    assert find_greatest_lsn(None, b"\x7f\xff", b"\x80", None) == b"\x80"
    assert find_greatest_lsn(None, None) == b""
