"""Db2 for SQLAlchemy: as much as the sink needs, over IBM's driver ``ibm_db``, which the Db2 source has, too.

IBM's own ``ibm_db_sa`` is not used: its URLs cannot say how passwords are sent, it cuts passwords at a semicolon without a word, and it cannot begin with SQLAlchemy 2.1.
"""

from __future__ import annotations

import contextlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import default
from sqlalchemy.sql import compiler

from airflow_provider_cdc.core.errors import ConfigError

LOB_CACHE_BYTES = 16 << 20
"""LOBs of up to so many bytes come with their row."""
_CONNECT_SECONDS = 20
_SAME = {"authentication": "Authentication", "security": "Security", "sslservercertificate": "SSLServerCertificate"}
"""Words of a connection string that a URL may have, in small letters → as they are written. Others stay as they are."""
_ISOLATION = {"READ UNCOMMITTED": "UR", "READ COMMITTED": "CS", "REPEATABLE READ": "RS", "SERIALIZABLE": "RR"}
"""Level of isolation → as Db2 calls it."""
_LOST = ("SQL30081N", "SQL30108N", "SQL1224N", "Connection is not active", "connection is no longer active")
_TABLES = "SELECT TABNAME FROM SYSCAT.TABLES WHERE TABSCHEMA = ? AND TABNAME = ?"


class Db2TypeCompiler(compiler.GenericTypeCompiler):
    """Names of the types of the sink's own tables."""

    def visit_TEXT(self, type_: Any, **kw: Any) -> str:
        return "CLOB(1M)"


class Db2SqlCompiler(compiler.SQLCompiler):
    """Savepoints have to specify the handling of cursors."""

    def visit_savepoint(self, savepoint_stmt: Any, **kw: Any) -> str:
        preparer: Any = self.preparer
        return f"SAVEPOINT {preparer.format_savepoint(savepoint_stmt)} ON ROLLBACK RETAIN CURSORS"


class Db2Engine(default.DefaultDialect):
    """``db2://user:password@host:50000/SAMPLE?Authentication=SERVER_ENCRYPT``; the part behind the question mark has keywords of IBM's connection strings."""

    name = "db2"
    driver = "ibm_db"
    default_paramstyle = "qmark"
    max_identifier_length = 128
    supports_statement_cache = True
    supports_default_values = False
    supports_sane_multi_rowcount = False
    type_compiler_cls = Db2TypeCompiler
    statement_compiler = Db2SqlCompiler

    @classmethod
    def import_dbapi(cls) -> Any:
        import ibm_db_dbi

        return ibm_db_dbi

    def create_connect_args(self, url: sa.URL) -> Any:
        words: dict[str, Any] = {
            "DATABASE": url.database, "HOSTNAME": url.host, "PORT": url.port or 50000, "PROTOCOL": "TCPIP", "UID": url.username,
            "PWD": url.password and _password_value(str(url.password)), "LOBCacheSize": LOB_CACHE_BYTES, "ConnectTimeout": _CONNECT_SECONDS,
            "PATCH2": "15",  # numbers have a point, whatever the process's locale
            "ClientApplName": "airflow_provider_cdc",
        }  # fmt: skip
        words |= {_SAME.get(name.lower(), name): value for name, value in url.query.items()}
        text = "".join(f"{name}={value};" for name, value in words.items() if value is not None)
        return (text, "", ""), {}

    def get_isolation_level_values(self, dbapi_conn: Any) -> Any:
        return list(_ISOLATION)

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        return "READ COMMITTED"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        with contextlib.closing(dbapi_connection.cursor()) as cursor:
            cursor.execute(f"SET CURRENT ISOLATION = {_ISOLATION[level]}")

    def _get_server_version_info(self, connection: sa.Connection) -> Any:
        return tuple(int(part) for part in str(_driver(connection).dbms_ver).split(".") if part.isdigit())

    def _get_default_schema_name(self, connection: sa.Connection) -> str:
        return str(connection.exec_driver_sql("VALUES CURRENT SCHEMA").scalar_one()).strip()

    def has_table(self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        """Check whether there is a table of just this name: names are not folded here."""
        at = (schema or self._get_default_schema_name(connection), str(table_name))
        return connection.exec_driver_sql(_TABLES, at).first() is not None

    def do_execute(self, cursor: Any, statement: Any, parameters: Any, context: Any = None) -> None:
        cursor.execute(_whole(statement), parameters)

    def do_executemany(self, cursor: Any, statement: Any, parameters: Any, context: Any = None) -> None:
        cursor.executemany(_whole(statement), parameters)

    def do_execute_no_params(self, cursor: Any, statement: Any, context: Any = None) -> None:
        cursor.execute(_whole(statement))

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        return any(text in str(e) for text in _LOST)


def _whole(sql: str) -> str:
    """Make a statement one of which IBM's driver prepares all.

    It counts a character beyond U+FFFF as one unit of UTF-16 instead of two, and cuts as many units off the end.
    """
    return sql + " " * sum(letter > "\uffff" for letter in sql)


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


def _password_value(password: str) -> str:
    """Format a password for a connection string.

    IBM's driver takes the part before the semicolon, without blanks at the ends; it knows no quotes, and no other way to pass a password
    ("Password rules for drivers and CLPPlus").

    :raises ConfigError: the string cannot hold it
    """
    if ";" in password or password != password.strip():
        raise ConfigError(
            "The password of the target database contains a semicolon, or begins or ends with a blank, which IBM's driver does not support.",
            safe="Nothing was written.",
            remedy="set another password for the account and in the Airflow connection",
        )
    return password
