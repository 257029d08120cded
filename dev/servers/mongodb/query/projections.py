"""Projections of ``find`` and ``$project``, and ``$addFields``: which fields a document keeps, and which are computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dev.servers.mongodb.expressions import expressions
from dev.servers.mongodb.values import order
from dev.servers.mongodb.values.documents import Document
from dev.servers.mongodb.values.errors import MongoError
from dev.servers.mongodb.values.missing import MISSING

Work = Callable[[Document], Document]
Tree = dict[str, Any]


class Computed:
    """A field that an expression gives."""

    def __init__(self, expression: Any) -> None:
        self.compute = expressions.compile_expression(expression)


def compile_projection(spec: Document, variables: Document | None = None) -> Work:
    """The projection as a function. Raises :class:`MongoError` when it includes and excludes at once."""
    given = dict(variables or {})
    tree: Tree = {}
    kinds = set()
    for path, value in _flatten_spec(spec):
        expected: Any = Computed(value)
        if isinstance(value, bool) or order.is_number(value):
            expected = bool(order.number(value)) if not isinstance(value, bool) else value
            if path != "_id":
                kinds.add(expected)
        else:
            kinds.add(True)
        _place_value(tree, path.split("."), expected, path)
    if len(kinds) == 2:
        raise MongoError(
            31254 if next(iter(spec.values())) else 31253, "Cannot do exclusion and inclusion in one projection"
        )
    including = True in kinds or (not kinds and tree.get("_id") is True)
    if including:
        tree.setdefault("_id", True)
        return lambda document: _include_fields(tree, document, document, given)
    return lambda document: _exclude_fields(tree, document)


def _flatten_spec(spec: Document, prefix: str = "") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for name, value in spec.items():
        if isinstance(value, dict) and value and not next(iter(value)).startswith("$"):
            out += _flatten_spec(value, f"{prefix}{name}.")
        else:
            out.append((prefix + name, value))
    return out


def _place_value(tree: Tree, parts: list[str], value: Any, path: str) -> None:
    for part in parts[:-1]:
        child = tree.setdefault(part, {})
        if not isinstance(child, dict):
            raise MongoError(31249, f"Path collision at {path}")
        tree = child
    if parts[-1] in tree:
        raise MongoError(31250, f"Path collision at {path}")
    tree[parts[-1]] = value


def _include_fields(tree: Tree, value: Any, root: Document, variables: Document) -> Any:
    out: Document = {}
    if "_id" in tree and value is root and tree["_id"] is True and "_id" in root:
        out["_id"] = root["_id"]
    for name, item in value.items():
        expected = tree.get(name)
        if expected is True:
            out[name] = item
        elif isinstance(expected, dict):
            kept = _include_below(expected, item, root, variables)
            if kept is not MISSING:
                out[name] = kept
    for name, expected in tree.items():
        if isinstance(expected, Computed):
            made = expected.compute(root, {**variables, "ROOT": root})
            if made is not MISSING:
                out[name] = made
        elif isinstance(expected, dict) and name not in value and _computes_fields(expected):
            out[name] = _include_fields(expected, {}, root, variables)
    return out


def _computes_fields(tree: Tree) -> bool:
    return any(
        isinstance(item, Computed) or (isinstance(item, dict) and _computes_fields(item)) for item in tree.values()
    )


def _include_below(tree: Tree, item: Any, root: Document, variables: Document) -> Any:
    if isinstance(item, dict):
        return _include_fields(tree, item, root, variables)
    if isinstance(item, list):
        kept = [_include_below(tree, part, root, variables) for part in item]
        return [part for part in kept if part is not MISSING]
    return _include_fields(tree, {}, root, variables) if _computes_fields(tree) else MISSING


def _exclude_fields(tree: Tree, value: Any) -> Any:
    if isinstance(value, list):
        return [_exclude_fields(tree, item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for name, item in value.items():
        expected = tree.get(name)
        if expected is False:
            continue
        out[name] = _exclude_fields(expected, item) if isinstance(expected, dict) else item
    return out


def adding(spec: Document, variables: Document | None = None) -> Work:
    """``$addFields`` as a function; all its expressions see the document as it was."""
    given = dict(variables or {})
    tree: Tree = {}
    for path, value in _flat_added(spec):
        if any(not part for part in path.split(".")):
            raise MongoError(15998, "FieldPath field names may not be empty strings.")
        if any(part.startswith("$") for part in path.split(".")):
            raise MongoError(
                16410,
                f"FieldPath field names may not start with '$'. Consider using $getField or $setField. Field path: {path}",
            )
        _place_value(tree, path.split("."), Computed(value), path)
    return lambda document: _add_fields(tree, document, document, given)


def _flat_added(spec: Document, prefix: str = "") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for name, value in spec.items():
        if isinstance(value, dict) and value and not next(iter(value)).startswith("$"):
            out += _flat_added(value, f"{prefix}{name}.")
        else:
            out.append((prefix + name, value))
    return out


def _add_fields(tree: Tree, value: Any, root: Document, variables: Document) -> Any:
    if isinstance(value, list):
        return [_add_fields(tree, item, root, variables) for item in value]
    out = dict(value) if isinstance(value, dict) else {}
    for name, expected in tree.items():
        if isinstance(expected, dict):
            out[name] = _add_fields(expected, out.get(name), root, variables)
            continue
        made = expected.compute(root, {**variables, "ROOT": root})
        if made is MISSING:
            out.pop(name, None)
        else:
            out[name] = made
    return out


def with_value(document: Document, parts: list[str], value: Any) -> Document:
    """A copy of a document with a value at a path."""
    out = dict(document)
    out[parts[0]] = value if len(parts) == 1 else with_value(out.get(parts[0]) or {}, parts[1:], value)
    return out
