"""Scratch change logs: they are gone at the end, those of killed processes are removed by the next one, and no one else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.changelog.files import scratch_change_log
from airflow_provider_cdc.changelog.files.scratch_change_log import (
    BEAT_S,
    CLEANUP_EVERY_S,
    DEAD_S,
    scratch_changelog,
    scratch_folder,
)
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import StorageFull
from airflow_provider_cdc.core.process_liveness import is_running, this_process

ELSEWHERE = "another-machine/pid:[1] 1 1"


def _name(**before: float) -> str:
    return f"{datetime.now(UTC) - timedelta(**before):%Y%m%dT%H%M%S}-abcdef"


def _left(folder: Path, name: str, sign: Any = None, **more: Any) -> None:
    """A scratch change log with something in it."""
    (folder / name / "test" / "data").mkdir(parents=True)
    (folder / name / "test" / "data" / "part").write_text("x")
    if sign is not None or more:
        document = {"process": this_process(), "host": "h", "pid": 1, "at": time.time(), **more}
        (folder / name / "alive.json").write_text(sign or json.dumps(document))


def _ended_process_name() -> str:
    """The name of a process that was there."""
    code = "from airflow_provider_cdc.core.process_liveness import this_process as p; print(p())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_process_differs_from_another_one_with_its_number() -> None:
    mine = this_process()
    assert is_running(mine) is True
    assert is_running(_ended_process_name()) is False
    assert is_running(f"{mine}0") is False  # the same number, which began at another time
    assert [is_running(other) for other in (ELSEWHERE, "", "nonsense")] == [None] * 3


def test_a_process_that_was_killed_and_not_asked_about_does_not_run() -> None:
    code = "from airflow_provider_cdc.core.process_liveness import this_process as p; print(p(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert is_running(name) is True
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_running(name) is False


def test_what_killed_processes_have_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    _left(tmp_path, killed := _name(minutes=1), process=_ended_process_name())
    _left(tmp_path, silent := _name(minutes=2), process=ELSEWHERE, at=time.time() - DEAD_S - 5)
    _left(tmp_path, unsigned := _name(days=3))
    stay = {
        _name(minutes=3): {"at": time.time() - 10 * DEAD_S},  # it is there, and only stopped
        _name(minutes=4): {"process": ELSEWHERE},
        _name(hours=5): {},
        _name(minutes=6): {"sign": "{not json"},
        f"kept-{_name(days=9)}": {"process": _ended_process_name()},
        "mine": {"process": _ended_process_name()},
    }
    for name, more in stay.items():
        _left(tmp_path, name, **more)
    with scratch_changelog(f"{tmp_path}/", {}) as changelog:
        found = {p.name for p in tmp_path.iterdir()}
        assert found == {*stay, Path(changelog.storage.root).name}
        assert not found & {killed, silent, unsigned}
        Path(changelog.storage.root, "test").mkdir()
    assert {p.name for p in tmp_path.iterdir()} == set(stay)


def test_it_shows_that_it_is_used_and_a_kept_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 4 * BEAT_S < DEAD_S
    monkeypatch.setattr(scratch_change_log, "BEAT_S", 0.01)
    with scratch_changelog(str(tmp_path), {}, keep=True) as changelog:
        sign = Path(changelog.storage.root, "alive.json")
        first = json.loads(sign.read_text())
        assert is_running(first["process"])
        deadline = time.monotonic() + 30
        while json.loads(sign.read_text())["at"] == first["at"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        changelog.storage.replace(changelog.storage.join_path("rows"), b"1")
    assert [p.name for p in Path(changelog.storage.root).iterdir()] == ["rows"]


def test_temporary_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, owner in (("killed", _ended_process_name()), ("used", this_process()), ("elsewhere", ELSEWHERE)):
        folder = tmp_path / f"cdc-scratch-{name}"
        folder.mkdir()
        (folder / "alive.json").write_text(owner)
    (tmp_path / "cdc-scratch-young").mkdir()
    (old := tmp_path / "cdc-scratch-old").mkdir()
    os.utime(old, (0, 0))
    with scratch_folder() as own:
        assert (own / "alive.json").read_text() == this_process()
    assert {p.name.removeprefix("cdc-scratch-") for p in tmp_path.iterdir()} == {"used", "elsewhere", "young"}


def test_a_disk_that_is_full_for_a_while_ends_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_change_log, "BEAT_S", 0.01)
    beat, refused = scratch_change_log._beat, [3]

    def fail_sometimes(storage: Storage) -> None:
        if refused[0]:
            refused[0] -= 1
            raise StorageFull("No space is left where the change log is written.")
        beat(storage)

    with scratch_changelog(str(tmp_path), {}) as changelog:
        sign = Path(changelog.storage.root, "alive.json")
        monkeypatch.setattr(scratch_change_log, "_beat", fail_sometimes)
        deadline = time.monotonic() + 30
        while refused[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        at = json.loads(sign.read_text())["at"]
        while json.loads(sign.read_text())["at"] == at:
            assert time.monotonic() < deadline, "it shows no sign of life any more"
            time.sleep(0.01)


def test_a_process_that_needs_many_folders_for_a_moment_looks_for_those_of_killed_ones_at_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (left := tmp_path / "cdc-scratch-killed").mkdir()
    (left / "alive.json").write_text(_ended_process_name())
    with scratch_folder():
        pass
    assert not left.exists()
    left.mkdir()
    (left / "alive.json").write_text(_ended_process_name())
    with scratch_folder(cleanup_every_s=CLEANUP_EVERY_S):
        pass
    assert left.exists()
    monkeypatch.setattr(scratch_change_log, "_looked", time.monotonic() - CLEANUP_EVERY_S)
    with scratch_folder(cleanup_every_s=CLEANUP_EVERY_S):
        pass
    assert not list(tmp_path.iterdir())
