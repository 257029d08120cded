"""Texts about targets and their tables."""

from __future__ import annotations

from typing import Any

from airflow_provider_cdc.services.text.status_texts import table_text, target_lines

TOLD = {
    "rows_written": 1200,
    "rows_deleted": 0,
    "bytes_written": 48_000,
    "files_written": 1,
    "ways": {"commit": 1},
    "freshness_s": 2.14,
}


def test_a_table_is_reported_with_its_events_what_was_written_and_how_old_it_is() -> None:
    table = {"topic": "shop.orders", "rows": {"c": 1200, "u": 3}, "seconds": 0.44, **TOLD}
    assert table_text(table) == (
        "shop.orders: 1,200 created, 3 updated; 1,200 rows written, 48 kB in 1 file by commit; 0.4 s, 2.1 s after the source"
    )


def test_what_is_not_known_of_a_table_is_not_reported() -> None:
    assert table_text({"topic": "t", "rows": {}, "seconds": 1.0}) == "t: schema changes only; 1.0 s"
    more = {"rows_deleted": 7, "bytes_written": 3_200_000_000, "files_written": 20, "ways": {"merge": 2, "append": 1}}
    assert table_text({"topic": "t", "rows": {"d": 7}, "seconds": 90.0, **more}) == (
        "t: 7 deleted; 7 rows deleted, 3.2 GB in 20 files by 2 merges, append; 90.0 s"
    )


def test_targets_are_reported_with_their_busiest_tables_and_what_has_failed() -> None:
    def measured_events(events: int, **more: Any) -> dict[str, Any]:
        return {"events": events, "seconds": 1.0, **TOLD, **more}

    report = {
        "target": "delta", "location": "/lake/{table}", "last_batch": 7, "failed": {"shop.c": "No room.\n  Repair: more", "shop.d": "No"},
            "lagging": {"shop.d": 5, "shop.e": 6},
        "tables": {"shop.a": measured_events(9), "shop.b": measured_events(1, freshness_s=None), "shop.d": measured_events(1)},
    }  # fmt: skip
    assert list(target_lines([report], None, most=2)) == [
        "  Target delta at /lake/{table}: applied up to batch 7",
        "    shop.c failed: No room.",
        "    shop.d failed, and stays at batch 5: No",
        "    shop.e is behind, at batch 6",
        "    shop.a: 9 events, 1,200 rows written, 48 kB in 1 file by commit, 1.0 s, freshness 2.1 s",
        "    shop.b: 1 events, 1,200 rows written, 48 kB in 1 file by commit, 1.0 s",
        "    … and 1 more tables",
    ]
    assert list(target_lines([], "It is gone.\n  Safe: all")) == [
        "  Targets:    the change log cannot be read from here: It is gone."
    ]
