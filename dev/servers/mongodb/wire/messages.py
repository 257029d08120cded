"""The wire protocol: OP_MSG with its sections and checksum, OP_COMPRESSED around it, and OP_QUERY for the first ``hello`` of old handshakes."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from dev.servers.mongodb.values.documents import Document, decode, encode
from dev.servers.mongodb.values.errors import MongoError

HEADER = struct.Struct("<iiii")
OP_REPLY, OP_QUERY, OP_COMPRESSED, OP_MSG = 1, 2004, 2012, 2013
CHECKSUM, MORE_TO_COME, EXHAUST_ALLOWED = 1, 2, 1 << 16
LARGEST_MESSAGE = 48_000_000
SNAPPY, ZLIB, ZSTD = 1, 2, 3
COMPRESSORS = {"snappy": SNAPPY, "zlib": ZLIB, "zstd": ZSTD}
"""Those that this server agrees to."""


@dataclass
class Message:
    """A request."""

    id: int
    body: Document
    legacy: bool = False
    compressor: int = 0
    quiet: bool = False
    """True if the client wants no reply."""
    exhaust: bool = False


def parse_message(header: bytes, data: bytes) -> Message:
    """The request that a header and what follows it hold."""
    _, request, _, code = HEADER.unpack(header)
    compressor = 0
    if code == OP_COMPRESSED:
        code, size, compressor = struct.unpack_from("<iiB", data)
        data = _inflate_body(compressor, data[9:], size)
    if code == OP_MSG:
        return _message(request, data, compressor)
    if code == OP_QUERY:
        return _query(request, data)
    raise MongoError(352, f"Unsupported OP code {code}")


def _message(request: int, data: bytes, compressor: int) -> Message:
    flags = struct.unpack_from("<I", data)[0]
    if flags & 0xFFFF & ~(CHECKSUM | MORE_TO_COME):
        raise MongoError(17, f"Message contains illegal flags value: {flags}")
    end = len(data) - (4 if flags & CHECKSUM else 0)
    body: Document | None = None
    sequences: Document = {}
    place = 4
    while place < end:
        kind = data[place]
        size = struct.unpack_from("<i", data, place + 1)[0]
        if kind == 0:
            body = decode(data[place + 1 : place + 1 + size])
        elif kind == 1:
            stop = data.index(0, place + 5)
            name = data[place + 5 : stop].decode()
            sequences[name] = _sequence(data[stop + 1 : place + 1 + size])
        else:
            raise MongoError(40432, f"Unknown section kind {kind}")
        place += 1 + size
    if body is None:
        raise MongoError(40587, "OP_MSG messages must have a body")
    body |= sequences
    return Message(
        request, body, compressor=compressor, quiet=bool(flags & MORE_TO_COME), exhaust=bool(flags & EXHAUST_ALLOWED)
    )


def _sequence(data: bytes) -> list[Document]:
    out, place = [], 0
    while place < len(data):
        size = struct.unpack_from("<i", data, place)[0]
        out.append(decode(data[place : place + size]))
        place += size
    return out


def _query(request: int, data: bytes) -> Message:
    stop = data.index(0, 4)
    namespace = data[4:stop].decode()
    body = decode(data[stop + 9 :])
    if not namespace.endswith(".$cmd"):
        raise MongoError(352, "Unsupported OP_QUERY command")
    if "$query" in body:
        body = body["$query"]
    if next(iter(body), "").lower() not in ("hello", "ismaster"):
        raise MongoError(
            352, f"Unsupported OP_QUERY command: {next(iter(body), '')}. The client driver may require an upgrade."
        )
    return Message(request, {**body, "$db": namespace.removesuffix(".$cmd")}, legacy=True)


def reply(message: Message, body: Document | bytes, *, flags: int = 0, number: int = 0) -> bytes:
    """The bytes of a reply, of a document or of one that is BSON already."""
    data = body if isinstance(body, bytes) else encode(body)
    if message.legacy:
        payload = struct.pack("<iqii", 8, 0, 0, 1) + data
        return HEADER.pack(16 + len(payload), number, message.id, OP_REPLY) + payload
    payload = struct.pack("<I", flags) + b"\0" + data
    if message.compressor and not _is_uncompressed(message.body):
        packed = struct.pack("<iiB", OP_MSG, len(payload), message.compressor) + _deflate_body(
            message.compressor, payload
        )
        return HEADER.pack(16 + len(packed), number, message.id, OP_COMPRESSED) + packed
    return HEADER.pack(16 + len(payload), number, message.id, OP_MSG) + payload


def _is_uncompressed(body: Document) -> bool:
    """Check whether a command's messages are never compressed."""
    return next(iter(body), "").lower() in ("hello", "ismaster", "saslstart", "saslcontinue", "authenticate")


def _inflate_body(compressor: int, data: bytes, size: int) -> bytes:
    if compressor == 0:
        return data
    if compressor == SNAPPY:
        import pyarrow as pa

        return bytes(pa.decompress(data, decompressed_size=size, codec="snappy", asbytes=True))
    if compressor == ZLIB:
        return zlib.decompress(data)
    if compressor == ZSTD:
        return bytes(_zstd().ZstdDecompressor().decompressobj().decompress(data))
    raise MongoError(2, f"unknown compressor {compressor}")


def _deflate_body(compressor: int, data: bytes) -> bytes:
    if compressor == SNAPPY:
        import pyarrow as pa

        return bytes(pa.compress(data, codec="snappy", asbytes=True))
    if compressor == ZLIB:
        return zlib.compress(data, 1)
    return bytes(_zstd().ZstdCompressor(level=1).compress(data))


def _zstd() -> Any:
    import zstandard

    return zstandard
