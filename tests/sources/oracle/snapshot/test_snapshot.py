"""Snapshots: one SCN, all rows, the values that the log has, and nothing lost at the border to the log."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRejected, SourceUnavailable, UnreadableValue
from airflow_provider_cdc.core.model.log_items import READ, RowBlock
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.core.spi.source import SnapshotChunk
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import connect
from airflow_provider_cdc.sources.oracle.redo.redo_statement_reader import RedoReader
from airflow_provider_cdc.sources.oracle.snapshot import rowid_ranges, snapshot
from airflow_provider_cdc.sources.oracle.snapshot.snapshot import OracleSnapshot
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.support.patience import LONGEST_S
from tests.support.sources.oracle.oracle_server import NLS, mine_rows

BOOLEAN = "io.debezium.connector.oracle.converters.NumberOneToBooleanConverter"
ZERO_SCALE = "io.debezium.connector.oracle.converters.NumberToZeroScaleConverter"
T1 = TableId(catalog="ORCLPDB1", namespace="APP", name="T1")

COLUMNS = {
    "ID": "NUMBER(9) PRIMARY KEY", "TINY": "NUMBER(2)", "FLAG": "NUMBER(1)", "LONG_": "NUMBER(18)", "HUNDREDS": "NUMBER(17,-2)",
    "PRICE": "NUMBER(12,2)", "WIDE": "NUMBER(38)", "FRACTION": "NUMBER(10,12)", "ANY_": "NUMBER", "WHOLE": "INTEGER", "F": "FLOAT",
    "BF": "BINARY_FLOAT", "BD": "BINARY_DOUBLE", "C": "CHAR(5)", "NC": "NCHAR(5)", "V": "VARCHAR2(200 CHAR)", "NV": "NVARCHAR2(100)",
    "R": "RAW(16)", "D": "DATE", "T0": "TIMESTAMP(0)", "T6": "TIMESTAMP(6)", "T9": "TIMESTAMP(9)", "TZ": "TIMESTAMP(9) WITH TIME ZONE",
    "LTZ": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "DS": "INTERVAL DAY(9) TO SECOND(6)", "YM": "INTERVAL YEAR(4) TO MONTH",
    "RID": "ROWID",
}  # fmt: skip
LOBS = {"CL": "CLOB", "NCL": "NCLOB", "BL": "BLOB", "X": "XMLTYPE"}
NOTHING: dict[str, str] = {}
ROWS: list[dict[str, str]] = [
    NOTHING,
    {"TINY": "0", "FLAG": "0", "LONG_": "0", "HUNDREDS": "0", "PRICE": "0", "WIDE": "0", "FRACTION": "0", "ANY_": "0", "WHOLE": "0",
     "F": "0", "BF": "0", "BD": "0"},
    {"TINY": "-99", "FLAG": "1", "LONG_": "-999999999999999999", "HUNDREDS": "1234567890123456700", "PRICE": "-9999999999.99",
     "WIDE": "99999999999999999999999999999999999999", "FRACTION": "0.009999999999", "ANY_": "-.000001", "WHOLE": "-1", "F": "1.5",
     "BF": "-1.1", "BD": "1.7976931348623157e308"},
    {"ANY_": "123456789012345678901234567890.5", "PRICE": ".01", "WIDE": "TO_NUMBER('-99999999999999999999999999999999999999')", "F": "-.25",
     "BF": "3.4028235e38", "BD": "-5e-324", "HUNDREDS": "-100"},
    {"C": "'ab'", "NC": "'äb'", "V": "'it''s; \"x\" || ,'", "NV": "'日本 \\ '' 🙂'", "R": "HEXTORAW('00FF0A')",
     "RID": "'AAAR0pAAHAAAACAAAB'"},
    {"C": "'     '", "V": "' '", "NV": "'plain'", "R": "HEXTORAW('7F')"},
    {"D": "TO_DATE('0001-01-01 00:00:00')", "T0": "TO_TIMESTAMP('1969-12-31 23:59:59')", "T6": "TO_TIMESTAMP('0001-01-01 00:00:00.000001')",
     "T9": "TO_TIMESTAMP('1677-09-21 00:12:44.000000001')", "TZ": "TO_TIMESTAMP_TZ('2024-02-29 12:00:00.123456789 +05:30')",
     "LTZ": "TO_TIMESTAMP_TZ('2024-02-29 12:00:00.123456 -08:00')"},
    {"D": "TO_DATE('9999-12-31 23:59:59')", "T0": "TO_TIMESTAMP('2024-02-29 00:00:00')", "T6": "TO_TIMESTAMP('9999-12-31 23:59:59.999999')",
     "T9": "TO_TIMESTAMP('2262-04-11 23:47:15.999999999')", "TZ": "TO_TIMESTAMP_TZ('1970-01-01 00:00:00.000000000 +00:00')",
     "LTZ": "TO_TIMESTAMP_TZ('1969-12-31 23:59:59.999999 +00:00')"},
    {"DS": "TO_DSINTERVAL('-000000001 02:03:04.56')", "YM": "TO_YMINTERVAL('-03-06')", "TZ": "TO_TIMESTAMP_TZ('2024-02-29 12:00:00.5 -00:30')"},
    {"DS": "TO_DSINTERVAL('100000000 23:59:59.999999')", "YM": "TO_YMINTERVAL('9999-11')"},
    {"DS": "TO_DSINTERVAL('0 00:00:00')", "YM": "TO_YMINTERVAL('0-00')"},
]  # fmt: skip


def make(server: Oracle, columns: dict[str, str], rows: list[dict[str, str]], name: str = "T1") -> int:
    """A table with rows; returns the SCN before them."""
    body = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
    server.sql(f"CREATE TABLE {name} ({body})", f"ALTER TABLE {name} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    before = server.scn()
    statements = []
    for number, row in enumerate(rows):
        values = ", ".join([str(number), *row.values()])
        statements.append(f"INSERT INTO {name} ({', '.join(['ID', *row])}) VALUES ({values})")
    server.sql(NLS, *statements)
    server.flush()
    return before


def read_all(session: OracleSnapshot, table: TableId) -> list[RowBlock]:
    return [block for chunk in session.split_table(table) for block in session.read(chunk)]


def images(blocks: Iterable[RowBlock]) -> pa.StructArray:
    return pa.concat_arrays([block.after for block in blocks])


def mined_images(server: Oracle, config: OracleConfig, session: OracleSnapshot, start: int) -> pa.StructArray:
    """The same rows, out of the log."""
    with closing(connect(config)) as connection:
        found = mine_rows(connection, start, where="seg_owner = 'APP' AND operation_code = 1", columns="sql_redo, csf")
    texts, open_ = [], False
    for text, more in found:
        if open_:
            texts[-1] += text
        else:
            texts.append(text)
        open_ = bool(more)
    rows = RedoReader(session.schemas[T1], config).read(pa.array(texts, pa.string()), [1] * len(texts))
    assert rows.after is not None
    return rows.after


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"decimal.handling.mode": "double", "time.precision.mode": "adaptive_time_microseconds", "binary.handling.mode": "hex"},
        {"decimal.handling.mode": "string", "binary.handling.mode": "base64", "interval.handling.mode": "string"},
        {"time.precision.mode": "connect", "binary.handling.mode": "base64-url-safe"},
        {"converters": "b,z", "b.type": BOOLEAN, "z.type": ZERO_SCALE, "z.decimal.mode": "string"},
    ],
    ids=["default", "double", "string", "connect", "converters"],
)  # fmt: skip
def test_snapshot_and_log_have_the_same_value_for_the_same_cell(schema: Oracle, properties: dict[str, str]) -> None:
    start = make(schema, COLUMNS, ROWS)
    config = settings(schema, **dict(properties.items()))
    with OracleSnapshot(config, [T1], 1) as session:
        read = images(read_all(session, T1))
    logged = mined_images(schema, config, session, start)
    assert len(read) == len(logged) == len(ROWS)
    assert read.type == logged.type
    for c, column in enumerate(session.schemas[T1].columns):
        assert repr(read.field(c).to_pylist()) == repr(logged.field(c).to_pylist()), column.name
        assert read.field(c).equals(logged.field(c)) or column.type in ("float", "double")
    assert read.null_count == 0


def test_every_value_of_the_table_is_there(schema: Oracle) -> None:
    make(schema, COLUMNS, ROWS)
    with OracleSnapshot(settings(schema), [T1], 1) as session:
        found = images(read_all(session, T1)).to_pylist()
    for row, given in zip(found, ROWS, strict=True):
        assert {name for name, value in row.items() if value is not None} == {"ID", *given}
    assert found[2]["WIDE"] == 99999999999999999999999999999999999999
    assert found[3]["ANY_"] == "123456789012345678901234567890.5"
    assert found[4]["C"] == "ab   "
    assert found[6]["TZ"] == "2024-02-29T12:00:00.123456789+05:30"


def test_lobs_are_read_whole_and_empty_ones_are_not_null(schema: Oracle) -> None:
    long = "é" * 40_000
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        make(schema, {"ID": "NUMBER(9)", **LOBS}, [])
        cursor.execute("INSERT INTO T1 VALUES (1, :c, :n, :b, XMLTYPE('<a>1</a>'))", [long, "日本", b"\0\xff" * 20_000])
        cursor.execute("INSERT INTO T1 VALUES (2, EMPTY_CLOB(), EMPTY_CLOB(), EMPTY_BLOB(), NULL)")
        cursor.execute("INSERT INTO T1 (ID) VALUES (3)")
        connection.commit()
    with OracleSnapshot(settings(schema, lob__enabled=True), [T1], 1) as session:
        (block,) = read_all(session, T1)
    assert block.unavailable_after is None
    assert images([block]).to_pylist() == [
        {"ID": 1, "CL": long, "NCL": "日本", "BL": b"\0\xff" * 20_000, "X": "<a>1</a>"},
        {"ID": 2, "CL": "", "NCL": "", "BL": b"", "X": None},
        {"ID": 3, "CL": None, "NCL": None, "BL": None, "X": None},
    ]


def test_lobs_that_are_not_captured_are_unavailable_as_in_the_log(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)", **LOBS}, [{"CL": "'text'"}])
    with OracleSnapshot(settings(schema), [T1], 1) as session:
        (block,) = read_all(session, T1)
    assert block.unavailable_after is not None
    assert block.unavailable_after[:, 0].tolist() == [False, True, True, True, True]
    assert images([block]).to_pylist() == [{"ID": 0, "CL": None, "NCL": None, "BL": None, "X": None}]


def test_date_before_the_year_1678_with_nanoseconds_is_an_error_that_names_the_column(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)", "T9": "TIMESTAMP(9)"}, [{"T9": "TO_TIMESTAMP('1600-01-01 00:00:00')"}])
    with OracleSnapshot(settings(schema), [T1], 1) as session, pytest.raises(UnreadableValue, match="T9") as e:
        read_all(session, T1)
    assert e.value.where == "APP.T1.T9"


def test_rows_are_those_of_the_scn_whatever_is_committed_later(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)", "V": "VARCHAR2(9)"}, [{"V": "'a'"}, {"V": "'b'"}])
    with OracleSnapshot(settings(schema), [T1], 2) as session:
        schema.sql("UPDATE T1 SET V = 'changed'", "DELETE FROM T1 WHERE ID = 1", "INSERT INTO T1 VALUES (7, 'new')")
        blocks = read_all(session, T1)
    assert [row["V"] for row in images(blocks).to_pylist()] == ["a", "b"]
    (block,) = blocks
    assert set(block.op) == {READ}
    assert block.before is None
    assert block.transaction is None
    assert block.source["scn"].to_pylist() == [str(session.position.read_scn)] * 2
    assert block.ts_us[0] == session.ts_us
    assert session.source["scn"] == str(session.position.read_scn)


def test_position_begins_where_the_oldest_open_transaction_did(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [])
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO T1 VALUES (1)")
        began = schema.admin("SELECT MIN(START_SCN) FROM V$TRANSACTION")[0][0]
        schema.sql("INSERT INTO T1 VALUES (2)")
        with OracleSnapshot(settings(schema), [T1], 1) as session:
            read = images(read_all(session, T1)).to_pylist()
        connection.rollback()
    assert read == [{"ID": 2}]
    assert session.position.scn == began < session.position.read_scn
    assert session.position.resetlogs > 0
    assert session.position.dbid > 0


def test_without_open_transactions_the_log_is_read_from_the_snapshot_on(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [])
    with OracleSnapshot(settings(schema), [T1], 1) as session:
        assert session.position.read_scn - session.position.scn <= 5


@pytest.mark.parametrize("node", [1, 2])
def test_open_transactions_of_every_node_of_a_cluster_count_whether_rac_nodes_names_it_or_not(node: int) -> None:
    with Oracle({"threads": 2}) as server:
        make(server, {"ID": "NUMBER(9)"}, [])
        with closing(server.connect(thread=node)) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO T1 VALUES (1)")
            began = server.admin("SELECT MIN(START_SCN) FROM GV$TRANSACTION")[0][0]
            for nodes in ({"rac__nodes": ",".join(server.nodes)}, {}):
                with OracleSnapshot(settings(server, **nodes), [T1], 1) as session:
                    assert session.position.scn == began


def test_unseen_open_transactions_are_an_error_with_the_grant() -> None:
    with Oracle() as server:
        make(server, {"ID": "NUMBER(9)"}, [])
        server.admin(
            f"REVOKE SELECT ON V_$TRANSACTION FROM {server.user}", f"REVOKE SELECT_CATALOG_ROLE FROM {server.user}"
        )
        server.admin(f"GRANT SELECT ON V_$THREAD TO {server.user}")
        with pytest.raises(PrerequisiteError, match="Open transactions cannot be read") as e:
            OracleSnapshot(settings(server), [T1], 1)
    assert e.value.remedy == "GRANT SELECT ON V_$TRANSACTION TO c##dbzuser CONTAINER=ALL"


def test_locks_are_gone_before_rows_are_read(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    with OracleSnapshot(settings(schema), [T1], 1) as session:
        schema.sql("LOCK TABLE T1 IN EXCLUSIVE MODE NOWAIT")
        assert len(read_all(session, T1)) == 1


@pytest.mark.parametrize(("mode", "waits"), [(None, True), ("shared", True), ("none", False)])
def test_snapshot_waits_for_an_exclusive_lock_unless_locking_is_off(
    schema: Oracle, mode: str | None, waits: bool
) -> None:
    """Each table is locked until its structure is read, and not while its rows are."""
    given = {} if mode is None else {"snapshot__locking__mode": mode}
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    schema.sql("CREATE TABLE T2 (ID NUMBER(9))")
    t2 = TableId(catalog=T1.catalog, namespace=T1.namespace, name="T2")
    opened, read = threading.Event(), threading.Event()

    def snapshot_() -> None:
        with OracleSnapshot(settings(schema, **given), [T1, t2], 1):
            opened.set()
            read.wait(LONGEST_S)

    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLE T2 IN EXCLUSIVE MODE")
        thread = threading.Thread(target=snapshot_)
        thread.start()
        try:
            assert opened.wait(1.5 if waits else LONGEST_S) is not waits
            connection.rollback()
            assert opened.wait(LONGEST_S)
            for table in ("T1", "T2"):
                cursor.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE NOWAIT")
        finally:
            connection.rollback()
            read.set()
            thread.join(LONGEST_S)


def test_table_that_does_not_exist_is_missing(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    gone = TableId(catalog="ORCLPDB1", namespace="APP", name="GONE")
    with OracleSnapshot(settings(schema), [T1, gone], 1) as session:
        assert set(session.schemas) == {T1}
        assert session.ddl[T1].startswith("CREATE TABLE")


@pytest.fixture
def server_with_large_table(schema: Oracle, monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """A table that is large for chunks of eight blocks."""
    monkeypatch.setattr(snapshot, "CHUNK_BLOCKS", 8)
    make(schema, {"ID": "NUMBER(9) PRIMARY KEY", "V": "VARCHAR2(20)"}, [])
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO T1 VALUES (:1, :2)", [(i, f"row {i}") for i in range(9_000)])
        connection.commit()
    return schema


def test_big_table_is_cut_into_parts_that_hold_each_row_once(server_with_large_table: Oracle) -> None:
    with OracleSnapshot(settings(server_with_large_table), [T1], 3) as session:
        chunks = session.split_table(T1)
        parts = [images(session.read(chunk)).field("ID").to_pylist() for chunk in chunks]
    assert len(chunks) > 3
    assert all(parts)
    assert sorted(i for part in parts for i in part) == list(range(9_000))


def test_parts_are_read_by_several_threads_at_once(server_with_large_table: Oracle) -> None:
    with OracleSnapshot(settings(server_with_large_table, snapshot__fetch__size=100), [T1], 3) as session:
        readers: list[Iterator[RowBlock]] = [session.read(chunk) for chunk in session.split_table(T1)[:3]]
        together = [len(next(reader)) for reader in readers]
        for reader in readers:
            reader.close()  # type: ignore[attr-defined]
        again = images(session.read(SnapshotChunk(T1)))
    assert together == [100, 100, 100]
    assert len(again) == 9_000


def test_one_reader_reads_the_whole_table(server_with_large_table: Oracle) -> None:
    with OracleSnapshot(settings(server_with_large_table), [T1], 1) as session:
        assert [chunk.condition for chunk in session.split_table(T1)] == [None]


def test_without_the_right_to_see_extents_a_table_is_one_part() -> None:
    with Oracle() as server:
        make(server, {"ID": "NUMBER(9)"}, [{}])
        server.admin(f"REVOKE SELECT_CATALOG_ROLE FROM {server.user}", f"GRANT SELECT ON V_$THREAD TO {server.user}")
        with OracleSnapshot(settings(server), [T1], 2) as session:
            assert [chunk.condition for chunk in session.split_table(T1)] == [None]
            assert len(images(read_all(session, T1))) == 1


def test_row_ids_are_those_that_the_server_has(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    object_id = schema.sql("SELECT DATA_OBJECT_ID FROM USER_OBJECTS WHERE OBJECT_NAME = 'T1'")[0][0]
    file, block = schema.admin("SELECT RELATIVE_FNO, BLOCK_ID FROM DBA_EXTENTS WHERE SEGMENT_NAME = 'T1'",
                               dsn=schema.owner_dsn)[0]  # fmt: skip
    first = schema.sql("SELECT ROWIDTOCHAR(MIN(ROWID)) FROM T1")[0][0]
    assert first[:15] == rowid_ranges.row_id(int(object_id), int(file), int(block))[:15]


def test_cuts_make_parts_of_even_size_and_conditions_that_meet() -> None:
    extents = [(5, 1, 8, 8), (5, 1, 100, 20), (6, 2, 8, 4)]
    edges = rowid_ranges.split_extents(extents, 10)
    assert edges == [rowid_ranges.row_id(5, 1, 102), rowid_ranges.row_id(5, 1, 112), rowid_ranges.row_id(6, 2, 10)]
    parts = rowid_ranges.build_part_conditions(edges)
    assert parts[0] == f"t.ROWID < CHARTOROWID('{edges[0]}')"
    assert parts[1] == f"t.ROWID >= CHARTOROWID('{edges[0]}') AND t.ROWID < CHARTOROWID('{edges[1]}')"
    assert parts[3] == f"t.ROWID >= CHARTOROWID('{edges[2]}')"
    assert rowid_ranges.split_extents([(5, 1, 8, 8)], 8) == []


def test_undo_that_is_gone_is_a_transient_error_that_says_what_to_raise(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    with OracleSnapshot(settings(schema, snapshot__database__errors__max__retries=2), [T1], 1) as session:
        schema.sql("UPDATE T1 SET ID = 5")
        schema.expire_undo()
        with pytest.raises(SourceUnavailable, match="ORA-01555") as e:
            read_all(session, T1)
    assert "UNDO_RETENTION" in str(e.value.remedy)
    assert "no_data" in str(e.value.remedy)
    assert str(session.position.read_scn) in str(e.value.where)
    with OracleSnapshot(settings(schema), [T1], 1) as later:
        assert images(read_all(later, T1)).to_pylist() == [{"ID": 5}]


def test_chunk_is_read_again_as_often_as_configured(schema: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    with OracleSnapshot(settings(schema, snapshot__database__errors__max__retries=2), [T1], 1) as session:
        schema.sql("ALTER TABLE T1 ADD (V VARCHAR2(9))")
        with caplog.at_level("WARNING"), pytest.raises(SourceUnavailable, match="ORA-01466"):
            read_all(session, T1)
    assert sum("is read again" in r.message for r in caplog.records) == 2


def test_columns_that_cannot_be_captured_are_null_in_the_rows(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)", "V": "VARCHAR2(9)"}, [{"V": "'a'"}])
    with OracleSnapshot(settings(schema), [T1], 1) as session:
        columns = session.schemas[T1].columns
        lost = columns[1].model_copy(update={"type": "null"})
        session.schemas[T1] = session.schemas[T1].model_copy(update={"columns": (columns[0], lost)})
        (block,) = read_all(session, T1)
    assert images([block]).to_pylist() == [{"ID": 0, "V": None}]
    assert block.unavailable_after is None


def test_closing_twice_is_allowed(schema: Oracle) -> None:
    make(schema, {"ID": "NUMBER(9)"}, [{}])
    session = OracleSnapshot(settings(schema), [T1], 2)
    session.close()
    session.close()


# -- statements of signals ----------------------------------------------------------------------------------------------


def colors(server: Oracle) -> None:
    make(server, {"ID": "NUMBER(9)", "V": "VARCHAR2(9)"}, [{"V": "'red'"}, {"V": "'blue'"}, {"V": "'blue'"}])


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM APP.T1 WHERE V = 'blue'",
        "select v, id from app.t1 t where t.v = 'blue' -- those;",
        'SELECT X.* FROM "APP"."T1" X JOIN (SELECT MAX(ID) M FROM APP.T1) Y ON X.ID > Y.M - 2',
    ],
)
def test_a_statement_of_a_signal_gives_the_rows_as_of_the_scn(schema: Oracle, select: str) -> None:
    colors(schema)
    with OracleSnapshot(settings(schema), [T1], 2, {T1: select}) as session:
        schema.sql("UPDATE T1 SET V = 'blue'", "INSERT INTO T1 VALUES (9, 'blue')")
        assert len(session.split_table(T1)) == 1
        found = images(read_all(session, T1)).to_pylist()
    assert found == [{"ID": 1, "V": "blue"}, {"ID": 2, "V": "blue"}]


def test_a_statement_of_a_signal_comes_before_that_of_the_configuration(schema: Oracle) -> None:
    colors(schema)
    name = "snapshot.select.statement.overrides"
    config = settings(schema, **{name: "APP.T1", f"{name}.APP.T1": "SELECT * FROM APP.T1 WHERE ID = 0"})
    with OracleSnapshot(config, [T1], 1) as session:
        assert [row["ID"] for row in images(read_all(session, T1)).to_pylist()] == [0]
    with OracleSnapshot(config, [T1], 1, {T1: "SELECT * FROM APP.T1 WHERE ID = 2"}) as session:
        assert [row["ID"] for row in images(read_all(session, T1)).to_pylist()] == [2]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM APP.T1 WHERE COLOR = 1",
        "SELECT ID FROM APP.T1",
        "SELECT * FROM APP.T1 WHERE",
        "SELECT * FROM APP.T2",
        "DELETE FROM APP.T1",
        "SELECT * FROM APP.T1 WHERE V = 'x",
        "SELECT * FROM APP.T1 JOIN APP.NOWHERE N ON N.ID = 1",
    ],
)
def test_a_statement_of_a_signal_that_is_bad_sql_is_refused(schema: Oracle, select: str) -> None:
    colors(schema)
    with OracleSnapshot(settings(schema), [T1], 1, {T1: select}) as session, pytest.raises(QueryRejected) as e:
        read_all(session, T1)
    assert e.value.where == select
