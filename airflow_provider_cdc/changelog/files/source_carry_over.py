"""The files in which a source carries something over, in the change log's storage: ``<connector>/carried/``."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_cdc.changelog.files.storage import Storage
from airflow_provider_cdc.core.model.connector_offset import CarriedFile

FOLDER = "carried"


class CarryOverFolder:
    """The carried files of one connector; implements :class:`airflow_provider_cdc.core.spi.carry_over.CarryOverFiles`."""

    def __init__(self, storage: Storage, connector: str) -> None:
        self._storage, self._folder = storage, (connector, FOLDER)

    def write(self, name: str, parts: Iterable[bytes]) -> CarriedFile:
        file = self._storage.open_output(self._path(name))
        try:
            for part in parts:
                file.write(part)
            file.close()
        except BaseException:
            file.discard()
            raise
        return CarriedFile(name=name, bytes=file.size, crc32=file.crc32)

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        return self._storage.read_part(self._path(name), start, None if size is None else start + size)

    def list_sizes(self) -> dict[str, int]:
        folder = self._storage.join_path(*self._folder)
        self._storage.abort_uploads(folder)  # no listing shows them
        return self._storage.list_sizes(folder)

    def delete(self, name: str) -> None:
        self._storage.delete(self._path(name))

    def _path(self, name: str) -> str:
        return self._storage.join_path(*self._folder, name)
