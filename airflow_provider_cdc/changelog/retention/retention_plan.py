"""A plan of the batches that a retention removes, and the targets that hold batches back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_provider_cdc.changelog.retention.target_progress import TargetProgress
from airflow_provider_cdc.core.remedy_commands import format_cdc_command


@dataclass(frozen=True, slots=True)
class RetentionHold:
    """A target that needs batches which would otherwise go sooner or later.

    :param captured_at: when the first batch that it lacks was captured, in ISO form; empty if that is not known
    :param silent: whether that is longer ago than batches are kept
    """

    need: TargetProgress
    captured_at: str
    silent: bool

    def format_text(self, connector: str) -> str:
        """Describe for people which target it is, since when it holds batches, and how to continue without it."""
        need = self.need
        if need.trouble:
            return f"{need.trouble}, so no batch can be removed: run the apply of this target, which writes the report again, or delete the file if the target no longer exists"
        which = f" ({', '.join(need.tables[:5])}{' …' if len(need.tables) > 5 else ''})" if need.tables else ""
        since = f", captured at {self.captured_at}" if self.captured_at else ""
        last = f"; its last apply was at {need.applied_at}" if need.applied_at else ""
        release = format_cdc_command(
            "forget-target", connector, target=need.target, location=need.location, confirm=connector
        )
        return f"{need.display_name}{which} has not applied batch {need.after + 1}{since}{last}. To stop keeping batches for this target: `{release}`"

    def to_document(self) -> dict[str, Any]:
        """Return the hold as JSON."""
        return {**self.need.to_document(), "captured_at": self.captured_at, "silent": self.silent}


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """A plan of the batches that would be removed now.

    :param first: the first batch that is kept now; 0 if there is none
    :param last: the newest one
    :param keep: the first one that is kept afterwards
    :param why: the reason why batches go, or why none goes
    :param applied: the last batch that all targets have; 0 if there is no target
    :param targets: how many there are
    :param holds: targets that lack batches, the one that is furthest behind first
    """

    first: int
    last: int
    keep: int
    why: str = ""
    applied: int = 0
    targets: int = 0
    holds: tuple[RetentionHold, ...] = ()

    @property
    def removed_batches(self) -> int:
        """Number of batches that are removed."""
        return max(self.keep - self.first, 0)

    def format_lines(self, connector: str) -> list[str]:
        """For people."""
        if not self.first:
            return ["The change log contains no batch."]
        if self.removed_batches:
            lines = [
                f"Batches {self.first} to {self.keep - 1} are removed, {self.why}; {self.keep} to {self.last} stay."
            ]
        else:
            lines = [f"Batches {self.first} to {self.last} stay: {self.why}."]
        return lines + [f"Held back by {hold.format_text(connector)}" for hold in self.holds if hold.silent]

    def to_document(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {
            "first": self.first, "last": self.last, "keep": self.keep, "removed": self.removed_batches, "why": self.why, "applied": self.applied,
            "targets": self.targets, "holds": [hold.to_document() for hold in self.holds],
        }  # fmt: skip
