"""The range of the log: the changes that the capture agent has published, and those that it has pruned.

No single number says where the log begins. The agent prunes all tables alike, by age (:mod:`.pruning_checks`). With an Apply program, each change table also has a
separate beginning (``CD_OLD_SYNCHPOINT``), which moves when the table is registered and when it is pruned. A table registered after a position has lost no
change after it. A pruned table has lost changes, and so has one with another change table than before. While the agent still has a transaction from before
the position, it has pruned nothing after it. Otherwise the time when a change table was made separates the cases. The stream, which knows the tables,
checks again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import PositionLost, SourceUnavailable
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.sources.db2.asn.agent_progress import (
    AgentProgress,
    capture_parameters,
    clock_us,
    find_greatest_lsn,
    read_agent_progress,
)
from airflow_provider_cdc.sources.db2.asn.table_registrations import TableRegistration
from airflow_provider_cdc.sources.db2.capture_procedure_catalog import SWITCH, WRITERS_STOPPED
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_sort_key, lsn_text
from airflow_provider_cdc.sources.db2.pruning_checks import holds_older, is_old, position_too_old, retention_minutes
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader

_NAMED = 10
"""How many tables an error has commands for."""
_SAFE = "Everything up to the position is captured; the offset is untouched."


def end_of_log(connection: Db2Connection, config: Db2Config) -> Db2Position:
    """Return the end of the log: the LSN that the agent has published.

    :raises SourceUnavailable: it has not published anything yet
    """
    now = read_agent_progress(connection, config.capture_schema)
    if not now.lsn:
        raise SourceUnavailable(
            "The capture agent has not published anything yet, so the log has no end to read up to.",
            where=f"{config.asn_capture_schema}.IBMSNAP_REGISTER",
            safe="Nothing was read; the offset is untouched.",
            remedy=f"VALUES {config.asn_capture_schema}.ASNCDCSERVICES('start','asncdc'), and wait until it has "
            "started",
        )
    return Db2Position(now.lsn, now.synch_us, seen_us=now.now_us)


def find_oldest_position(connection: Db2Connection, config: Db2Config) -> Db2Position:
    """Return the first position from which all captured change tables can be read: the beginning, unless the agent fills ``CD_OLD_SYNCHPOINT``."""
    return Db2Position(
        find_greatest_lsn(*(registration.old for registration in _captured(connection, config).values()))
    )


def check_position_readable(connection: Db2Connection, config: Db2Config, position: Db2Position) -> None:
    """Make sure that the change tables hold everything after a position.

    :raises PositionLost: they do not
    """
    now = read_agent_progress(connection, config.capture_schema)
    if now.lsn and lsn_sort_key(now.lsn) < lsn_sort_key(position.commit_lsn):
        raise PositionLost(
            f"The capture agent has published changes up to LSN {lsn_text(now.lsn)}, which is before the position: "
            "the database was restored or replaced, or the agent was cold-started.",
            where=str(position),
            safe=_SAFE,
            remedy="set snapshot.mode=when_needed for one run to snapshot all tables again",
        )
    captured = _captured(connection, config)
    if another := [
        table for table, registration in captured.items() if position.is_another(str(table), registration.created_us)
    ]:
        raise PositionLost(
            f"{_listed(another)} registered again after the position, with a different change table: changes "
            "made in between may be lost.",
            where=f"{another[0]}, {position}",
            safe=_SAFE,
            remedy=f"run {format_switch_commands(config, another)}, or set snapshot.mode=when_needed for one run to "
            "snapshot all tables again",
        )
    minutes = retention_minutes(connection, config)
    if (
        position.commit_lsn
        and not position.has_captured(now.lsn)
        and is_old(position, now.now_us, minutes)
        and not holds_older(
            connection,
            config,
            position,
            [registration for registration in captured.values() if registration.altered is not None],
        )
    ):
        raise position_too_old(position, minutes, config)
    late = {
        table: registration
        for table, registration in captured.items()
        if registration.old is not None and not position.is_table_complete(str(table), registration.old)
    }
    pruned = _pruned(connection, config, late, captured, position, now) if late else []
    if pruned:
        first = captured[pruned[0]]
        raise PositionLost(
            f"The capture agent has pruned changes after the position: the change table {first.change_table_name} "
            f"contains changes of {first.table} only after LSN {lsn_text(first.old or b'')}"
            + (f", and {len(pruned) - 1:,} other tables are affected too." if len(pruned) > 1 else "."),
            where=f"{first.table}, {position}",
            safe=_SAFE,
            remedy=f"run {format_switch_commands(config, pruned)} to snapshot only "
            f"{'that table' if len(pruned) == 1 else 'those tables'} again, or set snapshot.mode=when_needed for "
            "one run to snapshot all tables again; let the agent keep changes for longer (RETENTION_LIMIT in "
            f"{config.asn_capture_schema}.IBMSNAP_CAPPARMS, minutes)",
        )


def _listed(tables: Sequence[TableId]) -> str:
    return f"{tables[0]} was" if len(tables) == 1 else f"{tables[0]} and {len(tables) - 1:,} other tables were"


def format_switch_commands(config: Db2Config, tables: Sequence[TableId]) -> str:
    """Return the commands that give tables other change tables; of many, the first ones."""
    name = config.connector_name
    commands = [f"`{format_cdc_command(f'db2 {SWITCH.name}', name, table, confirm=name)}`" for table in tables[:_NAMED]]
    more = f", and so on for each of the {len(tables)} tables" if len(tables) > _NAMED else ""
    return f"{' and '.join(commands)}{more} (without --{WRITERS_STOPPED.name})"


def window_around(connection: Db2Connection, config: Db2Config, position: Db2Position) -> LogWindow:
    """Return when the agent prunes changes behind a position.

    It does so ``RETENTION_LIMIT`` minutes after they were committed, whether or not they were read. Change tables have no bytes that could be reported.
    """
    parameters = capture_parameters(connection, config.capture_schema)
    minutes = None if parameters is None or parameters.autoprune is False else parameters.retention_limit
    if not position.newer_than_us or minutes is None:
        return LogWindow()
    return LogWindow(gone_at_s=position.newer_than_us / 1_000_000 + minutes * 60)


def _captured(connection: Db2Connection, config: Db2Config) -> dict[TableId, TableRegistration]:
    filters = Filters(config)
    return {
        t: registration
        for t, registration in Db2CatalogReader(connection, config).list_registrations().items()
        if filters.is_table_captured(t)
    }


def _pruned(
    connection: Db2Connection,
    config: Db2Config,
    late: Mapping[TableId, TableRegistration],
    captured: Mapping[TableId, TableRegistration],
    position: Db2Position,
    now: AgentProgress,
) -> list[TableId]:
    """List the tables whose changes after a position are lost.

    :param late: tables whose change table begins after the position
    """
    if holds_older(
        connection,
        config,
        position,
        [registration for registration in captured.values() if registration.altered is not None],
    ):
        return []
    if not position.published_us:
        # the time at which the position was the end of the log is unknown: tables that began later are new, unless all did
        return [*late] if len(late) == len(captured) else []
    changes = {
        t: TableId(catalog=config.catalog_name, namespace=registration.change_owner, name=registration.change_table)
        for t, registration in late.items()
    }
    creation_times = Db2CatalogReader(connection, config).read_creation_times(changes.values())
    return [
        table
        for table, change in changes.items()
        if change in creation_times and clock_us(creation_times[change]) - now.utc_offset_us <= position.published_us
    ]


def find_log_retention(connection: Db2Connection, config: Db2Config) -> LogRetention | None:
    """Return how long the capture agent keeps changes; ``None`` if its parameters are not there."""
    parameters = capture_parameters(connection, config.capture_schema)
    if parameters is None or (parameters.autoprune and parameters.retention_limit is None):
        return None
    where = f"{config.asn_capture_schema}.IBMSNAP_CAPPARMS"
    if not parameters.autoprune or parameters.retention_limit is None:
        return LogRetention(None, f"AUTOPRUNE is N in {where}")
    minutes = parameters.retention_limit
    return LogRetention(minutes * 60, f"RETENTION_LIMIT={minutes} minutes in {where}")
