"""The log of a member: entries in the order of their times, a file that survives a kill, and who waits for the next entry."""

from __future__ import annotations

import asyncio
import bisect
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from bson import Timestamp

from dev.servers.mongodb.storage.versioned_collections import Time, time_of
from dev.servers.mongodb.values.documents import Document, decode, encode


class Oplog:
    """Entries of a member. Old ones leave the window when it is larger than ``limit`` bytes; the file keeps them, as the state is made of them."""

    def __init__(self, path: Path | None, limit: int) -> None:
        self.entries: list[Document] = []
        self.times: list[Time] = []
        self.limit, self.size = limit, 0
        self._sizes: list[int] = []
        self._path = path
        self._file: FileIO | None = None
        self._changed = asyncio.Event()
        self.lost: Time = (0, 0)
        """The time of the newest entry that has left the window."""

    def read(self) -> Iterator[Document]:
        """The entries of the file, from an earlier life. What was cut off in the middle of a write is dropped."""
        if self._path is None or not self._path.exists():
            return
        data = self._path.read_bytes()
        place = 0
        while place + 4 <= len(data):
            size = struct.unpack_from("<i", data, place)[0]
            if place + size > len(data):
                break
            yield decode(data[place : place + size])
            place += size

    def rewrite(self, entries: list[Document]) -> None:
        """Begin the file again with these entries."""
        if self._file:
            self._file.close()
            self._file = None
        if self._path is not None:
            self._path.write_bytes(b"".join(encode(entry) for entry in entries))

    def truncate(self, time: Time) -> list[Document]:
        """Begin again with the entries up to a time, and give them back; what is later is thrown away."""
        kept = [entry for entry in (list(self.read()) if self._path else self.entries) if time_of(entry["ts"]) <= time]
        self.rewrite(kept)
        self.entries, self.times, self._sizes, self.size = [], [], [], 0
        return kept

    def add(self, entry: Document, *, durable: bool = True) -> None:
        """Add an entry, to the file as well unless it comes from there."""
        data = encode(entry)
        if durable and self._path is not None:
            if self._file is None:
                self._file = FileIO(self._path, "ab")
            self._file.write(data)
        self.entries.append(entry)
        self.times.append(time_of(entry["ts"]))
        self._sizes.append(len(data))
        self.size += len(data)
        self._shrink()
        self.wake()

    def _shrink(self) -> None:
        drop = 0
        while self.size > self.limit and drop < len(self.entries) - 1:
            self.size -= self._sizes[drop]
            drop += 1
        if drop:
            self.lost = self.times[drop - 1]
            del self.entries[:drop], self.times[:drop], self._sizes[:drop]

    def wake(self) -> None:
        """Wake all who wait."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for the next entry, or other news, for some time."""
        event = self._changed
        try:
            await asyncio.wait_for(event.wait(), max(seconds, 0))
        except TimeoutError:
            return

    @property
    def last(self) -> Time:
        """The time of the newest entry."""
        return self.times[-1] if self.times else (0, 0)

    @property
    def first(self) -> Time:
        """The time of the oldest entry in the window."""
        return self.times[0] if self.times else (0, 0)

    def index_after(self, time: Time) -> int:
        """The place of the first entry later than a time."""
        return bisect.bisect_right(self.times, time)

    def index_from(self, time: Time) -> int:
        """The place of the first entry at a time or later."""
        return bisect.bisect_left(self.times, time)

    def find(self, stamp: Timestamp) -> Document | None:
        """The entry of a time."""
        place = bisect.bisect_left(self.times, time_of(stamp))
        return self.entries[place] if place < len(self.times) and self.times[place] == time_of(stamp) else None

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()
            self._file = None
