"""The documented converters of NUMBER columns: which columns they take, and what becomes of their values."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import ConfigError
from dev.servers.oracle import Oracle
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.own_converters import own_converters

BOOLEAN = "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter"
ZERO_SCALE = "io.debezium.connector.oracle.converters.NumberToZeroScaleConverter"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
Node = dict[str, Any]


def _encode_unscaled(value: int) -> str:
    return base64.b64encode(value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)).decode()


def _capture_both_rows(
    server: Oracle, folder: Path, columns: str, rows: list[str], **properties: Any
) -> tuple[list[Any], Node]:
    """Rows as a snapshot and as the log have them, which must be the same, and the nodes of their schema."""
    server.sql(f"CREATE TABLE MYTABLE (ID NUMBER(9) PRIMARY KEY, {columns})", LOGGED.format("MYTABLE"))
    connector = oracle_connector(server, folder, schema_include_list="APP")
    connector.properties |= {name.replace("__", "."): value for name, value in properties.items()}
    parts, nodes = [], []
    for first in (1, 101):
        server.sql(*(f"INSERT INTO MYTABLE VALUES ({first + i}, {row})" for i, row in enumerate(rows)))
        found = sorted(
            of_table(capture_records(connector, schemas=True), "MYTABLE"), key=lambda r: r["key"]["payload"]["ID"]
        )
        parts.append([[v for n, v in r["value"]["payload"]["after"].items() if n != "ID"] for r in found])
        nodes.append(
            {n: {k: v for k, v in f.items() if k != "field"} for n, f in row_fields(found[0]).items() if n != "ID"}
        )
    assert parts[0] == parts[1]
    assert nodes[0] == nodes[1]
    return parts[0], nodes[0]


def test_numbers_of_one_digit_are_booleans_that_are_true_when_positive(schema: Oracle, tmp_path: Path) -> None:
    rows, nodes = _capture_both_rows(
        schema, tmp_path, "A NUMBER(1), B NUMBER(1,0) DEFAULT 1 NOT NULL, C NUMBER(2), D NUMBER(1,-1), E NUMBER(2,1)",
        ["1, 1, 1, 10, 1", "0, 0, 0, 0, 0", "-1, 9, -1, -10, -1", "NULL, 5, NULL, NULL, NULL"],
        converters="boolean", **{"boolean.type": BOOLEAN, "decimal.handling.mode": "double"},
    )  # fmt: skip
    assert [row[:2] for row in rows] == [[True, True], [False, False], [False, True], [None, True]]
    assert [row[2:] for row in rows] == [[1, 10, 1.0], [0, 0, 0.0], [-1, -10, -1.0], [None, None, None]]
    assert nodes["A"] == {"type": "boolean", "optional": True}
    assert nodes["B"] == {"type": "boolean", "optional": False, "default": True}
    assert [nodes[n]["type"] for n in "CDE"] == ["int8", "int8", "double"]


def test_a_selector_lets_a_converter_have_some_columns(schema: Oracle, tmp_path: Path) -> None:
    rows, nodes = _capture_both_rows(
        schema, tmp_path, "FLAG NUMBER(1), IS_ARCHIVED NUMBER(1), OTHER NUMBER(1)", ["1, 1, 1", "-3, 0, -3"],
        converters="b", **{"b.type": BOOLEAN, "b.selector": ".*MYTABLE.FLAG, .*.IS_ARCHIVED"},
    )  # fmt: skip
    assert rows == [[True, True, 1], [False, False, -3]]
    assert {n: f["type"] for n, f in nodes.items()} == {"FLAG": "boolean", "IS_ARCHIVED": "boolean", "OTHER": "int8"}


WIDE = "A NUMBER(17,-2), B NUMBER(38,-1), C NUMBER(16,-2), D NUMBER(19), E NUMBER(25,2)"
WIDE_ROWS = [
    "1234567890123456700, TO_NUMBER('-12345678901234567890'), 500, 7, 1.5",
    "-100, 10, -100, 0, 0",
    "NULL, NULL, NULL, NULL, NULL",
]


def test_negative_scales_are_reported_as_they_are_without_a_converter(schema: Oracle, tmp_path: Path) -> None:
    rows, nodes = _capture_both_rows(schema, tmp_path, WIDE, WIDE_ROWS)
    assert rows[0][:2] == [_encode_unscaled(12345678901234567), _encode_unscaled(-1234567890123456789)]
    assert [nodes[n]["parameters"]["scale"] for n in "ABDE"] == ["-2", "-1", "0", "2"]


@pytest.mark.parametrize("options", [{}, {"zero_scale.decimal.mode": "precise"}])
def test_wide_numbers_with_a_negative_scale_can_have_the_scale_zero(
    schema: Oracle, tmp_path: Path, options: dict[str, str]
) -> None:
    rows, nodes = _capture_both_rows(
        schema, tmp_path, WIDE, WIDE_ROWS, converters="zero_scale", **{"zero_scale.type": ZERO_SCALE, **options}
    )
    assert rows == [
        [
            _encode_unscaled(1234567890123456700),
            _encode_unscaled(-12345678901234567890),
            500,
            _encode_unscaled(7),
            _encode_unscaled(150),
        ],
        [_encode_unscaled(-100), _encode_unscaled(10), -100, _encode_unscaled(0), _encode_unscaled(0)],
        [None] * 5,
    ]
    for name, precision in (("A", "17"), ("B", "38")):
        assert (nodes[name]["type"], nodes[name]["name"]) == ("bytes", DECIMAL)
        assert nodes[name]["parameters"] == {"scale": "0", "connect.decimal.precision": precision}
    assert nodes["C"]["type"] == "int64"
    assert nodes["E"]["parameters"]["scale"] == "2"


@pytest.mark.parametrize(
    ("mode", "kind", "values"),
    [
        ("double", "double", [1.2345678901234568e18, -1.2345678901234567e19]),
        ("string", "string", ["1234567890123456700", "-12345678901234567890"]),
    ],
)
def test_the_mode_of_the_converter_is_its_own(
    schema: Oracle, tmp_path: Path, mode: str, kind: str, values: list[Any]
) -> None:
    options = {"zero_scale.type": ZERO_SCALE, "zero_scale.decimal.mode": mode, "decimal.handling.mode": "precise"}
    rows, nodes = _capture_both_rows(schema, tmp_path, WIDE, WIDE_ROWS, converters="zero_scale", **options)
    assert rows[0][:2] == values
    assert [nodes[n]["type"] for n in "ABE"] == [kind, kind, "bytes"]


def test_several_converters_have_options_of_their_own_and_go_before_the_mapping(schema: Oracle, tmp_path: Path) -> None:
    rows, nodes = _capture_both_rows(
        schema, tmp_path, "A NUMBER(1), B NUMBER(17,-2), C NUMBER(1)", ["1, 100, 1"],
        converters="flags,wide",
        **{"flags.type": BOOLEAN, "flags.selector": ".*[.]A", "wide.type": ZERO_SCALE, "wide.decimal.mode": "string"},
    )  # fmt: skip
    assert rows == [[True, "100", 1]]
    assert [nodes[n]["type"] for n in "ABC"] == ["boolean", "string", "int8"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "b.type: required"), ({"b.type": "com.example.Mine"}, "com.example.Mine"),
        ({"b.type": BOOLEAN, "b.pattern": "x"}, "b.pattern: unknown property"),
        ({"b.type": BOOLEAN, "b.selector": "("}, "b.selector"),
        ({"b.type": ZERO_SCALE, "b.decimal.mode": "exact"}, "b.decimal.mode: 'exact'"),
    ],
)  # fmt: skip
def test_a_converter_that_is_not_known_or_not_complete_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as e:
        config(converters="b", **options)
    assert words in str(e.value)


def test_a_converter_of_a_user_works_beside_the_documented_ones_with_options_of_its_own(
    schema: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_converters(tmp_path, monkeypatch)
    rows, nodes = _capture_both_rows(
        schema, tmp_path, "A NUMBER(1), CODE VARCHAR2(20) DEFAULT '1-2'", ["1, DEFAULT", "0, NULL", "1, '7-8'"],
        converters="boolean, isbn", **{"boolean.type": BOOLEAN, "isbn.type": "isbn", "isbn.column": "code"},
    )  # fmt: skip
    assert rows == [[True, 12], [False, None], [True, 78]]
    assert nodes["CODE"] == {"type": "int64", "optional": True, "default": 12}
