"""Marks: rows that this source writes to see how far the capture agent is.

The published LSN and its time stand still while nothing is written, and the database's clock is set back now and then. So this source writes a row
itself, and waits until the agent has found it in the log. Then the agent has published everything that was committed before that row.

A mark is a signal of the type ``USER`` in ``IBMSNAP_SIGNAL``, a table that the agent's set-up creates with ``DATA CAPTURE CHANGES``. The agent only notes
the LSN of its commit (``SIGNAL_LSN``), and prunes it after ``RETENTION_LIMIT``. Each mark has a number, greater than those of earlier marks whatever the
clock does. Everything committed before a mark is before it in the log, and so before all later marks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.db2.asn.agent_progress import clock_us, zone_us
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection, Db2Error
from airflow_provider_cdc.sources.db2.error_translation import FORBIDDEN, UNDEFINED
from airflow_provider_cdc.sources.db2.position import resized_lsn

_OUR_MARKS: Final = "SIGNAL_TYPE = 'USER' AND SIGNAL_SUBTYPE = 'AIRFLOW_PROVIDER_CDC'"
_NEWEST_MARK: Final = (
    "SELECT MAX(SIGNAL_INPUT_IN), CURRENT TIMESTAMP, CURRENT TIMEZONE FROM {table} WHERE " + _OUR_MARKS + " WITH CS"
)
_LAST_MARK: Final = "SELECT MAX(SIGNAL_INPUT_IN) FROM {table} WHERE " + _OUR_MARKS + " AND SIGNAL_LSN <= ? WITH CS"
_WRITE_MARK: Final = (
    "INSERT INTO {table} (SIGNAL_TYPE, SIGNAL_SUBTYPE, SIGNAL_INPUT_IN, SIGNAL_STATE) "
    "SELECT 'USER', 'AIRFLOW_PROVIDER_CDC', CAST(? AS VARCHAR(500)), 'P' FROM SYSIBM.SYSDUMMY1 WHERE {written}"
)
_NUMBER_DIGITS: Final = 20


def check_mark_grant(connection: Db2Connection, config: Db2Config) -> None:
    """Make sure that the account may write marks, without writing one.

    :raises PrerequisiteError: it may not; the remedy is the grant
    """
    with _mark_grant_checked(connection, config):
        connection.fetch_rows(_NEWEST_MARK.format(table=_table(config)))
        connection.execute(_WRITE_MARK.format(table=_table(config), written="1 = 0"), "")
        connection.rollback()


def write_mark(connection: Db2Connection, config: Db2Config) -> int:
    """Write a mark, commit it, and return its number.

    :raises PrerequisiteError: the account may not write marks
    """
    with _mark_grant_checked(connection, config):
        newest, now, zone = connection.fetch_rows(_NEWEST_MARK.format(table=_table(config)))[0]
        number = max(clock_us(now) - zone_us(zone), int(newest or 0) + 1)
        connection.execute(_WRITE_MARK.format(table=_table(config), written="1 = 1"), f"{number:0{_NUMBER_DIGITS}d}")
        connection.commit()
    return number


def mark_at(connection: Db2Connection, config: Db2Config, lsn: bytes) -> int:
    """Return the number of the last mark that the agent has published up to an LSN; 0 = no mark.

    :raises PrerequisiteError: the account may not read marks
    """
    with _mark_grant_checked(connection, config):
        return int(connection.fetch_scalar(_LAST_MARK.format(table=_table(config)), resized_lsn(lsn, lsn)) or 0)


@contextlib.contextmanager
def _mark_grant_checked(connection: Db2Connection, config: Db2Config) -> Iterator[None]:
    try:
        yield
    except Db2Error as e:
        if e.code not in FORBIDDEN | UNDEFINED:
            raise
        connection.rollback()
        raise PrerequisiteError(
            "The account may not write signals. Only a signal in the log shows how far the capture agent has read.",
            where=f"{config.asn_capture_schema}.IBMSNAP_SIGNAL",
            safe="Nothing was locked or read; the offset is untouched.",
            remedy=f"{grant_of_marks(config)}; or take snapshots without locks, which need no signal (snapshot.isolation.mode=read_committed)",
        ) from e


def grant_of_marks(config: Db2Config) -> str:
    """Return the statement that lets the account write marks."""
    return f"GRANT SELECT, INSERT ON TABLE {_table(config)} TO USER {config.database_user.upper()}"


def _table(config: Db2Config) -> str:
    return f"{config.capture_schema}.IBMSNAP_SIGNAL"
