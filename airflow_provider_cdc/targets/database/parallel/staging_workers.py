"""Tasks of many workers for one sink: read shares of the change log, and write the remaining rows of each key into staging tables.

Staging tables are in the target database. The rows of a key all come to one **partition** (:func:`read_share`), whose worker reduces them to one and writes them
over a separate connection (:func:`write_partition`). Each try of a partition has separate tables, whose names identify them::

    cdc_stage_<sink>_<batch>_<run>_<partition>_<try>_<number>
    cdc_stage_1f0c22ab_41_9b3e61_7_19_0

``sink`` is a digest of connector, sink and marker table, ``batch`` the marker's batch when the run began with the group. Rows of a staging table count only if they
are merged in the transaction that moves the marker on from this batch. So one with a lower number than the marker has no use any more, whichever run made it,
and is dropped.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reading.pending_batches import PendingBatches
from airflow_provider_cdc.core.errors import ConfigError, TargetUnavailable, TransientError
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.dialects import dialect_of
from airflow_provider_cdc.targets.database.dialects.staging_dialect import StagingDialect
from airflow_provider_cdc.targets.database.dialects.target_dialect import TargetDialect
from airflow_provider_cdc.targets.database.events.event_reader import read_file_events
from airflow_provider_cdc.targets.database.parallel.merged_key_events import (
    DELETED,
    LEFT_OUT,
    RECREATED,
    SEQ,
    merge_events_per_key,
)
from airflow_provider_cdc.targets.database.schema.target_table import DatabaseTargetTable
from airflow_provider_cdc.targets.database.target_engine import open_engine

PREFIX = "cdc_stage"
MOST_PATTERNS = 16
"""Sets of columns that rows of a partition may leave out: each has a separate table."""
_NAME = re.compile(PREFIX + r"_([0-9a-f]{8})_(\d+)_([0-9a-f]{6})_\d+_\d+_\d+")


@dataclass(frozen=True, slots=True)
class StagingRun:
    """The run that staging tables belong to.

    :param sink: digest, see :func:`digest_of`
    :param batch: of the marker
    :param run: distinguishes runs
    """

    sink: str
    batch: int
    run: str

    def build_table_name(self, partition: int, attempt: int, number: int) -> str:
        """Build the name of a staging table."""
        return f"{self.table_prefix}_{partition}_{attempt}_{number}"

    @property
    def table_prefix(self) -> str:
        """Prefix of the names of its tables."""
        return f"{PREFIX}_{self.sink}_{self.batch}_{self.run}"

    @classmethod
    def from_table_name(cls, name: str) -> StagingRun | None:
        """Return the run of a staging table; ``None`` if it is none.

        >>> StagingRun.from_table_name("cdc_stage_1f0c22ab_41_9b3e61_7_19_0")
        Run(sink='1f0c22ab', batch=41, run='9b3e61')
        """
        match = _NAME.fullmatch(name.lower())
        return None if match is None else cls(match[1], int(match[2]), match[3])


def digest_of(connector: str, config: DatabaseTargetConfig) -> str:
    """Build the digest that distinguishes the sinks of a database.

    >>> digest_of("shop", DatabaseTargetConfig())
    '4d8ec024'
    """
    return hashlib.sha256("\0".join((connector, config.name, config.marker_table)).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class TopicStaging:
    """The part of one topic that is to be staged.

    :param pending: its schemas; files are in shares
    :param after: number of the event after which it begins
    :param first: number of its first partition
    :param partitions: how many it has
    """

    pending: PendingBatches
    table: DatabaseTargetTable
    after: int
    first: int
    partitions: int


@dataclass(frozen=True, slots=True)
class FileShare:
    """A part of a file that one worker reads."""

    topic: str
    file: DataFile
    number: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class StagingWork:
    """The input of workers. It has secrets: it is never shown.

    :param changelog: URL
    :param options: of its storage
    """

    run: StagingRun
    connector: str
    changelog: str
    options: Mapping[str, Any]
    config: DatabaseTargetConfig
    topics: Mapping[str, TopicStaging]

    @property
    def partition_count(self) -> int:
        return sum(topic.partitions for topic in self.topics.values())

    def find_topic(self, partition: int) -> TopicStaging:
        """Return the topic of a partition."""
        return next(t for t in self.topics.values() if t.first <= partition < t.first + t.partitions)


@dataclass(frozen=True, slots=True)
class ShareSummary:
    """The report of a share to all partitions of its topic.

    :param events: that it has read
    :param emptied: number of the last event that empties the table; -1 if there is none
    :param moves: whether an event gives a row another key and leaves values of it out
    :param why_not: why it cannot be read; empty if it can
    """

    events: int
    emptied: int = -1
    moves: bool = False
    why_not: str = ""


Message = bytes | ShareSummary
"""Message to a partition: rows, or a note."""


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A staging table.

    :param action: its rows are written, or the rows of its keys are deleted
    """

    name: str
    action: Literal["write", "delete"]
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The result of the staging of a partition.

    :param events: of all shares of the topic, as its worker has heard of them
    :param emptied: whether the table is emptied first
    :param why_not: why its topic cannot be staged; empty if it can
    """

    topic: str
    tables: tuple[StagedTable, ...] = ()
    events: int = 0
    emptied: bool = False
    why_not: str = field(default="")


# -- reading ----------------------------------------------------------------------------------------------------------


def read_share(work: StagingWork, share: FileShare) -> Iterator[tuple[int, Message]]:
    """Read the rows of a share of the change log for each partition. A topic that cannot be read is reported as such: others can."""
    topic = work.topics[share.topic]
    try:
        yield from _read(work, share, topic)
    except TransientError:
        raise
    except Exception as e:
        for partition in range(topic.first, topic.first + topic.partitions):
            yield partition, ShareSummary(0, why_not=f"{share.file.path} cannot be read: {e}")


def _read(work: StagingWork, share: FileShare, topic: TopicStaging) -> Iterator[tuple[int, Message]]:
    key, changelog = [column.name for column in topic.table.key_columns], ChangeLog(work.changelog, dict(work.options))
    events, emptied, moves = 0, -1, False
    chunks = read_file_events(
        changelog, work.connector, share.file, topic.pending, topic.table, share=share.number, share_count=share.count
    )
    for chunk in chunks:
        events += len(chunk.op)
        moves = moves or chunk.moves is not None
        rows = _with_own(chunk)
        truncates = chunk.op == "t"
        if truncates.any() and work.config.truncate_enabled:
            emptied = max(emptied, int(chunk.seq[truncates].max()))
        selected = ~truncates & (chunk.seq > max(emptied, topic.after))
        if not work.config.delete_enabled:
            selected &= chunk.op != "d"
        yield from _parted(merge_events_per_key(rows.filter(pa.array(selected)), key), key, topic)
    for partition in range(topic.first, topic.first + topic.partitions):
        yield partition, ShareSummary(events, emptied, moves)


def _with_own(chunk: Any) -> pa.Table:
    """Rows with the columns of :mod:`.merged_key_events`."""
    none = np.full(len(chunk.op), "", object)
    left_out = none if chunk.left_out is None else np.where(chunk.op == "d", "", chunk.left_out)
    rows = chunk.rows.append_column(SEQ, pa.array(chunk.seq, pa.int64()))
    rows = rows.append_column(DELETED, pa.array(chunk.op == "d", pa.bool_()))
    rows = rows.append_column(RECREATED, pa.array(np.zeros(len(chunk.op), np.bool_)))
    return rows.append_column(LEFT_OUT, pa.array(left_out, pa.string()))


def _parted(rows: pa.Table, key: Sequence[str], topic: TopicStaging) -> Iterator[tuple[int, bytes]]:
    which = assign_partitions(rows.select(key), topic.partitions)
    order = np.argsort(which, kind="stable")
    bounds = np.searchsorted(which[order], np.arange(topic.partitions + 1))
    sorted_rows = rows.take(pa.array(order))
    for number in range(topic.partitions):
        if size := int(bounds[number + 1] - bounds[number]):
            yield topic.first + number, _packed(sorted_rows.slice(int(bounds[number]), size))


def assign_partitions(keys: pa.Table, partitions: int) -> npt.NDArray[np.int64]:
    """Return the number of the partition for each key: the same for equal keys in every worker.

    >>> bool((assign_partitions(pa.table({"id": [1, 2, 1]}), 8) == assign_partitions(pa.table({"id": [1, 2, 1, 9]}), 8)[:3]).all())
    True
    """
    mixed = np.zeros(keys.num_rows, np.uint64)
    for column in keys.columns:
        mixed = (mixed ^ _hashes(column.combine_chunks())) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    numbers: npt.NDArray[np.int64] = (mixed % np.uint64(partitions)).astype(np.int64)
    return numbers


def _hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    if isinstance(values, pa.ChunkedArray):  # of no chunk
        return np.zeros(0, np.uint64)
    kind = values.type
    if pa.types.is_integer(kind):
        numbers = pc.cast(values, pa.int64(), safe=False).fill_null(0)
        hashes: npt.NDArray[np.uint64] = numbers.to_numpy(zero_copy_only=False).view(np.uint64)
        return hashes
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)):
        values = values.cast(pa.string())
    texts = values.cast(pa.large_binary()).to_pylist()
    return np.array([0 if text is None else zlib.crc32(text) + 1 for text in texts], np.uint64)


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


# -- writing ----------------------------------------------------------------------------------------------------------


def write_partition(work: StagingWork, partition: int, attempt: int, messages: Iterable[Message]) -> StagedPartition:
    """Reduce the rows of a partition, and write it into staging tables.

    :param attempt: distinguishes the tries of a partition
    :raises TargetUnavailable: the database cannot be reached; another try may succeed
    """
    topic, notes, parts = work.find_topic(partition), list[ShareSummary](), list[pa.Table]()
    for message in messages:
        if isinstance(message, ShareSummary):
            notes.append(message)
        else:
            parts.append(pa.ipc.open_stream(message).read_all())
    name, events, emptied = topic.pending.topic, sum(note.events for note in notes), max(note.emptied for note in notes)
    if why_not := next((note.why_not for note in notes if note.why_not), ""):
        return StagedPartition(name, why_not=why_not)
    if any(note.moves for note in notes):
        return StagedPartition(name, why_not="keys of rows change, and their events omit values")
    if not parts:
        return StagedPartition(name, (), events, emptied >= 0)
    rows = merge_events_per_key(_after(parts, emptied), [column.name for column in topic.table.key_columns])
    steps = _StagingOperations(rows, topic.table)
    if len(steps.patterns) > MOST_PATTERNS:
        return StagedPartition(name, why_not=f"rows omit more than {MOST_PATTERNS} different sets of columns")
    del rows
    tables = list[StagedTable]()
    if error := _written(work.config, topic.table, _named(steps, work.run, partition, attempt, tables)):
        return StagedPartition(name, why_not=error)
    return StagedPartition(name, tuple(tables), events, emptied >= 0)


def _after(parts: list[pa.Table], emptied: int) -> pa.Table:
    """Return the rows of the events after one, as one table. Nothing is left in ``parts``, so that only the result holds them.

    :param emptied: number of the event; -1 if all count
    """
    rows = pa.concat_tables(parts)
    parts.clear()
    return rows if emptied < 0 else rows.filter(pc.greater(rows[SEQ], emptied))


class _StagingOperations:
    """Keys whose rows go, and rows by the columns that they have: one after the other, as each is a copy.

    :ivar patterns: sets of columns that rows leave out
    """

    def __init__(self, rows: pa.Table, table: DatabaseTargetTable) -> None:
        self._table = table
        gone = pc.or_(rows[DELETED], rows[RECREATED])
        key = [column.name for column in table.key_columns]
        self._gone = rows.select(key).filter(gone) if rows.num_rows and pc.any(gone).as_py() else None
        alive = pc.invert(rows[DELETED])
        self._rows = rows if pc.all(alive).as_py() else rows.filter(alive)
        self.patterns: list[str] = sorted(pc.unique(self._rows[LEFT_OUT]).to_pylist())

    def __iter__(self) -> Iterator[tuple[Literal["write", "delete"], pa.Table]]:
        if self._gone is not None:
            yield "delete", self._gone
        for pattern in self.patterns:
            lacking = set(pattern.split("\0"))
            columns = [column.name for column in self._table.fields if column.key or column.name not in lacking]
            some = self._rows.select(columns)
            if len(self.patterns) > 1:
                some = some.filter(pc.equal(self._rows[LEFT_OUT], pattern))
            yield "write", some


def _named(
    steps: _StagingOperations, run: StagingRun, partition: int, attempt: int, named: list[StagedTable]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield steps with the names of their tables.

    :param named: gets a note of each
    """
    for number, (action, rows) in enumerate(steps):
        name = run.build_table_name(partition, attempt, number)
        named.append(StagedTable(name, action, tuple(rows.column_names), rows.num_rows))
        yield name, rows


def _written(config: DatabaseTargetConfig, table: DatabaseTargetTable, tables: Iterable[tuple[str, pa.Table]]) -> str:
    """Make staging tables; return the database's objection to their rows, or nothing.

    :raises TargetUnavailable: it cannot be reached, or says something that passes
    """
    engine = open_engine(config)
    try:
        dialect = _dialect(engine, config)
        for name, rows in tables:
            with engine.begin() as connection:
                dialect.create_staging_table(connection, table, name, rows)
    except sa.exc.DBAPIError as e:
        if dialect.is_transient(e):
            raise _later(e) from None
        return f"the database rejects rows: {e.orig}"
    except TransientError:
        raise
    except Exception as e:
        return f"its changes cannot be converted to rows: {e}"
    finally:
        engine.dispose()
    return ""


def _dialect(engine: sa.Engine, config: DatabaseTargetConfig) -> StagingDialect:
    try:
        with engine.connect():  # the engine knows its database only after that
            return staging_dialect(dialect_of(engine, config.effective_time_zone))
    except sa.exc.OperationalError as e:
        raise _later(e) from None


def staging_dialect(dialect: TargetDialect) -> StagingDialect:
    """Return the dialect itself.

    :raises ConfigError: it knows no staging tables
    """
    if not isinstance(dialect, StagingDialect):
        raise ConfigError(
            f"Spark cannot write to {dialect.name} databases: the sink does not support staging tables there.",
            safe="Nothing was read or changed.",
            remedy="apply without Spark, with ApplyToDatabaseOperator",
        )
    return dialect


def _later(error: sa.exc.DBAPIError) -> TargetUnavailable:
    """Without the statement: it has rows in it."""
    return TargetUnavailable(f"A staging table cannot be written for now: {error.orig}")


def list_stale_tables(dialect: StagingDialect, connection: sa.Connection, sink: str, batch: int) -> list[str]:
    """List the staging tables of a sink that no run can use any more.

    :param batch: that the marker has
    """
    runs = [(name, StagingRun.from_table_name(name)) for name in dialect.list_staging_tables(connection, PREFIX)]
    return [name for name, run in runs if run is not None and run.sink == sink and run.batch < batch]
