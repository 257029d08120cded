"""Taking a set of events from the log: routing them, handing over blocks, and looking at everything that is not a row.

The kernels find transactions and tables; what they leave to plain Python is here: files and new table maps, and with
``statements.py`` and ``frames.py`` statements, savepoints, XA. An event that may carry data and is not known is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_cdc.core.errors import SourceLogDamaged
from airflow_provider_cdc.core.events import Heartbeat, LogItem, SchemaChange
from airflow_provider_cdc.core.schema import TableChange
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.event_set import EventSet
from airflow_provider_cdc.sources.mysql.frames import Frames
from airflow_provider_cdc.sources.mysql.gtid import MariaDbGtids, MySqlGtids
from airflow_provider_cdc.sources.mysql.handing_over import HandingOver
from airflow_provider_cdc.sources.mysql.statements import Statements
from airflow_provider_cdc.sources.mysql.wire import Events

if TYPE_CHECKING:
    from airflow_provider_cdc.sources.mysql.stream import BinlogStream


class Taking:
    """Takes one set of events."""

    def __init__(self, stream: BinlogStream, events: Events) -> None:
        self.s, self.events, self.found = stream, events, EventSet(stream, events)
        self.hand_over = HandingOver(self.found)
        self.frames = Frames(self.found, self.hand_over)
        self.statements = Statements(self.found, self.hand_over, self.frames)

    def items(self) -> Iterator[LogItem]:
        """What the events hold, in their order.

        :raises SourceLogDamaged: an event does not hold what its kind has to
        """
        try:
            yield from self._items()
        except (ValueError, IndexError, struct.error) as e:
            raise SourceLogDamaged(
                f"An event of the binary log cannot be read: {e}.",
                where=self.found.where(min(self.found.at, len(self.events) - 1)),
                safe="Everything before its transaction is captured; no value was guessed.",
                remedy="run the capture again; if the error stays, the log is damaged, or this is an error of the reader: please "
                "report it. To go on past it, read the tables again with snapshot.mode=always for one run",
            ) from e

    def _items(self) -> Iterator[LogItem]:
        found = self.found
        while not self.s.reached():
            maps = self.s.maps
            why = k.route(
                self.events.buf, self.events.table, found.state, found.routed.layout_of, found.routed.transaction_of,
                found.transactions, maps.ids, maps.places, maps.numbers, maps.bytes,
            )  # fmt: skip
            if why == k.ROUTED or found.is_past(found.at):
                break
            if why == k.NEW_MAP:
                yield from self._new_map(found.at)
            else:
                yield from self._look_at(found.at)
        yield from self.hand_over.complete()
        self._arrive()
        if found.open and not self.s.reached():
            begun = found.note(found.tx).id is not None
            if self.events.full or begun:
                yield from self.hand_over.part()
            else:
                self.events.keep = int(found.transactions[found.tx, k.TX_FIRST])

    def _arrive(self) -> None:
        """Stand at ``until`` if the next thing in the log comes after it: its last bytes need not be a transaction's."""
        s, found = self.s, self.found
        at = int(found.transactions[found.first, k.TX_FIRST]) if found.first <= found.tx else found.at
        if s.until is not None and 0 <= at < len(self.events) and found.is_past(at):
            s.position = replace(s.position, file=s.until.file, pos=s.until.pos)

    def _new_map(self, i: int) -> Iterator[LogItem]:
        schema = self.s.maps.learn(self.events.body(i), self.found.where(i))
        if schema is None:
            return
        yield from self.hand_over.complete()
        known = self.s.tables.get(schema.id)
        change = TableChange(type="CREATE" if known is None else "ALTER", id=schema.id, table=schema, exact=False)
        source = self.found.source(i)
        yield SchemaChange("", schema.id.namespace, [change], self.s.position, self.found.ts_us(i), source)

    def _look_at(self, i: int) -> Iterator[LogItem]:
        """An event that the kernel leaves to plain Python."""
        s, found, kind = self.s, self.found, self.found.kind(i)
        if kind in b.ROWS:
            if found.open and s.maps.known(int.from_bytes(self.events.body(i)[:6], "little")):
                return  # its table map had lost its place to another one; now it has it back
            s.metrics.malformed += 1
            raise b.unknown_event(kind, found.where(i), "rows without a table map, or outside of a transaction")
        if kind == b.QUERY:
            yield from self.statements.read(i)
        elif kind == b.ROTATE:
            yield from self._rotate(i)
        elif kind == b.FORMAT_DESCRIPTION:
            self._format(i)
        elif kind == b.HEARTBEAT:
            if not found.open:
                yield from self.hand_over.complete()
                self._advance(i)
                yield Heartbeat(s.position)
        elif kind == b.MARIADB_GTID:
            self.frames.xa_gtid(i)
        elif kind in (b.PREVIOUS_GTIDS, b.MARIADB_GTID_LIST):
            self._before_file(i)
        elif kind == b.XA_PREPARE:
            yield from self.frames.prepared(i)
        elif kind == b.INCIDENT:
            raise b.unknown_event(kind, found.where(i), "the server says that changes are missing from its log")
        elif kind not in b.HARMLESS and not found.flags(i) & b.IGNORABLE_FLAG:
            s.metrics.malformed += kind in b.FRAMES
            raise b.unknown_event(kind, found.where(i))
        found.state[k.AT] = i + 1

    # -- files --------------------------------------------------------------------------------------------------------

    def _rotate(self, i: int) -> Iterator[LogItem]:
        yield from self.hand_over.complete()
        name, pos = b.parse_rotate(self.events.body(i))
        s = self.s
        if s.until is not None and s.until.same_log(s.position) and s.until.file == s.file != name:
            s.position = replace(s.position, file=s.file, pos=max(s.until.pos, s.position.pos))
        # asked by GTID, the server begins at the head of a file; asked by place, it says that place
        s.last_end = pos
        if name != s.file:
            s.file, s.created = name, 0
        self.found.new_file(i, name)

    def _format(self, i: int) -> None:
        body = self.events.body(i)
        connection = self.s.connection
        checksums = body[-1] == 1 if connection.checksum else b.has_checksums(body)
        connection.checksum = 4 if checksums else 0
        self.s.created = int(self.events.table[i, k.EV_TIME])

    def _before_file(self, i: int) -> None:
        """The transactions before a file: whoever began at its head did not know them."""
        s, body = self.s, self.events.body(i)
        if s.server.gtids and not str(s.gtids) and not self.found.flags(i) & b.ARTIFICIAL_FLAG:
            s.gtids = MariaDbGtids.decode(body) if s.server.mariadb else MySqlGtids.decode(body)

    def _advance(self, i: int) -> None:
        """Stand where a heartbeat of the server says that its log ends: what lies before may be no transaction, as the head of
        a new file."""
        s = self.s
        place = replace(
            s.position,
            file=s.file,
            pos=int(self.found.routed.ends[i]),
            gtids=str(s.gtids) if s.server.gtids else "",
            created=s.created,
            server=s.server.identity,
        )
        # on the way to where a reader by GTIDs stands, what it has is passed over
        if s.until is None and (not place.same_log(s.position) or place.reached(s.position)):
            s.position = place
