"""Differences between two versions of a document in the oplog's form, ``{$v: 2, diff: …}``.

A difference is ``{d: {name: false}, u: {name: value}, i: {name: value}, sNAME: difference}`` for a document, and
``{a: true, l: new length, uN: value, sN: difference}`` for an array. ``compute_diff`` computes it as the server does for updates by pipeline; updates
by operators build theirs from what they changed (:mod:`dev.servers.mongodb.updates.updates`), through :class:`Node`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dev.servers.mongodb.values.documents import Document, are_identical, copy, encode

PADDING = 15
"""What the oplog adds around a difference: a replacement is written when it is not longer than the difference and this."""


@dataclass
class Node:
    """The difference of one document, or of one array."""

    array: bool = False
    deletes: list[str] = field(default_factory=list)
    updates: dict[str, Any] = field(default_factory=dict)
    inserts: dict[str, Any] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)
    length: int | None = None
    whole: bool = False
    """True if the array is written as a whole by the node above."""

    def document(self) -> Document:
        """The form for the oplog."""
        return self._of_array() if self.array else self._of_document()

    def _of_array(self) -> Document:
        out: Document = {"a": True}
        if self.length is not None:
            out["l"] = self.length
        for index in sorted({*self.updates, *self.children}, key=int):
            if index in self.children:
                out["s" + index] = self.children[index].document()
            else:
                out["u" + index] = self.updates[index]
        return out

    def _of_document(self) -> Document:
        out: Document = {}
        if self.deletes:
            out["d"] = dict.fromkeys(self.deletes, False)
        if self.updates:
            out["u"] = dict(self.updates)
        if self.inserts:
            out["i"] = dict(self.inserts)
        for name, child in self.children.items():
            out["s" + name] = child.document()
        return out


def compute_diff(before: Document, after: Document, whole_bytes: int = 0) -> Document | None:
    """The difference, or None when writing the whole document is shorter.

    :param whole_bytes: subdocuments of up to this size are written whole
    """
    node = _documents(before, after, whole_bytes)
    if node is None:
        return None
    diff = node.document()
    return diff if len(encode(diff)) + PADDING < len(encode(after)) else None


def _documents(before: Document, after: Document, whole_bytes: int = 0) -> Node | None:
    node, gone = Node(), []
    old, new = list(before.items()), list(after.items())
    i = j = 0
    while i < len(old) and j < len(new):
        (name, was), (other, now) = old[i], new[j]
        if name == other:
            if not are_identical(was, now):
                _compare_field(node, name, was, now, whole_bytes)
            j += 1
        else:
            gone.append(name)
        i += 1
    gone += [name for name, _ in old[i:]]
    moved = set(gone)
    for name, now in new[j:]:
        (node.updates if name in moved else node.inserts)[name] = now
    node.deletes = sorted(
        (name for name in gone if name not in node.updates), key=lambda name: name.encode("utf-8", "surrogateescape")
    )
    return node if len(encode(node.document())) <= len(encode(after)) else None


def _arrays(before: list[Any], after: list[Any]) -> Node | None:
    node = Node(array=True)
    for index, (was, now) in enumerate(zip(before, after, strict=False)):
        if not are_identical(was, now):
            _compare_field(node, str(index), was, now)
    for index in range(len(before), len(after)):
        node.updates[str(index)] = after[index]
    if len(before) > len(after):
        node.length = len(after)
    return node if len(encode(node.document())) <= len(encode({str(i): item for i, item in enumerate(after)})) else None


def _compare_field(node: Node, name: str, was: Any, now: Any, whole_bytes: int = 0) -> None:
    child = None
    if isinstance(was, dict) and isinstance(now, dict):
        child = _documents(was, now, whole_bytes) if len(encode(now)) > whole_bytes else None
    elif isinstance(was, list) and isinstance(now, list):
        child = _arrays(was, now)
    if child is None:
        node.updates[name] = now
    else:
        node.children[name] = child


def apply_diff(before: Document, diff: Document) -> Document:
    """The document after a difference; ``before`` stays as it is."""
    out = dict(before)
    for name in diff.get("d", {}):
        out.pop(name, None)
    for name, value in diff.get("u", {}).items():
        out[name] = copy(value)
    for name, child in diff.items():
        if name.startswith("s") and isinstance(child, dict):
            out[name[1:]] = _child(out.get(name[1:]), child)
    for name, value in diff.get("i", {}).items():
        out.pop(name, None)
        out[name] = copy(value)
    return out


def _child(before: Any, diff: Document) -> Any:
    if not diff.get("a"):
        return apply_diff(before if isinstance(before, dict) else {}, diff)
    out = list(before) if isinstance(before, list) else []
    for name, value in diff.items():
        if name == "l":
            del out[value:]
        elif name[0] in "us" and name[1:].isdigit():
            index = int(name[1:])
            out += [None] * (index + 1 - len(out))
            out[index] = copy(value) if name[0] == "u" else _child(out[index], value)
    return out


def describe_diff(diff: Document, *, expanded: bool) -> Document:
    """The ``updateDescription`` of a change event for a difference."""
    out: Document = {"updatedFields": {}, "removedFields": [], "truncatedArrays": []}
    paths: Document = {}
    _describe(diff, [], out, paths)
    return {**out, "disambiguatedPaths": paths} if expanded else out


def _describe(diff: Document, path: list[Any], out: Document, paths: Document) -> None:
    if diff.get("a") is True and path:
        if "l" in diff:
            out["truncatedArrays"].append({"field": _format_path(path[:-1], path[-1], paths), "newSize": diff["l"]})
        for name, value in diff.items():
            if name[0] == "u" and name[1:].isdigit():
                out["updatedFields"][_format_path(path, int(name[1:]), paths)] = value
            elif name[0] == "s" and name[1:].isdigit():
                _describe(value, [*path, int(name[1:])], out, paths)
        return
    for name in diff.get("d", {}):
        out["removedFields"].append(_format_path(path, name, paths))
    for section in ("u", "i"):
        for name, value in diff.get(section, {}).items():
            out["updatedFields"][_format_path(path, name, paths)] = value
    for name, child in diff.items():
        if name.startswith("s"):
            _describe(child, [*path, name[1:]], out, paths)


def _format_path(path: list[Any], name: Any, paths: Document) -> str:
    parts = [*path, name]
    text = ".".join(str(part) for part in parts)
    if any(isinstance(part, str) and ("." in part or (i and part.isdigit())) for i, part in enumerate(parts)):
        paths[text] = parts
    return text
