"""Routes that look closer: at the source, which is asked only when a person wants it, and at what was measured over a span of time.

FastAPI evaluates annotations: everything they name is imported at module level.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core.remedy_commands import cdc
from airflow_provider_cdc.core.spi.source import Finding
from airflow_provider_cdc.plugins.api.dependencies import Operable, Readable, Store
from airflow_provider_cdc.services.connectors.source_probe import (
    WAYS_OUT,
    Readiness,
    gap_of,
    reached,
    readiness,
    within,
)
from airflow_provider_cdc.services.dashboards.charts import ChartsOf, SpanName, charts_of
from airflow_provider_cdc.services.text.format_signal import gap_text

router = APIRouter(prefix="/connectors/{connector}", tags=["connectors"])


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Ask(_Model):
    """That the source is asked now."""

    seconds: float = Field(15.0, gt=0, le=60, description="How long an answer may take")


class Prerequisite(_Model):
    """One prerequisite that is not met."""

    what: str
    fix: str = Field(description="The statement or setting that mends it")
    fatal: bool = Field(description="Capture cannot begin, or would lose or misread data; otherwise it is advice")


class CheckAnswer(_Model):
    """Whether capture can begin, as ``airflow cdc check -o json`` has it."""

    ready: bool
    findings: list[Prerequisite]
    position: str | None = Field(None, description="Where the log ends; nothing if capture cannot begin")
    waiting: str | None = Field(None, description="Why there is something to capture")


class Way(_Model):
    """A way to go on after a gap."""

    repair: str
    command: str
    effect: str
    loses: bool = Field(description="What was in between is lost for good")


class GapAnswer(_Model):
    """Whether the source's log still holds the position, as ``airflow cdc gap -o json`` has it, with the ways out."""

    gap: dict[str, Any] | None
    text: str
    ways: list[Way] = Field(description="None where there is no gap")


def prerequisites(found: list[Finding]) -> list[Prerequisite]:
    """Those that are fatal come first."""
    ordered = sorted(found, key=lambda one: not one.fatal)
    return [Prerequisite(what=one.what, fix=one.fix, fatal=one.fatal) for one in ordered]


@router.post("/check")
def check(reached_one: Operable, asked: Ask) -> CheckAnswer:
    """Ask the source whether capture can begin; each prerequisite that is not met comes with what mends it."""
    access = reached(reached_one.record)
    found: Readiness = within(asked.seconds, f"The source of {reached_one.name}", lambda: readiness(access))
    return CheckAnswer(
        ready=found.ready,
        findings=prerequisites(list(found.findings)),
        position=found.position,
        waiting=found.waiting,
    )


@router.post("/gap")
def gap(reached_one: Operable, asked: Ask) -> GapAnswer:
    """Ask the source whether its log still holds the position; if not, what is lost and the ways to go on."""
    name, access = reached_one.name, reached(reached_one.record)
    found = within(asked.seconds, f"The source of {name}", lambda: gap_of(access))
    ways = [
        Way(repair=way.repair, command=cdc("gap", name, repair=way.repair), effect=way.effect, loses=way.loses)
        for way in WAYS_OUT
    ]
    return GapAnswer(
        gap=None if found is None else found.document(),
        text=gap_text(found, name),
        ways=[] if found is None else ways,
    )


@router.get("/charts")
def charts(
    store: Store, reached_one: Readable, span: Annotated[SpanName, Query(description="Up to now")] = "hour"
) -> ChartsOf:
    """Lag, throughput, freshness and processor time over an hour, a day or a week, with what has happened meanwhile."""
    return charts_of(store, reached_one.record, span)
