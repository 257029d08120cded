"""JDBC URLs, as ``connection.url`` of the Debezium JDBC sink connector has them, as SQLAlchemy's."""

from __future__ import annotations

import re

from airflow_provider_cdc.core.errors import ConfigError

_ORACLE = re.compile(r"oracle:thin:@(?://)?([^/:?]+)(?::(\d+))?(?:/([^?:]+)|:([^?/:]+))")
_SQL_SERVER = re.compile(r"sqlserver://([^;/\\]+)((?:;[^;]*)*)")
_DB2 = re.compile(r"db2://([^/]+)/([^:?;]+)(?::(.*))?")


def sqlalchemy_url(text: str) -> str:
    """Convert a URL of JDBC to one of SQLAlchemy; others stay as they are.

    >>> sqlalchemy_url("jdbc:oracle:thin:@//db:1521/ORCLPDB1")
    'oracle://db:1521/?service_name=ORCLPDB1'

    :raises ConfigError: it has properties that mean something to the JDBC driver only
    """
    plain = text.removeprefix("jdbc:")
    if plain == text:
        return text
    if match := _ORACLE.fullmatch(plain):
        host, port, service, sid = match.groups()
        return f"oracle://{host}{f':{port}' if port else ''}/{f'?service_name={service}' if service else sid}"
    if match := _SQL_SERVER.fullmatch(plain):
        names = _properties(match[2])
        database = names.pop("databasename", None) or names.pop("database", "")
        _refuse(names, "mssql+pyodbc://host:1433/database?driver=ODBC+Driver+18+for+SQL+Server")
        return f"mssql://{match[1]}/{database}"
    if match := _DB2.fullmatch(plain):
        _refuse(_properties(match[3] or ""), "db2://host:50000/SAMPLE?Security=SSL")
        return f"db2://{match[1]}/{match[2]}"
    return plain


def _properties(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    return {name.strip().lower(): value for name, _, value in pairs}


def _refuse(names: dict[str, str], instead: str) -> None:
    """Reject properties in a URL.

    :raises ConfigError: there are properties; their values may be secrets, and are not shown
    """
    if names:
        raise ConfigError(
            f"connection.url has {', '.join(sorted(names))}, which only the JDBC driver supports; the sink does not use JDBC.",
            remedy=f"remove them (user and password are connection.username and connection.password), or use a URL of SQLAlchemy such as {instead}",
        )
