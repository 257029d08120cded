"""The offset: the durable progress of a connector. Immutable; each step of a run is a method that returns the next one.

It is written by compare-and-set together with each batch, so everything that has to be exactly as durable as a batch is part of it:
the position, the last sequence number, the tables that a snapshot has still to read, and how far incremental snapshots have come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

SET_ASIDE_MS: Final = 24 * 3_600_000
"""How long an event that was set aside is kept in the offset; notifications keep it longer."""


class PendingTable(BaseModel):
    """A table that is still to be read whole, and why.

    :param held: the target may hold rows of it already: a truncate comes before its rows
    :param request: number of the signal that asked for it; ``None``: no signal did
    :param select: statement that gives its rows instead of all of them
    :param streamed: its events are captured until it is read, as they were before; otherwise they are part of the read
    :param due: it is read even if the request fails, because a statement has rewritten its rows
    :param repair: its rows are read whatever ``snapshot.mode`` says, because an event was set aside
    :param on_spark: the request wants Spark to read it, whatever ``snapshot.engine`` says
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    held: bool = False
    request: int | None = None
    select: str | None = None
    streamed: bool = False
    due: bool = False
    repair: bool = False
    on_spark: bool = False

    def merge_reason(
        self, *, held: bool, request: int | None, select: str | None, on_spark: bool = False
    ) -> PendingTable:
        """Add one more reason to read the table. If one of the reasons wants all rows, all rows are read."""
        if self.select is None:
            select = None
        both = (self.request is None) == (request is not None)
        return PendingTable(
            held=held and select is None,
            request=self.request if request is None else request,
            select=select,
            streamed=self.streamed,
            due=self.due or both,
            repair=self.repair,
            on_spark=self.on_spark or on_spark,
        )

    def after_set_aside(self, *, held: bool) -> PendingTable:
        """Have all rows read after an event that was set aside; no event is captured until then.

        :param held: whether the target may hold rows of the table
        """
        update = {
            "held": held or self.held,
            "select": None,
            "streamed": False,
            "due": self.request is not None,
            "repair": True,
        }
        return self.model_copy(update=update)


class SnapshotState(BaseModel):
    """Progress of reading whole tables.

    Each table is read at one position, but not all at the same one: an interrupted snapshot continues with the tables that
    are missing, at a new position, and the log closes the gap for those read before.

    :param pending: table (``namespace.name``) still to be read, in the order in which tables are read
    :param read_at: table → position at which it was read; only those that streaming has not passed yet
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pending: dict[str, PendingTable] = Field(default_factory=dict)
    read_at: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @property
    def waiting_tables(self) -> set[str]:
        """Pending tables whose events are left out until they are read."""
        return {name for name, table in self.pending.items() if not table.streamed}

    @property
    def streamed_tables(self) -> set[str]:
        """Pending tables whose events are captured until they are read."""
        return {name for name, table in self.pending.items() if table.streamed}

    @property
    def repaired_tables(self) -> set[str]:
        """Pending tables of which an event was set aside."""
        return {name for name, table in self.pending.items() if table.repair}

    @property
    def request_numbers(self) -> dict[str, int]:
        """Pending table → number of the signal that asked for it; those of no signal are missing."""
        return {name: table.request for name, table in self.pending.items() if table.request is not None}

    @property
    def select_statements(self) -> dict[str, str]:
        """Pending table → statement that gives its rows; those that are read whole are missing."""
        return {name: table.select for name, table in self.pending.items() if table.select is not None}

    def add_pending(
        self,
        held: Mapping[str, bool],
        *,
        request: int | None = None,
        selects: Mapping[str, str] | None = None,
        streamed: Collection[str] = (),
        on_spark: bool = False,
    ) -> Self:
        """Add tables to be read.

        :param held: table → whether the target may hold rows of it
        :param request: number of the signal that asks for them
        :param selects: table → statement that gives its rows; the rows that the target holds of such a table stay
        :param streamed: those of them that are captured now, and continue to be so until they are read
        :param on_spark: the request wants Spark to read them
        """
        pending = dict(self.pending)
        for name, there in held.items():
            select, before = (selects or {}).get(name), pending.get(name)
            if before is None:
                pending[name] = PendingTable(
                    held=there and select is None,
                    request=request,
                    select=select,
                    streamed=name in streamed,
                    on_spark=on_spark,
                )
            else:
                pending[name] = before.merge_reason(held=there, request=request, select=select, on_spark=on_spark)
        return self.model_copy(update={"pending": pending})

    def remove_pending(self, names: Collection[str]) -> Self:
        """Return the state in which some tables are not pending any more."""
        return self.model_copy(update={"pending": {n: t for n, t in self.pending.items() if n not in names}})

    def record_read(self, names: Iterable[str], position: dict[str, Any]) -> Self:
        """Record that some tables were read at a position."""
        read = sorted(names)
        return self.remove_pending(read).model_copy(update={"read_at": self.read_at | dict.fromkeys(read, position)})

    def not_read(self, names: Collection[str]) -> Self:
        """Record that some tables have to be read again from their first row: the target may hold rows of them."""
        left = {
            n: t.model_copy(update={"held": t.select is None}) if n in names else t for n, t in self.pending.items()
        }
        return self.model_copy(update={"pending": left})

    def record_passed(self, names: Collection[str]) -> Self:
        """Streaming has passed the positions at which some tables were read."""
        return self.model_copy(update={"read_at": {n: at for n, at in self.read_at.items() if n not in names}})

    def nothing_read(self) -> Self:
        """Forget the positions at which tables were read."""
        return self.model_copy(update={"read_at": {}})

    def rename_tables(self, names: Mapping[str, str]) -> Self:
        """Tables have new names. If a request has a statement that selects the rows, all rows are read: the statement has the old name.

        :param names: old name → new name
        """
        moved = {
            new: self.pending[old].model_copy(update={"held": True, "select": None})
            for old, new in names.items()
            if old in self.pending
        }
        others = self.remove_pending({*names, *names.values()})
        return others.model_copy(update={"pending": others.pending | moved})

    def without_requests(self) -> Self:
        """Drop the requests, which have failed.

        Only tables that are due are still to be read, whole, and those that no signal asked for.
        """
        pending = {
            name: table.model_copy(update={"request": None, "select": None, "due": False, "on_spark": False})
            for name, table in self.pending.items()
            if table.request is None or table.due
        }
        return self.model_copy(update={"pending": pending})


class ScanRange(BaseModel):
    """A range of keys that an incremental snapshot has still to read. Keys are those of events, in JSON (:mod:`.key_json`).

    :param first: key of its first row, inclusive; ``None`` = from the first row of the table
    :param last: key of its last row, inclusive; ``None`` = to the last row of the table
    :param absent: keys that may not be at the source any more, of which that is not known yet
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: list[Any] | None = None
    last: list[Any] | None = None
    absent: list[list[Any]] = Field(default_factory=list)


class TableScan(BaseModel):
    """A table that an incremental snapshot reads, and how far it has come.

    :param table: ``namespace.name``
    :param request: number of the signal that asked for it
    :param signal: that signal's id, as the sender called it
    :param tables: how many tables that signal asked for
    :param condition: condition that rows have to fulfil, in the source's own terms
    :param surrogate: column that chunks are cut by instead of the key
    :param order: columns that the rows are ordered by; empty before the first chunk
    :param after: key of the last row that is captured
    :param upto: key of the last row there was at the beginning
    :param rows: rows read so far
    :param replace: the table is emptied in the target before its first row is read, so that deleted rows disappear
    :param chunk_rows: rows that are read at a time; ``None`` = the connector's own setting
    :param key: names of the key columns, where only ranges of keys are read; otherwise empty
    :param ranges: those that are left; the first one is being read: first the keys that may be absent are looked up, then its rows are
        read, ``after`` and ``upto`` being about them
    :param deleted: absent keys of which a delete was written so far
    """

    model_config = ConfigDict(extra="forbid")

    table: str
    request: int
    signal: str = ""
    tables: int = 0
    condition: str | None = None
    surrogate: str | None = None
    order: list[str] = Field(default_factory=list)
    after: list[Any] | None = None
    upto: list[Any] | None = None
    rows: int = 0
    replace: bool = False
    chunk_rows: int | None = None
    key: list[str] = Field(default_factory=list)
    ranges: list[ScanRange] = Field(default_factory=list)
    deleted: int = 0

    def with_order(self, order: Sequence[str]) -> Self:
        """Return the scan whose rows are read in another order than before, from the first one."""
        return self.model_copy(update={"order": list(order), "after": None, "upto": None})

    def with_last_key(self, upto: list[Any] | None) -> Self:
        """Record the last row that exists now."""
        return self.model_copy(update={"upto": upto})

    def advance_key(self, after: list[Any] | None) -> Self:
        """Rows up to this key were read."""
        return self.model_copy(update={"after": after})

    def record_lookups(self, keys: int) -> Self:
        """So many of the keys that may be absent were looked up."""
        first = self.ranges[0].model_copy(update={"absent": self.ranges[0].absent[keys:]})
        return self.model_copy(update={"ranges": [first, *self.ranges[1:]]})

    def range_read(self) -> Self:
        """Record that the last row of the first range was read."""
        return self.model_copy(update={"ranges": self.ranges[1:], "after": None, "upto": None})

    def record_emptied(self) -> Self:
        """Record that the target's table was emptied; the rows follow."""
        return self.model_copy(update={"replace": False})

    def with_counts(self, rows: int, deleted: int = 0) -> Self:
        """So many rows were read, and so many absent keys deleted, so far."""
        return self.model_copy(update={"rows": rows, "deleted": deleted})

    def restart_scan(self) -> Self:
        """Return the scan that reads the table, or what is left of its ranges, from its first row again."""
        return self.model_copy(update={"order": [], "after": None, "upto": None, "rows": 0})


class IncrementalState(BaseModel):
    """The incremental snapshots that are asked for.

    :param scans: tables in the order in which they are read; the first one is being read
    :param paused: reading waits for ``resume-snapshot``
    :param failed: number of a signal that still has tables to read → what went wrong with others of it
    """

    model_config = ConfigDict(extra="forbid")

    scans: list[TableScan] = Field(default_factory=list)
    paused: bool = False
    failed: dict[str, str] = Field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """True if there is something to read now."""
        return bool(self.scans) and not self.paused

    def add_scans(self, scans: Sequence[TableScan]) -> Self:
        """More tables are to be read, after the others."""
        return self.model_copy(update={"scans": [*self.scans, *scans]})

    def advance_first_scan(self, scan: TableScan) -> Self:
        """Record that a chunk of the first table was read."""
        return self.model_copy(update={"scans": [scan, *self.scans[1:]]})

    def remove_first_scan(self) -> Self:
        """Record that the first table is read, or cannot be read."""
        return self.model_copy(update={"scans": self.scans[1:]})

    def restart_scans(self, tables: Collection[str]) -> Self:
        """Return the state in which some tables are read from their first row again."""
        return self.model_copy(update={"scans": [s.restart_scan() if s.table in tables else s for s in self.scans]})

    def retain_scans(self, scans: Sequence[TableScan]) -> Self:
        """Only these tables are still to be read."""
        return self.model_copy(update={"scans": list(scans), "paused": self.paused and bool(scans)})

    def pause(self) -> Self:
        return self.model_copy(update={"paused": True})

    def resume(self) -> Self:
        return self.model_copy(update={"paused": False})

    def request_failed(self, request: int, text: str) -> Self:
        """Something went wrong with a table of a request. Its other tables are still read."""
        texts = filter(None, [self.failed.get(str(request)), text])
        return self.model_copy(update={"failed": self.failed | {str(request): "; ".join(texts)}})

    def request_ended(self, request: int) -> tuple[str, Self]:
        """No table of a request is left. Returns the text of its failures (empty: none), and the state without it."""
        failed = dict(self.failed)
        return failed.pop(str(request), ""), self.model_copy(update={"failed": failed})


class SetAsideEvent(BaseModel):
    """An event of the log that cannot be read, and that is not captured: its table is read again.

    :param at_ms: when it was set aside
    :param error: name of the error
    :param text: of the error, cut
    :param position: its transaction begins here or later
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    at_ms: int
    error: str
    text: str
    position: str


class CarriedFile(BaseModel):
    """A file in which a source carries something from one run to the next, in the change log's storage.

    :param bytes: its size
    :param crc32: of all of it
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    bytes: int
    crc32: int


class Offset(BaseModel):
    """Durable progress of a connector.

    :param position: in the log, to continue from; ``None`` before the first snapshot or stream
    :param seq: last sequence number that was given out
    :param batch: number of the last committed batch; 0 before the first
    :param changelog: identity of the change log that has this batch, made with its first one; empty before that
    :param snapshot: tables that are not yet, or not yet all, at ``position``
    :param tables_filter: the include and exclude lists in force, to notice that tables were added
    :param incremental: tables that are read in chunks beside the stream
    :param signal: number of the last signal that was taken
    :param stopped: table → why its events are left out until it is read whole again: a value or a row of it cannot be read
    :param set_aside: table → its events of the last day that were set aside, oldest first
    :param carried: what the source has put beside the position, see :mod:`airflow_provider_cdc.core.spi.carry_over`
    """

    model_config = ConfigDict(extra="forbid")

    position: dict[str, Any] | None = None
    seq: int = 0
    batch: int = 0
    snapshot: SnapshotState = Field(default_factory=SnapshotState)
    tables_filter: str = ""
    incremental: IncrementalState = Field(default_factory=IncrementalState)
    signal: int = 0
    stopped: dict[str, str] = Field(default_factory=dict)
    set_aside: dict[str, tuple[SetAsideEvent, ...]] = Field(default_factory=dict)
    carried: CarriedFile | None = None
    changelog: str = ""

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form, as stored and as written into manifests."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def advance_position(self, position: dict[str, Any]) -> Self:
        """Everything up to a position is done."""
        return self.model_copy(update={"position": position})

    def move_position(self, position: dict[str, Any]) -> Self:
        """Continue from another position, whatever was done up to it. The carried state belongs to the position before."""
        return self.model_copy(update={"position": position, "carried": None})

    def with_carried_file(self, file: CarriedFile | None) -> Self:
        """Record the state that the source carries from here on; ``None``: nothing."""
        return self.model_copy(update={"carried": file})

    def with_snapshot(self, snapshot: SnapshotState) -> Self:
        """With another state of whole-table snapshots."""
        return self.model_copy(update={"snapshot": snapshot})

    def with_incremental(self, incremental: IncrementalState) -> Self:
        """With another state of incremental snapshots."""
        return self.model_copy(update={"incremental": incremental})

    def stop_table(self, table: str, why: str) -> Self:
        """Events of a table are left out from here on, and it is not read."""
        snapshot = self.snapshot.remove_pending({table}).record_passed({table})
        return self.model_copy(update={"stopped": self.stopped | {table: why}, "snapshot": snapshot})

    def set_event_aside(self, table: str, event: SetAsideEvent, *, held: bool) -> Self:
        """Events of a table are left out from here on, until it is read again.

        :param held: whether the target may hold rows of it
        """
        pending = self.snapshot.pending.get(table, PendingTable()).after_set_aside(held=held)
        snapshot = self.snapshot.record_passed({table})
        snapshot = snapshot.model_copy(update={"pending": snapshot.pending | {table: pending}})
        events = (*self.set_aside.get(table, ()), event)
        return self.model_copy(update={"set_aside": self.set_aside | {table: events}, "snapshot": snapshot})

    def forget_set_aside(self, now_ms: int) -> Self:
        """Forget events that were set aside more than a day ago; those of tables that are still to be read stay."""
        before, repaired = now_ms - SET_ASIDE_MS, self.snapshot.repaired_tables
        left = {
            table: events if table in repaired else tuple(event for event in events if event.at_ms >= before)
            for table, events in self.set_aside.items()
        }
        return self.model_copy(update={"set_aside": {table: events for table, events in left.items() if events}})

    def resume_tables(self, tables: Collection[str]) -> Self:
        """Return the offset in which some tables are not stopped any more."""
        return self.model_copy(update={"stopped": {n: why for n, why in self.stopped.items() if n not in tables}})

    def with_tables_filter(self, tables_filter: str) -> Self:
        """Record the include and exclude lists that hold now."""
        return self.model_copy(update={"tables_filter": tables_filter})

    def with_last_signal(self, number: int) -> Self:
        """Signals up to this one were taken."""
        return self.model_copy(update={"signal": number})

    def with_numbers(self, seq: int, batch: int) -> Self:
        """With other last numbers of events and batches."""
        return self.model_copy(update={"seq": seq, "batch": batch})

    def in_log(self, changelog: str) -> Self:
        """Its batches are in the change log of this identity."""
        return self.model_copy(update={"changelog": changelog})

    def restore_position(self, old: Offset) -> Self:
        """Return to the position of an earlier offset, without its requests and without what it carried, which may be deleted.

        Sequence, batch and signal numbers continue.
        """
        snapshot = old.snapshot.without_requests()
        return self.model_copy(
            update={
                "position": old.position, "snapshot": snapshot, "tables_filter": old.tables_filter, "carried": None,
            }
        )  # fmt: skip

    def clear_position(self) -> Self:
        """Remove the connector's position: its next run reads all tables first. Sequence, batch and signal numbers continue."""
        return self.model_copy(
            update={
                "position": None, "snapshot": SnapshotState(), "tables_filter": "", "stopped": {}, "carried": None,
            }
        )  # fmt: skip
