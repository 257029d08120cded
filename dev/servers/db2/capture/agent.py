"""Plays ``asncap``, the Capture program: copies committed changes from the log to the change tables, and says how far it is.

Each cycle ends with one transaction: rows of change tables, rows of IBMSNAP_UOW, synchpoints in IBMSNAP_REGISTER, and IBMSNAP_RESTART, from which it
continues after it was stopped or killed. So each change gets to its change table exactly once.

* SYNCHPOINT and SYNCHTIME of the global row are those of the newest transaction in the log. They stand still while no structure changes, and no table that
  is logged for replication. Everything committed before SYNCHTIME, by the database's clock, is published.
* CD_OLD_SYNCHPOINT and CD_NEW_SYNCHPOINT of registrations stay NULL, unless the option ``synchpoints`` fills them: then CD_OLD_SYNCHPOINT is the LSN
  from which the table is captured, since the agent has read the registration, and CD_NEW_SYNCHPOINT that of its newest change. A registration that
  was in another STATE than A until then misses the changes made in between.
* A signal CAPSTART in IBMSNAP_SIGNAL sets a registration to STATE A, and its CD_OLD_SYNCHPOINT; CAPSTOP to I, REINIT reads registrations again, STOP ends
  the agent. A signal of the type USER gets the LSN of its commit.
* Every PRUNE_INTERVAL, with AUTOPRUNE, it deletes rows committed more than RETENTION_LIMIT minutes ago from change tables, IBMSNAP_UOW and IBMSNAP_SIGNAL.
* IBMSNAP_CAPTRACE lists its commands and messages, IBMSNAP_CAPMON how much it has done, every five minutes.
* COMMIT_INTERVAL and SLEEP_INTERVAL of IBMSNAP_CAPPARMS count where they are other ones than ASN's defaults; otherwise the server's own, short ones do.
"""

from __future__ import annotations

import datetime
import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass

from dev.servers.db2.capture import registrations
from dev.servers.db2.capture.registrations import Registration
from dev.servers.db2.engine.driver import Connection, retry_transaction, run_atomically
from dev.servers.db2.log import positions
from dev.servers.db2.log.log import Changes, Log, LogView, Table
from dev.servers.db2.log.positions import literal
from dev.servers.db2.settings import Settings

LOG = logging.getLogger("db2.agent")
ASN_DEFAULTS = (30, 5)
AT_ONCE = 100
"""How many tables one statement asks about."""
MONITOR_SECONDS = 300.0
QUIET_SECONDS, QUIET_INTERVAL = 2.0, 2.0
"""When no one has asked the database anything for so long, the agent looks only now and then: many servers may run at once."""


@dataclass
class Pace:
    """The intervals at which the agent works, in seconds."""

    commit_interval: float
    idle_interval: float
    delay: float = 0.0
    """How much later than the log the change tables are."""


class Agent(threading.Thread):
    """The capture program of one database."""

    def __init__(self, connection: Connection, log: Log, settings: Settings) -> None:
        super().__init__(name="asncap", daemon=True)
        self._connection, self._log, self._settings = connection, log, settings
        # it asks for transactions that have ended; others, which have changes in the same tables, are not to keep it waiting
        self._connection.execute("SET ISOLATION UR")
        self._connection.commit()
        self.lock = threading.RLock()
        self.wake = threading.Event()
        self.running, self.paused = False, False
        self.pace = Pace(settings.agent_interval, settings.idle_interval, settings.delay)
        self._known: dict[Table, Registration] = {}
        self._looks: deque[LogView] = deque()
        self._at = 0
        self._last = 0.0
        self._took = 0.0
        self._asked_at = 0.0
        self._monitored = -MONITOR_SECONDS
        self._prune_interval, self._pruned_at = math.inf, time.monotonic()
        self._rows = self._transactions = 0

    @property
    def published_number(self) -> int:
        """The number up to which all is published."""
        return self._at

    # commands to the agent

    def wake_up(self) -> None:
        """Return to the usual pace, as a client works with the database."""
        quiet, self._asked_at = self._quiet, time.monotonic()
        if quiet:
            self.wake.set()

    @property
    def _quiet(self) -> bool:
        return time.monotonic() - self._asked_at > QUIET_SECONDS

    def begin(self) -> None:
        """Start to capture, from where it was."""
        with self.lock:
            if not self.running:
                retry_transaction(self._begin)
                self.running = True
        self.wake.set()

    def _begin(self) -> None:
        with run_atomically(self._connection):
            self._at = self._restart()
            self._connection.execute(
                "UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = (SELECT MAX_COMMITSEQ FROM ASNCDC.IBMSNAP_RESTART), "
                "SYNCHTIME = (SELECT MAX_COMMIT_TIME FROM ASNCDC.IBMSNAP_RESTART) WHERE GLOBAL_RECORD = 'Y' AND SYNCHPOINT IS NULL"
            )
            self._known = {}
            self._looks.clear()
            self._parameters()
            self._read_registrations(starting=True)
            self._trace("INIT", "ASN0100I CAPTURE: the Capture program initialization is successful.")
            self._connection.commit()

    def end(self) -> None:
        """Stop to capture."""
        with self.lock:
            if self.running:
                retry_transaction(lambda: self._tell("ASN0123I CAPTURE: the program stopped."))
                self.running = False

    def _tell(self, description: str) -> None:
        with run_atomically(self._connection):
            self._trace("INFO", description)
            self._connection.commit()

    def reinit(self) -> None:
        """Read the registrations and the parameters again."""
        with self.lock:
            if self.running:
                retry_transaction(self._reinit)

    def _reinit(self) -> None:
        if not self.paused:
            self._cycle(self._log.read_view())
        with run_atomically(self._connection):
            self._parameters()
            self._read_registrations(starting=False)
            self._trace("INFO", "ASN0133I CAPTURE: the program was reinitialized.")
            self._connection.commit()

    def step(self) -> int:
        """Capture now what has been committed until now; returns how many transactions that were."""
        with self.lock:
            look = retry_transaction(self._log.read_view)
            self._transactions += look.new_transactions
            retry_transaction(lambda: self._cycle(look))
            return look.new_transactions

    def published(self) -> bytes:
        """The LSN up to which all is in the change tables."""
        with self.lock:
            with run_atomically(self._connection):
                value = self._connection.scalar(
                    "SELECT SYNCHPOINT FROM ASNCDC.IBMSNAP_REGISTER WHERE GLOBAL_RECORD = 'Y'"
                )
                self._connection.commit()
            return bytes(value or b"")

    # its life

    def run(self) -> None:
        """Work until the process ends."""
        while True:
            idle = self.pace.idle_interval
            self.wake.wait(max(idle, QUIET_INTERVAL) if self._quiet else idle)
            self.wake.clear()
            # it is to leave time to others, also when there is much to look at again and again, as in a long open transaction
            pause = self._last + max(self.pace.commit_interval, self._took) - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            begin = time.monotonic()
            try:
                with self.lock:
                    if self.running and not self.paused:
                        self._cycle(self._log.read_view())
                    elif not self.running:
                        self._log.read_view()  # the log continues
            except Exception:
                LOG.exception("a cycle failed; the agent tries again")
                try:
                    self._connection.rollback()
                except Exception:  # the next cycle tries again
                    LOG.exception("its rollback failed")
                time.sleep(0.5)
            self._last = time.monotonic()
            self._took = self._last - begin

    def _parameters(self) -> None:
        (parameters,) = self._connection.rows(
            "SELECT COMMIT_INTERVAL, SLEEP_INTERVAL, PRUNE_INTERVAL, AUTOPRUNE FROM ASNCDC.IBMSNAP_CAPPARMS WITH CS"
        )
        commit, sleep, prune, autoprune = parameters
        self._prune_interval = float(prune) if autoprune == "Y" else math.inf
        if commit != ASN_DEFAULTS[0]:
            self.pace.commit_interval = float(commit)
        if sleep != ASN_DEFAULTS[1]:
            self.pace.idle_interval = float(sleep)

    # one cycle

    def _cycle(self, look: LogView) -> None:
        if self.pace.delay:
            self._looks.append(look)
            limit, found = datetime.timedelta(seconds=self.pace.delay), None
            while self._looks and look.at - self._looks[0].at >= limit:
                found = self._looks.popleft()
            if found is None:
                return
            look = found
        if look.end > self._at:
            self._publish(look)

    def _publish(self, look: LogView) -> None:
        at, known = self._at, dict(self._known)
        try:
            self._write(look, (at, look.end))
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            self._at, self._known = at, known
            raise

    def _write(self, look: LogView, between: tuple[int, int]) -> None:
        run = self._connection
        moment = f"TIMESTAMP('{look.at}')"
        if newest := run.rows(
            "SELECT COMMITSEQ, LOGMARKER FROM DB2LOG.UNITS WHERE N > ? AND N <= ? ORDER BY N DESC FETCH FIRST 1 ROW ONLY",
            between,
        ):
            self._drop_those_without_table()
            changed = self._changed(between)
            registrations.mark_lobs(run, changed, between)
            for changes in changed:
                self._copy(self._known[changes.table], changes, between)
            self._units(changed, between)
            lsn, moment = literal(bytes(newest[0][0])), f"TIMESTAMP('{newest[0][1]}')"
            self._point(lsn, moment)
        elif self._log.written:
            self._point(literal(positions.lsn(look.end, self._log.length)), moment)
        self._log.written = False
        self._at = look.end
        if newest:
            self._received(between)
            self._signals()
        if time.monotonic() > self._pruned_at + self._prune_interval:
            self._pruned_at = time.monotonic()
            registrations.prune_old(run)
        if time.monotonic() > self._monitored + MONITOR_SECONDS:
            self._monitored = time.monotonic()
            run.execute(
                f"INSERT INTO ASNCDC.IBMSNAP_CAPMON VALUES (CURRENT_TIMESTAMP, {moment}, 0, {self._rows}, 0, 0, 0, {self._transactions}, 0, 0, 0, "
                f"NULL, NULL, 0, 0, {moment})"
            )
            self._rows = self._transactions = 0

    def _point(self, lsn: str, moment: str) -> None:
        self._connection.execute(
            f"UPDATE ASNCDC.IBMSNAP_REGISTER SET SYNCHPOINT = {lsn}, SYNCHTIME = {moment} WHERE GLOBAL_RECORD = 'Y'"
        )
        self._connection.execute(
            f"UPDATE ASNCDC.IBMSNAP_RESTART SET MAX_COMMITSEQ = {lsn}, MAX_COMMIT_TIME = {moment}, MIN_INFLIGHTSEQ = {lsn}, CURR_COMMIT_TIME = {moment}"
        )

    def _changed(self, between: tuple[int, int]) -> list[Changes]:
        """Find the tables of changes that have rows of these transactions."""
        known = [changes for table in self._known for changes in self._log.changes_of(table)]
        found: set[int] = set()
        for start in range(0, len(known), AT_ONCE):
            some = [
                f"SELECT {changes.id} FROM SYSIBM.SYSDUMMY1 WHERE EXISTS "
                f"(SELECT 1 FROM DB2LOG.UNITS U JOIN {changes.name} S ON S.XID = U.XID WHERE U.N > ? AND U.N <= ?)"
                for changes in known[start : start + AT_ONCE]
            ]
            rows = self._connection.rows(" UNION ALL ".join(some), between * len(some))
            found.update(row[0] for row in rows)
        return [changes for changes in known if changes.id in found]

    def _copy(self, registration: Registration, changes: Changes, between: tuple[int, int]) -> None:
        inserts = registration.inserts(changes, self._log.length)
        count = sum(max(0, self._connection.execute(sql, between)) for sql in inserts)
        self._rows += count
        if count > 0 and self._settings.synchpoints != "none":
            self._connection.execute(
                "UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_NEW_SYNCHPOINT = (SELECT U.COMMITSEQ FROM DB2LOG.UNITS U WHERE U.N = (SELECT MAX(V.N) FROM "
                f"DB2LOG.UNITS V JOIN {changes.name} S ON S.XID = V.XID WHERE V.N > ? AND V.N <= ?)) WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
                (*between, *registration.table),
            )

    def _units(self, changed: list[Changes], between: tuple[int, int]) -> None:
        if not changed or not self._settings.insert_uow:
            return
        tables = [changes.name for changes in changed]
        having = " OR ".join(f"EXISTS (SELECT 1 FROM {name} S WHERE S.XID = U.XID)" for name in tables)
        self._connection.execute(
            "INSERT INTO ASNCDC.IBMSNAP_UOW (IBMSNAP_UOWID, IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER, IBMSNAP_AUTHTKN, IBMSNAP_AUTHID) "
            f"SELECT CAST({positions.in_sql('U.N / 65536', 10)} AS CHAR(10) FOR BIT DATA), U.COMMITSEQ, U.LOGMARKER, 'python', U.AUTHID "
            f"FROM DB2LOG.UNITS U WHERE U.N > ? AND U.N <= ? AND ({having})",
            between,
        )

    # registrations

    def _restart(self) -> int:
        rows = self._connection.rows("SELECT MAX_COMMITSEQ FROM ASNCDC.IBMSNAP_RESTART")
        if rows:
            return positions.number(bytes(rows[0][0]))
        look = self._log.read_view()
        lsn, moment = literal(positions.lsn(look.end, self._log.length)), f"TIMESTAMP('{look.at}')"
        self._connection.execute(f"INSERT INTO ASNCDC.IBMSNAP_RESTART VALUES ({lsn}, {moment}, {lsn}, {moment}, {lsn})")
        return look.end

    def _read_registrations(self, *, starting: bool) -> None:
        found = registrations.read(self._connection, self._log, self._settings.lob_writes)
        lsn = literal(positions.lsn(self._at, self._log.length))
        begun = 0
        for table in found if self._settings.synchpoints == "both" else ():
            where = "WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?"
            if starting or table in self._known:
                where += " AND CD_OLD_SYNCHPOINT IS NULL"
            begun += max(
                0,
                self._connection.execute(
                    f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_OLD_SYNCHPOINT = {lsn} {where}", table
                ),
            )
        if begun:  # by a signal, which is in the log, too
            self._point(lsn, "CURRENT_TIMESTAMP")
        self._known = found

    def _drop_those_without_table(self) -> None:
        rows = self._connection.rows(
            "SELECT S.SCHEMANAME, T.TABLENAME FROM SYS.SYSTABLES T JOIN SYS.SYSSCHEMAS S ON S.SCHEMAID = T.SCHEMAID WHERE T.TABLETYPE = 'T'"
        )
        there = {(row[0], row[1]) for row in rows}
        for table, registration in list(self._known.items()):
            if registration.change_table not in there:
                del self._known[table]
                self._trace(
                    "ERROR", f"ASN0057E CAPTURE: the change table {'.'.join(registration.change_table)} is not there."
                )
                self._connection.execute(
                    "UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'S', STATE_INFO = 'ASN0057E' WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
                    table,
                )

    def _received(self, between: tuple[int, int]) -> None:
        """Note the LSN of signals of the type USER."""
        for changes in self._log.changes_of(registrations.SIGNALS):
            signals = self._connection.rows(
                f"SELECT U.COMMITSEQ, S.A1 FROM {changes.name} S JOIN DB2LOG.UNITS U ON U.XID = S.XID WHERE U.N > ? AND U.N <= ? AND S.A2 = 'USER'",
                between,
            )
            for lsn, moment in signals:
                self._connection.execute(
                    f"UPDATE ASNCDC.IBMSNAP_SIGNAL SET SIGNAL_STATE = 'R', SIGNAL_LSN = {literal(bytes(lsn))} WHERE SIGNAL_TIME = TIMESTAMP('{moment}')"
                )

    def _signals(self) -> None:
        run = self._connection
        if not run.rows(
            "SELECT 1 FROM ASNCDC.IBMSNAP_SIGNAL WHERE SIGNAL_TYPE = 'CMD' AND SIGNAL_STATE = 'P' FETCH FIRST 1 ROW ONLY WITH UR"
        ):
            return
        rows = run.rows(
            "SELECT SIGNAL_TIME, SIGNAL_SUBTYPE, SIGNAL_INPUT_IN FROM ASNCDC.IBMSNAP_SIGNAL WHERE SIGNAL_TYPE = 'CMD' AND SIGNAL_STATE = 'P' ORDER BY SIGNAL_TIME WITH CS"
        )
        for moment, kind, argument in rows:
            table = registrations.map_id(run, argument or "")
            if kind in ("CAPSTART", "CAPSTOP") and table:
                run.execute(
                    f"UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = '{'A' if kind == 'CAPSTART' else 'I'}' WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
                    table,
                )
            self._read_registrations(starting=False)
            if kind == "CAPSTART" and table:
                lsn = literal(positions.lsn(self._at, self._log.length))
                run.execute(
                    f"UPDATE ASNCDC.IBMSNAP_REGISTER SET CD_OLD_SYNCHPOINT = {lsn} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ? AND CD_OLD_SYNCHPOINT IS NULL",
                    table,
                )
            run.execute(
                f"UPDATE ASNCDC.IBMSNAP_SIGNAL SET SIGNAL_STATE = 'C' WHERE SIGNAL_TIME = TIMESTAMP('{moment}') AND SIGNAL_STATE = 'P'"
            )
            if kind == "STOP":
                self.running = False

    def _trace(self, operation: str, description: str) -> None:
        self._connection.execute(
            "INSERT INTO ASNCDC.IBMSNAP_CAPTRACE VALUES (?, CURRENT_TIMESTAMP, ?)", (operation, description)
        )
