"""What people may ask of a connector on a page, and what is answered: what it would do, or that it was done."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

MOST_OF_A_POSITION = 1 << 20
"""Bytes as JSON."""
Name = Annotated[str, Field(min_length=1, max_length=2000)]


class Action(BaseModel):
    """What somebody asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field("", max_length=2000, description="Why; it is recorded")


class Pause(Action):
    """Capture nothing for a while."""

    action: Literal["pause"] = "pause"


class Stop(Action):
    """Capture nothing until further notice."""

    action: Literal["stop"] = "stop"


class Resume(Action):
    """Go on."""

    action: Literal["resume"] = "resume"


class Snapshot(Action):
    """Read tables again."""

    action: Literal["snapshot"] = "snapshot"
    tables: list[Name] = Field(
        min_length=1, max_length=1000, description="Names, or regular expressions that match whole names"
    )
    type: Literal["incremental", "blocking"] = Field(
        "incremental", description="Beside the stream, in chunks; or instead of it"
    )
    replace: bool = Field(
        False, description="Empty the tables in the targets first, so that rows that were deleted disappear"
    )


class StopSnapshot(Action):
    """Stop reading tables in chunks."""

    action: Literal["stop-snapshot"] = "stop-snapshot"
    tables: list[Name] = Field(default_factory=list, max_length=1000, description="As for a snapshot; without any, all")


class ForgetTarget(Action):
    """Release what a target holds back of the change log."""

    action: Literal["forget-target"] = "forget-target"
    target: Name
    location: Name


class RunNow(Action):
    """Have the DAG that captures run now."""

    action: Literal["run"] = "run"


class _OnTables(Action):
    """Work on the tables of a target; it may be left out where there is but one."""

    target: str = Field("", max_length=2000, description="Kind of the target")
    location: str = Field("", max_length=2000, description="Where its tables are, as its apply has it")


class Verify(_OnTables):
    """Compare tables of a target with the source."""

    action: Literal["verify"] = "verify"
    tables: list[Name] = Field(default_factory=list, max_length=1000, description="As for a snapshot; without any, all")


class Repair(Verify):
    """Compare, and have the rows that differ read again."""

    action: Literal["repair"] = "repair"  # type: ignore[assignment]


class Rebuild(_OnTables):
    """Build tables of a target again from the change log."""

    action: Literal["rebuild"] = "rebuild"
    tables: list[Name] = Field(min_length=1, max_length=1000, description="As for a snapshot")


class _Steer(Action):
    """Change where a connector goes on."""

    at_version: int | None = Field(
        None,
        ge=0,
        lt=1 << 63,
        description="Of the present offset, as the plan had it: nothing is done if it has moved since",
    )


class RestoreOffset(_Steer):
    """Go back to an offset that the connector has had."""

    action: Literal["restore-offset"] = "restore-offset"
    version: int = Field(ge=1, lt=1 << 63, description="Of that offset")


class SetOffset(_Steer):
    """Go on from another position in the source's log."""

    action: Literal["set-offset"] = "set-offset"
    position: dict[str, Any] = Field(
        min_length=1, max_length=1000, description="In the source's own words, as an offset has it"
    )

    @field_validator("position")
    @classmethod
    def _kept(cls, position: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(position, ensure_ascii=False, allow_nan=False)
        if len(text.encode()) > MOST_OF_A_POSITION:
            raise ValueError(f"a position has at most {MOST_OF_A_POSITION:,} bytes")
        return position


class ResetOffset(_Steer):
    """Forget the offset: all tables are read again."""

    action: Literal["reset-offset"] = "reset-offset"


class RepairGap(_Steer):
    """Go on although the source's log does not hold the position any more."""

    action: Literal["repair-gap"] = "repair-gap"
    repair: Literal["snapshot", "incremental", "skip"] = Field(description="As airflow cdc gap --repair has it")


Fate = Literal["queued", "running", "done", "failed", "not known"]


class AskedFor(BaseModel):
    """What somebody has asked for on a page, and what has become of it.

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


class Plan(BaseModel):
    """What an action does.

    :param lines: for people
    :param confirm: the connector's name has to be given, since something can be lost or repeated
    :param done: whether it was carried out
    :param signal: number of the signal that was sent
    :param obstacle: why it cannot be done now, and what helps
    :param dag: the DAG of which a run does it
    :param run: id of that run
    :param version: of the offset that the plan is about
    :param about: stands for the tables, signals and the like that the plan is about. Whoever gives it back has nothing done if it would be about others by then
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
    "Action", "AskedFor", "Fate", "ForgetTarget", "Name", "Pause", "Plan", "Rebuild", "Repair", "RepairGap", "ResetOffset", "RestoreOffset", "Resume", "RunNow", "SetOffset",
    "Snapshot", "Stop", "StopSnapshot", "Verify",
]  # fmt: skip
