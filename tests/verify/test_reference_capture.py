"""Preparing a comparison beside a connector that continues: what is read of the source, and which batches come after it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import ChangeLogDamaged, ConfigError, ConnectorHalted, TransientError
from airflow_provider_cdc.core.spi.store_interfaces import DesiredState
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.verify.reference_capture import FOLDER, Verification, open_verification
from airflow_provider_cdc.verify.verification_documents import VerificationPlan
from tests.support.connectors import Connector, memory_connector

ODD = 's.it\'s, "odd" `x`'
COLUMNS = {"id": "int64!", "note": "string"}


@pytest.fixture
def connector(tmp_path: Path) -> Connector:
    database = MemoryDatabase(str(tmp_path))
    database.create_table("s.orders", COLUMNS, key=("id",))
    database.create_table("s.bag", {"a": "int32"})
    database.create_table(ODD, COLUMNS, key=("id",))
    connector = memory_connector(database, tmp_path, topic_prefix="p", signal_data_collection="s.signals")
    database.create_table("s.signals", {"id": "string", "type": "string", "data": "string"})
    connector.database = database  # type: ignore[attr-defined]
    _write(connector, 1)
    connector.capture()
    return connector


def _write(connector: Connector, key: int, *tables: str) -> None:
    with connector.database.transaction() as t:  # type: ignore[attr-defined]
        for table in tables or ("s.orders", "s.bag", ODD):
            t.insert(table, {"a": key} if table == "s.bag" else {"id": key, "note": f"n{key}"})


@contextlib.contextmanager
def _open_reference(
    connector: Connector, meanwhile: Callable[[], object] | None = None, **options: Any
) -> Iterator[Verification]:
    """:param meanwhile: what happens each time, after the source was read"""
    definition = connector.definition(**options.pop("properties", {}))
    with open_verification(definition, connector.state_url, secrets=connector.secrets, **options) as verification:
        wait = verification._wait

        def wait_and_change(*given: Any) -> None:
            if meanwhile is not None:
                meanwhile()
            wait(*given)

        verification._wait = wait_and_change  # type: ignore[method-assign]
        yield verification


def _keys(verification: Verification, name: str, topic: str) -> int:
    """Rows of a topic in a reference."""
    manifests = verification.scratch.read_manifests(name)
    return sum(f.rows for m in manifests for f in m.files if f.topic == topic)


def test_at_a_position_between_two_batches_the_next_one_is_the_first(connector: Connector) -> None:
    with _open_reference(connector) as verification:
        plan = verification.prepare_plan(wait_s=1)
        (point,) = plan.references
        assert (point.first, point.straddles) == (2, False)
        assert point.topics == ("p.s.bag", "p.s.it_s___odd___x_", "p.s.orders")
        assert [_keys(verification, point.name, topic) for topic in point.topics] == [1, 1, 1]
        assert VerificationPlan.read(verification.scratch.storage) == plan
        assert "wait" not in plan.not_compared
    assert not connector.changelog.storage.list(f"{connector.changelog.storage.root}/{FOLDER}")


def test_nothing_of_it_reaches_the_connector(connector: Connector) -> None:
    before = connector.store.load_offset(connector.name), connector.store.list_notifications(connector.name)
    properties = {"notification.enabled.channels": "sink", "notification.sink.topic.name": "told"}
    with _open_reference(connector, properties=properties) as verification:
        verification.prepare_plan()
        assert connector.changelog.list_connectors() == [connector.name]
        for manifest in verification.scratch.read_manifests("test-verify-1"):
            assert not {name for name in manifest.config if name.startswith("notification.")}
            assert "p.s.signals" not in {f.topic for f in manifest.files}
    assert (connector.store.load_offset(connector.name), connector.store.list_notifications(connector.name)) == before
    assert [row.connector for row in connector.store.list_connectors()] == [connector.name]
    assert connector.changelog.list_batches(connector.name) == [1]


def test_a_position_within_a_batch_makes_it_the_first_and_tables_without_a_key_are_read_again(
    connector: Connector,
) -> None:
    _write(connector, 2)
    writes = iter([(3,), (4, "s.orders"), ()])

    def change_meanwhile() -> None:
        if given := next(writes):
            _write(connector, *given)
        connector.capture()

    with _open_reference(connector, change_meanwhile) as verification:
        plan = verification.prepare_plan()
        first, second = plan.references
        assert (first.first, first.straddles, first.topics) == (2, True, ("p.s.it_s___odd___x_", "p.s.orders"))
        assert _keys(verification, first.name, "p.s.orders") == 2
        # batch 3 begins where the bag was read the second time
        assert (second.first, second.straddles, second.topics) == (3, False, ("p.s.bag",))
        assert _keys(verification, second.name, "p.s.bag") == 3
        assert _keys(verification, second.name, "p.s.orders") == 0


def test_a_table_without_a_key_that_is_always_written_to_is_left_to_the_job(connector: Connector) -> None:
    keys = iter(range(2, 100))

    def change_meanwhile() -> None:
        _write(connector, next(keys))
        connector.capture()

    with _open_reference(connector, change_meanwhile) as verification:
        _write(connector, next(keys))
        read = verification._read

        def written_to(tables: Any) -> Any:
            _write(connector, next(keys))
            return read(tables)

        verification._read = written_to  # type: ignore[method-assign]
        plan = verification.prepare_plan()
    assert [(p.straddles, "p.s.bag" in p.topics) for p in plan.references] == [
        (True, False), (True, False), (True, True),
    ]  # fmt: skip


def test_only_tables_that_are_meant_are_read_whatever_their_names(connector: Connector) -> None:
    with _open_reference(connector) as verification:
        (point,) = verification.prepare_plan([r"S\.it's.*", r"s\.it.*"]).references
        assert point.topics == ("p.s.it_s___odd___x_",)
        assert _keys(verification, point.name, "p.s.orders") == 0
        with pytest.raises(ConfigError, match="No captured table of connector test matches orders"):
            verification.prepare_plan(["orders"])
        with pytest.raises(
            ConfigError, match=r"connector test matches s.ordres\.(.|\n)*captured tables: s\.bag, s\.it"
        ):
            verification.prepare_plan("s.bag, s.ordres")
        with pytest.raises(ConfigError, match="not a regular expression"):
            verification.prepare_plan(["("])


def test_tables_of_which_rows_were_left_out_are_not_compared(connector: Connector) -> None:
    with _open_reference(
        connector, properties={"snapshot.include.collection.list": r"s\.(orders|bag)"}
    ) as verification:
        plan = verification.prepare_plan()
    assert plan.references[0].topics == ("p.s.bag", "p.s.orders")
    assert plan.not_compared == {"p.s.it_s___odd___x_": "snapshot.include.collection.list leaves out its earlier rows"}


@pytest.mark.parametrize("letters", ["c", "u", "d", "t", "t,d"])
def test_where_changes_are_left_out_no_one_can_say_what_a_table_ought_to_have(
    connector: Connector, letters: str
) -> None:
    """Rows that the connector is configured to keep would be surplus, and a repair would delete them."""
    with (
        _open_reference(connector, properties={"skipped.operations": letters}) as verification,
        pytest.raises(ConfigError, match=r"None of the \d selected tables .* can be verified") as error,
    ):
        verification.prepare_plan()
    assert "skipped.operations leaves out changes of the table" in str(error.value)


def test_tables_of_events_are_not_read_and_nothing_that_can_be_compared_is_an_error(connector: Connector) -> None:
    route = {"by": "note", "location": "/lake/{value}"}
    rules = TableRules.parse(
        [
            {"tables": r"s\.bag", "mode": "log", "route": {"by": "a", "location": "/log/{value}"}},
            {"tables": r"s\.orders", "route": route},
            {"tables": "s.it.*", "outbox": {"table.field.event.key": "note", "table.field.event.payload": "note"}},
        ]
    )
    with _open_reference(connector) as verification:
        plan = verification.prepare_plan(rules=rules)
        assert plan.references[0].topics == ("p.s.orders",)
        assert {t: why.split(":")[0] for t, why in plan.not_compared.items()} == {
            "p.s.bag": "its rule has mode log",
            "p.s.it_s___odd___x_": "its rule is an outbox",
        }
        assert not plan.named
        named = verification.prepare_plan(r"s\.(orders|bag)", rules=rules)
        assert named.named
        assert VerificationPlan.read(verification.scratch.storage) == named
        with pytest.raises(
            ConfigError, match="None of the 1 selected tables of connector test can be verified"
        ) as error:
            verification.prepare_plan([r"s\.bag"], rules=rules)
        assert "s.bag: its rule has mode log" in str(error.value)


def test_a_capture_that_does_not_come_there_is_named(connector: Connector) -> None:
    _write(connector, 2)
    with _open_reference(connector) as verification:
        with pytest.raises(TransientError, match=r"has not reached entry \d+, .* within 0 s.*it is at entry") as late:
            verification.prepare_plan(wait_s=0)
        assert "airflow cdc status test" in str(late.value)
        connector.store.set_control(connector.name, DesiredState.PAUSED, "me")
        with pytest.raises(ConnectorHalted, match="is paused, and has not reached"):
            verification.prepare_plan()
        assert connector.changelog.list_batches(connector.name) == [1]
    connector.store.set_control(connector.name, DesiredState.RUNNING, "me")
    connector.capture()
    connector.store.set_control(connector.name, DesiredState.PAUSED, "me")
    with _open_reference(connector) as verification:  # it is there already
        assert verification.prepare_plan(wait_s=0).references[0].first == 3


def test_batches_that_are_gone_are_an_error(connector: Connector) -> None:
    def change_meanwhile() -> None:
        _write(connector, 2)
        connector.capture()
        Path(connector.changelog.path_of(connector.name, 2)).unlink()

    with (
        _open_reference(connector, change_meanwhile) as verification,
        pytest.raises(TransientError, match="Batch 2 of the change log is needed but no longer exists"),
    ):
        verification.prepare_plan()


def test_a_reference_of_which_batches_were_deleted_is_refused(connector: Connector) -> None:
    for key in range(2, 6):
        _write(connector, key)
    connector.capture()
    with _open_reference(connector, properties={"batch.max.rows": 2}) as verification:
        manifests = verification.scratch.read_manifests

        def write_fewer(name: str) -> Any:
            """The last one is deleted by someone who takes the comparison for dead."""
            Path(verification.scratch.path_of(name, max(verification.scratch.list_batches(name)))).unlink()
            return manifests(name)

        verification.scratch.read_manifests = write_fewer  # type: ignore[method-assign, assignment]
        with pytest.raises(TransientError, match=r"has \d of the \d batches that were written to it"):
            verification.prepare_plan()


def test_what_killed_comparisons_have_left_is_removed_and_nothing_else(connector: Connector, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    young = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-abcdef"
    for name in ("20200101T000000-abcdef", "kept-20200101T000000-abcdef", "mine", young):
        (scratch / name).mkdir(parents=True)
    with _open_reference(connector, scratch=f"{scratch}/", keep=True) as verification:
        verification.prepare_plan()
    kept = Path(verification.scratch.storage.root)
    assert kept.name.startswith("kept-")
    assert {p.name for p in scratch.iterdir()} == {"kept-20200101T000000-abcdef", "mine", young, kept.name}
    VerificationPlan.read(verification.scratch.storage)


def test_a_folder_without_a_plan_is_reported(connector: Connector) -> None:
    with pytest.raises(ChangeLogDamaged, match="plan of the verification does not exist"):
        VerificationPlan.read(connector.changelog.storage)
