"""The connectors of the examples. No DAG is here: what several DAGs need to know is in one place.

What may be set as Airflow variables:

- ``cdc_changelog``: folder or object store prefix of the change log, by default ``$AIRFLOW_HOME/cdc/changelog``;
- ``cdc_lake``: where the Delta tables are, by default ``$AIRFLOW_HOME/cdc/lake``;
- ``cdc_events``: where Debezium events are, as files of JSON lines, by default ``$AIRFLOW_HOME/cdc/events``;
- ``cdc_jars``: Spark jars of Delta, comma-separated, where machines cannot fetch them from Maven Central by themselves.
"""

from __future__ import annotations

import os

from airflow_provider_cdc.dag import ConnectorDefinition

HOME = os.environ.get("AIRFLOW_HOME", os.path.expanduser("~/airflow"))


def variable(name: str, default: str) -> str:
    """Return a template that looks up an Airflow variable when a task runs: parsing a DAG asks for nothing."""
    return f"{{{{ var.value.get('{name}', '{default}') }}}}"


CHANGELOG = variable("cdc_changelog", f"{HOME}/cdc/changelog")
TABLES = variable("cdc_lake", f"{HOME}/cdc/lake") + "/{database}/{table}"
SPARK = {"jars": variable("cdc_jars", ""), "conf": {"spark.ui.enabled": "false"}, "driver_memory": "1g"}

inventory = ConnectorDefinition(
    name="inventory",
    source="mariadb",
    changelog=CHANGELOG,
    properties={
        "database.server.id": 223344,
        "database.include.list": "inventory",
        "table.include.list": r"inventory\.(customers|products|orders)",
    },
)

inventory_oracle = ConnectorDefinition(
    name="inventory_oracle",
    source="oracle",
    changelog=CHANGELOG,
    properties={
        "schema.include.list": "INVENTORY",
        "table.include.list": r"INVENTORY\.(CUSTOMERS|PRODUCTS|ORDERS)",
        "lob.enabled": True,
        "log.mining.query.filter.mode": "regex",
    },
)

inventory_db2 = ConnectorDefinition(
    name="inventory_db2",
    source="db2",
    changelog=CHANGELOG,
    properties={
        "schema.include.list": "INVENTORY",
        "table.include.list": r"INVENTORY\.(CUSTOMERS|PRODUCTS|ORDERS)",
    },
)

inventory_mongodb = ConnectorDefinition(
    name="inventory_mongodb",
    source="mongodb",
    changelog=CHANGELOG,
    properties={"database.include.list": "inventory"},
)

inventory_events = ConnectorDefinition(
    name="inventory_events",
    source="debezium",
    changelog=CHANGELOG,
    properties={
        "topic.prefix": "inventory",  # that of the Debezium which writes the events
        "events.path": variable("cdc_events", f"{HOME}/cdc/events"),
        "table.include.list": r"inventory\.(customers|products|orders)",
    },
)
