"""Comparing tables with an Oracle, our test server: at an SCN, beside open transactions, and with keys of its types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dev.servers import Oracle
from tests.sources.oracle_adapter import OracleAdapter
from tests.targets.lake.followed import FollowedConnector, of_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]
TABLES = (
    'CREATE TABLE "it\'s #1" (id NUMBER(9) PRIMARY KEY, amount NUMBER, note VARCHAR2(40), x BINARY_DOUBLE, doc CLOB, raw_ RAW(20))',
    "CREATE TABLE codes (code VARCHAR2(20), day DATE, n NUMBER(9,2), at TIMESTAMP(6) WITH TIME ZONE, PRIMARY KEY (code, day))",
    "CREATE TABLE days (at TIMESTAMP(6) PRIMARY KEY, n NUMBER(18))",
    "CREATE TABLE big (id NUMBER PRIMARY KEY, n NUMBER(9))",
    "CREATE TABLE bag (a NUMBER(9), b VARCHAR2(10))",
)
FILLED = (
    """INSERT INTO "it's #1" SELECT level, level / 3, CASE WHEN MOD(level, 3) = 0 THEN 'n' || level END, level / 7, 'doc ' || level, HEXTORAW('00FF')
       FROM dual CONNECT BY level <= 60""",
    """INSERT INTO codes SELECT 'c' || level, DATE '2024-02-28' + level, level / 4,
       TIMESTAMP '2024-02-29 12:00:00.123456 +02:00' FROM dual CONNECT BY level <= 30""",
    "INSERT INTO days SELECT TIMESTAMP '2024-02-29 12:00:00.5' + NUMTODSINTERVAL(level, 'SECOND'), level FROM dual CONNECT BY level <= 20",
    "INSERT INTO big SELECT level * 1000000000000000000000, level FROM dual CONNECT BY level <= 20",
    "INSERT INTO bag SELECT MOD(level, 4), 'x' FROM dual CONNECT BY level <= 20",
)


class OracleConnector(FollowedConnector):
    """A connector on a schema of an Oracle, and its tables."""

    def __init__(self, spark: SparkSession, server: Oracle, stack: ExitStack, folder: Path, **properties: Any) -> None:
        self.server, self.db = server, OracleAdapter(server, stack, **properties)
        super().__init__(spark, self.db.connector(folder, topic_prefix="p"), folder)

    def create(self) -> None:
        self.db.sql(*TABLES)
        names = [name for (name,) in self.db.sql("SELECT table_name FROM user_tables")]
        self.db.sql(*(f'ALTER TABLE "{name}" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS' for name in names))
        self.run(*FILLED)

    def run(self, *statements: str) -> None:
        with self.open(*statements) as commit:
            commit()

    @contextlib.contextmanager
    def open(self, *statements: str) -> Iterator[Callable[[], object]]:
        """A transaction; what is given commits it."""
        with self.server.connect(**self.db.login) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            yield connection.commit


@pytest.fixture(scope="module")
def server() -> Iterator[Oracle]:
    with Oracle({"threads": 2, "cdb": False}) as server:
        yield server


def test_tables_are_compared_at_an_scn_beside_open_transactions_and_repaired(
    spark: SparkSession, server: Oracle, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world = OracleConnector(spark, server, stack, tmp_path, lob_enabled=True)
        world.create()
        world.follow()
        changes = (
            """UPDATE "it's #1" SET amount = 0.1, note = NULL WHERE id = 5""", """DELETE FROM "it's #1" WHERE id = 6""",
            "UPDATE days SET n = 7 WHERE n = 3", "DELETE FROM big WHERE n = 9", "INSERT INTO bag VALUES (9, 'é')",
        )  # fmt: skip
        with world.open(*changes) as commit:

            def change_meanwhile() -> None:
                commit()  # after the position, and begun before it
                world.run("UPDATE codes SET n = 5 WHERE code = 'c4'", "UPDATE big SET n = 6 WHERE n = 5")
                world.follow()

            verified, _ = world.verify(change_meanwhile)
        assert verified.is_equal, verified.format_text()
        assert {*verified.tables[0].position} >= {"scn", "read_scn"}
        days = of_table(verified, "DAYS")
        assert (days.source, days.aside, days.by_rule) == (20, 1, True)

        world.damaged_and_repaired()


def test_lobs_that_are_not_captured_are_named_and_not_compared(
    spark: SparkSession, server: Oracle, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world = OracleConnector(spark, server, stack, tmp_path)
        world.create()
        world.follow()
        verified, _ = world.verify()
        assert verified.is_equal, verified.format_text()
        assert "DOC" in verified.format_text()
