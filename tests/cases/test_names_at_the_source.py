"""Names at the source, MySQL and MariaDB: in other letters than the stored ones, of what is no table, and of columns that only the server knows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.core.config.topic_names import sanitize_name
from airflow_provider_cdc.core.errors import UnknownLogEvent
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.mysql.log import transaction_control
from airflow_provider_cdc.sources.mysql.log.binlog_position_tracker import OpenTransaction
from airflow_provider_cdc.sources.mysql.schema import ddl
from airflow_provider_cdc.sources.mysql.schema.table_name_resolver import TableNameResolver, lower_name
from dev.servers import MariaDb, MySql
from tests.support.connectors import Connector, mysql_connector
from tests.support.pytest_runs.sampled import CaseSample

T = "(id INT PRIMARY KEY, w INT)"
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    # id → tables whose rows are compared, statements before and after the snapshot
    "H9 truncate": ("h1", [f"CREATE TABLE h1 {T}", "INSERT h1 VALUES (1, 1)"], ["TRUNCATE TABLE H1", "INSERT h1 VALUES (2, 2)"]),
    "H9 truncate with the database": ("h2", [f"CREATE TABLE h2 {T}", "INSERT h2 VALUES (1, 1)"], ["TRUNCATE {D}.h2"]),
    "H9 add": ("h3", [f"CREATE TABLE h3 {T}", "INSERT h3 VALUES (1, 1)"], ["ALTER TABLE H3 ADD x INT DEFAULT 7"]),
    "H9 modify": ("h4", [f"CREATE TABLE h4 {T}", "INSERT h4 VALUES (1, 300)"], ["SET sql_mode = ''", "ALTER TABLE H4 MODIFY W TINYINT"]),
    "H9 rename": ("h6", [f"CREATE TABLE h5 {T}", "INSERT h5 VALUES (1, 1)"], ["RENAME TABLE H5 TO H6"]),
    "H9 drop and create": ("h7", [f"CREATE TABLE h7 {T}", "INSERT h7 VALUES (1, 1)"], ["DROP TABLE H7", f"CREATE TABLE H7 {T}"]),
    "H9 create": ("h8", [], [f"CREATE TABLE H8 {T}", "INSERT h8 VALUES (1, 1)"]),
    "R03a": ("Orders", [f"CREATE TABLE Orders {T}", "INSERT Orders VALUES (1, 1), (2, 2)"], ["TRUNCATE TABLE Orders", "INSERT Orders VALUES (7, 7)"]),
    "R03b": (
        "part",
        [
            "CREATE TABLE part (id INT PRIMARY KEY, w INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
            "INSERT part VALUES (1, 1), (11, 11)",
        ],
        ["ALTER TABLE {D}.PART TRUNCATE PARTITION B"],
    ),
    "R03c": (
        "ghost",
        [f"CREATE TABLE Ghost {T}", "INSERT Ghost VALUES (1, 1), (2, 2)"],
        [
            "CREATE TABLE Ghost_new LIKE GHOST",
            "INSERT GHOST_new VALUES (1, 100), (3, 300)",
            "RENAME TABLE Ghost TO Ghost_old, Ghost_NEW TO gHost",
            "INSERT ghost VALUES (4, 400)",
        ],
    ),
    "R03d": ("chg", [f"CREATE TABLE chg {T}", "INSERT chg VALUES (1, 1)"], ["ALTER TABLE CHG DROP COLUMN W, ADD COLUMN w INT DEFAULT 9"]),
    "R03e": ("rep", [f"CREATE TABLE rep {T}", "INSERT rep VALUES (1, 1)"], ["{OR_REPLACE} REP (Id INT PRIMARY KEY, w INT)"]),
    "R03g": ("newones", [], [f"CREATE TABLE NewOnes {T}", "INSERT newOnes VALUES (1, 1)"]),
    "letters": ("äö", [f"CREATE TABLE ÄÖ {T}", "INSERT äö VALUES (1, 1)"], ["TRUNCATE TABLE Äö", "INSERT ÄÖ VALUES (2, 2)"]),
    "Greek": ("οδοσ", [f"CREATE TABLE ΟΔΟΣ {T}", "INSERT ΟΔΟΣ VALUES (1, 1)"], ["TRUNCATE TABLE ΟΔΟΣ"]),
    "exchange": (
        "ex",
        [
            "CREATE TABLE ex (id INT PRIMARY KEY, w INT) PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (10))",
            f"CREATE TABLE ex_other {T}",
            "INSERT ex VALUES (1, 1)",
            "INSERT ex_other VALUES (2, 2)",
        ],
        ["ALTER TABLE EX EXCHANGE PARTITION a WITH TABLE {D}.EX_Other"],
    ),
    "unique key": (
        "uk",
        ["CREATE TABLE uk (a INT NOT NULL UNIQUE, b INT NOT NULL)", "INSERT uk VALUES (1, 1)"],
        ["ALTER TABLE UK ADD PRIMARY KEY (A)", "UPDATE uk SET b = 2"],
    ),
}  # fmt: skip


class SmallLetterSource:
    """A database whose server keeps names in small letters, its connector, and the schema changes that it has captured."""

    def __init__(self, server: Any, name: str, folder: Path) -> None:
        self.server, self.name = server, name
        self.connection = server.connect(database=name)
        kind = "mariadb" if isinstance(server, MariaDb) else "mysql"
        self.connector: Connector = mysql_connector(
            server, folder, kind, topic_prefix="p", table_include_list=rf"{name}\..*"
        )

    def run(self, *statements: str) -> None:
        words = {"{D}": self.name.upper(), "{OR_REPLACE}": "CREATE OR REPLACE TABLE"}
        with self.connection.cursor() as cursor:
            for statement in statements:
                if "{OR_REPLACE}" in statement and not isinstance(self.server, MariaDb):
                    words["{OR_REPLACE}"] = "CREATE TABLE"
                    cursor.execute("DROP TABLE REP")
                for word, text in words.items():
                    statement = statement.replace(word, text)
                cursor.execute(statement)

    def tables(self) -> list[str]:
        sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.name}' AND table_type = 'BASE TABLE'"
        return [str(name) for (name,) in self.server.sql(sql)]

    def there(self, table: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM `{table}`")
            return _sort_rows(cursor.fetchall())

    def captured(self, table: str) -> list[tuple[Any, ...]]:
        return _sort_rows(self.connector.rows(sanitize_name(f"{self.name}.{table}")))

    def changes(self) -> list[tuple[str, str]]:
        manifests = self.connector.changelog.read_manifests(self.connector.name)
        records = [record for manifest in manifests for record in manifest.batch_contents.schema_changes]
        return [(change.type, change.id.name) for record in records for change in record.changes]

    def equal(self) -> None:
        for table in self.tables():
            assert self.captured(table) == self.there(table), table


def _sort_rows(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(sorted(row.items())) for row in rows), key=repr)


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def small_letters(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server that keeps names in small letters."""
    options = {"lower_case_table_names": 1}
    with MariaDb(options) if request.param == "mariadb" else MySql(options) as server:
        yield server


@pytest.fixture(scope="module")
def world(small_letters: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallLetterSource]:
    """All cases, done: the tables before the snapshot, the statements after it."""
    with small_letters.database("d") as database, small_letters.database("gone") as gone:
        found = SmallLetterSource(small_letters, database.name, tmp_path_factory.mktemp("names"))
        found.connector.properties["table.include.list"] += rf",{gone.name}\..*"
        small_letters.sql(f"CREATE TABLE {gone.name}.t {T}")
        for _, before, _ in CASES.values():
            found.run(*before)
        found.connector.capture()
        for _, _, after in CASES.values():
            found.run(*after, "SET sql_mode = DEFAULT")
        small_letters.sql(f"DROP DATABASE {gone.name.upper()}")
        found.connector.capture()
        yield found


@pytest.mark.parametrize("case", CASES)
def test_names_in_other_letters_mean_the_same_table(world: SmallLetterSource, case: str) -> None:
    """H9, R03"""
    table = lower_name(CASES[case][0])
    assert world.captured(table) == world.there(table)


def test_no_table_is_there_twice_and_those_that_are_gone_are_gone(world: SmallLetterSource) -> None:
    """R03f, R03g"""
    changes = world.changes()
    assert {name for _, name in changes} == {name.lower() for _, name in changes}
    assert ("DROP", "t") in changes, "DROP DATABASE"
    assert changes.count(("CREATE", "newones")) == 1
    topics = {topic for manifest in world.connector.changelog.read_manifests("test") for topic in manifest.schemas}
    assert not {topic for topic in topics if topic != topic.lower()}


@pytest.mark.parametrize("case", ["H9 truncate", "H9 drop and create", "H9 create", "R03a", "R03g"])
def test_a_table_whose_name_is_in_other_letters_is_not_read_again(world: SmallLetterSource, case: str) -> None:
    """H9, R03: the statement says everything to know."""
    topic = f"p.{world.name}.{lower_name(CASES[case][0])}"
    read = sum(
        file.counts.get("r", 0)
        for manifest in world.connector.changelog.read_manifests("test", after=1)
        for file in manifest.files
        if file.topic == topic
    )
    assert read == 0


def _respell_name(random: Random, name: str) -> str:
    return "".join(random.choice((letter.lower(), letter.upper())) for letter in name)


def _statement(random: Random, names: list[str], database: str, spelled: Any, mariadb: bool) -> list[str]:
    """A random statement of each form of DDL, or some that change rows; it may fail."""

    def table() -> str:
        name = f"`{spelled(random.choice(names))}`"
        return f"`{spelled(database)}`.{name}" if random.random() < 0.3 else name

    def column() -> str:
        return _respell_name(random, random.choice(["v", "w", "x"]))

    t, c, number = table(), column(), random.randrange(50)
    rows = [
        f"INSERT IGNORE INTO {t} ({_respell_name(random, 'id')}) VALUES ({number}), ({random.randrange(50)})",
        f"UPDATE {t} SET {c} = {number} WHERE {_respell_name(random, 'id')} % 3 = 0",
        f"DELETE FROM {t} WHERE {_respell_name(random, 'id')} > 40",
        f"UPDATE IGNORE {t} SET {_respell_name(random, 'id')} = {number} LIMIT 1",
    ]
    new = random.choice(["INT", "INT DEFAULT 5", "VARCHAR(9)", "VARCHAR(9) NOT NULL DEFAULT 'a'", "TIMESTAMP NULL"])
    ddl = [
        f"CREATE TABLE {t} (Id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE IF NOT EXISTS {t} (id INT PRIMARY KEY, V INT, w VARCHAR(9))",
        f"CREATE {'OR REPLACE ' if mariadb else ''}TABLE {t} (id INT PRIMARY KEY, w INT)",
        f"CREATE TABLE {t} LIKE {table()}",
        f"CREATE TABLE {t} (id INT PRIMARY KEY) SELECT id FROM {table()}",
        f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (ID) (PARTITION a VALUES LESS THAN (25), PARTITION b VALUES LESS THAN MAXVALUE)",
        f"DROP TABLE {t}",
        f"DROP TABLE IF EXISTS {t}, {table()}",
        f"RENAME TABLE {t} TO {table()}",
        f"RENAME TABLE {t} TO `{spelled('between')}`, {table()} TO {t}, `{spelled('between')}` TO {table()}",
        f"TRUNCATE {t}",
        f"TRUNCATE TABLE {t}",
        f"ALTER TABLE {t} TRUNCATE PARTITION {_respell_name(random, 'b')}",
        f"ALTER TABLE {t} EXCHANGE PARTITION a WITH TABLE {table()} WITHOUT VALIDATION",
        f"ALTER TABLE {t} RENAME {table()}",
        f"ALTER TABLE {t} RENAME TO {table()}, ADD COLUMN {c} INT",
        f"ALTER TABLE {t} ADD COLUMN {c} {new} {random.choice(['', 'FIRST', f'AFTER {column()}'])}",
        f"ALTER TABLE {t} ADD {c} {new}, ADD COLUMN {column()} INT",
        f"ALTER TABLE {t} DROP COLUMN {c}",
        f"ALTER TABLE {t} DROP COLUMN {c}, ADD COLUMN {c} INT DEFAULT 9",
        f"ALTER TABLE {t} CHANGE {c} {column()} {new}",
        f"ALTER TABLE {t} RENAME COLUMN {c} TO {column()}",
        f"ALTER TABLE {t} RENAME COLUMN {_respell_name(random, 'v')} TO {_respell_name(random, 'v')}",
        f"ALTER TABLE {t} MODIFY {c} {random.choice(['INT', 'BIGINT', 'TINYINT', 'VARCHAR(20)'])}",
        f"ALTER TABLE {t} ALTER COLUMN {c} SET DEFAULT 3",
        f"ALTER TABLE {t} ADD UNIQUE INDEX {_respell_name(random, 'idx')} ({c})",
        f"CREATE UNIQUE INDEX {_respell_name(random, 'idx')} ON {t} ({c})",
        f"DROP INDEX {_respell_name(random, 'idx')} ON {t}",
        f"ALTER TABLE {t} COMMENT 'x', ENGINE = InnoDB",
        f"ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
        f"ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY ({_respell_name(random, 'id')})",
    ]
    return random.choices(rows, k=3) if random.random() < 0.6 else [random.choice(ddl)]


def _random_work(server: Any, folder: Path, names: list[str], spelled: Any, random: Random, rounds: int) -> int:
    """Random statements and captures; each ends with tables that equal the source's. Gives how many statements have succeeded."""
    done = 0
    with server.database("rnd") as database:
        world = SmallLetterSource(server, database.name, folder)
        for name in names[:2]:
            world.run(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, v INT)")
        world.connector.capture()
        world.run("SET SESSION sql_mode = ''")
        for _ in range(rounds):
            texts = list[str]()
            for _ in range(25):
                for text in _statement(
                    random, names, database.name, lambda n: spelled(random, n), isinstance(server, MariaDb)
                ):
                    with contextlib.suppress(pymysql.err.MySQLError):
                        world.run(text)
                        texts.append(text)
            world.connector.capture()
            done += len(texts)
            for table in world.tables():
                assert world.captured(table) == world.there(table), "\n".join([table, *texts])
    return done


def test_random_statements_in_random_letters(small_letters: Any, tmp_path: Path, sampled: CaseSample) -> None:
    """H9, R03: every form of DDL, every name in letters of any case."""
    rounds = 12 if sampled.all else 3
    random = Random(sampled._seed)
    assert (
        _random_work(small_letters, tmp_path, ["orders", "items", "parts"], _respell_name, random, rounds) > 10 * rounds
    )


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_random_statements_on_tables_that_differ_in_case(
    request: pytest.FixtureRequest, tmp_path: Path, sampled: CaseSample, kind: str
) -> None:
    """A5, R10 at the source: where names are as they are, ``Orders`` is not ``orders``."""
    rounds = 12 if sampled.all else 2
    server = request.getfixturevalue(kind)
    names = ["orders", "Orders", "ORDERS"]
    assert _random_work(server, tmp_path, names, lambda _, name: name, Random(sampled._seed), rounds) > 10 * rounds


# -- names that a server keeps as they are, and looks up in any letters (macOS) -----------------------------------------------


class _KnownNames:
    def __init__(self, *names: str) -> None:
        self._names = [TableId(namespace="Shop", name=name) for name in names]

    def list_known_tables(self) -> list[TableId]:
        return self._names


@pytest.mark.parametrize(
    ("setting", "given", "found"),
    [(0, "Shop.orders", "Shop.orders"), (1, "Shop.Orders", "shop.orders"), (2, "shop.orders", "Shop.Orders"), (2, "SHOP.New", "SHOP.New")],
)  # fmt: skip
def test_a_name_means_the_table_that_the_server_takes_it_for(setting: int, given: str, found: str) -> None:
    """H9, R03, with ``lower_case_table_names`` 0, 1 and 2."""
    names = TableNameResolver(setting, _KnownNames("Orders", "items"))  # type: ignore[arg-type]
    assert str(names.resolve_table(*given.split("."))) == found
    databases = {0: [], 1: ["Shop.Orders", "Shop.items"], 2: ["Shop.Orders", "Shop.items"]}
    assert [str(table) for table in names.in_database("SHOP")] == databases[setting]


def test_letters_become_small_as_on_the_server(small_letters: Any) -> None:
    """H9: every letter of the sixteen bits that Python or we would change."""
    letters = [chr(code) for code in range(1, 0x10000) if not 0xD800 <= code < 0xE000]
    letters = [letter for letter in letters if letter.lower() != letter or lower_name(letter) != letter]
    with small_letters.connect() as connection, connection.cursor() as cursor:
        expected = " UNION ALL ".join(
            f"SELECT {n}, LOWER(CONVERT(0x{letter.encode().hex()} USING utf8mb3) COLLATE utf8mb3_general_ci)"
            for n, letter in enumerate(letters)
        )
        cursor.execute(expected)
        found = dict(cursor.fetchall())
    assert {letter: found[n] for n, letter in enumerate(letters) if found[n] != lower_name(letter)} == {}


# -- savepoints ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
def test_savepoints_are_found_in_letters_of_any_case(mariadb: MariaDb, tmp_path: Path, engine: str) -> None:
    """M4 MariaDB: the log has ROLLBACK TO where a table without transactions was changed after the savepoint."""
    with mariadb.database("save") as database:
        world = SmallLetterSource(mariadb, database.name, tmp_path)
        world.run(f"CREATE TABLE t {T} ENGINE=InnoDB", f"CREATE TABLE m {T} ENGINE={engine}")
        world.connector.capture()
        for at, (name, back) in enumerate([("Here", "here"), ("`É`", "`e`"), ("`ß`", "`S`"), ("`a.b c`", "`A.B C`")]):
            world.run(
                "BEGIN", f"INSERT t VALUES ({at}1, 1)", f"SAVEPOINT {name}", f"INSERT t VALUES ({at}2, 2)", f"INSERT m VALUES ({at}, 1)",
                f"ROLLBACK TO {back}", "COMMIT",
            )  # fmt: skip
        # set before the first change, a savepoint is not in the log: nor is what was rolled back to it
        world.run("BEGIN", "SAVEPOINT early", "INSERT t VALUES (91, 1)", "INSERT m VALUES (91, 1)", "ROLLBACK TO Early")
        world.run("INSERT t VALUES (92, 1)", "COMMIT")
        world.connector.capture()
        world.equal()


def test_a_savepoint_that_was_not_set_is_an_error() -> None:
    """M4 MariaDB: no one knows what is rolled back."""

    class Buffer:
        last_transaction_index = 0

        def state_of(self, _: int) -> Any:
            return OpenTransaction(savepoints={"HERE": 3})

        def format_location(self, i: int) -> str:
            return f"mariadb-bin.000001:{i}"

        def rows_before(self, _: int) -> int:
            return 5

    def roll_back(name: str) -> Any:
        return transaction_control.apply_transaction_control(ddl.TransactionControl("rollback to", name), 7, Buffer())  # type: ignore[arg-type]

    assert roll_back("here") == transaction_control.SavepointRollback(3, 5)
    with pytest.raises(UnknownLogEvent, match="savepoint there, which its transaction has not set"):
        roll_back("there")


# -- what is no table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", ["10.11", "11.8"])
def test_sequences_and_views_are_no_tables(
    request: pytest.FixtureRequest, tmp_path: Path, edition: str, caplog: pytest.LogCaptureFixture
) -> None:
    """H10, R08"""
    server = (
        request.getfixturevalue("mariadb")
        if edition == "10.11"
        else request.getfixturevalue("mariadb_factory")(edition="11.8")
    )
    with server.database("seq") as database:
        world = SmallLetterSource(server, database.name, tmp_path)
        world.run(f"CREATE TABLE t {T}", "CREATE SEQUENCE before_ NOCACHE", "CREATE VIEW v AS SELECT * FROM t")
        world.connector.capture()
        flushed = server.sql("SHOW GLOBAL STATUS LIKE 'Com_flush'")
        columns = (
            "next_not_cached_value bigint(21) NOT NULL, minimum_value bigint(21) NOT NULL, maximum_value bigint(21) NOT NULL, "
            "start_value bigint(21) NOT NULL, increment bigint(21) NOT NULL, cache_size bigint(21) unsigned NOT NULL, "
            "cycle_option tinyint(1) unsigned NOT NULL, cycle_count bigint(21) NOT NULL"
        )
        world.run(
            "SELECT NEXTVAL(before_)",
            "CREATE SEQUENCE s CACHE 2",
            "INSERT INTO t VALUES (NEXTVAL(s), 1)",
            "INSERT INTO t VALUES (NEXTVAL(s), 1), (NEXTVAL(s), 2)",
            "RENAME TABLE s TO s2",
            "CREATE TABLE s3 LIKE s2",
            "SELECT NEXTVAL(s3)",
            "ALTER TABLE s3 RENAME TO s4",
            f"CREATE TABLE dumped ({columns}) ENGINE=InnoDB SEQUENCE=1",
            "INSERT INTO dumped VALUES (1, 1, 9223372036854775806, 1, 1, 1000, 0, 0)",
            "SELECT NEXTVAL(dumped)",
            "ALTER SEQUENCE s2 RESTART 50",
            "INSERT INTO t VALUES (NEXTVAL(s2), 3)",
            "RENAME TABLE v TO v2",
            "DROP VIEW v2",
        )
        with caplog.at_level("WARNING"):
            world.connector.capture()
        world.run("DROP SEQUENCE s2", "CREATE SEQUENCE gone NOCACHE", "SELECT NEXTVAL(gone)", "DROP SEQUENCE gone")
        # a table may have been made with the columns of one
        world.run("CREATE TABLE alike AS SELECT * FROM s4", "INSERT alike SELECT * FROM s4")
        world.run(f"CREATE TABLE alike2 ({columns})", "INSERT alike2 SELECT * FROM s4")
        with caplog.at_level("WARNING"):
            world.connector.capture()
        assert not [
            record.getMessage() for record in caplog.records if "is derived from the log" in record.getMessage()
        ]
        assert server.sql("SHOW GLOBAL STATUS LIKE 'Com_flush'") == flushed, "a lock for a sequence"
        world.equal()
        topics = {topic for manifest in world.connector.changelog.read_manifests("test") for topic in manifest.schemas}
        assert topics == {f"p.{world.name}.{table}" for table in ("t", "alike", "alike2")}


# -- columns that only the server knows, and what a definition leaves out -----------------------------------------------------


def test_hidden_columns_of_indexes_are_left_out(mysql80: MySql, tmp_path: Path) -> None:
    """R28: MySQL 8.0.15 has them in table maps."""
    assert mysql80.version == "8.0.15"
    with mysql80.database("hidden") as database:
        world = SmallLetterSource(mysql80, database.name, tmp_path)
        world.run(
            "CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20), j JSON, KEY k1 ((RIGHT(phone, 4))))",
            "CREATE TABLE nk (id INT, phone VARCHAR(20), UNIQUE KEY ((LOWER(phone))))",
            "CREATE TABLE d41d8 (id INT PRIMARY KEY, d41d8cd98f00b204e9800998ecf8427 INT, KEY ((id + 1)))",
            "INSERT t VALUES (1, '12345', '{}')",
            "INSERT nk VALUES (1, 'a')",
        )
        world.connector.capture()
        world.run(
            "INSERT d41d8 VALUES (1, 2)",
            "UPDATE d41d8 SET d41d8cd98f00b204e9800998ecf8427 = 3",
            "UPDATE t SET phone = '999999'",
            "INSERT t VALUES (2, '2', '{}')",
            "UPDATE nk SET phone = NULL",
            "ALTER TABLE t ADD COLUMN x INT",
            "INSERT t VALUES (3, '3', '{}', 7)",
            "CREATE INDEX k3 ON t ((x + 1), (phone + 1))",
            "INSERT t VALUES (4, '3', '{}', 7)",
            "ALTER TABLE t ADD COLUMN one INT FIRST, ADD COLUMN y INT AFTER phone",
            "INSERT t VALUES (1, 5, '3', 2, '{}', 8)",
            "UPDATE t SET x = 9 WHERE id < 3",
            "ALTER TABLE t DROP INDEX k1",
            "DELETE FROM t WHERE id = 4",
            "INSERT nk VALUES (2, 'b'), (3, 'c')",
            "DELETE FROM nk WHERE id = 2",
            "CREATE TABLE later (id INT PRIMARY KEY, a INT, KEY ((a * 2)))",
            "INSERT later VALUES (1, 2)",
        )
        world.connector.capture()
        world.equal()


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_timestamps_of_sessions_with_implied_defaults_need_no_second_reading(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """L11"""
    server = request.getfixturevalue(kind)
    with server.database("implied") as database:
        world = SmallLetterSource(server, database.name, tmp_path)
        world.run("CREATE TABLE t (id INT PRIMARY KEY)")
        world.connector.capture()
        for on in ("OFF", "ON"):
            world.run(
                f"SET explicit_defaults_for_timestamp = {on}, sql_mode = ''",
                f"CREATE TABLE u{on} (id INT PRIMARY KEY, a TIMESTAMP, b TIMESTAMP, c TIMESTAMP NULL, d TIMESTAMP DEFAULT '2020-01-01', e TIMESTAMP NOT NULL)",
                f"INSERT u{on} (id, e) VALUES (1, '2024-01-01')",
                f"CREATE TABLE w{on} (id INT PRIMARY KEY, a TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)",
                f"INSERT w{on} (id) VALUES (1)",
                f"ALTER TABLE w{on} ADD b TIMESTAMP NULL",
                f"UPDATE w{on} SET id = 2",
            )
        world.connector.capture()
        manifests = world.connector.changelog.read_manifests("test", after=1)
        counted = {(file.topic, op) for manifest in manifests for file in manifest.files for op in file.counts}
        assert not {topic for topic, op in counted if op in ("r", "t")}
