"""The state of a capture run, which its parts share."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any

from airflow_provider_cdc.core.model.connector_offset import CarriedFile, IncrementalState, Offset, SnapshotState
from airflow_provider_cdc.core.model.position import Position


class CaptureState:
    """The offset that the next commit makes durable.

    :param parse: makes a position of its JSON form (``Source.parse_position``)
    :ivar offset: the present one; the committed one may be older
    :ivar repositioned: a signal has moved the position: streaming must begin there again
    """

    def __init__(self, offset: Offset, parse: Callable[[dict[str, Any]], Position]) -> None:
        self.offset, self._parse = offset, parse
        self.repositioned = False

    @property
    def snapshot_state(self) -> SnapshotState:
        """Tables that are to be read whole."""
        return self.offset.snapshot

    @snapshot_state.setter
    def snapshot_state(self, snapshot: SnapshotState) -> None:
        self.offset = self.offset.with_snapshot(snapshot)

    @property
    def incremental_state(self) -> IncrementalState:
        """Tables that are read in chunks."""
        return self.offset.incremental

    @incremental_state.setter
    def incremental_state(self, incremental: IncrementalState) -> None:
        self.offset = self.offset.with_incremental(incremental)

    @property
    def current_position(self) -> Position:
        """The position up to which everything is captured; there has to be one."""
        assert self.offset.position is not None
        return self._parse(self.offset.position)

    @property
    def position_text(self) -> str:
        """The position as text."""
        return "the beginning" if self.offset.position is None else str(self.current_position)

    def advance_position(self, position: Position) -> None:
        """Everything up to a position is captured."""
        self.offset = self.offset.advance_position(position.to_json())

    def set_carried_file(self, file: CarriedFile | None) -> None:
        """Record the state that the source carries from here on; ``None``: nothing."""
        self.offset = self.offset.with_carried_file(file)

    def move_position(self, position: Position) -> None:
        """Continue from another position; with the next commit, when everything before is committed."""
        self.snapshot_state = self.snapshot_state.nothing_read()
        self.offset = self.offset.move_position(position.to_json())
        self.repositioned = True

    def record_signal(self, number: int) -> None:
        """Signals up to this one were taken."""
        self.offset = self.offset.with_last_signal(number)

    def find_latest_position(self, end: Position) -> Position:
        """Return the end of the log, or the position at which a table was read, if that is later."""
        for document in self.snapshot_state.read_at.values():
            position = self._parse(document)
            if not end.has_reached(position):
                end = position
        return end

    def list_later_tables(self) -> list[tuple[str, Position]]:
        """Tables that were read at a later position, nearest first. Forgets those that streaming has passed."""
        position = self.current_position
        read = {name: self._parse(document) for name, document in self.snapshot_state.read_at.items()}
        passed = {name for name, at in read.items() if position.has_reached(at)}
        self.snapshot_state = self.snapshot_state.record_passed(passed)
        return sorted(((name, at) for name, at in read.items() if name not in passed), key=cmp_to_key(_nearer))


def _nearer(a: tuple[str, Position], b: tuple[str, Position]) -> int:
    return -1 if b[1].has_reached(a[1]) else 1
