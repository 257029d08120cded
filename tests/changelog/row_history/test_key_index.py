"""The index of keys never misses a batch: whatever is indexed, joined, killed, damaged or removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.changelog.row_history import key_index, key_index_segment
from airflow_provider_cdc.changelog.row_history.key_hashes import key_hashes
from airflow_provider_cdc.changelog.row_history.key_index import KeyIndex
from airflow_provider_cdc.changelog.row_history.key_index_segment import (
    BatchRange,
    KeySegment,
    SegmentDamaged,
    build_entries,
    encode_segment,
)
from airflow_provider_cdc.changelog.row_history.row_key import RowKey
from airflow_provider_cdc.sources.memory.database import MemoryDatabase
from tests.support.connectors import Connector, memory_connector

TABLE = "shop.orders"
COLUMNS = (("id", "int64"),)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "STEP", 10)
    monkeypatch.setattr(key_index_segment, "_PAGE", 8)


def _log(folder: Path, name: str, batches: int, r: Random) -> tuple[Connector, dict[int, set[int]]]:
    """A change log of single rows, and for each key the batches that have it."""
    db = MemoryDatabase(name)
    db.create_table(TABLE, {"id": "int64!", "note": "string"}, key=("id",))
    connector = memory_connector(db, folder, batch_max_rows=1)
    connector.capture()
    keys: set[int] = set()
    for _ in range(batches):
        with db.transaction() as t:
            key = r.randrange(30)
            if key in keys:
                t.update(TABLE, {"id": key}, {"note": str(r.random())})
            else:
                t.insert(TABLE, {"id": key, "note": ""})
                keys.add(key)
    connector.capture()
    found: dict[int, set[int]] = {}
    for manifest in connector.changelog.read_manifests("test"):
        for file in manifest.files:
            with connector.changelog.open_file("test", file) as opened:
                for row in pa.parquet.read_table(opened, columns=["key"]).to_pylist():
                    found.setdefault(row["key"]["id"], set()).add(manifest.batch)
    return connector, found


def _list_indexed_batches(connector: Connector, key: int, first: int, last: int) -> set[int]:
    """Batches that may have a key: by the index, and those that it does not know."""
    view = KeyIndex(connector.changelog, "test").open_view(first, last)
    found = view.find_batches(TABLE, lambda _, columns: RowKey({"id": key}).compute_hash(TABLE, columns))
    return found | {batch for a, b in view.unknown for batch in range(a, b + 1)}


def _complete(connector: Connector, batches: dict[int, set[int]], *, few: bool = True) -> None:
    last = connector.changelog.find_last_batch("test")
    for key, expected in batches.items():
        found = _list_indexed_batches(connector, key, 1, last)
        assert expected <= found, key
        if few:
            assert len(found - expected) <= 10


def _files(connector: Connector) -> list[Path]:
    return sorted((connector.folder / "changelog" / "test" / "keys").glob("*"))


def test_all_batches_are_found_and_files_are_joined(tmp_path: Path) -> None:
    connector, batches = _log(tmp_path, "index-all", 130, Random(1))
    index, last = KeyIndex(connector.changelog, "test"), connector.changelog.find_last_batch("test")
    assert index.bring_up(1, last) == 0
    names = [path.name for path in _files(connector)]
    assert f"{1:012d}-{100:012d}.keys" in names
    assert len(names) == 1 + (last - 100) // 10
    _complete(connector, batches)


def test_dense_stretches_get_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MOST", 4)
    connector, batches = _log(tmp_path, "index-dense", 45, Random(2))
    KeyIndex(connector.changelog, "test").bring_up(1, connector.changelog.find_last_batch("test"))
    assert any(path.name == f"{2:012d}-{2:012d}.keys" for path in _files(connector))
    _complete(connector, batches)


def test_time_ends_the_work_and_the_next_one_goes_on(tmp_path: Path) -> None:
    connector, batches = _log(tmp_path, "index-time", 95, Random(3))
    index, last = KeyIndex(connector.changelog, "test"), connector.changelog.find_last_batch("test")
    assert index.bring_up(1, last, until=time.monotonic()) > 0
    assert not _files(connector)
    _complete(connector, batches, few=False)
    reports: list[tuple[int, int]] = []
    assert index.bring_up(1, last, report_progress=lambda done, of: reports.append((done, of))) == 0
    assert reports[-1][0] == reports[-1][1] > 0


@pytest.mark.parametrize("how", ["cut", "page", "head", "other log", "empty", "other arrow"])
def test_what_is_damaged_is_made_again(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connector, batches = _log(tmp_path, f"index-{how}", 60, Random(4))
    index, last = KeyIndex(connector.changelog, "test"), connector.changelog.find_last_batch("test")
    index.bring_up(1, last)
    victim = _files(connector)[2]
    data = bytearray(victim.read_bytes())
    if how == "cut":
        data = data[:-8]
    elif how == "page":
        data[-3] ^= 1
    elif how == "head":
        data[60] ^= 1
    elif how == "empty":
        data = bytearray()
    victim.write_bytes(data)
    if how == "other log":
        manifest = Path(connector.changelog.path_of("test", 30))
        manifest.write_bytes(manifest.read_bytes().replace(b'"batch":30', b'"batch": 30'))
    if how == "other arrow":
        monkeypatch.setattr(key_index, "compute_hash_version", lambda: 1)
    for key, expected in batches.items():
        try:
            found = _list_indexed_batches(connector, key, 1, last)
        except key_index.IndexChanged:
            found = _list_indexed_batches(connector, key, 1, last)
        assert expected <= found, key
    index.bring_up(1, last)
    _complete(connector, batches)


def test_a_connector_that_is_made_again_has_no_index(tmp_path: Path) -> None:
    connector, _ = _log(tmp_path, "index-deleted", 40, Random(5))
    KeyIndex(connector.changelog, "test").bring_up(1, 40)
    connector.changelog.delete("test")
    assert not _files(connector)


def test_two_at_once_make_the_same(tmp_path: Path) -> None:
    from threading import Thread

    connector, batches = _log(tmp_path, "index-two", 105, Random(6))
    last = connector.changelog.find_last_batch("test")
    threads = [Thread(target=KeyIndex(connector.changelog, "test").bring_up, args=(1, last)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _complete(connector, batches)


_BRING_UP = """
import sys
from airflow_provider_cdc.changelog.row_history import key_index, key_index_segment
from airflow_provider_cdc.changelog.files.change_log import ChangeLog
key_index.STEP, key_index_segment._PAGE = 10, 8
changelog = ChangeLog(sys.argv[1])
print("begins", flush=True)
while True:
    key_index.KeyIndex(changelog, "test").bring_up(1, int(sys.argv[2]), report_progress=lambda done, of: print(done, flush=True))
"""


@pytest.mark.crash
def test_a_kill_leaves_an_index_that_misses_nothing(tmp_path: Path) -> None:
    r = Random(7)
    connector, batches = _log(tmp_path, "index-killed", 125, r)
    last = connector.changelog.find_last_batch("test")
    for blocks in (1, 4, 11, 12):
        for path in _files(connector):
            path.unlink()
        command = [sys.executable, "-c", _BRING_UP, connector.changelog.storage.url, str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(blocks + 1):
                process.stdout.readline()
            time.sleep(r.random() * 0.004)
            os.kill(process.pid, signal.SIGKILL)
        assert _files(connector)
        _complete(connector, batches, few=False)
        KeyIndex(connector.changelog, "test").bring_up(1, last)
        _complete(connector, batches)


@given(st.lists(st.tuples(st.integers(0, 2**44 - 1), st.integers(0, 99)), max_size=60), st.integers(0, 2**44 - 1))
def test_a_file_has_what_was_put_into_it(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], other: int
) -> None:
    folder, stretch = tmp_path_factory.mktemp("segment"), BatchRange(101, 100)
    pieces = [build_entries(np.array([one], np.uint64), stretch, 101 + at) for one, at in pairs]
    found = np.concatenate([*pieces, np.zeros(0, np.uint64)])
    (folder / "f").write_bytes(encode_segment(stretch, found, {"shop.orders": {3: (COLUMNS, ())}}, 7))
    segment = KeySegment(Storage(str(folder)), str(folder / "f"), stretch)
    assert segment.keys == {"shop.orders": {3: (COLUMNS, ())}}
    for one in {other, *(hash_ for hash_, _ in pairs)}:
        assert segment.find_batches([one]) == {101 + at for hash_, at in pairs if hash_ == one}
    with pytest.raises(SegmentDamaged):
        KeySegment(Storage(str(folder)), str(folder / "f"), BatchRange(1, 100))


_VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.string(): st.text(), pa.binary(): st.binary(), pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False), pa.decimal128(12, 2): st.decimals(-(10**9), 10**9, places=2),
    pa.date32(): st.dates(), pa.timestamp("us"): st.datetimes(),
}  # fmt: skip


@given(st.data())
def test_a_key_has_its_hash_wherever_it_is(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(st.none() | _VALUES[type_] for type_ in types)), min_size=1, max_size=8))
    columns = [pa.array([row[n] for row in rows], type_) for n, type_ in enumerate(types)]
    together = key_hashes(TABLE, pa.table(columns, names=list("abc"[: len(types)])))
    alone = [
        key_hashes(TABLE, pa.table([column.slice(n, 1) for column in columns], names=list("abc"[: len(types)])))[0]
        for n in range(len(rows))
    ]
    assert together.tolist() == alone
    assert len(set(together.tolist())) == len({tuple(map(_comparable_value, row)) for row in rows})


def _comparable_value(value: object) -> object:
    return (type(value), 0.0 if value == 0 and isinstance(value, float) else value)
