"""Extended JSON as variants: what MongoDB's Java library has written of random documents over every type is read back by Spark's own readers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_provider_cdc.targets.lake.spark_releases.python_features import VARIANT_TYPE
from airflow_provider_cdc.targets.lake.types.variant_decoder import DamagedVariant, decode_variant
from airflow_provider_cdc.targets.lake.types.variant_encoder import NotExtendedJson, VariantEncoder
from airflow_provider_cdc.targets.lake.types.variant_spark_udfs import as_text, as_variant
from dev import paths
from tests.support.sources.mongodb.variants import are_identical, expected_value, read

pytestmark = pytest.mark.skipif(VARIANT_TYPE is None, reason="this Spark has no VARIANT")
RECORDED = paths.ROOT / "tests" / "data" / "mongodb" / "java-json.jsonl.zst"
AMBIGUOUS = re.compile(r'"\$date": \{"\$number(Int|Long)": "-?\d+"\}')
"""A document with a field of this name alone: one of the two forms does not tell it from a date."""


@pytest.fixture(scope="module")
def recorded_values() -> list[dict[str, str]]:
    """``strict`` is what the change log has, ``canonical`` says the type of every value."""
    data = zstandard.ZstdDecompressor().stream_reader(RECORDED.read_bytes()).read()
    found = [json.loads(line) for line in data.decode().split("\n")]
    clear = [
        one
        for one in found
        if not (AMBIGUOUS.search(one["strict"]) or "Int" in "".join(AMBIGUOUS.findall(one["canonical"])))
    ]
    assert len(clear) > 1400
    return clear


def test_every_value_is_read_back_by_pyspark(recorded_values: list[dict[str, str]]) -> None:
    encode = VariantEncoder().encode
    for one in recorded_values:
        found = read(T.VariantVal(*encode(one["strict"])))
        assert are_identical(found, expected_value(one["canonical"], one["strict"])), one["strict"]


@pytest.mark.spark
def test_every_value_is_read_back_by_the_jvm_and_as_text(
    spark: SparkSession, recorded_values: list[dict[str, str]]
) -> None:
    recorded_values = recorded_values[::4]
    texts = [one["strict"] for one in recorded_values]
    frame = spark.createDataFrame(list(enumerate(texts)), "i int, t string").select(
        "i", as_variant(F.col("t")).alias("v")
    )
    rows = (
        frame.select("i", "v", F.to_json("v").alias("json"), as_text(F.col("v")).alias("text")).orderBy("i").collect()
    )
    encode = VariantEncoder().encode
    for row, one in zip(rows, recorded_values, strict=True):
        ours = encode(one["strict"])
        assert (bytes(row.v.value), bytes(row.v.metadata)) == ours
        assert row.text == decode_variant(*ours)
        # its texts of numbers, times and bytes are its own; the rest is compared
        assert _shape(json.loads(row.json)) == _shape(expected_value(one["canonical"], one["strict"])), one["strict"]


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return value if isinstance(value, bool) or value is None else "value"


FIELDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    lambda inner: (
        st.lists(inner, max_size=40)
        | st.dictionaries(FIELDS.filter(lambda name: not name.startswith("$")), inner, max_size=20)
    ),
    max_leaves=60,
)


@given(st.dictionaries(FIELDS.filter(lambda name: not name.startswith("$")), VALUES, max_size=20))
@settings(max_examples=100, deadline=None)
def test_documents_of_any_size_are_read_back(document: dict[str, Any]) -> None:
    encoded = VariantEncoder().encode(json.dumps(document))
    assert are_identical(read(T.VariantVal(*encoded)), document)
    assert are_identical(json.loads(decode_variant(*encoded)), document)


@pytest.mark.parametrize("number", [0, 1, 255, 256, 300, 65_535, 65_536, 70_000])
def test_widths_of_counts_numbers_and_offsets(number: int) -> None:
    document = {"names": {f"n{i}": i for i in range(number)}, "list": list(range(number)), "text": "x" * number}
    encoded = VariantEncoder().encode(json.dumps(document))
    assert json.loads(decode_variant(*encoded)) == document
    if number < 1000:  # pyspark's reader takes long
        assert read(T.VariantVal(*encoded)) == document


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("-2147483648", "5"), ("2147483647", "5"), ('{"$numberLong": "5"}', "6"), ('{"$numberLong": "-9223372036854775808"}', "6"),
        ('{"$numberLong": "05"}', "{"), ('{"$numberLong": "9223372036854775808"}', "{"), ('{"$numberLong": 5}', "{"),
        ('{"$numberDecimal": "999999999"}', "8"), ('{"$numberDecimal": "1000000000"}', "9"), ('{"$numberDecimal": "1E-10"}', "9"),
        ('{"$numberDecimal": "1E-18"}', "9"), ('{"$numberDecimal": "1E-19"}', "10"), ('{"$numberDecimal": "1E-38"}', "10"),
        ('{"$numberDecimal": "1E-39"}', "{"), ('{"$numberDecimal": "1E+1"}', "{"), ('{"$numberDecimal": "-0"}', "{"), ('{"$numberDecimal": "0.00"}', "8"),
        ('{"$numberDecimal": "-9999999999999999999999999999999999"}', "10"), ('{"$numberDecimal": "NaN"}', "{"), ('{"$numberDecimal": "-Infinity"}', "{"),
        ('{"$date": -62135596800000}', "12"), ('{"$date": -62135596800001}', "{"), ('{"$date": 253402300799999}', "12"), ('{"$date": 253402300800000}', "{"),
        ('{"$date": 0,"x": 1}', "{"), ('{"$binary": "","$type": "00"}', "15"), ('{"$binary": "AA==","$type": "04"}', "{"), ('{"$binary": "AB==","$type": "00"}', "{"),
        ('{"$oid": "596e275826f08b2730779e1f"}', "{"), ('{"$undefined": true}', "{"), ("NaN", "7"), ("-0.0", "7"), ("1.0E10", "7"),
    ],
)  # fmt: skip
def test_the_type_of_each_value(text: str, type_: str) -> None:
    value, _ = VariantEncoder().encode(f'{{"v": {text}}}')
    head = value[5]  # behind the header, the count, the number of the name, and two offsets
    assert ("{" if head & 3 == 2 else str(head >> 2)) == type_


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a": ', "}")])
def test_documents_as_deep_as_there_are(opens: str, closes: str) -> None:
    text = f'{{"v": {opens * 200}[]{closes * 200}}}'
    assert decode_variant(*VariantEncoder().encode(text)) == text


def test_a_document_with_a_field_twice_is_its_text() -> None:
    text = '{"a": {"b": 1,"b": 2},"c": 3}'
    encode = VariantEncoder().encode
    assert read(T.VariantVal(*encode(text))) == text
    assert read(T.VariantVal(*encode('{"a": 1}'))) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "{", '{"secret": }', '{"secret": 123456789012345678901}', '{"secret": "\\ud800"}', "[" * 100_000]
)
def test_what_is_no_document_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(NotExtendedJson) as found:
        VariantEncoder().encode(text)
    assert "secret" not in str(found.value)


@given(st.binary(max_size=40), st.binary(max_size=20))
@settings(max_examples=300, deadline=None)
def test_bytes_that_are_no_variant_are_refused(value: bytes, metadata: bytes) -> None:
    try:
        decode_variant(value, metadata)
    except DamagedVariant:
        pass


@pytest.mark.spark
def test_fields_are_found_by_name_however_many_there_are(spark: SparkSession) -> None:
    """Readers look for a name by halves where there are many, in an order that not all of them understand alike."""
    names = ["a", "Z", "é", "名前", "\uffff", "\ue000", "𝔘", "😀", "", "a.b", *(f"n{i}" for i in range(60))]
    document = json.dumps({name: i for i, name in enumerate(names)}, ensure_ascii=False)
    frame = spark.createDataFrame([(document,)], "t string").select(as_variant(F.col("t")).alias("v"))
    wanted_ = [F.variant_get("v", f"$['{name}']", "int") for name in names]
    row = frame.select(*wanted_).head()
    assert row is not None
    assert list(row) == list(range(len(names)))
