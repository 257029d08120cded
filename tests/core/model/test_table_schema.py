"""Table ids, columns, schemas, and the types that their texts name."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_provider_cdc.core.model.table_schema import (
    GEOMETRY,
    Column,
    ColumnDeclaration,
    TableChange,
    TableId,
    TableSchema,
    arrow_type,
    as_document,
    row_struct,
)

T = TableSchema(
    id=TableId(namespace="shop", name="t"),
    columns=(Column(name="a", type="int64", nullable=False), Column(name="b", type="string")),
    key=("a",),
)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("bool", pa.bool_()),
        ("int8", pa.int8()),
        ("int16", pa.int16()),
        ("int32", pa.int32()),
        ("int64", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date32[day]", pa.date32()),
        ("timestamp[us]", pa.timestamp("us")),
        ("timestamp[us, tz=UTC]", pa.timestamp("us", tz="UTC")),
        ("timestamp[ms]", pa.timestamp("ms")),
        ("list<item: float>", pa.list_(pa.float32())),
        (GEOMETRY, pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])),
    ],
)
def test_a_text_names_one_arrow_type(text: str, type_: pa.DataType) -> None:
    assert arrow_type(text) == type_


@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))))
def test_every_decimal_is_named_as_arrow_writes_it(digits: tuple[int, int]) -> None:
    type_ = pa.decimal128(*digits)
    assert arrow_type(str(type_)) == type_


@pytest.mark.parametrize("text", ["", "uint8", "int", "decimal128(10)", "list<item: nope>", "timestamp[h]", "bool "])
def test_a_text_that_names_no_type_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="unknown change log type"):
        arrow_type(text)


def test_a_row_struct_has_the_columns_in_order_and_a_key_struct_those_asked_for() -> None:
    assert row_struct(T) == pa.struct([("a", pa.int64()), ("b", pa.string())])
    assert row_struct(T, only=("b", "a")) == pa.struct([("b", pa.string()), ("a", pa.int64())])


def test_a_column_that_is_not_there_is_reported_with_those_that_are() -> None:
    assert T.get_column("b").type == "string"
    with pytest.raises(KeyError, match=r"shop\.t has no column 'c'; its columns are a, b"):
        T.get_column("c")


def test_only_the_version_may_differ_between_schemas_of_one_structure() -> None:
    assert T.same_structure(T.model_copy(update={"version": 7}))
    assert not T.same_structure(T.model_copy(update={"key": ()}))
    assert not T.same_structure(T.model_copy(update={"columns": T.columns[:1]}))
    wider = T.columns[1].model_copy(update={"declared": ColumnDeclaration(length=200)})
    assert not T.same_structure(T.model_copy(update={"columns": (T.columns[0], wider)}))


def test_the_catalog_is_not_part_of_a_tables_name() -> None:
    table = TableId(namespace="hr", name="emp", catalog="PDB1")
    assert str(table) == "hr.emp"
    assert table != TableId(namespace="hr", name="emp")
    assert hash(table) == hash(TableId(namespace="hr", name="emp"))


def test_the_database_of_a_table_is_its_highest_level() -> None:
    assert TableId(namespace="HR", name="EMP", catalog="PDB1").database_name == "PDB1"
    assert TableId(namespace="HR", name="EMP", catalog="PDB1").full_name == "PDB1.HR.EMP"
    assert TableId(namespace="shop", name="orders").database_name == "shop"
    assert TableId(namespace="shop", name="orders").full_name == "shop.orders"


def test_schemas_are_frozen_and_know_no_other_fields() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        T.version = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        TableSchema.model_validate({**T.model_dump(), "colour": 1})


_names = st.text(min_size=1, max_size=6)
_columns = st.builds(
    Column,
    name=_names,
    type=st.sampled_from(["int64", "string", "decimal128(10, 2)"]),
    nullable=st.booleans(),
    semantic=st.none() | _names,
    parameters=st.dictionaries(_names, _names, max_size=2),
    declared=st.builds(
        ColumnDeclaration, type_name=_names, length=st.none() | st.integers(0, 99), default=st.none() | _names,
        default_is_expression=st.booleans(), values=st.lists(_names, max_size=2).map(tuple),
    ),
)  # fmt: skip
_schemas = st.builds(
    TableSchema, id=st.builds(TableId, namespace=_names, name=_names, catalog=st.none() | _names),
    columns=st.lists(_columns, max_size=3).map(tuple), key=st.lists(_names, max_size=2).map(tuple),
    charset=st.none() | _names, version=st.integers(1, 9),
)  # fmt: skip


@given(_schemas, st.dictionaries(_names, st.none() | _names, max_size=2), st.booleans())
def test_a_change_means_the_same_after_its_way_through_json(
    schema: TableSchema, added: dict[str, str | None], exact: bool
) -> None:
    change = TableChange(type="ALTER", id=schema.id, table=schema, added=added, exact=exact)
    assert TableChange.model_validate(json.loads(json.dumps(as_document(change)))) == change


def test_structs_may_hold_anything_at_any_depth() -> None:
    inner = pa.struct([("c", pa.decimal128(3, 1)), ("d", pa.list_(pa.struct([("e", pa.timestamp("ns", tz="UTC"))])))])
    type_ = pa.struct([("a", pa.string()), ("b", pa.list_(inner)), ("f", pa.int8())])
    assert arrow_type(str(type_)) == type_
    assert arrow_type(GEOMETRY) == pa.struct([("wkb", pa.binary()), ("srid", pa.int32())])
    with pytest.raises(ValueError, match="unknown change log type 'strange'"):
        arrow_type("struct<a: strange>")
