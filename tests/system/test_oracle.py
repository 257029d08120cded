"""The example DAG for Oracle in a real Airflow, with Spark, on the Oracle test server."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from dev.airflow import Airflow, example
from dev.servers import Oracle
from tests.system.test_airflow import delta_rows

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

DAG = "inventory_oracle_to_delta"
OWNER = {"user": "INVENTORY", "password": "inventory"}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """With an ``inventory`` schema of three tables."""
    with Oracle() as server:
        server.admin(
            "CREATE USER INVENTORY IDENTIFIED BY inventory QUOTA UNLIMITED ON users",
            "GRANT CREATE SESSION, CREATE TABLE TO INVENTORY",
        )
        server.sql(
            "CREATE TABLE customers (id NUMBER(9) PRIMARY KEY, name VARCHAR2(50), balance NUMBER(10,2), notes CLOB)",
            "CREATE TABLE products (id NUMBER(9) PRIMARY KEY, name VARCHAR2(100), weight BINARY_DOUBLE)",
            "CREATE TABLE orders (id NUMBER(9) PRIMARY KEY, customer NUMBER(9), at DATE)",
            *(
                f"ALTER TABLE {name} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
                for name in ("customers", "products", "orders")
            ),
            "INSERT INTO customers VALUES (1, 'Ann', 10.5, 'likes tea')",
            "INSERT INTO customers VALUES (2, 'Böb', NULL, NULL)",
            "INSERT INTO products VALUES (1, 'hammer', 1.5)",
            "INSERT INTO orders VALUES (1, 1, DATE '2024-01-02')",
            **OWNER,
        )
        yield server


def test_the_example_dag_makes_the_tables_equal(airflow: Airflow, oracle: Oracle) -> None:
    airflow.connection(
        "inventory_oracle", conn_type="cdc_oracle", host=oracle.host, port=oracle.port, login=oracle.user,
        password=oracle.password, schema=oracle.database, extra={"database.pdb.name": oracle.pdb},
    )  # fmt: skip
    example(DAG, airflow.dags)
    assert airflow.run("cdc", "check", "--conn-id", "inventory_oracle").stdout.startswith("Ready for capture.")
    output = airflow.run("dags", "test", DAG).stdout
    assert "state:success" in output or "successful" in output, output[-5000:]
    lake = airflow.home / "cdc" / "lake" / "INVENTORY"
    assert delta_rows(lake / "CUSTOMERS") == [(1, "Ann", Decimal("10.50"), "likes tea"), (2, "Böb", None, None)]
    assert delta_rows(lake / "PRODUCTS") == [(1, "hammer", 1.5)]
    assert len(delta_rows(lake / "ORDERS")) == 1
    printed = airflow.run("cdc", "events", "inventory_oracle", "--form", "xstream", "--limit", "1").stdout
    assert '"connector":"oracle_xstream"' in printed
