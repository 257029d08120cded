"""The README's example as it stands, with change log and tables in S3: from an Airflow without state, jars or settings of this project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dev import paths
from dev.airflow import Airflow
from dev.servers import S3
from tests.system.conftest import PASSWORD, PLAIN

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
BUCKET = "lake"
ROWS = ["INSERT INTO shop.orders VALUES (1, 'first'), (2, 'second')"]
CHANGES = ["UPDATE shop.orders SET note = 'changed' WHERE id = 1", "DELETE FROM shop.orders WHERE id = 2"]


@pytest.fixture
def empty_airflow(airflow: Airflow, inventory: Any, s3: S3, tmp_path: Path) -> Airflow:
    """Return an Airflow with the README's connection and DAG. Its workers know the S3 server and nothing else of the tests."""
    empty = Airflow(tmp_path / "airflow", airflow.python)
    del empty.environment["AIRFLOW_VAR_CDC_JARS"]
    empty.connection(
        "shop_mariadb", conn_type="cdc_mariadb", host=inventory.host, port=inventory.port, login="reader",
        password=PASSWORD, extra=PLAIN,
    )  # fmt: skip
    # the address of the server, and a cache for jars of its own: Spark fetches all of them
    settings = {
        "spark.jars.ivy": str(tmp_path / "ivy"),
        "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.ui.enabled": "false",
    }
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    empty.environment |= {**s3.environment, "SPARK_CONF_DIR": str(tmp_path)}
    (program,) = PROGRAM.findall((paths.ROOT / "README.md").read_text())
    (empty.dags / "shop.py").write_text(program)
    return empty


def test_the_example_of_the_readme_keeps_tables_in_s3_equal(empty_airflow: Airflow, inventory: Any, s3: S3) -> None:
    s3.bucket(BUCKET)
    inventory.sql("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
    try:
        empty_airflow.run("db", "migrate")
        empty_airflow.run("cdc", "setup")
        assert empty_airflow.run("cdc", "check", "--conn-id", "shop_mariadb").stdout.startswith("Ready for capture.\n")
        for statements in (ROWS, CHANGES):
            inventory.sql(*statements)
            empty_airflow.run("dags", "test", "cdc_shop")
            verified = empty_airflow.run("cdc", "verify", "shop").stdout
            assert "equal" in verified
        assert empty_airflow.run("cdc", "events", "shop").stdout.count('"op":"u"') == 1
    finally:
        inventory.sql("DROP DATABASE shop")
    kept = s3.connect().list_objects_v2(Bucket=BUCKET)["Contents"]
    assert {"changelog", "shop"} <= {item["Key"].split("/")[0] for item in kept}
