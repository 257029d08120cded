"""Files by fsspec, with the two guarantees that fsspec does not give: atomic creation, and durability on a local disk."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import logging
import os
import platform
import uuid
import zlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import IO, Any

from airflow_provider_cdc.changelog.files.storage_errors import (
    CreationUnconfirmed,
    status_of,
    storage_error,
    unavailable_error,
    unconfirmed_error,
)
from airflow_provider_cdc.core.errors import ConfigError, StorageUnavailable

log = logging.getLogger(__name__)

_ATOMIC_CREATE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl"}
"""Object stores whose fsspec implementation creates an object only if it does not exist, in one request."""


class Storage:
    """A folder, local or on an object store.

    :param url: ``/path``, ``file:///path``, ``s3://bucket/path``, ``gs://…``, ``abfss://…``
    :param options: passed to fsspec's filesystem (credentials, endpoint); never logged
    :raises ConfigError: the store has no atomic creation, without which two runs could both commit a batch
    """

    def __init__(self, url: str, options: dict[str, Any] | None = None) -> None:
        import fsspec

        self.url, self._options = url.rstrip("/"), dict(options or {})
        try:
            self._fs, root = fsspec.core.url_to_fs(self.url, **(options or {}))
        except (ImportError, ValueError) as e:
            raise ConfigError(
                f"The change log {url!r} cannot be opened: {e}",
                remedy="install the required extra, for example airflow-provider-cdc[s3]",
            ) from e
        self.root = str(root).rstrip("/")
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        self._protocols, self._may_not_abort = protocols, False
        self.local = bool(protocols & {"file", "local"})
        if not self.local and not protocols & _ATOMIC_CREATE:
            raise ConfigError(
                f"The change log {url!r} is on {sorted(protocols)[0]!r}, which cannot create a file only if it is absent.",
                remedy=f"use a local folder or one of {', '.join(sorted(_ATOMIC_CREATE))}",
            )

    def join_path(self, *parts: str) -> str:
        """Path below the root, as the filesystem wants it."""
        return "/".join((self.root, *parts))

    def build_uri(self, *parts: str) -> str:
        """Return the same as a URI that Spark and other readers understand.

        It begins as the URL does, as Spark may know one of several names of a store only (``s3a``), or need more of it (``abfss://container@account…``).
        """
        return f"file://{self.join_path(*parts)}" if self.local else "/".join((self.url, *parts))

    def describe_store(self) -> dict[str, str]:
        """Describe which store this is, and which client speaks to it; it holds no secret.

        >>> Storage("/lake/changelog").describe_store()
        {'url': '/lake/changelog', 'client': 'fsspec 2026.9.0', 'at': 'worker-1, device 65025'}
        """
        package = type(self._fs).__module__.partition(".")[0]
        try:
            client = f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            client = package
        return {"url": self.url, "client": client, "at": self._host()}

    def _host(self) -> str:
        """Return the machine and disk of a folder, or the address of an object store if its client knows it."""
        if self.local:
            with self._errors(self.root):
                self._make_local_folder(self.root)
                return f"{platform.node()}, device {os.stat(self.root).st_dev}"
        client = getattr(self._fs, "_s3", None)
        addresses = [getattr(getattr(client, "meta", None), "endpoint_url", None)]
        addresses += [getattr(self._fs, name, None) for name in ("_location", "account_host", "account_name")]
        return next((str(address) for address in addresses if address), "")

    def _make_local_folder(self, folder: str) -> None:
        """Make a folder. The folder of the change log is for its owner alone: rows are in its files."""
        if not os.path.isdir(self.root):
            os.makedirs(os.path.dirname(self.root) or ".", exist_ok=True)
            with contextlib.suppress(FileExistsError):  # another process made it in the same moment
                os.mkdir(self.root, mode=0o700)
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError as e:  # not the file that a caller wants to create, and that another run has created
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from e

    def resolve_url(self, url: str) -> tuple[Any, str]:
        """Return the filesystem of another URL, and the path there.

        If it is the same kind of store, it is opened with the same options.
        """
        import fsspec

        files, path = fsspec.core.url_to_fs(url, **self.options_for(url))
        return files, str(path)

    def options_for(self, url: str) -> dict[str, Any]:
        """Return the fsspec options of another URL: the same, if it is the same kind of store. They may contain secrets."""
        import fsspec

        here = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        return dict(self._options) if fsspec.utils.get_protocol(url) in here else {}

    def create(self, path: str, data: bytes, *, scratch: str | None = None) -> None:
        """Create a file atomically; it must not exist.

        :param scratch: folder in which a local file is written before it gets its name, and where its remains stay if
            the process dies before that; without it they are hidden beside the file
        :raises FileExistsError: it exists
        :raises CreationUnconfirmed: it may exist now
        """
        with self._errors(path):
            if not self.local:
                self._create_object(path, data)
                return
            folder = os.path.dirname(path)
            self._make_local_folder(folder)
            self._make_local_folder(scratch or folder)
            temporary = os.path.join(scratch or folder, f"{'' if scratch else '.'}{uuid.uuid4().hex}.tmp")
            try:
                with open(temporary, "wb") as f:
                    f.write(data)
                    f.flush()
                    os.fsync(f.fileno())
                os.link(temporary, path)  # unlike rename, this fails when the name is taken
            except FileNotFoundError:
                if os.path.exists(path):  # the one who took the name has deleted our scratch file
                    raise FileExistsError(path) from None
                raise
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            try:
                _sync_folder(folder)
            except OSError as e:
                raise unconfirmed_error(e, path) from e

    def _create_object(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data, mode="create")
        except (FileExistsError, PermissionError, FileNotFoundError):
            raise
        except Exception as e:
            status = status_of(e)
            # s3fs recognises the refusal only if the store names the condition; there is only one condition here
            if status == HTTPStatus.PRECONDITION_FAILED:
                raise FileExistsError(path) from e
            if status is not None and 400 <= status < 500:
                raise
            raise unconfirmed_error(e, path) from e

    def replace(self, path: str, data: bytes) -> None:
        """Create or replace a file atomically: readers find the old or the new one, complete."""
        with self._errors(path):
            if not self.local:
                self._fs.pipe_file(path, data)
                return
            self._make_local_folder(os.path.dirname(path))
            temporary = f"{path}.{uuid.uuid4().hex}.tmp"
            try:
                with open(temporary, "wb") as f:
                    f.write(data)
                    f.flush()
                    os.fsync(f.fileno())
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            _sync_folder(os.path.dirname(path))

    def open_output(self, path: str) -> DurableFile:
        """Begin a new file; it is durable once closed."""
        with self._errors(path):
            if self.local:
                self._make_local_folder(os.path.dirname(path))
            return DurableFile(self, path, self._fs.open(path, "wb"))

    def open_input(self, path: str) -> IO[bytes]:
        """Open a file for reading at random.

        :raises FileNotFoundError: there is none
        """
        with self._errors(path, absent=True):
            return self._fs.open(path, "rb")  # type: ignore[no-any-return]

    def read(self, path: str) -> bytes | None:
        """Read a whole file; ``None`` when it does not exist."""
        with self._errors(path):
            try:
                # of S3, a range is one request; for a whole file its client asks for the size before, or for a folder where there is none
                return bytes(self._fs.cat_file(path, start=0) if "s3" in self._protocols else self._fs.cat_file(path))
            except FileNotFoundError:
                return None
            except Exception as e:
                if status_of(e) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return b""
                raise

    def exists(self, path: str) -> bool:
        """Check whether a file is there; one request, which transfers a byte at most."""
        with self._errors(path):
            try:
                if self.local:
                    os.stat(path)
                else:  # not by `info`: where there is no such object, clients of S3 then look for a folder
                    self._fs.cat_file(path, start=0, end=1)
            except FileNotFoundError:
                return False
            except Exception as e:
                if status_of(e) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return True  # it is empty
                raise
            return True

    def names_after(self, folder: str, name: str, most: int) -> list[str] | None:
        """List the next names in a folder, in one request, however many there are before them.

        :param name: only names that sort after it
        :param most: only so many, at least one
        :return: ascending; ``None`` if the store cannot list them, so that the caller has to ask for single names or list the folder
        """
        if "s3" not in self._protocols:
            return None
        bucket, prefix, _ = self._fs.split_path(f"{folder}/")
        with self._errors(folder):
            listing = self._fs.call_s3(
                "list_objects_v2", Bucket=bucket, Prefix=prefix, StartAfter=f"{prefix}{name}", MaxKeys=most
            )
        names = [str(entry["Key"]).removeprefix(prefix) for entry in listing.get("Contents", [])]
        # some stores that speak S3 take no notice of where the list is to begin
        return None if any(listed <= name for listed in names) else names

    def read_part(self, path: str, start: int, end: int | None = None) -> bytes | None:
        """Read the bytes of a file from ``start`` up to ``end``, as far as it has them; ``None`` when it does not exist."""
        with self._errors(path):
            try:
                return bytes(self._fs.cat_file(path, start=start, end=end))
            except FileNotFoundError:
                return None

    def list_sizes(self, path: str) -> dict[str, int]:
        """Name → bytes of the files in a folder; none when it does not exist."""
        with self._errors(path):
            try:
                self._fs.invalidate_cache(path)
                files = [file for file in self._fs.ls(path, detail=True) if file["type"] == "file"]
            except FileNotFoundError:
                return {}
            return {str(file["name"]).rsplit("/", 1)[-1]: int(file["size"] or 0) for file in files}

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; none when it does not exist. Files that are still being written are left out."""
        with self._errors(path):
            try:
                self._fs.invalidate_cache(path)
                names = [str(p).rstrip("/").rsplit("/", 1)[-1] for p in self._fs.ls(path, detail=False)]
            except FileNotFoundError:
                return []
            return sorted(n for n in names if not n.startswith("."))

    def delete(self, path: str) -> None:
        """Delete a file; it may be gone already."""
        with self._errors(path), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def delete_folder(self, path: str) -> None:
        """Delete a folder with everything in it; it may be gone already."""
        with self._errors(path), contextlib.suppress(FileNotFoundError):
            self._fs.invalidate_cache(path)
            self._fs.rm(path, recursive=True)

    def abort_uploads(self, folder: str) -> int:
        """Abort multipart uploads to a folder that were never completed: no listing shows them, and they cost money.

        :return: how many there were. Only S3 keeps such parts for ever; other stores delete them by themselves
        """
        if "s3" not in self._protocols:
            return 0
        bucket, prefix, _ = self._fs.split_path(f"{folder}/")
        with self._errors(folder):
            try:
                uploads = self._fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix).get("Uploads", [])
                for upload in uploads:
                    self._fs.abort_mpu(bucket, upload["Key"], upload["UploadId"])
            except OSError as e:  # parts that cannot be deleted do no harm
                if not self._may_not_abort:
                    log.warning(
                        "Unfinished uploads below %s cannot be aborted; grant s3:ListBucketMultipartUploads and "
                        "s3:AbortMultipartUpload, or abort them with a lifecycle rule of the bucket: %s", self.url, e,
                    )  # fmt: skip
                self._may_not_abort = True
                return 0
        return len(uploads)

    @contextlib.contextmanager
    def _errors(self, path: str, *, absent: bool = False) -> Iterator[None]:
        """Translate errors of the filesystem into those of ``core.errors``. ``FileExistsError`` passes.

        :param absent: so does ``FileNotFoundError``
        """
        try:
            yield
        except (FileExistsError, StorageUnavailable):
            raise
        except OSError as e:
            if absent and isinstance(e, FileNotFoundError):
                raise
            raise storage_error(e, path) from e
        except Exception as e:
            # clients of object stores have their own errors for a store that does not respond
            if self.local:
                raise
            raise unavailable_error(e, path) from e


class DurableFile:
    """A file being written: counts its bytes and its CRC-32, and is on disk when ``close`` returns.

    It has what ``pyarrow.parquet.ParquetWriter`` needs of a file.
    """

    def __init__(self, storage: Storage, path: str, file: IO[bytes]) -> None:
        self._storage, self._path, self._file = storage, path, file
        self.size, self.crc32, self.closed = 0, 0, False
        self._discarded = False

    def write(self, data: bytes) -> int:
        if self._discarded:
            return len(data)  # a Parquet writer writes its footer when it is garbage-collected, also after an error
        with self._storage._errors(self._path):
            view = memoryview(data)
            self._file.write(view)
            self.crc32 = zlib.crc32(view, self.crc32)
            self.size += view.nbytes
            return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        with self._storage._errors(self._path):
            self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        with self._storage._errors(self._path):
            if self._storage.local:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()
            if self._storage.local:
                _sync_folder(os.path.dirname(self._path))

    def discard(self) -> None:
        """Close without making it durable, and delete."""
        self._discarded = True
        if not self.closed:
            self.closed = True
            with contextlib.suppress(OSError):
                if self._storage.local:
                    self._file.close()
                else:  # closing it would complete the upload
                    self._file.discard()  # type: ignore[attr-defined]
                    self._file.closed = True  # type: ignore[misc]
        self._storage.delete(self._path)

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


__all__ = ["CreationUnconfirmed", "DurableFile", "Storage", "storage_error"]
