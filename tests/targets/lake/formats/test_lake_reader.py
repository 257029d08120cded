"""Rows of Delta and Iceberg tables, read without Spark, as Spark finds them: by all types of keys, modes, routes and rules."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
from airflow_provider_cdc.changelog.row_history.row_history_models import CurrentTargetRow
from airflow_provider_cdc.changelog.row_history.row_history_reader import RowHistoryReader
from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.changelog.row_history.row_masking import RowMasks
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.services.connectors.connector_handle import ConnectorAccess
from airflow_provider_cdc.services.row_history.target_row_reader import at_targets
from tests.targets.lake.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.every_kind]
ODD = ["it's", "", '"; --', "${env:HOME}", "\\", "ä\n", "a' OR '1'='1"]
KEYS: dict[str, list[tuple[Any, Any]]] = {
    "int8": [(-128, -128)],
    "int32": [(7, 7)],
    "int64": [(-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)],
    "bool": [(True, True), (False, False)],
    "double": [(0.1, 0.1)],
    "float": [(0.25, 0.25)],
    "decimal128(12, 2)": [(Decimal("-12.30"), "-12.30")],
    "string": [(text, text) for text in ODD],
    "binary": [(b"\0\xff", "AP8=")],
    "date32[day]": [(dt.date(2024, 2, 29), "2024-02-29")],
    "timestamp[us]": [(dt.datetime(1999, 12, 31, 23, 59, 59, 999999), "1999-12-31T23:59:59.999999")],
    "timestamp[us, tz=UTC]": [(dt.datetime(2024, 2, 29, 12, 0, 0, 123456, dt.UTC), "2024-02-29T12:00:00.123456+00:00")],
    "timestamp[ns]": [(1709208000000000001, "2024-02-29T12:00:00.000000001")],
}
"""Type of a key → values as the source has them, and as someone gives them."""


def _read_held_rows(lake: Lake, table: str, masks: RowMasks | None = None, **key: Any) -> list[CurrentTargetRow]:
    connector = lake.connector
    events = KeyEventReader(connector.changelog, connector.name, time.monotonic() + 60)
    stories = RowHistoryReader(events, connector.name, partial(connector.store.schema_changes_of, connector.name))
    id_ = TableId(namespace="s", name=table)
    story = stories.read_history(id_, RowKey(key))
    access = ConnectorAccess(connector.definition(), "")
    reports = ApplyReports(connector.changelog.storage, connector.name).list_reports()
    return at_targets(story, reports, access, id_, masks or RowMasks({}), ())


def _read_one_row(lake: Lake, table: str, **key: Any) -> CurrentTargetRow:
    (found,) = _read_held_rows(lake, table, **key)
    return found


def test_every_type_of_key_is_found(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    for number, (type_, values) in enumerate(KEYS.items()):
        db.create_table(f"s.k{number}", {"k 1": f"{type_}!", "two": "int32!", "n": "int32"}, key=("k 1", "two"))
        with db.transaction() as t:
            for two, (value, _) in enumerate([*values, values[0]]):
                t.insert(f"s.k{number}", {"k 1": value, "two": two, "n": two})
    lake.follow()
    for number, (type_, values) in enumerate(KEYS.items()):
        for two, (_, given) in enumerate(values):
            found = _read_one_row(lake, f"k{number}", **{"k 1": given, "two": two})
            assert (found.state, (found.row or {}).get("n")) == ("row", two), (type_, given, found)
            assert _read_one_row(lake, f"k{number}", **{"k 1": given, "two": two + 100}).state != "row", type_


def test_a_row_that_is_changed_deleted_or_renamed(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "note": "string", "mail": "string"}, key=("id",))
    with db.transaction() as t:
        for i in range(20):
            t.insert("s.t", {"id": i, "note": "one", "mail": "a@b.c"})
    lake.connector.capture()
    lake.apply(profile="fast")
    with db.transaction() as t:
        t.update("s.t", {"id": 3}, {"note": "two"})
        t.delete("s.t", {"id": 4})
    lake.follow()
    found = _read_one_row(lake, "t", id=3)
    assert (found.state, found.row) == ("row", {"id": 3, "note": "two", "mail": "a@b.c"})
    assert found.batch == lake.connector.changelog.find_last_batch("test")
    assert (_read_one_row(lake, "t", id=4).state, _read_one_row(lake, "t", id=4).row) == ("no row", None)
    masked = _read_held_rows(lake, "t", RowMasks({"column.mask.with.4.chars": r"s\.t\.mail"}), id=3)[0]
    assert masked.row == {"id": 3, "note": "two", "mail": "****"}
    # the target is behind: it has the row under the key that it had
    with db.transaction() as t:
        t.update("s.t", {"id": 3}, {"id": 300})
    lake.connector.capture()
    behind = _read_one_row(lake, "t", id=300)
    assert (behind.state, behind.key, (behind.row or {})["note"]) == ("row", {"id": 3}, "two")
    lake.apply()
    assert _read_one_row(lake, "t", id=3).state == "no row"
    assert (_read_one_row(lake, "t", id=300).row or {})["note"] == "two"
    db.rename_columns("s.t", id="number")
    with db.transaction() as t:
        t.update("s.t", {"number": 5}, {"note": "five"})
    lake.connector.capture()
    assert (_read_one_row(lake, "t", number=5).row or {}).get("note") == "one"
    lake.apply()
    assert (_read_one_row(lake, "t", number=5).row or {}) == {"number": 5, "note": "five", "mail": "a@b.c"}


def test_files_that_cannot_have_the_key_are_not_read(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "note": "string"}, key=("id",))
    parts = list[set[Path]]()
    for first in (0, 1000):
        with db.transaction() as t:
            for i in range(first, first + 10):
                t.insert("s.t", {"id": i, "note": f"row {i}"})
        lake.follow()
        parts.append({*Path(lake.path("s.t")).rglob("*.parquet")})
    for file in parts[1] - parts[0]:
        file.unlink()
    assert (_read_one_row(lake, "t", id=3).row or {}).get("note") == "row 3"
    assert _read_one_row(lake, "t", id=500).state == "no row"
    assert _read_one_row(lake, "t", id=1003).state == "not looked at"


RULES = [
    {"tables": r"s\.soft", "mode": "soft_delete", "columns": {"rename": {"id": "nr", "note": "remark"}}},
    {"tables": r"s\.hist", "mode": "history"},
    {"tables": r"s\.log", "mode": "log"},
    {"tables": r"s\.some", "filter": "n > 10"},
    {"tables": r"s\.one", "shard": {"from_table": "{table}"}, "location": "@shared"},
    {"tables": r"s\.two", "shard": {"from_table": "{table}"}, "location": "@shared"},
    {"tables": r"s\.routed", "route": [{"by": "note", "location": "@routed/{value}"}], "otherwise": "default"},
    {"tables": r"s\.cast", "columns": {"cast": {"id": "string"}}},
]


def test_rules(lake: Lake) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    text = TableRules.parse(RULES).format_rules().replace("@", f"{lake.folder}/lake/")
    lake.tables = TableRules.parse(text)
    names = ("soft", "hist", "log", "some", "one", "two", "routed", "cast")
    for name in names:
        db.create_table(f"s.{name}", {"id": "int64!", "note": "string", "n": "int32"}, key=("id",))
        with db.transaction() as t:
            for i in range(1, 4):
                t.insert(f"s.{name}", {"id": i, "note": f"{'ab'[i % 2]}", "n": 10 * i})
    lake.follow()
    for name in names:
        with db.transaction() as t:
            t.update(f"s.{name}", {"id": 1}, {"n": 11, "note": name})
            t.delete(f"s.{name}", {"id": 2})
    lake.follow()
    soft = _read_one_row(lake, "soft", id=1)
    assert (soft.state, soft.mode, soft.row and soft.row["remark"]) == ("row", "soft_delete", "soft")
    gone = _read_one_row(lake, "soft", id=2)
    assert (gone.state, gone.row and gone.row["nr"], gone.row and gone.row["_is_deleted"]) == ("deleted", 2, True)
    hist = _read_one_row(lake, "hist", id=1)
    assert (hist.state, hist.versions, hist.row and hist.row["note"]) == ("row", 2, "hist")
    assert (_read_one_row(lake, "hist", id=2).state, _read_one_row(lake, "hist", id=2).versions) == ("deleted", 1)
    log = _read_one_row(lake, "log", id=1)
    assert (log.state, log.versions, log.row and (log.row["_op"], log.row["note"])) == ("row", 2, ("u", "log"))
    assert _read_one_row(lake, "log", id=2).state == "deleted"
    assert _read_one_row(lake, "some", id=1).state == "row"
    assert (_read_one_row(lake, "some", id=2).state, _read_one_row(lake, "some", id=2).why.endswith("n > 10")) == (
        "no row",
        True,
    )
    for name in ("one", "two"):
        shared = _read_one_row(lake, name, id=1)
        assert (shared.state, shared.row and (shared.row["note"], shared.row["from_table"])) == ("row", (name, name))
    routed = _read_one_row(lake, "routed", id=1)
    assert (routed.state, str(routed.table).rsplit("/", 1)[1]) == ("row", "routed")
    assert str(_read_one_row(lake, "routed", id=3).table).endswith("/b")
    nowhere = _read_one_row(lake, "routed", id=2)
    assert (nowhere.state, nowhere.table, nowhere.why) == ("no row", None, "3 tables of a route were searched")
    assert (
        _read_one_row(lake, "cast", id=1).state,
        "differ from the source" in _read_one_row(lake, "cast", id=1).why,
    ) == (
        "not looked at",
        True,
    )


@pytest.mark.only_kind("delta")
def test_what_a_library_cannot_read_is_not_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.t", {"id": "int64!", "n": "int32"}, key=("id",))
    with db.transaction() as t:
        t.insert("s.t", {"id": 1, "n": 1})
    lake.follow()
    db.change_column("s.t", "n", "int64", int)
    with db.transaction() as t:
        t.update("s.t", {"id": 1}, {"n": 2**40})
    lake.follow()
    found = _read_one_row(lake, "t", id=1)
    assert found.state == "not looked at"
    assert "deltalake cannot read the table here: " in found.why
    assert "typeWidening" in found.why.replace("type_widening", "typeWidening").replace("TypeWidening", "typeWidening")
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    assert "pip install 'airflow-provider-cdc[delta]'" in _read_one_row(lake, "t", id=1).why
