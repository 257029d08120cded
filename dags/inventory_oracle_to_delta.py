"""The tables of an ``inventory`` schema on Oracle, kept equal in Delta tables.

What it needs:

- the connection ``inventory_oracle`` (type *CDC: oracle*): host, port, user and password of an account that may capture, the name
  of the database as schema, and where there are containers in the extra: ``{"database.pdb.name": "ORCLPDB1"}``;
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
    name="inventory_oracle",
    source="oracle",
    changelog=variable("cdc_changelog", f"{HOME}/cdc/changelog"),
    properties={
        "schema.include.list": "INVENTORY",
        "table.include.list": r"INVENTORY\.(CUSTOMERS|PRODUCTS|ORDERS)",
        "lob.enabled": True,
        "log.mining.query.filter.mode": "regex",
    },
)

dag = cdc_dag(
    inventory,
    dag_id="inventory_oracle_to_delta",
    conn_id="inventory_oracle",
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
