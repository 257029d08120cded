"""Reports of apply runs: one for each target, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.reports.apply_report_store import (
    METRICS,
    ApplyReports,
    build_table_metrics,
    merge_by_table,
)

LOCATIONS = ("/lake/{table}", "/lake/{topic}")


def _report(location: str, **more: Any) -> dict[str, Any]:
    known = {"tables": [], "failed": {}, "lagging": {}, "table_states": {}, "seconds": 0.5}
    return {"target": "delta", "location": location, "last_batch": 3, **known, **more}


@pytest.fixture
def reports(tmp_path: Path) -> ApplyReports:
    return ApplyReports(Storage(str(tmp_path)), "shop")


def test_each_location_and_each_kind_has_a_report_of_its_own(reports: ApplyReports) -> None:
    for batch, (kind, location) in enumerate((k, at) for k in ("delta", "iceberg") for at in LOCATIONS):
        reports.write({**_report(location), "target": kind, "last_batch": batch})
    assert len(reports.list_reports()) == 4
    assert [reports.read(k, at)["last_batch"] for k in ("delta", "iceberg") for at in LOCATIONS] == [0, 1, 2, 3]  # type: ignore[index]
    assert reports.read("delta", "/elsewhere") is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "{}", '{"location": 1}', '{"location": "/lake/{table}", "failed": []}', "\x00\xff"],
)
def test_a_report_that_makes_no_sense_is_left_out(
    reports: ApplyReports, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    reports.write(_report(LOCATIONS[0]))
    reports.write(_report(LOCATIONS[1]))
    path = Path(reports.report_path("delta", LOCATIONS[0]))
    path.write_bytes(text.encode("latin-1"))
    assert reports.read("delta", LOCATIONS[0]) is None
    assert [r["location"] for r in reports.list_reports() if r["last_batch"]] == [LOCATIONS[1]]


def test_a_report_that_cannot_be_written_leaves_the_old_one_and_no_other_file(
    reports: ApplyReports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports.write(_report(LOCATIONS[0]))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="No space"):
        reports.write(_report(LOCATIONS[0], last_batch=4))
    assert [r["last_batch"] for r in reports.list_reports()] == [3]
    assert len(list((tmp_path / "shop" / "applied").iterdir())) == 1


def _table(topic: str, **more: Any) -> dict[str, Any]:
    known = {
        "location": "/lake/t",
        "first_batch": 1,
        "last_batch": 1,
        "rows": {"c": 1},
        "position": {"pos": 1},
        "seconds": 0.5,
    }
    return {"topic": topic, **known, **more}


def test_steps_of_one_table_become_one_entry_with_their_sums_and_the_newest_position() -> None:
    steps = [
        _table("a", rows={"c": 2}, ways={"create": 1}, rows_written=2, rows_deleted=0, bytes_written=10, files_written=1, freshness_s=9.0),
        _table("b"),
        _table(
            "a", first_batch=2, last_batch=3, rows={"c": 1, "d": 4}, position={"pos": 9}, ways={"merge": 1}, rows_written=1, rows_deleted=4,
            bytes_written=5, files_written=2, freshness_s=1.5,
        ),
    ]  # fmt: skip
    first, other = merge_by_table(steps)
    assert (first["topic"], other["topic"]) == ("a", "b")
    assert (first["rows"], first["ways"]) == ({"c": 3, "d": 4}, {"create": 1, "merge": 1})
    assert (first["rows_written"], first["rows_deleted"], first["bytes_written"], first["files_written"]) == (
        3,
        4,
        15,
        3,
    )
    assert (first["first_batch"], first["last_batch"], first["position"]) == (1, 3, {"pos": 9})
    assert (first["seconds"], first["freshness_s"]) == (1.0, 1.5)


def test_tables_that_a_route_makes_of_one_topic_stay_apart() -> None:
    steps = [_table("a", name=f"a → /lake/{place}", location=f"/lake/{place}") for place in ("eu", "us", "eu")]
    assert [(found["topic"], found["name"], found["rows"]) for found in merge_by_table(steps)] == [
        ("a", "a → /lake/eu", {"c": 2}),
        ("a", "a → /lake/us", {"c": 1}),
    ]
    assert list(build_table_metrics(merge_by_table(steps))) == ["a → /lake/eu", "a → /lake/us"]


def test_a_fact_that_one_step_does_not_report_is_unknown_for_all_steps() -> None:
    (found,) = merge_by_table([_table("a", rows_written=3, freshness_s=2.0), _table("a", rows_written=None)])
    assert (found["rows_written"], found["rows_deleted"]) == (None, None)
    assert found["freshness_s"] == 2.0  # a step without events says nothing about the age of the rows


def test_metrics_are_those_of_the_tables_with_the_most_events() -> None:
    found = build_table_metrics(
        merge_by_table([_table("few"), _table("many", rows={"u": 7}), _table("some", rows={"u": 3})]), 2
    )
    assert [(topic, one["events"]) for topic, one in found.items()] == [("many", 7), ("some", 3)]
    assert set(found["many"]) == set(METRICS)
    assert found["many"]["bytes_written"] is None  # its target does not count them
