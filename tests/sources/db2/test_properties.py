"""Properties of Db2 connectors do what they say."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError, UnreadableValue
from airflow_provider_cdc.sources.db2.config import Db2Config
from dev.servers.db2 import Db2
from tests.sources.db2_adapter import Db2Adapter
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.connectors import Connector
from tests.support.signals import snapshot

ConnectorFactory = Callable[..., Connector]
DOCUMENTED = {
    "connector.class": "io.debezium.connector.db2.Db2Connector", "database.hostname": "192.168.99.100", "database.port": "50000",
    "database.user": "db2inst1", "database.password": "Password!", "database.dbname": "mydatabase", "topic.prefix": "fullfillment",
    "table.include.list": "MYSCHEMA.CUSTOMERS", "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
    "schema.history.internal.kafka.topic": "schemahistory.fullfillment",
}  # fmt: skip


@pytest.fixture
def db(db2: Db2) -> Iterator[Db2Adapter]:
    with ExitStack() as stack:
        yield Db2Adapter(db2, stack)


@pytest.fixture
def connector_factory(db: Db2Adapter, tmp_path: Path) -> ConnectorFactory:
    return lambda **properties: db.connector(tmp_path, **properties)


@pytest.fixture(scope="module")
def products_adapter(db2: Db2) -> Iterator[Db2Adapter]:
    """A table with one row, at which many look."""
    with ExitStack() as stack:
        adapter = Db2Adapter(db2, stack)
        adapter._create(
            "T", {"ID": "INTEGER", "V": "VARCHAR(40)", "P": "DECIMAL(12,2)", "Preis € 1": "INTEGER"}, ("ID",)
        )
        run(adapter, f"INSERT INTO {adapter.name('T')} VALUES (1, 'a', 1.5, 2)")
        yield adapter


def run(db: Db2Adapter, *statements: str) -> None:
    db.server.transaction(*statements)
    db.server.catch_up()


def test_the_smallest_documented_configuration_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = Db2Config.parse(DOCUMENTED)
    assert (config.database_hostname, config.database_port, config.database_user) == (
        "192.168.99.100",
        50000,
        "db2inst1",
    )
    assert (config.database_dbname, config.table_include_list) == ("mydatabase", ("MYSCHEMA.CUSTOMERS",))
    assert len([r for r in caplog.records if "is accepted and has no effect" in r.message]) == 3


@pytest.mark.parametrize("missing", ["database.hostname", "database.user", "database.dbname", "topic.prefix"])
def test_what_has_no_default_is_required(missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"{missing}: required and not set"):
        Db2Config.parse({k: v for k, v in DOCUMENTED.items() if k != missing})


def test_tables_in_capture_mode_are_captured_unless_the_lists_leave_them_out(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    for name in ("A", "B"):
        db._create(name, {"ID": "INTEGER"}, ("ID",))
    db.sql(f"CREATE TABLE {db.name('PLAIN')} (ID INTEGER)")
    db._stack.callback(db.sql, f"DROP TABLE {db.name('PLAIN')}")
    run(db, *(f"INSERT INTO {db.name(name)} VALUES (1)" for name in ("A", "B", "PLAIN")))
    connector = connector_factory(table_exclude_list=rf"{db.namespace}\.B")
    with open_source(connector.definition(), connector.secrets) as source:
        found = source.discover_tables()
    assert {t.name for t in found if t.namespace == db.namespace} == {"A", "B"}, "only tables in capture mode"
    assert not [t for t in found if t.namespace.startswith(("SYS", "ASN"))]
    first = capture_records(connector)
    assert {r["topic"] for r in first} == {"test", f"test.{db.namespace}.A"}
    assert [r["value"]["op"] for r in of_table(first, "A")] == ["r"]
    run(db, *(f"INSERT INTO {db.name(name)} VALUES (2)" for name in ("A", "B", "PLAIN")))
    assert [(r["topic"], r["value"]["op"]) for r in capture_records(connector)] == [(f"test.{db.namespace}.A", "c")]


@pytest.mark.parametrize(
    ("mode", "read", "streamed"),
    [(None, ["r"], ["c"]), ("initial", ["r"], ["c"]), ("initial_only", ["r"], []), ("schema_only", [], ["c"])],
)
def test_the_snapshot_mode_says_whether_rows_are_read_and_changes_are_captured(
    db: Db2Adapter, connector_factory: ConnectorFactory, mode: str | None, read: list[str], streamed: list[str]
) -> None:
    """All of them record the structure of the table."""
    db._create("T", {"ID": "INTEGER"}, ("ID",))
    run(db, f"INSERT INTO {db.name('T')} VALUES (1)")
    connector = connector_factory(**({} if mode is None else {"snapshot_mode": mode}))
    first = capture_records(connector)
    assert [r["value"]["op"] for r in of_table(first, "T")] == read
    assert [r["value"]["tableChanges"][0]["type"] for r in first if r["topic"] == "test"] == ["CREATE"]
    run(db, f"INSERT INTO {db.name('T')} VALUES (2)")
    assert [r["value"]["op"] for r in capture_records(connector)] == streamed


def test_texts_can_be_hidden_or_cut_in_the_snapshot_and_in_the_stream(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create(
        "T",
        {
            "ID": "INTEGER",
            "A": "VARCHAR(40)",
            "B": "CHAR(4)",
            "C": "VARCHAR(9)",
            "N": "INTEGER",
            "D": "VARCHAR(9)",
            "E": "VARCHAR(9)",
        },
        ("ID",),
    )
    t = db.name("T")
    run(db, f"INSERT INTO {t} VALUES (1, 'secret', 'bbbb', 'é€x', 7, 'seen', 'long')")
    connector = connector_factory()
    connector.properties |= {
        "column.mask.with.3.chars": rf"{db.namespace}\.T\.A,{db.namespace.lower()}\.t\.b", "column.mask.with.0.chars": rf"{db.namespace}\.T\.D",
        "column.truncate.to.2.chars": rf"{db.namespace}\.T\.C", "column.truncate.to.3.chars": rf"{db.namespace}\.T\.E",
        "column.exclude.list": rf"{db.namespace}\.T\.N",
    }  # fmt: skip
    (read,) = of_table(capture_records(connector), "T")
    hidden = {"ID": 1, "A": "***", "B": "***", "D": "", "E": "lon"}
    assert read["value"]["after"] == {**hidden, "C": "é€"}
    run(db, f"UPDATE {t} SET A = 'concealed', C = 'yyy'")
    run(db, f"INSERT INTO {t} VALUES (2, NULL, 'x', 'z', 8, NULL, 'xyz')")
    run(db, f"DELETE FROM {t} WHERE ID = 1")
    update, insert, delete, _ = of_table(capture_records(connector), "T")
    assert update["value"]["before"] == {**hidden, "C": "é€"}
    assert update["value"]["after"] == delete["value"]["before"] == {**hidden, "C": "yy"}
    assert insert["value"]["after"] == {"ID": 2, "A": None, "B": "***", "C": "z", "D": None, "E": "xyz"}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"***" in written
    assert b"secret" not in written
    assert b"concealed" not in written


def test_texts_can_be_pseudonyms_in_the_snapshot_and_in_the_stream(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create("T", {"ID": "INTEGER", "A": "VARCHAR(80)", "B": "CHAR(8)"}, ("ID",))
    run(db, f"INSERT INTO {db.name('T')} VALUES (1, 'secret', 'secretly')")
    connector = connector_factory()
    connector.properties |= {
        "column.mask.hash.v2.SHA-256.with.salt.CzQM": rf"{db.namespace}\.T\.A",
        "column.mask.hash.v2.MD5.with.salt.${connection}": rf"{db.namespace.lower()}\.t\.b",
    }  # fmt: skip
    connector.secrets["column.mask.salt"] = "of the connection"
    (read,) = of_table(capture_records(connector), "T")
    run(db, f"INSERT INTO {db.name('T')} VALUES (2, 'secret', NULL)")
    (insert,) = of_table(capture_records(connector), "T")
    pseudonym = hashlib.sha256(b"CzQMsecret").hexdigest()
    short = hashlib.md5(b"of the connectionsecretly", usedforsecurity=False).hexdigest()[:8]
    assert read["value"]["after"] == {"ID": 1, "A": pseudonym, "B": short}
    assert insert["value"]["after"] == {"ID": 2, "A": pseudonym, "B": None}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"secret" not in written
    assert b"of the connection" not in written


@pytest.mark.parametrize(
    ("name", "which", "columns"),
    [
        ("column_propagate_source_type", r"{}\.T\.(V|P)", {"V", "P"}),
        ("column_propagate_source_type", r"TESTDB\.{}\.T\.V", {"V"}),
        ("datatype_propagate_source_type", r"{}\.T\.DECIMAL", {"P"}),
        ("datatype_propagate_source_type", r"TESTDB\.{}\.T\.VARCHAR", {"V"}),
    ],
)
def test_schemas_can_propagate_the_types_of_columns_in_the_database(
    products_adapter: Db2Adapter, tmp_path: Path, name: str, which: str, columns: set[str]
) -> None:
    connector = products_adapter.connector(tmp_path, **{name: which.format(products_adapter.namespace)})
    (read,) = of_table(capture_records(connector, schemas=True), "T")
    reported = {
        column: {k.rpartition(".")[2]: v for k, v in f.get("parameters", {}).items() if k.startswith("__debezium.source.column.")}
        for column, f in row_fields(read).items()
    }  # fmt: skip
    types: dict[str, dict[str, Any]] = {
        "ID": {}, "V": {"type": "VARCHAR", "length": "40"}, "P": {"type": "DECIMAL", "length": "12", "scale": "2"}, "Preis € 1": {},
    }  # fmt: skip
    assert reported == {column: types[column] if column in columns else {} for column in types}


@pytest.mark.parametrize(
    ("mode", "name"), [(None, "Preis € 1"), ("avro", "Preis___1"), ("avro_unicode", "Preis_u0020_u20ac_u00201")]
)
def test_names_of_fields_can_be_made_fit_for_avro(
    products_adapter: Db2Adapter, tmp_path: Path, mode: str | None, name: str
) -> None:
    options = {} if mode is None else {"field_name_adjustment_mode": mode}
    connector = products_adapter.connector(tmp_path, **options)
    (read,) = of_table(capture_records(connector, schemas=True), "T")
    assert read["value"]["payload"]["after"] == {"ID": 1, "V": "a", "P": "AJY=", name: 2}
    (row,) = connector.rows(f"{products_adapter.namespace}.T")
    assert row["Preis € 1"] == 2, "the change log has the names of the database"


def test_the_delimiter_and_the_name_of_the_transactions_are_in_the_topics(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    db._create("T", {"ID": "INTEGER"}, ("ID",))
    connector = connector_factory(topic_delimiter="_", topic_transaction="tx", provide_transaction_metadata=True)
    capture_records(connector)
    run(db, f"INSERT INTO {db.name('T')} VALUES (1)")
    begin, row, end = capture_records(connector)
    assert [begin["topic"], row["topic"], end["topic"]] == ["test_tx", f"test_{db.namespace}_T", "test_tx"]
    id_ = row["value"]["source"]["commit_lsn"]
    assert (begin["value"]["id"], end["value"]["id"], row["value"]["transaction"]["id"]) == (id_, id_, id_)
    assert (end["value"]["event_count"], row["value"]["transaction"]["total_order"]) == (1, 1)


def write_unknown_operation(db: Db2Adapter) -> None:
    """Write a row into the change table of ``T`` that no agent writes, and others of both tables around it."""
    run(db, f"INSERT INTO {db.name('T')} VALUES (2)", f"INSERT INTO {db.name('U')} VALUES (2)")
    db.server.sql(f"UPDATE {db.change_table('T')} SET IBMSNAP_OPERATION = 'X'")
    run(db, f"INSERT INTO {db.name('T')} VALUES (3)", f"INSERT INTO {db.name('U')} VALUES (3)")


def captured_ids(connector: Connector, db: Db2Adapter, table: str) -> list[int]:
    return sorted(row["ID"] for row in connector.rows(f"{db.namespace}.{table}"))


def test_an_event_that_cannot_be_read_stops_its_table_or_is_set_aside(
    db: Db2Adapter, connector_factory: ConnectorFactory
) -> None:
    for table in ("T", "U"):
        db._create(table, {"ID": "INTEGER"}, ("ID",))
        run(db, f"INSERT INTO {db.name(table)} VALUES (1)")
    connector = connector_factory()
    connector.capture()
    write_unknown_operation(db)
    with pytest.raises(UnreadableValue, match=rf"1 table is stopped.*{db.namespace}\.T: UnknownLogEvent: .*'X'"):
        connector.capture()
    assert (captured_ids(connector, db, "T"), captured_ids(connector, db, "U")) == ([1], [1, 2, 3])
    snapshot(connector, f"{db.namespace}.T", type="blocking")
    aside = {"event.processing.failure.handling.mode": "warn"}
    connector.capture(aside)
    run(db, f"DELETE FROM {db.name('T')}")
    connector.capture(aside)
    assert captured_ids(connector, db, "T") == []
    run(db, f"DELETE FROM {db.name('U')} WHERE ID > 1")
    write_unknown_operation(db)
    connector.capture(aside)
    assert (captured_ids(connector, db, "T"), captured_ids(connector, db, "U")) == ([2, 3], [1, 2, 3])
    offset = connector.store.load_offset(connector.name).offset
    assert offset is not None
    ((event,),) = offset.set_aside.values()
    assert (offset.stopped, event.error) == ({}, "UnknownLogEvent")
    run(db, f"INSERT INTO {db.name('T')} VALUES (4)")
    connector.capture(aside)
    assert captured_ids(connector, db, "T") == [2, 3, 4]
