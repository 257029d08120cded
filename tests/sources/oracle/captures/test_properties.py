"""Properties have their documented defaults and values, and do what they say; those that cannot are rejected or logged."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.model.log_items import Heartbeat
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from airflow_provider_cdc.sources.oracle.mining.log_buffer_flush import LogWriterFlush
from airflow_provider_cdc.sources.oracle.schema.system_tables import is_system
from airflow_provider_cdc.sources.oracle.snapshot.snapshot import OracleSnapshot
from airflow_provider_cdc.sources.oracle.transactions.buffer import row_segments
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import session_of, settings
from tests.sources.oracle.redo.redo_tables import config
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table, row_fields
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
T = TableId(namespace="APP", name="T", catalog="ORCLPDB1")


def table(server: Oracle, name: str = "T", columns: str = "ID NUMBER(9) PRIMARY KEY, V VARCHAR2(40)") -> None:
    server.sql(f"CREATE TABLE {name} ({columns})", LOGGED.format(name))


@pytest.fixture
def db(schema: Oracle) -> Oracle:
    table(schema)
    schema.sql("INSERT INTO T VALUES (1, 'abcdefgh')")
    return schema


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector that captures the owner's schema."""
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


# accepted and refused


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("max.batch.size", "2048", "batch.max.rows"),
        ("max.queue.size", "8192", "no event queue"),
        ("max.queue.size.in.bytes", "0", "no event queue"),
        ("errors.max.retries", "-1", "Airflow"),
        ("topic.cache.size", "10000", "no cache"),
        ("tasks.max", "1", "one capture task"),
        ("schema.history.internal.kafka.topic", "schema-changes", "state tables"),
        ("schema.history.internal.kafka.query.timeout.ms", "3000", "state tables"),
        ("schema.history.internal.producer.security.protocol", "SSL", "state tables"),
        ("schema.history.internal.consumer.security.protocol", "SSL", "state tables"),
        ("schema.history.internal.store.only.captured.tables.ddl", "false", "only captured tables"),
        ("schema.history.internal.store.only.captured.databases.ddl", "true", "only captured tables"),
    ],
)
def test_properties_without_a_meaning_here_are_accepted_and_reported(
    name: str, value: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert config(**{name: value}) == config()
    assert f"Property {name} is accepted and has no effect" in caplog.text
    assert why in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("schema.history.internal.skip.unparseable.ddl", "true", "catalog is read instead"),
        ("topic.naming.strategy", "com.example.Names", "Java classes cannot be loaded"),
        ("transforms", "unwrap", "table rules replace"),
        ("errors.tolerance", "all", "event.processing.failure.handling.mode has it set aside"),
        ("column.mask.hash.SHA-256", "A.B.C", "salt"),
        ("column.mask.with.many.chars", "A.B.C", "length"),
        ("column.truncate.to.-1.chars", "A.B.C", "length"),
    ],
)
def test_what_would_be_silently_without_effect_is_refused(name: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(name)}: not supported: .*{why}"):
        config(**{name: value})


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"snapshot.tables.order.by.row.count": "up"}, "disabled, ascending, descending"),
        ({"schema.name.adjustment.mode": "x"}, "none, avro, avro_unicode"),
        ({"field.name.adjustment.mode": "x"}, "none, avro, avro_unicode"),
        ({"binary.handling.mode": "x"}, "bytes, base64, base64-url-safe, hex"),
        ({"decimal.handling.mode": "x"}, "precise, double, string"),
        ({"time.precision.mode": "x"}, "adaptive_time_microseconds, adaptive, connect"),
        ({"log.mining.strategy": "x"}, "redo_log_catalog, online_catalog, hybrid"),
        ({"log.mining.query.filter.mode": "x"}, "none, in, regex"),
        ({"snapshot.mode": "x"}, "always, initial"),
        ({"skipped.operations": "x"}, "valid values are c, u, d and t, or none"),
        ({"snapshot.max.threads": 0}, "greater than or equal to 1"),
        ({"database.port": 0}, "greater than or equal to 1"),
        ({"poll.interval.ms": 0}, "greater than or equal to 1"),
        ({"query.fetch.size": -1}, "greater than or equal to 0"),
        ({"table.include.list": "("}, "not a regular expression"),
        ({"table.include.list": "A.[[:alpha:]]+"}, "POSIX class"),
        ({"column.exclude.list": "A.B.C", "column.include.list": "A.B.D"}, "exclude each other"),
        ({"table.exclude.list": "A.B", "table.include.list": "A.C"}, "exclude each other"),
        ({"column.mask.with.3.chars": "A.B.C", "log.mining.include.redo.sql": True}, "would expose the values that column.mask.with.3.chars"),
    ],
)  # fmt: skip
def test_a_value_that_is_none_is_reported_with_those_that_are(properties: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        config(**properties)


# columns


def test_texts_can_be_hidden_or_cut_in_the_snapshot_and_in_the_stream(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    table(
        schema, "T", "ID NUMBER(9) PRIMARY KEY, A VARCHAR2(40), B CHAR(4), C NVARCHAR2(9), N NUMBER(9), D VARCHAR2(9)"
    )
    schema.sql("INSERT INTO T VALUES (1, 'secret', 'bbbb', 'é€x', 7, 'seen')")
    lists = {
        "column.mask.with.3.chars": r"APP\.T\.A,orclpdb1\.app\.t\.b",
        "column.mask.with.0.chars": "APP.T.N",
        "column.truncate.to.2.chars": r"APP\.T\.[CA]",
    }
    connector = connector_factory()
    connector.properties |= lists
    (read,) = of_table(capture_records(connector), "T")
    assert read["value"]["after"] == {"ID": 1, "A": "***", "B": "***", "C": "é€", "N": 7, "D": "seen"}
    schema.sql(
        "UPDATE T SET A = 'concealed', C = 'yyy'",
        "INSERT INTO T VALUES (2, NULL, 'x', 'z', 8, NULL)",
        "DELETE FROM T WHERE ID = 1",
    )
    update, insert, delete, _ = of_table(capture_records(connector), "T")
    hidden = {"ID": 1, "A": "***", "B": "***", "N": 7, "D": "seen"}
    assert update["value"]["before"] == {**hidden, "C": "é€"}
    assert update["value"]["after"] == delete["value"]["before"] == {**hidden, "C": "yy"}
    assert insert["value"]["after"] == {"ID": 2, "A": None, "B": "***", "C": "z", "N": 8, "D": None}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"***" in written
    assert b"secret" not in written
    assert b"concealed" not in written


def test_texts_can_be_pseudonyms_in_the_snapshot_and_in_the_stream(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    table(schema, "T", "ID NUMBER(9) PRIMARY KEY, A VARCHAR2(80), B CHAR(8)")
    schema.sql("INSERT INTO T VALUES (1, 'secret', 'secretly')")
    connector = connector_factory()
    connector.properties |= {
        "column.mask.hash.v2.SHA-256.with.salt.CzQM": r"APP\.T\.[A]",
        "column.mask.hash.v2.MD5.with.salt.${connection}": r"orclpdb1\.app\.t\.b",
    }  # fmt: skip
    connector.secrets["column.mask.salt"] = "of the connection"
    (read,) = of_table(capture_records(connector), "T")
    schema.sql("INSERT INTO T VALUES (2, 'secret', NULL)")
    (insert,) = of_table(capture_records(connector), "T")
    pseudonym = hashlib.sha256(b"CzQMsecret").hexdigest()
    short = hashlib.md5(b"of the connectionsecretly", usedforsecurity=False).hexdigest()[:8]
    assert read["value"]["after"] == {"ID": 1, "A": pseudonym, "B": short}
    assert insert["value"]["after"] == {"ID": 2, "A": pseudonym, "B": None}
    written = b"".join(f.read_bytes() for f in connector.folder.rglob("*") if f.is_file())
    assert b"secret" not in written
    assert b"of the connection" not in written


def test_a_mask_of_no_characters_is_an_empty_text(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    (masked,) = of_table(capture_records(connector_factory(column_mask_with_0_chars="APP.T.V")), "T")
    assert masked["value"]["after"]["V"] == ""


def test_a_column_that_is_no_text_is_named_where_a_mask_would_miss_it(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    table(db, "N", "ID NUMBER(9) PRIMARY KEY, V NUMBER(9)")
    with caplog.at_level(logging.WARNING):
        capture_records(connector_factory(column_mask_with_3_chars=".*[.]V"))
    assert "column.mask.with.3.chars does not hide APP.N.V" in caplog.text
    assert "APP.T.V" not in caplog.text


def test_a_key_cannot_be_hidden(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    with pytest.raises(ConfigError, match=r"APP\.T\.ID is part of the key"):
        connector_factory(column_truncate_to_3_chars="APP.T.ID").capture()
    with pytest.raises(ConfigError, match=r"APP\.T\.V is part of the key"):
        connector_factory(column_truncate_to_3_chars="APP.T.V", message_key_columns="APP.T:V").capture()


def test_the_configuration_of_a_batch_says_which_columns_are_hidden(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    connector = connector_factory(column_mask_with_3_chars="APP.T.V,APP.U.V")
    connector.capture()
    (manifest,) = connector.changelog.read_manifests(connector.name)
    public = json.loads(json.dumps(manifest.config))
    assert public["column.mask.with.3.chars"] == ["APP.T.V", "APP.U.V"]
    assert OracleConfig.parse({**public, "database.hostname": "h", "database.user": "u"}).column_texts == {
        "column.mask.with.3.chars": ("APP.T.V", "APP.U.V")
    }


@pytest.mark.parametrize(
    ("name", "value", "columns"),
    [
        ("column_propagate_source_type", r"APP\.T\.(V|P)", {"V", "P"}),
        ("datatype_propagate_source_type", r"APP\.T\.NUMBER", {"ID", "P"}),
        ("datatype_propagate_source_type", r"ORCLPDB1\.APP\.T\.VARCHAR2", {"V"}),
    ],
)
def test_schemas_can_propagate_the_types_of_columns_in_the_database(
    schema: Oracle, connector_factory: Callable[..., Connector], name: str, value: str, columns: set[str]
) -> None:
    table(schema, "T", "ID NUMBER(9) PRIMARY KEY, V VARCHAR2(40), P NUMBER(12,2)")
    schema.sql("INSERT INTO T VALUES (1, 'a', 1.5)")
    (read,) = of_table(capture_records(connector_factory(**{name: value}), schemas=True), "T")
    fields = row_fields(read)
    reported = {
        column: {k.rpartition(".")[2]: v for k, v in f.get("parameters", {}).items() if k.startswith("__debezium.source.column.")}
        for column, f in fields.items()
    }  # fmt: skip
    types = {
        "ID": {"type": "NUMBER", "length": "9", "scale": "0"},
        "V": {"type": "VARCHAR2", "length": "40"},
        "P": {"type": "NUMBER", "length": "12", "scale": "2"},
    }
    assert reported == {column: types[column] if column in columns else {} for column in types}
    assert read["value"]["payload"]["after"]["P"] == "AJY="


@pytest.mark.parametrize(
    ("mode", "name"), [(None, "Preis € 1"), ("avro", "Preis___1"), ("avro_unicode", "Preis_u0020_u20ac_u00201")]
)
def test_names_of_fields_can_be_made_fit_for_avro(
    schema: Oracle, connector_factory: Callable[..., Connector], mode: str | None, name: str
) -> None:
    table(schema, "T", 'ID NUMBER(9) PRIMARY KEY, "Preis € 1" NUMBER(9), "2ND_C" NUMBER(9)')
    schema.sql("INSERT INTO T VALUES (1, 2, 3)")
    options = {} if mode is None else {"field_name_adjustment_mode": mode}
    connector = connector_factory(**options)
    (read,) = of_table(capture_records(connector, schemas=True), "T")
    other = {None: "2ND_C", "avro": "_2ND_C", "avro_unicode": "_u0032ND_u005fC"}[mode]
    assert read["value"]["payload"]["after"] == {"ID": 1, name: 2, other: 3}
    assert list(row_fields(read)) == ["ID", name, other]
    assert connector.rows("APP.T") == [{"ID": 1, "Preis € 1": 2, "2ND_C": 3}], (
        "the change log has the names of the database"
    )


def test_two_columns_never_become_one_field(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    table(schema, "T", 'ID NUMBER(9) PRIMARY KEY, "A$" NUMBER(9), "A#" NUMBER(9)')
    schema.sql("INSERT INTO T VALUES (1, 2, 3)")
    with pytest.raises(ConfigError, match=r"gives the columns A\$ and A# the same name"):
        capture_records(connector_factory(field_name_adjustment_mode="avro"))


@pytest.mark.parametrize(
    ("mode", "name"),
    [("none", "p-1.APP.O__T"), ("avro", "p_1.APP.O__T"), ("avro_unicode", "p_u002d1.APP.O_u005f_u005fT")],
)
def test_names_of_schemas_are_made_fit_for_avro_as_the_mode_says(
    schema: Oracle, connector_factory: Callable[..., Connector], mode: str, name: str
) -> None:
    table(schema, '"O$ T"', "ID NUMBER(9) PRIMARY KEY")
    schema.sql('INSERT INTO "O$ T" VALUES (1)')
    found = capture_records(connector_factory(topic_prefix="p-1", schema_name_adjustment_mode=mode), schemas=True)
    (read,) = [r for r in found if r["topic"] == "p-1.APP.O__T"]  # names of schemas are made of those of topics
    assert read["key"]["schema"]["name"] == f"{name}.Key"
    assert read["value"]["schema"]["name"] == f"{name}.Envelope"
    assert {f["name"] for f in read["value"]["schema"]["fields"][:2]} == {f"{name}.Value"}


def test_configured_keys_are_the_keys_of_events(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    table(schema, "T", "ID NUMBER(9) PRIMARY KEY, A NUMBER(9), B NUMBER(9)")
    schema.sql("INSERT INTO T VALUES (1, 2, 3)")
    (read,) = of_table(capture_records(connector_factory(message_key_columns=r"app\.t:b,A")), "T")
    assert read["key"] == {"B": 3, "A": 2}


# snapshots


@pytest.mark.parametrize(("order", "tables"), [("ascending", "CAB"), ("descending", "BAC"), (None, "ABC")])
def test_tables_are_read_in_the_order_of_their_sizes_where_that_is_asked_for(
    schema: Oracle,
    connector_factory: Callable[..., Connector],
    order: str | None,
    tables: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = {"A": 20, "B": 30, "C": 10}
    for name, count in sizes.items():
        table(schema, name)
        schema.sql(*(f"INSERT INTO {name} VALUES ({i}, 'x')" for i in range(count)))
    chunks = OracleSnapshot.split_table

    def read_with_sizes(self: OracleSnapshot, id_: TableId) -> Any:
        self._sizes[id_] = (sizes[id_.name], 1)
        return chunks(self, id_)

    monkeypatch.setattr(OracleSnapshot, "split_table", read_with_sizes)
    options = {} if order is None else {"snapshot_tables_order_by_row_count": order}
    connector = connector_factory(snapshot_max_threads=1, **options)
    found = [r["topic"][-1] for r in capture_records(connector) if r["topic"] != "test"]
    assert "".join(dict.fromkeys(found)) == tables


def test_fetch_sizes_are_those_of_the_round_trips(db: Oracle) -> None:
    db.sql(*(f"INSERT INTO T VALUES ({i}, 'x')" for i in range(2, 12)))
    with OracleSnapshot(settings(db, snapshot__fetch__size=4), [T], 1) as view:
        (chunk,) = view.split_table(T)
        assert [len(block) for block in view.read(chunk)] == [4, 4, 3]
    for size, largest in (({"query__fetch__size": 4}, 4), ({"query__fetch__size": 0}, 10_000), ({}, 10_000)):
        with closing(session_of(db, **size)) as session:
            requests: list[int] = []
            fetch = session.connection.fetch_df_batches

            def fetching(*args: Any, size: int, **more: Any) -> Any:
                requests.append(size)  # noqa: B023
                return fetch(*args, size=size, **more)  # noqa: B023

            start = db.scn() - 5
            with patch.object(type(session), "connection", _WatchedConnection(session.connection, fetching)):
                session.open_window(start, db.scn())
                sizes = [batch.num_rows for batch in session.read_rows(start, db.scn())]
            assert requests == [largest]
            assert max(sizes, default=0) <= largest


class _WatchedConnection:
    """A connection whose fetches are watched."""

    def __init__(self, connection: Any, fetch: Any) -> None:
        self._connection, self.fetch_df_batches = connection, fetch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


# the stream


def test_a_quiet_stream_says_so_as_often_as_configured(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    """A reader gets to look at the clock, however long the pauses of mining are."""

    def beats(milliseconds: int) -> int:
        connector = connector_factory(log_mining_sleep_time_default_ms=400, log_mining_sleep_time_min_ms=400, log_mining_sleep_time_max_ms=400, poll_interval_ms=milliseconds)  # fmt: skip
        with open_source(connector.definition(), connector.secrets) as source:
            items = source.stream_log(source.current_position(), _NoTables(), until=None)
            for count, item in enumerate(items):
                assert isinstance(item, Heartbeat)
                if source.collect_stream_metrics()["FetchingQueryCount"] == 3:
                    return count
        raise AssertionError("unreachable")

    assert beats(20) > 2 * beats(400)
    assert config().poll_interval_ms == 500


class _NoTables:
    def find_schema(self, table: TableId) -> None:
        return None

    def is_captured(self, table: TableId) -> bool:
        return False

    def read_again(self, table: TableId) -> bool:
        return False

    def list_known_tables(self) -> list[TableId]:
        return []


@pytest.mark.parametrize(
    ("properties", "ids"),
    [
        ({}, [1, 2]),
        ({"log_mining_username_include_list": "app"}, [1]),
        ({"log_mining_username_exclude_list": "App"}, [2]),
    ],
)
@pytest.mark.parametrize("mode", ["none", "in"])
def test_changes_are_chosen_by_who_made_them(
    db: Oracle, connector_factory: Callable[..., Connector], properties: dict[str, str], ids: list[int], mode: str
) -> None:
    connector = connector_factory(log_mining_query_filter_mode=mode, **properties)
    db.sql("DELETE FROM T")
    connector.capture()
    db.sql("INSERT INTO T VALUES (1, 'app')")
    _as_other(db, "INSERT INTO APP.T VALUES (2, 'other')")
    found = of_table(capture_records(connector), "T")
    assert [r["value"]["after"]["ID"] for r in found] == ids


def _as_other(db: Oracle, statement: str) -> None:
    db.admin(
        "CREATE USER OTHER IDENTIFIED BY secret", "GRANT CREATE SESSION, INSERT ANY TABLE TO OTHER"
    )  # fmt: skip
    try:
        db.sql(statement, user="OTHER", password="secret")
    finally:
        db.admin("DROP USER OTHER CASCADE")


@pytest.mark.usefixtures("redo_at_once")
def test_a_transaction_that_is_open_for_too_long_is_given_up_with_an_error_in_the_log(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    for retention, captured_rows in ((0, [2]), (1, [])):
        connector = connector_factory()
        if retention:  # by default there is none
            connector.properties["log.mining.transaction.retention.ms"] = retention
        connector.capture()
        with db.connect() as connection:
            connection.cursor().execute("INSERT INTO T VALUES (2, 'late')")
            caplog.clear()
            connector.capture()
            assert ("is abandoned: 1 changes are lost" in caplog.text) is (retention > 0)
            connection.commit()
        found = of_table(capture_records(connector), "T")
        assert [r["value"]["after"]["ID"] for r in found] == captured_rows
        db.sql("DELETE FROM T WHERE ID = 2")
        connector.capture()


@pytest.mark.usefixtures("redo_at_once")
def test_a_transaction_with_too_many_events_is_given_up(
    db: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    connector = connector_factory(log_mining_buffer_transaction_events_threshold=2)
    connector.capture()
    with db.connect() as large, db.connect() as small:
        large.cursor().executemany("INSERT INTO T VALUES (:1, 'x')", [(i,) for i in (2, 3, 4)])
        small.cursor().executemany("INSERT INTO T VALUES (:1, 'x')", [(i,) for i in (5, 6)])
        connector.capture()
        large.commit()
        small.commit()
    assert "3 changes are lost" in caplog.text
    assert [r["value"]["after"]["ID"] for r in of_table(capture_records(connector), "T")] == [5, 6]


@pytest.mark.usefixtures("redo_at_once")
def test_waiting_changes_beyond_the_bound_are_in_files_of_the_configured_folder(
    db: Oracle, connector_factory: Callable[..., Connector], tmp_path: Path
) -> None:
    folder = tmp_path / "spill"
    folder.mkdir()
    used: list[str | None] = []
    file = row_segments.tempfile.TemporaryFile

    def making(*args: Any, dir: str | None = None, **more: Any) -> Any:
        used.append(dir)
        return file(*args, dir=dir, **more)

    connector = connector_factory(log_mining_buffer_memory_max_bytes=0, log_mining_buffer_spill_folder=str(folder))
    connector.capture()
    with db.connect() as connection, patch.object(row_segments.tempfile, "TemporaryFile", making):
        connection.cursor().execute("INSERT INTO T VALUES (2, 'late')")
        connector.capture()
        connection.commit()
        assert [r["value"]["after"]["ID"] for r in of_table(capture_records(connector), "T")] == [2]
    assert set(used) == {str(folder)}
    assert not list(folder.iterdir())


def test_the_flush_table_has_the_configured_name_and_is_not_captured(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    config = settings(db, log__mining__flush__table__name="MY_FLUSH")
    connector = connector_factory(log_mining_flush_table_name="MY_FLUSH", schema_include_list="APP,C##.*")
    connector.capture()
    db.sql("INSERT INTO T VALUES (2, 'x')")
    topics = {r["topic"] for r in capture_records(connector)}
    assert topics == {"test.APP.T"}
    with db.capture() as connection:
        (count,) = connection.cursor().execute("SELECT COUNT(*) FROM MY_FLUSH").fetchone()
    assert count == 1
    assert LogWriterFlush(config, _database(db), dict)._table == "MY_FLUSH"
    assert LogWriterFlush(settings(db), _database(db), dict)._table == "LOG_MINING_FLUSH"
    assert is_system(TableId(namespace=db.user.upper(), name="MY_FLUSH"), config), (
        "a database without containers has it among the tables"
    )
    assert not is_system(TableId(namespace=db.user.upper(), name="LOG_MINING_FLUSH"), config)


def _database(db: Oracle) -> Any:
    from airflow_provider_cdc.sources.oracle.connect import connect, database_of

    with closing(connect(settings(db))) as connection:
        return database_of(connection)


def test_a_truncate_is_reported_unless_it_is_skipped(db: Oracle, connector_factory: Callable[..., Connector]) -> None:
    connector = connector_factory()
    connector.capture()
    db.sql("TRUNCATE TABLE T")
    assert [r["value"]["op"] for r in of_table(capture_records(connector), "T")] == ["t"]
    connector.properties["skipped.operations"] = "t"
    db.sql("TRUNCATE TABLE T")
    assert of_table(capture_records(connector), "T") == []


def test_tombstones_follow_deletes_unless_they_are_switched_off(
    db: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    for given, values in (({}, ["d", None]), ({"tombstones_on_delete": "false"}, ["d"])):
        connector = connector_factory(**given)
        connector.capture()
        db.sql("DELETE FROM T")
        found = of_table(capture_records(connector), "T")
        assert [r["value"] and r["value"]["op"] for r in found] == values
        db.sql("INSERT INTO T VALUES (1, 'again')")
        connector.capture()


@pytest.mark.parametrize(
    ("column", "value", "mode", "first", "then"),
    [
        ("DATE", "DATE '2026-11-22'", "time.precision.mode", "connect", "adaptive"),
        ("INTERVAL DAY TO SECOND", "INTERVAL '5' DAY", "interval.handling.mode", "numeric", "string"),
    ],
)
def test_a_mode_by_which_columns_would_have_another_type_in_the_middle_of_the_log_is_refused(
    schema: Oracle, tmp_path: Path, column: str, value: str, mode: str, first: str, then: str
) -> None:
    table(schema, columns=f"ID NUMBER(9) PRIMARY KEY, V {column}")
    schema.sql(f"INSERT INTO T VALUES (1, {value})")
    connector = oracle_connector(schema, tmp_path, schema_include_list="APP")
    connector.properties |= {mode: first}
    connector.capture()
    schema.sql(f"INSERT INTO T VALUES (2, {value})")
    connector.properties |= {mode: then}
    with pytest.raises(ConfigError, match=rf"{mode} was changed after tables were first captured") as caught:
        connector.capture()
    assert "APP.T.V" in str(caught.value)
    connector.capture({"snapshot.mode": "always"})
    schema.sql(f"INSERT INTO T VALUES (3, {value})")
    connector.capture()
    rows = connector.rows("APP.T")
    assert len(rows) == 3
    assert len({row["V"] for row in rows}) == 1, "all in the new form"
