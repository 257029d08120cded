"""Scenes in which a connector meets an error by its real cause, each with the repair that the page of the error names.

>>> CAUSES["StorageFull"](scene)
>>> scene.work()  # raises it
>>> scene.repair()
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.state.state_store import StateStore
from dev.ports import free_port
from dev.servers import S3, MariaDb
from tests.cli.conftest import run
from tests.sources.debezium.written import Topic, node, write
from tests.support.airflow.airflow_connector import ShopConnector, connect, context
from tests.support.processes.small_disk import fill_disk, mount_small_disk
from tests.support.servers.lossy_proxy import Proxy
from tests.support.servers.s3_proxy import other_store

EVENT = (
    json.dumps(
        {
            "topic": "t.s.orders",
            "key": {"id": 1},
            "value": {
                "op": "c",
                "before": None,
                "after": {"id": 1},
                "ts_ms": 1,
                "source": {"db": "s", "table": "orders"},
            },
        }
    )
    + "\n"
)


@dataclass
class Scene:
    """A connector with two batches, whose next run fails."""

    shop: ShopConnector
    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack
    request: pytest.FixtureRequest
    """Asks for servers."""
    definition: ConnectorDefinition
    storage_conn_id: str | None = None
    repairs: list[Callable[[], Any]] = field(default_factory=list)
    """Lead out of it, as the page of the error says."""

    def build_task(self, **options: Any) -> CaptureOperator:
        """Build the task of the connector."""
        return CaptureOperator(
            task_id="capture",
            definition=self.definition,
            conn_id=self.definition.name,
            storage_conn_id=self.storage_conn_id,
            **options,
        )

    def work(self) -> None:
        """Run the task of the connector."""
        self.build_task().execute(context())

    def repair(self) -> None:
        """Do what the page of the error says."""
        for one in self.repairs:
            one()

    def apply(self) -> None:
        if "AIRFLOW_CONN_WAREHOUSE" not in os.environ:
            connect(self.patch, "warehouse", conn_type="sqlite", host=f"{self.folder}/warehouse.db")
        ApplyToDatabaseOperator(task_id="apply", definition=self.definition, conn_id="warehouse").execute(context())

    def go_to(self, name: str, source: str, properties: dict[str, Any], **connection: Any) -> None:
        """Go over to another connector."""
        connect(self.patch, name, conn_type=f"cdc_{source}", **connection)
        self.definition = ConnectorDefinition(name, source, f"{self.folder}/changelog", properties)

    def go_to_mariadb(self, properties: dict[str, Any] | None = None, **connection: Any) -> MariaDb:
        server: MariaDb = self.request.getfixturevalue("mariadb")
        server.sql(
            "CREATE DATABASE IF NOT EXISTS page_errors",
            "CREATE TABLE IF NOT EXISTS page_errors.orders (id INT PRIMARY KEY, n BIGINT UNSIGNED)",
        )
        self.stack.callback(server.sql, "DROP DATABASE IF EXISTS page_errors")
        place = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
        extra = json.dumps({"database.ssl.mode": "disabled"})
        self.go_to(
            "maria",
            "mariadb",
            {"database.server.id": 4711, "database.include.list": "page_errors", **(properties or {})},
            extra=extra,
            **{**place, **connection},
        )
        return server

    def change_property(self, name: str, value: Any) -> None:
        self.definition = replace(self.definition, properties={**self.definition.properties, name: value})


def _lose_position(scene: Scene) -> None:
    scene.shop.order(20)
    scene.shop.database.purge_log()
    scene.repairs.append(lambda: run("gap", "shop", "--repair", "snapshot", "--confirm", "shop"))


def _misspell_a_property(scene: Scene) -> None:
    good = scene.definition
    scene.change_property("table.include.lists", "inventory.orders")
    scene.repairs.append(lambda: setattr(scene, "definition", good))


def _delete_a_manifest(scene: Scene) -> None:
    file = scene.folder / "changelog" / "shop" / "manifests" / "000000000002.json"
    kept = file.read_bytes()
    file.unlink()
    scene.repairs.append(lambda: file.write_bytes(kept))


def _restore_state_of_before_the_removal(scene: Scene) -> None:
    file = scene.folder / "state.db"
    old = file.read_bytes()
    for key in (20, 21):
        scene.shop.order(key)
        scene.work()
    scene.apply()
    run("maintain", "shop", "--only", "retention", "--now")
    newer = file.read_bytes()
    file.write_bytes(old)
    scene.repairs.append(lambda: file.write_bytes(newer))


def _drop_a_state_table(scene: Scene) -> None:
    file = scene.folder / "state.db"
    kept = file.read_bytes()
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE cdc_connector")
    connection.close()
    scene.repairs.append(lambda: file.write_bytes(kept))


def _fill_the_disk(scene: Scene) -> None:
    disk = scene.stack.enter_context(mount_small_disk(scene.folder / "disk", "1m"))
    scene.go_to("shop2", "memory", {}, host="pages")
    scene.definition = replace(scene.definition, changelog=str(disk / "changelog"))
    scene.work()
    scene.repairs.append(fill_disk(disk).unlink)
    scene.shop.order(20)


def _cut_a_file(scene: Scene) -> None:
    file = scene.folder / "events" / "a.jsonl.gz"
    file.parent.mkdir()
    whole = gzip.compress(EVENT.encode())
    file.write_bytes(whole[:-10])
    scene.go_to("files", "debezium", {"events.path": str(file.parent)})
    scene.repairs.append(lambda: file.write_bytes(whole))


def _write_something_else(scene: Scene) -> None:
    file = scene.folder / "events" / "a.jsonl"
    file.parent.mkdir()
    file.write_text(json.dumps({"no": "event"}) + "\n")
    scene.go_to("files", "debezium", {"events.path": str(file.parent)})
    scene.repairs.append(lambda: file.write_text(EVENT))


def _reach_no_server(scene: Scene) -> None:
    scene.go_to_mariadb(port=free_port())
    scene.repairs.append(scene.go_to_mariadb)


def _mistype_the_password(scene: Scene) -> None:
    scene.go_to_mariadb(password="wrong")
    scene.repairs.append(scene.go_to_mariadb)


def _forget_a_grant(scene: Scene) -> None:
    server: MariaDb = scene.request.getfixturevalue("mariadb")
    account = "'page_reader'@'%'"
    server.sql(
        f"DROP USER IF EXISTS {account}",
        f"CREATE USER {account} IDENTIFIED BY 'reader'",
        f"GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES ON *.* TO {account}",
    )
    scene.stack.callback(server.sql, f"DROP USER {account}")
    scene.go_to_mariadb(login="page_reader", password="reader")
    scene.repairs.append(lambda: server.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}"))


def _lock_a_table(scene: Scene) -> None:
    server = scene.go_to_mariadb({"snapshot.lock.timeout.ms": 1000})
    session = scene.stack.enter_context(server.connect())
    session.cursor().execute("LOCK TABLES page_errors.orders WRITE")
    scene.repairs.append(lambda: session.cursor().execute("UNLOCK TABLES"))


def _misspell_a_column(scene: Scene) -> None:
    statements = "snapshot.select.statement.overrides"
    scene.go_to_mariadb(
        {
            statements: "page_errors.orders",
            f"{statements}.page_errors.orders": "SELECT * FROM page_errors.orders WHERE nn > 1",
        }
    )
    good = "SELECT * FROM page_errors.orders WHERE n > 1"
    scene.repairs.append(lambda: scene.change_property(f"{statements}.page_errors.orders", good))


def _insert_a_value_that_no_column_holds(scene: Scene) -> None:
    server = scene.go_to_mariadb()
    scene.work()
    server.sql(f"INSERT INTO page_errors.orders VALUES (1, {2**64 - 1})")
    scene.repairs += [
        lambda: server.sql("UPDATE page_errors.orders SET n = 1"),
        lambda: run("snapshot", "maria", "page_errors.orders", "--type", "blocking", "--replace"),
    ]


def _write_a_value_of_another_type(scene: Scene) -> None:
    file = scene.folder / "events" / "a.jsonl"
    topic = Topic([node("id", "int32", optional=False), node("weight", "double")])
    write(file, [topic.event("c", None, {"id": 1, "weight": "heavy"})])
    scene.go_to("files", "debezium", {"events.path": str(file.parent)})
    scene.repairs.append(lambda: write(file, [topic.event("c", None, {"id": 1, "weight": 0.5})], mode="w"))


def _rewrite_a_column(scene: Scene) -> None:
    scene.change_property("schema.change.rewrite.mode", "fail")
    scene.shop.database.change_column("inventory.orders", "note", "int64", len)
    scene.repairs.append(lambda: scene.change_property("schema.change.rewrite.mode", "snapshot"))


def _meet_a_store(scene: Scene, cut: Callable[[str, str], str | int | None]) -> None:
    """Go over to a connector whose change log is in an object store, which begins to fail after the first batches."""
    s3: S3 = scene.request.getfixturevalue("s3")
    proxy = scene.stack.enter_context(other_store(s3, "honours"))
    connect(scene.patch, "store", conn_type="generic", extra=json.dumps(proxy.storage_options))
    scene.go_to("shop3", "memory", {"poll.interval.ms": 10}, host="pages")
    scene.definition = replace(scene.definition, changelog=f"{s3.bucket(f'b{uuid4().hex[:12]}')}/log")
    scene.storage_conn_id = "store"
    scene.work()
    proxy.cut = cut
    scene.repairs.append(lambda: setattr(proxy, "cut", lambda method, path: None))
    scene.shop.order(20)


def _is_commit(method: str, path: str) -> bool:
    return method == "PUT" and "/manifests/" in path


def _throttle_the_store(scene: Scene) -> None:
    _meet_a_store(scene, lambda method, path: 503)


def _lose_the_reply_to_a_commit(scene: Scene) -> None:
    _meet_a_store(scene, lambda method, path: "after" if _is_commit(method, path) else None)


def _refuse_each_commit(scene: Scene) -> None:
    """Have the store answer that the manifest is there, as one does whose listing lags behind another run's commits."""
    _meet_a_store(scene, lambda method, path: 412 if _is_commit(method, path) else None)


def _damage_the_secrets_backend(scene: Scene) -> None:
    file = scene.folder / "connections.json"
    good = json.dumps({"shop": json.loads(os.environ["AIRFLOW_CONN_SHOP"])})
    scene.patch.delenv("AIRFLOW_CONN_SHOP")
    scene.patch.setattr("airflow.sdk.configuration._secrets_backend_cache", {}, raising=False)
    backend = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
    scene.patch.setenv("AIRFLOW__SECRETS__BACKEND", backend)
    scene.patch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(file)}))
    file.write_text("{")
    scene.repairs.append(lambda: file.write_text(good))


def _lose_the_state_database(scene: Scene) -> None:
    postgres = scene.request.getfixturevalue("postgres")
    proxy = scene.stack.enter_context(Proxy(postgres.host, postgres.port))
    url = postgres.url(scene.stack.enter_context(postgres.database("state")))
    shop, scene.shop = scene.shop, replace(scene.shop, store=StateStore(url))
    scene.stack.callback(scene.shop.store.close)
    scene.shop.store.create_tables()
    scene.definition = replace(shop.definition, changelog=f"{scene.folder}/other")
    away = url.replace(f":{postgres.port}/", f":{proxy.port}/") + "?sslmode=disable&gssencmode=disable"
    connect(scene.patch, "cdc_state_default", conn_type="cdc_state", password=away)
    scene.work()
    proxy.refuse()
    defaults: dict[str, Any] = StateStore.__init__.__kwdefaults__ or {}
    scene.patch.setitem(defaults, "patience_s", 0.5)  # the task waits a minute for a database that is back soon
    scene.repairs.append(lambda: connect(scene.patch, "cdc_state_default", conn_type="cdc_state", password=url))


CAUSES: dict[str, Callable[[Scene], None]] = {
    "AccessDenied": _mistype_the_password,
    "BatchesRemoved": _restore_state_of_before_the_removal,
    "ChangeLogDamaged": _delete_a_manifest,
    "CommitConflict": _refuse_each_commit,
    "CommitStateUnknown": _lose_the_reply_to_a_commit,
    "ConfigError": _misspell_a_property,
    "ConnectionUnavailable": _damage_the_secrets_backend,
    "PositionLost": _lose_position,
    "PrerequisiteError": _forget_a_grant,
    "QueryRejected": _misspell_a_column,
    "SchemaConflict": _rewrite_a_column,
    "SourceBusy": _lock_a_table,
    "SourceLogDamaged": _cut_a_file,
    "SourceUnavailable": _reach_no_server,
    "StateError": _drop_a_state_table,
    "StateUnavailable": _lose_the_state_database,
    "StorageFull": _fill_the_disk,
    "StorageUnavailable": _throttle_the_store,
    "UnknownLogEvent": _write_something_else,
    "UnreadableValue": _insert_a_value_that_no_column_holds,
    "UnreadableValue of a file": _write_a_value_of_another_type,
}


def _break_a_target_table(scene: Scene) -> None:
    with sqlite3.connect(scene.folder / "warehouse.db") as connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON shop_inventory_orders BEGIN SELECT RAISE(ABORT, 'no row is welcome'); END"
        )
    connection.close()

    def repair() -> None:
        with sqlite3.connect(scene.folder / "warehouse.db") as connection:
            connection.execute("DROP TRIGGER no")
        connection.close()

    scene.repairs.append(repair)


def _reach_no_target(scene: Scene) -> None:
    good = os.environ["AIRFLOW_CONN_WAREHOUSE"]
    connect(
        scene.patch,
        "warehouse",
        conn_type="mysql",
        host="127.0.0.1",
        port=free_port(),
        login="x",
        password="x",
        schema="x",
    )
    scene.repairs.append(lambda: scene.patch.setenv("AIRFLOW_CONN_WAREHOUSE", good))


CAUSES_OF_APPLIES: dict[str, Callable[[Scene], None]] = {
    "TargetError": _break_a_target_table,
    "TargetUnavailable": _reach_no_target,
}


def run_task(definition: dict[str, Any], run_for: float, lease_ttl: float) -> None:
    """Run the task of a connector, in a process that a test suspends."""
    os.dup2(2, 1)  # the log is no answer of the helper process
    made = ConnectorDefinition(**definition)
    task = CaptureOperator(task_id="capture", definition=made, conn_id=made.name, run_for=run_for, lease_ttl=lease_ttl)
    task.execute(context())
