"""Commands, and the task, that have something done at a source. Db2 is the one that offers it: on our test server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.cli.command_parser import build_commands
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.operators.capture import CaptureOperator
from airflow_provider_cdc.operators.source_procedure import SourceProcedureOperator
from airflow_provider_cdc.state.state_store import StateStore
from dev.servers import Db2
from tests.cli.conftest import clean, run
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT
from tests.support.airflow.airflow_connector import connect, context
from tests.support.airflow.airflow_versions import AirflowFailException
from tests.support.docs.page_commands import list_commands, split_words


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        adapter.create("a", {"id": INT}, key=("id",))
        adapter.sql(
            f'CREATE TABLE {adapter.name("b")} ("id" INTEGER NOT NULL PRIMARY KEY)',
            f"GRANT SELECT ON TABLE {adapter.name('b')} TO USER {db2.user}",
        )
        stack.callback(adapter.sql, f"DROP TABLE {adapter.name('b')}")
        yield adapter


@pytest.fixture
def connector_definition(
    db: Db2Adapter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> ConnectorDefinition:
    """A connector that has captured table ``a``."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    state_url, server = f"sqlite:///{tmp_path}/state.db", db.server
    StateStore(state_url).create_tables()
    connect(
        monkeypatch, "shop", conn_type="cdc_db2", host=server.host, port=server.port, login=server.user, password=server.password,
        schema=server.database, extra=json.dumps({"database.authentication": "server"}),
    )  # fmt: skip
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=state_url)
    properties = {"schema.include.list": db.namespace, "poll.interval.ms": 20}
    definition = ConnectorDefinition("shop", "db2", f"{tmp_path}/changelog", properties)
    CaptureOperator(task_id="capture", definition=definition, conn_id="shop").execute(context())
    clean(capsys)
    return definition


def list_registered(db: Db2Adapter) -> list[Any]:
    sql = (
        f"SELECT SOURCE_TABLE FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = '{db.namespace}' ORDER BY SOURCE_TABLE"
    )
    return [table for (table,) in db.sql(sql)]


def test_only_sources_that_offer_procedures_have_a_group_of_commands() -> None:
    (cdc,) = build_commands()
    groups = {command.name for command in cdc.subcommands}
    assert "db2" in groups
    assert not groups & {"mysql", "mariadb", "oracle", "memory"}


def test_a_plan_is_printed_and_nothing_is_done_until_it_is_confirmed(
    db: Db2Adapter, connector_definition: ConnectorDefinition, capsys: pytest.CaptureFixture[str]
) -> None:
    table = db.collection("b")
    run("db2", "add-table", "shop", table)
    output = capsys.readouterr().out
    assert f"CALL \"ASNCDC\".ADDTABLE('{db.namespace}', 'b')" in output
    assert "Nothing was changed. To make the change, add --confirm shop" in output
    run("db2", "add-table", "shop", table, "-o", "json")
    assert json.loads(capsys.readouterr().out)["problems"] == []
    with pytest.raises(SystemExit, match="not confirmed"):
        run("db2", "add-table", "shop", table, "--confirm", "yes")
    assert list_registered(db) == ["a"]

    run("db2", "add-table", "shop", table, "--confirm", "shop")
    assert capsys.readouterr().out.endswith("Done.\n")
    assert list_registered(db) == ["a", "b"]
    db.server.remove_table(db.namespace, "b")


def test_what_cannot_be_done_is_said_with_what_can(db: Db2Adapter, connector_definition: ConnectorDefinition) -> None:
    with pytest.raises(SystemExit) as ended:
        run("db2", "remove-table", "shop", db.collection("a"), "--confirm", "shop")
    assert "The change is not possible; nothing was changed." in str(ended.value)
    assert "table.exclude.list" in str(ended.value)
    assert list_registered(db) == ["a"]


def test_a_table_gets_a_new_change_table_and_is_read_again(
    db: Db2Adapter, connector_definition: ConnectorDefinition, capsys: pytest.CaptureFixture[str]
) -> None:
    run("db2", "switch-capture-instance", "shop", db.collection("a"), "--confirm", "shop")
    assert "Signal 1 requests a snapshot of the table" in capsys.readouterr().out
    run("db2", "switch-capture-instance", "shop", db.collection("a"), "--writers-stopped", "--confirm", "shop")
    assert capsys.readouterr().out.endswith("Done.\n")


def test_the_task_does_the_same(db: Db2Adapter, connector_definition: ConnectorDefinition) -> None:
    table = db.collection("b")

    def task(**fields: Any) -> Any:
        task = SourceProcedureOperator(
            task_id="t", connector=connector_definition, procedure="add-table", table=table, **fields
        )
        return task.execute(context())

    assert task(plan_only=True)["plan_only"] is True
    with pytest.raises(AirflowFailException, match="not confirmed"):
        task()
    assert list_registered(db) == ["a"]
    assert task(confirm="shop")["signal"] is None
    assert list_registered(db) == ["a", "b"]
    with pytest.raises(AirflowFailException, match="already in capture mode"):
        task(confirm="shop")
    db.server.remove_table(db.namespace, "b")


def test_the_commands_of_the_page_of_db2_do_what_they_say(
    db: Db2Adapter, connector_definition: ConnectorDefinition, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connector captures customers, and its lists leave out products."""
    properties = {**connector_definition.properties, "table.include.list": re.escape(f"{db.namespace}.a")}
    del properties["schema.include.list"]
    CaptureOperator(
        task_id="capture", definition=replace(connector_definition, properties=properties), conn_id="shop"
    ).execute(context())
    commands = [
        one.text for one in list_commands("docs/sources/db2.md") if re.match(r"airflow cdc db2 \S+ shop ", one.text)
    ]
    registered = []
    tables = {"INVENTORY.PRODUCTS": db.collection("b"), "INVENTORY.CUSTOMERS": db.collection("a")}
    for command in commands:
        words = [tables.get(word, word) for word in split_words(command)]
        clean(capsys)
        run(*words[2:])
        assert ("Nothing was changed." in capsys.readouterr().out) == ("--confirm" not in command), command
        registered.append(list_registered(db))
    assert registered == [["a"], ["a", "b"], ["a"], ["a"], ["a"]]
