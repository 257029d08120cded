"""Captures an ``inventory`` database on MariaDB all the time, and applies nothing: ``inventory_apply.py`` does that, for all connectors at once.

What it needs is in ``inventory_mariadb_to_delta.py``, which captures the same tables: switch on one of the two.
"""

from __future__ import annotations

from inventory import inventory

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(inventory, dag_id="inventory_mariadb_capture", conn_id="inventory_mariadb", continuous=True)
