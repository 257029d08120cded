"""Open cursors: of finds and aggregations, of the oplog's tail, and of change streams."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bson import Timestamp

from dev.servers.mongodb.values.documents import Document, encode
from dev.servers.mongodb.values.errors import MongoError

if TYPE_CHECKING:
    from dev.servers.mongodb.change_streams.streams import ChangeStream

BATCH_BYTES = 16 * 1024 * 1024


@dataclass
class Cursor:
    """A cursor, with its ``stream`` if it is a change stream, and a filter ``tail`` if it follows the oplog."""

    namespace: str
    documents: Iterator[Document]
    stream: ChangeStream | None = None
    tail: Callable[[Document], bool] | None = None
    tail_place: Any = None
    at: Timestamp | None = None
    held: list[Document] = field(default_factory=list)
    user: Any = None
    service: Any = None
    """The router that has it, of several behind a load balancer."""
    transaction: Any = None

    def batch(self, count: int | None) -> tuple[list[Document], bool]:
        """The next documents, and whether more may come."""
        out: list[Document] = []
        size = 0
        while count is None or len(out) < count:
            document = self.held.pop() if self.held else next(self.documents, None)
            if document is None:
                return out, False
            length = len(encode(document))
            if out and size + length > BATCH_BYTES:
                self.held.append(document)
                return out, True
            out.append(document)
            size += length
        return out, True


class Cursors:
    """The cursors of a member by id."""

    def __init__(self) -> None:
        self._open: dict[int, Cursor] = {}

    def add(self, cursor: Cursor) -> int:
        """Keep a cursor; returns its id."""
        number = random.getrandbits(62) + 1
        self._open[number] = cursor
        return number

    def get(self, number: int) -> Cursor:
        """The cursor of an id."""
        if number not in self._open:
            raise MongoError(43, f"cursor id {number} not found")
        return self._open[number]

    def close(self, number: int) -> bool:
        """Forget a cursor; False when it was not there."""
        return self._open.pop(number, None) is not None

    def close_all(self, chosen: Callable[[Cursor], bool]) -> None:
        """Forget all cursors that are chosen."""
        for number in [number for number, cursor in self._open.items() if chosen(cursor)]:
            del self._open[number]

    def __len__(self) -> int:
        return len(self._open)
