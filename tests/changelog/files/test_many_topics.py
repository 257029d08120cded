"""Batches of more topics than a process may open files."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files import parquet_writer as module
from airflow_provider_cdc.changelog.files.storage import Storage
from tests.support.processes.many_topics import FILES, TABLES, events

ROOT = Path(__file__).resolve().parents[2]


def _child(what: str, folder: Path) -> dict[str, Any]:
    """Run a process that may open no more than ``FILES`` files, and return its report."""
    command = [sys.executable, "-m", "tests.support.processes.many_topics", what, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_more_tables_are_captured_and_printed_than_files_may_be_open(tmp_path: Path) -> None:
    assert TABLES > FILES
    found = _child("capture", tmp_path)
    assert found["events"] == [TABLES, 2 * TABLES]
    assert found["topics"] == [TABLES, TABLES]
    expected = [[f"test.shop.t{n:03d}", i] for i in (2, 3) for n in range(TABLES)]
    assert found["records"] == expected


def test_topics_that_take_turns_share_a_few_open_files(tmp_path: Path) -> None:
    """Each of them has had a file before the first one is written to again."""
    found = _child("writer", tmp_path)
    assert found["rows"] == 3 * 30 * TABLES
    rows: Counter[str] = Counter()
    seqs: list[int] = []
    for file in found["files"]:
        data = pq.read_table(tmp_path / "c" / file["path"])
        numbers = data["seq"].to_pylist()
        assert (numbers[0], numbers[-1], len(numbers)) == (file["first_seq"], file["last_seq"], file["rows"])
        rows[file["topic"]] += len(numbers)
        seqs += numbers
    assert set(rows.values()) == {90}
    assert sorted(seqs) == list(range(1, 90 * TABLES + 1))
    assert {Path(f["path"]).name for f in found["files"]} == {p.name for p in (tmp_path / "c" / "data" / "1").iterdir()}


@pytest.mark.slow
def test_what_waits_for_row_groups_is_bounded_over_all_topics(tmp_path: Path) -> None:
    found = _child("memory", tmp_path)
    assert found["rows"] == 20 * 10 * TABLES
    assert found["grown"] < 400 << 20


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from((1, 30))) | st.sampled_from(("mark", "rollback")), max_size=25
    ),
    files=st.integers(1, 3),
)
def test_whatever_waits_or_has_a_file_when_a_transaction_ends_is_written_once(
    steps: list[tuple[int, int] | str], files: int
) -> None:
    """Topics with events that wait, and others that have a file, are closed together: room for a file is made by closing another one."""
    expected, since_mark, seq = list[int](), list[int](), 0
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROW_GROUP_ROWS", 20)
        patch.setattr(module, "OPEN_FILES", files)
        written = module.ParquetBatchWriter(Storage(folder), ("c", "data", "1"), "w")
        for step in steps:
            if step == "mark":
                written.set_savepoint()
                expected, since_mark = expected + since_mark, []
            elif step == "rollback":
                written.rollback()
                since_mark = []
            else:
                table, rows = step
                written.write(events(int(table), seq, int(rows)))
                since_mark += range(seq + 1, seq + int(rows) + 1)
                seq += int(rows)
        found = written.finish_files()
        data = {file.path: pq.read_table(Path(folder) / "c" / file.path)["seq"].to_pylist() for file in found}
        assert sorted(itertools.chain(*data.values())) == expected + since_mark
        for file in found:
            numbers = data[file.path]
            assert (numbers[0], numbers[-1], len(numbers)) == (file.first_seq, file.last_seq, file.rows)
        left = {path.name for path in (Path(folder) / "c" / "data" / "1").glob("*")}
        assert left == {Path(file.path).name for file in found}
