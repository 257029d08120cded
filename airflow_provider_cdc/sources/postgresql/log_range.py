"""The part of the log that the slot holds, and whether a position is in it."""

from __future__ import annotations

import time
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.errors import PositionLost, SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import PostgresServer, connect, server_of
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, format_lsn, parse_lsn
from airflow_provider_cdc.sources.postgresql.slot_state import (
    AGAIN,
    LOG_END,
    SAFE,
    ReplicationSlot,
    check_slot,
    read_slot,
)

_POSITION: Final = f"""
SELECT {LOG_END}::text, (SELECT system_identifier::text FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint())"""
_BYTES_PER_S: Final = (
    "SELECT (wal_bytes / GREATEST(EXTRACT(epoch FROM clock_timestamp() - stats_reset), 1))::float8 FROM pg_stat_wal"
)


def end_of_log(connection: Connection[tuple[Any, ...]]) -> PostgresPosition:
    """Return the end of the log that is flushed; on a standby, of the log that is replayed."""
    row = connection.execute(_POSITION).fetchone()
    assert row is not None
    return PostgresPosition(parse_lsn(row[0]), row[1], row[2])


def find_oldest_position(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> PostgresPosition:
    """Return the position that the slot sends from; without a slot, the end of the log."""
    end, slot = end_of_log(connection), read_slot(connection, config)
    if slot is None or slot.is_lost or slot.confirmed_lsn is None:
        return end
    return PostgresPosition(parse_lsn(slot.confirmed_lsn), end.system, end.timeline)


def check_position_readable(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, position: PostgresPosition
) -> None:
    """Check that the slot sends all changes after a position.

    :raises PositionLost: it does not; with what is lost and how to continue
    :raises PrerequisiteError: the slot's name is that of another kind of slot
    :raises SourceUnavailable: the server is a standby that has not reached the position yet
    """
    server, end = server_of(connection), end_of_log(connection)
    if position.system and position.system != server.system:
        raise PositionLost(
            f"The server is another cluster: its system identifier is {server.system}, and the position is of {position.system}.",
            where=str(position), safe="Everything before the position is captured. Nothing was read from this cluster.",
            remedy=f"connect to the cluster that the connector has read; if it was replaced (pg_upgrade, a dump, logical replication), {AGAIN}",
        )  # fmt: skip
    _check_timeline(config, server, position)
    slot = read_slot(connection, config)
    check_slot(config, server, slot, position)
    if position.lsn > end.lsn:
        _reject_position_beyond_end(server, end, position)
    if (
        connection.execute("SELECT FROM pg_publication WHERE pubname = %s", [config.publication_name]).fetchone()
        is None
    ):
        raise PositionLost(
            f"The publication {config.publication_name} was dropped, without which the log after the position cannot be read.",
            where=str(position), safe=SAFE,
            remedy=f"a publication that is created now does not contain changes from before: drop the slot with SELECT "
            f"pg_drop_replication_slot('{config.slot_name}'), and {AGAIN}",
        )  # fmt: skip


def window_around(
    connection: Connection[tuple[Any, ...]], config: PostgresConfig, position: PostgresPosition
) -> tuple[LogWindow, ReplicationSlot | None]:
    """Return how far the end of the log is, and when the slot is lost if as much is written as until now; and the slot."""
    end, slot = end_of_log(connection), read_slot(connection, config)
    behind = max(end.lsn - position.lsn, 0)
    if position.system and position.system != end.system:
        return LogWindow(), slot
    if slot is None or slot.is_lost:
        return LogWindow(behind, time.time()), slot
    if slot.safe_bytes is None:
        return LogWindow(behind), slot
    row = connection.execute(_BYTES_PER_S).fetchone()
    rate = row[0] if row is not None else None
    return LogWindow(behind, time.time() + max(slot.safe_bytes, 0) / rate if rate else None), slot


def find_log_retention(connection: Connection[tuple[Any, ...]]) -> LogRetention | None:
    """Return how long the server keeps the log for a slot; ``None`` if a number of bytes decides."""
    settings = server_of(connection).settings
    row = connection.execute(
        "SELECT setting::float8 * CASE unit WHEN 's' THEN 1 WHEN 'min' THEN 60 ELSE NULL END FROM pg_settings "
        "WHERE name = 'idle_replication_slot_timeout'"
    ).fetchone()
    if row is not None and row[0]:
        return LogRetention(row[0], f"idle_replication_slot_timeout={settings['idle_replication_slot_timeout']}")
    if settings.get("max_slot_wal_keep_size") == "-1":
        return LogRetention(None, "max_slot_wal_keep_size=-1")
    return None


def _reject_position_beyond_end(server: PostgresServer, end: PostgresPosition, position: PostgresPosition) -> None:
    if server.is_standby:
        raise SourceUnavailable(
            f"The server is a standby that has replayed the log up to {end}, which is before the position.",
            where=str(position), safe="Nothing was read; the offset is untouched.",
            remedy="a retry resumes when the standby has caught up; if it does not, check its replication (pg_stat_wal_receiver)",
        )  # fmt: skip
    raise PositionLost(
        f"The log ends at {end}, which is before the position: the server was restored to an earlier state, or has lost the end of its log.",
        where=str(position),
        safe="Everything before the position is captured, including changes that the server no longer has. Nothing was read from this log.",
        remedy=f"if another server has the changes, connect to that server; otherwise {AGAIN}, in their current state",
    )


def _check_timeline(config: PostgresConfig, server: PostgresServer, position: PostgresPosition) -> None:
    """Check that the position is on the line of the log that led to the server's present timeline.

    A promotion begins a new timeline where the standby was. What its primary wrote after that is not in the new one.
    """
    if not position.timeline or position.timeline == server.timeline:
        return
    if position.timeline < server.timeline:
        switches = read_timeline_history(config, server.timeline)
        switch = switches.get(position.timeline)
        if switch is not None and position.lsn <= switch:
            return
        why = (
            f"the log branched off at {format_lsn(switch)}, before the position"
            if switch is not None
            else f"its log does not come from timeline {position.timeline}"
        )
    else:
        why = f"the position is on the later timeline {position.timeline}"
    raise PositionLost(
        f"The server is on timeline {server.timeline}, and {why}: changes that were captured are not in its log.",
        where=str(position),
        safe="Everything before the position is captured, including changes that the server no longer has. Nothing was read from this log.",
        remedy=f"if a promotion or a restore was a mistake, connect to the server that has the changes; otherwise {AGAIN}, in their current state",
    )


def read_timeline_history(config: PostgresConfig, timeline: int) -> dict[int, int]:
    """Read the ends of the timelines that led to a timeline, as LSNs.

    :raises CdcError: the server refuses a replication connection, or has lost the history
    """
    with connect(config, initial=False, replication=True) as connection:
        row = connection.execute(f"TIMELINE_HISTORY {timeline:d}").fetchone()
    assert row is not None
    content = row[1] if isinstance(row[1], str) else bytes(row[1]).decode()
    return parse_timeline_history(content)


def parse_timeline_history(text: str) -> dict[int, int]:
    r"""Parse a history file of the server.

    >>> parse_timeline_history("1\t0/3000000\tno recovery target specified\n")
    {1: 50331648}
    """
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {int(fields[0]): parse_lsn(fields[1]) for fields in lines}
