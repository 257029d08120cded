"""Rounds of a continuous apply cost by the tables that have changed, not by all that the connector has."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.reports.apply_report import TableState
from airflow_provider_cdc.core.config.target_table_rules import NO_RULES
from airflow_provider_cdc.targets.lake.apply.apply_run_report import ApplyRunReport
from airflow_provider_cdc.targets.lake.backlog.reported_apply_state import (
    BacklogState,
    group_batches,
    last_batch_per_table,
)
from airflow_provider_cdc.targets.lake.placement.table_placement import TablePlacement
from tests.support.change_log.manifests import manifest

TABLES = 300


def _entry(name: str, batch: int = 5) -> TableState:
    return {"location": f"/lake/{name}", "batch": batch, "stamp": "1", "table": f"s.{name}", "dropped": False}


@pytest.fixture
def view(tmp_path: Path) -> BacklogState:
    """A round in which one of many tables has new events."""
    states = {f"p.s.t{number:03}": _entry(f"t{number:03}") for number in range(TABLES)} | {"p.shop.t": _entry("t")}
    groups = group_batches(ChangeLog(str(tmp_path)), [manifest(6).batch_contents], states)
    assert groups[0].topics == {"p.shop.t"}
    return BacklogState(5, 6, groups, True, states, {}, last_batch_per_table(states))


def test_only_tables_that_have_changed_are_placed_again(view: BacklogState, monkeypatch: pytest.MonkeyPatch) -> None:
    placement, placed = TablePlacement("shop", "/lake/{table}", NO_RULES), list[str]()
    place = TablePlacement._table

    def note(self: TablePlacement, view: BacklogState, name: str, *more: object) -> object:
        placed.append(name)
        return place(self, view, name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(TablePlacement, "_table", note)
    first = placement.list_known_tables(view)
    assert len(first) == len(placed) == TABLES + 1
    placed.clear()
    assert placement.list_known_tables(view) == first
    assert placed == []
    view.table_states["p.s.t007"] = {**_entry("t007"), "location": "/lake/other"}
    again = placement.list_known_tables(view)
    assert placed == ["p.s.t007"]
    assert again["p.s.t007"].location == "/lake/other"
    del view.table_states["p.s.t008"]
    assert "p.s.t008" not in placement.list_known_tables(view)


def test_entries_of_tables_without_new_events_stay_the_same_objects(view: BacklogState) -> None:
    changed = [name for name in view.table_states if view.update_report_entry(name) is not view.table_states[name]]
    assert changed == ["p.shop.t"]
    assert view.update_report_entry("p.shop.t")["table"] != "s.t"


def test_an_entry_of_a_table_that_the_source_has_dropped_says_so(view: BacklogState) -> None:
    view.groups[0].dropped.add("s.t007")
    assert view.update_report_entry("p.s.t007")["dropped"]
    assert not view.table_states["p.s.t007"]["dropped"]


def test_a_report_copies_no_entries(view: BacklogState) -> None:
    report = ApplyRunReport("shop", "delta", "/lake", 6, [], {}, {}, view.table_states, 1.0)
    assert report.to_document()["table_states"] is view.table_states
