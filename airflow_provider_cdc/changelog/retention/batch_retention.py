"""Removes old batches of a change log that no target needs any more.

It removes the first batches, up to the last one that every known target has applied for at least ``changelog.retention.ms``; earlier than that, if the
log is larger than ``changelog.retention.bytes``; or at once, if a person asks for it, as the disk is full. The newest batch stays in any case, since
the next capture begins with it.

A removal is killed without harm at any moment: first a mark says which batch is the first one that is kept (:mod:`airflow_provider_cdc.changelog.files.truncation_marker`), then batches before it are deleted
one after the other, the manifest of each before its files, and at last the marks before. A reader that begins before a mark gets an error that says so, whether
the files are still there or not; a removal that finds several marks finishes what another one has begun.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import orjson

from airflow_provider_cdc.changelog.debezium.avro_names import get_setting
from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.manifest_number_search import batch_name
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker
from airflow_provider_cdc.changelog.retention.retention_plan import RetentionHold, RetentionPlan
from airflow_provider_cdc.changelog.retention.target_progress import TargetProgress, needs_of
from airflow_provider_cdc.core.errors import BatchesRemoved, ConfigError, StorageFull
from airflow_provider_cdc.core.model.batch_manifest import Manifest
from airflow_provider_cdc.core.remedy_commands import name_cdc_command

log = logging.getLogger(__name__)

DOCUMENT = "retention.json"
_NO_ROOM = "delete any other file of this disk, then run the command again: before it deletes batches, it has to write a file of some kilobytes"
STEP = 500
"""Batches before a mark of their own: so many manifests are read before the first file of them is deleted."""
SILENT_MS = 3_600_000
"""A target that is behind for a shorter time is not called silent, however short the retention is."""
NOTES = 50
"""How often within the retention it is noted which batches all targets have. A batch may stay longer by the time between two notes."""
_READERS = ("Rebuild", "Verify")
"""Jobs that read batches again after they are applied, as their progress names them."""
_TRIES = 5
_AT_ONCE = 8
"""Batches that are deleted at the same time from an object store."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """Limits of a change log's retention: time and size.

    :param ms: how long a batch stays after all targets have applied it; -1 = for ever
    :param bytes: size of all batches beyond which the oldest that all targets have applied are removed before that; -1 = any
    """

    ms: int = 604_800_000
    bytes: int = -1

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Self:
        """Parse the limits of a connector's properties.

        :raises ConfigError: a value is no number, or less than -1
        """
        limits = {}
        for name in ("ms", "bytes"):
            value = get_setting(properties, f"changelog.retention.{name}")
            try:
                limits[name] = int(value)
            except (TypeError, ValueError):
                limits[name] = -2
            if limits[name] < -1:
                raise ConfigError(
                    f"changelog.retention.{name} is {value!r}, but must be a number of at least -1.",
                    safe="Nothing was removed.",
                )
        return cls(**limits)

    @property
    def is_unlimited(self) -> bool:
        """Check whether everything is kept."""
        return self.ms < 0 and self.bytes < 0


@dataclass(slots=True)
class _RetentionNotes:
    """Notes of earlier runs.

    :param applied: when, and the last batch that all targets had then; ascending
    :param first: of the batches that were counted, the first one
    :param counted: and the last one
    :param bytes: their size
    """

    applied: list[tuple[datetime, int]] = field(default_factory=list)
    first: int = 0
    counted: int = 0
    bytes: int = 0


class Retention:
    """Removes batches of one connector.

        >>> Retention(changelog, "shop", RetentionLimits()).run().batches
        1440

    :param at_once: remove all batches that every target has applied, however long ago, even if the disk has no room
    :param now: the time, for tests
    """

    def __init__(
        self,
        changelog: ChangeLog,
        connector: str,
        limits: RetentionLimits,
        *,
        at_once: bool = False,
        now: datetime | None = None,
    ) -> None:
        self._changelog, self._connector, self._limits, self._at_once = changelog, connector, limits, at_once
        self._storage, self._markers = changelog.storage, changelog.open_truncation_markers(connector)
        self._path = self._storage.join_path(connector, DOCUMENT)
        self._now = now or datetime.now(UTC)

    def run(self) -> RetentionPlan:
        """Remove the batches that are to be removed, and finish a removal that a killed run has begun.

        :return: the plan that was carried out
        :raises ConfigError: the removal is to be at once, and a job needs the batches, or the connector keeps them forever
        :raises StorageFull: the disk has no room for a small file, which is written before anything is deleted
        """
        self._finish()
        plan = self._plan_in_peace()
        reached = plan.first
        while reached < plan.keep:
            reached = min(reached + STEP, plan.keep)
            if not self._remove(reached, plan.why):
                break
        return plan

    def _plan_in_peace(self) -> RetentionPlan:
        """Make a plan of batches that no other process has removed while it was made."""
        for _ in range(_TRIES):
            try:
                return self.plan_removal(note=True)
            except BatchesRemoved as e:
                log.info("Another removal is running: %s", e.message)
        return self.plan_removal(note=True)

    def plan_removal(self, *, note: bool = False) -> RetentionPlan:
        """Plan a removal.

        :param note: remember which batches all targets have now; otherwise nothing is written
        :raises ConfigError: see :meth:`run`
        """
        if self._at_once:
            _check_removal_at_once(self._changelog, self._connector, self._limits)
        first = self._changelog.find_first_batch(self._connector)
        if not first:
            return RetentionPlan(0, 0, 0, "the change log contains no batch")
        needs, notes = needs_of(self._storage, self._connector), self._read()
        last = self._changelog.find_last_batch(self._connector, after=self._start(notes, needs, first))
        if self._limits.is_unlimited or not needs:
            no_target = "no target is known, so it is not known which batches are no longer needed"
            return RetentionPlan(
                first,
                last,
                first,
                "they are kept forever" if self._limits.is_unlimited else no_target,
                targets=len(needs),
            )
        applied = min(needs[0].after, last)
        holds = tuple(self._hold(need) for need in needs if need.trouble or need.after < last)
        _note(notes, self._now, applied, self._limits.ms)
        most = min(applied, last - 1)
        aged = applied if self._at_once else self._aged(notes)
        sized = 0 if self._at_once else self._sized(notes, first, last, most)
        keep = max(min(max(aged, sized), most) + 1, first)
        why = (
            self._why(aged, sized)
            if keep > first
            else f"all targets have applied the batches up to {applied}, and those up to {aged} for long enough"
        )
        if note:
            try:
                self._write(notes)
            except StorageFull as e:
                log.warning("It is not recorded that batches up to %d are applied, so they stay longer: %s", applied, e)
        return RetentionPlan(first, last, keep, why, applied, len(needs), holds)

    # -- batches that go ------------------------------------------------------------------------------------------------

    def _start(self, notes: _RetentionNotes, needs: Iterable[TargetProgress], first: int) -> int:
        """Find a batch that is there, as near to the last one as is known."""
        batches = sorted({notes.counted, *(need.after for need in needs), *(need.last for need in needs)}, reverse=True)
        return next(
            (batch for batch in batches if batch > first and self._changelog.has_batch(self._connector, batch)), first
        )

    def _hold(self, need: TargetProgress) -> RetentionHold:
        lacks = (
            None
            if need.trouble
            else self._changelog.find_manifest(self._connector, max(need.after + 1, self._markers.find_newest_number()))
        )
        if lacks is None:
            return RetentionHold(need, "", silent=bool(need.trouble))
        since = datetime.fromisoformat(lacks.created_at)
        limit_ms = self._limits.ms if self._limits.ms >= 0 else RetentionLimits().ms
        silent = self._now - since > timedelta(milliseconds=max(limit_ms, SILENT_MS))
        return RetentionHold(need, since.isoformat(timespec="seconds"), silent)

    def _aged(self, notes: _RetentionNotes) -> int:
        """Find the last batch that all targets have had for long enough."""
        if self._limits.ms < 0:
            return 0
        until = self._now - timedelta(milliseconds=self._limits.ms)
        return max((batch for at, batch in notes.applied if at <= until), default=0)

    def _sized(self, notes: _RetentionNotes, first: int, last: int, most: int) -> int:
        """Find the last batch that is removed because the log is too large."""
        if self._limits.bytes < 0:
            return 0
        if notes.first != first or notes.counted > last:
            notes.first, notes.counted, notes.bytes = first, first - 1, 0
        for manifest in self._changelog.read_manifests(self._connector, after=notes.counted):
            notes.counted, notes.bytes = manifest.batch, notes.bytes + _size(manifest)
        left, removed = notes.bytes, 0
        for manifest in self._changelog.read_manifests(self._connector, after=first - 1, until=most):
            if left <= self._limits.bytes:
                break
            left, removed = left - _size(manifest), manifest.batch
        return removed

    def _why(self, aged: int, sized: int) -> str:
        if self._at_once:
            return f"because all targets had applied them and `{name_cdc_command('maintain')} --now` was run"
        if sized > aged:
            return f"because all targets had applied them and the change log was larger than changelog.retention.bytes={self._limits.bytes}"
        return f"because all targets had applied them for longer than changelog.retention.ms={self._limits.ms}"

    # -- removing -------------------------------------------------------------------------------------------------------

    def _remove(self, keep: int, why: str) -> bool:
        """Remove the batches before one.

        :return: whether it is done; not if another process removes batches at the same time
        """
        mark = self._markers.read_newest()
        if mark is None:
            first = self._changelog.find_first_batch(self._connector)
            mark = TruncationMarker(first, {} if first == 1 else None, why="before removals were recorded")
            self._create_marker(mark)
        began, size = mark.first, 0
        for number in range(began, keep):
            manifest = self._changelog.find_manifest(self._connector, number)
            if manifest is None and self._markers.find_newest_number() != began:
                log.info(
                    "Another removal is running: it removes the batches before %d.", self._markers.find_newest_number()
                )
                return False
            mark = mark.include_batch(manifest)
            size += 0 if manifest is None else _size(manifest)
        self._create_marker(replace(mark, first=keep, at=self._now.isoformat(timespec="seconds"), why=why))
        self._finish()
        self._subtract(began, keep, size)
        return True

    def _create_marker(self, mark: TruncationMarker) -> None:
        """Create a mark; on a full disk after files are deleted that a later maintenance can write again: the notes, and the index of keys."""
        try:
            self._markers.create_marker(mark)
        except StorageFull:
            if not self._at_once:
                raise
            from airflow_provider_cdc.changelog.row_history.key_index import FOLDER  # imports pyarrow

            log.warning("The disk is full: the index of keys of %s is deleted to make room.", self._connector)
            self._storage.delete(self._path)
            self._storage.delete_folder(self._storage.join_path(self._connector, FOLDER))
            try:
                self._markers.create_marker(mark)
            except StorageFull as e:
                e.safe, e.remedy = "No batch was removed.", _NO_ROOM
                raise

    def _finish(self) -> None:
        """Delete everything between the marks."""
        marks = self._markers.list_numbers()
        if len(marks) < 2:
            return
        numbers = range(marks[0], marks[-1])
        # in their order, so that the rest of them has no gap; and nothing reads files that no manifest names
        for number in numbers:
            self._storage.delete(self._changelog.path_of(self._connector, number))
        folders = [self._storage.join_path(self._connector, "data", batch_name(number)) for number in numbers]
        with ThreadPoolExecutor(1 if self._storage.local else _AT_ONCE, "cdc-retention") as pool:
            for _ in pool.map(self._storage.delete_folder, folders):
                pass
        self._markers.delete_older(marks[-1])
        log.info("Removed the batches %d to %d of %s.", marks[0], marks[-1] - 1, self._connector)

    # -- notes ----------------------------------------------------------------------------------------------------------

    def _subtract(self, first: int, keep: int, size: int) -> None:
        """Note that the counted batches begin later now.

        If the run is killed before that, they are counted again.
        """
        notes = self._read()
        if notes.first == first and notes.counted >= keep - 1:
            notes.first, notes.bytes = keep, notes.bytes - size
            self._write(notes)

    def _read(self) -> _RetentionNotes:
        data = self._storage.read(self._path)
        try:
            document = orjson.loads(data) if data is not None else {}
            applied = [(datetime.fromisoformat(at), int(batch)) for at, batch in document.get("applied", ())]
            counted = document.get("counted", {})
            return _RetentionNotes(
                sorted(applied), int(counted.get("first", 0)), int(counted.get("last", 0)), int(counted.get("bytes", 0))
            )
        except (ValueError, TypeError, AttributeError) as e:
            log.warning(
                "%s cannot be read and is started again: batches stay longer by the retention time. %s", self._path, e
            )
            return _RetentionNotes()

    def _write(self, notes: _RetentionNotes) -> None:
        document = {
            "applied": [[at.isoformat(timespec="seconds"), batch] for at, batch in notes.applied],
            "counted": {"first": notes.first, "last": notes.counted, "bytes": notes.bytes},
        }
        self._storage.replace(self._path, orjson.dumps(document))


def _check_removal_at_once(changelog: ChangeLog, connector: str, limits: RetentionLimits) -> None:
    """Check that batches may be removed without waiting for the retention time.

    :raises ConfigError: the connector keeps them forever, or a job that reads old batches is at work
    """
    safe = "Nothing was removed."
    if limits.is_unlimited:
        raise ConfigError(
            f"Connector {connector} keeps all batches (changelog.retention.ms=-1).",
            safe=safe,
            remedy="set changelog.retention.ms in its definition and run its capture once, even if the capture fails; or enlarge the disk",
        )
    if job := next((job for job in changelog.open_progress_board(connector).list_work() if job.name in _READERS), None):
        raise ConfigError(
            f"Batches that all targets have applied are still being read: {job.progress_text} ({job.where}).",
            safe=safe,
            remedy="wait until this job ends, or end it; then run the command again",
        )


def _note(notes: _RetentionNotes, now: datetime, applied: int, ms: int) -> None:
    """Note which batches all targets have. Of notes that are old enough only the newest one is needed."""
    length = timedelta(milliseconds=max(ms, 0))
    # a table that fell behind has the batches after that from the next note on
    entries = [(at, batch) for at, batch in notes.applied if batch <= applied and at <= now]
    last = entries[-1] if entries else None
    if last is None or (last[1] < applied and now - last[0] >= length / NOTES):
        entries.append((now, applied))
    old = [entry for entry in entries if now - entry[0] >= length]
    notes.applied = old[-1:] + [entry for entry in entries if entry not in old]


def _size(manifest: Manifest) -> int:
    return sum(file.bytes for file in manifest.files)
