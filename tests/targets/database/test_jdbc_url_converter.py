"""URLs of the Debezium JDBC sink connector, and their meaning here."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_cdc.core.errors import ConfigError
from airflow_provider_cdc.targets.database.config import DatabaseTargetConfig
from airflow_provider_cdc.targets.database.jdbc_url_converter import sqlalchemy_url
from airflow_provider_cdc.targets.database.target_engine import open_engine


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("jdbc:postgresql://db:5432/shop", ("postgresql", "db", 5432, "shop", {})),
        ("jdbc:mysql://db:3306/shop", ("mysql", "db", 3306, "shop", {})),
        ("jdbc:mariadb://db/shop", ("mariadb", "db", None, "shop", {})),
        ("jdbc:oracle:thin:@//db:1521/ORCLPDB1", ("oracle", "db", 1521, "", {"service_name": "ORCLPDB1"})),
        ("jdbc:oracle:thin:@db:1521/ORCLPDB1", ("oracle", "db", 1521, "", {"service_name": "ORCLPDB1"})),
        ("jdbc:oracle:thin:@db:1521:XE", ("oracle", "db", 1521, "XE", {})),
        ("jdbc:db2://db:50000/SAMPLE", ("db2", "db", 50000, "SAMPLE", {})),
        ("jdbc:sqlserver://db:1433;databaseName=shop", ("mssql", "db", 1433, "shop", {})),
        ("jdbc:sqlserver://db", ("mssql", "db", None, "", {})),
        ("oracle://db/?service_name=S", ("oracle", "db", None, "", {"service_name": "S"})),
    ],
)
def test_jdbc_urls_are_those_of_the_same_database(url: str, parts: tuple[object, ...]) -> None:
    made = sa.make_url(sqlalchemy_url(url))
    assert (made.get_backend_name(), made.host, made.port, made.database or "", dict(made.query)) == parts


@pytest.mark.parametrize(
    "url",
    ["jdbc:sqlserver://db;databaseName=shop;encrypt=true;password=hidden", "jdbc:db2://db:50000/S:sslConnection=true;password=hidden;"],
)  # fmt: skip
def test_properties_of_a_jdbc_driver_are_refused_by_their_names(url: str) -> None:
    with pytest.raises(ConfigError, match=r"connection\.url has (encrypt, password|password, sslconnection)") as caught:
        open_engine(DatabaseTargetConfig.parse({"connection.url": url}))
    assert "hidden" not in str(caught.value)


def test_a_password_may_have_any_letter(mariadb: Any) -> None:
    password = "sésame €${x}%41"
    mariadb.sql("DROP USER IF EXISTS 'letters'@'%'", f"CREATE USER 'letters'@'%' IDENTIFIED BY '{password}'")
    url = f"jdbc:mariadb://{mariadb.host}:{mariadb.port}/"
    given = {"connection.url": url, "connection.username": "letters", "connection.password": password}
    engine = open_engine(DatabaseTargetConfig.parse(given))
    with engine.connect() as connection:
        assert str(connection.execute(sa.text("SELECT USER()")).scalar()).startswith("letters@")
    engine.dispose()
    mariadb.sql("DROP USER 'letters'@'%'")


def test_passwords_of_db2_come_as_they_are(db2: Any) -> None:
    user = "SINKPASSWORDS"
    url = sa.URL.create(
        "db2", user, host=db2.host, port=db2.port, database=db2.database, query={"authentication": "SERVER"}
    )
    try:
        for password in ("a b", "x=y", "{a}", "${x}{{y}}#&+", "p@ss:w/o%r'd", '"q"', "}"):
            db2.configure(passwords={user: password})
            engine = open_engine(
                DatabaseTargetConfig.parse({"connection.url": url.render_as_string(), "connection.password": password})
            )
            with engine.connect() as connection:
                assert str(connection.exec_driver_sql("VALUES CURRENT USER").scalar()).strip() == user
            engine.dispose()
    finally:
        db2.configure(passwords={user: user.lower()})
