"""``airflow cdc row``: what it shows, who may see it, and that each look is recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.changelog.row_history.row_history_models import RowHistory
from airflow_provider_cdc.core.model.connector_signal import SentSignal
from airflow_provider_cdc.core.spi.state_row_retention import StateRetention
from airflow_provider_cdc.operators.apply_to_database import ApplyToDatabaseOperator
from airflow_provider_cdc.services.row_history.row_history_lookup import RowQuery, row_keys
from tests.cli.conftest import capture, clean, run
from tests.support.airflow.airflow_connector import ShopConnector, connect, context, make_shop


@pytest.fixture(autouse=True)
def row_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "other, shop")


def _read_row_history(capfd: Any, *line: str) -> RowHistory:
    clean(capfd)
    run("row", *line, "--json")
    return RowHistory.model_validate_json(capfd.readouterr().out)


def _write_orders(shop_connector: ShopConnector) -> None:
    shop_connector.order(1, "one")
    capture(shop_connector)
    with shop_connector.database.transaction() as t:
        t.update("inventory.orders", {"id": 1}, {"note": "two"})
    with shop_connector.database.transaction() as t:
        t.update("inventory.orders", {"id": 1}, {"id": 7})
    capture(shop_connector)


def test_the_story_as_text(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    clean(capfd)
    run("row", "inventory.orders", "7")
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == 'inventory.orders id=7 (shop): id=7, note="two"'
    assert any("key change inventory.orders id=7, previously id=1" in line for line in lines)
    (changed,) = [line for line in lines if line.split()[:2] == ["*", "note"]]
    assert changed.split() == ["*", "note", '"one"', '"two"']
    assert any("captured 2" in line and "in the change log 2" in line for line in lines)
    assert lines[-1].startswith("Batches 1 to ")


def test_the_story_as_json(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    story = _read_row_history(capfd, "inventory.orders", '{"id": 7}')
    assert [change.operation for change in story.changes] == ["key change", "update", "read"]
    assert [change.changed for change in story.changes] == [["id"], ["note"], []]
    assert story.row.row == {"id": 7, "note": "two"}
    assert story.changes[0].previous_key == {"id": 1}
    assert story.changes[-1].snapshot is not None
    gone = _read_row_history(capfd, "inventory.orders", "1")
    assert gone.row.state == "no row"
    assert gone.changes[0].next_key == {"id": 7}


def test_as_of_a_time(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    times = [change.committed_at for change in _read_row_history(capfd, "inventory.orders", "7").changes]
    story = _read_row_history(capfd, "inventory.orders", "1", "--as-of", times[1])
    assert story.row.row == {"id": 1, "note": "two"}
    assert _read_row_history(capfd, "inventory.orders", "1", "--as-of", times[2]).row.row == {"id": 1, "note": "one"}
    assert _read_row_history(capfd, "inventory.orders", "7", "--as-of", times[1]).row.row is None
    with pytest.raises(SystemExit, match="not a time"):
        run("row", "inventory.orders", "1", "--as-of", "yesterday")


def test_compared_with_the_source(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    equal = _read_row_history(capfd, "inventory.orders", "7", "--compare").source
    assert equal is not None
    assert (equal.equal, equal.row) == (True, {"id": 7, "note": "two"})
    with shop_connector.database.transaction() as t:
        t.update("inventory.orders", {"id": 7}, {"note": "three"})
    later = _read_row_history(capfd, "inventory.orders", "7", "--compare").source
    assert later is not None
    assert (later.equal, later.different) == (False, ["note"])
    with shop_connector.database.transaction() as t:
        t.delete("inventory.orders", {"id": 7})
    gone = _read_row_history(capfd, "inventory.orders", "7", "--compare").source
    assert gone is not None
    assert (gone.equal, gone.row) == (False, None)


def test_masked_columns_stay_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    masked = {"column.mask.with.3.chars": r"inventory\.orders\.note"}
    shop_connector = make_shop(monkeypatch, tmp_path, "cli-masked", **masked)
    _write_orders(shop_connector)
    clean(capfd)
    run("row", "inventory.orders", "7", "--compare")
    output = capfd.readouterr().out
    assert "***" in output
    assert "one" not in output.replace("no one", "")
    assert "two" not in output
    assert ": equal" in output
    shop_connector.store.close()


def test_a_mask_holds_for_what_was_captured_before_it(
    shop_connector: ShopConnector, capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    _write_orders(shop_connector)
    ApplyToDatabaseOperator(task_id="apply", definition=shop_connector.definition, conn_id="warehouse").execute(
        context()
    )
    masks = {"column.mask.with.3.chars": r"inventory\.orders\.note"}
    shop_connector.definition = replace(
        shop_connector.definition, properties={**shop_connector.definition.properties, **masks}
    )
    capture(shop_connector)
    clean(capfd)
    run("row", "inventory.orders", "7", "--compare", "--database-conn-id", "warehouse")
    output = capfd.readouterr().out
    assert output.count('note="***"') == 3, "the row, the target's and the source's"
    assert '"one"' not in output
    assert "two" not in output
    assert ": equal" in output


def test_what_a_snapshot_empties_is_no_truncate_of_someone(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    data = {"data-collections": [r"inventory\.orders"], "type": "blocking"}
    shop_connector.store.send("shop", SentSignal("again", "execute-snapshot", json.dumps(data)))
    capture(shop_connector)
    changes = _read_row_history(capfd, "inventory.orders", "7").changes
    assert [(one.operation, one.snapshot is not None) for one in changes[:3]] == [
        ("read", True), ("truncate", True), ("key change", False),
    ]  # fmt: skip
    clean(capfd)
    run("row", "inventory.orders", "7")
    output = capfd.readouterr().out
    assert "emptied before a snapshot (snapshot: true) inventory.orders" in output
    assert "truncate" not in output
    shop_connector.database.truncate_table("inventory.orders")
    capture(shop_connector)
    newest = _read_row_history(capfd, "inventory.orders", "7").changes[0]
    assert (newest.operation, newest.snapshot) == ("truncate", None)


def test_rows_are_not_shown_unless_someone_has_allowed_it(
    shop_connector: ShopConnector, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_orders(shop_connector)
    for value in ("", "other", "sho"):
        monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", value)
        clean(capfd)
        with pytest.raises(SystemExit, match="AIRFLOW__CDC__SHOW_ROWS_OF=shop"):
            run("row", "inventory.orders", "7")
        assert capfd.readouterr().out == ""
    assert not [
        one for one in shop_connector.store.list_notifications("shop") if one.notification.aggregate_type == "Row"
    ]
    monkeypatch.setenv("AIRFLOW__CDC__SHOW_ROWS_OF", "*")
    assert _read_row_history(capfd, "inventory.orders", "7").changes


def test_each_look_is_recorded_for_good(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    _read_row_history(capfd, "inventory.orders", "7")
    _read_row_history(capfd, "inventory.orders", "12345", "--compare")
    with pytest.raises(SystemExit, match="int64"):
        run("row", "inventory.orders", "x")
    looks = [
        one.notification
        for one in shop_connector.store.list_notifications("shop")
        if one.notification.aggregate_type == "Row"
    ]
    assert [look.additional_data["key"] for look in looks] == ["7", "12345"]
    assert all(look.type == "VIEWED" and " on " in look.additional_data["by"] for look in looks)
    shop_connector.store.prune_rows(
        "shop", StateRetention(None, None, timedelta(days=1), None), datetime(2100, 1, 1, tzinfo=UTC)
    )
    kept = [one.notification.aggregate_type for one in shop_connector.store.list_notifications("shop")]
    assert kept == ["Row", "Row"]


def test_nothing_is_shown_if_the_look_cannot_be_recorded(shop_connector: ShopConnector, capfd: Any) -> None:
    _write_orders(shop_connector)
    with shop_connector.store.database.engine.begin() as c:
        c.execute(sa.text("CREATE TRIGGER t BEFORE INSERT ON cdc_notification BEGIN SELECT RAISE(ABORT, 'full'); END"))
    clean(capfd)
    with pytest.raises(sa.exc.IntegrityError, match="full"):
        run("row", "inventory.orders", "7")
    assert "two" not in capfd.readouterr().out


def test_errors_say_what_a_key_is(shop_connector: ShopConnector) -> None:
    _write_orders(shop_connector)
    for texts, message in {
        ("x",): "a whole JSON number",
        ("1", "2"): "2 values are given",
        ('{"n": 1}',): "the request has n",
        ("{",): "is not JSON",
    }.items():
        with pytest.raises(SystemExit, match=message) as e:
            run("row", "inventory.orders", *texts)
        assert "The key of inventory.orders is id (int64)" in str(e.value)
    (column,) = row_keys(shop_connector.store, RowQuery("inventory.orders", [], "a test"))
    assert (column.name, column.type) == ("id", "int64")
    assert column.form.startswith("a whole JSON number from -9223372036854775808 to ")
    with pytest.raises(SystemExit, match=r"inventory\.orders"):
        run("row", "inventory.lines", "1")
    with pytest.raises(SystemExit, match="No connector 'crm'"):
        run("row", "inventory.orders", "1", "--connector", "crm")


def test_targets(shop_connector: ShopConnector, capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    _write_orders(shop_connector)
    ApplyToDatabaseOperator(task_id="apply", definition=shop_connector.definition, conn_id="warehouse").execute(
        context()
    )
    with shop_connector.database.transaction() as t:
        t.update("inventory.orders", {"id": 7}, {"note": "three"})
    capture(shop_connector)
    story = _read_row_history(capfd, "inventory.orders", "7", "--database-conn-id", "warehouse")
    assert [change.applied[0].state for change in story.changes] == ["waits", "applied", "applied", "applied"]
    assert story.changes[1].applied[0].at is not None
    (held,) = story.targets
    assert (held.state, held.row) == ("row", {"id": 7, "note": "two"})
    (unseen,) = _read_row_history(capfd, "inventory.orders", "7").targets
    assert (unseen.state, unseen.row) == ("not looked at", None)
    assert "--database-conn-id" in unseen.why
    assert json.loads(story.model_dump_json())["targets"][0]["batch"] == held.batch


KEYS: dict[str, list[tuple[Any, str]]] = {
    "int64": [(2**63 - 1, str(2**63 - 1))],
    "bool": [(True, "true"), (False, "false")],
    "double": [(0.1, "0.1")],
    "decimal128(12, 2)": [(Decimal("12.30"), "12.3")],
    "string": [("it's ${x}", "it's ${x}")],
    "binary": [(b"\0\xff", "AP8="), (b"", "")],
    "date32[day]": [(date(2024, 2, 29), "2024-02-29")],
    "timestamp[us]": [(datetime(1999, 12, 31, 23, 59, 59, 999999), "1999-12-31 23:59:59.999999"), (datetime(999, 1, 1), "0999-01-01T00:00:00")],
    "timestamp[ms]": [(datetime(2024, 1, 1, 1), "2024-01-01T01:00:00"), (datetime(2024, 1, 1, 1, 0, 0, 20_000), "2024-01-01T01:00:00.02")],
    "timestamp[s]": [(datetime(2024, 1, 1, 1), "2024-01-01T01:00:00")],
    "timestamp[us, tz=UTC]": [(datetime(2024, 2, 29, 12, 0, 0, 123456, UTC), "2024-02-29T13:00:00.123456+01:00")],
}  # fmt: skip
"""Type of a key → values as the source has them, and as someone gives them."""


def test_every_type_of_key_is_found_in_a_target_database(
    shop_connector: ShopConnector, capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(monkeypatch, "warehouse", conn_type="sqlite", host=f"{tmp_path}/warehouse.db")
    for number, (type_, values) in enumerate(KEYS.items()):
        shop_connector.database.create_table(f"inventory.k{number}", {"k": f"{type_}!", "n": "int32"}, key=("k",))
        with shop_connector.database.transaction() as t:
            for n, (value, _) in enumerate(values):
                t.insert(f"inventory.k{number}", {"k": value, "n": n})
    capture(shop_connector)
    ApplyToDatabaseOperator(task_id="apply", definition=shop_connector.definition, conn_id="warehouse").execute(
        context()
    )
    found = {}
    for number, (type_, values) in enumerate(KEYS.items()):
        for n, (_, given) in enumerate(values):
            (held,) = _read_row_history(capfd, f"inventory.k{number}", given, "--database-conn-id", "warehouse").targets
            found[type_, n] = (held.state, (held.row or {}).get("n"), held.why)
    assert found == {(type_, n): ("row", n, "") for type_, values in KEYS.items() for n in range(len(values))}
