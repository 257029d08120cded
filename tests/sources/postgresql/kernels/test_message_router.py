"""Rows and values that the kernels find in messages of a real server: those that a session has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest

from airflow_provider_cdc.core.model.log_items import CREATE, DELETE, UPDATE
from airflow_provider_cdc.sources.postgresql.kernels import message_layout as layout
from airflow_provider_cdc.sources.postgresql.kernels.message_router import route_messages
from airflow_provider_cdc.sources.postgresql.kernels.tuple_splitter import split_rows
from airflow_provider_cdc.sources.postgresql.protocol.relation_messages import Relation
from dev.bootstrap.databases import POSTGRES_MAJORS
from dev.servers import Postgres

IDENTITIES = {"plain": "DEFAULT", "whole": "FULL", "indexed": "USING INDEX indexed_key", "none": "NOTHING"}
ABSENT, SAME, UNLOGGED = object(), object(), object()
"""No such image; a value that the log does not have as it was not changed; one that is no part of the replica identity."""


@pytest.fixture(params=["", POSTGRES_MAJORS[0], POSTGRES_MAJORS[-1]])
def server(request: pytest.FixtureRequest, postgres_factory: Callable[..., Postgres]) -> Iterator[Postgres]:
    with postgres_factory(request.param) as server:
        for table, identity in IDENTITIES.items():
            key = "" if table == "none" else ", PRIMARY KEY (id)"
            server.sql(f"CREATE TABLE {table} (id int NOT NULL, code int NOT NULL, note text, large text{key})")
            server.sql(f"ALTER TABLE {table} ALTER large SET STORAGE EXTERNAL")
            if table == "indexed":
                server.sql("CREATE UNIQUE INDEX indexed_key ON indexed (code)")
            server.sql(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
        server.sql(
            "CREATE PUBLICATION cdc FOR ALL TABLES WITH (publish = 'insert, update, delete')",
            "SELECT pg_create_logical_replication_slot('cdc', 'pgoutput')",
        )
        yield server


@dataclass
class Messages:
    """Messages of a server, as the stream has them."""

    data: np.ndarray
    array: np.ndarray
    bodies: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, server: Postgres, *options: str) -> Messages:
        given = "".join(f", '{option}'" for option in ("proto_version", "1", "publication_names", "cdc", *options))
        changes = server.sql(
            f"SELECT lsn - '0/0'::pg_lsn, data FROM pg_logical_slot_get_binary_changes('cdc', NULL, NULL{given})"
        )
        bodies = [bytes(data) for _, data in changes]
        ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
        array = np.zeros((len(bodies), layout.MSG_FIELDS), np.int64)
        array[:, layout.MSG_KIND] = [body[0] for body in bodies]
        array[:, layout.MSG_END] = ends
        array[:, layout.MSG_START] = ends - [len(body) - 1 for body in bodies]
        array[:, layout.MSG_LSN] = [int(lsn) for lsn, _ in changes]
        return cls(np.frombuffer(b"".join(bodies), np.uint8), array, bodies)


class Decoder:
    """Decodes messages as a stream does: kernels, and Python for the structure of relations."""

    def __init__(self, route: Any = route_messages, split: Any = split_rows) -> None:
        self._route, self._split = route, split
        self.relations: list[Relation] = []
        self.known: dict[int, int] = {}

    def decode(self, messages: Messages) -> tuple[list[list[tuple[Any, ...]]], np.ndarray]:
        """Return the changed rows of each transaction: table, operation, image before, image after. And the transactions."""
        rows = np.zeros((len(messages.array), layout.ROW_FIELDS), np.int64)
        transactions = np.zeros((len(messages.array), layout.TX_FIELDS), np.int64)
        at = row_count = transaction_count = 0
        within = False
        while at < len(messages.array):
            known = np.array(sorted(self.known.items()), np.int64).reshape(-1, 2)
            at, row_count, transaction_count, within, why = self._route(
                messages.data, messages.array, at, known, rows, row_count, transactions, transaction_count, within
            )
            if why == layout.ALL_ROUTED:
                break
            assert why == layout.NOT_A_ROW, why
            assert messages.bodies[at][:1] == b"R"
            relation = Relation.parse(messages.bodies[at][1:])
            self.known[relation.oid] = len(self.relations)
            self.relations.append(relation)
            at += 1
        assert not within
        found: list[list[tuple[Any, ...]]] = [[] for _ in range(transaction_count)]
        for row, transaction in zip(
            self._images(messages, rows[:row_count]), rows[:row_count, layout.ROW_TRANSACTION].tolist(), strict=True
        ):
            found[transaction].append(row)
        return found, transactions[:transaction_count]

    def _images(self, messages: Messages, rows: np.ndarray) -> Iterator[tuple[Any, ...]]:
        images: dict[int, tuple[Any, ...]] = {}
        for number, relation in enumerate(self.relations):
            mine = np.flatnonzero(rows[:, layout.ROW_RELATION] == number)
            shape = (2, len(relation.columns), len(mine))
            kinds, starts, lengths = np.full(shape, 9, np.uint8), np.full(shape, -1), np.full(shape, -1, np.int32)
            in_key = np.array([column.in_key for column in relation.columns], np.bool_)
            assert self._split(messages.data, rows[mine], in_key, kinds, starts, lengths) == -1
            for n, row in enumerate(mine.tolist()):
                both = [
                    _image(messages.data, kinds[side, :, n], starts[side, :, n], lengths[side, :, n]) for side in (0, 1)
                ]
                images[row] = (relation.name, int(rows[row, layout.ROW_OPERATION]), *both)
        return iter([images[row] for row in range(len(rows))])


def _image(data: np.ndarray, kinds: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Any:
    if not kinds.any():
        return ABSENT
    plain = {layout.NULL_VALUE: None, layout.UNCHANGED_VALUE: SAME, layout.NOT_LOGGED: UNLOGGED}
    return [
        plain[kind] if kind in plain else data[start : start + length].tobytes()
        for kind, start, length in zip(kinds.tolist(), starts.tolist(), lengths.tolist(), strict=True)
    ]


LARGE = "x" * 9_000
"""A value that is stored beside its row."""


class Session:
    """Changes rows by chance, and remembers what the log must have of it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._tables: dict[str, dict[int, list[Any]]] = {name: {} for name in IDENTITIES}
        self._number = 0

    def transaction(self, cursor: Any) -> list[tuple[Any, ...]]:
        return [row for _ in range(self._random.randrange(1, 6)) if (row := self._change(cursor)) is not None]

    def _change(self, cursor: Any) -> tuple[Any, ...] | None:
        table = self._random.choice(list(IDENTITIES))
        there = self._tables[table]
        if not there or table == "none" or self._random.random() < 0.5:
            self._number += 1
            row = [self._number, self._number + 10_000, self._note(), self._random.choice((None, LARGE))]
            cursor.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", row)
            there[self._number] = row
            return table, CREATE, ABSENT, [*map(_text, row)]
        id_ = self._random.choice(list(there))
        old = there.pop(id_)
        if self._random.random() < 0.3:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (id_,))
            return table, DELETE, self._before(table, old, always=True), ABSENT
        new = list(old)
        column = self._random.randrange(3)
        self._number += 1
        new[column] = self._note() if column == 2 else self._number + 10_000 * column
        cursor.execute(f"UPDATE {table} SET {('id', 'code', 'note')[column]} = %s WHERE id = %s", (new[column], id_))
        there[new[0]] = new
        key = {"plain": 0, "indexed": 1, "whole": None}[table]
        after = [*map(_text, new)]
        if new[3] is not None:
            after[3] = SAME
        return table, UPDATE, self._before(table, old, always=key is None or column == key), after

    def _before(self, table: str, old: list[Any], *, always: bool) -> Any:
        if not always:
            return ABSENT
        if table == "whole":
            return [*map(_text, old)]
        key = {"plain": 0, "indexed": 1}[table]
        return [_text(value) if column == key else UNLOGGED for column, value in enumerate(old)]

    def _note(self) -> str | None:
        return self._random.choice((None, "", "ü" * self._random.randrange(50)))


def _text(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


@pytest.mark.parametrize("seed", range(3))
def test_rows_and_values_are_those_that_a_session_has_changed(server: Postgres, seed: int) -> None:
    session, decoder, expected = Session(Random(seed)), Decoder(), []
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(60):
            expected.append(session.transaction(cursor))
            connection.commit()
            if number == 40:  # the structure changes: a column is in its place that had another name
                cursor.execute("ALTER TABLE plain RENAME note TO remark")
                cursor.execute("ALTER TABLE plain RENAME remark TO note")
                connection.commit()
    found, transactions = decoder.decode(Messages.read(server))
    # PostgreSQL 14 sends transactions without rows, too
    assert [rows for rows in found if rows] == [rows for rows in expected if rows]
    ends = transactions[:, layout.TX_END]
    assert (np.diff(ends) > 0).all()
    assert (transactions[:, layout.TX_COMMIT] < ends).all()
    assert {relation.name: relation.identity for relation in decoder.relations}["whole"] == "f"
    assert {relation.name: relation.has_whole_old_rows for relation in decoder.relations}["plain"] is False


def test_the_compiled_kernels_give_what_plain_python_gives(server: Postgres) -> None:
    session = Session(Random(7))
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(20):
            session.transaction(cursor)
            connection.commit()
    messages = Messages.read(server, "binary", "true")
    compiled, transactions = Decoder().decode(messages)
    plain, others = Decoder(route_messages.py_func, split_rows.py_func).decode(messages)
    assert compiled == plain
    assert np.array_equal(transactions, others)


def test_messages_that_are_cut_or_out_of_order_end_the_search(server: Postgres) -> None:
    server.sql("INSERT INTO whole VALUES (1, 1, 'a', NULL)", "UPDATE whole SET note = 'b'")
    messages = Messages.read(server)
    kinds = "".join(chr(body[0]) for body in messages.bodies)
    assert kinds == "BRICBUC"
    rows = np.zeros((9, layout.ROW_FIELDS), np.int64)
    transactions = np.zeros((9, layout.TX_FIELDS), np.int64)

    def route(numbers: list[int], *, within: bool = False, known: Any = ()) -> tuple[int, int]:
        given = np.array(known, np.int64).reshape(-1, 2)
        at, *_, why = route_messages(messages.data, messages.array[numbers], 0, given, rows, 0, transactions, 0, within)
        return at, why

    oid = Relation.parse(messages.bodies[1][1:]).oid
    assert route([0, 1]) == (1, layout.NOT_A_ROW)
    assert route([0, 2]) == (1, layout.UNKNOWN_RELATION)
    assert route([0, 2, 3], known=[(oid, 0)]) == (3, layout.ALL_ROUTED)
    assert route([2], known=[(oid, 0)]) == (0, layout.BAD_ORDER)
    assert route([3]) == (0, layout.BAD_ORDER)
    assert route([0, 4]) == (1, layout.BAD_ORDER)
    for number, within in ((0, False), (2, True), (3, True)):
        saved = messages.array[number, layout.MSG_END]
        messages.array[number, layout.MSG_END] = messages.array[number, layout.MSG_START] + 3
        assert route([number], within=within, known=[(oid, 0)]) == (0, layout.CUT_SHORT)
        messages.array[number, layout.MSG_END] = saved
    start, end = messages.array[5, [layout.MSG_START, layout.MSG_END]].tolist()
    for cut in range(start + 4, end):  # a row that ends anywhere is found, and nothing behind it is read
        data = messages.data[:cut].copy()
        rows[0, [layout.ROW_OPERATION, layout.ROW_START, layout.ROW_END]] = UPDATE, start + 4, cut
        out = (np.zeros((2, 4, 1), np.uint8), np.zeros((2, 4, 1), np.int64), np.zeros((2, 4, 1), np.int32))
        assert split_rows.py_func(data, rows[:1], np.ones(4, np.bool_), *out) == 0


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_a_relation_that_is_cut_is_an_error(cut: int) -> None:
    body = b"\0\0\1\0public\0orders\0d\0\2\1id\0\0\0\0\x17\xff\xff\xff\xff\0note\0\0\0\0\x19\xff\xff\xff\xff"
    relation = Relation.parse(body)
    assert [(c.name, c.type_oid, c.modifier, c.in_key) for c in relation.columns] == [
        ("id", 23, -1, True),
        ("note", 25, -1, False),
    ]
    if cut < len(body):
        with pytest.raises(ValueError, match="relation message"):
            Relation.parse(body[:cut])
