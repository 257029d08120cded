"""Converters of users: which columns they take, the values that they give, and what is said if they fail."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc.changelog.debezium.debezium_values import column_schema
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.converters.column_converter import ConvertedColumn
from airflow_provider_cdc.core.errors import ConfigError, UnreadableValue
from airflow_provider_cdc.core.model.table_schema import NOT_CAPTURED, Column, ColumnDeclaration, TableId, TableSchema
from airflow_provider_cdc.sources.db2.config import Db2Config
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.converters import BOOLEAN
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from dev import paths
from tests.support.own_converters import own_converters

BASE = {"topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 1}
TEXT = ColumnDeclaration(jdbc_type=12, type_name="VARCHAR", length=20, default="978-1", comment="of the book")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return own_converters(tmp_path, monkeypatch)


def _filters(type_: str = "isbn", **properties: Any) -> Filters:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return Filters(MySqlConfig.parse({**BASE, "converters": "c", "c.type": type_, **named}))


def _schema(**changed: Any) -> TableSchema:
    isbn = {"name": "isbn", "type": "string", "nullable": False, "declared": TEXT}
    columns = (
        Column(name="id", type="int32", nullable=False),
        Column.model_validate({**isbn, **changed}),
        Column(name="isbn_shape", type=NOT_CAPTURED),
        Column(name="title", type="string"),
    )
    return TableSchema(id=TableId(namespace="shop", name="books"), columns=columns, key=("id",))


def _converted(filters: Filters, **changed: Any) -> ConvertedColumn:
    (converted,) = filters.find_converted_columns(_schema(**changed)).values()
    return converted


def test_a_column_that_a_converter_accepts_has_its_type_its_schema_and_its_default(own: Any) -> None:
    """The declaration of the source would give targets lengths of other values."""
    selected = _filters(c_schema_name="com.example.Isbn").select_columns(_schema())
    assert [c.type for c in selected.columns] == ["int32", "int64", "string"]
    column = selected.get_column("isbn")
    assert (column.nullable, column.semantic, column.declared.default) == (False, "com.example.Isbn", "9781")
    assert (column.declared.length, column.declared.comment) == (None, "of the book")
    schema = {"type": "int64", "optional": False, "name": "com.example.Isbn", "version": 1, "default": 9781}
    assert column_schema(column) == {**schema, "field": "isbn"}
    assert own.MADE == [{"schema.name": "com.example.Isbn"}]


@pytest.mark.parametrize(
    ("type_", "value", "schema"),
    [
        ("decimal128(8, 2)", Decimal("1.50"), {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "default": "AJY="}),
        ("date32[day]", dt.date(1970, 1, 3), {"type": "int32", "name": "io.debezium.time.Date", "default": 2}),
        ("timestamp[us]", dt.datetime(1970, 1, 1, 0, 0, 1), {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "default": 10**6}),
        ("bool", True, {"type": "boolean", "default": True}),
        ("double", 1.5, {"type": "double", "default": 1.5}),
    ],
)  # fmt: skip
def test_defaults_of_each_type_are_converted(own: Any, type_: str, value: object, schema: dict[str, Any]) -> None:
    arrow = {"decimal128(8, 2)": pa.decimal128(8, 2), "date32[day]": pa.date32(), "timestamp[us]": pa.timestamp("us")}
    own.Isbn.type, own.Isbn.convert = (
        type_,
        staticmethod(lambda values: pa.array([value] * len(values), arrow.get(type_))),
    )
    node = column_schema(_filters().select_columns(_schema()).get_column("isbn"))
    assert schema.items() <= node.items()


def test_nulls_and_rows_without_an_image_are_left_out_and_stay_null(own: Any) -> None:
    converted = _converted(_filters(), nullable=True, declared=ColumnDeclaration())
    values = pa.array(["1-1", None, "2", "of no row"])
    result = converted.convert_values(values, pa.array([False, False, False, True]))
    assert (result.to_pylist(), result.type) == ([11, None, 2, None], pa.int64())
    assert own.SEEN == [["1-1", "2"]]
    assert converted.convert_values(pa.array([None], pa.string())).to_pylist() == [None]
    assert converted.convert_values(values.slice(0, 0)).to_pylist() == []
    assert converted.convert_values(pa.array(["3", "4"])).to_pylist() == [3, 4]
    assert own.SEEN[1:] == [["3", "4"]]


@pytest.mark.parametrize(
    ("convert", "why"),
    [
        (lambda v: v, "it returns an array of string instead of an array of int64"),
        (lambda v: v.to_pylist(), "it returns a list instead of an array of int64"),
        (lambda v: pa.array([1], pa.int64()), "it returns 1 values for 2"),
        (lambda v: pa.array([1, None], pa.int64()), "it returns null for a column that is NOT NULL"),
        (lambda v: 1 // 0, "it raises ZeroDivisionError"),
        (lambda v: pa.array(["x"]).cast(pa.int64()), "it raises ArrowInvalid"),
    ],
)
def test_values_that_do_not_fit_stop_the_table_and_name_the_converter(
    own: Any, convert: Callable[[pa.Array], Any], why: str
) -> None:
    own.Isbn.convert = staticmethod(convert)
    converted = _converted(_filters(), declared=ColumnDeclaration())
    with pytest.raises(UnreadableValue, match=r"The converter c\.type=isbn .* of column isbn: " + why) as e:
        converted.convert_values(pa.array(["1", "2"]))
    assert (e.value.table, e.value.where) == ("shop.books", "shop.books.isbn")
    assert e.value.safe
    assert e.value.remedy


def test_a_converter_may_declare_that_its_results_can_be_null(own: Any) -> None:
    own.Isbn.convert, own.Isbn.nullable = staticmethod(lambda v: pa.nulls(len(v), pa.int64())), True
    converted = _converted(_filters())
    assert converted.convert_values(pa.array(["1"])).to_pylist() == [None]
    assert (converted.column.nullable, converted.column.declared.default) == (True, None)


def test_a_default_that_cannot_be_converted_is_left_out(own: Any, caplog: pytest.LogCaptureFixture) -> None:
    wrong = TEXT.model_copy(update={"default": "none"})
    assert _converted(_filters(), declared=wrong).column.declared.default is None
    assert "The default of shop.books.isbn is left out." in caplog.text
    computed = TEXT.model_copy(update={"default_is_expression": True})
    assert _converted(_filters(), declared=computed).column.declared.default is None
    assert _converted(_filters(), type="int32", declared=wrong).column.declared.default is None


def test_the_first_converter_that_accepts_a_column_counts(own: Any) -> None:
    three = _filters("isbn", converters="c, d, e", c_column="title", d_type="isbn", d_column="isbn", e_type="isbn")
    converted = three.find_converted_columns(_schema())
    assert {name: column.setting for name, column in converted.items()} == {
        "isbn": "d.type=isbn",
        "title": "c.type=isbn",
    }


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        ("broken", "it raises RuntimeError: no licence"),
        ("other", "it returns a Other, which is not a ColumnConverter"),
        ("gone", "it raises AttributeError"),
        ("plain", "added_own:SEEN is not callable"),
    ],
)
def test_a_converter_that_cannot_be_used_is_named(own: Any, type_: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"c\.type={type_} cannot be used: {why}") as e:
        _filters(type_).find_converted_columns(_schema())
    assert e.value.safe
    assert "the package with this entry point" in (e.value.remedy or "")


@pytest.mark.parametrize("type_", ["int65", "null", "decimal128(40, 2)", "decimal128(4, 5)", "timestamp[ns]"])
def test_a_type_that_events_do_not_have_is_named(own: Any, type_: str) -> None:
    own.Isbn.type = type_
    with pytest.raises(ConfigError, match=r"for shop\.books\.isbn cannot be used: .* is not a type of events"):
        _filters().find_converted_columns(_schema())


def test_a_schema_name_of_ones_own_is_refused_where_values_have_one(own: Any) -> None:
    own.Price.find_conversion = lambda self, table, column: own.Conversion("date32[day]", self.parse, "com.example.Day")
    with pytest.raises(ConfigError, match=r"have the schema io\.debezium\.time\.Date and cannot have another one"):
        _filters("price").find_converted_columns(_schema())
    own.Price.find_conversion = lambda self, table, column: "int64"
    with pytest.raises(ConfigError, match=r"find_conversion returns a str, which is not a Conversion"):
        _filters("price").find_converted_columns(_schema())


def test_columns_of_keys_and_hidden_columns_are_not_converted(own: Any) -> None:
    with pytest.raises(ConfigError, match=r"c\.type=isbn accepts shop\.books\.id, which is part of the key"):
        _filters(c_column="id").find_converted_columns(_schema())
    with pytest.raises(ConfigError, match=r"accepts shop\.books\.isbn, which is masked or truncated"):
        _filters(column_mask_with_3_chars=r"shop\.books\.isbn").find_converted_columns(_schema())


def test_a_package_that_no_definition_names_is_not_loaded(own: Any) -> None:
    del sys.modules["added_own"]
    assert Filters(MySqlConfig.parse(BASE)).find_converted_columns(_schema()) == {}
    unnamed = Filters(MySqlConfig.parse({**BASE, "converters": "b", "b.type": BOOLEAN}))
    assert unnamed.find_converted_columns(_schema()) == {}
    assert "added_own" not in sys.modules
    assert _filters().find_converted_columns(_schema())
    assert "added_own" in sys.modules


def test_the_example_of_the_page_works(own: Any) -> None:
    page = (paths.ROOT / "docs" / "reference" / "custom-converters.md").read_text()
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    own.Isbn = names["Isbn"]
    properties = dict(line.split("=") for line in page.partition("```\n")[2].partition("```")[0].split())
    converted = Filters(MySqlConfig.parse({**BASE, **properties})).find_converted_columns(_schema())
    assert [*converted] == ["isbn"]
    assert converted["isbn"].convert_values(pa.array(["978-3-16-148410-0"])).to_pylist() == [9783161484100]


@pytest.mark.parametrize("config", [MySqlConfig, OracleConfig, Db2Config])
def test_a_converter_has_the_name_of_an_entry_point_and_options_of_its_own(own: Any, config: Any) -> None:
    """A configuration of Debezium's stays as it is, if the package has the name of its Java class."""
    base = {**BASE, "database.dbname": "d"} if config is not MySqlConfig else BASE
    base = {k: v for k, v in base.items() if config is MySqlConfig or k != "database.server.id"}
    parsed = config.parse({**base, "converters": "c", "c.type": "com.example.Isbn", "c.schema.name": "x"})
    assert parsed.column_rules().converters == ({"name": "c", "type": "com.example.Isbn", "schema.name": "x"},)
    assert config.parse({**parsed.to_public_properties(), **base}).converters == parsed.converters
    message = (
        r"c\.type: 'com\.example\.Mine' is not a known type; Java classes cannot be loaded: write the converter in Python\. "
        r"Valid values are: .*com\.example\.Isbn, .*isbn, .*\(entry points of group airflow_provider_cdc\.converters\)"
    )
    with pytest.raises(ConfigError, match=message):
        config.parse({**base, "converters": "c", "c.type": "com.example.Mine"})
