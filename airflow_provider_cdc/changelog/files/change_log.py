"""The change log: commits, finds and reads batches."""

from __future__ import annotations

import functools
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from pydantic import ValidationError

from airflow_provider_cdc.changelog.files.manifest_number_search import BatchNumbers, batch_name
from airflow_provider_cdc.changelog.files.put_if_absent_check import verify_exclusive
from airflow_provider_cdc.changelog.files.running_job_files import JobProgressBoard
from airflow_provider_cdc.changelog.files.source_carry_over import CarryOverFolder
from airflow_provider_cdc.changelog.files.storage import CreationUnconfirmed, Storage
from airflow_provider_cdc.changelog.files.truncation_marker import TruncationMarker, TruncationMarkers
from airflow_provider_cdc.core.errors import BatchesRemoved, ChangeLogDamaged, CommitConflict, CommitStateUnknown
from airflow_provider_cdc.core.model.batch_manifest import FORMAT, DataFile, Manifest
from airflow_provider_cdc.core.read_ahead import map_ahead
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.core.spi.store_interfaces import BatchWriter

SMALL_BYTES = 1 << 20
"""Data files of object stores up to this size are read by one request."""
_BLOCK = 4 << 20
"""Bytes of a file that are read at once for its checksum."""


class ChangeLog:
    """Batches on a filesystem or object store; implements :class:`airflow_provider_cdc.core.spi.store_interfaces.ChangeLog`.

        >>> changelog = ChangeLog("s3://lake/changelog")
        >>> [m.batch for m in changelog.read_manifests("shop", after=41)]
        [42, 43]

    :param url: folder or object store prefix
    :param options: fsspec options (credentials, endpoint)
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        self.storage = Storage(url, options)

    # -- writing ------------------------------------------------------------------------------------------------------

    def check_exclusive_commit(self, connector: str) -> None:
        verify_exclusive(self.storage, connector)

    def open_batch_writer(self, connector: str, batch: int, epoch: int, writer: str) -> BatchWriter:
        # pyarrow: a run without events does without
        from airflow_provider_cdc.changelog.files.parquet_writer import ParquetBatchWriter

        return ParquetBatchWriter(self.storage, (connector, "data", batch_name(batch)), writer)

    def commit_manifest(self, manifest: Manifest) -> str:
        path = self.format_manifest_path(manifest)
        try:
            # in the folder that sweep cleans, in case the run dies here
            scratch = self.storage.join_path(manifest.connector, "data", batch_name(manifest.batch))
            self.storage.create(path, orjson.dumps(manifest.to_document()), scratch=scratch)
        except FileExistsError:
            # a request that was repeated because its reply was lost finds its own manifest: that is a success
            there = self.find_manifest(manifest.connector, manifest.batch)
            if there is None or there.writer != manifest.writer:
                raise CommitConflict(
                    f"Another run has committed batch {manifest.batch}.",
                    where=path,
                    safe="The batch of the other run is complete; the events of this run are captured again after it.",
                ) from None
        except CreationUnconfirmed as e:
            raise CommitStateUnknown(
                f"It is not known whether batch {manifest.batch} is committed. {e.message}",
                where=path,
                safe="The offset was not moved, and the files of the batch stay: no event is lost or duplicated.",
                remedy="run the capture again: it adopts the batch if it exists, and otherwise captures its events again",
            ) from e
        return path

    def format_manifest_path(self, manifest: Manifest) -> str:
        return self.path_of(manifest.connector, manifest.batch)

    def delete_orphan_files(self, manifest: Manifest) -> int:
        folder = (manifest.connector, "data", batch_name(manifest.batch))
        named = {f.path.rsplit("/", 1)[-1] for f in manifest.files}
        # safe at any time: once the manifest exists, no other run can commit files of this batch's number
        garbage = [n for n in self.storage.list(self.storage.join_path(*folder)) if n not in named]
        for name in garbage:
            self.storage.delete(self.storage.join_path(*folder, name))
        self.storage.abort_uploads(self.storage.join_path(*folder))
        return len(garbage)

    def open_carry_over(self, connector: str) -> CarryOverFolder:
        return CarryOverFolder(self.storage, connector)

    def open_progress_board(self, connector: str) -> JobProgressBoard:
        return JobProgressBoard(self.storage, connector)

    def delete(self, connector: str) -> None:
        """Delete everything of a connector; manifests first, as nothing reads files that no manifest names.

        Before them it deletes the marks of the first kept batch, which would count for a new connector of this name.
        """
        self.storage.abort_uploads(self.storage.join_path(connector))
        self.open_truncation_markers(connector).delete_all()
        # an index of keys would be that of a new connector of this name, too
        for folder in (("keys",), ("manifests",), ()):
            self.storage.delete_folder(self.storage.join_path(connector, *folder))

    # -- reading ------------------------------------------------------------------------------------------------------

    def list_connectors(self) -> list[str]:
        """Names of the connectors that have a folder here."""
        return self.storage.list(self.storage.root)

    def find_manifest(self, connector: str, batch: int) -> Manifest | None:
        path = self.path_of(connector, batch)
        data = self.storage.read(path)
        return None if data is None else _parse(data, path)

    def list_batches(self, connector: str) -> list[int]:
        """Numbers of all batches, ascending. It lists them all: for people, and to find an error; see :meth:`find_last_batch` and :meth:`read_manifests`."""
        return self._numbers(connector).list_all()

    def has_batch(self, connector: str, batch: int) -> bool:
        """Check whether a batch exists; one request, and the manifest is not read."""
        return self._numbers(connector).has_manifest(batch)

    def find_first_batch(self, connector: str) -> int:
        """Return the number of the first batch that is kept; 0 if there is none.

        It takes two requests or three, unless something other than the log's retention has removed batches from a store other than S3: then all are listed.
        """
        return self._numbers(connector).find_first()

    def open_truncation_markers(self, connector: str) -> TruncationMarkers:
        """Return the marks that say which batches are kept."""
        return TruncationMarkers(self.storage, connector)

    def read_truncation_marker(self, connector: str) -> TruncationMarker | None:
        """Return the mark from which batch on the log is kept, and the known facts of the batches before it.

        ``None`` if it begins with batch 1, or has none. It costs as much as :meth:`find_first_batch`, and one more.
        """
        first = self.find_first_batch(connector)
        if first <= 1:
            return None
        mark = self.open_truncation_markers(connector).read_newest()
        return mark if mark is not None and mark.first >= first else TruncationMarker(first)

    def find_removal(self, connector: str, batch: int, *, first: int = 0) -> BatchesRemoved | None:
        """Return the error for a batch that is missing because it was removed from the beginning of the log.

        ``None`` if it has not been written yet.

        It costs one request, and for batch 1 as much as :meth:`find_first_batch`.

        :param first: the first batch that is there, if that is known
        """
        first = first or (
            self.find_first_batch(connector)
            if batch == 1
            else self.open_truncation_markers(connector).find_newest_number()
        )
        return self._numbers(connector).removed_error(batch, first) if first > batch else None

    def find_last_batch(self, connector: str, *, after: int = 0) -> int:
        """Return the number of the newest batch, found by asking for single ones; 0 if there is none.

            >>> changelog.find_last_batch("shop", after=40)
            43

        The requests grow with the logarithm of the number of batches since ``after``.

        :param after: a batch that is there; 0 if none is known
        :raises ChangeLogDamaged: one in between is missing
        """
        return self._numbers(connector).find_last(after)

    def ends_with(self, connector: str, batch: int, *, writer: str = "") -> bool:
        """Check whether a batch is there and is the newest one.

        It is not if any is found after it, be there a gap or not.

        :param writer: the run that has to have written it, if that is known
        """
        numbers = self._numbers(connector)
        if writer:
            newest = self.find_manifest(connector, batch)
            there = newest is not None and newest.writer == writer
        else:
            there = numbers.has_manifest(batch)
        return there and not numbers.has_manifest(batch + 1) and not numbers.find_beyond_gap(batch + 1)

    def read_manifests(
        self, connector: str, *, after: int = 0, until: int | None = None, there: int = 0
    ) -> Iterator[Manifest]:
        """Manifests of the batches after ``after``, ascending, up to the last one or ``until``.

        They are read by number, several at once, so that it costs nothing how many there are before. Where one is missing, batches after it are looked for:
        :meth:`BatchNumbers.find_beyond_gap` says how far.

        :param there: a batch that is known to be there, so that no gap before it is overlooked
        :raises BatchesRemoved: the first ones are not there any more
        :raises ChangeLogDamaged: one in between is missing
        """
        before: Manifest | None = None
        numbers = itertools.count(after + 1) if until is None else range(after + 1, until + 1)
        coming = map_ahead(functools.partial(self.find_manifest, connector), numbers)
        for number, found in enumerate(coming, after + 1):
            manifest = found or self._looked_for(connector, number, there)
            if manifest is None:
                return
            if before is not None and manifest.changelog_id != before.changelog_id:
                raise self._of_another(before, manifest)
            yield manifest
            before = manifest

    def read_identity(self, connector: str) -> str:
        """Identity of the change log; empty if it has no batch. It costs as much as :meth:`find_last_batch`, and one request."""
        newest = self.find_manifest(
            connector, self.find_last_batch(connector, after=max(self.find_first_batch(connector) - 1, 0))
        )
        return "" if newest is None else newest.changelog_id

    def _of_another(self, before: Manifest, manifest: Manifest) -> ChangeLogDamaged:
        return ChangeLogDamaged(
            f"Batch {manifest.batch} belongs to another change log ({manifest.changelog_id}) than batch {before.batch} "
            f"({before.changelog_id}): one change log was replaced by the other while a capture was running.",
            where=self.format_manifest_path(manifest),
            safe="The batch was not applied; targets keep their data.",
            remedy="restore the change log and the state tables from backups of the same time; without backups, "
            f"start again with `{format_cdc_command('delete', manifest.connector, with_changelog=True)}`, and move the target tables away",
        )

    def _looked_for(self, connector: str, number: int, there: int) -> Manifest | None:
        """Read a manifest again that was not found a moment ago; ``None`` if that is the end of the log."""
        numbers = self._numbers(connector)
        ahead = there if there > number else numbers.find_beyond_gap(number)
        # both may have been committed since it was read
        manifest = self.find_manifest(connector, number) if ahead else None
        if ahead and manifest is None:
            raise numbers.missing_error(number, ahead)
        return manifest

    def file_uri(self, connector: str, file: DataFile) -> str:
        """Return the URI of a data file, for Spark and others."""
        return self.storage.build_uri(connector, file.path)

    def open_file(self, connector: str, file: DataFile) -> Any:
        """Open a data file, for reading at random.

        A small file of an object store is read as a whole: one request, not one for each piece of it.

        :raises BatchesRemoved: its batch is not kept any more
        :raises ChangeLogDamaged: it is missing or has another size than the manifest says
        """
        path = self.storage.join_path(connector, file.path)
        small = not self.storage.local and file.bytes <= SMALL_BYTES
        if small and (content := self.storage.read(path)) is not None:
            if len(content) != file.bytes:
                raise _damaged(path, f"has {len(content)} bytes instead of {file.bytes}")
            return io.BytesIO(content)
        try:
            opened = self.storage.open_input(path)
        except FileNotFoundError:
            batch, first_batch = _batch_of(file), self.open_truncation_markers(connector).find_newest_number()
            if 0 < batch < first_batch:
                raise self._numbers(connector).removed_error(batch, first_batch) from None
            raise _damaged(
                path,
                "is missing (if a lifecycle rule of the store has deleted it, remove the rule and use the retention of the change log instead)",
            ) from None
        opened.seek(0, 2)
        if opened.tell() != file.bytes:
            raise _damaged(path, f"has {opened.tell()} bytes instead of {file.bytes}")
        opened.seek(0)
        return opened

    def open_files(self, connector: str, files: Iterable[DataFile]) -> Iterator[tuple[DataFile, Any]]:
        """Open data files one after the other, for a caller who closes them; small ones are read ahead. Memory: 16 of :data:`SMALL_BYTES`.

        :raises BatchesRemoved: as :meth:`open_file`
        :raises ChangeLogDamaged: as :meth:`open_file`
        """
        return map_ahead(lambda file: (file, self.open_file(connector, file)), files)

    def check_file(self, connector: str, file: DataFile, *, crc: bool = False) -> int:
        """Compare a data file with its manifest: its size and its number of rows.

        :param crc: the checksum too, for which the whole file is read
        :return: when the newest of its events was committed at the source, in ms since 1970; 0 if the file does not have it
        :raises BatchesRemoved: its batch is not kept any more
        :raises ChangeLogDamaged: it differs
        """
        import pyarrow.parquet as pq
        from pyarrow import ArrowInvalid

        path = self.storage.join_path(connector, file.path)
        with self.open_file(connector, file) as opened:
            try:
                footer = pq.read_metadata(opened)
            except (ArrowInvalid, OSError) as e:
                raise _damaged(path, f"is not a Parquet file: {e}") from e
            if footer.num_rows != file.rows:
                raise _damaged(path, f"has {footer.num_rows} rows instead of {file.rows}")
            if crc:
                opened.seek(0)
                checksum = 0
                while block := opened.read(_BLOCK):
                    checksum = zlib.crc32(block, checksum)
                if checksum != file.crc32:
                    raise _damaged(path, f"has the checksum {checksum:08x} instead of {file.crc32:08x}")
        return committed_ms(footer)

    def path_of(self, connector: str, batch: int) -> str:
        """Return the path of the manifest of a batch, if there is one."""
        return self._numbers(connector).manifest_path(batch)

    def _numbers(self, connector: str) -> BatchNumbers:
        return BatchNumbers(self.storage, connector)


def _batch_of(file: DataFile) -> int:
    """Return the batch of a data file, by its path; 0 if that does not say it."""
    folder = file.path.split("/")[-2:-1]
    return int(folder[0]) if folder and folder[0].isdigit() else 0


def committed_ms(footer: Any) -> int:
    """Return the time at which the newest event of a Parquet file was committed at the source, in ms since 1970.

    The file's statistics say it; 0 if no event says it.
    """
    from airflow_provider_cdc.changelog.files.parquet_writer import COMMITTED

    at = [footer.schema.column(i).path for i in range(len(footer.schema))].index(COMMITTED)
    statistics = (footer.row_group(i).column(at).statistics for i in range(footer.num_row_groups))
    return max((int(s.max) for s in statistics if s is not None and s.has_min_max), default=0)


def _parse(data: bytes, path: str) -> Manifest:
    try:
        document = orjson.loads(data)
        if isinstance(document, dict) and document.get("format", 0) > FORMAT:
            raise ChangeLogDamaged(
                f"The manifest has format {document['format']}; this release supports format {FORMAT}.",
                where=path,
                safe="Neither the change log nor a table was changed.",
                remedy="a newer release wrote the change log: upgrade airflow-provider-cdc here",
            )
        return Manifest.model_validate(document)
    except (ValueError, ValidationError) as e:
        raise _damaged(path, f"cannot be read: {e}") from e


def _damaged(path: str, problem: str) -> ChangeLogDamaged:
    return ChangeLogDamaged(
        f"A file of the change log {problem}.",
        where=path,
        safe="Other batches are not affected; targets keep the batches they have applied.",
        remedy="restore the file from a backup, or snapshot the connector's tables again under a new connector name",
    )
