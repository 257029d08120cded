"""Progress and setup of the capture agent: ``IBMSNAP_REGISTER``, ``IBMSNAP_CAPPARMS``, ``ASNCDCSERVICES``.

The agent moves changes of committed transactions from Db2's log into change tables. It commits them together with its *synchpoints* in
``IBMSNAP_REGISTER``. So a reader that sees a committed synchpoint sees all changes up to that LSN: these queries read committed rows only
(``WITH CS``), never ``WITH UR``.

Db2's timestamps have no zone. Moments are made UTC with the offset that the server has when it is asked (``CURRENT TIMEZONE``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.position import lsn_sort_key

_PUBLISHED: Final = """
SELECT MAX(CASE WHEN GLOBAL_RECORD = 'Y' THEN SYNCHPOINT END), MAX(CASE WHEN GLOBAL_RECORD = 'Y' THEN SYNCHTIME END),
MAX(CD_NEW_SYNCHPOINT), MAX(CD_OLD_SYNCHPOINT), SUM(CASE WHEN GLOBAL_RECORD = 'N' THEN 1 ELSE 0 END),
SUM(CASE WHEN GLOBAL_RECORD = 'N' AND STATE = 'A' THEN 1 ELSE 0 END),
SUM(CASE WHEN GLOBAL_RECORD = 'N' AND CD_NEW_SYNCHPOINT IS NULL THEN 1 ELSE 0 END), CURRENT TIMESTAMP, CURRENT TIMEZONE
FROM {schema}.IBMSNAP_REGISTER WITH CS"""
_PARAMETERS: Final = """
SELECT RETENTION_LIMIT, LAG_LIMIT, COMMIT_INTERVAL, PRUNE_INTERVAL, TRACE_LIMIT, MONITOR_LIMIT, MONITOR_INTERVAL, MEMORY_LIMIT,
AUTOPRUNE, AUTOSTOP, SLEEP_INTERVAL, STARTMODE FROM {schema}.IBMSNAP_CAPPARMS WITH CS"""
_CLOCK: Final = "VALUES (CURRENT TIMESTAMP, CURRENT TIMEZONE)"


@dataclass(frozen=True, slots=True)
class AgentProgress:
    """Progress that the agent has published, at one moment.

    :param lsn: everything that committed up to and with this LSN is in the change tables; ``b""`` = the agent has not published anything yet
    :param synch_us: the time of the newest log record that the agent has read (``SYNCHTIME``), µs since the epoch, UTC; it stands still while
        nothing is written; 0 = not known
    :param now_us: the database's own clock when it was asked (``CURRENT TIMESTAMP``), µs since the epoch, UTC
    :param utc_offset_us: the difference that was subtracted from the database's timestamps
    :param registered: number of registered tables
    :param active: those of them that the agent captures (``STATE`` = ``A``)
    :param newest_start: the greatest ``CD_OLD_SYNCHPOINT``: it grows when a table is registered or pruned; ``b""`` = none
    :param newest: the greatest ``CD_NEW_SYNCHPOINT``, the newest commit in any change table; ``b""`` = the agent fills none
    :param unreported: number of registered tables whose ``CD_NEW_SYNCHPOINT`` is NULL
    """

    lsn: bytes
    synch_us: int
    now_us: int
    utc_offset_us: int
    registered: int
    active: int
    newest_start: bytes
    newest: bytes = b""
    unreported: int = 0

    @property
    def latency_us(self) -> int | None:
        """Delay of the agent behind the database; ``None`` = not known."""
        return max(0, self.now_us - self.synch_us) if self.synch_us else None

    @property
    def registrations_fingerprint(self) -> tuple[int, int, bytes]:
        """Changes when a table was registered, removed, activated, deactivated or pruned."""
        return self.registered, self.active, self.newest_start


@dataclass(frozen=True, slots=True)
class AgentParameters:
    """The agent's parameters (``IBMSNAP_CAPPARMS``), as far as they are set; ``None`` where the agent takes its own default.

    :param retention_limit: minutes after which changes are pruned that no program has applied
    :param lag_limit: minutes that the agent may be behind before it stops
    :param commit_interval: seconds between two commits of the agent
    :param prune_interval: seconds
    :param trace_limit: minutes
    :param monitor_limit: minutes
    :param monitor_interval: seconds
    :param memory_limit: megabytes
    :param autoprune: whether the agent prunes by itself
    :param autostop: whether the agent stops when it has read the log up to its end
    :param sleep_interval: seconds that the agent sleeps at the end of the log
    :param startmode: ``WARMSI``, ``WARMNS``, ``WARMSA``, ``COLD`` …
    """

    retention_limit: int | None
    lag_limit: int | None
    commit_interval: int | None
    prune_interval: int | None
    trace_limit: int | None
    monitor_limit: int | None
    monitor_interval: int | None
    memory_limit: int | None
    autoprune: bool | None
    autostop: bool | None
    sleep_interval: int | None
    startmode: str | None


def read_agent_progress(connection: Db2Connection, schema: str) -> AgentProgress:
    """Read how far the agent is: one query, one row.

    :param schema: quoted name of the schema of the agent's control tables
    :raises NotGranted: there is no such control table, or the account may not read it
    """
    point, time, newest, start, registered, active, unreported, now, zone = connection.fetch_rows(
        _PUBLISHED.format(schema=schema)
    )[0]
    offset = zone_us(zone)
    now_us = clock_us(now) - offset
    # where the clocks go back an hour, a time of before would be read as one of the future
    synch_us = min(clock_us(time) - offset, now_us) if time is not None else 0
    tables = int(registered or 0), int(active or 0), find_greatest_lsn(start)
    return AgentProgress(
        find_greatest_lsn(point, newest),
        synch_us,
        now_us,
        offset,
        *tables,
        find_greatest_lsn(newest),
        int(unreported or 0),
    )


def capture_parameters(connection: Db2Connection, schema: str) -> AgentParameters | None:
    """Read the agent's parameters; ``None`` if the control table has no row.

    :raises NotGranted: there is no such control table, or the account may not read it
    """
    rows = connection.fetch_rows(_PARAMETERS.format(schema=schema))
    if not rows:
        return None
    *limits, prune, stop, sleep, mode = rows[0]
    retention, lag, commit, pruning, trace, monitor, every, memory = (_number(value) for value in limits)
    return AgentParameters(
        retention_limit=retention,
        lag_limit=lag,
        commit_interval=commit,
        prune_interval=pruning,
        trace_limit=trace,
        monitor_limit=monitor,
        monitor_interval=every,
        memory_limit=memory,
        autoprune=_flag(prune),
        autostop=_flag(stop),
        sleep_interval=_number(sleep),
        startmode=None if mode is None else str(mode).strip(),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _flag(value: Any) -> bool | None:
    return None if value is None else str(value).strip().upper() == "Y"


def read_server_clock(connection: Db2Connection) -> tuple[int, int]:
    """Read the database's clock, µs since the epoch, UTC; and the offset of its timestamps from UTC, µs."""
    now, zone = connection.fetch_rows(_CLOCK)[0]
    return clock_us(now) - zone_us(zone), zone_us(zone)


def clock_us(moment: datetime) -> int:
    """Convert a timestamp, as the server's clock shows it, to µs since the epoch."""
    since = moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def zone_us(zone: Any) -> int:
    """Convert ``CURRENT TIMEZONE``, a number of the form hhmmss, to µs."""
    number = int(Decimal(str(zone)))
    hours, minutes, seconds = abs(number) // 10_000, abs(number) // 100 % 100, abs(number) % 100
    return (1 if number >= 0 else -1) * (hours * 3600 + minutes * 60 + seconds) * 1_000_000


def find_greatest_lsn(*lsns: bytes | None) -> bytes:
    """Return the greatest LSN; NULL is the least."""
    return max((bytes(lsn) for lsn in lsns if lsn is not None), key=lsn_sort_key, default=b"")
