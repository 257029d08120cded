"""Documents as columns: every value can be got back, and a table only ever gets more columns."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import ConfigError, UnreadableValue
from airflow_provider_cdc.core.model.log_items import READ, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.sources.mongodb.columns.row_conversion import ColumnTables, build_bytes_schema
from airflow_provider_cdc.sources.mongodb.config import MongoDbConfig
from dev.java_json.random_bson import document, encode_document
from tests.support.sources.mongodb.mongodb_columns import leaves_of, leaves_of_row

TABLE = TableId(namespace="shop", name="orders")
INT, LONG, STRING, DOC, NULL, DOUBLE, DATE = 0x10, 0x12, 0x02, 0x03, 0x0A, 0x01, 0x09


def config(**properties: Any) -> MongoDbConfig:
    named = {name.replace("__", ".").replace("_", "."): value for name, value in properties.items()}
    given = {"topic.prefix": "t", "mongodb.connection.string": "localhost", "document.columns.list": r"shop\.orders"}
    return MongoDbConfig.parse(given | named)


class Rows:
    """A table that documents go into."""

    def __init__(self, validator: Any = None, **properties: Any) -> None:
        self.tables = ColumnTables(config(**properties), lambda _: validator)
        self.schema: TableSchema | None = None

    def put(self, *documents: bytes) -> list[dict[str, Any]]:
        """The rows of documents; keeps what the table has then."""
        n = len(documents)
        images = pa.StructArray.from_arrays(
            [pa.array(map(str, range(n))), pa.array(documents, pa.binary())], ["_id", "document"]
        )
        zeros = np.zeros(n, np.int64)
        rows = RowBlock(
            build_bytes_schema(TABLE), np.full(n, READ, np.int8), None, images, np.arange(n), None, zeros, {}
        )
        found = self.tables.convert_rows(rows, self.schema)
        self.schema = found.table
        assert found.after is not None
        found.after.validate(full=True)
        return found.after.to_pylist()  # type: ignore[no-any-return]

    @property
    def names(self) -> list[str]:
        assert self.schema is not None
        return list(self.schema.column_names[2:])


def integer(value: int) -> tuple[int, bytes]:
    return INT, struct.pack("<i", value)


def long(value: int) -> tuple[int, bytes]:
    return LONG, struct.pack("<q", value)


def double(value: float) -> tuple[int, bytes]:
    return DOUBLE, struct.pack("<d", value)


def date(ms: int) -> tuple[int, bytes]:
    return DATE, struct.pack("<q", ms)


def string(text: str) -> tuple[int, bytes]:
    return STRING, struct.pack("<i", len(text.encode()) + 1) + text.encode() + b"\0"


def encode_nested(**fields: tuple[int, bytes]) -> tuple[int, bytes]:
    return DOC, encode_document(fields)


NOTHING = (NULL, b"")


@pytest.mark.parametrize(("depth", "most"), [(1, 500), (1, 4), (2, 500), (3, 12), (8, 500), (2, 0)])
def test_every_value_of_random_documents_can_be_got_back(depth: int, most: int) -> None:
    """Documents of all types, with conflicts of types, come in blocks of one to many, and find what those before have left."""
    random = Random(depth * 1000 + most)
    table = Rows(document_columns_depth=depth, document_columns_max=most)
    for _ in range(40):
        documents = [document(random) for _ in range(random.choice((1, 3, 20)))]
        before = table.schema.columns if table.schema is not None else ()
        rows = table.put(*documents)
        assert table.schema is not None
        assert table.schema.columns[: len(before)] == before
        assert len(table.names) <= most
        assert len({name.lower() for name in table.schema.column_names}) == len(table.schema.column_names)
        assert all(len(name.encode()) <= 60 for name in table.schema.column_names)
        for row, raw in zip(rows, documents, strict=True):
            assert leaves_of_row(row, table.schema, raw, depth) == leaves_of(raw, depth)
        if random.random() < 0.3:  # another run, which knows what the schema history has
            table.tables = Rows(document_columns_depth=depth, document_columns_max=most).tables
            table.schema = TableSchema.model_validate_json(table.schema.model_dump_json())
    assert len(table.names) == most or most == 500


def test_a_form_of_values_has_a_column_and_nulls_are_in_the_rest() -> None:
    table = Rows()
    first = encode_document({"_id": integer(1), "n": integer(5), "s": string("x"), "gone": NOTHING})
    second = encode_document({"n": long(2**40), "s": integer(1), "d": double(-0.0), "t": date(1_700_000_000_123)})
    third = encode_document(
        {"n": double(0.5), "d": double(1.5), "t": date(-(2**62)), "sub": encode_nested(a=integer(1))}
    )
    rows = table.put(first, second, third)
    assert table.names == ["n", "s", "s__long", "d", "t", "n__double", "d__double", "t__json", "sub"]
    shown = [{name: value for name, value in row.items() if value is not None} for row in rows]
    moment = shown[1].pop("t")
    assert moment.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert shown == [
        {"_id": "0", "n": 5, "s": "x", "_rest": '{"gone": null}'},
        {"_id": "1", "n": 2**40, "s__long": 1, "d": "-0.0"},
        {
            "_id": "2",
            "n__double": 0.5,
            "d__double": 1.5,
            "t__json": '{"$date": -4611686018427387904}',
            "sub": '{"a": 1}',
        },
    ]


def test_a_field_that_is_there_twice_is_there_twice() -> None:
    raw = encode_document({"a": integer(1)})
    twice = struct.pack("<i", 19) + 2 * raw[4:-1] + b"\0"
    (row,) = Rows().put(twice)
    assert (row["a"], row["_rest"]) == (1, '{"a": 1}')


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (("a b", "a_b", "a.b", "A_B"), ["a_b", "a_b__2", "a_b__3", "A_B__4"]),
        (("_rest", "_ID", ""), ["_rest__2", "_ID__2", "_"]),
        (("x" * 90, "x" * 91), ["x" * 60, "x" * 57 + "__2"]),
        (("_metadata", "FILEPATH", "_pos"), ["_metadata__2", "FILEPATH__2", "_pos__2"]),
        (("é" * 40, "${x}"), ["é" * 30, "__x_"]),
    ],
)
def test_names_of_columns_are_those_of_the_fields_as_far_as_all_targets_take_them(
    fields: tuple[str, ...], names: list[str]
) -> None:
    table = Rows()
    (row,) = table.put(encode_document({name: integer(number) for number, name in enumerate(fields)}))
    assert table.names == names
    assert [row[name] for name in names] == [*range(len(fields))]


def test_fields_without_end_do_not_end_memory() -> None:
    """Keys that are data: after the last column, names are not learned any more."""
    table = Rows(document_columns_max=10, document_columns_depth=2)
    for block in range(3):
        documents = [
            encode_document({f"k{block}_{i}": encode_nested(**{f"x{i}": NOTHING}), f"n{i}": integer(i)})
            for i in range(300)
        ]
        rows = table.put(*documents)
    assert len(table.names) == 10
    assert rows[299]["_rest"] == '{"k2_299": {"x299": null},"n299": 299}'


def test_a_schema_declares_columns_in_its_order_and_closes_the_table() -> None:
    text = """{"bsonType": "object", "additionalProperties": false, "properties": {"_id": {}, "total": {"bsonType": ["null", "decimal", "int"]},
        "who": {"bsonType": "object", "properties": {"name": {"type": "string"}}}, "tags": {"bsonType": "array"}, "n": {"bsonType": "number"}}}"""
    table = Rows(**{"document.columns.schema.shop.orders": text, "document.columns.depth": 2})
    assert table.tables.resolve_schema(TABLE).column_names[2:] == ("total", "total__long", "who_name", "tags")
    (row,) = table.put(
        encode_document(
            {"total": integer(1), "new": integer(2), "who": encode_nested(name=string("Ann"), age=integer(7))}
        )
    )
    assert {name: row[name] for name in row if row[name] is not None} == {
        "_id": "0", "_rest": '{"new": 2,"who": {"age": 7}}', "total__long": 1, "who_name": "Ann",
    }  # fmt: skip
    assert table.schema == table.tables.resolve_schema(TABLE)


def test_the_validator_declares_columns_where_it_is_named() -> None:
    validator = {"properties": {"b": {"bsonType": "string"}}}
    table = Rows(validator, **{"document.columns.schema.shop.orders": "validator"})
    table.put(encode_document({"a": integer(1)}))
    assert table.names == ["b", "a"]
    table = Rows(validator)
    table.put(encode_document({"a": integer(1)}))
    assert table.names == ["a"]


def test_a_comparison_gives_tables_the_columns_that_they_have_elsewhere() -> None:
    one, other = Rows(), Rows()
    one.put(encode_document({"a": integer(1)}), encode_document({"a": string("x")}))
    assert one.schema is not None
    other.tables.adopt_columns([one.schema])
    (row,) = other.put(encode_document({"a": string("x"), "b": integer(1)}))
    assert other.names == ["a", "a__string", "b"]
    assert (row["a"], row["a__string"]) == (None, "x")


def test_a_damaged_document_is_an_error_that_names_the_collection() -> None:
    with pytest.raises(UnreadableValue, match=r"shop\.orders.*a boolean is neither"):
        Rows().put(encode_document({"a": integer(1)}), encode_document({"a": (0x08, b"\2")}))


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"capture.mode": "change_streams"}, "change_streams_update_full"),
        ({"capture.mode": "change_streams_with_pre_image"}, "change_streams_update_full"),
        ({"document.columns.schema.shop.others": "validator"}, "document.columns.list does not name"),
        ({"document.columns.schema.shop.orders": "[]"}, "not a document"),
        ({"document.columns.schema.shop.orders": '{"properties": {"a": {"bsonType": "intt"}}}'}, "intt"),
        ({"document.columns.depth": 0}, "document.columns.depth"),
    ],
)
def test_what_cannot_be_is_refused(properties: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**properties)
    assert says in str(refused.value)


def test_signals_are_no_columns() -> None:
    found = config(**{"document.columns.list": r"shop\..*", "signal.data.collection": "shop.signals"})
    assert found.as_columns(TABLE)
    assert not found.as_columns(TableId(namespace="shop", name="signals"))
    assert not found.as_columns(TableId(namespace="other", name="orders"))
