"""Routes that only read."""

from datetime import UTC, datetime
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, HTTPException, Query

from airflow_provider_cdc.core.errors import CdcError, SourceBusy, SourceUnavailable
from airflow_provider_cdc.core.lifecycle.status import RunState, status_of
from airflow_provider_cdc.core.model.job_progress import Work
from airflow_provider_cdc.core.model.notifications import ROW
from airflow_provider_cdc.core.spi.state_records import ConnectorRecord
from airflow_provider_cdc.plugins.api import models
from airflow_provider_cdc.plugins.api.dependencies import MOST, Readable, Store
from airflow_provider_cdc.plugins.authorization import Known, Right, known_of, may, readable, rights_on
from airflow_provider_cdc.services.connectors.connector_access import access_of
from airflow_provider_cdc.services.connectors.source_probe import within_log
from airflow_provider_cdc.services.dashboards.connector_view import properties_of, tables_of
from airflow_provider_cdc.services.dashboards.overview import line_of, overview, wholes_of
from airflow_provider_cdc.services.dashboards.overview_models import ConnectorLine, NextRun
from airflow_provider_cdc.services.dashboards.schema_diff import newest_differences
from airflow_provider_cdc.services.text import format_status

router = APIRouter(tags=["connectors"])
_LOG_S = 5.0
"""How long a change log may take to answer, beside which the state is shown in any case."""
Limit = Annotated[int, Query(ge=1, le=MOST, description="Entries at most, the newest ones")]


@router.get("/connectors")
def connectors(
    store: Store,
    user: GetUserDep,
    state: Annotated[list[RunState] | None, Query(description="Only these states")] = None,
    source: Annotated[list[str] | None, Query(description="Only these kinds of sources")] = None,
    tag: Annotated[list[str] | None, Query(description="Only those whose DAG has one of these tags")] = None,
    text: Annotated[str, Query(max_length=200, description="Part of a name, of a problem or of what it is doing")] = "",
) -> models.Overview:
    """All connectors that the user may see, the one that wants to be looked at most first."""
    known = Known()

    def seen(records: Any) -> Any:
        nonlocal known
        known = known_of(records)
        return readable(user, records, known)

    lines = overview(
        store, seen=seen, next_run=lambda record: _next_run(record, known), tags=lambda record: _tags(record, known)
    )
    states = [line.state for line in lines]
    return models.Overview(
        connectors=[line for line in lines if _fits(line, state, source, tag, text.casefold())],
        states={state: states.count(state) for state in sorted(set(states))},
        sources=sorted({line.source for line in lines if line.source}),
        tags=sorted({tag for line in lines for tag in line.tags}),
        total=len(lines),
        at=datetime.now(UTC),
    )


def _fits(
    line: ConnectorLine, state: list[RunState] | None, source: list[str] | None, tag: list[str] | None, text: str
) -> bool:
    if (state and line.state not in state) or (source and line.source not in source):
        return False
    if tag and set(tag).isdisjoint(line.tags):
        return False
    return not text or any(text in part.casefold() for part in (line.connector, line.phase, *line.problems))


def _next_run(record: ConnectorRecord, known: Known) -> NextRun | None:
    dag = known.dag(record)
    if dag is None:
        return None
    return NextRun(gone=True) if dag.stale else NextRun(at=dag.next_at, paused=dag.paused)


def _tags(record: ConnectorRecord, known: Known) -> tuple[str, ...]:
    dag = known.dag(record)
    return () if dag is None else dag.tags


@router.get("/connectors/{connector}")
def connector(store: Store, reached: Readable) -> models.ConnectorDetail:
    """One connector: how it is, what is at work, how far its targets are."""
    record = reached.record
    signals = store.signals_of(reached.name, 100, under_way=True)
    reports, works, trouble = _beside(record)
    now = datetime.now(UTC)
    wholes = wholes_of(store, now, reached.name).get(reached.name, [])
    return models.ConnectorDetail(
        line=line_of(record, wholes, signals, now, _next_run(record, reached.known), _tags(record, reached.known)),
        rights=rights_on(reached.user, record, reached.known),
        status=status_of(record, signals).document(),
        work=[{**work.document(), "text": work.text} for work in works],
        targets=[models.Target(**report) for report in reports],
        trouble=trouble,
    )


def _beside(record: ConnectorRecord) -> tuple[list[dict[str, Any]], list[Work], str | None]:
    """As :func:`airflow_provider_cdc.services.text.format_status.beside_changelog` has it; a storage that does not answer is waited for a short time only."""
    try:
        return within_log(_LOG_S, record.connector, lambda: format_status.beside_changelog(record))
    except (SourceBusy, SourceUnavailable) as e:
        return [], [], str(e)


@router.get("/connectors/{connector}/tables")
def tables(store: Store, reached: Readable) -> models.Tables:
    """The tables that a connector has a schema of, and what was measured of each."""
    return models.Tables(tables=tables_of(store, reached.record))


@router.get("/connectors/{connector}/signals")
def signals(store: Store, reached: Readable, limit: Limit = 50) -> list[models.SignalState]:
    """Signals and their fate, newest first; of their data the first 2,000 characters."""
    return [models.SignalState(**row.document()) for row in store.signals_of(reached.name, limit)]


@router.get("/connectors/{connector}/events")
def events(store: Store, reached: Readable, limit: Limit = 50) -> list[models.Event]:
    """What has happened, and who has done or seen what, newest first. Which row somebody has seen is told to those who may see rows."""
    found = [
        models.Event.model_validate(row.document()) for row in store.notifications(reached.name, limit=limit)[::-1]
    ]
    if not may(reached.user, reached.record, Right.ROWS, reached.known):  # a key is a part of the row
        for one in found:
            if one.aggregate_type == ROW and "key" in one.additional_data:
                one.additional_data["key"] = "not shown"
    return found


@router.get("/connectors/{connector}/batches")
def batches(store: Store, reached: Readable, limit: Limit = 50) -> list[models.Batch]:
    """Batches, newest first."""
    return [models.Batch.model_validate(row.document()) for row in store.batches(reached.name, limit=limit)]


@router.get("/connectors/{connector}/batches/{batch}")
def batch(store: Store, reached: Readable, batch: int) -> models.BatchDetail:
    """One batch: its files, and the statements in it."""
    rows = store.batches(reached.name, batch=batch) if 0 < batch < 1 << 63 else []
    if not rows:
        raise HTTPException(404, f"Connector {reached.name} has no batch {batch}.")
    manifest, trouble = None, None
    try:
        access = access_of(reached.record)
        if access is not None:
            changelog = access.changelog()
            manifest = within_log(_LOG_S, reached.name, lambda: changelog.manifest(reached.name, batch))
    except (CdcError, OSError) as e:
        trouble = str(e)
    files = [] if manifest is None else manifest.files
    before = None if manifest is None else manifest.offset_before
    shape = ("topic", "schema_version", "rows", "bytes", "first_seq", "last_seq")
    return models.BatchDetail(
        batch=models.Batch.model_validate(rows[0].document()),
        position_before=None if before is None else before.position,
        files=[
            models.BatchFile(path=f.path, counts=dict(f.counts), **{name: getattr(f, name) for name in shape})
            for f in files
        ],
        statements=[] if manifest is None else [change.ddl for change in manifest.schema_changes],
        writer=None if manifest is None else manifest.writer,
        trouble=trouble,
    )


@router.get("/connectors/{connector}/offsets")
def offsets(store: Store, reached: Readable, limit: Limit = 50) -> list[models.Offset]:
    """Offsets that the connector has had, newest first."""
    return [models.Offset.model_validate(row.document()) for row in store.offset_history(reached.name, limit)]


@router.get("/connectors/{connector}/schema-changes")
def schema_changes(
    store: Store,
    reached: Readable,
    limit: Limit = 50,
    table: Annotated[str, Query(max_length=2000, description="Only of this table")] = "",
    before: Annotated[int | None, Query(ge=1, lt=1 << 63, description="Only those with lower numbers")] = None,
) -> list[models.SchemaChange]:
    """Schema changes, newest first, each with what it has changed."""
    return [
        models.SchemaChange(
            number=one.number, seq=one.record.seq, at=datetime.fromtimestamp(one.record.ts_us / 1_000_000, UTC), database=one.record.database,
            statement=one.record.ddl, position=one.record.position, snapshot=one.record.snapshot, tables=one.tables,
        )
        for one in newest_differences(store, reached.name, limit, before=before, table=table)
    ]  # fmt: skip


@router.get("/connectors/{connector}/configuration")
def configuration(reached: Readable) -> models.Configuration:
    """The properties of the last run, where each comes from and what it does. What the connection sets is named and not shown."""
    known = reached.record.registration
    connections = {} if known is None else dict(known.connections)
    return models.Configuration(properties=properties_of(reached.record), connections=connections)


@router.get("/connectors/{connector}/metrics")
def metrics(store: Store, reached: Readable) -> models.Measurements:
    """What was measured: values now, and after each of the last runs."""
    series = store.metrics.of(reached.name)
    runs = {
        producer: [
            models.Measurement(at=at, gauges=found["gauges"], counters=found["counters"])
            for at, found in store.metrics.history(reached.name, producer)
        ]
        for producer in {one.producer: None for one in series}
    }
    return models.Measurements(runs=runs, series=[one.document() for one in series])
