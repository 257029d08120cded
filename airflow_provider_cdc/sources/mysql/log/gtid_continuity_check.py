"""Failover: whether a server has all captured transactions, and the GTIDs to request its log with.

A host name may lead to another server at the next run: a replica that took over, one that lags, or the same server restored from a
backup. MySQL does not refuse a reader that has more transactions than the server: it sends the next ones, and the tables keep
changes that the server never had. So the captured GTIDs are compared with the server's when a run begins, and by ``airflow cdc gap``.

* MySQL has GTID sets: the server must have executed every captured transaction, and every purged transaction must be captured.
* MariaDB has the last transaction of each domain and server. A position has the last one of each domain: it must be in the server's
  log, or be the one at which its log begins. The server itself reports purged transactions after it when its log is requested.

Excluded sources (``gtid.source.includes``, ``gtid.source.excludes``) are not compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.sources.mysql.connect import MySqlServer
from airflow_provider_cdc.sources.mysql.gtid_sets import MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.log.gtid_source_filter import GtidSourceFilter
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

PATIENCE_S = 10.0
"""How long a server may take to execute captured transactions. A transaction is in the log before it counts as executed, with
semi-synchronous replicas by seconds; and a replica that takes over may still have some to execute."""
_PAUSE_S: Final = 0.2
_ALL: Final = GtidSourceFilter()


def verify_gtids(
    connection: Connection,
    server: MySqlServer,
    position: MySqlPosition,
    sources: GtidSourceFilter = _ALL,
    address: str = "",
) -> None:
    """Make sure that a server has executed the GTIDs of a position, and has purged none that are not captured.

    :param address: host of the server, for the error
    :raises PositionLost: transactions are missing; the error names them
    """
    if missing := find_missing_gtids(connection, server, position, sources):
        raise _lacks(missing, server, position, address)


def find_missing_gtids(
    connection: Connection, server: MySqlServer, position: MySqlPosition, sources: GtidSourceFilter = _ALL
) -> str:
    """Return the GTIDs of a position that a server has not executed after a few seconds; empty = none.

    :raises PositionLost: it has purged transactions that are not captured
    """
    verify = _verify_mariadb if server.mariadb else _verify_mysql
    until = time.monotonic() + PATIENCE_S
    while (missing := verify(connection, position, sources)) and time.monotonic() <= until:
        time.sleep(_PAUSE_S)
    return missing


def dump_gtids(connection: Connection, server: MySqlServer, position: MySqlPosition, sources: GtidSourceFilter) -> str:
    """Return the GTIDs to request the log with: the server sends the transactions after them.

    These are the captured GTIDs. Of excluded sources those that the server has purged are added, since it would refuse to send its log
    otherwise.
    """
    if sources.includes_all or not (position.gtids and server.has_gtids):
        return position.gtids
    if server.mariadb:
        return str(_mariadb_dump(connection, MariaDbGtids.parse(position.gtids), sources))
    return str(_mysql_dump(connection, server, MySqlGtids.parse(position.gtids), sources))


# -- MySQL ------------------------------------------------------------------------------------------------------------


def _mysql_sets(connection: Connection) -> tuple[MySqlGtids, MySqlGtids]:
    """``gtid_executed`` and ``gtid_purged``."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")
        executed, purged = cursor.fetchone() or ("", "")
    return MySqlGtids.parse(str(executed)), MySqlGtids.parse(str(purged))


def _verify_mysql(connection: Connection, position: MySqlPosition, sources: GtidSourceFilter) -> str:
    """Return the captured transactions that the server has not executed; empty = none.

    :raises PositionLost: the server has purged transactions that are not captured
    """
    executed, purged = _mysql_sets(connection)
    captured = MySqlGtids.parse(position.gtids)
    counted, gone = sources.select_included(captured), sources.select_included(purged)
    assert isinstance(counted, MySqlGtids)
    assert isinstance(gone, MySqlGtids)
    if lost := str(gone.subtract_gtids(captured)):
        raise _purged(lost, position)
    return str(counted.subtract_gtids(executed))


def executed_without_log(connection: Connection, server: MySqlServer) -> MySqlGtids:
    """Return the GTIDs that a MySQL server counts as executed and that its log does not have.

    The heads of log files may not list them: not those of the files before ``gtid_purged`` was set. Empty with MariaDB.
    """
    return MySqlGtids() if server.mariadb else _mysql_sets(connection)[1]


def held_by_mysql(connection: Connection, position: MySqlPosition) -> MySqlGtids:
    """Return the captured transactions that are in the server's log.

    These are all but those purged, of a server that has executed them.
    """
    return MySqlGtids.parse(position.gtids).subtract_gtids(_mysql_sets(connection)[1])


def _mysql_dump(
    connection: Connection, server: MySqlServer, captured: MySqlGtids, sources: GtidSourceFilter
) -> MySqlGtids:
    executed, purged = _mysql_sets(connection)
    # a server refuses a reader that has more transactions of this server's UUID than the server itself
    unknown = captured.subtract_gtids(executed)
    own = {
        s: i
        for s, i in unknown.sources.items()
        if s.partition(":")[0] == server.identity and not sources.includes_source(s)
    }
    requested = captured.subtract_gtids(MySqlGtids(own))
    others = sources.select_excluded(purged)
    assert isinstance(others, MySqlGtids)
    return requested.merge_gtids(others)


# -- MariaDB ----------------------------------------------------------------------------------------------------------


def _mariadb_state(connection: Connection) -> tuple[dict[tuple[int, int], int], MariaDbGtids]:
    """Return ``gtid_binlog_state`` and ``gtid_slave_pos``.

    The first is (domain, server) → last sequence number in the log. The second is per domain the last transaction that came by
    replication, or that a backup was restored with.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")
        state, began = cursor.fetchone() or ("", "")
    last = {}
    for part in filter(None, str(state).split(",")):
        domain, server, number = map(int, part.split("-"))
        last[domain, server] = number
    return last, MariaDbGtids.parse(str(began))


def _ends(last: dict[tuple[int, int], int]) -> dict[int, tuple[int, int]]:
    """Domain → server and sequence number of its last transaction."""
    ends: dict[int, tuple[int, int]] = {}
    for (domain, server), number in last.items():
        ends[domain] = max(ends.get(domain, (0, 0)), (server, number), key=lambda transaction: transaction[1])
    return ends


def _held(last: dict[tuple[int, int], int], began: MariaDbGtids, domain: int, server: int, number: int) -> bool:
    return last.get((domain, server), -1) >= number or began.domains.get(domain) == (server, number)


def _verify_mariadb(connection: Connection, position: MySqlPosition, sources: GtidSourceFilter) -> str:
    """Return the captured transactions that are not in the server's log; empty = none."""
    last, began = _mariadb_state(connection)
    captured = sources.select_included(MariaDbGtids.parse(position.gtids))
    assert isinstance(captured, MariaDbGtids)
    missing = {d: (s, n) for d, (s, n) in captured.domains.items() if not _held(last, began, d, s, n)}
    return str(MariaDbGtids(missing))


def _mariadb_dump(connection: Connection, captured: MariaDbGtids, sources: GtidSourceFilter) -> MariaDbGtids:
    last, began = _mariadb_state(connection)
    purged = _mariadb_purged(connection)
    ends = _ends(last)
    requested = purged.domains | captured.domains
    for domain, (server, number) in captured.domains.items():
        if sources.includes_source(str(domain)):
            continue
        before, end = purged.domains.get(domain), ends.get(domain)
        if before is not None and before[1] > number:
            requested[domain] = before
        elif not _held(last, began, domain, server, number):
            requested.pop(domain)
            if end is not None and end[1] < number:  # the server lags: all its transactions are captured
                requested[domain] = end
    # of included domains ask for everything that is not captured: the server says if it has purged some
    return MariaDbGtids(
        {
            d: transaction
            for d, transaction in requested.items()
            if d in captured.domains or not sources.includes_source(str(d))
        }
    )


def held_by_mariadb(connection: Connection, position: MySqlPosition) -> MariaDbGtids:
    """Return the last captured transactions of domains that are in the server's log.

    Those from before its oldest file are left out.
    """
    last, _ = _mariadb_state(connection)
    purged = _mariadb_purged(connection)
    return MariaDbGtids(
        {
            d: (s, n)
            for d, (s, n) in MariaDbGtids.parse(position.gtids).domains.items()
            if last.get((d, s), -1) >= n and not purged.contains_gtids(MariaDbGtids({d: (s, n)}))
        }
    )


def _mariadb_purged(connection: Connection) -> MariaDbGtids:
    """Return the last transaction of each domain before the oldest file of the log."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        oldest = str(cursor.fetchall()[0][0])
    return before_file(connection, oldest)


def before_file(connection: Connection, file: str) -> MariaDbGtids:
    """Return the last transaction of each domain before a file of MariaDB's log, as its head lists them."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINLOG EVENTS IN %s LIMIT 4", (file,))
        lists = [str(row[5]) for row in cursor.fetchall() if str(row[2]) == "Gtid_list"]
    return MariaDbGtids.parse(lists[0].strip("[]")) if lists else MariaDbGtids()


def verify_beginnings(
    connection: Connection,
    position: MySqlPosition,
    sources: GtidSourceFilter,
    first: Callable[[int, str], MariaDbGtids],
) -> None:
    """Make sure that the log of a MariaDB server does not begin after a position, as that of a replica made from a backup may.

    The head of the oldest log file lists the GTIDs before it, but not those from before the first file of all. The server then sends
    its log from its first transaction on, without an error.

    :param first: finds the first transaction of a domain in the log; takes the domain and the GTIDs of the other domains, to skip them
    :raises PositionLost: the log begins after the position
    """
    last, _ = _mariadb_state(connection)
    purged = _mariadb_purged(connection)
    captured = sources.select_included(MariaDbGtids.parse(position.gtids))
    assert isinstance(captured, MariaDbGtids)
    ends = _ends(last)
    for domain, (server, number) in captured.domains.items():
        if domain in purged.domains or domain not in ends:
            continue
        others = MariaDbGtids({d: transaction for d, transaction in ends.items() if d != domain})
        begins = first(domain, str(others)).domains.get(domain)
        # a log that begins right after the position is fine, unless with a transaction of another server: the server would skip
        # transactions until one of the position's server comes
        if begins and (
            begins[1] > number + 1 or (begins[1] > number and begins[0] != server and (domain, server) in last)
        ):
            raise _begins_behind(f"{domain}-{begins[0]}-{begins[1]}", f"{domain}-{server}-{number}", position)


# -- errors -----------------------------------------------------------------------------------------------------------


def _lacks(missing: str, server: MySqlServer, position: MySqlPosition, address: str) -> PositionLost:
    same = position.server == server.identity
    why = "it was restored to an earlier state, or from a backup" if same else "it is not the same server as before"
    kind = "has a log that lacks" if server.mariadb else "lacks"
    if server.mariadb:
        wait = f"SELECT MASTER_GTID_WAIT('{missing}', 600)"
    else:
        wait = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{missing}', 600)"
    return PositionLost(
        f"The server {address} {kind} captured transactions: {missing}; {why}.".replace("  ", " "),
        where=str(position),
        safe="Everything before the position is captured, including these transactions. Nothing was read from "
        "this server.",
        remedy=f"if it is a replica that is behind, let it catch up (check with {wait}), and run again; if another server "
        "has the transactions, connect to that server; if no server has them any more, set "
        "snapshot.mode=when_needed to snapshot all tables again in their current state",
    )


def _begins_behind(begins: str, captured: str, position: MySqlPosition) -> PositionLost:
    return PositionLost(
        f"The server's log begins with {begins}, but the last captured transaction is {captured}: the "
        "transactions in between are missing from the log.",
        where=str(position),
        safe="Everything before the position is captured. The transactions in between are missing from the log; "
        "the tables still contain their result.",
        remedy="connect to a server whose log still contains them, or set snapshot.mode=when_needed to snapshot "
        "all tables again",
    )


def _purged(lost: str, position: MySqlPosition) -> PositionLost:
    return PositionLost(
        f"The server has purged transactions that were not captured: {lost}.",
        where=str(position),
        safe="Everything before the position is captured. These transactions are missing from the log; the "
        "tables still contain their result.",
        remedy="connect to a server whose log still contains them, or set snapshot.mode=when_needed to snapshot all "
        "tables again; keep the log (binlog_expire_logs_seconds) longer than the longest pause between two "
        "captures",
    )
