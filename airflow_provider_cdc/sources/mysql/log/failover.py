"""Whether a server has what is captured, and from which GTIDs on it is to send its log.

The name of a server may lead to another one tomorrow: a replica that took over, one that is behind, the same one restored from a
backup. MySQL itself does not mind a reader who has more than it has: it sends what comes next, and what it never had stays in the
tables for ever. So both are compared whenever a run begins, and whenever somebody asks for a gap.

* MySQL knows sets: what is captured has to be executed, and what was purged has to be captured.
* MariaDB knows the last transaction of each domain and server. A position names the last one of each domain: that one has to be in
  the server's log, or where its log begins. The server itself answers whether what comes after it was purged, when it is asked for its log.

Sources that do not count (``gtid.source.includes``, ``gtid.source.excludes``) are compared with nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pymysql.connections import Connection

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.sources.mysql.connect import Server
from airflow_provider_cdc.sources.mysql.gtid import MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.log.gtid_sources import GtidSources
from airflow_provider_cdc.sources.mysql.position import MySqlPosition

PATIENCE_S = 10.0
"""How long a server may take to have what is captured. It logs a transaction before it counts as executed, with semi-synchronous
replicas seconds before; and a replica that takes over may still have some to execute."""
_PAUSE_S: Final = 0.2
_ALL: Final = GtidSources()


def verify_gtids(
    connection: Connection, server: Server, position: MySqlPosition, sources: GtidSources = _ALL, address: str = ""
) -> None:
    """Make sure that a server has the GTIDs of a position, and that what it has more of is not purged.

    :raises PositionLost: it does not; the error names the transactions
    """
    verify = _verify_mariadb if server.mariadb else _verify_mysql
    until = time.monotonic() + PATIENCE_S
    while missing := verify(connection, position, sources):
        if time.monotonic() > until:
            raise _lacks(missing, server, position, address)
        time.sleep(_PAUSE_S)


def dump_gtids(connection: Connection, server: Server, position: MySqlPosition, sources: GtidSources) -> str:
    """What a server is told that the reader has.

    That is what is captured. Of sources that do not count, it is also what the server has purged: it would refuse to send its log
    otherwise. Nothing that is captured is sent again, whatever counts.
    """
    if sources.all or not (position.gtids and server.gtids):
        return position.gtids
    if server.mariadb:
        return str(_mariadb_dump(connection, MariaDbGtids.parse(position.gtids), sources))
    return str(_mysql_dump(connection, server, MySqlGtids.parse(position.gtids), sources))


# -- MySQL ------------------------------------------------------------------------------------------------------------


def _mysql_sets(connection: Connection) -> tuple[MySqlGtids, MySqlGtids]:
    """What is executed, and what of it is not in the log any more."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")
        executed, purged = cursor.fetchone() or ("", "")
    return MySqlGtids.parse(str(executed)), MySqlGtids.parse(str(purged))


def _verify_mysql(connection: Connection, position: MySqlPosition, sources: GtidSources) -> str:
    """The transactions that the server lacks.

    :raises PositionLost: it has purged some that are not captured
    """
    executed, purged = _mysql_sets(connection)
    captured = MySqlGtids.parse(position.gtids)
    counted, gone = sources.included(captured), sources.included(purged)
    assert isinstance(counted, MySqlGtids)
    assert isinstance(gone, MySqlGtids)
    if lost := str(gone.without(captured)):
        raise _purged(lost, position)
    return str(counted.without(executed))


def _mysql_dump(connection: Connection, server: Server, captured: MySqlGtids, sources: GtidSources) -> MySqlGtids:
    executed, purged = _mysql_sets(connection)
    # a server refuses those who have more of its own transactions than it has
    unknown = captured.without(executed)
    own = {
        s: i for s, i in unknown.sources.items() if s.partition(":")[0] == server.identity and not sources.includes(s)
    }
    asked = captured.without(MySqlGtids(own))
    others = sources.excluded(purged)
    assert isinstance(others, MySqlGtids)
    for source, intervals in others.sources.items():
        for low, high in intervals:
            asked.add(source, low, high)
    return asked


# -- MariaDB ----------------------------------------------------------------------------------------------------------


def _mariadb_state(connection: Connection) -> tuple[dict[tuple[int, int], int], MariaDbGtids]:
    """The last transaction of each domain and server in the log; and of each domain, the last that came by replication or was there
    when the log began."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")
        state, began = cursor.fetchone() or ("", "")
    last = {}
    for part in filter(None, str(state).split(",")):
        domain, server, number = map(int, part.split("-"))
        last[domain, server] = number
    return last, MariaDbGtids.parse(str(began))


def _ends(last: dict[tuple[int, int], int]) -> dict[int, tuple[int, int]]:
    """Server and number of the last transaction of each domain."""
    ends: dict[int, tuple[int, int]] = {}
    for (domain, server), number in last.items():
        ends[domain] = max(ends.get(domain, (0, 0)), (server, number), key=lambda one: one[1])
    return ends


def _held(last: dict[tuple[int, int], int], began: MariaDbGtids, domain: int, server: int, number: int) -> bool:
    return last.get((domain, server), -1) >= number or began.domains.get(domain) == (server, number)


def _verify_mariadb(connection: Connection, position: MySqlPosition, sources: GtidSources) -> str:
    """The last transactions of domains that are not in the server's log."""
    last, began = _mariadb_state(connection)
    captured = sources.included(MariaDbGtids.parse(position.gtids))
    assert isinstance(captured, MariaDbGtids)
    missing = {d: (s, n) for d, (s, n) in captured.domains.items() if not _held(last, began, d, s, n)}
    return str(MariaDbGtids(missing))


def _mariadb_dump(connection: Connection, captured: MariaDbGtids, sources: GtidSources) -> MariaDbGtids:
    last, began = _mariadb_state(connection)
    purged = _mariadb_purged(connection)
    ends = _ends(last)
    asked = purged.domains | captured.domains
    for domain, (server, number) in captured.domains.items():
        if sources.includes(str(domain)):
            continue
        before, end = purged.domains.get(domain), ends.get(domain)
        if before is not None and before[1] > number:
            asked[domain] = before
        elif not _held(last, began, domain, server, number):
            asked.pop(domain)
            if end is not None and end[1] < number:  # it is behind: all that it has is captured
                asked[domain] = end
    # what counts and is not captured is not passed over: the server says if it has purged it
    return MariaDbGtids({d: one for d, one in asked.items() if d in captured.domains or not sources.includes(str(d))})


def _mariadb_purged(connection: Connection) -> MariaDbGtids:
    """The last transaction of each domain before the oldest file of the log."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        oldest = str(cursor.fetchall()[0][0])
        cursor.execute("SHOW BINLOG EVENTS IN %s LIMIT 4", (oldest,))
        lists = [str(row[5]) for row in cursor.fetchall() if str(row[2]) == "Gtid_list"]
    return MariaDbGtids.parse(lists[0].strip("[]")) if lists else MariaDbGtids()


def verify_beginnings(
    connection: Connection, position: MySqlPosition, sources: GtidSources, first: Callable[[int, str], MariaDbGtids]
) -> None:
    """Make sure that a MariaDB's log does not begin behind a position, as that of a replica from a backup may.

    The oldest file says what came before it, but not what was there before the first of all files: asked for what comes next, the
    server begins at its first transaction then, and says nothing.

    :param first: the first transaction of a domain in the log; asked for with the GTIDs of the others, which are passed over
    :raises PositionLost: it does
    """
    last, _ = _mariadb_state(connection)
    purged = _mariadb_purged(connection)
    captured = sources.included(MariaDbGtids.parse(position.gtids))
    assert isinstance(captured, MariaDbGtids)
    ends = _ends(last)
    for domain, (server, number) in captured.domains.items():
        if domain in purged.domains or domain not in ends:
            continue
        others = MariaDbGtids({d: one for d, one in ends.items() if d != domain})
        begins = first(domain, str(others)).domains.get(domain)
        # right behind it is fine, except for transactions of another server: those would be skipped until one of this server comes
        if begins and (
            begins[1] > number + 1 or (begins[1] > number and begins[0] != server and (domain, server) in last)
        ):
            raise _begins_behind(f"{domain}-{begins[0]}-{begins[1]}", f"{domain}-{server}-{number}", position)


# -- errors -----------------------------------------------------------------------------------------------------------


def _lacks(missing: str, server: Server, position: MySqlPosition, address: str) -> PositionLost:
    same = position.server == server.identity
    why = "it was set back, or restored from a backup" if same else "it is another server than before"
    kind = "does not have in its log" if server.mariadb else "lacks"
    if server.mariadb:
        wait = f"SELECT MASTER_GTID_WAIT('{missing}', 600)"
    else:
        wait = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{missing}', 600)"
    return PositionLost(
        f"The server {address} {kind} transactions that are captured: {missing}; {why}.".replace("  ", " "),
        where=str(position),
        safe="Everything before the position is captured, these transactions too. Nothing was read from this server.",
        remedy=f"if it is a replica that is behind, let it catch up ({wait} tells when), and run again; if another server has them, "
        "connect to that one; if none has them any more, set snapshot.mode=when_needed, which reads all tables again as they are there",
    )


def _begins_behind(begins: str, captured: str, position: MySqlPosition) -> PositionLost:
    return PositionLost(
        f"The server's log begins with {begins}, behind {captured}, which is the last that is captured: what lies between is not in it.",
        where=str(position),
        safe="Everything before the position is captured. What lies between is lost for the log; the tables still have its outcome.",
        remedy="connect to a server that still has it in its log, or set snapshot.mode=when_needed to read all tables again",
    )


def _purged(lost: str, position: MySqlPosition) -> PositionLost:
    return PositionLost(
        f"The server has purged transactions that are not captured: {lost}.",
        where=str(position),
        safe="Everything before the position is captured. These transactions are lost for the log; the tables still have their outcome.",
        remedy="connect to a server that still has them in its log, or set snapshot.mode=when_needed to read all tables again; keep the log "
        "longer (binlog_expire_logs_seconds) than the longest pause between two captures",
    )
