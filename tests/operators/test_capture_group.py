"""A task that captures several connectors: each with its own lease, result and error, on a real state database, change logs and memory sources."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.connector import ConnectorDefinition
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.operators.base.operator_links import ConnectorsLink
from airflow_provider_cdc.operators.capture_group import CaptureGroupOperator
from airflow_provider_cdc.sensors.any_changes import AnyChangesSensor
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.connectors.grouped_connectors import GroupedConnector, inspect_changes
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.sources.memory.source import MemorySource
from airflow_provider_cdc.state.models import LeaseRow, OffsetRow
from airflow_provider_cdc.state.state_store import StateStore
from airflow_provider_cdc.triggers import any_changes
from tests.support.airflow.airflow_connector import SHOP, connect, context
from tests.support.airflow.airflow_versions import (
    AirflowException,
    AirflowFailException,
    TaskDeferred,
    cdc_command,
    page_link,
)
from tests.support.airflow.trigger_runs import await_first_event, deserialize_trigger
from tests.support.counted import CallCounter
from tests.support.patience import LONGEST_S, wait_until

NAMES = [f"c{n}" for n in range(6)]


@dataclass
class ConnectorGroup:
    """Six connectors on six memory databases."""

    databases: dict[str, MemoryDatabase]
    store: StateStore
    folder: Path

    def of(self, *names: str, **properties: Any) -> list[GroupedConnector]:
        return [
            GroupedConnector(
                definition=ConnectorDefinition(
                    name, "memory", f"{self.folder}/changelog", {"poll.interval.ms": 10, **properties}
                ),
                conn_id=name,
            )
            for name in names or NAMES
        ]

    def change(self, *names: str, key: int = 1) -> None:
        for name in names:
            with self.databases[name].transaction() as t:
                t.insert("inventory.orders", {"id": key, "note": ""})

    def events(self) -> dict[str, int]:
        """By connector, what its change log holds."""
        log = ChangeLog(f"{self.folder}/changelog")
        return {name: sum(m.event_count for m in log.read_manifests(name)) for name in NAMES}


@pytest.fixture
def connector_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ConnectorGroup]:
    url = f"sqlite:///{tmp_path}/state.db"
    store = StateStore(url, lease_ttl_s=5, patience_s=1)
    store.create_tables()
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password=url)
    connector_group = ConnectorGroup({}, store, tmp_path)
    for name in NAMES:
        connector_group.databases[name] = database = MemoryDatabase(f"group-{name}")
        database.create_table("inventory.orders", SHOP, key=("id",))
        connect(monkeypatch, name, conn_type="cdc_memory", host=database.name)
    connector_group.change(*NAMES)
    yield connector_group
    store.close()


def capture(connectors: list[GroupedConnector], **more: Any) -> CaptureGroupOperator:
    return CaptureGroupOperator(task_id="capture", connectors=connectors, **more)


def run(connectors: list[GroupedConnector], **more: Any) -> Any:
    return capture(connectors, **more).execute(context())


# -- all goes well -----------------------------------------------------------------------------------------------------


def test_each_connector_has_its_own_result_state_and_change_log(connector_group: ConnectorGroup) -> None:
    found = run(connector_group.of())
    assert found["quiet"] == 0
    assert {name: one["events"] for name, one in found["connectors"].items()} == dict.fromkeys(NAMES, 1)
    assert found["connectors"]["c3"]["topics"] == {"c3.inventory.orders": 1}
    assert found["connectors"]["c3"]["topic_prefix"] == "c3"
    assert connector_group.events() == dict.fromkeys(NAMES, 1)
    for name in NAMES:
        row = connector_group.store.find_connector(name)
        assert row is not None
        assert (row.last_batch, row.owner, row.last_error) == (1, None, None)
        assert row.registration is not None
        assert row.registration.connections == {"source": name, "state": "cdc_state_default", "dag": "d"}


@pytest.mark.parametrize("check_first", [True, False])
def test_those_that_have_nothing_to_capture_are_counted_and_stay_as_they_are(
    connector_group: ConnectorGroup, *, check_first: bool
) -> None:
    run(connector_group.of())
    connector_group.change("c1", "c4", key=2)
    found = run(connector_group.of(), check_first=check_first)
    assert {name for name, one in found["connectors"].items() if one["events"]} == {"c1", "c4"}
    assert set(found["connectors"]) == ({"c1", "c4"} if check_first else set(NAMES))
    assert connector_group.events() == {name: 2 if name in ("c1", "c4") else 1 for name in NAMES}


def test_a_look_asks_each_source_once_however_many_connectors_it_has(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = [
        GroupedConnector(
            definition=ConnectorDefinition(
                name,
                "memory",
                f"{connector_group.folder}/changelog",
                {"table.include.list": rf"inventory\.(orders|{name})"},
            ),
            conn_id="c0",
        )
        for name in NAMES
    ]
    run(one)
    requests: list[int] = []
    ask = MemorySource.current_position

    def count_and_ask(self: MemorySource) -> Any:
        requests.append(1)
        return ask(self)

    monkeypatch.setattr(MemorySource, "current_position", count_and_ask)
    assert [looked.reason for looked in inspect_changes(capture(one).connector_accesses)] == [None] * 6
    assert requests == [1]
    connector_group.change("c0", key=2)
    assert {looked.reason for looked in inspect_changes(capture(one).connector_accesses)} == {
        "the log has advanced to entry 3"
    }


def test_paused_ones_are_left_out_and_are_no_failure(connector_group: ConnectorGroup) -> None:
    connector_group.store.set_control("c2", DesiredState.PAUSED, "ann", "upgrade")
    for check_first in (True, False):
        assert set(run(connector_group.of(), check_first=check_first)["connectors"]) == set(NAMES) - {"c2"}
    assert connector_group.events()["c2"] == 0


# -- what fails --------------------------------------------------------------------------------------------------------


def broken_purged(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> list[GroupedConnector]:
    """A person must act: the log does not go back to the offset any more."""
    group.databases["c2"].purge_log()
    return group.of()


def broken_property(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> list[GroupedConnector]:
    """A person must act."""
    return [*group.of("c0", "c1"), *group.of("c2", **{"table.include.lsit": "x"}), *group.of("c3", "c4", "c5")]


def broken_connection(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> list[GroupedConnector]:
    """A person must act: there is no such connection."""
    monkeypatch.delenv("AIRFLOW_CONN_C2")
    return group.of()


def broken_code(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> list[GroupedConnector]:
    """A mistake in a source."""
    ask = MemorySource.discover_tables

    def discover(self: MemorySource, needed: Any) -> Any:
        if self._db.name == "group-c2":
            raise ZeroDivisionError("a mistake")
        return ask(self, needed)

    monkeypatch.setattr(MemorySource, "discover_tables", discover)
    return group.of()


@pytest.mark.parametrize(
    ("broken", "terminal", "message"),
    [
        (broken_purged, True, r"snapshot\.mode=when_needed"),
        (broken_property, True, r"table\.include\.lsit: unknown property"),
        (broken_connection, True, "Connection c2, with"),
        (broken_code, False, "ZeroDivisionError: a mistake"),
    ],
)
@pytest.mark.parametrize("check_first", [True, False])
def test_one_that_fails_keeps_no_other_from_being_captured_and_the_task_names_it(
    connector_group: ConnectorGroup,
    monkeypatch: pytest.MonkeyPatch,
    broken: Any,
    *,
    terminal: bool,
    message: str,
    check_first: bool,
) -> None:
    run(connector_group.of())
    connector_group.change(*NAMES, key=2)
    connectors = broken(connector_group, monkeypatch)
    with pytest.raises(AirflowException, match=f"1 of 6 connectors failed(.|\n)*c2: (.|\n)*{message}") as e:
        run(connectors, check_first=check_first)
    assert isinstance(e.value, AirflowFailException) == terminal
    assert connector_group.events() == {name: 1 if name == "c2" else 2 for name in NAMES}
    if broken is broken_purged:
        row = connector_group.store.find_connector("c2")
        assert row is not None
        assert "when_needed" in str(row.last_error)


def test_one_that_another_run_takes_over_fails_the_task_and_stays_as_that_run_leaves_it(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    discover_tables = MemorySource.discover_tables

    def take_over_first(self: MemorySource, needed: Any) -> Any:
        if self._db.name == "group-c2":
            with connector_group.store.database.open_transaction() as c:
                taken = {"epoch": LeaseRow.epoch + 1, "owner": "another run"}
                c.execute(sa.update(LeaseRow).where(LeaseRow.connector == "c2").values(taken))
        return discover_tables(self, needed)

    monkeypatch.setattr(MemorySource, "discover_tables", take_over_first)
    with pytest.raises(AirflowException, match="LeaseLost: Connector c2 was taken over by another run"):
        run(connector_group.of())
    record = connector_group.store.find_connector("c2")
    assert record is not None
    assert record.last_error is None


def test_if_one_of_them_may_succeed_later_the_task_is_tried_again(connector_group: ConnectorGroup) -> None:
    run(connector_group.of())
    connector_group.change(*NAMES, key=2)
    connector_group.databases["c2"].purge_log()
    with connector_group.store.acquire_lease("c4", "somebody else", wait_s=0), pytest.raises(AirflowException) as e:
        run(connector_group.of(), lease_wait=0.0)
    assert not isinstance(e.value, AirflowFailException)
    assert "2 of 6" in str(e.value)
    assert "somebody else" in str(e.value)
    assert connector_group.events() == {name: 1 if name in ("c2", "c4") else 2 for name in NAMES}


def test_state_tables_that_cannot_be_asked_fail_the_task(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "cdc_state_default", conn_type="cdc_state", password="")
    with pytest.raises(AirflowFailException, match=cdc_command("setup")):
        run(connector_group.of())


def test_a_task_that_is_ended_commits_what_it_has_begins_no_further_one_and_is_tried_again(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()
    ask = MemorySource.discover_tables

    def discover(self: MemorySource, needed: Any) -> Any:
        if self._db.name == "group-c2":
            reading.set()
            assert go_on.wait(300)
        return ask(self, needed)

    monkeypatch.setattr(MemorySource, "discover_tables", discover)
    operator, ended = capture(connector_group.of()), list[Exception]()

    def execute() -> None:
        try:
            operator.execute(context())
        except AirflowException as e:
            ended.append(e)

    running = threading.Thread(target=execute)
    running.start()
    wait_until(reading.is_set, "the third one is being captured")
    operator.on_kill()
    go_on.set()
    running.join(300)
    assert "the next try continues" in str(ended[0])
    assert not isinstance(ended[0], AirflowFailException)
    assert [name for name, events in connector_group.events().items() if events] in (["c0", "c1"], ["c0", "c1", "c2"])
    found = run(connector_group.of())
    assert {"c3", "c4", "c5"} <= set(found["connectors"])
    assert connector_group.events() == dict.fromkeys(NAMES, 1)


# -- what is known when the DAG is parsed ---------------------------------------------------------------------------------


def test_a_group_needs_connectors_each_once_and_without_secrets(connector_group: ConnectorGroup) -> None:
    for wrong in ([], connector_group.of("c0", "c0")):
        with pytest.raises(ConfigError, match="each connector only once"):
            capture(wrong)
    secret = GroupedConnector(
        definition=ConnectorDefinition("s", "mariadb", "/lake", {"database.password": "sesame"}), conn_id="s"
    )
    for made in (CaptureGroupOperator, AnyChangesSensor):
        with pytest.raises(ConfigError, match=r"database\.password") as e:
            made(task_id="t", connectors=[*connector_group.of(), secret])
        assert "sesame" not in str(e.value)


def test_paths_properties_and_connections_are_templates(connector_group: ConnectorGroup) -> None:
    definition = ConnectorDefinition("a", "memory", "/lake/{{ ds }}", {"topic.prefix": "p{{ ds }}"}, {"x": "{{ ds }}"})
    operator = capture([GroupedConnector(definition=definition, conn_id="{{ ds }}", storage_conn_id="s{{ ds }}")])
    operator.render_template_fields({"ds": "7"})  # type: ignore[typeddict-item]
    (access,) = operator.connector_accesses
    assert access.definition == ConnectorDefinition("a", "memory", "/lake/7", {"topic.prefix": "p7"}, {"x": "7"})
    assert (access.conn_id, access.storage_conn_id, access.state_conn_id) == ("7", "s7", "cdc_state_default")
    assert ConnectorsLink().get_link(operator, ti_key=None) == page_link("/plugin/cdc/")  # type: ignore[arg-type]


# -- waiting -----------------------------------------------------------------------------------------------------------


def sensor(group: ConnectorGroup, **more: Any) -> AnyChangesSensor:
    return AnyChangesSensor(**{"task_id": "wait", "connectors": group.of(), "poll_interval": 0.1, **more})


def defer_sensor(group: ConnectorGroup, **arguments: Any) -> Any:
    with pytest.raises(TaskDeferred) as e:
        sensor(group, **arguments).execute(context())
    return deserialize_trigger(e.value.trigger)


def test_the_sensor_waits_in_the_triggerer_until_any_of_them_has_changes(connector_group: ConnectorGroup) -> None:
    run(connector_group.of())

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(defer_sensor(connector_group), within=LONGEST_S))
        await asyncio.sleep(1)
        assert not waiting.done()
        connector_group.change("c3", key=2)
        event = await waiting
        assert event == {"connector": "c3", "reason": "the log has advanced to entry 3"}
        sensor(connector_group).execute_complete(context(), event)

    asyncio.run(run_story())


def test_one_that_is_down_does_not_end_the_waiting_for_the_others(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(connector_group.of())
    with pytest.raises(TaskDeferred) as e:
        sensor(
            connector_group, connectors=[*connector_group.of(), connect_unreachable(connector_group, monkeypatch)]
        ).execute(context())
    trigger = deserialize_trigger(e.value.trigger)

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(trigger, within=LONGEST_S))
        await asyncio.sleep(1)
        assert not waiting.done()
        connector_group.change("c0", key=2)
        assert (await waiting)["connector"] == "c0"

    asyncio.run(run_story())


def break_source(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in a source."""
    ask = MemorySource.current_position

    def current_position(self: MemorySource) -> Any:
        if self._db.name == "group-c2":
            raise ZeroDivisionError("a mistake")
        return ask(self)

    monkeypatch.setattr(MemorySource, "current_position", current_position)


def no_connection(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_C2")


def spoil_state(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write an offset such as a later release may have written."""
    with group.store.database.engine.begin() as c:
        c.execute(sa.update(OffsetRow).where(OffsetRow.connector == "c2").values(offset={"seq": "a later release"}))


BROKEN = [
    (break_source, "a mistake"),
    (no_connection, "Connection c2, with"),
    (spoil_state, "a later release"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_one_that_is_broken_does_not_end_the_waiting_for_the_others_and_is_reported_after_a_pause(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch, broken: Any, message: str
) -> None:
    run(connector_group.of())
    broken(connector_group, monkeypatch)

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(defer_sensor(connector_group), within=LONGEST_S))
        await asyncio.sleep(1)
        assert not waiting.done()
        connector_group.change("c1", key=2)
        assert (await waiting)["connector"] == "c1"
        monkeypatch.setattr(any_changes, "PAUSE_S", 0.1)
        await asyncio.to_thread(run, connector_group.of("c1"))
        event = await await_first_event(defer_sensor(connector_group), within=LONGEST_S)
        assert event["connector"] == "c2"
        assert message in event["reason"]

    asyncio.run(run_story())
    with pytest.raises(AirflowException, match=rf"1 of 6 connectors failed[\s\S]*c2: [\s\S]*{message}"):
        run(connector_group.of())


@pytest.mark.parametrize("broken", [break_source, no_connection])
def test_a_check_in_a_worker_identifies_the_broken_connector(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    run(connector_group.of())
    broken(connector_group, monkeypatch)
    connector_group.change("c4", key=2)
    polled = CallCounter(monkeypatch, StateStore, "load_records")
    looked = {
        one.access.definition.name: one for one in inspect_changes(capture(connector_group.of()).connector_accesses)
    }
    assert polled.calls == 1
    assert looked.pop("c2").error is not None
    assert {name for name, one in looked.items() if one.reason} == {"c4"}


def test_one_that_was_mended_in_the_pause_is_waited_for_again(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(connector_group.of())
    monkeypatch.setattr(any_changes, "PAUSE_S", 0.5)
    monkeypatch.delenv("AIRFLOW_CONN_C2")
    looked = CallCounter(monkeypatch, ConnectorAccess, "resolve_properties")

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(defer_sensor(connector_group), within=LONGEST_S))
        await asyncio.to_thread(wait_until, lambda: looked.calls >= len(NAMES), "all were looked up")
        connect(monkeypatch, "c2", conn_type="cdc_memory", host="group-c2")
        connector_group.change("c2", key=2)
        assert await waiting == {"connector": "c2", "reason": "the log has advanced to entry 3"}

    asyncio.run(run_story())


def test_one_that_has_failed_begins_no_further_run_until_the_pause_is_over(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule without a pause would make one failed run after the other."""
    run(connector_group.of())
    connector_group.change("c2", key=2)
    connector_group.databases["c2"].purge_log()
    with pytest.raises(AirflowFailException):
        run(connector_group.of())

    async def run_story() -> None:
        waiting = asyncio.create_task(await_first_event(defer_sensor(connector_group), within=LONGEST_S))
        await asyncio.sleep(1)
        assert not waiting.done()
        connector_group.change("c1", key=2)
        assert (await waiting)["connector"] == "c1"
        await asyncio.to_thread(run, connector_group.of("c1"))
        waiting = asyncio.create_task(
            await_first_event(defer_sensor(connector_group, retry_after=0.1), within=LONGEST_S)
        )
        assert (await waiting)["connector"] == "c2"

    asyncio.run(run_story())


def test_one_that_waits_for_a_repair_fails_no_run_of_the_others(connector_group: ConnectorGroup) -> None:
    run(connector_group.of())
    connector_group.change("c2", key=2)
    connector_group.databases["c2"].purge_log()
    connector_group.change("c1", key=2)
    with pytest.raises(AirflowFailException, match="c2"):
        run(connector_group.of(), retry_after=3600)
    connector_group.change("c1", key=3)
    found = run(connector_group.of(), retry_after=3600)
    assert list(found["connectors"]) == ["c1"]
    with pytest.raises(AirflowFailException, match="c2"):  # its hour is over
        run(connector_group.of(), retry_after=0.001)
    connector_group.store.request_restart("c2", "ada")
    with pytest.raises(AirflowFailException, match="c2"):
        run(connector_group.of(), retry_after=3600)


def test_one_that_fails_before_its_capture_can_begin_has_failed_for_the_sensor_too(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(connector_group.of())
    connector_group.change("c2", key=2)

    def raise_closed(*_: Any) -> Any:
        raise ConfigError("no such folder")

    with monkeypatch.context() as only_now:
        only_now.setattr("airflow_provider_cdc.channels.open_notifications", raise_closed)
        with pytest.raises(AirflowFailException, match="no such folder"):
            run(connector_group.of())
    row = connector_group.store.find_connector("c2")
    assert row is not None
    assert row.failed_at is not None
    assert "no such folder" in str(row.last_error)
    run(connector_group.of())
    row = connector_group.store.find_connector("c2")
    assert row is not None
    assert row.failed_at is None


def connect_unreachable(group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> GroupedConnector:
    """A connector to a source where no one listens."""
    connect(monkeypatch, "far", conn_type="cdc_mariadb", host="127.0.0.1", port=1, login="u", password="p")
    definition = ConnectorDefinition("far", "mariadb", f"{group.folder}/changelog", {"database.server.id": 7})
    with group.store.acquire_lease("far", "a test", wait_s=0) as lease:
        group.store.advance_offset(
            lease, group.store.load_offset("far"), Offset(position={"file": "binlog.000001", "pos": 4})
        )
    return GroupedConnector(definition=definition, conn_id="far")


def test_behind_a_sensor_a_source_that_is_down_is_left_out_and_without_one_it_is_a_failure(
    connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    connectors = [connect_unreachable(connector_group, monkeypatch), *connector_group.of()]
    found = run(connectors, skip_unreachable=True)
    assert (found["unreachable"], found["quiet"], sorted(found["connectors"])) == (["far"], 0, NAMES)
    # nothing else is captured: a sensor that reaches what this worker does not would begin one run after the other
    for skip in (False, True):
        with pytest.raises(AirflowException, match=r"1 of 7 connectors failed[\s\S]*far: ") as e:
            run(connectors, skip_unreachable=skip)
        assert not isinstance(e.value, AirflowFailException)


def test_a_trigger_for_100_connectors_fits_into_a_column_of_mysql() -> None:
    """Airflow keeps its arguments encrypted as text, of which MySQL takes 64 KB."""
    words = [
        a + b for a in ("order", "invoice", "parcel", "stock", "audit") for b in ("", "s_log", "_line", "_tax", "_eu")
    ]
    accesses = []
    for number in range(100):
        lists = "|".join(rf"erp_{number}\.{words[(number * 7 + n * 11) % 25]}_{(number * n) % 97}" for n in range(25))
        properties = {
            "database.server.id": 5000 + number,
            "table.include.list": lists,
            "decimal.handling.mode": "string",
        }
        definition = ConnectorDefinition(f"erp_{number}", "mariadb", "s3://lake/changelog", properties, {"anon": False})
        accesses.append(ConnectorAccess(definition, f"erp_{number}_mariadb", "cdc_state_default", "lake"))
    trigger = deserialize_trigger(any_changes.AnyChangesTrigger.from_accesses(accesses))
    path, arguments = trigger.serialize()
    assert path == "airflow_provider_cdc.triggers.any_changes.AnyChangesTrigger"
    encrypted = Fernet(Fernet.generate_key()).encrypt(json.dumps(arguments).encode())
    plain = json.dumps([access.to_document() for access in accesses])
    assert len(encrypted) < 65_535 < len(plain), (len(encrypted), len(plain))


def test_in_a_worker_it_looks_at_all_of_them(connector_group: ConnectorGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    run(connector_group.of())
    poke = sensor(connector_group, deferrable=False).poke
    assert not poke(context())
    connector_group.change("c1", key=2)
    assert poke(context())
    run(connector_group.of())
    assert not poke(context())
    monkeypatch.delenv("AIRFLOW_CONN_C2")
    assert poke(context())
