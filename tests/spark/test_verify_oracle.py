"""Comparing tables with an Oracle, our test server: at an SCN, beside open transactions, and with keys of its own types."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_provider_cdc.changelog.applied import AppliedReports, rules_of
from airflow_provider_cdc.changelog.verified import Compared, Verified
from airflow_provider_cdc.core.config.table_rules import NO_RULES, TableRules
from airflow_provider_cdc.verification import open_verification
from dev.servers import Oracle
from spark_jobs.apply_changes import ApplyChanges
from spark_jobs.verify_tables import VerifyTables
from tests.sources.oracle_adapter import OracleAdapter
from tests.support.connectors import Connector
from tests.support.signals import signal_state

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
RULES = [
    {"tables": r".*\.DAYS", "mode": "history", "columns": {"rename": {"N": "number"}}},
    {"tables": r".*\.BIG", "filter": "n > 5", "mode": "soft_delete"},
]


class World:
    """A connector on a schema of an Oracle, and its tables."""

    def __init__(self, spark: SparkSession, server: Oracle, stack: ExitStack, folder: Path, **properties: Any) -> None:
        self.spark, self.server, self.folder = spark, server, folder
        self.db = OracleAdapter(server, stack, **properties)
        self.connector: Connector = self.db.connector(folder, topic_prefix="p")
        self.rules, self.location = TableRules.parse(RULES), f"{folder}/lake/{{table}}"

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

    def follow(self) -> None:
        self.connector.capture()
        ApplyChanges(
            self.spark, self.connector.changelog, self.connector.name, location=self.location, threads=2, tables=self.rules
        ).run()  # fmt: skip

    def verify(
        self, meanwhile: Callable[[], object] | None = None, *, repair: bool = False
    ) -> tuple[Verified, list[int]]:
        """:return: what was found, and the signals that were sent"""
        with open_verification(
            self.connector.definition(), self.connector.state_url, secrets=self.connector.secrets
        ) as verification:
            wait, done = verification._wait, list[bool]()

            def waited(position: Any, wait_s: float) -> None:
                # the SCN goes on by itself: rows without a key, which may be read again, have another one
                (meanwhile if meanwhile and not done else self.connector.capture)()
                done.append(True)
                wait(position, wait_s)

            verification._wait = waited  # type: ignore[method-assign]
            report = AppliedReports(self.connector.changelog.storage, self.connector.name).read("delta", self.location)
            plan = verification.prepare(wait_s=60, rules=rules_of(report or {}) or NO_RULES)
            verified = VerifyTables(
                self.spark, verification.scratch, self.connector.name, location=self.location, threads=2, plan=plan,
                source=self.connector.changelog, keys=verification.scratch.storage.uri("keys") if repair else "", values=True,
            ).run()  # fmt: skip
            repairs = verification.repairs(verified.document()) if repair else []
            sent = verification.send(repairs, "me")
            assert not repair or set(sent) == {t.topic for t in verified.tables if t.rows_differ}, repairs
            return verified, list(sent.values())

    def table(self, name: str) -> str:
        return f"delta.`{self.folder}/lake/{name}`"


def _of(verified: Verified, name: str) -> Compared:
    return next(t for t in verified.tables if t.location.endswith(f"/{name}"))


@pytest.fixture(scope="module")
def server() -> Iterator[Oracle]:
    with Oracle({"threads": 2, "cdb": False}) as server:
        yield server


def test_tables_are_compared_at_an_scn_beside_open_transactions_and_repaired(
    spark: SparkSession, server: Oracle, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world = World(spark, server, stack, tmp_path, lob_enabled=True)
        world.create()
        world.follow()
        changes = (
            """UPDATE "it's #1" SET amount = 0.1, note = NULL WHERE id = 5""", """DELETE FROM "it's #1" WHERE id = 6""",
            "UPDATE days SET n = 7 WHERE n = 3", "DELETE FROM big WHERE n = 9", "INSERT INTO bag VALUES (9, 'é')",
        )  # fmt: skip
        with world.open(*changes) as commit:

            def meanwhile() -> None:
                commit()  # after the position, and begun before it
                world.run("UPDATE codes SET n = 5 WHERE code = 'c4'", "UPDATE big SET n = 6 WHERE n = 5")
                world.follow()

            verified, _ = world.verify(meanwhile)
        assert verified.equal, verified.text()
        assert {*verified.tables[0].position} >= {"scn", "read_scn"}
        days = _of(verified, "DAYS")
        assert (days.source, days.aside, days.by_rule) == (20, 1, True)

        world.spark.sql(f"""DELETE FROM {world.table("it's #1")} WHERE id IN (7, 8)""")
        world.spark.sql(f"""UPDATE {world.table("it's #1")} SET doc = 'other' WHERE id = 9""")
        world.spark.sql(f"""UPDATE {world.table("it's #1")} SET id = 1000 WHERE id = 10""")
        world.spark.sql(f"DELETE FROM {world.table('CODES')} WHERE CODE = 'c7'")
        world.spark.sql(f"UPDATE {world.table('CODES')} SET CODE = 'zz' WHERE CODE = 'c8'")
        world.spark.sql(f"DELETE FROM {world.table('DAYS')} WHERE number = 11")
        world.spark.sql(f"UPDATE {world.table('BIG')} SET N = 99 WHERE N = 12")
        world.spark.sql(f"UPDATE {world.table('BIG')} SET _is_deleted = true WHERE N = 13")
        verified, sent = world.verify(repair=True)
        counts = {
            t.location.rpartition("/")[2]: (t.missing, t.surplus, t.different) for t in verified.tables if t.rows_differ
        }
        assert counts == {"it's #1": (3, 1, 1), "CODES": (2, 1, 0), "DAYS": (1, 0, 0), "BIG": (1, 0, 1)}, (
            verified.text()
        )
        world.follow()
        assert [signal_state(world.connector, number) for number in sent] == [("done", "")] * 4
        verified, _ = world.verify()
        assert verified.equal, verified.text()


def test_lobs_that_are_not_captured_are_named_and_not_compared(
    spark: SparkSession, server: Oracle, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world = World(spark, server, stack, tmp_path)
        world.create()
        world.follow()
        verified, _ = world.verify()
        assert verified.equal, verified.text()
        assert "DOC" in verified.text()
