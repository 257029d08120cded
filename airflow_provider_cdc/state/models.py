"""The state tables. Kept in step with ``migrations`` by a test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Index, Integer, MetaData, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "idx_%(table_name)s_%(column_0_N_name)s",
    "uq": "%(table_name)s_%(column_0_N_name)s_uq",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "%(table_name)s_%(column_0_name)s_fkey",
    "pk": "%(table_name)s_pkey",
}
VERSION_TABLE = "alembic_version_cdc"
"""Where alembic records the present revision."""
REVISION = "0001"
"""The revision that this release works with: the newest of ``migrations``."""
FENCE = ""
"""The name of a row of :class:`LeaseRow` that belongs to no connector: the tables were moved, and ``owner`` names their new connection."""
Big = BigInteger().with_variant(Integer, "sqlite")
"""64 bits everywhere; SQLite increments only ``INTEGER`` primary keys by itself."""

Long = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
"""Texts that may be larger than the 64 KB that ``TEXT`` holds with MySQL."""


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, to the microsecond, also on databases without time zones."""

    impl = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return None if value is None else value.astimezone(UTC)
        return value.replace(tzinfo=UTC)


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}


class ConnectorRow(Base):
    """The definition that the last run of a connector had, so that people and tools find its change log by its name.

    ``connections`` are ids in Airflow: of connections, whose contents are never here, and as ``dag`` of the DAG that captures, whose
    rights decide who may see the connector.
    """

    __tablename__ = "cdc_connector"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    source: Mapped[str] = mapped_column(String(50))
    changelog: Mapped[str] = mapped_column(Text)
    changelog_options: Mapped[dict[str, Any]]
    properties: Mapped[dict[str, Any]]
    connections: Mapped[dict[str, Any]]
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class LeaseRow(Base):
    """The run that may write for a connector. The epoch grows with every change of owner."""

    __tablename__ = "cdc_lease"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    owner: Mapped[str | None] = mapped_column(String(500))
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    expires_ms: Mapped[int] = mapped_column(BigInteger, default=0)
    """Milliseconds since the epoch by the database's clock."""
    acquired_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """When the owner took it."""


class OffsetRow(Base):
    """The committed offset of a connector; compare-and-set compares ``version``.

    Its state of single tables is in :class:`OffsetTableRow`.
    """

    __tablename__ = "cdc_offset"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)
    offset: Mapped[dict[str, Any]]
    epoch: Mapped[int] = mapped_column(BigInteger)
    seq: Mapped[int] = mapped_column(BigInteger)
    batch: Mapped[int] = mapped_column(BigInteger)
    source: Mapped[str] = mapped_column(String(50), default="")
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class OffsetHistoryRow(Base):
    """Every offset a connector has had, so that a mistake can be traced and undone."""

    __tablename__ = "cdc_offset_history"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    version: Mapped[int] = mapped_column(BigInteger)
    offset: Mapped[dict[str, Any]]
    epoch: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(String(250))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "connector", "version", unique=True),)


class OffsetTableRow(Base):
    """The part of offsets of some versions that is about one table; see :mod:`.offset_table_states`.

    ``part`` is the part of the offset, ``place`` orders the tables in it. ``until_version`` is the first version that does not have it any more.
    """

    __tablename__ = "cdc_offset_table"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    part: Mapped[str] = mapped_column(String(20))
    name: Mapped[str] = mapped_column(String(1000))
    place: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[dict[str, Any]]
    since_version: Mapped[int] = mapped_column(BigInteger)
    until_version: Mapped[int | None] = mapped_column(BigInteger)

    __table_args__ = (Index("idx_cdc_offset_table_connector_until", "connector", "until_version"),)


class BatchRow(Base):
    """A committed batch: facts of its manifest, short enough for lists and links."""

    __tablename__ = "cdc_batch"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    batch: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    manifest: Mapped[str] = mapped_column(Text)
    first_seq: Mapped[int] = mapped_column(BigInteger)
    last_seq: Mapped[int] = mapped_column(BigInteger)
    events: Mapped[int] = mapped_column(BigInteger)
    bytes: Mapped[int] = mapped_column(BigInteger)
    topics: Mapped[dict[str, Any]]
    position: Mapped[dict[str, Any]]
    epoch: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class SchemaHistoryRow(Base):
    """A DDL statement and the table schemas after it."""

    __tablename__ = "cdc_schema_history"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    seq: Mapped[int] = mapped_column(BigInteger)
    batch: Mapped[int] = mapped_column(BigInteger)
    record: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (
        Index(None, "connector", "seq"),
        Index("idx_cdc_schema_history_connector_id", "connector", "id"),
    )


class SchemaBaseRow(Base):
    """The part of the schema history up to one change that is about one table; see :mod:`.schema_history`.

    ``place`` orders the tables by their first schema; ``upto`` is the last change that is in it, the same in all rows of a connector.
    """

    __tablename__ = "cdc_schema_base"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    place: Mapped[int] = mapped_column(BigInteger)
    upto: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[dict[str, Any]]

    __table_args__ = (Index("idx_cdc_schema_base_connector_place", "connector", "place", unique=True),)


class SignalRow(Base):
    """A signal and its state. ``id`` is its number, which is never given out again.

    ``origin`` identifies it, so that a signal that is found twice is recorded once; see ``signals.origin_key``.
    """

    __tablename__ = "cdc_signal"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    signal_id: Mapped[str] = mapped_column(String(500))
    type: Mapped[str] = mapped_column(String(250))
    data: Mapped[str | None] = mapped_column(Long)
    channel: Mapped[str] = mapped_column(String(50))
    origin: Mapped[str | None] = mapped_column(String(250))
    sent_by: Mapped[str | None] = mapped_column(String(250))
    state: Mapped[str] = mapped_column(String(20))
    message: Mapped[str] = mapped_column(Long)
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    received_at: Mapped[datetime] = mapped_column(UtcDateTime)
    running_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)

    __table_args__ = (
        Index("idx_cdc_signal_connector_id", "connector", "id"),
        Index("idx_cdc_signal_connector_origin", "connector", "origin", unique=True),
        {"sqlite_autoincrement": True},
    )


class NotificationRow(Base):
    """A notification, committed together with the facts that it reports.

    ``batch`` is the batch of that commit, if there is one.
    """

    __tablename__ = "cdc_notification"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    notification_id: Mapped[str] = mapped_column(String(500))
    aggregate_type: Mapped[str] = mapped_column(String(250))
    type: Mapped[str] = mapped_column(String(250))
    additional_data: Mapped[dict[str, Any]]
    batch: Mapped[int | None] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index("idx_cdc_notification_connector_id", "connector", "id"), {"sqlite_autoincrement": True})


class ControlRow(Base):
    """The state that people want of a connector, and how its last run ended."""

    __tablename__ = "cdc_control"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    desired_state: Mapped[str] = mapped_column(String(20))
    restarts: Mapped[int] = mapped_column(BigInteger)
    requested_by: Mapped[str] = mapped_column(String(250))
    reason: Mapped[str] = mapped_column(Text)
    changed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    run_ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_error: Mapped[str | None] = mapped_column(Long)
    last_error_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """The same as ``run_ended_at`` if the last run failed."""
    metrics: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Of the last run that read anything, also if it failed: context → name → value."""
    failure: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The error that the last runs ended with, see :class:`airflow_provider_cdc.core.spi.state_records.RunFailure`; none after a run that ended well."""


class TargetRow(Base):
    """The progress of a target, as its applies have noted it; the target's own marker is the truth.

    ``place`` stands for target and location, see :func:`airflow_provider_cdc.state.target_notes.place_of`; ``task`` is the task that applies.
    """

    __tablename__ = "cdc_target"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    place: Mapped[str] = mapped_column(String(64), primary_key=True)
    target: Mapped[str] = mapped_column(String(50))
    location: Mapped[str] = mapped_column(Text)
    task: Mapped[str] = mapped_column(Text)
    batch: Mapped[int] = mapped_column(BigInteger)
    failures: Mapped[int] = mapped_column(BigInteger)
    """Applies in a row that have failed."""
    failure: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """The last failure, in the form of :attr:`ControlRow.failure`."""
    error: Mapped[str | None] = mapped_column(Long)
    began_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    """Older than ``began_at`` while an apply is at work."""


class MetricRow(Base):
    """The metrics of a connector, or of one of its topics, as one producer has measured them: values now, and totals over all runs.

    ``series`` stands for producer and topic, see :func:`airflow_provider_cdc.state.metrics.series_of`.
    """

    __tablename__ = "cdc_metric"

    connector: Mapped[str] = mapped_column(String(250), primary_key=True)
    series: Mapped[str] = mapped_column(String(64), primary_key=True)
    producer: Mapped[str] = mapped_column(String(250))
    topic: Mapped[str] = mapped_column(Text)
    tags: Mapped[dict[str, Any]]
    metrics: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class MetricHistoryRow(Base):
    """The metrics of a connector as a whole after each of its last runs; ``number`` counts these. With the number 0: those of a day and of a week."""

    __tablename__ = "cdc_metric_history"

    id: Mapped[int] = mapped_column(Big, primary_key=True, autoincrement=True)
    connector: Mapped[str] = mapped_column(String(250))
    series: Mapped[str] = mapped_column(String(64))
    number: Mapped[int] = mapped_column(BigInteger)
    metrics: Mapped[dict[str, Any]]
    at: Mapped[datetime] = mapped_column(UtcDateTime)

    __table_args__ = (Index(None, "connector", "series", "number"),)
