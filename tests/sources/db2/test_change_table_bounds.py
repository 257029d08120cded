"""First and last commits of change tables, on the Db2 test server."""

from __future__ import annotations

from contextlib import closing

from airflow_provider_cdc.sources.db2.change_table_bounds import first_commit, last_commit, tables_with_changes
from airflow_provider_cdc.sources.db2.connect import connect_database
from airflow_provider_cdc.sources.db2.schema.catalog import Db2CatalogReader
from dev.servers.db2 import Db2
from tests.sources.db2.log.streamed import StreamedSchema

KEY = "(ID INTEGER NOT NULL PRIMARY KEY)"


def test_tables_with_changes_are_found_and_all_of_them_where_a_change_table_is_missing(db2: Db2) -> None:
    on = StreamedSchema(db2)
    on.create(f"T {KEY}", f"U {KEY}")
    start = on.begin().position.commit_lsn
    on.sql("INSERT INTO {s}.T VALUES (1)")
    first = on.server.catch_up()
    on.sql("INSERT INTO {s}.U VALUES (1)")
    end = on.server.catch_up()
    with closing(connect_database(on.config)) as connection:
        found = Db2CatalogReader(connection, on.config).list_registrations()
        t, u = found[on.id("T")], found[on.id("U")]
        assert tables_with_changes(connection, [t, u], start, end) == {t.table, u.table}
        assert tables_with_changes(connection, [t, u], start, first) == {t.table}
        assert tables_with_changes(connection, [t, u], first[:10], end) == {u.table}
        assert (first_commit(connection, [u, t]), last_commit(connection, u)) == (first, end)
        connection.rollback()
        on.drop_change_table("T")
        assert tables_with_changes(connection, [t, u], start, first) == {t.table, u.table}
    on.close()
