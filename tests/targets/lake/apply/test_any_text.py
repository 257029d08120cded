"""Whatever a source calls its tables and columns, and whatever it holds: it arrives as it is, and asks no one for anything.

Every text that means something to a shell, a database, Spark or Hadoop goes through every place that a source has for texts:
names of tables, columns and keys, defaults in CREATE and in ALTER, comments, values by snapshot, log and chunk. A secret is in the
driver's environment all the while (:data:`tests.targets.lake.lake.SECRET`); it must be nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.targets.lake.formats import load_format
from airflow_provider_cdc.targets.lake.formats.owners_and_markers import Marker
from airflow_provider_cdc.targets.lake.formats.table_location import table_location
from airflow_provider_cdc.targets.lake.formats.target_interface import Target
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerificationReport, VerifyTables
from airflow_provider_cdc.targets.lake.session.spark_session import own_session
from airflow_provider_cdc.targets.lake.types.spark_types import quote_name, quote_text
from tests.support.connectors import mysql_connector
from tests.support.signals import signal_state, snapshot
from tests.targets.lake.lake import SECRET, Lake

pytestmark = pytest.mark.spark
TEXTS = (
    f"${{env:{SECRET}}}", f"${{env.{SECRET}}}", "${user.home}", "${java.version}", "${fs.defaultFS}", "${system:user.home}", "${spark.app.id}",
    "$${spark:x}", "'", "''", '"', "`", "``", "\\", "\\\\'", "\n", "\r\n", "\t", "\x01", "\x1b[31m", "\x7f", ";-- x", "/* x */", "*/", "{table}", "{0}", "%s", "%(a)s", "%", "*", "[a-c]", "a.b",
    "..", " x", "#", "?", ":a", "&&", "(", ",", "=", "<b>", "é", "日本", "\u2028", "__op", "seq", "before", "t", "s",
)  # fmt: skip
TABLES = 3


def _name(text: str) -> str:
    """A text as a name. No name ends with white space."""
    return text if text == text.rstrip() else f"{text}|"


def _id(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class TextTables:
    """Tables with columns for every text."""

    def __init__(self, server: Any, database: str) -> None:
        self._server, self.database = server, database
        share = -(-len(TEXTS) // TABLES)
        self.shares = [TEXTS[i : i + share] for i in range(0, len(TEXTS), share)]
        # a name has room for 64 characters
        self.names = [f"{i}{''.join(share)}"[:60].rstrip() for i, share in enumerate(self.shares)]
        self.cases = 0

    def run(self, *statements: str) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {self.database}")
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def _case(self, text: Any) -> Any:
        self.cases += 1
        return text

    def create(self) -> None:
        for name, share in zip(self.names, self.shares, strict=True):
            self.cases += sum(text in name for text in share)
            key = _id(self._case(_name(share[0])))
            columns = [
                f"{key} VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY COMMENT {_text(share[0])}"
            ]
            for text in share[1:]:
                default, comment = _text(self._case(text)), _text(self._case(text))
                columns.append(
                    f"{_id(self._case(_name(text)))} VARCHAR(100) NOT NULL DEFAULT {default} COMMENT {comment}"
                )
            columns.append("n INT")
            self.run(
                f"CREATE TABLE {_id(name)} ({', '.join(columns)}) CHARACTER SET utf8mb4 COMMENT {_text(self._case(share[0]))}",
                *[f"INSERT INTO {_id(name)} ({key}, n) VALUES ({_text(self._case(text))}, 1)" for text in TEXTS],
            )

    def change(self) -> None:
        """Rows, then columns, then rows again."""
        for name, share in zip(self.names, self.shares, strict=True):
            key, first = _id(_name(share[0])), _id(_name(share[1]))
            self.run(
                *[
                    f"UPDATE {_id(name)} SET {first} = {_text(self._case(t))}, n = 2 WHERE {key} = {_text(t)}"
                    for t in TEXTS
                ],
                f"DELETE FROM {_id(name)} WHERE {key} = {_text(TEXTS[0])}",
                f"UPDATE {_id(name)} SET {key} = {_text('moved' + TEXTS[1])} WHERE {key} = {_text(TEXTS[1])}",
                f"INSERT INTO {_id(name)} ({key}) VALUES ({_text(self._case('new' + TEXTS[0]))})",
                f"ALTER TABLE {_id(name)} "
                + ", ".join(
                    f"ADD COLUMN {_id(self._case('more ' + _name(t)))} VARCHAR(100) NOT NULL DEFAULT {_text(self._case(t))} "
                    f"COMMENT {_text(self._case(t))}"
                    for t in share
                ),
                *[
                    f"ALTER TABLE {_id(name)} CHANGE {_id(_name(t))} {_id(self._case(t + '$' + _name(t)))} VARCHAR(100) DEFAULT {_text(self._case(t))}"
                    for t in share[1:4]
                ],
                f"INSERT INTO {_id(name)} ({key}) VALUES ('last')",
                f"UPDATE {_id(name)} SET {_id('more ' + _name(share[0]))} = {_text(self._case(share[0]))} WHERE {key} = 'last'",
            )

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.database}.{_id(name)}")
            return [tuple(d[0] for d in cursor.description), *sorted(cursor.fetchall(), key=repr)]


def _everything(folder: Path) -> Iterator[tuple[Path, str]]:
    """All that was written, values of Parquet files included."""
    for path in folder.rglob("*"):
        yield path, path.name
        if path.suffix == ".parquet":
            yield path, json.dumps(pq.read_table(path).to_pylist(), default=str)
        elif path.is_file():
            yield path, path.read_bytes().decode("utf-8", "replace")


def _arrives(
    server: Any, source: str, folder: Path, spark: SparkSession, secret: str, kind: str, *, verified: bool = False
) -> None:
    with server.database() as database:
        shelves = TextTables(server, database.name)
        shelves.create()
        connector = mysql_connector(server, folder, source, database_include_list=database.name, read_only=True)
        lake = Lake(spark, folder, connector, kind=kind)

        def follow() -> None:
            connector.capture()
            lake.apply()
            _equal(lake, shelves)

        follow()
        shelves.change()
        follow()
        signal_number = snapshot(connector, ".*")
        follow()
        assert signal_state(connector, signal_number) == ("done", "")
        if verified:
            _verify(server, source, lake, shelves)
    assert [str(path) for path, text in _everything(folder) if secret in text] == []
    assert shelves.cases > 500
    print(f"{shelves.cases} texts in names, defaults, comments and values on {source}")


def _verify(server: Any, source: str, lake: Lake, shelves: TextTables) -> None:
    """Tables are compared with another snapshot, and differ in nothing but what is made different."""
    reference = mysql_connector(
        server, lake.folder / "now", source, database_include_list=shelves.database, snapshot_mode="initial_only"
    )
    reference.capture()

    def verified() -> VerificationReport:
        where = {"location": lake.location, "target": lake.kind}
        return VerifyTables(lake.spark, reference.changelog, reference.name, values=True, **where).run()

    assert verified().is_equal, verified().format_text()
    # a difference is named by its column, whatever that is called
    share = shelves.shares[0]
    column = f"more {_name(share[0])}"
    target = _target(lake, shelves, shelves.names[0])
    other = target.read_rows().withColumn(column, F.lit("other" + share[0])).localCheckpoint()
    owner = target.read_owner()
    assert owner is not None
    target.replace(other, Marker(owner, target.read_marker(owner.application_name) + 1))
    (wrong,) = [t for t in verified().tables if not t.is_equal]
    assert set(wrong.differing) == {column}
    assert wrong.examples[0]["target"] == {column: "other" + share[0]}


def _target(lake: Lake, shelves: TextTables, name: str) -> Target:
    location = table_location(lake.location, "test", "", TableId(namespace=shelves.database, name=name))
    target = load_format(lake.kind).open_target(own_session(lake.spark, load_format(lake.kind)), location)
    assert target.exists()
    return target


def _equal(lake: Lake, shelves: TextTables) -> None:
    for name in shelves.names:
        names, *rows = shelves.rows(name)
        frame = _target(lake, shelves, name).read_rows()
        found = [tuple(row) for row in frame.select(*[F.col(quote_name(c)) for c in names]).collect()]
        assert sorted(found, key=repr) == rows, name
        assert frame.columns == list(names), name


def test_every_text_of_mariadb_arrives_as_it_is(
    mariadb: Any, tmp_path: Path, spark: SparkSession, secret: str, kind: str
) -> None:
    _arrives(mariadb, "mariadb", tmp_path, spark, secret, kind, verified=True)


@pytest.mark.long  # what differs from MariaDB is tested where its log is decoded
def test_every_text_of_mysql_arrives_as_it_is(
    mysql97: Any, tmp_path: Path, spark: SparkSession, secret: str, kind: str
) -> None:
    _arrives(mysql97, "mysql", tmp_path, spark, secret, kind)


@pytest.mark.parametrize("text", TEXTS)
def test_a_quoted_text_is_the_same_text(spark: SparkSession, text: str) -> None:
    own = own_session(spark)
    assert own.sql(f"SELECT {quote_text(text)} AS {quote_name(text)}").collect()[0].asDict() == {text: text}


def test_a_session_of_ones_own_asks_no_one(lake: Lake, secret: str) -> None:
    """Neither does the one that it was made from, which people use to look at tables."""
    for spark in (lake.spark, own_session(lake.spark)):
        assert spark.sql(f"SELECT '${{env:{SECRET}}}' AS a").collect()[0].a == f"${{env:{SECRET}}}"
        assert spark.conf.get("spark.sql.variable.substitute") == "false"
    # what is asked for would be there
    asking = lake.spark.newSession()
    asking.conf.set("spark.sql.variable.substitute", "true")
    assert asking.sql(f"SELECT '${{env:{SECRET}}}' AS a").collect()[0].a == secret
