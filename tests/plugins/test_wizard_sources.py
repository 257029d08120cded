"""The wizard's definition of each source that starts in seconds, written into a DAG file: the capture of that DAG runs, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.conftest import Asked
from tests.plugins.test_wizard import API, dag_of
from tests.support.face import Shop, connect, context


@dataclass
class There:
    """A source with two tables of two rows each.

    :param fields: of the connection
    """

    fields: dict[str, Any]
    chosen: str
    left_out: str


def of_mariadb(request: pytest.FixtureRequest) -> There:
    database = request.getfixturevalue("database")
    database.sql(
        "CREATE TABLE `or'ders {{x}}` (id INT PRIMARY KEY)", "INSERT INTO `or'ders {{x}}` VALUES (1), (2)",
        "CREATE TABLE `or'ders` (id INT PRIMARY KEY)", "INSERT INTO `or'ders` VALUES (1), (2)",
    )  # fmt: skip
    server = database.server
    login = {"host": server.host, "port": server.port, "login": server.admin_user, "password": server.admin_password}
    more = {"extra": {"database.ssl.mode": "disabled"}}
    return There({**login, **more}, f"{database}.or'ders {{{{x}}}}", f"{database}.or'ders")


def of_mongodb(request: pytest.FixtureRequest) -> There:
    import pymongo

    from dev.servers.mongodb import MongoDb

    server = MongoDb()
    server.__enter__()
    request.addfinalizer(lambda: server.__exit__(None, None, None))
    with pymongo.MongoClient(server.url()) as client:
        for name in ("or'ders {{x}}", "or'ders"):
            client["shop"][name].insert_many([{"_id": 1}, {"_id": 2}])
    return There({"host": server.url()}, "shop.or'ders {{x}}", "shop.or'ders")


@pytest.mark.parametrize(("kind", "made"), [("mariadb", of_mariadb), ("mongodb", of_mongodb)])
def test_it_captures_what_was_chosen_and_nothing_else(
    request: pytest.FixtureRequest, shop: Shop, asked: Asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    kind: str, made: Callable[[pytest.FixtureRequest], There],
) -> None:  # fmt: skip
    there = made(request)
    connect(monkeypatch, "source_db", conn_type=f"cdc_{kind}", **there.fields)
    found = asked().post(f"{API}/connections/source_db", json={"seconds": 60}).json()
    assert found["ready"] is True, found
    assert {there.chosen, there.left_out} <= set(found["tables"])
    body = {"source": kind, "name": "made", "conn_id": "source_db", "tables": [there.chosen], "target": "none", "changelog": f"{tmp_path}/log"}  # fmt: skip
    written = asked().post(f"{API}/definition", json=body).json()
    assert written["lacks"] == []
    dag, _ = dag_of(written["python"], tmp_path)
    result = dag.get_task("capture").execute(context())
    assert result["events"] == 2
    assert len(result["topics"]) == 1
