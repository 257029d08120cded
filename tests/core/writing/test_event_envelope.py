"""Change events out of row blocks, against a model in plain Python that takes one row at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_cdc import __version__
from airflow_provider_cdc.core.config.capture_filters import Filters
from airflow_provider_cdc.core.config.table_source_config import TableConfig
from airflow_provider_cdc.core.errors import SchemaConflict
from airflow_provider_cdc.core.model.event_batch import EventBatch
from airflow_provider_cdc.core.model.log_items import (
    CREATE,
    DELETE,
    OPERATIONS,
    READ,
    UPDATE,
    BlockTransactions,
    LogBlock,
    RowBlock,
)
from airflow_provider_cdc.core.model.table_schema import Column, TableId, TableSchema, row_struct
from airflow_provider_cdc.core.writing.event_envelope import Envelope
from airflow_provider_cdc.sources.memory.position import MemoryPosition

Row = dict[str, Any]
COLUMNS = (
    Column(name="a", type="int64"), Column(name="b", type="string"), Column(name="c", type="int64"),
    Column(name="d", type="int64"),
)  # fmt: skip
ORDERS = TableSchema(id=TableId(namespace="shop", name="orders"), columns=COLUMNS, key=("a",), version=3)
LINES = TableSchema(id=TableId(namespace="shop", name="lines"), columns=COLUMNS, key=("b", "a"))
BAG = TableSchema(id=TableId(namespace="shop", name="bag"), columns=COLUMNS)
TABLES = (ORDERS, LINES, BAG)
EXTRA = [pa.field("entry", pa.int64()), pa.field("who", pa.string())]


@dataclass
class Change:
    """A change of one row in a transaction."""

    table: TableSchema
    op: int
    before: Row | None
    after: Row | None
    lacks_before: frozenset[str] = frozenset()
    lacks_after: frozenset[str] = frozenset()


@dataclass
class BlockPiece:
    """The content of a block: changes of transactions, the last of which may continue in the next block."""

    transactions: list[tuple[str, list[Change]]]
    open: bool = False


def _block(piece: BlockPiece) -> LogBlock:
    rows = [(n, change) for n, (_, changes) in enumerate(piece.transactions) for change in changes]
    blocks = []
    for table in TABLES:
        mine = [(order, n, c) for order, (n, c) in enumerate(rows) if c.table is table]
        if mine:
            blocks.append(_rows(table, mine))
    ids = pa.array([name for name, _ in piece.transactions], pa.string())
    return LogBlock(blocks, BlockTransactions(ids, np.zeros(len(ids), np.int64)), MemoryPosition(0), open=piece.open)


def _rows(table: TableSchema, mine: list[tuple[int, int, Change]]) -> RowBlock:
    def images(values: list[Row | None]) -> pa.StructArray | None:
        return pa.array(values, row_struct(table)) if any(v is not None for v in values) else None

    def masks(lacking: list[frozenset[str]]) -> Any:
        return (
            np.array([[n in names for names in lacking] for n in table.column_names], np.bool_)
            if any(lacking)
            else None
        )

    return RowBlock(
        table=table,
        op=np.array([c.op for _, _, c in mine], np.int8),
        before=images([_mask_columns(c.before, c.lacks_before) for _, _, c in mine]),
        after=images([_mask_columns(c.after, c.lacks_after) for _, _, c in mine]),
        unavailable_before=masks([c.lacks_before for _, _, c in mine]),
        unavailable_after=masks([c.lacks_after for _, _, c in mine]),
        order=np.array([order for order, _, _ in mine], np.int64),
        transaction=np.array([n for _, n, _ in mine], np.int32),
        ts_us=np.array([1_000_000 + order for order, _, _ in mine], np.int64),
        source={"entry": pa.array([order for order, _, _ in mine], pa.int64())},
    )


def _mask_columns(row: Row | None, columns: frozenset[str]) -> Row | None:
    return None if row is None else {n: None if n in columns else v for n, v in row.items()}


def _envelope(**properties: Any) -> Envelope:
    config = TableConfig.parse({"topic.prefix": "p", **{k.replace("_", "."): v for k, v in properties.items()}})
    return Envelope(config, Filters(config), "memory", EXTRA)


def _events(batches: list[EventBatch]) -> list[Row]:
    """All events of a block in the order of ``seq``, as a reader sees them; checks what batches say of themselves."""
    events = []
    for batch in batches:
        rows = batch.events.to_pylist()
        assert (rows[0]["seq"], rows[-1]["seq"]) == (batch.first_seq, batch.last_seq)
        assert [r["seq"] for r in rows] == sorted(r["seq"] for r in rows)
        assert Counter(r["op"] for r in rows) == batch.counts
        lists = (r[name] or [] for r in rows for name in ("unavailable", "unavailable_before"))
        assert {name for names in lists for name in names} == batch.unavailable
        events += [r | {"topic": batch.topic} for r in rows]
    return sorted(events, key=lambda e: e["seq"])


# the model


class Model:
    """A model of :class:`Envelope` that takes one row at a time."""

    def __init__(
        self, skipped: str = "", excluded: tuple[str, ...] = (), keys: dict[str, tuple[str, ...]] | None = None
    ):
        self.skipped, self.excluded, self.keys = skipped, excluded, keys or {}
        self.seq = 0
        self.transaction: str | None = None
        self.total = 0
        self.of_topic: Counter[str] = Counter()

    def take(self, piece: BlockPiece) -> list[Row]:
        events: list[Row] = []
        for name, changes in piece.transactions:
            if name != self.transaction:
                self.transaction, self.total = name, 0
                self.of_topic.clear()
            for change in changes:
                events += self.change(change)
        return events

    def change(self, change: Change) -> list[Row]:
        if OPERATIONS[change.op] in self.skipped:
            return []
        key = self.keys.get(change.table.id.name, change.table.key)
        old, new = self.key(change.before, key), self.key(change.after, key)
        if change.op == UPDATE and key and old != new:
            return [
                self.event(change, "d", old, change.before, None),
                self.event(change, "c", new, None, change.after) | {"previous_key": old},
            ]
        return [
            self.event(change, OPERATIONS[change.op], old if change.op == DELETE else new, change.before, change.after)
        ]

    def event(self, change: Change, op: str, key: Row | None, before: Row | None, after: Row | None) -> Row:
        topic = f"p.{change.table.id}"
        self.seq += 1
        self.total += 1
        self.of_topic[topic] += 1
        transaction = {
            "id": self.transaction, "total_order": self.total, "data_collection_order": self.of_topic[topic],
        }  # fmt: skip
        reported, old = (
            self.image(_mask_columns(after, change.lacks_after)),
            self.image(_mask_columns(before, change.lacks_before)),
        )
        lacking, before_lacks = self.names(change.lacks_after, after), self.names(change.lacks_before, before)
        return {
            "topic": topic, "seq": self.seq, "op": op, "key": key, "before": old, "after": reported, "transaction": transaction,
            "previous_key": None, "unavailable": before_lacks if op == "d" else lacking,
            "unavailable_before": None if op == "d" else before_lacks,
        }  # fmt: skip

    def names(self, lacking: frozenset[str], image: Row | None) -> list[str] | None:
        shown = sorted(lacking & set(self.image(image) or {}))
        return shown or None

    def key(self, row: Row | None, names: tuple[str, ...]) -> Row | None:
        return {n: row[n] for n in names} if row is not None and names else None

    def image(self, row: Row | None) -> Row | None:
        return None if row is None else {n: v for n, v in row.items() if n not in self.excluded}


_row = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 2),
        "b": st.sampled_from([None, "", "x", "ö"]),
        "c": st.none() | st.integers(0, 9),
        "d": st.none() | st.integers(0, 9),
    }
)
_lacks = st.sampled_from(
    [frozenset[str](), frozenset[str](), frozenset({"c"}), frozenset({"d"}), frozenset({"c", "d"})]
)
_change = st.builds(
    lambda table, op, before, after, *lacking: Change(
        table, op, None if op == CREATE else before, None if op == DELETE else after, *lacking
    ),
    st.sampled_from(TABLES),
    st.sampled_from([CREATE, UPDATE, UPDATE, DELETE]),
    _row,
    _row,
    _lacks,
    _lacks,
)
_cut = st.lists(st.lists(_change, max_size=4), min_size=1, max_size=3)


@st.composite
def _logs(draw: st.DrawFn) -> list[BlockPiece]:
    """Transactions in blocks as a source may cut them: whole ones together, large ones over several blocks."""
    pieces: list[BlockPiece] = []
    for number, parts in enumerate(draw(st.lists(_cut, max_size=6))):
        name = f"tx-{number}"
        *begun, last = parts
        pieces += [BlockPiece([(name, part)], open=True) for part in begun]
        together = not begun and pieces and not pieces[-1].open and draw(st.booleans())
        if together:
            pieces[-1].transactions.append((name, last))
        else:
            pieces.append(BlockPiece([(name, last)]))
    return pieces


_excluded: dict[str, tuple[str, ...]] = {"": (), r"shop\..*\.c": ("c",), r"shop\..*\.(a|b)": ("a", "b")}
_keys: dict[str, dict[str, tuple[str, ...]]] = {
    "": {},
    "shop.bag:a": {"bag": ("a",)},
    "shop.(.*):b": {t.id.name: ("b",) for t in TABLES},
}


@given(
    _logs(),
    st.sampled_from(["none", "c", "u", "d", "c,d", "c,u,d"]),
    st.sampled_from(sorted(_excluded)),
    st.sampled_from(sorted(_keys)),
    st.booleans(),
)
def test_events_are_those_of_the_model(
    pieces: list[BlockPiece], skipped: str, excluded: str, keys: str, transactions: bool
) -> None:
    envelope = _envelope(
        skipped_operations=skipped,
        column_exclude_list=excluded,
        message_key_columns=keys,
        provide_transaction_metadata=transactions,
    )
    model = Model("" if skipped == "none" else skipped, _excluded[excluded], _keys[keys])
    seq = 0
    for piece in pieces:
        batches, seq = envelope.encode_block(_block(piece), seq)
        expected = model.take(piece)
        actual = _events(batches)
        assert [{n: e.get(n) for n in w} for e, w in zip(actual, expected, strict=True)] == [
            w if transactions else w | {"transaction": None} for w in expected
        ]
        assert seq == model.seq


@given(_logs())
def test_sequence_numbers_go_on_from_where_they_were(pieces: list[BlockPiece]) -> None:
    for piece in pieces:
        low, low_end = _envelope().encode_block(_block(piece), 0)
        high, high_end = _envelope().encode_block(_block(piece), 2**40)
        assert [e["seq"] + 2**40 for e in _events(low)] == [e["seq"] for e in _events(high)]
        assert high_end == low_end + 2**40


# by example


def _encode_one(change: Change, envelope: Envelope | None = None, **options: Any) -> Row:
    batches, _ = (envelope or _envelope()).encode_block(_block(BlockPiece([("tx-1", [change])])), 0, **options)
    (event,) = _events(batches)
    return event


A, B = {"a": 1, "b": "x", "c": 1, "d": 1}, {"a": 2, "b": "x", "c": 1, "d": 1}


def test_the_envelope_has_the_documented_fields() -> None:
    event = _encode_one(Change(ORDERS, UPDATE, A, A | {"c": 9}))
    assert [n for n in event if n != "topic"] == [
        "seq", "op", "key", "previous_key", "before", "after", "source", "transaction", "ts_ms", "ts_us", "ts_ns",
        "unavailable", "unavailable_before", "schema_version",
    ]  # fmt: skip
    assert event["schema_version"] == 3
    assert event["ts_ms"] == event["ts_us"] // 1000 == event["ts_ns"] // 10**6
    assert event["unavailable"] is None
    assert event["transaction"] is None


def test_the_source_block_has_the_common_fields_first_then_the_sources_own() -> None:
    source = _encode_one(Change(ORDERS, CREATE, None, A))["source"]
    assert source == {
        "version": __version__, "connector": "memory", "name": "p", "ts_ms": 1000, "snapshot": "false", "db": "shop",
        "sequence": None, "ts_us": 1_000_000, "ts_ns": 1_000_000_000, "table": "orders", "entry": 0, "who": None,
    }  # fmt: skip
    assert list(source)[-3:] == ["table", "entry", "who"]


def test_a_source_with_catalogs_names_catalog_and_schema() -> None:
    table = TableSchema(id=TableId(namespace="HR", name="EMP", catalog="PDB1"), columns=COLUMNS, key=("a",))
    rows = _rows(table, [(0, 0, Change(table, CREATE, None, A))])
    block = LogBlock([rows], BlockTransactions(pa.array(["x"]), np.zeros(1, np.int64)), MemoryPosition(0))
    (event,) = _events(_envelope().encode_block(block, 0)[0])
    assert (event["source"]["db"], event["source"]["schema"], event["source"]["table"]) == ("PDB1", "HR", "EMP")
    assert event["topic"] == "p.HR.EMP"


def test_a_table_without_a_key_has_no_key_field() -> None:
    assert "key" not in _encode_one(Change(BAG, UPDATE, A, B))


def test_the_topic_has_the_configured_delimiter() -> None:
    for named, topic in (({}, "p.shop.orders"), ({"topic_delimiter": "_"}, "p_shop_orders")):
        assert _encode_one(Change(ORDERS, CREATE, None, A), _envelope(**named))["topic"] == topic


def test_an_excluded_key_column_is_in_the_key_and_not_in_the_images() -> None:
    event = _encode_one(Change(ORDERS, UPDATE, A, A | {"c": 5}), _envelope(column_exclude_list="shop.orders.a"))
    assert event["key"] == {"a": 1}
    assert event["before"] == {"b": "x", "c": 1, "d": 1}
    assert event["after"] == {"b": "x", "c": 5, "d": 1}


@pytest.mark.parametrize(("old", "new"), [(None, 1), (1, None)])
def test_a_key_that_was_or_becomes_null_is_a_key_change(old: int | None, new: int | None) -> None:
    block = _block(BlockPiece([("t", [Change(ORDERS, UPDATE, A | {"a": old}, A | {"a": new})])]))
    deleted, created = _events(_envelope().encode_block(block, 0)[0])
    assert (deleted["op"], deleted["key"], deleted["after"]) == ("d", {"a": old}, None)
    assert (created["op"], created["key"], created["before"]) == ("c", {"a": new}, None)
    assert deleted["source"] == created["source"]


def test_a_key_that_stays_null_is_an_update() -> None:
    assert _encode_one(Change(ORDERS, UPDATE, A | {"a": None}, A | {"a": None, "c": 3}))["op"] == "u"


def test_read_rows_say_that_they_are_of_a_snapshot() -> None:
    rows = _rows(ORDERS, [(0, 0, Change(ORDERS, READ, None, A))])
    rows.transaction = None
    none = BlockTransactions(pa.array([], pa.string()), np.empty(0, np.int64))
    batches, seq = _envelope(provide_transaction_metadata=True).encode_block(
        LogBlock([rows], none, MemoryPosition(0)), 7, snapshot="true"
    )
    (event,) = _events(batches)
    assert (event["op"], event["seq"], seq) == ("r", 8, 8)
    assert event["source"]["snapshot"] == "true"
    assert event["transaction"] is None


def test_a_block_without_rows_gives_no_event_and_no_number() -> None:
    assert _envelope(provide_transaction_metadata=True).encode_block(_block(BlockPiece([])), 41) == ([], 41)


def test_all_blocks_of_a_topic_have_one_arrow_schema() -> None:
    """Files hold the rows of many blocks; a block whose images are all there must not differ from one without."""
    envelope = _envelope(provide_transaction_metadata=True)
    changes = [
        [Change(ORDERS, CREATE, None, A)],
        [Change(ORDERS, DELETE, A, None)],
        [Change(ORDERS, UPDATE, A, B)],
        [Change(ORDERS, UPDATE, A, A), Change(ORDERS, CREATE, None, B)],
        [Change(ORDERS, UPDATE, A, A, frozenset("cd"), frozenset("d"))],
        [Change(ORDERS, UPDATE, A, B, frozenset("d"), frozenset("d")), Change(ORDERS, DELETE, A, None, frozenset("c"))],
    ]
    schemas = [b.events.schema for c in changes for b in envelope.encode_block(_block(BlockPiece([("x", c)])), 0)[0]]
    schemas.append(envelope.encode_truncate(ORDERS, 1, 0, {"entry": 1}).events.schema)
    assert all(s == schemas[0] for s in schemas)


def test_a_truncate_has_neither_key_nor_images() -> None:
    batch = _envelope().encode_truncate(ORDERS, 5, 1_234_567, {"entry": 9, "who": "me"})
    (event,) = _events([batch])
    assert (event["op"], event["key"], event["before"], event["after"]) == ("t", None, None, None)
    assert (event["seq"], event["source"]["ts_ms"], event["source"]["entry"]) == (5, 1234, 9)
    assert event["source"]["who"] == "me"
    assert event["transaction"] is None


def test_a_required_field_of_the_source_block_is_never_null() -> None:
    """The event that empties a table before it is read again has no place in the source's log."""
    config = TableConfig.parse({"topic.prefix": "p"})
    required = [pa.field("file", pa.string(), nullable=False), pa.field("pos", pa.int64(), nullable=False)]
    envelope = Envelope(config, Filters(config), "memory", [*required, pa.field("who", pa.string())])
    (event,) = _events([envelope.encode_truncate(ORDERS, 1, 0, {})])
    assert {n: event["source"][n] for n in ("file", "pos", "who")} == {"file": "", "pos": 0, "who": None}
    (event,) = _events([envelope.encode_truncate(ORDERS, 1, 0, {"file": "f", "pos": 7})])
    assert (event["source"]["file"], event["source"]["pos"]) == ("f", 7)


def test_a_truncate_with_a_transaction_is_the_whole_of_it() -> None:
    envelope = _envelope(provide_transaction_metadata=True)
    (event,) = _events([envelope.encode_truncate(BAG, 5, 0, {}, "tx-9")])
    assert event["transaction"] == {"id": "tx-9", "total_order": 1, "data_collection_order": 1}


def test_after_a_rollback_the_rest_of_a_transaction_is_counted_from_one() -> None:
    envelope = _envelope(provide_transaction_metadata=True)
    create = Change(ORDERS, CREATE, None, A)
    envelope.encode_block(_block(BlockPiece([("t", [create, create])], open=True)), 0)
    envelope.rollback()
    (event,) = _events(envelope.encode_block(_block(BlockPiece([("t", [create])])), 0)[0])
    assert event["transaction"] == {"id": "t", "total_order": 1, "data_collection_order": 1}


def test_rows_that_are_not_taken_are_not_counted_in_the_transaction() -> None:
    envelope = _envelope(provide_transaction_metadata=True, skipped_operations="d")
    changes = [Change(ORDERS, DELETE, A, None), Change(ORDERS, CREATE, None, A), Change(LINES, CREATE, None, A)]
    events = _events(envelope.encode_block(_block(BlockPiece([("t", changes)])), 0)[0])
    assert [(e["seq"], e["transaction"]["total_order"]) for e in events] == [(1, 1), (2, 2)]
    assert [e["transaction"]["data_collection_order"] for e in events] == [1, 1]


# values that the log does not have


def test_the_create_of_a_key_change_names_the_old_key_and_what_it_lacks() -> None:
    change = Change(ORDERS, UPDATE, A, B, frozenset({"c", "d"}), frozenset({"d"}))
    deleted, created = _events(_envelope().encode_block(_block(BlockPiece([("t", [change])])), 0)[0])
    assert (deleted["previous_key"], deleted["unavailable"], deleted["unavailable_before"]) == (None, ["c", "d"], None)
    assert (created["previous_key"], created["unavailable"], created["unavailable_before"]) == ({"a": 1}, ["d"], None)
    assert (deleted["before"]["c"], created["after"]["c"], created["after"]["d"]) == (None, 1, None)


@pytest.mark.parametrize(
    ("op", "before", "after"), [(CREATE, "", "a"), (UPDATE, "", "a"), (UPDATE, "a", ""), (DELETE, "a", "")]
)
def test_a_key_that_the_log_does_not_have_is_an_error_with_its_place(op: int, before: str, after: str) -> None:
    images = (None if op == CREATE else A, None if op == DELETE else A)
    lacking = Change(ORDERS, op, *images, frozenset(before), frozenset(after))
    block = _block(BlockPiece([("t", [Change(ORDERS, CREATE, None, B), lacking])]))
    with pytest.raises(SchemaConflict, match=r"key column a[\s\S]*shop\.orders, before entry 0: entry 1[\s\S]*Repair"):
        _envelope().encode_block(block, 0)


def test_what_an_image_lacks_that_a_row_does_not_have_does_not_matter() -> None:
    event = _encode_one(Change(ORDERS, DELETE, A, None, frozenset(), frozenset("ad")))
    assert (event["key"], event["unavailable"]) == ({"a": 1}, None)


def test_columns_that_are_left_out_lack_nothing() -> None:
    event = _encode_one(
        Change(ORDERS, UPDATE, A, A, frozenset("cd"), frozenset("cd")), _envelope(column_exclude_list="shop.orders.c")
    )
    assert (event["unavailable"], event["unavailable_before"]) == (["d"], ["d"])


def test_a_column_that_cannot_be_captured_is_in_no_event() -> None:
    columns = (*COLUMNS, Column(name="photo", type="null"))
    table = TableSchema(id=TableId(namespace="s", name="t"), columns=columns, key=("a",))
    changes = [
        Change(table, CREATE, None, A, frozenset(), frozenset({"photo"})),
        Change(table, UPDATE, A, B, frozenset({"photo"}), frozenset({"photo"})),
    ]
    block = LogBlock(
        [_rows(table, [(i, 0, c) for i, c in enumerate(changes)])], BlockTransactions(pa.array(["x"]), np.zeros(1, np.int64)),
        MemoryPosition(0),
    )  # fmt: skip
    envelope = _envelope()
    events = _events(envelope.encode_block(block, 0)[0])
    assert [e["op"] for e in events] == ["c", "d", "c"]
    assert all("photo" not in (e["after"] or e["before"]) and e["unavailable"] is None for e in events)
    assert "photo" not in envelope.select_columns(table).column_names
