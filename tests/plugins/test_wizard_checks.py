"""The wizard's check of each kind of source: what a real server lacks is shown with the statement that mends it, and when that was run as it is shown,
the check is green."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_cdc.services.definition_writer import list_source_kinds
from dev.servers import Db2, Kafka, Oracle
from dev.servers.mongodb import MongoDb
from tests.plugins.conftest import ClientFactory
from tests.plugins.test_wizard import API
from tests.support.airflow.airflow_connector import ShopConnector, connect
from tests.support.sources.db2.db2_real import authentication

ROUNDS = 4
"""What is mended may show what else is missing, but not again and again."""
USER = "po-or"


class LackingServer:
    """A server that lacks something, and an account that lacks rights.

    :param fields: of the connection
    :param run: what an administrator does with a remedy as it is shown
    :param shown: what of the remedies has to be seen
    :param asked: what else is asked of the wizard
    """

    def __init__(
        self, fields: dict[str, Any], run: Callable[[str], None], shown: list[str], asked: dict[str, Any] | None = None
    ) -> None:
        self.fields, self.run, self.shown, self.asked = fields, run, shown, asked or {}


def _statements(fix: str) -> list[str]:
    """The statements of a remedy, without what it says in words."""
    return [one for part in fix.split(";") if (one := part.strip()) and one.partition(" ")[0].isupper()]


def _mysql(fixture: str) -> Callable[[pytest.FixtureRequest, ExitStack], LackingServer]:
    def lacking_server(request: pytest.FixtureRequest, stack: ExitStack) -> LackingServer:
        lacks = {"binlog_row_image": "MINIMAL", "binlog_row_metadata": "MINIMAL", "binlog_expire_logs_seconds": 3600}
        server = stack.enter_context(request.getfixturevalue(fixture)(**lacks))
        server.sql(
            f"CREATE USER '{USER}'@'%' IDENTIFIED BY 'secret'",
            "CREATE DATABASE a",
            "CREATE TABLE a.t (id INT PRIMARY KEY)",
        )

        def run(fix: str) -> None:
            server.sql(*_statements(fix))

        fields = {
            "host": server.host,
            "port": server.port,
            "login": USER,
            "password": "secret",
            "extra": {"database.ssl.mode": "disabled"},
        }
        shown = [
            "SET GLOBAL binlog_row_image = 'FULL'", "SET GLOBAL binlog_row_metadata = 'FULL'", "SET GLOBAL binlog_expire_logs_seconds",
            "GRANT REPLICATION SLAVE ON *.*", "GRANT SELECT ON *.*",
        ]  # fmt: skip
        return LackingServer(fields, run, shown)

    return lacking_server


def _oracle(request: pytest.FixtureRequest, stack: ExitStack) -> LackingServer:
    server = stack.enter_context(Oracle())
    server.sql('CREATE TABLE "t t" (id NUMBER(9) PRIMARY KEY)')
    revoked = ("SELECT ANY TABLE", "FLASHBACK ANY TABLE", "LOCK ANY TABLE", "LOGMINING", "CREATE TABLE")
    server.admin(*(f"REVOKE {one} FROM {server.user}" for one in revoked))
    server.admin("ALTER DATABASE DROP SUPPLEMENTAL LOG DATA", dsn=server.dsn)

    def run(fix: str) -> None:
        for statement in _statements(fix.partition(". On Amazon")[0]):
            if statement.startswith("ALTER TABLE"):
                server.sql(statement)
            else:
                server.admin(statement, dsn=server.dsn)

    fields = {
        "host": server.host, "port": server.port, "login": server.user, "password": server.password, "schema": server.database,
        "extra": {"database.pdb.name": server.pdb},
    }  # fmt: skip
    shown = ["ALTER DATABASE ADD SUPPLEMENTAL LOG DATA", 'ALTER TABLE "APP"."t t" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS', *(f"GRANT {one} TO" for one in revoked)]  # fmt: skip
    return LackingServer(fields, run, shown)


def _db2(request: pytest.FixtureRequest, stack: ExitStack) -> LackingServer:
    server: Db2 = request.getfixturevalue("db2")
    server.sql("CREATE SCHEMA LACKS", 'CREATE TABLE LACKS."t t" (ID INTEGER NOT NULL PRIMARY KEY)', "CREATE TABLE LACKS.U (ID INTEGER NOT NULL PRIMARY KEY)")  # fmt: skip
    server.add_table("LACKS", "U")
    server.sql("ALTER TABLE LACKS.U DATA CAPTURE NONE", "UPDATE ASNCDC.IBMSNAP_REGISTER SET STATE = 'S' WHERE SOURCE_OWNER = 'LACKS'")  # fmt: skip

    def drop_tables() -> None:
        for name in ("t t", "U"):
            server.remove_table("LACKS", name)
            server.sql(f'DROP TABLE LACKS."{name}"')
        server.sql("DROP SCHEMA LACKS RESTRICT")

    stack.callback(drop_tables)

    def run(fix: str) -> None:
        server.sql(*_statements(fix))

    fields = {
        "host": server.host, "port": server.port, "login": server.user, "password": server.password, "schema": server.database,
        "extra": authentication(server),
    }  # fmt: skip
    # on this server each account may do everything; its checks of grants are in tests/sources/db2
    shown = ["CALL ASNCDC.ADDTABLE('LACKS', 't t')", "SET STATE = 'A'", "DATA CAPTURE CHANGES"]
    return LackingServer(fields, run, shown, {"tables": ["LACKS.t t", "LACKS.U"]})


def _mongodb(request: pytest.FixtureRequest, stack: ExitStack) -> LackingServer:
    server = stack.enter_context(MongoDb({"replica_set": None, "auth": True}))
    root = {"username": "root", "password": "secret"}
    with server.connect() as client:
        client.admin.command({"createUser": "root", "pwd": "secret", "roles": ["root"]})
    with server.connect(**root) as client:
        client.admin.command({"createUser": USER, "pwd": "secret", "roles": []})
    address = f"mongodb://{server.host}:{server.port}/"
    lacking = LackingServer({"host": address, "login": USER, "password": "secret"}, lambda fix: None, ["rs.initiate()", "grantRolesToUser"])  # fmt: skip

    def run(fix: str) -> None:
        if "rs.initiate()" in fix:  # what it asks for, by the means of the stand-in
            (name,) = re.findall(r"replSetName: (\w+)", fix)
            server.stop()
            server.options["replica_set"] = name
            server.start()
            (option,) = re.findall(r"replicaSet=\w+", fix)
            lacking.fields["host"] = f"{address}?{option}"
            return
        (found,) = re.findall(
            r'^db\.getSiblingDB\("(.+?)"\)\.grantRolesToUser\("(.+?)", \[\{role: "(.+?)", db: "(.+?)"\}\]\)$', fix
        )
        where, user, role, database = found
        with server.connect(**root) as client:
            client[where].command({"grantRolesToUser": user, "roles": [{"role": role, "db": database}]})

    lacking.run = run
    return lacking


def _debezium(request: pytest.FixtureRequest, stack: ExitStack) -> LackingServer:
    kafka: Kafka = request.getfixturevalue("kafka")
    stack.callback(kafka.delete_topic, "lacks.a.t")

    def run(fix: str) -> None:
        assert fix == "no action is needed: its records are read when the topic exists"
        kafka.create_topic("lacks.a.t")

    return LackingServer({"host": kafka.address}, run, ["records are read"], {"places": {"topics": "lacks.a.t"}})


SOURCES = {
    "mariadb": _mysql("mariadb_factory"), "mysql": _mysql("mysql_factory"), "oracle": _oracle, "db2": _db2, "mongodb": _mongodb,
    "debezium": _debezium,
}  # fmt: skip
CANNOT = ("undo", "redo log", "online log", "MB", "The oplog goes back")
"""Words of advice about the sizes of a test server, which stay."""


def test_each_source_is_tried() -> None:
    assert sorted(SOURCES) == list_source_kinds()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", sorted(SOURCES))
def test_what_is_run_as_it_is_shown_makes_the_check_green(
    request: pytest.FixtureRequest,
    shop_connector: ShopConnector,
    client_factory: ClientFactory,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    with ExitStack() as stack:
        lacking = SOURCES[kind](request, stack)
        seen: list[str] = []
        for _ in range(ROUNDS):
            connect(monkeypatch, "lacks", conn_type=f"cdc_{kind}", **lacking.fields)
            answer = client_factory().post(f"{API}/connections/lacks", json={"seconds": 60, **lacking.asked})
            assert answer.status_code == 200, answer.text
            found = answer.json()
            left = [
                one for one in found["findings"] if one["fatal"] or not any(word in one["problem"] for word in CANNOT)
            ]
            if not left:
                break
            assert found["ready"] is not any(one["fatal"] for one in left)
            seen += [one["fix"] for one in left]
            for one in left:
                lacking.run(one["fix"])
        assert (found["ready"], left) == (True, [])
        assert [text for text in lacking.shown if not any(text in fix for fix in seen)] == [], seen
