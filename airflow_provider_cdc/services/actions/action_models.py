"""Actions that people may request for a connector on a page, and the answer: what it would do, or that it was done."""

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
    """Capture nothing for a while."""

    action: Literal["pause"] = "pause"


class StopConnector(ConnectorAction):
    """Capture nothing until further notice."""

    action: Literal["stop"] = "stop"


class ResumeConnector(ConnectorAction):
    """Resume the capture."""

    action: Literal["resume"] = "resume"


class StartSnapshot(ConnectorAction):
    """Read tables again."""

    action: Literal["snapshot"] = "snapshot"
    tables: list[Name] = Field(
        min_length=1, max_length=1000, description="Names, or regular expressions that match whole names"
    )
    type: Literal["incremental", "blocking"] = Field(
        "incremental",
        description="incremental: in chunks beside the stream; blocking: streaming waits for the snapshot",
    )
    replace: bool = Field(False, description="Empty the target tables first, so that deleted rows disappear")


class StopIncrementalSnapshot(ConnectorAction):
    """Stop reading tables in chunks."""

    action: Literal["stop-snapshot"] = "stop-snapshot"
    tables: list[Name] = Field(
        default_factory=list, max_length=1000, description="As for a snapshot; if empty, all tables"
    )


class ForgetTarget(ConnectorAction):
    """Release what a target holds back of the change log."""

    action: Literal["forget-target"] = "forget-target"
    target: Name
    location: Name


class RunCaptureDag(ConnectorAction):
    """Have the DAG that captures run now."""

    action: Literal["run"] = "run"


class _TablesAction(ConnectorAction):
    """Work on the tables of a target; it may be left out where there is but one."""

    target: str = Field("", max_length=2000, description="Kind of the target")
    location: str = Field("", max_length=2000, description="Location of the target, as given to its apply")


class VerifyTargetTables(_TablesAction):
    """Compare tables of a target with the source."""

    action: Literal["verify"] = "verify"
    tables: list[Name] = Field(
        default_factory=list, max_length=1000, description="As for a snapshot; if empty, all tables"
    )


class RepairTargetTables(VerifyTargetTables):
    """Compare, and have the rows that differ read again."""

    action: Literal["repair"] = "repair"  # type: ignore[assignment]


class RebuildTargetTables(_TablesAction):
    """Build tables of a target again from the change log."""

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
    """Go back to an offset that the connector has had."""

    action: Literal["restore-offset"] = "restore-offset"
    version: int = Field(ge=1, lt=1 << 63, description="Version of the offset to restore")


class SetOffset(_OffsetAction):
    """Continue from another position in the source's log."""

    action: Literal["set-offset"] = "set-offset"
    position: dict[str, Any] = Field(
        min_length=1, max_length=1000, description="Position in the source's own form, as in an offset"
    )

    @field_validator("position")
    @classmethod
    def _kept(cls, position: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(position, ensure_ascii=False, allow_nan=False)
        if len(text.encode()) > MOST_OF_A_POSITION:
            raise ValueError(f"a position has at most {MOST_OF_A_POSITION:,} bytes")
        return position


class ResetOffset(_OffsetAction):
    """Forget the offset: all tables are read again."""

    action: Literal["reset-offset"] = "reset-offset"


class RepairGap(_OffsetAction):
    """Continue although the source's log does not hold the position any more."""

    action: Literal["repair-gap"] = "repair-gap"
    repair: Literal["snapshot", "incremental", "skip"] = Field(description="As for airflow cdc gap --repair")


Fate = Literal["queued", "running", "done", "failed", "not known"]


class RequestedAction(BaseModel):
    """An action that a user has requested on a page, and what has become of it.

    :param what: the action's own parameters
    :param fate: of a run that Airflow has no record of any more, or a signal that has been removed, not known
    :param outcome: what the run or the signal says that it has found or done, or why it has failed
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    at: datetime
    action: str
    by: str
    reason: str
    what: dict[str, Any]
    dag: str | None
    run: str | None
    fate: Fate
    ended_at: datetime | None
    outcome: str


class ActionPlan(BaseModel):
    """The effect of an action.

    :param lines: for people
    :param confirm: the connector's name has to be given, since something can be lost or repeated
    :param done: whether it was carried out
    :param signal: number of the signal that was sent
    :param obstacle: why it cannot be done now, and what helps
    :param dag: the DAG of which a run does it
    :param run: id of that run
    :param version: of the offset that the plan is about
    :param about: stands for the tables, signals and the like that the plan is about. If it is given back, nothing is done if the action would be about others by then
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
