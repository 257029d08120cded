"""Rows whose structure neither the DDL nor the catalog has any more: the log has it, or they are reported and left out."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from airflow_provider_cdc.core.errors import UnreadableValue
from tests.sources.mysql_adapter import MySqlAdapter
from tests.sources.suite import RunKilled, dies_at_commit, equal
from tests.support.connectors import Connector, mysql_connector
from tests.support.signals import snapshot_as_advised
from tests.support.sources.mysql.workload import source_rows
from tests.support.sources.rewrite_journal import RewriteStory, RowJournal, cases, compare

TYPES = (
    "TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "INT UNSIGNED", "BIGINT", "DECIMAL(12,3)", "FLOAT", "DOUBLE", "BIT(5)", "DATE",
    "YEAR", "TIME(3)", "DATETIME(6)", "TIMESTAMP(2) NULL", "CHAR(7)", "VARCHAR(300)", "VARCHAR(20) CHARACTER SET latin1", "TINYTEXT",
    "TEXT CHARACTER SET utf16", "MEDIUMTEXT", "LONGTEXT", "BLOB", "MEDIUMBLOB", "VARBINARY(9)", "BINARY(5)", "ENUM('a','bé')",
    "SET('x','y z')",
)  # fmt: skip
VALUES = (
    "-7", "65535", "-70000", "4000000000", "-9000000000", "123456.789", "1.5", "2.25", "b'10101'", "'2024-02-29'", "2024",
    "'-12:30:01.250'", "'2024-02-29 12:00:01.123456'", "'2024-02-29 12:00:01.25'", "'sévén'", "'a'", "'é'", "'tiny'", "'ÿ€'", "'m'",
    "'l'", "x'00ff'", "x'01'", "x'0102'", "x'0102030405'", "'bé'", "'x,y z'",
)  # fmt: skip


def _capture_hidden_table(connector: Connector, db: Any, name: str, columns: str, *statements: str) -> dict[str, Any]:
    """Rows of a table that comes into sight under another structure than it has when capture comes, and continues under a third
    name; gives what was captured of them."""
    db.sql("CREATE TABLE away (id INT PRIMARY KEY)", "CREATE TABLE t_other (id INT PRIMARY KEY)")
    connector.capture()
    db.sql(
        f"ALTER TABLE away {columns}", "RENAME TABLE away TO t_seen", *statements, f"RENAME TABLE t_seen TO {name}",
        f"ALTER TABLE {name} ADD late INT",
    )  # fmt: skip
    connector.capture()
    manifests = list(connector.changelog.read_manifests("test"))
    left = [record for manifest in manifests for record in manifest.left_out]
    events: dict[str, int] = {}
    for manifest in manifests:
        for file in manifest.files:
            for op, n in file.counts.items():
                if op in "cud":
                    events[op] = events.get(op, 0) + n
    ddl = [record.ddl for manifest in manifests for record in manifest.schema_changes if not record.snapshot]
    return {"left": left, "events": events, "ddl": [text for text in ddl if text]}


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_the_log_reports_the_structure_of_rows(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    server = request.getfixturevalue(kind)
    columns = ", ".join(f"ADD c{i} {type_}" for i, type_ in enumerate(TYPES))
    insert = f"INSERT INTO t_seen VALUES (1, {', '.join(VALUES)})"
    nulls = f"INSERT INTO t_seen VALUES (2, {', '.join(['NULL'] * len(VALUES))})"
    with server.database() as db:
        listed = {"table_include_list": rf"{db.name}\.t_.*"}
        connector = mysql_connector(server, tmp_path, "mariadb" if kind == "mariadb" else "mysql", **listed)
        found = _capture_hidden_table(
            connector, db, "t_then", columns, insert, nulls, "UPDATE t_seen SET c0 = 5 WHERE id = 2"
        )
        assert (found["left"], found["events"]) == ([], {"c": 2, "u": 1})
        assert [text.split()[0] for text in found["ddl"]] == ["RENAME", "RENAME", "ALTER"]
        images = {row["after"]["id"]: row["after"] for row in _events(connector) if row["op"] in "cu"}
        read = [{n: v for n, v in row.items() if n != "late"} for row in connector.rows(f"{db.name}.t_then")]
        assert read == [images[1], images[2]]
        seen = [
            s
            for m in connector.changelog.read_manifests("test")
            for t, of in m.schemas.items()
            if "t_seen" in t
            for s in of.values()
        ]
        then = connector.discovered(f"{db.name}.t_then")
        reported = {c.name: (c.type, c.nullable) for c in seen[-1].columns}
        assert reported == {c.name: (c.type, c.nullable) for c in then.columns if c.name != "late"}


def _events(connector: Connector) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files:
            rows += pq.read_table(connector.changelog.storage.join_path("test", file.path)).to_pylist()
    return sorted(rows, key=lambda row: row["seq"])


def test_what_the_log_leaves_open_is_left_out_and_reported(mariadb: Any, tmp_path: Path) -> None:
    """The log has a UUID as 16 bytes."""
    with mariadb.database() as db:
        connector = mysql_connector(mariadb, tmp_path, table_include_list=rf"{db.name}\.t_.*")
        rows = "INSERT INTO t_seen VALUES (1, UUID()), (2, UUID())"
        found = _capture_hidden_table(
            connector, db, "t_then", "ADD u UUID", rows, "DELETE FROM t_seen WHERE id = 1", "ALTER TABLE t_seen DROP u"
        )
        (left,) = found["left"]
        assert (left.table, left.events, found["events"]) == (f"{db.name}.t_seen", 3, {})
        assert "whether column u is binary(16) or uuid or inet6" in left.reason
        assert left.start["pos"] < left.end["pos"]
        assert connector.rows(f"{db.name}.t_then") == source_rows(mariadb, db.name, "t_then")


@pytest.mark.parametrize(("kind", "metadata"), [("mariadb", "NO_LOG"), ("mariadb", "MINIMAL"), ("mysql97", "MINIMAL")])
def test_rows_of_all_types_are_counted_without_their_values(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, metadata: str
) -> None:
    """Rows are counted although the log lacks facts that their values need: signs, character sets, members.

    With MINIMAL, a change without a log makes their structure unknown.
    """
    server = request.getfixturevalue(kind)
    own = {"UUID": "UUID()", "INET6": "'::1'"} if kind == "mariadb" else {"VECTOR(3)": "TO_VECTOR('[1,2,3]')"}
    more = {"BIGINT UNSIGNED": str(2**64 - 1), "JSON": "'[1, null]'", "POINT": "POINT(1, 2)", "DATETIME": "0"} | own
    types, values = [*TYPES, *more], [*VALUES, *more.values()]
    with server.database() as db:
        columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(types))
        db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
        listed = {"database_include_list": db.name, "bigint_unsigned_handling_mode": "precise"}
        connector = mysql_connector(server, tmp_path, "mariadb" if kind == "mariadb" else "mysql", **listed)
        connector.capture()
        db.sql("ALTER TABLE t ADD made INT DEFAULT (id + 1)", f"SET GLOBAL binlog_row_metadata = '{metadata}'")
        silent = ("SET sql_log_bin = 0", "ALTER TABLE t ADD extra INT", "SET sql_log_bin = 1")
        made = "5, 6" if metadata == "MINIMAL" else "5"
        try:
            db.sql(
                *(silent if metadata == "MINIMAL" else ()), "SET sql_mode = ''",
                f"INSERT INTO t VALUES (1, {', '.join(values)}, {made}), (2, {', '.join(['NULL'] * len(values))}, {made})",
                "UPDATE t SET c0 = 3", "DELETE FROM t WHERE id = 2",
            )  # fmt: skip
        finally:
            db.sql("SET GLOBAL binlog_row_metadata = 'FULL'")
        connector.capture()
        (left,) = (record for manifest in connector.changelog.read_manifests("test") for record in manifest.left_out)
        assert (left.table, left.events) == (f"{db.name}.t", 5)
        (row,) = connector.rows(f"{db.name}.t")
        assert row["made"] == 5


class _UnnamedStory(RewriteStory):
    """A story of tables that wait to be read again, with rows written while the log lacks the names of columns.

    :ivar waiting: tables that wait, at this place of the log
    """

    metadata: ClassVar[tuple[str, ...]]

    def __init__(self, *args: Any) -> None:
        self.waiting: set[str] = set()
        super().__init__(*args)

    def work(self, times: int) -> None:
        names = sorted(self.waiting)
        level = self.random.choice(self.metadata) if names and self.random.random() < 0.6 else "FULL"
        self.journal.readable = level == "FULL"
        self.db.server.sql(f"SET GLOBAL binlog_row_metadata = '{level}'")
        if self.journal.readable:
            return super().work(times)
        for _ in range(times):
            self.write(self.random.choice(names))
        self.journal.readable = True
        self.db.server.sql("SET GLOBAL binlog_row_metadata = 'FULL'")

    def rewrite(self, how: str) -> None:
        super().rewrite(how)
        self.waiting |= {self.main} if self.main is not None else set()

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.waiting = self.waiting - {old} | ({new} if not new.startswith("out_") else set())

    def swap(self, table: str) -> None:
        before = set(self.tables)
        super().swap(table)
        self.waiting |= {t for t in self.tables if t in before and t in (table, self.main)}

    def drop(self, table: str) -> None:
        super().drop(table)
        self.waiting.discard(table)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "metadata"), [("mariadb", ("NO_LOG",))])
def test_rows_without_the_names_of_their_columns_are_counted_and_never_guessed(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, metadata: tuple[str, ...], capsys: Any, monkeypatch: Any
) -> None:
    """Some rows come without names, between a statement that rewrites their table and the moment at which it is read again; some of
    the runs in between die. Of tables that are not read again such rows are an error, whose remedy helps."""
    server, random, journal = request.getfixturevalue(kind), Random(11), RowJournal()
    monkeypatch.setattr(_UnnamedStory, "metadata", metadata, raising=False)
    with contextlib.ExitStack() as stack:
        db = MySqlAdapter(server, "mariadb" if kind == "mariadb" else "mysql", stack)
        stack.callback(server.sql, "SET GLOBAL binlog_row_metadata = 'FULL'")
        reported = cases(["kind", *db.rewrites()], random, each=1, longer=4)
        stories = [_UnnamedStory(db, journal, f"s{n}_", random) for n in range(len(reported))]
        listed = {"table_include_list": rf"{re.escape(db.namespace)}\.s\d+_.*", "batch_max_rows": 50}
        connector = db.connector(tmp_path, **listed)
        first = connector.capture().batches[-1]
        going = [story.tell(*case) for story, case in zip(stories, reported, strict=True)]
        while going:
            going = [g for g in going if next(g, stories) is not stories]
            with monkeypatch.context() as patch, contextlib.suppress(RunKilled):
                dies_at_commit(patch, random.randint(1, 12))
                connector.capture()
                for story in stories:
                    story.waiting.clear()
        connector.capture()
        compare(connector, journal, first)
        tables = [t for story in stories for t in story.tables if not t.startswith("out_")]
        equal(connector, db, *tables)
        assert journal.unreadable.total() > len(reported)

        server.sql(f"SET GLOBAL binlog_row_metadata = '{metadata[-1]}'")
        for story in stories:
            story.write(next(t for t in story.tables if not t.startswith("out_")))
        server.sql("SET GLOBAL binlog_row_metadata = 'FULL'")
        with pytest.raises(UnreadableValue, match=r"the log does not contain column names(.|\n)*snapshot\.mode=always"):
            connector.capture()
        connector.capture({"snapshot.mode": "always"})
        equal(connector, db, *tables)
    with capsys.disabled():
        events = sum(map(len, journal.events.values()))
        print(f" [{len(reported)} cases, {events} events, {journal.unreadable.total()} without names]", end="")


@pytest.mark.parametrize("name", ["a", "CONNECTOR $(x)'s"])
@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_table_whose_rows_fit_no_structure_is_read_again_by_the_command_that_the_error_has(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, name: str
) -> None:
    server = request.getfixturevalue(kind)
    with contextlib.ExitStack() as stack:
        db = MySqlAdapter(server, "mariadb" if kind == "mariadb" else "mysql", stack)
        stack.callback(server.sql, "SET GLOBAL binlog_row_metadata = 'FULL'")
        a, b = (f"`{db.namespace}`.`{table}`" for table in (name, "b"))
        server.sql(f"CREATE TABLE {a} (id INT PRIMARY KEY, n INT)", f"CREATE TABLE {b} (id INT PRIMARY KEY)")
        connector = db.connector(tmp_path, table_include_list=rf"{re.escape(db.namespace)}\..*")
        connector.capture()
        server.sql(f"SET GLOBAL binlog_row_metadata = '{'NO_LOG' if kind == 'mariadb' else 'MINIMAL'}'")
        server.sql(
            "SET sql_log_bin = 0", f"ALTER TABLE {a} ADD more INT", "SET sql_log_bin = 1", f"INSERT INTO {a} VALUES (1, 2, 3)",
            "SET GLOBAL binlog_row_metadata = 'FULL'", f"INSERT INTO {b} VALUES (1)",
        )  # fmt: skip
        with pytest.raises(UnreadableValue) as caught:
            connector.capture()
        snapshot_as_advised(connector, str(caught.value))
        connector.capture()
        server.sql(f"UPDATE {a} SET more = 4", f"INSERT INTO {b} VALUES (2)")
        connector.capture()
        equal(connector, db, "b")
        topic = re.sub(r"[^\w.-]", "_", name)
        assert connector.rows(f"{db.namespace}.{topic}") == db.rows(name) == [{"id": 1, "n": 2, "more": 4}]
