"""Reading chunks: how fast wherever they lie, under which structure, with which condition, and how it ends."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from airflow_provider_cdc.core.errors import QueryRejected, SourceBusy, SourceUnavailable
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, KeyRange, StructureChanged
from airflow_provider_cdc.sources.mysql.connect import connect
from airflow_provider_cdc.sources.mysql.snapshot.statement_stopper import StatementStopper
from tests.support.patience import LONGEST_S, wait_until
from tests.support.sources.mysql.mysql_chunks import read_whole_table, reader_of, rows_of, source_of

SERVERS = ["mariadb", "mysql97", "mysql80"]


@pytest.fixture(params=SERVERS)
def db(request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.getfixturevalue(request.param).database("chunks") as database:
        rows = ", ".join(f"({i}, {i * 10}, 'w{i}')" for i in range(6))
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, w VARCHAR(20))", f"INSERT INTO t VALUES {rows}")
        yield database


@pytest.fixture
def reader(db: Any) -> Iterator[ChunkReader]:
    with reader_of(db.server) as reader:
        yield reader


def _id(db: Any, name: str = "t") -> TableId:
    return TableId(namespace=db.name, name=name)


def _range(reader: ChunkReader, table: TableId, **rest: Any) -> KeyRange:
    schema = reader.read_table_schema(table)
    assert schema is not None
    return KeyRange(schema, schema.key, **rest)


# ranges


def test_a_chunk_has_the_rows_behind_one_key_up_to_another(db: Any, reader: ChunkReader) -> None:
    chunk = reader.read(_range(reader, _id(db), after=[1], upto=[4]), 2)
    assert rows_of(chunk) == [{"id": 2, "v": 20, "w": "w2"}, {"id": 3, "v": 30, "w": "w3"}]
    (block,) = chunk.rows
    assert (len(chunk), chunk.last, block.op.tolist(), block.order.tolist()) == (2, [3], [0, 0], [0, 1])
    assert block.source["file"].to_pylist()[0] == chunk.high.file  # type: ignore[union-attr]
    assert abs(block.ts_us[0] / 1e6 - time.time()) < 60
    rest = reader.read(_range(reader, _id(db), after=[3], upto=[4]), 2)
    assert rows_of(rest) == [{"id": 4, "v": 40, "w": "w4"}]
    nothing = reader.read(_range(reader, _id(db), after=[4], upto=[4]), 2)
    assert (len(nothing), nothing.last, nothing.rows) == (0, None, [])
    assert nothing.high is not None


@pytest.mark.parametrize(("queries", "rows", "complete"), [(1, 2, False), (2, 4, False), (3, 5, True), (9, 5, True)])
def test_several_queries_go_on_behind_each_other(
    db: Any, reader: ChunkReader, queries: int, rows: int, complete: bool
) -> None:
    chunk = reader.read(_range(reader, _id(db), after=[0]), 2, queries)
    assert [row["id"] for row in rows_of(chunk)] == list(range(1, rows + 1))
    (block,) = chunk.rows
    assert (block.order.tolist(), chunk.last, chunk.complete) == (list(range(rows)), [rows], complete)


def test_no_further_query_is_made_when_the_rows_take_much_memory(db: Any, reader: ChunkReader) -> None:
    assert len(reader.read(_range(reader, _id(db)), 2, 3, max_bytes=20)) == 2


# wide rows


@pytest.fixture
def wide_table(db: Any) -> TableId:
    """512 rows of 100 KB: 51 MB."""
    digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7)"
    db.sql(
        "CREATE TABLE wide (id INT PRIMARY KEY, v LONGTEXT)",
        f"INSERT INTO wide SELECT a.d * 64 + b.d * 8 + c.d, REPEAT('x', 100000) FROM {digits} a, {digits} b, {digits} c",
    )
    return _id(db, "wide")


@pytest.mark.parametrize("stoppable", [True, False])
def test_a_chunk_ends_by_its_bytes_and_the_next_goes_on_behind_it(
    reader: ChunkReader, wide_table: TableId, monkeypatch: pytest.MonkeyPatch, stoppable: bool
) -> None:
    requests: list[bool] = []
    stop = StatementStopper.stop

    def record_stop(self: StatementStopper, sql: str) -> bool:
        requests.append(stop(self, sql) if stoppable else False)
        return requests[-1]

    monkeypatch.setattr(StatementStopper, "stop", record_stop)
    ids: list[int] = []
    rows, chunk, last = _range(reader, wide_table), None, None
    while chunk is None or not chunk.complete:
        chunk = reader.read(replace(rows, after=last), 1_000_000, max_bytes=1 << 20)
        assert chunk.memory_bytes < 6 << 20, "a chunk is larger than its bound by more than what comes at a time"
        ids += [row["id"] for row in rows_of(chunk)]
        last = chunk.last or last
    assert ids == list(range(512))
    assert requests == [stoppable], "how many rows fit is known from then on"
    with reader._connection.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute("SHOW SESSION STATUS LIKE 'Bytes_sent'")
        sent = int(cursor.fetchone()[1])
    assert sent < (51 << 20) * (1.4 if stoppable else 2.2), (
        "what is not wanted does not go over the network again and again"
    )


def test_a_row_that_is_larger_than_a_chunk_may_be_is_a_chunk(db: Any, reader: ChunkReader) -> None:
    db.sql("CREATE TABLE large (id INT PRIMARY KEY, v LONGTEXT)")
    for i in range(3):
        db.sql(f"INSERT INTO large VALUES ({i}, REPEAT('x', 9000000))")
    chunk = reader.read(_range(reader, _id(db, "large")), 1024, 8, max_bytes=1 << 20)
    assert (len(chunk), chunk.last, chunk.complete) == (1, [0], False)
    chunk = reader.read(_range(reader, _id(db, "large"), after=[1]), 1024, 8, max_bytes=1 << 20)
    assert (len(chunk), chunk.last) == (1, [2])


def test_another_connection_s_statement_is_not_ended(db: Any) -> None:
    """Behind a proxy, for example, the number belongs to someone else."""
    with source_of(db.server) as source, connect(source._config) as one:
        assert StatementStopper(source._config, one).stop("SELECT 1") is False


def test_the_last_key_is_that_of_the_rows_that_fulfil_the_condition(db: Any, reader: ChunkReader) -> None:
    assert reader.read_last_key(_range(reader, _id(db))) == [5]
    assert reader.read_last_key(_range(reader, _id(db), condition="v < 30")) == [2]
    assert reader.read_last_key(_range(reader, _id(db), condition="v > 300")) is None


def test_a_chunk_of_many_blocks_counts_its_rows_through(db: Any, reader: ChunkReader) -> None:
    db.sql(
        "CREATE TABLE n (id INT PRIMARY KEY)",
        "INSERT INTO n SELECT a.id + 6 * b.id + 36 * c.id + 216 * d.id + 1296 * e.id + 7776 * f.id "
        "FROM t a, t b, t c, t d, t e, t f",
    )
    chunk = read_whole_table(reader, _id(db, "n"))
    assert len(chunk.rows) > 1
    assert [n for block in chunk.rows for n in block.order.tolist()] == list(range(46656))
    assert [row["id"] for row in rows_of(chunk)] == list(range(46656))


def test_a_chunk_costs_the_same_wherever_it_lies(db: Any, reader: ChunkReader) -> None:
    """Give nearly all rows one value of the first column: a condition that is no range of the index reads them all."""
    db.sql(
        "CREATE TABLE n (a INT, b INT, c VARCHAR(10), pad VARCHAR(50), u INT NOT NULL, PRIMARY KEY (a, b, c), UNIQUE (u, b))",
        "INSERT INTO n SELECT IF(x.n < 100, x.n, 1000), x.n, x.n, REPEAT('x', 50), 7 FROM ("
        "SELECT a.id + 6 * b.id + 36 * c.id + 216 * d.id + 1296 * e.id + 7776 * f.id n FROM t a, t b, t c, t d, t e, t f) x",
        "ANALYZE TABLE n",
    )
    schema = reader.read_table_schema(_id(db, "n"))
    assert schema is not None
    for order in (schema.key, ("u", "b")):
        upto = reader.read_last_key(KeyRange(schema, order))
        after, seen = None, 0
        while True:
            before = _count_touched_rows(reader)
            chunk = reader.read(KeyRange(schema, order, after, upto), 2000)
            assert _count_touched_rows(reader) - before < 2200  # the catalog's rows are among them
            seen += len(chunk)
            if chunk.last is None:
                break
            after = chunk.last
        assert seen == 46656


def _count_touched_rows(reader: ChunkReader) -> int:
    """Rows that the reader's session has read from indexes and tables so far."""
    with reader._connection.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(n) for _, n in cursor.fetchall())


# structure


DDL = [
    ("ALTER TABLE t ADD x INT", ("id", "v", "w", "x")),
    ("ALTER TABLE t DROP COLUMN w", ("id", "v")),
    ("ALTER TABLE t CHANGE w y VARCHAR(20)", ("id", "v", "y")),
    ("ALTER TABLE t MODIFY v VARCHAR(20)", ("id", "v", "w")),
    ("ALTER TABLE t MODIFY v INT UNSIGNED", ("id", "v", "w")),
    ("ALTER TABLE t MODIFY w VARCHAR(20) CHARACTER SET latin1", ("id", "v", "w")),
]


@pytest.mark.parametrize(("statement", "columns"), DDL)
def test_a_structure_that_was_changed_is_reported_and_nothing_decoded(
    db: Any, reader: ChunkReader, statement: str, columns: tuple[str, ...]
) -> None:
    old = _range(reader, _id(db))
    assert len(reader.read(old, 10)) == 6
    db.sql(statement)
    with pytest.raises(StructureChanged):
        reader.read(old, 10)
    with pytest.raises(StructureChanged):
        reader.read_last_key(old)
    new = _range(reader, _id(db))
    assert new.table.column_names == columns
    assert len(reader.read(new, 10)) == 6
    with reader_of(db.server) as another, pytest.raises(StructureChanged):
        another.read(old, 10)


def test_a_structure_that_only_the_database_knows_is_compared_as_well(db: Any, reader: ChunkReader) -> None:
    """A collation is not part of a table's schema, and decides on the order of its rows."""
    db.sql("CREATE TABLE k (k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY)")
    rows = _range(reader, _id(db, "k"))
    db.sql("ALTER TABLE k MODIFY k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
    with pytest.raises(StructureChanged):
        reader.read(rows, 10)


def test_a_table_that_is_gone(db: Any, reader: ChunkReader) -> None:
    rows = _range(reader, _id(db))
    db.sql("DROP TABLE t")
    with pytest.raises(StructureChanged):
        reader.read(rows, 10)
    assert reader.read_table_schema(_id(db)) is None
    assert reader.read_table_schema(_id(db, "never")) is None
    db.sql("CREATE TABLE t (id VARCHAR(5) PRIMARY KEY)", "INSERT INTO t VALUES ('a')")
    with pytest.raises(StructureChanged):
        reader.read(rows, 10)
    assert rows_of(read_whole_table(reader, _id(db))) == [{"id": "a"}]


def test_no_row_is_read_under_another_structure_than_its_own(db: Any, reader: ChunkReader) -> None:
    """A column that is a number in one moment and a text in the next."""
    ended = threading.Event()

    def alter() -> None:
        while not ended.is_set():
            for kind in ("VARCHAR(20)", "BIGINT", "DOUBLE", "INT"):
                db.sql(f"ALTER TABLE t MODIFY v {kind}")

    thread = threading.Thread(target=alter)
    thread.start()
    types, changed = set(), 0
    try:
        end = time.monotonic() + LONGEST_S
        while (len(types) < 4 or changed < 5) and time.monotonic() < end:
            rows = _range(reader, _id(db))
            try:
                found = rows_of(reader.read(rows, 10))
            except StructureChanged:
                changed += 1
                continue
            (kind,) = {type(row["v"]) for row in found}
            assert [row["v"] for row in found] == [kind(i * 10) for i in range(6)]
            types.add(rows.table.get_column("v").declared.type_name)
    finally:
        ended.set()
        thread.join()
    assert len(types) == 4
    assert changed >= 5


def test_a_table_stays_as_it_is_while_it_is_read(db: Any, reader: ChunkReader) -> None:
    rows = _range(reader, _id(db), condition="SLEEP(0.2) = 0")
    altered: list[float] = []
    read = (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND info LIKE '%SLEEP(0.2)%'"
    )

    def alter() -> None:
        wait_until(lambda: db.sql(read)[0][0], "rows are being read")
        db.sql("ALTER TABLE t DROP COLUMN w")
        altered.append(time.monotonic())

    thread = threading.Thread(target=alter)
    thread.start()
    began = time.monotonic()
    assert [row["w"] for row in rows_of(reader.read(rows, 10))] == [f"w{i}" for i in range(6)]
    thread.join()
    assert altered[0] > began + 6 * 0.2 - 0.1


# conditions


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("v = = 3", "error in your SQL syntax"),
        ("no_such_column = 3", "no_such_column"),
        ("NO_SUCH_FUNCTION(v)", "(?i)no_such_function"),
        ("id IN (SELECT id FROM other.t)", "(?i)denied|doesn't exist|unknown database"),
        ("v = (SELECT id FROM t)", "(?i)more than 1 row"),
        ("v > 1) OR (v < 9", "closes a parenthesis that it does not open"),
        ("(v > 1", "does not close"),
        ("v > 1; DROP TABLE t", "more than one statement"),
        ("v = 'open", "has no end"),
        ("-- nothing", "empty"),
    ],
)
def test_a_condition_that_the_database_refuses_is_named(
    db: Any, reader: ChunkReader, condition: str, message: str
) -> None:
    condition = condition.replace("FROM t)", f"FROM {db.name}.t)")
    rows = _range(reader, _id(db), condition=condition)
    for question in (lambda: reader.read_last_key(rows), lambda: reader.read(rows, 10)):
        with pytest.raises(QueryRejected, match=message) as caught:
            question()
        assert condition in str(caught.value)
    assert len(read_whole_table(reader, _id(db))) == 6


@pytest.mark.parametrize(
    "condition",
    ["v > 20", "v > 20 -- and no more", "v > 20 # and no more", "v > 20;", "v = 30 OR v > 30", "w > 'w2' AND (v)"],
)
def test_a_condition_only_chooses_among_the_rows_of_a_range(db: Any, reader: ChunkReader, condition: str) -> None:
    found = reader.read(_range(reader, _id(db), after=[3], upto=[4], condition=condition), 10)
    assert [row["id"] for row in rows_of(found)] == [4]
    assert [row["id"] for row in rows_of(read_whole_table(reader, _id(db), condition))] == [3, 4, 5]


def test_an_unknown_column_is_a_changed_table_where_that_is_what_it_is(db: Any, reader: ChunkReader) -> None:
    rows = _range(reader, _id(db), condition="w <> 'w0'")
    assert len(reader.read(rows, 10)) == 5
    db.sql("ALTER TABLE t DROP COLUMN w")
    with pytest.raises(StructureChanged):
        reader.read(rows, 10)
    with pytest.raises(QueryRejected, match="'w'"):
        reader.read(_range(reader, _id(db), condition="w <> 'w0'"), 10)


@pytest.mark.parametrize(("name", "message"), [("nope", "does not exist"), ("j", "without an order")])
def test_a_column_that_gives_no_order_is_refused(db: Any, reader: ChunkReader, name: str, message: str) -> None:
    db.sql("CREATE TABLE o (id INT PRIMARY KEY, j GEOMETRY)")
    schema = reader.read_table_schema(_id(db, "o"))
    assert schema is not None
    with pytest.raises(QueryRejected, match=message) as caught:
        reader.read_last_key(KeyRange(schema, (name, "id")))
    assert "surrogate-key" in str(caught.value)


def test_modes_of_the_server_do_not_matter(db: Any) -> None:
    with db.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute("CREATE TABLE d (id INT PRIMARY KEY, d DATE, c CHAR(5))")
        cursor.execute("INSERT INTO d VALUES (1, '0000-00-00', 'a'), (2, '2024-02-31', 'b'), (3, '2024-03-01', 'c')")
    modes = "TRADITIONAL,PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES" + (",NO_BACKSLASH_ESCAPES" if "mysql" in db.name else "")
    with reader_of(db.server, database_initial_statements=f"SET sql_mode = '{modes}'") as reader:
        rows = _range(reader, _id(db, "d"))
        first = reader.read(rows, 1)
        second = reader.read(KeyRange(rows.table, rows.order, first.last), 1)
        third = reader.read(KeyRange(rows.table, rows.order, second.last, condition="\"c\" <> '\\\\'"), 5)
        assert [row["c"] for c in (first, second, third) for row in rows_of(c)] == ["a", "b", "c"]


# the connection


def test_a_lost_connection_is_reported_and_another_reader_goes_on(db: Any) -> None:
    with reader_of(db.server) as reader:
        rows = _range(reader, _id(db))
        number = reader._connection.thread_id()  # type: ignore[attr-defined]
        db.sql(f"KILL {number}")
        with pytest.raises(SourceUnavailable):
            reader.read(rows, 10)
    with reader_of(db.server) as reader:
        slow = _range(reader, _id(db), condition="SLEEP(1) = 0")
        number = reader._connection.thread_id()  # type: ignore[attr-defined]
        threading.Timer(0.4, lambda: db.sql(f"KILL {number}")).start()
        with pytest.raises(SourceUnavailable):
            reader.read(slow, 10)
        with pytest.raises(SourceUnavailable):
            reader.read_table_schema(_id(db))
    with reader_of(db.server) as reader:
        assert len(reader.read(rows, 10)) == 6


def test_a_lock_that_is_not_got_is_reported_as_what_it_is_and_the_reader_goes_on(db: Any) -> None:
    with (
        reader_of(db.server, database_initial_statements="SET SESSION lock_wait_timeout = 1") as reader,
        db.connect() as blocker,
        blocker.cursor() as cursor,
    ):
        rows = _range(reader, _id(db))
        cursor.execute("LOCK TABLES t WRITE")
        with pytest.raises(SourceBusy, match="Lock wait timeout exceeded") as caught:
            reader.read(rows, 10)
        assert "LOCK TABLES" in str(caught.value)
        assert "does not answer" not in str(caught.value)
        cursor.execute("UNLOCK TABLES")
        assert len(reader.read(rows, 10)) == 6


@pytest.mark.parametrize("what", ["read", "last", "table"])
def test_closing_from_another_thread_ends_what_is_running(db: Any, what: str) -> None:
    with reader_of(db.server) as reader, db.connect() as blocker, blocker.cursor() as cursor:
        rows = _range(reader, _id(db), condition="SLEEP(5) = 0")
        if what == "table":
            cursor.execute("LOCK TABLES t WRITE")
        calls = {
            "read": lambda: reader.read(rows, 10), "last": lambda: reader.read_last_key(rows), "table": lambda: reader.read_table_schema(_id(db)),
        }  # fmt: skip
        threading.Timer(0.4, reader.close).start()
        with pytest.raises(SourceUnavailable):
            calls[what]()
        reader.close()
        with pytest.raises(SourceUnavailable):
            calls[what]()
    _end_sleepers(db.server)


def _end_sleepers(server: Any) -> None:
    """A query that sleeps continues when no one waits for it any more, and would keep its table from being dropped."""
    sleeping = "SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(5)%' AND id <> CONNECTION_ID()"
    for (number,) in server.sql(sleeping):
        with contextlib.suppress(pymysql.err.OperationalError):  # it has just ended
            server.sql(f"KILL {number}")


def test_many_refusals_leave_nothing_behind_on_the_server(db: Any, reader: ChunkReader) -> None:
    def count_prepared() -> int:
        return int(db.sql("SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")[0][1])

    before = count_prepared()
    for n in range(30):
        with pytest.raises(QueryRejected):
            read_whole_table(reader, _id(db), f"v = (SELECT id FROM {db.name}.t) + {n}")
    assert count_prepared() - before < 10
