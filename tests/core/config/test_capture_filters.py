"""Include and exclude lists, columns of images, keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema
from airflow_provider_cdc.sources import load_source
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import memory_connector

ORDERS = TableSchema(
    id=TableId(namespace="shop", name="orders"),
    columns=tuple(Column(name=n, type="int64") for n in ("Id", "line", "n", "note")),
    key=("Id",),
)


def _filters(**properties: Any) -> Filters:
    named = {k.replace("_", "."): v for k, v in properties.items()}
    return Filters(TableConfig.parse({"topic.prefix": "p", **named}))


def _is_captured(filters: Filters, name: str) -> bool:
    namespace, _, table = name.partition(".")
    return filters.is_table_captured(TableId(namespace=namespace, name=table))


def test_without_lists_everything_is_captured() -> None:
    assert _is_captured(_filters(), "any.thing")


@pytest.mark.parametrize(
    ("pattern", "captured", "left_out"),
    [
        (
            "shop.orders",
            ["shop.orders", "SHOP.Orders"],
            ["shop.orders2", "xshop.orders"],
        ),
        (r"shop\..*", ["shop.a", "shop.b.c"], ["shopa.b", "other.shop"]),
        ("shop.(a|b)", ["shop.a", "shop.b"], ["shop.ab", "shop.c"]),
        ("shop.a|shop.b", ["shop.a", "shop.b"], ["shop.ab", "shop.a|shop"]),
        (r"shop.a{1\,2}", ["shop.a", "shop.aa"], ["shop.aaa"]),
        ("(?i)shop.x,shop.(y)", ["shop.x", "shop.y"], ["shop.z"]),
        (r"s.t\$1", ["s.t$1"], ["s.t1"]),
        ("s.ärger", ["s.ärger", "S.ÄRGER"], ["s.arger"]),
    ],
)
def test_a_pattern_matches_whole_names_without_regard_to_case(
    pattern: str, captured: list[str], left_out: list[str]
) -> None:
    include, exclude = _filters(table_include_list=pattern), _filters(table_exclude_list=pattern)
    for name in captured:
        assert _is_captured(include, name), name
        assert not _is_captured(exclude, name), name
    for name in left_out:
        assert not _is_captured(include, name), name
        assert _is_captured(exclude, name), name


@given(st.text(min_size=1, max_size=8).filter(lambda t: "," not in t and t.strip() == t))
def test_an_escaped_name_matches_itself_and_nothing_longer(name: str) -> None:
    filters = _filters(table_include_list=[re.escape(f"s.{name}")])
    assert filters.is_table_captured(TableId(namespace="s", name=name))
    assert not filters.is_table_captured(TableId(namespace="s", name=name + "x"))
    assert not filters.is_table_captured(TableId(namespace="xs", name=name))


def test_a_table_of_a_database_that_is_left_out_is_not_captured_whatever_its_list_says() -> None:
    config = load_source("mariadb").Config.parse(
        {
            "topic.prefix": "p", "database.hostname": "h", "database.user": "u", "database.server.id": 9,
            "database.include.list": "shop,store_.*", "table.include.list": "shop.a,other.a,store_1.a",
        }
    )  # fmt: skip
    filters = Filters(config)
    assert [n for n in ("shop.a", "shop.b", "other.a", "store_1.a") if _is_captured(filters, n)] == [
        "shop.a",
        "store_1.a",
    ]
    assert filters.can_capture_namespace("STORE_9")
    assert not filters.can_capture_namespace("shop2")


def test_the_snapshot_list_leaves_captured_tables_captured() -> None:
    filters = _filters(snapshot_include_collection_list="shop.orders")
    lines = TableId(namespace="shop", name="lines")
    assert filters.is_snapshot_table(ORDERS.id)
    assert not filters.is_snapshot_table(lines)
    assert filters.is_table_captured(lines)


# columns


def test_an_excluded_column_is_not_in_the_captured_schema() -> None:
    selected = _filters(column_exclude_list="shop.orders.note,shop.orders.LINE").select_columns(ORDERS)
    assert selected.column_names == ("Id", "n")
    assert selected.key == ("Id",)


def test_a_key_column_stays_in_the_key_though_not_in_the_images() -> None:
    filters = _filters(column_exclude_list="shop.orders.id")
    assert filters.select_columns(ORDERS).column_names == ORDERS.column_names
    assert not filters.in_images(ORDERS.id, "Id")
    assert filters.in_images(ORDERS.id, "n")


def test_an_include_list_of_columns_leaves_the_others_out() -> None:
    filters = _filters(column_include_list=r"shop\.orders\.(n|line)")
    assert filters.select_columns(ORDERS).column_names == ("Id", "line", "n")
    assert [n for n in ORDERS.column_names if filters.in_images(ORDERS.id, n)] == ["line", "n"]


def test_a_list_that_leaves_no_column_of_a_captured_table_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leaves no column of shop\.orders") as caught:
        _filters(column_include_list="shop.lines.n").select_columns(ORDERS)
    assert "Id, line, n, note" in (caught.value.where or "")
    assert caught.value.remedy


# keys


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        ("", ("Id",)),
        ("shop.orders:line,ID", ("line", "Id")),
        ("other.t:x;shop.(orders|lines): n , line ;", ("n", "line")),
        ("shop.lines:n", ("Id",)),
        ("SHOP.ORDERS:n", ("n",)),
        ("shop.orders:n;.*:line", ("n",)),
        (r"(?:shop|store)\.orders:n", ("n",)),
    ],
)
def test_the_first_rule_that_matches_a_table_gives_its_key(rules: str, key: tuple[str, ...]) -> None:
    assert _filters(message_key_columns=rules).select_columns(ORDERS).key == key


@pytest.mark.parametrize("rules", ["shop.orders", "shop.orders:", ":id", "shop.orders: , ", "a:b;c"])
def test_a_rule_without_table_or_columns_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"does not have the form <table>:<column>") as caught:
        _filters(message_key_columns=rules)
    assert caught.value.remedy


def test_a_rule_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'shop\.\(' is not a regular expression"):
        _filters(message_key_columns="shop.(:id")


def test_a_rule_that_names_a_missing_column_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'nope', which is not a column of shop\.orders") as caught:
        _filters(message_key_columns="shop.orders:id,nope").select_columns(ORDERS)
    assert "Id, line, n, note" in (caught.value.where or "")


# tables with a level above the namespace

EMPLOYEES = TableSchema(
    id=TableId(namespace="HR", name="EMP", catalog="PDB1"),
    columns=tuple(Column(name=n, type="int64") for n in ("ID", "BADGE", "PAY")),
    key=("ID",),
)


@pytest.mark.parametrize("name", [r"HR\.EMP", r"PDB1\.HR\.EMP"])
def test_lists_match_names_with_the_catalog_and_without(name: str) -> None:
    assert _filters(snapshot_include_collection_list=name).is_snapshot_table(EMPLOYEES.id)
    assert _filters(message_key_columns=f"{name}:BADGE").select_columns(EMPLOYEES).key == ("BADGE",)
    assert _filters(column_exclude_list=rf"{name}\.PAY").select_columns(EMPLOYEES).column_names == ("ID", "BADGE")
    assert _filters(column_include_list=rf"{name}\.PAY").select_columns(EMPLOYEES).column_names == ("ID", "PAY")


@pytest.mark.parametrize("name", [r"PDB2\.HR\.EMP", r"PDB1\.EMP", "EMP"])
def test_lists_do_not_match_another_catalog_or_parts_of_the_name(name: str) -> None:
    assert not _filters(snapshot_include_collection_list=name).is_snapshot_table(EMPLOYEES.id)
    assert _filters(message_key_columns=f"{name}:BADGE").select_columns(EMPLOYEES).key == ("ID",)
    assert (
        _filters(column_exclude_list=rf"{name}\.PAY").select_columns(EMPLOYEES).column_names == EMPLOYEES.column_names
    )


# columns that cannot be captured


def _with_photo(*key: str) -> TableSchema:
    return ORDERS.model_copy(update={"columns": (*ORDERS.columns, Column(name="photo", type="null")), "key": key})


def test_a_column_that_cannot_be_captured_is_not_in_the_captured_schema() -> None:
    assert _filters().select_columns(_with_photo("Id")) == ORDERS
    assert _filters(column_include_list=r"shop\.orders\.(photo|n)").select_columns(_with_photo("Id")).column_names == (
        "Id",
        "n",
    )


def test_a_key_with_a_column_that_cannot_be_captured_is_no_key() -> None:
    assert _filters().select_columns(_with_photo("Id", "photo")).key == ()
    with pytest.raises(ConfigError, match=r"'photo', which is not a column of shop.orders that can be captured"):
        _filters(message_key_columns="shop.orders:Id,photo").select_columns(_with_photo("Id"))


def test_a_table_without_a_column_that_can_be_captured_is_refused() -> None:
    table = ORDERS.model_copy(update={"columns": (Column(name="photo", type="null"),), "key": ()})
    with pytest.raises(ConfigError, match="none with a type that can be captured"):
        _filters().select_columns(table)


def test_columns_are_chosen_by_whole_names(db: MemoryDatabase, tmp_path: Path) -> None:
    excluding = memory_connector(db, tmp_path / "ex", column_exclude_list=r"shop\.a\.note,shop\.b\.not,hop\.b\.n")
    including = memory_connector(db, tmp_path / "in", column_include_list=r"shop\.a\.(id|n),shop\.b\..*,.*xn")
    for connector in (excluding, including):
        connector.capture()
        assert connector.rows("shop.a") == [{"id": 1, "n": 1}, {"id": 2, "n": 2}]
        assert connector.rows("shop.b") == [{"id": i, "n": i, "note": None} for i in (1, 2)]
