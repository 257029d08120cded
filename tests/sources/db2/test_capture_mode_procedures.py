"""Tables are put into capture mode, taken out of it, and get other change tables; the connector continues without loss or repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_lifecycle
from airflow_provider_cdc.core.errors import ConfigError, LeaseHeld, PositionLost, PrerequisiteError
from airflow_provider_cdc.core.spi.source_procedures import ProcedurePlan
from airflow_provider_cdc.sources.db2.connect import Db2Connection
from dev.servers import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.sources.suite import INT, TEXT, equal, start_connector
from tests.support.connectors import Connector
from tests.support.workloads.small_tables import operations


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        yield Db2Adapter(db2, stack)


@pytest.fixture
def connector(db: Db2Adapter, tmp_path: Path) -> Connector:
    """A connector that has captured table ``a`` with one row."""
    db.create("a", {"id": INT, "n": INT}, key=("id",))
    with db.transaction() as t:
        t.insert("a", {"id": 1, "n": 1})
    return start_connector(db, tmp_path)


def name(db: Db2Adapter, table: str) -> str:
    return f'{db.namespace}."{table}"'


def plan(connector: Connector, procedure: str, table: str, *flags: str) -> ProcedurePlan:
    with open_lifecycle(connector.definition(), connector.state_url, secrets=connector.secrets) as lifecycle:
        return lifecycle.plan_procedure(procedure, table, flags)


def carry_out(connector: Connector, procedure: str, table: str, *flags: str, **properties: Any) -> int | None:
    definition = connector.definition(**properties)
    with open_lifecycle(definition, connector.state_url, secrets=connector.secrets) as lifecycle:
        made = lifecycle.plan_procedure(procedure, table, flags)
        return lifecycle.carry_out(made, connector.name, "tests", lambda line: None)


def create_unregistered(db: Db2Adapter, table: str) -> None:
    """A table that is not in capture mode, with a row."""
    db.sql(
        f'CREATE TABLE {db.name(table)} ("id" INTEGER NOT NULL PRIMARY KEY, "n" INTEGER)',
        f"INSERT INTO {db.name(table)} VALUES (1, 10)",
        f"GRANT SELECT ON TABLE {db.name(table)} TO USER {db.server.user}",
    )
    db._stack.callback(db.sql, f"DROP TABLE {db.name(table)}")


def register(db: Db2Adapter) -> list[tuple[Any, ...]]:
    return db.sql(
        f"SELECT SOURCE_TABLE, STATE FROM ASNCDC.IBMSNAP_REGISTER WHERE SOURCE_OWNER = '{db.namespace}' ORDER BY SOURCE_TABLE"
    )


# -- add-table --------------------------------------------------------------------------------------------------------


def test_a_table_that_is_added_is_captured_with_the_rows_that_it_had(db: Db2Adapter, connector: Connector) -> None:
    create_unregistered(db, "b")
    shown = plan(connector, "add-table", name(db, "b"))
    assert shown.problems == ()
    assert shown.steps[0] == f"CALL \"ASNCDC\".ADDTABLE('{db.namespace}', 'b')"
    assert [table for table, _ in register(db)] == ["a"], "a plan changes nothing"

    assert carry_out(connector, "add-table", name(db, "b")) is None
    db._stack.callback(db.server.remove_table, db.namespace, "b")
    assert ("b", "A") in register(db)
    with db.transaction() as t:
        t.insert("b", {"id": 2, "n": 20})
    connector.capture()
    equal(connector, db, "a", "b")


@pytest.mark.parametrize("table", ["ЗАКАЗЫ", "한국 x", "😀😀"])
def test_tables_with_names_beyond_ascii_are_added_and_removed(
    db: Db2Adapter, connector: Connector, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are bound: the driver swaps bytes of literals in a CALL, and only our test server is known to read these."""
    called, execute = list[tuple[str, ...]](), Db2Connection.execute

    def record_call(self: Db2Connection, sql: str, *params: Any) -> int:
        called.extend([(sql.partition(".")[2], *params)] if sql.startswith("CALL") else [])
        return execute(self, sql, *params)

    monkeypatch.setattr(Db2Connection, "execute", record_call)
    create_unregistered(db, table)
    assert carry_out(connector, "add-table", name(db, table)) is None
    assert (table, "A") in register(db)
    carry_out(connector, "remove-table", name(db, table), table_exclude_list=f"{db.namespace}.{table}")
    assert [known for known, _ in register(db)] == ["a"]
    assert called == [(f"{name}(?, ?)", db.namespace, table) for name in ("ADDTABLE", "REMOVETABLE")]


@pytest.mark.parametrize(
    ("table", "why"),
    [("a", "already in capture mode"), ("none", "does not exist"), ("A", "does not exist")],
)
def test_a_table_that_cannot_be_added_is_refused_before_anything_is_done(
    db: Db2Adapter, connector: Connector, table: str, why: str
) -> None:
    before = register(db)
    assert why in " ".join(plan(connector, "add-table", name(db, table)).problems)
    with pytest.raises(ConfigError, match=why):
        carry_out(connector, "add-table", name(db, table))
    assert register(db) == before


def test_nothing_is_done_without_the_connectors_name(db: Db2Adapter, connector: Connector) -> None:
    create_unregistered(db, "b")
    with open_lifecycle(connector.definition(), connector.state_url, secrets=connector.secrets) as lifecycle:
        made = lifecycle.plan_procedure("add-table", name(db, "b"))
        for given in (None, "yes", "b"):
            with pytest.raises(ConfigError, match="not confirmed"):
                lifecycle.carry_out(made, given, "tests", lambda line: None)
    assert [table for table, _ in register(db)] == ["a"]


def test_a_procedure_and_a_flag_that_do_not_exist_are_named_with_those_that_do(
    db: Db2Adapter, connector: Connector
) -> None:
    with pytest.raises(ConfigError, match="add-table, remove-table, switch-capture-instance"):
        plan(connector, "addtable", name(db, "a"))
    with pytest.raises(ConfigError, match="writers-stopped"):
        plan(connector, "switch-capture-instance", name(db, "a"), "stopped")


# -- remove-table -----------------------------------------------------------------------------------------------------


def test_a_table_that_is_captured_is_not_removed(db: Db2Adapter, connector: Connector) -> None:
    with pytest.raises(ConfigError, match="The connector captures the table"):
        carry_out(connector, "remove-table", name(db, "a"))
    assert register(db) == [("a", "A")]


def test_a_table_that_is_left_out_is_removed_and_the_connector_goes_on(db: Db2Adapter, connector: Connector) -> None:
    db.create("b", {"id": INT}, key=("id",))
    connector.capture()
    others = {"table.exclude.list": rf"{db.namespace}\.b"}
    connector.capture(others)
    carry_out(connector, "remove-table", name(db, "b"), table_exclude_list=others["table.exclude.list"])
    assert register(db) == [("a", "A")]
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2})
    connector.capture(others)
    equal(connector, db, "a")
    db.sql(f"DROP TABLE {db.name('b')}")
    del db._tables["b"]


# -- switch-capture-instance ------------------------------------------------------------------------------------------


def alter(db: Db2Adapter) -> None:
    """A column that the change table does not have."""
    db.sql(f'ALTER TABLE {db.name("a")} ADD COLUMN "m" VARCHAR(20)')


def test_a_table_whose_writers_are_stopped_gets_a_new_change_table_without_being_read_again(
    db: Db2Adapter, connector: Connector
) -> None:
    alter(db)
    assert carry_out(connector, "switch-capture-instance", name(db, "a"), "writers-stopped") is None
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2, "m": "new"})
        t.update("a", {"id": 1}, {"m": "old"})
    assert operations(connector, connector.capture()) == {"a": {"c": 1, "u": 1}}
    equal(connector, db, "a")
    with db.transaction() as t:
        t.delete("a", {"id": 1})
    assert operations(connector, connector.capture()) == {"a": {"d": 1}}, "the position goes on behind the switch"
    equal(connector, db, "a")


def test_a_table_whose_writers_go_on_is_read_again(db: Db2Adapter, connector: Connector) -> None:
    alter(db)
    db.sql(f"INSERT INTO {db.name('a')} VALUES (7, 7, 'while it is altered')")
    db.server.catch_up()
    connector.capture()
    signal = carry_out(connector, "switch-capture-instance", name(db, "a"))
    assert signal is not None
    with db.transaction() as t:
        t.insert("a", {"id": 8, "n": 8, "m": "after"})
    connector.capture()
    equal(connector, db, "a")
    assert connector.store.signals_of(connector.name)[0].state.value == "done"


def test_changes_that_are_not_captured_yet_are_not_thrown_away(db: Db2Adapter, connector: Connector) -> None:
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2})
    for flags in ((), ("writers-stopped",)):
        with pytest.raises(ConfigError, match="not captured yet"):
            carry_out(connector, "switch-capture-instance", name(db, "a"), *flags)
    assert register(db) == [("a", "A")]
    connector.capture()
    equal(connector, db, "a")


def test_a_table_that_someone_has_registered_again_is_an_error_until_it_is_said_that_nothing_is_lost(
    db: Db2Adapter, connector: Connector
) -> None:
    db.server.remove_table(db.namespace, "a")
    db.server.add_table(db.namespace, "a")
    db.sql(f"GRANT SELECT ON TABLE {db.change_table('a')} TO USER {db.server.user}")
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2})
    with pytest.raises(PositionLost, match="registered again"):
        connector.capture()
    shown = plan(connector, "switch-capture-instance", name(db, "a"), "writers-stopped")
    assert not [step for step in shown.steps if "ADDTABLE" in step]
    carry_out(connector, "switch-capture-instance", name(db, "a"), "writers-stopped")
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db, "a")


def test_a_table_that_is_not_in_capture_mode_any_more_is_put_back(db: Db2Adapter, connector: Connector) -> None:
    db.server.remove_table(db.namespace, "a")
    with pytest.raises(PrerequisiteError, match="registration is gone"):
        connector.capture()
    carry_out(connector, "switch-capture-instance", name(db, "a"))
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2})
    connector.capture()
    equal(connector, db, "a")


def test_a_run_that_is_alive_keeps_its_change_table(db: Db2Adapter, connector: Connector) -> None:
    with connector.store.acquire_lease(connector.name, "a run", wait_s=0), pytest.raises(LeaseHeld, match="a run"):
        carry_out(connector, "switch-capture-instance", name(db, "a"), "writers-stopped")
    assert register(db) == [("a", "A")]


def test_an_agent_that_does_not_run_is_named_with_what_is_done_and_the_procedure_goes_on_later(
    db: Db2Adapter, connector: Connector
) -> None:
    connector.properties["snapshot.agent.timeout.ms"] = 1500
    db.server.agent("stop")
    try:
        with pytest.raises(PrerequisiteError) as caught:
            carry_out(connector, "switch-capture-instance", name(db, "a"))
        assert "capture agent does not run" in str(caught.value)
        assert "REMOVETABLE" in str(caught.value.safe)
    finally:
        db.server.agent("start")
    db.server.catch_up()
    carry_out(connector, "switch-capture-instance", name(db, "a"))
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2})
    connector.capture()
    equal(connector, db, "a")


@pytest.mark.parametrize("steps", range(1, 7))
def test_a_procedure_that_died_before_any_of_its_steps_goes_on_from_there(
    db: Db2Adapter, connector: Connector, steps: int
) -> None:
    connector.properties["snapshot.agent.timeout.ms"] = 10_000
    reports: list[str] = []

    def report_line(line: str) -> None:
        reports.append(line)
        if len(reports) == steps:
            raise RuntimeError("died")

    with open_lifecycle(connector.definition(), connector.state_url, secrets=connector.secrets) as lifecycle:
        made = lifecycle.plan_procedure("switch-capture-instance", name(db, "a"), ["writers-stopped"])
        assert len(made.steps) == 7
        with pytest.raises(RuntimeError, match="died"):
            lifecycle.carry_out(made, connector.name, "tests", report_line)
    carry_out(connector, "switch-capture-instance", name(db, "a"), "writers-stopped")
    with db.transaction() as t:
        t.insert("a", {"id": 2, "n": 2})
    assert operations(connector, connector.capture()) == {"a": {"c": 1}}
    equal(connector, db, "a")


def test_columns_of_another_type_are_captured_with_a_new_change_table(db: Db2Adapter, connector: Connector) -> None:
    db.create("c", {"id": INT, "v": TEXT}, key=("id",))
    connector.capture()
    db.sql(f'ALTER TABLE {db.name("c")} ALTER COLUMN "v" SET DATA TYPE VARCHAR(400)')
    carry_out(connector, "switch-capture-instance", name(db, "c"), "writers-stopped")
    with db.transaction() as t:
        t.insert("c", {"id": 1, "v": "x" * 400})
    connector.capture()
    equal(connector, db, "a", "c")
