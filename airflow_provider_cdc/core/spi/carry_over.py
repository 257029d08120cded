"""State that a source carries from one stream to the next, besides its position.

It has the changes that the source has read of the log and cannot deliver yet.

A source whose log shows changes before their commit would have to read them again in each run, for as long as their transaction is
open. Such a source (:attr:`Source.CARRIES <airflow_provider_cdc.core.spi.source.Source.CARRIES>`) is given a :class:`CarryOver` before each
stream. At places of the log that it chooses it adds files, puts a *state* that names them, and yields a
:class:`~airflow_provider_cdc.core.model.log_items.CarryOverItem`. The next stream, in this run or in another one, gets the state back and continues
from there::

    rows = carried.write_file(parts)
    yield CarryOverItem(position, carried.store_state({"scn": 9, "rows": rows.name}, [rows]))

A source can do without carried state: if it cannot have it back (:class:`CarryOverLost`), it reads the log again from its position, which has to
allow that. So nothing is lost if files are deleted or damaged. They become valid with the offset that names the state, in the same commit as
the events before it; those that no offset names are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from airflow_provider_cdc.core.model.connector_offset import CarriedFile


class CarryOverLost(Exception):
    """Reason why carried state cannot be used. No error of a run: the source reads the log again."""


class CarryOver(Protocol):
    """State that a source has carried over to a stream, and the place for the state that it carries over to the next one."""

    @property
    def has_state(self) -> bool:
        """True if the offset names a state."""

    @property
    def is_due(self) -> bool:
        """True if a stream that continues should put a state at the next place where it can. One that ends does so anyway."""

    def load_state(self) -> dict[str, Any] | None:
        """Return the state; ``None`` if nothing is carried.

        It is given back only under the conditions under which it was put: the same release and properties, and the same tables left
        out of the stream.

        :raises CarryOverLost: it is missing, damaged or of other conditions, or a file that it names is missing
        :raises StorageUnavailable: the storage does not answer
        """

    def read_part(self, name: str, start: int, size: int) -> bytes:
        """Read a part of a file.

        :raises CarryOverLost: the file is missing or too short
        :raises StorageUnavailable: the storage does not answer
        """

    def write_file(self, parts: Iterable[bytes]) -> CarriedFile:
        """Write a file. It is durable, and valid once a state names it. If ``parts`` raises an error, there is no file.

        :raises StorageUnavailable: it could not be written
        :raises StorageFull: no space is left
        """

    def store_state(self, state: dict[str, Any], files: Sequence[CarriedFile]) -> CarriedFile:
        """Write a state: anything that is fit for JSON.

        It is valid once a ``CarryOverItem`` with the result was committed. Raises like :meth:`write_file`.

        :param files: those that it needs; all others are deleted when it becomes valid
        """

    def clear_state(self) -> None:
        """Nothing is carried any more; a ``CarryOverItem`` without a file has to say so to the offset."""

    def discard_files(self, files: Iterable[CarriedFile]) -> None:
        """Delete files that were added and will not be part of a state."""


class CarryOverFiles(Protocol):
    """Storage of the files: a folder of one connector in the change log's storage."""

    def write(self, name: str, parts: Iterable[bytes]) -> CarriedFile:
        """Write a file; it is durable when this returns. If ``parts`` raises an error, there is none."""

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """Read a part of a file, or from ``start`` to its end; ``None`` if there is no such file. It may be shorter than asked for."""

    def list_sizes(self) -> dict[str, int]:
        """All files: name → size in bytes."""

    def delete(self, name: str) -> None:
        """Delete a file; it may be gone already."""
