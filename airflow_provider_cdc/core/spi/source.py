"""The source interface: everything that capture needs from a database, and nothing else.

A source lives in one folder below ``airflow_provider_cdc/sources`` and is named in one line of its registry. Snapshot modes,
filters, schema history, sequence numbers, batching and offsets are in ``core``, once for all sources.
``sources/memory`` is the reference implementation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self

from airflow_provider_cdc.core.config.connector_config import ConnectorConfig
from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError
from airflow_provider_cdc.core.model.log_headroom import LogRetention, LogWindow
from airflow_provider_cdc.core.model.position import Position
from airflow_provider_cdc.core.model.run_metrics import Value
from airflow_provider_cdc.core.model.table_schema import TableChange, TableId, TableSchema
from airflow_provider_cdc.core.model.transient_key_duplicates import KeysOverlap
from airflow_provider_cdc.core.remedy_commands import name_cdc_command
from airflow_provider_cdc.core.spi.carry_over import CarryOver
from airflow_provider_cdc.core.spi.chunk_reader import ChunkReader
from airflow_provider_cdc.core.spi.remote_readers import RowReader, ViewMeeting, ViewSharing
from airflow_provider_cdc.core.spi.snapshot_chunk import SnapshotChunk as SnapshotChunk
from airflow_provider_cdc.core.spi.source_block_formats import EventForm
from airflow_provider_cdc.core.spi.source_procedures import Procedure, ProcedureContext, ProcedurePlan, ProcedureResult

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    # a run that finds nothing does without rows, and so without NumPy
    from airflow_provider_cdc.core.model.log_items import LogItem, RowBlock


def any_table(_: TableId) -> bool:
    """Need every table."""
    return True


VARIED: Final = {b"cdc": b"varied"}
"""Metadata of a field of the ``source`` block whose texts seldom repeat: it is written without a dictionary."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A prerequisite that is not met.

    :param fatal: capture would lose or misread data, or could not start; otherwise a warning
    :param fix: the statement or setting that fixes it
    """

    problem: str
    fix: str
    fatal: bool = True


class CapturedTableSchemas(Protocol):
    """The schemas of the captured tables, as a source's log reader sees them.

    The object changes as the log advances: the consumer of the stream applies each
    :class:`~airflow_provider_cdc.core.model.log_items.SchemaChange` before it takes the next item.
    """

    def find_schema(self, table: TableId) -> TableSchema | None:
        """Return the schema in force, ``None`` when the table is not known."""

    def is_captured(self, table: TableId) -> bool:
        """Check whether rows of this table are captured at the present position."""

    def read_again(self, table: TableId) -> bool:
        """Check whether the table will be read whole again: rows before that which cannot be decoded are ``LeftOutRows`` then, and no error."""

    def list_known_tables(self) -> list[TableId]:
        """All tables that have a schema now."""


class SnapshotSession(abc.ABC):
    """A consistent view of some tables at one log position, and readers on it. A context manager."""

    position: Position
    """Position in the log that the view corresponds to."""
    schemas: dict[TableId, TableSchema]
    """Schemas at ``position`` of the requested tables; a table that does not exist is missing."""
    ddl: dict[TableId, str]
    """Statements that would create the tables, if the source knows them."""
    ts_us: int
    """When the view was taken."""
    source: Mapping[str, object] = MappingProxyType({})
    """The source's own fields of the ``source`` block, for events about a whole table of the view."""
    changed: AbstractSet[TableId] = frozenset()
    """Tables that were dropped or altered before all of their rows could be read: the rows that were read of them do not count."""
    urgent: AbstractSet[TableId] = frozenset()
    """Tables that are to be read before others, as they are locked until then."""
    own: AbstractSet[TableId] = frozenset()
    """Tables that the session alone can read, and no reader of another process."""

    @abc.abstractmethod
    def split_table(self, table: TableId) -> list[SnapshotChunk]:
        """Cut a table into parts that readers can take in parallel; together they hold each row exactly once."""

    @abc.abstractmethod
    def read(self, chunk: SnapshotChunk) -> Iterator[RowBlock]:
        """Read the rows of one chunk, as ``READ`` blocks with ``order`` 0, 1, 2 and so on.

        Called from as many threads at once as there are readers.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release every connection and lock; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Source(abc.ABC):
    """A database that changes are captured from. A context manager; not thread-safe unless a method says so.

    Sensors, pages, commands and plans use sources of their own, several at once, beside a run that streams: no query
    (:meth:`check_prerequisites`, :meth:`discover_tables`, the positions) may end, delay or change the stream of another one.

    :cvar Config: the source's configuration model
    :cvar connector: the documented ``source.connector`` value
    :cvar FORMS: name → a form of its events beside the usual one
    :cvar PSEUDO_COLUMNS: unique columns that every table has without listing them in its schema (a row's address)
    :cvar PROCEDURES: name → what an administrator can have done at the source, see :mod:`airflow_provider_cdc.core.spi.source_procedures`
    :cvar CARRIES: its streams carry something over from one to the next, see :mod:`airflow_provider_cdc.core.spi.carry_over`
    :cvar KEYS_OVERLAP: whether rows may have the same key in the middle of a transaction
    :cvar STRUCTURED: its tables have structures, which statements change. If not, rows show which tables there are, and which columns a table
        has (:meth:`conform_rows`): core adds a table with its first rows, and columns with the first rows that have them.
        Such a stream yields a :class:`~airflow_provider_cdc.core.model.log_items.SchemaChange` only where a table was dropped or renamed, and no
        ``Rollback``
    :cvar VIEW_SHARING: how readers of other processes join the view of a snapshot
    :cvar POSITION_SIGNAL: type of the signal that moves a connector to another position in the log, where the documents name one
    """

    Config: ClassVar[type[ConnectorConfig]] = ConnectorConfig
    FORMS: ClassVar[Mapping[str, EventForm]] = MappingProxyType({})
    PSEUDO_COLUMNS: ClassVar[frozenset[str]] = frozenset()
    PROCEDURES: ClassVar[Mapping[str, Procedure]] = {}
    CARRIES: ClassVar[bool] = False
    KEYS_OVERLAP: ClassVar[KeysOverlap] = KeysOverlap.ALWAYS
    STRUCTURED: ClassVar[bool] = True
    VIEW_SHARING: ClassVar[ViewSharing] = ViewSharing.NONE
    POSITION_SIGNAL: ClassVar[str | None] = None
    connector: str

    @abc.abstractmethod
    def check_prerequisites(self) -> list[Finding]:
        """Check every prerequisite of capture and report those that are not met; an empty list means ready.

        :raises SourceUnavailable: the database does not answer
        :raises AccessDenied: user or password is wrong
        """

    @abc.abstractmethod
    def discover_tables(self, needed: Callable[[TableId], bool] = any_table) -> dict[TableId, TableSchema]:
        """List the tables that could be captured, with their present schemas.

        :param needed: other tables may be left out: a database may have a hundred thousand
        """

    @abc.abstractmethod
    def current_position(self) -> Position:
        """Return the end of the log. Cheap: sensors call it often, from any thread, each call with its own connection."""

    @abc.abstractmethod
    def oldest_position(self) -> Position:
        """Return the first position that the log can still be read from."""

    @abc.abstractmethod
    def verify_position(self, position: Position) -> None:
        """Make sure that the log can be read from ``position`` on.

        :raises PositionLost: it cannot; the error says what is missing
        """

    def may_have_changed(self, position: Position, end: Position) -> bool:
        """Check whether a run at a position would find more in the log, or another log. Asks the source nothing.

        :param end: of the log
        """
        return not position.has_reached(end)

    @abc.abstractmethod
    def parse_position(self, document: dict[str, Any]) -> Position:
        """Build the position that :meth:`Position.to_json` described."""

    def position_of(self, data: Mapping[str, Any]) -> Position:
        """Parse the position that a person has written, in the form of :attr:`POSITION_SIGNAL` or in that of :meth:`Position.to_json`.

        :raises ConfigError: there is no such position; the error says what is valid
        """
        try:
            position = self.parse_position(dict(data))
            # a position that people write may have a value of any kind in any place, and parsing does not look at all of them
            if self.parse_position(position.to_json()) == position and position.has_reached(position):
                str(position)
                return position
            why = "its form is not known"
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, OSError) as e:
            why = f"{type(e).__name__}: {e}"
        raise ConfigError(
            f"{dict(data)} is not a position: {why}.",
            remedy=f"use a position in the form that `{name_cdc_command('offsets')}` prints",
        )

    @abc.abstractmethod
    def open_snapshot(
        self, tables: Sequence[TableId], *, readers: int, selects: Mapping[TableId, str] = MappingProxyType({})
    ) -> SnapshotSession:
        """Open a consistent view of ``tables`` for up to ``readers`` parallel readers.

        Locks, if any, are released before this returns, unless the configuration asks to hold them.

        :param selects: table → what gives the rows to read instead of all of them, in the source's own terms, as a signal or the configuration
            has it: a statement, which may leave out only columns that the table's schema leaves out, or a condition
        :raises QueryRejected: from reading: the database does not accept such a statement
        """

    def open_shared_snapshot(
        self,
        tables: Sequence[TableId],
        meeting: ViewMeeting,
        *,
        selects: Mapping[TableId, str] = MappingProxyType({}),
    ) -> SnapshotSession:
        """Open a consistent view of ``tables`` that readers of other processes share, see :mod:`airflow_provider_cdc.core.spi.remote_readers`.

        Tables that are :attr:`SnapshotSession.urgent` or :attr:`SnapshotSession.own` are read by the session alone.

        :param meeting: has the readers open their views, where they meet
        :param selects: as of :meth:`open_snapshot`
        """
        raise NotImplementedError(f"{self.connector} does not share views")

    def open_row_reader(self) -> RowReader:
        """Open a reader of a view that another process shares. Only of sources with :attr:`VIEW_SHARING`."""
        raise NotImplementedError(f"{self.connector} does not share views")

    def open_chunk_reader(self, *, signals: TableId | None) -> ChunkReader:
        """Open a reader of chunks, see :mod:`airflow_provider_cdc.core.spi.chunk_reader`.

        :param signals: the signal table, for written watermarks; ``None`` for read ones
        :raises PrerequisiteError: the database is not set up for this; the error says what is missing
        """
        raise PrerequisiteError(
            f"Incremental snapshots of {self.connector} databases are not supported yet.",
            safe="Nothing was read; capture continues.",
            remedy='send the signal with "type": "blocking"',
        )

    def signal_table(self, text: str) -> TableId:
        """Return the table that ``signal.data.collection`` names.

        :raises ConfigError: it is not a table's name
        """
        namespace, dot, name = text.rpartition(".")
        if not dot or not namespace or not name:
            raise ConfigError(f"signal.data.collection={text} does not have the form <database>.<table>.")
        return TableId(namespace=namespace, name=name)

    def signal_of(self, row: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Id, type and data of a row of the signal table, each a text, bytes or ``None``: its first three columns, whatever they are called.

        :param row: as events have it, after its insertion or before its deletion
        """
        id_, type_, data = [*row.values(), None, None, None][:3]
        return id_, type_, data

    def conform_rows(self, rows: RowBlock, known: TableSchema | None) -> RowBlock:
        """Return rows in the form in which they are written, of a source that is not :attr:`STRUCTURED`.

        Its readers may give rows in another form, since they do not know which columns the table has by the time that the rows are written.

        Called in one thread, in the order of the events.

        :param known: the table's schema in force; ``None``: it has none yet
        :return: as many rows, in the same order, with that schema or one that has further columns behind it
        :raises CdcError: they cannot be written in the form that the table has
        """
        return rows

    def adopt_columns(self, tables: Iterable[TableSchema]) -> None:  # noqa: B027 - only sources whose rows show the columns do something
        """Give tables the columns that they have elsewhere, of a source that is not :attr:`STRUCTURED`: the rows that it reads are compared with those.

        :param tables: as they are elsewhere
        """

    def resolve_reread_schema(self, inspected: TableSchema, known: TableSchema) -> TableSchema:
        """Return the schema of a table that is read once more, of a source that is not :attr:`STRUCTURED`.

        :param inspected: as a view of the source has it
        :param known: the one in force
        """
        return inspected

    def orders_by(self, name: str) -> bool:
        """Check whether chunks may be in the order of something that is no column of the table's schema (``surrogate-key``)."""
        return name in self.PSEUDO_COLUMNS

    def table_of(self, document: Mapping[str, Any], database: str, schema: str | None) -> TableChange:
        """Parse one of the ``changes`` of a ``schema-changes`` signal (Debezium Oracle connector, "schema-changes").

        :raises ConfigError: it cannot be understood
        """
        raise ConfigError(f"{self.connector} connectors do not support schema-changes signals.")

    def receive_carry_over(self, carried: CarryOver) -> None:  # noqa: B027 - only sources that carry something do something
        """Take the state that the stream before has carried over to the next one. Called before each stream, of sources that :attr:`CARRIES` alone."""

    @abc.abstractmethod
    def stream_log(
        self,
        start: Position,
        tables: CapturedTableSchemas,
        *,
        until: Position | None,
        patience: Callable[[], float] | None = None,
    ) -> Iterator[LogItem]:
        """Read the log from ``start`` on.

        Yields nothing that was committed after ``until``, and ends there; without it, continues for ever and yields a ``Heartbeat`` at least every
        ``poll.interval.ms`` when there is nothing else.

        :param patience: asked whenever there is nothing new: how many seconds to wait at most before the next ``Heartbeat``, in
            place of ``poll.interval.ms``

        :raises PositionLost: the log does not hold ``start`` any more
        :raises UnknownLogEvent: an event that may carry data cannot be read
        :raises SchemaConflict: rows do not fit the table's schema and the catalog does not explain them
        """

    def confirm_position(self, position: Position) -> None:  # noqa: B027 - only sources whose log waits for its readers do something
        """Let the database remove its log up to a position: the offset there is durable, and no run reads what comes before again.

        Called after each commit, in the thread that reads the stream, between two of its items or without a stream.
        """

    @abc.abstractmethod
    def execute_statement(self, statement: str) -> None:
        """Run a statement of the user's, by itself, and commit it (``heartbeat.action.query``).

        :raises CdcError: it fails
        """

    def plan_procedure(
        self, procedure: Procedure, table: TableId, flags: frozenset[str], context: ProcedureContext
    ) -> ProcedurePlan:
        """Plan one of :attr:`PROCEDURES`. Changes nothing.

        :param flags: names of the flags that are set
        """
        raise ConfigError(f"{self.connector} connectors have no procedure {procedure.name}.")

    def carry_out(
        self, plan: ProcedurePlan, context: ProcedureContext, report_step: Callable[[str], None]
    ) -> ProcedureResult:
        """Carry out a plan without problems.

        :param report_step: takes a line for people before each step
        :raises CdcError: a step failed; the error says which ones are done, and how to continue
        """
        raise ConfigError(f"{self.connector} connectors have no procedure {plan.procedure}.")

    @property
    @abc.abstractmethod
    def source_fields(self) -> list[pa.Field]:
        """The source's own fields of the ``source`` block, in their documented order, after the common ones.

        Whether a field may be null is the document's "optional"; the JSON form's schemas say it again. Texts of all kinds, such
        as statements, have the metadata :data:`VARIED`.
        """

    def collect_stream_metrics(self) -> Mapping[str, Value]:
        """Return the source's own metrics of the stream that it reads, or has read last, besides those that every source has.

        Names are the documented ones if there are any, and never those of :mod:`airflow_provider_cdc.core.model.run_metrics`, except
        ``NumberOfEventsFiltered``: changes that the source itself filtered, which are added. May be asked at any time.
        """
        return {}

    def snapshot_metrics(self) -> Mapping[str, Value]:
        """Return the same metrics of the snapshots that it has taken."""
        return {}

    def log_window(self, position: Position) -> LogWindow | None:
        """Return how far a position is from both ends of the log, by a question or two that cost the database nothing.

        It is asked each minute, beside a stream.

        ``None`` where the source has nothing like it. A value that it does not know now is ``None`` in the answer, and never a number that looks like one.

        :raises CdcError: it cannot be asked
        """
        return None

    def find_log_retention(self) -> LogRetention | None:
        """Return how long the source keeps its log, as it is set up now; ``None`` where it does not report that."""
        return None

    @abc.abstractmethod
    def close(self) -> None:
        """Close every connection; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
