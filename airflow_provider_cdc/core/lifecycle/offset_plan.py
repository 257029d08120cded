"""Moves a connector's offset by hand: first a plan of the consequences, for people to read, then the same plan is carried out.

``seq``, ``batch`` and the number of the last signal never go back: the change log continues behind its last batch, whatever
position in the source's log that has.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.remedy_commands import format_cdc_command

if TYPE_CHECKING:
    from airflow_provider_cdc.core.model.table_schema import TableId
    from airflow_provider_cdc.core.spi.source import Source
    from airflow_provider_cdc.core.spi.state_records import BatchRecord
    from airflow_provider_cdc.core.spi.store_interfaces import StoredOffset


class OffsetEffect(enum.StrEnum):
    """The effect on the tables of continuing from another position."""

    NOTHING = "nothing"
    """It is the connector's present position."""
    SKIP = "skip"
    """Changes in between are never captured."""
    REPEAT = "repeat"
    """Changes in between are captured once more."""
    SNAPSHOT = "snapshot"
    """Every table is read again."""
    UNKNOWN = "unknown"
    """The two positions cannot be compared: changes may be skipped, repeated, or both."""


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """The planned move of the offset. Nothing has happened yet.

    :param version: of the offset that the plan is about; once that has moved, the plan is invalid
    :param offset: the offset that would replace it
    :param reason: for the history of offsets
    :param consequences: what people must know before they confirm, one sentence each
    :param problems: why it cannot be done, each with what can be done instead; empty if it can
    :param dropped: number of a signal whose tables would not be read any more
    """

    connector: str
    version: int
    offset: Offset
    effect: OffsetEffect
    reason: str
    now: str
    target: str
    consequences: tuple[str, ...]
    problems: tuple[str, ...] = ()
    dropped: frozenset[int] = frozenset()

    def to_document(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {
            "connector": self.connector,
            "version": self.version,
            "effect": self.effect.value,
            "now": self.now,
            "target": self.target,
            "consequences": list(self.consequences),
            "problems": list(self.problems),
        }


@dataclass(slots=True)
class OffsetPlanner:
    """Makes the plans of one connector.

    :param batches: newest first, as ``StateStore.list_batches`` gives them
    :param history: recorded schema changes, oldest first
    """

    connector: str
    stored: StoredOffset
    source: Source
    batches: Sequence[BatchRecord]
    history: Iterable[SchemaChangeRecord]
    consequences: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def plan_move(self, target: Position) -> OffsetPlan:
        """Plan to continue from another position of the log."""
        offset = self._offset()
        if offset.position is None:
            self.problems.append(
                "The connector has no position: its next run begins with a snapshot of all tables. Start the run, or restore an earlier "
                f"offset: {format_cdc_command('offset history', self.connector)}"
            )
            moved = offset.move_position(target.to_json())
            return self._plan(moved, OffsetEffect.UNKNOWN, "none", target, f"set to {target}")
        effect = self._way(self.source.parse_position(offset.position), target)
        moved = offset.move_position(target.to_json())
        if moved.snapshot.pending:
            self.consequences.append(f"Tables that still need a snapshot: {', '.join(sorted(moved.snapshot.pending))}.")
        if moved.incremental.scans:
            names = ", ".join(scan.table for scan in moved.incremental.scans)
            self.consequences.append(f"Incremental snapshots continue where they are: {names}.")
        return self._plan(moved, effect, self._text(offset.position), target, f"set to {target}")

    def plan_reset(self) -> OffsetPlan:
        """Forget the position: the next run reads all tables first."""
        offset = self._offset()
        fresh = offset.clear_position()
        self.consequences.append(
            "The next run takes a snapshot of every captured table again, as snapshot.mode specifies. The snapshot of a table begins with a truncate, so rows "
            "that were deleted in the meantime disappear."
        )
        self.consequences.append("The change log stays; batches and sequence numbers continue after the last ones.")
        dropped = frozenset(offset.snapshot.request_numbers.values())
        return self._plan(fresh, OffsetEffect.SNAPSHOT, self._text(offset.position), None, "reset", dropped)

    def plan_restore(self, version: int, old: Offset) -> OffsetPlan:
        """Go back to a position that the connector has had.

        :param old: the offset of that version
        """
        offset = self._offset()
        dropped = frozenset(offset.snapshot.request_numbers.values())
        restored = offset.restore_position(old)
        pending = restored.snapshot.pending
        reason = f"restored from version {version}"
        if old.position is None:
            self.consequences.append(
                f"Version {version} has no position: the next run takes a snapshot of every captured table again."
            )
            return self._plan(restored, OffsetEffect.SNAPSHOT, self._text(offset.position), None, reason, dropped)
        target = self.source.parse_position(old.position)
        reached = offset.position or next((b.position for b in self.batches if b.position), None)
        effect = OffsetEffect.UNKNOWN if reached is None else self._way(self.source.parse_position(reached), target)
        if pending:
            self.consequences.append(
                f"Tables that needed a snapshot at that version and are read again: {', '.join(sorted(pending))}."
            )
        return self._plan(restored, effect, self._text(offset.position), target, reason, dropped)

    # -- changes in between -------------------------------------------------------------------------------------------

    def _way(self, now: Position, target: Position) -> OffsetEffect:
        """Compare two positions, and add the consequences of a move from one to the other."""
        self._readable(target)
        past, short = now.has_reached(target), target.has_reached(now)
        if past and short:
            self.consequences.append("The connector is already at this position.")
            return OffsetEffect.NOTHING
        if short:
            self.consequences.append(
                f"SKIPPED: the changes committed after {now}, up to {target}, are never captured. Target tables keep their current rows, "
                "unless you snapshot the tables again."
            )
            self.consequences.append(
                "DDL in between is skipped, too: if the structure of a table has changed, the run reads the catalog or stops with an error."
            )
            return OffsetEffect.SKIP
        if past:
            self.consequences.append(
                f"REPEATED: the changes committed after {target}, up to {now}, are captured again, under new sequence numbers. "
                "Target tables return to earlier values and then catch up; consumers that count events see them twice."
            )
            self._repeated(target)
            self._structures(target)
            return OffsetEffect.REPEAT
        self.consequences.append(
            f"{now} and {target} cannot be compared; they may belong to different servers or logs. Changes may be skipped, repeated, or both."
        )
        return OffsetEffect.UNKNOWN

    def _readable(self, target: Position) -> None:
        try:
            self.source.verify_position(target)
            end = self.source.current_position()
        except CdcError as e:
            self.problems.append(f"The log cannot be read from {target}: {e.message}")
            return
        if target.has_reached(end) and not end.has_reached(target):
            self.problems.append(f"{target} is after the end of the log, {end}.")

    def _repeated(self, target: Position) -> None:
        events = batches = 0
        for batch in self.batches:
            if not batch.position or target.has_reached(self.source.parse_position(batch.position)):
                if batches:
                    self.consequences.append(f"These are at most {events:,} events, in the last {batches} batches.")
                return
            events, batches = events + batch.events, batches + 1
        if batches:
            self.consequences.append(
                f"Since then, the connector has captured {batches} batches with {events:,} events, snapshots included."
            )

    def _structures(self, target: Position) -> None:
        """Add a problem if the move goes back over DDL.

        Rows are decoded with the schemas that are known now, and rows before a DDL statement had others.
        """
        created: set[TableId] = set()
        last = ""
        for record in self.history if self.source.STRUCTURED else ():
            changed_at = self.source.parse_position(record.position)
            if record.snapshot or target.has_reached(changed_at):
                continue
            for change in record.changes:
                if change.type == "CREATE":
                    created.add(change.id)
                elif change.id not in created and (change.previous_id or change.id) not in created:
                    last = (
                        f"The structure of {change.id} was changed in between, at {changed_at} ({record.ddl or change.type}), and earlier rows "
                        f"would be decoded with the newer structure. Go back no further than {changed_at}, or snapshot all tables "
                        f"again: {format_cdc_command('offset reset', self.connector)}"
                    )
        if last:
            self.problems.append(last)

    # -- texts --------------------------------------------------------------------------------------------------------

    def _offset(self) -> Offset:
        return self.stored.offset or Offset()

    def _text(self, position: dict[str, Any] | None) -> str:
        return "none" if position is None else str(self.source.parse_position(position))

    def _plan(
        self,
        offset: Offset,
        effect: OffsetEffect,
        now: str,
        target: Position | None,
        reason: str,
        dropped: frozenset[int] = frozenset(),
    ) -> OffsetPlan:
        if dropped:
            self.consequences.append(
                f"The snapshots requested by the signals {sorted(dropped)} end as failed; send these signals again."
            )
        return OffsetPlan(
            self.connector, self.stored.version, offset, effect, reason, now, "none" if target is None else str(target),
            tuple(self.consequences), tuple(self.problems), dropped,
        )  # fmt: skip
