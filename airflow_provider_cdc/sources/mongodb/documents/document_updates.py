"""The effect of an ``updateDescription`` on a document, in bytes of BSON: every value that it does not name stays as it is.

A description lists fields with new values, removed fields, and arrays that were cut off, by paths. ``a.b`` may be the field ``b`` of ``a`` or the field ``a.b``, and ``a.0`` an
element or a field: ``disambiguatedPaths`` says which, where it may be asked; MongoDB 6.0 to 8.1 send it with ``showExpandedEvents`` only.

The order of fields is the server's but for a field that was removed and made again within one update, which the server describes like one that was set in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from airflow_provider_cdc.sources.mongodb.documents.bson_tree import (
    BsonContainer,
    BsonElement,
    extract_text,
    parse_elements,
)
from airflow_provider_cdc.sources.mongodb.documents.document_errors import (
    AmbiguousPath,
    DamagedDocument,
    UpdateMismatch,
)
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from airflow_provider_cdc.sources.mongodb.kernels.error_codes import NEEDED, UNEXPECTED

_LARGEST_INDEX: Final = 16 * 2**20
"""No array has more elements: each takes a byte, and no document has more."""

_Path = list[bytes]


@dataclass
class _Change:
    path: bytes
    parts: _Path


def apply_update(before: bytes, description: bytes, *, dotted_names: bool = True) -> bytes:
    """Apply an update to a document.

    :param before: the document before it
    :param description: ``updateDescription`` of the event
    :param dotted_names: whether fields may have dots in their names, as they may from MongoDB 5.0 on
    :raises AmbiguousPath: a path has several meanings for this document, and the description does not say which it is
    :raises UpdateMismatch: the document is not the one that was updated
    :raises DamagedDocument: one of the two is not BSON, or the second no description
    """
    elements = {e.name: e for e in parse_elements(description)}
    document = BsonContainer.from_bson(before)
    ways = _UpdatePaths(document, elements.get(b"disambiguatedPaths"), dotted_names)
    cuts = [_cut(e) for e in _listed(elements, b"truncatedArrays", k.ARRAY)]
    removed = [extract_text(_of(e, k.STRING)) for e in _listed(elements, b"removedFields", k.ARRAY)]
    updated = _listed(elements, b"updatedFields", k.DOCUMENT)
    # where each path leads is asked of the document as it was before any of them is followed
    cut_ways = [ways.resolve_path(path, exists=True) for path, _ in cuts]
    removed_ways = [ways.resolve_path(path, exists=True) for path in removed]
    updated_ways = [ways.resolve_path(e.name, exists=False) for e in updated]
    for (path, size), way in zip(cuts, cut_ways, strict=True):
        _truncate(document, path, way, size)
    for path, way in zip(removed, removed_ways, strict=True):
        _remove(document, path, way)
    for change, way in zip(updated, updated_ways, strict=True):
        _set(document, change, way)
    return document.encode_bson()


class _UpdatePaths:
    """The places to which the paths of one update lead."""

    def __init__(self, document: BsonContainer, disambiguated: BsonElement | None, dotted_names: bool) -> None:
        self._document = document
        self._known_paths = (
            None
            if disambiguated is None
            else {e.name: _parts(e) for e in parse_elements(_of(disambiguated, k.DOCUMENT))}
        )
        self._dotted_names = dotted_names

    def resolve_path(self, path: bytes, *, exists: bool) -> _Path:
        if self._known_paths is not None:
            return self._known_paths.get(path) or path.split(b".")
        ways = _readings(self._document, path.split(b"."), exists, self._dotted_names)
        if len(ways) > 1:
            raise AmbiguousPath(_name(path))
        if not ways:
            raise UpdateMismatch(_name(path), "does not exist in the document")
        return ways[0]


def _readings(inside: BsonContainer, parts: _Path, exists: bool, dotted_names: bool) -> list[_Path]:
    """All that a path may mean below a document or array.

    :param exists: whether it leads to something that is there
    """
    if inside.kind == k.ARRAY and not _is_index(parts[0]):
        return []
    ways: list[_Path] = []
    most = len(parts) if dotted_names and inside.kind == k.DOCUMENT else 1
    for count in range(1, most + 1):
        name = b".".join(parts[:count])
        element = inside.find(name)
        if count == len(parts):
            if element or not exists:
                ways.append([name])
        elif element and (below := element.open_container()):
            ways += [[name, *way] for way in _readings(below, parts[count:], exists, dotted_names)]
    return ways


def _truncate(document: BsonContainer, path: bytes, way: _Path, size: int) -> None:
    element = _parent(document, path, way).find(way[-1])
    array = element.open_container() if element else None
    if array is None or array.kind != k.ARRAY or not 0 <= size <= len(array.elements):
        raise UpdateMismatch(_name(path), f"is not an array of {size} elements or more")
    del array.elements[size:]


def _remove(document: BsonContainer, path: bytes, way: _Path) -> None:
    parent = _parent(document, path, way)
    element = parent.find(way[-1]) if parent.kind == k.DOCUMENT else None
    if element is None:
        raise UpdateMismatch(_name(path), "is not a field")
    parent.elements = [e for e in parent.elements if e is not element]


def _set(document: BsonContainer, change: BsonElement, way: _Path) -> None:
    parent = _parent(document, change.name, way)
    element = parent.find(way[-1])
    if element:
        element.kind, element.value = change.kind, change.value
        return
    if parent.kind == k.ARRAY:
        # the server fills an array up to the element that is set
        missing = int(way[-1]) - len(parent.elements)
        parent.elements += [BsonElement(b"", k.NULL, b"") for _ in range(missing)]
    parent.elements.append(BsonElement(way[-1], change.kind, change.value))


def _parent(document: BsonContainer, path: bytes, way: _Path) -> BsonContainer:
    """Find the document or array that contains the last part of a path."""
    inside = document
    for depth, part in enumerate(way):
        if inside.kind == k.ARRAY and not _is_index(part):
            raise UpdateMismatch(_name(path), f"has the name {_name(part)!r} within an array")
        if depth == len(way) - 1:
            return inside
        element = inside.find(part)
        below = element.open_container() if element else None
        if below is None:
            raise UpdateMismatch(_name(path), f"leads through {_name(part)!r}, which is not a document or array there")
        inside = below
    raise UpdateMismatch(_name(path), "is empty")


def _listed(elements: dict[bytes, BsonElement], name: bytes, kind: int) -> list[BsonElement]:
    """List the elements of a part of the description; a part that is not there, or null, has none."""
    part = elements.get(name)
    return [] if part is None or part.kind == k.NULL else parse_elements(_of(part, kind))


def _of(element: BsonElement | None, kind: int) -> bytes:
    """Return the bytes of a value of this type."""
    if element is None or element.kind != kind:
        raise DamagedDocument(0, 0, UNEXPECTED if element else NEEDED)
    return element.encode_bson()


def _cut(element: BsonElement) -> tuple[bytes, int]:
    elements = {e.name: e for e in parse_elements(_of(element, k.DOCUMENT))}
    size = int.from_bytes(_of(elements.get(b"newSize"), k.INT32), "little", signed=True)
    return extract_text(_of(elements.get(b"field"), k.STRING)), size


def _parts(element: BsonElement) -> _Path:
    elements = parse_elements(_of(element, k.ARRAY))
    return [
        extract_text(e.encode_bson())
        if e.kind == k.STRING
        else b"%d" % int.from_bytes(_of(e, k.INT32), "little", signed=True)
        for e in elements
    ]


def _is_index(part: bytes) -> bool:
    return part.isdigit() and int(part) < _LARGEST_INDEX


def _name(path: bytes) -> str:
    return path.decode(errors="replace")
