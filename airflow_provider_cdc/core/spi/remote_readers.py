"""Interfaces of a snapshot that is read by other processes, on as many machines as there are.

::

    CAPTURE                                     READERS
    gather_readers   ◄── "ready" ───────────    each has connected to the database
    open_views       ─── "open your view" ──►   each opens one, while the session keeps writers away
    read_group       ─── chunks ────────────►   each reads its chunks into files of the batch
                     ◄── files ─────────────
    commits the batch

The chunks of a reader that is lost are read again by others that see the same rows. Which ones do depends on the source (:class:`ViewSharing`):

- A view may live in a connection. Then readers meet, and open theirs at one moment. One that comes later sees other rows, and takes no part.
- A view may have a name, such as a number of the log. Then the position names it, nothing is opened, and readers may come at any time.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_cdc.core import errors
from airflow_provider_cdc.core.errors import CdcError
from airflow_provider_cdc.core.model.batch_manifest import DataFile
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.table_schema import TableId, TableSchema

if TYPE_CHECKING:
    from types import TracebackType

    from airflow_provider_cdc.core.model.log_items import RowBlock
    from airflow_provider_cdc.core.spi.snapshot_chunk import SnapshotChunk


class ViewSharing(enum.Enum):
    """The way in which readers of other processes come to see the same rows as a snapshot session."""

    NONE = "none"
    """They cannot."""
    MEETING = "meeting"
    """All open their views at one moment, in which the session keeps writers away (:class:`ViewMeeting`)."""
    LATE = "late"
    """They read at the session's position. A reader that comes later sees the same rows, as long as the database keeps them."""


class TableOutOfView(Exception):
    """A reader does not see a table as it was at the position, or a statement that waits to alter the table keeps the reader out."""


class ViewExpired(Exception):
    """No reader sees the rows of the position any more.

    :param error: for people, with the remedy
    """

    def __init__(self, error: CdcError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """The view of a snapshot session, as readers in other processes get it.

    :param schemas: at ``position``
    :param selects: table → statement or condition that gives the rows to read instead of all of them
    """

    position: Position
    ts_us: int
    schemas: Mapping[TableId, TableSchema]
    selects: Mapping[TableId, str] = field(default_factory=dict)


class RowReader(abc.ABC):
    """A connection of another process that reads rows in the view of a snapshot session. A context manager."""

    def open_view(self) -> dict[str, Any]:
        """Open the view, or open another one in its stead. Only of sources whose readers meet (:attr:`ViewSharing.MEETING`).

        Called while the session knows that all views opened now show the same rows.

        :return: facts by which the session checks that, fit for JSON
        """
        raise NotImplementedError("readers of this source need not open a view")

    @abc.abstractmethod
    def read(self, chunk: SnapshotChunk, view: SnapshotView) -> Iterator[RowBlock]:
        """Read the rows of one chunk, as :meth:`SnapshotSession.read <airflow_provider_cdc.core.spi.source.SnapshotSession.read>` does.

        :raises TableOutOfView: the blocks before do not count
        :raises ViewExpired: the same
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class ViewMeeting(Protocol):
    """The moment in which readers of other processes open their views."""

    def open_views(self) -> Sequence[Mapping[str, Any]]:
        """Have every reader open its view now, and return what each has reported of it. May be called again.

        A reader that does not answer in time takes no part in the snapshot.

        :raises SourceUnavailable: none has answered
        """


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TableTask(_Document):
    """A table that readers read.

    :param table: its schema, with the version that its events name
    :param inspected: its schema at the position of the view, as the session has it
    :param select: statement or condition that gives the rows to read instead of all of them
    """

    table: TableSchema
    inspected: TableSchema
    select: str | None = None


class ReadGroup(_Document):
    """Tables that become one batch.

    :param number: of the group, from 1
    :param batch: and ``epoch`` and ``writer``, as of the manifest
    :param position: of the view
    :param ts_us: when the view was taken
    :param tables: ``namespace.name`` → the table
    """

    number: int
    batch: int
    epoch: int
    writer: str
    position: dict[str, Any]
    ts_us: int
    tables: dict[str, TableTask]


class ChunkTask(_Document):
    """A chunk that one reader is to read.

    :param number: of the chunk in its group, from 0
    :param attempt: how often it was handed out before
    :param condition: that selects its rows; ``None`` for the whole table
    :param first_seq: and ``last_seq``: the sequence numbers that its events may have
    :param first_mark: and ``last_mark``: ``source.snapshot`` of its first and of its last row
    """

    number: int
    table: str
    first_seq: int
    last_seq: int
    condition: str | None = None
    attempt: int = 0
    first_mark: str = "true"
    last_mark: str = "true"


class ReaderError(_Document):
    """An error of a reader, so that the capture can raise it again.

    :param name: of its class in :mod:`airflow_provider_cdc.core.errors`
    """

    name: str
    message: str
    where: str = ""
    safe: str = ""
    remedy: str = ""

    @classmethod
    def from_exception(cls, error: CdcError) -> Self:
        """Describe an error."""
        return cls(
            name=type(error).__name__, message=error.message, where=error.where or "", safe=error.safe or "",
            remedy=error.remedy or "",
        )  # fmt: skip

    def to_exception(self) -> CdcError:
        """Return the error again."""
        kind = getattr(errors, self.name, errors.SourceUnavailable)
        error: CdcError = kind(self.message, where=self.where, safe=self.safe, remedy=self.remedy)
        return error


class ChunkResult(_Document):
    """The result of a chunk.

    :param outcome: ``read``; ``full``: it has more rows than sequence numbers; ``out_of_view``: no reader sees the table as it was; ``failed``
    :param rows: that were read
    :param files: with the events
    """

    number: int
    attempt: int
    outcome: Literal["read", "full", "out_of_view", "failed"]
    rows: int = 0
    files: list[DataFile] = Field(default_factory=list)
    error: ReaderError | None = None


class RemoteReaders(ViewMeeting, Protocol):
    """The readers of one snapshot, as the capture sees them. A context manager."""

    def gather_readers(self, stopped: Callable[[], bool], *, late: bool = False) -> int:
        """Start the readers, wait until they have connected to the database, and return how many have.

        :param stopped: whether the run was asked to end; then there may be none
        :param late: readers may come at any time, and the first one suffices to begin with
        :raises CdcError: there are none
        """

    def begin_group(self, group: ReadGroup) -> None:
        """Have readers read chunks of these tables from now on."""

    def hand_out(self, tasks: Sequence[ChunkTask]) -> None:
        """Add chunks to those that wait for a reader."""

    def collect_results(self) -> list[ChunkResult]:
        """Wait a moment, and return the results that have come since the last call, each chunk's once.

        Chunks of lost readers are handed out to others.

        :raises CdcError: no reader is left
        """

    def count_rows(self) -> int:
        """Return how many rows of the group were read, as far as readers have reported it."""

    def close(self) -> None:
        """End the readers; may be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None: ...
