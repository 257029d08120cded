"""Each value has one form, in a query, a snapshot, the log and a chunk: character sets, JSON, addresses, times; and a value that cannot be read stops its
table alone."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airflow_provider_cdc.core.errors import PrerequisiteError, UnreadableValue
from airflow_provider_cdc.core.lifecycle.connector_status import status_of
from airflow_provider_cdc.sources.mysql import checks
from airflow_provider_cdc.sources.mysql.columns import charset_codec
from airflow_provider_cdc.sources.mysql.columns.supported_charsets import BY_TABLE, UNICODE
from airflow_provider_cdc.sources.mysql.kernels import NO_CHARACTER
from dev.charsets import character_sets, characters
from dev.servers.oracle import Oracle
from tests.sources.db2_adapter import Db2Adapter, db2_connector
from tests.sources.mysql.kernels.test_kernels import events_of
from tests.sources.oracle_adapter import oracle_connector
from tests.support.connectors import Connector, mysql_connector
from tests.support.pytest_runs.sampled import CaseSample
from tests.support.signals import signal_state, snapshot
from tests.support.sources.mysql.four_ways import FourWays

SERVERS = ["mariadb", "mariadb118", "mysql97", "mysql80"]


@pytest.fixture(scope="module")
def mariadb118(mariadb_factory: Any) -> Iterator[Any]:
    with mariadb_factory(edition="11.8") as server:
        yield server


def kind_of(name: str) -> str:
    return "mariadb" if name.startswith("mariadb") else "mysql"


# -- character sets -------------------------------------------------------------------------------------------------------------


def _texts(charset: str, rng: random.Random) -> list[bytes]:
    """All characters of a set as one text, and some short ones."""
    table = charset_codec.code_points(charset)
    if table is None:
        codec = UNICODE.get(charset, "utf-8")
        planes = [(0, 0xD800), (0xE000, 0x10000)] + (
            [] if charset in ("ucs2", "utf8mb3", "utf8") else [(0x10000, 0x110000)]
        )
        found = [chr(c).encode(codec) for first, end in planes for c in range(first, end, 7 if end <= 0x10000 else 997)]
    else:
        found = [bytes((c,)) for c in np.flatnonzero(table.one_byte != NO_CHARACTER)]
        found += [int(c).to_bytes(2, "big") for c in np.flatnonzero(table.two_bytes != NO_CHARACTER)]
        found += [b"\x8f" + int(c).to_bytes(2, "big") for c in np.flatnonzero(table.three_bytes != NO_CHARACTER)]
        found += [_four(int(c)) for c in np.flatnonzero(table.four_bytes != NO_CHARACTER)]
        if len(table.four_bytes):
            found += [_four(c) for c in range(189_000, 189_000 + 0x100000, 997)]
    return [b"".join(found), *(b"".join(rng.choices(found, k=rng.randint(1, 20))) for _ in range(5)), b""]


def _four(number: int) -> bytes:
    return bytes((0x81 + number // 12600, 0x30 + number // 1260 % 10, 0x81 + number // 10 % 126, 0x30 + number % 10))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SERVERS)
def test_all_characters_of_all_sets_are_what_a_query_gives(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    """H7 R14 R15 R16 gb18030: with every character that a column of the set can hold, in the forms of Unicode every seventh, and fewer beyond U+FFFF."""
    server, rng = request.getfixturevalue(name), random.Random(name)
    known = [str(s) for (s,) in server.sql("SELECT character_set_name FROM information_schema.character_sets")]
    assert [s for s in known if not charset_codec.is_known(s)] == []
    tables = {
        f"t_{s}": (f"LONGTEXT CHARACTER SET {s}", [f"x'{text.hex()}'" for text in _texts(s, rng)])
        for s in known
        if s != "binary"
    }
    ways = FourWays(server, tmp_path, kind_of(name), "all_sets", tables)
    assert ways.differences() == []


@pytest.mark.long
@pytest.mark.parametrize("name", SERVERS)
def test_the_tables_of_character_sets_are_those_of_the_server(request: pytest.FixtureRequest, name: str) -> None:
    """Every sequence of bytes that a column keeps."""
    server = request.getfixturevalue(name)
    server.sql("CREATE DATABASE IF NOT EXISTS sweeps")
    with server.connect(database="sweeps", autocommit=True, use_unicode=False) as connection:
        for charset, size in character_sets(connection).items():
            found = characters(connection, charset, size)
            wrong = {s.hex(): u for s, u in found.items() if charset_codec.decode_text(charset, s).encode() != u}
            assert not wrong, (charset, len(wrong), dict([*wrong.items()][:5]))


def test_a_character_set_that_is_not_known_is_found_before_anything_is_captured(
    mariadb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {name for name in BY_TABLE if charset_codec.code_points(name) is not None} == BY_TABLE
    mariadb.sql(
        "DROP DATABASE IF EXISTS later",
        "CREATE DATABASE later",
        "CREATE TABLE later.t (id INT, v TEXT CHARACTER SET hp8)",
    )
    connector = mysql_connector(mariadb, tmp_path, database_include_list="later")
    monkeypatch.setattr(checks, "is_known", lambda charset: charset != "hp8")
    with pytest.raises(PrerequisiteError, match=r"later\.t\.v are in the character set hp8"):
        connector.capture()
    connector.capture({"column.exclude.list": "later.t.v"})


CASES = {
    "R14": ("euckr", "똠방각하", "뷁", "한글"),
    "R15-big5": ("big5", "恒春", "裏", "碁銹墻粧嫺"),
    "R15-gbk": ("gbk", "人民币", "镕", "㎡"),
    "R16": ("eucjpms", "①㈱～", "－￠", "～"),
    "H7-sjis": ("sjis", "C:\\x", "日本", "\\"),
    "R16-koi8u": ("koi8u", "•", "Привіт", "ґ"),
    "R16-greek": ("greek", "ʽʼ", "αβγ", "ώ"),
    "R16-hebrew": ("hebrew", "‾", "שלום", "א"),
    "R16-cp866": ("cp866", "ⁿ²", "Привет", "Ё"),
    "X2-armscii8": ("armscii8", "Հայ", "ա", "բ"),
    "X2-geostd8": ("geostd8", "ქართული", "ა", "ბ"),
    "X2-keybcs2": ("keybcs2", "čeština", "ž", "á"),
    "X2-dec8": ("dec8", "Œuvre", "é", "ÿ"),
    "X2-swe7": ("swe7", "Åäö", "é", "Ü"),
}
GB18030 = {"gb18030": ("gb18030", "ḿ€𠀀㐀", "人", "𠀀")}


@pytest.mark.parametrize("name", ["mariadb", "mysql97"])
def test_a_key_in_any_character_set_is_one_row(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> None:
    """H7 R14 R15 R16 gb18030: the key of a row is the same from the snapshot and from the log, and texts and members are what was written."""
    server = request.getfixturevalue(name)
    cases = CASES | (GB18030 if name == "mysql97" else {})
    server.sql("DROP DATABASE IF EXISTS set_keys", "CREATE DATABASE set_keys")
    with server.connect(database="set_keys", autocommit=True) as sql, sql.cursor() as cursor:
        for case, (charset, text, other, _) in cases.items():
            members = f"ENUM('a', '{other}') CHARACTER SET {charset}, s SET('b', '{other}') CHARACTER SET {charset}"
            cursor.execute(
                f"CREATE TABLE `{case}` (k VARCHAR(30) CHARACTER SET {charset}, v INT, e {members}, PRIMARY KEY (k))"
            )
            cursor.execute(f"INSERT INTO `{case}` VALUES (%s, 1, %s, %s)", (text, other, f"b,{other}"))
        connector = mysql_connector(server, tmp_path, kind_of(name), database_include_list="set_keys")
        connector.capture()
        before, written = {}, {}
        for case, (_, _, other, third) in cases.items():
            cursor.execute(f"UPDATE `{case}` SET v = 2")
            cursor.execute(f"INSERT INTO `{case}` VALUES (%s, 3, %s, %s)", (third * 2, other, other))
        connector.capture()
        for case in cases:
            cursor.execute(f"SELECT k, v, e, s FROM `{case}`")
            written[case] = sorted(cursor.fetchall(), key=repr)
            before[case] = sorted((tuple(r.values()) for r in connector.rows(f"set_keys.{case}")), key=repr)
            cursor.execute(f"DELETE FROM `{case}`")
        connector.capture()
    assert before == written
    assert [case for case in cases if connector.rows(f"set_keys.{case}")] == []


MEMBERS = {
    "latin1": "é",
    "utf16": "é",
    "cp1251": "ж",
    "ucs2": "é",
    "utf8mb4": "€",
    "sjis": "日",
    "armscii8": "ա",
    "binary": "x",
}


@pytest.mark.parametrize("name", ["mariadb", "mysql97"])
def test_members_are_read_from_the_log_in_their_own_character_set(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    """R17: neither the known structure nor the catalog has the table as the rows were written, so that the log alone says which members there are."""
    server = request.getfixturevalue(name)
    server.sql("DROP DATABASE IF EXISTS members", "CREATE DATABASE members")
    with server.connect(database="members", autocommit=True) as sql, sql.cursor() as cursor:
        for charset in MEMBERS:
            cursor.execute(f"CREATE TABLE t_{charset} (id INT PRIMARY KEY)")
        connector = mysql_connector(server, tmp_path, kind_of(name), database_include_list="members")
        connector.capture()
        for charset, member in MEMBERS.items():
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(
                f"ALTER TABLE t_{charset} ADD e ENUM('a', '{member}') CHARACTER SET {charset}, ADD s SET('b', '{member}') CHARACTER SET {charset}, ADD x INT"
            )
            cursor.execute("SET sql_log_bin = 1")
            cursor.execute(f"INSERT INTO t_{charset} VALUES (1, '{member}', 'b,{member}', 1)")
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(f"ALTER TABLE t_{charset} DROP x")
            cursor.execute("SET sql_log_bin = 1")
        connector.capture()
    logged = {e["source"]["table"]: e["after"] for e in events_of(connector) if e["op"] == "c"}
    assert logged == {f"t_{c}": {"id": 1, "e": m, "s": f"b,{m}", "x": 1} for c, m in MEMBERS.items()}
    state = connector.store.load_schemas(connector.name)
    known = [t for t in (change.table for record in state.changes for change in record.changes) if t is not None]
    for charset, member in MEMBERS.items():
        members = {
            t.get_column("e").declared.values for t in known if t.id.name == f"t_{charset}" and "e" in t.column_names
        }
        assert members == {("a", member)}


# -- JSON -----------------------------------------------------------------------------------------------------------------------

HANDED_JSON = {
    "H6": """'{"ts": 1732612345678901.2, "a": -1732612345678901.5, "b": 4503599627370495.5, "c": 1000000000000000.1}'""",
    "R05": """'{"ts": 1718123456789012.5, "x": 1234567890123456.75, "n": -1234567890123456.5}'""",
    "R07": "JSON_OBJECT('d', CAST(0.0000001 AS DECIMAL(12,7)), 'z', CAST(0 AS DECIMAL(12,8)), 'neg', CAST(-0.00000001 AS DECIMAL(12,8)), 'zz', CAST(0 AS DECIMAL(30,30)))",
    "R27-200": "JSON_OBJECT('b', CAST(REPEAT('x', 200) AS BINARY))",
    "R27-114": "JSON_ARRAY(CAST(REPEAT('x', 57) AS BINARY), CAST(REPEAT('y', 58) AS BINARY), CAST(REPEAT('z', 114) AS BINARY), CAST('' AS BINARY))",
    "L5": "JSON_ARRAY(1e-5, 1e-15, 1e-16, 123e-17, 1e15, 1e14, 0e0, -0e0, 5e-324, 1.7976931348623157e308)",
}  # fmt: skip


def _json_literals(rng: random.Random, n: int) -> list[str]:
    """Documents with values of all kinds."""

    def double() -> str:
        match rng.randrange(3):
            case 0:
                return repr(rng.uniform(-1, 1) * 10 ** rng.randint(-20, 20))
            case 1:
                return repr(rng.uniform(1e15, 9.1e15))
            case _:
                return f"{rng.choice('-+')}{rng.randint(1, 10**17)}e{rng.randint(-320, 290)}".lstrip("+")

    def scalar() -> str:
        digits = rng.randint(1, 65)
        scale = rng.randint(0, min(30, digits))
        number = f"{rng.choice(['', '-'])}{rng.randrange(10 ** rng.randint(1, digits))}e-{scale}"
        moment = f"{rng.randint(0, 9999):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randint(0, 23):02}:00:59.{rng.randrange(10**6):06}"
        return rng.choice([
            f"CAST('{double()}' AS JSON)", f"CAST('{number}' AS DECIMAL({digits},{scale}))", str(rng.randint(-(2**63), 2**64 - 1)),
            str(rng.choice([0, 1, -1, 32767, 32768, -32769, 65535, 65536, 2**31, 2**32])), "TRUE", "NULL",
            f"CAST('{moment}' AS DATETIME({rng.randint(0, 6)}))", f"CAST('{moment[:10]}' AS DATE)",
            f"CAST('{rng.choice(['', '-'])}{rng.randint(0, 838)}:59:01.{rng.randrange(10**6):06}' AS TIME({rng.randint(0, 6)}))",
            f"x'{rng.randbytes(rng.choice([0, 1, 56, 57, 58, 113, 114, 115, 300])).hex()}'", "b'1010'",
            "CAST(2024 AS YEAR)" if rng.random() < 0.5 else "ST_GeomFromText('POINT(1 2)')",
            f"CONVERT(x'{''.join(chr(rng.choice([rng.randrange(32), rng.randrange(32, 1000), 0x1F600])) for _ in range(9)).encode().hex()}' USING utf8mb4)",
        ])  # fmt: skip

    return [
        f"JSON_OBJECT('k{rng.randrange(9)}', JSON_ARRAY({', '.join(scalar() for _ in range(40))}))" for _ in range(n)
    ]


@pytest.mark.parametrize("name", ["mysql97", "mysql80"])
def test_json_is_the_text_that_the_server_prints(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, sampled: CaseSample
) -> None:
    """H6 R05 R07 R27 L5, and documents of random values."""
    server, rng = request.getfixturevalue(name), sampled.random("json " + name)
    documents = _json_literals(rng, 400 if sampled.all else 40)
    if name == "mysql80":
        documents = [d.replace("CAST(2024 AS YEAR)", "2024") for d in documents]
    tables = {"handed": ("JSON", [*HANDED_JSON.values()]), "random": ("JSON", documents)}
    ways = FourWays(server, tmp_path, "mysql", "json_texts", tables)
    assert ways.differences() == []
    for row in ways.seen["handed"].values():
        json.loads(row["chunk"])


# -- addresses ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mariadb", "mariadb118"])
def test_addresses_are_the_text_that_the_server_prints(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, sampled: CaseSample
) -> None:
    """H5, and random addresses with many groups of zeros."""
    server, rng = request.getfixturevalue(name), sampled.random("addresses " + name)
    groups = [b"\0\0", b"\0\0", b"\xff\xff", b"\0\1", b"\1\0"]
    found = [b"".join(rng.choice([*groups, rng.randbytes(2)]) for _ in range(8)) for _ in range(500)]
    tables = {
        "six": ("INET6", ["'2001:db8:0:1:2:3:4:5'", "'1:0:2:0:3:0:4:0'", "'::'", *(f"x'{a.hex()}'" for a in found)]),
        "four": ("INET4", [f"x'{rng.randbytes(4).hex()}'" for _ in range(50)]),
        "ids": ("UUID", [f"x'{rng.randbytes(16).hex()}'" for _ in range(300)]),
    }
    assert FourWays(server, tmp_path, "mariadb", "addresses", tables).differences() == []


# -- types of no length ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mariadb", "mysql97"])
def test_types_of_no_length_have_empty_values(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> None:
    """A sibling of H5: ``BINARY(0)`` had a zero byte from the log."""
    types = ("BINARY(0)", "CHAR(0)", "VARCHAR(0)", "VARBINARY(0)")
    tables = {f"t{n}": (declared, ["''", "NULL"]) for n, declared in enumerate(types)}
    assert FourWays(request.getfixturevalue(name), tmp_path, kind_of(name), "no_length", tables).differences() == []


# -- times ----------------------------------------------------------------------------------------------------------------------


def _draw_moments(rng: random.Random, digits: int) -> dict[str, list[str]]:
    fraction = f".{rng.randrange(10**6):06}"
    times = [
        "-838:59:59",
        "838:59:59",
        "00:00:00",
        f"-00:00:00{fraction}",
        f"{rng.randint(-838, 838)}:59:01{fraction}",
        f"-12:30:01{fraction}",
    ]
    dates = ["0000-00-00 00:00:00", "1000-01-01 00:00:00", f"9999-12-31 23:59:59{fraction}" if digits else "9999-12-31 23:59:59",
             f"2024-02-29 12:00:01{fraction}", "1969-12-31 23:59:59", "2024-02-31 10:00:00", f"2024-00-10 00:00:00{fraction}"]  # fmt: skip
    stamps = ["0000-00-00 00:00:00", "1970-01-01 00:00:01", f"2024-02-29 12:00:01{fraction}", "2038-01-19 03:14:07"]
    return {
        "TIME": times,
        "DATETIME": [d.replace("9999-12-31 23:59:59.", "9999-12-30 23:59:59.") for d in dates],
        "TIMESTAMP": stamps,
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["mariadb", "mariadb118"])
@pytest.mark.parametrize("form", ["OFF", "ON"])
def test_times_with_fractions_in_both_forms_of_mariadb(
    request: pytest.FixtureRequest, name: str, form: str, tmp_path: Path, sampled: CaseSample
) -> None:
    """R20: with ``mysql56_temporal_format`` off, too."""
    server, rng = request.getfixturevalue(name), sampled.random("times " + name)
    tables = {}
    for digits in range(7):
        for base, values in _draw_moments(rng, digits).items():
            null = " NULL" if base == "TIMESTAMP" else ""
            tables[f"{base}{digits}".lower()] = (f"{base}({digits}){null}", [f"'{v}'" for v in values])
    server.sql(f"SET GLOBAL mysql56_temporal_format = {form}")
    try:
        ways = FourWays(server, tmp_path, "mariadb", "times", tables, before=["SET sql_mode = 'ALLOW_INVALID_DATES'"])
    finally:
        server.sql("SET GLOBAL mysql56_temporal_format = ON")
    assert ways.differences(query=False) == []
    assert str(ways.seen["datetime6"][3]["snapshot"]).startswith("2024-02-29 12:00:01")
    plain = {row["snapshot"] for row in ways.seen["time6"].values() if "snapshot" in row}
    assert {-(838 * 3600 + 59 * 60 + 59) * 1_000_000, 0} <= plain


# -- a value that cannot be read ------------------------------------------------------------------------------------------------

HALVES = {"mariadb": ("VARCHAR(9)", "x'61eda080'"), "mysql97": ("VARCHAR(9) CHARACTER SET ucs2", "x'0061d800'")}
"""Half a character, which the server takes and nothing behind it could read."""


def _run_until_stopped(connector: Connector, **properties: Any) -> str:
    """Run once; returns the error of a run with stopped tables, or nothing."""
    try:
        connector.capture({name.replace("_", "."): value for name, value in properties.items()})
    except UnreadableValue as e:
        return str(e)
    return ""


def _ids(connector: Connector, table: str) -> list[int]:
    return sorted(row["id"] for row in connector.rows(table))


@pytest.mark.parametrize("name", HALVES)
def test_a_value_that_cannot_be_read_stops_its_table_alone(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    """X2: each remedy that the error names helps, and no row of either table is lost."""
    server = request.getfixturevalue(name)
    declared, bad = HALVES[name]
    db = f"stops_{name}"
    server.sql(f"DROP DATABASE IF EXISTS {db}", f"CREATE DATABASE {db}")
    with server.connect(database=db, autocommit=True) as sql, sql.cursor() as cursor:
        for table in ("a", "b"):
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v {declared})")
            cursor.execute(f"INSERT INTO {table} VALUES (1, 'x')")
        connector = mysql_connector(server, tmp_path / "log", kind_of(name), database_include_list=db)
        assert _run_until_stopped(connector) == ""
        for statement in (
            "BEGIN",
            "INSERT INTO a VALUES (2, 'y')",
            "INSERT INTO b VALUES (2, 'y')",
            f"INSERT INTO a VALUES (3, {bad})",
            "COMMIT",
        ):
            cursor.execute(statement)
        cursor.execute("INSERT INTO b VALUES (3, 'z')")
        error = _run_until_stopped(connector)
        assert f"airflow cdc snapshot test {db}.a --type blocking --replace" in error
        assert f"{db}.a.v" in error
        assert (_ids(connector, f"{db}.a"), _ids(connector, f"{db}.b")) == ([1], [1, 2, 3])
        cursor.execute("INSERT INTO b VALUES (4, 'z')")
        assert _run_until_stopped(connector) == error  # each run says so, and the others go on
        assert _ids(connector, f"{db}.b") == [1, 2, 3, 4]
        record = connector.store.find_connector(connector.name)
        assert record is not None
        assert [*status_of(record, ()).stopped] == [f"{db}.a"]

        in_chunks = snapshot(connector, f"{db}.a", id_="chunks")
        too_early = snapshot(connector, f"{db}.a", id_="whole", type="blocking")
        assert _run_until_stopped(connector) == error
        assert signal_state(connector, in_chunks)[0] == "refused"
        assert "blocking" in signal_state(connector, in_chunks)[1]
        assert signal_state(connector, too_early)[0] == "failed"

        excluded = {"column_exclude_list": f"{db}.a.v"}
        again = snapshot(connector, f"{db}.a", id_="again", type="blocking")
        assert _run_until_stopped(connector, **excluded) == ""
        assert signal_state(connector, again)[0] == "done"
        cursor.execute(f"INSERT INTO a VALUES (4, {bad})")
        assert _run_until_stopped(connector, **excluded) == ""
        assert _ids(connector, f"{db}.a") == [1, 2, 3, 4]

        first = mysql_connector(server, tmp_path / "snapshot", kind_of(name), database_include_list=db)
        assert f"{db}.a.v" in _run_until_stopped(first)
        assert (_ids(first, f"{db}.a"), _ids(first, f"{db}.b")) == ([], [1, 2, 3, 4])
        cursor.execute("INSERT INTO b VALUES (5, 'z')")
        assert f"{db}.a.v" in _run_until_stopped(first)
        assert _ids(first, f"{db}.b") == [1, 2, 3, 4, 5]
        cursor.execute("UPDATE a SET v = 'm' WHERE id > 2")
        again = snapshot(first, f"{db}.a", type="blocking")
        assert _run_until_stopped(first) == ""
        assert signal_state(first, again)[0] == "done"
        cursor.execute("DELETE FROM a WHERE id = 3")
        assert _run_until_stopped(first) == ""
        assert _ids(first, f"{db}.a") == [1, 2, 4]


@pytest.mark.parametrize("name", ["mariadb", "mysql97"])
@pytest.mark.parametrize("how", ["snapshot", "log"])
def test_a_date_in_a_key_that_the_calendar_does_not_have_is_refused(
    request: pytest.FixtureRequest, name: str, how: str, tmp_path: Path
) -> None:
    """A6b: beside 1970-01-01 it would be the same row."""
    server, db = request.getfixturevalue(name), f"zero_{name}_{how}"
    server.sql(f"DROP DATABASE IF EXISTS {db}", f"CREATE DATABASE {db}")
    with server.connect(database=db, autocommit=True) as sql, sql.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for table, type_ in (("d", "DATE"), ("t", "DATETIME(3)"), ("s", "TIMESTAMP(0)"), ("v", "INT, w DATE")):
            cursor.execute(f"CREATE TABLE {table} (k {type_} NOT NULL, n INT, PRIMARY KEY (k, n))")
        connector = mysql_connector(server, tmp_path, kind_of(name), database_include_list=db)
        if how == "log":
            assert _run_until_stopped(connector) == ""
        for table, zero, one in (
            ("d", "0000-00-00", "1970-01-01"),
            ("t", "2024-00-10", "1970-01-01"),
            ("s", 0, "1970-01-01 00:00:01"),
        ):
            cursor.execute(f"INSERT INTO {table} VALUES (%s, 1), (%s, 1)", (zero, one))
        cursor.execute("INSERT INTO v VALUES (1, '0000-00-00', 1)")
        error = _run_until_stopped(connector)
        assert f"{db}.d.k" in error
        assert f"{db}.t.k" in error
        assert "message.key.columns" in error
        assert len(connector.rows(f"{db}.s")) == 2  # a TIMESTAMP begins a second later
        assert len(connector.rows(f"{db}.v")) == 1  # no column of the key
        assert connector.rows(f"{db}.d") == connector.rows(f"{db}.t") == []
        cursor.execute("DELETE FROM d WHERE k = 0")
        cursor.execute("DELETE FROM t WHERE k <> '1970-01-01'")
        snapshot(connector, f"{db}.[dt]", type="blocking")
        assert _run_until_stopped(connector) == ""
        assert len(connector.rows(f"{db}.d")) == len(connector.rows(f"{db}.t")) == 1


@pytest.mark.parametrize("how", ["snapshot", "log"])
def test_a_moment_beyond_nanoseconds_stops_its_table_and_each_remedy_helps(how: str, tmp_path: Path) -> None:
    """R39: on Oracle. An excluded column is not decoded, in whatever row it is."""
    with Oracle() as server:
        log_all = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
        for table, columns in (("A", "VALID_TO TIMESTAMP(9), V NUMBER(9)"), ("B", "V NUMBER(9)")):
            server.sql(f"CREATE TABLE {table} (ID NUMBER(9) PRIMARY KEY, {columns})", log_all.format(table))

        def connector(name: str, **properties: Any) -> Connector:
            return oracle_connector(
                server, tmp_path / name, **{"schema_include_list": "APP", "topic_prefix": "o", **properties}
            )

        def rows(of: Connector, table: str) -> list[int]:
            return sorted(row["ID"] for row in of.replay.advance().rows(f"o.APP.{table}"))

        plain, without = connector("plain"), connector("without", column_exclude_list=r"APP\.A\.VALID_TO")
        if how == "log":
            assert _run_until_stopped(plain) == _run_until_stopped(without) == ""
        server.sql(
            "INSERT INTO A VALUES (1, TIMESTAMP '9999-12-31 23:59:59.999999999', 1)", "INSERT INTO B VALUES (1, 1)"
        )
        server.sql("UPDATE A SET V = 2", "INSERT INTO B VALUES (2, 1)")
        assert _run_until_stopped(without) == ""
        assert (rows(without, "A"), rows(without, "B")) == ([1], [1, 2])
        error = _run_until_stopped(plain)
        assert "APP.A" in error
        assert "time.precision.mode=connect, set together with snapshot.mode=always for one run" in error
        assert (rows(plain, "A"), rows(plain, "B")) == ([], [1, 2])
        assert _run_until_stopped(plain, time_precision_mode="connect", snapshot_mode="always") == ""
        server.sql("UPDATE A SET V = 3")
        assert _run_until_stopped(plain, time_precision_mode="connect") == ""
        assert (rows(plain, "A"), rows(plain, "B")) == ([1], [1, 2])


def test_a_value_that_db2_has_and_the_change_log_has_not_stops_its_table_alone(db2: Any, tmp_path: Path) -> None:
    """X2 R39: on Db2. An excluded column is not decoded."""
    with contextlib.ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        schema = adapter.namespace
        for table in ("A", "B"):
            adapter.create_as(table, "ID INTEGER NOT NULL PRIMARY KEY, T TIMESTAMP(9), V INTEGER")
        named = {"table_include_list": rf"{schema}\.[AB]", "topic_prefix": "d"}
        plain = db2_connector(db2, tmp_path / "plain", **named)
        without = db2_connector(db2, tmp_path / "without", **named, column_exclude_list=rf"{schema}\.A\.T")
        assert _run_until_stopped(plain) == _run_until_stopped(without) == ""
        adapter.sql(
            f"INSERT INTO {adapter.name('A')} VALUES (1, '3000-01-01 00:00:00', 1)",
            f"INSERT INTO {adapter.name('B')} VALUES (1, '2000-01-01 00:00:00', 1)",
        )
        db2.catch_up()

        def ids(connector: Connector, table: str) -> list[int]:
            return sorted(row["ID"] for row in connector.replay.advance().rows(f"d.{schema}.{table}"))

        assert _run_until_stopped(without) == ""
        assert (ids(without, "A"), ids(without, "B")) == ([1], [1])
        assert f"{schema}.A.T" in _run_until_stopped(plain)
        assert (ids(plain, "A"), ids(plain, "B")) == ([], [1])
        adapter.sql(f"UPDATE {adapter.name('A')} SET T = '2000-01-01 00:00:00'")
        db2.catch_up()
        again = snapshot(plain, f"{schema}.A", type="blocking")
        assert _run_until_stopped(plain) == ""
        assert signal_state(plain, again)[0] == "done"
        assert ids(plain, "A") == [1]
