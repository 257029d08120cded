"""A round asks the catalog about what has changed, not about each table; and notices what other sessions change between two rounds."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.targets.database.apply.database_apply import DatabaseApply
from airflow_provider_cdc.targets.database.dialects import known_structures, postgresql
from tests.support.connectors import Connector, memory_connector
from tests.targets.database.apply.test_database_apply import in_order, rows, sink

_CATALOG = re.compile(
    r"pg_class|pg_attribute|pg_index|pg_constraint|information_schema|SHOW CREATE|DESCRIBE|PRAGMA \"?main|PRAGMA main|sqlite_master",
    re.IGNORECASE,
)
_PER_TABLE = {"postgresql": 0, "sqlite": 0, "mariadb": 1, "mysql": 1}
"""Statements for the catalog that a known table takes in each round."""


@contextlib.contextmanager
def statements(engine: sa.Engine) -> Iterator[list[str]]:
    seen = list[str]()

    def note(connection: object, cursor: object, statement: object, *_: object) -> None:
        seen.append(statement.decode(errors="replace") if isinstance(statement, bytes) else str(statement))

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def _source(tmp_path: Path, tables: int) -> tuple[MemoryDatabase, Connector]:
    source = MemoryDatabase(str(tmp_path))
    for number in range(tables):
        source.create_table(f"s.t{number}", {"id": "int64!", "v": "int32"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    connector.name = f"of_{tables}_tables"
    return source, connector


def _change_all(source: MemoryDatabase, connector: Connector, tables: int, value: int) -> None:
    with source.transaction() as t:
        for number in range(tables):
            if not t.update(f"s.t{number}", {"id": 1}, {"v": value}):
                t.insert(f"s.t{number}", {"id": 1, "v": value})
    connector.capture()


@pytest.mark.parametrize("url", _PER_TABLE, indirect=True)
def test_a_round_asks_the_catalog_nothing_more_for_more_known_tables(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_structures, "CHECKED_S", 3600)
    asked = dict[int, int]()
    for tables in (4, 12):
        source, connector = _source(tmp_path / str(tables), tables)
        _change_all(source, connector, tables, 1)
        apply = sink(engine, connector, collection__name__format=f"n{tables}_${{source.table}}")
        apply.apply()
        _change_all(source, connector, tables, 2)
        apply.apply()  # tables are known with the first round that does not make them
        _change_all(source, connector, tables, 3)
        with statements(engine) as seen:
            apply.apply()
        asked[tables] = len([statement for statement in seen if _CATALOG.search(statement)])
        assert rows(engine, f"n{tables}_t0") == [{"id": 1, "v": 3}]
    assert asked[12] - asked[4] == 8 * _PER_TABLE[engine.dialect.name]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_run_reads_tables_that_it_does_not_know_together(engine: sa.Engine, tmp_path: Path) -> None:
    asked = dict[int, int]()
    for tables in (4, 12):
        source, connector = _source(tmp_path / str(tables), tables)
        named = {"collection__name__format": f"n{tables}_${{source.table}}"}
        _change_all(source, connector, tables, 1)
        sink(engine, connector, **named).apply()
        _change_all(source, connector, tables, 2)
        with statements(engine) as seen:
            sink(engine, connector, **named).apply()
        asked[tables] = len([statement for statement in seen if _CATALOG.search(statement)])
    assert asked[12] == asked[4]


def _known(engine: sa.Engine, source: MemoryDatabase, connector: Connector) -> DatabaseApply:
    """An apply that knows the table."""
    apply = sink(engine, connector)
    for value in (1, 2):
        _change_all(source, connector, 1, value)
        apply.apply()
    return apply


def test_a_unique_index_that_is_made_between_two_rounds_keeps_rows_apart(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = _source(tmp_path, 1)
    apply = _known(engine, source, connector)
    with source.transaction() as t:
        t.insert("s.t0", {"id": 2, "v": 20})
    connector.capture()
    apply.apply()
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE UNIQUE INDEX one ON p_s_t0 (v)"))
    with source.transaction() as t:
        t.update("s.t0", {"id": 1}, {"v": None})
        t.update("s.t0", {"id": 2}, {"v": 2})
        t.update("s.t0", {"id": 1}, {"v": 20})
    connector.capture()
    apply.apply()
    assert in_order(rows(engine, "p_s_t0")) == in_order(source.copy_rows("s.t0"))


@pytest.mark.parametrize("url", ["postgresql", "mariadb", "mysql"], indirect=True)
def test_a_key_that_is_dropped_between_two_rounds_doubles_no_row(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = _source(tmp_path, 1)
    apply = _known(engine, source, connector)
    drop = "DROP CONSTRAINT p_s_t0_pkey" if engine.dialect.name == "postgresql" else "DROP PRIMARY KEY"
    with engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE p_s_t0 {drop}"))
    _change_all(source, connector, 1, 3)
    apply.apply()
    assert rows(engine, "p_s_t0") == [{"id": 1, "v": 3}]


@pytest.mark.parametrize("url", ["postgresql", "mariadb", "mysql", "sqlite"], indirect=True)
def test_a_column_that_is_removed_between_two_rounds_is_reported_as_removed(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = _source(tmp_path, 1)
    apply = _known(engine, source, connector)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE p_s_t0 DROP COLUMN v"))
    _change_all(source, connector, 1, 3)
    with pytest.raises(TargetError, match="p_s_t0 has no column v"):
        apply.apply()


@pytest.mark.parametrize("url", ["postgresql", "sqlite"], indirect=True)
def test_a_column_whose_transaction_was_undone_is_added_again(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = _source(tmp_path, 1)
    apply = _known(engine, source, connector)
    source.add_column("s.t0", "w", "int32", 7, text="7")
    _change_all(source, connector, 1, 3)

    with statements(engine) as seen:

        def fail_after_ddl(connection: object) -> None:
            if any("ADD COLUMN" in statement for statement in seen):
                raise KeyboardInterrupt

        sa.event.listen(engine, "commit", fail_after_ddl)
        with pytest.raises(KeyboardInterrupt):
            apply.apply()
        sa.event.remove(engine, "commit", fail_after_ddl)
    apply.apply()
    assert rows(engine, "p_s_t0") == [{"id": 1, "v": 3, "w": 7}]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_few_rows_need_no_table_of_the_session(engine: sa.Engine, tmp_path: Path) -> None:
    source, connector = _source(tmp_path, 3)
    _change_all(source, connector, 3, 1)
    apply = sink(engine, connector)
    apply.apply()
    for value in (2, 3):
        _change_all(source, connector, 3, value)
        with source.transaction() as t:
            t.insert("s.t0", {"id": value, "v": 0})
            t.delete("s.t1", {"id": 1})
        connector.capture()
        with statements(engine) as seen:
            apply.apply()
        assert not [statement for statement in seen if "TEMPORARY" in statement]
    assert in_order(rows(engine, "p_s_t0")) == in_order(source.copy_rows("s.t0"))
    assert rows(engine, "p_s_t1") == []


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("most", [0, 1000])
def test_a_text_that_is_too_long_is_refused_and_not_cut_off(
    engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(postgresql, "_SMALL_ROWS", most)
    source = MemoryDatabase(str(tmp_path))
    source.create_table("s.t", {"id": "int64!", "v%": "string", "b": "string"}, key=("id",))
    connector = memory_connector(source, tmp_path, topic_prefix="p")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            'CREATE TABLE p_s_t (id bigint PRIMARY KEY, "v%" varchar(3), b char(3))',
            execution_options={"no_parameters": True},
        )
    with source.transaction() as t:
        t.insert("s.t", {"id": 1, "v%": "abc", "b": "x"})
    connector.capture()
    apply = sink(engine, connector)
    apply.apply()
    for value in ("ä€c", "%s"):
        with source.transaction() as t:
            t.update("s.t", {"id": 1}, {"v%": value})
        connector.capture()
        apply.apply()
        assert rows(engine, "p_s_t") == [{"id": 1, "v%": value, "b": "x  "}]
    with source.transaction() as t:
        t.update("s.t", {"id": 1}, {"v%": "abcd"})
    connector.capture()
    with pytest.raises(TargetError, match="too long"):
        apply.apply()
    assert rows(engine, "p_s_t") == [{"id": 1, "v%": "%s", "b": "x  "}]
