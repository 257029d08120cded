"""Finds manifests by their numbers, without listing all manifests that were ever written.

Batch ``n + 1`` is committed only when batch ``n`` is there. So the existing numbers run from a first one, before which old batches may have been
removed, to a last one, and any end is found by asking for single numbers. Only if a person, or a rule of the store, has deleted manifests in between
is there one after a gap. That is damage, and must not be taken for the end of the log: :meth:`BatchNumbers.find_beyond_gap` looks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker, TruncationMarkers
from airflow_provider_cdc.core.errors import BatchesRemoved, ChangeLogDamaged
from airflow_provider_cdc.core.name_patterns import format_exact_pattern
from airflow_provider_cdc.core.remedy_commands import format_cdc_command

MOST = 10**12 - 1
"""The highest number that a name has room for."""
_NAMED = 20
"""How many tables a command names; of more, it means all."""
_LISTED = 16
"""Names that a request lists where one would be enough: files of other programs may be among them."""
_CLOSE, _WIDE = 8, 1
"""Probes between one distance and twice the same, where a probe is a call of the system, and where it is a request."""
_NEAR = 1024


def batch_name(batch: int) -> str:
    """``12`` → ``"000000000012"``, so that names sort as numbers."""
    return f"{batch:012d}"


class BatchNumbers:
    """The numbers of the manifests of one connector."""

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._connector = storage, connector
        self._folder = storage.join_path(connector, "manifests")
        self._markers = TruncationMarkers(storage, connector)

    def manifest_path(self, number: int) -> str:
        """Return the path at which the manifest of a number is, if it exists."""
        return f"{self._folder}/{batch_name(number)}.json"

    def has_manifest(self, number: int) -> bool:
        """Check whether the manifest of a number exists; one request."""
        return 0 < number <= MOST and self._storage.exists(self.manifest_path(number))

    def list_all(self) -> list[int]:
        """All numbers that are kept, ascending; the whole folder is listed."""
        first_kept = self._markers.find_newest_number()
        return [n for n in _numbers_of(self._storage.list(self._folder)) if n >= first_kept]

    def find_first(self) -> int:
        """Return the lowest number that is kept; 0 if there is none."""
        first_kept = max(self._markers.find_newest_number(), 1)
        if self.has_manifest(first_kept):
            return first_kept
        listed = self._after(first_kept)
        return next(iter(self.list_all() if listed is None else listed), 0)

    def find_last(self, after: int = 0) -> int:
        """Return the highest number; 0 if there is none.

        :param after: one that is there; 0 if none is known
        :raises BatchesRemoved: another process is removing batches at this moment
        :raises ChangeLogDamaged: one before it is missing
        """
        low = after or self.find_first()
        while low:
            low = self._edge(low)
            ahead = self.find_beyond_gap(low + 1)
            if not ahead:
                break
            if not self.has_manifest(low + 1):  # otherwise both were committed a moment ago
                raise self.missing_error(low + 1, ahead)
        return low

    def find_beyond_gap(self, number: int) -> int:
        """Find a number after one that is missing; 0 if there seems to be none.

        S3 says in one request which name comes next, and nothing is overlooked. Other stores are asked for single numbers, at distances that grow with
        themselves. On a local disk these are so close together that a gap is found if it has up to 15 numbers, or if at least an eighth as many
        come after it; elsewhere, if at least as many do. A gap after which there are fewer is found when more have come. Until then the log ends
        before it for every reader: tables do not get the batches behind it, and nothing is passed over.
        """
        listed = self._after(number)
        if listed is not None:
            return next(iter(listed), 0)
        next_number = next((n for n in self._probes(number) if self.has_manifest(n)), 0)
        # little may be left behind much that was removed
        return (
            next_number
            if next_number or self.has_manifest(number - 1) or (first := self.find_first()) < number
            else first
        )

    def missing_error(self, number: int, ahead: int) -> BatchesRemoved | ChangeLogDamaged:
        """Build the error for a number that is missing.

        :param ahead: one after it, which is there
        """
        if (first := self.find_first()) > number:
            return self.removed_error(number, first)
        return ChangeLogDamaged(
            f"The manifest of batch {number} of connector {self._connector} is missing, although batch {ahead} exists.",
            where=self.manifest_path(number),
            safe="The batches before it are complete.",
            remedy="restore the file from a backup, or snapshot the connector's tables again under a new connector name",
        )

    def removed_error(self, number: int, first: int) -> BatchesRemoved:
        """Build the error for a number before the first one that is kept.

        :param first: this one
        """
        mark = self._markers.read_newest()
        several = number < first - 1
        gone = (
            f"Batches {number} to {first - 1} of connector {self._connector} were"
            if several
            else f"Batch {number} of connector {self._connector} was"
        )
        how = "not by the retention of the change log, but by a lifecycle rule of the store or by a person"
        if mark is not None and mark.first == first:
            how = f"on {mark.at}, {mark.why}"
        return BatchesRemoved(
            f"{gone} removed ({how}). The change log now begins with batch {first}.",
            where=self.manifest_path(number),
            safe=f"The batches from {first} on exist; nothing was changed.",
            remedy=f"begin with batch {first}, and snapshot the tables that need the removed batches again: `{self._read_again(mark, number)}`",
        )

    def _read_again(self, mark: TruncationMarker | None, number: int) -> str:
        """Format the command that reads the tables again which had something in the removed batches.

        These are the batches from a number up to the first one that is kept. If the tables are not known, or many, the command reads all.
        """
        topics = () if mark is None or mark.topics is None else mark.topics.values()
        tables = sorted({format_exact_pattern(gone.table) for gone in topics if gone.last >= number})
        return format_cdc_command(
            "snapshot", self._connector, *(tables if 0 < len(tables) <= _NAMED else [".*"]), replace=True
        )

    def _after(self, number: int) -> list[int] | None:
        """List some of the next numbers; ``None`` if the store cannot list them."""
        names = self._storage.names_after(self._folder, f"{batch_name(number)}.json", _LISTED)
        return None if names is None else _numbers_of(names)

    def _edge(self, low: int) -> int:
        """Find the end of the numbers that seem to continue from one without a gap, by doubled steps and then by halves."""
        step = 1
        while self.has_manifest(low + step):
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.has_manifest(middle) else (low, middle)
        return low

    def _probes(self, number: int) -> Iterator[int]:
        close = self._storage.local
        most = MOST if close else min(number + 2 * max(number, _NEAR), MOST)
        distance = 1
        while number + distance <= most:
            yield from range(number + distance, number + 2 * distance, max(distance // (_CLOSE if close else _WIDE), 1))
            distance *= 2


def _numbers_of(names: Iterable[str]) -> list[int]:
    plain = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [int(number) for number in plain if number.isdigit()]
