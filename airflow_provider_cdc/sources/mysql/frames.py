"""What begins, ends and takes back transactions by a statement: BEGIN, COMMIT, savepoints, XA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from airflow_provider_cdc.core.events import LogItem, Rollback, Transactions
from airflow_provider_cdc.sources.mysql import binlog as b
from airflow_provider_cdc.sources.mysql import ddl
from airflow_provider_cdc.sources.mysql import kernels as k
from airflow_provider_cdc.sources.mysql.event_set import EventSet
from airflow_provider_cdc.sources.mysql.handing_over import HandingOver


class ReadAgain(Exception):
    """The open transaction has to be read again from its start: rows that were handed over are void."""


class Frames:
    """Follows the frames of transactions in a set of events.

    Rows of a transaction that XA has prepared wait in the log: they are passed over, and read when it is committed.
    """

    def __init__(self, found: EventSet, hand_over: HandingOver) -> None:
        self.s, self.found, self.hand_over = found.s, found, hand_over

    def statement(self, i: int, statement: ddl.Transaction) -> Iterator[LogItem]:
        """A statement that concerns the transaction and no table.

        :raises ReadAgain: it takes back rows that were handed over
        """
        found, name = self.found, statement.name or ""
        note = found.note(found.tx)
        match statement.kind:
            case "begin" if not found.open:
                found.begin(i)
            case "commit" if found.open:
                found.close(i)
            case "rollback" if found.open:
                found.rolled_back.add(found.tx)
                yield from self._void_all(i)
            case "savepoint":
                note.savepoints[name] = found.rows_before(i)
            case "rollback to":
                self._roll_back(i, note.savepoints.get(name, 0))
            case "xa start":
                note.xa = name
            case "commit" | "rollback":
                self.s.metrics.malformed += 1
            case "xa commit" | "xa rollback":
                if statement.kind == "xa rollback":
                    found.rolled_back.add(found.tx)
                yield from self._end_prepared(i, name, commit=statement.kind == "xa commit")

    def xa_gtid(self, i: int) -> None:
        """A GTID of MariaDB that begins, or ends, a prepared transaction."""
        if self.found.open:
            self.s.metrics.malformed += 1
            raise b.unknown_event(
                b.MARIADB_GTID, self.found.where(i), "it begins inside a transaction that has not ended"
            )
        self.found.begin(i)
        self.found.transactions[self.found.tx, k.TX_GTID] = i

    def prepared(self, i: int) -> Iterator[LogItem]:
        """The end of a transaction's rows that are not committed yet; with one phase, they are."""
        found, body = self.found, self.found.events.body(i)
        if body[0] or self.s.commits_prepared:
            found.close(i)
            return
        tx, s = found.tx, self.s
        first, xid = int(found.transactions[tx, k.TX_FIRST]), found.note(tx).xa or b.xa_id(body)
        yield from self.hand_over.complete()
        found.apart.add(tx)
        pos = found.place(first) if first >= 0 else s.position.pos
        start = {"file": s.file, "pos": pos, "server": s.server.identity}
        yield from self._void_all(i)
        s.position = replace(s.position, prepared={**s.position.prepared, xid: start})

    def _end_prepared(self, i: int, xid: str, *, commit: bool) -> Iterator[LogItem]:
        s, found = self.s, self.found
        start = s.position.prepared.get(xid)
        rest = {x: place for x, place in s.position.prepared.items() if x != xid}
        elsewhere = start is not None and start["server"] != s.server.identity
        if commit and not s.commits_prepared and (start is None or elsewhere):
            when = "in the log of another server" if elsewhere else "before the place where capture began"
            why = f"XA transaction {xid} was prepared {when}, so that its rows are unknown"
            raise b.unknown_event(b.QUERY, found.where(i), why)
        yield from self.hand_over.complete()
        if start is not None and commit:
            gtid = found.source(i)["gtid"]
            for block in s.read_prepared(start):
                ids = Transactions(pa.array([str(gtid or xid)]), np.array([found.ts_us(i)]))
                yield replace(block, position=s.position, transactions=ids)
        s.position = replace(s.position, prepared=rest)

    def _void_all(self, i: int) -> Iterator[LogItem]:
        """The open transaction ends here, and leaves nothing."""
        found = self.found
        found.routed.layout_of[:i][found.rows(found.tx, i)] = k.NOT_WANTED
        if found.note(found.tx).id is not None:
            yield Rollback()
        found.close(i)

    def _roll_back(self, i: int, since: int) -> None:
        """Row events of the open transaction from number ``since`` on are void."""
        found = self.found
        now, gone = found.rows_before(i), found.note(found.tx).row_events
        if since < gone and (since, now) not in self.s.void:
            self.s.void.append((since, now))
            raise ReadAgain
        events = np.flatnonzero(found.rows(found.tx, i))[max(since - gone, 0) :]
        found.routed.layout_of[events] = k.NOT_WANTED
