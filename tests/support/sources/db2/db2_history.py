"""A replay that is compared with the tables of a Db2 test server at LSNs of the past."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any

from airflow_provider_cdc.changelog.files.change_log import ChangeLog
from airflow_provider_cdc.core.model.batch_manifest import SchemaChangeRecord
from airflow_provider_cdc.sources.db2.position import Db2Position, lsn_bytes
from tests.support.change_log.replay import Row
from tests.support.change_log.replay_history import TruthReplay
from tests.support.sources.db2.db2_rows import LOBS
from tests.support.sources.db2.db2_workload import Db2Writer, TableTruth


class Db2History(TruthReplay[TableTruth]):
    """At LSNs of Db2.

    A change table has no past: where a capture finds a table altered, that is true for all rows that it reads from then on, and for those from before, too. So
    columns are compared that there were at the LSN and are known at that place of the change log, whatever they are called. Large objects are read again later
    than the change that has set them: they are only right in the end.

    :param writer: knows what columns were called, and where changes were lost
    """

    def __init__(self, changelog: ChangeLog, truths: list[TableTruth], prefix: str, writer: Db2Writer) -> None:
        super().__init__(changelog, "test", truths, prefix)
        self._names = writer.names
        self._gaps = sorted(((_number(lsn), table) for table, lsn in writer.gaps), reverse=True)

    def _next(self, item: Row | SchemaChangeRecord) -> None:
        at = self.position(item)
        while self._gaps and self._gaps[-1][0] < at:
            self.tables[self._topics + self._gaps.pop()[1]].doubt()
        super()._next(item)

    def at(self, truth: TableTruth) -> int:
        return _number(truth.lsn)

    def position(self, item: Row | SchemaChangeRecord) -> int:
        if isinstance(item, SchemaChangeRecord):
            return _number(Db2Position.from_json(item.position).commit_lsn)
        return _number(lsn_bytes(item["source"]["commit_lsn"]))

    def said(self, truth: TableTruth, rows: list[Row]) -> tuple[Counter[Any], Counter[Any]]:
        table = self.tables.get(self._topics + truth.table)
        known = [*table.schema.column_names] if table is not None else []
        pairs = [
            (i, n) for i, c in enumerate(truth.columns) if c not in LOBS and (n := self._known(truth.table, c, known))
        ]
        there = Counter(tuple(plain_value(row[i]) for i, _ in pairs) for row in truth.rows)
        return there, Counter(tuple(plain_value(row[n]) for _, n in pairs) for row in rows)

    def _known(self, table: str, column: str, known: list[str]) -> str | None:
        """Return the name that a column has at this place of the change log."""
        names = next((names for names in self._names[table].values() if column in names), {column})
        return next((name for name in known if name in names), None)


def _number(lsn: bytes) -> int:
    return int.from_bytes(lsn.ljust(16, b"\0"), "big")


def plain_value(value: Any) -> Any:
    """A value of the change log, or of the driver, to compare."""
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, dt.date):  # rows that have a new column's default have it as the statement says it
        return value.isoformat()
    return Decimal(value) if isinstance(value, int) else value
