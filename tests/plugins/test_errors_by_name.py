"""Errors by their real causes: each has its name in the task, the status, the alert and the page, each leads to its page, and is repaired as the page says."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.exceptions import AirflowException

from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.error_texts import build_page_address
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.services.dashboards.connector_alerts import find_alerts, format_alert
from dev import paths
from dev.ports import free_port
from dev.servers import MariaDb
from tests.cli.conftest import clean, run
from tests.plugins.conftest import ClientFactory
from tests.support.airflow.airflow_connector import ShopConnector, connect, context
from tests.support.processes.small_disk import fill_disk, mount_small_disk

API = "/api/v1/connectors"


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
    server: Callable[[], MariaDb]
    definition: ConnectorDefinition
    repairs: list[Callable[[], Any]] = field(default_factory=list)
    """Lead out of it, as the page of the error says."""

    def work(self) -> None:
        """Run the task of the connector."""
        name = self.definition.name
        CaptureOperator(task_id="capture", definition=self.definition, conn_id=name).execute(context())

    def apply(self) -> None:
        if "AIRFLOW_CONN_WAREHOUSE" not in os.environ:
            connect(self.patch, "warehouse", conn_type="sqlite", host=f"{self.folder}/warehouse.db")
        ApplyToDatabaseOperator(task_id="apply", definition=self.definition, conn_id="warehouse").execute(context())

    def go_to(self, name: str, source: str, properties: dict[str, Any], **connection: Any) -> None:
        """Go over to another connector."""
        connect(self.patch, name, conn_type=f"cdc_{source}", **connection)
        self.definition = ConnectorDefinition(name, source, f"{self.folder}/changelog", properties)

    def go_to_mariadb(self, **connection: Any) -> None:
        server = self.server()
        server.sql(
            "CREATE DATABASE IF NOT EXISTS page_errors",
            "CREATE TABLE IF NOT EXISTS page_errors.orders (id INT PRIMARY KEY)",
        )
        self.stack.callback(server.sql, "DROP DATABASE IF EXISTS page_errors")
        place = {"host": server.host, "port": server.port, "login": server.user, "password": server.password}
        extra = json.dumps({"database.ssl.mode": "disabled"})
        self.go_to(
            "maria",
            "mariadb",
            {"database.server.id": 4711, "database.include.list": "page_errors"},
            extra=extra,
            **{**place, **connection},
        )


def _lose_position(scene: Scene) -> None:
    scene.shop.order(20)
    scene.shop.database.purge_log()
    scene.repairs.append(lambda: run("gap", "shop", "--repair", "snapshot", "--confirm", "shop"))


def _misspell_a_property(scene: Scene) -> None:
    good = scene.definition
    scene.definition = replace(good, properties={**good.properties, "table.include.lists": "inventory.orders"})
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
    server = scene.server()
    account = "'page_reader'@'%'"
    server.sql(
        f"DROP USER IF EXISTS {account}",
        f"CREATE USER {account} IDENTIFIED BY 'reader'",
        f"GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES ON *.* TO {account}",
    )
    scene.stack.callback(server.sql, f"DROP USER {account}")
    scene.go_to_mariadb(login="page_reader", password="reader")
    scene.repairs.append(lambda: server.sql(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}"))


CAUSES: dict[str, Callable[[Scene], None]] = {
    "AccessDenied": _mistype_the_password,
    "BatchesRemoved": _restore_state_of_before_the_removal,
    "ChangeLogDamaged": _delete_a_manifest,
    "ConfigError": _misspell_a_property,
    "PositionLost": _lose_position,
    "PrerequisiteError": _forget_a_grant,
    "SourceLogDamaged": _cut_a_file,
    "SourceUnavailable": _reach_no_server,
    "StateError": _drop_a_state_table,
    "StorageFull": _fill_the_disk,
    "UnknownLogEvent": _write_something_else,
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
ELSEWHERE = {
    "CommitConflict": "tests/core/lifecycle/test_offset_changes.py::test_a_plan_is_void_once_the_offset_has_moved",
    "CommitStateUnknown": "tests/changelog/files/test_change_log.py::test_a_commit_that_the_store_does_not_confirm_may_be_there_or_not",
    "ConnectionUnavailable": "tests/hooks/test_unanswered_lookups.py::test_a_connection_that_nothing_could_look_up_is_tried_again",
    "ConnectorHalted": "tests/core/lifecycle/test_connector_lifecycle.py::test_a_run_that_is_alive_ends_within_seconds_of_a_pause_and_nothing_runs_until_resume",
    "LeaseHeld": "tests/core/capture/test_connector_capture.py::test_a_second_run_is_refused_while_the_first_is_alive",
    "LeaseLost": "tests/core/capture/test_connector_capture.py::test_a_run_that_was_taken_over_says_nothing_of_the_connector",
    "NotGranted": "tests/sources/oracle/test_connect.py::test_each_known_number_has_its_meaning",
    "QueryRejected": "tests/core/incremental/test_blocking.py::test_a_blocking_snapshot_that_the_account_may_not_make_ends_no_run",
    "SchemaConflict": "tests/core/capture/test_schema_change_handler.py::test_a_rewriting_statement_stops_every_run_if_configured",
    "SourceBusy": "tests/sources/mysql/snapshot/test_chunk_reader.py::test_a_lock_that_is_not_got_is_reported_as_what_it_is_and_the_reader_goes_on",
    "StateUnavailable": "tests/state/test_lost_connections.py::test_a_database_that_stays_away_is_an_error_for_the_person_on_call",
    "StorageUnavailable": "tests/changelog/files/test_put_if_absent_check.py::test_a_store_that_does_not_answer_is_worth_a_retry",
    "UnreadableValue": "tests/sources/debezium/test_forms.py::test_values_that_do_not_fit_their_schema_are_refused_with_their_place",
}
"""Errors that need two runs at once, a lock, another database or a dead service → the test that provokes them.

``tests/dev/docs/test_first_aid.py`` follows a recorded error of each class from status and alert to its page."""


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Scene]:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    with ExitStack() as stack:
        definition = shop_connector.definition
        made = Scene(
            shop_connector, tmp_path, monkeypatch, stack, lambda: request.getfixturevalue("mariadb"), definition
        )
        shop_connector.order(10)
        made.work()
        yield made


def _read_status(scene: Scene, capsys: pytest.CaptureFixture[str]) -> tuple[int | str | None, str]:
    """Return the exit status of the command, and all that it prints."""
    clean(capsys)
    try:
        run("status", scene.definition.name)
    except SystemExit as e:
        return e.code, f"{capsys.readouterr().out}{e.code}"
    return 0, capsys.readouterr().out


@pytest.mark.parametrize("name", CAUSES)
def test_an_error_leads_from_each_place_to_its_page_and_to_its_repair(
    name: str, scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    CAUSES[name](scene)
    page = f"Page:   {build_page_address(name)}"
    with pytest.raises(AirflowException, match=f"^{name}: ") as caught:
        scene.work()
    assert page in str(caught.value)
    status, output = _read_status(scene, capsys)
    assert status != 0
    assert f"{name}: " in output
    assert page in output
    if name != "StateError":  # without the state tables there is no alert and no page but the task's and the command's
        connector = scene.definition.name
        record = scene.shop.store.find_connector(connector)
        assert record is not None
        (alert,) = map(format_alert, find_alerts(record))
        assert f" ago: {name}: " in alert
        assert alert.endswith(f"; page: {build_page_address(name)}")
        error = client_factory().get(f"{API}/{connector}").json()["line"]["error"]
        assert (error["name"], error["page"]) == (name, build_page_address(name))
    assert (paths.ROOT / build_page_address(name)).exists()

    for repair in scene.repairs:
        repair()
    scene.work()
    assert _read_status(scene, capsys)[0] == 0
    record = scene.shop.store.find_connector(scene.definition.name)
    assert record is not None
    assert find_alerts(record) == []


@pytest.mark.parametrize("name", CAUSES_OF_APPLIES)
def test_an_error_of_a_target_leads_to_its_page_and_to_its_repair(
    name: str, scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.apply()
    scene.shop.order(11)
    scene.work()
    CAUSES_OF_APPLIES[name](scene)
    with pytest.raises(AirflowException, match=f"^{name}: ") as caught:
        scene.apply()
    assert f"Page:   {build_page_address(name)}" in str(caught.value)
    _, output = _read_status(scene, capsys)
    owed = output.partition("  Owed: ")[2].partition("\n  Tables:")[0]
    assert f": {name}: " in owed
    assert f"Page:   {build_page_address(name)}" in owed
    document = client_factory().get(f"{API}/shop").json()
    assert any(f": {name}: " in text and build_page_address(name) in text for text in document["status"]["owed"])
    assert (paths.ROOT / build_page_address(name)).exists()

    for repair in scene.repairs:
        repair()
    scene.apply()
    assert "  Owed: " not in _read_status(scene, capsys)[1]


def test_each_error_with_a_page_is_provoked_here_or_by_a_test_that_is_named() -> None:
    pages = {name for name in errors.__all__ if getattr(errors, name).page_name == name}
    assert {*CAUSES, *CAUSES_OF_APPLIES, *ELSEWHERE} == pages
    assert {*ELSEWHERE} & {*CAUSES, *CAUSES_OF_APPLIES} == set()
    for name, test in ELSEWHERE.items():
        file, _, function = test.partition("::")
        text = (paths.ROOT / file).read_text()
        assert name in text, f"{file} does not name {name}"
        assert f"def {function}(" in text, test
