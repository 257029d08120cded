"""Changes of long values that were undone within their transaction, as 19c and 23ai log them. Captured rows equal the table."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import oracledb
import pytest

from airflow_provider_cdc.sources.oracle.transactions import net_changes
from airflow_provider_cdc.sources.oracle.transactions.buffer import transaction_buffer
from dev.servers.oracle import Oracle
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records
from tests.support.connectors import Connector

BIG, BIG2 = "a" * 9000 + "z", "b" * 11_000 + "y"
INSERT = "INSERT INTO LOB VALUES (:1, :2, :3, :4, :5, :6)"
COLUMNS = ["NAME", "C", "NC", "B", "T"]
SAVE, BACK = "SAVEPOINT s", "ROLLBACK TO s"
Step = tuple[str, list[Any]]


def _append(id_: int, text: str) -> Step:
    call = f"dbms_lob.writeappend(l, {len(text)}, '{text}');"
    return f"DECLARE l CLOB; BEGIN SELECT C INTO l FROM LOB WHERE ID = {id_} FOR UPDATE; {call} END;", []


def _set(id_: int | str, **values: Any) -> Step:
    sets = ", ".join(f"{name} = :{n}" for n, name in enumerate(values, 1))
    return f"UPDATE LOB SET {sets} WHERE ID IN ({id_})", list(values.values())


SCENARIOS: dict[str, list[Step | str]] = {
    "a large value over a small one": [SAVE, _set(1, C=BIG2), BACK, _set(1, NAME="after")],
    "an update, then a large value over a large one": [_set(2, NAME="kept"), SAVE, _set(2, C=BIG2), BACK],
    "a column and a large value": [SAVE, _set(2, NAME="x", C=BIG), BACK, _set(2, NAME="y")],
    "an insert of large values": [
        SAVE, (INSERT, [11, "new", BIG, "n" * 5000, bytes(9000), "t" * 5000]), BACK, (INSERT, [12, "twelve", None, None, None, None]),
    ],
    "large values of two rows": [SAVE, _set("1, 2", C=BIG2), BACK, _set(1, NAME="z")],
    "the second of two large values": [_set(1, C=BIG), SAVE, _set(1, C=BIG2), BACK],
    "the second of two appends": [_append(1, "xxx"), SAVE, _append(1, "yyy"), BACK],
    "both of two appends": [SAVE, _append(1, "xxx"), _append(1, "yyy"), BACK, _set(1, NAME="z")],
    "an insert that fails": [_set(3, NAME="before"), (INSERT, [1, "twice", BIG, None, None, None])],
    "a large value of another column": [_set(2, C=BIG), SAVE, _set(2, B=b"b" * 5000), BACK],
    "large values of two columns": [SAVE, _set(2, C=BIG, B=b"b" * 5000), BACK, _set(2, NAME="z")],
    "large values of two columns and two rows": [SAVE, _set("1, 2", C=BIG, NC="n" * 4000), BACK, _set(3, NAME="z")],
    "the newer of large values of two rows": [_set(1, C=BIG2), SAVE, _set(2, C=BIG2), BACK],
    "a small value behind a large one of another row": [_set(1, C=BIG2), SAVE, _set(3, B=b"s"), BACK],
    "a small value behind a large one": [_set(1, C=BIG2), SAVE, _set(1, B=b"s"), BACK],
    "a column behind a large value": [_set(1, C=BIG2), SAVE, _set(1, NAME="s"), BACK],
    "a column behind a large value of another row": [_set(1, C=BIG2), SAVE, _set(3, NAME="s"), BACK],
    "a large value behind a column and a large value": [_set(2, NAME="kept", C=BIG), SAVE, _set(2, B=b"b" * 5000), BACK],
    "a large value of a new row": [(INSERT, [11, "new", BIG, None, b"b", "t"]), SAVE, _set(11, C=BIG2, NC=BIG2), BACK],
    "a column, then a NULL and another value that became large": [
        SAVE, _set(3, NAME="x"), _set(3, NC="n" * 4000, C=BIG2), BACK, _set(3, B=b"s"),
    ],
    "a column, then large values of two columns": [SAVE, _set(2, NAME="x"), _set(2, C=BIG, B=b"b" * 5000), BACK, _set(3, B=b"s")],
    "an insert and an append to it": [
        SAVE, (INSERT, [11, "new", BIG, "n" * 5000, bytes(9000), "t" * 5000]), _append(11, "xxx"), BACK, _set(3, NAME="z"),
    ],
    "an append to a new row": [(INSERT, [11, "new", BIG, "n" * 5000, bytes(9000), "t" * 5000]), SAVE, _append(11, "xxx"), BACK],
    "an update and an append to its value": [SAVE, _set(2, NAME="x", C=BIG2), _append(2, "xxx"), BACK, _set(3, NAME="z")],
    "a short text and a small value": [SAVE, _set(1, T="€", B=b"s"), BACK],
    "a short text and two large values": [SAVE, _set(1, T="€", C=BIG, B=b"b" * 5000), BACK, _set(1, NAME="z")],
    "a long text": [SAVE, _set(1, T="u" * 9000), BACK, _set(1, NAME="z")],
    "a long text behind another": [_set(1, T="u" * 9000), SAVE, _set(1, T="v" * 9000), BACK, _set(3, NAME="z")],
    "a short text behind a long one": [_set(1, T="u" * 9000), SAVE, _set(1, T="v"), BACK],
    "a short text behind a large value": [_set(1, C=BIG), SAVE, _set(1, T="v"), BACK],
    "a short text, then a large value": [SAVE, _set(1, T="v"), _set(1, C=BIG), BACK],
    "a NULL that became large": [SAVE, _set(3, NC="n" * 4000), BACK, _set(3, NAME="z")],
    "a delete": [_set(2, C=BIG2), SAVE, ("DELETE FROM LOB WHERE ID = 2", []), BACK],
    "everything, then the same again": [
        SAVE, _set(2, NAME="x", C=BIG, B=b"s"), _append(1, "xxx"), (INSERT, [11, "new", BIG, None, b"b", "t"]), BACK,
        _set(2, NAME="x", C=BIG, B=b"s"), _append(1, "xxx"), (INSERT, [11, "new", BIG, None, b"b", "t"]),
    ],
}  # fmt: skip


@pytest.fixture(params=["19c", "23ai", "23ai_basicfile"])
def lob_shape(request: pytest.FixtureRequest, schema: Oracle) -> Iterator[str]:
    schema.configure(lob_shape=request.param)
    schema.sql(
        "CREATE TABLE LOB (ID NUMBER(9) PRIMARY KEY, NAME VARCHAR2(50), C CLOB, NC NCLOB, B BLOB, T VARCHAR2(32767))",
        "ALTER TABLE LOB ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    _run(
        schema,
        (INSERT, [1, "one", "small", "n", b"\xde", "t"]),
        (INSERT, [2, "two", BIG, "n" * 5000, bytes(9000), "t" * 9000]),
        (INSERT, [3, "three", BIG, None, None, None]),
    )
    yield request.param
    schema.configure(lob_shape="19c")


@pytest.fixture
def connector_factory(schema: Oracle, lob_shape: str, tmp_path: Path) -> Callable[..., Connector]:
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


def _run(server: Oracle, *steps: Step | str) -> None:
    """Run the steps in one transaction; a statement that fails does not end it."""
    with closing(server.connect()) as connection:
        for step in steps:
            sql, binds = (step, []) if isinstance(step, str) else step
            with connection.cursor() as cursor, suppress(oracledb.IntegrityError, oracledb.DatabaseError):
                cursor.execute(sql, binds)
        connection.commit()


def _server_lobs(server: Oracle) -> dict[int, Any]:
    return {int(id_): values for id_, *values in server.table_at("LOB")}


def _captured_lobs(connector: Connector) -> dict[int, Any]:
    return {row["ID"]: [row[name] for name in COLUMNS] for row in connector.rows("APP.LOB")}


@pytest.mark.parametrize("inferred", [False, True], ids=["read", "inferred"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_undone_is_not_captured_and_what_is_not_is(
    schema: Oracle,
    connector_factory: Callable[..., Connector],
    name: str,
    inferred: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connector = connector_factory(lob_enabled=True)
    connector.capture()
    _run(schema, *SCENARIOS[name])
    with patch.object(net_changes, "MOST_ROWS", 0 if inferred else net_changes.MOST_ROWS):
        connector.capture()
    assert _captured_lobs(connector) == _server_lobs(schema)
    assert "undo changes that are not in the log" not in caplog.text
    assert ("snapshot the table again" in caplog.text) <= inferred


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_long_values_the_other_columns_are_those_of_the_table(
    schema: Oracle, connector_factory: Callable[..., Connector], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory()
    connector.capture()
    _run(schema, *SCENARIOS[name])
    connector.capture()
    others = {row["ID"]: (row["NAME"], row["T"]) for row in connector.rows("APP.LOB")}
    assert others == {id_: (row[0], row[-1]) for id_, row in _server_lobs(schema).items()}
    assert "undo changes that are not in the log" not in caplog.text


@pytest.mark.parametrize(("seed", "enabled", "block_rows"), [(14, True, None), (19, True, 8), (21, False, None)])
def test_random_transactions_with_savepoints_end_in_the_rows_of_the_table(
    schema: Oracle,
    connector_factory: Callable[..., Connector],
    seed: int,
    enabled: bool,
    block_rows: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With these seeds, what the log says of undone changes is not enough."""
    monkeypatch.setattr(transaction_buffer, "BLOCK_ROWS", block_rows or transaction_buffer.BLOCK_ROWS)
    r = random.Random(seed)
    connector = connector_factory(lob_enabled=enabled)
    connector.capture()
    for _ in range(12):
        for _ in range(6):
            _run(schema, *_transaction(r))
        connector.capture()
        expected, found = _server_lobs(schema), _captured_lobs(connector)
        if not enabled:
            expected = {id_: (row[0], row[-1]) for id_, row in expected.items()}
            found = {id_: (row[0], row[-1]) for id_, row in found.items()}
        assert found == expected


def test_rows_of_a_transaction_with_a_savepoint_are_events_with_both_images(
    schema: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(lob_enabled=True)
    connector.capture()
    _run(
        schema, _set("1, 2, 3", C=BIG2), SAVE, _set("1, 2", C=BIG), ("DELETE FROM LOB WHERE ID = 3", []), BACK,
        ("DELETE FROM LOB WHERE ID = 2", []), (INSERT, [4, "four", BIG, None, None, "t"]), ("UPDATE LOB SET ID = 5 WHERE ID = 3", []),
    )  # fmt: skip
    _run(schema, _set(1, NAME="later"))
    found = [record["value"] for record in capture_records(connector) if record["value"] is not None]
    images = [
        (one["op"], *(one[image] and (one[image]["ID"], one[image]["C"]) for image in ("before", "after")))
        for one in found
    ]
    small, unknown = "small", "__debezium_unavailable_value"
    assert images[:-1] == [
        ("u", (1, small), (1, BIG2)), ("d", (2, BIG), None), ("d", (3, BIG), None), ("c", None, (4, BIG)), ("c", None, (5, BIG2)),
    ]  # fmt: skip
    assert images[-1] == ("u", (1, unknown), (1, unknown))


def test_undo_rows_that_are_older_than_a_change_of_their_table_stop_nothing(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    """They do not have all columns, and need no names."""
    connector = connector_factory(log_mining_strategy="hybrid")
    connector.capture()
    _run(schema, SAVE, _set(1, NAME="undone", C=BIG), BACK, _set(1, NAME="kept"))
    schema.sql("ALTER TABLE LOB ADD (Z NUMBER(9))")
    connector.capture()
    assert {row["ID"]: row["NAME"] for row in connector.rows("APP.LOB")} == {1: "kept", 2: "two", 3: "three"}


def _transaction(r: random.Random) -> list[Step | str]:
    steps: list[Step | str] = []
    for _ in range(r.randint(1, 8)):
        chance = r.random()
        ids = r.sample(range(1, 6), r.choice((1, 1, 2)))
        if chance < 0.2:
            steps += r.choice(([SAVE], [BACK] if SAVE in steps else [SAVE]))
        elif chance < 0.4:
            steps.append((INSERT, [ids[0], f"new {r.random():.3}", *(_value(r, name) for name in COLUMNS[1:])]))
        elif chance < 0.5:
            steps.append((f"DELETE FROM LOB WHERE ID = {ids[0]}", []))
        elif chance < 0.6:
            steps.append(_append(ids[0], "tail"))
        else:
            names = r.sample(COLUMNS, r.choice((1, 1, 2, 3)))
            steps.append(_set(", ".join(map(str, ids)), **{name: _value(r, name) for name in names}))
    return steps


def _value(r: random.Random, name: str) -> Any:
    if name == "NAME":
        return f"name {r.random():.3}"
    size = r.choice((None, 3, 1500, 3000, 5000))
    if size is None:
        return None
    return r.randbytes(size) if name == "B" else r.choice("abcdé") * size
