"""A stand-in whose change streams deliver prepared events from memory, as fast as a client takes them: for benchmarks, so that the server is no limit.

A file holds change events one after another, as a ``getMore`` of a real server sent them. They come ``copies`` times, with later cluster times and resume
tokens each time. Every change stream delivers all of them, whatever its scope and its pipeline, from the event behind the token that it gives, or from the
first one. Whatever is no change stream is answered as by the ordinary server.

With ``held`` nothing comes until someone asks for it with ``{appendOplogNote: 1, data: {msg: "replay"}}`` (:data:`RELEASE`): then all events happen at once, at moments behind everything that
was before. A connector whose offset is older finds them in the log.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import numpy as np
from bson import Int64, Timestamp
from numpy.typing import NDArray

from dev.servers.mongodb.change_streams import tokens
from dev.servers.mongodb.server import Connection, Server
from dev.servers.mongodb.storage.node import Settings
from dev.servers.mongodb.values.documents import Document, decode, encode

BATCH_BYTES = 16 * 1000 * 1000
AWAIT_S = 1.0
RELEASE = {"appendOplogNote": 1, "data": {"msg": "replay"}}
"""The command on ``admin`` that lets held events happen."""
_TOKEN = b"\x03_id\0"
_DATA = b"\x02_data\0"
_TIME = b"\x11clusterTime\0"
HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


class PreparedEvents:
    """The events of a file, some times over.

    :param path: BSON documents one after another
    """

    def __init__(self, path: Path, copies: int) -> None:
        data = path.read_bytes()
        starts, place = [], 0
        while place < len(data):
            starts.append(place)
            place += struct.unpack_from("<i", data, place)[0]
        self._data = data
        self._starts = np.array([*starts, place], np.int64)
        self.alike = len(starts)
        """How many events the file has."""
        self.count = self.alike * copies
        self._token_at = self._found(_TOKEN, _DATA, 4) + 2  # behind the type of the timestamp, two digits a byte
        self._time_at = self._found(_TIME, b"", 0)
        self.times = [self._time(number) for number in range(self.alike)]
        self._span = self.times[-1][0] - self.times[0][0] + 1
        self._copies = copies

    @property
    def end(self) -> tuple[int, int]:
        """A time behind all events."""
        return self.times[-1][0] + (self._copies - 1) * self._span, self.times[-1][1] + 1

    def begin_at(self, second: int) -> None:
        """Have the first event happen in that second, and the others as long after it as they did."""
        later = second - self.times[0][0]
        self.times = [(seconds + later, increment) for seconds, increment in self.times]

    def _found(self, name: bytes, inner: bytes, skipped: int) -> NDArray[np.int64]:
        """Find the place of a field's value in each event."""
        places = []
        for start in self._starts[:-1].tolist():
            place = self._data.index(name, start) + len(name)
            if inner:
                place = self._data.index(inner, place) + len(inner) + skipped
            places.append(place)
        return np.array(places, np.int64)

    def _time(self, number: int) -> tuple[int, int]:
        increment, seconds = struct.unpack_from("<II", self._data, self._time_at[number])
        return seconds, increment

    def token(self, number: int) -> Document:
        """The resume token of an event; of the first one's predecessor a mark just before it."""
        if number < 0:
            seconds, increment = self.times[0]
            return tokens.mark((seconds, increment - 1))
        token: Document = decode(self.part(number, 1)[0])["_id"]
        return token

    def place(self, token: Any) -> int:
        """The number of the event behind a token: the first for one that no event has, none for one that is later than all."""
        data = token.get("_data", "") if isinstance(token, dict) else ""
        if len(data) < 18:
            return 0
        time = int(data[2:10], 16), int(data[10:18], 16)
        if time >= self.end:
            return self.count
        copy = (time[0] - self.times[0][0]) // self._span
        if copy < 0:
            return 0
        for number in range(self.alike):
            if self._text(number)[10:] == data[10:] and self.token(copy * self.alike + number)["_data"] == data:
                return copy * self.alike + number + 1
        return 0

    def _text(self, number: int) -> str:
        start = int(self._token_at[number]) - 2
        return self._data[start : self._data.index(0, start)].decode()

    def part(self, first: int, most: int, budget: int = BATCH_BYTES) -> tuple[bytes, int, int]:
        """Up to so many events from a number on, within one copy of the file and 16 MB.

        :return: their bytes, how many there are, and where the first of them begins in the file
        """
        copy, start = divmod(first, self.alike)
        stop = min(self.alike, start + most)
        within = int(np.searchsorted(self._starts, self._starts[start] + budget, "right")) - 1
        stop = max(start + 1, min(stop, within))
        base = int(self._starts[start])
        data = np.frombuffer(self._data[base : int(self._starts[stop])], np.uint8).copy()
        seconds = np.array([time[0] for time in self.times[start:stop]], np.uint32) + np.uint32(copy * self._span)
        at = self._time_at[start:stop, None] - base + np.arange(4, 8)
        data[at] = seconds.astype("<u4").view(np.uint8).reshape(-1, 4)
        digits = seconds.astype(">u4").view(np.uint8).reshape(-1, 4)
        at = self._token_at[start:stop, None] - base + np.arange(8)
        data[at] = np.stack([HEX[digits >> 4], HEX[digits & 15]], axis=2).reshape(-1, 8)
        return data.tobytes(), stop - start, base

    def batch(self, first: int, most: int) -> tuple[bytes, int]:
        """A ``nextBatch`` of at most 16 MB as the bytes of an array, and how many events it has."""
        if first >= self.count:
            return b"\x05\0\0\0\0", 0
        data, count, base = self.part(first, most)
        start = first % self.alike
        pieces, size = [], 5
        for number in range(count):
            begin, end = self._starts[start + number] - base, self._starts[start + number + 1] - base
            head = b"\x03%d\0" % number
            pieces += [head, data[begin:end]]
            size += len(head) + int(end - begin)
        return b"".join([struct.pack("<i", size), *pieces, b"\0"]), count


class Replay(Server):
    """Answers change streams with prepared events, and everything else as the ordinary server does."""

    def __init__(self, settings: Settings, path: Path, copies: int, *, held: bool = False) -> None:
        super().__init__(settings)
        self.prepared = PreparedEvents(path, copies)
        self._held = held
        self._streams: dict[int, int] = {}
        self._ready: dict[tuple[int, int], tuple[bytes, int]] = {}

    async def answer(self, connection: Connection | None, body: Document) -> Document | bytes | None:
        name = next(iter(body), "")
        if name == "aggregate" and body["pipeline"] and "$changeStream" in body["pipeline"][0]:
            return self._open(body)
        if name == "getMore" and body["getMore"] in self._streams:
            return await self._more(body)
        if self._held and name == "appendOplogNote" and body["data"] == RELEASE["data"]:
            self._release()
        if name == "killCursors":
            for number in body["cursors"]:
                self._streams.pop(number, None)
        return await super().answer(connection, body)

    def _release(self) -> None:
        self._held = False
        self.prepared.begin_at(self.node.clock[0] + 1)
        self.node.clock = self.prepared.end

    def _open(self, body: Document) -> Document:
        options = body["pipeline"][0]["$changeStream"]
        place = 0 if self._held else self.prepared.place(options.get("resumeAfter") or options.get("startAfter"))
        number = Int64(1_000_000 + len(self._streams))
        self._streams[number] = place
        namespace = f"{body['$db']}.{body['aggregate'] if isinstance(body['aggregate'], str) else '$cmd.aggregate'}"
        return {
            "cursor": {
                "firstBatch": [], "postBatchResumeToken": self.prepared.token(place - 1), "id": number, "ns": namespace,
            },
            "ok": 1.0,
            **self._clock(place),
        }  # fmt: skip

    async def _more(self, body: Document) -> bytes:
        number = body["getMore"]
        place, most = self._streams[number], int(body.get("batchSize") or self.prepared.count)
        ready = self._ready.pop((place, most), None)
        if self._held:
            ready = b"\x05\0\0\0\0", 0
        events, count = self.prepared.batch(place, most) if ready is None else ready
        if not count:
            await asyncio.sleep(min(float(body.get("maxTimeMS", 1000)) / 1000, AWAIT_S))
        self._streams[number] = place + count
        cursor = encode({"id": number, "ns": f"{body['$db']}.{body['collection']}"})[4:-1]
        end = self.node.oplog.last if self._held else max(self.node.oplog.last, self.prepared.end)
        token = self.prepared.token(place + count - 1) if count else tokens.mark(end)
        cursor += encode({"postBatchResumeToken": token})[4:-1]
        cursor += b"\x04nextBatch\0" + events
        cursor = struct.pack("<i", len(cursor) + 5) + cursor + b"\0"
        rest = b"\x03cursor\0" + cursor + encode({"ok": 1.0, **self._clock(place + count)})[4:-1]
        asyncio.get_running_loop().call_soon(self._prepare, place + count, most)
        return struct.pack("<i", len(rest) + 5) + rest + b"\0"

    def _prepare(self, place: int, most: int) -> None:
        """Make the next batch while the client works on this one."""
        if place < self.prepared.count and not self._held:
            self._ready.clear()
            self._ready[place, most] = self.prepared.batch(place, most)

    def _clock(self, place: int) -> Document:
        seconds, increment = self.prepared.times[min(place, self.prepared.alike) - 1]
        time = Timestamp(seconds, increment)
        signature = {"hash": bytes(20), "keyId": Int64(0)}
        return {"$clusterTime": {"clusterTime": time, "signature": signature}, "operationTime": time}
