"""The answers of the API. Where a command prints the same with ``-o json``, the form is the same.

FastAPI evaluates annotations: everything they name is imported at module level.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.plugins.authorization import ConnectorRight
from airflow_provider_cdc.services.dashboards.connector_page_models import PropertySummary, TableSummary
from airflow_provider_cdc.services.dashboards.overview_models import ConnectorSummary, LastError


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProblemAnswer(_Answer):
    """The reason why a request failed."""

    detail: str = Field(description="The full text")
    error: LastError | None = Field(None, description="Parts of the error, if the provider raised it")


class OverviewAnswer(_Answer):
    """The connectors that the user may see, most urgent first."""

    connectors: list[ConnectorSummary]
    states: dict[str, int] = Field(description="State → connectors, before any filter")
    sources: list[str] = Field(description="Kinds of sources, before any filter")
    tags: list[str] = Field(description="Tags of their DAGs, before any filter")
    total: int = Field(description="Connectors, before any filter")
    at: datetime


class SignalAnswer(_Answer):
    """A signal, in the form of ``airflow cdc signals -o json``."""

    number: int
    id: str
    type: str
    data: str | None
    channel: str
    sent_by: str | None
    state: str
    message: str
    progress: dict[str, Any] | None
    received_at: datetime
    running_at: datetime | None
    ended_at: datetime | None


class NotificationAnswer(_Answer):
    """A notification, in the form of ``airflow cdc notifications -o json``: an event of the connector, an action or a look-up of a user."""

    number: int
    id: str
    aggregate_type: str
    type: str
    additional_data: dict[str, str]
    batch: int | None
    created_at: datetime


class BatchAnswer(_Answer):
    """A batch, in the form of ``airflow cdc batches -o json``."""

    connector: str
    batch: int
    manifest: str
    first_seq: int
    last_seq: int
    events: int
    bytes: int
    topics: dict[str, int]
    position: dict[str, Any]
    epoch: int
    created_at: datetime


class BatchFile(_Answer):
    """A file of a batch."""

    path: str
    topic: str
    schema_version: int
    rows: int
    bytes: int
    first_seq: int
    last_seq: int
    counts: dict[str, int] = Field(description="Letter of the operation → events")


class BatchDetail(_Answer):
    """A batch with the content of its manifest."""

    batch: BatchAnswer
    position_before: dict[str, Any] | None
    files: list[BatchFile]
    statements: list[str] = Field(description="DDL statements of the batch")
    writer: str | None
    trouble: str | None = Field(description="Reason why the API server cannot read the manifest")


class OffsetAnswer(_Answer):
    """An offset from the history of the connector, in the form of ``airflow cdc offset history -o json``."""

    version: int
    offset: dict[str, Any]
    epoch: int
    reason: str
    created_at: datetime


class SchemaChangeAnswer(_Answer):
    """A schema change."""

    number: int = Field(description="Number of the record; later changes have higher numbers")
    seq: int
    at: datetime
    database: str
    statement: str
    position: dict[str, Any]
    snapshot: bool = Field(description="Found by reading the tables, not by a statement in the log")
    tables: dict[str, list[str]] = Field(description="Table → its changes, as lines that begin with +, - or ~")


class TargetAnswer(_Answer):
    """The progress of a target, in the form of ``airflow cdc status -o json``."""

    target: str
    location: str
    name: str = Field(description="Name for people: kind and location of its tables, or its connection")
    at: datetime | None = Field(None, description="When the report was written")
    last_batch: int
    waiting_events: int | None = Field(None, description="Captured events that are not applied; null if not known")
    waiting_since: datetime | None = Field(None, description="Commit of the first batch that is not applied")
    producer: str = Field(description="Name of its apply in metrics and charts")
    ran_at: datetime | None = Field(None, description="Last measurement of its apply")
    run_failed: bool = Field(False, description="The last run of its apply failed")
    failed: dict[str, Any]
    lagging: dict[str, int]
    seconds: float
    topics: dict[str, str]
    tables: dict[str, dict[str, Any]]


class ConnectorDetail(_Answer):
    """A connector."""

    line: ConnectorSummary
    rights: list[ConnectorRight] = Field(description="Rights of the user on the connector")
    status: dict[str, Any] = Field(
        description="As printed by airflow cdc status -o json, with the metrics of the last run"
    )
    work: list[dict[str, Any]] = Field(description="Active jobs and their progress")
    targets: list[TargetAnswer]
    trouble: str | None = Field(description="Reason why the API server cannot read the change log")


class TablesAnswer(_Answer):
    """The tables of a connector."""

    tables: list[TableSummary]


class ConfigurationAnswer(_Answer):
    """The properties of the last run."""

    properties: list[PropertySummary]
    connections: dict[str, str] = Field(description="Names of Airflow's connections, and the DAG")


class Measurement(_Answer):
    """The metrics of a whole connector at the end of a run."""

    at: datetime
    gauges: dict[str, float]
    counters: dict[str, float]


class Measurements(_Answer):
    """Series for charts, over the last hundred runs."""

    runs: dict[str, list[Measurement]] = Field(description="Producer (capture, apply …) → its runs, oldest first")
    series: list[dict[str, Any]] = Field(description="Current values, as printed by airflow cdc metrics -o json")
