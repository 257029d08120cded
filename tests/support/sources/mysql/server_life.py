"""A server's life beside a connector: what is done to its log and its GTIDs between writes, and what a capture must say then.

The source's rows are the oracle: a capture that ends well has brought them all, and :class:`tests.support.change_log.replay.Replay` objects to each event
that comes twice or out of order. A capture that fails must have a reason: the life knows whether transactions were lost for the log.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.sources.mysql.gtid_sets import MariaDbGtids, MySqlGtids
from tests.support.connectors import mysql_connector
from tests.support.sources.mysql.mysql_server import apply_transaction, replicate, reset_log, wait_for_replica
from tests.support.sources.mysql.workload import source_rows

MODES = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


class ServerConnector:
    """A database with one table on a server, and its connector.

    :ivar broken: why the next capture may fail; empty = it has to succeed
    :ivar pending: number of statements that are not captured
    :ivar another_log: the offset is of a log from before the present one, and GTIDs alone show that nothing is missing
    """

    def __init__(self, server: Any, folder: Path, kind: str) -> None:
        self.server, self.kind, self.name = server, kind, f"life_{uuid4().hex[:8]}"
        self.broken, self.written, self.pending, self.another_log = "", 0, 0, False
        self.begun: list[str] = []
        self._began_s = int(time.time())
        server.sql(f"CREATE DATABASE {self.name}", f"CREATE TABLE {self.name}.t (id INT PRIMARY KEY, v INT)")
        self.connector = mysql_connector(server, folder, kind, database_include_list=self.name)
        self.write(1)
        self.connector.capture()

    @property
    def mariadb(self) -> bool:
        return self.kind == "mariadb"

    @property
    def has_gtids(self) -> bool:
        return self.mariadb or self.mode == "ON"

    @property
    def mode(self) -> str:
        return str(self.server.sql("SELECT @@GLOBAL.gtid_mode")[0][0])

    @property
    def executed(self) -> str:
        variable = "gtid_binlog_pos" if self.mariadb else "gtid_executed"
        return str(self.server.sql(f"SELECT @@GLOBAL.{variable}")[0][0]).replace("\n", "")

    @property
    def offset(self) -> dict[str, Any]:
        return dict(self.connector.store.load_offset("test").offset.position)  # type: ignore[union-attr,arg-type]

    # -- what is written ----------------------------------------------------------------------------------------------

    def statements(self, count: int) -> list[str]:
        """Inserts, each with an update of another row, so that an event that comes again meets a row that is newer."""
        found = []
        for _ in range(count):
            self.written += 1
            n = self.written
            found.append(f"INSERT INTO {self.name}.t VALUES ({n}, {n})")
            found.append(f"UPDATE {self.name}.t SET v = {n} WHERE id = {max(n - 1, 1)}")
        self.pending += len(found)
        return found

    def write(self, count: int = 2) -> None:
        if count:
            self.server.sql(*self.statements(count))

    def write_for_another(self, first: str, count: int = 2) -> None:
        """Transactions of another server, as replication brings them, with their GTIDs."""
        apply_transaction(self.server, first, *self.statements(count))

    # -- what is done to the log --------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.server.sql("FLUSH BINARY LOGS")

    def purge(self) -> None:
        """Purge all but the newest file."""
        if self.broken and self.executed == self.offset.get("gtids"):
            return  # what the new log had is gone, and its GTIDs are those of the position: nothing is left to tell them apart
        self.server.sql("FLUSH BINARY LOGS")
        newest = self.server.sql("SHOW BINARY LOGS")[-1][0]
        self.server.sql(f"PURGE BINARY LOGS TO '{newest}'")
        if self.pending or not self.has_gtids or not self.offset.get("gtids"):
            self.broken = self.broken or "purged"

    def reset(self) -> None:
        """Reset the log, as a person does who does not know of the connector."""
        self._reset()
        self.broken = "reset"

    def begin(self) -> None:
        """Begin with a new log."""
        self.reset()
        self.read_again()

    def _reset(self) -> None:
        # a file has the second of its creation: a log that begins again within it, before a transaction was streamed, is the same to a reader
        while int(time.time()) <= self._began_s:
            time.sleep(0.05)
        old = self.mariadb or str(self.server.sql("SELECT VERSION()")[0][0]).startswith("8.0")
        self.server.sql("RESET MASTER" if old else "RESET BINARY LOGS AND GTIDS")
        self._began_s = int(time.time())

    def provision(self) -> None:
        """Begin the log again with the GTIDs of the old one, as a replica that is made again in place does."""
        if not self.has_gtids:
            return
        had = self.executed
        self._reset()
        if self.mariadb:
            self.server.sql(f"SET GLOBAL gtid_binlog_state = '{had}'")
        else:
            self.server.sql(f"SET GLOBAL gtid_purged = '{had}'")
        self.another_log = True
        if self.pending or not self.offset.get("gtids"):
            self.broken = self.broken or "purged"

    def change_mode(self, by: int) -> None:
        at = MODES.index(self.mode) + by
        if 0 <= at < len(MODES):
            self.server.sql(f"SET GLOBAL gtid_mode = '{MODES[at]}'")
            if self.pending and MODES[at] in ("OFF", "ON"):
                self.broken = self.broken or "mode"
            if self.another_log and MODES[at] != "ON":  # only GTIDs tell that nothing is missing in it
                self.broken = self.broken or "purged"

    # -- what is captured ---------------------------------------------------------------------------------------------

    def capture(self, **run: Any) -> str:
        """Capture, and compare with the source; returns the error's text, empty if there was none.

        Without ``run`` a sensor is asked before, too: it must not keep still where the run finds something, or fails.
        """
        with open_source(self.connector.definition(), self.connector.secrets) as source:
            position = source.parse_position(self.offset)
            quiet = not source.may_have_changed(position, source.current_position())
        error, events = None, 0
        try:
            events = self.connector.capture(**run).events
        except CdcError as e:
            error = e
        if error is not None:
            assert self.broken, f"{error}: {self}"
            assert error.remedy
            # before the first GTID, a log that was begun again and is as short as the one before looks the same until something is written
            assert not quiet or not position.gtids, f"a sensor keeps still: {self}"
            return str(error)
        assert self.rows() == source_rows(self.server, self.name, "t"), str(self)
        assert not quiet or events == 0, str(self)
        # a run that finds nothing leaves the offset in the log of before
        self.another_log = self.another_log and source.parse_position(self.offset) == position
        self.pending, self.broken = 0, ""
        return ""

    def read_again(self) -> None:
        """Follow the error's advice: capture with ``snapshot.mode`` ``when_needed``."""
        self.connector.capture({"snapshot.mode": "when_needed"})
        assert self.rows() == source_rows(self.server, self.name, "t"), str(self)
        self.pending, self.broken, self.another_log = 0, "", False

    def rows(self) -> list[dict[str, Any]]:
        return self.connector.rows(f"{self.name}.t")

    def __str__(self) -> str:
        return f"{self.begun}, offset {self.offset}, server {self.executed}, {self.server.sql('SHOW BINARY LOGS')}"

    def live(self, random_: random.Random, steps: int, *, modes: bool = False) -> None:
        """Random steps, captured now and then and at the end."""
        doing: list[tuple[int, Callable[[], object]]] = [
            (6, lambda: self.write(random_.randint(1, 4))),
            (1, lambda: self.write(30)),
            (3, self.flush),
            (2, self.purge),
            (1, self.reset),
            (1, self.provision),
            (6, self.capture_or_read_again),
        ]
        if modes:
            doing += [(4, lambda: self.change_mode(1)), (3, lambda: self.change_mode(-1))]
        if self.mariadb:
            doing += [(2, lambda: self.write_elsewhere(random_))]
        self.act(doing, random_, steps)

    def act(self, doing: list[tuple[int, Callable[[], object]]], random_: random.Random, steps: int) -> None:
        """Do some of these, each with its weight; then a capture must bring what was written after the last one."""
        weights, acts = zip(*doing, strict=True)
        for _ in range(steps):
            (number,) = random_.choices(range(len(acts)), weights)
            self.begun.append(f"{number}")
            acts[number]()
        self.capture_or_read_again()
        self.write()
        self.capture_or_read_again()

    def write_elsewhere(self, random_: random.Random) -> None:
        """In another domain."""
        with self.server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"SET gtid_domain_id = {random_.choice((1, 7))}")
            for statement in self.statements(random_.randint(1, 3)):
                cursor.execute(statement)

    def capture_or_read_again(self) -> None:
        error = self.capture()
        if "gtid_mode was changed" in error:
            self.broken = "" if self.broken == "mode" else self.broken
            self.change_mode(1 if self.mode == "OFF" else -1)
            error = self.capture()
        if error:
            self.read_again()


class TwoLives(ServerConnector):
    """A primary and its replica, and a connector whose host name leads to one or the other.

    :ivar replica: which is made again, from a backup of now or of earlier
    """

    def __init__(self, primary: Any, replica: Any, folder: Path, kind: str) -> None:
        self.replica = replica
        reset_log(primary, replica)
        replicate(primary, replica)
        super().__init__(primary, folder, kind)
        self.backups = [(self.executed, self.written)]

    def write(self, count: int = 2) -> None:
        super().write(count)
        # its statements lie seconds apart, and the replica has the times of both
        with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for statement in self.statements(1):
                cursor.execute(statement)
                cursor.execute("SELECT SLEEP(0.3)")
            connection.commit()

    def back_up(self) -> None:
        self.backups.append((self.executed, self.written))

    def restore(self, random_: random.Random) -> None:
        """Make the replica again in place, from a backup. What it then lacks comes by replication, with the GTIDs and times of before."""
        gtids, written = random_.choice(self.backups)
        wait_for_replica(self.server, self.replica)
        role = "SLAVE" if self.mariadb else "REPLICA"
        self.replica.sql(
            f"STOP {role}", *([] if self.mariadb else ["RESET REPLICA"])
        )  # MySQL asks for nothing that it has received
        with self.replica.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(f"DELETE FROM {self.name}.t WHERE id > {written}")
            cursor.execute(f"UPDATE {self.name}.t SET v = id + (id < {written})")
        reset_log(self.replica)
        self.replica.sql(f"SET GLOBAL gtid_{'slave_pos' if self.mariadb else 'purged'} = '{gtids}'", f"START {role}")
        captured = MariaDbGtids if self.mariadb else MySqlGtids
        if not captured.parse(self.offset["gtids"]).contains_gtids(captured.parse(gtids)):  # type: ignore[arg-type]
            self.at_primary()  # the replica's log lacks some that are not captured

    def at_primary(self) -> None:
        self._at(self.server)

    def at_replica(self) -> None:
        """Promote the replica, as far as the connector can see."""
        self._at(self.replica)

    def _at(self, server: Any) -> None:
        self.connector.secrets |= {"database.hostname": server.host, "database.port": server.port}

    def live(self, random_: random.Random, steps: int, *, modes: bool = False) -> None:
        doing: list[tuple[int, Callable[[], object]]] = [
            (5, lambda: self.write(random_.randint(1, 3))),
            (2, self.back_up),
            (2, lambda: self.restore(random_)),
            (2, lambda: random_.choice((self.server, self.replica)).sql("FLUSH BINARY LOGS")),
            (2, self.at_primary),
            (4, self.at_replica),
            (5, self.capture),
        ]
        self.act(doing, random_, steps)

    def capture(self, **run: Any) -> str:
        wait_for_replica(self.server, self.replica)
        return super().capture(**run)
