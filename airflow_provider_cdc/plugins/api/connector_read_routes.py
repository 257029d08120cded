"""Routes that only read."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, HTTPException, Query

from airflow_provider_cdc.core.error_texts import describe_error
from airflow_provider_cdc.core.errors import CdcError, SourceBusy, SourceUnavailable
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState, status_of
from airflow_provider_cdc.core.model.job_progress import JobProgress
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.plugins.api import response_models
from airflow_provider_cdc.plugins.api.dependencies import MOST, AuthorizedConnector, Readable, Store
from airflow_provider_cdc.plugins.authorization import (
    AuthorizationContext,
    ConnectorRight,
    filter_readable,
    has_right,
    known_of,
    rights_on,
)
from airflow_provider_cdc.services.connectors.bounded_calls import call_log_in_time
from airflow_provider_cdc.services.connectors.connector_handle import access_of
from airflow_provider_cdc.services.dashboards.connector_overview import (
    ProducerMetrics,
    line_of,
    load_overview,
    wholes_of,
)
from airflow_provider_cdc.services.dashboards.connector_page import properties_of, tables_of
from airflow_provider_cdc.services.dashboards.hidden_keys import hide_keys, hide_keys_in_text
from airflow_provider_cdc.services.dashboards.overview_models import ConnectorSummary, NextRun
from airflow_provider_cdc.services.dashboards.schema_diff import newest_differences
from airflow_provider_cdc.services.text import status_texts
from airflow_provider_cdc.state.state_store import StateStore

router = APIRouter(tags=["connectors"])
_LOG_S = 5.0
"""How long a change log may take to answer, beside which the state is shown in any case."""
Limit = Annotated[int, Query(ge=1, le=MOST, description="Maximum number of entries; the newest are returned")]


@router.get("/connectors")
def list_connectors(
    store: Store,
    user: GetUserDep,
    state: Annotated[list[ConnectorState] | None, Query(description="Only these states")] = None,
    source: Annotated[list[str] | None, Query(description="Only these kinds of sources")] = None,
    tag: Annotated[list[str] | None, Query(description="Only connectors of DAGs with one of these tags")] = None,
    text: Annotated[str, Query(max_length=200, description="Part of a name, a problem or a phase")] = "",
) -> response_models.OverviewAnswer:
    """List the connectors that the user may see, most urgent first."""
    context = AuthorizationContext()

    def filter_visible(records: Any) -> Any:
        nonlocal context
        context = known_of(records)
        return filter_readable(user, records, context)

    lines = load_overview(
        store,
        filter_visible=filter_visible,
        next_run=lambda record: _next_run(record, context),
        tags=lambda record: _tags(record, context),
    )
    states = [line.state for line in lines]
    return response_models.OverviewAnswer(
        connectors=[line for line in lines if _fits(line, state, source, tag, text.casefold())],
        states={state: states.count(state) for state in sorted(set(states))},
        sources=sorted({line.source for line in lines if line.source}),
        tags=sorted({tag for line in lines for tag in line.tags}),
        total=len(lines),
        at=datetime.now(UTC),
    )


def _fits(
    line: ConnectorSummary,
    state: list[ConnectorState] | None,
    source: list[str] | None,
    tag: list[str] | None,
    text: str,
) -> bool:
    if (state and line.state not in state) or (source and line.source not in source):
        return False
    if tag and set(tag).isdisjoint(line.tags):
        return False
    return not text or any(
        text in part.casefold() for part in (line.connector, line.phase, *(alert.sentence for alert in line.alerts))
    )


def _next_run(record: ConnectorRecord, context: AuthorizationContext) -> NextRun | None:
    dag = context.find_dag(record)
    if dag is None:
        return None
    return NextRun(gone=True) if dag.stale else NextRun(at=dag.next_at, paused=dag.paused)


def _tags(record: ConnectorRecord, context: AuthorizationContext) -> tuple[str, ...]:
    dag = context.find_dag(record)
    return () if dag is None else dag.tags


@router.get("/connectors/{connector}")
def get_connector(store: Store, reached: Readable) -> response_models.ConnectorDetail:
    """Return a connector: its status, its active jobs and the progress of its targets."""
    record = reached.record
    signals = store.signals_of(reached.connector_name, 100, under_way=True)
    reports, works, trouble = _beside(record)
    now = datetime.now(UTC)
    wholes = wholes_of(store, now, reached.connector_name).get(reached.connector_name, [])
    return response_models.ConnectorDetail(
        line=line_of(record, wholes, signals, now, _next_run(record, reached.known), _tags(record, reached.known)),
        rights=rights_on(reached.user, record, reached.known),
        status=_without_rows(reached, status_of(record, signals).to_document()),
        work=[{**work.to_document(), "text": work.progress_text} for work in works],
        targets=[_target(store, record, report, wholes) for report in reports],
        trouble=trouble,
    )


def _target(
    store: StateStore, record: ConnectorRecord, report: status_texts.AppliedTarget, wholes: Sequence[ProducerMetrics]
) -> response_models.TargetAnswer:
    """Return the progress of a target with the events that wait for it."""
    batch = report["last_batch"] + 1
    waiting = store.list_batches(record.connector, batch=batch) if report["last_batch"] < record.last_batch else []
    producer = f"apply {report['target']} {status_texts.target_place(report['location'])}"
    measured = next((whole.series for whole in wholes if whole.series.producer == producer), None)
    more = {
        "producer": producer,
        "waiting_events": store.count_events(record.connector, since_batch=batch) if waiting else None,
        "waiting_since": waiting[0].created_at if waiting else None,
        "ran_at": None if measured is None else measured.at,
        "run_failed": measured is not None and bool(measured.gauges.get("apply.LastRunFailed")),
    }
    return response_models.TargetAnswer.model_validate({**report, **more})


def _beside(record: ConnectorRecord) -> tuple[list[status_texts.AppliedTarget], list[JobProgress], str | None]:
    """Return the result of :func:`airflow_provider_cdc.services.text.status_texts.beside_changelog`.

    A storage that does not answer is waited for a short time only.
    """
    try:
        return call_log_in_time(_LOG_S, record.connector, lambda: status_texts.beside_changelog(record))
    except (SourceBusy, SourceUnavailable) as e:
        return [], [], describe_error(e)


@router.get("/connectors/{connector}/tables")
def list_tables(store: Store, reached: Readable) -> response_models.TablesAnswer:
    """List the tables whose schema a connector knows, with the metrics of each."""
    return response_models.TablesAnswer(tables=tables_of(store, reached.record))


@router.get("/connectors/{connector}/signals")
def list_signals(store: Store, reached: Readable, limit: Limit = 50) -> list[response_models.SignalAnswer]:
    """List signals and their results, newest first, with the first 2,000 characters of their data.

    Keys of rows and conditions are returned only to users who may see rows.
    """
    documents = [row.to_document() for row in store.signals_of(reached.connector_name, limit)]
    if not _sees_rows(reached):
        documents = [{**hide_keys(one), "data": hide_keys_in_text(one["data"])} for one in documents]
    return [response_models.SignalAnswer(**one) for one in documents]


@router.get("/connectors/{connector}/events")
def list_events(store: Store, reached: Readable, limit: Limit = 50) -> list[response_models.NotificationAnswer]:
    """List notifications, newest first: events of the connector, actions of users, and look-ups of rows.

    Keys of rows and conditions are returned only to users who may see rows.
    """
    documents = [row.to_document() for row in store.list_notifications(reached.connector_name, limit=limit)[::-1]]
    if not _sees_rows(reached):
        for document in documents:
            data = hide_keys(document["additional_data"])
            document["additional_data"] = data | {"what": hide_keys_in_text(data["what"])} if "what" in data else data
    return [response_models.NotificationAnswer.model_validate(document) for document in documents]


def _sees_rows(reached: AuthorizedConnector) -> bool:
    """Check whether a user may see rows: a key is a part of its row."""
    return has_right(reached.user, reached.record, ConnectorRight.ROWS, reached.known)


def _without_rows(reached: AuthorizedConnector, document: dict[str, Any]) -> dict[str, Any]:
    hidden: dict[str, Any] = document if _sees_rows(reached) else hide_keys(document)
    return hidden


@router.get("/connectors/{connector}/batches")
def list_batches(store: Store, reached: Readable, limit: Limit = 50) -> list[response_models.BatchAnswer]:
    """List batches, newest first."""
    return [
        response_models.BatchAnswer.model_validate(row.to_document())
        for row in store.list_batches(reached.connector_name, limit=limit)
    ]


@router.get("/connectors/{connector}/batches/{batch}")
def get_batch(store: Store, reached: Readable, batch: int) -> response_models.BatchDetail:
    """Return a batch with its files and DDL statements."""
    rows = store.list_batches(reached.connector_name, batch=batch) if 0 < batch < 1 << 63 else []
    if not rows:
        raise HTTPException(404, f"Connector {reached.connector_name} has no batch {batch}.")
    manifest, trouble = None, None
    try:
        access = access_of(reached.record)
        if access is not None:
            name, found = reached.connector_name, access
            manifest = call_log_in_time(_LOG_S, name, lambda: found.open_change_log().find_manifest(name, batch))
    except (CdcError, OSError) as e:
        trouble = describe_error(e)
    files = [] if manifest is None else manifest.files
    before = None if manifest is None else manifest.offset_before
    shape = ("topic", "schema_version", "rows", "bytes", "first_seq", "last_seq")
    return response_models.BatchDetail(
        batch=response_models.BatchAnswer.model_validate(rows[0].to_document()),
        position_before=None if before is None else before.position,
        files=[
            response_models.BatchFile(path=f.path, counts=dict(f.counts), **{name: getattr(f, name) for name in shape})
            for f in files
        ],
        statements=[] if manifest is None else [change.ddl for change in manifest.schema_changes],
        writer=None if manifest is None else manifest.writer,
        trouble=trouble,
    )


@router.get("/connectors/{connector}/offsets")
def list_offsets(store: Store, reached: Readable, limit: Limit = 50) -> list[response_models.OffsetAnswer]:
    """List the offset history of the connector, newest first. Keys of rows and conditions as of signals."""
    return [
        response_models.OffsetAnswer.model_validate(_without_rows(reached, row.to_document()))
        for row in store.offset_history(reached.connector_name, limit)
    ]


@router.get("/connectors/{connector}/schema-changes")
def schema_changes(
    store: Store,
    reached: Readable,
    limit: Limit = 50,
    table: Annotated[str, Query(max_length=2000, description="Only changes of this table")] = "",
    before: Annotated[int | None, Query(ge=1, lt=1 << 63, description="Only changes with lower numbers")] = None,
) -> list[response_models.SchemaChangeAnswer]:
    """List schema changes, newest first, each with its differences."""
    return [
        response_models.SchemaChangeAnswer(
            number=change.number, seq=change.record.seq, at=datetime.fromtimestamp(change.record.ts_us / 1_000_000, UTC), database=change.record.database,
            statement=change.record.ddl, position=change.record.position, snapshot=change.record.snapshot, tables=change.tables,
        )
        for change in newest_differences(store, reached.connector_name, limit, before=before, table=table)
    ]  # fmt: skip


@router.get("/connectors/{connector}/configuration")
def get_configuration(reached: Readable) -> response_models.ConfigurationAnswer:
    """Return the properties of the last run, with the origin and the description of each.

    Properties that the connection sets are named, but their values are not returned.
    """
    registration = reached.record.registration
    connections = {} if registration is None else dict(registration.connections)
    return response_models.ConfigurationAnswer(properties=properties_of(reached.record), connections=connections)


@router.get("/connectors/{connector}/metrics")
def get_metrics(store: Store, reached: Readable) -> response_models.Measurements:
    """Return the current metrics, and the metrics after each of the last runs."""
    series = store.metrics.load_series(reached.connector_name)
    runs = {
        producer: [
            response_models.Measurement(at=at, gauges=metrics["gauges"], counters=metrics["counters"])
            for at, metrics in store.metrics.load_run_history(reached.connector_name, producer)
        ]
        for producer in {stored.producer: None for stored in series}
    }
    return response_models.Measurements(runs=runs, series=[stored.to_document() for stored in series])
