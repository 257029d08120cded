"""Columns of the source with names that a format, Spark or the job uses itself: each of them works, or is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.reports.apply_report_store import ApplyReports
from airflow_provider_cdc.core.config.target_table_rules import TableRules
from airflow_provider_cdc.core.errors import TargetError
from airflow_provider_cdc.targets.lake.formats.delta.column_changes import RESERVED, RESERVED_BESIDE_VECTORS
from airflow_provider_cdc.targets.lake.jobs.verify_tables import VerifyTables
from tests.support.connectors import memory_connector
from tests.targets.lake.lake import Lake

pytestmark = pytest.mark.spark
OF_DELTA = (
    "_metadata", "_change_type", "_commit_version", "_commit_timestamp", "_change_data", "_row_id_", "_file_name_", "_input_file_name_",
    "_source_row_present_", "_source_row_index", "_target_row_present_", "_target_row_index_", "_row_dropped_", "_condition_", "__condition__",
    "_delta_index", "_file_idx", "_col_", "__is_cdc", "__delta_internal_is_row_deleted", "__delta_internal_row_index", "filePath",
    "deletionVectorId", "rowIndexSet", "rowIndexCol", "_row-id-col-", "__metadata_col", "_change_ordinal", "_commit_snapshot_id",
)  # fmt: skip
"""Of classes of Delta 4.4 and Iceberg 1.12: names of columns and aliases."""
OF_ICEBERG = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
OF_THE_JOB = (
    "file",
    "pos",
    "at",
    "row",
    "seq",
    "op",
    "key",
    "before",
    "after",
    "source",
    "unavailable",
    "t",
    "s",
    "k",
    "v",
    "c0",
    "t0",
    "count",
    "_is_deleted",
    "_seq",
)
WORDS = (*OF_DELTA, *OF_ICEBERG, *OF_THE_JOB)
REFUSED: dict[str, tuple[str, ...]] = {"delta": tuple(sorted(RESERVED)), "iceberg": OF_ICEBERG}


def _rows(names: tuple[str, ...], *numbers: int) -> list[dict[str, Any]]:
    return [{name: f"{name} {n}" for name in names} for n in numbers]


@pytest.mark.sampled(2)
@pytest.mark.every_kind
@pytest.mark.parametrize("way", ["files", "beside", "merge"])
def test_columns_whose_names_are_used_for_something_else_are_columns_like_others(
    lake: Lake, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {*REFUSED[lake.kind], *(RESERVED_BESIDE_VECTORS if way == "beside" and lake.kind == "delta" else ())}
    words = [word for word in WORDS if word.lower() not in refused]
    first, later = tuple(words[::2]), tuple(words[1::2])
    db = lake.connector.database  # type: ignore[attr-defined]
    db.create_table("s.values", {"id": "int64!", "plain": "string", **dict.fromkeys(first, "string")}, key=("id",))
    db.create_table("s.keys", {**dict.fromkeys(first, "string!"), "n": "int64"}, key=first)
    db.create_table("s.bag", dict.fromkeys((*first, "n"), "string"))
    if way == "beside":
        for module in ("delta.array_commit", "delta.keyless_commit", "iceberg.copy_on_write"):
            monkeypatch.setattr(f"airflow_provider_cdc.targets.lake.formats.{module}.MOST_BYTES", -1)
    options = {"writes": "merge" if way == "merge" else "auto", "profile": "fast" if way == "beside" else "compatible"}

    def change(turn: int) -> None:
        names = (*first, *later) if turn else first
        with db.transaction() as t:
            for i, row in enumerate(_rows(names, *range(10 * turn, 10 * turn + 6))):
                t.insert("s.values", {"id": 10 * turn + i, **row})
                t.insert("s.keys", {**row, "n": i})
                t.insert("s.bag", {**row, "n": str(i)})
            for number in (1, 11)[:turn]:
                t.update("s.values", {"id": number}, dict.fromkeys(names, f"new {turn}"))
                t.update("s.keys", {first[0]: f"{first[0]} {number}"}, {"n": 100 + turn})
                t.update("s.bag", {first[0]: f"{first[0]} {number}"}, {"n": "new"})
                t.delete("s.values", {"id": number + 1})
                t.delete("s.keys", {first[0]: f"{first[0]} {number + 1}"})
                t.delete("s.bag", {first[0]: f"{first[0]} {number + 1}"})
                t.update("s.values", {"id": number + 2}, {"id": 50 + number})
                t.update("s.keys", {first[0]: f"{first[0]} {number + 2}"}, {first[0]: f"moved {number}"})
        lake.connector.capture()
        lake.apply(**options)
        lake.check()

    change(0)
    for table in ("s.values", "s.keys", "s.bag"):
        for word in later:
            db.add_column(table, word, "string", "it's new")
    change(1)
    change(2)
    db.rename_columns("s.values", plain="plain_", **{first[0]: later[0], later[0]: first[0]})
    change(3)
    reference = memory_connector(db, lake.folder / "reference", topic_prefix="p", snapshot_mode="initial_only")
    reference.capture()
    verified = VerifyTables(
        lake.spark, reference.changelog, reference.name, location=lake.location, target=lake.kind
    ).run()
    assert verified.is_equal, verified.format_text()


@pytest.mark.every_kind
def test_a_name_that_a_kind_of_table_cannot_have_is_refused_before_anything_is_written(lake: Lake) -> None:
    db, words = lake.connector.database, REFUSED[lake.kind]  # type: ignore[attr-defined]
    if lake.kind == "delta":
        words = (*words, *sorted(RESERVED_BESIDE_VECTORS))
    tables = {f"s.t{i}": word for i, word in enumerate(words)}
    for table, word in tables.items():
        db.create_table(table, {"id": "int64!", word.upper(): "string"}, key=("id",))
    for name in ("made", "added", "named"):
        db.create_table(f"s.{name}", {"id": "int64!", "plain": "string"}, key=("id",))
    with db.transaction() as t:
        for table in (*tables, "s.made", "s.added", "s.named"):
            t.insert(table, {"id": 1})
    lake.connector.capture()
    with pytest.raises(TargetError):
        lake.apply(profile="fast")
    failed = _list_failures(lake)
    assert set(failed) == {f"p.{table}" for table in tables}
    for table, word in tables.items():
        assert not Path(lake.path(table)).exists()
        text = failed[f"p.{table}"]
        assert f"column called {word.upper()!r}" in text
        assert lake.path(table) in text
        assert f"columns.rename {{{word.upper()!r}: " in text
    before = lake.rows("s.added"), lake.rows("s.named")
    db.add_column("s.added", words[0], "string", "x")
    db.rename_column("s.named", "plain", words[-1])
    lake.connector.capture()
    with pytest.raises(TargetError):
        lake.apply(profile="fast")
    assert {"p.s.added", "p.s.named"} <= set(_list_failures(lake))
    assert (lake.rows("s.added"), lake.rows("s.named")) == before
    renames = [{"tables": [table], "columns": {"rename": {word: f"its{word}"}}} for table, word in tables.items()]
    lake.tables = TableRules.parse(renames)
    db.rename_column("s.added", words[0], "short")
    db.rename_column("s.named", words[-1], "short")
    lake.connector.capture()
    lake.apply(profile="fast")
    for table, word in tables.items():
        assert lake.rows(table) == [{"id": 1, f"its{word}": None}]
    lake.check("s.made", "s.added", "s.named")


def _list_failures(lake: Lake) -> dict[str, str]:
    """Topic → why its table could not be brought up to date."""
    report = ApplyReports(lake.connector.changelog.storage, lake.connector.name).read(lake.kind, lake.location)
    assert report is not None
    return dict(report["failed"])
