"""Messages of pgoutput about relations: the structure in which the rows that follow are."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

_IDENTITY_FULL: Final = "f"
_KEY_FLAG: Final = 1


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream has it.

    :param type_oid: OID of its type
    :param modifier: of its type, such as the precision of a ``numeric``; -1 = none
    :param in_key: it is part of the replica identity
    """

    name: str
    type_oid: int
    modifier: int
    in_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is when the rows that follow were changed. Columns that the publication leaves out are missing.

    :param identity: replica identity: ``d`` default, ``n`` nothing, ``f`` full, ``i`` index
    """

    oid: int
    namespace: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def has_whole_old_rows(self) -> bool:
        """Check whether the log has all columns of rows before they were changed."""
        return self.identity == _IDENTITY_FULL

    @classmethod
    def parse(cls, body: bytes) -> Relation:
        """Parse a message ``R``, without its first byte.

        :raises ValueError: it is not as the protocol has it
        """
        try:
            return cls._parse(body)
        except (struct.error, IndexError, UnicodeDecodeError) as e:
            raise ValueError(f"a relation message of {len(body)} bytes cannot be read: {e}") from e

    @classmethod
    def _parse(cls, body: bytes) -> Relation:
        (oid,) = struct.unpack_from("!I", body)
        namespace, p = _read_text(body, 4)
        name, p = _read_text(body, p)
        identity, count = struct.unpack_from("!cH", body, p)
        p += 3
        columns = []
        for _ in range(count):
            flags = body[p]
            column, p = _read_text(body, p + 1)
            type_oid, modifier = struct.unpack_from("!Ii", body, p)
            p += 8
            columns.append(RelationColumn(column, type_oid, modifier, bool(flags & _KEY_FLAG)))
        if p != len(body):
            raise ValueError(f"a relation message has {len(body) - p} bytes more than its columns")
        return cls(oid, namespace or "pg_catalog", name, identity.decode("ascii"), tuple(columns))


def _read_text(body: bytes, start: int) -> tuple[str, int]:
    """Read a text that ends with a zero byte. Returns it, and the offset behind it."""
    end = body.find(b"\0", start)
    if end < 0:
        raise IndexError("a text has no end")
    return body[start:end].decode(), end + 1
