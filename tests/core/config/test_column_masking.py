"""Pseudonyms are those of Debezium; lengths and other rules of masked columns are in the tests of the sources."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc.changelog.row_history.row_masking import RowMasks
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.recorded_filter_lists import RecordedFilterLists, format_filter_lists
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, ColumnDeclaration, TableId, TableSchema

PEOPLE = TableId(namespace="shop", name="people")
V2, V1 = "column.mask.hash.v2.{}.with.salt.{}", "column.mask.hash.{}.with.salt.{}"


def _schema(length: int | None = None) -> TableSchema:
    text = ColumnDeclaration(type_name="VARCHAR", jdbc_type=12, length=length)
    columns = (Column(name="id", type="int64", nullable=False), Column(name="mail", type="string", declared=text))
    return TableSchema(id=PEOPLE, version=1, columns=columns, key=("id",))


def _config(**properties: Any) -> TableConfig:
    return TableConfig.parse({"topic.prefix": "shop", **properties})


def _hash(name: str, *texts: str | None, length: int | None = None, **more: Any) -> list[str | None]:
    (masking,) = Filters(_config(**{name: r"shop\.people\.mail"}, **more)).build_maskings(_schema(length)).values()
    return list(masking(pa.array(texts, pa.string())).to_pylist())


@pytest.mark.parametrize(
    ("name", "text", "pseudonym"),
    [
        # the values of Debezium's MaskStringsTest
        (V1.format("SHA-256", "salt"), "hello", "af5843a0f0e728ab0332c8888b6e1190bfb79e584f0d40538de8f10df6ef29c6"),
        (V1.format("SHA-256", "salt"), "world", "4588e1f2dcdc7fefc1515d3acd5acb9033478eace68286f383c337b9ff4464a3"),
        (V1.format("MD5", "salt"), "hello", "46f48a7a5ea32efba87cbff49d46d35a"),
        # printf %s salthello | sha256sum, md5sum
        (V2.format("SHA-256", "salt"), "hello", "cd31b3b98ece60cb739c0bf770b2de892ae0ad133f645513c3d83f08757a843a"),
        (V2.format("md5", "salt"), "hello", "06decc8b095724f80103712c235586be"),
    ],
)
def test_pseudonyms_are_those_of_debezium(name: str, text: str, pseudonym: str) -> None:
    assert _hash(name, text, None, text) == [pseudonym, None, pseudonym]


def test_texts_are_hashed_in_the_form_that_java_serializes() -> None:
    """Without v2: modified UTF-8, and a longer length for long texts."""
    import hashlib

    def digest(data: bytes) -> str:
        return hashlib.sha256(b"s" + data).hexdigest()

    name = V1.format("SHA-256", "s")
    smile = b"\xed\xa0\xbd\xed\xb8\x80"  # the two surrogates of U+1F600, each in three bytes
    long = b"x" * 70_000
    assert _hash(name, "a\0\U0001f600", "x" * 70_000) == [
        digest(b"\xac\xed\x00\x05t\x00\x09a\xc0\x80" + smile),
        digest(b"\xac\xed\x00\x05|" + (70_000).to_bytes(8) + long),
    ]


def test_a_pseudonym_is_shortened_to_the_length_of_its_column() -> None:
    assert _hash(V2.format("SHA-256", "salt"), "hello", length=10) == ["cd31b3b98e"]


def test_several_salts_and_algorithms_make_other_pseudonyms() -> None:
    names = [V2.format(a, s) for a in ("SHA-1", "SHA-256", "SHA-512", "SHA3-256", "MD5") for s in ("a", "b.c", "é")]
    assert len({_hash(name, "x")[0] for name in names}) == len(names)


def test_the_salt_comes_from_the_connection_and_is_never_shown() -> None:
    name, patterns = V2.format("SHA-256", "${connection}"), r"shop\.people\.mail"
    extra = TableConfig.from_connection(extra={"column.mask.salt": "salt"})
    assert _hash(name, "hello", **extra) == _hash(V2.format("SHA-256", "salt"), "hello")
    assert TableConfig.is_secret("column.mask.salt")
    config = _config(**{name: patterns}, **extra)
    assert config.to_public_properties() == {"topic.prefix": "shop", name: (patterns,)}
    assert "'salt'" not in repr(config) + repr(config.column_rules()) + format_filter_lists(config)
    with pytest.raises(ConfigError, match=r"the connection has no salt; set .*column.mask.salt"):
        _config(**{name: patterns})


def test_an_algorithm_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"'SHA-257' is not a hash algorithm\. Valid algorithms are: MD5, SHA, SHA-1"):
        _config(**{V2.format("SHA-257", "x"): "a"})


def test_a_column_of_the_key_gets_no_pseudonym() -> None:
    with pytest.raises(ConfigError, match=r"shop\.people\.mail is part of the key"):
        _hash(V2.format("SHA-256", "x"), "a", **{"message.key.columns": "shop.people:mail"})


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        (V2.format("SHA-256", "a"), V2.format("SHA-256", "b"), True),
        ("column.mask.with.3.chars", V2.format("SHA-256", "b"), True),
        (V2.format("SHA-256", "a"), V2.format("SHA-256", "a"), False),
        (V2.format("SHA-256", "a"), "column.mask.with.3.chars", False),
    ],
)
def test_a_run_notices_other_pseudonyms_than_rows_have(before: str, now: str, differs: bool) -> None:
    earlier, present = (_config(**{name: r"shop\.people\.mail"}) for name in (before, now))
    recorded = RecordedFilterLists(present, format_filter_lists(earlier))
    assert recorded.without_columns([_schema()]) == ([PEOPLE] if differs else [])


def test_a_shown_row_has_neither_text_nor_a_pseudonym_of_a_pseudonym() -> None:
    masks = RowMasks(
        {V2.format("SHA-256", "a"): r"shop\.people\.mail", "column.mask.with.3.chars": r"shop\.people\.name"}
    )
    assert masks.mask_image(_schema(), {"id": 1, "mail": "a@b.c"}) == {"id": 1, "mail": "***"}
