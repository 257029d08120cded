"""Connections: the session's form, containers, nodes, what a database says of itself, and errors in words that help."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Any

import oracledb
import pytest

from airflow_provider_cdc.core.errors import (
    AccessDenied,
    CdcError,
    ConfigError,
    NotGranted,
    PositionLost,
    PrerequisiteError,
    SourceLogDamaged,
    SourceUnavailable,
    TransientError,
)
from airflow_provider_cdc.sources.oracle.connect import (
    connect,
    current_scn,
    database_of,
    fetch_rows,
    fetch_scalar,
    translate_driver_errors,
    utc_offset,
)
from airflow_provider_cdc.sources.oracle.error_translation import bare_url, code_of, translate_error
from dev.servers.oracle import Oracle
from tests.sources.oracle.mined import settings


def test_session_has_utc_and_the_forms_that_the_readers_expect(oracle: Oracle) -> None:
    with closing(connect(settings(oracle))) as connection:
        found = dict(fetch_rows(connection, "SELECT PARAMETER, VALUE FROM NLS_SESSION_PARAMETERS"))
        assert fetch_scalar(connection, "SELECT SESSIONTIMEZONE FROM DUAL") == "+00:00"
        assert fetch_scalar(connection, "SELECT TO_CHAR(DATE '2024-02-29') FROM DUAL") == " 2024-02-29 00:00:00"
    assert found["NLS_DATE_FORMAT"] == "SYYYY-MM-DD HH24:MI:SS"
    assert found["NLS_TIMESTAMP_FORMAT"] == "SYYYY-MM-DD HH24:MI:SS.FF9"
    assert found["NLS_TIMESTAMP_TZ_FORMAT"] == "SYYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM"
    assert found["NLS_NUMERIC_CHARACTERS"] == ".,"


@pytest.mark.parametrize(("container", "name"), [(False, "CDB$ROOT"), (True, "ORCLPDB1")])
def test_connection_is_in_the_root_or_in_the_pluggable_database(oracle: Oracle, container: bool, name: str) -> None:
    with closing(connect(settings(oracle), container=container)) as connection:
        assert fetch_scalar(connection, "SELECT SYS_CONTEXT('USERENV', 'CON_NAME') FROM DUAL") == name


def test_query_that_takes_too_long_counts_as_a_lost_connection(oracle: Oracle) -> None:
    with closing(connect(settings(oracle, database__query__timeout__ms=1_234))) as connection:
        assert connection.call_timeout == 1_234
    with closing(connect(settings(oracle, database__query__timeout__ms=0))) as connection:
        assert connection.call_timeout == 0


@pytest.mark.parametrize(
    "url",
    [
        "{host}:{port}/{database}", "//{host}:{port}/{database}", "jdbc:oracle:thin:@//{host}:{port}/{database}",
        "jdbc:oracle:thin:@{host}:{port}/{database}", "jdbc:oracle:thin:nobody/hidden@//{host}:{port}/{database}",
        "(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST={host})(PORT={port}))(CONNECT_DATA=(SERVICE_NAME={database})))",
        "jdbc:oracle:thin:@(DESCRIPTION=(ENABLE=broken)(ADDRESS_LIST=(ADDRESS=(PROTOCOL=TCP)(HOST={host})(PORT={port})))"
        "(CONNECT_DATA=(SERVICE_NAME={database})))",
    ],
)  # fmt: skip
def test_url_in_each_documented_form_leads_to_the_database(oracle: Oracle, url: str) -> None:
    full = url.format(host=oracle.host, port=oracle.port, database=oracle.database)
    with closing(connect(settings(oracle, database__hostname="nowhere.invalid", database__url=full))) as connection:
        assert fetch_scalar(connection, "SELECT SYS_CONTEXT('USERENV', 'DB_NAME') FROM DUAL") == oracle.database


def test_driver_gets_its_options_and_they_decide_over_no_address(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    real = oracledb.connect

    def record(**arguments: Any) -> Any:
        given.update(arguments)
        return real(**arguments)

    monkeypatch.setattr(oracledb, "connect", record)
    options = {
        "driver__retry_count": "2",
        "driver__sdu": 4096,
        "driver__expire_time": "5",
        "driver__tcp_connect_timeout": "2.5",
    }
    with closing(connect(settings(oracle, **options))) as connection:
        assert fetch_scalar(connection, "SELECT SYS_CONTEXT('USERENV', 'DB_NAME') FROM DUAL") == oracle.database
    assert {name: given[name] for name in ("retry_count", "sdu", "expire_time", "tcp_connect_timeout", "program")} == {
        "retry_count": 2, "sdu": 4096, "expire_time": 5, "tcp_connect_timeout": 2.5, "program": "airflow_provider_cdc",
    }  # fmt: skip
    for name, text in {
        "driver__host": "elsewhere",
        "driver__wallet_location": "/",
        "driver__dsn": "x",
        "driver__sdu": "big",
    }.items():
        with pytest.raises(ConfigError, match=name.replace("__", r"\.")):
            settings(oracle, **{name: text})


def test_nodes_of_a_cluster_are_reached_with_their_own_ports() -> None:
    with Oracle({"threads": 2}) as server:
        for number, node in enumerate(server.nodes, 1):
            for url in (None, f"{server.host}:{server.port}/{server.database}"):
                with closing(connect(settings(server, database__url=url), host=node)) as connection:
                    assert fetch_scalar(connection, "SELECT INSTANCE_NUMBER FROM V$INSTANCE") == number
                    assert database_of(connection).threads == (1, 2)


def test_database_says_what_it_is(oracle: Oracle) -> None:
    with closing(connect(settings(oracle))) as connection:
        found = database_of(connection)
        assert current_scn(connection) >= found.resetlogs > 0
    assert (found.name, found.cdb, found.log_mode, found.role) == ("ORCLCDB", True, "ARCHIVELOG", "PRIMARY")
    assert (found.is_primary, found.is_writable, found.version_numbers[:2]) == (True, True, (19, 3))
    assert found.threads == found.open_threads == (1,)
    assert found.supplemental == {"MIN"}
    assert found.dbid > 0


def test_standby_is_known_as_one_that_is_read_only() -> None:
    with Oracle({"standby": True, "cdb": False}) as server:
        host = server.standby_dsn.partition("/")[0]
        with closing(connect(settings(server), host=host)) as connection:
            found = database_of(connection)
    assert (found.is_primary, found.is_writable, found.cdb) == (False, False, False)


@pytest.mark.parametrize(
    ("text", "seconds"), [("+00:00", 0), ("+05:30", 19_800), ("-08:00", -28_800), ("-00:30", -1_800)]
)
def test_offset_of_the_servers_clock_is_in_seconds(
    oracle: Oracle, monkeypatch: pytest.MonkeyPatch, text: str, seconds: int
) -> None:
    with closing(connect(settings(oracle))) as connection:
        assert utc_offset(connection) == 0
        monkeypatch.setattr("airflow_provider_cdc.sources.oracle.connect.fetch_scalar", lambda *_: text)
        assert utc_offset(connection) == seconds


# errors


@pytest.mark.parametrize(
    ("properties", "kind", "remedy"),
    [
        ({"database.password": "wrong-one"}, AccessDenied, "correct login and password"),
        ({"database.port": 1}, SourceUnavailable, "reachable from this worker"),
        ({"database.dbname": "NOPE"}, SourceUnavailable, "listener"),
        ({"database.pdb.name": "NOPE"}, PrerequisiteError, "V$PDBS"),
        ({"database.url": "no_such_name"}, ConfigError, "TNS_ADMIN"),
        ({"database.url": "(DESCRIPTION=(x"}, ConfigError, "database.url"),
        ({"database.url": "jdbc:oracle:thin:me/sesame-open@//127.0.0.1:1/X"}, SourceUnavailable, "reachable"),
        ({"database.hostname": "a:b:c"}, ConfigError, "host:port"),
    ],
)  # fmt: skip
def test_connection_that_fails_says_why_and_what_to_do(
    oracle: Oracle, properties: dict[str, Any], kind: type[CdcError], remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(oracle, **{k.replace(".", "__"): v for k, v in properties.items()})
    with caplog.at_level(logging.DEBUG), pytest.raises(CdcError) as e:
        connect(config, container=True).close()
    assert type(e.value) is kind
    assert remedy in str(e.value.remedy)
    assert e.value.where
    shown, error = [caplog.text], e.value
    while error is not None:
        shown.append(f"{error} {error!r} {error.args}")
        error = error.__cause__  # type: ignore[assignment]
    for secret in (config.database_password.get_secret_value(), "sesame-open"):
        assert secret == "dbz" or secret not in "".join(shown)


def test_errors_of_a_missing_privilege_and_a_missing_table_name_the_grant(oracle: Oracle) -> None:
    config = settings(oracle)
    with (
        closing(connect(config, container=True)) as connection,
        pytest.raises(PrerequisiteError, match="ORA-00942") as e,
        translate_driver_errors(config, "APP.NOPE"),
    ):
        fetch_rows(connection, "SELECT 1 FROM APP.NOPE")
    assert e.value.where == "APP.NOPE"
    assert "GRANT SELECT ANY TABLE TO c##dbzuser CONTAINER=ALL" in str(e.value.remedy)


def test_account_without_the_right_to_connect_is_denied() -> None:
    with Oracle({"cdb": False}) as server:
        server.admin(f"REVOKE CREATE SESSION FROM {server.user}")
        with pytest.raises(AccessDenied, match="ORA-01045") as e:
            connect(settings(server))
    assert str(e.value.remedy).endswith("GRANT CREATE SESSION TO dbzuser")


def _error(number: int) -> oracledb.DatabaseError:
    """An error as the driver makes it of the server's text."""
    detail = type(
        "Detail", (), {"code": number, "full_code": f"ORA-{number:05d}", "message": f"ORA-{number:05d}: text"}
    )
    return oracledb.DatabaseError(detail())


@pytest.mark.parametrize(
    ("numbers", "kind", "remedy"),
    [
        ((28, 1012, 1033, 1089, 1092, 3113, 3114, 3135, 12514, 12528, 12541, 12543, 12545, 12170, 12537, 25408), SourceUnavailable, "retry"),
        ((18, 20, 60, 2391, 30006), SourceUnavailable, "retry"),
        ((4030, 4036), SourceUnavailable, "log.mining.session.max.ms"),
        ((1555, 22924), SourceUnavailable, "UNDO_RETENTION"),
        ((1466,), SourceUnavailable, "DDL"),
        ((600,), SourceUnavailable, "alert log"),
        ((1306, 1307), SourceUnavailable, "retry"),
        ((1017, 1045, 28000, 28001), AccessDenied, "password"),
        ((942, 1031), NotGranted, "GRANT SELECT ANY TABLE"),
        ((1536, 1950), PrerequisiteError, "QUOTA UNLIMITED"),
        ((1347, 1354), PrerequisiteError, "SUPPLEMENTAL LOG DATA"),
        ((1325,), PrerequisiteError, "ARCHIVELOG"),
        ((1371, 1332), PrerequisiteError, "DBMS_LOGMNR_D.BUILD"),
        ((65011, 65054), PrerequisiteError, "database.pdb.name"),
        ((16000,), PrerequisiteError, "log.mining.readonly.hostname"),
        ((1882,), PrerequisiteError, "TZ"),
        ((12154, 12505), ConfigError, "database.dbname"),
        ((1291, 308, 310, 1284), PositionLost, "snapshot.mode=when_needed"),
        ((8181, 1281), PositionLost, "snapshot.mode=when_needed"),
        ((353, 354, 333), SourceLogDamaged, "snapshot.mode=when_needed"),
    ],
)  # fmt: skip
def test_each_known_number_has_its_meaning(
    numbers: tuple[int, ...], kind: type[CdcError], remedy: str, oracle: Oracle
) -> None:
    for number in numbers:
        found = translate_error(_error(number), settings(oracle), "here")
        assert type(found) is kind, number
        assert remedy in str(found.remedy), number
        assert f"ORA-{number:05d}" in found.message
        assert found.safe
        assert found.where == "here"
        assert code_of(_error(number)) == number


def test_unknown_number_is_for_a_person_and_a_lost_socket_is_for_a_retry(oracle: Oracle) -> None:
    config = settings(oracle)
    assert isinstance(translate_error(_error(99_999), config), PrerequisiteError)
    assert isinstance(translate_error(ConnectionResetError("reset"), config), TransientError)
    with pytest.raises(SourceUnavailable), translate_driver_errors(config):
        raise ConnectionResetError("reset")


def test_password_in_the_servers_text_is_not_shown(oracle: Oracle) -> None:
    config = settings(oracle, database__password="very-secret")
    with pytest.raises(PrerequisiteError) as e, translate_driver_errors(config):
        raise oracledb.DatabaseError("syntax error near very-secret")
    assert "very-secret" not in str(e.value)
    assert e.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("jdbc:oracle:thin:@db:1521/ORCL", "db:1521/ORCL"),
        ("jdbc:oracle:oci:@//db/ORCL", "//db/ORCL"),
        ('jdbc:oracle:thin:scott/"t@g/er"@//db/ORCL', "//db/ORCL"),
        ("scott/tiger@ORCL", "ORCL"),
        ("ORCL", "ORCL"),
        (
            "jdbc:oracle:thin:@db:1521:XE",
            "(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=db)(PORT=1521))(CONNECT_DATA=(SID=XE)))",
        ),
        ("//db:1521/ORCL", "//db:1521/ORCL"),
        ("jdbc:oracle:thin:scott/tiger!@(DESCRIPTION=(ADDRESS=(HOST=db)))", "(DESCRIPTION=(ADDRESS=(HOST=db)))"),
    ],
)
def test_url_loses_the_words_of_jdbc_and_its_credentials(url: str, bare: str) -> None:
    assert bare_url(url) == bare
