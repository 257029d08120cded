"""Comparing tables with a Db2, our test server: at an LSN that the capture agent has published, and with keys of its types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dev.servers import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.targets.lake.followed import ODD, FollowedConnector, of_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]
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


class Db2Connector(FollowedConnector):
    """A connector on a schema of a Db2, and its tables."""

    def __init__(self, spark: SparkSession, server: Db2, stack: ExitStack, folder: Path) -> None:
        self.server, self.db = server, Db2Adapter(server, stack)
        super().__init__(spark, self.db.connector(folder, topic_prefix="p"), folder)
        for table, columns in TABLES.items():
            self.db.create_as(table, columns)
            self.run(f"INSERT INTO {self.db.name(table)} VALUES {', '.join(f'({row})' for row in ROWS[table])}")

    def run(self, *statements: str) -> None:
        """A transaction; afterwards it is published."""
        self.server.transaction(*statements)
        self.server.catch_up()


@pytest.fixture
def world(spark: SparkSession, db2: Db2, tmp_path: Path) -> Iterator[Db2Connector]:
    with ExitStack() as stack:
        world = Db2Connector(spark, db2, stack, tmp_path)
        world.follow()
        yield world


def test_tables_are_compared_at_an_lsn_beside_changes_and_repaired(world: Db2Connector) -> None:
    odd, codes = world.db.name(ODD), world.db.name("CODES")
    changes = (
        f"UPDATE {odd} SET AMOUNT = 0.1, NOTE = NULL WHERE ID = 5", f"DELETE FROM {odd} WHERE ID = 6",
        f"UPDATE {world.db.name('DAYS')} SET N = 7 WHERE N = 3", f"DELETE FROM {world.db.name('BIG')} WHERE N = 9",
        f"INSERT INTO {world.db.name('BAG')} VALUES (9, 'é')", f"UPDATE {codes} SET N = 5 WHERE CODE = 'c4'",
        f"UPDATE {world.db.name('BIG')} SET N = 6 WHERE N = 5",
    )  # fmt: skip

    def change_meanwhile() -> None:
        world.run(*changes)  # after the position
        world.follow()

    verified, _ = world.verify(change_meanwhile)
    assert verified.is_equal, verified.format_text()
    assert {*verified.tables[0].position} >= {"commit_lsn"}
    days = of_table(verified, "DAYS")
    assert (days.source, days.aside, days.by_rule) == (20, 1, True)

    world.damaged_and_repaired()
