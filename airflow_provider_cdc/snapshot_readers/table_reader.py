"""Runs one reader: connects to the source, opens its view when the capture says so, and reads the chunks that it is given into files."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.snapshot_exchange.reader_mailbox import (
    FAST_S,
    POLL_S,
    ReaderMailbox,
    open_documents,
    read_definition,
)
from airflow_provider_cdc.connector import ConnectorDefinition, build_signing_key, open_source, parse_config
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import CdcError, TransientError
from airflow_provider_cdc.core.row_rate_limit import RowRateLimit
from airflow_provider_cdc.core.snapshot.chunk_file_reading import ChunkFileReader, ReadingStopped
from airflow_provider_cdc.core.spi.remote_readers import (
    ChunkResult,
    ChunkTask,
    ReaderError,
    ReadGroup,
    RowReader,
    SnapshotView,
    TableOutOfView,
    ViewExpired,
    ViewSharing,
)
from airflow_provider_cdc.core.spi.source import Source
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources import load_source

log = logging.getLogger(__name__)

_JOINS: Final = 4
_JOIN_AGAIN_S: Final = 5.0
"""How often a reader joins a view that it may join late, and how long it waits in between: a lost connection costs its unfinished chunks alone."""


@dataclass(frozen=True)
class ReaderSettings:
    """All that a reader needs to know.

    :param changelog: folder or object store prefix of the change log
    :param connector: its name
    :param source: kind of source
    :param snapshot: id of the snapshot
    :param secrets: properties from the source's connection
    :param storage_options: of the change log's storage
    """

    changelog: str
    connector: str
    source: str
    snapshot: str
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def run_reader(settings: ReaderSettings, number: int) -> int:
    """Take part in a snapshot until the capture ends it, and return how many rows were read.

    :param number: of the reader, for its name
    :raises CdcError: the source or the storage cannot be used
    """
    late = load_source(settings.source).VIEW_SHARING is ViewSharing.LATE
    for left in reversed(range(_JOINS if late else 1)):
        try:
            return _join(settings, number)
        except TransientError as e:
            if not left:
                raise
            log.warning("The reader joins the snapshot again in %.0f s: %s", _JOIN_AGAIN_S, e)
            time.sleep(_JOIN_AGAIN_S)
    raise AssertionError("the last error is raised")


def _join(settings: ReaderSettings, number: int) -> int:
    changelog = ChangeLog(settings.changelog, dict(settings.storage_options))
    key = build_signing_key(settings.source, settings.secrets)
    documents = open_documents(changelog.storage, settings.connector, settings.snapshot, key)
    if (document := read_definition(documents)) is None:
        return 0
    definition = ConnectorDefinition(**document)
    with open_source(definition, settings.secrets) as source, source.open_row_reader() as rows:
        mailbox = ReaderMailbox(documents, f"{number:04d}-{uuid.uuid4().hex[:8]}")
        if mailbox.read_phase().phase == "ended":
            return 0
        with mailbox:
            config = parse_config(definition, settings.secrets)
            reader = _TableReader(definition.name, config, source, rows, mailbox, changelog)
            reader.run()
    return reader.rows


class _TableReader:
    def __init__(
        self,
        connector: str,
        config: ConnectorConfig,
        source: Source,
        reader: RowReader,
        mailbox: ReaderMailbox,
        changelog: ChangeLog,
    ) -> None:
        self._connector, self._config, self._source, self._reader = connector, config, source, reader
        self._mailbox, self._changelog = mailbox, changelog
        self._view = 0
        self._group: ReadGroup | None = None
        self._snapshot_view: SnapshotView | None = None
        self._files: ChunkFileReader | None = None
        self.rows = 0

    def run(self) -> None:
        """Follow the phases of the capture until it has ended."""
        while (phase := self._mailbox.read_phase()).phase != "ended":
            if phase.phase == "opening" and phase.view != self._view and self._mailbox.reader in phase.members:
                self._view = phase.view
                self._mailbox.report_view(phase.view, self._reader.open_view())
            elif phase.phase == "reading":
                if self._files is None:
                    self._files = self._open_files(
                        self._config.snapshot_max_threads if phase.late else len(phase.members)
                    )
                if (task := self._mailbox.next_task()) is not None:
                    self._read(*task)
                    continue
            # writers may be kept away until all have opened their views
            time.sleep(FAST_S if phase.phase == "gathering" and not phase.late else POLL_S)

    def _open_files(self, readers: int) -> ChunkFileReader:
        config, source = self._config, self._source
        named = config.signal_data_collection
        envelope = Envelope(
            config, Filters(config), source.connector, source.source_fields,
            hidden=None if named is None else source.signal_table(named), keys_overlap=source.KEYS_OVERLAP,
        )  # fmt: skip
        limit = RowRateLimit(-(-config.snapshot_max_rows_per_second // readers))
        return ChunkFileReader(self._reader, envelope, limit, stopped=self._mailbox.is_over, on_rows=self._count)

    def _count(self, rows: int) -> None:
        assert self._group is not None
        self.rows += rows
        self._mailbox.count_rows(self._group.number, rows)

    def _read(self, number: int, task: ChunkTask) -> None:
        group = self._load_group(number)
        if group is None:  # the capture has just deleted its messages
            return
        assert self._files is not None
        assert self._snapshot_view is not None
        writer = self._changelog.open_batch_writer(
            self._connector, group.batch, group.epoch,
            f"{group.writer}-{group.number}-{task.number}-{task.attempt}-{self._mailbox.reader}",
        )  # fmt: skip
        try:
            result = self._files.read_chunk(task, group, self._snapshot_view, writer)
        except ReadingStopped:
            return
        except TableOutOfView as e:
            log.info("Table %s is not as it was at the position: %s", task.table, e)
            result = ChunkResult(number=task.number, attempt=task.attempt, outcome="out_of_view")
        except ViewExpired as e:
            error = ReaderError.from_exception(e.error)
            result = ChunkResult(number=task.number, attempt=task.attempt, outcome="failed", error=error)
        except TransientError:  # this reader has lost its view; others have theirs
            raise
        except CdcError as e:
            error = ReaderError.from_exception(e)
            result = ChunkResult(number=task.number, attempt=task.attempt, outcome="failed", error=error)
        self._mailbox.report_result(number, result)

    def _load_group(self, number: int) -> ReadGroup | None:
        if self._group is None or self._group.number != number:
            self._group = group = self._mailbox.read_group(number)
            if group is None:
                return None
            tables = group.tables.values()
            self._snapshot_view = SnapshotView(
                self._source.parse_position(group.position),
                group.ts_us,
                {task.table.id: task.inspected for task in tables},
                {task.table.id: task.select for task in tables if task.select is not None},
            )
        return self._group
