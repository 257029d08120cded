"""The parts of one batch of the change log. A batch exists exactly when its manifest does.

Everything a reader needs is here: the files with their sizes and checksums, the table schemas to read them with, the DDL in
between, and the offset before and after, so that the state tables can be brought up to date from the change log alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.connector_signal import SignalState
from airflow_provider_cdc.core.model.notifications import Notification
from airflow_provider_cdc.core.model.table_schema import TableChange, TableSchema

FORMAT = 1
"""Version of the manifest's form. Readers refuse a higher one."""


class _ManifestModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DataFile(_ManifestModel):
    """A Parquet file: events of one topic under one schema version, in ``seq`` order.

    :param path: relative to the connector's folder
    :param crc32: of the whole file
    :param counts: operation letter → events
    :param unavailable: columns whose value some event does not have, in either image
    :param unavailable_after: columns whose value some event does not have in its image after; ``None`` = the same
    :param passing: all events are of rows that came to a key and left it within one transaction: they say nothing of the row that has the key
    :param late: some creates and updates come behind events of their transaction that the source has logged after them
    """

    topic: str
    schema_version: int
    path: str
    rows: int
    bytes: int
    crc32: int
    first_seq: int
    last_seq: int
    counts: dict[str, int]
    unavailable: list[str] = Field(default_factory=list)
    unavailable_after: list[str] | None = None
    passing: bool = False
    late: bool = False

    @property
    def sparse_columns(self) -> list[str]:
        """Columns of which rows with a key lack values: values that a delete lacks do not matter to them."""
        return self.unavailable if self.unavailable_after is None else self.unavailable_after


class SchemaChangeRecord(_ManifestModel):
    """A DDL statement. ``seq`` is its sequence number among the events of the connector.

    :param ts_us: when the database ran it
    :param captured_us: when it was captured
    :param internal: it is no statement, and no record of the JSON form: the source has no structures, and a table came or went
    """

    seq: int
    ddl: str
    database: str
    position: dict[str, Any]
    ts_us: int
    captured_us: int
    source: dict[str, Any] = Field(default_factory=dict)
    changes: list[TableChange]
    snapshot: bool = False
    internal: bool = False


class LeftOutRecord(_ManifestModel):
    """Row events that the log holds and the batch does not.

    They are of a table that is read again after them, at a position where its structure is not known.

    :param table: ``namespace.name``
    :param start: after this position
    :param end: up to this one
    :param events: how many
    :param reason: the unknown fact
    """

    table: str
    start: dict[str, Any]
    end: dict[str, Any]
    events: int
    reason: str


class SignalOutcome(_ManifestModel):
    """The state that a signal has from a commit on.

    :param number: of the signal
    :param message: the reason, or the result
    """

    number: int
    state: SignalState
    message: str = ""


@dataclass(frozen=True, slots=True)
class BatchContents:
    """The changes that a batch brings to tables: its manifest without the parts that only the capture needs.

    Of a long backlog, all of these are in memory at once.

    :param position: where the batch ends in the source's log
    :param changelog: and ``writer``, as of the manifest
    """

    connector: str
    batch: int
    position: dict[str, Any]
    files: Sequence[DataFile]
    schemas: Mapping[str, Mapping[str, TableSchema]]
    schema_changes: Sequence[SchemaChangeRecord]
    changelog: str = ""
    writer: str = ""

    @property
    def total_bytes(self) -> int:
        """Size of its files."""
        return sum(file.bytes for file in self.files)


class Manifest(_ManifestModel):
    """A committed batch.

    :param epoch: lease epoch of the run that wrote it
    :param writer: unique id of that run, part of its file names
    :param offset_before: the offset before the batch; ``None`` for the first batch of a connector
    :param schemas: topic → version (as text) → captured table schema, for every file and every change of this batch
    :param source_fields: the source's own fields of the ``source`` block → Arrow type, with ``!`` where required; with schema
        changes only, as files of events have them by themselves
    :param left_out: row events that could not be decoded, of tables that are read again
    :param notifications: notifications of the connector since the last batch
    :param signal_outcomes: states that signals got since then
    :param unused_numbers: how many of the sequence numbers from ``first_seq`` to ``last_seq`` belong to nothing: each reader of a snapshot
        on Spark has a range of them, which it need not use up
    """

    format: int = FORMAT
    connector: str
    source: str
    batch: int
    epoch: int
    writer: str
    created_at: str
    first_seq: int
    last_seq: int
    offset_before: Offset | None
    offset_after: Offset
    config: dict[str, Any] = Field(default_factory=dict)
    files: list[DataFile] = Field(default_factory=list)
    schemas: dict[str, dict[str, TableSchema]] = Field(default_factory=dict)
    schema_changes: list[SchemaChangeRecord] = Field(default_factory=list)
    source_fields: dict[str, str] = Field(default_factory=dict)
    left_out: list[LeftOutRecord] = Field(default_factory=list)
    notifications: list[Notification] = Field(default_factory=list)
    signal_outcomes: list[SignalOutcome] = Field(default_factory=list)
    unused_numbers: int = 0

    @property
    def event_count(self) -> int:
        """Number of change events, DDL not counted."""
        return sum(f.rows for f in self.files)

    @property
    def changelog_id(self) -> str:
        """Identity of the change log that it is a batch of; see :class:`~airflow_provider_cdc.core.model.connector_offset.Offset`."""
        return self.offset_after.changelog

    @property
    def batch_contents(self) -> BatchContents:
        """The changes that it brings to tables."""
        position = self.offset_after.position or {}
        return BatchContents(
            self.connector, self.batch, position, self.files, self.schemas, self.schema_changes, self.changelog_id, self.writer
        )  # fmt: skip

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.model_dump(mode="json", exclude_defaults=True) | {"format": self.format}
