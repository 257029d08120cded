"""Documents put together again from rows of columns, without the code that took them apart.

A *leaf* is a value of a document with its path, as what its text in extended JSON is made of: numbers stay the texts that they are, so that no two values look alike.
Documents whose fields are columns are no leaves, unless they are empty.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from airflow_provider_cdc.core.model.table_schema import TableSchema
from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments
from airflow_provider_cdc.sources.mongodb.documents.bson_tree import parse_elements
from airflow_provider_cdc.sources.mongodb.documents.extended_json import format_keys, format_values
from airflow_provider_cdc.sources.mongodb.kernels import bson_lengths as k
from dev.java_json.random_bson import encode_document

Path = tuple[str, ...]
Leaves = Counter[tuple[Path, Any]]
RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse_pairs(text: str) -> Any:
    """Extended JSON as pairs and lists; numbers as the texts that they are, but whole ones and those with a point stay distinguishable."""
    return json.loads(
        text,
        object_pairs_hook=tuple, parse_int=lambda t: ("int", t), parse_constant=lambda t: ("float", t),
        parse_float=lambda t: ("float", struct.pack("<d", float(t)).hex()),
    )  # fmt: skip


def leaves_of(raw: bytes, depth: int) -> Leaves:
    """Return the leaves of a document, without its key. 32 and 64 bits are alike where they are columns."""
    return Counter(_iterate_leaves(raw, (), depth))


def _iterate_leaves(raw: bytes, within: Path, depth: int) -> Iterator[tuple[Path, Any]]:
    for element in parse_elements(raw):
        path, value = (*within, element.name.decode()), element.encode_bson()
        if path == ("_id",):
            continue
        if element.kind == k.DOCUMENT and len(path) < depth and len(value) > 5:
            yield from _iterate_leaves(value, path, depth)
            continue
        one = BsonDocuments.of_list([encode_document({"v": (element.kind, value)})]).read_field(b"v")
        text = format_values(one, null_as_text=True)[0].as_py()
        yield path, _long_value(parse_pairs(text)) if element.kind == k.INT64 else _freeze_value(parse_pairs(text))


def leaves_of_row(row: dict[str, Any], schema: TableSchema, raw: bytes, depth: int) -> Leaves:
    """Return the leaves in the columns of a row and in its rest.

    :param raw: the document itself, which distinguishes documents in the rest from other values that are written as such
    """
    found: Leaves = Counter()
    for column in schema.columns[2:]:
        if (value := row[column.name]) is not None:
            path = tuple(json.loads(column.declared.type_expression))
            found[path, _freeze_value(_value(column.declared.type_name, value))] += 1
    if row["_rest"] is not None:
        found.update(_of_rest(parse_pairs(row["_rest"]), (), raw, depth))
    return found


def assert_same_documents(rows: Iterable[dict[str, Any]], schema: TableSchema, collection: Any, depth: int) -> None:
    """Assert that rows have the documents of a collection, each value with its type."""
    raw = [bytes(d.raw) for d in collection.with_options(RAW).find()]
    names = format_keys(BsonDocuments.of_list(raw).read_field(b"_id")).to_pylist() if raw else []
    there, found = dict(zip(names, raw, strict=True)), {row["_id"]: row for row in rows}
    assert found.keys() == there.keys()
    for key, document in there.items():
        assert leaves_of_row(found[key], schema, document, depth) == leaves_of(document, depth), key


def _of_rest(pairs: Any, within: Path, raw: bytes, depth: int) -> Iterator[tuple[Path, Any]]:
    original = {e.name.decode(): e for e in parse_elements(raw)}
    for name, value in pairs:
        path, element = (*within, name), original[name]
        if element.kind == k.DOCUMENT and len(path) < depth and value != ():
            yield from _of_rest(value, path, element.encode_bson(), depth)
        else:
            yield path, _long_value(value) if element.kind == k.INT64 else _freeze_value(value)


def _long_value(long: Any) -> Any:
    return ("int", dict(long)["$numberLong"])


def _value(form: str, value: Any) -> Any:
    match form:
        case "bool":
            return bool(value)  # SQLite has none
        case "long":
            return ("int", str(value))
        case "double":
            return ("float", struct.pack("<d", value).hex())
        case "date":
            value = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
            value = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return (("$date", ("int", str((value - _EPOCH) // dt.timedelta(milliseconds=1)))),)
        case "objectid":
            return (("$oid", value),)
        case "bindata":
            return (("$binary", base64.b64encode(value).decode()), ("$type", "00"))
        case "uuid":
            return (("$binary", base64.b64encode(uuid.UUID(value).bytes).decode()), ("$type", "04"))
        case "decimal":
            return (("$numberDecimal", value),)
        case "json":
            return parse_pairs(value)
        case _:
            return value


def _freeze_value(value: Any) -> Any:
    """Lists as something that can be counted; pairs stay what they are."""
    if isinstance(value, list):
        return ("list", tuple(map(_freeze_value, value)))
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return tuple((name, _freeze_value(inner)) for name, inner in value)
    return value
