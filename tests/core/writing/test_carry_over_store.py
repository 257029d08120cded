"""Files in which a source carries something over: valid by the offset, fenced by the epoch, gone when no offset names them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.connector_offset import CarriedFile, Offset
from airflow_provider_cdc.core.spi.carry_over import CarryOverLost
from airflow_provider_cdc.core.writing import carry_over_store as module
from airflow_provider_cdc.core.writing.carry_over_store import StoredCarryOver


class CarryOverBench:
    """Runs of one connector, each with its own carrier."""

    def __init__(self, folder: Path) -> None:
        self.changelog = ChangeLog(str(folder))
        self.files = self.changelog.open_carry_over("c")

    def carrier(self, carried: CarriedFile | None = None, *, epoch: int = 1, **properties: Any) -> StoredCarryOver:
        carrier = StoredCarryOver(self.files, carried, epoch, properties)
        carrier.start_stream(carried, [])
        return carrier

    def names(self) -> set[str]:
        return set(self.files.list_sizes())


@pytest.fixture
def bench(tmp_path: Path) -> CarryOverBench:
    return CarryOverBench(tmp_path)


def test_a_state_and_its_files_come_back_in_the_next_run(bench: CarryOverBench) -> None:
    one = bench.carrier()
    assert (one.load_state(), one.has_state) == (None, False)
    rows = one.write_file([b"first ", b"second"])
    file = one.store_state({"scn": 7}, [rows])
    one.record_commit(file)
    two = bench.carrier(file, epoch=2)
    assert (two.load_state(), two.has_state) == ({"scn": 7}, True)
    assert two.read_part(rows.name, 6, 6) == b"second"
    assert bench.names() == {file.name, rows.name}


def test_an_offset_with_a_state_is_small() -> None:
    file = CarriedFile(name="12-0123456789ab-000001.state", bytes=10, crc32=1)
    offset = Offset(position={"scn": "1"}).with_carried_file(file)
    assert Offset.model_validate(offset.to_document()) == offset
    assert len(str(offset.to_document())) < 150
    assert "carried" not in offset.with_carried_file(None).to_document()


def test_a_position_that_someone_chooses_carries_nothing() -> None:
    offset = Offset(position={"scn": "1"}).with_carried_file(CarriedFile(name="n", bytes=1, crc32=1))
    assert offset.advance_position({"scn": "2"}).carried is not None
    for moved in (offset.move_position({"scn": "1"}), offset.restore_position(offset), offset.clear_position()):
        assert moved.carried is None


def test_what_the_offset_does_not_name_any_more_is_deleted_when_that_is_committed(bench: CarryOverBench) -> None:
    one = bench.carrier()
    kept, gone = one.write_file([b"kept"]), one.write_file([b"gone"])
    first = one.store_state({}, [kept, gone])
    one.record_commit(first)
    second = one.store_state({}, [kept])
    assert bench.names() == {kept.name, gone.name, first.name, second.name}
    one.record_commit(second)
    assert bench.names() == {kept.name, second.name}
    one.clear_state()
    assert not one.has_state
    one.record_commit(None)
    assert bench.names() == set()


def test_what_no_offset_has_ever_named_is_deleted_with_the_next_commit(bench: CarryOverBench) -> None:
    """A run may have several streams: what one of them has put may be of no use to the next, before anything is committed."""
    one = bench.carrier()
    rows = one.write_file([b"rows"])
    first = one.store_state({}, [rows])
    one.record_commit(None)  # of an item before the one that names it
    assert bench.names() == {rows.name, first.name}
    one.start_stream(first, [])
    assert one.load_state() == {}
    one.clear_state()
    one.record_commit(None)
    assert bench.names() == set()


def test_files_of_a_state_that_cannot_be_read_stay_until_an_offset_does_without_it(bench: CarryOverBench) -> None:
    one = bench.carrier()
    rows = one.write_file([b"rows"])
    file = one.store_state({}, [rows])
    one.record_commit(file)
    path = Path(bench.changelog.storage.join_path("c", "carried", file.name))
    path.write_bytes(path.read_bytes()[:-1])
    two = bench.carrier(file, epoch=2)
    two.record_commit(file)
    assert bench.names() == {rows.name, file.name}
    two.clear_state()
    two.record_commit(None)
    assert bench.names() == set()


def test_files_of_a_killed_run_are_deleted_by_the_next_one(bench: CarryOverBench) -> None:
    one = bench.carrier()
    rows = one.write_file([b"rows"])
    committed = one.store_state({}, [rows])
    one.record_commit(committed)
    one.write_file([b"more"])
    one.store_state({}, [rows])  # the process ends here
    assert len(bench.names()) == 4
    assert bench.carrier(committed, epoch=2).load_state() == {}
    assert bench.names() == {rows.name, committed.name}
    bench.carrier(None, epoch=3)
    assert bench.names() == set()


def test_a_run_that_was_taken_over_leaves_the_files_of_the_one_that_took_over(bench: CarryOverBench) -> None:
    before = bench.carrier()
    rows = before.write_file([b"rows"])
    first = before.store_state({}, [rows])
    before.record_commit(first)
    fast = bench.carrier(first, epoch=2)
    more = fast.write_file([b"more"])
    second = fast.store_state({}, [rows, more])
    bench.carrier(first)  # begins late, with the old lease
    assert bench.names() == {rows.name, first.name, more.name, second.name}
    fast.record_commit(second)
    with pytest.raises(CarryOverLost):
        bench.carrier(first).load_state()
    assert bench.names() == {rows.name, more.name, second.name}
    assert bench.carrier(second, epoch=3).load_state() == {}


def _damages(bench: CarryOverBench, file: CarriedFile, rows: CarriedFile) -> Iterator[tuple[str, str]]:
    folder = Path(bench.changelog.storage.join_path("c", "carried"))
    for name in (file.name, rows.name):
        data = (folder / name).read_bytes()
        (folder / name).unlink()
        yield name, "missing"
        (folder / name).write_bytes(data[:-1])
        yield name, "damaged|truncated"
        (folder / name).write_bytes(data)


def test_what_is_missing_or_damaged_is_not_given_back(bench: CarryOverBench) -> None:
    one = bench.carrier()
    rows = one.write_file([b"rows"])
    file = one.store_state({"scn": 1}, [rows])
    one.record_commit(file)
    for _, why in _damages(bench, file, rows):
        with pytest.raises(CarryOverLost, match=why):
            bench.carrier(file, epoch=2).load_state()
    assert bench.carrier(file, epoch=2).load_state() == {"scn": 1}
    path = Path(bench.changelog.storage.join_path("c", "carried", file.name))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CarryOverLost, match="damaged"):
        bench.carrier(file, epoch=2).load_state()


def test_a_file_that_goes_while_it_is_used_is_reported(bench: CarryOverBench) -> None:
    one = bench.carrier()
    rows = one.write_file([b"rows"])
    with pytest.raises(CarryOverLost, match="ends at byte 4 instead of 9"):
        one.read_part(rows.name, 0, 9)
    one.discard_files([rows])
    with pytest.raises(CarryOverLost, match="missing"):
        one.read_part(rows.name, 0, 4)


def test_a_state_is_of_one_release_of_the_same_properties_and_of_the_same_tables(
    bench: CarryOverBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench.carrier(a=1)
    file = one.store_state({}, [])
    one.record_commit(file)
    assert bench.carrier(file, a=1).load_state() == {}
    with pytest.raises(CarryOverLost, match="properties"):
        bench.carrier(file, a=2).load_state()
    other = bench.carrier(file, a=1)
    other.start_stream(file, ["shop.t"])
    with pytest.raises(CarryOverLost, match="tables that are left out"):
        other.load_state()
    monkeypatch.setattr(module, "__version__", "9.9.9")
    with pytest.raises(CarryOverLost, match="release"):
        bench.carrier(file, a=1).load_state()
    assert bench.names() == {file.name}
    monkeypatch.setattr(module, "FORM", 99)
    with pytest.raises(CarryOverLost, match="format 1, and this release supports 99"):
        bench.carrier(file, a=1).load_state()


def test_a_file_whose_parts_fail_is_none(bench: CarryOverBench) -> None:
    def parts() -> Iterator[bytes]:
        yield b"first"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        bench.carrier().write_file(parts())
    assert bench.names() == set()


def test_a_stream_that_goes_on_puts_a_state_now_and_then_and_when_its_end_is_near(bench: CarryOverBench) -> None:
    left: list[float | None] = [None]
    carrier = StoredCarryOver(bench.files, None, 1, {}, lambda: left[0])
    carrier.start_stream(None, [])
    assert not carrier.is_due
    left[0] = 60
    assert not carrier.is_due
    left[0] = 5
    assert carrier.is_due
    left[0] = None
    carrier._put_at -= 31
    assert carrier.is_due
    carrier.store_state({}, [])
    assert not carrier.is_due
