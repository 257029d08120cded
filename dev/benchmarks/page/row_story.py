"""A benchmark of the story of a row over a million batches, of which a hundred have its key.

    python -m dev.benchmarks.page.row_story --batches 1000000

The index is that of a million batches with a hundred keys each, as a maintenance would have made it; the keys are random numbers. Of the batches themselves there are those that a look reads: the hundred
that have the key, and those by which files of the index are known to be about this log. They are copies of a batch that was captured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import sqlalchemy as sa

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.row_history.key_event_reader import KeyEventReader
from airflow_provider_cdc.changelog.row_history.key_hashes import BITS, compute_hash_version
from airflow_provider_cdc.changelog.row_history.key_index import FOLDER, KeyIndex, bring_up_index
from airflow_provider_cdc.changelog.row_history.key_index_segment import BatchRange, build_entries, encode_segment
from airflow_provider_cdc.changelog.row_history.row_history_reader import RowHistoryReader
from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.connector import ConnectorDefinition, open_capture
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from airflow_provider_cdc.state.state_store import StateStore
from dev.bootstrap.report import Problem

NAME, TABLE, KEY = "bench", "shop.orders", 7
KEYS, HELD, TIMES, STARTS = 100, 100, 20, 5
STRETCH = 10_000
"""Batches of one file of the index, as such batches get them."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=1_000_000)
    batches = parser.parse_args().batches
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure_history(batches, Path(folder))))


def measure_history(batches: int, folder: Path) -> dict[str, Any]:
    """Milliseconds of a look within a process that runs, as the page's API has it, and of the command, with the start of its process.

    :param folder: empty; the index takes 800 bytes a batch
    """
    store, changelog, built_s = _prepare_change_log(folder)
    _years(changelog, batches)
    with store.database.engine.begin() as connection:
        text = "UPDATE cdc_offset SET batch = :batch, offset = json_set(offset, '$.batch', :batch)"
        connection.execute(sa.text(text), {"batch": batches})
    _time_history(store, changelog, batches)  # what is imported and compiled, a server has before
    seconds = sorted(_time_history(store, changelog, batches) for _ in range(TIMES))
    with _process(folder) as run:
        command = [run("row", TABLE, str(KEY), "--json") for _ in range(STARTS)]
        start = [run("row", "--help") for _ in range(STARTS)]
    return {
        "batches": batches, "held_by": HELD, "index_bytes": KEYS * batches * 8, "index_ms_per_batch": round(built_s * 1000, 2), "times": TIMES,
        "p50_ms": _ms(statistics.median(seconds)), "p95_ms": _ms(seconds[int(TIMES * 0.95)]),
        "command": _command(command, start),
    }  # fmt: skip


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _command(story: list[tuple[float, float]], start: list[tuple[float, float]]) -> dict[str, Any]:
    """Compute the command's milliseconds, with the start of its process and without it."""
    took, cpu = ([statistics.median(one[n] for one in runs) for runs in (story, start)] for n in (0, 1))
    return {
        "times": STARTS, "p50_ms": _ms(took[0]), "worst_ms": _ms(max(one[0] for one in story)), "process_start_p50_ms": _ms(took[1]),
        "without_start_p50_ms": _ms(took[0] - took[1]), "cpu_ms": _ms(cpu[0]), "process_start_cpu_ms": _ms(cpu[1]),
        "without_start_cpu_ms": _ms(cpu[0] - cpu[1]),
    }  # fmt: skip


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


@contextlib.contextmanager
def _process(folder: Path) -> Iterator[Callable[..., tuple[float, float]]]:
    """Runs ``airflow cdc`` as a person does, and gives the seconds from the start of its process to the end, and those of the processor."""
    connection = json.dumps({"conn_type": "cdc_state", "password": f"sqlite:///{folder}/state.db"})
    given = {
        "AIRFLOW_HOME": f"{folder}/airflow", "AIRFLOW_CONN_CDC_STATE_DEFAULT": connection, "AIRFLOW__CDC__SHOW_ROWS_OF": NAME,
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }  # fmt: skip

    def run(*line: str) -> tuple[float, float]:
        began, used = time.perf_counter(), _cpu_of_children()
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "cdc", *line], env={**os.environ, **given}, capture_output=True, text=True
        )
        seconds, cpu = time.perf_counter() - began, _cpu_of_children() - used
        if done.returncode:
            raise Problem(f"airflow cdc {' '.join(line)} failed:\n{done.stderr}")
        if "--json" in line:
            found = [one for one in json.loads(done.stdout)["changes"] if one["operation"] == "create"]
            assert len(found) == HELD, f"{len(found)} changes were found instead of {HELD}"
        return seconds, cpu

    run("row", "--help")  # Airflow writes its configuration
    yield run


def _prepare_change_log(folder: Path) -> tuple[StateStore, ChangeLog, float]:
    """A change log whose batches have a hundred events each; and the seconds that the index takes for each of them."""
    database = MemoryDatabase("row-story")
    database.create_table(TABLE, {"id": "int64!", "note": "string", "n": "int64"}, key=("id",))
    state = f"sqlite:///{folder}/state.db"
    store = StateStore(state)
    store.create_tables()
    definition = ConnectorDefinition(
        NAME, "memory", f"{folder}/log", {"memory.database": "row-story", "batch.max.rows": 100}
    )
    changelog = ChangeLog(definition.changelog)
    with open_capture(definition, state) as capture:
        capture.run()
    for first in range(0, 20_000, 100):
        with database.transaction() as t:
            for key in range(first, first + 100):
                t.insert(TABLE, {"id": key, "note": "one more row", "n": key})
    with open_capture(definition, state) as capture:
        capture.run()
    began = time.perf_counter()
    bring_up_index(changelog, NAME, seconds=600)
    return store, changelog, (time.perf_counter() - began) / changelog.find_last_batch(NAME)


def _years(changelog: ChangeLog, batches: int) -> None:
    """Make a million batches of it, as far as a look reads them."""
    folder, random = changelog.storage.join_path(NAME, FOLDER), np.random.default_rng(1)
    changelog.storage.delete_folder(folder)
    pattern = next(m for m in changelog.read_manifests(NAME) if m.event_count == 100)
    own = RowKey({"id": KEY}).compute_hash(TABLE, (("id", "int64"),))
    assert own is not None
    held = np.sort(random.choice(np.arange(1000, batches - 100), HELD, replace=False))
    keys = {TABLE: {pattern.files[0].schema_version: ((("id", "int64"),),)}}
    document = pattern.to_document()
    for batch in {*held.tolist(), *range(STRETCH, batches + 1, STRETCH)}:
        seq = batch * 1000
        files = [{**document["files"][0], "first_seq": seq, "last_seq": seq + 99}]
        made = {**document, "batch": batch, "first_seq": seq, "last_seq": seq + 99, "files": files}
        Path(changelog.path_of(NAME, batch)).write_bytes(orjson.dumps(made))
    os.makedirs(folder)
    for low in range(1, batches, STRETCH):
        stretch = BatchRange(low, STRETCH)
        others = random.integers(0, 2**BITS, STRETCH * KEYS, dtype=np.uint64)
        found = (others << np.uint64(64 - BITS)) | np.repeat(np.arange(STRETCH, dtype=np.uint64), KEYS)
        mine = [
            build_entries(np.array([own], np.uint64), stretch, int(b)) for b in held if low <= b <= stretch.last_batch
        ]
        stamp = zlib.crc32(Path(changelog.path_of(NAME, stretch.last_batch)).read_bytes(), compute_hash_version())
        Path(folder, stretch.file_name).write_bytes(
            encode_segment(stretch, np.concatenate([found, *mine]), keys, stamp)
        )
    assert not KeyIndex(changelog, NAME).open_view(1, batches).unknown


def _time_history(store: StateStore, changelog: ChangeLog, batches: int) -> float:
    began = time.perf_counter()
    events = KeyEventReader(changelog, NAME, time.monotonic() + 60, after=batches)
    story = RowHistoryReader(events, NAME, partial(store.schema_changes_of, NAME)).read_history(
        TableId(namespace="shop", name="orders"), RowKey({"id": KEY})
    )
    seconds = time.perf_counter() - began
    rows = [change for change in story.changes if change.operation == "create"]
    assert len(rows) == HELD, f"{len(rows)} changes were found instead of {HELD}"
    assert not story.left_out
    return seconds


if __name__ == "__main__":
    main()
