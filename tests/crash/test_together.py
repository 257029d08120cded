"""All at once, of what was missed apart: captures and sinks that are killed, beside two sinks that are run twice, while

* rows are as long as a packet of the protocol, or a few bytes more or less,
* statements move keys over each other in a table whose key only the configuration names,
* tables have other engines and character sets,
* the server begins new log files, and resets its log under the same identity.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import TransientError
from airflow_provider_cdc.targets.database.config import EQUAL, DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from tests.crash.test_mysql import CrashBench
from tests.support.connectors import Connector, mysql_connector
from tests.support.patience import LONGEST_S
from tests.support.processes.fork import Forks
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.sources.mysql.workload import WORDS, WORDS_OF_MARIADB, Writer
from tests.targets.database import killed as killed_sink
from tests.targets.database.apply.test_database_apply import sink

pytestmark = pytest.mark.crash

PACKET = 0xFFFFFF
TURNS, LONG = 8, 40
LETTERS = {"gb18030": "ḿ€𠀀", "euckr": "똠방각하", "utf16": "😀ı", "eucjpms": "①㈱～", "big5": "恒春裏"}
"""Character set → texts of it."""
COMPARED = {"one": "1", "big": "SHA2(b, 256)", "other": "v", "crossed": "v"}
"""Table → the value that is compared besides its ``id``."""


class CombinedBench:
    """A server with all kinds of tables, two connectors, and a target."""

    def __init__(self, server: Any, kind: str, bench: CrashBench, second: Connector, random: Random) -> None:
        self.server, self.kind, self.bench, self.second, self._random = server, kind, bench, second, random
        self.connectors = (bench.connector, second)
        self._letters_of = {name: text for name, text in LETTERS.items() if name != "gb18030" or kind == "mysql"}
        self._url = server.url("target?charset=utf8mb4")
        self.engine = open_engine(DatabaseTargetConfig.parse({"connection.url": self._url}))
        self.killed_sinks = 0

    def prepare(self) -> None:
        engine = "Aria" if self.kind == "mariadb" else "MyISAM"
        for table, columns in {
            "big": "(id INT PRIMARY KEY, b LONGBLOB)",
            "other": f"(id INT PRIMARY KEY, v INT) ENGINE={engine}",
            "crossed": "(id INT NOT NULL, v INT)",
            **{f"in_{name}": f"(id INT PRIMARY KEY, w VARCHAR(20) CHARACTER SET {name})" for name in self._letters_of},
        }.items():
            self.bench.writer.run(f"CREATE TABLE {table} {columns}")
        rows = ", ".join(f"({n}, {n})" for n in range(5))
        self.bench.writer.run(f"INSERT INTO crossed VALUES {rows}")
        self.bench.writer.run("CREATE DATABASE target")

    def write(self) -> None:
        random, run = self._random, self.bench.writer.run
        self.bench.writer.write(random.randrange(2, 12))
        for _ in range(random.randrange(1, 5)):
            id_ = random.randrange(4)
            one = random.choice((self._long, self._letters, self._cross, self._other, self._next_file))
            if random.random() < 0.5:
                run("BEGIN")
            one(id_)
            run("COMMIT")

    def _long(self, id_: int) -> None:
        size = random_size(self._random)
        statement = self._random.choice(
            (
                f"REPLACE INTO big VALUES ({id_}, REPEAT('{id_}', {size}))",
                f"DELETE FROM big WHERE id = {id_}",
                f"UPDATE big SET id = {id_ + 100} WHERE id = {id_}",
            )
        )
        self.bench.writer.run("DELETE FROM big WHERE id >= 100")
        self.bench.writer.run(statement)

    def _letters(self, id_: int) -> None:
        name, text = self._random.choice(list(self._letters_of.items()))
        self.bench.writer.run(
            f"REPLACE INTO in_{name} VALUES ({id_}, CONVERT(_utf8mb4'{text * (1 + id_)}' USING {name}))"
        )

    def _cross(self, _: int) -> None:
        moved = self._random.choice(("(id + 1) % 5", "(id + 2) % 5", "4 - id"))
        self.bench.writer.run(f"UPDATE crossed SET id = {moved}, v = v + 1")

    def _other(self, id_: int) -> None:
        self.bench.writer.run(f"REPLACE INTO other VALUES ({id_}, {self._random.randrange(1000)})")

    def _next_file(self, _: int) -> None:
        self.bench.writer.run("FLUSH BINARY LOGS")

    def begin_log_again(self) -> None:
        mysql = "RESET BINARY LOGS AND GTIDS"
        self.bench.writer.run("RESET MASTER" if self.kind == "mariadb" else mysql)

    def apply(self) -> None:
        """Bring both connectors into the target, each by two sinks at once, beside or after one that is killed."""

        def properties(connector: Connector) -> dict[str, str]:
            return {
                "collection.name.format": f"{connector.name}_${{source.table}}",
                "topics.regex": r".*\.together\.(?!bag).*",
            }

        def apply_once(connector: Connector) -> None:
            with contextlib.suppress(TransientError):  # another one was faster each time
                sink(
                    self.engine, connector, **{k.replace(".", "__"): v for k, v in properties(connector).items()}
                ).apply()

        dying = [
            killed_sink.start(
                {**EQUAL, **properties(one), "connection.url": self._url}, one.changelog.storage.url, one.name,
                statement=self._random.randrange(5, 70),
            )
            for one in self.connectors
        ]  # fmt: skip
        if self._random.random() < 0.5:
            self._join(dying)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(apply_once, self.connectors * 2))
        self._join(dying)
        for connector in self.connectors:
            apply_once(connector)

    def _join(self, dying: list[BaseProcess]) -> None:
        for process in dying:
            process.join(LONGEST_S)
            assert process.exitcode is not None
        self.killed_sinks += sum(process.exitcode == -signal.SIGKILL for process in dying)
        dying.clear()

    def assert_equal(self) -> None:
        """All is in the target, under both names."""
        database = self.bench.writer.database
        with self.engine.connect() as connection:
            for table, shown in {**COMPARED, **{f"in_{name}": "w" for name in self._letters_of}}.items():
                expected = self._rows(connection, f"{database}.{table}", shown)
                for connector in self.connectors:
                    assert self._rows(connection, f"target.{connector.name}_{table}", shown) == expected, (
                        table,
                        connector.name,
                    )

    @staticmethod
    def _rows(connection: Any, table: str, shown: str) -> list[tuple[Any, ...]]:
        found = connection.execute(sa.text(f"SELECT id, {shown} FROM {table} ORDER BY id")).all()
        return [(int(id_), value if value is None or isinstance(value, int) else str(value)) for id_, value in found]


def random_size(random: Random) -> int:
    """A size around one or two packets, or a small one; an event has some bytes besides."""
    border = random.choice((PACKET, PACKET, 2 * PACKET, PACKET // 2, 1000))
    return max(border + random.choice((-1, 0, 1, *(random.randrange(-120, 40) for _ in range(5)))), 0)


@pytest.fixture(params=["mariadb", "mysql97"])
def crash_bench(
    request: pytest.FixtureRequest,
    mysql_factory: Any,
    mariadb_factory: Any,
    mysql_forks: Forks,
    folder: Path,
    sampled: CaseSample,
) -> Iterator[CombinedBench]:
    kind = "mariadb" if request.param == "mariadb" else "mysql"
    factory, random = (mariadb_factory if kind == "mariadb" else mysql_factory), sampled.random(request.param)
    options = {"sync_binlog": 1, "max_allowed_packet": "1G"} | (
        {} if kind == "mariadb" else {"gtid_mode": True, "enforce_gtid_consistency": True}
    )
    with factory(**options) as server, server.connect(autocommit=True) as connection:
        words = WORDS_OF_MARIADB if kind == "mariadb" else WORDS
        writer = Writer(connection, "together", random.randrange(1000), ddl=0.02, words=words)
        writer.prepare()
        writer.write(20)
        bench = CrashBench(server, kind, mysql_forks, writer, folder)
        more = {"message.key.columns": "together.crossed:id", "snapshot.mode": "when_needed"}
        bench.connector.properties |= more
        second = dataclasses.replace(
            mysql_connector(server, folder / "second", kind, database_include_list="together", database_server_id=4002),
            name="second",
        )
        second.properties |= more
        combined_bench = CombinedBench(server, kind, bench, second, random)
        combined_bench.prepare()
        yield combined_bench
        combined_bench.engine.dispose()


def test_captures_that_are_killed_lose_nothing_of_what_was_missed_apart(
    crash_bench: CombinedBench, sampled: CaseSample
) -> None:
    bench, random, killed = crash_bench.bench, sampled.random("kills"), 0
    bench.connector.capture()
    crash_bench.second.capture()
    for turn in range(LONG if sampled.all else TURNS):
        crash_bench.write()
        ended = bench.start(random.randrange(1, 40)).wait()
        assert ended.error == "", ended.text
        killed += bool(ended.signal)
        if turn % 3 == 2:
            crash_bench.second.capture()
            crash_bench.apply()
        if turn % 5 == 3:
            crash_bench.write()
            crash_bench.begin_log_again()
        crash_bench.write()
    assert killed > TURNS // 4
    assert crash_bench.killed_sinks
    for again in range(2):
        for connector in crash_bench.connectors:
            connector.capture()
        crash_bench.apply()
        crash_bench.assert_equal()
        bench.equal()
        if not again:
            crash_bench.write()
