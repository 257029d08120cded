"""Keys of every type and collation: read in chunks, each row comes exactly once, and in the database's own order."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.core.model.key_json import Key, keys_of, parse_key_value
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader, ChunkRows, KeyRange
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect, server_of
from airflow_provider_cdc.sources.mysql.snapshot.chunk_reader import open_chunk_reader

LETTERS = st.sampled_from(
    ["a", "A", "á", "b", "B", "ß", "ss", "z", "Z", " ", "_", "\t", "'", "\\", "é", "e", "0", "9", "\x01"]
)
WIDE = st.one_of(LETTERS, st.sampled_from(["ı", "İ", "中", "\U0001f600", "\U0001f601", "Ω", "я", "ﬀ", "\u200b"]))
TEXTS = st.lists(LETTERS, max_size=6).map("".join)
WIDE_TEXTS = st.lists(WIDE, max_size=5).map("".join)
BLOBS = st.binary(max_size=6)
DATES = st.dates(dt.date(1000, 1, 1), dt.date(9999, 12, 31)).map(str)
TIMES = st.integers(-3020399 * 10**6, 3020399 * 10**6).map(
    lambda us: (
        f"{'-' if us < 0 else ''}{abs(us) // 3_600_000_000}:{abs(us) // 60_000_000 % 60:02}:{abs(us) // 10**6 % 60:02}.{abs(us) % 10**6:06}"
    )
)
MOMENTS = st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2037, 12, 31)).map(lambda d: d.isoformat(" "))


def _ints(bits: int, *, unsigned: bool = False) -> st.SearchStrategy[int]:
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.one_of(st.integers(low, high), st.sampled_from([low, high, high - 1, high // 2, high // 2 + 1]))


COMMON: dict[str, st.SearchStrategy[Any]] = {
    "TINYINT": _ints(8),
    "BOOLEAN": st.booleans(),
    "SMALLINT UNSIGNED ZEROFILL": _ints(16, unsigned=True),
    "MEDIUMINT": _ints(24),
    "INT": _ints(32),
    "BIGINT": _ints(64),
    "BIGINT UNSIGNED": _ints(64, unsigned=True),
    "DECIMAL(10,3)": st.decimals(Decimal("-9999999.999"), Decimal("9999999.999"), places=3),
    "DECIMAL(65,30)": st.decimals(Decimal(-(10**34)), Decimal(10**34), places=30),
    "FLOAT": st.one_of(
        st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([0.1, 0.2, 1 / 3, -0.0])
    ),
    "DOUBLE": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([0.1, 0.1 + 2**-56, 1e300])),
    "CHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci": WIDE_TEXTS,
    "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": WIDE_TEXTS,
    "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin": WIDE_TEXTS,
    "VARCHAR(8) CHARACTER SET utf8mb3": st.lists(LETTERS, max_size=5).map("".join),
    "CHAR(8) CHARACTER SET latin1 COLLATE latin1_german2_ci": TEXTS,
    "VARCHAR(8) CHARACTER SET latin1 COLLATE latin1_bin": TEXTS,
    "VARCHAR(8) CHARACTER SET ascii": st.text("abAB 01", max_size=5),
    "VARCHAR(8) CHARACTER SET utf16 COLLATE utf16_unicode_ci": WIDE_TEXTS,
    "VARCHAR(8) CHARACTER SET ucs2": TEXTS,
    "VARCHAR(8) CHARACTER SET cp932": st.text("aA～－∥ア表", max_size=5),
    "BINARY(4)": st.binary(max_size=4),
    "VARBINARY(8)": BLOBS,
    "DATE": st.one_of(DATES, st.just("1970-01-01")),
    "DATETIME(6)": st.one_of(DATES.map(lambda d: f"{d} 23:59:59.999999"), MOMENTS, st.just("1970-01-01 00:00:00")),
    "TIMESTAMP(6)": st.one_of(MOMENTS, st.just("0000-00-00 00:00:00")),
    "TIMESTAMP": MOMENTS,
    "TIME(6)": TIMES,
    "TIME": TIMES,
    "YEAR": st.one_of(st.integers(1901, 2155), st.just("0000")),
    "ENUM('z','a','m','10','9')": st.sampled_from(["z", "a", "m", "10", "9", ""]),
    "SET('z','a','m','b')": st.sets(st.sampled_from(["z", "a", "m", "b"])).map(lambda s: ",".join(sorted(s))),
    "BIT(1)": st.integers(0, 1),
    "BIT(13)": st.integers(0, (1 << 13) - 1),
    "BIT(64)": _ints(64, unsigned=True),
}
OWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "mysql97": {
        "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_as_cs": WIDE_TEXTS,
        "CHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci": WIDE_TEXTS,
        "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_tr_0900_ai_ci": WIDE_TEXTS,
    },
    "mysql80": {"CHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci": WIDE_TEXTS},
    "mariadb": {
        "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_nopad_ci": WIDE_TEXTS,
        "VARCHAR(8) CHARACTER SET utf8mb4 COLLATE uca1400_as_cs": WIDE_TEXTS,
        "UUID": st.uuids().map(str),
        "INET6": st.ip_addresses().map(lambda ip: str(ip) if ip.version == 6 else f"::ffff:{ip}"),
        "INET4": st.ip_addresses(v=4).map(str),
    },
}
CASES = [
    pytest.param(server, kind, marks=[] if server == "mariadb" or kind in own else pytest.mark.long)
    for server, own in OWN.items()
    for kind in [*COMMON, *own]
]
"""What the servers have in common is tried on one of them; on all with ``--long``."""
EPOCHS = ("1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00+00:00")
"""What dates are captured as that the calendar does not have."""
MODES = [
    {},
    {"decimal.handling.mode": "double", "binary.handling.mode": "hex", "bigint.unsigned.handling.mode": "precise"},
]


class Place:
    """A database, and readers of chunks of it."""

    def __init__(self, server: Any, database: Any) -> None:
        self.server, self.database = server, database
        self.readers: list[ChunkReader] = []
        self.connection = server.connect(database=database.name)
        with self.connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for modes in MODES:
            # one beyond 63 bits is an error as a long, wherever it is read
            config = MySqlConfig.parse(
                {
                    "topic.prefix": "p", "database.hostname": server.host, "database.port": server.port,
                    "database.user": server.user, "database.password": server.password, "database.server.id": 4711,
                    "bigint.unsigned.handling.mode": "precise", **modes,
                }
            )  # fmt: skip
            with connect(config) as connection:
                self.readers.append(open_chunk_reader(config, server_of(connection), None))

    def sql(self, statement: str, *arguments: Any) -> tuple[tuple[Any, ...], ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return tuple(cursor.fetchall())

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.connection.close()


@pytest.fixture(scope="module")
def key_places(request: pytest.FixtureRequest) -> Iterator[dict[str, Place]]:
    found: dict[str, Place] = {}
    databases = []
    yield _KeyPlaces(request, found, databases)
    for place in found.values():
        place.close()
    for database in databases:
        database.__exit__(None, None, None)


class _KeyPlaces(dict[str, Place]):
    """Opened when the first test asks."""

    def __init__(self, request: pytest.FixtureRequest, found: dict[str, Place], databases: list[Any]) -> None:
        self._request, self._found, self._databases = request, found, databases

    def __missing__(self, name: str) -> Place:
        server = self._request.getfixturevalue(name)
        database = server.database("keys")
        place = self[name] = self._found[name] = Place(server, database.__enter__())
        self._databases.append(database)
        return place


def read_chunks(
    reader: ChunkReader, table: TableId, limit: int, order: tuple[str, ...] = ()
) -> tuple[list[int], list[Key]]:
    """The values of column ``n`` in the order in which chunks give them, and the keys at which they end."""
    schema = reader.read_table_schema(table)
    assert schema is not None
    order = order or schema.key
    upto = reader.read_last_key(KeyRange(schema, order))
    seen: list[int] = []
    keys: list[Key] = []
    while upto is not None:
        after = json.loads(json.dumps(keys[-1])) if keys else None
        chunk = reader.read(KeyRange(schema, order, after, json.loads(json.dumps(upto))), limit)
        if chunk.last is None:
            break
        seen += [n for block in chunk.rows for n in block.after.field(schema.column_names.index("n")).to_pylist()]
        keys.append(chunk.last)
        assert len(keys) < 500, f"it goes round and round: {keys[-3:]}"
    assert not keys or keys[-1] == upto
    return seen, keys


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("server", "kind"), CASES)
def test_each_row_comes_once_and_in_order(key_places: Any, server: str, kind: str) -> None:
    place = key_places[server]
    table = TableId(namespace=place.database.name, name="t")
    values = {**COMMON, **OWN[server]}[kind]
    made = []

    @settings(max_examples=8, suppress_health_check=list(HealthCheck), database=None)
    @given(
        st.lists(st.tuples(values, st.integers(0, 3)), min_size=8, max_size=25),
        st.sampled_from(["k", "k, m", "m, k"]),
        st.integers(1, 4),
        st.integers(0, len(MODES) - 1),
    )
    def check_chunks_once(rows: list[tuple[Any, int]], key: str, limit: int, reader: int) -> None:
        place.sql("DROP TABLE IF EXISTS t")
        place.sql(f"CREATE TABLE t (n INT NOT NULL, m INT NOT NULL, k {kind} NOT NULL, PRIMARY KEY ({key}))")
        for n, (value, m) in enumerate(rows):
            place.sql("INSERT IGNORE INTO t VALUES (%s, %s, %s)", n, m, value)
        expected = [n for (n,) in place.sql(f"SELECT n FROM t ORDER BY {key}")]
        assert read_chunks(place.readers[reader], table, limit)[0] == expected
        made.append(len(expected))

    check_chunks_once()
    assert sum(made) >= len(made)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("server", "kind"), CASES)
def test_keys_of_events_find_their_rows_and_bound_ranges(key_places: Any, server: str, kind: str) -> None:
    """The key that events of a row have, sent as JSON, finds this row and no other; ranges between two keys have both, and all between."""
    place = key_places[server]
    table = TableId(namespace=place.database.name, name="e")
    values = {**COMMON, **OWN[server]}[kind]
    found = []

    @settings(max_examples=6, suppress_health_check=list(HealthCheck), database=None)
    @given(
        st.lists(st.tuples(values, st.integers(0, 3)), min_size=6, max_size=15),
        st.sampled_from(["k", "k, m", "m, k"]),
        st.integers(0, len(MODES) - 1),
        st.data(),
    )
    def check_events_once(rows: list[tuple[Any, int]], key: str, mode: int, data: st.DataObject) -> None:
        place.sql("DROP TABLE IF EXISTS e")
        place.sql(f"CREATE TABLE e (n INT NOT NULL, m INT NOT NULL, k {kind} NOT NULL, PRIMARY KEY ({key}))")
        for n, (value, m) in enumerate(rows):
            place.sql("INSERT IGNORE INTO e VALUES (%s, %s, %s)", n, m, value)
        expected = [n for (n,) in place.sql(f"SELECT n FROM e ORDER BY {key}")]
        reader = place.readers[mode]
        schema = reader.read_table_schema(table)
        assert schema is not None
        (block,) = reader.read(KeyRange(schema, schema.key), 100).rows
        assert block.after is not None
        columns = [schema.get_column(name) for name in schema.key]
        events = keys_of([block.after.field(schema.column_names.index(c.name)) for c in columns])
        sent = json.loads(json.dumps(events))
        parsed = [[parse_key_value(v, c) for v, c in zip(one, columns, strict=True)] for one in sent]
        assert parsed == events
        if reason := _irreversible(kind, mode, sent):
            with pytest.raises(QueryRejected, match=reason):
                reader.to_source_keys(schema, schema.key, parsed)
            return
        keys = reader.to_source_keys(schema, schema.key, parsed)
        for at, one in enumerate(keys):
            assert _numbers(reader.read(KeyRange(schema, schema.key, keys=(one,)), 5), schema) == [expected[at]]
        some = data.draw(st.sets(st.sampled_from(range(len(keys))), min_size=1))
        rows_of = reader.read(KeyRange(schema, schema.key, keys=tuple(keys[i] for i in some)), 100)
        assert _numbers(rows_of, schema) == [expected[i] for i in sorted(some)]
        low, high = sorted(data.draw(st.tuples(*[st.sampled_from(range(len(keys)))] * 2)))
        between = KeyRange(schema, schema.key, first=keys[low], end=keys[high])
        assert _numbers(reader.read(between, 100), schema) == expected[low : high + 1]
        upto = KeyRange(schema, schema.key, first=keys[low], upto=reader.read_last_key(between))
        assert _numbers(reader.read(upto, 100), schema) == expected[low : high + 1]
        prefix = KeyRange(schema, schema.key, first=keys[low][:1])
        assert _numbers(reader.read(prefix, 100), schema)[-1] == expected[-1]
        found.append(len(keys))

    check_events_once()
    assert found or kind in ("DECIMAL(65,30)", "DATE")


def _irreversible(kind: str, mode: int, sent: list[Key]) -> str:
    """Why keys cannot be read; empty if they can."""
    if kind.startswith(("DATE", "TIMESTAMP")) and any(str(v) in EPOCHS for key in sent for v in key):
        return "also stands for invalid dates"
    return "decimal.handling.mode=double does not keep" if mode == 1 and kind == "DECIMAL(65,30)" else ""


def _numbers(chunk: ChunkRows, schema: TableSchema) -> list[int]:
    images = [block.after for block in chunk.rows if block.after is not None]
    return [n for image in images for n in image.field(schema.column_names.index("n")).to_pylist()]


@pytest.mark.parametrize("server", OWN)
@pytest.mark.parametrize("nullable", [False, True])
def test_sets_of_many_members_are_distinguished_by_all_of_them(key_places: Any, server: str, nullable: bool) -> None:
    """Their numbers have more digits than a double, and some of them the bit of a sign."""
    place = key_places[server]
    members = ", ".join(f"'m{i}'" for i in range(64))
    place.sql("DROP TABLE IF EXISTS s")
    place.sql(f"CREATE TABLE s (n INT PRIMARY KEY, k SET({members}){'' if nullable else ' NOT NULL'}, UNIQUE (k))")
    numbers = [
        0,
        1,
        (1 << 53) + 1,
        *((1 << 62) + i for i in range(5)),
        *((1 << 63) + i for i in range(20)),
        (1 << 64) - 1,
    ]
    for n, number in enumerate(numbers):
        place.sql(f"INSERT INTO s VALUES (%s, {number})", n)
    expected = list(range(len(numbers)))
    if nullable:
        place.sql("INSERT INTO s VALUES (99, NULL)")
        expected.insert(0, 99)
    assert read_chunks(place.readers[0], TableId(namespace=place.database.name, name="s"), 4, ("k",))[0] == expected


@pytest.mark.parametrize("server", OWN)
def test_rows_without_a_surrogate_come_too(key_places: Any, server: str) -> None:
    place = key_places[server]
    place.sql("DROP TABLE IF EXISTS s")
    place.sql("CREATE TABLE s (n INT PRIMARY KEY, grp VARCHAR(10), KEY (grp))")
    for n in range(30):
        place.sql("INSERT INTO s VALUES (%s, %s)", n, [None, "a", "B", "b"][n % 4])
    expected = [n for (n,) in place.sql("SELECT n FROM s ORDER BY grp, n")]
    table = TableId(namespace=place.database.name, name="s")
    for limit in (1, 4, 7):
        assert read_chunks(place.readers[0], table, limit, ("grp", "n"))[0] == expected
    place.sql("UPDATE s SET grp = NULL")
    assert read_chunks(place.readers[0], table, 7, ("grp", "n"))[0] == list(range(30))


@pytest.mark.parametrize("server", OWN)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        ),
        ("ENUM('a','b','c')", "ENUM('b','a','c')"),
        ("INT", "VARCHAR(10)"),
        ("SET('a','b','c')", "SET('b','a','c')"),
    ],
)
def test_a_key_whose_order_was_changed_is_refused(key_places: Any, server: str, before: str, after: str) -> None:
    place = key_places[server]
    place.sql("DROP TABLE IF EXISTS o")
    place.sql(f"CREATE TABLE o (k {before} PRIMARY KEY, n INT)")
    for k in (1, 2, 3) if before == "INT" else ("a", "b", "c"):
        place.sql("INSERT INTO o VALUES (%s, 1)", k)
    table = TableId(namespace=place.database.name, name="o")
    reader = place.readers[0]
    schema = reader.read_table_schema(table)
    assert schema is not None
    key = reader.read(KeyRange(schema, schema.key), 1).last
    place.sql(f"ALTER TABLE o MODIFY k {after} NOT NULL")
    schema = reader.read_table_schema(table)
    assert schema is not None
    with pytest.raises(QueryRejected, match=r"order of the rows of .* changed") as caught:
        reader.read(KeyRange(schema, schema.key, key), 1)
    assert "send the signal again" in str(caught.value)


@pytest.mark.parametrize("server", OWN)
def test_members_that_are_added_at_the_end_change_no_order(key_places: Any, server: str) -> None:
    place = key_places[server]
    place.sql("DROP TABLE IF EXISTS o")
    place.sql(
        "CREATE TABLE o (k ENUM('b','a') PRIMARY KEY, n INT)",
    )
    place.sql("INSERT INTO o VALUES ('a', 2), ('b', 1)")
    table = TableId(namespace=place.database.name, name="o")
    reader = place.readers[0]
    schema = reader.read_table_schema(table)
    assert schema is not None
    key = reader.read(KeyRange(schema, schema.key), 1).last
    place.sql("ALTER TABLE o MODIFY k ENUM('b','a','0') NOT NULL")
    place.sql("INSERT INTO o VALUES ('0', 3)")
    schema = reader.read_table_schema(table)
    assert schema is not None
    (block,) = reader.read(KeyRange(schema, schema.key, key), 5).rows
    assert block.after is not None
    assert block.after.field(1).to_pylist() == [2, 3]
