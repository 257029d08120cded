"""Snapshot modes that the configuration, or people's own code, decides; queries of one's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.capture.connector_capture import CaptureResult
from airflow_provider_cdc.core.config.property_enums import SnapshotMode
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.entry_points import SNAPSHOT_LOCKS, SNAPSHOT_POLICIES, SNAPSHOT_QUERIES
from airflow_provider_cdc.core.errors import ConfigError, PositionLost, PrerequisiteError
from airflow_provider_cdc.core.lifecycle.log_gap import all_again
from airflow_provider_cdc.core.model.connector_offset import Offset
from airflow_provider_cdc.core.snapshot.snapshot_policy import never_reads, reads_rows, snapshot_policy
from airflow_provider_cdc.sources.memory import source as memory
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector
from tests.support.packages import install_package
from tests.support.signals import signal_state, snapshot
from tests.support.workloads.small_tables import equal, insert, operations

BASED = "snapshot.mode.configuration.based"
PREFIX = {"topic.prefix": "test"}

_CODE = """
from airflow_provider_cdc.core.snapshot.snapshot_policy import SnapshotPolicy

ASKED, TOLD, MADE, ANSWERS = [], [], [], {}


class Mine(SnapshotPolicy):
    def __init__(self, properties):
        MADE.append(properties)

    def should_snapshot_data(self, offset_exists, in_progress):
        ASKED.append((offset_exists, in_progress))
        return ANSWERS.get("data", lambda *a: False)(offset_exists, in_progress)

    def should_snapshot_schema(self, offset_exists, in_progress):
        return ANSWERS.get("schema", not offset_exists)

    def should_stream(self):
        return ANSWERS.get("stream", True)

    def should_snapshot_on_schema_error(self):
        return False

    def should_snapshot_on_data_error(self):
        return ANSWERS.get("on_data_error", False)

    def should_stream_from_snapshot(self):
        return ANSWERS.get("from_snapshot", True)

    def snapshot_completed(self):
        TOLD.append("completed")
        if "hook" in ANSWERS:
            raise RuntimeError("hook")

    def snapshot_aborted(self):
        TOLD.append("aborted")


class Half(SnapshotPolicy):
    def __init__(self, properties): ...


class Other:
    def __init__(self, properties): ...


def raises(properties):
    raise RuntimeError("no licence")


SELECTS = {}


def query(table, columns):
    ASKED.append((str(table), list(columns)))
    return SELECTS.get(table.name, "id > 0")


number = 7
"""


@pytest.fixture
def policy_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of an installed package with policies and a query."""
    names = {"mine": "Mine", "half": "Half", "other": "Other", "raises": "raises", "number": "number"}
    points = {name: f"{{module}}:{attribute}" for name, attribute in names.items()}
    points["gone"] = "no_such_module:Policy"
    queries = {"some": "{module}:query", "raises": "{module}:raises", "gone": "no_such_module:query"}
    folder = tmp_path / "policies"
    folder.mkdir()
    install_package(folder, monkeypatch, {SNAPSHOT_POLICIES: points, SNAPSHOT_QUERIES: queries}, _CODE)
    return importlib.import_module("added_policies")


@pytest.fixture
def connector_factory(db: MemoryDatabase, tmp_path: Path) -> Callable[..., Connector]:
    def make(*true: str, **properties: Any) -> Connector:
        connector = memory_connector(db, tmp_path, **{"snapshot_mode": "configuration_based", **properties})
        connector.properties |= {f"{BASED}.{name}": "true" for name in true}
        return connector

    return make


@pytest.fixture
def custom_connector_factory(
    policy_module: Any, connector_factory: Callable[..., Connector]
) -> Callable[..., Connector]:
    return lambda **properties: connector_factory(
        snapshot_mode="custom", snapshot_mode_custom_name="mine", **properties
    )


class _RunKilled(BaseException):
    pass


def _dies_within_the_snapshot(connector: Connector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends after the first table is durable, and before the second."""
    read, seen = memory._MemorySnapshot.read, []

    def reading(self: Any, chunk: Any) -> Any:
        seen.append(chunk.table)
        if len(set(seen)) > 1:
            raise _RunKilled
        yield from read(self, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(memory._MemorySnapshot, "read", reading)
        with pytest.raises(_RunKilled):
            connector.capture({"batch.max.rows": 1, "snapshot.max.threads": 1})
    offset = connector.store.load_offset("test").offset
    assert offset is not None
    assert list(offset.snapshot.pending) == ["shop.b"]


def _count_operations(connector: Connector, result: CaptureResult | None = None) -> dict[str, dict[str, int]]:
    return {t: dict(c) for t, c in operations(connector, result or connector.capture()).items()}


# configuration_based


def test_with_data_and_stream_each_run_reads_and_streams(
    db: MemoryDatabase, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("snapshot.data", "start.stream")
    assert _count_operations(connector) == {"a": {"r": 2}, "b": {"r": 2}}
    insert(db, "shop.a", 3)
    assert _count_operations(connector) == {"a": {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}
    equal(connector, db)


def test_with_data_alone_each_run_reads_and_ends(
    db: MemoryDatabase, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        "snapshot.data", table_include_list="shop.a", snapshot_include_collection_list="shop.b"
    )
    assert _count_operations(connector) == {}
    insert(db, "shop.a", 3)
    assert _count_operations(connector) == {}  # only the structure of it is read, and nothing is streamed
    assert connector.capture({f"{BASED}.start.stream": True, f"{BASED}.snapshot.data": False}).events == 0
    without = TableConfig.parse({**PREFIX, "snapshot.mode": "configuration_based", f"{BASED}.snapshot.data": True})
    assert not snapshot_policy(without).should_stream(), "by default it is not asked for"


def test_with_schema_and_stream_a_connector_streams_from_now_on(
    db: MemoryDatabase, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("snapshot.schema", "start.stream")
    assert _count_operations(connector) == {}
    assert [r.changes[0].type for r in connector.store.schema_history("test")] == ["CREATE", "CREATE"]
    insert(db, "shop.a", 3)
    assert _count_operations(connector) == {"a": {"c": 1}}  # no run skips what is between it and the last one
    db.create_table("shop.late", {"id": "int64!"}, key=("id",))
    assert _count_operations(connector) == {}
    without = TableConfig.parse({**PREFIX, "snapshot.mode": "configuration_based", f"{BASED}.start.stream": True})
    assert not snapshot_policy(without).should_snapshot_schema(False, False), "by default it is not asked for"


def test_with_stream_alone_a_connector_streams_from_the_oldest_position(
    db: MemoryDatabase, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory("start.stream")
    assert _count_operations(connector) == {"a": {"c": 2}, "b": {"c": 2}}
    equal(connector, db)


def test_a_configuration_with_which_a_run_would_do_nothing_is_refused(
    connector_factory: Callable[..., Connector],
) -> None:
    for connector in (connector_factory(), connector_factory("snapshot.on.data.error", "snapshot.on.schema.error")):
        with pytest.raises(ConfigError, match=r"start\.stream must be true; otherwise a run does nothing"):
            connector.capture()


def test_a_lost_position_reads_all_rows_where_that_is_wanted_and_an_interruption_changes_nothing(
    db: MemoryDatabase, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_factory("snapshot.schema", "start.stream")
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
    db.purge_log()
    with pytest.raises(PositionLost):
        connector.capture()
    connector.properties[f"{BASED}.snapshot.on.data.error"] = True
    _dies_within_the_snapshot(connector, monkeypatch)
    insert(db, "shop.a", 9)
    assert _count_operations(connector) == {"a": {"c": 1}, "b": {"t": 1, "r": 2}}
    equal(connector, db)


def test_position_lost_mode_snapshot_reads_rows_whatever_the_mode(
    db: MemoryDatabase, connector_factory: Callable[..., Connector], monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = connector_factory(snapshot_mode="no_data", position_lost_mode="snapshot")
    connector.capture()
    with db.transaction() as t:
        t.delete("shop.a", {"id": 1})
    db.purge_log()
    _dies_within_the_snapshot(connector, monkeypatch)
    connector.capture()
    equal(connector, db)


@pytest.mark.parametrize(("built", "tables"), [(True, ["shop.a", "shop.b"]), (False, ["shop.a"])])
def test_a_lost_history_is_built_again_where_that_is_wanted(
    db: MemoryDatabase, connector_factory: Callable[..., Connector], built: bool, tables: list[str]
) -> None:
    connector = connector_factory("snapshot.schema", "start.stream")
    if built:
        connector.properties[f"{BASED}.snapshot.on.schema.error"] = True
    connector.capture()
    insert(db, "shop.a", 3)
    engine = sa.create_engine(connector.state_url)
    with engine.begin() as connection:
        (table,) = [t for t in sa.inspect(engine).get_table_names() if t.endswith("schema_history")]
        connection.execute(sa.text(f"DELETE FROM {table}"))
    engine.dispose()
    assert _count_operations(connector) == {"a": {"c": 1}}
    records = list(connector.store.schema_history("test"))
    assert [str(c.id) for r in records for c in r.changes] == tables
    assert all(r.snapshot is built for r in records)
    connector.capture()
    assert list(connector.store.schema_history("test")) == records


@pytest.mark.parametrize("mode", ["configuration_based", "recovery"])
def test_only_recovery_builds_a_history_again_that_is_there(
    db: MemoryDatabase, connector_factory: Callable[..., Connector], mode: str
) -> None:
    connector = connector_factory("snapshot.schema", "start.stream", "snapshot.on.schema.error")
    connector.capture()
    db.add_column("shop.a", "more", "string")
    connector.capture({"snapshot.mode": mode})
    records = [r for r in connector.store.schema_history("test") for c in r.changes if c.id.name == "a"]
    # the statement that the stream reads then proves the structure of the catalog, which may have been ahead of the log
    assert [r.snapshot for r in records] == ([True, True, False] if mode == "recovery" else [True, False])
    assert records[-1].changes[0].table is not None
    assert records[-1].changes[0].table.column_names[-1] == "more"


# a policy of one's own


def test_a_policy_of_ones_own_is_made_and_asked_in_each_run(
    db: MemoryDatabase, policy_module: Any, custom_connector_factory: Callable[..., Connector]
) -> None:
    connector = custom_connector_factory(memory_block_rows=7)
    policy_module.ANSWERS["data"] = lambda exists, in_progress: not exists or len(policy_module.MADE) == 3
    assert _count_operations(connector) == {"a": {"r": 2}, "b": {"r": 2}}
    assert set(policy_module.ASKED) == {(False, False)}
    policy_module.ASKED.clear()
    insert(db, "shop.a", 3)
    assert _count_operations(connector) == {"a": {"c": 1}}
    assert (True, False) in policy_module.ASKED
    assert policy_module.TOLD == ["completed"]
    assert _count_operations(connector) == {"a": {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}
    assert len(policy_module.MADE) == 3
    assert policy_module.MADE[0]["memory.block.rows"] == 7
    assert policy_module.TOLD == ["completed", "completed"]
    equal(connector, db)


def test_a_policy_may_say_that_nothing_is_done_and_the_connector_begins_another_day(
    db: MemoryDatabase,
    policy_module: Any,
    custom_connector_factory: Callable[..., Connector],
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy_module.ANSWERS |= {"schema": False, "stream": False}
    connector = custom_connector_factory()
    assert connector.capture().position == ""
    assert "this run does nothing" in caplog.text
    assert connector.store.load_offset("test").offset is None
    policy_module.ANSWERS |= {"data": lambda exists, in_progress: not exists, "stream": True}
    assert _count_operations(connector) == {"a": {"r": 2}, "b": {"r": 2}}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (lambda exists, in_progress: in_progress or not exists, {"b": {"r": 2}}),
        (lambda exists, in_progress: True, {"a": {"t": 1, "r": 2}, "b": {"r": 2}}),
        (lambda exists, in_progress: not exists, {}),
    ],
    ids=["goes on", "begins anew", "structures only"],
)
def test_a_policy_learns_that_a_snapshot_was_interrupted(
    policy_module: Any,
    custom_connector_factory: Callable[..., Connector],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    data: Any,
    expected: dict[str, Any],
) -> None:
    policy_module.ANSWERS["data"] = data
    connector = custom_connector_factory()
    _dies_within_the_snapshot(connector, monkeypatch)
    assert policy_module.TOLD == ["aborted"]
    policy_module.ASKED.clear()
    assert _count_operations(connector) == expected
    assert (True, True) in policy_module.ASKED
    assert policy_module.TOLD == ["aborted", "completed"]
    assert ("the rows of these tables are not read" in caplog.text) == (not expected)


@pytest.mark.parametrize("from_snapshot", [True, False])
def test_a_policy_says_where_a_connector_goes_on_that_reads_all_again(
    db: MemoryDatabase, policy_module: Any, custom_connector_factory: Callable[..., Connector], from_snapshot: bool
) -> None:
    """If it continues at the snapshot, the changes in between are in the rows that are read, and nowhere else."""
    policy_module.ANSWERS |= {"data": lambda *a: True, "from_snapshot": from_snapshot}
    connector = custom_connector_factory(snapshot_include_collection_list="shop.a")
    assert _count_operations(connector) == {"a": {"r": 2}}
    insert(db, "shop.a", 3)
    insert(db, "shop.b", 3)
    between = {"a": {"c": 1, "t": 1, "r": 3}, "b": {"c": 1}}
    assert _count_operations(connector) == ({"a": {"t": 1, "r": 3}} if from_snapshot else between)
    equal(connector, db, "shop.a")
    insert(db, "shop.a", 4)
    policy_module.ANSWERS["data"] = lambda *a: False
    assert _count_operations(connector) == {"a": {"c": 1}}


@pytest.mark.parametrize("from_snapshot", [True, False])
def test_a_policy_may_read_rows_first_when_the_connector_has_streamed(
    db: MemoryDatabase, policy_module: Any, custom_connector_factory: Callable[..., Connector], from_snapshot: bool
) -> None:
    policy_module.ANSWERS |= {"data": lambda exists, in_progress: exists, "from_snapshot": from_snapshot}
    connector = custom_connector_factory()
    assert _count_operations(connector) == {}
    insert(db, "shop.a", 3)
    between = {} if from_snapshot else {"c": 1}
    assert _count_operations(connector) == {"a": between | {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}
    equal(connector, db)


def test_tables_that_are_new_to_a_running_connector_are_read_as_its_first_ones_were(
    db: MemoryDatabase, policy_module: Any, custom_connector_factory: Callable[..., Connector]
) -> None:
    policy_module.ANSWERS["data"] = lambda exists, in_progress: not exists
    connector = custom_connector_factory(table_include_list="shop.a")
    assert _count_operations(connector) == {"a": {"r": 2}}
    connector.properties["table.include.list"] = "shop.a,shop.b"
    assert _count_operations(connector) == {"b": {"r": 2}}
    db.change_column("shop.a", "n", "string", str)
    assert _count_operations(connector) == {"a": {"t": 1, "r": 2}}
    equal(connector, db)


def test_a_policy_may_read_all_when_the_position_is_lost(
    db: MemoryDatabase, policy_module: Any, custom_connector_factory: Callable[..., Connector]
) -> None:
    connector = custom_connector_factory()
    connector.capture()
    insert(db, "shop.a", 3)
    db.purge_log()
    with pytest.raises(PositionLost):
        connector.capture()
    policy_module.ANSWERS["on_data_error"] = True
    assert _count_operations(connector) == {"a": {"t": 1, "r": 3}, "b": {"t": 1, "r": 2}}


def test_a_hook_that_fails_is_reported_and_what_was_read_is_read(
    policy_module: Any, custom_connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    policy_module.ANSWERS |= {"data": lambda *a: True, "hook": True}
    assert custom_connector_factory().capture().events == 4
    assert "snapshot_completed failed" in caplog.text


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("half", "Can't instantiate abstract class Half"),
        ("other", "it returns a Other, which is not a SnapshotPolicy"),
        ("raises", "it raises RuntimeError: no licence"),
        ("number", "is not callable"),
        ("gone", "it raises ModuleNotFoundError"),
    ],
)
def test_a_policy_that_cannot_be_used_ends_the_run_with_its_name(
    policy_module: Any, connector_factory: Callable[..., Connector], name: str, why: str
) -> None:
    connector = connector_factory(snapshot_mode="custom", snapshot_mode_custom_name=name)
    with pytest.raises(ConfigError) as caught:
        connector.capture()
    assert f"snapshot.mode.custom.name={name}" in caught.value.message
    assert why in caught.value.message
    assert connector.store.load_offset("test").offset is None


def test_an_answer_that_is_none_ends_the_run(
    policy_module: Any, custom_connector_factory: Callable[..., Connector]
) -> None:
    policy_module.ANSWERS["data"] = lambda *a: None
    with pytest.raises(ConfigError, match="should_snapshot_data returns None, which is neither True nor False"):
        custom_connector_factory().capture()

    def raise_key_error(*a: bool) -> bool:
        raise KeyError("x")

    policy_module.ANSWERS["data"] = raise_key_error
    with pytest.raises(ConfigError, match="should_snapshot_data cannot be used: it raises KeyError: 'x'"):
        custom_connector_factory().capture()


# names


@pytest.mark.parametrize(
    ("property_", "group", "names"),
    [
        ("snapshot.mode", SNAPSHOT_POLICIES, "gone, half, mine, number, other, raises"),
        ("snapshot.query.mode", SNAPSHOT_QUERIES, "gone, raises, some"),
    ],
)
def test_a_name_that_is_not_known_is_reported_with_those_that_are(
    policy_module: Any, property_: str, group: str, names: str
) -> None:
    first = names.split(", ")[-1]
    with pytest.raises(ConfigError) as caught:
        TableConfig.parse({**PREFIX, property_: "custom", f"{property_}.custom.name": f"{first}x"})
    reported = (
        f"{property_}.custom.name: '{first}x' is not installed; did you mean '{first}'? Valid values are: {names}"
    )
    assert reported in str(caught.value)
    assert group in str(caught.value)
    with pytest.raises(ConfigError, match=f"required by {property_}=custom, and not set"):
        TableConfig.parse({**PREFIX, property_: "custom"})


def test_where_no_package_is_installed_the_group_is_named() -> None:
    with pytest.raises(ConfigError, match=f"'mine' is not installed. No value is installed .*{SNAPSHOT_POLICIES}"):
        TableConfig.parse({**PREFIX, "snapshot.mode": "custom", "snapshot.mode.custom.name": "mine"})
    assert SNAPSHOT_LOCKS.startswith("airflow_provider_cdc.")


# what the modes answer


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("always", "data data data schema schema schema stream"),
        ("initial", "data - data schema - schema stream"),
        ("initial_only", "data - data schema - schema -"),
        ("no_data", "- - - schema - schema stream"),
        ("never", "- - - - - - stream"),
        ("recovery", "data - data schema - schema stream on_schema_error"),
        ("when_needed", "data - data schema - schema stream on_data_error"),
    ],
)
def test_the_built_in_modes_answer_the_same_questions(mode: str, expected: str) -> None:
    config = TableConfig.parse({**PREFIX, "snapshot.mode": mode})
    policy = snapshot_policy(config)
    states = [(False, False), (True, False), (True, True)]
    reported = ["data" if policy.should_snapshot_data(*s) else "-" for s in states]
    reported += ["schema" if policy.should_snapshot_schema(*s) else "-" for s in states]
    reported += ["stream" if policy.should_stream() else "-"]
    reported += ["on_schema_error"] * policy.should_snapshot_on_schema_error()
    reported += ["on_data_error"] * policy.should_snapshot_on_data_error()
    assert " ".join(reported) == expected
    assert policy.should_stream_from_snapshot()
    assert reads_rows(policy) is expected.startswith("data")
    assert never_reads(config) is (mode == "never")
    policy.snapshot_completed()
    policy.snapshot_aborted()


def test_every_mode_has_a_policy(policy_module: Any) -> None:
    more = {"snapshot.mode.custom.name": "mine", f"{BASED}.start.stream": True}
    for mode in SnapshotMode:
        config = TableConfig.parse({**PREFIX, "snapshot.mode": mode.value, **more})
        assert snapshot_policy(config).should_stream() is (mode is not SnapshotMode.INITIAL_ONLY)
        assert never_reads(config) is (mode in (SnapshotMode.NEVER, SnapshotMode.CONFIGURATION_BASED))
    assert TableConfig.parse(PREFIX).snapshot_mode is SnapshotMode.INITIAL


def test_a_gap_is_repaired_by_a_snapshot_only_where_rows_would_be_read(policy_module: Any) -> None:
    based = {**PREFIX, "snapshot.mode": "configuration_based", f"{BASED}.snapshot.schema": True}
    with pytest.raises(ConfigError, match="reads no rows"):
        all_again(Offset(position={"entry": 1}), TableConfig.parse(based))
    config = TableConfig.parse({**based, f"{BASED}.snapshot.data": True})
    assert all_again(Offset(position={"entry": 1}), config).position is None


# snapshot.query.mode


def test_a_query_of_ones_own_says_what_is_read_and_the_log_is_whole(
    db: MemoryDatabase, policy_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_mode="initial", snapshot_query_mode="custom", snapshot_query_mode_custom_name="some"
    )
    policy_module.SELECTS |= {"a": "id > 1", "b": None}
    assert _count_operations(connector) == {"a": {"r": 1}}
    assert sorted(policy_module.ASKED) == [("shop.a", ["id", "n", "note"]), ("shop.b", ["id", "n", "note"])]
    assert [r.changes[0].type for r in connector.store.schema_history("test")] == ["CREATE", "CREATE"]
    insert(db, "shop.a", 0)
    insert(db, "shop.b", 3)
    assert _count_operations(connector) == {"a": {"c": 1}, "b": {"c": 1}}
    assert len(policy_module.ASKED) == 2  # only for snapshots


def test_only_tables_whose_rows_are_read_are_asked_for(
    policy_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    query = {"snapshot_query_mode": "custom", "snapshot_query_mode_custom_name": "some"}
    connector_factory(snapshot_mode="no_data", topic_prefix="x", **query).capture()
    assert policy_module.ASKED == []


def test_a_request_with_a_statement_of_its_own_is_not_asked_for(
    policy_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_mode="initial", snapshot_query_mode="custom", snapshot_query_mode_custom_name="some"
    )
    connector.capture()
    policy_module.ASKED.clear()
    filters = [{"data-collection": "shop.a", "filter": "id > 1"}]
    number = snapshot(connector, "shop.a", "shop.b", type="blocking", additional_conditions=filters)
    policy_module.SELECTS["b"] = None
    assert _count_operations(connector) == {"a": {"r": 1}}
    assert [table for table, _ in policy_module.ASKED] == ["shop.b"]
    assert signal_state(connector, number)[0] == "done"


def test_a_query_that_the_database_refuses_ends_the_run_and_fails_no_request(
    policy_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_mode="initial", snapshot_query_mode="custom", snapshot_query_mode_custom_name="some"
    )
    connector.capture()
    number = snapshot(connector, "shop.a", type="blocking")
    policy_module.SELECTS["a"] = "nothing = 1"
    with pytest.raises(PrerequisiteError, match=r"snapshot\.query\.mode\.custom\.name for shop\.a") as caught:
        connector.capture()
    assert "nothing = 1" in (caught.value.where or "")
    assert signal_state(connector, number)[0] == "running"
    policy_module.SELECTS["a"] = "id = 1"
    assert _count_operations(connector)["a"]["r"] == 1
    assert signal_state(connector, number)[0] == "done"


def test_a_table_that_is_streamed_and_is_not_read_again_loses_nothing(
    db: MemoryDatabase, policy_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    """Changes since the last run are before the place at which other tables are read."""
    connector = connector_factory(
        snapshot_mode="initial", snapshot_query_mode="custom", snapshot_query_mode_custom_name="some"
    )
    connector.capture()
    policy_module.SELECTS |= {"a": "id > 0", "b": None}
    insert(db, "shop.a", 3)
    insert(db, "shop.b", 3)
    number = snapshot(connector, "shop.a", "shop.b", type="blocking")
    assert _count_operations(connector) == {"a": {"c": 1, "t": 1, "r": 3}, "b": {"c": 1}}
    assert signal_state(connector, number)[0] == "done"
    db.change_column("shop.b", "n", "string", str)  # rows would be read again
    with db.transaction() as t:
        t.insert("shop.b", {"id": 4, "n": "four"})
    assert _count_operations(connector) == {"b": {"c": 1}}


def test_a_table_that_was_left_out_for_a_while_begins_with_its_present_structure(
    db: MemoryDatabase, policy_module: Any, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(
        snapshot_mode="initial", snapshot_query_mode="custom", snapshot_query_mode_custom_name="some"
    )
    connector.capture()
    policy_module.SELECTS["b"] = None
    connector.capture({"table.include.list": "shop.a"})
    db.add_column("shop.b", "more", "string")
    insert(db, "shop.b", 3)
    assert _count_operations(connector) == {}
    insert(db, "shop.b", 4)
    assert _count_operations(connector) == {"b": {"c": 1}}
    records = [c for r in connector.store.schema_history("test") for c in r.changes if c.id.name == "b"]
    assert records[-1].table is not None
    assert records[-1].table.column_names[-1] == "more"


@pytest.mark.parametrize(
    ("name", "gives", "why"),
    [("raises", None, "it raises TypeError"), ("gone", None, "ModuleNotFoundError"), ("some", " ", "neither a statement nor None"),
     ("some", 7, "for shop.a, it returns 7")],
)  # fmt: skip
def test_a_query_that_cannot_be_used_ends_the_run(
    policy_module: Any, connector_factory: Callable[..., Connector], name: str, gives: Any, why: str
) -> None:
    connector = connector_factory(
        snapshot_mode="initial", snapshot_query_mode="custom", snapshot_query_mode_custom_name=name
    )
    policy_module.SELECTS["a"] = gives
    with pytest.raises(ConfigError, match=why) as caught:
        connector.capture()
    assert f"snapshot.query.mode.custom.name={name}" in caught.value.message
    assert connector.store.load_offset("test").offset is None
