"""Rows of LogMiner, made by hand, to log items: commit order, undo, spilling, restarting anywhere."""

from __future__ import annotations

import itertools
import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_cdc.core.errors import CdcError, SourceLogDamaged, UnknownLogEvent
from airflow_provider_cdc.core.model.log_items import Heartbeat, LogBlock, LogItem, SchemaChange
from airflow_provider_cdc.core.model.table_schema import Column, TableChange, TableId, TableSchema
from airflow_provider_cdc.core.spi.source import CapturedTableSchemas
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.mining.logminer_query import BATCH
from airflow_provider_cdc.sources.oracle.mining.logminer_stream import in_scn_order
from airflow_provider_cdc.sources.oracle.position import OraclePosition
from airflow_provider_cdc.sources.oracle.schema.column_types import ColumnType, make_column
from airflow_provider_cdc.sources.oracle.schema.ddl import Statement
from airflow_provider_cdc.sources.oracle.schema.ddl_applier import DdlApplier, DdlEffect
from airflow_provider_cdc.sources.oracle.schema.stream_lookups import NoLookups
from airflow_provider_cdc.sources.oracle.stream_counters import RowCounters
from airflow_provider_cdc.sources.oracle.transactions.buffer import transaction_buffer
from airflow_provider_cdc.sources.oracle.transactions.continued_rows import ContinuationJoiner
from airflow_provider_cdc.sources.oracle.transactions.row_processor import RowProcessor
from tests.sources.oracle.redo.redo_tables import config

Event = tuple[str, str, int, int | None, int | None]
"""Transaction, operation, id, value before, value after."""


def xid_of(n: int) -> bytes:
    return struct.pack("<HHI", n % 7 + 1, n % 31, n)


def id_of(n: int) -> str:
    return f"{n % 7 + 1}.{n % 31}.{n}"


def row(
    scn: int, code: int, transaction: int, sql: str | None = None, table: str | None = None, **more: Any
) -> dict[str, Any]:
    given = {
        "scn": scn, "code": code, "sql": sql, "csf": False, "xid": xid_of(transaction), "owner": "APP" if table else None,
        "table": table, "row_id": None, "rollback": False, "info": None, "ssn": 0, "thread": 1, "object": 1,
        "object_version": 1, "rs_id": f" 0x{scn:06x}.1.1 ", "user": "APP", "client_id": None, "ts_us": scn * 1000, "status": 0,
    }  # fmt: skip
    return given | more


def schema_of(name: str, settings: OracleConfig) -> TableSchema:
    table = TableId(namespace="APP", name=name, catalog="PDB")
    columns: list[Column] = []
    for column, type_ in (("ID", "NUMBER(9)"), ("V", "NUMBER(9)"), ("NOTE", "VARCHAR2(9000)")):
        made = make_column(table, column, ColumnType.parse(type_), settings, nullable=column != "ID")
        assert made is not None
        columns.append(made)
    return TableSchema(id=table, columns=tuple(columns), key=("ID",))


class TwoTables:
    """The captured tables T1 and T2; see :class:`airflow_provider_cdc.core.spi.source.CapturedTableSchemas`."""

    def __init__(self, settings: OracleConfig) -> None:
        self.tables = {s.id: s for s in (schema_of("T1", settings), schema_of("T2", settings))}

    def find_schema(self, table: TableId) -> TableSchema | None:
        return self.tables.get(table)

    def is_captured(self, table: TableId) -> bool:
        return table in self.tables

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return list(self.tables)


class ScriptedDdl(DdlApplier):
    """A DDL applier to which statements mean what a test says, and otherwise nothing."""

    def __init__(
        self, settings: OracleConfig, tables: CapturedTableSchemas, lookups: NoLookups, ddl: Any = None
    ) -> None:
        super().__init__(settings, tables, lookups)
        self._ddl = ddl

    def apply(self, statement: Statement, owner: str, where: str) -> DdlEffect:
        return DdlEffect(*self._ddl(statement, owner, where)) if self._ddl is not None else DdlEffect()


def processor(start: OraclePosition | None = None, ddl: Any = None, **properties: Any) -> RowProcessor:
    settings = config(**{"database.pdb.name": "PDB", **properties})
    tables = TwoTables(settings)
    lookups = NoLookups()
    schemas = ScriptedDdl(settings, tables, lookups, ddl)
    return RowProcessor(settings, start or OraclePosition(0, 0), tables, lookups, schemas, RowCounters())


def batches(rows: list[dict[str, Any]], sizes: Iterator[int]) -> Iterator[pa.Table]:
    at = 0
    while at < len(rows):
        size = next(sizes)
        yield pa.Table.from_pylist(rows[at : at + size], BATCH)
        at += size


def events_of(item: LogBlock) -> list[Event]:
    """The events of a block, in commit order."""
    found: list[tuple[int, Event]] = []
    for rows in item.rows:
        assert rows.transaction is not None
        ids = item.transactions.id.to_pylist()
        before = rows.before.to_pylist() if rows.before is not None else [None] * len(rows)
        after = rows.after.to_pylist() if rows.after is not None else [None] * len(rows)
        for i in range(len(rows)):
            image = after[i] or before[i]
            assert image is not None
            event = (
                ids[rows.transaction[i]], "rcud"[rows.op[i]] + rows.table.id.name[-1], image["ID"],
                before[i]["V"] if before[i] else None, after[i]["V"] if after[i] else None,
            )  # fmt: skip
            found.append((int(rows.order[i]), event))
            assert rows.source["txId"][i].as_py() == ids[rows.transaction[i]]
    found.sort()
    assert [order for order, _ in found] == list(range(item.row_count))
    return [event for _, event in found]


def run(t: RowProcessor, rows: list[dict[str, Any]], sizes: Iterator[int]) -> list[LogItem]:
    items: list[LogItem] = []
    statements = ContinuationJoiner()
    for batch in batches(rows, sizes):
        items += t.process(statements.join_rows(batch))
    items.append(t.advance_position(rows[-1]["scn"]))
    return items


@dataclass
class Workload:
    """Random transactions of several sessions, and the events that must come of them.

    :ivar rows: as LogMiner shows them
    :ivar events: of committed transactions, in commit order
    :ivar changes: all that were made
    """

    seed: int
    steps: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    changes: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.r = random.Random(self.seed)
        self.scn, self.next, self.made = 100, 1, 0
        open_: dict[int, list[tuple[str, str, int, int | None, int | None]]] = {}
        for _ in range(self.steps):
            self.scn += self.r.choice((0, 1, 1, 5))
            begin = not open_ or (len(open_) < 12 and self.r.random() < 0.15)
            if begin:
                open_[self.next] = []
                if self.r.random() < 0.9:  # a START may lie before what is mined
                    self.rows.append(row(self.scn, 6, self.next))
                self.next += 1
                continue
            tx = self.r.choice(sorted(open_))
            chance = self.r.random()
            if chance < 0.1:
                self._end(tx, open_.pop(tx))
            elif chance < 0.16 and open_[tx]:
                self._back(tx, open_[tx])
            else:
                self._change(tx, open_[tx])
        for tx in sorted(open_):
            self.scn += 1
            self._end(tx, open_[tx])

    def _change(self, tx: int, done: list[Any]) -> None:
        table, id_, a, b = (
            self.r.choice(("T1", "T2", "T3")),
            self.r.randint(1, 20),
            self.r.randint(0, 99),
            self.r.randint(0, 99),
        )
        code = self.r.choice((1, 2, 3))
        op = "_cdu"[code] + table[-1]
        self.changes.append((id_of(tx), op, id_, a if code != 1 else None, b if code != 2 else None))
        done.append((table, f"R{table}{id_}", id_, a if code != 1 else None, b if code != 2 else None))
        self._row(tx, code, table, id_, a, b)

    def _row(self, tx: int, code: int, table: str, id_: int, a: int | None, b: int | None, **more: Any) -> None:
        note = "x" * self.r.choice((3, 3, 3, 7000))
        sql = {
            1: f"""insert into "APP"."{table}"("ID","V","NOTE") values ('{id_}','{b}','{note}');""",
            2: f"""delete from "APP"."{table}" where "ID" = '{id_}' and "V" = '{a}' and "NOTE" = '{note}';""",
            3: f"""update "APP"."{table}" set "V" = '{b}' where "ID" = '{id_}' and "V" = '{a}' and "NOTE" = '{note}';""",
        }[code]
        parts = [sql[i : i + 4000] for i in range(0, len(sql), 4000)]
        for i, part in enumerate(parts):
            self.rows.append(
                row(
                    self.scn,
                    code,
                    tx,
                    part,
                    table,
                    csf=i < len(parts) - 1,
                    row_id=f"R{table}{id_}",
                    ssn=self.made,
                    **more,
                )
            )
        self.made += 1

    def _back(self, tx: int, done: list[Any]) -> None:
        """To a savepoint."""
        for _ in range(self.r.randint(1, len(done))):
            table, _, id_, a, b = done.pop()
            code = 2 if a is None else 1 if b is None else 3
            self._row(tx, code, table, id_, b, a, rollback=True)

    def _end(self, tx: int, done: list[Any]) -> None:
        if self.r.random() < 0.2:
            self.rows.append(row(self.scn, 36, tx))
            return
        self.rows.append(row(self.scn, 7, tx))
        for table, _, id_, a, b in done:
            if table != "T3":
                op = "c" if a is None else "d" if b is None else "u"
                self.events.append((id_of(tx), op + table[-1], id_, a, b))


def sizes(seed: int) -> Iterator[int]:
    r = random.Random(seed)
    while True:
        yield r.choice((1, 2, 7, 50, 400))


@pytest.mark.parametrize("memory", [1 << 28, 5_000])
@pytest.mark.parametrize("seed", range(12))
def test_committed_transactions_in_commit_order(seed: int, memory: int) -> None:
    work = Workload(seed, 900)
    t = processor(**{"log.mining.buffer.memory.max.bytes": memory})
    items = run(t, work.rows, sizes(seed))
    assert [e for item in items if isinstance(item, LogBlock) for e in events_of(item)] == work.events
    assert isinstance(items[-1], Heartbeat)
    assert not t.transactions.change_count
    assert (t._counters.spilled > 0) == (memory < 1 << 28)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("block", [65_536, 8])
@pytest.mark.parametrize("seed", range(12))
def test_reading_goes_on_anywhere_without_loss_or_repeat(
    seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each block its position is enough: rows from its SCN on give the events that are left."""
    monkeypatch.setattr(transaction_buffer, "BLOCK_ROWS", block)
    work = Workload(seed, 400)
    items = run(processor(), work.rows, sizes(seed))
    given: list[Event] = []
    for item in items:
        assert isinstance(item, LogBlock | Heartbeat)
        if isinstance(item, LogBlock):
            given += events_of(item)
            if item.open:
                continue
        position = OraclePosition.from_json(item.position.to_json())
        rest = [r for r in work.rows if r["scn"] >= position.scn]
        again = run(processor(position), rest, sizes(seed + 1)) if rest else []
        assert given + [e for i in again if isinstance(i, LogBlock) for e in events_of(i)] == work.events


@pytest.mark.parametrize("seed", range(6))
def test_a_transaction_larger_than_a_block_comes_in_pieces(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_buffer, "BLOCK_ROWS", 16)
    work = Workload(seed, 900)
    items = run(processor(**{"log.mining.buffer.memory.max.bytes": 5_000}), work.rows, sizes(seed))
    blocks = [item for item in items if isinstance(item, LogBlock)]
    assert any(b.open for b in blocks)
    assert [e for b in blocks for e in events_of(b)] == work.events
    for block, after in itertools.pairwise(blocks):
        if block.open:
            assert len(block.transactions) == 1
            assert after.transactions.id[0] == block.transactions.id[0]


def test_partial_transaction_ids_are_of_the_open_transaction_of_their_slot() -> None:
    sql = """insert into "APP"."T1"("ID","V","NOTE") values ('1','2','x');"""
    partial = xid_of(5)[:4] + b"\xff\xff\xff\xff"
    rows = [
        row(10, 6, 5), row(11, 1, 5, sql, "T1", row_id="A"), row(12, 1, 5, sql, "T1", row_id="B"),
        row(13, 2, 5, "delete", "T1", row_id="B", rollback=True, xid=partial), row(14, 7, 5),
    ]  # fmt: skip
    (block, _) = run(processor(), rows, iter([9]))
    assert isinstance(block, LogBlock)
    assert events_of(block) == [(id_of(5), "c1", 1, None, 2)]


def test_rows_before_a_change_of_structure_are_read_with_the_old_one() -> None:
    settings = config()
    new = schema_of("T1", settings)
    new = new.model_copy(update={"columns": (new.columns[0], new.columns[2]), "version": 2})
    change = TableChange(type="ALTER", id=new.id, table=new)
    t = processor(ddl=lambda sql, owner, where: ([change], []))
    rows = [
        row(10, 1, 5, """insert into "APP"."T1"("ID","V","NOTE") values ('1','2','x');""", "T1", row_id="A"),
        row(12, 5, 6, "ALTER TABLE t1 DROP COLUMN v", "T1"), row(12, 7, 6),
        row(13, 1, 5, """insert into "APP"."T1"("ID","NOTE") values ('2','y');""", "T1", row_id="B"),
        row(14, 7, 5),
    ]  # fmt: skip
    items: list[LogItem] = []
    for batch in batches(rows, iter([9])):
        for item in t.process(batch):
            items.append(item)
            if isinstance(item, SchemaChange):
                t._versions._tables.tables[new.id] = new  # type: ignore[attr-defined]
    change_item, block = items
    assert isinstance(change_item, SchemaChange)
    assert isinstance(block, LogBlock)
    assert change_item.position.scn == 10  # type: ignore[attr-defined]
    by_version = {rows.table.version: rows for rows in block.rows}
    assert by_version[1].after is not None
    assert by_version[2].after is not None
    assert by_version[1].after.to_pylist() == [{"ID": 1, "V": 2, "NOTE": "x"}]
    assert by_version[2].after.to_pylist() == [{"ID": 2, "NOTE": "y"}]


# rows that cannot be right


@pytest.mark.parametrize("code", [34, 255])
def test_rows_that_say_that_something_is_missing_are_errors(code: int) -> None:
    error = SourceLogDamaged if code == 34 else UnknownLogEvent
    with pytest.raises(error, match="SCN 10"):
        run(processor(), [row(10, code, 5, None, "T1", info="why"), row(11, 7, 5)], iter([9]))


def test_changes_that_are_not_captured_may_be_unsupported() -> None:
    run(processor(), [row(10, 255, 5, None, "T3"), row(11, 7, 5)], iter([9]))


def test_changes_that_are_rolled_back_may_be_unsupported() -> None:
    run(processor(), [row(10, 255, 5, None, "T1"), row(11, 36, 5)], iter([9]))


@pytest.mark.parametrize("seed", range(60))
def test_shuffled_duplicated_or_missing_rows_never_give_a_wrong_row(seed: int) -> None:
    """An error, or events that were all made, each with its values."""
    work = Workload(seed, 150)
    r = random.Random(seed)
    rows = list(work.rows)
    for _ in range(r.randint(1, 3)):
        at, other = r.randrange(len(rows)), r.randrange(len(rows))
        match r.choice(("shuffle", "double", "lose")):
            case "shuffle":
                rows[at], rows[other] = rows[other], rows[at]
            case "double":
                rows.insert(other, rows[at])
            case "lose":
                del rows[at]
    counter = Counter(work.changes)
    try:
        items: list[LogItem] = []
        t = processor()
        for piece in in_scn_order(b for batch in batches(rows, sizes(seed)) for b in batch.to_batches()):
            items += t.process(piece)
    except CdcError:
        return
    given = Counter(e for item in items if isinstance(item, LogBlock) for e in events_of(item))
    assert given <= counter
