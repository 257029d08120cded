"""Actions that users may request for a connector on a page, and the answer: the plan, or the result."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

MOST_OF_A_POSITION = 1 << 20
"""Bytes as JSON."""
Name = Annotated[str, Field(min_length=1, max_length=2000)]


class ConnectorAction(BaseModel):
    """An action that a user requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field("", max_length=2000, description="Reason, which is recorded")


class PauseConnector(ConnectorAction):
    """Pause the connector: new runs are skipped until it is resumed."""

    action: Literal["pause"] = "pause"


class StopConnector(ConnectorAction):
    """Stop the connector: as a pause, but the connector is not expected to resume soon."""

    action: Literal["stop"] = "stop"


class ResumeConnector(ConnectorAction):
    """Resume the connector: the next run continues from the offset."""

    action: Literal["resume"] = "resume"


class StartSnapshot(ConnectorAction):
    """Snapshot tables again."""

    action: Literal["snapshot"] = "snapshot"
    tables: list[Name] = Field(
        min_length=1, max_length=1000, description="Names, or regular expressions that match whole names"
    )
    type: Literal["incremental", "blocking"] = Field(
        "incremental",
        description="incremental: in chunks beside the stream; blocking: streaming waits for the snapshot",
    )
    replace: bool = Field(False, description="Empty the target tables first, so that deleted rows disappear")
    on_spark: bool = Field(False, description="Executors of Spark read the tables; only with blocking")


class StopIncrementalSnapshot(ConnectorAction):
    """Stop incremental snapshots."""

    action: Literal["stop-snapshot"] = "stop-snapshot"
    tables: list[Name] = Field(
        default_factory=list, max_length=1000, description="As for a snapshot; if empty, all tables"
    )


class ForgetTarget(ConnectorAction):
    """Forget a target: the change log no longer keeps batches for it."""

    action: Literal["forget-target"] = "forget-target"
    target: Name
    location: Name


class RunCaptureDag(ConnectorAction):
    """Start a run of the DAG that captures the connector."""

    action: Literal["run"] = "run"


class _TablesAction(ConnectorAction):
    """Work on the tables of a target; it may be left out where there is but one."""

    target: str = Field("", max_length=2000, description="Kind of the target")
    location: str = Field("", max_length=2000, description="Location of the target, as given to its apply")


class VerifyTargetTables(_TablesAction):
    """Verify tables of a target against the source."""

    action: Literal["verify"] = "verify"
    tables: list[Name] = Field(
        default_factory=list, max_length=1000, description="As for a snapshot; if empty, all tables"
    )


class RepairTargetTables(VerifyTargetTables):
    """Verify tables of a target against the source, and repair the rows that differ."""

    action: Literal["repair"] = "repair"  # type: ignore[assignment]


class RebuildTargetTables(_TablesAction):
    """Rebuild tables of a target from the change log."""

    action: Literal["rebuild"] = "rebuild"
    tables: list[Name] = Field(min_length=1, max_length=1000, description="As for a snapshot")


class _OffsetAction(ConnectorAction):
    """Change the position from which a connector continues."""

    at_version: int | None = Field(
        None,
        ge=0,
        lt=1 << 63,
        description="Version of the current offset in the plan: nothing is changed if the offset has moved since",
    )


class RestoreOffset(_OffsetAction):
    """Restore an earlier offset of the connector."""

    action: Literal["restore-offset"] = "restore-offset"
    version: int = Field(ge=1, lt=1 << 63, description="Version of the offset to restore")


class SetOffset(_OffsetAction):
    """Set the offset: the connector continues from another position in the source's log."""

    action: Literal["set-offset"] = "set-offset"
    position: dict[str, Any] = Field(
        min_length=1, max_length=1000, description="Position in the source's own form, as in an offset"
    )

    @field_validator("position")
    @classmethod
    def _limit_position(cls, position: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(position, ensure_ascii=False, allow_nan=False)
        if len(text.encode()) > MOST_OF_A_POSITION:
            raise ValueError(f"a position has at most {MOST_OF_A_POSITION:,} bytes")
        return position


class ResetOffset(_OffsetAction):
    """Reset the offset: the next run takes a snapshot of every captured table again."""

    action: Literal["reset-offset"] = "reset-offset"


class RepairGap(_OffsetAction):
    """Repair a gap: the connector continues although the source's log no longer contains its position."""

    action: Literal["repair-gap"] = "repair-gap"
    repair: Literal["snapshot", "incremental", "skip"] = Field(description="As for airflow cdc gap --repair")


Fate = Literal["queued", "running", "done", "failed", "not known"]


class RequestedAction(BaseModel):
    """An action that a user has requested on a page, and its result.

    :param parameters: parameters of the action
    :param fate: ``not known`` if Airflow no longer has a record of the run, or if the signal was removed
    :param outcome: the result that the run or the signal reports, or the reason of its failure
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    at: datetime
    action: str
    by: str
    reason: str
    parameters: dict[str, Any]
    dag: str | None
    run: str | None
    fate: Fate
    ended_at: datetime | None
    outcome: str


class ActionPlan(BaseModel):
    """The effect of an action.

    :param lines: sentences for people
    :param confirm: the request must repeat the connector's name, because data can be lost or repeated
    :param done: whether the action was executed
    :param signal: number of the signal that was sent
    :param obstacle: the reason why the action is not possible now, with the remedy
    :param dag: the DAG whose run executes the action
    :param run: id of that run
    :param version: version of the offset in the plan
    :param about: a digest of the tables, signals or state that the plan affects. If a request returns it, and these have changed since, nothing is done
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: str
    connector: str
    lines: list[str]
    confirm: bool
    done: bool = False
    signal: int | None = None
    obstacle: str | None = None
    dag: str | None = None
    run: str | None = None
    version: int | None = None
    about: str | None = None


__all__ = [
    "ActionPlan",
    "ConnectorAction",
    "Fate",
    "ForgetTarget",
    "Name",
    "PauseConnector",
    "RebuildTargetTables",
    "RepairGap",
    "RepairTargetTables",
    "RequestedAction",
    "ResetOffset",
    "RestoreOffset",
    "ResumeConnector",
    "RunCaptureDag",
    "SetOffset",
    "StartSnapshot",
    "StopConnector",
    "StopIncrementalSnapshot",
    "VerifyTargetTables",
]  # fmt: skip
