"""Each kind of source that users have, with tables whose names a text, a pattern or a path could make something else of, and changes to them.

>>> with any_source("mariadb", request) as source:
...     connect(monkeypatch, "shop", conn_type="cdc_mariadb", **source.fields)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_cdc.core.config.topic_names import sanitize_name
from dev.servers import Db2, Oracle
from dev.servers.mongodb import MongoDb
from dev.servers.mysql_family import CAPTURE_PRIVILEGES
from tests.sources.debezium.written import Topic, write
from tests.support.airflow.airflow_connector import context
from tests.support.airflow.airflow_versions import dag_bag_class
from tests.support.sources.db2.db2_real import authentication

PASSWORD = "p@ss:w/o%r'd ${x}{{y}}#;&=+ü"
"""Of the capture user, where the server takes such a one."""
NAMES = ("or'ders {{x}}", "Größe ${y}", "a.b-c", "(x|y)*[z]+?^", "Orders")
"""Tables that are chosen."""
LEFT_OUT = ("or'ders", "aXb-c", "x", "orders", "Ordersx")
"""Tables that a pattern which is not exact would bring as well."""
Rows = list[tuple[Any, ...]]


@dataclass
class AnySource:
    """A source with its tables, each of ``id`` and ``note``, in which there are two rows.

    :param fields: of a connection to it
    :param tables: those of :data:`NAMES`, as the wizard lists them
    :param change: inserts, updates and deletes one row of a table of these
    :param rows: what is in such a table, ``(id, note)``
    :param properties: what a definition needs besides what the wizard asks the source for
    """

    kind: str
    fields: dict[str, Any]
    tables: dict[str, str]
    left_out: list[str]
    change: Callable[[str], None]
    rows: Callable[[str], Rows]
    properties: dict[str, str] = field(default_factory=dict)


def target_table(connector: str, table: str) -> str:
    """Return the name of a table in a relational target."""
    return sanitize_name(f"{connector}.{table}").replace(".", "_")


def _list_tables(namespace: str) -> dict[str, Any]:
    return {"tables": {n: f"{namespace}.{n}" for n in NAMES}, "left_out": [f"{namespace}.{n}" for n in LEFT_OUT]}


def _fill_statements(quoted: str, text: str, number: str = "INT") -> list[str]:
    return [
        f"CREATE TABLE {quoted} (id {number} NOT NULL PRIMARY KEY, note {text})",
        f"INSERT INTO {quoted} VALUES (1, 'fir''st')",
        f"INSERT INTO {quoted} VALUES (2, NULL)",
    ]


def _changes(quoted: str) -> list[str]:
    return [
        f"INSERT INTO {quoted} VALUES (3, 'thïrd')",
        f"UPDATE {quoted} SET note = 'second' WHERE id = 2",
        f"DELETE FROM {quoted} WHERE id = 1",
    ]


def _mysql(fixture: str, kind: str) -> Callable[[pytest.FixtureRequest, ExitStack, str], AnySource]:
    def make_source(request: pytest.FixtureRequest, stack: ExitStack, connector: str) -> AnySource:
        server = request.getfixturevalue(fixture)
        database = stack.enter_context(server.database("wizard"))

        def quote_name(name: str) -> str:
            return f"`{name}`"

        for name in (*NAMES, *LEFT_OUT):
            database.sql(*_fill_statements(quote_name(name), "VARCHAR(50)"))
        server.sql("DROP USER IF EXISTS 'wizard'@'%'", f"CREATE USER 'wizard'@'%' IDENTIFIED BY {_text(PASSWORD)}")
        server.sql(f"GRANT {CAPTURE_PRIVILEGES} ON *.* TO 'wizard'@'%'")
        stack.callback(server.sql, "DROP USER 'wizard'@'%'")
        return AnySource(
            kind,
            {"host": server.host, "port": server.port, "login": "wizard", "password": PASSWORD, "extra": {"database.ssl.mode": "preferred"}},
            **_list_tables(database.name),
            change=lambda name: database.sql(*_changes(quote_name(name))),
            rows=lambda name: sorted(database.sql(f"SELECT id, note FROM {quote_name(name)}")),
        )  # fmt: skip

    return make_source


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _oracle(request: pytest.FixtureRequest, stack: ExitStack, connector: str) -> AnySource:
    server = stack.enter_context(Oracle())
    password = PASSWORD.replace("ü", "u")

    def quote_name(name: str) -> str:
        return f'"{name}"'

    server.admin(f'ALTER USER {server.user} IDENTIFIED BY "{password}"', dsn=server.dsn)
    for name in (*NAMES, *LEFT_OUT):
        server.sql(*_fill_statements(quote_name(name), "VARCHAR2(50)", "NUMBER(9)"), f"ALTER TABLE {quote_name(name)} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")  # fmt: skip
    return AnySource(
        "oracle",
        {
            "host": server.host, "port": server.port, "login": server.user, "password": password, "schema": server.database,
            "extra": {"database.pdb.name": server.pdb},
        },
        **_list_tables(server.owner),
        change=lambda name: server.sql(*_changes(quote_name(name))),
        rows=lambda name: sorted(server.sql(f"SELECT id, note FROM {quote_name(name)}")),
    )  # fmt: skip


def _db2(request: pytest.FixtureRequest, stack: ExitStack, connector: str) -> AnySource:
    server: Db2 = request.getfixturevalue("db2")

    def quote_name(name: str) -> str:
        return f'WIZARD."{name}"'

    password = PASSWORD.replace("ü", "u").replace(
        ";", ""
    )  # IBM's driver knows no way to say the one, and the server not the other
    server.configure(passwords={server.user: password})
    stack.callback(server.configure, passwords={server.user: server.password})
    server.sql("CREATE SCHEMA WIZARD")
    for name in (*NAMES, *LEFT_OUT):
        server.sql(*_fill_statements(quote_name(name), "VARCHAR(50)"))
        server.add_table("WIZARD", name)
        server.sql(
            f"GRANT SELECT ON TABLE {quote_name(name)} TO USER {server.user}",
            f'GRANT SELECT ON TABLE ASNCDC."CDC_WIZARD_{name}" TO USER {server.user}',
        )
    server.catch_up()

    def change(name: str) -> None:
        server.sql(*_changes(quote_name(name)))
        server.catch_up()

    def remove_tables() -> None:
        for name in (*NAMES, *LEFT_OUT):
            server.remove_table("WIZARD", name)
            server.sql(f"DROP TABLE {quote_name(name)}")
        server.sql("DROP SCHEMA WIZARD RESTRICT")

    stack.callback(remove_tables)
    return AnySource(
        "db2",
        {"host": server.host, "port": server.port, "login": server.user, "password": password, "schema": server.database, "extra": authentication(server)},
        **_list_tables("WIZARD"),
        change=change,
        rows=lambda name: sorted(server.sql(f"SELECT id, note FROM {quote_name(name)}")),
    )  # fmt: skip


def _mongodb(request: pytest.FixtureRequest, stack: ExitStack, connector: str) -> AnySource:
    server = stack.enter_context(MongoDb({"auth": True}))
    root = {"username": "root", "password": "secret"}
    with server.connect() as client:
        client.admin.command({"createUser": "root", "pwd": "secret", "roles": ["root"]})
    client = stack.enter_context(server.connect(**root))
    role = {"role": "readAnyDatabase", "db": "admin"}
    client.admin.command({"createUser": "c@dc:x", "pwd": PASSWORD, "roles": [role]})
    names = {name: name.replace("$", "€") for name in (*NAMES, *LEFT_OUT)}  # no collection may have a $
    for name in names.values():
        client.shop[name].insert_many([{"_id": 1, "note": "fir'st"}, {"_id": 2, "note": None}])

    def change(name: str) -> None:
        collection = client.shop[names[name]]
        collection.insert_one({"_id": 3, "note": "thïrd"})
        collection.update_one({"_id": 2}, {"$set": {"note": "second"}})
        collection.delete_one({"_id": 1})

    return AnySource(
        "mongodb",
        {"host": server.url(), "login": "c@dc:x", "password": PASSWORD},
        {name: f"shop.{names[name]}" for name in NAMES},
        [f"shop.{names[name]}" for name in LEFT_OUT],
        change,
        lambda name: sorted((one["_id"], one["note"]) for one in client.shop[names[name]].find()),
    )


def _debezium(request: pytest.FixtureRequest, stack: ExitStack, connector: str) -> AnySource:
    folder = Path(request.getfixturevalue("tmp_path")) / "events of 'others'"
    topics = {name: Topic(None, name=f"{connector}.inventory.{name}") for name in ("Orders", "orders_x", "x")}

    def event(topic: Topic, op: str, before: Any, after: Any) -> dict[str, Any]:
        made = topic.event(op, before, after)
        made["value"]["source"]["ts_ms"] = made["value"]["ts_ms"] = time.time_ns() // 1_000_000
        return made

    there: dict[str, dict[int, str | None]] = {name: {1: "fir'st", 2: None} for name in topics}
    for name, topic in topics.items():
        write(folder / "1.jsonl", [event(topic, "c", None, {"id": k, "note": v}) for k, v in there[name].items()])

    def change(name: str) -> None:
        topic = topics[name]
        before, second, third = {"id": 2, "note": None}, {"id": 2, "note": "second"}, {"id": 3, "note": "thïrd"}
        write(
            folder / "2.jsonl",
            [event(topic, "c", None, third), event(topic, "u", before, second), event(topic, "d", {"id": 1, "note": "fir'st"}, None)],
        )  # fmt: skip
        there[name] = {2: "second", 3: "thïrd"}

    return AnySource(
        "debezium",
        {},
        {name: f"inventory.{name}" for name in ("Orders",)},
        ["inventory.orders_x", "inventory.x"],
        change,
        lambda name: sorted(there[name].items()),
        {"events.path": f"{folder}/*.jsonl"},
    )


SOURCES: Mapping[str, Callable[[pytest.FixtureRequest, ExitStack, str], AnySource]] = {
    "mariadb": _mysql("mariadb", "mariadb"),
    "mysql": _mysql("mysql97", "mysql"),
    "oracle": _oracle,
    "db2": _db2,
    "mongodb": _mongodb,
    "debezium": _debezium,
}
"""Kind → makes one of it."""


@contextmanager
def any_source(kind: str, request: pytest.FixtureRequest, connector: str = "made") -> Iterator[AnySource]:
    """A source of a kind, for a connector of this name."""
    with ExitStack() as stack:
        yield SOURCES[kind](request, stack, connector)


def parse_dag(folder: Path, file: str) -> DAG:
    """The only DAG of a file, as Airflow's DAG processor finds it."""
    bag = dag_bag_class()(dag_folder=str(folder / file), load_op_links=False, collect_dags=True)
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    return dag


def run_dag(dag: DAG) -> dict[str, Any]:
    """Run the tasks of a DAG as they come, with their templates rendered; what the capture has returned."""
    found: dict[str, Any] = {}
    for task in dag.topological_sort():
        given = context(
            ti=SimpleNamespace(dag_id=dag.dag_id, task_id=task.task_id, run_id="r", try_number=1, max_tries=3)
        )
        task.render_template_fields(given)
        found[task.task_id.rpartition(".")[2]] = task.execute(given)
    return dict(found["capture"])


def normalize_rows(kind: str, rows: Rows) -> Rows:
    """Rows of a relational target as ``(id, note)``: of documents it has the texts."""
    if kind != "mongodb":
        return sorted(rows)
    documents = [json.loads(row[-1]) for row in rows]
    return sorted((one["_id"], one["note"]) for one in documents)
