"""The files of one batch, against a list in plain Python: what is written, marked and taken back."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_cdc.changelog.files import parquet_writer as module
from airflow_provider_cdc.changelog.files.parquet_writer import COMMITTED, ParquetBatchWriter
from airflow_provider_cdc.changelog.files.part_file_buffer import CompressedEvents
from airflow_provider_cdc.changelog.files.storage import DurableFile, Storage
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.config.topic_names import TopicNames
from airflow_provider_cdc.core.errors import StorageFull
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.log_items import CREATE, BlockTransactions, LogBlock, RowBlock
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, row_struct
from airflow_provider_cdc.core.spi.source import VARIED
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources.memory.position import MemoryPosition

FOLDER = ("c", "data", "000000000001")


def _schema(table: str, version: int) -> TableSchema:
    columns = [Column(name="id", type="int64"), *(Column(name=f"v{i}", type="string") for i in range(version))]
    return TableSchema(id=TableId(namespace="shop", name=table), columns=tuple(columns), key=("id",), version=version)


SCHEMAS = {(t, v): _schema(t, v) for t in ("a", "b", "wéird/naïve name") for v in (1, 2)}
CONFIG = TableConfig.parse({"topic.prefix": "p"})
TOPICS = TopicNames(CONFIG)
ENVELOPE = Envelope(CONFIG, Filters(CONFIG), "memory", [pa.field("file", pa.string())], topics=TOPICS)


def _block(which: tuple[str, int], seq: int, n: int, text: str = "x") -> tuple[LogBlock, int]:
    schema = SCHEMAS[which]
    rows = [{"id": seq + i, **{f"v{j}": text for j in range(which[1])}} for i in range(n)]
    block = RowBlock(
        schema, np.full(n, CREATE, np.int8), None, pa.array(rows, row_struct(schema)), np.arange(n), np.zeros(n, np.int32),
        np.zeros(n, np.int64), {"file": pa.array([f"f{seq}"] * n)},
    )  # fmt: skip
    return LogBlock([block], BlockTransactions(pa.array(["t"]), np.zeros(1, np.int64)), MemoryPosition(0)), n


def _events(which: tuple[str, int], seq: int, n: int, text: str = "x") -> EventBatch:
    log, _ = _block(which, seq, n, text)
    ((batch,), _) = ENVELOPE.encode_block(log, seq)
    return batch


def _rows(batch: EventBatch) -> list[dict[str, Any]]:
    return batch.events.to_pylist()


def _read(storage: Storage, file: DataFile) -> list[dict[str, Any]]:
    """The rows of a file, after everything that its description says of it was found to be true."""
    data = storage.read(storage.join_path("c", file.path))
    assert data is not None
    assert (len(data), zlib.crc32(data)) == (file.bytes, file.crc32)
    rows: list[dict[str, Any]] = pq.ParquetFile(pa.BufferReader(data)).read().to_pylist()
    assert file.rows == len(rows)
    assert (rows[0]["seq"], rows[-1]["seq"]) == (file.first_seq, file.last_seq)
    assert Counter(r["op"] for r in rows) == file.counts
    assert {r["schema_version"] for r in rows} == {file.schema_version}
    return rows


_write = st.tuples(st.just("write"), st.sampled_from(sorted(SCHEMAS)), st.integers(1, 5))
_others = st.sampled_from([("set_savepoint",), ("rollback",), ("release_savepoint",)])
_steps = st.lists(st.one_of(_write, _write, _others), max_size=30)


@settings(deadline=None)
@given(
    _steps,
    st.sampled_from(["finish", "abandon"]),
    st.sampled_from([2, 7, 131_072]),
    st.sampled_from([1, 512 << 20]),
    st.sampled_from([1, 100_000, 64 << 20]),
    st.sampled_from([1, 2, 32]),
)
def test_files_hold_what_was_written_and_not_taken_back(
    steps: list[Any], end: str, group_rows: int, file_bytes: int, waiting_bytes: int, open_files: int
) -> None:
    """Small row groups and files, and little room, show the seams between them."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROW_GROUP_ROWS", group_rows)
        patch.setattr(module, "FILE_BYTES", file_bytes)
        patch.setattr(module, "WAITING_BYTES", waiting_bytes)
        patch.setattr(module, "OPEN_FILES", open_files)
        storage = Storage(folder)
        writer = ParquetBatchWriter(storage, FOLDER, "w1")
        written: list[tuple[tuple[str, int], dict[str, Any]]] = []
        marked: int | None = 0
        seq = bytes_ = kept = 0
        for step in steps:
            if step[0] in ("set_savepoint", "release_savepoint"):
                getattr(writer, step[0])()
                marked, kept = len(written) if step[0] == "set_savepoint" else None, bytes_
            elif step[0] == "rollback":
                if marked is None:
                    continue  # no one takes back what is settled
                writer.rollback()
                del written[marked:]
                seq, bytes_ = written[-1][1]["seq"] if written else 0, kept
            else:
                batch = _events(step[1], seq, step[2])
                size = batch.events.nbytes
                writer.write(batch)
                written += [((batch.topic, batch.schema.version), r) for r in _rows(batch)]
                seq, bytes_ = batch.last_seq, bytes_ + size
            assert writer.buffered_bytes == bytes_
        there = Path(folder, *FOLDER)
        if end == "abandon":
            writer.discard_files()
            assert not there.exists() or list(there.iterdir()) == []
            return
        files = writer.finish_files()
        assert writer._waiting_bytes == 0
        found = [((f.topic, f.schema_version), r) for f in files for r in _read(storage, f)]
        assert sorted(found, key=lambda x: x[1]["seq"]) == written
        assert (
            sorted(p.name for p in there.iterdir()) == sorted(f.path.rpartition("/")[2] for f in files)
            if files
            else True
        )
        assert len({f.path for f in files}) == len(files)


def test_marks_and_settled_transactions_make_no_more_files(storage: Storage) -> None:
    """Write blocks in the order of several tables: all but the last one of a stretch are within a transaction."""
    writer = ParquetBatchWriter(storage, FOLDER, "w1")
    seq = 0
    for _ in range(20):
        writer.set_savepoint()
        for which in SCHEMAS:
            writer.write(_events(which, seq, 3))
            seq += 3
        writer.release_savepoint()
    files = writer.finish_files()
    assert len(files) == len(SCHEMAS)
    assert {f.rows for f in files} == {60}


def test_what_is_taken_back_is_in_no_file_however_large_it_is(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 10)
    writer = ParquetBatchWriter(storage, FOLDER, "w1")
    writer.write(_events(("a", 1), 0, 3))
    writer.release_savepoint()
    writer.set_savepoint()
    for n in range(10):
        writer.write(_events(("a", 1), 3 + 5 * n, 5))
    writer.rollback()
    writer.release_savepoint()
    writer.write(_events(("a", 1), 3, 2))
    files = writer.finish_files()
    assert [r["seq"] for f in files for r in _read(storage, f)] == [1, 2, 3, 4, 5]
    assert len(storage.list(storage.join_path(*FOLDER))) == len(files)


def test_a_few_rows_of_many_tables_are_packed_and_not_written_in_pieces(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of a few rows takes twenty times the memory of its values."""
    monkeypatch.setattr(module, "WAITING_BYTES", 1 << 20)
    writer = ParquetBatchWriter(storage, FOLDER, "w1")
    loose, seq, made = 0, 0, writer._make_room

    def inspect_items() -> None:
        nonlocal loose
        made()
        items = [one for part in writer._parts.values() for one in part.waiting.items]
        loose = max(loose, sum(not isinstance(one, CompressedEvents) for one in items))

    monkeypatch.setattr(writer, "_make_room", inspect_items)
    for _ in range(50):
        for which in SCHEMAS:
            writer.write(_events(which, seq, 2))
            seq += 2
    files = writer.finish_files()
    assert len(files) == len(SCHEMAS)
    for file in files:
        assert pq.ParquetFile(storage.join_path("c", file.path)).metadata.num_row_groups == 1
    assert 0 < loose < 30


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def writer(storage: Storage) -> Iterator[ParquetBatchWriter]:
    writer = ParquetBatchWriter(storage, FOLDER, "w1")
    yield writer
    writer.discard_files()


def test_a_batch_without_events_has_no_files(writer: ParquetBatchWriter, storage: Storage) -> None:
    assert writer.finish_files() == []
    assert storage.list(storage.join_path(*FOLDER)) == []


def test_file_names_contain_the_run_and_suit_every_store(writer: ParquetBatchWriter) -> None:
    writer.write(_events(("wéird/naïve name", 2), 0, 1))
    (file,) = writer.finish_files()
    assert file.path == "data/000000000001/00001-p.shop.w_ird_na_ve_name-v2-w1.parquet"
    assert file.topic == "p.shop.w_ird_na_ve_name"


def test_the_size_in_memory_follows_rollbacks(writer: ParquetBatchWriter) -> None:
    assert writer.buffered_bytes == 0
    writer.write(_events(("a", 1), 0, 5))
    kept = writer.buffered_bytes
    writer.set_savepoint()
    writer.write(_events(("a", 1), 5, 5))
    assert writer.buffered_bytes > kept > 0
    writer.rollback()
    assert writer.buffered_bytes == kept


def test_large_batches_come_as_several_files(
    writer: ParquetBatchWriter, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(module, "FILE_BYTES", 50_000)
    for i in range(10):
        writer.write(_events(("a", 1), i * 10, 10, text="x" * 2000))
    files = writer.finish_files()
    assert len(files) > 2
    assert [r["seq"] for f in files for r in _read(storage, f)] == list(range(1, 101))


def test_keys_sequence_numbers_and_commit_times_have_statistics_for_those_who_skip(
    writer: ParquetBatchWriter, storage: Storage
) -> None:
    writer.write(_events(("a", 1), 0, 5))
    (file,) = writer.finish_files()
    metadata = pq.ParquetFile(storage.join_path("c", file.path)).metadata
    group = metadata.row_group(0)
    with_statistics = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).is_stats_set}
    assert with_statistics == {"seq", "key.id", COMMITTED}


def test_what_is_packed_is_written_before_it_is_too_much_to_unpack(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that repeat take a hundredth of their memory when they are packed, and all of it when they are written."""
    monkeypatch.setattr(module, "WAITING_BYTES", 200_000)
    monkeypatch.setattr(module, "ROW_GROUP_BYTES", 1_000_000)
    writer = ParquetBatchWriter(storage, FOLDER, "w1")
    for n in range(60):
        writer.write(_events(("a", 1), n * 10, 10, text="x" * 10_000))
    files = writer.finish_files()
    assert sum(file.rows for file in files) == 600
    groups = [pq.ParquetFile(storage.join_path("c", file.path)).metadata.num_row_groups for file in files]
    assert sum(groups) >= 5


# errors of the thread that writes


class _StorageFull(OSError):
    pass


def _fail_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    write, count = DurableFile.write, iter(range(10**6))

    def fail_after(self: DurableFile, data: bytes) -> int:
        if not self._discarded and next(count) >= writes:
            raise StorageFull("No space is left.", remedy="free space")
        return write(self, data)

    monkeypatch.setattr(DurableFile, "write", fail_after)


@pytest.mark.parametrize("writes", [0, 1, 3])
def test_an_error_of_the_writing_shows_at_a_later_call_and_leaves_nothing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 1)
    _fail_after(monkeypatch, writes)
    before = {*threading.enumerate()}
    writer = ParquetBatchWriter(storage, FOLDER, "w1")

    def fill() -> None:
        for i in range(50):
            writer.write(_events(("a", 1), i, 1))
        writer.finish_files()

    with pytest.raises(StorageFull):
        fill()
    writer.discard_files()
    assert storage.list(storage.join_path(*FOLDER)) == []
    assert not [t for t in {*threading.enumerate()} - before if t.name == "cdc-parquet"]


def test_no_one_waits_for_room_that_a_failed_thread_will_not_make(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUEUE_BYTES", 1)
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 1)
    _fail_after(monkeypatch, 0)
    writer = ParquetBatchWriter(storage, FOLDER, "w1")

    def fill() -> None:
        for i in range(10_000):
            writer.write(_events(("a", 1), i, 1))

    with pytest.raises(StorageFull):
        fill()
    writer.discard_files()


def test_a_rollback_after_an_error_does_not_hide_it(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROW_GROUP_ROWS", 1)
    _fail_after(monkeypatch, 0)
    writer = ParquetBatchWriter(storage, FOLDER, "w1")
    writer.set_savepoint()
    writer.write(_events(("a", 1), 0, 1))
    writer.rollback()
    with pytest.raises(StorageFull):
        writer.finish_files()
    writer.discard_files()


def test_texts_that_are_seldom_the_same_have_no_dictionary(writer: ParquetBatchWriter, storage: Storage) -> None:
    """The source says which fields those are, not their names."""
    fields = [pa.field("file", pa.string()), pa.field("statement", pa.string(), metadata=VARIED)]
    log, n = _block(("a", 1), 0, 100)
    log.rows[0].source["statement"] = pa.array([f"insert {i}" for i in range(n)])
    ((batch,), _) = Envelope(CONFIG, Filters(CONFIG), "memory", fields).encode_block(log, 0)
    writer.write(batch)
    (file,) = writer.finish_files()
    data = storage.read(storage.join_path("c", file.path))
    assert data is not None
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert "RLE_DICTIONARY" in columns["source.file"].encodings
    assert "RLE_DICTIONARY" not in columns["source.statement"].encodings


def test_a_file_has_the_same_schema_whether_or_not_values_are_unavailable(storage: Storage) -> None:
    found = []
    for lacking in (False, True):
        log, n = _block(("a", 2), 0, 50)
        if lacking:
            log.rows[0].unavailable_after = np.zeros((3, n), np.bool_)
            log.rows[0].unavailable_after[1, ::2] = True
        writer = ParquetBatchWriter(storage, FOLDER, f"run-{lacking}")
        plain, _ = _block(("a", 2), n, 50)
        for part in (plain, log):
            ((batch,), _) = ENVELOPE.encode_block(part, 0)
            writer.write(batch)
        (file,) = writer.finish_files()
        data = storage.read(storage.join_path("c", file.path))
        assert data is not None
        table = pq.ParquetFile(pa.BufferReader(data)).read()
        found.append((table.schema, file.unavailable, table["unavailable"].to_pylist()))
    assert found[0][0] == found[1][0]
    assert [names for _, names, _ in found] == [[], ["v0"]]
    assert found[0][2] == [None] * 100
    assert found[1][2] == [None] * 50 + [["v0"], None] * 25
