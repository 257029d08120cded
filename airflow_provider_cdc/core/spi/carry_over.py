"""What a source carries from one stream to the next, besides its position: what it has read of the log and cannot deliver yet.

A source whose log shows changes before their commit would have to read them again in each run, for as long as their transaction is
open. Such a source (:attr:`Source.CARRIES <airflow_provider_cdc.core.spi.source.Source.CARRIES>`) is given a :class:`Carried` before each
stream. At places of the log that it chooses it adds files, puts a *state* that names them, and yields a
:class:`~airflow_provider_cdc.core.model.log_items.CarriedOver`. The next stream, in this run or in another one, gets the state back and goes on
from there::

    rows = carried.add(parts)
    yield CarriedOver(position, carried.put({"scn": 9, "rows": rows.name}, [rows]))

What is carried is never needed: a source that cannot have it back (:class:`CarriedLost`) reads the log again from its position, which has to
allow that. So nothing is lost if files are deleted or damaged. They become valid with the offset that names the state, in the same commit as
the events before it; those that no offset names are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from airflow_provider_cdc.core.model.offset import CarriedFile


class CarriedLost(Exception):
    """What was carried cannot be used, for the reason that this says. No error of a run: the source reads the log again."""


class Carried(Protocol):
    """What a source has carried over to a stream, and where it puts what it carries over to the next one."""

    @property
    def present(self) -> bool:
        """Whether the offset names a state."""

    @property
    def due(self) -> bool:
        """Whether a stream that goes on should put a state at the next place where it can. One that ends does so anyway."""

    def state(self) -> dict[str, Any] | None:
        """The state; ``None`` if nothing is carried.

        It is given back only under the conditions under which it was put: the same release and properties, and the same tables left
        out of the stream.

        :raises CarriedLost: it is missing, damaged or of other conditions, or a file that it names is missing
        :raises StorageUnavailable: the storage does not answer
        """

    def read(self, name: str, start: int, size: int) -> bytes:
        """A part of a file.

        :raises CarriedLost: the file is missing or too short
        :raises StorageUnavailable: the storage does not answer
        """

    def add(self, parts: Iterable[bytes]) -> CarriedFile:
        """Write a file. It is durable, and valid once a state names it. If ``parts`` raises an error, there is no file.

        :raises StorageUnavailable: it could not be written
        :raises StorageFull: no space is left
        """

    def put(self, state: dict[str, Any], files: Sequence[CarriedFile]) -> CarriedFile:
        """Write a state: anything that is fit for JSON. It is valid once a ``CarriedOver`` with the result was committed. Raises like
        :meth:`add`.

        :param files: those that it needs; all others are deleted when it becomes valid
        """

    def drop(self) -> None:
        """Nothing is carried any more; a ``CarriedOver`` without a file has to say so to the offset."""

    def discard(self, files: Iterable[CarriedFile]) -> None:
        """Delete files that were added and will not be part of a state."""


class CarriedFiles(Protocol):
    """Where the files are: a folder of one connector in the change log's storage."""

    def write(self, name: str, parts: Iterable[bytes]) -> CarriedFile:
        """Write a file; it is durable when this returns. If ``parts`` raises an error, there is none."""

    def read(self, name: str, start: int = 0, size: int | None = None) -> bytes | None:
        """A part of a file, or from ``start`` to its end; ``None`` if there is no such file. It may be shorter than asked for."""

    def sizes(self) -> dict[str, int]:
        """All files: name → size in bytes."""

    def delete(self, name: str) -> None:
        """Delete a file; it may be gone already."""
