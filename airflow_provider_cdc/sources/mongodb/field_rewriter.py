"""The texts of documents, without fields that are left out and with those that are called otherwise."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema, arrow_type
from airflow_provider_cdc.sources.mongodb.collection_tables import UPDATE_DESCRIPTION, schema_of
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from airflow_provider_cdc.sources.mongodb.config_enums import FullUpdateType
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments, BsonValues
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import text_value
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_values
from airflow_provider_cdc.sources.mongodb.documents.id_field_first import id_first
from airflow_provider_cdc.sources.mongodb.field_rules import FieldRule

log = logging.getLogger(__name__)

_DESCRIBED: Final = UPDATE_DESCRIPTION.type
_FIXED: Final = {1: 8, 6: 0, 7: 12, 8: 1, 9: 8, 10: 0, 16: 4, 17: 8, 18: 8, 19: 16, 255: 0, 127: 0}
_STRING, _DOCUMENT, _ARRAY = 2, 3, 4


class FieldRewriter:
    """Makes texts of the documents of one connector."""

    def __init__(self, config: MongoDbConfig) -> None:
        self._config, self.signals = config, config.signal_data_collection
        from_image = config.capture_mode_full_update_type is FullUpdateType.POST_IMAGE
        self.before_by_image, self.after_by_image = (
            config.capture_mode.pre_image,
            config.capture_mode.has_full_document and from_image,
        )
        self._rules: dict[TableId, tuple[FieldRule, ...]] = {}
        self._reported: set[TableId] = set()

    def as_columns(self, table: TableId) -> bool:
        """Check whether the documents of a collection become columns, by the configuration."""
        return self._config.as_columns(table)

    def find_rules(self, table: TableId) -> tuple[FieldRule, ...]:
        """Return the rules about a collection, in their order."""
        if table not in self._rules:
            self._rules[table] = self._config.field_rules(table)
        return self._rules[table]

    def format_documents(self, table: TableId, documents: BsonValues) -> pa.StringArray:
        """Format the texts of documents; null where there is none."""
        if rules := self.find_rules(table):
            documents = _each(documents, lambda raw: rewrite_document(raw, rules))
        return self._rendered(table, id_first(documents)).cast(pa.string())

    def _rendered(self, table: TableId, values: BsonValues) -> pa.LargeStringArray:
        """Texts of values; bytes that are not UTF-8 become U+FFFD, as Java reads them, and the log says so once."""
        try:
            return format_values(values)
        except DamagedDocument as e:
            if not e.not_utf8:
                raise
        if table not in self._reported:
            self._reported.add(table)
            log.warning("Documents of %s contain texts that are not valid UTF-8: invalid bytes become U+FFFD.", table)
        return format_values(values, replace_not_utf8=True)

    def build_bodies(
        self, table: TableId, documents: BsonValues, *, columns: bool
    ) -> tuple[TableSchema, pa.StringArray | pa.BinaryArray]:
        """Build the values that stand for documents in rows, and the schema of these.

        It is texts, or the bytes of documents that become columns.

        :param columns: whether they do
        """
        if not columns:
            return schema_of(self._config, table), self.format_documents(table, documents)
        from airflow_provider_cdc.sources.mongodb.columns.row_conversion import build_bytes_schema

        if rules := self.find_rules(table):
            documents = _each(documents, lambda raw: rewrite_document(raw, rules))
        return build_bytes_schema(table), documents.to_binary().cast(pa.binary())

    def build_update_descriptions(
        self,
        table: TableId,
        updated: BsonValues,
        removed: pa.ListArray,
        truncated: pa.ListArray,
        is_update: npt.NDArray[np.bool_],
    ) -> pa.StructArray:
        """``updateDescription`` of events; null of those that are no updates."""
        rules = self.find_rules(table)
        if rules:
            updated = _each(updated, lambda raw: rewrite_document(raw, rules, dotted=True))
            removed = pa.array([_names(names, rules) for names in removed.to_pylist()], removed.type)
            truncated = pa.array([_arrays(arrays, rules) for arrays in truncated.to_pylist()], truncated.type)
        type_ = arrow_type(_DESCRIBED)
        columns = [
            _none_if_empty(removed).cast(type_.field("removedFields").type),
            self._rendered(table, updated).cast(pa.string()),
            _none_if_empty(truncated).cast(type_.field("truncatedArrays").type),
        ]
        return pa.StructArray.from_arrays(columns, fields=[*type_], mask=pa.array(~is_update))

    def format_ambiguous_paths(self, table: TableId, paths: BsonValues) -> pa.StringArray:
        """``disambiguatedPaths`` of events as text: the paths are called as those of :meth:`build_update_descriptions`."""
        if rules := self.find_rules(table):
            paths = _each(paths, lambda raw: _paths(raw, rules))
        return self._rendered(table, paths).cast(pa.string())


def rewrite_document(document: bytes, rules: Sequence[FieldRule], *, dotted: bool = False) -> bytes:
    """Return a document without the fields that rules leave out, and with those that they rename.

    :param dotted: names are paths with dots, as ``updatedFields`` has them
    """
    for rule in rules:
        document = _applied(document, rule.path, rule.new_name, dotted)
    return document


def _applied(document: bytes, path: tuple[str, ...], new: str | None, dotted: bool) -> bytes:
    out: list[bytes] = []
    changed = False
    for kind, name, value in _elements(document):
        parts = _without_indices(name, path) if dotted else (name,)
        if parts[: len(path)] == path:  # the field, or one within it
            changed = True
            if new is not None:
                out.append(_element(kind, _renamed_path(name, path, new, dotted), value))
        elif path[: len(parts)] == parts and kind in (_DOCUMENT, _ARRAY):
            inner = _within(kind, value, path[len(parts) :], new)
            changed |= inner != value
            out.append(_element(kind, name, inner))
        else:
            out.append(_element(kind, name, value))
    return _document(out) if changed else document


def _within(kind: int, value: bytes, path: tuple[str, ...], new: str | None) -> bytes:
    if kind == _DOCUMENT:
        return _applied(value, path, new, dotted=False)
    items = [
        _element(k, name, _within(k, inner, path, new) if k in (_DOCUMENT, _ARRAY) else inner)
        for k, name, inner in _elements(value)
    ]
    return _document(items)


def _renamed_path(name: str, path: tuple[str, ...], new: str, dotted: bool) -> str:
    if not dotted:
        return new
    parts, matched = name.split("."), 0
    for i, part in enumerate(parts):
        if part.isdigit() and (matched >= len(path) or path[matched] != part):
            continue
        matched += 1
        if matched == len(path):
            parts[i] = new
            break
    return ".".join(parts)


def _without_indices(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of a path, without positions in arrays.

    The path of a rule does not have these: digits that it has are the name of a field.
    """
    remaining: list[str] = []
    for part in name.split("."):
        if not remaining or not part.isdigit() or path[len(remaining) : len(remaining) + 1] == (part,):
            remaining.append(part)
    return tuple(remaining)


def _names(names: list[str] | None, rules: Sequence[FieldRule]) -> list[str] | None:
    if names is None:
        return None
    new_names = []
    for name in names:
        new_name: str | None = name
        for rule in rules:
            if new_name is not None and _without_indices(new_name, rule.path)[: len(rule.path)] == rule.path:
                new_name = None if rule.new_name is None else _renamed_path(new_name, rule.path, rule.new_name, True)
        if new_name is not None:
            new_names.append(new_name)
    return new_names


def _paths(paths: bytes, rules: Sequence[FieldRule]) -> bytes:
    """Paths by the names that rules give them, and the meaning of each of them by these names."""
    elements = []
    for kind, path, parts in _elements(paths):
        if named := _names([path], rules):
            pieces = list(zip(path.split("."), named[0].split("."), strict=True))
            elements.append(_element(kind, named[0], _document(_renamed_parts(_elements(parts), pieces))))
    return _document(elements)


def _renamed_parts(parts: list[tuple[int, str, bytes]], renamed: list[tuple[str, str]]) -> list[bytes]:
    """Return the parts of a path.

    :param renamed: for each of its pieces between dots, how it was called and how it is
    """
    elements, at = [], 0
    for kind, name, value in parts:
        pieces = 1 + (value[4:-1].count(b".") if kind == _STRING else 0)
        new = ".".join(piece for _, piece in renamed[at : at + pieces]).encode("utf-8", "surrogateescape")
        at += pieces
        elements.append(_element(kind, name, text_value(new) if kind == _STRING else value))
    return elements


def _arrays(arrays: list[dict[str, Any]] | None, rules: Sequence[FieldRule]) -> list[dict[str, Any]] | None:
    if arrays is None:
        return None
    rewritten = []
    for array in arrays:
        if names := _names([array["field"]], rules):
            rewritten.append(array | {"field": names[0]})
    return rewritten


def _none_if_empty(lists: pa.ListArray) -> pa.ListArray:
    """Replace empty lists by null.

    An update that cuts no array has no list of such, and none of removed fields (spec MG-129, MG-130).

    The lists share their values with the given ones: ``pc.if_else`` would copy them, which took an eighth of a capture.
    """
    empty = np.diff(np.asarray(lists.offsets)) == 0
    return pa.ListArray.from_arrays(lists.offsets, lists.values, mask=pa.array(empty | np.asarray(lists.is_null())))


def _each(values: BsonValues, change: Any) -> BsonValues:
    """Values of which each document is another."""
    raw: list[bytes] = []
    for i in range(len(values)):
        raw.append(change(values.read_bytes(i)) if values.kinds[i] == _DOCUMENT else b"\5\0\0\0\0")
    documents = BsonDocuments.of_list(raw).document_values
    kinds = np.where(values.kinds == _DOCUMENT, values.kinds, 0).astype(np.uint8)
    return BsonValues(documents.buf, kinds, documents.starts, documents.ends)


def _elements(document: bytes) -> list[tuple[int, str, bytes]]:
    elements, at, end = [], 4, len(document) - 1
    while at < end:
        kind = document[at]
        stop = document.index(b"\0", at + 1)
        name = document[at + 1 : stop].decode("utf-8", "surrogateescape")
        size = _size(kind, document, stop + 1)
        elements.append((kind, name, document[stop + 1 : stop + 1 + size]))
        at = stop + 1 + size
    return elements


def _size(kind: int, document: bytes, at: int) -> int:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == 11:  # two texts without lengths
        pattern = document.index(b"\0", at)
        return document.index(b"\0", pattern + 1) + 1 - at
    length: int = struct.unpack_from("<i", document, at)[0]
    if kind in (2, 13, 14):
        return length + 4
    if kind == 5:
        return length + 5
    if kind == 12:
        return length + 16
    return length  # documents, arrays, code with scope


def _element(kind: int, name: str, value: bytes) -> bytes:
    return bytes([kind]) + name.encode("utf-8", "surrogateescape") + b"\0" + value


def _document(elements: list[bytes]) -> bytes:
    body = b"".join(elements) + b"\0"
    return struct.pack("<i", len(body) + 4) + body
