"""The state of a replication slot, and whether its stream has a position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from airflow_provider_cdc.core.errors import PositionLost, PrerequisiteError
from airflow_provider_cdc.sources.postgresql.config import PostgresConfig
from airflow_provider_cdc.sources.postgresql.connect import PostgresServer
from airflow_provider_cdc.sources.postgresql.position import PostgresPosition, parse_lsn

PLUGIN: Final = "pgoutput"
SAFE: Final = "Everything before the position is captured. Changes after it may be missing from the log; the tables still contain their result."
AGAIN: Final = "set snapshot.mode=when_needed to snapshot all tables again and continue from there"
LOG_END: Final = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
"""Expression of the end of the log that is flushed; on a standby, of the log that is replayed."""
_SLOT: Final = f"""
SELECT s.slot_type, s.plugin, s.database, s.active_pid, s.restart_lsn::text, s.confirmed_flush_lsn::text, s.wal_status, s.safe_wal_size,
       pg_wal_lsn_diff({LOG_END}, s.restart_lsn)::bigint, to_jsonb(s)->>'invalidation_reason', s.temporary,
       COALESCE((to_jsonb(s)->>'conflicting')::boolean, false)
FROM pg_replication_slots s WHERE s.slot_name = %s"""


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A replication slot as the server has it.

    :param active_pid: of the process that sends from it
    :param restart_lsn: the server keeps its log from here on; ``None``: it keeps none for the slot
    :param confirmed_lsn: transactions that end before it are not sent
    :param wal_status: reserved, extended, unreserved or lost
    :param safe_bytes: that can be written before the slot is lost; ``None``: any number
    :param held_bytes: of log that the server keeps for the slot
    :param reason: why the slot was invalidated (PostgreSQL 17 and newer)
    """

    slot_type: str
    plugin: str | None
    database: str | None
    active_pid: int | None
    restart_lsn: str | None
    confirmed_lsn: str | None
    wal_status: str | None
    safe_bytes: int | None
    held_bytes: int | None
    reason: str | None
    temporary: bool
    conflicting: bool

    @property
    def is_lost(self) -> bool:
        """Check whether the server has invalidated the slot."""
        return self.wal_status == "lost" or self.restart_lsn is None or bool(self.reason) or self.conflicting


def read_slot(connection: Connection[tuple[Any, ...]], config: PostgresConfig) -> ReplicationSlot | None:
    """Read the state of the connector's slot; ``None`` if the server has no slot of this name."""
    row = connection.execute(_SLOT, [config.slot_name]).fetchone()
    return None if row is None else ReplicationSlot(*row)


def check_slot(
    config: PostgresConfig, server: PostgresServer, slot: ReplicationSlot | None, position: PostgresPosition
) -> None:
    """Check that a slot sends all changes after a position.

    :raises PositionLost: it does not; with the reason and the ways to continue
    :raises PrerequisiteError: the slot's name is that of another kind of slot
    """
    name = config.slot_name
    if slot is None:
        raise PositionLost(
            f"The replication slot {name} does not exist: it was dropped, or the server is a standby or a copy that has no such slot.",
            where=str(position), safe=SAFE,
            remedy=f"if another server has the slot, connect to that server; otherwise {AGAIN}; a slot survives a failover with "
            "slot.failover=true (PostgreSQL 17 and newer)",
        )  # fmt: skip
    if slot.slot_type != "logical" or slot.plugin != PLUGIN or slot.database != config.database_dbname:
        raise PrerequisiteError(
            f"The replication slot {name} is not this connector's: it is a {slot.slot_type} slot"
            + (f" of the plugin {slot.plugin} in the database {slot.database}." if slot.plugin else "."),
            where=str(position), safe="Nothing was read; the offset is untouched.",
            remedy="set slot.name to the slot that the connector has read before; if that was dropped, set slot.name to a new name and "
            "snapshot.mode=when_needed",
        )  # fmt: skip
    if slot.is_lost:
        why = f" ({slot.reason})" if slot.reason else ""
        raise PositionLost(
            f"The server has invalidated the replication slot {name}{why}: it no longer keeps the log after the position.",
            where=str(position), safe=SAFE,
            remedy=f"drop the slot with SELECT pg_drop_replication_slot('{name}'), and {AGAIN}; raise max_slot_wal_keep_size, which is "
            f"{server.settings.get('max_slot_wal_keep_size', 'not known')}, or capture more often",
        )  # fmt: skip
    if slot.confirmed_lsn is not None and parse_lsn(slot.confirmed_lsn) > position.lsn:
        raise PositionLost(
            f"The replication slot {name} is at {slot.confirmed_lsn}, which is after the position: another reader has used it, or the slot "
            "was advanced or created later. The server does not send the changes between them.",
            where=str(position), safe=SAFE,
            remedy=f"find out who else reads the slot (pg_stat_replication), give each reader a separate slot (slot.name), and {AGAIN}",
        )  # fmt: skip
