"""Errors by their real causes: each has its name in the task, the status, the alert and the page, each leads to its page, and is repaired as the page says."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.error_texts import build_page_address
from airflow_provider_cdc.dag import alerts_dag
from airflow_provider_cdc.hooks.airflow_compat import AirflowException, AirflowSkipException
from airflow_provider_cdc.services.dashboards.connector_alerts import find_alerts, format_alert
from dev import paths
from tests.cli.conftest import clean, run
from tests.plugins.conftest import ClientFactory
from tests.support.airflow.airflow_connector import ShopConnector, context
from tests.support.docs.error_scenes import CAUSES, CAUSES_OF_APPLIES, EVENT, Scene
from tests.support.patience import LONGEST_S, wait_until
from tests.support.processes.fork import Forks, Run

API = "/api/v1/connectors"
WITHOUT_STATE = {"StateError", "StateUnavailable"}
"""Errors that no record has: the alert and the page are errors, too."""


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, shop_connector: ShopConnector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Scene]:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")  # commands set it; it is put back afterwards
    with ExitStack() as stack:
        made = Scene(shop_connector, tmp_path, monkeypatch, stack, request, shop_connector.definition)
        shop_connector.order(10)
        made.work()
        yield made


def _run(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int | str | None, str]:
    """Return the exit status of a command, and all that it prints."""
    clean(capsys)
    status: int | str | None = 0
    try:
        run(*command)
    except SystemExit as e:
        status = e.code
    printed = capsys.readouterr()
    return status, f"{printed.out}{printed.err}{status}"


def _read_status(scene: Scene, capsys: pytest.CaptureFixture[str]) -> tuple[int | str | None, str]:
    return _run(capsys, "status", scene.definition.name)


def _list_alerts(scene: Scene) -> list[str]:
    record = scene.shop.store.find_connector(scene.definition.name)
    assert record is not None
    return [*map(format_alert, find_alerts(record))]


def _read_page(scene: Scene, client_factory: ClientFactory) -> dict[str, Any]:
    return dict(client_factory().get(f"{API}/{scene.definition.name}").json())


def _check_alert_task(name: str) -> None:
    task: Any = alerts_dag().get_task("look")
    with pytest.raises(AirflowException, match=f"^{name}: ") as caught:
        task.python_callable(**task.op_kwargs)
    assert f"Page:   {build_page_address(name)}" in str(caught.value)


def _check_that_nothing_is_wrong(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.work()
    assert _read_status(scene, capsys)[0] == 0
    assert _list_alerts(scene) == []


@pytest.mark.parametrize("cause", CAUSES)
def test_an_error_leads_from_each_place_to_its_page_and_to_its_repair(
    cause: str, scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    CAUSES[cause](scene)
    name = cause.partition(" ")[0]
    page = f"Page:   {build_page_address(name)}"
    with pytest.raises(AirflowException, match=f"^{name}: ") as caught:
        scene.work()
    assert page in str(caught.value)
    status, output = _read_status(scene, capsys)
    assert status != 0
    assert f"{name}: " in output
    assert page in output
    if name in WITHOUT_STATE:
        _check_alert_task(name)
        error = _read_page(scene, client_factory)["error"]
    else:
        (alert,) = _list_alerts(scene)
        assert f" ago: {name}: " in alert
        assert alert.endswith(f"; page: {build_page_address(name)}")
        error = _read_page(scene, client_factory)["line"]["error"]
    assert (error["name"], error["page"]) == (name, build_page_address(name))
    assert (paths.ROOT / build_page_address(name)).exists()

    scene.repair()
    _check_that_nothing_is_wrong(scene, capsys)


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
    document = _read_page(scene, client_factory)
    assert any(f": {name}: " in text and build_page_address(name) in text for text in document["status"]["owed"])
    assert (paths.ROOT / build_page_address(name)).exists()

    scene.repair()
    scene.apply()
    assert "  Owed: " not in _read_status(scene, capsys)[1]


# errors that are not the connector's: another run has it, or a person


def _find_owner(scene: Scene) -> str:
    record = scene.shop.store.find_connector(scene.definition.name)
    return "" if record is None else record.owner or ""


def test_a_second_run_names_the_first_which_status_alert_and_page_are_about(
    scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    first = scene.build_task(run_for=LONGEST_S)
    thread = threading.Thread(target=first.execute, args=(context(),))
    thread.start()
    try:
        owner = wait_until(lambda: _find_owner(scene), "the first run has the lease")
        with pytest.raises(AirflowException, match=r"^LeaseHeld: ") as caught:
            scene.build_task(lease_wait=0).execute(context())
        assert owner in str(caught.value)
        assert f"Page:   {build_page_address('LeaseHeld')}" in str(caught.value)
        command = re.search("`airflow cdc (.+?)`", str(caught.value))
        assert command is not None
        status, output = _run(capsys, *command[1].split())
        assert (status, "LeaseHeld" in output) == (0, False)
        assert re.match(rf"shop \(memory\): running for \d+ s, by {re.escape(owner)}\n", output)
        assert _list_alerts(scene) == []
        line = _read_page(scene, client_factory)["line"]
        assert (line["state"], line["error"]) == ("running", None)
    finally:
        first.on_kill()
        thread.join()
    _check_that_nothing_is_wrong(scene, capsys)


def _suspend(process: Run, state: Path) -> None:
    """Suspend a process outside of its transactions."""
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        assert process.wait_until_stopped()
        connection = sqlite3.connect(state, timeout=0)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            return
        except sqlite3.OperationalError:
            process.go_on()
        finally:
            connection.close()


def test_a_run_that_was_suspended_names_the_one_that_took_over_and_leaves_the_connector_as_it_is(
    scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    events = scene.folder / "events"
    events.mkdir()
    (events / "a.jsonl").write_text(EVENT)
    scene.go_to("files", "debezium", {"events.path": str(events), "poll.interval.ms": 10, "batch.max.ms": 1000})
    log = ChangeLog(scene.definition.changelog)
    with Forks("tests.support.docs.error_scenes") as forks:
        definition = scene.definition.to_document()
        first = forks.start(
            "tests.support.docs.error_scenes:run_task", definition=definition, run_for=LONGEST_S, lease_ttl=1
        )
        wait_until(lambda: log.list_batches("files"), "the first run has committed")
        _suspend(first, scene.folder / "state.db")
        (events / "b.jsonl").write_text(EVENT)
        scene.work()
        (events / "c.jsonl").write_text(EVENT)
        first.go_on()
        end = first.wait()
    assert "AirflowException: LeaseLost: Connector files was taken over by " in end.text
    assert f"Page:   {build_page_address('LeaseLost')}" in end.text
    status, output = _read_status(scene, capsys)
    assert (status, "LeaseLost" in output) == (0, False)
    assert _list_alerts(scene) == []
    assert _read_page(scene, client_factory)["line"]["error"] is None
    _check_that_nothing_is_wrong(scene, capsys)
    files = [file for manifest in log.read_manifests("files", after=0) for file in manifest.files]
    assert sum(sum(file.counts.values()) for file in files) == 3


def test_a_paused_connector_skips_its_task_and_names_person_reason_and_way_back(
    scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.apply()
    run("pause", "shop", "--reason", "upgrade of the database")
    with pytest.raises(AirflowSkipException, match=r"^ConnectorHalted: Connector shop is paused") as caught:
        scene.work()
    assert "upgrade of the database" in str(caught.value)
    assert f"Page:   {build_page_address('ConnectorHalted')}" in str(caught.value)
    way_back = re.search("Repair: airflow cdc (.+)", str(caught.value))
    assert way_back is not None
    status, output = _read_status(scene, capsys)
    assert status == 0
    assert re.match(r"shop \(memory\): paused for \d+ s, by .+: upgrade of the database\n", output)
    assert f"airflow cdc {way_back[1]}" in output
    assert _list_alerts(scene) == []
    document = _read_page(scene, client_factory)
    assert (document["line"]["state"], document["line"]["error"]) == ("paused", None)
    assert document["status"]["reason"] == "upgrade of the database"

    scene.shop.order(11)
    _, output = _run(capsys, "verify", "shop", "--tables", r"inventory\.orders")
    assert "ConnectorHalted: Connector shop is paused, and has not reached " in output
    assert f"Page:   {build_page_address('ConnectorHalted')}" in output

    run(*way_back[1].split())
    _check_that_nothing_is_wrong(scene, capsys)


def test_rows_that_no_administrator_has_allowed_lead_to_the_setting_that_allows_them(
    scene: Scene, client_factory: ClientFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "row", "inventory.orders", "10"
    _, output = _run(capsys, *command)
    assert "NotGranted: Rows of shop cannot be shown" in output
    assert f"Page:   {build_page_address('NotGranted')}" in output
    request = {"table": "inventory.orders", "key": ["10"]}
    answer = client_factory().post(f"{API}/shop/row", json=request)
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["name"], error["page"]) == ("NotGranted", build_page_address("NotGranted"))
    setting = re.search(r"(AIRFLOW__CDC__\w+)=(\w+)", error["repair"])
    assert setting is not None
    scene.patch.setenv(setting[1], setting[2])
    status, output = _run(capsys, *command)
    assert (status, "10" in output) == (0, True)
    assert client_factory().post(f"{API}/shop/row", json=request).status_code == 200


OTHERS = {
    "ConnectorHalted": test_a_paused_connector_skips_its_task_and_names_person_reason_and_way_back,
    "LeaseHeld": test_a_second_run_names_the_first_which_status_alert_and_page_are_about,
    "LeaseLost": test_a_run_that_was_suspended_names_the_one_that_took_over_and_leaves_the_connector_as_it_is,
    "NotGranted": test_rows_that_no_administrator_has_allowed_lead_to_the_setting_that_allows_them,
}


def test_each_error_with_a_page_is_provoked_here() -> None:
    pages = sorted(name for name in errors.__all__ if getattr(errors, name).page_name == name)
    assert sorted({*(cause.partition(" ")[0] for cause in CAUSES), *CAUSES_OF_APPLIES, *OTHERS}) == pages
