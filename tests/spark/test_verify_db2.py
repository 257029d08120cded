"""Comparing tables with a Db2, our test server: at an LSN that the capture agent has published, and with keys of its own types."""

from __future__ import annotations

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
from dev.servers import Db2
from spark_jobs.apply_changes import ApplyChanges
from spark_jobs.verify_tables import VerifyTables
from tests.sources.db2_adapter import Db2Adapter
from tests.support.connectors import Connector
from tests.support.signals import signal_state

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ODD = "it's #1"
TABLES = {
    ODD: "ID INTEGER NOT NULL PRIMARY KEY, AMOUNT DECIMAL(31,9), NOTE VARCHAR(40), X DOUBLE, DOC CLOB(1M), RAW_ VARCHAR(20) FOR BIT DATA",
    "CODES": "CODE VARCHAR(20) NOT NULL, DAY DATE NOT NULL, N DECIMAL(9,2), HOUR_ TIME, PRIMARY KEY (CODE, DAY)",
    "DAYS": "MOMENT TIMESTAMP NOT NULL PRIMARY KEY, N BIGINT",
    "BIG": "ID DECIMAL(31,0) NOT NULL PRIMARY KEY, N INTEGER",
    "BAG": "A INTEGER, B VARCHAR(10)",
}


def _note(number: int) -> str:
    return "NULL" if number % 3 else f"'n{number}'"


ROWS: dict[str, list[str]] = {
    ODD: [f"{i}, {i}.333333333, {_note(i)}, {i / 7}, 'doc {i}', X'00FF'" for i in range(1, 61)],
    "CODES": [f"'c{i}', DATE('2024-02-{i:02}'), {i / 4}, TIME('12:00:{i:02}')" for i in range(1, 29)],
    "DAYS": [f"TIMESTAMP('2024-02-29 12:00:{i:02}.500000'), {i}" for i in range(1, 21)],
    "BIG": [f"{i * 10**21}, {i}" for i in range(1, 21)],
    "BAG": [f"{i % 4}, 'x'" for i in range(20)],
}
RULES = [
    {"tables": r".*\.DAYS", "mode": "history", "columns": {"rename": {"N": "number"}}},
    {"tables": r".*\.BIG", "filter": "n > 5", "mode": "soft_delete"},
]


class World:
    """A connector on a schema of a Db2, and its tables."""

    def __init__(self, spark: SparkSession, server: Db2, stack: ExitStack, folder: Path) -> None:
        self.spark, self.server, self.folder = spark, server, folder
        self.db = Db2Adapter(server, stack)
        self.connector: Connector = self.db.connector(folder, topic_prefix="p")
        self.rules, self.location = TableRules.parse(RULES), f"{folder}/lake/{{table}}"
        for table, columns in TABLES.items():
            self.db.create_as(table, columns)
            self.run(f"INSERT INTO {self.db.name(table)} VALUES {', '.join(f'({row})' for row in ROWS[table])}")

    def run(self, *statements: str) -> None:
        """A transaction; afterwards it is published."""
        self.server.transaction(*statements)
        self.server.catch_up()

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


@pytest.fixture
def world(spark: SparkSession, db2: Db2, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        world = World(spark, db2, stack, tmp_path)
        world.follow()
        yield world


def test_tables_are_compared_at_an_lsn_beside_changes_and_repaired(world: World) -> None:
    odd, codes = world.db.name(ODD), world.db.name("CODES")
    changes = (
        f"UPDATE {odd} SET AMOUNT = 0.1, NOTE = NULL WHERE ID = 5", f"DELETE FROM {odd} WHERE ID = 6",
        f"UPDATE {world.db.name('DAYS')} SET N = 7 WHERE N = 3", f"DELETE FROM {world.db.name('BIG')} WHERE N = 9",
        f"INSERT INTO {world.db.name('BAG')} VALUES (9, 'é')", f"UPDATE {codes} SET N = 5 WHERE CODE = 'c4'",
        f"UPDATE {world.db.name('BIG')} SET N = 6 WHERE N = 5",
    )  # fmt: skip

    def meanwhile() -> None:
        world.run(*changes)  # after the position
        world.follow()

    verified, _ = world.verify(meanwhile)
    assert verified.equal, verified.text()
    assert {*verified.tables[0].position} >= {"commit_lsn"}
    days = _of(verified, "DAYS")
    assert (days.source, days.aside, days.by_rule) == (20, 1, True)

    world.spark.sql(f"DELETE FROM {world.table(ODD)} WHERE ID IN (7, 8)")
    world.spark.sql(f"UPDATE {world.table(ODD)} SET DOC = 'other' WHERE ID = 9")
    world.spark.sql(f"UPDATE {world.table(ODD)} SET ID = 1000 WHERE ID = 10")
    world.spark.sql(f"DELETE FROM {world.table('CODES')} WHERE CODE = 'c7'")
    world.spark.sql(f"UPDATE {world.table('CODES')} SET CODE = 'zz' WHERE CODE = 'c8'")
    world.spark.sql(f"DELETE FROM {world.table('DAYS')} WHERE number = 11")
    world.spark.sql(f"UPDATE {world.table('BIG')} SET N = 99 WHERE N = 12")
    world.spark.sql(f"UPDATE {world.table('BIG')} SET _is_deleted = true WHERE N = 13")
    verified, sent = world.verify(repair=True)
    counts = {
        t.location.rpartition("/")[2]: (t.missing, t.surplus, t.different) for t in verified.tables if t.rows_differ
    }
    assert counts == {ODD: (3, 1, 1), "CODES": (2, 1, 0), "DAYS": (1, 0, 0), "BIG": (1, 0, 1)}, verified.text()
    world.follow()
    assert [signal_state(world.connector, number) for number in sent] == [("done", "")] * 4
    verified, _ = world.verify()
    assert verified.equal, verified.text()
