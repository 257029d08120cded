"""A file of the index of keys: which batches, of a stretch of the change log, have events of which keys.

It is a sorted array of numbers, each a hash (:mod:`.key_hashes`) and the number of a batch behind it, so that a look for a key reads the head of the file and one page. ::

    head    magic, first and last batch, number of build_entries, bytes of the keys, stamp of the log, checksum of everything before the pages
    keys    the key columns of each table and version that the batches have, as compressed JSON
    table   for each page of 4,096 build_entries: its first entry (uint64), and its checksum (uint32)
    pages   the build_entries (uint64): the hash in the high 44 bits, the distance of the batch from the beginning of the stretch in the low 20
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.row_history.key_hashes import BITS, Hashes

LONGEST = 1_000_000
"""Batches of the longest stretch: their distances have room in the low bits."""
_LOW = 64 - BITS
_PAGE = 4096
_HEAD = struct.Struct("<8sQQQIIII")
_MAGIC = b"CDCKEYS1"
_FIRST_READ = 131_072
"""Bytes that are read at once: the part before the pages is shorter in nearly all files."""
KeyColumns = tuple[tuple[str, str], ...]
"""Names and types of key columns, in their order."""
Keys = Mapping[str, Mapping[int, tuple[KeyColumns, ...]]]
"""Full name of a table → version of its schema → its key columns: none if it has no key, and several if the configuration has changed them."""


class SegmentDamaged(Exception):
    """A file of the index is not what it says: it is made again."""


@dataclass(frozen=True, slots=True, order=True)
class BatchRange:
    """Batches ``low`` to ``low + size - 1``. Of those that begin the log, the first ones may have been removed."""

    low: int
    size: int

    @property
    def last_batch(self) -> int:
        """The last batch."""
        return self.low + self.size - 1

    @property
    def file_name(self) -> str:
        """Name of the stretch's file."""
        return f"{self.low:012d}-{self.last_batch:012d}.keys"

    @classmethod
    def from_file_name(cls, name: str) -> BatchRange | None:
        """Parse the stretch from the name of its file; ``None`` if the file is not one of ours."""
        low, _, high = name.removesuffix(".keys").partition("-")
        if not (name.endswith(".keys") and low.isdigit() and high.isdigit() and int(low) <= int(high)):
            return None
        return cls(int(low), int(high) - int(low) + 1)


def build_entries(hashes: Hashes, stretch: BatchRange, batch: int) -> Hashes:
    """Entries of one batch."""
    return (hashes << np.uint64(_LOW)) | np.uint64(batch - stretch.low)


def encode_segment(stretch: BatchRange, entries: Hashes, keys: Keys, stamp: int) -> bytes:
    """Encode the file.

    :param entries: entries, in any order
    :param stamp: by which the file is known to be about this log
    """
    ordered = np.unique(entries).astype("<u8")
    plain = orjson.dumps(keys, option=orjson.OPT_NON_STR_KEYS)
    packed_keys: bytes = len(plain).to_bytes(4, "little") + pa.compress(plain, codec="zstd", asbytes=True)
    pages = [ordered[at : at + _PAGE] for at in range(0, len(ordered), _PAGE)]
    table = ordered[::_PAGE].tobytes() + np.array([zlib.crc32(page.tobytes()) for page in pages], "<u4").tobytes()
    fields = (_MAGIC, stretch.low, stretch.last_batch, len(ordered), len(packed_keys), stamp, 0)
    check = zlib.crc32(packed_keys + table, zlib.crc32(_HEAD.pack(*fields, 0)))
    return _HEAD.pack(*fields, check) + packed_keys + table + ordered.tobytes()


class KeySegment:
    """A file of the index, opened: the part before its pages is read.

    :ivar keys: of the tables that the batches have events of
    :raises SegmentDamaged: it cannot be used
    :raises FileNotFoundError: there is none
    """

    def __init__(self, storage: Storage, path: str, stretch: BatchRange) -> None:
        self._storage, self._path, self.stretch = storage, path, stretch
        data = self._bytes(0, _FIRST_READ)
        if len(data) < _HEAD.size:
            raise SegmentDamaged("it has no header")
        magic, low, high, self.count, keys_size, self.stamp, _, check = _HEAD.unpack_from(data)
        if (magic, low, high) != (_MAGIC, stretch.low, stretch.last_batch):
            raise SegmentDamaged("it belongs to other batches")
        pages = -(-self.count // _PAGE)
        table = _HEAD.size + keys_size
        self._begins = table + pages * 12
        if self._begins > len(data):
            data = self._bytes(0, self._begins)
        begin = data[: _HEAD.size - 4] + bytes(4) + data[_HEAD.size : self._begins]
        if len(begin) < self._begins or zlib.crc32(begin) != check:
            raise SegmentDamaged("its header is incomplete")
        self._firsts = np.frombuffer(data, "<u8", pages, table)
        self._checks = np.frombuffer(data, "<u4", pages, table + pages * 8)
        self.keys = _keys(data[_HEAD.size : table])

    def find_batches(self, hashes: Iterable[int]) -> set[int]:
        """Batches that have one of some hashes.

        :raises SegmentDamaged: a page is not whole
        :raises FileNotFoundError: the file is gone
        """
        batches: set[int] = set()
        for key_hash in hashes:
            low = np.uint64(key_hash << _LOW)
            high = np.uint64((key_hash << _LOW) | ((1 << _LOW) - 1))
            begin = max(int(np.searchsorted(self._firsts, low, "left")) - 1, 0)
            end = int(np.searchsorted(self._firsts, high, "right"))
            if begin < end:
                page = self._pages(begin, end)
                some = page[np.searchsorted(page, low, "left") : np.searchsorted(page, high, "right")]
                batches.update(int(entry) + self.stretch.low for entry in some & np.uint64((1 << _LOW) - 1))
        return batches

    def read_entries(self) -> Hashes:
        """All entries."""
        return self._pages(0, len(self._firsts))

    def _pages(self, begin: int, end: int) -> Hashes:
        start, stop = begin * _PAGE * 8, min(end * _PAGE, self.count) * 8
        data = self._bytes(self._begins + start, self._begins + stop)
        if len(data) != stop - start:
            raise SegmentDamaged("it is truncated")
        for number in range(begin, end):
            at = (number - begin) * _PAGE * 8
            if zlib.crc32(data[at : at + _PAGE * 8]) != self._checks[number]:
                raise SegmentDamaged(f"page {number} is damaged")
        return np.frombuffer(data, "<u8").astype(np.uint64)

    def _bytes(self, start: int, end: int) -> bytes:
        if start == end:
            return b""
        data = self._storage.read_part(self._path, start, end)
        if data is None:
            raise FileNotFoundError(self._path)
        return data


def _keys(packed: bytes) -> Keys:
    size = int.from_bytes(packed[:4], "little")
    tables = orjson.loads(pa.decompress(packed[4:], decompressed_size=size, codec="zstd", asbytes=True))
    return {
        table: {
            int(version): tuple(tuple((name, type_) for name, type_ in columns) for columns in several)
            for version, several in versions.items()
        }
        for table, versions in tables.items()
    }


def merge_entries(stretch: BatchRange, parts: Iterable[KeySegment]) -> Hashes:
    """Merge the entries of several files to those of a longer one."""
    return np.concatenate([part.read_entries() + np.uint64(part.stretch.low - stretch.low) for part in parts])


def joined_keys(parts: Iterable[Keys]) -> Keys:
    """Merge the keys of several files, or batches, to those of one."""
    merged: dict[str, dict[int, tuple[KeyColumns, ...]]] = {}
    for keys in parts:
        for table, versions in keys.items():
            merged_versions = merged.setdefault(table, {})
            for version, several in versions.items():
                merged_versions[version] = tuple(dict.fromkeys([*merged_versions.get(version, ()), *several]))
    return merged
