"""``airflow cdc setup`` on a real Airflow whose metadata DB is PostgreSQL, TLS arguments included."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from airflow_provider_cdc.state.models import VERSION_TABLE
from airflow_provider_cdc.state.state_store import StateStore
from dev.airflow import Airflow
from dev.servers import Postgres

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

ROLE = "cdc_state"
SETTINGS = 'arguments = {"sslmode": "prefer", "connect_timeout": 17}\n'


@pytest.fixture(scope="module")
def airflow(airflow: Airflow, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with postgres.database("airflow") as name:
        airflow = Airflow(tmp_path_factory.mktemp("airflow_on_postgres"), airflow.python)
        (airflow.home / "cdc_test_settings.py").write_text(SETTINGS)
        airflow.environment |= {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": postgres.url(name),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": postgres.url(name, "postgresql+psycopg_async"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "cdc_test_settings.arguments",
            "PYTHONPATH": str(airflow.home),
        }
        airflow.run("db", "migrate")
        yield airflow
        postgres.sql(f'DROP OWNED BY "{ROLE}"', f'DROP ROLE "{ROLE}"', database=name)


def test_the_role_that_is_printed_reaches_the_state_and_none_of_airflows_tables(
    airflow: Airflow, postgres: Postgres
) -> None:
    database = airflow.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].rpartition("/")[2]
    own = airflow.run("cdc", "setup", "--with-airflows-login").stdout
    assert "The connection uses Airflow's own login" in own
    assert "sslmode=prefer" in own
    assert "connect_timeout=17" in own
    refused = airflow.run("cdc", "setup", "--role", ROLE, status=1)
    assert f"airflow cdc setup --conn-id cdc_state_default --role {ROLE} --replace" in refused.stderr
    printed = airflow.run("cdc", "setup", "--replace", status=1).stdout
    statements = [line for line in printed.splitlines() if line.startswith(("CREATE ROLE", "GRANT", "REVOKE"))]
    got = airflow.run("connections", "get", "cdc_state_default", "-o", "json").stdout  # after lines of logs
    shown = json.loads(got.splitlines()[-1])
    password = str(sa.make_url(shown[0]["password"]).password)
    assert password not in printed
    assert f'CREATE ROLE "{ROLE}"' in printed, "a role is the default"
    postgres.sql(*statements, database=database)
    again = airflow.run("cdc", "setup", "--role", ROLE).stdout
    assert "The state tables exist." in again
    assert "is up to date" in again
    assert airflow.run("cdc", "connectors").stdout.strip()
    with postgres.connect(dbname=database, user=ROLE, password=password) as connection:
        reached = connection.execute("SELECT count(*) FROM cdc_signal").fetchone()
        assert reached == (0,)
        tables = [row[0] for row in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        others = [table for table in tables if not table.startswith("cdc_") and table != VERSION_TABLE]
        assert {"connection", "variable", "dag_run", "log"} <= set(others)
        for table in others:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f'SELECT * FROM "{table}" LIMIT 1')  # type: ignore[arg-type]
    url = sa.make_url(postgres.url(database)).set(username=ROLE, password=password)
    store = StateStore(url.render_as_string(hide_password=False))
    store.check_tables()
    store.close()
