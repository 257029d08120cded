"""Captures of MariaDB and MySQL that are killed: in the snapshot, in the middle of a large transaction, and between batches."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from tests.support.change_log.log_consistency import consistent
from tests.support.connectors import Connector, mysql_connector
from tests.support.processes.fork import Forks, Run
from tests.support.sources.mysql.workload import WORDS, WORDS_OF_MARIADB, Writer, source_rows

pytestmark = pytest.mark.crash

TABLES = ("one", "two", "bag")


class CrashBench:
    """A writer, and a connector whose runs die."""

    def __init__(self, server: Any, kind: str, forks: Forks, writer: Writer, folder: Path) -> None:
        self._server, self._kind, self._forks, self.writer, self._folder = server, kind, forks, writer, folder
        options = {"batch_max_rows": 40, "snapshot_max_threads": 2, "database_include_list": writer.database}
        self.connector: Connector = mysql_connector(server, folder, kind, **options)
        self.died: Counter[str] = Counter()

    def run(self, at: int) -> bool:
        """Run a capture that dies at a step; return True if it died."""
        ended = self.start(at).wait()
        assert ended.error == "", ended.text
        assert ended.signal in (0, signal.SIGKILL)
        if ended.signal:
            self.died[(self._folder / "died").read_text()] += 1
        return bool(ended.signal)

    def start(self, at: int, **options: Any) -> Run:
        return self._forks.start(
            "tests.support.processes.crash_mysql:capture", folder=str(self._folder), kind=self._kind, at=at,
            options=self.connector.properties, secrets=self.connector.secrets, **options,
        )  # fmt: skip

    def ends_equal(self) -> None:
        """A run that no one kills makes good what was left, and the next one continues from there."""
        for transactions in (0, 3):
            self.writer.write(transactions)
            self.connector.capture()
            self.equal()
        consistent(self.connector)

    def equal(self) -> None:
        for table in TABLES:
            rows = self.connector.rows(f"{self.writer.database}.{table}")
            assert rows == source_rows(self._server, self.writer.database, table), table


@contextmanager
def _bench(server: Any, kind: str, forks: Forks, folder: Path, name: str) -> Iterator[CrashBench]:
    words = WORDS_OF_MARIADB if kind == "mariadb" else WORDS
    with server.connect(autocommit=True) as connection:
        writer = Writer(connection, f"crash_{crc32(name.encode())}", 7, ddl=0.02, words=words)
        writer.prepare()
        writer.write(60)
        yield CrashBench(server, kind, forks, writer, folder)
        writer.run(f"DROP DATABASE {writer.database}")


@pytest.fixture
def bench(mariadb: Any, mysql_forks: Forks, folder: Path, request: pytest.FixtureRequest) -> Iterator[CrashBench]:
    with _bench(mariadb, "mariadb", mysql_forks, folder, request.node.name) as bench:
        yield bench


@pytest.fixture
def bench_of_mysql(
    mysql97: Any, mysql_forks: Forks, folder: Path, request: pytest.FixtureRequest
) -> Iterator[CrashBench]:
    with _bench(mysql97, "mysql", mysql_forks, folder, request.node.name) as bench:
        yield bench


def test_a_snapshot_killed_at_many_steps_is_finished_by_later_runs(bench: CrashBench) -> None:
    """Each run comes a little further than the one before; rows change in between."""
    step, runs = 1, 0
    while bench.run(step):
        bench.writer.write(2)
        step, runs = step + 4, runs + 1
    assert runs > 5
    bench.ends_equal()


def test_a_stream_killed_at_random_steps_loses_and_repeats_nothing(bench: CrashBench) -> None:
    _kills_in_the_stream(bench)


def test_a_stream_of_mysql_killed_at_random_steps_loses_and_repeats_nothing(bench_of_mysql: CrashBench) -> None:
    _kills_in_the_stream(bench_of_mysql)


def _kills_in_the_stream(bench: CrashBench) -> None:
    """With statements among the rows after which a table is read again."""
    bench.connector.capture()
    r = Random(11)
    for turn in range(18):
        bench.writer.write(15)
        if turn % 4 == 1:
            for table in TABLES:
                bench.writer.other(table)
        bench.writer.write(10)
        bench.run(r.randrange(1, 60))
    assert bench.died.total() > 10
    assert bench.writer.rereads >= 2
    bench.ends_equal()


def test_a_run_killed_in_the_middle_of_a_large_transaction_captures_all_of_it_later(bench: CrashBench) -> None:
    """Its rows are in files already, and the transaction has not ended."""
    connector, writer = bench.connector, bench.writer
    connector.capture()
    writer.run("BEGIN")
    for lo in range(10_000, 60_000, 2000):
        rows = ", ".join(f"({i})" for i in range(lo, lo + 2000))
        writer.run(f"INSERT INTO one (id) VALUES {rows}")
    writer.run("COMMIT")
    before = connector.store.load_offset("test")
    for block in (1, 3):
        ended = bench.start(block, only="open block").wait()
        assert ended.signal == signal.SIGKILL, ended
        assert connector.store.load_offset("test") == before
    assert connector.capture().events == 50_000
    bench.equal()
    consistent(connector)


def test_a_run_that_slept_past_its_lease_writes_nothing(bench: CrashBench) -> None:
    connector = bench.connector
    connector.capture()
    for where in ("create", "link", "close file"):
        bench.writer.write(15)
        zombie = bench.start(1, signal_=signal.SIGSTOP, only=f"before {where}")
        assert zombie.wait_until_stopped()
        taken = connector.capture()
        there = connector.store.load_offset("test")
        assert taken.events > 0
        zombie.go_on()
        ended = zombie.wait()
        assert ended.error == "LeaseLost", ended
        assert connector.store.load_offset("test") == there
        bench.equal()
    bench.writer.write(3)
    connector.capture()
    bench.equal()
    consistent(connector)
