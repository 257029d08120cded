"""Chunks: rows in key order, each once, whatever the key is; watermarks; what is refused, and what has changed."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from contextlib import closing
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError, QueryRejected, SourceUnavailable
from airflow_provider_cdc.core.model.key_json import Key, keys_of, parse_key_value
from airflow_provider_cdc.core.model.log_items import READ
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkRows, KeyRange, StructureChanged
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.connect import connect
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.snapshot import rowid_keys
from airflow_provider_cdc.sources.oracle.snapshot.chunk_reader import OracleChunkReader
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.support.sources.oracle.oracle_server import NLS, mine_rows

T1 = TableId(catalog="ORCLPDB1", namespace="APP", name="T1")
SIGNALS = TableId(catalog="ORCLPDB1", namespace="APP", name="SIGNALS")
Row = dict[str, Any]


@pytest.fixture
def reader(schema: Oracle) -> Any:
    with OracleChunkReader(settings(schema, lob__enabled=True), None) as opened:
        yield opened


def fill(server: Oracle, columns: str, rows: list[str]) -> None:
    """A table T1 with rows, given as the values of an INSERT."""
    server.sql(f"CREATE TABLE T1 ({columns})")
    server.sql(NLS, *(f"INSERT INTO T1 VALUES ({row})" for row in rows))


def read_known_schema(reader: OracleChunkReader, table: TableId = T1) -> TableSchema:
    found = reader.read_table_schema(table)
    assert found is not None
    return found


def rows_of(chunk: ChunkRows) -> list[Row]:
    return [row for block in chunk.rows for row in block.after.to_pylist()]  # type: ignore[union-attr]


def all_chunks(
    reader: OracleChunkReader, order: tuple[str, ...] | None = None, limit: int = 3, **more: Any
) -> list[list[Row]]:
    """The rows of all chunks; keys go through JSON as in state."""
    table = read_known_schema(reader)
    order = order or table.key
    upto = store_key(reader.read_last_key(KeyRange(table, order, **more)))
    after, found = None, []
    for _ in range(10_000):
        chunk = reader.read(KeyRange(table, order, after, upto, **more), limit)
        if len(chunk):
            found.append(rows_of(chunk))
            assert chunk.last is not None
        if len(chunk) < limit:
            return found
        after = store_key(chunk.last)
    raise AssertionError("it never ends")


def store_key(key: Key | None) -> Key | None:
    found: Key | None = json.loads(json.dumps(key, allow_nan=False))
    return found


KEYS = {
    "NUMBER(9)": ["-999999999", "-10", "-9", "-1", "0", "1", "2", "10", "999999999"],
    "NUMBER": ["-1e60", "TO_NUMBER('-123456789012345678901')", "-1.5", "-1.25", "0", "0.000000000000000000000001", "1", "1.0000000000000000001", "2", "12345678901234567890", "12345678901234567891", "1e60"],
    "NUMBER(38)": ["TO_NUMBER('-99999999999999999999999999999999999999')", "-2", "-1", "9007199254740992", "9007199254740993", "99999999999999999999999999999999999998", "99999999999999999999999999999999999999"],
    "NUMBER(12,2)": ["-9999999999.99", "-0.02", "-0.01", "0", "0.01", "0.10", "9999999999.99"],
    "FLOAT": ["-1.5", "-.25", "0", ".25", "1.5", "2"],
    "BINARY_FLOAT": ["-1.1", "0", "1.1", "1.2", "3.4028235e38"],
    "BINARY_DOUBLE": ["-1.7976931348623157e308", "-1.1", "0", "1.1", "1.1000000000000003", "1.2"],
    "VARCHAR2(30 CHAR)": ["' '", "'A'", "'Z'", "'a'", "'a '", "'ab'", "'it''s'", "'ä'", "'日本'", "'🙂'"],
    "NVARCHAR2(30)": ["'A'", "'a'", "'ä'", "'日本'"],
    "CHAR(4)": ["' b'", "'A'", "'a'", "'a b'", "'ab'"],
    "NCHAR(4)": ["'A'", "'a'", "'日本'"],
    "RAW(8)": ["HEXTORAW('00')", "HEXTORAW('0000')", "HEXTORAW('0001')", "HEXTORAW('7F')", "HEXTORAW('80')", "HEXTORAW('FF00')"],
    "DATE": ["TO_DATE('0001-01-01 00:00:00')", "TO_DATE('2024-02-29 00:00:00')", "TO_DATE('2024-02-29 00:00:01')", "TO_DATE('9999-12-31 23:59:59')"],
    "TIMESTAMP(9)": ["TO_TIMESTAMP('1969-12-31 23:59:59.999999999')", "TO_TIMESTAMP('2024-02-29 12:00:00.000000001')", "TO_TIMESTAMP('2024-02-29 12:00:00.000000002')", "TO_TIMESTAMP('2024-02-29 12:00:00.1')"],
    "TIMESTAMP(9) WITH TIME ZONE": ["TO_TIMESTAMP_TZ('2024-02-29 12:00:00.000000001 +05:30')", "TO_TIMESTAMP_TZ('2024-02-29 06:30:00.000000002 +00:00')", "TO_TIMESTAMP_TZ('2024-02-29 02:00:00 -08:00')"],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": ["TO_TIMESTAMP_TZ('2024-02-29 12:00:00.000001 +05:30')", "TO_TIMESTAMP_TZ('2024-02-29 06:30:00.000002 +00:00')", "TO_TIMESTAMP_TZ('2024-02-29 02:00:00 -08:00')"],
    "INTERVAL YEAR(4) TO MONTH": ["TO_YMINTERVAL('0-01')", "TO_YMINTERVAL('0-11')", "TO_YMINTERVAL('9999-11')"],
    "INTERVAL DAY(9) TO SECOND(6)": ["TO_DSINTERVAL('0 00:00:00.000001')", "TO_DSINTERVAL('0 00:00:01')", "TO_DSINTERVAL('100000000 23:59:59.999999')"],
    "ROWID": ["'AAAR0pAAHAAAACAAAB'", "'AAAR0pAAHAAAACAAAa'", "'AAAR0pAAHAAAACAAA0'", "'AAAR0pAAHAAAACAAA+'"],
}  # fmt: skip


@pytest.mark.parametrize(("queries", "rows", "complete"), [(1, 2, False), (2, 4, False), (3, 5, True), (9, 5, True)])
def test_several_queries_go_on_behind_each_other(
    schema: Oracle, reader: OracleChunkReader, queries: int, rows: int, complete: bool
) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", [str(i) for i in range(6)])
    chunk = reader.read(KeyRange(read_known_schema(reader), ("ID",), [0]), 2, queries)
    assert [row["ID"] for row in rows_of(chunk)] == list(range(1, rows + 1))
    assert [n for block in chunk.rows for n in block.order.tolist()] == list(range(rows))
    assert (chunk.last, chunk.complete) == ([rows], complete)


def test_no_further_query_is_made_when_the_rows_take_much_memory(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", [str(i) for i in range(6)])
    assert len(reader.read(KeyRange(read_known_schema(reader), ("ID",)), 2, 3, max_bytes=8)) == 2


def test_row_ids_are_verified_before_every_query(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", [str(i) for i in range(6)])
    assert len(reader.read(KeyRange(read_known_schema(reader), ("ROWID",)), 2, 3)) == 2


@pytest.mark.parametrize("type_", KEYS)
def test_rows_come_in_the_order_of_keys_of_every_type(schema: Oracle, reader: OracleChunkReader, type_: str) -> None:
    keys = KEYS[type_]
    shuffled = random.Random(type_).sample([*enumerate(keys)], len(keys))
    constraint = "" if "ZONE" in type_ else " PRIMARY KEY"
    fill(schema, f"K {type_}{constraint}, N NUMBER(9)", [f"{key}, {n}" for n, key in shuffled])
    for limit in (1, 2, len(keys), 100):
        found = all_chunks(reader, ("K",), limit)
        assert [row["N"] for chunk in found for row in chunk] == list(range(len(keys))), limit
        assert {len(chunk) for chunk in found[:-1]} <= {limit}


MODES = [
    {},
    {
        "decimal__handling__mode": "double", "time__precision__mode": "connect", "binary__handling__mode": "hex",
        "interval__handling__mode": "string",
    },
    {"decimal__handling__mode": "string", "binary__handling__mode": "base64-url-safe"},
]  # fmt: skip
IRREVERSIBLE = {
    ("NUMBER", 1): "does not keep all digits", ("NUMBER(38)", 1): "does not keep all digits", ("FLOAT", 1): "does not keep all digits",
    ("DATE", 1): "truncates the time of day", ("TIMESTAMP(9)", 1): "truncates the nanoseconds",
    **{(kind, mode): "intervals, as in K," for kind in KEYS if kind.startswith("INTERVAL") for mode in range(3)},
}  # fmt: skip
"""Type and mode → why the key of a row does not follow from the key of its events."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", range(len(MODES)))
@pytest.mark.parametrize("type_", [kind for kind in KEYS if kind != "ROWID"])  # the test server stores those as texts
def test_keys_of_events_find_their_rows_and_bound_ranges(schema: Oracle, type_: str, mode: int) -> None:
    values = KEYS[type_]
    fill(schema, f"N NUMBER(9), K {type_} PRIMARY KEY", [f"{i}, {value}" for i, value in enumerate(values)])
    with OracleChunkReader(settings(schema, **MODES[mode]), None) as reader:
        table = read_known_schema(reader)
        blocks = reader.read(KeyRange(table, ("K",)), 100).rows
        column = table.get_column("K")
        events = [
            key
            for b in blocks
            if b.after is not None
            for key in keys_of([b.after.field(table.column_names.index("K"))])
        ]
        sent = [[parse_key_value(value, column) for value in key] for key in json.loads(json.dumps(events))]
        assert sent == events
        if reason := IRREVERSIBLE.get((type_, mode)):
            with pytest.raises(QueryRejected, match=reason):
                reader.to_source_keys(table, ("K",), sent)
            return
        keys = [key for key in map(store_key, reader.to_source_keys(table, ("K",), sent)) if key is not None]
        expected = [row["N"] for b in blocks if b.after is not None for row in b.after.to_pylist()]
        for number, one in zip(expected, keys, strict=True):
            assert [row["N"] for row in rows_of(reader.read(KeyRange(table, ("K",), keys=(one,)), 5))] == [number]
        some = reader.read(KeyRange(table, ("K",), keys=(*keys[::2], keys[-1])), 100)
        assert [row["N"] for row in rows_of(some)] == sorted({*expected[::2], expected[-1]}, key=expected.index)
        between = KeyRange(table, ("K",), first=keys[1], end=keys[-2])
        assert [row["N"] for row in rows_of(reader.read(between, 100))] == expected[1:-1]
        upto = KeyRange(table, ("K",), first=keys[1], upto=store_key(reader.read_last_key(between)))
        assert [row["N"] for row in rows_of(reader.read(upto, 100))] == expected[1:-1]


def test_ranges_of_keys_of_several_columns(schema: Oracle, reader: OracleChunkReader) -> None:
    rows = [(x, y) for x in ("A", "a", "ä") for y in range(5)]
    columns = "X VARCHAR2(9), Y NUMBER(9), PRIMARY KEY (X, Y)"
    fill(schema, columns, [f"'{x}', {y}" for x, y in rows])
    table = read_known_schema(reader)

    def read(**bounds: Any) -> list[tuple[Any, ...]]:
        return [(row["X"], row["Y"]) for row in rows_of(reader.read(KeyRange(table, table.key, **bounds), 100))]

    assert read(first=["a", 3], end=["ä", 1]) == rows[8:12]
    assert read(first=["a"], end=["a"]) == rows[5:10]
    assert read(keys=(["ä", 0], ["A", 4], ["A", 5])) == [("A", 4), ("ä", 0)]
    assert read(keys=(["a"],), after=["a", 2]) == rows[8:10]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none_are_keys_too(schema: Oracle, reader: OracleChunkReader, value: str) -> None:
    fill(schema, "K BINARY_DOUBLE PRIMARY KEY", ["1", "2"])
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.setinputsizes(oracledb.DB_TYPE_BINARY_DOUBLE)
        cursor.execute("INSERT INTO T1 VALUES (:1)", [float(value)])
        connection.commit()
    assert [[str(row["K"]) for row in chunk] for chunk in all_chunks(reader, limit=1)] == [["1.0"], ["2.0"], [value]]


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
def test_rows_with_keys_of_several_columns_come_once_and_in_order(
    schema: Oracle, reader: OracleChunkReader, limit: int
) -> None:
    numbers = random.Random(limit)
    keys = {(numbers.randrange(4), numbers.choice("abc"), numbers.randrange(5)) for _ in range(40)}
    fill(
        schema,
        "C NUMBER(9), B VARCHAR2(3), A NUMBER(9), PRIMARY KEY (A, B, C)",
        [f"{c}, '{b}', {a}" for a, b, c in keys],
    )
    found = [(row["A"], row["B"], row["C"]) for chunk in all_chunks(reader, limit=limit) for row in chunk]
    assert found == sorted(keys)


def test_rows_behind_the_last_key_are_not_read(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "A NUMBER(9), B NUMBER(9), PRIMARY KEY (A, B)", [f"{a}, {b}" for a in range(4) for b in range(4)])
    table = read_known_schema(reader)
    chunk = reader.read(KeyRange(table, table.key, [0, 2], [2, 1]), 100)
    assert [(row["A"], row["B"]) for row in rows_of(chunk)] == [(0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]
    assert chunk.last == [2, 1]
    assert reader.read_last_key(KeyRange(table, table.key)) == [3, 3]
    assert reader.read_last_key(KeyRange(table, table.key, [3, 3])) is None
    assert reader.read_last_key(KeyRange(table, table.key, [1, 0], [2, 1])) == [2, 1]


def test_blocks_are_reads_of_one_order_with_the_time_and_scn_of_the_reading(
    schema: Oracle, reader: OracleChunkReader
) -> None:
    fill(schema, "A NUMBER(9), B NUMBER(9), PRIMARY KEY (A, B)", [f"{a}, {b}" for a in range(4) for b in range(2)])
    table = read_known_schema(reader)
    chunk = reader.read(KeyRange(table, table.key, [0, 0]), 6)
    assert len(chunk.rows) > 1
    assert list(itertools.chain(*(block.order for block in chunk.rows))) == list(range(6))
    for block in chunk.rows:
        assert set(block.op) == {READ}
        assert block.transaction is None
        assert block.table.same_structure(table)
        assert abs(block.ts_us[0] / 1e6 - time.time()) < 60
        assert block.source["scn"].to_pylist()[0] == str(chunk.low.read_scn)  # type: ignore[union-attr]


def test_an_empty_table_has_no_last_key_and_no_rows(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", [])
    table = read_known_schema(reader)
    assert reader.read_last_key(KeyRange(table, ("ID",))) is None
    chunk = reader.read(KeyRange(table, ("ID",)), 10)
    assert (len(chunk), chunk.last, chunk.rows) == (0, None, [])
    assert isinstance(chunk.low, OraclePosition)


def test_a_surrogate_key_orders_the_rows_in_place_of_the_key(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY, S NUMBER(9) NOT NULL", [f"{i}, {i % 3}" for i in range(9)])
    found = [(row["S"], row["ID"]) for chunk in all_chunks(reader, ("S", "ID"), 2) for row in chunk]
    assert found == sorted(found)
    assert len(set(found)) == 9


def test_lobs_come_whole_and_empty_ones_are_not_null(schema: Oracle, reader: OracleChunkReader) -> None:
    long = "é" * 40_000
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY, C CLOB, B BLOB)")
        cursor.execute("INSERT INTO T1 VALUES (1, :c, :b)", [long, b"\0\xff" * 20_000])
        cursor.execute("INSERT INTO T1 VALUES (2, EMPTY_CLOB(), NULL)")
        connection.commit()
    assert all_chunks(reader, limit=1) == [
        [{"ID": 1, "C": long, "B": b"\0\xff" * 20_000}],
        [{"ID": 2, "C": "", "B": None}],
    ]


# -- conditions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("COLOR = 'blue' AND QUANTITY > 10", [2, 4]),
        ("color = 'red' OR quantity = 12 -- those", [1, 2, 3]),
        ("T1.COLOR LIKE 'b%' /* all */", [2, 4, 5]),
        ("APP.T1.ID IN (SELECT MAX(ID) FROM APP.T1)", [5]),
        ("COLOR = ':x' OR COLOR = 'a:b'", []),
        ("ID > 100", []),
    ],
)
def test_rows_fulfil_the_condition(schema: Oracle, reader: OracleChunkReader, condition: str, ids: list[int]) -> None:
    rows = ["1, 'red', 1", "2, 'blue', 12", "3, 'red', 20", "4, 'blue', 11", "5, 'blue', 1"]
    fill(schema, "ID NUMBER(9) PRIMARY KEY, COLOR VARCHAR2(9), QUANTITY NUMBER(9)", rows)
    for limit in (1, 100):
        assert [row["ID"] for chunk in all_chunks(reader, limit=limit, condition=condition) for row in chunk] == ids
    last = reader.read_last_key(KeyRange(read_known_schema(reader), ("ID",), condition=condition))
    assert last == ([ids[-1]] if ids else None)


@pytest.mark.parametrize(
    "condition",
    ["COLOUR = 1", "ID >", "ID = 1) OR (ID = 2", "ID = :x", "ID = (SELECT X FROM NOWHERE)", "'abc", "ID = 1; COMMIT"],
)
def test_a_condition_that_is_bad_sql_is_refused_and_the_reader_goes_on(
    schema: Oracle, reader: OracleChunkReader, condition: str
) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", ["1", "2"])
    table = read_known_schema(reader)
    with pytest.raises(QueryRejected) as e:
        reader.read_last_key(KeyRange(table, table.key, condition=condition))
    assert e.value.where == condition
    with pytest.raises(QueryRejected):
        reader.read(KeyRange(table, table.key, condition=condition), 10)
    assert len(reader.read(KeyRange(table, table.key), 10)) == 2


def test_rows_cannot_be_ordered_by_a_lob(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY, C CLOB", ["1, 'a'"])
    with pytest.raises(QueryRejected, match="its type is CLOB"):
        reader.read_last_key(KeyRange(read_known_schema(reader), ("C",)))
    with pytest.raises(QueryRejected, match="the column does not exist"):
        reader.read_last_key(KeyRange(read_known_schema(reader), ("D",)))


def test_a_table_that_may_not_be_read_is_refused() -> None:
    with Oracle() as server:
        fill(server, "ID NUMBER(9) PRIMARY KEY", ["1"])
        with OracleChunkReader(settings(server), None) as reader:
            table = read_known_schema(reader)
            server.admin(f"GRANT INSERT ON APP.T1 TO {server.user}", f"REVOKE SELECT ANY TABLE FROM {server.user}")
            with pytest.raises((QueryRejected, StructureChanged)):
                reader.read(KeyRange(table, table.key), 10)


# -- structures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE T1 ADD W NUMBER(9)",
        "ALTER TABLE T1 DROP COLUMN V",
        "ALTER TABLE T1 MODIFY V VARCHAR2(20)",
        "ALTER TABLE T1 RENAME COLUMN V TO W",
        "ALTER TABLE T1 RENAME TO T2",
        "DROP TABLE T1",
    ],
)
def test_another_structure_is_reported_before_a_row_is_given(
    schema: Oracle, reader: OracleChunkReader, ddl: str
) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY, V VARCHAR2(9)", ["1, 'a'", "2, 'b'"])
    table = read_known_schema(reader)
    schema.sql(ddl)
    with pytest.raises(StructureChanged):
        reader.read(KeyRange(table, table.key), 10)
    with pytest.raises(StructureChanged):
        reader.read_last_key(KeyRange(table, table.key))
    present = reader.read_table_schema(T1)
    if present is None:
        assert ddl in ("DROP TABLE T1", "ALTER TABLE T1 RENAME TO T2")
    else:
        assert len(reader.read(KeyRange(present, present.key), 10)) == 2


def test_a_structure_that_another_reader_gave_is_verified(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY, V VARCHAR2(9)", ["1, 'a'"])
    table = read_known_schema(reader)
    with OracleChunkReader(settings(schema, lob__enabled=True), None) as other:
        assert len(other.read(KeyRange(table.model_copy(update={"version": 7}), table.key), 10)) == 1
    schema.sql("ALTER TABLE T1 ADD W NUMBER(9)")
    with OracleChunkReader(settings(schema, lob__enabled=True), None) as other, pytest.raises(StructureChanged):
        other.read(KeyRange(table, table.key), 10)


def test_what_is_no_structure_may_change(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY, V VARCHAR2(9)", ["1, 'a'"])
    table = read_known_schema(reader)
    schema.sql("CREATE INDEX I1 ON T1 (V)", "ALTER TABLE T1 ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    assert len(reader.read(KeyRange(table, table.key), 10)) == 1


# -- rows by their ids ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_table_without_a_key_is_read_by_rowid_in_parts(
    schema: Oracle, reader: OracleChunkReader, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(rowid_keys, "_STEP", step)
    schema.sql("CREATE TABLE T1 (V NUMBER(9))")
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO T1 VALUES (:1)", [(i,) for i in range(3000)])
        cursor.execute("DELETE FROM T1 WHERE V BETWEEN 500 AND 2200")
        connection.commit()
    found = all_chunks(reader, ("ROWID",), 400)
    assert [row["V"] for chunk in found for row in chunk] == [*range(500), *range(2201, 3000)]
    assert [len(chunk) for chunk in found] == [400, 400, 400, 99]


def test_only_a_part_of_a_table_is_asked_for_a_chunk_by_rowid(
    schema: Oracle, reader: OracleChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowid_keys, "_STEP", 2)
    schema.sql("CREATE TABLE T1 (V NUMBER(9))")
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO T1 VALUES (:1)", [(i,) for i in range(6000)])
        connection.commit()
    table = read_known_schema(reader)
    parts = [*rowid_keys.RowidKeys(reader._connection, settings(schema), T1).list_part_bounds(None)]
    assert len(parts) > 3
    assert (parts[0][0], parts[-1][1]) == (None, None)
    assert all(low == high for (_, high), (low, _) in itertools.pairwise(parts))
    after = reader.read(KeyRange(table, ("ROWID",)), 3000).last
    assert after is not None
    assert len(
        [*rowid_keys.RowidKeys(reader._connection, settings(schema), T1).list_part_bounds(after[0].partition("@")[0])]
    ) < len(parts)


def test_row_ids_of_another_segment_are_refused(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "V NUMBER(9)", ["1", "2", "3"])
    table = read_known_schema(reader)
    upto = reader.read_last_key(KeyRange(table, ("ROWID",)))
    first = reader.read(KeyRange(table, ("ROWID",), None, upto), 1)
    schema.sql("TRUNCATE TABLE T1", "INSERT INTO T1 VALUES (4)")
    with pytest.raises(QueryRejected, match=r"ROWIDs of .* have changed"):
        reader.read(KeyRange(table, ("ROWID",), first.last, upto), 10)
    assert [row["V"] for chunk in all_chunks(reader, ("ROWID",)) for row in chunk] == [4]


def test_a_column_named_rowid_counts_as_a_column_of_its_own(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, '"rowid" NUMBER(9) NOT NULL', ["2", "1"])
    assert [row["rowid"] for chunk in all_chunks(reader, ("rowid",)) for row in chunk] == [1, 2]


# -- watermarks -------------------------------------------------------------------------------------------------------


def test_all_up_to_the_low_watermark_is_in_the_rows_and_all_of_the_rows_is_below_the_high_one(schema: Oracle) -> None:
    """A writer works all the time; its commits' SCNs are compared with what chunks have."""
    schema.sql("CREATE TABLE T1 (ID NUMBER(9) PRIMARY KEY)", "ALTER TABLE T1 ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
    start, ended = schema.scn(), threading.Event()
    chunks: list[ChunkRows] = []

    def write() -> None:
        with closing(schema.connect()) as connection, connection.cursor() as cursor:
            for i in itertools.count():
                cursor.execute("INSERT INTO T1 VALUES (:1)", [i])
                connection.commit()
                if ended.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with OracleChunkReader(settings(schema), None) as reader:
            table = read_known_schema(reader)
            for _ in range(60):
                chunks.append(reader.read(KeyRange(table, table.key), 100_000))
    finally:
        ended.set()
        writer.join()
    schema.flush()
    with closing(connect(settings(schema))) as connection:
        columns = "commit_scn, sql_redo"
        options = "DBMS_LOGMNR.DICT_FROM_ONLINE_CATALOG + DBMS_LOGMNR.COMMITTED_DATA_ONLY"
        found = mine_rows(
            connection, start, options=options, columns=columns, where="seg_owner = 'APP' AND operation_code = 1"
        )
    commits = {int(text.split("'")[1]): int(scn) for scn, text in found}
    assert len(commits) > 50
    inside = 0
    for chunk in chunks:
        ids = {row["ID"] for row in rows_of(chunk)}
        assert isinstance(chunk.low, OraclePosition)
        assert isinstance(chunk.high, OraclePosition)
        below = {i for i, scn in commits.items() if scn <= chunk.low.read_scn}
        above = {i for i, scn in commits.items() if scn > chunk.high.read_scn}
        assert below <= ids
        assert not above & ids
        inside += len(commits) > len(below) + len(above)
        for scn in (chunk.low.read_scn, chunk.high.read_scn):
            stream = OraclePosition(start, start).advance_commits(scn, 1, frozenset({"1.2.3"}))
            assert chunk.high.has_reached(stream)
            assert not stream.has_reached(chunk.high)
            assert stream.advance_read_scn(chunk.high.read_scn).has_reached(chunk.high)
    assert inside or len({chunk.low.read_scn for chunk in chunks}) == len(chunks)  # type: ignore[union-attr]


def test_rows_that_are_not_committed_are_not_read(schema: Oracle, reader: OracleChunkReader) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", ["1"])
    with closing(schema.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO T1 VALUES (2)")
        cursor.execute("DELETE FROM T1 WHERE ID = 1")
        assert all_chunks(reader) == [[{"ID": 1}]]
        connection.commit()
    assert all_chunks(reader) == [[{"ID": 2}]]


def signals(
    server: Oracle, columns: str = "C1 VARCHAR2(42) PRIMARY KEY, C2 VARCHAR2(32) NOT NULL, C3 VARCHAR2(2048)"
) -> None:
    server.sql(f"CREATE TABLE SIGNALS ({columns})")
    server.sql(
        "ALTER TABLE SIGNALS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
        f"GRANT SELECT, INSERT, DELETE ON SIGNALS TO {server.user}",
    )


def test_written_watermarks_are_rows_of_the_signal_table_that_come_back_in_the_log(schema: Oracle) -> None:
    signals(schema)
    fill(schema, "ID NUMBER(9) PRIMARY KEY", ["1"])
    start = schema.scn()
    with OracleChunkReader(settings(schema), SIGNALS) as reader:
        table = read_known_schema(reader)
        schema.sql("INSERT INTO T1 VALUES (2)")
        reader.insert_signal_row("a-open", "snapshot-window-open", '{"x": 1}')
        chunk = reader.read(KeyRange(table, table.key), 10)
        reader.insert_signal_row("a-close", "snapshot-window-close")
        reader.delete_signal_row("a-open")
        end = reader.end_of_log()
    assert [row["ID"] for row in rows_of(chunk)] == [1, 2]
    assert isinstance(end, OraclePosition)
    assert start < end.read_scn <= schema.scn()
    assert end.advance_read_scn(end.read_scn).has_reached(end)
    assert (chunk.low, chunk.high) == (None, None)
    assert schema.sql("SELECT * FROM SIGNALS") == [("a-close", "snapshot-window-close", None)]
    with closing(connect(settings(schema))) as connection:
        found = mine_rows(connection, start, where="seg_owner = 'APP' AND operation_code IN (1, 2)")
    assert [code for code, _ in found] == [1, 1, 1, 2]
    assert "'a-open'" in found[1][1]
    assert "'a-open'" in found[3][1]


def test_a_signal_table_that_takes_no_row_is_an_error_with_the_grant_and_harms_nothing() -> None:
    with Oracle() as server:
        signals(server)
        fill(server, "ID NUMBER(9) PRIMARY KEY", ["1"])
        with OracleChunkReader(settings(server), SIGNALS) as reader:
            server.sql(f"REVOKE INSERT ON SIGNALS FROM {server.user}", f"REVOKE DELETE ON SIGNALS FROM {server.user}")
            for attempt in (lambda: reader.insert_signal_row("a", "b"), lambda: reader.delete_signal_row("a")):
                with pytest.raises(QueryRejected, match="insufficient privileges") as e:
                    attempt()
                assert 'GRANT SELECT, INSERT, DELETE ON "APP"."SIGNALS"' in str(e.value.remedy)
            server.sql(f"GRANT ALL ON SIGNALS TO {server.user}")
            with pytest.raises(QueryRejected, match="too large"):
                reader.insert_signal_row("a" * 50, "b")
            reader.insert_signal_row("a", "b")
            table = read_known_schema(reader)
            assert len(reader.read(KeyRange(table, table.key), 10)) == 1
        assert server.sql("SELECT C1 FROM SIGNALS") == [("a",)]


@pytest.mark.parametrize(
    ("properties", "what"),
    [
        ({"log__mining__username__exclude__list": "c##dbzuser"}, "username.exclude.list"),
        ({"log__mining__username__include__list": "APP"}, "username.include.list"),
        ({"log__mining__clientid__include__list": "x"}, "clientid.include.list"),
    ],
)
def test_watermarks_that_would_not_come_back_are_not_written(
    schema: Oracle, properties: dict[str, str], what: str
) -> None:
    signals(schema)
    with pytest.raises(PrerequisiteError, match=what):
        OracleChunkReader(settings(schema, **properties), SIGNALS)


def test_a_signal_table_that_does_not_exist_is_an_error_with_its_statement(schema: Oracle) -> None:
    with pytest.raises(PrerequisiteError, match="does not exist") as e:
        OracleChunkReader(settings(schema), SIGNALS)
    statement = str(e.value.remedy).partition(";")[0]
    schema.sql(statement)
    schema.sql(f"GRANT ALL ON SIGNALS TO {schema.user}")
    with OracleChunkReader(settings(schema), SIGNALS) as reader:
        reader.insert_signal_row("a", "b", "c")
    assert schema.sql("SELECT * FROM SIGNALS") == [("a", "b", "c")]


def test_a_database_that_can_only_be_read_has_no_written_watermarks() -> None:
    with Oracle({"standby": True}) as server:
        signals(server)
        fill(server, "ID NUMBER(9) PRIMARY KEY", ["1"])
        server.switch_log()
        host, _, port = server.standby_dsn.partition("/")[0].rpartition(":")
        standby = OracleConfig.parse(settings(server).to_public_properties() | {"database.hostname": host, "database.port": port, "database.password": server.password})  # fmt: skip
        with pytest.raises(PrerequisiteError, match="open read-only"):
            OracleChunkReader(standby, SIGNALS)
        with OracleChunkReader(standby, None) as reader:
            assert all_chunks(reader) == [[{"ID": 1}]]


# -- the connection ---------------------------------------------------------------------------------------------------


def test_the_session_is_in_the_pluggable_database_and_compares_bytes(
    schema: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    execute = oracledb.Cursor.execute
    monkeypatch.setattr(
        oracledb.Cursor, "execute", lambda self, sql, *a, **k: (requests.append(sql), execute(self, sql, *a, **k))[1]
    )
    with OracleChunkReader(settings(schema), None):
        pass
    assert [sql for sql in requests if "CONTAINER" in sql] == ["ALTER SESSION SET CONTAINER = ORCLPDB1"]
    assert "ALTER SESSION SET NLS_SORT = BINARY NLS_COMP = BINARY" in requests


def test_a_lost_connection_is_transient_and_another_reader_goes_on() -> None:
    with Oracle() as server:
        fill(server, "ID NUMBER(9) PRIMARY KEY", ["1", "2"])
        with OracleChunkReader(settings(server), None) as reader:
            table = read_known_schema(reader)
            first = reader.read(KeyRange(table, table.key), 1)
            server.kill()
            server.start()
            with pytest.raises(SourceUnavailable):
                reader.read(KeyRange(table, table.key, first.last), 1)
        with OracleChunkReader(settings(server), None) as reader:
            assert rows_of(reader.read(KeyRange(table, table.key, first.last), 1)) == [{"ID": 2}]


def test_another_thread_ends_a_read_by_closing_the_reader(schema: Oracle) -> None:
    fill(schema, "ID NUMBER(9) PRIMARY KEY", [str(i) for i in range(800)])
    reader = OracleChunkReader(settings(schema), None)
    table = read_known_schema(reader)
    slow = "(SELECT COUNT(*) FROM APP.T1 A, APP.T1 B, APP.T1 C WHERE A.ID + B.ID + C.ID < 0) = 0"
    errors: list[BaseException] = []

    def read() -> None:
        try:
            reader.read(KeyRange(table, table.key, condition=slow), 10)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    began = time.monotonic()
    reader.close()
    thread.join(60)
    assert not thread.is_alive()
    assert time.monotonic() - began < 60
    assert isinstance(errors[0], SourceUnavailable)
    reader.close()
