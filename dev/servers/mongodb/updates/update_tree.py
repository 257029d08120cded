"""Update operators applied to a document, with the difference that the server writes to its oplog for them.

The operators are a tree of their paths, applied in the order of names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dev.servers.mongodb.query import queries
from dev.servers.mongodb.storage.diffs import Node
from dev.servers.mongodb.updates.modifiers import MODIFIERS, NOTHING, Modifier, Result
from dev.servers.mongodb.values.documents import Document, are_identical, copy
from dev.servers.mongodb.values.errors import MongoError, type_name

PADDING_LIMIT = 1_500_000


@dataclass
class UpdateResult:
    """The result of an update; ``diff`` is None for a replacement, and empty when nothing changed."""

    document: Document
    diff: Document | None
    changed: bool


@dataclass
class Tree:
    """The operators by path: a name leads to another tree or to an operator."""

    children: dict[str, Tree | Modifier] = field(default_factory=dict)

    def ordered(self) -> list[tuple[str, Tree | Modifier]]:
        """The children in the order in which the server applies them."""
        return sorted(
            self.children.items(),
            key=lambda item: (0, int(item[0]), b"") if item[0].isdigit() else (1, 0, item[0].encode()),
        )


@dataclass
class TreeApplication:
    """The application of a tree to a document."""

    root: Document
    diff: Node
    filters: dict[str, Callable[[Any], bool]]
    positional: Callable[[str], int]
    inserting: bool
    clock: Callable[[], Any]


class Operators:
    """An update by operators, ready to be applied to any number of documents."""

    def __init__(
        self, update: Document, array_filters: list[Document] | None = None, clock: Callable[[], Any] = lambda: None
    ) -> None:
        self._clock = clock
        self._tree, self._renames = Tree(), Tree()
        self._filters = _array_filters(array_filters or [])
        used: set[str] = set()
        for name, fields in update.items():
            self._add(name, fields, used)
        if unused := set(self._filters) - used:
            raise MongoError(9, f"The array filter for identifier '{min(unused)}' was not used in the update")

    def _add(self, name: str, fields: Any, used: set[str]) -> None:
        if name not in MODIFIERS or name == "$placeholder":
            raise MongoError(
                9,
                f"Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as an array",
            )
        if not isinstance(fields, dict):
            raise MongoError(9, f"Modifiers operate on fields but we found type {type_name(fields)} instead.")
        for path, argument in fields.items():
            parts = _parts(path)
            for part in parts:
                if part.startswith("$[") and part.endswith("]") and part != "$[]":
                    used.add(part[2:-1])
                    if part[2:-1] not in self._filters:
                        raise MongoError(2, f"No array filter found for identifier '{part[2:-1]}' in path '{path}'")
            if name == "$rename":
                self._add_rename(path, argument)
                continue
            self._place(parts, MODIFIERS[name](argument, path), path)

    def _add_rename(self, path: str, to: Any) -> None:
        if not isinstance(to, str):
            raise MongoError(2, f"The 'to' field for $rename must be a string: {path}")
        if "$" in (part[:1] for part in [*_parts(path), *_parts(to)]) and any(
            part in ("$", "$[]") for part in [*_parts(path), *_parts(to)]
        ):
            raise MongoError(2, "The source and target field for $rename may not be dynamic")
        if path == to or path.startswith(to + ".") or to.startswith(path + "."):
            raise MongoError(2, f"The source and target field for $rename must not be on the same path: {path}: {to}")
        self._place(_parts(path), MODIFIERS["$placeholder"](None, path), path)
        self._place(_parts(to), MODIFIERS["$rename"](path, to), to)

    def _place(self, parts: list[str], modifier: Modifier, path: str) -> None:
        tree = self._tree
        for part in parts[:-1]:
            child = tree.children.setdefault(part, Tree())
            if not isinstance(child, Tree):
                raise MongoError(40, f"Updating the path '{path}' would create a conflict at '{part}'")
            tree = child
        if parts[-1] in tree.children:
            raise MongoError(40, f"Updating the path '{path}' would create a conflict at '{path}'")
        tree.children[parts[-1]] = modifier

    def applied(self, document: Document, *, inserting: bool = False, query: Document | None = None) -> UpdateResult:
        """The document after the update; the one given stays as it is."""
        after: Document = copy(document)
        work = TreeApplication(after, Node(), self._filters, _positional(document, query or {}), inserting, self._clock)
        _object(self._tree, after, work.diff, [], work)
        if (
            not inserting
            and "_id" in document
            and ("_id" not in after or not are_identical(document["_id"], after["_id"]))
        ):
            raise MongoError(66, "Performing an update on the path '_id' would modify the immutable field '_id'")
        diff = work.diff.document()
        return UpdateResult(after, diff, bool(diff))


def _parts(path: str) -> list[str]:
    if not path:
        raise MongoError(56, "An empty update path is not valid.")
    parts = path.split(".")
    if "" in parts:
        raise MongoError(56, f"The update path '{path}' contains an empty field name, which is not allowed.")
    if parts[0].startswith("$") and parts[0] in ("$", "$[]"):
        raise MongoError(2, f"Cannot have positional (i.e. '$') element in the first position in path '{path}'")
    return parts


def _array_filters(filters: list[Document]) -> dict[str, Callable[[Any], bool]]:
    out: dict[str, Callable[[Any], bool]] = {}
    for condition in filters:
        name = _identifier(condition)
        if name in out:
            raise MongoError(9, f"Found multiple array filters with the same top-level field name {name}")
        test = queries.compile_filter(condition)
        out[name] = lambda item, test=test, name=name: test({name: item})
    return out


def _identifier(condition: Document) -> str:
    for name, value in condition.items():
        if name in ("$and", "$or", "$nor"):
            return _identifier(value[0])
        return name.split(".")[0]
    raise MongoError(9, "Cannot use an expression without a top-level field name in arrayFilters")


def _positional(document: Document, query: Document) -> Callable[[str], int]:
    """The number of the first element of an array that the query's conditions on it let through."""

    def find(path: str) -> int:
        clauses = [
            (name, value) for name, value in flatten_conditions(query) if name == path or name.startswith(path + ".")
        ]
        found = list(queries.values(document, path.split(".")))
        items = found[0] if found and isinstance(found[0], list) else []
        for index, item in enumerate(items):
            if clauses and all(_meets_condition(name[len(path) :].lstrip("."), value, item) for name, value in clauses):
                return index
        raise MongoError(2, "The positional operator did not find the match needed from the query.")

    return find


def flatten_conditions(query: Document) -> list[tuple[str, Any]]:
    """The conditions of a query by field, those within ``$and`` among them."""
    out: list[tuple[str, Any]] = []
    for name, value in query.items():
        if name == "$and":
            for part in value:
                out += flatten_conditions(part)
        else:
            out.append((name, value))
    return out


def _meets_condition(rest: str, condition: Any, item: Any) -> bool:
    path = "x." + rest if rest else "x"
    return queries.compile_filter({path: condition})({"x": [item]})


def _object(tree: Tree, target: Any, diff: Node, path: list[str], work: TreeApplication) -> None:
    """Apply a tree to a document or an array, in place, and note in ``diff`` what it did."""
    special = [name for name in tree.children if name == "$[]" or name.startswith("$[")]
    if special and isinstance(target, list):
        _elements(tree, target, diff, path, work)
        return
    if special:
        raise MongoError(2, f"Cannot apply array updates to non-array element {'.'.join(path)}")
    for name, child in tree.ordered():
        if name == "$":
            name = str(work.positional(".".join(path)))
        _step(name, child, target, diff, path, work)


def _step(name: str, child: Tree | Modifier, target: Any, diff: Node, path: list[str], work: TreeApplication) -> None:
    here = [*path, name]
    exists = _field_exists(target, name, here)
    if isinstance(child, Modifier):
        _modify(name, child, target, diff, here, work, exists)
    elif exists:
        inner = target[int(name)] if isinstance(target, list) else target[name]
        if not isinstance(inner, dict | list):
            if _creates_field(child, work):
                raise MongoError(
                    28, f"Cannot create field '{next(iter(child.children))}' in element {{{name}: {inner}}}"
                )
            return
        below = Node(array=isinstance(inner, list))
        if isinstance(inner, list) and not all(part.isdigit() or part.startswith("$") for part in child.children):
            if _creates_field(child, work):
                raise MongoError(
                    28, f"Cannot create field '{next(iter(child.children))}' in element {{{name}: {inner}}}"
                )
            return
        _object(child, inner, below, here, work)
        if below.whole:
            diff.updates[name] = inner
        elif below.document() != ({"a": True} if below.array else {}):
            diff.children[name] = below
    else:
        made = _build_document(child, work, here)
        if made is not NOTHING:
            _create(target, name, made, diff)


def _field_exists(target: Any, name: str, here: list[str]) -> bool:
    if isinstance(target, list):
        if not name.isdigit():
            raise MongoError(28, f"Cannot create field '{name}' in element {{{'.'.join(here[:-1])}: [...]}}")
        return int(name) < len(target)
    return name in target


def _creates_field(tree: Tree | Modifier, work: TreeApplication) -> bool:
    if isinstance(tree, Modifier):
        return tree.creates and (work.inserting or tree.name != "$setOnInsert")
    return any(_creates_field(child, work) for child in tree.children.values())


def _build_document(tree: Tree, work: TreeApplication, path: list[str]) -> Any:
    """The new document for a path that does not exist yet; NOTHING when no operator below it creates anything."""
    out: Document = {}
    for name, child in tree.ordered():
        if name == "$" or name.startswith("$["):
            raise MongoError(
                2, f"The path '{'.'.join(path)}' must exist in the document in order to apply array updates."
            )
        if isinstance(child, Tree):
            value = _build_document(child, work, [*path, name])
        elif child.name == "$rename":
            value = _take_rename_source(child, work)
        else:
            value = child.initial(work) if _creates_field(child, work) else NOTHING
        if value is not NOTHING:
            out[name] = value
    return out if out else NOTHING


def _create(target: Any, name: str, value: Any, diff: Node) -> None:
    if isinstance(target, list):
        index = int(name)
        if index - len(target) > PADDING_LIMIT:
            raise MongoError(2, f"can't backfill more than {PADDING_LIMIT} elements")
        target += [None] * (index - len(target))
        target.append(value)
        diff.updates[name] = value
    else:
        target[name] = value
        diff.inserts[name] = value


def _modify(
    name: str, modifier: Modifier, target: Any, diff: Node, path: list[str], work: TreeApplication, exists: bool
) -> None:
    if modifier.name == "$placeholder" or (modifier.name == "$setOnInsert" and not work.inserting):
        return
    if modifier.name == "$rename":
        _rename(name, modifier, target, diff, work, exists)
        return
    key: Any = int(name) if isinstance(target, list) else name
    if not exists:
        value = modifier.initial(work) if modifier.creates else NOTHING
        if value is not NOTHING:
            _create(target, name, value, diff)
        return
    if modifier.name == "$unset":
        if isinstance(target, list):
            if target[key] is not None:
                target[key] = None
                diff.updates[name] = None
        else:
            del target[key]
            diff.deletes.append(name)
        return
    before = target[key]
    result = modifier.changed(before, work)
    if result.value is NOTHING or (not result.appended and not result.forced and are_identical(before, result.value)):
        return
    target[key] = result.value
    _log(name, before, result, diff)


def _log(name: str, before: Any, result: Result, diff: Node) -> None:
    if result.appended:
        below = Node(array=True)
        for index in range(len(before), len(result.value)):
            below.updates[str(index)] = result.value[index]
        diff.children[name] = below
    else:
        diff.updates[name] = result.value


def _take_rename_source(modifier: Modifier, work: TreeApplication) -> Any:
    """Take the source of a ``$rename`` out of the document."""
    holder: Any = work.root
    node, parts = work.diff, modifier.argument.split(".")
    steps = []
    for part in parts[:-1]:
        if isinstance(holder, list):
            raise MongoError(
                2, f"The source field cannot be an array element, '{modifier.argument}' in doc has an array field"
            )
        if not isinstance(holder, dict) or part not in holder:
            return NOTHING
        holder = holder[part]
        steps.append(part)
    if isinstance(holder, list):
        raise MongoError(
            2, f"The source field cannot be an array element, '{modifier.argument}' in doc has an array field"
        )
    if not isinstance(holder, dict) or parts[-1] not in holder:
        return NOTHING
    for part in steps:
        node = node.children.setdefault(part, Node())
    node.deletes.append(parts[-1])
    return holder.pop(parts[-1])


def _rename(name: str, modifier: Modifier, target: Any, diff: Node, work: TreeApplication, exists: bool) -> None:
    if isinstance(target, list):
        raise MongoError(2, "The destination field cannot be an array element")
    value = _take_rename_source(modifier, work)
    if value is NOTHING:
        return
    if exists:
        target[name] = value
        diff.updates[name] = value
    else:
        _create(target, name, value, diff)


def _elements(tree: Tree, target: list[Any], diff: Node, path: list[str], work: TreeApplication) -> None:
    """``$[]`` and ``$[name]``: the array is logged as a whole when more than one element changed."""
    changed: dict[int, Node] = {}
    for index, item in enumerate(target):
        merged = _merge_trees(tree, index, item, work)
        if merged is None:
            continue
        below = Node(array=True)
        _step(str(index), merged, target, below, path, work)
        if below.document() != {"a": True}:
            changed[index] = below
    if len(changed) > 1:
        diff.whole = True
    else:
        for below in changed.values():
            diff.updates |= below.updates
            diff.children |= below.children


def _merge_trees(tree: Tree, index: int, item: Any, work: TreeApplication) -> Tree | Modifier | None:
    found: list[Tree | Modifier] = []
    for name, child in tree.children.items():
        if name == "$[]" or name == str(index) or (name.startswith("$[") and work.filters[name[2:-1]](item)):
            found.append(child)
    if not found:
        return None
    out = found[0]
    for other in found[1:]:
        if isinstance(out, Modifier) or isinstance(other, Modifier):
            raise MongoError(40, "Update created a conflict")
        out = Tree({**out.children, **other.children})
    return out
