"""A replay that is compared with the database at positions of the past: :class:`History` at SCNs of Oracle."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Generic, Protocol, Self, TypeVar

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from tests.support.change_log.replay import IllegalEvent, Replay, Row
from tests.support.sources.oracle.oracle_workload import TableTruth


class SourceTruth(Protocol):
    """A table's committed rows at a position, out of the database itself."""

    @property
    def table(self) -> str: ...


TruthT = TypeVar("TruthT", bound=SourceTruth)


class TruthReplay(Replay, ABC, Generic[TruthT]):
    """Compares each truth when all that was committed up to its position has been replayed, and nothing after it. What was before a
    table's snapshot is not in the change log, nor what a statement has made of its rows until they are read again.

    Also holds transactions to their order: by commit, each in one piece, its events numbered from 1 without a hole.

    :param prefix: of topics, up to the name of the table
    :ivar compared: truths that were
    :ivar positions: at how many positions something was
    :ivar rereads: how often a table was read again
    """

    def __init__(self, changelog: ChangeLog, connector: str, truths: Iterable[TruthT], prefix: str) -> None:
        super().__init__(changelog, connector)
        self._waiting = sorted(truths, key=self.at, reverse=True)
        self._read: dict[str, int] = {}
        self._topics, self._at, self._transaction, self._order = prefix, 0, "", 0
        self._seen: set[str] = set()
        self.compared = self.rereads = 0
        self._compared_at: set[int] = set()

    @abstractmethod
    def at(self, truth: TruthT) -> int:
        """The position of a truth."""

    @abstractmethod
    def position(self, item: Row | SchemaChangeRecord) -> int:
        """Return the position at which an event or a change of structure took effect."""

    @abstractmethod
    def said(self, truth: TruthT, rows: list[Row]) -> tuple[Counter[Any], Counter[Any]]:
        """Return the rows of the database and those of the change log, to be compared.

        :param rows: the replayed rows
        """

    def finish(self) -> Self:
        """Replay everything, compare everything."""
        self.advance()
        self._compare(None)
        return self

    @property
    def snapshot_tables(self) -> set[str]:
        """Names of the tables that a snapshot has read; all others are compared nowhere."""
        return set(self._read)

    @property
    def positions(self) -> int:
        return len(self._compared_at)

    def _next(self, item: Row | SchemaChangeRecord) -> None:
        if self._reads(item):
            return  # tables may be read at positions of their own; what follows them in the log comes after all of them
        at = self.position(item)
        if at < self._at:
            raise IllegalEvent(f"position {at} at seq {self.seq + 1} comes after {self._at}")
        self._compare(at)
        self._at = at
        if not isinstance(item, SchemaChangeRecord):
            self._ordered(item)

    def _reads(self, item: Row | SchemaChangeRecord) -> bool:
        """Check whether it is part of a snapshot, of which the position is remembered."""
        if isinstance(item, SchemaChangeRecord):
            self._read |= {c.id.name: self.position(item) for c in item.changes if item.snapshot}
            return item.snapshot
        again = item["op"] == "t" and item["source"].get("txId") is None
        if not again and item["op"] != "r":
            return False
        self._read[item["source"]["table"]] = self.position(item)
        self.rereads += again
        return True

    def _ordered(self, event: Row) -> None:
        block = event["transaction"]
        if block is None:
            return
        if block["id"] != self._transaction:
            if block["id"] in self._seen:
                raise IllegalEvent(f"transaction {block['id']} goes on at seq {self.seq + 1}, after another one")
            self._seen.add(block["id"])
            self._transaction, self._order = block["id"], 0
        self._order += 1
        if block["total_order"] != self._order:
            raise IllegalEvent(f"event {block['total_order']} of transaction {block['id']} follows {self._order - 1}")

    def _compare(self, before: int | None) -> None:
        while self._waiting and (before is None or self.at(self._waiting[-1]) < before):
            truth = self._waiting.pop()
            at, table = self.at(truth), self.tables.get(self._topics + truth.table)
            if truth.table not in self._read or at < self._read[truth.table] or (table is not None and table.rewritten):
                continue
            there, replayed = self.said(truth, table.all() if table else [])
            if replayed != there:
                raise IllegalEvent(
                    f"{truth.table} at {at}: only in the database {_shorten_rows(there - replayed)}, only in the change log "
                    f"{_shorten_rows(replayed - there)}; {self.seq} events replayed"
                )
            self.compared += 1
            self._compared_at.add(at)


class History(TruthReplay[TableTruth]):
    """At SCNs of Oracle."""

    def at(self, truth: TableTruth) -> int:
        return truth.scn

    def position(self, item: Row | SchemaChangeRecord) -> int:
        if isinstance(item, SchemaChangeRecord):
            position = OraclePosition.from_json(item.position)
            return max([c.scn for c in position.commits.values()], default=position.read_scn)
        return int(item["source"]["commit_scn"] or item["source"]["scn"])

    def said(self, truth: TableTruth, rows: list[Row]) -> tuple[Counter[Any], Counter[Any]]:
        types = truth.columns
        there = (tuple(_known_value(v, t) for v, t in zip(row, types.values(), strict=True)) for row in truth.rows)
        return Counter(there), Counter(tuple(_plain_value(row[n], t) for n, t in types.items()) for row in rows)


def _shorten_rows(rows: Counter[Any]) -> str:
    return str(
        [tuple(v if len(str(v)) < 50 else f"{str(v)[:40]}… ({len(str(v))})" for v in row) for row in list(rows)[:4]]
    )


def _plain_value(value: Any, type_: str) -> Any:
    """A value of the change log, to compare."""
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None)
        return f"{value:%Y-%m-%d %H:%M:%S}" if type_.startswith("DATE") else f"{value:%Y-%m-%d %H:%M:%S.%f}000"
    return Decimal(value) if isinstance(value, int) else value


def _known_value(value: Any, type_: str) -> Any:
    """A value as the engine keeps it, to compare."""
    if value is None or not type_.startswith("NUMBER"):
        return value
    return Decimal(repr(value) if isinstance(value, float) else value)
