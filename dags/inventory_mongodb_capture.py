"""Captures an ``inventory`` database on MongoDB all the time, and applies nothing: ``inventory_apply.py`` does that, for all connectors at once.

What it needs is in ``inventory_mongodb_to_delta.py``, which captures the same collections: switch on one of the two.
"""

from __future__ import annotations

from inventory import inventory_mongodb

from airflow_provider_cdc.dag import cdc_dag

dag = cdc_dag(inventory_mongodb, dag_id="inventory_mongodb_capture", conn_id="inventory_mongodb", continuous=True)
