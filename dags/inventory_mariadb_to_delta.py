"""The tables of an ``inventory`` database on MariaDB, kept equal in Delta tables.

What it needs:

- the connection ``inventory_mariadb`` (type *CDC: mariadb*): host, port, user and password of an account that may capture;
- the connection ``spark_default``, for example type *Spark* with host ``local[*]``;
- ``airflow cdc setup``, once, for the connection to the state tables.

What may be set as Airflow variables:

- ``cdc_changelog``: folder or object store prefix of the change log, by default ``$AIRFLOW_HOME/cdc/changelog``;
- ``cdc_lake``: where the Delta tables are, by default ``$AIRFLOW_HOME/cdc/lake``;
- ``cdc_jars``: Spark jars of Delta, comma-separated, where machines cannot fetch them from Maven Central by themselves.

And as an environment variable, because it shapes the DAG itself: ``CDC_INVENTORY_SCHEDULE``, by default ``@continuous``.
"""

from __future__ import annotations

import os

from airflow_provider_cdc.dag import ConnectorDefinition, cdc_dag

HOME = os.environ.get("AIRFLOW_HOME", os.path.expanduser("~/airflow"))


def variable(name: str, default: str) -> str:
    """An Airflow variable, looked up when a task runs: parsing a DAG asks for nothing."""
    return f"{{{{ var.value.get('{name}', '{default}') }}}}"


inventory = ConnectorDefinition(
    name="inventory",
    source="mariadb",
    changelog=variable("cdc_changelog", f"{HOME}/cdc/changelog"),
    properties={
        "database.server.id": 223344,
        "database.include.list": "inventory",
        "table.include.list": r"inventory\.(customers|products|orders)",
    },
)

dag = cdc_dag(
    inventory,
    dag_id="inventory_mariadb_to_delta",
    conn_id="inventory_mariadb",
    location=variable("cdc_lake", f"{HOME}/cdc/lake") + "/{database}/{table}",
    schedule=os.environ.get("CDC_INVENTORY_SCHEDULE", "@continuous"),
    group={
        "poll_interval": 5.0,
        "apply": {
            "jars": variable("cdc_jars", ""),
            "conf": {"spark.ui.enabled": "false"},
            "driver_memory": "1g",
        },
    },
)
