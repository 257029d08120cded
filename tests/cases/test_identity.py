"""Identities of logs: a server's id, the names of its files and the numbers of its transactions may all come again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_lifecycle, open_source
from airflow_provider_cdc.sources.mysql.log import gtid_continuity_check
from airflow_provider_cdc.sources.mysql.position import MySqlPosition
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.sources.mysql.server_life import ServerConnector, TwoLives

OTHER = "11111111-2222-3333-4444-555555555555"


@pytest.fixture(scope="module")
def servers(mysql_factory: Any, mariadb_factory: Any) -> Iterator[Any]:
    """Servers that are reset and switched by the tests of this module, each started when it is first asked for."""
    started: dict[str, Any] = {}

    def server(kind: str) -> Any:
        if kind not in started:
            if kind in ("10.11", "11.8"):
                started[kind] = mariadb_factory(
                    None if kind == "10.11" else kind, server_id="11", log_slave_updates="ON"
                )
            else:
                on = not kind.endswith("off")
                started[kind] = mysql_factory(
                    kind.split()[0], gtid_mode=on, enforce_gtid_consistency=True, sync_binlog=1, server_id=71
                )
        return started[kind]

    yield server
    for one in started.values():
        one.close()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server here is going to catch up."""
    monkeypatch.setattr(gtid_continuity_check, "PATIENCE_S", 0.2)


def _life(servers: Any, folder: Path, kind: str) -> ServerConnector:
    return ServerConnector(servers(kind), folder, "mariadb" if kind in ("10.11", "11.8") else "mysql")


def _draw_random(sampled: CaseSample, name: str) -> random.Random:
    """Draw other lives in each run with ``--long``, and the same ones otherwise."""
    return sampled.random(name) if sampled.all else random.Random(name)


def _flush_times(server_connector: ServerConnector, times: int = 3) -> None:
    for _ in range(times):
        server_connector.flush()


@pytest.mark.parametrize("kind", ["9.7", "8.0"])
def test_a_replica_that_is_made_again_in_place_is_read_by_its_gtids(servers: Any, tmp_path: Path, kind: str) -> None:
    """H3a. Its uuid and the names of its files are the same, the files are others, and its GTIDs are those of before."""
    server_connector = _life(servers, tmp_path, kind)
    server_connector.write_for_another(f"{OTHER}:1", 1)
    _flush_times(server_connector)
    server_connector.write_for_another(f"{OTHER}:3", 10)
    assert server_connector.capture() == ""
    server_connector.provision()
    server_connector.write_for_another(f"{OTHER}:23", 5)
    assert server_connector.capture() == ""
    _flush_times(server_connector, 4)
    server_connector.write_for_another(f"{OTHER}:33", 2)
    assert server_connector.capture() == ""


@pytest.mark.parametrize("kind", ["10.11", "11.8"])
def test_a_mariadb_replica_that_is_made_again_is_read_by_its_gtids(servers: Any, tmp_path: Path, kind: str) -> None:
    """H3b. The new one has the same rows, ``gtid_slave_pos``, server id and address, and a log that begins after them."""
    server_connector = _life(servers, tmp_path, kind)
    server_connector.begin()
    _flush_times(server_connector)
    server_connector.write_for_another("0-99-1", 10)
    assert server_connector.capture() == ""
    server_connector.server.sql("RESET MASTER", "SET GLOBAL gtid_slave_pos = '0-99-20'")
    server_connector.write_for_another("0-99-21", 5)
    assert server_connector.capture() == ""
    _flush_times(server_connector, 4)
    server_connector.write_for_another("0-99-31", 2)
    assert server_connector.capture() == ""


def test_a_log_that_goes_on_under_another_name_is_read_by_its_gtids(servers: Any, tmp_path: Path) -> None:
    """H3c. The numbers of its files begin again."""
    server_connector = _life(servers, tmp_path, "9.7")
    _flush_times(server_connector)
    server_connector.write(3)
    assert server_connector.capture() == ""
    server_connector.server.restart(log_bin="newbin")
    server_connector.write(3)
    assert server_connector.capture() == ""
    server_connector.server.restart(log_bin="binlog")
    server_connector.write(1)
    assert server_connector.capture() == ""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["9.7", "8.0", "10.11", "11.8"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "snapshot only"])
def test_a_log_that_was_reset_is_an_error_however_far_it_is(
    servers: Any, tmp_path: Path, kind: str, streamed: bool
) -> None:
    """H3d. New transactions have the GTIDs of captured ones, and there are more of them."""
    server_connector = _life(servers, tmp_path, kind)
    server_connector.begin()
    _flush_times(server_connector)
    server_connector.write(5)
    if streamed:
        assert server_connector.capture() == ""
    else:
        server_connector.connector.capture({"snapshot.mode": "always"})
        server_connector.pending = 0
    server_connector.reset()
    server_connector.write(60)
    assert "reset" in server_connector.capture()
    _flush_times(server_connector, 4)
    server_connector.write(1)
    assert "reset" in server_connector.capture()
    server_connector.read_again()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["9.7", "8.0", "10.11"])
@pytest.mark.parametrize("purged", [0, 3, 12])
def test_a_log_that_was_reset_and_has_come_past_the_position_is_an_error(
    servers: Any, tmp_path: Path, kind: str, purged: int
) -> None:
    """H3d2. The position's file was purged under its name, and the GTIDs of captured transactions are those of new ones."""
    server_connector = _life(servers, tmp_path, kind)
    server_connector.begin()
    _flush_times(server_connector)
    server_connector.write(20)
    assert server_connector.capture() == ""
    server_connector.reset()
    server_connector.write(purged)
    _flush_times(server_connector, 5)
    server_connector.purge()
    server_connector.write(60)
    assert server_connector.capture()
    server_connector.read_again()
    server_connector.write(2)
    assert server_connector.capture() == ""


@pytest.mark.parametrize("run_for_s", [None, 3.0], ids=["bounded", "continuous"])
def test_gtids_that_are_switched_on_while_the_log_is_captured(
    servers: Any, tmp_path: Path, run_for_s: float | None
) -> None:
    """H4. Transactions of the time before have GTIDs, too, and were captured without them."""
    server_connector = _life(servers, tmp_path, "9.7 off")
    while server_connector.mode != "OFF":
        server_connector.change_mode(-1)
    run = {} if run_for_s is None else {"run_for_s": run_for_s}
    server_connector.write(1)
    server_connector.change_mode(1)
    server_connector.change_mode(1)
    server_connector.write(1)
    assert server_connector.capture(**run) == ""
    server_connector.write(1)
    server_connector.change_mode(1)
    server_connector.write(1)
    for _ in range(3):
        assert server_connector.capture(**run) == ""
        server_connector.write(1)
    assert server_connector.capture() == ""
    assert server_connector.offset["gtids"] == server_connector.executed


@pytest.mark.parametrize("kind", ["9.7", "9.7 off", "8.0", "10.11", "11.8"])
def test_a_position_is_set_by_the_file_and_offset_that_people_see(servers: Any, tmp_path: Path, kind: str) -> None:
    """L6. As ``airflow cdc offset set --to '{"file": …, "pos": …}'`` does; it gets its GTIDs from the log."""
    server_connector = _life(servers, tmp_path, kind)
    here, before = server_connector.offset, server_connector.executed
    server_connector.write(2)
    assert server_connector.capture() == ""
    connector = server_connector.connector
    with (
        open_source(connector.definition(), connector.secrets) as source,
        open_lifecycle(connector.definition(), connector.state_url, secrets=connector.secrets) as lifecycle,
    ):
        target = source.position_of({"file": here["file"], "pos": here["pos"]})
        assert target.to_json().get("gtids", "") == (before if server_connector.has_gtids else "")
        plan = lifecycle.plan_offset(target)
    assert plan.problems == ()
    assert plan.effect.value == "repeat"


LAST = {
    "a row": ["INSERT INTO t VALUES (100, 1)"],
    "DDL": ["ALTER TABLE t ADD w INT"],
    "large": ["CREATE TABLE u (v LONGBLOB)", "INSERT INTO u SELECT REPEAT('x', 1200000) FROM t"],
    "statement": ["SET SESSION binlog_format = 'STATEMENT'", "CREATE TABLE v (v INT)", "FLUSH TABLES"],
    "XA": ["XA START 'x'", "UPDATE t SET v = 7", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"],
    "a new file": ["UPDATE t SET v = 8", "FLUSH BINARY LOGS"],
    "several statements": ["BEGIN", "UPDATE t SET v = 9", "UPDATE t SET v = 10", "COMMIT"],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["9.7", "9.7 off", "10.11"])
def test_the_last_transaction_is_found_where_it_was(servers: Any, tmp_path: Path, kind: str, packed: bool) -> None:
    """Find the last transaction in every form, compressed too; without GTIDs, a capture would fail otherwise."""
    server_connector = _life(servers, tmp_path, kind)
    server_connector.write(3)
    variable = "log_bin_compress" if server_connector.mariadb else "binlog_transaction_compression"
    if packed:
        server_connector.server.sql(f"SET GLOBAL {variable} = ON")
    try:
        for form, statements in LAST.items():
            server_connector.server.sql(*statements, database=server_connector.name)
            server_connector.connector.capture()
            last = server_connector.offset["last"]
            with open_source(server_connector.connector.definition(), server_connector.connector.secrets) as source:
                position = source.parse_position(server_connector.offset)
                source.verify_position(position)
                files = {str(row[0]): int(row[1]) for row in server_connector.server.sql("SHOW BINARY LOGS")}
                assert source._identity.why_not_same(position, files) == "", form  # type: ignore[attr-defined]
                other = source.parse_position(
                    {**server_connector.offset, "last": {**last, "time": last["time"] + 1_000_000}}
                )
                if last["file"] == server_connector.offset["file"]:
                    assert "different transaction" in source._identity.why_not_same(other, files)  # type: ignore[attr-defined]
    finally:
        server_connector.server.sql(f"SET GLOBAL {variable} = OFF")


KINDS = ["9.7", "9.7 off", "8.0", "10.11", "11.8"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_no_life_of_a_server_loses_a_transaction_silently(
    servers: Any, tmp_path: Path, kind: str, seed: int, sampled: CaseSample
) -> None:
    """H3, H4: writes, rotations, purges, resets, replicas made again in place, GTIDs switched on and off, domains."""
    server_connector = _life(servers, tmp_path, kind)
    server_connector.live(_draw_random(sampled, f"{kind} {seed}"), 25, modes=kind.endswith("off"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["9.7", "10.11"])
def test_no_life_of_a_primary_and_its_replica_loses_a_transaction_silently(
    servers: Any, mysql_factory: Any, mariadb_factory: Any, tmp_path: Path, kind: str, seed: int, sampled: CaseSample
) -> None:
    """H3: the connector's host name leads to one or the other, and the replica is made again in place, from backups of different age."""
    factory = mariadb_factory if kind == "10.11" else mysql_factory
    with factory(**({"log_slave_updates": "ON"} if kind == "10.11" else {}), server_id=72) as replica:
        server_connector = TwoLives(servers(kind), replica, tmp_path, "mariadb" if kind == "10.11" else "mysql")
        server_connector.live(_draw_random(sampled, f"{kind} {seed}"), 25)


@pytest.mark.parametrize(
    ("here", "end", "reached"),
    [
        # H2(1) GTID: flushed, and not in gtid_executed of the position
        ({"file": "b.000002", "pos": 900, "gtids": f"{OTHER}:1-4"}, {"file": "b.000002", "pos": 900, "gtids": f"{OTHER}:1-5"}, False),
        ({"file": "b.000002", "pos": 500, "gtids": f"{OTHER}:1-5"}, {"file": "b.000002", "pos": 900, "gtids": f"{OTHER}:1-5"}, True),
        # H3a, H3c: the numbers of files begin again
        ({"file": "b.000004", "pos": 900, "gtids": f"{OTHER}:1-4"}, {"file": "b.000001", "pos": 500, "gtids": f"{OTHER}:1-5"}, False),
        ({"file": "b.000004", "pos": 900, "gtids": "0-1-4"}, {"file": "c.000001", "pos": 500, "gtids": "0-1-5"}, False),
        ({"file": "b.000001", "pos": 900, "gtids": "0-1-4"}, {"file": "c.000004", "pos": 500, "gtids": "0-1-4"}, True),
        ({"file": "b.000004", "pos": 900, "gtids": "0-1-4"}, {"file": "b.000004", "pos": 900, "gtids": "0-1-4,7-1-1"}, False),
        # H4: one of them has none
        ({"file": "b.000004", "pos": 900}, {"file": "b.000005", "pos": 500, "gtids": f"{OTHER}:1-5"}, False),
        ({"file": "b.000005", "pos": 500, "gtids": f"{OTHER}:1-5"}, {"file": "b.000004", "pos": 900}, True),
    ],
)  # fmt: skip
def test_where_both_have_gtids_they_alone_decide(here: dict[str, Any], end: dict[str, Any], reached: bool) -> None:
    """H2(1), H3, H4: whether a position is at the end of the log, on one server."""
    assert MySqlPosition(**here, server="s").has_reached(MySqlPosition(**end, server="s")) is reached
