"""A column gets a type at the source of which its values from before are none: the source has them no more, however the events come to the table."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TargetError
from tests.support.connectors import mysql_connector
from tests.targets.database.apply.test_database_apply import sink

CHANGES = {
    "text to whole numbers": ("VARCHAR(20)", ["'abc'", "'7'", "''", "NULL"], "INT", "'5'", "9"),
    "text to dates": ("VARCHAR(20)", ["'soon'", "'2024-01-02'"], "DATE", "'2024-05-06'", "'2024-07-08'"),
    "text to decimals": ("VARCHAR(20)", ["'1,5'", "'1.5'"], "DECIMAL(9, 2)", "'2.5'", "3.5"),
    "bytes to whole numbers": ("VARBINARY(20)", ["'x'", "'7'"], "INT", "'5'", "9"),
    "dates to whole numbers": ("DATE", ["'2024-01-02'"], "INT", "'2024-05-06'", "9"),
    "large numbers to small ones": ("BIGINT", ["5000000000", "7"], "INT", "5", "9"),
}


def _plain_row(row: Any) -> tuple[int, str | Decimal | None]:
    """A row in one form: drivers have several of dates and numbers."""
    id_, value = row
    text = None if value is None else str(value)[:10]
    number = text is not None and re.fullmatch(r"\d+(\.\d+)?", text)
    return int(id_), Decimal(text).normalize() if number else text


@pytest.mark.parametrize("change", CHANGES)
def test_a_table_made_after_a_change_of_type_is_equal_to_the_source(
    mariadb: Any, engine: sa.Engine, tmp_path: Path, change: str
) -> None:
    old, values, new, mended, later = CHANGES[change]
    with mariadb.database("types") as db:
        db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, v {old})")
        connector = mysql_connector(mariadb, tmp_path, "mariadb", database_include_list=db.name)
        connector.capture()
        db.sql(*(f"INSERT INTO t VALUES ({n}, {value})" for n, value in enumerate(values)))
        connector.capture()
        db.sql(
            f"UPDATE t SET v = {mended} WHERE v IS NOT NULL",
            "DELETE FROM t WHERE id = 1",
            f"ALTER TABLE t MODIFY v {new}",
        )
        db.sql(f"INSERT INTO t VALUES (100, {later})")
        connector.capture()
        sink(engine, connector).apply()
        with engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT id, v FROM test_{db.name}_t ORDER BY id")).fetchall()
        assert [*map(_plain_row, found)] == [*map(_plain_row, db.sql("SELECT id, v FROM t ORDER BY id"))]


def test_a_value_that_no_later_event_replaces_is_refused(mariadb: Any, engine: sa.Engine, tmp_path: Path) -> None:
    """The table is not read again here, and so the row has what the server has made of the value, which no event says."""
    with mariadb.database("types") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        connector = mysql_connector(
            mariadb, tmp_path, "mariadb", database_include_list=db.name, schema_change_rewrite_mode="ignore"
        )
        connector.capture()
        db.sql("INSERT INTO t VALUES (1, 'abc'), (2, 'x')", "UPDATE t SET v = '5' WHERE id = 2")
        db.sql("SET sql_mode = ''", "ALTER TABLE t MODIFY v INT")
        connector.capture()
        with pytest.raises(
            TargetError, match=r"(?i)The type of the column v was changed .*\n.*\n.*\n.*field.exclude.list="
        ) as e:
            sink(engine, connector).apply()
        assert f"test.{db.name}.t, event" in str(e.value)
        sink(engine, connector, field__exclude__list=rf"test\.{db.name}\.t:v").apply()
        with engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT id FROM test_{db.name}_t ORDER BY id")).fetchall()
        assert [int(id_) for (id_,) in found] == [1, 2]


def test_a_row_that_a_truncate_has_not_removed_is_refused(mariadb: Any, engine: sa.Engine, tmp_path: Path) -> None:
    """With ``truncate.enabled=false`` its row stays, and has the value; otherwise it is gone."""
    with mariadb.database("types") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
        connector = mysql_connector(mariadb, tmp_path, "mariadb", database_include_list=db.name)
        connector.capture()
        db.sql(
            "INSERT INTO t VALUES (1, 'abc')", "TRUNCATE t", "ALTER TABLE t MODIFY v INT", "INSERT INTO t VALUES (2, 5)"
        )
        connector.capture()
        with pytest.raises(TargetError, match=r"(?i)The type of the column v was changed"):
            sink(engine, connector, truncate__enabled=False).apply()
        sink(engine, connector).apply()
        with engine.connect() as connection:
            found = connection.execute(sa.text(f"SELECT id, v FROM test_{db.name}_t")).fetchall()
        assert [*map(_plain_row, found)] == [(2, Decimal(5))]
