"""Decides whether the agent may have pruned changes after a position.

The agent prunes changes committed more than ``RETENTION_LIMIT`` minutes ago from all change tables and from ``IBMSNAP_UOW``, captured or not. Without an
Apply program no synchpoint shows it. Changes after a position are younger than the position, so none is pruned until the position is that old. While the log
stands still, the age of the position counts from the last look. Later, any row from before the position proves that pruning has not reached the position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from airflow_provider_cdc.core.errors import PositionLost
from airflow_provider_cdc.sources.db2.asn.agent_progress import capture_parameters
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.change_table_bounds import first_commit
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.position import Db2Position

DEFAULT_MINUTES: Final = 10_080
"""``RETENTION_LIMIT`` where it is not set."""
_FIRST: Final = "SELECT MIN(IBMSNAP_COMMITSEQ) FROM {schema}.IBMSNAP_UOW WITH CS"


def retention_minutes(connection: Db2Connection, config: Db2Config) -> int:
    """Return after how many minutes the agent prunes changes."""
    parameters = capture_parameters(connection, config.capture_schema)
    limit = None if parameters is None else parameters.retention_limit
    return DEFAULT_MINUTES if limit is None else limit


def is_old(position: Db2Position, now_us: int, minutes: int) -> bool:
    """Check whether changes after a position may be old enough to be pruned; true for a position without a known time."""
    return now_us >= position.newer_than_us + minutes * 60_000_000


def holds_older(
    connection: Db2Connection, config: Db2Config, position: Db2Position, tables: Sequence[TableRegistration]
) -> bool:
    """Check whether the agent still has a row from before a position, and so every change after it."""
    first = connection.fetch_scalar(_FIRST.format(schema=config.capture_schema))
    if first is not None and position.has_captured(bytes(first)):
        return True
    oldest = first_commit(connection, tables)
    return oldest is not None and position.has_captured(oldest)


def position_too_old(position: Db2Position, minutes: int, config: Db2Config) -> PositionLost:
    """Return the error of a position after which changes may have been pruned for their age."""
    return PositionLost(
        f"The capture agent keeps changes for {minutes:,} minutes (RETENTION_LIMIT). The position is older, and no "
        "row from before the position is left: changes after it may have been pruned before they were captured.",
        where=str(position),
        safe="Everything up to the position is captured; the offset is untouched.",
        remedy="set snapshot.mode=when_needed for one run to snapshot all tables again. To prevent this: capture more "
        "often, or let the agent keep changes for longer (RETENTION_LIMIT in "
        f"{config.asn_capture_schema}.IBMSNAP_CAPPARMS, minutes)",
    )
