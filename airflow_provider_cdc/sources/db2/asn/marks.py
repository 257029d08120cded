"""Marks: rows that this source writes, and by which it learns how far the capture agent is.

What the agent publishes stands still while nothing is written, its clock with it, and the database's clock is set back now and then. So whoever has to know
that the agent has published all that was committed by now writes something itself, and waits until the agent has found it in the log.

A mark is a signal of the type ``USER`` in ``IBMSNAP_SIGNAL``, which the capture agent's set-up makes with ``DATA CAPTURE CHANGES``: the agent does nothing
about it but note the LSN of its commit (``SIGNAL_LSN``), and prunes it after ``RETENTION_LIMIT``. Marks are numbered, and a later one has a greater
number, whatever the clock does: everything that had committed before a mark was written is before it in the log, and so before all later ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from airflow_provider_cdc.core.errors import PrerequisiteError
from airflow_provider_cdc.sources.db2.asn.control import clock_us, zone_us
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Connection, Db2Error
from airflow_provider_cdc.sources.db2.errors import FORBIDDEN, UNDEFINED
from airflow_provider_cdc.sources.db2.position import sized

_OURS: Final = "SIGNAL_TYPE = 'USER' AND SIGNAL_SUBTYPE = 'AIRFLOW_PROVIDER_CDC'"
_NEWEST: Final = (
    "SELECT MAX(SIGNAL_INPUT_IN), CURRENT TIMESTAMP, CURRENT TIMEZONE FROM {table} WHERE " + _OURS + " WITH CS"
)
_FOUND: Final = "SELECT MAX(SIGNAL_INPUT_IN) FROM {table} WHERE " + _OURS + " AND SIGNAL_LSN <= ? WITH CS"
_WRITE: Final = (
    "INSERT INTO {table} (SIGNAL_TYPE, SIGNAL_SUBTYPE, SIGNAL_INPUT_IN, SIGNAL_STATE) "
    "SELECT 'USER', 'AIRFLOW_PROVIDER_CDC', CAST(? AS VARCHAR(500)), 'P' FROM SYSIBM.SYSDUMMY1 WHERE {written}"
)
_DIGITS: Final = 20


def probe(connection: Connection, config: Db2Config) -> None:
    """Make sure that marks can be written, without writing one.

    :raises PrerequisiteError: they cannot; its remedy is the grant
    """
    with _allowed(connection, config):
        connection.rows(_NEWEST.format(table=_table(config)))
        connection.execute(_WRITE.format(table=_table(config), written="1 = 0"), "")
        connection.rollback()


def write_mark(connection: Connection, config: Db2Config) -> int:
    """Write a mark, and commit it; its number.

    :raises PrerequisiteError: the account may not
    """
    with _allowed(connection, config):
        newest, now, zone = connection.rows(_NEWEST.format(table=_table(config)))[0]
        number = max(clock_us(now) - zone_us(zone), int(newest or 0) + 1)
        connection.execute(_WRITE.format(table=_table(config), written="1 = 1"), f"{number:0{_DIGITS}d}")
        connection.commit()
    return number


def mark_at(connection: Connection, config: Db2Config, lsn: bytes) -> int:
    """The number of the last mark up to an LSN that the agent has published; 0 = there is none.

    :raises PrerequisiteError: the account may not see it
    """
    with _allowed(connection, config):
        return int(connection.scalar(_FOUND.format(table=_table(config)), sized(lsn, lsn)) or 0)


@contextlib.contextmanager
def _allowed(connection: Connection, config: Db2Config) -> Iterator[None]:
    try:
        yield
    except Db2Error as e:
        if e.code not in FORBIDDEN | UNDEFINED:
            raise
        connection.rollback()
        raise PrerequisiteError(
            "Only a signal that is written to its table shows how far the capture agent is, and the account may not write it.",
            where=f"{config.asn_capture_schema}.IBMSNAP_SIGNAL",
            safe="Nothing was locked or read; the offset is untouched.",
            remedy=f"{grant_of_marks(config)}; a snapshot without locks needs no signal (snapshot.isolation.mode=read_committed)",
        ) from e


def grant_of_marks(config: Db2Config) -> str:
    """The statement that lets the account write marks."""
    return f"GRANT SELECT, INSERT ON TABLE {_table(config)} TO USER {config.database_user.upper()}"


def _table(config: Db2Config) -> str:
    return f"{config.capture_schema}.IBMSNAP_SIGNAL"
