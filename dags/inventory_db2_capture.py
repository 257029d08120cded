"""Captures an ``inventory`` schema on Db2 all the time, and applies nothing: ``inventory_apply.py`` does that, for all connectors at once.

What it needs is in ``inventory_db2_to_delta.py``, which captures the same tables: switch on one of the two.
"""

from __future__ import annotations

from inventory import inventory_db2

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(inventory_db2, dag_id="inventory_db2_capture", conn_id="inventory_db2", continuous=True)
