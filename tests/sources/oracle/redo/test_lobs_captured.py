"""Long values as the documents describe them: there when a statement set them, and a placeholder when the log does not have them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.servers.oracle import Oracle
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import Record, capture_records, row_fields
from tests.support.connectors import Connector
from tests.support.signals import signal_state, snapshot

PLACEHOLDER = "__debezium_unavailable_value"
DDL = (
    "CREATE TABLE DOCS (ID NUMBER(9) PRIMARY KEY, V NUMBER(9), C CLOB, N NCLOB, B BLOB, X XMLTYPE)",
    "ALTER TABLE DOCS ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
)
INSERT = "INSERT INTO DOCS VALUES ({}, 0, 'text', 'žš', HEXTORAW('FBFF00'), XMLTYPE('<a>1</a>'))"
KINDS = {"C": "string", "N": "string", "B": "bytes", "X": "string"}


def _bytes(text: str = PLACEHOLDER) -> str:
    return base64.b64encode(text.encode()).decode()


ABSENT = {"C": PLACEHOLDER, "N": PLACEHOLDER, "B": _bytes(), "X": PLACEHOLDER}
SET = {"C": "text", "N": "žš", "B": "+/8A", "X": "<a>1</a>"}


@pytest.fixture(params=["19c", "23ai"])
def docs(request: pytest.FixtureRequest, schema: Oracle) -> Iterator[Oracle]:
    """The table, on a server that logs long values in one of its shapes."""
    schema.configure(lob_shape=request.param)
    schema.sql(*DDL)
    yield schema
    schema.configure(lob_shape="19c")


@pytest.fixture
def connector_factory(docs: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    given = {"schema_include_list": "APP", "include_schema_changes": False, "tombstones_on_delete": False}
    return lambda **properties: oracle_connector(docs, tmp_path, **given | properties)


def _lobs(image: Record | None) -> Record | None:
    return None if image is None else {n: v for n, v in image.items() if n in SET}


def _list_seen(found: list[Record]) -> list[tuple[str, Record | None, Record | None]]:
    values = [r["value"] for r in found]
    return [(v["op"], _lobs(v["before"]), _lobs(v["after"])) for v in values]


def test_without_lob_enabled_the_columns_are_there_and_their_values_are_not(
    docs: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    # a LOB that lies in its row has its own redo, which then has nothing to tell
    connector = connector_factory(skip_messages_without_change=True)
    docs.sql(INSERT.format(1))
    (read,) = capture_records(connector, schemas=True)
    fields = row_fields(read)
    assert {n: (fields[n]["type"], fields[n]["optional"]) for n in KINDS} == {n: (k, True) for n, k in KINDS.items()}
    assert fields["X"]["name"] == "io.debezium.data.Xml"
    assert _lobs(read["value"]["payload"]["after"]) == ABSENT
    docs.sql(INSERT.format(2), "UPDATE DOCS SET C = 'new', V = 1 WHERE ID = 2", "DELETE FROM DOCS WHERE ID = 2")
    found = capture_records(connector)
    assert _list_seen(found) == [("c", None, ABSENT), ("u", ABSENT, ABSENT), ("d", ABSENT, None)]
    assert [r["value"]["after"]["V"] for r in found[:2]] == [0, 1]


def test_without_lob_enabled_statements_on_long_values_alone_change_no_other_value(
    docs: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory()
    docs.sql(INSERT.format(1))
    capture_records(connector)
    docs.sql("UPDATE DOCS SET C = 'new'", "UPDATE DOCS SET B = HEXTORAW('00')")
    for record in capture_records(connector):
        assert record["value"]["before"] == record["value"]["after"] == {"ID": 1, "V": 0, **ABSENT}


def test_when_long_values_are_captured_that_were_not_the_tables_that_lack_them_are_reported(
    docs: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    docs.sql(
        "CREATE TABLE PLAIN (ID NUMBER(9) PRIMARY KEY)", "ALTER TABLE PLAIN ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
    )
    docs.sql(INSERT.format(1))
    connector = connector_factory()
    capture_records(connector)
    docs.sql(INSERT.format(2))
    capture_records(connector)
    for enabled in (True, True, False):
        connector.properties["lob.enabled"] = enabled
        assert capture_records(connector) == []
    (message,) = (m for m in caplog.messages if "may be missing or outdated" in m)
    assert message.startswith(
        "Rows of APP.DOCS may be missing or outdated in the targets: more columns, or other values, are captured with lob.enabled than before"
    )
    assert message.endswith("To snapshot them again: airflow cdc snapshot test APP.DOCS --replace")
    connector.properties["lob.enabled"] = True
    number = snapshot(connector, r"APP\.DOCS", replace=True)
    read = [(r["value"]["op"], _lobs(r["value"]["after"])) for r in capture_records(connector) if r["value"]]
    assert signal_state(connector, number)[0] == "done"
    assert [image for op, image in read if op == "r"] == [SET, SET]


def test_a_value_is_there_when_the_statement_set_it_and_unavailable_when_not(
    docs: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(lob_enabled=True)
    docs.sql(INSERT.format(1))
    assert _list_seen(capture_records(connector)) == [("r", None, SET)]
    for statement in (
        INSERT.format(2),
        "UPDATE DOCS SET V = 1 WHERE ID = 1",
        "UPDATE DOCS SET C = 'new' WHERE ID = 1",
        "UPDATE DOCS SET B = HEXTORAW('00'), N = NULL WHERE ID = 1",
        "UPDATE DOCS SET X = XMLTYPE('<b/>'), V = 2 WHERE ID = 1",
        "DELETE FROM DOCS WHERE ID = 1",
        "INSERT INTO DOCS (ID) VALUES (3)",
    ):
        docs.sql(statement)
    assert _list_seen(capture_records(connector)) == [
        ("c", None, SET),
        ("u", ABSENT, ABSENT),
        ("u", ABSENT, ABSENT | {"C": "new"}),
        ("u", ABSENT, ABSENT | {"B": "AA==", "N": None}),
        ("u", ABSENT, ABSENT | {"X": "<b/>"}),
        ("d", ABSENT, None),
        ("c", None, dict.fromkeys(SET)),
    ]


@pytest.mark.parametrize(
    ("mode", "shown", "value"),
    [
        ("bytes", _bytes("?none?"), "+/8A"), ("base64", _bytes("?none?"), "+/8A"),
        ("base64-url-safe", base64.urlsafe_b64encode(b"?none?").decode(), "-_8A"), ("hex", b"?none?".hex(), "fbff00"),
    ],
)  # fmt: skip
def test_the_placeholder_can_be_chosen_and_is_in_the_form_of_the_column(
    docs: Oracle, connector_factory: Callable[..., Connector], mode: str, shown: str, value: str
) -> None:
    connector = connector_factory(lob_enabled=True, unavailable_value_placeholder="?none?", binary_handling_mode=mode)
    docs.sql(INSERT.format(1))
    (read,) = capture_records(connector)
    docs.sql("UPDATE DOCS SET V = 1")
    (updated,) = capture_records(connector)
    assert read["value"]["after"]["B"] == value
    assert _lobs(updated["value"]["after"]) == {"C": "?none?", "N": "?none?", "B": shown, "X": "?none?"}
    assert config().unavailable_value_placeholder == PLACEHOLDER


def test_in_the_change_log_unavailable_values_are_named_and_are_not_texts(
    docs: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(lob_enabled=True)
    docs.sql(INSERT.format(1))
    capture_records(connector)
    docs.sql(f"UPDATE DOCS SET C = '{PLACEHOLDER}'", "UPDATE DOCS SET V = 1")
    capture_records(connector)
    (row,) = connector.rows("APP.DOCS")
    assert (row["C"], row["N"], row["V"]) == (PLACEHOLDER, "žš", 1)


def test_an_empty_value_is_empty_and_not_null(docs: Oracle, connector_factory: Callable[..., Connector]) -> None:
    insert = "INSERT INTO DOCS (ID, C, N, B) VALUES ({}, EMPTY_CLOB(), EMPTY_CLOB(), EMPTY_BLOB())"
    connector = connector_factory(lob_enabled=True)
    docs.sql(insert.format(1))
    found = capture_records(connector)
    docs.sql(insert.format(2))
    found += capture_records(connector)
    assert [_lobs(r["value"]["after"]) for r in found] == [{"C": "", "N": "", "B": "", "X": None}] * 2


def test_a_long_value_that_the_log_has_in_pieces_is_one_event(
    docs: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(lob_enabled=True)
    capture_records(connector)
    long, binary = "it's long, žš日本 " * 2000, bytes(range(256)) * 100
    write = "DECLARE l CLOB; BEGIN SELECT C INTO l FROM DOCS WHERE ID = 1 FOR UPDATE; {} END;"
    with closing(docs.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO DOCS VALUES (1, 0, :1, :2, :3, NULL)", [long, "", binary])
        connection.commit()
        cursor.execute("INSERT INTO DOCS VALUES (2, 0, 'abc', NULL, NULL, NULL)")
        calls = "dbms_lob.writeappend(l, 4, 'tail'); dbms_lob.write(l, 1, 1, 'X'); dbms_lob.erase(l, 1, 2);"
        cursor.execute(write.format(calls).replace("ID = 1", "ID = 2"))
        connection.commit()
    found = capture_records(connector)
    images: list[Any] = [(r["value"]["op"], r["value"]["after"]["C"]) for r in found]
    assert images == [("c", long), ("c", "X ctail")]
    assert base64.b64decode(found[0]["value"]["after"]["B"]) == binary


def test_a_change_of_the_key_leaves_the_long_values_to_the_row_that_was(
    docs: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(lob_enabled=True)
    docs.sql(INSERT.format(1))
    capture_records(connector)
    docs.sql("UPDATE DOCS SET ID = 2, C = 'new'")
    found = capture_records(connector)
    assert _list_seen(found) == [("d", ABSENT, None), ("c", None, ABSENT | {"C": "new"})]
    (row,) = connector.rows("APP.DOCS")
    assert {n: row[n] for n in ("ID", "C", "N", "X")} == {"ID": 2, "C": "new", "N": "žš", "X": "<a>1</a>"}


def test_long_values_are_whole_wherever_windows_end(docs: Oracle, connector_factory: Callable[..., Connector]) -> None:
    """LogMiner knows pieces by what it has read before them, and begins each window afresh."""
    connector = connector_factory(
        lob_enabled=True, log_mining_batch_size_min=1, log_mining_batch_size_default=2, log_mining_batch_size_max=2
    )
    capture_records(connector)
    text, data, document = "abc" * 9000, bytes(range(256)) * 60, f"<a>{'x' * 9000}</a>"
    with closing(docs.connect()) as connection, connection.cursor() as cursor:
        for id_ in (1, 2):
            cursor.execute("INSERT INTO DOCS VALUES (:1, 0, :2, 'n', :3, XMLTYPE(:4))", [id_, text, data, document])
        cursor.execute("UPDATE DOCS SET C = :1 WHERE ID = 1", [text + "!"])
        connection.commit()
    found = [r["value"]["after"] for r in capture_records(connector)]
    raw = base64.b64encode(data).decode()
    assert [(a["ID"], a["C"], a["B"], a["X"]) for a in found[:2]] == [(id_, text, raw, document) for id_ in (1, 2)]
    assert (found[2]["ID"], found[2]["C"]) == (1, text + "!")
    assert len(found) == 3
