"""Lines of files, in the order of the files' names.

A file is finished once another one comes after it, and compressed files are as soon as they are there. Files that were read may be deleted,
except the last one, which the position names. Whatever else happens to files would lose events, and is an error.
"""

from __future__ import annotations

import bisect
import contextlib
import gzip
import json
import logging
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

import fsspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.errors import ConfigError, PositionLost, SourceLogDamaged, SourceUnavailable
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.sources.debezium.config import DebeziumConfig, LineFormat
from airflow_provider_cdc.sources.debezium.position import FilePosition
from airflow_provider_cdc.sources.debezium.record_feed_interface import PIECE_BYTES, RecordFeed, RecordLines

log = logging.getLogger(__name__)

_PLAIN: Final = (".jsonl", ".ndjson", ".json")
_COMPRESSED: Final = (".gz", ".zst")
_SAMPLE: Final = 200
"""Lines of a file that show which tables it has."""
_TAIL: Final = 1 << 16
_SAFE: Final = "Everything up to the connector's position is captured; the offset is untouched."


class FileRecordLines(RecordLines):
    """Lines of one file.

    :param offsets: ``int64``, where each line begins, and where the last one ends
    :param numbers: of the lines, from 1
    :param before: how many files come before this one
    """

    def __init__(
        self, lines: list[bytes], file: str, offsets: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], before: int
    ) -> None:
        self.lines, self._file, self._offsets, self._numbers, self._before = lines, file, offsets, numbers, before

    def position_from_count(self, count: int) -> FilePosition:
        line = int(self._numbers[count - 1]) if count else int(self._numbers[0]) - 1
        return FilePosition(self._file, int(self._offsets[count]), line, None, self._before)

    def select_first_lines(self, count: int) -> FileRecordLines:
        """Return a piece of the first lines alone."""
        return FileRecordLines(
            self.lines[:count], self._file, self._offsets[: count + 1], self._numbers[:count], self._before
        )

    def describe_line(self, line: int) -> str:
        return f"{self._file}, line {self._numbers[line]}, byte {self._offsets[line]}"

    def build_source_fields(self, lines: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        n = len(lines)
        return {
            "file": pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([self._file])),
            "partition": pa.nulls(n, pa.int32()),
            "offset": pa.array(self._offsets[lines]),
        }


class FileFeed(RecordFeed):
    """The files of ``events.path``.

    :raises ConfigError: the filesystem is not known, or its client is not installed
    """

    def __init__(self, config: DebeziumConfig) -> None:
        assert config.events_path is not None
        self._config = config
        self._url, self._wrap = config.events_path, config.events_line_format is LineFormat.VALUE
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self._url, **config.path_options())
        except (ImportError, ValueError) as e:
            raise ConfigError(
                f"events.path={self._url} cannot be opened: {e}",
                safe="Nothing was read.",
                remedy="correct the path, or install the package of its filesystem, for example "
                "airflow-provider-cdc[s3]",
            ) from None
        self._finished: dict[str, int] = {}
        """File that this reader has read to its end → its size then."""

    # -- where --------------------------------------------------------------------------------------------------------

    def find_begin_position(self) -> FilePosition:
        return FilePosition()

    def find_end_position(self) -> FilePosition:
        files = self._listed()
        if not files:
            return FilePosition()
        name, before = list(files)[-1], len(files) - 1
        if name.endswith(_COMPRESSED):
            return FilePosition(name, size=files[name], before=before)
        return FilePosition(name, self._last_end(name, files[name]), before=before)

    def verify_position(self, position: Position) -> None:
        assert isinstance(position, FilePosition)
        self._check(position, self._listed())

    def list_findings(self) -> list[tuple[str, str, bool]]:
        files = self._listed()
        if not files:
            kinds = ", ".join(f"*{kind}" for kind in _PLAIN)
            return [
                (
                    f"No files exist at {self._url}.",
                    f"write {kinds} there, optionally compressed as .gz or .zst; the next run reads them",
                    False,
                )
            ]
        name = list(files)[-1]
        if not name.endswith(_COMPRESSED) and self._last_end(name, files[name]) < files[name]:
            return [
                (
                    f"The last line of {name} does not end with a line feed.",
                    ("end the line with a line feed; it is not read before that, or before another file follows"),
                    False,
                )
            ]
        return []

    def is_topic_ordered(self, topic: str) -> bool:
        return True

    def close(self) -> None:
        """No file stays open between pieces."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self, start: Position, until: Position | None, wait: Callable[[], None]
    ) -> Iterator[RecordLines | Position]:
        assert isinstance(start, FilePosition)
        assert until is None or isinstance(until, FilePosition)
        at = start
        while until is None or not at.has_reached(until):
            files = self._listed()
            self._check(at, files)
            if until is not None and until.file not in files:
                raise self._gone(until.file, at)
            names = list(files)
            for before, name in enumerate(names):
                if name < at.file or (name == at.file and at.size is not None):
                    continue
                if until is not None and name > until.file:
                    break
                if name != at.file:
                    at = FilePosition(name, before=before)
                last = before == len(names) - 1 or (until is not None and name == until.file)
                stop = until.offset if until is not None and name == until.file and until.size is None else None
                for piece in self._pieces(name, at, whole=not last or name.endswith(_COMPRESSED), stop=stop):
                    at = piece.position_from_count(len(piece.lines))
                    yield piece
                if name.endswith(_COMPRESSED):
                    at = FilePosition(name, at.offset, at.line, files[name], before)
                if not last or name.endswith(_COMPRESSED):
                    self._finished[name] = files[name]
            yield at
            if until is None or not at.has_reached(until):
                wait()

    def read_sample(self) -> Iterator[RecordLines]:
        for before, name in enumerate(self._listed()):
            if before == 20:
                return
            pieces = self._pieces(name, FilePosition(name, before=before), whole=name.endswith(_COMPRESSED), stop=None)
            yield from (piece.select_first_lines(_SAMPLE) for piece, _ in zip(pieces, range(1), strict=False))

    def _pieces(self, name: str, at: FilePosition, *, whole: bool, stop: int | None) -> Iterator[FileRecordLines]:
        """Yield the lines of a file from a position on.

        :param whole: a last line without an end is a line
        :param stop: bytes after which to end
        """
        with self._translated_errors(name), self._open(name, at.offset) as file:
            rest, offset, number = b"", at.offset, at.line
            while True:
                size = PIECE_BYTES if stop is None else min(PIECE_BYTES, stop - offset - len(rest))
                block = file.read(size) if size > 0 else b""
                if block:
                    cut = block.rfind(b"\n") + 1
                    if not cut:
                        rest += block
                        continue
                    whole_lines, left = rest + block[:cut], block[cut:]
                else:
                    whole_lines, left = (rest if whole else b""), b""
                if whole_lines:
                    piece = self._piece(whole_lines, name, offset, number, at.before)
                    offset, number = offset + len(whole_lines), number + whole_lines.count(b"\n")
                    if piece is not None:
                        yield piece
                if not block:
                    return
                rest = left

    def _piece(self, text: bytes, name: str, offset: int, number: int, before: int) -> FileRecordLines | None:
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        sizes = np.array([len(line) + 1 for line in lines], np.int64)
        begins = offset + np.concatenate([[0], np.cumsum(sizes)])
        begins[-1] = offset + len(text)
        indexes = [i for i, line in enumerate(lines) if line.strip()]
        if not indexes:
            return None
        index = np.array(indexes)
        chosen = [b'{"value":' + lines[i] + b"}" if self._wrap else lines[i] for i in indexes]
        return FileRecordLines(chosen, name, np.append(begins[index], begins[-1]), number + index + 1, before)

    @contextlib.contextmanager
    def _open(self, name: str, offset: int) -> Iterator[IO[bytes]]:
        """Open a file's content from an offset on."""
        with self._fs.open(self._path(name), "rb") as file:
            content: IO[bytes] = file
            if name.endswith(".gz"):
                content = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
            elif name.endswith(".zst"):
                content = _zstd(file)
            if content is file:
                file.seek(offset)
            while content is not file and offset > 0:
                passed = len(content.read(min(offset, PIECE_BYTES)))
                if not passed:
                    raise self._shorter(name, offset)
                offset -= passed
            yield content

    def _last_end(self, name: str, size: int) -> int:
        """Find the end of the last whole line of a file."""
        end = size
        with self._translated_errors(name), self._fs.open(self._path(name), "rb") as file:
            while end > 0:
                begin = max(end - _TAIL, 0)
                file.seek(begin)
                newline: int = file.read(end - begin).rfind(b"\n")
                if newline >= 0:
                    return begin + newline + 1
                end = begin
        return 0

    # -- the files there are ------------------------------------------------------------------------------------------

    def _listed(self) -> dict[str, int]:
        """List the files, by their names below the path, in their order → size in bytes."""
        with self._translated_errors(self._url):
            self._fs.invalidate_cache()
            if "*" in self._root:
                files = self._fs.glob(self._root, detail=True)
            elif self._fs.isfile(self._root):
                files = {self._root: self._fs.info(self._root)}
            elif self._fs.exists(self._root):
                files = self._fs.find(self._root, detail=True)
            else:
                files = {}
        base = self._root.partition("*")[0].rpartition("/")[0] if "*" in self._root else self._root
        self._base = base if base not in files else base.rpartition("/")[0]
        named = {path.removeprefix(self._base).lstrip("/"): info for path, info in files.items()}
        return {
            name: int(info["size"])
            for name, info in sorted(named.items())
            if info["type"] == "file" and _is_events(name, only=len(files) == 1 and self._root in files)
        }

    def _path(self, name: str) -> str:
        return f"{self._base}/{name}" if self._base else name

    def _check(self, at: FilePosition, files: dict[str, int]) -> None:
        """Check that files have not changed.

        :raises PositionLost: files have changed
        """
        for name, size in self._finished.items():
            if name in files and files[name] != size:
                raise self._lost(
                    f"The file {name} has changed after it was read: it had {size} bytes and now has {files[name]}.", at
                )
        if not at.file:
            return
        if at.file not in files:
            raise self._gone(at.file, at)
        if (at.size is not None and files[at.file] != at.size) or (
            not at.file.endswith(_COMPRESSED) and files[at.file] < at.offset
        ):
            raise self._shorter(at.file, at.offset)
        earlier = sum(name < at.file for name in files)
        if earlier > at.before:
            late = [name for name in files if name < at.file][-3:]
            raise self._lost(
                f"{earlier - at.before} new files have names that sort before the file that is being read, "
                f"such as {', '.join(late)}: they would never be read.",
                at,
                remedy="rename them so that they sort after all other files; their events are then captured later, "
                "in the order of the names",
            )

    def _gone(self, name: str, at: FilePosition) -> PositionLost:
        return self._lost(f"The file {name} no longer exists, and was not read to its end.", at)

    def _shorter(self, name: str, offset: int) -> PositionLost:
        return self._lost(
            f"The file {name} has changed: {offset} bytes of it were read, and its content is now different.",
            FilePosition(name, offset),
        )

    def _lost(self, problem: str, at: FilePosition, remedy: str = "") -> PositionLost:
        return PositionLost(
            problem,
            where=f"{self._url}: {at}",
            safe=_SAFE,
            remedy=remedy
            or f"restore the original file. If its events are lost, `{self._behind(at.file)}` shows the effect of "
            "continuing after them; a new snapshot by the connector that writes the events then completes its "
            "tables",
        )

    def _behind(self, name: str) -> str:
        """Return the command that continues behind a file: with the next one, or where the last one ends now."""
        files = self._listed()
        names = list(files)
        number = bisect.bisect_right(names, name)
        if number < len(names):
            position = FilePosition(names[number], before=number)
        elif name not in files:
            position = self.find_end_position()
        elif name.endswith(_COMPRESSED):
            position = FilePosition(name, size=files[name], before=number - 1)
        else:
            position = FilePosition(name, files[name], before=number - 1)
        return format_cdc_command("offset set", self._config.connector_name, to=json.dumps(position.to_json()))

    @contextlib.contextmanager
    def _translated_errors(self, name: str) -> Iterator[None]:
        """Errors of the filesystem in words."""
        try:
            yield
        except FileNotFoundError:
            raise self._gone(name, FilePosition(name)) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as e:
            raise SourceLogDamaged(
                f"The file {name} is incomplete: {e}",
                where=f"{self._url}: {name}",
                safe=_SAFE,
                remedy="write compressed files to another folder, and move them here when they are complete",
            ) from None
        except OSError as e:
            raise SourceUnavailable(
                f"The file {name} cannot be read: {e}",
                where=self._url,
                safe=_SAFE,
                remedy="check that the account may read it",
            ) from e


def _is_events(name: str, *, only: bool) -> bool:
    """Check whether a file's name says that it has events; hidden ones, and those that are being written, do not."""
    last = name.rpartition("/")[2]
    if last.startswith((".", "_")):
        return False
    for suffix in _COMPRESSED:
        last = last.removesuffix(suffix)
    return only or last.endswith(_PLAIN)


def _zstd(file: Any) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise ConfigError(
            "Zstd files require the package zstandard, which is not installed.",
            safe="Nothing was read.",
            remedy="pip install 'airflow-provider-cdc[debezium]'",
        ) from None
    return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
