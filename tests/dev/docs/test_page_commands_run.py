"""Commands of ``airflow cdc`` on all pages: each is run, in the situation that its page is about.

The connector is one on a memory database, with tables of a SQLite database as its target. Errors that take a database of their own to provoke are recorded
as a run records them. What names a place, a file or a position of another database gets one of this connector in its stead.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.cli import events, signals
from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.lifecycle.connector_status import ConnectorState
from dev import paths
from tests.cli.conftest import capture, clean, run
from tests.dev.docs.test_commands_in_texts import find_parser
from tests.support.airflow.airflow_connector import connect
from tests.support.airflow.command_line import parser
from tests.support.docs.page_commands import list_commands, list_pages, split_words
from tests.support.docs.shop_situations import Shop

ELSEWHERE = {
    r"setup": "tests/system/test_setup_role.py::test_the_role_that_is_printed_reaches_the_state_and_none_of_airflows_tables",
    r"setup --url - .*": "tests/system/test_own_state.py::test_a_connector_runs_while_tasks_cannot_reach_the_metadata_db",
    r"rebuild shop s3a://\S+": "tests/targets/lake/rebuild/test_rebuild_rules.py::test_one_table_of_a_route_is_built_by_its_location_and_one_that_is_gone_is_made_again",
    r"events shop --form xstream": "tests/system/test_oracle.py::test_the_example_dag_makes_the_tables_equal",
    r"db2 .*": "tests/cli/test_procedures.py::test_the_commands_of_the_page_of_db2_do_what_they_say",
}  # fmt: skip
"""Commands that need another database, an Airflow or Spark → the test that runs them."""
PAGES_ELSEWHERE = {
    "docs/start/tutorial.md": "tests/system/test_tutorial.py::test_who_types_what_the_page_says_gets_what_it_says"
}
"""Pages whose commands another test runs, as they stand and in their order."""
PLACEHOLDERS = {
    "CONNECTOR": "shop", "CONN": "shop_mariadb", "TABLE": "shop.orders", "KEY": "7", "TEXT": "upgrade", "FILE": "inventory-connector.json",
    "FOLDER": "examples", "SOURCE": "mysql", "T": "shop.shop.orders", "N": "1", "F": "debezium", "TIME": "2100-01-01",
}  # fmt: skip
"""Words of a command that a reader replaces → what this reader writes."""
INTERRUPTED = 130
EXPECTED: dict[tuple[str, str], int | str] = {
    ("docs/errors/PositionLost.md", "gap shop"): 1,
    ("docs/errors/TargetError.md", r"verify shop --tables 'shop\.orders' --repair"): 1,
    ("docs/on-call.md", "row shop.orders 7"): "NotGranted: Rows of shop cannot be shown",
    ("docs/reference/change-log.md", "delete shop"): "Nothing was deleted. To delete the connector, add --yes-delete shop",
}  # fmt: skip
"""Page and command → its exit status, or the error it ends with.

Of all others it is 0, of the status of a connector that has failed 1, and of what follows 130: it is interrupted.
"""
DEBEZIUM = {
    "name": "inventory",
    "config": {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.hostname": "db.example.org", "database.user": "cdc",
        "database.server.id": "4711", "topic.prefix": "shop", "table.include.list": "shop.orders",
    },
}  # fmt: skip


@functools.cache
def list_runnable(page: str) -> list[str]:
    """List commands of a page, as they stand behind ``airflow cdc``, each once and in their order; not those that other tests run."""
    found = []
    for command in list_commands(page) if page not in PAGES_ELSEWHERE else ():
        behind = re.fullmatch(r"(?:kubectl exec \S+ -- )?airflow[ -]cdc (.+)", command.text, re.S)
        if behind:
            found += [one for one in _fill(behind[1]) if not _is_name(one)]
    return [one for one in dict.fromkeys(found) if not any(re.fullmatch(pattern, one) for pattern in ELSEWHERE)]


def _fill(text: str) -> list[str]:
    """Fill a command's placeholders; if it has optional parts, return it without and with them."""
    text = text.replace("--conn-id …", "--conn-id shop")
    variants = [re.sub(r" ?\[[^\]]*\]", "", text)] if "[" in text and "'" not in text else [text]
    if variants != [text]:
        variants.append(re.sub(r"[\[\]]", "", text))
    return [re.sub(r"(?<![\w-])([A-Z]+)(?![\w-])", lambda m: PLACEHOLDERS.get(m[1], m[1]), one) for one in variants]


@functools.cache
def _parser() -> argparse.ArgumentParser:
    return parser()


def _is_name(text: str) -> bool:
    """Check whether a text names a command, with or without an option, and lacks the arguments that it needs to run."""
    command, rest = find_parser(split_words(text), _parser())
    if "…" in text or text == "check":
        return True
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            command.parse_args(rest)
    except SystemExit:
        assert not rest or rest[0].startswith("-"), text
        return True
    return False


def _meet(page: str, command: str, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> str:
    """Bring the connector into the situation of a page, and return the command with the places and positions of this connector."""
    if shop.connector.store.find_connector("shop") is None:  # the page has deleted it
        capture(shop.connector)
    if shop.find_state() in (ConnectorState.PAUSED, ConnectorState.STOPPED):  # and has gone over to other things
        run("resume", "shop")
    name = page.rpartition("/")[2].removesuffix(".md")
    situations: dict[str, Callable[[], None]] = {
        "PositionLost": shop.lose_position,
        "ConnectorHalted": functools.partial(run, "pause", "shop", "--reason", "upgrade"),
        "TargetError": shop.change_by_hand,
    }
    error = getattr(errors, name, None)
    if error is not None and name != "ConnectorHalted":
        shop.fail(error("It went wrong.", remedy="as the page says"))
    situations.get(name, lambda: None)()
    if command.startswith(("offset set", "offset restore")):
        history = shop.connector.store.offset_history("shop")
        command = command.replace('{"file": "binlog.000012", "pos": 4711}', json.dumps({"entry": 6}))
        command = command.replace("restore 1203", f"restore {history[-1].version}")
    if command.startswith(("state migrate", "state copy")):
        new = "cdc_state_default" if "migrate" in command else "cdc_state_own"
        connect(monkeypatch, new, conn_type="cdc_state", password=f"sqlite:///{shop.folder}/new-{name}.db")
        if "copy" in command:
            run("state", "migrate", "--conn-id", new)
    if command.startswith("forget-target"):
        reports = ApplyReports(shop.change_log().storage, "shop")
        reports.write({**reports.register_target("iceberg", "/lake/{database}/{table}"), "last_batch": 1})
    return re.sub(r"s3a?://", f"{shop.folder}/", command)


def _wait(shop: Shop, command: list[str], _seconds: float) -> None:
    """Stand for the time between two looks of a command: an interrupt comes, and a run of the connector passes."""
    if "--follow" in command[0]:
        raise KeyboardInterrupt
    capture(shop.connector)


@pytest.mark.parametrize("page", [page for page in list_pages() if list_runnable(page)])
def test_commands_of_a_page_do_what_it_says(
    page: str, shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work = [""]
    for module in (signals, events):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=functools.partial(_wait, shop, at_work)))
    monkeypatch.chdir(shop.folder)
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "shop" if page != "docs/on-call.md" else "")
    for conn_id in ("shop_mariadb", "inventory_db"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", os.environ["AIRFLOW_CONN_SHOP"])
    (shop.folder / "inventory-connector.json").write_text(json.dumps(DEBEZIUM))
    (shop.folder / "ranges.json").write_text(json.dumps({"data-collections": ["shop.orders"], "type": "incremental"}))
    (shop.folder / "dags").mkdir()
    state = os.environ["AIRFLOW_CONN_CDC_STATE_DEFAULT"]
    for command in list_runnable(page):
        monkeypatch.setenv("AIRFLOW_CONN_CDC_STATE_DEFAULT", state)
        at_work[0] = _meet(page, command, shop, monkeypatch)
        clean(capsys)
        failed = command == "status shop" and shop.find_state() is ConnectorState.FAILED
        expected = EXPECTED.get(
            (page, command), INTERRUPTED if "--follow" in command and "--limit" not in command else int(failed)
        )
        status: int | str | None = 0
        try:
            run(*split_words(at_work[0]))
        except SystemExit as e:
            status = e.code
        matches = str(status).startswith(expected) if isinstance(expected, str) else status == expected
        assert matches, (command, status, capsys.readouterr())


def test_no_page_is_without_commands_by_mistake() -> None:
    assert sum(len(list_runnable(page)) for page in list_pages()) > 100
    for page, command in EXPECTED:
        assert command in list_runnable(page)


def test_each_test_that_runs_a_command_in_this_ones_stead_is_there() -> None:
    texts = [command.text for page in list_pages() for command in list_commands(page)]
    behind = [
        one for text in texts if text.startswith("airflow cdc ") for one in _fill(text.removeprefix("airflow cdc "))
    ]
    assert [pattern for pattern in ELSEWHERE if not any(re.fullmatch(pattern, text) for text in behind)] == []
    for test in (*ELSEWHERE.values(), *PAGES_ELSEWHERE.values()):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (paths.ROOT / file).read_text(), test
