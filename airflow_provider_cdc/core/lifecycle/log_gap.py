"""A gap: the source's log no longer holds the position that a connector has to continue from.

It names the lost changes, and the repairs.

There are three repairs. After each, the connector can run again:

* ``snapshot``: all tables are read again before streaming continues. Only the single events in between are lost.
* ``incremental``: streaming continues at once from the oldest position that the log still has, and all tables are read beside it. The
  result is the same, without a pause; only tables whose schema has changed are read whole first.
* ``skip``: streaming continues from there, and the changes in between are lost for good.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError, PositionLost, PrerequisiteError
from airflow_provider_cdc.core.incremental.incremental_coordinator import writes_watermarks
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.schema_history import SchemaHistory
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.remedy_commands import format_cdc_command, name_cdc_command
from airflow_provider_cdc.core.snapshot.snapshot_policy import reads_rows, snapshot_policy

if TYPE_CHECKING:
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.core.spi.store_interfaces import StoredOffset


class GapRepair(enum.StrEnum):
    """The ways to continue after a gap."""

    SNAPSHOT = "snapshot"
    INCREMENTAL = "incremental"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class LogGap:
    """The changes that are lost.

    :param position: up to here everything is captured
    :param moved_at: when the connector reached it
    :param oldest: the first position from which the log can be read
    :param comparable: whether ``oldest`` lies behind ``position`` in the same log; otherwise the log was reset, or is another
        server's, and it is not known how much was in between
    :param why: what the source says
    """

    connector: str
    position: Position
    moved_at: datetime | None
    oldest: Position
    comparable: bool
    why: str

    def __str__(self) -> str:
        since = f" ({self.moved_at.isoformat(timespec='seconds')})" if self.moved_at else ""
        text = f"Lost: all changes committed after {self.position}{since} and before {self.oldest}, the oldest position that can be read."
        if not self.comparable:
            text += " The oldest position is not a later position of the same log: the log was reset, or belongs to another server."
        return text

    def to_document(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "connector": self.connector,
            "position": self.position.to_json(),
            "moved_at": None if self.moved_at is None else self.moved_at.isoformat(timespec="seconds"),
            "oldest": self.oldest.to_json(),
            "comparable": self.comparable,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The planned steps of a repair. Nothing has happened yet.

    :param version: of the offset that the plan is about; once that has moved, the plan is invalid
    :param tables: that are read again
    :param whole: those of them that are read whole first, as their schema has changed; of an incremental repair
    :param problems: why it cannot be done, each with what can be done instead; empty if it can
    """

    gap: LogGap
    how: GapRepair
    version: int
    tables: tuple[str, ...]
    whole: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "gap": self.gap.to_document(),
            "repair": self.how.value,
            "version": self.version,
            "tables": list(self.tables),
            "whole": list(self.whole),
            "problems": list(self.problems),
        }


def find_gap(connector: str, offset: Offset, moved_at: datetime | None, source: Source) -> LogGap | None:
    """Find the gap between an offset and the log, ``None`` if there is none."""
    if offset.position is None:
        return None
    position = source.parse_position(offset.position)
    try:
        source.verify_position(position)
    except PositionLost as e:
        oldest = source.oldest_position()
        return LogGap(connector, position, moved_at, oldest, oldest.has_reached(position), e.message)
    return None


def no_gap(connector: str) -> ConfigError:
    """There is nothing to repair."""
    return ConfigError(
        f"No gap: the log contains the position of {connector}.",
        safe="Nothing was changed.",
        remedy=f"to continue from another position, inspect the offset with `{format_cdc_command('offset show', connector)}`, and move it with "
        f"`{name_cdc_command('offset set')}` or `{name_cdc_command('offset reset')}`",
    )


def skip_gap(offset: Offset, gap: LogGap) -> Offset:
    """Return the offset at the oldest position of the log."""
    return offset.move_position(gap.oldest.to_json())


def all_again(offset: Offset, config: ConnectorConfig) -> Offset:
    """Return the offset with which a connector reads all tables first.

    :raises ConfigError: its snapshots read no rows, or not those of all tables
    """
    if not reads_rows(snapshot_policy(config)):
        raise ConfigError(
            f"With snapshot.mode={config.snapshot_mode.value}, a snapshot reads no rows, and the gap would remain.",
            safe="Nothing was changed.",
            remedy="set snapshot.mode=initial, or repair the gap with --repair incremental",
        )
    if config.snapshot_include_collection_list:
        raise ConfigError(
            "snapshot.include.collection.list leaves tables out of snapshots, and their gap would remain.",
            safe="Nothing was changed.",
            remedy="remove snapshot.include.collection.list, or repair the gap with --repair incremental",
        )
    return offset.clear_position()


def repair_signals(
    id_: str, source: Source, config: ConnectorConfig, history: SchemaHistory, *, paused: bool, origin: str, by: str
) -> list[SentSignal]:
    """Return the signals that repair a gap beside the stream, in their order; those that read tables come first.

    The tables are read in chunks. Each begins with a truncate (``replace``), so that rows that were deleted in the gap disappear.
    Tables whose schema has changed are read whole: it is not known whether the statement that changed them is in the gap or in
    the rest of the log, and so not with which schema the rows in between were written.

    They come by the channel ``repair``, which needs no permission in ``signal.enabled.channels``.

    :param id_: id of the signals
    :param history: the table schemas in force at the lost position
    :param paused: whether incremental snapshots are paused: they continue, as otherwise nothing would be repaired
    :param origin: of the signals; when they are sent again, they are the same signals
    :raises PrerequisiteError: tables have no key, by which they could be read in chunks, or the database does not know when they were
    """
    chunked, whole, signals = _tables(source, config, history)
    if uncut := sorted(
        filter(None, (_uncut(schema, Filters(config).select_key_columns(schema)) for schema in chunked.values()))
    ):
        raise PrerequisiteError(
            f"An incremental snapshot cannot read tables without a key, or with a nullable key: {', '.join(uncut)}.",
            safe="Nothing was changed.",
            remedy="repair the gap with a snapshot (--repair snapshot, or position.lost.mode=snapshot), or name the unique columns of the tables in "
            "message.key.columns",
        )
    requests: list[tuple[str, dict[str, Any]]] = []
    if chunked:
        source.open_chunk_reader(signals=signals if writes_watermarks(config) else None).close()
        patterns = table_patterns(chunked)
        requests.append(("execute-snapshot", {"type": "incremental", "data-collections": patterns, "replace": True}))
    if whole:
        requests.append(("execute-snapshot", {"type": "blocking", "data-collections": table_patterns(whole)}))
    if paused and chunked:
        requests.append(("resume-snapshot", {}))
    return [
        SentSignal(id_, type_, json.dumps(data), "repair", f"{origin}:{type_}:{data.get('type', '')}", by)
        for type_, data in requests
    ]


def plan_repair(
    how: GapRepair, gap: LogGap, stored: StoredOffset, source: Source, config: ConnectorConfig, history: SchemaHistory
) -> RepairPlan:
    """Plan what a repair would do, and whether it can be done. Nothing is changed.

    :param history: the table schemas in force at the lost position
    :raises CdcError: the source cannot be asked
    """
    if how is GapRepair.SKIP:
        return RepairPlan(gap, how, stored.version, ())
    chunked, whole, _ = _tables(source, config, history)
    problems: tuple[str, ...] = ()
    try:
        if how is GapRepair.SNAPSHOT:
            all_again(stored.offset or Offset(), config)
        else:
            repair_signals("plan", source, config, history, paused=False, origin="plan", by="plan")
    except (ConfigError, PrerequisiteError) as e:
        problems = (f"{e.message} Remedy: {e.remedy}." if e.remedy else e.message,)
    tables = tuple(sorted(map(str, {**chunked, **whole})))
    first = tuple(sorted(map(str, whole))) if how is GapRepair.INCREMENTAL else ()
    return RepairPlan(gap, how, stored.version, tables, first, problems)


def _tables(
    source: Source, config: ConnectorConfig, history: SchemaHistory
) -> tuple[dict[TableId, TableSchema], dict[TableId, TableSchema], TableId | None]:
    """Return the captured tables readable in chunks, those whose schema has changed, and the table of signals."""
    filters, named = Filters(config), config.signal_data_collection
    signals = source.signal_table(named) if named is not None else None
    captured = {
        t: schema
        for t, schema in source.discover_tables(filters.is_table_captured).items()
        if filters.is_table_captured(t) and t != signals
    }
    whole = {t: schema for t, schema in captured.items() if _changed(history.find_schema(t), schema)}
    return {t: schema for t, schema in captured.items() if t not in whole}, whole, signals


def _uncut(schema: TableSchema, key: Sequence[str]) -> str | None:
    """Why a table cannot be read in chunks; ``None`` if it can."""
    if not key:
        return f"{schema.id} has no key"
    empty = [column.name for column in schema.columns if column.name in key and column.nullable]
    return f"{schema.id}: {', '.join(empty)} is nullable" if empty else None


def _changed(recorded: TableSchema | None, present: TableSchema) -> bool:
    if recorded is None:
        return False
    columns = [[(c.name, c.type) for c in schema.columns] for schema in (recorded, present)]
    return columns[0] != columns[1] or recorded.key != present.key


def table_patterns(tables: Iterable[TableId]) -> list[str]:
    """Patterns for ``data-collections`` of a signal that mean just these tables."""
    return [re.escape(str(table)).replace('"', r"\x22") for table in sorted(tables, key=str)]
