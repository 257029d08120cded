"""Routes for a closer look: at the source, which is queried only when a user requests it, and at metrics over a span of time.

FastAPI evaluates annotations: everything they name is imported at module level.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.plugins.api.dependencies import Operable, Readable, Store
from airflow_provider_cdc.services.connectors.bounded_calls import call_source_in_time
from airflow_provider_cdc.services.connectors.source_readiness import (
    WAYS_OUT,
    Readiness,
    check_readiness,
    gap_of,
    resolve_access,
)
from airflow_provider_cdc.services.dashboards.connector_charts import ConnectorCharts, SpanName, charts_of
from airflow_provider_cdc.services.text.pause_gap_signal_texts import gap_text

router = APIRouter(prefix="/connectors/{connector}", tags=["connectors"])


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SourceRequest(_Model):
    """A request to query the source now."""

    seconds: float = Field(15.0, gt=0, le=60, description="Maximum time for an answer")


class Prerequisite(_Model):
    """A prerequisite that is not met."""

    problem: str
    fix: str = Field(description="The statement or setting that fixes it")
    fatal: bool = Field(description="Capture cannot start, or would lose or misread data; otherwise it is advice")


class SourceLogRetention(_Model):
    """The time for which the source keeps its log."""

    seconds: float | None = Field(description="null: without limit")
    setting: str = Field(description="The setting of the source that decides it, with its value")
    text: str = Field(description="The same as a sentence")


class CheckAnswer(_Model):
    """The result of the prerequisite check, in the form of ``airflow cdc check -o json``."""

    ready: bool
    findings: list[Prerequisite]
    position: str | None = Field(None, description="End of the log; null if capture cannot start")
    log_retention: SourceLogRetention | None = Field(None, description="null if the source does not report it")
    waiting: str | None = Field(None, description="Pending work of the capture; null if none")


class RepairOption(_Model):
    """A way to continue after a gap."""

    repair: str
    command: str
    effect: str
    loses: bool = Field(description="The changes in between are lost for good")


class GapAnswer(_Model):
    """The gap report: whether the source's log still contains the position, and the repairs if it does not.

    The form is that of ``airflow cdc gap -o json``.
    """

    gap: dict[str, Any] | None
    text: str
    ways: list[RepairOption] = Field(description="Empty if no gap exists")


def build_prerequisites(findings: list[Finding]) -> list[Prerequisite]:
    """Build the prerequisites of the answer; those that are fatal come first."""
    ordered = sorted(findings, key=lambda finding: not finding.fatal)
    return [Prerequisite(problem=finding.problem, fix=finding.fix, fatal=finding.fatal) for finding in ordered]


@router.post("/check")
def check_source(reached_one: Operable, request: SourceRequest) -> CheckAnswer:
    """Check the prerequisites of the capture at the source; each one that is not met comes with its fix."""
    access = resolve_access(reached_one.record)
    readiness: Readiness = call_source_in_time(
        request.seconds,
        access.conn_id,
        lambda: check_readiness(access),
        name=f"The source of {reached_one.connector_name}",
    )
    kept = readiness.log_retention
    return CheckAnswer(
        ready=readiness.is_ready,
        findings=build_prerequisites(list(readiness.findings)),
        log_retention=None
        if kept is None
        else SourceLogRetention(seconds=kept.seconds, setting=kept.setting, text=kept.format_text()),
        position=readiness.position,
        waiting=readiness.waiting,
    )


@router.post("/gap")
def check_gap(reached_one: Operable, request: SourceRequest) -> GapAnswer:
    """Check whether the source's log still contains the position; if not, return the lost changes and the repairs."""
    name, access = reached_one.connector_name, resolve_access(reached_one.record)
    gap = call_source_in_time(request.seconds, access.conn_id, lambda: gap_of(access), name=f"The source of {name}")
    ways = [
        RepairOption(
            repair=way.repair,
            command=format_cdc_command("gap", name, repair=way.repair),
            effect=way.effect,
            loses=way.loses,
        )
        for way in WAYS_OUT
    ]
    return GapAnswer(
        gap=None if gap is None else gap.to_document(),
        text=gap_text(gap, name),
        ways=[] if gap is None else ways,
    )


@router.get("/charts")
def get_charts(
    store: Store, reached_one: Readable, span: Annotated[SpanName, Query(description="Up to now")] = "hour"
) -> ConnectorCharts:
    """Lag, throughput, freshness and processor time over an hour, a day or a week, with the events of that time."""
    return charts_of(store, reached_one.record, span)
