"""Files in the order of their names: they grow, come, are compressed; what would lose events is an error."""

from __future__ import annotations

import gzip
import json
import threading
import time
from pathlib import Path

import pytest
import zstandard

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import PositionLost, SourceLogDamaged
from airflow_provider_cdc.sources.debezium import file_feed, record_feed_interface
from tests.sources.debezium.written import Row, Topic, connector, node, write
from tests.support.connectors import Connector

TOPIC = Topic([node("id", "int32", optional=False)])


def _events(*ids: int) -> list[Row]:
    return [TOPIC.event("c", None, {"id": n}) for n in ids]


def _ids(found: Connector) -> list[int]:
    return sorted(row["id"] for row in found.rows("inventory.orders"))


def _text(*ids: int) -> bytes:
    return "".join(json.dumps(e) + "\n" for e in _events(*ids)).encode()


def test_files_are_read_in_the_order_of_their_names_and_on_from_where_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "b.jsonl", _events(3))
    write(folder / "a.jsonl", _events(1, 2))
    write(folder / ".hidden.jsonl", ["no event"])
    write(folder / "notes.txt", ["no event"])
    found = connector(tmp_path)
    assert found.capture().events == 3
    write(folder / "b.jsonl", _events(4))
    write(folder / "c" / "d.jsonl", _events(5))
    assert found.capture().events == 2
    assert found.capture().events == 0
    assert _ids(found) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("small", [False, True])
def test_compressed_files_are_files(tmp_path: Path, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if small:
        for module in (record_feed_interface, file_feed):
            monkeypatch.setattr(module, "PIECE_BYTES", 900)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(_text(*range(20))) + gzip.compress(_text(20)))
    (folder / "b.jsonl.zst").write_bytes(zstandard.compress(_text(*range(21, 30))) + zstandard.compress(_text(30)))
    found = connector(tmp_path, {"batch.max.rows": 7})
    found.capture()
    assert found.capture().events == 0
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(_text(31)))
    found.capture()
    assert _ids(found) == list(range(32))


def test_a_line_is_read_when_it_has_its_end_or_another_file_has_come(tmp_path: Path) -> None:
    file, found = tmp_path / "in" / "a.jsonl", connector(tmp_path)
    file.parent.mkdir()
    file.write_bytes(_text(1) + _text(2)[:-20])
    assert found.capture().events == 1
    with open_source(found.definition()) as source:
        assert "does not end with a line feed" in source.check_prerequisites()[0].problem
    file.write_bytes(_text(1) + _text(2)[:-1])
    assert found.capture().events == 0
    write(file.with_name("b.jsonl"), _events(3))
    assert found.capture().events == 2
    assert _ids(found) == [1, 2, 3]


def test_small_pieces_and_long_lines_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_feed, "PIECE_BYTES", 100)
    write(tmp_path / "in" / "a.jsonl", _events(*range(30)))
    (tmp_path / "in" / "a.jsonl").open("a").write("\n\r\n")
    write(tmp_path / "in" / "a.jsonl", _events(30))
    found = connector(tmp_path)
    found.capture()
    assert _ids(found) == list(range(31))


def test_a_pattern_and_a_single_file_are_paths_too(tmp_path: Path) -> None:
    for name, n in (("a.jsonl", 1), ("b.jsonl", 2), ("other.txt", 3)):
        write(tmp_path / "in" / name, _events(n))
    pattern = connector(tmp_path / "1", {"events.path": f"{tmp_path}/in/*.jsonl"})
    pattern.capture()
    single = connector(tmp_path / "2", {"events.path": f"file://{tmp_path}/in/other.txt"})
    single.capture()
    assert (_ids(pattern), _ids(single)) == ([1, 2], [3])


def test_what_was_read_may_be_deleted_except_the_last_file(tmp_path: Path) -> None:
    folder, found = tmp_path / "in", connector(tmp_path)
    for n, name in enumerate("abc"):
        write(folder / f"{name}.jsonl", _events(n))
    found.capture()
    (folder / "a.jsonl").unlink()
    (folder / "b.jsonl").unlink()
    write(folder / "d.jsonl", _events(9))
    found.capture()
    assert _ids(found) == [0, 1, 2, 9]
    (folder / "d.jsonl").unlink()
    with pytest.raises(PositionLost, match=r"d\.jsonl no longer exists"):
        found.capture()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_is_not_what_it_was_is_an_error(tmp_path: Path, suffix: str) -> None:
    def write_compressed(data: bytes) -> None:
        file.write_bytes(gzip.compress(data) if suffix else data)

    file, found = tmp_path / "in" / f"a.jsonl{suffix}", connector(tmp_path)
    file.parent.mkdir()
    write_compressed(_text(1, 2))
    found.capture()
    before = file.read_bytes()
    write_compressed(_text(1))
    with pytest.raises(PositionLost, match="has changed") as caught:
        found.capture()
    assert f"a.jsonl{suffix}" in str(caught.value)
    file.write_bytes(before)
    assert found.capture().events == 0


def test_a_file_whose_name_is_before_that_which_is_read_is_an_error(tmp_path: Path) -> None:
    folder, found = tmp_path / "in", connector(tmp_path)
    write(folder / "b.jsonl", _events(1))
    found.capture()
    write(folder / "a.jsonl", _events(2))
    with pytest.raises(PositionLost, match=r"sort before .* such as a.jsonl"):
        found.capture()
    (folder / "a.jsonl").rename(folder / "c.jsonl")
    found.capture()
    assert _ids(found) == [1, 2]


def test_a_compressed_file_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(_text(*range(50)))[:-30])
    with pytest.raises(SourceLogDamaged, match="is incomplete"):
        connector(tmp_path).capture()


def test_files_that_grow_and_come_are_followed(tmp_path: Path) -> None:
    folder, found, n = tmp_path / "in", connector(tmp_path, {"batch.max.ms": 100}), 40

    def write_files() -> None:
        for one in range(n):
            write(folder / f"{one // 10}.jsonl", _events(one))
            time.sleep(0.02)

    folder.mkdir()
    writer = threading.Thread(target=write_files)
    writer.start()
    found.capture(run_for_s=60, until=lambda: not writer.is_alive() and _count_committed(found) == n)
    writer.join()
    found.capture()
    assert _ids(found) == list(range(n))


def _count_committed(found: Connector) -> int:
    return sum(f.rows for m in found.changelog.read_manifests(found.name, after=0) for f in m.files)
