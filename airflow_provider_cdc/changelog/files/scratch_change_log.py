"""Scratch change logs: a process works in one for a while, and deletes it. If the process was killed, the next one does.

Each has a liveness file, a small file that is written again and again. On the same machine the process itself is looked for, so the folder of a
process that was killed a moment ago is removed at once, and that of a slow or stopped one is not; of other machines the time of the liveness file counts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.changelog.files.liveness_file_parser import read_sign
from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.process_liveness import is_running, this_process

log = logging.getLogger(__name__)

BEAT_S: Final = 15.0
"""How often a scratch change log shows that it is used."""
DEAD_S: Final = 300.0
"""A folder of another machine without a sign of life for so long was left by a killed process; clocks may differ by some minutes."""
CLEANUP_EVERY_S: Final = 600.0
"""How often a process that makes many temporary folders looks for those of killed ones."""
_OLD: Final = timedelta(days=2)
"""The same for one that never had a sign: its owner died within a moment."""
_NAME: Final = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
_KEPT, _LIFE = "kept-", "alive.json"
_FOLDER: Final = "cdc-scratch-"


@contextlib.contextmanager
def scratch_changelog(url: str, options: dict[str, Any], *, keep: bool = False) -> Iterator[ChangeLog]:
    """Open a change log that is deleted at the end. Folders that killed processes have left are deleted before.

    :param url: folder or prefix that has scratch change logs and nothing else of the same kind of names
    :param keep: leave it there, under a name that no process deletes
    :raises CdcError: the storage cannot be written to
    """
    within = Storage(url, options)
    _remove_left(within)
    name = f"{_KEPT if keep else ''}{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    changelog = ChangeLog(f"{within.url}/{name}", options)
    with _living(changelog.storage):
        yield changelog
    if keep:
        log.info("The rows read from the source stay in %s.", changelog.storage.url)


@contextlib.contextmanager
def _living(storage: Storage) -> Iterator[None]:
    ended = threading.Event()
    _beat(storage)

    def beats() -> None:
        while not ended.wait(BEAT_S):
            try:
                _beat(storage)
            except CdcError as e:  # also if no space is left: the next one may be written
                log.warning("The liveness file of %s could not be written: %s", storage.url, e)

    thread = threading.Thread(target=beats, name="cdc-scratch-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        is_kept = storage.root.rsplit("/", 1)[-1].startswith(_KEPT)
        storage.delete(storage.join_path(_LIFE)) if is_kept else _remove(storage, storage.root)


def _beat(storage: Storage) -> None:
    sign = {"process": this_process(), "host": platform.node(), "pid": os.getpid(), "at": time.time()}
    storage.replace(storage.join_path(_LIFE), orjson.dumps(sign))


def _remove_left(within: Storage) -> None:
    """Delete the scratch change logs of killed processes."""
    for name in within.list(within.root):
        if _NAME.fullmatch(name) and (why := _why_left(within, name)):
            log.info(
                "Deleting the scratch change log %s/%s of a killed process (%s).",
                within.url,
                name,
                why,
            )
            _remove(within, within.join_path(name))


def _remove(storage: Storage, folder: str) -> None:
    """Delete a folder; its liveness file is deleted last, so that a process that finds the rest knows the owner."""
    storage.abort_uploads(folder)
    for name in storage.list(folder):
        if name != _LIFE:
            storage.delete_folder(f"{folder}/{name}")
    storage.delete_folder(folder)


def _why_left(within: Storage, name: str) -> str:
    """Return the reason by which a scratch change log is known to be unused; empty if it may be in use."""
    liveness = read_sign(within.read(within.join_path(name, _LIFE)))
    if liveness is None:
        before = f"{datetime.now(UTC) - _OLD:%Y%m%dT%H%M%S}"
        return "it has no liveness file" if name < before else ""
    sign = {"process": "", "host": "?", "pid": "?", **liveness}
    running = is_running(str(sign["process"]))
    if running is False:
        return f"the process {sign['pid']} no longer exists"
    since = time.time() - sign["at"]
    if running is None and since > DEAD_S:
        return f"the process {sign['pid']} on {sign['host']} last updated its liveness file {since:,.0f} s ago"
    return ""


# -- folders of this machine ------------------------------------------------------------------------------------------


_looked = -CLEANUP_EVERY_S
"""When this process has looked for folders of killed ones, on the monotonic clock."""


@contextlib.contextmanager
def scratch_folder(*, cleanup_every_s: float = 0.0) -> Iterator[Path]:
    """Open a temporary folder that is deleted at the end; those of killed processes are deleted before.

    :param cleanup_every_s: not if this process has looked for them within so many seconds: :data:`CLEANUP_EVERY_S`, for folders that are needed for a moment
    """
    global _looked
    if time.monotonic() - _looked >= cleanup_every_s:
        _looked = time.monotonic()
        for left in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
            _remove_left_folder(left)
    # another process deletes later what cannot be deleted now
    with tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as folder:
        Path(folder, _LIFE).write_text(this_process())
        yield Path(folder)


def _remove_left_folder(folder: Path) -> None:
    try:
        if folder.stat().st_uid != os.getuid():
            return
        owner = (folder / _LIFE).read_text() if (folder / _LIFE).exists() else ""
        old = time.time() - folder.stat().st_mtime > _OLD.total_seconds()
    except FileNotFoundError:  # another process has deleted it
        return
    if is_running(owner) is False or (not owner and old):
        log.info("Deleting the folder %s of a killed process.", folder)
        try:
            shutil.rmtree(folder)
        except OSError as e:  # another comparison deletes it, too
            log.info("The folder %s could not be deleted: %s", folder, e)
