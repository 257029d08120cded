"""Tests whether the store creates a file only if it is absent. Exactly-once depends on this.

Old clients leave out the condition, and some stores ignore it. Then the second run silently replaces the file of the first. So
the store is tested once per connector, before anything is committed there: a file is created twice, and two creators race for one.
The result is kept beside the batches, with the store and the client that were tested. Another store or client is tested again.
"""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime

import orjson

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.errors import CdcError, ConfigError, StorageUnavailable

_RACES = 4
_PATIENCE_S = 300.0
MARKER = "exclusive.json"


def verify_exclusive(storage: Storage, connector: str) -> None:
    """Make sure that one of two runs that commit the same batch gets an error.

    :raises ConfigError: the store overwrites existing files
    :raises StorageUnavailable: it does not respond
    """
    marker = storage.join_path(connector, MARKER)
    last_check = _document(storage.read(marker))
    store = storage.describe_store()  # after the first request, which is when some clients know it
    if last_check is not None and last_check.get("store") == store:
        return
    folder = storage.join_path(connector, "probe", uuid.uuid4().hex)
    try:
        _create_twice(storage, f"{folder}/twice")
        for n in range(_RACES):
            _race(storage, f"{folder}/race-{n}")
    finally:
        storage.delete_folder(folder)
    _clear(storage, connector)
    passed = {"store": store, "checked_at": datetime.now(UTC).isoformat(timespec="seconds")}
    storage.replace(marker, orjson.dumps(passed))


def _clear(storage: Storage, connector: str) -> None:
    """Delete files of runs that were killed during the test."""
    storage.delete_folder(storage.join_path(connector, "probe"))
    for name in storage.list(storage.join_path(connector)):
        if name.startswith(f"{MARKER}."):
            storage.delete(storage.join_path(connector, name))


def _document(data: bytes | None) -> dict[str, object] | None:
    try:
        document = None if data is None else orjson.loads(data)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _create_twice(storage: Storage, path: str) -> None:
    try:
        _create(storage, path, b"first")
    except StorageUnavailable as e:
        again = f"{path}-again"
        try:
            _create(storage, again, b"first")
        except StorageUnavailable:
            storage.replace(again, b"first")  # raises where the store takes no file at all
            raise _refused(storage, f"it accepts files, but not with this condition ({e.__cause__ or e})") from e
        path = again
    try:
        storage.create(path, b"second")
    except FileExistsError:
        if storage.read(path) == b"first":
            return
        raise _refused(storage, "it reported that a file exists, but replaced it") from None
    raise _refused(storage, "it replaced an existing file")


def _create(storage: Storage, path: str, data: bytes) -> None:
    try:
        storage.create(path, data)
    except FileExistsError:
        # a client that has sent a request twice finds the file that it has created itself
        if storage.read(path) != data:
            raise _refused(storage, "it reported that a file exists, but the file does not exist") from None


def _race(storage: Storage, path: str) -> None:
    """Two creators at the same moment: a store that checks first and writes then lets both succeed."""
    barrier, created, errors = threading.Barrier(2), list[bytes](), list[CdcError]()

    def create(data: bytes) -> None:
        barrier.wait(_PATIENCE_S)
        try:
            storage.create(path, data)
        except FileExistsError:
            pass
        except CdcError as e:
            errors.append(e)
        else:
            created.append(data)

    threads = [threading.Thread(target=create, args=(data,), daemon=True) for data in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = storage.read(path)
    if len(created) > 1 or (created and stored != created[0]):
        raise _refused(storage, "two clients created a file at the same moment, and the store confirmed both")
    if errors and stored is None:
        raise errors[0]


def _refused(storage: Storage, problem: str) -> ConfigError:
    store = storage.describe_store()
    return ConfigError(
        f"The change log's store cannot reliably create a file only if it is absent: {problem}. "
        "Two runs could both commit the same batch, and one of them would be lost.",
        where=", ".join(f"{name} {value}" for name, value in store.items()),
        safe="Nothing was captured; the offset is untouched.",
        remedy="use a store that supports the condition (on S3: If-None-Match of a PUT; needs s3fs, gcsfs or adlfs 2024.12 or newer), "
        "or a local folder on a file system with hard links",
    )
