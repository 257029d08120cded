"""Files in which a source carries something over, in a folder and on an object store."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files.change_log import ChangeLog


@pytest.fixture
def changelog(storage_address: tuple[str, dict[str, Any]]) -> ChangeLog:
    return ChangeLog(*storage_address)


def test_parts_of_a_file_are_what_was_written(changelog: ChangeLog) -> None:
    files = changelog.open_carry_over("c")
    data = bytes(range(256)) * 400
    file = files.write("1-a.rows", [data[:7], b"", data[7:]])
    assert (file.bytes, file.crc32) == (len(data), zlib.crc32(data))
    assert files.read("1-a.rows") == data
    assert files.read("1-a.rows", 1000, 24) == data[1000:1024]
    assert files.read("1-a.rows", len(data) - 3, 10) == data[-3:]
    assert files.read("none") is None
    assert files.read("none", 3, 4) is None


def test_the_files_of_a_connector_are_listed_with_their_sizes_and_deleted(changelog: ChangeLog) -> None:
    files = changelog.open_carry_over("c")
    assert files.list_sizes() == {}
    files.write("1-a.rows", [b"rows"])
    files.write("1-a.state", [b""])
    changelog.open_carry_over("d").write("1-a.rows", [b"others"])
    assert files.list_sizes() == {"1-a.rows": 4, "1-a.state": 0}
    files.delete("1-a.state")
    files.delete("1-a.state")
    assert files.list_sizes() == {"1-a.rows": 4}
    changelog.delete("c")
    assert files.list_sizes() == {}
    assert changelog.open_carry_over("d").list_sizes() == {"1-a.rows": 6}


def test_a_file_that_is_not_finished_is_not_there(changelog: ChangeLog) -> None:
    def parts() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise ValueError("no more")

    files = changelog.open_carry_over("c")
    with pytest.raises(ValueError, match="no more"):
        files.write("1-a.rows", parts())
    assert files.list_sizes() == {}
