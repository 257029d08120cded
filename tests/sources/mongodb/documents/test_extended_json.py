"""Documents as extended JSON: byte for byte what MongoDB's Java library writes, and nothing lost."""

import base64
import json
import struct
from random import Random
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.sources.mongodb.documents.bson_spans import BsonDocuments, BsonValues
from airflow_provider_cdc.sources.mongodb.documents.document_errors import DamagedDocument
from airflow_provider_cdc.sources.mongodb.documents.extended_json import JsonForm, format_keys, format_values
from airflow_provider_cdc.sources.mongodb.kernels.json_text import DEEPEST
from dev import paths
from dev.java_json import random_bson
from tests.support.sources.mongodb.mongodb_json import write

RECORDED = paths.ROOT / "tests" / "data" / "mongodb" / "java-json.jsonl.zst"


@pytest.fixture(scope="module")
def recorded_documents() -> list[dict[str, str]]:
    """Return the documents that Java has written, recorded by ``dev/java_json/record.py``."""
    data = zstandard.ZstdDecompressor().stream_reader(RECORDED.read_bytes()).read()
    return [json.loads(line) for line in data.decode().split("\n")]


def text(document: bytes, form: JsonForm = JsonForm.STRICT, **options: Any) -> str:
    return str(format_values(BsonDocuments.of_list([document]).document_values, form, **options)[0].as_py())


def value(kind: int, raw: bytes) -> BsonValues:
    return BsonDocuments.of_list([random_bson.encode_document({"v": (kind, raw)})]).read_field(b"v")


def string(content: bytes) -> bytes:
    return struct.pack("<i", len(content) + 1) + content + b"\0"


@pytest.mark.parametrize(("form", "name"), [(JsonForm.STRICT, "strict"), (JsonForm.CANONICAL, "canonical")])
def test_documents_are_written_as_java_writes_them(
    recorded_documents: list[dict[str, str]], form: JsonForm, name: str
) -> None:
    documents = BsonDocuments.of_list([base64.b64decode(one["bson"]) for one in recorded_documents])
    for got, one in zip(format_values(documents.document_values, form).to_pylist(), recorded_documents, strict=True):
        assert got == one[name]


def test_keys_are_written_as_java_writes_them(recorded_documents: list[dict[str, str]]) -> None:
    documents = BsonDocuments.of_list([base64.b64decode(one["bson"]) for one in recorded_documents])
    for got, one in zip(format_keys(documents.read_field(b"v")).to_pylist(), recorded_documents, strict=True):
        assert got == one["key"]


@pytest.mark.parametrize(
    ("kind", "raw", "key"),
    [
        (0x10, struct.pack("<i", 1234), "1234"),
        (0x01, struct.pack("<d", 12.34), "12.34"),
        (0x02, string(b"1234"), '"1234"'),
        (0x07, bytes.fromhex("596e275826f08b2730779e1f"), '{"$oid": "596e275826f08b2730779e1f"}'),
        (0x05, b"\5\0\0\0\0kafka", '{"$binary": {"base64": "a2Fma2E=","subType": "00"}}'),
        (0x0A, b"", "null"),
        (0x12, struct.pack("<q", 1004), "1004"),
        (
            0x03,
            write(
                {
                    "hi": "kafka",
                    "nums": [{"$numberDouble": "10.0"}, {"$numberDouble": "100.0"}, {"$numberDouble": "1000.0"}],
                }
            ),
            '{"hi": "kafka","nums": [10.0,100.0,1000.0]}',
        ),
    ],
)
def test_keys_of_each_kind(kind: int, raw: bytes, key: str) -> None:
    assert format_keys(value(kind, raw)).to_pylist() == [key]


def test_the_sample_of_the_guide() -> None:
    document = write({"_id": {"$numberLong": "1004"}, "first_name": "Anne"})
    assert text(document) == '{"_id": {"$numberLong": "1004"},"first_name": "Anne"}'
    assert format_keys(BsonDocuments.of_list([document]).read_field(b"_id")).to_pylist() == ["1004"], (
        "the key is in another form"
    )


@given(st.integers(0, 2**63))
@settings(max_examples=400, deadline=None)
def test_the_canonical_form_gives_the_document_back(seed: int) -> None:
    document = random_bson.document(Random(seed), odd=False)
    assert write(without_inner_lengths(json.loads(text(document, JsonForm.CANONICAL)))) == document


def without_inner_lengths(found: Any) -> Any:
    """The old binary subtype has its length in its bytes, but not in its text."""
    if isinstance(found, dict) and found.keys() == {"$binary"}:
        inside = found["$binary"]
        if inside["subType"] == "02":
            raw = base64.b64decode(inside["base64"])
            inside["base64"] = base64.b64encode(struct.pack("<i", len(raw)) + raw).decode()
        return found
    if isinstance(found, dict):
        return {name: without_inner_lengths(one) for name, one in found.items()}
    return [without_inner_lengths(one) for one in found] if isinstance(found, list) else found


def test_what_is_not_there_is_null_and_null_as_it_is_asked_for() -> None:
    documents = BsonDocuments.of_list([write({"a": None}), write({}), write({"a": True})])
    assert format_values(documents.read_field(b"a")).to_pylist() == [None, None, "true"]
    assert format_values(documents.read_field(b"a"), null_as_text=True).to_pylist() == ["null", None, "true"]


def test_no_documents_are_no_texts() -> None:
    assert format_values(BsonDocuments.of_list([]).document_values).to_pylist() == []


@pytest.mark.parametrize("form", JsonForm)
def test_what_grows_most_still_fits(form: JsonForm) -> None:
    """Elements whose text is longest in proportion to their bytes, a million of them."""
    for kind, raw in (
        (0x0B, b"\0\0"),
        (0x06, b""),
        (0xFF, b""),
        (0x13, b"\xff" * 12 + b"\x7f\xed\x02\0"),
        (0x05, b"\0\0\0\0\0"),
    ):
        inside = bytes([kind]) + b"\0" + raw
        body = inside * 50_000
        array = struct.pack("<i", len(body) + 5) + body + b"\0"
        document = random_bson.encode_document({"v": (0x04, array)})
        found = text(document, form)
        assert found.count("$" if kind != 0x05 else "$binary") >= 50_000
    controls = b"\1" * 100_000
    assert (
        text(random_bson.encode_document({"v": (0x02, string(controls))}), form)
        == '{"v": "' + "\\u0001" * 100_000 + '"}'
    )


def test_documents_of_very_different_sizes_are_written_together() -> None:
    sizes = (1, 100_000, 0, 3_000_000, 5)
    documents = BsonDocuments.of_list([write({"t": "x" * size}) for size in sizes])
    assert [len(t) for t in format_values(documents.document_values).to_pylist()] == [9 + size for size in sizes]


def nest_document(depth: int) -> bytes:
    document = write({})
    for _ in range(depth - 1):
        document = random_bson.encode_document({"d": (0x03, document)})
    return document


def test_documents_are_nested_as_deep_as_servers_have_them_and_no_deeper() -> None:
    assert text(nest_document(DEEPEST)).count("{") == DEEPEST
    with pytest.raises(DamagedDocument, match="nested more than 200 levels deep"):
        text(nest_document(DEEPEST + 1))


@pytest.mark.parametrize("bad", [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_text_that_is_not_utf8_is_refused_or_replaced(bad: bytes) -> None:
    good = write({"a": "é"})
    places = [
        (0x02, string(bad)), (0x0B, bad + b"\0i\0"), (0x0D, string(bad)), (0x0E, string(bad)), (0x0C, string(bad) + b"\0" * 12),
        (0x0F, struct.pack("<i", 4 + len(string(bad)) + 5) + string(bad) + b"\5\0\0\0\0"), (0x03, b"%c\0\0\0\n%b\0\0" % (len(bad) + 7, bad)),
    ]  # fmt: skip
    for kind, raw in places:
        damaged = random_bson.encode_document({"n": (0x10, b"\1\0\0\0"), "v": (kind, raw)})
        documents = BsonDocuments.of_list([good, damaged, good])
        with pytest.raises(DamagedDocument, match=r"^document 1 .* is not valid UTF-8$") as refused:
            format_values(documents.document_values)
        assert (refused.value.row, refused.value.not_utf8) == (1, True)
        found = format_values(documents.document_values, replace_not_utf8=True).to_pylist()
        assert bad.decode(errors="replace") in found[1]
        assert found[0] == found[2] == '{"a": "é"}'


def test_the_old_binary_subtype_with_two_lengths_is_refused() -> None:
    with pytest.raises(DamagedDocument, match="contradict"):
        format_values(value(0x05, struct.pack("<iBi", 8, 2, 5) + b"abcd"))


def test_all_values_of_a_buffer_need_not_be_used() -> None:
    documents = BsonDocuments.of_stream(b"".join(write({"a": {"$numberInt": str(i)}}) for i in range(10)))
    some = documents.document_values.select_rows(np.array([7, 2]))
    assert format_values(some).to_pylist() == ['{"a": 7}', '{"a": 2}']
