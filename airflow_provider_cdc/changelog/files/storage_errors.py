"""Converts answers of a change log's storage to errors of this project."""

from __future__ import annotations

from airflow_provider_cdc.core.errors import StorageFull, StorageUnavailable
from airflow_provider_cdc.core.full_disk import is_disk_full
from airflow_provider_cdc.core.remedy_commands import format_cdc_command


class CreationUnconfirmed(StorageUnavailable):
    """The storage did not confirm that it created a file: the file may exist or not."""


def storage_error(e: OSError, path: str) -> StorageFull | StorageUnavailable:
    """Build this project's error for an ``OSError`` of the change log's storage."""
    if is_disk_full(e):
        retention = format_cdc_command("maintain", "CONNECTOR", only="retention", now=True)
        return StorageFull(
            f"No space is left where the change log is written ({e.strerror}).",
            where=path,
            safe="The offset was not moved: the unwritten events will be captured again.",
            remedy=f"free space or enlarge the disk, then run the capture again. `{retention}` removes batches that every target has applied",
        )
    return unavailable_error(e, path)


def unavailable_error(e: Exception, path: str) -> StorageUnavailable:
    """Build the error for a storage that does not carry out a request."""
    return StorageUnavailable(
        f"The change log's storage rejected a request: {e}",
        where=path,
        safe="The offset was not moved: the unwritten events will be captured again.",
        remedy="a retry resumes the work; if the error persists, check the storage and the permissions of its credentials (storage_conn_id)",
    )


def unconfirmed_error(e: Exception, path: str) -> CreationUnconfirmed:
    """Build the error for a file that may exist or not."""
    return CreationUnconfirmed(
        f"The change log's storage did not confirm the creation of a file: {e}",
        where=path,
        safe="The offset was not moved.",
    )


def status_of(e: Exception) -> int | None:
    """Return the HTTP status of an object store's response; ``None`` if there was none."""
    answer = getattr(e.__cause__, "response", None)
    if isinstance(answer, dict):  # s3fs
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:  # adlfs, gcsfs
        status = getattr(e, "status_code", None) or getattr(e, "code", None)
    return status if isinstance(status, int) else None
