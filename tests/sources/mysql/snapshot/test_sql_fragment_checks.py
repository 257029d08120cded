"""Conditions that people write stay within what is around them, however comments make them look: generated, against real servers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from airflow_provider_cdc.core.errors import QueryRejected
from airflow_provider_cdc.sources.mysql.config import MySqlConfig
from airflow_provider_cdc.sources.mysql.connect import connect
from airflow_provider_cdc.sources.mysql.snapshot.sql_fragment_checks import checked_fragment

OPENINGS = ("/*!", "/*!40000 ", "/*!50000 ", "/*!50701 ", "/*!99999 ", "/*!100000 ", "/*!999999 ", "/*!9999999 ", "/*M! ", "/*M!100000 ",
            "/*M!999999 ", "/*+ ", "/* ")  # fmt: skip
SHAPES = (
    "id < 3 {a}( */) OR (1 = 1{b}) */",
    "id < 3 {a}) */) OR (1 = 1{b}( */",
    "id < 3) OR {a}) */(1 = 1{b}( */",
    "id < 3 {a} /* ( */ */) OR (1 = 1 {b} /* ) */ */",
    "id < 3 {a} '( */) OR (1 = 1 -- ' {b}",
    "id < 3 {a}AND (id > 0 */ {b}) */",
)
HONEST = (
    "id < 3 /*! AND id > 0 */",
    "id < 3 /*!40000 AND id > 0 */",
    "id < 3 /*!999999 AND no_such_column > 0 */",
    "id < 3 /* AND id > 100 */",
    "note IN ('a)', '(b', '/*!99999 (') OR id = 1",
)


@pytest.fixture(params=["mariadb", "mysql97", "mysql80"])
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Name of a table with ids from 0 to 9, and a connection that may read it."""
    server = request.getfixturevalue(request.param)
    with server.database("phrases") as database:
        database.sql("CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20))")
        database.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, 'a')" for i in range(10)))
        config = MySqlConfig.parse(
            {
                "topic.prefix": "t", "database.hostname": server.host, "database.port": server.port,
                "database.user": server.user, "database.password": server.password, "database.server.id": 4801,
            }
        )  # fmt: skip
        connection = connect(config)
        yield config, connection, f"`{database.name}`.t"
        connection.close()


def _rows(connection: Any, table: str, condition: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {table} WHERE (id < 5) AND ({condition}\n) ORDER BY id")
        return [row[0] for row in cursor.fetchall()]


def test_no_condition_reaches_beyond_what_is_around_it(table: Any) -> None:
    config, connection, name = table
    accepted = tried = 0
    for shape, a, b in product(SHAPES, OPENINGS, OPENINGS):
        condition, tried = shape.format(a=a, b=b), tried + 1
        try:
            checked_fragment(
                connection, config, condition, within=f"SELECT 1 FROM {name} WHERE {{}}", where="t", remedy=""
            )
        except QueryRejected:
            continue
        accepted += 1
        assert max(_rows(connection, name, condition), default=0) < 5, condition
    assert accepted > 10
    print(f"{tried} conditions, {accepted} accepted")


@pytest.mark.parametrize("condition", HONEST)
def test_comments_of_other_versions_are_read_as_the_server_reads_them(table: Any, condition: str) -> None:
    config, connection, name = table
    assert checked_fragment(
        connection, config, condition, within=f"SELECT 1 FROM {name} WHERE {{}}", where="t", remedy=""
    )
    assert _rows(connection, name, condition) in ([0, 1, 2], [1, 2], [1])
