"""Actions of tests on MySQL and MariaDB servers."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql

from tests.support.patience import wait_until


def new_log_file(server: Any) -> None:
    """Let a server begin a new file of its log, and wait until it has written what it writes there by itself.

    MariaDB notes in the new file that the one before is closed (``Binlog_checkpoint``), a moment later and at no one's
    request: a reader that counts the bytes or the places of that file has to wait for it.
    """
    server.sql("FLUSH BINARY LOGS")
    if server.sql("SELECT VERSION()")[0][0].find("MariaDB") < 0:
        return
    file = server.sql("SHOW MASTER STATUS")[0][0]
    wait_until(
        lambda: any(
            e[2] == "Binlog_checkpoint" and e[5] == file for e in server.sql(f"SHOW BINLOG EVENTS IN '{file}'")
        ),
        f"the server closes the file before {file}",
    )


def end_log_readers(server: Any) -> None:
    """End the readers of the log, also those that have hung up, which the server has not noticed."""
    for (reader,) in server.sql("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"):
        with contextlib.suppress(pymysql.err.OperationalError):  # it has ended by itself
            server.sql(f"KILL {reader}")


def purge_log(server: Any) -> None:
    """Let a server forget its log but for the last file; a file that is read is not purged."""
    server.sql("FLUSH BINARY LOGS")

    def is_purged() -> bool:
        files = server.sql("SHOW BINARY LOGS")
        end_log_readers(server)
        server.sql(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
        return len(server.sql("SHOW BINARY LOGS")) == 1

    wait_until(is_purged, "the server forgets its log")


def apply_transaction(server: Any, gtid: str, *statements: str) -> None:
    """Execute transactions with their GTIDs, as a replica does that receives them; the first one's GTID is given."""
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            if ":" in gtid:
                source, _, number = gtid.rpartition(":")
                cursor.execute(f"SET gtid_next = '{gtid}'")
                cursor.execute(statement)
                cursor.execute("SET gtid_next = AUTOMATIC")
                gtid = f"{source}:{int(number) + 1}"
            else:
                domain, server_id, number = gtid.split("-")
                cursor.execute(f"SET gtid_domain_id = {domain}, server_id = {server_id}")
                cursor.execute(f"SET gtid_seq_no = {number}")  # which is compared with the other two at once
                cursor.execute(statement)
                gtid = f"{domain}-{server_id}-{int(number) + 1}"


def reset_log(*servers: Any) -> None:
    """Let servers forget their log, and the GTIDs of all transactions that they have executed."""
    for server in servers:
        server.sql(f"RESET {'MASTER' if is_mariadb(server) else 'BINARY LOGS AND GTIDS'}")


def is_mariadb(server: Any) -> bool:
    return "MariaDB" in server.sql("SELECT VERSION()")[0][0]


def replicate(primary: Any, replica: Any) -> None:
    """Let a server follow another one by GTIDs."""
    login = f"HOST='{primary.host}', MASTER_PORT={primary.port}, MASTER_USER='admin', MASTER_PASSWORD='admin'"
    if is_mariadb(replica):
        replica.sql(f"CHANGE MASTER TO MASTER_{login}, MASTER_USE_GTID=slave_pos", "START SLAVE")
    else:
        login = f"SOURCE_{login.replace('MASTER_', 'SOURCE_')}"
        replica.sql(
            f"CHANGE REPLICATION SOURCE TO {login}, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1", "START REPLICA"
        )


def wait_for_replica(primary: Any, replica: Any) -> None:
    """Wait until a replica has everything."""
    if is_mariadb(primary):
        (reached,) = replica.sql(f"SELECT MASTER_GTID_WAIT('{primary.sql('SELECT @@gtid_binlog_pos')[0][0]}', 60)")
        assert reached[0] == 0
    else:
        gtids = primary.sql("SELECT @@gtid_executed")[0][0].replace("\n", "")
        assert replica.sql(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)")[0][0] == 0
