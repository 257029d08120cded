"""Documents taken apart and put together again, one level at a time; parts that are not opened stay the same bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels.bson_elements import list_elements
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import FINE

CONTAINERS: Final = (k.DOCUMENT, k.ARRAY)


@dataclass
class BsonElement:
    """A field of a document or an element of an array: its name, type, and value: bytes, or its elements."""

    name: bytes
    kind: int
    value: bytes | BsonContainer

    def open_container(self) -> BsonContainer | None:
        """Return its elements, if it is a document or array; from then on, changes of these are changes of it."""
        if self.kind not in CONTAINERS:
            return None
        if isinstance(self.value, bytes):
            self.value = BsonContainer.from_bson(self.value, self.kind)
        return self.value

    def encode_bson(self) -> bytes:
        """Return the bytes of the value."""
        return self.value if isinstance(self.value, bytes) else self.value.encode_bson()


@dataclass
class BsonContainer:
    """A document or an array."""

    kind: int
    elements: list[BsonElement]

    @classmethod
    def from_bson(cls, raw: bytes, kind: int = k.DOCUMENT) -> BsonContainer:
        """Take the bytes of a document or array apart.

        :raises DamagedDocument: they are none
        """
        return cls(kind, parse_elements(raw))

    def find(self, name: bytes) -> BsonElement | None:
        """Find the field of this name; of an array, the element of this number."""
        if self.kind == k.ARRAY:
            number = int(name)
            return self.elements[number] if number < len(self.elements) else None
        return next((e for e in self.elements if e.name == name), None)

    def encode_bson(self) -> bytes:
        """Return the bytes of the whole, with numbers for the names of an array."""
        parts = []
        for number, e in enumerate(self.elements):
            name = str(number).encode() if self.kind == k.ARRAY else e.name
            parts.append(b"%c%b\0%b" % (e.kind, name, e.encode_bson()))
        body = b"".join(parts)
        return struct.pack("<i", len(body) + 5) + body + b"\0"


def parse_elements(raw: bytes) -> list[BsonElement]:
    """List the elements of a document or array.

    :raises DamagedDocument: it is none
    """
    buf = np.frombuffer(raw, np.uint8)
    elements = np.empty((32, 4), np.int64)
    count, problem, at = list_elements(buf, 0, len(buf), elements)
    if problem == FINE and count > len(elements):
        elements = np.empty((count, 4), np.int64)
        count, problem, at = list_elements(buf, 0, len(buf), elements)
    if problem != FINE:
        raise DamagedDocument(0, int(at), problem)
    return [
        BsonElement(raw[name : value - 1], kind, raw[value:end]) for kind, name, value, end in elements[:count].tolist()
    ]


def extract_text(raw: bytes) -> bytes:
    """Return the text in the bytes of a string value."""
    return raw[4:-1]


def text_value(content: bytes) -> bytes:
    """Encode a text as the bytes of a string value."""
    return struct.pack("<i", len(content) + 1) + content + b"\0"
