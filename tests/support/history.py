"""A replay that is compared with the database at SCNs of the past."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

from airflow_provider_cdc.changelog.log import ChangeLog
from airflow_provider_cdc.core.model.manifest import SchemaChangeRecord
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from tests.support.oracle_workload import Truth
from tests.support.replay import Illegal, Replay, Row


class History(Replay):
    """Compares each truth when all that was committed up to its SCN has been replayed, and nothing after it. What was before a
    table's snapshot is not in the change log, nor what a statement has made of its rows until they are read again.

    Also holds transactions to their order: by commit, each in one piece, its events numbered from 1 without a hole.

    :param prefix: of topics, up to the name of the table
    :ivar compared: truths that were
    :ivar rereads: how often a table was read again
    """

    def __init__(self, changelog: ChangeLog, connector: str, truths: list[Truth], prefix: str) -> None:
        super().__init__(changelog, connector)
        self._waiting = sorted(truths, key=lambda t: t.scn, reverse=True)
        self._read: dict[str, int] = {}
        self._topics, self._scn, self._transaction, self._order = prefix, 0, "", 0
        self._seen: set[str] = set()
        self.compared = self.rereads = 0
        self._scns: set[int] = set()

    def finish(self) -> History:
        """Replay everything, compare everything."""
        self.advance()
        self._compare(1 << 62)
        return self

    @property
    def scns(self) -> int:
        """At how many SCNs something was compared."""
        return len(self._scns)

    def _next(self, item: Row | SchemaChangeRecord) -> None:
        if self._reads(item):
            return  # tables may be read at SCNs of their own; what follows them in the log comes after all of them
        scn = _scn_of(item)
        if scn < self._scn:
            raise Illegal(f"SCN {scn} at seq {self.seq + 1} comes after {self._scn}")
        self._compare(scn)
        self._scn = scn
        if not isinstance(item, SchemaChangeRecord):
            self._ordered(item)

    def _reads(self, item: Row | SchemaChangeRecord) -> bool:
        """Whether it is part of a snapshot, of which the SCN is remembered."""
        if isinstance(item, SchemaChangeRecord):
            self._read |= {c.id.name: _scn_of(item) for c in item.changes if item.snapshot}
            return item.snapshot
        again = item["op"] == "t" and item["source"]["txId"] is None
        if not again and item["op"] != "r":
            return False
        self._read[item["source"]["table"]] = int(item["source"]["scn"])
        self.rereads += again
        return True

    def _ordered(self, event: Row) -> None:
        block = event["transaction"]
        if block is None:
            return
        if block["id"] != self._transaction:
            if block["id"] in self._seen:
                raise Illegal(f"transaction {block['id']} goes on at seq {self.seq + 1}, after another one")
            self._seen.add(block["id"])
            self._transaction, self._order = block["id"], 0
        self._order += 1
        if block["total_order"] != self._order:
            raise Illegal(f"event {block['total_order']} of transaction {block['id']} follows {self._order - 1}")

    def _compare(self, before: int) -> None:
        while self._waiting and self._waiting[-1].scn < before:
            truth = self._waiting.pop()
            table = self.tables.get(self._topics + truth.table)
            if truth.scn < self._read.get(truth.table, 1 << 62) or (table is not None and table.rewritten):
                continue
            names = list(truth.columns)
            replayed = Counter(
                tuple(_plain(row[n], truth.columns[n]) for n in names) for row in (table.all() if table else [])
            )
            there = Counter(
                tuple(_known(v, t) for v, t in zip(row, truth.columns.values(), strict=True)) for row in truth.rows
            )
            if replayed != there:
                raise Illegal(
                    f"{truth.table} at SCN {truth.scn}, {names}: only in the database {_short(there - replayed)}, only in "
                    f"the change log {_short(replayed - there)}; {self.seq} events replayed"
                )
            self.compared += 1
            self._scns.add(truth.scn)


def _scn_of(item: Row | SchemaChangeRecord) -> int:
    """Where an event or a change of structure took effect."""
    if isinstance(item, SchemaChangeRecord):
        position = OraclePosition.from_json(item.position)
        return max([c.scn for c in position.commits.values()], default=position.read_scn)
    return int(item["source"]["commit_scn"] or item["source"]["scn"])


def _short(rows: Counter[Any]) -> str:
    return str(
        [tuple(v if len(str(v)) < 50 else f"{str(v)[:40]}… ({len(str(v))})" for v in row) for row in list(rows)[:4]]
    )


def _plain(value: Any, type_: str) -> Any:
    """A value of the change log, to compare."""
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None)
        return f"{value:%Y-%m-%d %H:%M:%S}" if type_.startswith("DATE") else f"{value:%Y-%m-%d %H:%M:%S.%f}000"
    return Decimal(value) if isinstance(value, int) else value


def _known(value: Any, type_: str) -> Any:
    """A value as the engine keeps it, to compare."""
    if value is None or not type_.startswith("NUMBER"):
        return value
    return Decimal(repr(value) if isinstance(value, float) else value)
