"""The SQL statements that create a database role for the state tables. The role may use these tables and nothing else.

Tasks reach the state tables by an Airflow connection. If that connection held Airflow's own login, every user who can read it could read and
change all of Airflow: users, variables, connections.

    >>> from sqlalchemy import make_url
    >>> role_sql(make_url("mysql+pymysql://airflow@db/airflow"), "cdc", "sesame")[0]
    "CREATE USER 'cdc'@'%' IDENTIFIED BY 'sesame'"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy.engine import URL

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.core.remedy_commands import format_cdc_command
from airflow_provider_cdc.state.models import Base

_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


def role_sql(url: URL, role: str, password: str, schema: str | None = None) -> list[str]:
    """Build the statements for an administrator of the database, one by one.

    The last ones may be run again after an upgrade.

    :param url: of the database that the tables are in
    :param schema: of the tables, where it is not the default one (PostgreSQL)
    :raises ConfigError: the database knows no roles
    """
    make = _DIALECTS.get(url.get_backend_name())
    if make is None or not url.database:
        raise ConfigError(
            f"A database of the kind {url.get_backend_name()} has no roles.",
            safe="Nothing was changed.",
            remedy=f"`{format_cdc_command('setup')}` without --role; every user who can read the file can read all its data",
        )
    return make(url.database, role, password, schema)


def _postgresql(database: str, role: str, password: str, schema: str | None) -> list[str]:
    name, namespace = _pg_name(role), _pg_name(schema or "public")
    tables = ", ".join(f"{namespace}.{_pg_name(table)}" for table in sorted(Base.metadata.tables))
    counted = ", ".join(
        f"{namespace}.{_pg_name(f'{table.name}_{column.name}_seq')}"
        for table in Base.metadata.sorted_tables
        if (column := table.autoincrement_column) is not None
    )
    return [
        f"CREATE ROLE {name} LOGIN PASSWORD {_pg_text(password)}",
        f"GRANT CONNECT ON DATABASE {_pg_name(database)} TO {name}",
        f"GRANT USAGE ON SCHEMA {namespace} TO {name}",
        f"GRANT {_RIGHTS} ON {tables} TO {name}",
        f"GRANT USAGE, SELECT, UPDATE ON SEQUENCE {counted} TO {name}",
    ]


def _mysql(database: str, role: str, password: str, schema: str | None) -> list[str]:
    account = f"{_my_text(role)}@'%'"
    namespace = _my_name(schema or database)
    grants = [
        f"GRANT {_RIGHTS} ON {namespace}.{_my_name(table)} TO {account}" for table in sorted(Base.metadata.tables)
    ]
    return [f"CREATE USER {account} IDENTIFIED BY {_my_text(password)}", *grants]


def _pg_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _pg_text(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if "\\" not in text else "E'" + quoted.replace("\\", "\\\\") + "'"


def _my_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _my_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


_DIALECTS: Mapping[str, Callable[[str, str, str, str | None], list[str]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
