"""Table maps in bounded memory."""

from __future__ import annotations

import pytest

from airflow_provider_cdc.sources.mysql.log.rows import table_map_cache
from airflow_provider_cdc.sources.mysql.log.rows.table_map_cache import TableMapCache
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver
from tests.support.sources.mysql import binlog as made


def test_a_table_that_gets_new_ids_all_the_time_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """M5: a server with a small ``table_definition_cache`` gives a table another id each time that it opens it."""
    parsed: list[int] = []
    parse = table_map_cache.parse_table_map

    def count_and_parse(body: bytes, *, mariadb: bool) -> table_map_cache.TableMap:
        parsed.append(len(body))
        return parse(body, mariadb=mariadb)

    monkeypatch.setattr(table_map_cache, "parse_table_map", count_and_parse)
    monkeypatch.setattr(table_map_cache, "_MOST_TABLE_IDS", 1000)
    tables = made.tables()
    maps = TableMapCache(made.CONFIG, tables, made.CATALOG, TableNameResolver(0, tables), mariadb=False)
    used = set()
    for table_id in range(900):
        assert maps.add_map(made.table_map(table_id), "here") is None
        used.add(maps._bytes_used)
    assert (len(parsed), len(used), len(maps.layouts)) == (1, 1, 1)
    for table_id in range(900, 5000):
        maps.trim_maps()
        maps.add_map(made.table_map(table_id), "here")
        assert maps.restore_map(table_id)
        assert len(maps._of_table_id) <= 1001
    assert len(parsed) == 5, "all are forgotten now and then, and learned again"


def test_maps_of_many_tables_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_map_cache, "_MOST_BYTES", 10_000)
    tables = made.tables()
    maps = TableMapCache(made.CONFIG, tables, made.CATALOG, TableNameResolver(0, tables), mariadb=False)
    for number in range(2000):
        maps.trim_maps()
        maps.add_map(made.table_map(number, b"t%d" % number), "here")
        assert maps._bytes_used < 11_000
