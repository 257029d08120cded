"""The SELECT of V$LOGMNR_CONTENTS keeps what the filters keep, and the rows that no one can judge yet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import oracledb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.kernels.operation_codes import NO_ROW_ID
from airflow_provider_cdc.sources.oracle.mining.logminer_query import (
    BATCH,
    WIRE,
    MinedRowFilter,
    contents_query,
    decode_contents,
    is_portable_pattern,
)
from airflow_provider_cdc.sources.oracle.transactions.user_filter import UserFilter
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.support.sources.oracle.oracle_server import NLS, ONLINE, add_logs, rows, run

OWNERS = ("APP", "App", "APPX", "HR", "H.R", "HXR", "APP$1", "SYS", "AUDSYS")
TABLES = ("ORDERS", "Orders", "ORDERS_1", "LINES", "L.S", "LXS", "T$X", "CMP", "ORDERSX")
XID = bytes.fromhex("0100020003000000")
CODES = (1, 2, 3, 5, 6, 7, 9, 10, 27, 34, 36, 68, 91, 255, 0)


def _row(**columns: Any) -> dict[str, Any]:
    return {"XID": XID, "USERNAME": "APP", **columns}


ROWS = [
    *(_row(OPERATION_CODE=1, SEG_OWNER=owner, TABLE_NAME=table) for owner in OWNERS for table in TABLES),
    *(_row(OPERATION_CODE=code, SEG_OWNER="APP", TABLE_NAME="ORDERS") for code in CODES),
    _row(OPERATION_CODE=1, SEG_OWNER="UNKNOWN", TABLE_NAME="OBJ# 74858"),
    _row(OPERATION_CODE=3, SEG_OWNER="APP", TABLE_NAME="OBJ# 74859"),
    _row(OPERATION_CODE=2, SEG_OWNER=None, TABLE_NAME=None),
    _row(OPERATION_CODE=255, SEG_OWNER=None, TABLE_NAME=None),
    _row(OPERATION_CODE=1, SEG_OWNER="APP", TABLE_NAME=None),
    _row(OPERATION_CODE=5, SEG_OWNER="APP", TABLE_NAME="ORDERS", INFO="INTERNAL DDL (PlSql=0 RecDep=1)"),
    _row(OPERATION_CODE=5, SEG_OWNER="HR", TABLE_NAME="X", INFO="USER DDL (PlSql=0 RecDep=0)"),
    _row(OPERATION_CODE=0, SEG_OWNER="APP", TABLE_NAME="ORDERS", ROW_ID="AAAE5KAAEAAAAFfAAA"),
    _row(OPERATION_CODE=0, SEG_OWNER="APP", TABLE_NAME="ORDERS", ROW_ID="AAAE5KAAAAAAAAAAAA"),
    *(_row(OPERATION_CODE=1, SEG_OWNER="APP", TABLE_NAME="ORDERS", USERNAME=user, CLIENT_ID=client)
      for user in ("SCOTT", "scott", "SYS", "UNKNOWN", None) for client in ("web", "WEB", None)),
    *(_row(OPERATION_CODE=code, USERNAME="SCOTT") for code in (6, 7, 36)),
    _row(OPERATION_CODE=3, SEG_OWNER="C##DBZUSER", TABLE_NAME="LOG_MINING_FLUSH"),
]  # fmt: skip


class Log:
    """A redo log with all these rows, mined, and asked with many queries."""

    def __init__(self, server: Oracle, connection: oracledb.Connection) -> None:
        self.server, self.connection = server, connection
        self.first = server.scn()
        scns = server.inject(ROWS)
        self.rows = dict(zip(scns, ROWS, strict=True))
        self.last = server.scn()
        add_logs(connection, self.first)
        run(connection, f"BEGIN sys.dbms_logmnr.start_logmnr(startScn => {self.first}, endScn => {self.last}, options => {ONLINE}); END;")  # fmt: skip

    def kept(self, config: OracleConfig) -> list[dict[str, Any]]:
        with self.connection.cursor() as cursor:
            cursor.execute(contents_query(config, 3), low=self.first, high=self.last)
            return [self.rows[row[0]] for row in cursor.fetchall()]

    def config(self, **properties: Any) -> OracleConfig:
        return settings(self.server, **properties)


@pytest.fixture(scope="module")
def mined_log() -> Iterator[Log]:
    with Oracle() as server, closing(server.capture()) as connection:
        run(connection, NLS)
        yield Log(server, connection)


def names(rows_: list[dict[str, Any]]) -> set[tuple[Any, Any]]:
    return {(row.get("SEG_OWNER"), row.get("TABLE_NAME")) for row in rows_ if row["OPERATION_CODE"] == 1}


def known_names(rows_: list[dict[str, Any]]) -> set[tuple[Any, Any]]:
    """Names that LogMiner knew."""
    return {(o, t) for o, t in names(rows_) if o and t and o != "UNKNOWN"}


def codes(rows_: list[dict[str, Any]]) -> set[int]:
    return {int(row["OPERATION_CODE"]) for row in rows_}


UNRESOLVED = {("UNKNOWN", "OBJ# 74858"), ("APP", None)}
CAPTURABLE = {(o, t) for o in OWNERS for t in TABLES if o not in ("SYS", "AUDSYS")}

LITERAL = st.sampled_from(["APP", "app", "ORDERS", "orders", "LINES", "HR", "T", "X", "1", "_1"])
PIECE = st.one_of(
    LITERAL, st.sampled_from([".*", ".", r"\.", r"\$", "[A-Z]+", "[A-Z0-9_]*", "(ORDERS|LINES)", "O?", "S{1,2}", "(_1)?", "|"])
)  # fmt: skip
PATTERN = st.lists(PIECE, min_size=1, max_size=5).map("".join)
TABLE_PATTERN = st.tuples(PATTERN, st.sampled_from([r"\.", "."]), PATTERN).map("".join)
ODD = st.sampled_from(
    [r"(?!X)APP\..*", r"\bAPP\.\w+", r"APP\.(?:ORDERS)", r"APP\.ORD.*?", r"(?i)app\.x", r"(A)PP\.\1.*"]
)
SLOW = hypothesis_settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)


def _valid(patterns: list[str]) -> bool:
    try:
        return all(re.compile(p) for p in patterns)
    except re.error:
        return False


def _lists(kind: str, what: str, patterns: list[str]) -> dict[str, Any]:
    return {f"{what}__{kind}__list": ",".join(patterns)} if patterns else {}


@SLOW
@given(
    st.sampled_from(["include", "exclude"]), st.lists(PATTERN, max_size=2),
    st.sampled_from(["include", "exclude"]), st.lists(TABLE_PATTERN, max_size=3), st.lists(ODD, max_size=1),
)  # fmt: skip
@example("include", ["APP"], "exclude", [r"APP\.ORDERS"], [])
@example("exclude", [], "include", ["|APP.ORDERS"], [])
def test_expressions_keep_what_the_filters_keep(
    mined_log: Log, schemas: str, schema_patterns: list[str], tables: str, table_patterns: list[str], odd: list[str]
) -> None:
    table_patterns = table_patterns + odd
    assume(_valid(schema_patterns + table_patterns))
    try:
        config = mined_log.config(
            log__mining__query__filter__mode="regex",
            **_lists(schemas, "schema", schema_patterns), **_lists(tables, "table", table_patterns),
        )  # fmt: skip
    except ConfigError:
        assume(False)
        raise
    filters = Filters(config)
    expected = {(o, t) for o, t in CAPTURABLE if filters.is_table_captured(TableId(namespace=o, name=t))}
    found = mined_log.kept(config)
    assert names(found) >= expected | UNRESOLVED
    if all(is_portable_pattern(p) for p in (*config.namespace_lists()[0], *config.namespace_lists()[1], *config.table_include_list, *config.table_exclude_list)):  # fmt: skip
        assert known_names(found) == expected
    assert codes(found) >= {1, 5, 6, 7, 34, 36}


NAME = st.sampled_from(["APP", "app", "HR", r"H\.R", "H.R", r"APP\$1", "NONE"])
TABLE_NAME = st.tuples(
    st.sampled_from(["APP", "Hr", r"APP\$1"]), st.sampled_from([".", r"\."]),
    st.sampled_from(["ORDERS", "lines", r"T\$X", "L.S", r"L\.S", "Orders_1"]),
).map("".join)  # fmt: skip


@SLOW
@given(
    st.sampled_from(["include", "exclude"]), st.lists(NAME, max_size=2),
    st.sampled_from(["include", "exclude"]), st.lists(TABLE_NAME, max_size=3),
)  # fmt: skip
def test_lists_of_names_keep_what_the_filters_keep(
    mined_log: Log, schemas: str, schema_names: list[str], tables: str, table_names: list[str]
) -> None:
    config = mined_log.config(
        log__mining__query__filter__mode="in",
        **_lists(schemas, "schema", schema_names), **_lists(tables, "table", table_names),
    )  # fmt: skip
    assert mined_log.config().log_mining_query_filter_mode == "none"
    filters = Filters(config)
    expected = {(o, t) for o, t in CAPTURABLE if filters.is_table_captured(TableId(namespace=o, name=t))}
    found = mined_log.kept(config)
    assert names(found) >= expected | UNRESOLVED
    if all(name.count(".") == 1 for name in table_names) and not any("." in name for name in schema_names):
        assert known_names(found) == expected


def test_more_names_than_an_in_list_may_have(mined_log: Log) -> None:
    listed = ",".join([*(f"APP.T{n}" for n in range(2500)), "APP.ORDERS"])
    config = mined_log.config(log__mining__query__filter__mode="in", table__include__list=listed)
    assert known_names(mined_log.kept(config)) == {(o, t) for o in ("APP", "App") for t in ("ORDERS", "Orders")}


@pytest.mark.parametrize("mode", ["none", "in", "regex"])
def test_whatever_the_mode_tables_of_the_database_itself_are_left_out(mined_log: Log, mode: str) -> None:
    found = mined_log.kept(mined_log.config(log__mining__query__filter__mode=mode))
    assert known_names(found) == CAPTURABLE
    assert ("C##DBZUSER", "LOG_MINING_FLUSH") not in {(row.get("SEG_OWNER"), row.get("TABLE_NAME")) for row in found}
    unsupported = [row for row in found if row["OPERATION_CODE"] == 255]
    assert len(unsupported) == 2


def test_only_user_ddl_is_kept_of_all_tables(mined_log: Log) -> None:
    config = mined_log.config(log__mining__query__filter__mode="in", table__include__list="APP.LINES")
    ddl = [row for row in mined_log.kept(config) if row["OPERATION_CODE"] == 5]
    assert [(row["SEG_OWNER"], row.get("INFO")) for row in ddl] == [
        ("APP", None),
        ("HR", "USER DDL (PlSql=0 RecDep=0)"),
    ]


def test_long_values_are_asked_for_where_they_are_captured(mined_log: Log) -> None:
    assert codes(mined_log.kept(mined_log.config())) == {0, 1, 2, 3, 5, 6, 7, 27, 34, 36, 91, 255}
    assert codes(mined_log.kept(mined_log.config(lob__enabled=True))) == {
        0,
        1,
        2,
        3,
        5,
        6,
        7,
        9,
        10,
        27,
        34,
        36,
        68,
        91,
        255,
    }
    internal = [row for row in mined_log.kept(mined_log.config()) if row["OPERATION_CODE"] == 0]
    assert [row.get("ROW_ID") for row in internal] == ["AAAE5KAAEAAAAFfAAA"]


def test_rows_of_other_containers_are_left_out_with_the_ends_of_their_transactions(mined_log: Log) -> None:
    first = mined_log.server.scn()
    mined_log.server.inject([
        _row(OPERATION_CODE=code, SEG_OWNER="APP", TABLE_NAME="ORDERS", SRC_CON_ID=container)
        for code in (1, 7, 34) for container in (1, 3, 4, 0, None)
    ])  # fmt: skip
    last = mined_log.server.scn()
    config = mined_log.config()
    with closing(mined_log.server.capture()) as connection:
        run(connection, NLS)
        add_logs(connection, first)
        run(connection, f"BEGIN sys.dbms_logmnr.start_logmnr(startScn => {first}, endScn => {last}, options => {ONLINE}); END;")  # fmt: skip
        sql = contents_query(config, 3).replace("SELECT SCN,", "SELECT SRC_CON_ID,", 1)
        sql = sql.replace(":low", str(first)).replace(":high", str(last))
        found = [(row[1], row[0]) for row in rows(connection, sql)]
    assert [container for code, container in found if code == 1] == [3]
    assert [container for code, container in found if code == 7] == [3]
    assert [container for code, container in found if code == 34] == [1, 3, 4, 0, None], (
        "missing redo is of no container"
    )


def users(rows_: list[dict[str, Any]], code: int = 1) -> set[tuple[Any, Any]]:
    return {(row["USERNAME"], row.get("CLIENT_ID")) for row in rows_ if row["OPERATION_CODE"] == code and "CLIENT_ID" in row}  # fmt: skip


ALL_USERS = {(user, client) for user in ("SCOTT", "scott", "SYS", "UNKNOWN", None) for client in ("web", "WEB", None)}
CASES: list[tuple[dict[str, str], Any]] = [
    ({"log__mining__username__include__list": "Scott"}, lambda user, client: user in ("SCOTT", "scott", "UNKNOWN", None)),
    ({"log__mining__username__exclude__list": "SCOTT"}, lambda user, client: user not in ("SCOTT", "scott")),
    ({"log__mining__clientid__include__list": "web"}, lambda user, client: client == "web" or user in ("UNKNOWN", None)),
    ({"log__mining__clientid__exclude__list": "web,x"}, lambda user, client: client != "web" or user in ("UNKNOWN", None)),
]  # fmt: skip


@pytest.mark.parametrize(("lists", "expected"), CASES)
@pytest.mark.parametrize("mode", ["in", "regex"])
def test_users_and_clients_are_filtered_but_starts_and_ends_are_not(
    mined_log: Log, mode: str, lists: dict[str, str], expected: Any
) -> None:
    found = mined_log.kept(mined_log.config(log__mining__query__filter__mode=mode, **lists))
    assert users(found) == {pair for pair in ALL_USERS if expected(*pair)}
    assert sum(row["OPERATION_CODE"] in (6, 7, 36) and row["USERNAME"] == "SCOTT" for row in found) == 3


# what is decided here


def batch(*rows_: dict[str, Any]) -> pa.RecordBatch:
    blank: dict[str, Any] = dict.fromkeys(BATCH.names)
    return pa.RecordBatch.from_pylist([blank | {"code": 1, "user": "APP"} | row for row in rows_], schema=BATCH)


@pytest.mark.parametrize(("lists", "expected"), CASES)
def test_without_a_mode_the_same_users_are_kept(mined_log: Log, lists: dict[str, str], expected: Any) -> None:
    users_ = UserFilter(mined_log.config(**lists))
    for user, client in ALL_USERS - {("UNKNOWN", None), ("UNKNOWN", "web"), ("UNKNOWN", "WEB")}:
        assert users_.is_captured_user(user, client) == (expected(user, client) and user != "SYS")


def test_rows_of_before_the_window_are_those_of_some_transactions_from_their_beginnings_on() -> None:
    one, other = bytes.fromhex("0100020003000000"), bytes.fromhex("0100050003000000")
    partial = one[:4] + b"\xff\xff\xff\xff"
    given_ = [(5, one), (6, one), (7, partial), (7, other), (5, partial), (8, None), (10, one), (11, other), (12, None)]
    kept = MinedRowFilter.without_earlier(batch(*({"scn": scn, "xid": xid} for scn, xid in given_)), 10, {one: 6})
    assert [(row["scn"], row["xid"]) for row in kept.to_pylist()] == [
        (6, one), (7, partial), (10, one), (11, other), (12, None)
    ]  # fmt: skip


def test_unsupported_rows_are_those_of_captured_tables_and_of_unknown_ones(mined_log: Log) -> None:
    config = mined_log.config(table__include__list=r"APP\.ORDERS")
    given_ = [
        ("APP", "ORDERS"),
        ("APP", "LINES"),
        ("SYS", "ORDERS"),
        (None, None),
        ("UNKNOWN", "OBJ# 1"),
        ("APP", "OBJ# 2"),
    ]
    kept = MinedRowFilter(config, Filters(config)).filter_batch(
        batch(
            *({"code": 255, "owner": owner, "table": table} for owner, table in given_),
            {"owner": "APP", "table": "LINES"},
        )
    )
    assert [(row["code"], row["owner"], row["table"]) for row in kept.to_pylist()] == [
        (255, "APP", "ORDERS"), (255, None, None), (255, "UNKNOWN", "OBJ# 1"), (255, "APP", "OBJ# 2"), (1, "APP", "LINES"),
    ]  # fmt: skip


def test_a_row_id_with_an_object_alone_is_none(mined_log: Log) -> None:
    internal = [row for row in mined_log.kept(mined_log.config()) if row["OPERATION_CODE"] == 0]
    assert [row["ROW_ID"] for row in internal] == ["AAAE5KAAEAAAAFfAAA"]
    ids = ["AAAE5KAAAAAAAAAAAA", "AAAE5KAAEAAAAFfAAA", NO_ROW_ID, None]
    fetched = pa.Table.from_pylist([{"ROW_ID": row_id} for row_id in ids], WIRE)
    assert decode_contents(fetched, 0).column("row_id").to_pylist() == [NO_ROW_ID, ids[1], NO_ROW_ID, None]
