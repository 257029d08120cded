"""Setting Oracle up: topologies, accounts, what is never captured; names of topics."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_cdc.connector import open_source
from airflow_provider_cdc.core.errors import ConfigError, PrerequisiteError
from airflow_provider_cdc.core.model.table_schema import TableId
from airflow_provider_cdc.sources.oracle.checks import check_prerequisites
from airflow_provider_cdc.sources.oracle.config import OracleConfig
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings
from tests.sources.oracle_adapter import oracle_connector
from tests.support.change_log.rendered import capture_records, of_table
from tests.support.connectors import Connector

LOGGED = "ALTER TABLE {} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
DOCUMENTED = {
    "name": "inventory-connector", "connector.class": "io.debezium.connector.oracle.OracleConnector", "tasks.max": "3",
    "database.hostname": "db", "database.port": "1521", "database.user": "c##dbzuser", "database.password": "dbz",
    "database.dbname": "ORCLCDB", "database.pdb.name": "ORCLPDB1", "topic.prefix": "server1",
    "schema.history.internal.kafka.bootstrap.servers": "kafka:9092", "schema.history.internal.kafka.topic": "schema-changes.inventory",
}  # fmt: skip
GRANTS = (
    "CREATE SESSION", "SET CONTAINER", "SELECT ON V_$DATABASE", "FLASHBACK ANY TABLE", "SELECT ANY TABLE", "SELECT_CATALOG_ROLE",
    "EXECUTE_CATALOG_ROLE", "SELECT ANY TRANSACTION", "LOGMINING", "CREATE TABLE", "LOCK ANY TABLE", "CREATE SEQUENCE",
    "EXECUTE ON DBMS_LOGMNR", "EXECUTE ON DBMS_LOGMNR_D", "SELECT ON V_$LOG", "SELECT ON V_$LOG_HISTORY", "SELECT ON V_$LOGMNR_LOGS",
    "SELECT ON V_$LOGMNR_CONTENTS", "SELECT ON V_$LOGMNR_PARAMETERS", "SELECT ON V_$LOGFILE", "SELECT ON V_$ARCHIVED_LOG",
    "SELECT ON V_$ARCHIVE_DEST_STATUS", "SELECT ON V_$TRANSACTION", "SELECT ON V_$MYSTAT", "SELECT ON V_$STATNAME",
)  # fmt: skip
"""The documents' list."""
TABLESPACE = (
    "CREATE TABLESPACE logminer_tbs DATAFILE '/u01/{}/logminer_tbs.dbf' SIZE 25M REUSE AUTOEXTEND ON MAXSIZE UNLIMITED"
)


@pytest.fixture
def connector_factory(schema: Oracle, tmp_path: Path) -> Callable[..., Connector]:
    """A connector that captures the owner's schema."""
    return lambda **properties: oracle_connector(schema, tmp_path, **{"schema_include_list": "APP", **properties})


def table(
    server: Oracle, name: str = "T1", columns: str = "ID NUMBER(9) PRIMARY KEY, V NUMBER(9)", **login: Any
) -> None:
    server.sql(f"CREATE TABLE {name} ({columns})", LOGGED.format(name), **login)


# topologies


@pytest.mark.parametrize("options", [{}, {"cdb": False}, {"threads": 2}], ids=["containers", "plain", "cluster"])
def test_each_kind_of_database_is_captured(options: dict[str, Any], tmp_path: Path) -> None:
    with Oracle(options) as server:
        table(server)
        server.sql("INSERT INTO T1 VALUES (1, 1)")
        nodes = {"rac_nodes": ",".join(server.nodes)} if "threads" in options else {}
        connector = oracle_connector(server, tmp_path, **nodes)
        assert [r["value"]["op"] for r in of_table(capture_records(connector), "T1")] == ["r"]
        instances = range(1, options.get("threads", 1) + 1)
        for instance in instances:
            server.sql(f"INSERT INTO T1 VALUES ({instance + 1}, 2)", thread=instance)
        server.sql("UPDATE T1 SET V = 3 WHERE ID = 1")
        found = [r["value"] for r in of_table(capture_records(connector), "T1")]
        assert [(v["op"], v["source"]["redo_thread"]) for v in found] == [*(("c", i) for i in instances), ("u", 1)]
        assert {v["source"]["db"] for v in found} == {server.pdb or server.database}
        assert connector.rows("APP.T1") == [{"ID": i, "V": 3 if i == 1 else 2} for i in range(1, len(instances) + 2)]


def test_only_the_named_pluggable_database_is_captured(
    schema: Oracle, connector_factory: Callable[..., Connector], tmp_path: Path
) -> None:
    """A table of the root that has the same name is another one."""
    table(schema)
    connector = connector_factory(schema_include_list="APP,.*DBZUSER")
    capture_records(connector)
    root = {"user": schema.user, "password": schema.password, "dsn": schema.dsn}
    table(schema, "ROOTS", **root)
    schema.sql("INSERT INTO ROOTS VALUES (1, 1)", **root)
    schema.sql("INSERT INTO T1 VALUES (1, 1)")
    try:
        assert {r["topic"] for r in capture_records(connector)} == {"test.APP.T1"}
    finally:
        schema.sql("DROP TABLE ROOTS PURGE", **root)


# accounts


def test_the_account_of_the_documents_can_capture(schema: Oracle, connector_factory: Callable[..., Connector]) -> None:
    table(schema)
    root, inside = {"dsn": schema.dsn}, {"dsn": schema.owner_dsn}
    schema.admin(TABLESPACE.format("ORCLCDB"), **root)
    schema.admin(TABLESPACE.format("ORCLCDB/ORCLPDB1"), **inside)
    schema.admin(
        "CREATE USER c##made IDENTIFIED BY made DEFAULT TABLESPACE logminer_tbs QUOTA UNLIMITED ON logminer_tbs CONTAINER=ALL",
        *(f"GRANT {grant} TO c##made CONTAINER=ALL" for grant in GRANTS),
        **root,
    )
    connector = connector_factory()
    connector.secrets |= {"database.user": "c##made", "database.password": "made"}
    schema.sql("INSERT INTO T1 VALUES (1, 1)")
    capture_records(connector)
    schema.sql("INSERT INTO T1 VALUES (2, 2)", "DELETE FROM T1 WHERE ID = 1")
    assert [r["value"] and r["value"]["op"] for r in capture_records(connector)] == ["c", "d", None]
    assert connector.rows("APP.T1") == [{"ID": 2, "V": 2}]
    assert not [
        f for f in check_prerequisites(settings(schema, database__user="c##made", database__password="made")) if f.fatal
    ]


def test_statements_for_a_database_without_containers_name_none(tmp_path: Path) -> None:
    with Oracle({"cdb": False}) as server:
        table(server)
        server.admin(f"REVOKE LOGMINING FROM {server.user}", f"REVOKE SET CONTAINER FROM {server.user}")
        with pytest.raises(PrerequisiteError) as caught:
            oracle_connector(server, tmp_path).capture()
        assert f"GRANT LOGMINING TO {server.user}\n" in f"{caught.value}\n"
        assert not re.search("CONTAINER|c##", str(caught.value), re.IGNORECASE)


def test_hosted_databases_have_statements_of_their_own() -> None:
    with Oracle({"archiving": False, "supplemental": []}) as server:
        table(server)
        fixes = " ".join(f.fix for f in check_prerequisites(settings(server)) if f.fatal)
    assert "rdsadmin.rdsadmin_util.set_configuration('archivelog retention hours', 24)" in fixes
    assert "rdsadmin.rdsadmin_util.alter_supplemental_logging('ADD')" in fixes


def test_logging_of_all_columns_gives_whole_images_and_that_of_keys_the_changed_ones(
    schema: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture
) -> None:
    columns = "(ID NUMBER(9) PRIMARY KEY, A NUMBER(9), B VARCHAR2(9))"
    schema.sql(
        f"CREATE TABLE WHOLE {columns}", LOGGED.format("WHOLE"),
        f"CREATE TABLE KEYED {columns}", "ALTER TABLE KEYED ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS",
        *(f"INSERT INTO {name} VALUES (1, 1, 'b')" for name in ("WHOLE", "KEYED")),
    )  # fmt: skip
    connector = connector_factory()
    capture_records(connector)
    schema.sql(*(f"UPDATE {name} SET A = 2" for name in ("WHOLE", "KEYED")))
    caplog.clear()
    found = {r["topic"].rpartition(".")[2]: r["value"] for r in capture_records(connector)}
    assert [
        r.levelname for r in caplog.records if "APP.KEYED has no supplemental logging of all columns" in r.message
    ] == ["WARNING"]
    assert not [r for r in caplog.records if "APP.WHOLE" in r.message and r.levelname == "WARNING"]
    assert (found["WHOLE"]["before"], found["WHOLE"]["after"]) == (
        {"ID": 1, "A": 1, "B": "b"},
        {"ID": 1, "A": 2, "B": "b"},
    )
    after = {"ID": 1, "A": 2, "B": "__debezium_unavailable_value"}
    assert (found["KEYED"]["before"], found["KEYED"]["after"]) == (after | {"A": 1}, after)
    assert connector.rows("APP.KEYED") == [{"ID": 1, "A": 2, "B": "b"}]


# what is captured


def test_changes_of_the_capture_user_itself_are_captured(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    table(schema)
    schema.sql(f"GRANT INSERT ON T1 TO {schema.user}")
    connector = connector_factory()
    capture_records(connector)
    schema.sql(
        "ALTER SESSION SET CONTAINER = ORCLPDB1", "INSERT INTO APP.T1 VALUES (1, 1)",
        user=schema.user, password=schema.password, dsn=schema.dsn,
    )  # fmt: skip
    (record,) = capture_records(connector)
    assert (record["value"]["op"], record["value"]["source"]["user_name"].upper()) == ("c", schema.user.upper())


@pytest.mark.parametrize("name", ["CMP3$123", "SYS_IOT_OVER_7", "MDRT_1$", "MDRS_X", "MDXT_X"])
def test_a_table_of_a_user_with_a_name_of_oracles_own_is_named_in_a_warning(
    schema: Oracle, connector_factory: Callable[..., Connector], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    schema.sql(f'CREATE TABLE "{name}" (A NUMBER)', 'CREATE TABLE "BIN$0==$0" (A NUMBER)')
    table(schema)
    with open_source(connector_factory().definition(), connector_factory().secrets) as source:
        found = {t.name for t in source.discover_tables()}
    assert "T1" in found
    assert name not in found
    (warning,) = [r.getMessage() for r in caplog.records if "Rename your tables" in r.message]
    assert f"APP.{name}:" in warning
    assert "BIN$" not in warning


def test_lists_of_schemas_tables_and_columns_are_anchored(schema: Oracle, tmp_path: Path) -> None:
    for name in ("T1", "T11", "U"):
        table(schema, name)
        schema.sql(f"INSERT INTO {name} VALUES (1, 1)")

    def topics(number: int, **properties: Any) -> dict[str, Any]:
        found = capture_records(oracle_connector(schema, tmp_path / str(number), **properties))
        return {r["topic"]: r["value"]["after"] for r in found if r["topic"].startswith("test.APP.")}

    whole = {"ID": 1, "V": 1}
    mine = {f"test.APP.{t}": whole for t in ("T1", "T11", "U")}
    assert topics(0, schema_include_list="app") == mine
    with pytest.raises(PrerequisiteError, match="No table"):
        topics(1, schema_include_list="AP")
    assert topics(2, schema_include_list="APP", table_include_list=r"APP\.T1") == {"test.APP.T1": whole}
    assert topics(3, schema_include_list="APP", table_exclude_list=r"APP\.T.*") == {"test.APP.U": whole}
    columns = {
        "column_exclude_list": r"APP\.(T1|U)\.V,APP\.T11\.I",
        "column_include_list": r"APP\.(T1|U)\.ID,APP\.T11\..*,U\.V",
    }
    for number, (name, value) in enumerate(columns.items(), 10):
        found = topics(number, schema_include_list="APP", **{name: value})
        assert found == {**mine, "test.APP.T1": {"ID": 1}, "test.APP.U": {"ID": 1}}
    without_key = {"table_include_list": r"APP\.T1", "column_include_list": r"APP\.T1\.V"}
    found_ = capture_records(oracle_connector(schema, tmp_path / "key", schema_include_list="APP", **without_key))
    assert [(r["key"], r["value"]["after"]) for r in found_ if r["topic"] == "test.APP.T1"] == [({"ID": 1}, {"V": 1})]


# properties


def test_the_smallest_documented_configuration_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = OracleConfig.parse(DOCUMENTED)
    assert (config.database_hostname, config.database_port, config.database_user) == ("db", 1521, "c##dbzuser")
    assert (config.database_dbname, config.database_pdb_name, config.topic_prefix) == ("ORCLCDB", "ORCLPDB1", "server1")
    messages = [r.getMessage() for r in caplog.records]
    for name in ("connector.class", "tasks.max"):
        assert len([t for t in messages if f"Property {name} is accepted and has no effect" in t]) == 1
    assert "dbz'" not in caplog.text


@pytest.mark.parametrize("missing", ["database.dbname", "database.user", "topic.prefix", "database.hostname"])
def test_what_has_no_default_is_required(missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(missing)}: required"):
        OracleConfig.parse({k: v for k, v in DOCUMENTED.items() if k != missing})


# topics


def test_topics_are_named_by_schema_and_table_without_the_database(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    table(schema)
    schema.sql('CREATE TABLE "Mixed Case" (ID NUMBER(9) PRIMARY KEY)', LOGGED.format('"Mixed Case"'))
    connector = connector_factory(topic_prefix="ful-fill.1_x", provide_transaction_metadata=True)
    capture_records(connector)
    schema.sql("INSERT INTO T1 VALUES (1, 1)", 'INSERT INTO "Mixed Case" VALUES (1)', "ALTER TABLE T1 ADD W NUMBER(3)")
    topics = [r["topic"] for r in capture_records(connector)]
    both = ["ful-fill.1_x.APP.T1", "ful-fill.1_x.APP.Mixed_Case"]
    assert topics == ["ful-fill.1_x.transaction", *both, "ful-fill.1_x.transaction", "ful-fill.1_x"]
    schema.sql("INSERT INTO T1 VALUES (2, 2, 2)")
    with pytest.raises(ConfigError, match=r"topic\.prefix was 'ful-fill\.1_x'"):
        connector.capture({"topic.prefix": "other"})
    assert len(capture_records(connector)) == 3


@pytest.mark.parametrize("prefix", ["", "a b", "ä", "a/b"])
def test_other_characters_are_refused_in_the_prefix(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"topic\.prefix"):
        OracleConfig.parse({**DOCUMENTED, "topic.prefix": prefix})


def test_the_delimiter_stands_between_the_parts_of_each_topic(
    schema: Oracle, connector_factory: Callable[..., Connector]
) -> None:
    table(schema)
    connector = connector_factory(topic_delimiter="_", topic_transaction="tx", provide_transaction_metadata=True)
    capture_records(connector)
    schema.sql("INSERT INTO T1 VALUES (1, 1)")
    assert [r["topic"] for r in capture_records(connector)] == ["test_tx", "test_APP_T1", "test_tx"]
    usual = OracleConfig.parse(DOCUMENTED)
    assert (usual.topic_delimiter, usual.topic_transaction) == (".", "transaction")
    assert connector.discovered("APP.T1").id == TableId(namespace="APP", name="T1", catalog="ORCLPDB1")
