"""Target databases for the tests of the sink: real ones, and our test servers for Oracle and Db2, each with its own database or schema for each test.

``MSSQL_DSN`` names a SQL Server, ``mssql+pyodbc://sa:…@host/?driver=ODBC+Driver+18+for+SQL+Server``: then all tests run on it, too, each in a separate database.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.target_engine import open_engine
from dev.servers import Db2
from dev.servers.oracle import Oracle
from tests.support.servers.derby import adapt_engine

MSSQL = os.environ.get("MSSQL_DSN", "")
KINDS = ("sqlite", "postgresql", "mariadb", "mysql", "oracle", "db2", *(("mssql",) if MSSQL else ()))
_FIXTURES = {"postgresql": "postgres", "mariadb": "mariadb", "mysql": "mysql97", "oracle": "oracle", "db2": "db2"}
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The Oracle test server that these tests share; it is ours, and no Oracle."""
    with Oracle() as server:
        yield server


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty target database, of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/target.db"
        return
    if request.param == "mssql":
        yield from _of_sql_server()
        return
    server = request.getfixturevalue(_FIXTURES[request.param])
    if request.param == "oracle":
        yield _of_oracle(server)
        return
    if request.param == "db2":
        yield _of_db2(server)
        return
    if request.param == "postgresql":
        with server.database("sink") as name:
            yield server.url(name)
        return
    with server.database("sink") as database:
        yield server.url(f"{database.name}?charset=utf8mb4")


def _of_oracle(server: Oracle) -> str:
    """A user is a schema."""
    user = f"SINK{next(_NUMBERS)}"
    server.admin(f"CREATE USER {user} IDENTIFIED BY sink", f"GRANT CREATE SESSION, CREATE TABLE TO {user}")
    return f"oracle://{user}:sink@{server.host}:{server.port}/?service_name={server.pdb}"


def _of_db2(server: Db2) -> str:
    """A user has a schema, and is known by the name in small letters."""
    user = f"SINK{next(_NUMBERS)}"
    return f"db2://{user}:{user.lower()}@{server.host}:{server.port}/{server.database}?authentication=SERVER"


def _of_sql_server() -> Iterator[str]:
    name = f"sink_{os.getpid()}_{next(_NUMBERS)}"
    server = open_engine(DatabaseTargetConfig.parse({"connection.url": MSSQL})).execution_options(
        isolation_level="AUTOCOMMIT"
    )
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield server.url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
        connection.exec_driver_sql(f"DROP DATABASE {name}")
    server.dispose()


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = adapt_engine(open_engine(DatabaseTargetConfig.parse({"connection.url": url})))
    yield engine
    engine.dispose()
